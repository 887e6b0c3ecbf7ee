//! Physical memory.

use super::Device;
use super::shared::Shared;
use crate::driver::{NativeBlock, Ordinal};
use crate::error::Result;
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
    /// Mappings that the driver holds, pending ones included.
    places: AtomicU32,
    /// Mappings in reservations of [`super::Owner::Caller`], without those retired.
    callers: AtomicU32,
}

impl Block {
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
        todo!()
    }

    /// Its device, unless that was closed.
    pub fn device(&self) -> Option<Arc<Device>> {
        todo!()
    }

    /// True where it is a block of `device`.
    pub fn belongs_to(&self, device: &Device) -> bool {
        let _ = device;
        todo!()
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
        let _ = tag;
        todo!()
    }

    /// The number that was set, 0 before.
    pub fn tag(&self) -> u64 {
        todo!()
    }

    /// Exports it to another process.
    ///
    /// # Errors
    /// `Unsupported` where it was not made exportable, and the driver's.
    pub fn export(&self) -> Result<OwnedFd> {
        todo!()
    }
}
