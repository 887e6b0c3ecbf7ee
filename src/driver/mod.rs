//! What a vendor must provide, as one trait, and the drivers that provide it.
//!
//! A range of device addresses is in one state: **free**, **reserved**, **mapped** or **accessible**.
//!
//! ```text
//!        reserve           map             set_access
//!  free ───────▶ reserved ─────▶ mapped ─────────────▶ accessible
//!       ◀───────          ◀───────────────────────────
//!         free                     unmap
//! ```
//!
//! A block of physical memory has `create` and `release`. Each call does all of its work or none of it. What a
//! driver lacks is a bit missing from its [`Capabilities`], never a surprise. The layer above relies on the
//! portable subset only: a block is mapped whole, at offset 0; exactly what was mapped is unmapped; unmap, then
//! release, then free; nobody waits for running work but us.

mod books;
mod cells;
mod codes;
pub mod cuda;
mod delegate;
pub mod h200;
pub mod hip;
pub mod host;
pub mod level_zero;
pub mod library;
mod lines;
mod open;
#[cfg(any(test, feature = "hip-runtime-sys"))]
mod oracle;
pub mod quirks;
mod route;
mod streams;
mod structs;
mod table;
pub mod testing;
mod tiles;
mod timelines;
mod types;

use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};

pub use cells::TimelineCell;
pub(crate) use open::note_absence;
pub use open::{
    DeviceSummary, ORDER, QuirkInForce, Summary, attach, attach_for_libraries, of_framework, open,
    open_plain, survey,
};
pub use route::{Point, RecordId, RouteId, RouteSlice, Way};
pub use streams::{HostFunction, Streams};
pub use types::{
    Access, AccessMode, Capabilities, CopySlice, CreateOptions, DeviceInfo, DriverKind, Graph, MemoryInfo,
    NativeBlock, Ordinal, Stream, TimelineId,
};

/// What a vendor must provide. All calls may come from any thread at once.
pub trait Driver: Send + Sync + Debug {
    /// Whose it is.
    fn kind(&self) -> DriverKind;

    /// Its version in the vendor's words, such as `CUDA 13.0`; none where it has none.
    fn version_in_words(&self) -> Option<String> {
        None
    }

    /// How many devices there are.
    fn device_count(&self) -> u32;

    /// What a device is.
    fn device_info(&self, device: Ordinal) -> Result<DeviceInfo>;

    /// A device's memory now.
    fn memory(&self, device: Ordinal) -> Result<MemoryInfo>;

    /// The unit that blocks and ranges of `size` must be multiples of (on Level Zero it grows with the size).
    fn granularity(&self, device: Ordinal, size: ByteSize) -> Result<Granularity>;

    /// free → reserved. `size` is a multiple of the granularity, `alignment` a power of two not below it.
    fn reserve(&self, device: Ordinal, size: ByteSize, alignment: Granularity) -> Result<DeviceRange>;

    /// reserved → free; exactly a range that `reserve` gave, with nothing mapped.
    fn free(&self, range: DeviceRange) -> Result<()>;

    /// Makes a block of `size` bytes, a multiple of the granularity.
    fn create(&self, device: Ordinal, size: ByteSize, options: CreateOptions) -> Result<NativeBlock>;

    /// Gives up a block. Memory still mapped stays until it is unmapped.
    fn release(&self, block: NativeBlock) -> Result<()>;

    /// reserved → mapped, without access: the whole block of `range.size()` bytes, from its first byte.
    fn map(&self, range: DeviceRange, block: NativeBlock) -> Result<()>;

    /// mapped or accessible → reserved; exactly one range that `map` was given.
    fn unmap(&self, range: DeviceRange) -> Result<()>;

    /// Sets what the listed devices may do in `range`, which covers whole mappings (how many, and which part of
    /// a reservation, the capabilities say); devices that are not listed keep what they have. A part of a
    /// reservation has no holes; the whole of one may have some, and what is mapped in it is meant.
    fn set_access(&self, range: DeviceRange, access: &[Access]) -> Result<()>;

    /// Plain device memory, accessible to its device, aligned to 256 bytes at least.
    fn allocate(&self, device: Ordinal, size: ByteSize) -> Result<DevicePtr>;

    /// Gives back what `allocate` gave.
    fn deallocate(&self, device: Ordinal, address: DevicePtr) -> Result<()>;

    /// Enqueues all `slices` on a stream of `device` (they do not overlap, so their order is free) and says how
    /// many launches that took. On a capturing stream they become part of the graph.
    fn copy(&self, device: Ordinal, stream: Stream, slices: &[CopySlice]) -> Result<u32>;

    /// Keeps what stays of the copies of `slices`. Where [`Capabilities::ROUTES`] is missing, this and the calls that
    /// need a route are refused.
    fn route_create(&self, _device: Ordinal, _way: Way, _slices: &[RouteSlice]) -> Result<RouteId> {
        Err(NO_ROUTES)
    }

    /// Gives up a route and what was recorded of it; no copy of it may be pending, and a graph that has one may not
    /// be launched any more.
    fn route_destroy(&self, _route: RouteId) -> Result<()> {
        Err(NO_ROUTES)
    }

    /// As [`copy`](Self::copy), of a route's slices: near ends and bytes are those of the route, or the bytes are 0,
    /// and then that slice is left out this time. A capturing stream is refused: in a graph the copies would outlive the
    /// route.
    fn route_copy(
        &self,
        device: Ordinal,
        stream: Stream,
        _route: RouteId,
        slices: &[CopySlice],
    ) -> Result<u32> {
        self.copy(device, stream, slices)
    }

    /// Puts a route's copies into the graph that `stream` is being captured into. They copy nothing before
    /// [`route_point`](Self::route_point) has said where the far ends are.
    fn route_record(&self, _stream: Stream, _route: RouteId) -> Result<RecordId> {
        Err(NO_ROUTES)
    }

    /// [`route_record`](Self::route_record) of copies that may bring along where those of `behind`, recorded later on the same
    /// stream, go: one update then points both.
    fn route_record_ahead(&self, stream: Stream, route: RouteId, _behind: RouteId) -> Result<RecordId> {
        self.route_record(stream, route)
    }

    /// [`route_record`](Self::route_record) of copies behind those of `ahead`, and whether they are pointed by those: then
    /// they are pointed in one [`route_point_all`](Self::route_point_all) with them, right behind them, and not alone. Where
    /// the order of the two in the graph is not certain, they are not.
    fn route_record_behind(
        &self,
        stream: Stream,
        route: RouteId,
        _ahead: RecordId,
    ) -> Result<(RecordId, bool)> {
        Ok((self.route_record(stream, route)?, false))
    }

    /// Points a graph's recorded copies at the far ends of `slices`, as in [`route_copy`](Self::route_copy), for all
    /// later launches of `graph`; launches from before keep theirs, wherever they are in their stream. `graph` was
    /// made of the capture (on CUDA: a `CUgraphExec`, whose `CUgraph` still is there). After a failure the copies
    /// go to no one place: point them again before a launch.
    fn route_point(&self, _record: RecordId, _graph: Graph, _slices: &[CopySlice]) -> Result<()> {
        Err(NO_ROUTES)
    }

    /// [`route_point`](Self::route_point) for several records of one graph, one after the other; a failure comes with which
    /// of them it is.
    fn route_point_all(&self, graph: Graph, points: &[Point<'_>]) -> std::result::Result<(), (usize, Error)> {
        let point = |(record, slices): &Point<'_>| self.route_point(*record, graph, slices);
        points.iter().enumerate().try_for_each(|(i, each)| point(each).map_err(|e| (i, e)))
    }

    /// A timeline at value 0.
    fn timeline_create(&self, device: Ordinal) -> Result<TimelineId>;

    /// A timeline at value 0 whose value stands in host memory, written there by the streams: its address, which is
    /// aligned and good until the timeline is destroyed.
    fn counter_create(&self, _device: Ordinal) -> Result<(TimelineId, u64)> {
        Err(NO_COUNTERS)
    }

    /// Gives up a timeline; no write or wait may be pending (a driver that can tell says so as in use).
    fn timeline_destroy(&self, timeline: TimelineId) -> Result<()>;

    /// Enqueues: when `stream` gets there, `timeline` becomes `value`. Refused while the stream is captured.
    fn timeline_write(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()>;

    /// The value now; never blocks.
    fn timeline_read(&self, timeline: TimelineId) -> Result<u64>;

    /// Where the host reads the value without a call for as long as the timeline and the driver live; none where only
    /// [`Self::timeline_read`] tells.
    fn timeline_cell(&self, _timeline: TimelineId) -> Option<TimelineCell> {
        None
    }

    /// Blocks the calling thread until the value is at least `value`. A device that is lost, or a stream that
    /// failed, ends the wait with that error.
    fn timeline_wait(&self, timeline: TimelineId, value: u64) -> Result<()>;

    /// Enqueues: `stream` goes on once the value is at least `value`. Refused while the stream is captured.
    fn stream_wait(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()>;

    /// True where `stream` of `device` is being captured. A driver that can tell refuses one that does not exist.
    fn is_capturing(&self, device: Ordinal, stream: Stream) -> Result<bool>;

    /// Exports a block that was made exportable.
    fn export(&self, block: NativeBlock) -> Result<OwnedFd>;

    /// Imports a block of `size` bytes that another process, or this one, exported.
    fn import(&self, device: Ordinal, fd: BorrowedFd<'_>, size: ByteSize) -> Result<NativeBlock>;

    /// Checks that a native handle from outside is a block of `size` bytes of `device`, as far as the driver can:
    /// a vendor's may crash when it is asked about a number that is no handle, or no longer one.
    fn check_native(&self, device: Ordinal, block: NativeBlock, size: ByteSize) -> Result<()>;

    /// Fills `bytes` from memory of `device`, and waits until that is done: whether for what streams still write
    /// there, too, is not promised. For tests and tools; steps use `copy`.
    fn read(&self, _device: Ordinal, _from: DevicePtr, _bytes: &mut [u8]) -> Result<()> {
        Err(unsupported(Operation::Copy, "this driver reads no bytes for the host"))
    }

    /// Writes `bytes` to memory of `device`, and waits until that is done.
    fn write(&self, _device: Ordinal, _to: DevicePtr, _bytes: &[u8]) -> Result<()> {
        Err(unsupported(Operation::Copy, "this driver writes no bytes for the host"))
    }

    /// What `device` may do at a mapped address, as the driver knows it.
    fn access_at(&self, _device: Ordinal, _address: DevicePtr) -> Result<AccessMode> {
        Err(unsupported(Operation::Query, "this driver does not tell access"))
    }

    /// True where `device` can be given access to memory of `owner`.
    fn reaches(&self, device: Ordinal, owner: Ordinal) -> Result<bool> {
        Ok(device == owner)
    }

    /// True where a framework that reads device memory from the host would fault on what is mapped.
    fn faults_hosts(&self, _device: Ordinal) -> Result<bool> {
        Ok(false)
    }

    /// The number of the device that a framework means by a context of its own and a device, in the driver's own
    /// handles. What another context's memory is of no use to needs a driver of its own instead
    /// ([`attach`]).
    fn locate(&self, _context: u64, _device: u64) -> Result<Ordinal> {
        Err(unsupported(Operation::Open, "this driver has no contexts: open its devices by number"))
    }

    /// Streams of our own, for callers who have none.
    fn streams(&self) -> &dyn Streams;
}

const NO_ROUTES: Error =
    unsupported(Operation::Copy, "no routes here: let begin and end of a step make the copies");

const NO_COUNTERS: Error =
    unsupported(Operation::Timeline, "this driver's streams write no values to host memory");

/// The failure of a call that a driver does not have.
pub const fn unsupported(operation: Operation, hint: &'static str) -> Error {
    Error::new(Kind::Unsupported, operation, hint)
}
