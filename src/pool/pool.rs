//! The pool as callers see it.

use super::settings::Settings;
use super::{Shortage, Snapshot, Stats, StreamStats};
use crate::driver::{Access, Stream};
use crate::error::Result;
use crate::units::{ByteSize, DevicePtr};
use crate::vm::Device;
use std::sync::Arc;

/// The number of a pool of its own: PyTorch's pair. [`PoolId::DEFAULT`] is where everything else goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// Where allocations go that no filter takes.
    pub const DEFAULT: Self = Self(0, 0);
}

/// Whether allocations of a stream go to the pool that is being allocated to.
pub type Filter = Arc<dyn Fn(Stream) -> bool + Send + Sync>;

/// Called when an allocation of so many bytes cannot be satisfied, with no lock held, before it is tried a last
/// time. It may free, and must not allocate from the pool.
pub type Pressure = Arc<dyn Fn(ByteSize) + Send + Sync>;

/// A block that the program holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Where the block starts.
    pub address: DevicePtr,
    /// Its size, rounded.
    pub size: ByteSize,
    /// The stream it was allocated for.
    pub stream: Stream,
    /// The pool.
    pub pool: PoolId,
}

/// A caching allocator of one device. Everything may be called from any thread.
#[derive(Debug)]
pub struct Pool {}

impl Pool {
    /// A pool without memory.
    ///
    /// # Errors
    /// `Unsupported` without virtual memory, `InvalidSize` for settings that do not fit the device.
    pub fn new(_device: &Arc<Device>, _settings: &Settings) -> Result<Arc<Self>> {
        todo!()
    }

    /// Memory for work on `stream`, aligned to 512 bytes: what an earlier block of that stream left is used again at
    /// once, since the stream runs in order. May call the pressure callbacks, and may block the calling thread while
    /// it waits for streams (never while one is captured).
    ///
    /// # Errors
    /// `InvalidSize` for 0 and for more than a segment has, `OutOfDeviceMemory` (then [`Self::shortage`] says more),
    /// `OutOfAddressSpace`, and the driver's. Nothing has changed then.
    pub fn alloc(&self, _size: ByteSize, _stream: Stream) -> Result<DevicePtr> {
        todo!()
    }

    /// Gives back what [`Self::alloc`] gave. Work already enqueued on the block's own stream may still use it, and so
    /// may work on the streams that [`Self::record_stream`] named.
    ///
    /// # Errors
    /// `InvalidArgument` for an address that is not the start of a block of this pool, or one that was freed already.
    pub fn free(&self, _address: DevicePtr) -> Result<()> {
        todo!()
    }

    /// The same where work on `stream` was the last to use it, whatever stream it was allocated for.
    ///
    /// # Errors
    /// As [`Self::free`].
    pub fn free_on(&self, _address: DevicePtr, _stream: Stream) -> Result<()> {
        todo!()
    }

    /// Says that `stream` uses the block that holds `address`, too: once it is freed, it is used again only after
    /// that stream has passed what is enqueued on it then.
    ///
    /// # Errors
    /// `InvalidArgument` for an address that no block in use holds.
    pub fn record_stream(&self, _address: DevicePtr, _stream: Stream) -> Result<()> {
        todo!()
    }

    /// The block in use that holds `address`.
    pub fn find(&self, _address: DevicePtr) -> Option<Place> {
        todo!()
    }

    /// Gives back chunks in which nothing is in use, and says how many bytes. Waits for the streams that used them.
    ///
    /// # Errors
    /// `StreamCapturing` while a stream is captured, and the driver's; what could be given back was.
    pub fn trim(&self) -> Result<ByteSize> {
        todo!()
    }

    /// Sets the most that the pool may reserve; none: all that there is.
    ///
    /// # Errors
    /// `InvalidSize` for 0, `InUse` for less than blocks in use take.
    pub fn set_limit(&self, _limit: Option<ByteSize>) -> Result<()> {
        todo!()
    }

    /// Sets the limit as a fraction of the device's memory, above 0 and at most 1.
    ///
    /// # Errors
    /// `InvalidArgument` for another number, `Unsupported` where the device's memory is unknown, `InUse`.
    pub fn set_fraction(&self, _fraction: f64) -> Result<()> {
        todo!()
    }

    /// Sets who may use the memory of the pool, also what lives already (an empty list: its own device).
    ///
    /// # Errors
    /// As [`crate::vm::Reservation::set_access`]; then all is as before.
    pub fn set_access(&self, _access: &[Access]) -> Result<()> {
        todo!()
    }

    /// Says that a stream is about to be destroyed: what it still has enqueued is remembered, its free memory goes
    /// to whoever needs it, and its blocks in use stay until they are freed.
    ///
    /// # Errors
    /// `StreamCapturing`, and the driver's; the stream is then still known.
    pub fn forget_stream(&self, _stream: Stream) -> Result<()> {
        todo!()
    }

    /// From here on, allocations for streams that `filter` takes go to the pool `id`, which is made where it does not
    /// exist; it has one user more. Until [`Self::end_capture`], nothing is unmapped, lent or waited for.
    ///
    /// # Errors
    /// `InvalidArgument` for [`PoolId::DEFAULT`], `WrongState` where `id` is being allocated to already.
    pub fn begin_capture(&self, _id: PoolId, _filter: Filter) -> Result<()> {
        todo!()
    }

    /// Ends what [`Self::begin_capture`] began. The pool stays for its users.
    ///
    /// # Errors
    /// `WrongState` where nothing was begun.
    pub fn end_capture(&self, _id: PoolId) -> Result<()> {
        todo!()
    }

    /// The pool `id` has one user (a graph) less. Without any, its free memory is lent and trimmed like all other.
    ///
    /// # Errors
    /// `InvalidArgument` for a pool that does not exist.
    pub fn release_pool(&self, _id: PoolId) -> Result<()> {
        todo!()
    }

    /// Adds a callback for when memory runs out.
    pub fn on_pressure(&self, _callback: Pressure) {
        todo!()
    }

    /// Its figures.
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// The figures of each (pool, stream).
    pub fn stream_stats(&self) -> Vec<StreamStats> {
        todo!()
    }

    /// Peaks start again from what is now.
    pub fn reset_peaks(&self) {
        todo!()
    }

    /// Why the last allocation failed for lack of memory, if one did.
    pub fn shortage(&self) -> Option<Shortage> {
        todo!()
    }

    /// Segments, blocks, and events where they are kept.
    pub fn snapshot(&self) -> Snapshot {
        todo!()
    }

    /// Looks whether freed blocks that other streams used have come free, and collects. Never blocks.
    pub fn poll(&self) {
        todo!()
    }
}
