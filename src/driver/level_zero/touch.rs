//! What tests and tools look at: bytes, on a list of their own, and access; and whose device a framework means.
#![allow(unsafe_code, reason = "moves bytes to and from memory of the host that the driver gave")]

use super::context::Core;
use super::layout::HostAllocDesc;
use super::memory::Ledger;
use super::{LevelZeroDriver, READ_ONLY, READ_WRITE};
use crate::driver::{AccessMode, CopySlice, Driver, Ordinal, Streams};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::DevicePtr;

/// Memory of the host that the device reaches: this driver promises copies between such memory only.
struct Stage<'a> {
    core: &'a Core,
    context: u64,
    address: u64,
    bytes: usize,
}

impl<'a> Stage<'a> {
    fn new(core: &'a Core, device: Ordinal, bytes: usize) -> Result<Self> {
        let context = core.device(device, Operation::Copy)?.context;
        let mut address = 0;
        let status = core.api.allocate_host(context, &HostAllocDesc::blank(), bytes as u64, 64, &mut address);
        let address = core.api.given(status, address, Operation::Copy)?;
        Ok(Self { core, context, address, bytes })
    }

    fn bytes(&mut self) -> &mut [u8] {
        let start = std::ptr::with_exposed_provenance_mut(self.address as usize);
        // SAFETY: `new` was given that many bytes of the host's memory, the driver has filled them with something,
        // and they are this stage's alone until it is dropped.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes) }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.core.api.log("free memory of the host", self.core.api.deallocate(self.context, self.address));
    }
}

impl LevelZeroDriver {
    pub(super) fn read_bytes(&self, device: Ordinal, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut stage = Stage::new(&self.core, device, bytes.len())?;
        self.copy_and_wait(device, DevicePtr(stage.address), from, bytes.len())?;
        bytes.copy_from_slice(stage.bytes());
        Ok(())
    }

    pub(super) fn write_bytes(&self, device: Ordinal, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut stage = Stage::new(&self.core, device, bytes.len())?;
        stage.bytes().copy_from_slice(bytes);
        self.copy_and_wait(device, to, DevicePtr(stage.address), bytes.len())
    }

    fn copy_and_wait(&self, device: Ordinal, dst: DevicePtr, src: DevicePtr, bytes: usize) -> Result<()> {
        let stream = self.lines.create(&self.core, device)?;
        let enqueued = self.copy(device, stream, &[CopySlice { dst, src, bytes: bytes as u64 }]);
        let waited = self.synchronize(stream);
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
