//! A picture of a pool, in the terms of PyTorch's memory viewer.

use super::PoolId;
use crate::driver::Stream;
use crate::units::{ByteSize, DevicePtr};

/// How a block stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// The program holds it (`active_allocated`).
    Allocated,
    /// Freed, and another stream still uses it (`active_pending_free`).
    Pending,
    /// Free (`inactive`).
    Free,
}

/// One block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    /// Where.
    pub address: DevicePtr,
    /// Its size.
    pub size: ByteSize,
    /// What was asked for; 0 where free.
    pub requested: ByteSize,
    /// How it stands.
    pub state: BlockState,
}

/// A run of live chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    /// The pool.
    pub pool: PoolId,
    /// The stream, none once it was forgotten.
    pub stream: Option<Stream>,
    /// Where it starts.
    pub address: DevicePtr,
    /// Its size.
    pub size: ByteSize,
    /// True for requests of more than 1 MiB.
    pub large: bool,
    /// Its blocks, by address.
    pub blocks: Vec<BlockInfo>,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// An allocation.
    Alloc,
    /// A free was asked for.
    FreeRequested,
    /// A free was done.
    FreeCompleted,
    /// Memory was given to a segment.
    SegmentMap,
    /// Memory was taken from a segment.
    SegmentUnmap,
    /// An allocation failed for lack of memory or addresses.
    OutOfMemory,
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its number among all of the pool's events.
    pub number: u64,
    /// What.
    pub kind: EventKind,
    /// Where, or NULL.
    pub address: DevicePtr,
    /// How many bytes.
    pub size: ByteSize,
    /// For which stream; none where it was forgotten since.
    pub stream: Option<Stream>,
    /// In which pool.
    pub pool: PoolId,
}

/// A picture of a pool.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Snapshot {
    /// Runs of live chunks, by address.
    pub segments: Vec<SegmentInfo>,
    /// The events kept, oldest first.
    pub events: Vec<Event>,
}
