//! AMD's driver, by HIP's runtime library, found when the program runs. HIP's known faults stand in `quirks.rs`; each
//! care that a quirk asks for is taken in one place of this folder.

mod access;
mod api;
mod context;
mod copy;
mod device;
mod error;
mod holds;
mod limits;
mod memory;
#[cfg(any(test, feature = "hip-runtime-sys"))]
mod oracle;
mod rtc;
mod selftest;
mod share;
mod stream;
mod timeline;
mod touch;

pub use selftest::{SelfTest, Verdict};

use crate::driver::books::Books;
use crate::driver::lines::Lines;
use crate::driver::quirks::{Care, Quirk};
use crate::driver::timelines::Timelines;
use crate::driver::{
    Access, AccessMode, Capabilities, CopySlice, CreateOptions, DeviceInfo, Driver, DriverKind, Graph,
    HostFunction, MemoryInfo, NativeBlock, Ordinal, Stream, Streams, TimelineId,
};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use context::Core;
use device::Device;
use selftest::Before;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// What follows where the host has no access.
const NOT_FOR_HOST: &str =
    "give no mapped memory of it to PyTorch, which reads scalars of a device from the host and would fault";

/// AMD's driver. Calls leave the caller's current device as it was.
#[derive(Debug)]
pub struct HipDriver {
    core: Core,
    books: Books,
    timelines: Timelines<Ordinal>,
    lines: Lines,
}

impl HipDriver {
    /// Opens the driver: the library at `path` alone where one is given, else the one that is found. Quirks (of
    /// `quirks.rs`) in `forced` are switched on or off by name.
    ///
    /// # Errors
    ///
    /// `DriverNotFound` (no library), `DriverTooOld` (before ROCm 6.0, or a function is missing), `NoDevice`. The
    /// hint says what to do.
    pub fn open(path: Option<&Path>, forced: &[(&str, bool)]) -> Result<Self> {
        let core = Core::new(path, forced)?;
        let (library, count) = (core.api.library().path().display().to_string(), core.devices.len());
        log::debug!("{library}: HIP {}, {count} devices", api::in_words(core.version));
        Ok(Self { core, books: Books::default(), timelines: Timelines::default(), lines: Lines::default() })
    }

    /// The runtime's version: 70251831 for 7.2.51831.
    pub fn version(&self) -> u32 {
        self.core.version
    }

    /// The library that was opened.
    pub fn library(&self) -> &Path {
        self.core.api.library().path()
    }

    /// A device's architecture, such as `gfx942`.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn architecture(&self, device: Ordinal) -> Result<&str> {
        self.core.device(device, Operation::Query).map(|found| found.arch.as_str())
    }

    /// The quirks in force for a device.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn quirks(&self, device: Ordinal) -> Result<&[&'static Quirk]> {
        self.core.device(device, Operation::Query).map(|found| found.quirks.as_slice())
    }

    /// The self-tests that the quirks ask for, which run once, and how they ended.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn self_tests(&self, device: Ordinal) -> Result<&[SelfTest]> {
        self.core.examine(device).map(|findings| findings.tests.as_slice())
    }

    /// What people should know about this driver and a device of it.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn notes(&self, device: Ordinal) -> Result<Vec<&'static str>> {
        let found = self.core.device(device, Operation::Query)?;
        let mut notes = self.core.notes();
        if found.virtual_memory && !self.core.host_reaches(found) {
            notes.push(NOT_FOR_HOST);
        }
        Ok(notes)
    }

    /// True where the host is granted what the block's device is granted; false where its memory is not in the
    /// host's reach, HIP is too old, or HIP has refused.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn host_reaches(&self, device: Ordinal) -> Result<bool> {
        self.core.device(device, Operation::Query).map(|found| self.core.host_reaches(found))
    }

    /// True where a copy on a stream is seen by a graph launched there afterwards. Where it is not, copies are
    /// waited for on the host, or refused.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn copies_before_graphs(&self, device: Ordinal) -> Result<bool> {
        self.core.examine(device).map(|findings| findings.before == Before::Seen)
    }

    /// True where the parameters of a graph that is there may be changed.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn may_patch(&self, device: Ordinal) -> Result<bool> {
        self.core.device(device, Operation::Query).map(|found| !found.care.has(Care::NO_PATCH))
    }

    fn capabilities(&self, device: &Device) -> Result<Capabilities> {
        let mut all = Capabilities::HOST_FUNCTIONS.with(Capabilities::NULL_STREAM);
        if device.stream_values {
            all = all.with(Capabilities::EARLY_WAITS);
        }
        let fresh = self.core.examine(device.ordinal)?.fresh;
        if device.virtual_memory && fresh {
            let access = Capabilities::DEVICE_ACCESS.with(Capabilities::RANGE_ACCESS);
            let access = access.with(Capabilities::JOINED_ACCESS).with(Capabilities::SHARING);
            all = all.with(Capabilities::VIRTUAL_MEMORY).with(Capabilities::ALIASING).with(access);
        }
        if self.core.kit(device.ordinal, Operation::Query)?.kernels.is_some() {
            all = all.with(Capabilities::JOINT_COPIES);
        }
        Ok(all)
    }
}

impl Drop for HipDriver {
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

impl Driver for HipDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::HIP
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

impl Streams for HipDriver {
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
