//! Every driver call of this layer, counted and timed.

use crate::driver::{
    Access, Capabilities, CopySlice, CreateOptions, Driver, DriverKind, Graph, NativeBlock, Ordinal, Point,
    RecordId, RouteId, RouteSlice, Stream, TimelineId, Way,
};
use crate::error::{Error, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::cell::Cell;
use std::collections::HashSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many driver calls of each kind were made, failed ones included.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallCounts {
    /// Address ranges reserved.
    pub reserve: u64,
    /// Address ranges freed.
    pub free: u64,
    /// Blocks created or imported, and plain allocations.
    pub create: u64,
    /// Blocks released, and plain allocations given back.
    pub release: u64,
    /// Map calls.
    pub map: u64,
    /// Unmap calls.
    pub unmap: u64,
    /// Set-access calls.
    pub set_access: u64,
    /// Launches that copies took, as the driver said.
    pub copy_launches: u64,
    /// Timeline values written to streams.
    pub timeline_writes: u64,
}

/// The number of fields of [`CallCounts`].
const KINDS: usize = 9;

impl CallCounts {
    const fn to_array(self) -> [u64; KINDS] {
        [
            self.reserve,
            self.free,
            self.create,
            self.release,
            self.map,
            self.unmap,
            self.set_access,
            self.copy_launches,
            self.timeline_writes,
        ]
    }

    const fn from_array(n: [u64; KINDS]) -> Self {
        Self {
            reserve: n[0],
            free: n[1],
            create: n[2],
            release: n[3],
            map: n[4],
            unmap: n[5],
            set_access: n[6],
            copy_launches: n[7],
            timeline_writes: n[8],
        }
    }

    /// These and `other`.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (a, b) = (self.to_array(), other.to_array());
        Self::from_array(std::array::from_fn(|i| a[i].wrapping_add(b[i])))
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn minus(self, earlier: Self) -> Self {
        let (a, b) = (self.to_array(), earlier.to_array());
        Self::from_array(std::array::from_fn(|i| a[i].wrapping_sub(b[i])))
    }
}

/// How long driver calls and waits took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Times {
    /// Inside driver calls, waits not included.
    pub driver: Duration,
    /// Waiting on the host for streams.
    pub waited: Duration,
}

thread_local! {
    static COUNTS: [Cell<u64>; KINDS] = const { [const { Cell::new(0) }; KINDS] };
    static TIMES: Cell<Times> = const { Cell::new(Times { driver: Duration::ZERO, waited: Duration::ZERO }) };
}

/// The driver calls that this layer has made on this thread so far. What an operation cost is the difference of
/// two such snapshots.
pub fn thread_counts() -> CallCounts {
    COUNTS.with(|counts| CallCounts::from_array(std::array::from_fn(|i| counts[i].get())))
}

/// The time that this layer has spent in driver calls and waits on this thread so far.
pub fn thread_times() -> Times {
    TIMES.get()
}

/// Runs what is not part of the operation that happens to run it: the thread's counts and driver time stay as they
/// were (the device's totals, and time waited, go on).
pub(crate) fn unattributed<T>(run: impl FnOnce() -> T) -> T {
    let (counts, driver) = (thread_counts().to_array(), TIMES.get().driver);
    let result = run();
    COUNTS.with(|cells| cells.iter().zip(counts).for_each(|(cell, count)| cell.set(count)));
    TIMES.set(Times { driver, ..TIMES.get() });
    result
}

#[derive(Clone, Copy)]
enum Count {
    Reserve,
    Free,
    Create,
    Release,
    Map,
    Unmap,
    SetAccess,
    CopyLaunches,
    TimelineWrites,
}

/// Many calls that are timed and counted as one.
pub(crate) struct Batch<'a> {
    calls: &'a Calls,
    start: Instant,
    map: u64,
    unmap: u64,
    set_access: u64,
}

impl Batch<'_> {
    pub(crate) fn map(&mut self, range: DeviceRange, block: NativeBlock) -> Result<()> {
        self.map += 1;
        self.calls.driver.map(range, block)
    }

    pub(crate) fn unmap(&mut self, range: DeviceRange) -> Result<()> {
        self.unmap += 1;
        self.calls.driver.unmap(range)
    }

    pub(crate) fn set_access(&mut self, range: DeviceRange, access: &[Access]) -> Result<()> {
        self.set_access += 1;
        self.calls.driver.set_access(range, access)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        add_driver_time(self.start);
        self.calls.add(Count::Map, self.map);
        self.calls.add(Count::Unmap, self.unmap);
        self.calls.add(Count::SetAccess, self.set_access);
    }
}

fn add_driver_time(start: Instant) {
    let mut times = TIMES.get();
    times.driver = times.driver.saturating_add(start.elapsed());
    TIMES.set(times);
}

/// One device of a driver, with its calls counted.
#[derive(Debug)]
pub(crate) struct Calls {
    driver: Arc<dyn Driver>,
    ordinal: Ordinal,
    capabilities: Capabilities,
    totals: [AtomicU64; KINDS],
    /// The native blocks that are to be released, each once: on the host, where a handle counts no references.
    owned: Option<Mutex<HashSet<u64>>>,
}

impl Calls {
    pub(crate) fn new(driver: Arc<dyn Driver>, ordinal: Ordinal, capabilities: Capabilities) -> Self {
        let owned = (driver.kind() == DriverKind::HOST).then(Mutex::default);
        Self { driver, ordinal, capabilities, totals: Default::default(), owned }
    }

    /// Notes that a native block is ours to release; false where it is already, and a second release would be one
    /// too many.
    pub(crate) fn own(&self, block: NativeBlock) -> bool {
        self.with_owned(|owned| owned.insert(block.0)).unwrap_or(true)
    }

    fn with_owned<T>(&self, look: impl FnOnce(&mut HashSet<u64>) -> T) -> Option<T> {
        self.owned.as_ref().map(|owned| look(&mut owned.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) const fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    pub(crate) const fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    pub(crate) const fn has(&self, wanted: Capabilities) -> bool {
        self.capabilities.has(wanted)
    }

    pub(crate) fn totals(&self) -> CallCounts {
        // Relaxed: each is a statistic of its own.
        CallCounts::from_array(std::array::from_fn(|i| self.totals[i].load(Ordering::Relaxed)))
    }

    fn add(&self, count: Count, by: u64) {
        self.totals[count as usize].fetch_add(by, Ordering::Relaxed);
        COUNTS.with(|counts| {
            let cell = &counts[count as usize];
            cell.set(cell.get().wrapping_add(by));
        });
    }

    fn timed<T>(call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = call();
        add_driver_time(start);
        result
    }

    fn counted<T>(&self, count: Count, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.add(count, 1);
        Self::timed(call)
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch { calls: self, start: Instant::now(), map: 0, unmap: 0, set_access: 0 }
    }

    pub(crate) fn granularity(&self, size: ByteSize) -> Result<Granularity> {
        self.driver.granularity(self.ordinal, size)
    }

    pub(crate) fn reserve(&self, size: ByteSize, alignment: Granularity) -> Result<DeviceRange> {
        self.counted(Count::Reserve, || self.driver.reserve(self.ordinal, size, alignment))
    }

    pub(crate) fn free(&self, range: DeviceRange) -> Result<()> {
        self.counted(Count::Free, || self.driver.free(range))
    }

    pub(crate) fn create(&self, size: ByteSize, options: CreateOptions) -> Result<NativeBlock> {
        self.owning(self.counted(Count::Create, || self.driver.create(self.ordinal, size, options)))
    }

    pub(crate) fn import(&self, fd: BorrowedFd<'_>, size: ByteSize) -> Result<NativeBlock> {
        self.owning(self.counted(Count::Create, || self.driver.import(self.ordinal, fd, size)))
    }

    fn owning(&self, made: Result<NativeBlock>) -> Result<NativeBlock> {
        made.inspect(|block| {
            self.own(*block);
        })
    }

    pub(crate) fn export(&self, block: NativeBlock) -> Result<OwnedFd> {
        Self::timed(|| self.driver.export(block))
    }

    pub(crate) fn check_native(&self, block: NativeBlock, size: ByteSize) -> Result<()> {
        Self::timed(|| self.driver.check_native(self.ordinal, block, size))
    }

    pub(crate) fn release(&self, block: NativeBlock) -> Result<()> {
        // Before the release, after which the driver may give the number to another thread's block.
        self.with_owned(|owned| owned.remove(&block.0));
        let released = self.counted(Count::Release, || self.driver.release(block));
        released.inspect_err(|_| {
            self.own(block);
        })
    }

    pub(crate) fn map(&self, range: DeviceRange, block: NativeBlock) -> Result<()> {
        self.counted(Count::Map, || self.driver.map(range, block))
    }

    pub(crate) fn unmap(&self, range: DeviceRange) -> Result<()> {
        self.counted(Count::Unmap, || self.driver.unmap(range))
    }

    pub(crate) fn set_access(&self, range: DeviceRange, access: &[Access]) -> Result<()> {
        self.counted(Count::SetAccess, || self.driver.set_access(range, access))
    }

    pub(crate) fn allocate(&self, size: ByteSize) -> Result<DevicePtr> {
        self.counted(Count::Create, || self.driver.allocate(self.ordinal, size))
    }

    pub(crate) fn deallocate(&self, address: DevicePtr) -> Result<()> {
        self.counted(Count::Release, || self.driver.deallocate(self.ordinal, address))
    }

    pub(crate) fn copy(&self, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        let launches = Self::timed(|| self.driver.copy(self.ordinal, stream, slices))?;
        self.add(Count::CopyLaunches, u64::from(launches));
        Ok(launches)
    }

    pub(crate) fn is_capturing(&self, stream: Stream) -> Result<bool> {
        Self::timed(|| self.driver.is_capturing(self.ordinal, stream))
    }

    pub(crate) fn route_create(&self, way: Way, slices: &[RouteSlice]) -> Result<RouteId> {
        Self::timed(|| self.driver.route_create(self.ordinal, way, slices))
    }

    pub(crate) fn route_destroy(&self, route: RouteId) -> Result<()> {
        Self::timed(|| self.driver.route_destroy(route))
    }

    pub(crate) fn route_copy(&self, stream: Stream, route: RouteId, slices: &[CopySlice]) -> Result<u32> {
        let launches = Self::timed(|| self.driver.route_copy(self.ordinal, stream, route, slices))?;
        self.add(Count::CopyLaunches, u64::from(launches));
        Ok(launches)
    }

    pub(crate) fn route_record(&self, stream: Stream, route: RouteId) -> Result<RecordId> {
        Self::timed(|| self.driver.route_record(stream, route))
    }

    pub(crate) fn route_record_ahead(
        &self,
        stream: Stream,
        route: RouteId,
        behind: RouteId,
    ) -> Result<RecordId> {
        Self::timed(|| self.driver.route_record_ahead(stream, route, behind))
    }

    pub(crate) fn route_record_behind(
        &self,
        stream: Stream,
        route: RouteId,
        ahead: RecordId,
    ) -> Result<(RecordId, bool)> {
        Self::timed(|| self.driver.route_record_behind(stream, route, ahead))
    }

    pub(crate) fn route_point_all(
        &self,
        graph: Graph,
        points: &[Point<'_>],
    ) -> std::result::Result<(), (usize, Error)> {
        Self::timed(|| self.driver.route_point_all(graph, points))
    }

    pub(crate) fn timeline_create(&self) -> Result<TimelineId> {
        Self::timed(|| self.driver.timeline_create(self.ordinal))
    }

    pub(crate) fn counter_create(&self) -> Result<(TimelineId, u64)> {
        Self::timed(|| self.driver.counter_create(self.ordinal))
    }

    pub(crate) fn timeline_destroy(&self, timeline: TimelineId) -> Result<()> {
        Self::timed(|| self.driver.timeline_destroy(timeline))
    }

    pub(crate) fn timeline_write(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
        self.counted(Count::TimelineWrites, || self.driver.timeline_write(stream, timeline, value))
    }

    pub(crate) fn timeline_read(&self, timeline: TimelineId) -> Result<u64> {
        Self::timed(|| self.driver.timeline_read(timeline))
    }

    /// Good while `self` lives, which keeps the driver.
    pub(crate) fn timeline_cell(&self, timeline: TimelineId) -> Option<crate::driver::TimelineCell> {
        self.driver.timeline_cell(timeline)
    }

    pub(crate) fn timeline_wait(&self, timeline: TimelineId, value: u64) -> Result<()> {
        let start = Instant::now();
        let result = self.driver.timeline_wait(timeline, value);
        let mut times = TIMES.get();
        times.waited = times.waited.saturating_add(start.elapsed());
        TIMES.set(times);
        result
    }

    pub(crate) fn stream_wait(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
        Self::timed(|| self.driver.stream_wait(stream, timeline, value))
    }
}
