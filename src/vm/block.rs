//! Physical memory.

use super::Device;
use super::cleanup::Leftover;
use super::shared::{Shared, next_number};
use crate::driver::{Capabilities, NativeBlock, Ordinal};
use crate::error::{Operation, Result};
use crate::units::{ByteSize, Granularity};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of a block: never 0, one of a kind in the process, and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u64);

/// A block of physical memory of one device. Mappings keep it alive; when the last reference goes, memory that
/// is ours is released.
#[derive(Debug)]
pub struct Block {
    shared: Arc<Shared>,
    id: BlockId,
    native: NativeBlock,
    size: ByteSize,
    granularity: Granularity,
    owned: bool,
    /// Where the address table keeps the id and the tag.
    cell: u32,
    /// Mappings that the driver holds, retired ones included; counted only where a block may have but one.
    places: AtomicU32,
    /// Mappings in reservations of [`super::Owner::Caller`], without those retired.
    callers: AtomicU32,
}

impl Block {
    /// A block with the handle `native`, which it releases if `owned`.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        native: NativeBlock,
        size: ByteSize,
        granularity: Granularity,
        owned: bool,
    ) -> Arc<Self> {
        let id = BlockId(next_number());
        Arc::new(Self {
            cell: shared.registry.cell(id),
            shared: Arc::clone(shared),
            id,
            native,
            size,
            granularity,
            owned,
            places: AtomicU32::new(0),
            callers: AtomicU32::new(0),
        })
    }

    /// Its number.
    pub const fn id(&self) -> BlockId {
        self.id
    }

    /// Its size.
    pub const fn size(&self) -> ByteSize {
        self.size
    }

    /// The driver's handle.
    pub const fn native(&self) -> NativeBlock {
        self.native
    }

    /// The number of its device.
    pub fn ordinal(&self) -> Ordinal {
        self.shared.calls.ordinal()
    }

    /// Its device, unless that was closed.
    pub fn device(&self) -> Option<Arc<Device>> {
        self.shared.open_device()
    }

    /// True where it is a block of `device`.
    pub fn belongs_to(&self, device: &Device) -> bool {
        self.is_of(device.shared())
    }

    /// Its size, if it is a block of `device`.
    pub fn size_on(&self, device: &Device) -> Option<ByteSize> {
        self.belongs_to(device).then_some(self.size)
    }

    /// The [`Device::number`] of its device.
    pub(crate) fn device_number(&self) -> u64 {
        self.shared.number
    }

    pub(crate) fn is_of(&self, shared: &Shared) -> bool {
        std::ptr::eq(&raw const *self.shared, shared)
    }

    /// True where dropping it releases the memory (false: an adopted handle that is only borrowed).
    pub const fn is_owned(&self) -> bool {
        self.owned
    }

    /// How many mappings of it callers made (in reservations of [`super::Owner::Caller`]); lost ones count,
    /// retired ones do not.
    pub fn caller_mappings(&self) -> u32 {
        self.callers.load(Ordering::Acquire)
    }

    /// Sets the number that [`Device::find`] gives for it, wherever it is mapped.
    pub fn set_tag(&self, tag: u64) {
        self.shared.registry.set_tag(self.cell, tag);
    }

    /// The number that was set, 0 before.
    pub fn tag(&self) -> u64 {
        self.shared.registry.tag(self.cell)
    }

    /// Exports it to another process.
    ///
    /// # Errors
    /// `Unsupported` where the device cannot share, `WrongState` for a block that was not made exportable, and the
    /// driver's.
    pub fn export(&self) -> Result<OwnedFd> {
        self.shared.require(Capabilities::SHARING, Operation::Share, "this device cannot share blocks")?;
        self.shared.calls.export(self.native)
    }

    pub(crate) const fn cell(&self) -> u32 {
        self.cell
    }

    /// The granule of a block of its size: what its addresses are multiples of.
    pub const fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// Mappings of it that the driver holds where the device cannot alias; 0 where it can.
    pub(crate) fn places(&self) -> u32 {
        self.places.load(Ordering::Acquire)
    }

    pub(crate) fn count_place(&self, up: bool) {
        if !self.shared.shape.aliasing {
            count(&self.places, up);
        }
    }

    pub(crate) fn count_caller(&self, up: bool) {
        count(&self.callers, up);
    }
}

fn count(counter: &AtomicU32, up: bool) {
    if up {
        counter.fetch_add(1, Ordering::AcqRel);
    } else {
        counter.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.shared.registry.free_cell(self.cell);
        if self.owned {
            self.shared.or_keep(self.shared.calls.release(self.native), || Leftover::Block(self.native));
        }
    }
}
