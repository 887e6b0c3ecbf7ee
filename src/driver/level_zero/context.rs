//! The table of functions, the contexts and the devices. A context of ours holds all GPUs of one driver; an
//! attached one is the framework's, and is left to it.

use super::api::{Api, SUCCESS, list};
use super::device::{self, Device, gpus, is_gpu};
use super::layout::ContextDesc;
use crate::driver::Ordinal;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, Granularity};
use std::path::Path;

/// The functions, the devices and the contexts.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) api: Api,
    pub(super) devices: Vec<Device>,
    /// Contexts that we made.
    own: Vec<u64>,
}

impl Core {
    /// All GPUs of all drivers, in contexts of our own.
    pub(super) fn open(path: Option<&Path>) -> Result<Self> {
        let api = Api::open(path)?;
        let drivers = api.start()?;
        // A user who may not read it has no figure, and all else.
        api.sysman_init(0);
        let mut core = Self { api, devices: Vec::new(), own: Vec::new() };
        let mut trouble = None;
        for driver in drivers {
            if let Err(error) = core.add(driver) {
                log::warn!("a Level Zero driver is left out: {error}");
                trouble.get_or_insert(error);
            }
        }
        match trouble {
            _ if !core.devices.is_empty() => Ok(core),
            Some(error) => Err(error),
            None => Err(Error::new(Kind::NoDevice, Operation::Open, "the Level Zero drivers have no GPU")),
        }
    }

    /// One device in a context that somebody else made and keeps alive.
    pub(super) fn attach(path: Option<&Path>, context: u64, device: u64) -> Result<Self> {
        if context == 0 || device == 0 {
            let hint = "a context and a device must be given";
            return Err(Error::new(Kind::InvalidArgument, Operation::Open, hint));
        }
        let api = Api::open(path)?;
        let drivers = api.start()?;
        api.sysman_init(0);
        api.check(api.context_status(context), Operation::Open)?;
        let no_gpu = || Error::new(Kind::NoDevice, Operation::Open, "the device is no GPU");
        let properties = is_gpu(&api, device)?.ok_or_else(no_gpu)?;
        let driver = drivers.into_iter().find(|driver| drives(&api, *driver, device));
        let found = Device::read(&api, driver, context, device, &properties, Ordinal(0))?;
        Ok(Self { api, devices: vec![found], own: Vec::new() })
    }

    fn add(&mut self, driver: u64) -> Result<()> {
        let found = gpus(&self.api, driver)?;
        if found.is_empty() {
            return Ok(());
        }
        let mut context = 0;
        let status = self.api.context_create(driver, &ContextDesc::blank(), &mut context);
        let context = self.api.given(status, context, Operation::Open)?;
        self.own.push(context);
        for (handle, properties) in found {
            let ordinal = Ordinal(u32::try_from(self.devices.len()).unwrap_or(u32::MAX));
            match Device::read(&self.api, Some(driver), context, handle, &properties, ordinal) {
                Ok(device) => self.devices.push(device),
                Err(error) => log::warn!("a Level Zero device is left out: {error}"),
            }
        }
        Ok(())
    }

    pub(super) fn device(&self, device: Ordinal, operation: Operation) -> Result<&Device> {
        let missing = || {
            Error::new(
                Kind::NoDevice,
                operation,
                "no device of that number: gvmm_device_count says how many there are",
            )
        };
        self.devices.get(device.0 as usize).ok_or_else(missing)
    }

    /// The page for `size` bytes on a device.
    pub(super) fn granularity(&self, device: Ordinal, size: ByteSize) -> Result<Granularity> {
        let found = self.device(device, Operation::Query)?;
        if !found.virtual_memory {
            return Ok(found.granularity);
        }
        device::page_size(&self.api, found.context, found.handle, size.get().max(1)).map_err(|e| e.of(size))
    }

    /// An error where the device no longer works. Makes no call that could wait for running work.
    pub(super) fn check_health(&self, device: Ordinal, operation: Operation) -> Result<()> {
        let found = self.device(device, operation)?;
        let asked = [self.api.device_status(found.handle), self.api.context_status(found.context)];
        match asked.into_iter().find(|status| *status != SUCCESS) {
            None => Ok(()),
            Some(status) => Err(self.api.error(status, operation)),
        }
    }
}

/// True where `device` is one of the driver's, or a part of one.
fn drives(api: &Api, driver: u64, device: u64) -> bool {
    let all = list(|count, devices| api.devices(driver, count, devices)).unwrap_or_default();
    all.contains(&device)
        || all.iter().any(|whole| {
            list(|count, parts| api.sub_devices(*whole, count, parts))
                .is_ok_and(|parts| parts.contains(&device))
        })
}

/// Contexts are the last to go.
impl Drop for Core {
    fn drop(&mut self) {
        for context in self.own.drain(..) {
            self.api.log("destroy a context", self.api.context_destroy(context));
        }
    }
}
