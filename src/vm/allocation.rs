//! Memory with an address, made and freed as one.

use super::shared::Shared;
use super::{Block, Reservation};
use crate::units::{ByteSize, DevicePtr};
use std::sync::Arc;

/// Memory with an address and access: a block in a reservation of its own size, or plain device memory where the
/// device has no virtual memory. Dropping it gives everything back; whoever drops it vouches that nothing uses
/// it any more.
#[derive(Debug)]
pub struct Allocation {
    shared: Arc<Shared>,
    address: DevicePtr,
    size: ByteSize,
    parts: Option<(Arc<Reservation>, Arc<Block>)>,
}

impl Allocation {
    /// Where it starts.
    pub const fn address(&self) -> DevicePtr {
        self.address
    }

    /// How many bytes there are: what was asked for, rounded up to granules where the memory is a block.
    pub const fn size(&self) -> ByteSize {
        self.size
    }

    /// Its block; plain device memory has none.
    pub fn block(&self) -> Option<&Arc<Block>> {
        self.parts.as_ref().map(|(_, block)| block)
    }

    /// Its reservation; plain device memory has none.
    pub fn reservation(&self) -> Option<&Arc<Reservation>> {
        self.parts.as_ref().map(|(reservation, _)| reservation)
    }
}
