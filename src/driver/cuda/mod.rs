//! NVIDIA's driver, by `libcuda` alone (no runtime, never managed memory), found when the program runs.

mod api;

mod context;
mod copy;
mod device;
mod error;
mod memory;
mod share;
mod stream;
mod timeline;
mod touch;

use crate::driver::books::Books;
use crate::driver::{
    Access, AccessMode, Capabilities, CopySlice, CreateOptions, DeviceInfo, Driver, DriverKind, Graph,
    HostFunction, MemoryInfo, NativeBlock, Ordinal, Stream, Streams, TimelineId,
};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use api::Api;
use context::Core;
use device::Device;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use stream::Lines;
use timeline::Timelines;

/// NVIDIA's driver. Calls that need a context use the device's primary one and leave the caller's current
/// context as it was.
#[derive(Debug)]
pub struct CudaDriver {
    core: Core,
    books: Books,
    timelines: Timelines,
    lines: Lines,
}

impl CudaDriver {
    /// Opens the driver: the library at `path` alone where one is given, else the one that is found.
    ///
    /// # Errors
    ///
    /// `DriverNotFound` (no library, or a toolkit's stub), `DriverTooOld` (before CUDA 11.0, or a function is
    /// missing), `NoDevice`. The hint says what to do.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        Self::with_quirks(path, &[])
    }

    /// The same, with quirks (of `quirks.rs`) switched on or off by name.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn with_quirks(path: Option<&Path>, forced: &[(&str, bool)]) -> Result<Self> {
        let core = Core::new(Api::open(path)?, forced)?;
        log::debug!("{}: CUDA {}, {} devices", core.api.path().display(), core.version, core.devices.len());
        Ok(Self { core, books: Books::default(), timelines: Timelines::default(), lines: Lines::default() })
    }

    /// The driver's version, as `1000 × major + 10 × minor` of the CUDA that it serves.
    pub fn version(&self) -> u32 {
        self.core.version
    }

    /// The library that was opened.
    pub fn library(&self) -> &Path {
        self.core.api.path()
    }

    /// A device's architecture, such as `sm_90`.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn architecture(&self, device: Ordinal) -> Result<&str> {
        self.core.device(device, Operation::Query).map(|found| found.arch.as_str())
    }

    fn capabilities(&self, device: &Device) -> Result<Capabilities> {
        let mut all = Capabilities::HOST_FUNCTIONS.with(Capabilities::NULL_STREAM);
        if device.stream_values {
            all = all.with(Capabilities::EARLY_WAITS);
        }
        if device.virtual_memory {
            let access = Capabilities::DEVICE_ACCESS.with(Capabilities::RANGE_ACCESS);
            let access = access.with(Capabilities::JOINED_ACCESS);
            all = all.with(Capabilities::VIRTUAL_MEMORY).with(Capabilities::ALIASING).with(access);
            if device.sharing {
                all = all.with(Capabilities::SHARING);
            }
        }
        let context = self.core.primary(device.ordinal, Operation::Query)?;
        if context.kernels.is_some() {
            all = all.with(Capabilities::JOINT_COPIES);
        }
        Ok(all)
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        self.lines.close(&self.core);
        self.timelines.close(&self.core);
    }
}

/// Refuses a range that is not made of whole granules.
fn check_range(range: DeviceRange, granularity: Granularity, operation: Operation) -> Result<()> {
    let refuse = |kind, hint| Err(Error::new(kind, operation, hint).at(range.start(), range.size()));
    if !granularity.divides(range.size()) {
        return refuse(Kind::InvalidSize, "the size is not a multiple of the granularity");
    }
    if !range.start().is_aligned(granularity) {
        return refuse(Kind::Misaligned, "the address is not a multiple of the granularity");
    }
    Ok(())
}

impl Driver for CudaDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::CUDA
    }

    fn device_count(&self) -> u32 {
        u32::try_from(self.core.devices.len()).unwrap_or(u32::MAX)
    }

    fn device_info(&self, device: Ordinal) -> Result<DeviceInfo> {
        let found = self.core.device(device, Operation::Query)?;
        Ok(DeviceInfo {
            name: found.name.clone(),
            capabilities: self.capabilities(found)?,
            granularity: self.core.granularity(device)?,
            total: found.total,
            bandwidth: found.bandwidth(&self.core.api),
            simulated_costs: None,
        })
    }

    fn memory(&self, device: Ordinal) -> Result<MemoryInfo> {
        self.core.memory(device)
    }

    fn granularity(&self, device: Ordinal, _: ByteSize) -> Result<Granularity> {
        self.core.granularity(device)
    }

    fn reserve(&self, device: Ordinal, size: ByteSize, alignment: Granularity) -> Result<DeviceRange> {
        self.core.reserve(&self.books, device, size, alignment)
    }

    fn free(&self, range: DeviceRange) -> Result<()> {
        self.core.free(&self.books, range)
    }

    fn create(&self, device: Ordinal, size: ByteSize, options: CreateOptions) -> Result<NativeBlock> {
        self.core.create(&self.books, device, size, options)
    }

    fn release(&self, block: NativeBlock) -> Result<()> {
        self.core.release(&self.books, block)
    }

    fn map(&self, range: DeviceRange, block: NativeBlock) -> Result<()> {
        check_range(range, self.core.granule(), Operation::Map)?;
        self.core.map(&self.books, range, block)
    }

    fn unmap(&self, range: DeviceRange) -> Result<()> {
        self.core.unmap(&self.books, range)
    }

    fn set_access(&self, range: DeviceRange, access: &[Access]) -> Result<()> {
        check_range(range, self.core.granule(), Operation::SetAccess)?;
        self.core.set_access(&self.books, range, access)
    }

    fn allocate(&self, device: Ordinal, size: ByteSize) -> Result<DevicePtr> {
        self.core.allocate(&self.books, device, size)
    }

    fn deallocate(&self, device: Ordinal, address: DevicePtr) -> Result<()> {
        self.core.deallocate(&self.books, device, address)
    }

    fn copy(&self, device: Ordinal, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        self.core.copy(device, stream, slices)
    }

    fn timeline_create(&self, device: Ordinal) -> Result<TimelineId> {
        self.timelines.create(&self.core, device)
    }

    fn timeline_destroy(&self, timeline: TimelineId) -> Result<()> {
        self.timelines.destroy(&self.core, timeline)
    }

    fn timeline_write(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
        self.timelines.write(&self.core, stream, timeline, value)
    }

    fn timeline_read(&self, timeline: TimelineId) -> Result<u64> {
        self.timelines.read(&self.core, timeline)
    }

    fn timeline_wait(&self, timeline: TimelineId, value: u64) -> Result<()> {
        self.timelines.wait(&self.core, timeline, value)
    }

    fn stream_wait(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
        self.timelines.stream_wait(&self.core, stream, timeline, value)
    }

    fn is_capturing(&self, device: Ordinal, stream: Stream) -> Result<bool> {
        self.core.is_capturing(device, stream)
    }

    fn export(&self, block: NativeBlock) -> Result<OwnedFd> {
        self.core.export(&self.books, block)
    }

    fn import(&self, device: Ordinal, fd: BorrowedFd<'_>, size: ByteSize) -> Result<NativeBlock> {
        self.core.import(&self.books, device, fd, size)
    }

    fn check_native(&self, device: Ordinal, block: NativeBlock, size: ByteSize) -> Result<()> {
        self.core.check_native(&self.books, device, block, size)
    }

    fn read(&self, device: Ordinal, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        self.core.read(device, from, bytes)
    }

    fn write(&self, device: Ordinal, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        self.core.write(device, to, bytes)
    }

    fn access_at(&self, device: Ordinal, address: DevicePtr) -> Result<AccessMode> {
        self.core.access_at(device, address)
    }

    fn locate(&self, context: u64, device: u64) -> Result<Ordinal> {
        self.core.locate(context, device)
    }

    fn streams(&self) -> &dyn Streams {
        self
    }
}

impl Streams for CudaDriver {
    fn create(&self, device: Ordinal) -> Result<Stream> {
        self.lines.create(&self.core, device)
    }

    fn destroy(&self, stream: Stream) -> Result<()> {
        self.lines.destroy(&self.core, stream)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.lines.synchronize(&self.core, stream)
    }

    fn enqueue(&self, stream: Stream, function: HostFunction) -> Result<()> {
        self.lines.enqueue(&self.core, stream, function)
    }

    fn capture_begin(&self, stream: Stream) -> Result<()> {
        self.lines.capture_begin(&self.core, stream)
    }

    fn capture_end(&self, stream: Stream) -> Result<Graph> {
        self.lines.capture_end(&self.core, stream)
    }

    fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
        self.lines.launch(&self.core, graph, stream)
    }

    fn destroy_graph(&self, graph: Graph) -> Result<()> {
        self.lines.destroy_graph(&self.core, graph)
    }
}
