//! The host's own memory as a device that is as strict as a GPU.

mod costs;

pub use costs::{Costs, Point};

use crate::config::HostConfig;
use crate::driver::{
    Access, CopySlice, CreateOptions, DeviceInfo, Driver, DriverKind, Graph, HostFunction, MemoryInfo,
    NativeBlock, Ordinal, Stream, Streams, TimelineId,
};
use crate::error::Result;
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::os::fd::{BorrowedFd, OwnedFd};

/// A driver over the host's memory, for tests and for machines without a GPU.
#[derive(Debug)]
pub struct HostDriver {}

impl HostDriver {
    /// A driver of its own, with nothing in it. `costs` wins over the name in `config`.
    pub fn new(config: HostConfig, costs: Option<Costs>) -> Result<Self> {
        let _ = (config, costs);
        todo!()
    }
}

impl Driver for HostDriver {
    fn kind(&self) -> DriverKind {
        todo!()
    }
    fn device_count(&self) -> u32 {
        todo!()
    }
    fn device_info(&self, _: Ordinal) -> Result<DeviceInfo> {
        todo!()
    }
    fn memory(&self, _: Ordinal) -> Result<MemoryInfo> {
        todo!()
    }
    fn granularity(&self, _: Ordinal, _: ByteSize) -> Result<Granularity> {
        todo!()
    }
    fn reserve(&self, _: Ordinal, _: ByteSize, _: Granularity) -> Result<DeviceRange> {
        todo!()
    }
    fn free(&self, _: DeviceRange) -> Result<()> {
        todo!()
    }
    fn create(&self, _: Ordinal, _: ByteSize, _: CreateOptions) -> Result<NativeBlock> {
        todo!()
    }
    fn release(&self, _: NativeBlock) -> Result<()> {
        todo!()
    }
    fn map(&self, _: DeviceRange, _: NativeBlock) -> Result<()> {
        todo!()
    }
    fn unmap(&self, _: DeviceRange) -> Result<()> {
        todo!()
    }
    fn set_access(&self, _: DeviceRange, _: &[Access]) -> Result<()> {
        todo!()
    }
    fn allocate(&self, _: Ordinal, _: ByteSize) -> Result<DevicePtr> {
        todo!()
    }
    fn deallocate(&self, _: Ordinal, _: DevicePtr) -> Result<()> {
        todo!()
    }
    fn copy(&self, _: Ordinal, _: Stream, _: &[CopySlice]) -> Result<u32> {
        todo!()
    }
    fn timeline_create(&self, _: Ordinal) -> Result<TimelineId> {
        todo!()
    }
    fn timeline_destroy(&self, _: TimelineId) -> Result<()> {
        todo!()
    }
    fn timeline_write(&self, _: Stream, _: TimelineId, _: u64) -> Result<()> {
        todo!()
    }
    fn timeline_read(&self, _: TimelineId) -> Result<u64> {
        todo!()
    }
    fn timeline_wait(&self, _: TimelineId, _: u64) -> Result<()> {
        todo!()
    }
    fn stream_wait(&self, _: Stream, _: TimelineId, _: u64) -> Result<()> {
        todo!()
    }
    fn is_capturing(&self, _: Ordinal, _: Stream) -> Result<bool> {
        todo!()
    }
    fn export(&self, _: NativeBlock) -> Result<OwnedFd> {
        todo!()
    }
    fn import(&self, _: Ordinal, _: BorrowedFd<'_>, _: ByteSize) -> Result<NativeBlock> {
        todo!()
    }
    fn check_native(&self, _: Ordinal, _: NativeBlock, _: ByteSize) -> Result<()> {
        todo!()
    }
    fn streams(&self) -> &dyn Streams {
        todo!()
    }
}

impl Streams for HostDriver {
    fn create(&self, _: Ordinal) -> Result<Stream> {
        todo!()
    }
    fn destroy(&self, _: Stream) -> Result<()> {
        todo!()
    }
    fn synchronize(&self, _: Stream) -> Result<()> {
        todo!()
    }
    fn enqueue(&self, _: Stream, _: HostFunction) -> Result<()> {
        todo!()
    }
    fn capture_begin(&self, _: Stream) -> Result<()> {
        todo!()
    }
    fn capture_end(&self, _: Stream) -> Result<Graph> {
        todo!()
    }
    fn launch(&self, _: Graph, _: Stream) -> Result<()> {
        todo!()
    }
    fn destroy_graph(&self, _: Graph) -> Result<()> {
        todo!()
    }
}
