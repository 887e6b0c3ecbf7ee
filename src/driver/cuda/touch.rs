//! What tests and tools look at: bytes, access, and whose device a framework's context is.

use super::api::{Location, ON_DEVICE};
use super::context::Core;
use crate::driver::{AccessMode, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::DevicePtr;

impl Core {
    pub(super) fn read(&self, device: Ordinal, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        self.move_bytes(device, bytes.as_mut_ptr() as u64, from.get(), bytes.len())
    }

    pub(super) fn write(&self, device: Ordinal, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        self.move_bytes(device, to.get(), bytes.as_ptr() as u64, bytes.len())
    }

    /// On the stream that nothing else uses, so that nothing else is waited for.
    fn move_bytes(&self, device: Ordinal, dst: u64, src: u64, bytes: usize) -> Result<()> {
        let context = self.primary(device, Operation::Copy)?;
        let _entered = self.enter(context.handle, Operation::Copy)?;
        let status = self.api.copy_async(dst, src, bytes as u64, context.watch);
        // Also after a failure: bytes on their way must not outlive what they belong to.
        let waited = self.api.stream_synchronize(context.watch);
        self.api.check(status, Operation::Copy).and_then(|()| self.api.check(waited, Operation::Copy))
    }

    pub(super) fn access_at(&self, device: Ordinal, address: DevicePtr) -> Result<AccessMode> {
        let location = Location { kind: ON_DEVICE, id: self.device(device, Operation::Query)?.handle };
        let mut flags = 0;
        self.api.check(self.api.access_get(&mut flags, &location, address.get()), Operation::Query)?;
        u32::try_from(flags).map(AccessMode).map_err(|_| {
            Error::new(
                Kind::DriverError,
                Operation::Query,
                "the driver gave an access mode that is not known",
            )
        })
    }

    /// The device of a `CUcontext`, or without one that of a `CUdevice`.
    pub(super) fn locate(&self, context: u64, device: u64) -> Result<Ordinal> {
        let mut wanted = i32::try_from(device).unwrap_or(-1);
        if context != 0 {
            let _entered = self.enter(context, Operation::Open)?;
            self.api.check(self.api.context_device(&mut wanted), Operation::Open)?;
        }
        let missing = || Error::new(Kind::NoDevice, Operation::Open, "no device has this native number");
        self.devices.iter().find(|d| d.handle == wanted).map(|d| d.ordinal).ok_or_else(missing)
    }
}
