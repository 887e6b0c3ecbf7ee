//! Intel's driver, by the Level Zero loader alone, found when the program runs.
//!
//! What differs from others: the page depends on the size, access is one for a whole reservation and all devices,
//! a block is mapped at one address only, there is no default stream, and no host function and no capture of ours.

mod api;
mod budget;
mod context;
mod copy;
mod device;
mod error;
mod events;
mod layout;
mod lists;
mod memory;
#[cfg(test)]
mod oracle;
mod places;
mod share;
mod stream;
mod sysman;
mod timeline;
mod touch;

use crate::driver::{
    Access, AccessMode, Capabilities, CopySlice, CreateOptions, DeviceInfo, Driver, DriverKind, Graph,
    HostFunction, MemoryInfo, NativeBlock, Ordinal, Stream, Streams, TimelineId, unsupported,
};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use context::Core;
use device::Device;
use memory::Ledger;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use stream::{Lines, Work};
use timeline::{Around, Timelines};

/// `ZE_MEMORY_ACCESS_ATTRIBUTE_NONE`, `_READWRITE` and `_READONLY`.
const NO_ACCESS: u32 = 0;
const READ_WRITE: u32 = 1;
const READ_ONLY: u32 = 2;

/// What the driver says that memory is (`ze_memory_type_t`). A number, since a newer driver may know more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UsmType(pub u32);

impl UsmType {
    /// It does not know.
    pub const UNKNOWN: Self = Self(0);
    /// The host's.
    pub const HOST: Self = Self(1);
    /// The device's.
    pub const DEVICE: Self = Self(2);
    /// Shared by both.
    pub const SHARED: Self = Self(3);
}

/// Intel's driver.
#[derive(Debug)]
pub struct LevelZeroDriver {
    core: Core,
    ledger: Ledger,
    lines: Lines,
    work: Work,
    timelines: Timelines,
}

impl LevelZeroDriver {
    /// Opens the driver with all GPUs, in a context of its own: the loader at `path` alone where one is given, else
    /// the one that is found.
    ///
    /// # Errors
    ///
    /// `DriverNotFound` (no loader, or it has no driver with a device), `DriverTooOld` (a function is missing),
    /// `NoDevice` (the drivers have no GPU). The hint says what to do.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        Core::open(path).map(Self::around)
    }

    /// Opens the driver with one device, in a context that a framework made (a `ze_context_handle_t` and a
    /// `ze_device_handle_t`): what is made in another context is of no use to it. Both must outlive the driver.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; `InvalidArgument` for a NULL.
    pub fn attach(path: Option<&Path>, context: u64, device: u64) -> Result<Self> {
        Core::attach(path, context, device).map(Self::around)
    }

    /// The same driver for memory that such libraries get: where they would refuse what is mapped
    /// ([`Self::mapped_type`]), the device has no virtual memory, and all of its memory is allocations.
    #[must_use]
    pub fn for_libraries(mut self) -> Self {
        for device in self.core.devices.iter_mut().filter(|d| d.virtual_memory && d.usm == UsmType::UNKNOWN) {
            log::info!(
                "device {}: libraries refuse mapped memory on this driver: allocations",
                device.ordinal.0
            );
            device.plain_only();
        }
        self
    }

    fn around(core: Core) -> Self {
        log::debug!("{}: Level Zero, {} devices", core.api.path().display(), core.devices.len());
        let (ledger, lines) = (Ledger::default(), Lines::default());
        Self { core, ledger, lines, work: Work::default(), timelines: Timelines::default() }
    }

    /// The loader that was opened.
    pub fn library(&self) -> &Path {
        self.core.api.path()
    }

    /// What the driver says that mapped memory of a device is, as seen when it was opened. Where it says
    /// [`UsmType::UNKNOWN`], libraries that ask (oneDNN, oneCCL, DLPack) refuse such memory: give them allocations.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn mapped_type(&self, device: Ordinal) -> Result<UsmType> {
        self.core.device(device, Operation::Query).map(|found| found.usm)
    }

    /// The native context and device that a device's memory is made with.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn native(&self, device: Ordinal) -> Result<(u64, u64)> {
        self.core.device(device, Operation::Query).map(|found| (found.context, found.handle))
    }

    /// A stream for a command queue (a `ze_command_queue_handle_t` of the driver's context), which stays its
    /// owner's and must outlive the stream. `group` is the queue's ordinal, for loaders that cannot tell it.
    /// Destroying the stream gives up its number only.
    ///
    /// # Errors
    ///
    /// `NoDevice`, `InvalidStream` for NULL, `InvalidArgument` where the group is not known.
    pub fn wrap_queue(&self, device: Ordinal, queue: u64, group: Option<u32>) -> Result<Stream> {
        self.lines.wrap(&self.core, device, queue, group)
    }

    const fn parts(&self) -> Around<'_> {
        Around { core: &self.core, lines: &self.lines, work: &self.work }
    }

    const fn capabilities(device: &Device) -> Capabilities {
        let mut all = Capabilities::PATCHES;
        if device.virtual_memory {
            all = all.with(Capabilities::VIRTUAL_MEMORY);
            if device.share_as != 0 {
                all = all.with(Capabilities::SHARING);
            }
        }
        if device.append_lists {
            all = all.with(Capabilities::JOINT_COPIES);
        }
        all
    }
}

impl Drop for LevelZeroDriver {
    fn drop(&mut self) {
        self.lines.close(&self.core, &self.work);
        self.timelines.close(&self.core);
        self.work.lists.close(&self.core.api);
        self.work.events.close(&self.core.api);
        self.core.settle(&self.ledger);
    }
}

/// Refuses a range that is not made of whole pages.
fn check_range(range: DeviceRange, granularity: Granularity, operation: Operation) -> Result<()> {
    let refuse = |kind, hint| Err(Error::new(kind, operation, hint).at(range.start(), range.size()));
    if !granularity.divides(range.size()) {
        return refuse(Kind::InvalidSize, "the size is not a multiple of the granularity for this size");
    }
    if !range.start().is_aligned(granularity) {
        return refuse(Kind::Misaligned, "the address is not a multiple of the granularity for this size");
    }
    Ok(())
}

impl Driver for LevelZeroDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::LEVEL_ZERO
    }

    fn device_count(&self) -> u32 {
        u32::try_from(self.core.devices.len()).unwrap_or(u32::MAX)
    }

    fn device_info(&self, device: Ordinal) -> Result<DeviceInfo> {
        let found = self.core.device(device, Operation::Query)?;
        Ok(DeviceInfo {
            name: found.name.clone(),
            capabilities: Self::capabilities(found),
            granularity: found.granularity,
            total: found.budget.total(),
            bandwidth: found.bandwidth,
            simulated_costs: None,
        })
    }

    fn memory(&self, device: Ordinal) -> Result<MemoryInfo> {
        self.core.memory(device)
    }

    fn granularity(&self, device: Ordinal, size: ByteSize) -> Result<Granularity> {
        self.core.granularity(device, size)
    }

    fn reserve(&self, device: Ordinal, size: ByteSize, alignment: Granularity) -> Result<DeviceRange> {
        self.core.reserve(&self.ledger, device, size, alignment)
    }

    fn free(&self, range: DeviceRange) -> Result<()> {
        self.core.free(&self.ledger, range)
    }

    fn create(&self, device: Ordinal, size: ByteSize, options: CreateOptions) -> Result<NativeBlock> {
        self.core.create(&self.ledger, device, size, options)
    }

    fn release(&self, block: NativeBlock) -> Result<()> {
        self.core.release(&self.ledger, block)
    }

    fn map(&self, range: DeviceRange, block: NativeBlock) -> Result<()> {
        self.core.map(&self.ledger, range, block)
    }

    fn unmap(&self, range: DeviceRange) -> Result<()> {
        self.core.unmap(&self.ledger, range)
    }

    fn set_access(&self, range: DeviceRange, access: &[Access]) -> Result<()> {
        self.core.set_access(&self.ledger, range, access)
    }

    fn allocate(&self, device: Ordinal, size: ByteSize) -> Result<DevicePtr> {
        self.core.allocate(&self.ledger, device, size)
    }

    fn deallocate(&self, device: Ordinal, address: DevicePtr) -> Result<()> {
        self.core.deallocate(&self.ledger, device, address)
    }

    fn copy(&self, device: Ordinal, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        copy::check_all(slices)?;
        let line = self.lines.find_on(&self.core, device, stream, Operation::Copy)?;
        let _using = line.using(Operation::Copy)?;
        self.core.copy(&self.work, &line, slices)
    }

    fn timeline_create(&self, device: Ordinal) -> Result<TimelineId> {
        self.timelines.create(&self.core, device)
    }

    fn timeline_destroy(&self, timeline: TimelineId) -> Result<()> {
        self.timelines.destroy(&self.core, timeline)
    }

    fn timeline_write(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
        self.timelines.write(self.parts(), stream, timeline, value)
    }

    fn timeline_read(&self, timeline: TimelineId) -> Result<u64> {
        self.timelines.read(&self.core, timeline)
    }

    fn timeline_wait(&self, timeline: TimelineId, value: u64) -> Result<()> {
        self.timelines.wait(&self.core, timeline, value)
    }

    fn stream_wait(&self, stream: Stream, timeline: TimelineId, value: u64) -> Result<()> {
        self.timelines.stream_wait(self.parts(), stream, timeline, value)
    }

    fn is_capturing(&self, device: Ordinal, stream: Stream) -> Result<bool> {
        let line = self.lines.find_on(&self.core, device, stream, Operation::Stream)?;
        let _using = line.using(Operation::Stream)?;
        Ok(self.core.is_capturing(&line))
    }

    fn export(&self, block: NativeBlock) -> Result<OwnedFd> {
        self.core.export(&self.ledger, block)
    }

    fn import(&self, device: Ordinal, fd: BorrowedFd<'_>, size: ByteSize) -> Result<NativeBlock> {
        self.core.import(&self.ledger, device, fd, size)
    }

    fn check_native(&self, device: Ordinal, block: NativeBlock, size: ByteSize) -> Result<()> {
        self.core.check_native(&self.ledger, device, block, size)
    }

    fn read(&self, device: Ordinal, from: DevicePtr, bytes: &mut [u8]) -> Result<()> {
        self.read_bytes(device, from, bytes)
    }

    fn write(&self, device: Ordinal, to: DevicePtr, bytes: &[u8]) -> Result<()> {
        self.write_bytes(device, to, bytes)
    }

    fn access_at(&self, device: Ordinal, address: DevicePtr) -> Result<AccessMode> {
        self.core.access_at(&self.ledger, device, address)
    }

    fn reaches(&self, device: Ordinal, owner: Ordinal) -> Result<bool> {
        let known = |device| self.core.device(device, Operation::Query).map(|_| ());
        known(device).and(known(owner)).map(|()| self.core.reaches(device, owner))
    }

    fn locate(&self, context: u64, device: u64) -> Result<Ordinal> {
        self.core.locate(context, device)
    }

    fn streams(&self) -> &dyn Streams {
        self
    }
}

/// What this driver does not have.
const NO_FUNCTIONS: &str = "this driver calls no host functions on streams";
const NO_CAPTURE: &str = "this driver captures no streams";

impl Streams for LevelZeroDriver {
    fn create(&self, device: Ordinal) -> Result<Stream> {
        self.lines.create(&self.core, device)
    }

    fn destroy(&self, stream: Stream) -> Result<()> {
        self.lines.destroy(&self.core, &self.work, stream)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        let line = self.lines.find(&self.core, Ordinal(0), stream, Operation::Stream)?;
        self.core.synchronize(&self.work, &line)
    }

    fn enqueue(&self, _: Stream, _: HostFunction) -> Result<()> {
        Err(unsupported(Operation::Stream, NO_FUNCTIONS))
    }

    fn capture_begin(&self, _: Stream) -> Result<()> {
        Err(unsupported(Operation::Capture, NO_CAPTURE))
    }

    fn capture_end(&self, _: Stream) -> Result<Graph> {
        Err(unsupported(Operation::Capture, NO_CAPTURE))
    }

    fn launch(&self, _: Graph, _: Stream) -> Result<()> {
        Err(unsupported(Operation::Launch, NO_CAPTURE))
    }

    fn destroy_graph(&self, _: Graph) -> Result<()> {
        Err(unsupported(Operation::Destroy, NO_CAPTURE))
    }

    fn wrap(&self, device: Ordinal, queue: u64, group: Option<u32>) -> Result<Stream> {
        self.wrap_queue(device, queue, group)
    }
}
