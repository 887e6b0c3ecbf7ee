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

/// Whose driver it is. A number, since a newer library may know more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DriverKind(pub u32);

impl DriverKind {
    /// NVIDIA's.
    pub const CUDA: Self = Self(1);
    /// AMD's.
    pub const HIP: Self = Self(2);
    /// Intel's.
    pub const LEVEL_ZERO: Self = Self(3);
    /// The host's own memory.
    pub const HOST: Self = Self(4);

    /// The name for people and for `GVMM_DRIVER`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CUDA => "cuda",
            Self::HIP => "hip",
            Self::LEVEL_ZERO => "level_zero",
            Self::HOST => "host",
            _ => "unknown",
        }
    }
}

/// The number of a device of one driver, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ordinal(pub u32);

/// What a device and its driver can do, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Reserve, map, set access and unmap are there at all.
    pub const VIRTUAL_MEMORY: Self = Self(1 << 0);
    /// A block may be mapped at several addresses at once.
    pub const ALIASING: Self = Self(1 << 1);
    /// Access is given to single devices; without it, to all at once.
    pub const DEVICE_ACCESS: Self = Self(1 << 2);
    /// Set-access may name a part of a reservation; without it, only the whole reservation, whatever is mapped
    /// there.
    pub const RANGE_ACCESS: Self = Self(1 << 3);
    /// One set-access may span several neighbouring mappings; without it, exactly one mapping.
    pub const JOINED_ACCESS: Self = Self(1 << 4);
    /// Many copies cost one launch; without it, each its own.
    pub const JOINT_COPIES: Self = Self(1 << 5);
    /// Blocks can be exported to and imported from other processes as file descriptors.
    pub const SHARING: Self = Self(1 << 6);
    /// The host can read and write device addresses.
    pub const HOST_TOUCH: Self = Self(1 << 7);
    /// Host functions can be enqueued on a stream of ours, and streams of ours captured into graphs.
    pub const HOST_FUNCTIONS: Self = Self(1 << 8);
    /// Blocks are backed by huge pages (of the host driver).
    pub const HUGE_PAGES: Self = Self(1 << 9);
    /// NULL names the device's default stream.
    pub const NULL_STREAM: Self = Self(1 << 10);
    /// Routes are there: what stays of repeated copies is kept, and copies in a graph can be pointed elsewhere.
    pub const ROUTES: Self = Self(1 << 11);
    /// A stream may wait for a value whose write is enqueued later; without it, only for one enqueued already.
    pub const EARLY_WAITS: Self = Self(1 << 12);

    /// True where every bit of `wanted` is there.
    pub const fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// These and `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// What may be done at an address. The numbers are CUDA's and HIP's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AccessMode(pub u32);

impl AccessMode {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Reading.
    pub const READ: Self = Self(1);
    /// Reading and writing.
    pub const READ_WRITE: Self = Self(3);

    /// True for the three modes that exist.
    pub const fn is_known(self) -> bool {
        matches!(self, Self::NONE | Self::READ | Self::READ_WRITE)
    }
}

/// One line of an access list: what one device may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access {
    /// The device.
    pub device: Ordinal,
    /// What it may do.
    pub mode: AccessMode,
}

/// A driver's own handle of a block (`CUmemGenericAllocationHandle` and the like); 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NativeBlock(pub u64);

/// A driver's own stream (`CUstream`, `hipStream_t`, an immediate command list, a host stream's number).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stream(pub u64);

/// A timeline: a 64-bit value in memory that streams raise and others wait for. It starts at 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimelineId(pub u64);

/// A captured graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Graph(pub u64);

/// One slice of a copy. Source and destination do not overlap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct CopySlice {
    /// Where to.
    pub dst: DevicePtr,
    /// Where from.
    pub src: DevicePtr,
    /// How many bytes; 0 copies nothing.
    pub bytes: u64,
}

/// How a block is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CreateOptions {
    /// It will be exported to another process.
    pub exportable: bool,
    /// Its first mapping will last as long as it does: it can be made for what does not bear a move (GPUDirect RDMA).
    pub stays: bool,
}

/// What a device is.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The smallest unit that it maps.
    pub granularity: Granularity,
    /// Its memory, or 0 where unknown.
    pub total: ByteSize,
    /// Bytes a second that its memory moves (reads and writes both counted), or 0 where unknown.
    pub bandwidth: u64,
    /// The name of the cost table whose times each call is made to take, where times are simulated.
    pub simulated_costs: Option<String>,
}

/// A device's memory at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryInfo {
    /// Free bytes, or none where the driver cannot tell.
    pub free: Option<ByteSize>,
    /// All bytes, or 0 where unknown.
    pub total: ByteSize,
}

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
