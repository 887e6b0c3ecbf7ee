//! A driver around another: every call passes through one function.

use super::Call;
use crate::driver::{
    Access, AccessMode, CopySlice, CreateOptions, DeviceInfo, Driver, DriverKind, Graph, MemoryInfo,
    NativeBlock, Ordinal, Point, RecordId, RouteId, RouteSlice, Stream, Streams, TimelineId, Way,
};
use crate::error::{Error, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The bytes that a call is about: where (or NULL) and how many (or 0).
pub(super) type Bytes = (DevicePtr, ByteSize);

const NOWHERE: Bytes = (DevicePtr::NULL, ByteSize::ZERO);

/// What sits between a caller and a driver.
pub(super) trait Tap: Send + Sync + Debug {
    /// The driver behind.
    fn inner(&self) -> &dyn Driver;

    /// Makes one call by `run`, or does not.
    fn around<R>(&self, call: Call, bytes: Bytes, run: impl FnOnce(&dyn Driver) -> Result<R>) -> Result<R>;
}

fn of(range: DeviceRange) -> Bytes {
    (range.start(), range.size())
}

fn sized(size: ByteSize) -> Bytes {
    (DevicePtr::NULL, size)
}

fn total(slices: &[CopySlice]) -> Bytes {
    sized(ByteSize(slices.iter().fold(0_u64, |sum, s| sum.saturating_add(s.bytes))))
}

impl<T: Tap> Driver for T {
    fn kind(&self) -> DriverKind {
        self.inner().kind()
    }

    fn device_count(&self) -> u32 {
        self.inner().device_count()
    }

    fn device_info(&self, device: Ordinal) -> Result<DeviceInfo> {
        self.inner().device_info(device)
    }

    fn memory(&self, device: Ordinal) -> Result<MemoryInfo> {
        self.around(Call::MEMORY, NOWHERE, |d| d.memory(device))
    }

    fn granularity(&self, device: Ordinal, size: ByteSize) -> Result<Granularity> {
        self.inner().granularity(device, size)
    }

    fn reserve(&self, device: Ordinal, size: ByteSize, alignment: Granularity) -> Result<DeviceRange> {
        self.around(Call::RESERVE, sized(size), |d| d.reserve(device, size, alignment))
    }

    fn free(&self, range: DeviceRange) -> Result<()> {
        self.around(Call::FREE, of(range), |d| d.free(range))
    }

    fn create(&self, device: Ordinal, size: ByteSize, options: CreateOptions) -> Result<NativeBlock> {
        self.around(Call::CREATE, sized(size), |d| d.create(device, size, options))
    }

    fn release(&self, block: NativeBlock) -> Result<()> {
        self.around(Call::RELEASE, NOWHERE, |d| d.release(block))
    }

    fn map(&self, range: DeviceRange, block: NativeBlock) -> Result<()> {
        self.around(Call::MAP, of(range), |d| d.map(range, block))
    }

    fn unmap(&self, range: DeviceRange) -> Result<()> {
        self.around(Call::UNMAP, of(range), |d| d.unmap(range))
    }

    fn set_access(&self, range: DeviceRange, access: &[Access]) -> Result<()> {
        self.around(Call::SET_ACCESS, of(range), |d| d.set_access(range, access))
    }

    fn allocate(&self, device: Ordinal, size: ByteSize) -> Result<DevicePtr> {
        self.around(Call::ALLOCATE, sized(size), |d| d.allocate(device, size))
    }

    fn deallocate(&self, device: Ordinal, address: DevicePtr) -> Result<()> {
        self.around(Call::DEALLOCATE, (address, ByteSize::ZERO), |d| d.deallocate(device, address))
    }

    fn copy(&self, device: Ordinal, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        self.around(Call::COPY, total(slices), |d| d.copy(device, stream, slices))
    }

    fn route_create(&self, device: Ordinal, way: Way, slices: &[RouteSlice]) -> Result<RouteId> {
        self.around(Call::ROUTE_CREATE, NOWHERE, |d| d.route_create(device, way, slices))
    }

    fn route_destroy(&self, route: RouteId) -> Result<()> {
        self.around(Call::ROUTE_DESTROY, NOWHERE, |d| d.route_destroy(route))
    }

    fn route_copy(
        &self,
        device: Ordinal,
        stream: Stream,
        route: RouteId,
        slices: &[CopySlice],
    ) -> Result<u32> {
        self.around(Call::COPY, total(slices), |d| d.route_copy(device, stream, route, slices))
    }

    fn route_record(&self, stream: Stream, route: RouteId) -> Result<RecordId> {
        self.around(Call::ROUTE_RECORD, NOWHERE, |d| d.route_record(stream, route))
    }

    fn route_point(&self, record: RecordId, graph: Graph, slices: &[CopySlice]) -> Result<()> {
        self.around(Call::ROUTE_POINT, total(slices), |d| d.route_point(record, graph, slices))
    }

    fn route_record_ahead(&self, stream: Stream, route: RouteId, behind: RouteId) -> Result<RecordId> {
        self.around(Call::ROUTE_RECORD, NOWHERE, |d| d.route_record_ahead(stream, route, behind))
    }

    fn route_record_behind(
        &self,
        stream: Stream,
        route: RouteId,
        ahead: RecordId,
    ) -> Result<(RecordId, bool)> {
        self.around(Call::ROUTE_RECORD, NOWHERE, |d| d.route_record_behind(stream, route, ahead))
    }

    fn route_point_all(&self, graph: Graph, points: &[Point<'_>]) -> std::result::Result<(), (usize, Error)> {
        let (mut at, bytes) = (0, points.iter().map(|(_, slices)| total(slices).1.get()));
        let bytes = sized(ByteSize(bytes.fold(0, u64::saturating_add)));
        let mut point = |d: &dyn Driver| {
            d.route_point_all(graph, points).map_err(|(i, e)| {
                at = i;
                e
            })
        };
        self.around(Call::ROUTE_POINT, bytes, &mut point).map_err(|e| (at, e))
    }

    fn timeline_create(&self, device: Ordinal) -> Result<TimelineId> {
        self.around(Call::TIMELINE_CREATE, NOWHERE, |d| d.timeline_create(device))
    }

    fn counter_create(&self, device: Ordinal) -> Result<(TimelineId, u64)> {
        self.around(Call::TIMELINE_CREATE, NOWHERE, |d| d.counter_create(device))
    }

    fn timeline_destroy(&self, timeline: TimelineId) -> Result<()> {
        self.around(Call::TIMELINE_DESTROY, NOWHERE, |d| d.timeline_destroy(timeline))
    }

    fn timeline_write(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
        self.around(Call::TIMELINE_WRITE, NOWHERE, |d| d.timeline_write(stream, timeline, value))
    }

    fn timeline_read(&self, timeline: TimelineId) -> Result<u64> {
        self.around(Call::TIMELINE_READ, NOWHERE, |d| d.timeline_read(timeline))
    }

    /// Reading it is no call.
    fn timeline_cell(&self, timeline: TimelineId) -> Option<crate::driver::TimelineCell> {
        self.inner().timeline_cell(timeline)
    }

    fn timeline_wait(&self, timeline: TimelineId, value: u64) -> Result<()> {
        self.around(Call::TIMELINE_WAIT, NOWHERE, |d| d.timeline_wait(timeline, value))
    }

    fn stream_wait(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
        self.around(Call::STREAM_WAIT, NOWHERE, |d| d.stream_wait(stream, timeline, value))
    }

    fn is_capturing(&self, device: Ordinal, stream: Stream) -> Result<bool> {
        self.around(Call::IS_CAPTURING, NOWHERE, |d| d.is_capturing(device, stream))
    }

    fn export(&self, block: NativeBlock) -> Result<OwnedFd> {
        self.around(Call::EXPORT, NOWHERE, |d| d.export(block))
    }

    fn import(&self, device: Ordinal, fd: BorrowedFd<'_>, size: ByteSize) -> Result<NativeBlock> {
        self.around(Call::IMPORT, sized(size), |d| d.import(device, fd, size))
    }

    fn check_native(&self, device: Ordinal, block: NativeBlock, size: ByteSize) -> Result<()> {
        self.inner().check_native(device, block, size)
    }

    // What tests and tools look at is no call of a step's.

    fn read(&self, device: Ordinal, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        self.inner().read(device, from, bytes)
    }

    fn write(&self, device: Ordinal, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        self.inner().write(device, to, bytes)
    }

    fn access_at(&self, device: Ordinal, address: DevicePtr) -> Result<AccessMode> {
        self.inner().access_at(device, address)
    }

    fn reaches(&self, device: Ordinal, owner: Ordinal) -> Result<bool> {
        self.inner().reaches(device, owner)
    }

    fn faults_hosts(&self, device: Ordinal) -> Result<bool> {
        self.inner().faults_hosts(device)
    }

    fn locate(&self, context: u64, device: u64) -> Result<Ordinal> {
        self.inner().locate(context, device)
    }

    fn streams(&self) -> &dyn Streams {
        self.inner().streams()
    }
}
