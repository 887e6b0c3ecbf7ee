//! The drivers, each opened once in a process, and the devices that handles share.

use super::device::GVMM_DRIVER_AUTO;
use super::handle::{Noun, Ref, Table};
use super::types::gvmm_device;
use crate::config;
use crate::driver::testing::Fault;
use crate::driver::{self, Driver, DriverKind, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::vm::Device;
use once_cell::sync::OnceCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A driver that is open.
pub(super) struct Opened {
    pub(super) driver: Arc<dyn Driver>,
    /// The same driver's switch for tests.
    pub(super) fault: Arc<Fault>,
}

/// The driver of a number, opened at the first call that succeeds.
pub(super) fn open(number: u32) -> Result<&'static Opened> {
    static OPENED: [OnceCell<Opened>; 4] = [const { OnceCell::new() }; 4];
    let Some(kind) = wanted(number) else { return first(|kind| open(kind.0)) };
    let place = driver::ORDER.iter().position(|&known| known == kind).and_then(|index| OPENED.get(index));
    let place =
        place.ok_or(Error::new(Kind::InvalidArgument, Operation::Open, "no driver has this number"))?;
    place.get_or_try_init(|| {
        let fault = Arc::new(Fault::new(driver::open(Some(kind), config::get())?));
        Ok(Opened { driver: fault.clone(), fault })
    })
}

/// The kind that a number names, or none where the first found shall do.
fn wanted(number: u32) -> Option<DriverKind> {
    match number {
        GVMM_DRIVER_AUTO => config::get().driver.map(DriverKind),
        number => Some(DriverKind(number)),
    }
}

/// The first driver that this machine has.
fn first(open: impl Fn(DriverKind) -> Result<&'static Opened>) -> Result<&'static Opened> {
    let mut last = Error::new(Kind::DriverNotFound, Operation::Open, "no driver was found");
    for kind in driver::ORDER {
        match open(kind) {
            Ok(opened) => return Ok(opened),
            Err(error) => {
                driver::note_absence(kind, &error);
                last = error;
            }
        }
    }
    Err(last)
}

/// Where a device is found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    /// By its number.
    Numbered(Ordinal),
    /// By a framework's context and device.
    Attached(u64, u64),
    /// The same, for memory that the framework hands to libraries.
    ForLibraries(u64, u64),
}

/// What a handle of a device stands for. Several may share the device.
pub(super) struct DeviceObject {
    pub(super) device: Arc<Device>,
    pub(super) fault: Arc<Fault>,
    /// How many living things were made through this handle; far below 0 once it is closed.
    children: AtomicI64,
}

const CLOSED: i64 = i64::MIN / 2;

const HAS_CHILDREN: Error = Error::new(
    Kind::InUse,
    Operation::Destroy,
    "something made through this handle still lives: destroy it first",
);

static DEVICES: Table<DeviceObject> = Table::new();

impl Noun for DeviceObject {
    const TYPE: u64 = 1;
    type Handle = gvmm_device;
    fn table() -> &'static Table<Self> {
        &DEVICES
    }
}

impl DeviceObject {
    /// A handle's object for a device, which is opened where no other handle has it open.
    pub(super) fn open(driver: u32, ordinal: Ordinal) -> Result<Self> {
        let opened = self::open(driver)?;
        let place = (opened.driver.kind(), Place::Numbered(ordinal));
        Self::shared(place, || Ok((Device::open(opened.driver.clone(), ordinal)?, opened.fault.clone())))
    }

    /// The same for the device that a framework means, in the driver's own handles.
    pub(super) fn attach(driver: u32, context: u64, device: u64) -> Result<Self> {
        let opened = self::open(driver)?;
        match opened.driver.locate(context, device) {
            Ok(ordinal) => Self::open(opened.driver.kind().0, ordinal),
            Err(_) if opened.driver.kind() == DriverKind::LEVEL_ZERO => {
                Self::shared((DriverKind::LEVEL_ZERO, Place::Attached(context, device)), || {
                    let (own, ordinal) =
                        driver::attach(DriverKind::LEVEL_ZERO, context, device, config::get())?;
                    let fault = Arc::new(Fault::new(own));
                    Ok((Device::open(fault.clone(), ordinal)?, fault))
                })
            }
            Err(error) => Err(error),
        }
    }

    /// The device behind a framework's Level Zero context and device, for memory that it hands to its libraries.
    pub(super) fn for_libraries(context: u64, device: u64) -> Result<Self> {
        Self::shared((DriverKind::LEVEL_ZERO, Place::ForLibraries(context, device)), || {
            let (own, ordinal) = driver::attach_for_libraries(context, device, config::get())?;
            let fault = Arc::new(Fault::new(own));
            Ok((Device::open(fault.clone(), ordinal)?, fault))
        })
    }

    /// The device of a framework that reads its memory from the host: without virtual memory where that would fault.
    pub(super) fn for_hosts(driver: u32, ordinal: Ordinal) -> Result<Self> {
        let mapped = Self::open(driver, ordinal)?;
        let (kind, faults) = (mapped.device.driver().kind(), mapped.device.driver().faults_hosts(ordinal)?);
        if !faults {
            return Ok(mapped);
        }
        Self::shared((kind, Place::ForLibraries(0, ordinal.0.into())), || {
            log::warn!("device {}: the host has no access to mapped memory: plain allocations", ordinal.0);
            let fault = Arc::new(Fault::new(driver::open_plain(kind, ordinal, config::get())?));
            Ok((Device::open(fault.clone(), ordinal)?, fault))
        })
    }

    /// A handle's object for the device at `place`, opened by `open` where no other handle has it open.
    fn shared(
        place: (DriverKind, Place),
        open: impl FnOnce() -> Result<(Arc<Device>, Arc<Fault>)>,
    ) -> Result<Self> {
        type Devices = HashMap<(DriverKind, Place), (Weak<Device>, Weak<Fault>)>;
        static OPEN: Mutex<Option<Devices>> = Mutex::new(None);
        // Held across opening, so that two threads do not open the same device twice.
        let mut devices = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = devices.get_or_insert_default();
        let known = devices.get(&place).and_then(|(device, fault)| device.upgrade().zip(fault.upgrade()));
        let (device, fault) = known.map_or_else(open, Ok)?;
        devices.retain(|_, (device, _)| device.strong_count() > 0);
        devices.insert(place, (Arc::downgrade(&device), Arc::downgrade(&fault)));
        Ok(Self { device, fault, children: AtomicI64::new(0) })
    }

    /// Fails where something made through this handle lives.
    pub(super) fn check_unused(&self) -> Result<()> {
        match self.children.load(Ordering::Acquire) {
            0 => Ok(()),
            1.. => Err(HAS_CHILDREN),
            _ => Err(JUST_CLOSED),
        }
    }

    /// Closes it to new children.
    pub(super) fn close(&self) -> Result<()> {
        let closed = self.children.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire);
        closed.map(|_| ()).map_err(|_| HAS_CHILDREN)
    }
}

const JUST_CLOSED: Error =
    Error::new(Kind::InvalidHandle, Operation::None, "another thread has just closed the device");

/// Says that something made through a device's handle lives, for as long as it does itself.
pub(super) struct Child(Ref<DeviceObject>);

impl Ref<DeviceObject> {
    /// One more child.
    pub(super) fn adopt(&self) -> Result<Child> {
        if self.children.fetch_add(1, Ordering::AcqRel) < 0 {
            self.children.fetch_sub(1, Ordering::AcqRel);
            return Err(JUST_CLOSED);
        }
        Ok(Child(self.share()))
    }
}

impl Child {
    /// The device.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    /// One more child of the same handle.
    pub(super) fn again(&self) -> Result<Self> {
        self.0.adopt()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.0.children.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::device::*;

    #[test]
    fn the_numbers_are_the_drivers() {
        let names = ["auto", "cuda", "hip", "level_zero", "host"];
        let numbers =
            [GVMM_DRIVER_AUTO, GVMM_DRIVER_CUDA, GVMM_DRIVER_HIP, GVMM_DRIVER_LEVEL_ZERO, GVMM_DRIVER_HOST];
        for (name, number) in names.into_iter().zip(numbers).skip(1) {
            assert_eq!(DriverKind(number).name(), name);
            let (config, _) = config::Config::read(|v| (v == "GVMM_DRIVER").then(|| name.to_string()));
            assert_eq!(config.driver, Some(number));
        }
    }
}
