//! What tests and tools look at: bytes, access, and whose device a framework's context is.

use super::context::Core;
use crate::driver::structs::{Location, access_mode};
use crate::driver::{AccessMode, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::DevicePtr;

impl Core {
    // The driver's copies for the host, unlike those on a stream, refuse a bad address and leave the device usable.

    pub(super) fn read(&self, device: Ordinal, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        let _entered = self.enter_primary(device, Operation::Copy)?;
        let status = self.api.copy_to_host(bytes.as_mut_ptr(), from.get(), bytes.len() as u64);
        self.api.check(status, Operation::Copy)
    }

    pub(super) fn write(&self, device: Ordinal, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        let _entered = self.enter_primary(device, Operation::Copy)?;
        let status = self.api.copy_from_host(to.get(), bytes.as_ptr(), bytes.len() as u64);
        self.api.check(status, Operation::Copy)?;
        // From pageable memory the call may end before the last bytes are there.
        self.api.check(self.api.stream_synchronize(0), Operation::Copy)
    }

    pub(super) fn access_at(&self, device: Ordinal, address: DevicePtr) -> Result<AccessMode> {
        let location = Location::device(self.device(device, Operation::Query)?.handle);
        let mut flags = 0;
        self.api.check(self.api.access_get(&mut flags, &location, address.get()), Operation::Query)?;
        access_mode(flags)
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
