//! What tests and tools look at: bytes, on a list of their own, and access; and whose device a framework means.

use super::LevelZeroDriver;
use super::context::Core;
use super::memory::Ledger;
use super::{READ_ONLY, READ_WRITE};
use crate::driver::{AccessMode, CopySlice, Ordinal, Streams};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::DevicePtr;

impl LevelZeroDriver {
    pub(super) fn touch(&self, device: Ordinal, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        let stream = self.lines.create(&self.core, device)?;
        let slices = [CopySlice { dst, src, bytes: bytes as u64 }];
        let enqueued = crate::driver::Driver::copy(self, device, stream, &slices);
        let waited = Streams::synchronize(self, stream);
        let ended = self.lines.destroy(&self.core, &self.work, stream);
        enqueued.and(waited).and(ended)
    }
}

impl Core {
    /// What a mapping was given, which all devices of its context have.
    pub(super) fn access_at(
        &self,
        ledger: &Ledger,
        device: Ordinal,
        address: DevicePtr,
    ) -> Result<AccessMode> {
        self.device(device, Operation::Query)?;
        let unmapped = || Error::new(Kind::NotMapped, Operation::Query, "nothing is mapped at this address");
        let place = ledger.places.holding(address).ok_or_else(unmapped)?;
        Ok(match place.access {
            READ_WRITE => AccessMode::READ_WRITE,
            READ_ONLY => AccessMode::READ,
            _ => AccessMode::NONE,
        })
    }

    /// The device of ours with these handles.
    pub(super) fn locate(&self, context: u64, device: u64) -> Result<Ordinal> {
        let found =
            self.devices.iter().find(|d| d.handle == device && (context == 0 || d.context == context));
        let hint = "no device of the driver's own contexts: attach it";
        found.map(|d| d.ordinal).ok_or_else(|| Error::new(Kind::NoDevice, Operation::Open, hint))
    }
}
