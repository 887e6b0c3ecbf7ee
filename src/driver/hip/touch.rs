//! What tests and tools look at: bytes and access; and the device of a native number.

use super::api::{BY_ADDRESS, number};
use super::context::Core;
use crate::driver::structs::{Location, access_mode};
use crate::driver::{AccessMode, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::DevicePtr;

impl Core {
    pub(super) fn read(&self, device: Ordinal, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        self.move_bytes(device, (bytes.as_mut_ptr() as u64, from.get()), bytes.len() as u64, from)
    }

    pub(super) fn write(&self, device: Ordinal, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        self.move_bytes(device, (to.get(), bytes.as_ptr() as u64), bytes.len() as u64, to)
    }

    /// Cut where one mapping ends and the next begins: HIP's own copies do not go across.
    fn move_bytes(&self, device: Ordinal, (dst, src): (u64, u64), bytes: u64, at: DevicePtr) -> Result<()> {
        let _entered = self.enter_device(device, Operation::Copy)?;
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(self.holds.room_at(at.get() + done));
            let status = self.api.copy(dst + done, src + done, piece, BY_ADDRESS);
            self.api.check(status, Operation::Copy)?;
            done += piece;
        }
        Ok(())
    }

    pub(super) fn access_at(&self, device: Ordinal, address: DevicePtr) -> Result<AccessMode> {
        let location = Location::device(number(self.device(device, Operation::Query)?.ordinal));
        let mut flags = 0;
        self.api.check(self.api.access_get(&mut flags, &location, address.get()), Operation::Query)?;
        access_mode(flags)
    }

    /// The device of a `hipDevice_t`.
    pub(super) fn locate(&self, context: u64, device: u64) -> Result<Ordinal> {
        if context != 0 {
            let hint = "HIP has no contexts of a framework's own: give 0";
            return Err(Error::new(Kind::InvalidArgument, Operation::Open, hint));
        }
        let missing = || Error::new(Kind::NoDevice, Operation::Open, "no device has this native number");
        let wanted = u32::try_from(device).map_err(|_| missing())?;
        self.device(Ordinal(wanted), Operation::Open).map(|d| d.ordinal).map_err(|_| missing())
    }
}
