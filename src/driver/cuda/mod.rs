//! NVIDIA's driver, by `libcuda` alone (no runtime, never managed memory), found when the program runs.

mod api;

mod context;
mod copy;
mod device;
mod error;
mod memory;
#[cfg(test)]
mod oracle;
mod pieces;
mod record;
mod route;
mod share;
mod stream;
mod timeline;
mod touch;

use crate::driver::books::Books;
use crate::driver::delegate::{check_range, driver_calls, stream_calls};
use crate::driver::lines::Lines;
use crate::driver::timelines::Timelines;
use crate::driver::{
    Access, AccessMode, Capabilities, CopySlice, CreateOptions, DeviceInfo, Driver, DriverKind, Graph,
    HostFunction, MemoryInfo, NativeBlock, Ordinal, Point, RecordId, RouteId, RouteSlice, Stream, Streams,
    TimelineId, Way,
};
use crate::error::{Error, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use api::Api;
use context::{Context, Core};
use device::Device;
use record::Beside;
use route::Routes;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// NVIDIA's driver. Calls that need a context use the device's primary one and leave the caller's current
/// context as it was.
#[derive(Debug)]
pub struct CudaDriver {
    core: Core,
    books: Books,
    timelines: Timelines<Arc<Context>>,
    lines: Lines,
    routes: Routes,
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
        let (timelines, lines, routes) = (Timelines::default(), Lines::default(), Routes::default());
        Ok(Self { core, books: Books::default(), timelines, lines, routes })
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
        let mut all =
            Capabilities::HOST_FUNCTIONS.with(Capabilities::NULL_STREAM).with(Capabilities::PATCHES);
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
            if self.core.api.has_graph_updates() {
                all = all.with(Capabilities::ROUTES);
            }
        }
        Ok(all)
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        self.lines.close(&self.core);
        self.routes.close(&self.core);
        self.timelines.close(&self.core);
    }
}

impl Driver for CudaDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::CUDA
    }

    fn version_in_words(&self) -> Option<String> {
        Some(format!("CUDA {}.{}", self.version() / 1000, self.version() % 1000 / 10))
    }

    driver_calls!();

    fn copy(&self, device: Ordinal, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        self.core.copy(device, stream, slices)
    }

    fn route_create(&self, device: Ordinal, way: Way, slices: &[RouteSlice]) -> Result<RouteId> {
        self.routes.create(&self.core, device, way, slices)
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
        self.routes.copy(&self.core, device, stream, route, slices)
    }

    fn route_record(&self, stream: Stream, route: RouteId) -> Result<RecordId> {
        self.routes.record(&self.core, stream, route, Beside::Nothing).map(|(id, _)| id)
    }

    fn route_record_ahead(&self, stream: Stream, route: RouteId, behind: RouteId) -> Result<RecordId> {
        self.routes.record(&self.core, stream, route, Beside::Behind(behind)).map(|(id, _)| id)
    }

    fn route_record_behind(
        &self,
        stream: Stream,
        route: RouteId,
        ahead: RecordId,
    ) -> Result<(RecordId, bool)> {
        self.routes.record(&self.core, stream, route, Beside::Ahead(ahead))
    }

    fn route_point(&self, record: RecordId, graph: Graph, slices: &[CopySlice]) -> Result<()> {
        self.routes.point(&self.core, graph, &[(record, slices)]).map_err(|(_, e)| e)
    }

    fn route_point_all(&self, graph: Graph, points: &[Point<'_>]) -> std::result::Result<(), (usize, Error)> {
        self.routes.point(&self.core, graph, points)
    }
}

impl Streams for CudaDriver {
    stream_calls!();
}
