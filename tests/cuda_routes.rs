//! Routes of the CUDA driver on the fake library: launches under way keep what they read, and each new call may fail.

mod cuda_common;

use cuda_common::fake::Fake;
use cuda_common::steps::Step;
use cuda_common::{Bench, noise};
use gvmm::driver::{CopySlice, Graph, Ordinal, RecordId, RouteId, RouteSlice, Stream, Way};
use gvmm::error::{Kind, Result};
use gvmm::rebind::{Binding, Buffer, CopyWays, Direction, Options, Outcome, Slot, Threshold};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::Device;
use std::sync::Arc;

const COUNT: u64 = 20;
const STEP: u64 = 256;
const DEVICE: Ordinal = Ordinal(0);

/// Shadows, and buffers of many steps to copy in from.
struct Copies {
    shadows: DevicePtr,
    buffers: DevicePtr,
    steps: u64,
    stream: Stream,
}

impl Copies {
    fn new(bench: &Bench, steps: u64) -> Self {
        let make = |bytes| bench.driver.allocate(DEVICE, ByteSize(bytes)).expect("memory");
        let (shadows, buffers) = (make(COUNT * STEP), make(steps * COUNT * STEP));
        for step in 0..steps {
            let at = DevicePtr(buffers.get() + step * COUNT * STEP);
            bench.native.write(0, at, &noise((COUNT * STEP) as usize, step + 1));
        }
        let stream = bench.driver.streams().create(DEVICE).expect("a stream");
        Self { shadows, buffers, steps, stream }
    }

    fn route(&self, bench: &Bench) -> Result<RouteId> {
        let near = |i| RouteSlice { near: DevicePtr(self.shadows.get() + i * STEP), bytes: STEP };
        let slices: Vec<_> = (0..COUNT).map(near).collect();
        bench.driver.route_create(DEVICE, Way::In, &slices)
    }

    fn slices(&self, step: u64) -> Vec<CopySlice> {
        let from = self.buffers.get() + step % self.steps * COUNT * STEP;
        (0..COUNT)
            .map(|i| CopySlice {
                dst: DevicePtr(self.shadows.get() + i * STEP),
                src: DevicePtr(from + i * STEP),
                bytes: STEP,
            })
            .collect()
    }

    fn capture(&self, bench: &Bench, route: RouteId) -> (Graph, Result<RecordId>) {
        let streams = bench.driver.streams();
        streams.capture_begin(self.stream).expect("a capture");
        let record = bench.driver.route_record(self.stream, route);
        (streams.capture_end(self.stream).expect("a graph"), record)
    }

    fn point(&self, bench: &Bench, record: RecordId, graph: Graph, step: u64) -> Result<()> {
        bench.driver.route_point(record, graph, &self.slices(step))
    }

    /// The shadows hold a step's data once the stream is idle.
    fn hold(&self, bench: &Bench, step: u64) {
        bench.driver.streams().synchronize(self.stream).expect("the stream works");
        let seen = bench.native.read(0, self.shadows, (COUNT * STEP) as usize);
        assert!(seen == noise((COUNT * STEP) as usize, step % self.steps + 1), "step {step}");
    }

    fn give_back(self, bench: &Bench) {
        bench.driver.streams().destroy(self.stream).expect("destroyed");
        for at in [self.shadows, self.buffers] {
            bench.driver.deallocate(DEVICE, at).expect("freed");
        }
    }
}

/// Runs `test` on a fake of its own, and sees that nothing is left behind.
fn with_copies(name: &str, steps: u64, test: impl FnOnce(&Fake, &Bench, &Copies)) {
    let fake = Fake::build(name, &[]);
    let bench = fake.bench();
    let copies = Copies::new(&bench, steps);
    test(&fake, &bench, &copies);
    copies.give_back(&bench);
    drop(bench);
    fake.clean();
}

/// However many launches are under way, each has the far ends of its step, also where a step launches several times.
#[test]
fn a_launch_under_way_keeps_its_far_ends() {
    with_copies("ahead", 7, |fake, bench, copies| {
        let route = copies.route(bench).expect("a route");
        let (graph, record) = copies.capture(bench, route);
        let record = record.expect("recorded");
        fake.hold(true);
        for step in 0..200 {
            copies.point(bench, record, graph, step).expect("pointed");
            (0..1 + step % 3)
                .for_each(|_| bench.driver.streams().launch(graph, copies.stream).expect("launched"));
        }
        // What is pointed at after the last launch is nobody's.
        copies.point(bench, record, graph, 203).expect("pointed");
        fake.hold(false);
        copies.hold(bench, 199);
        bench.driver.streams().destroy_graph(graph).expect("destroyed");
        bench.driver.route_destroy(route).expect("destroyed");
    });
}

#[test]
fn a_step_in_a_graph_is_one_update() {
    with_copies("updates", 5, |fake, bench, copies| {
        let route = copies.route(bench).expect("a route");
        let (graph, record) = copies.capture(bench, route);
        let record = record.expect("recorded");
        let names = ["cuGraphExecKernelNodeSetParams", "cuEventRecord", "cuLaunchKernel", "cuMemHostAlloc"];
        let before = names.map(|name| fake.calls(name));
        for step in 0..160 {
            copies.point(bench, record, graph, step).expect("pointed");
            bench.driver.streams().launch(graph, copies.stream).expect("launched");
            copies.hold(bench, step);
        }
        let made: Vec<u64> =
            names.iter().zip(before).map(|(name, before)| fake.calls(name) - before).collect();
        assert_eq!(made, [160, 0, 0, 0]);
        bench.driver.streams().destroy_graph(graph).expect("destroyed");
        bench.driver.route_destroy(route).expect("destroyed");
    });
}

/// A launch carries its far ends by value: nothing is kept for it, and nothing is written to memory.
#[test]
fn a_launch_of_a_route_is_one_kernel() {
    with_copies("by_value", 5, |fake, bench, copies| {
        let route = copies.route(bench).expect("a route");
        let names = ["cuLaunchKernel", "cuMemcpyAsync", "cuEventRecord", "cuMemAlloc_v2", "cuMemHostAlloc"];
        let before = names.map(|name| fake.calls(name));
        for step in 0..10 {
            let slices = copies.slices(step);
            assert_eq!(bench.driver.route_copy(DEVICE, copies.stream, route, &slices), Ok(1));
            copies.hold(bench, step);
        }
        let made: Vec<u64> =
            names.iter().zip(before).map(|(name, before)| fake.calls(name) - before).collect();
        assert_eq!(made, [10, 0, 0, 0, 0]);
        bench.driver.route_destroy(route).expect("destroyed");
        // Its memory serves the next one.
        let next = copies.route(bench).expect("a route");
        assert_eq!(fake.calls("cuMemAlloc_v2"), before[3]);
        bench.driver.route_destroy(next).expect("destroyed");
    });
}

/// What a launch asks the driver on a stream that it knows: is our context the current one, is it still ours, is the
/// stream captured. Should its number be another context's stream, the launch is refused, and it is asked after all.
#[test]
fn a_launch_on_a_known_stream_makes_four_calls() {
    with_copies("few_calls", 2, |fake, bench, copies| {
        let route = copies.route(bench).expect("a route");
        let names = [
            "cuCtxGetCurrent",
            "cuCtxGetId",
            "cuStreamIsCapturing",
            "cuLaunchKernel",
            "cuStreamGetCtx",
            "cuCtxPushCurrent_v2",
            "cuThreadExchangeStreamCaptureMode",
            "cuDevicePrimaryCtxGetState",
        ];
        let copy = |step: u64| {
            let before = names.map(|name| fake.calls(name));
            let slices = copies.slices(step);
            assert_eq!(bench.driver.route_copy(DEVICE, copies.stream, route, &slices), Ok(1));
            let made = names.iter().zip(before).map(|(name, before)| fake.calls(name) - before);
            let made = made.collect::<Vec<u64>>();
            copies.hold(bench, step);
            made
        };
        bench.native.enter(0);
        copy(0);
        assert_eq!(copy(1), [1, 1, 1, 1, 0, 0, 0, 0]);
        let before = names.map(|name| fake.calls(name));
        assert_eq!(bench.driver.copy(DEVICE, copies.stream, &copies.slices(0)), Ok(1));
        let made: Vec<u64> =
            names.iter().zip(before).map(|(name, before)| fake.calls(name) - before).collect();
        assert_eq!(made, [1, 1, 0, 1, 0, 0, 0, 0], "a copy may be captured, so nobody asks");
        copies.hold(bench, 0);
        fake.fail("cuLaunchKernel", 1, 400);
        assert_eq!(copy(0)[3..5], [2, 1]);
        assert_eq!(copy(1), [1, 1, 1, 1, 0, 0, 0, 0]);
        bench.native.leave();
        bench.driver.route_destroy(route).expect("destroyed");
    });
}

#[test]
fn a_stream_of_a_frameworks_own_context_copies_and_does_not_record() {
    with_copies("own_context", 2, |_, bench, copies| {
        let route = copies.route(bench).expect("a route");
        bench.native.own_context(0);
        let theirs = bench.native.stream();
        assert_eq!(bench.driver.route_copy(DEVICE, theirs, route, &copies.slices(1)), Ok(1));
        bench.native.must("cuStreamSynchronize", theirs.0, 0, 0);
        copies.hold(bench, 1);
        bench.native.must("cuStreamBeginCapture_v2", theirs.0, 2, 0);
        let refused = bench.driver.route_record(theirs, route).expect_err("another context");
        assert_eq!(refused.kind, Kind::Unsupported);
        let mut graph = 0_u64;
        bench.native.must("cuStreamEndCapture", theirs.0, &raw mut graph as u64, 0);
        bench.native.leave();
        bench.driver.route_destroy(route).expect("destroyed");
    });
}

/// Copies out behind copies in: one update where the graph has both in that order, else each has its own.
#[test]
fn copies_out_are_pointed_by_those_ahead_in_the_same_capture_only() {
    with_copies("pairs", 3, |fake, bench, copies| {
        let driver = &bench.driver;
        let inward = copies.route(bench).expect("a route");
        let targets = driver.allocate(DEVICE, ByteSize(COUNT * STEP)).expect("memory");
        let slices_out = |base: DevicePtr| -> Vec<CopySlice> {
            let at = |base: DevicePtr, i| DevicePtr(base.get() + i * STEP);
            (0..COUNT)
                .map(|i| CopySlice { dst: at(base, i), src: at(copies.shadows, i), bytes: STEP })
                .collect()
        };
        let outs = slices_out(targets);
        let near: Vec<_> = outs.iter().map(|s| RouteSlice { near: s.src, bytes: STEP }).collect();
        let route_out = |bench: &Bench| bench.driver.route_create(DEVICE, Way::Out, &near).expect("a route");
        let (outward, other) = (route_out(bench), route_out(bench));
        let capture = |stream, record: &mut dyn FnMut()| {
            driver.streams().capture_begin(stream).expect("a capture");
            record();
            driver.streams().capture_end(stream).expect("a graph")
        };
        let (mut ahead, mut behind, mut apart, mut strange) = (None, None, None, None);
        let both = capture(copies.stream, &mut || {
            ahead = driver.route_record_ahead(copies.stream, inward, outward).ok();
            strange = driver.route_record_behind(copies.stream, other, ahead.expect("recorded")).ok();
            behind = driver.route_record_behind(copies.stream, outward, ahead.expect("recorded")).ok();
        });
        // Another capture: nothing says that it is launched behind.
        let alone = capture(copies.stream, &mut || {
            apart = driver.route_record_behind(copies.stream, outward, ahead.expect("recorded")).ok();
        });
        let (ahead, strange, behind, apart) =
            (ahead.expect("in"), strange.expect("another"), behind.expect("out"), apart.expect("out"));
        assert_eq!([strange.1, behind.1, apart.1], [false, true, false]);
        let updates = || fake.calls("cuGraphExecKernelNodeSetParams");
        let before = updates();
        driver.route_point_all(both, &[(ahead, &copies.slices(1)), (behind.0, &outs)]).expect("pointed");
        assert_eq!(updates(), before + 1);
        driver.streams().launch(both, copies.stream).expect("launched");
        copies.hold(bench, 1);
        assert!(bench.native.read(0, targets, (COUNT * STEP) as usize) == noise((COUNT * STEP) as usize, 2));
        let refused = |points: &[(RecordId, &[CopySlice])], at: usize, kind| {
            let (i, e) = driver.route_point_all(both, points).expect_err("refused");
            assert_eq!((i, e.kind), (at, kind));
        };
        let ins = copies.slices(2);
        refused(&[(behind.0, &outs)], 0, Kind::InvalidArgument);
        refused(&[(behind.0, &outs), (ahead, &ins)], 0, Kind::InvalidArgument);
        refused(&[(ahead, &ins), (strange.0, &outs), (behind.0, &outs)], 2, Kind::InvalidArgument);
        refused(&[(ahead, &ins), (behind.0, &outs[1..])], 1, Kind::CountMismatch);
        refused(
            &[(ahead, &ins), (behind.0, &slices_out(DevicePtr(u64::MAX - COUNT * STEP + 100)))],
            1,
            Kind::OutOfRange,
        );
        // The other out had been pointed by then.
        let nothing: Vec<_> = outs.iter().map(|slice| CopySlice { bytes: 0, ..*slice }).collect();
        driver.route_point(strange.0, both, &nothing).expect("pointed");
        // What is pointed alone, and what was left out, copies as it says.
        bench.native.write(0, targets, &vec![0; (COUNT * STEP) as usize]);
        driver.route_point_all(both, &[(ahead, &ins)]).expect("pointed");
        driver.streams().launch(both, copies.stream).expect("launched");
        copies.hold(bench, 2);
        assert!(bench.native.read(0, targets, (COUNT * STEP) as usize).iter().all(|byte| *byte == 0));
        driver.route_point(apart.0, alone, &outs).expect("pointed");
        driver.streams().launch(alone, copies.stream).expect("launched");
        copies.hold(bench, 2);
        assert!(bench.native.read(0, targets, (COUNT * STEP) as usize) == noise((COUNT * STEP) as usize, 3));
        // With the route whose far ends it brings, a record is gone.
        driver.route_destroy(outward).expect("destroyed");
        refused(&[(ahead, &ins)], 0, Kind::InvalidHandle);
        for graph in [both, alone] {
            driver.streams().destroy_graph(graph).expect("destroyed");
        }
        for route in [inward, other] {
            driver.route_destroy(route).expect("destroyed");
        }
        driver.deallocate(DEVICE, targets).expect("freed");
    });
}

#[test]
fn each_call_may_fail_and_is_tried_again() {
    with_copies("route_faults", 3, |fake, bench, copies| {
        for call in ["cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"] {
            fake.fail(call, 1, 2);
            assert_eq!(copies.route(bench).expect_err(call).kind, Kind::OutOfDeviceMemory);
        }
        let route = copies.route(bench).expect("a route");
        for call in ["cuLaunchKernel", "cuStreamGetCaptureInfo_v2"] {
            fake.fail(call, 1, 999);
            let (graph, record) = copies.capture(bench, route);
            assert_eq!(record.expect_err(call).kind, Kind::DriverError, "{call}");
            // Whatever of it is in the graph copies nothing.
            bench.driver.streams().launch(graph, copies.stream).expect("launched");
            bench.driver.streams().synchronize(copies.stream).expect("the stream works");
            bench.driver.streams().destroy_graph(graph).expect("destroyed");
        }
        let (graph, record) = copies.capture(bench, route);
        let record = record.expect("recorded");
        let launch = |step| {
            bench.driver.streams().launch(graph, copies.stream).expect("launched");
            copies.hold(bench, step);
        };
        copies.point(bench, record, graph, 0).expect("pointed");
        fake.fail("cuGraphExecKernelNodeSetParams", 1, 999);
        assert_eq!(copies.point(bench, record, graph, 1).expect_err("failed").kind, Kind::DriverError);
        launch(0);
        copies.point(bench, record, graph, 1).expect("pointed");
        launch(1);
        fake.fail("cuLaunchKernel", 1, 999);
        let copied = bench.driver.route_copy(DEVICE, copies.stream, route, &copies.slices(1));
        assert_eq!(copied.expect_err("failed").kind, Kind::DriverError);
        bench.driver.route_copy(DEVICE, copies.stream, route, &copies.slices(1)).expect("copied");
        copies.hold(bench, 1);
        bench.driver.streams().destroy_graph(graph).expect("destroyed");
        bench.driver.route_destroy(route).expect("destroyed");
    });
}

/// A binding whose graph has its copies, with many steps in flight: no launch of ours, and every step's data arrive.
#[test]
fn a_binding_with_many_steps_in_flight_launches_nothing() {
    const STEPS: u64 = 130;
    let fake = Fake::build("binding", &[]).set("FAKE_CUDA_DEVICES", 1);
    let bench = fake.bench();
    let device = Device::open(Arc::clone(&bench.driver), DEVICE).expect("a device");
    let (driver, streams) = (&bench.driver, bench.driver.streams());
    let stream = streams.create(DEVICE).expect("a stream");
    let memory = driver.allocate(DEVICE, ByteSize(STEPS * 2 * STEP)).expect("memory");
    let at = |step: u64, side: u64| DevicePtr(memory.get() + (2 * step + side) * STEP);
    let buffer = |address| Buffer { address, bytes: ByteSize(STEP), id: address.get(), has_block: false };
    let slot = |direction| Slot::new(ByteSize(STEP)).direction(direction);
    let options = Options { threshold: Threshold(4096), ..Options::default() };
    let slots = vec![slot(Direction::IN), slot(Direction::OUT)];
    let binding = Binding::new(&device, slots, options).expect("a binding");
    let begin = |step: u64, generation| {
        let buffers = Step(vec![buffer(at(step, 0)), buffer(at(step, 1))]);
        binding.begin(stream, &buffers, generation).expect("begin")
    };
    assert_eq!(begin(0, 0).0, Outcome::RecordAgain);
    let mut addresses = [DevicePtr::NULL; 2];
    let generation = binding.addresses(&mut addresses).expect("a layout");
    streams.capture_begin(stream).expect("a capture");
    binding.record_copies(stream, generation, CopyWays::IN).expect("recorded");
    let work = CopySlice { dst: addresses[1], src: addresses[0], bytes: STEP };
    driver.copy(DEVICE, stream, &[work]).expect("captured");
    binding.record_copies(stream, generation, CopyWays::OUT).expect("recorded");
    let graph = streams.capture_end(stream).expect("a graph");
    binding.use_graph(Some(graph)).expect("named");
    let mut launched = [0, 0];
    for step in 0..STEPS {
        bench.native.write(0, at(step, 0), &noise(STEP as usize, step + 1));
    }
    fake.hold(true);
    for step in 0..STEPS {
        let (outcome, begun) = begin(step, generation);
        assert_eq!(outcome, Outcome::Started);
        streams.launch(graph, stream).expect("launched");
        let ended = binding.end().expect("end");
        launched[0] += begun.calls.copy_launches;
        launched[1] += ended.calls.copy_launches;
    }
    fake.hold(false);
    streams.synchronize(stream).expect("the stream works");
    for step in 0..STEPS {
        let seen = bench.native.read(0, at(step, 1), STEP as usize);
        assert!(seen == noise(STEP as usize, step + 1), "step {step}");
    }
    assert_eq!(launched, [0, 0]);
    binding.destroy().expect("destroyed");
    drop(binding);
    device.drain().expect("drained");
    streams.destroy_graph(graph).expect("destroyed");
    device.forget_stream(stream).expect("forgotten");
    streams.destroy(stream).expect("destroyed");
    driver.deallocate(DEVICE, memory).expect("freed");
    drop((device, bench));
    fake.clean();
}
