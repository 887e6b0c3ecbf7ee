//! What a step's caller gives: one buffer a slot.

use crate::error::Result;
use crate::units::{ByteSize, DevicePtr};
use crate::vm::{Block, Device};
use std::sync::Arc;

/// One slot's memory in one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Buffer {
    /// Where it is; may be NULL for a slot that is mapped.
    pub address: DevicePtr,
    /// How many bytes it has; at least its slot's.
    pub bytes: ByteSize,
    /// What tells its allocation from others. With a block, the block's, never 0; without, the caller's, another
    /// for each allocation, where 0 says "always changed".
    pub id: u64,
    /// True where [`Buffers::block`] has a block for it.
    pub has_block: bool,
}

/// The buffers of one step, one a slot, in the slots' order. A binding reads them during
/// [`begin`](crate::rebind::Binding::begin) only.
pub trait Buffers {
    /// How many there are.
    fn len(&self) -> usize;

    /// True where there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Buffer `i`, below [`len`](Self::len).
    fn get(&self, i: usize) -> Buffer;

    /// The block of buffer `i`, which has one. A stale handle is an error.
    fn block(&self, i: usize) -> Result<Arc<Block>>;

    /// How many bytes the block of buffer `i` has, which has one; none where it is another device's. All that a slot
    /// needs to know which is not mapped. Fails as [`block`](Self::block) does.
    fn block_size(&self, i: usize, device: &Device) -> Result<Option<ByteSize>> {
        Ok(self.block(i)?.size_on(device))
    }

    /// A number that changes whenever the handle of any block is destroyed that a buffer of this step may name. While it
    /// stays, a buffer with the same id as in the step before has the same block, and [`block`](Self::block) is not asked
    /// again.
    fn epoch(&self) -> u64;

    /// A number that changes whenever the handle of any block is destroyed, of this step or not. While it stays, a buffer
    /// with the id of an earlier one has the same block, whose size is not asked for again.
    fn deaths(&self) -> u64 {
        self.epoch()
    }
}
