//! The host's own memory as a device that is as strict as a GPU.
//!
//! Device addresses are addresses of the process. Several devices share them; each has a memory size of its own
//! and touches, through copies on its streams, only what it has access to. The host itself can touch what any
//! device can; elsewhere it faults. Everything that is outside the driver's own memory is the process's, and
//! copies read and write it as it is.
//!
//! Memory is committed when it is first touched. Where the machine then has none left, the system ends the process,
//! as with any memory; give `GVMM_HOST_MEMORY` a figure that the machine can hold.

mod access;
mod blocks;
mod budget;
mod copy;
mod costs;
mod huge;
mod memory;
mod offsets;
mod plain;
mod protect;
mod routes;
mod shape;
mod space;
mod spare;
mod store;
mod stream;
mod streams;
mod sys;
mod timeline;

#[cfg(test)]
mod tests;

pub use costs::{Costs, Point};

use crate::config::HostConfig;
use crate::driver::{
    Access, AccessMode, Capabilities, CopySlice, CreateOptions, DeviceInfo, Driver, DriverKind, Graph,
    HostFunction, MemoryInfo, NativeBlock, Ordinal, RecordId, RouteId, RouteSlice, Stream, Streams,
    TimelineId, Way, unsupported,
};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use costs::Delay;
use memory::{GRANULE, Memory};
use routes::Routes;
use shape::Shape;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use stream::{Item, Work};
use streams::Lines;
use timeline::Timelines;

/// A driver over the host's memory, for tests and for machines without a GPU.
///
/// Dropping it ends its streams (what they have not begun is given up) and takes its addresses away.
#[derive(Debug)]
pub struct HostDriver {
    memory: Arc<Memory>,
    lines: Lines,
    timelines: Timelines,
    routes: Routes,
}

impl HostDriver {
    /// A driver of its own, with nothing in it. `costs` wins over the name in `config`.
    ///
    /// A name in `config` that does not exist is ignored with a warning.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for more than 64 devices; otherwise what the system says when it has no memory
    /// or no file descriptor left.
    pub fn new(config: HostConfig, costs: Option<Costs>) -> Result<Self> {
        let memory = Memory::new(Shape::new(&config, costs)?, config.max_maps)?;
        let (lines, timelines, routes) = (Lines::default(), Timelines::default(), Routes::default());
        Ok(Self { memory: Arc::new(memory), lines, timelines, routes })
    }

    fn shape(&self) -> &Shape {
        &self.memory.shape
    }

    fn costs(&self) -> Option<&Costs> {
        self.shape().costs.as_ref()
    }

    fn check_device(&self, device: Ordinal, operation: Operation) -> Result<()> {
        if device.0 < self.shape().devices {
            return Ok(());
        }
        Err(Error::new(Kind::NoDevice, operation, "no device of this number"))
    }

    /// Makes a call and then waits until it has taken as long as `us` says. Failures take no longer.
    fn timed<R>(&self, us: impl FnOnce(&Costs) -> f64, call: impl FnOnce() -> Result<R>) -> Result<R> {
        let Some(costs) = self.costs() else { return call() };
        let delay = Delay::start(true);
        let made = call()?;
        delay.until(us(costs));
        Ok(made)
    }

    /// The same for a call that finds out itself how long it takes.
    fn timed_by_call(&self, call: impl FnOnce() -> Result<f64>) -> Result<()> {
        let delay = Delay::start(self.costs().is_some());
        delay.until(call()?);
        Ok(())
    }

    /// Copies between memory of `device` and the process's own, at once.
    fn touch(&self, device: Ordinal, slice: CopySlice) -> Result<()> {
        self.check_device(device, Operation::Copy)?;
        measure(&[slice])?;
        copy::run(&self.memory, device, &[slice])
    }

    fn needs_functions(&self, operation: Operation) -> Result<()> {
        if self.shape().capabilities.has(Capabilities::HOST_FUNCTIONS) {
            return Ok(());
        }
        Err(unsupported(operation, "host functions and capture are switched off"))
    }
}

impl Drop for HostDriver {
    fn drop(&mut self) {
        // A child made by fork has none of the threads; it must not wait for them.
        if self.memory.is_ours() {
            self.timelines.end();
            self.lines.end();
        }
    }
}

impl Driver for HostDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::HOST
    }

    fn device_count(&self) -> u32 {
        self.shape().devices
    }

    fn device_info(&self, device: Ordinal) -> Result<DeviceInfo> {
        self.check_device(device, Operation::Query)?;
        Ok(DeviceInfo {
            name: format!("host {}", device.0),
            capabilities: self.shape().capabilities,
            granularity: GRANULE,
            total: ByteSize(self.shape().total),
            bandwidth: self.costs().map_or(0, |costs| costs.bandwidth),
            simulated_costs: self.costs().map(|costs| costs.name.clone()),
        })
    }

    fn memory(&self, device: Ordinal) -> Result<MemoryInfo> {
        self.check_device(device, Operation::Query)?;
        Ok(MemoryInfo { free: Some(self.memory.free_bytes(device)), total: ByteSize(self.shape().total) })
    }

    fn granularity(&self, device: Ordinal, _: ByteSize) -> Result<Granularity> {
        self.check_device(device, Operation::Query)?;
        Ok(GRANULE)
    }

    fn reserve(&self, device: Ordinal, size: ByteSize, alignment: Granularity) -> Result<DeviceRange> {
        self.check_device(device, Operation::Reserve)?;
        self.timed(|c| c.reserve_us, || self.memory.reserve(size, alignment))
    }

    fn free(&self, range: DeviceRange) -> Result<()> {
        self.timed(|c| c.free_us, || self.memory.free(range))
    }

    fn create(&self, device: Ordinal, size: ByteSize, options: CreateOptions) -> Result<NativeBlock> {
        self.check_device(device, Operation::Create)?;
        self.timed(|c| c.create_us(size), || self.memory.create(device, size, options))
    }

    fn release(&self, block: NativeBlock) -> Result<()> {
        self.timed_by_call(|| self.memory.release(block))
    }

    fn map(&self, range: DeviceRange, block: NativeBlock) -> Result<()> {
        self.timed(|c| c.map_us, || self.memory.map(range, block))
    }

    fn unmap(&self, range: DeviceRange) -> Result<()> {
        self.timed_by_call(|| self.memory.unmap(range))
    }

    fn set_access(&self, range: DeviceRange, access: &[Access]) -> Result<()> {
        self.timed_by_call(|| self.memory.set_access(range, access))
    }

    fn allocate(&self, device: Ordinal, size: ByteSize) -> Result<DevicePtr> {
        self.check_device(device, Operation::Allocate)?;
        self.timed(|c| c.allocate_us, || self.memory.allocate(device, size))
    }

    fn deallocate(&self, device: Ordinal, address: DevicePtr) -> Result<()> {
        self.check_device(device, Operation::Deallocate)?;
        self.timed(|c| c.deallocate_us, || self.memory.deallocate(device, address))
    }

    fn copy(&self, device: Ordinal, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        let line = self.lines.find_on(device, stream).map_err(|e| e.during(Operation::Copy))?;
        let (count, bytes) = measure(slices)?;
        if count == 0 {
            return Ok(0);
        }
        let (host, device) = self.copy_us(count, bytes);
        self.timed(|_| host, || line.push(Work::Copy(slices.into(), device)))?;
        Ok(self.launches(count))
    }

    fn route_create(&self, device: Ordinal, way: Way, slices: &[RouteSlice]) -> Result<RouteId> {
        self.check_device(device, Operation::Copy)?;
        self.needs_routes()?;
        self.routes.create(device, way, slices)
    }

    fn route_destroy(&self, route: RouteId) -> Result<()> {
        self.routes.destroy(route)
    }

    fn route_copy(
        &self,
        device: Ordinal,
        stream: Stream,
        route: RouteId,
        slices: &[CopySlice],
    ) -> Result<u32> {
        self.needs_routes()?;
        let line = self.lines.find_on(device, stream).map_err(|e| e.during(Operation::Copy))?;
        let leg = self.routes.leg(device, route, slices)?;
        let (count, bytes) = measure(slices)?;
        if count == 0 {
            return Ok(0);
        }
        let (host, device) = self.copy_us(count, bytes);
        self.timed(|_| host, || line.push_live(Item::Leg(leg, device)))?;
        Ok(self.launches(count))
    }

    fn route_record(&self, stream: Stream, route: RouteId) -> Result<RecordId> {
        self.needs_routes()?;
        self.routes.record(&self.lines, stream, route, |slices| {
            let bytes = slices.iter().fold(0_u64, |sum, slice| sum.saturating_add(slice.bytes));
            self.copy_us(slices.len() as u64, bytes).1
        })
    }

    fn route_point(&self, record: RecordId, graph: Graph, slices: &[CopySlice]) -> Result<()> {
        self.needs_routes()?;
        measure(slices)?;
        self.routes.point(&self.lines, record, graph, slices)
    }

    fn timeline_create(&self, device: Ordinal) -> Result<TimelineId> {
        self.check_device(device, Operation::Timeline)?;
        Ok(self.timelines.create())
    }

    fn counter_create(&self, device: Ordinal) -> Result<(TimelineId, u64)> {
        self.check_device(device, Operation::Timeline)?;
        let id = self.timelines.create();
        Ok((id, self.timelines.address(id)?))
    }

    fn timeline_destroy(&self, timeline: TimelineId) -> Result<()> {
        self.timelines.destroy(timeline)
    }

    fn timeline_write(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
        let line = self.lines.find(stream)?;
        line.push_live(Item::Write(self.timelines.ticket(timeline, value)?))?;
        self.timelines.promise(timeline, value);
        Ok(())
    }

    fn timeline_read(&self, timeline: TimelineId) -> Result<u64> {
        self.timelines.read(timeline)
    }

    fn timeline_wait(&self, timeline: TimelineId, value: u64) -> Result<()> {
        self.timelines.ticket(timeline, value)?.wait()
    }

    fn stream_wait(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
        let line = self.lines.find(stream)?;
        let early = self.shape().capabilities.has(Capabilities::EARLY_WAITS);
        if !early && !self.timelines.is_promised(timeline, value)? {
            let hint = "on this driver a stream can wait only for a value whose write is enqueued already";
            return Err(unsupported(Operation::Timeline, hint));
        }
        line.push_live(Item::Wait(self.timelines.ticket(timeline, value)?))
    }

    fn is_capturing(&self, device: Ordinal, stream: Stream) -> Result<bool> {
        Ok(self.lines.find_on(device, stream)?.is_capturing())
    }

    fn export(&self, block: NativeBlock) -> Result<OwnedFd> {
        self.memory.export(block)
    }

    fn import(&self, device: Ordinal, fd: BorrowedFd<'_>, size: ByteSize) -> Result<NativeBlock> {
        self.check_device(device, Operation::Share)?;
        self.memory.import(device, fd, size)
    }

    fn check_native(&self, device: Ordinal, block: NativeBlock, size: ByteSize) -> Result<()> {
        self.check_device(device, Operation::Query)?;
        self.memory.check_native(device, block, size)
    }

    fn read(&self, device: Ordinal, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        let into = DevicePtr(bytes.as_mut_ptr() as u64);
        self.touch(device, CopySlice { dst: into, src: from, bytes: bytes.len() as u64 })
    }

    fn write(&self, device: Ordinal, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        let from = DevicePtr(bytes.as_ptr() as u64);
        self.touch(device, CopySlice { dst: to, src: from, bytes: bytes.len() as u64 })
    }

    fn access_at(&self, device: Ordinal, address: DevicePtr) -> Result<AccessMode> {
        self.check_device(device, Operation::Query)?;
        Ok(self.memory.access_at(device, address))
    }

    fn reaches(&self, device: Ordinal, owner: Ordinal) -> Result<bool> {
        self.check_device(device, Operation::Query).and(self.check_device(owner, Operation::Query))?;
        Ok(true)
    }

    fn streams(&self) -> &dyn Streams {
        self
    }
}

/// How many slices copy something, and how many bytes all together.
fn measure(slices: &[CopySlice]) -> Result<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0_u64);
    for (index, slice) in slices.iter().enumerate() {
        let size = ByteSize(slice.bytes);
        if slice.src.checked_add(size).is_none() || slice.dst.checked_add(size).is_none() {
            let error = Error::new(Kind::OutOfRange, Operation::Copy, "the slice passes the last address");
            return Err(error.at(slice.dst, size).entry(index as u64));
        }
        count += u64::from(slice.bytes > 0);
        bytes = bytes.saturating_add(slice.bytes);
    }
    Ok((count, bytes))
}

impl Streams for HostDriver {
    fn create(&self, device: Ordinal) -> Result<Stream> {
        self.check_device(device, Operation::Stream)?;
        self.lines.create(device, &self.memory)
    }

    fn destroy(&self, stream: Stream) -> Result<()> {
        self.lines.destroy(stream)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.lines.synchronize(stream)
    }

    fn enqueue(&self, stream: Stream, function: HostFunction) -> Result<()> {
        self.needs_functions(Operation::Stream)?;
        self.lines.find(stream)?.push(Work::Call(function))
    }

    fn capture_begin(&self, stream: Stream) -> Result<()> {
        self.needs_functions(Operation::Capture)?;
        self.lines.find(stream)?.capture_begin()
    }

    fn capture_end(&self, stream: Stream) -> Result<Graph> {
        self.needs_functions(Operation::Capture)?;
        self.lines.capture_end(stream)
    }

    fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
        self.needs_functions(Operation::Launch)?;
        self.lines.launch(graph, stream, |record| self.routes.is_live(record))
    }

    fn destroy_graph(&self, graph: Graph) -> Result<()> {
        self.lines.destroy_graph(graph)
    }
}
