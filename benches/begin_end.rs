//! What begin and end cost without the driver. The driver calls of a step are printed beside its times.

#[path = "begin_end/abi.rs"]
mod abi;
#[path = "begin_end/measure.rs"]
mod measure;
#[path = "begin_end/null.rs"]
mod null;
#[path = "begin_end/steps.rs"]
mod steps;

use abi::Program;
use criterion::{Criterion, criterion_group, criterion_main};
use gvmm::config;
use gvmm::driver::{self, DriverKind, Graph, Ordinal, Stream};
use gvmm::rebind::{
    Binding, CopyWays, DEFAULT_WATCHED_STEPS, Options, Outcome, PlanOptions, Slot, Threshold,
};
use gvmm::units::ByteSize;
use gvmm::vm::Device;
use measure::{Cost, measure};
use null::{MIB2, Null, STREAM};
use std::sync::Arc;
use std::time::Instant;
use steps::{Step, fifth_moved, recorded, step, with_blocks, with_memory};

fn binding(device: &Arc<Device>, slots: Vec<Slot>, threshold: Threshold, first: &Step) -> Binding {
    binding_on(device, STREAM, slots, threshold, first)
}

fn binding_on(
    device: &Arc<Device>,
    stream: Stream,
    slots: Vec<Slot>,
    threshold: Threshold,
    first: &Step,
) -> Binding {
    let options = Options { threshold, ..Options::default() };
    let binding = Binding::new(device, slots, options).expect("a binding");
    binding.begin(stream, first, 0).expect("a layout");
    binding
}

/// The same by the planner, which has frozen its plan.
fn planned(device: &Arc<Device>, slots: Vec<Slot>, steps: &[Step]) -> Binding {
    let (options, plan) = (Options::default(), PlanOptions::default());
    let binding = Binding::planned(device, slots, options, plan).expect("a binding");
    let mut turn = turns(0, steps.len());
    for _ in 0..2 * DEFAULT_WATCHED_STEPS {
        let generation = binding.info().expect("a binding").generation;
        match binding.begin(STREAM, &steps[turn()], generation).expect("begin").0 {
            Outcome::Started => drop(binding.end().expect("end")),
            Outcome::RecordAgain => {}
        }
    }
    assert!(binding.plan_digest().is_ok(), "it is frozen");
    binding
}

/// Goes through the numbers below `count` from `first` on, again and again.
fn turns(first: usize, count: usize) -> impl FnMut() -> usize {
    let mut next = count - 1;
    move || {
        next = if next + 1 == count { first } else { next + 1 };
        next
    }
}

/// Takes the steps from `first` on in turn.
fn run<'a>(binding: &'a Binding, steps: &'a [Step], first: usize) -> impl FnMut() -> [Cost; 2] + 'a {
    run_on(STREAM, binding, steps, first)
}

fn run_on<'a>(
    stream: Stream,
    binding: &'a Binding,
    steps: &'a [Step],
    first: usize,
) -> impl FnMut() -> [Cost; 2] + 'a {
    let mut turn = turns(first, steps.len());
    let generation = binding.info().expect("a layout").generation;
    move || {
        let step = &steps[turn()];
        let start = Instant::now();
        let (outcome, begun) = binding.begin(stream, step, generation).expect("begin");
        let took = start.elapsed();
        assert_eq!(outcome, Outcome::Started);
        let start = Instant::now();
        let ended = binding.end().expect("end");
        [Cost::of(&begun, took), Cost::of(&ended, start.elapsed())]
    }
}

fn made_up(c: &mut Criterion) {
    let device = Device::open(Arc::new(Null::default()), Ordinal(0)).expect("a device");
    let slots = |count: usize, bytes: u64| vec![Slot::new(ByteSize(bytes)); count];
    let first = step(&device, 1000);
    let both = [first.clone(), fifth_moved(&device, &first)];
    let mapped = binding(&device, slots(1000, MIB2), Threshold::OFF, &first);
    measure(c, "1000 mapped, unchanged", 1000, run(&mapped, &both[..1], 0));
    let mapped = binding(&device, slots(1000, MIB2), Threshold::OFF, &first);
    measure(c, "1000 mapped, 200 changed", 1000, run(&mapped, &both, 0));
    let copied = binding(&device, slots(1000, 64), Threshold(64), &first);
    measure(c, "1000 copied, 200 changed", 1000, run(&copied, &both, 0));
    in_graph(c, &device);
    let unchanged = planned(&device, slots(1000, 64), &both[..1]);
    measure(c, "1000 planned, unchanged", 1000, run(&unchanged, &both[..1], 0));
    let changed = planned(&device, slots(1000, 64), &both);
    measure(c, "1000 planned, 200 changed", 1000, run(&changed, &both, 0));
    let many = [step(&device, 100_000)];
    let copied = binding(&device, slots(100_000, 64), Threshold(64), &many[0]);
    measure(c, "100000 copied, unchanged", 100_000, run(&copied, &many, 0));
}

/// Copies inside the caller's graph, all of them pointed at other buffers in each step.
fn in_graph(c: &mut Criterion, device: &Arc<Device>) {
    let mut both = [step(device, 256), step(device, 256)];
    both[1].buffers.iter_mut().for_each(|buffer| buffer.address.0 += 1 << 50);
    let copied = binding(device, vec![Slot::new(ByteSize(64)); 256], Threshold(64), &both[0]);
    copied.record_copies(STREAM, 1, CopyWays::BOTH).expect("recorded");
    copied.use_graph(Some(Graph(1))).expect("named");
    measure(c, "256 copied in a graph, all changed", 256, run(&copied, &both, 0));
}

/// The recording, with most of its slots copied.
fn llama(c: &mut Criterion) {
    const THRESHOLD: u64 = 65_536;
    let recorded = recorded();
    let count = recorded.slots.len();
    let device = Device::open(Arc::new(Null::default()), Ordinal(0)).expect("a device");
    let steps = with_blocks(&device, &recorded);
    let copied = binding(&device, recorded.slots.clone(), Threshold(THRESHOLD), &steps[0]);
    measure(c, "llama_donate", count, run(&copied, &steps, 4));
    // What C is compared with: the same driver, which copies for real, and the same wait between steps.
    let host = driver::open(Some(DriverKind::HOST), config::get()).expect("the host driver");
    let device = Device::open(host, Ordinal(0)).expect("a device");
    let stream = device.driver().streams().create(device.ordinal()).expect("a stream");
    let (steps, _memory) = with_memory(&device, &recorded);
    let copied = binding_on(&device, stream, recorded.slots.clone(), Threshold(THRESHOLD), &steps[0]);
    let mut step = run_on(stream, &copied, &steps, 4);
    measure(c, "llama_donate on the host driver", count, || {
        let costs = step();
        device.driver().streams().synchronize(stream).expect("it runs");
        costs
    });
    let program = Program::new(&recorded, THRESHOLD);
    let mut turn = turns(4, program.steps());
    measure(c, "llama_donate in C", count, || program.run(turn()));
}

criterion_group!(benches, made_up, llama);
criterion_main!(benches);
