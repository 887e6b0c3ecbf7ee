//! Devices, and the rule that a caller's current device is as before on every path.

use super::api::{Api, NO_TIMING, NON_BLOCKING, NOT_READY, RELAXED, SUCCESS, in_words, number};
use super::copy::Kernels;
use super::device::{Device, PLAIN};
use super::holds::Holds;
use crate::driver::library::intern;
use crate::driver::lines::{about_streams, refuse_inside};
use crate::driver::quirks::Care;
use crate::driver::{Ordinal, Stream};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::Granularity;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

/// The streams that belong to whichever device is current: NULL, `hipStreamLegacy`, `hipStreamPerThread`.
const LAST_SPECIAL_STREAM: u64 = 2;

/// What we keep on a device.
#[derive(Debug)]
pub(super) struct Kit {
    /// The copy kernels, or none where they could not be compiled.
    pub(super) kernels: Option<Kernels>,
    /// A stream with nothing on it and an event, to ask whether the device still works.
    watch: u64,
    beat: u64,
}

/// The table of functions, the devices, and what is mapped.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) api: Api,
    pub(super) version: u32,
    pub(super) devices: Vec<Device>,
    pub(super) holds: Holds,
    /// How many blocks we have made, imported and not released.
    pub(super) blocks: AtomicU64,
}

/// HIP keeps the last error of a thread, for whoever asks next: what failed or was not ready in our calls is none of
/// the program's.
#[derive(Debug)]
struct Quiet<'a> {
    api: &'a Api,
    /// Nothing was kept before.
    clean: bool,
}

impl<'a> Quiet<'a> {
    fn new(api: &'a Api) -> Self {
        Self { api, clean: api.peek_error() == SUCCESS }
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if self.clean && self.api.peek_error() != SUCCESS {
            self.api.last_error();
        }
    }
}

/// While it lives, a device is current on this thread, and no capture forbids what we do.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    api: &'a Api,
    before: Option<i32>,
    mode: i32,
    this_thread: PhantomData<*const ()>,
    /// Dropped after what restores the rest.
    _quiet: Quiet<'a>,
}

impl Core {
    pub(super) fn new(path: Option<&std::path::Path>, forced: &[(&str, bool)]) -> Result<Self> {
        let (api, version) = Api::open(path, forced)?;
        let quiet = Quiet::new(&api);
        let mut count = 0;
        api.check(api.device_count(&mut count), Operation::Open)?;
        let count = u32::try_from(count).unwrap_or(0);
        if count < 1 {
            return Err(api.error(100, Operation::Open));
        }
        let read = |i| Device::read(&api, version, Ordinal(i), forced);
        let devices = (0..count).map(read).collect::<Result<_>>()?;
        drop(quiet);
        let core = Self { api, version, devices, holds: Holds::default(), blocks: AtomicU64::new(0) };
        core.notes().iter().for_each(|note| log::warn!("{note}"));
        Ok(core)
    }

    /// What people should know about this driver on this machine.
    pub(super) fn notes(&self) -> Vec<&'static str> {
        let mut notes = Vec::new();
        let slow = self.devices.iter().any(|d| d.care.has(Care::ONE_DEVICE) && d.virtual_memory);
        if slow && self.devices.len() > 1 {
            notes.push(intern(&format!(
                "HIP {} waits for default streams when it maps and unmaps, which can deadlock with collectives of \
                 several devices: show one device to a process (HIP_VISIBLE_DEVICES), or install ROCm 7.14 or later",
                in_words(self.version)
            )));
        }
        notes
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

    /// What every mapped range is made of: the largest granule of all devices, which is that of each in practice.
    pub(super) fn granule(&self) -> Granularity {
        self.devices.iter().map(|d| d.granularity).max().unwrap_or(PLAIN)
    }

    /// The device's kit, made on first use and kept until the driver is dropped.
    pub(super) fn kit(&self, device: Ordinal, operation: Operation) -> Result<&Kit> {
        let found = self.device(device, operation)?;
        found.kit.get_or_try_init(|| self.furnish(found, operation))
    }

    /// Makes `device` current until the guard is dropped.
    pub(super) fn enter_device(&self, device: Ordinal, operation: Operation) -> Result<Entered<'_>> {
        refuse_inside(operation)?;
        let quiet = Quiet::new(&self.api);
        let (mut current, wanted) = (-1, number(self.device(device, operation)?.ordinal));
        self.api.check(self.api.device_current(&mut current), operation)?;
        if current != wanted {
            self.api.check(self.api.device_set(wanted), operation)?;
        }
        // What we do is never meant for a capture unless a capturing stream is named.
        let mut mode = RELAXED;
        if self.api.exchange_capture_mode(&mut mode) != SUCCESS {
            mode = RELAXED;
        }
        let before = (current != wanted).then_some(current);
        Ok(Entered { api: &self.api, before, mode, this_thread: PhantomData, _quiet: quiet })
    }

    /// The device that `stream` belongs to. The default streams are those of `device`.
    pub(super) fn device_of_stream(
        &self,
        stream: Stream,
        device: Ordinal,
        operation: Operation,
    ) -> Result<Ordinal> {
        self.device(device, operation)?;
        if stream.0 <= LAST_SPECIAL_STREAM {
            return Ok(device);
        }
        refuse_inside(operation)?;
        let _quiet = Quiet::new(&self.api);
        let mut of = -1;
        self.api.check(self.api.stream_device(stream.0, &mut of), about_streams(operation))?;
        let missing = || Error::new(Kind::NoDevice, operation, "the stream's device is not known");
        u32::try_from(of).map(Ordinal).map_err(|_| missing())
    }

    /// The same, refusing a stream of another device.
    pub(super) fn check_stream(&self, stream: Stream, device: Ordinal, operation: Operation) -> Result<()> {
        if self.device_of_stream(stream, device, operation)? == device {
            return Ok(());
        }
        Err(Error::new(Kind::InvalidStream, operation, "the stream is another device's"))
    }

    /// An error where the device no longer works. Makes no call that could wait for running work.
    pub(super) fn check_device(&self, device: Ordinal) -> Result<()> {
        let kit = self.kit(device, Operation::Timeline)?;
        let _entered = self.enter_device(device, Operation::Timeline)?;
        // An idle stream may have nothing to tell; one that is given something to do has.
        let asked = [
            self.api.stream_query(kit.watch),
            self.api.event_record(kit.beat, kit.watch),
            self.api.event_query(kit.beat),
        ];
        match asked.into_iter().find(|status| !matches!(*status, SUCCESS | NOT_READY)) {
            None => Ok(()),
            Some(status) => Err(self.api.error(status, Operation::Timeline)),
        }
    }

    /// Logs a failed clean-up.
    pub(super) fn log_status(&self, what: &str, status: i32) {
        log_failure(&self.api, what, status);
    }

    /// Puts onto a device what we need there.
    fn furnish(&self, device: &Device, operation: Operation) -> Result<Kit> {
        let _entered = self.enter_device(device.ordinal, operation)?;
        let (mut watch, mut beat) = (0, 0);
        self.api.check(self.api.stream_create(&mut watch, NON_BLOCKING), operation)?;
        self.api.check(self.api.event_create(&mut beat, NO_TIMING), operation).inspect_err(|_| {
            self.log_status("destroy a stream", self.api.stream_destroy(watch));
        })?;
        let kernels = Kernels::load(&self.api, &device.target);
        Ok(Kit { kernels, watch, beat })
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        for device in &self.devices {
            let Some(kit) = device.kit.get() else { continue };
            let Ok(_entered) = self.enter_device(device.ordinal, Operation::Destroy) else { continue };
            if let Some(kernels) = &kit.kernels {
                self.log_status("unload the copy kernels", self.api.module_unload(kernels.module));
            }
            self.log_status("destroy an event", self.api.event_destroy(kit.beat));
            self.log_status("destroy a stream", self.api.stream_destroy(kit.watch));
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.mode != RELAXED {
            let mut mode = self.mode;
            log_failure(self.api, "restore the capture mode", self.api.exchange_capture_mode(&mut mode));
        }
        if let Some(before) = self.before {
            log_failure(self.api, "restore the current device", self.api.device_set(before));
        }
    }
}

fn log_failure(api: &Api, what: &str, status: i32) {
    // 4: the process ends, and HIP has cleaned up already.
    if status != SUCCESS && status != 4 {
        log::warn!("could not {what}: {}", api.error(status, Operation::Destroy));
    }
}
