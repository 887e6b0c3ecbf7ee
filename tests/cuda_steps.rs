//! Which calls a step makes to the driver, by the fake library's count of every function: none that is not needed.

mod cuda_common;

use cuda_common::Bench;
use cuda_common::fake::Fake;
use cuda_common::steps::Step;
use gvmm::driver::{CopySlice, Graph, Ordinal, Stream};
use gvmm::error::Kind;
use gvmm::rebind::{Binding, Buffer, CopyWays, Direction, Options, Outcome, Slot, Threshold};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::Device;
use std::collections::BTreeMap;
use std::sync::Arc;

const DEVICE: Ordinal = Ordinal(0);
const BYTES: u64 = 4096;
const DIRECTIONS: [Direction; 3] = [Direction::IN, Direction::OUT, Direction::IN_OUT];
/// What `begin` and `end` of a step with copies around the command buffer call.
const AROUND: &[(&str, u64)] =
    &[("cuCtxGetCurrent", 2), ("cuCtxGetId", 2), ("cuLaunchKernel", 2), ("cuStreamIsCapturing", 2)];

/// Every function that the driver may call.
fn names() -> Vec<&'static str> {
    let table = include_str!("../src/driver/cuda/api.rs");
    let named = table.split("c\"").skip(1).filter_map(|rest| rest.split('"').next());
    let names: Vec<&str> = named.filter(|name| name.starts_with("cu")).collect();
    assert!(names.contains(&"cuLaunchKernel") && names.contains(&"cuGraphExecKernelNodeSetParams"));
    names
}

/// A binding of copied slots on a stream of ours, with buffers for as many steps as are asked for.
struct World<'a> {
    fake: &'a Fake,
    bench: &'a Bench,
    device: Arc<Device>,
    stream: Stream,
    memory: DevicePtr,
    binding: Binding,
}

impl<'a> World<'a> {
    fn new(fake: &'a Fake, bench: &'a Bench) -> Self {
        let device = Device::open(Arc::clone(&bench.driver), DEVICE).expect("a device");
        let stream = bench.driver.streams().create(DEVICE).expect("a stream");
        let memory = bench.driver.allocate(DEVICE, ByteSize(16 * 3 * BYTES)).expect("memory");
        let slots = DIRECTIONS.map(|direction| Slot::new(ByteSize(BYTES)).direction(direction)).to_vec();
        let options = Options { threshold: Threshold(BYTES), ..Options::default() };
        let binding = Binding::new(&device, slots, options).expect("a binding");
        let world = Self { fake, bench, device, stream, memory, binding };
        assert_eq!(world.begin(0, 0), Outcome::RecordAgain);
        world
    }

    fn buffers(&self, step: u64) -> Step {
        let buffer = |slot: u64| {
            let address = DevicePtr(self.memory.get() + (3 * step + slot) * BYTES);
            Buffer { address, bytes: ByteSize(BYTES), id: address.get(), has_block: false }
        };
        Step((0..3).map(buffer).collect())
    }

    fn begin(&self, step: u64, generation: u64) -> Outcome {
        self.binding.begin(self.stream, &self.buffers(step), generation).expect("begin").0
    }

    /// The calls of a step's begin and end.
    fn calls(&self, step: u64) -> BTreeMap<&'static str, u64> {
        let names = names();
        let before: Vec<u64> = names.iter().map(|name| self.fake.calls(name)).collect();
        assert_eq!(self.begin(step, 1), Outcome::Started);
        self.binding.end().expect("end");
        let made = names.iter().zip(before).map(|(name, before)| (*name, self.fake.calls(name) - before));
        made.filter(|(_, count)| *count > 0).collect()
    }

    /// A graph with the step's copies in it.
    fn capture(&self) -> Graph {
        let streams = self.bench.driver.streams();
        let mut addresses = [DevicePtr::NULL; 3];
        self.binding.addresses(&mut addresses).expect("a layout");
        streams.capture_begin(self.stream).expect("a capture");
        self.binding.record_copies(self.stream, 1, CopyWays::IN).expect("recorded");
        let work = CopySlice { dst: addresses[1], src: addresses[0], bytes: BYTES };
        self.bench.driver.copy(DEVICE, self.stream, &[work]).expect("captured");
        self.binding.record_copies(self.stream, 1, CopyWays::OUT).expect("recorded");
        let graph = streams.capture_end(self.stream).expect("a graph");
        self.binding.use_graph(Some(graph)).expect("named");
        graph
    }

    fn close(self) {
        let streams = self.bench.driver.streams();
        self.binding.destroy().expect("destroyed");
        drop(self.binding);
        self.device.drain().expect("drained");
        self.device.forget_stream(self.stream).expect("forgotten");
        streams.destroy(self.stream).expect("destroyed");
        self.bench.driver.deallocate(DEVICE, self.memory).expect("freed");
    }
}

fn with_world(name: &str, test: impl FnOnce(&World<'_>)) {
    let fake = Fake::build(name, &[]).set("FAKE_CUDA_DEVICES", 1);
    let bench = fake.bench();
    let world = World::new(&fake, &bench);
    test(&world);
    world.close();
    drop(bench);
    fake.clean();
}

fn map(calls: &[(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
    calls.iter().copied().collect()
}

#[test]
fn a_step_with_copies_around_the_graph_makes_two_launches_and_six_questions() {
    with_world("around", |world| {
        world.bench.native.enter(0);
        world.calls(1);
        for step in [2, 3, 3, 2] {
            assert_eq!(world.calls(step), map(AROUND), "step {step}");
        }
        world.bench.native.leave();
    });
}

/// Another context is the caller's current one, or none is: it comes back after each launch.
#[test]
fn a_step_in_another_context_changes_to_ours_and_back() {
    with_world("no_context", |world| {
        world.calls(1);
        let more = [("cuCtxPushCurrent_v2", 2), ("cuCtxPopCurrent_v2", 2)];
        assert_eq!(world.calls(2), map(&[AROUND, &more].concat()));
        assert_eq!(world.bench.native.current(), 0);
    });
}

#[test]
fn a_step_with_copies_in_the_graph_is_one_update_and_an_unchanged_one_nothing() {
    with_world("inside", |world| {
        world.bench.native.enter(0);
        let graph = world.capture();
        world.calls(1);
        let moved = [("cuCtxGetCurrent", 1), ("cuCtxGetId", 1), ("cuGraphExecKernelNodeSetParams", 1)];
        assert_eq!(world.calls(2), map(&moved));
        assert_eq!(world.calls(2), map(&[]));
        assert_eq!(world.calls(1), map(&moved));
        // Where the update failed it is made the next time, whatever the buffers.
        world.fake.fail("cuGraphExecKernelNodeSetParams", 1, 1);
        assert!(world.binding.begin(world.stream, &world.buffers(2), 1).is_err());
        assert_eq!(world.calls(1), map(&moved));
        // One buffer that changes is the same update: of either way, or of both.
        let begin = |slot: usize| {
            let mut buffers = world.buffers(1);
            buffers.0[slot] = world.buffers(5).0[slot];
            let before = world.fake.calls("cuGraphExecKernelNodeSetParams");
            world.binding.begin(world.stream, &buffers, 1).expect("begin");
            world.binding.abort().expect("aborted");
            assert_eq!(world.fake.calls("cuGraphExecKernelNodeSetParams"), before + 1, "slot {slot}");
        };
        (0..3).for_each(begin);
        world.bench.native.leave();
        world.binding.use_graph(None).expect("not named any more");
        world.bench.driver.streams().destroy_graph(graph).expect("destroyed");
    });
}

/// Copies in that are recorded anew leave those out behind in a graph that is not named any more.
#[test]
fn copies_in_recorded_anew_alone_ask_for_those_out() {
    with_world("apart", |world| {
        let graph = world.capture();
        world.calls(1);
        let streams = world.bench.driver.streams();
        streams.capture_begin(world.stream).expect("a capture");
        world.binding.record_copies(world.stream, 1, CopyWays::IN).expect("recorded");
        let half = streams.capture_end(world.stream).expect("a graph");
        world.binding.use_graph(Some(half)).expect("named");
        let refused = world.binding.begin(world.stream, &world.buffers(2), 1).expect_err("half");
        assert_eq!((refused.kind, refused.entry), (Kind::InvalidArgument, None));
        let whole = world.capture();
        world.calls(2);
        world.binding.use_graph(None).expect("not named any more");
        for graph in [graph, half, whole] {
            streams.destroy_graph(graph).expect("destroyed");
        }
    });
}
