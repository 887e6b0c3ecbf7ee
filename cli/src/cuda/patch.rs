//! What it costs to change a graph's kernel nodes before its launch, and what copies inside and before a graph add on
//! the GPU.

use super::gpu::{Gpu, NONE, Work};
use gvmm::driver::{Capabilities, CopySlice, Driver, Graph, Ordinal, RouteId, RouteSlice, Stream, Way};
use gvmm::error::Result;
use gvmm::units::{ByteSize, DevicePtr};
use std::sync::Arc;
use std::time::Instant;

/// One time on the host and one on the GPU, in µs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Both {
    pub(crate) host: f64,
    pub(crate) gpu: f64,
}

/// As many as the copies and patches of a step can hide behind.
const NODES: usize = 256;
/// Bytes of each slice of a copy.
const SLICE: u64 = 4 << 10;
const MOST_SLICES: u64 = 1024;

/// A graph of small kernels on a stream of its own, and buffers to copy between.
pub(crate) struct Bench {
    driver: Arc<dyn Driver>,
    device: Ordinal,
    gpu: Gpu,
    stream: Stream,
    buffers: [DevicePtr; 2],
    graph: Option<Graph>,
    nodes: Vec<u64>,
}

impl Bench {
    pub(crate) fn new(driver: &Arc<dyn Driver>, device: Ordinal) -> Result<Self> {
        let gpu = Gpu::new(device, 2, 1)?;
        let stream = driver.streams().create(device)?;
        let (driver, buffers) = (Arc::clone(driver), [DevicePtr::NULL; 2]);
        let mut bench = Self { driver, device, gpu, stream, buffers, graph: None, nodes: Vec::new() };
        for i in 0..2 {
            bench.buffers[i] = bench.driver.allocate(device, ByteSize(MOST_SLICES * SLICE))?;
        }
        bench.capture()?;
        Ok(bench)
    }

    /// A kernel that does nothing with the memory there.
    fn work(&self, i: usize) -> Work {
        let address = self.buffers[i % 2].get();
        Work { address, bytes: 64, check: NONE, write: NONE, counter: 0, unused: 0 }
    }

    fn capture(&mut self) -> Result<()> {
        let streams = self.driver.streams();
        streams.capture_begin(self.stream)?;
        let mut nodes = Vec::new();
        let mut enqueue = || {
            for i in 0..NODES {
                self.gpu.launch(self.stream, &[self.work(i)])?;
                nodes.push(self.gpu.newest_node(self.stream)?);
            }
            Ok(())
        };
        let enqueued = enqueue();
        self.graph = Some(streams.capture_end(self.stream)?);
        self.nodes = nodes;
        enqueued
    }

    /// Times `work` on a stream that is busy by then: on the GPU between two events around it.
    fn time(&self, work: impl FnOnce() -> Result<()>) -> Result<Both> {
        self.gpu.spin(self.stream)?;
        self.gpu.start(self.stream)?;
        let start = Instant::now();
        work()?;
        let host = start.elapsed().as_secs_f64() * 1e6;
        self.gpu.stop(self.stream)?;
        self.driver.streams().synchronize(self.stream)?;
        Ok(Both { host, gpu: self.gpu.elapsed_us()? })
    }

    fn launch(&self, graph: Option<Graph>) -> Result<()> {
        graph.map_or(Ok(()), |graph| self.driver.streams().launch(graph, self.stream))
    }

    /// Two events with nothing between.
    pub(crate) fn nothing(&self) -> Result<Both> {
        self.time(|| Ok(()))
    }

    /// A launch of the graph after `count` of its nodes got other parameters.
    pub(crate) fn patched(&self, count: usize, round: usize) -> Result<Both> {
        let exec = self.graph.map_or(0, |graph| graph.0);
        self.time(|| {
            for (i, node) in self.nodes.iter().take(count).enumerate() {
                self.gpu.patch(exec, *node, &[self.work(i + round + 1)])?;
            }
            self.launch(self.graph)
        })
    }

    /// Joint copies of `count` slices, as begin and end launch them: by a route where the driver has them.
    pub(crate) fn copied(&self, way: Way, count: u64, rounds: u32) -> Result<Vec<Both>> {
        let slices = self.slices(way, count);
        let can = self.driver.device_info(self.device)?.capabilities;
        if !can.has(Capabilities::ROUTES) {
            let copy = |_| self.time(|| self.driver.copy(self.device, self.stream, &slices).map(drop));
            return (0..rounds).map(copy).collect();
        }
        let route = self.route(way, &slices)?;
        let copy = || self.driver.route_copy(self.device, self.stream, route, &slices).map(drop);
        let timed = (0..rounds).map(|_| self.time(copy)).collect();
        self.driver.route_destroy(route)?;
        timed
    }

    fn route(&self, way: Way, slices: &[CopySlice]) -> Result<RouteId> {
        let near = |slice: &CopySlice| if way == Way::In { slice.dst } else { slice.src };
        let stays: Vec<RouteSlice> =
            slices.iter().map(|s| RouteSlice { near: near(s), bytes: s.bytes }).collect();
        self.driver.route_create(self.device, way, &stays)
    }

    fn slices(&self, way: Way, count: u64) -> Vec<CopySlice> {
        let [near, far] = self.buffers;
        let (dst, src) = if way == Way::In { (near, far) } else { (far, near) };
        let at = |base: DevicePtr, i: u64| DevicePtr(base.get() + i * SLICE);
        (0..count).map(|i| CopySlice { dst: at(dst, i), src: at(src, i), bytes: SLICE }).collect()
    }

    /// A launch of the graph's kernels behind recorded copies of `count` slices, which are given their far ends before.
    pub(crate) fn recorded(&self, way: Way, count: u64, rounds: u32) -> Result<Vec<Both>> {
        let slices = self.slices(way, count);
        let route = self.route(way, &slices)?;
        let streams = self.driver.streams();
        streams.capture_begin(self.stream)?;
        let record = self.driver.route_record(self.stream, route);
        let kernels = (0..NODES).try_for_each(|i| self.gpu.launch(self.stream, &[self.work(i)]));
        let graph = streams.capture_end(self.stream)?;
        let timed = record.and_then(|record| {
            kernels?;
            let round = || {
                self.driver.route_point(record, graph, &slices)?;
                self.launch(Some(graph))
            };
            (0..rounds).map(|_| self.time(round)).collect()
        });
        streams.destroy_graph(graph)?;
        self.driver.route_destroy(route)?;
        timed
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let streams = self.driver.streams();
        let mut ended = vec![streams.destroy(self.stream)];
        ended.extend(self.graph.map(|graph| streams.destroy_graph(graph)));
        let buffers = self.buffers.iter().filter(|buffer| !buffer.is_null());
        ended.extend(buffers.map(|buffer| self.driver.deallocate(self.device, *buffer)));
        for error in ended.into_iter().filter_map(Result::err) {
            log::warn!("something was not given back: {error}");
        }
    }
}
