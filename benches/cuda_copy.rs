//! Joint copies on a GPU: microseconds of host and GPU time, beside copies one by one, the vendor's batch call and
//! a plain device copy. Prints a table; needs a GPU, and says so where there is none.
//!
//! GPU times are between two events around one operation on an idle stream, so an empty kernel is some µs too; the
//! median of many is shown. Host times are of the call alone.

#[path = "../tests/cuda_common/mod.rs"]
mod cuda_common;

use cuda_common::{Bench, Native, RW};
use gvmm::driver::cuda::CudaDriver;
use gvmm::driver::{
    Access, Capabilities, CopySlice, CreateOptions, Driver, Graph, Ordinal, Point, RecordId, RouteId,
    RouteSlice, Stream, Way,
};
use gvmm::units::{ByteSize, DevicePtr};
use std::time::Instant;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn main() {
    let path = std::env::var_os("GVMM_CUDA_LIBRARY").map(std::path::PathBuf::from);
    let driver = match CudaDriver::open(path.as_deref()) {
        Ok(driver) => driver,
        Err(error) => {
            println!("skipped: {error}");
            std::process::exit(i32::from(std::env::var_os("GVMM_NO_SKIP").is_some_and(|v| v == "1")));
        }
    };
    println!("{}, CUDA driver {}", driver.device_info(Ordinal(0)).expect("a device").name, driver.version());
    let quick = std::env::args().any(|a| a == "--quick");
    let bench = Bench::new(driver);
    bench.native.enter(0);
    let timer = Timer::new(&bench.native);
    questions(&bench);
    small(&bench, &timer, if quick { 3 } else { 300 });
    if bench.capabilities().has(Capabilities::ROUTES) {
        routes(&bench, &timer, if quick { 3 } else { 300 });
        graphs(&bench, &timer, if quick { 3 } else { 300 });
    }
    large(&bench, &timer, if quick { 1 } else { 20 }, if quick { 8 * MIB } else { 1 << 30 });
    if bench.capabilities().has(Capabilities::VIRTUAL_MEMORY) {
        remaps(&bench, if quick { 3 } else { 1000 });
    }
}

/// What a launch asks the driver first.
fn questions(bench: &Bench) {
    let stream = bench.driver.streams().create(bench.device).expect("a stream");
    let (native, context, mut out) = (&bench.native, bench.native.current(), 0_u64);
    let out = &raw mut out as u64;
    println!("\n| a question before a launch | ns |\n|---|---|");
    for (name, a, b) in
        [("cuCtxGetCurrent", out, 0), ("cuCtxGetId", context, out), ("cuStreamIsCapturing", stream.0, out)]
    {
        println!("| {name} | {:.0} |", native.nanoseconds(name, a, b));
    }
}

/// Two events.
struct Timer<'a> {
    native: &'a Native,
    events: [u64; 2],
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn micros(from: Instant) -> f64 {
    from.elapsed().as_secs_f64() * 1e6
}

impl<'a> Timer<'a> {
    fn new(native: &'a Native) -> Self {
        let mut events = [0_u64; 2];
        for event in &mut events {
            native.must("cuEventCreate", std::ptr::from_mut(event) as u64, 0, 0);
        }
        Self { native, events }
    }

    /// Medians of (host µs, GPU µs) of `work` on `stream`.
    fn time(&self, stream: Stream, rounds: usize, work: impl FnMut()) -> (f64, f64) {
        self.time_prepared(stream, rounds, || {}, work)
    }

    /// The same, with what the host does before and enqueues nothing: it counts for the host only.
    fn time_prepared(
        &self,
        stream: Stream,
        rounds: usize,
        mut prepare: impl FnMut(),
        mut work: impl FnMut(),
    ) -> (f64, f64) {
        let (mut host, mut gpu) = (Vec::new(), Vec::new());
        for _ in 0..rounds + 3 {
            let start = Instant::now();
            prepare();
            let prepared = micros(start);
            self.native.must("cuEventRecord", self.events[0], stream.0, 0);
            let start = Instant::now();
            work();
            host.push(prepared + micros(start));
            self.native.must("cuEventRecord", self.events[1], stream.0, 0);
            self.native.must("cuStreamSynchronize", stream.0, 0, 0);
            let mut ms = 0_f32;
            self.native.must("cuEventElapsedTime", &raw mut ms as u64, self.events[0], self.events[1]);
            gpu.push(f64::from(ms) * 1e3);
        }
        (median(host.split_off(3)), median(gpu.split_off(3)))
    }
}

fn slices(dst: DevicePtr, src: DevicePtr, count: u64, bytes: u64, skew: u64) -> Vec<CopySlice> {
    let at = |base: DevicePtr, i: u64| DevicePtr(base.get() + i * bytes);
    (0..count)
        .map(|i| CopySlice { dst: at(dst, i), src: DevicePtr(at(src, i).get() + skew), bytes: bytes - skew })
        .collect()
}

fn two_buffers(bench: &Bench, bytes: u64) -> (DevicePtr, DevicePtr) {
    let make = || bench.driver.allocate(bench.device, ByteSize(bytes)).expect("memory");
    (make(), make())
}

fn small(bench: &Bench, timer: &Timer<'_>, rounds: usize) {
    let stream = bench.driver.streams().create(bench.device).expect("a stream");
    let (dst, src) = two_buffers(bench, 1364 * 64 * KIB);
    println!(
        "\n| slices of 4 KiB | joint: launches | host µs | GPU µs | one by one: host | GPU | batch call: host | GPU |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for count in [1, 8, 64, 256, 1024, 1364] {
        let list = slices(dst, src, count, 4 * KIB, 0);
        let mut launches = 0;
        let joint = timer.time(stream, rounds, || {
            launches = bench.driver.copy(bench.device, stream, &list).expect("copied");
        });
        let single = timer.time(stream, rounds.div_ceil(10), || one_by_one(&bench.native, stream, &list));
        let batch = batch(bench, timer, stream, rounds, &list);
        let batch = batch.map_or("– | –".to_owned(), |(host, gpu)| format!("{host:.1} | {gpu:.1}"));
        let ((h, g), (sh, sg)) = (joint, single);
        println!("| {count} | {launches} | {h:.1} | {g:.1} | {sh:.1} | {sg:.1} | {batch} |");
    }
    println!("\n| 256 slices of | host µs | GPU µs | GB/s read and written |\n|---|---|---|---|");
    for (name, bytes, skew) in [
        ("256 B", 256, 0),
        ("64 KiB", 64 * KIB, 0),
        ("64 KiB, 4 B off", 64 * KIB, 4),
        ("64 KiB, 1 B off", 64 * KIB, 1),
    ] {
        let list = slices(dst, src, 256, bytes, skew);
        let (host, gpu) = timer.time(stream, rounds, || copy(bench, stream, &list));
        println!("| {name} | {host:.1} | {gpu:.1} | {:.0} |", 512.0 * bytes as f64 / gpu / 1e3);
    }
    bench.driver.deallocate(bench.device, dst).expect("freed");
    bench.driver.deallocate(bench.device, src).expect("freed");
}

/// A route to slices that stay from buffers that do not, with the slices of even and of odd steps.
fn route(
    bench: &Bench,
    way: Way,
    near: DevicePtr,
    far: DevicePtr,
    count: u64,
) -> (RouteId, [Vec<CopySlice>; 2]) {
    let bytes = 4 * KIB;
    let steps = [0, count * bytes].map(|offset| {
        let far = DevicePtr(far.get() + offset);
        let (dst, src) = if way == Way::In { (near, far) } else { (far, near) };
        slices(dst, src, count, bytes, 0)
    });
    let near = |slice: &CopySlice| if way == Way::In { slice.dst } else { slice.src };
    let stays: Vec<_> = steps[0].iter().map(|s| RouteSlice { near: near(s), bytes }).collect();
    (bench.driver.route_create(bench.device, way, &stays).expect("a route"), steps)
}

/// A launch of a route beside one with all by value; its far ends are others each time.
fn routes(bench: &Bench, timer: &Timer<'_>, rounds: usize) {
    let stream = bench.driver.streams().create(bench.device).expect("a stream");
    println!(
        "\n| slices of 4 KiB, into shadows | all by value: host µs | GPU µs | a route: host µs | GPU µs |"
    );
    println!("|---|---|---|---|---|");
    for count in [1, 8, 64, 256, 1024] {
        let (near, far) = two_buffers(bench, 2 * count * 4 * KIB);
        let (route, steps) = route(bench, Way::In, near, far, count);
        let mut step = 0;
        let (vh, vg) = timer.time(stream, rounds, || {
            step += 1;
            copy(bench, stream, &steps[step % 2]);
        });
        let (rh, rg) = timer.time(stream, rounds, || {
            step += 1;
            bench.driver.route_copy(bench.device, stream, route, &steps[step % 2]).expect("copied");
        });
        println!("| {count} | {vh:.1} | {vg:.1} | {rh:.1} | {rg:.1} |");
        bench.driver.route_destroy(route).expect("destroyed");
        bench.driver.deallocate(bench.device, near).expect("freed");
        bench.driver.deallocate(bench.device, far).expect("freed");
    }
}

/// A graph of 20 small kernels, with what stands before and after them.
fn capture(bench: &Bench, stream: Stream, at: DevicePtr, routes: &[RouteId]) -> (Graph, Vec<RecordId>) {
    let driver = &bench.driver;
    driver.streams().capture_begin(stream).expect("a capture");
    let mut records = Vec::new();
    if let [inward, outward] = routes {
        records.push(driver.route_record_ahead(stream, *inward, *outward).expect("recorded"));
    }
    for i in 0..20 {
        copy(bench, stream, &slices(DevicePtr(at.get() + 8 * KIB), DevicePtr(at.get() + 64 * i), 1, 64, 0));
    }
    if let [_, outward] = routes {
        records.push(driver.route_record_behind(stream, *outward, records[0]).expect("recorded").0);
    }
    (driver.streams().capture_end(stream).expect("a graph"), records)
}

/// The copies of a step, in and out, around a graph and inside of it: what they add to the graph alone.
fn graphs(bench: &Bench, timer: &Timer<'_>, rounds: usize) {
    let (driver, streams) = (&bench.driver, bench.driver.streams());
    let stream = streams.create(bench.device).expect("a stream");
    println!("\n| slots of 4 KiB, in and out, a graph of 20 kernels | added: host µs | GPU µs |");
    println!("|---|---|---|");
    for count in [64, 256, 1024] {
        let (near, far) = two_buffers(bench, 2 * count * 4 * KIB);
        let (work, target) = two_buffers(bench, 2 * count * 4 * KIB);
        let (inward, ins) = route(bench, Way::In, near, far, count);
        let (outward, outs) = route(bench, Way::Out, near, target, count);
        let (bare, _) = capture(bench, stream, work, &[]);
        let (graph, records) = capture(bench, stream, work, &[inward, outward]);
        let launch = |graph| streams.launch(graph, stream).expect("launched");
        let (bare_host, bare_gpu) = timer.time(stream, rounds, || launch(bare));
        let show = |what: &str, (host, gpu): (f64, f64)| {
            println!("| {count}, {what} | {:.1} | {:.1} |", host - bare_host, gpu - bare_gpu);
        };
        let step = std::cell::Cell::new(0);
        let by_value = timer.time(stream, rounds, || {
            step.set(step.get() + 1);
            copy(bench, stream, &ins[step.get() % 2]);
            launch(bare);
            copy(bench, stream, &outs[step.get() % 2]);
        });
        show("launched around it, all by value", by_value);
        let around = timer.time(stream, rounds, || {
            step.set(step.get() + 1);
            driver.route_copy(bench.device, stream, inward, &ins[step.get() % 2]).expect("copied");
            launch(bare);
            driver.route_copy(bench.device, stream, outward, &outs[step.get() % 2]).expect("copied");
        });
        show("launched around it, routes", around);
        let point = || {
            step.set(step.get() + 1);
            let points: [Point<'_>; 2] =
                [(records[0], &ins[step.get() % 2]), (records[1], &outs[step.get() % 2])];
            driver.route_point_all(graph, &points).expect("pointed");
        };
        show("inside, pointed in each step", timer.time_prepared(stream, rounds, point, || launch(graph)));
        show("inside, not pointed anew", timer.time(stream, rounds, || launch(graph)));
        for graph in [bare, graph] {
            streams.destroy_graph(graph).expect("destroyed");
        }
        for route in [inward, outward] {
            driver.route_destroy(route).expect("destroyed");
        }
        for buffer in [near, far, work, target] {
            driver.deallocate(bench.device, buffer).expect("freed");
        }
    }
}

fn copy(bench: &Bench, stream: Stream, list: &[CopySlice]) {
    bench.driver.copy(bench.device, stream, list).expect("copied");
}

fn one_by_one(native: &Native, stream: Stream, list: &[CopySlice]) {
    for s in list {
        let status = native
            .call_long("cuMemcpyDtoDAsync_v2", [s.dst.get(), s.src.get(), s.bytes, stream.0, 0, 0, 0, 0, 0]);
        assert_eq!(status.unwrap_or(0), 0);
    }
}

/// `cuMemcpyBatchAsync` of CUDA 12.8: arrays of targets, sources and sizes; one set of attributes.
fn batch(
    bench: &Bench,
    timer: &Timer<'_>,
    stream: Stream,
    rounds: usize,
    list: &[CopySlice],
) -> Option<(f64, f64)> {
    let dst: Vec<u64> = list.iter().map(|s| s.dst.get()).collect();
    let src: Vec<u64> = list.iter().map(|s| s.src.get()).collect();
    let size: Vec<u64> = list.iter().map(|s| s.bytes).collect();
    // Source read in stream order (1), no hints where, no flags.
    let (attributes, index, mut failed) = ([1_u32, 0, 0, 0, 0, 0], [0_u64], 0_u64);
    let mut call = || {
        bench.native.call_long(
            "cuMemcpyBatchAsync",
            [
                dst.as_ptr() as u64,
                src.as_ptr() as u64,
                size.as_ptr() as u64,
                list.len() as u64,
                attributes.as_ptr() as u64,
                index.as_ptr() as u64,
                1,
                &raw mut failed as u64,
                stream.0,
            ],
        )
    };
    if call() != Some(0) {
        return None;
    }
    Some(timer.time(stream, rounds, || {
        call();
    }))
}

fn large(bench: &Bench, timer: &Timer<'_>, rounds: usize, bytes: u64) {
    let stream = bench.driver.streams().create(bench.device).expect("a stream");
    let (dst, src) = two_buffers(bench, bytes);
    let size = ByteSize(bytes);
    println!("\n| {size} | host µs | GPU µs | of a plain copy's bandwidth |\n|---|---|---|---|");
    let (_, plain) =
        timer.time(stream, rounds, || one_by_one(&bench.native, stream, &slices(dst, src, 1, bytes, 0)));
    println!("| cuMemcpyDtoDAsync | | {plain:.0} | 100.0 % |");
    for (name, count, skew) in [
        ("one slice", 1, 0),
        ("two slices (the kernel)", 2, 0),
        ("16 slices", 16, 0),
        ("16 slices, 4 bytes off", 16, 4),
        ("16 slices, 1 byte off", 16, 1),
    ] {
        let list = slices(dst, src, count, bytes / count, skew);
        let (host, gpu) = timer.time(stream, rounds, || copy(bench, stream, &list));
        println!("| {name} | {host:.1} | {gpu:.0} | {:.1} % |", 100.0 * plain / gpu);
    }
    bench.driver.deallocate(bench.device, dst).expect("freed");
    bench.driver.deallocate(bench.device, src).expect("freed");
}

/// Map, set-access and unmap of one 2 MiB block, by the driver's own calls and through ours.
fn remaps(bench: &Bench, rounds: usize) {
    let (driver, native) = (&bench.driver, &bench.native);
    let granule = driver.granularity(bench.device, ByteSize(1)).expect("a granule");
    let (size, bytes) = (granule.size(), granule.size().get());
    let range = driver.reserve(bench.device, size, granule).expect("a range");
    let block = driver.create(bench.device, size, CreateOptions::default()).expect("a block");
    let (at, access) = (range.start().get(), [Access { device: bench.device, mode: RW }]);
    let descriptor = [1_u32, 0, 3];
    let mut raw = [const { Vec::new() }; 3];
    let mut ours = [const { Vec::new() }; 3];
    let note = |list: &mut [Vec<f64>; 3], i: usize, work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        list[i].push(micros(start));
    };
    for _ in 0..rounds {
        note(&mut raw, 0, &mut || {
            assert_eq!(native.call_long("cuMemMap", [at, bytes, 0, block.0, 0, 0, 0, 0, 0]), Some(0));
        });
        note(&mut raw, 1, &mut || {
            let list = descriptor.as_ptr() as u64;
            assert_eq!(native.call_long("cuMemSetAccess", [at, bytes, list, 1, 0, 0, 0, 0, 0]), Some(0));
        });
        note(&mut raw, 2, &mut || native.must("cuMemUnmap", at, bytes, 0));
        note(&mut ours, 0, &mut || driver.map(range, block).expect("mapped"));
        note(&mut ours, 1, &mut || driver.set_access(range, &access).expect("accessible"));
        note(&mut ours, 2, &mut || driver.unmap(range).expect("unmapped"));
    }
    println!("\n| one block of {size} | driver µs | ours µs |\n|---|---|---|");
    for (i, name) in ["map", "set access", "unmap"].into_iter().enumerate() {
        println!("| {name} | {:.2} | {:.2} |", median(raw[i].clone()), median(ours[i].clone()));
    }
    driver.release(block).expect("released");
    driver.free(range).expect("freed");
}
