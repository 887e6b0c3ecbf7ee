//! Address ranges and what is mapped in them.

use super::shared::Shared;
use super::{Block, Device, MappingInfo};
use crate::driver::Access;
use crate::error::Result;
use crate::units::{ByteSize, DeviceRange};
use std::sync::Arc;

/// Who made a reservation's mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The caller: a block mapped there is in use.
    Caller,
    /// This library (bindings, allocations, shadows): such mappings keep a block alive, and nothing more.
    Library,
}

/// A range of addresses of one device. Dropping it unmaps what is mapped and frees the range (once retired
/// mappings in it have passed); whoever drops it vouches that nothing uses what is still mapped.
#[derive(Debug)]
pub struct Reservation {
    shared: Arc<Shared>,
    id: u64,
    range: DeviceRange,
    owner: Owner,
}

impl Reservation {
    /// Its addresses.
    pub const fn range(&self) -> DeviceRange {
        self.range
    }

    /// Who makes its mappings.
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// Its number, one of a kind in the process.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its device, unless that was closed.
    pub fn device(&self) -> Option<Arc<Device>> {
        todo!()
    }

    /// True where it is a reservation of `device`.
    pub fn belongs_to(&self, device: &Device) -> bool {
        let _ = device;
        todo!()
    }

    /// Its access list, by device, without the devices that have none.
    pub fn access(&self) -> Arc<[Access]> {
        todo!()
    }

    /// Maps the whole of `block` at `offset`, without access; a later [`Self::set_access`] gives it. A retired
    /// mapping of the same block at the same place comes back into use with no driver call; one of another block
    /// in the way is waited for.
    ///
    /// # Errors
    /// `InvalidArgument` for a block of another device, `Misaligned`, `OutOfRange`, `AlreadyMapped`,
    /// `Unsupported` where the block is mapped elsewhere and the device cannot alias, and the driver's. Nothing
    /// has changed then.
    pub fn map(&self, offset: ByteSize, block: &Arc<Block>) -> Result<()> {
        let _ = (offset, block);
        todo!()
    }

    /// Unmaps the one or several mappings that make up `size` bytes from `offset`. Nobody is waited for.
    ///
    /// # Errors
    /// `InvalidSize`, `OutOfRange`, `NotMapped` where nothing is mapped there, `PartialMapping` where the range
    /// cuts a mapping, and the driver's. Nothing has changed then, except for `RangeLost`.
    pub fn unmap(&self, offset: ByteSize, size: ByteSize) -> Result<()> {
        let _ = (offset, size);
        todo!()
    }

    /// Sets what devices may do. For the whole reservation this becomes its list and clears overrides; for exact
    /// mappings it overrides the list until they are unmapped or the whole is set. A device that is no longer
    /// listed loses its access; an empty list is the own device, read and write.
    ///
    /// # Errors
    /// `InvalidArgument` for a mode or a list that does not exist, `NoDevice`, `InvalidSize`, `OutOfRange`,
    /// `NotMapped`, `PartialMapping`, `Unsupported` for a part where the device sets only the whole, and the
    /// driver's. Nothing has changed then, except for `RangeLost`.
    pub fn set_access(&self, offset: ByteSize, size: ByteSize, access: &[Access]) -> Result<()> {
        let _ = (offset, size, access);
        todo!()
    }

    /// What is mapped, by offset; retired and lost mappings are listed as such.
    pub fn mappings(&self) -> Vec<MappingInfo> {
        todo!()
    }

    /// True where nothing is mapped; retired mappings do not count, lost ones do.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
}
