//! A driver that does nothing, so that what is measured is the library's own work.

use gvmm::driver::{
    Access, Capabilities, CopySlice, CreateOptions, DeviceInfo, Driver, DriverKind, Graph, HostFunction,
    MemoryInfo, NativeBlock, Ordinal, Point, RecordId, RouteId, RouteSlice, Stream, Streams, TimelineId, Way,
    unsupported,
};
use gvmm::error::{Error, Operation, Result};
use gvmm::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Its granule.
pub(crate) const MIB2: u64 = 2 << 20;
/// Its only stream.
pub(crate) const STREAM: Stream = Stream(1);

/// A driver that does nothing, and does it at once.
#[derive(Debug, Default)]
pub(crate) struct Null {
    next: AtomicU64,
    timeline: AtomicU64,
}

impl Null {
    /// An address, or a number, from which on `step` are nobody else's: aligned as a device's are.
    fn next(&self, step: u64) -> u64 {
        (1 << 40) + self.next.fetch_add(step.next_multiple_of(MIB2), Ordering::Relaxed)
    }
}

impl Driver for Null {
    fn kind(&self) -> DriverKind {
        DriverKind::HOST
    }
    fn device_count(&self) -> u32 {
        1
    }
    fn device_info(&self, _: Ordinal) -> Result<DeviceInfo> {
        Ok(DeviceInfo {
            name: "null".to_owned(),
            capabilities: Capabilities(u64::MAX),
            granularity: Granularity::new(MIB2).expect("a power of two"),
            total: ByteSize::gib(1024),
            bandwidth: 0,
            simulated_costs: None,
        })
    }
    fn memory(&self, _: Ordinal) -> Result<MemoryInfo> {
        Ok(MemoryInfo { free: None, total: ByteSize::gib(1024) })
    }
    fn granularity(&self, _: Ordinal, _: ByteSize) -> Result<Granularity> {
        Ok(Granularity::new(MIB2).expect("a power of two"))
    }
    fn reserve(&self, _: Ordinal, size: ByteSize, _: Granularity) -> Result<DeviceRange> {
        Ok(DeviceRange::new(DevicePtr(self.next(size.get())), size).expect("a range"))
    }
    fn free(&self, _: DeviceRange) -> Result<()> {
        Ok(())
    }
    fn create(&self, _: Ordinal, _: ByteSize, _: CreateOptions) -> Result<NativeBlock> {
        Ok(NativeBlock(self.next(MIB2)))
    }
    fn release(&self, _: NativeBlock) -> Result<()> {
        Ok(())
    }
    fn map(&self, _: DeviceRange, _: NativeBlock) -> Result<()> {
        Ok(())
    }
    fn unmap(&self, _: DeviceRange) -> Result<()> {
        Ok(())
    }
    fn set_access(&self, _: DeviceRange, _: &[Access]) -> Result<()> {
        Ok(())
    }
    fn allocate(&self, _: Ordinal, size: ByteSize) -> Result<DevicePtr> {
        Ok(DevicePtr(self.next(size.get())))
    }
    fn deallocate(&self, _: Ordinal, _: DevicePtr) -> Result<()> {
        Ok(())
    }
    fn copy(&self, _: Ordinal, _: Stream, _: &[CopySlice]) -> Result<u32> {
        Ok(1)
    }
    fn route_create(&self, _: Ordinal, _: Way, _: &[RouteSlice]) -> Result<RouteId> {
        Ok(RouteId(1))
    }
    fn route_destroy(&self, _: RouteId) -> Result<()> {
        Ok(())
    }
    fn route_copy(&self, _: Ordinal, _: Stream, _: RouteId, _: &[CopySlice]) -> Result<u32> {
        Ok(1)
    }
    fn route_record(&self, _: Stream, _: RouteId) -> Result<RecordId> {
        Ok(RecordId(self.next(1)))
    }
    fn route_record_behind(&self, stream: Stream, route: RouteId, _: RecordId) -> Result<(RecordId, bool)> {
        Ok((self.route_record(stream, route)?, true))
    }
    fn route_point_all(&self, _: Graph, _: &[Point<'_>]) -> std::result::Result<(), (usize, Error)> {
        Ok(())
    }
    fn timeline_create(&self, _: Ordinal) -> Result<TimelineId> {
        Ok(TimelineId(1))
    }
    fn timeline_destroy(&self, _: TimelineId) -> Result<()> {
        Ok(())
    }
    fn timeline_write(&self, _: Stream, _: TimelineId, value: u64) -> Result<()> {
        self.timeline.store(value, Ordering::Relaxed);
        Ok(())
    }
    fn timeline_read(&self, _: TimelineId) -> Result<u64> {
        Ok(self.timeline.load(Ordering::Relaxed))
    }
    fn timeline_wait(&self, _: TimelineId, _: u64) -> Result<()> {
        Ok(())
    }
    fn stream_wait(&self, _: Stream, _: TimelineId, _: u64) -> Result<()> {
        Ok(())
    }
    fn is_capturing(&self, _: Ordinal, _: Stream) -> Result<bool> {
        Ok(false)
    }
    fn export(&self, _: NativeBlock) -> Result<OwnedFd> {
        Err(unsupported(Operation::Share, ""))
    }
    fn import(&self, _: Ordinal, _: BorrowedFd<'_>, _: ByteSize) -> Result<NativeBlock> {
        Err(unsupported(Operation::Share, ""))
    }
    fn check_native(&self, _: Ordinal, _: NativeBlock, _: ByteSize) -> Result<()> {
        Ok(())
    }
    fn streams(&self) -> &dyn Streams {
        self
    }
}

impl Streams for Null {
    fn create(&self, _: Ordinal) -> Result<Stream> {
        Ok(STREAM)
    }
    fn destroy(&self, _: Stream) -> Result<()> {
        Ok(())
    }
    fn synchronize(&self, _: Stream) -> Result<()> {
        Ok(())
    }
    fn enqueue(&self, _: Stream, _: HostFunction) -> Result<()> {
        Ok(())
    }
    fn capture_begin(&self, _: Stream) -> Result<()> {
        Ok(())
    }
    fn capture_end(&self, _: Stream) -> Result<Graph> {
        Ok(Graph(1))
    }
    fn launch(&self, _: Graph, _: Stream) -> Result<()> {
        Ok(())
    }
    fn destroy_graph(&self, _: Graph) -> Result<()> {
        Ok(())
    }
}
