//! Bindings and time: steps in flight, other streams, events, and who holds what until when.

mod rebind_support;

use gvmm::driver::testing::Call;
use gvmm::driver::{Driver, Stream, Streams};
use gvmm::error::Kind;
use gvmm::rebind::{
    Binding, Buffer, Direction, Outcome, Slot, SlotFlags, StepReport, Threshold, shadow_budget,
};
use gvmm::units::{ByteSize, DevicePtr};
use rebind_support::{Gate, Given, Home, World, begin, block, holds, step, write_all};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MIB2: u64 = 2 << 20;
const BIG: Slot = Slot::new(ByteSize(MIB2));
const SMALL: Slot = Slot::new(ByteSize(1000));

#[test]
fn two_steps_in_flight_copy_each_to_its_own_buffers() {
    let world = World::new();
    let slots = [SMALL, SMALL.direction(Direction::OUT)];
    let homes: Vec<Home> = (0..6).map(|_| world.home(MIB2)).collect();
    let steps: Vec<Given> = homes.chunks(2).map(|pair| Given::of(&[&pair[0], &pair[1]])).collect();
    let binding = world.binding(slots.to_vec(), Threshold(4096));
    step(&world, &binding, &steps[0], &slots, 1);
    let gate = Gate::close(&world, world.stream);
    for (i, given) in steps.iter().enumerate().skip(1) {
        let report = begin(&binding, world.stream, given).expect("begin");
        assert!(!report.waited, "copying never waits");
        write_all(&world, &binding, &slots, 10 * i as u64);
        binding.end().expect("end");
    }
    gate.open();
    world.synchronize();
    for (i, pair) in homes.chunks(2).enumerate().skip(1) {
        assert!(holds(pair[0].address(), SMALL.bytes, 10 * i as u64));
        assert!(holds(pair[1].address(), SMALL.bytes, 10 * i as u64 + 1));
    }
}

#[test]
fn a_remapping_begin_waits_for_the_previous_step_on_the_host() {
    let world = World::new();
    let (a, b) = (world.home(MIB2), world.home(MIB2));
    let slots = [BIG];
    let binding = world.binding(slots.to_vec(), Threshold::OFF);
    let report = begin(&binding, world.stream, &Given::of(&[&a])).expect("begin");
    assert!(!report.waited, "there was no step before");
    let gate = Gate::close(&world, world.stream);
    write_all(&world, &binding, &slots, 1);
    binding.end().expect("end");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            gate.open();
        });
        let report = begin(&binding, world.stream, &Given::of(&[&b])).expect("begin");
        assert!(report.waited && report.wait_time > Duration::ZERO);
        assert_eq!(report.calls.timeline_writes, 1, "the event is recorded when it is needed");
    });
    binding.end().expect("end");
    assert!(holds(a.address(), BIG.bytes, 1));
}

#[test]
fn another_stream_waits_by_an_event() {
    let world = World::new();
    let second = world.another_stream();
    let home = world.home(MIB2);
    let (slots, given) = ([SMALL.direction(Direction::IN)], Given::of(&[&home]));
    let binding = world.binding(slots.to_vec(), Threshold(4096));
    begin(&binding, world.stream, &given).expect("begin");
    let gate = Gate::close(&world, world.stream);
    let order = Arc::new(AtomicU64::new(0));
    let note = |stream, digit: u64| {
        let order = Arc::clone(&order);
        world.enqueue(stream, move || {
            let _ = order.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |o| Some(o * 10 + digit));
        });
    };
    note(world.stream, 1);
    let ended = binding.end().expect("end");
    assert_eq!(ended.calls, Default::default(), "nothing to copy out: nothing enqueued");
    let report = begin(&binding, second, &given).expect("begin");
    assert_eq!((report.waited, report.calls.timeline_writes), (false, 1));
    note(second, 2);
    binding.end().expect("end");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(order.load(Ordering::SeqCst), 0);
    gate.open();
    world.synchronize_stream(second);
    assert_eq!(order.load(Ordering::SeqCst), 12);
    let report = begin(&binding, second, &given).expect("begin");
    assert_eq!(report.calls.timeline_writes, 0, "the same stream again");
    binding.end().expect("end");
}

#[test]
fn a_stream_that_captures_when_its_event_is_needed_is_a_status() {
    let world = World::new();
    let second = world.another_stream();
    let home = world.home(MIB2);
    let given = Given::of(&[&home]);
    let binding = world.binding(vec![SMALL], Threshold(4096));
    begin(&binding, world.stream, &given).expect("begin");
    binding.end().expect("end");
    let streams: &dyn Streams = world.fault.streams();
    streams.capture_begin(world.stream).expect("capture");
    let e = binding.begin(second, &given, 1).expect_err("captured");
    assert_eq!(e.kind, Kind::StreamCapturing);
    assert_eq!(binding.destroy().expect_err("captured").kind, Kind::StreamCapturing);
    let graph = streams.capture_end(world.stream).expect("captured");
    streams.destroy_graph(graph).expect("destroyed");
    begin(&binding, second, &given).expect("and now");
    binding.end().expect("end");
    binding.destroy().expect("destroyed");
    assert_eq!(binding.info().expect_err("gone").kind, Kind::WrongState);
}

#[test]
fn a_forgotten_stream_may_be_destroyed() {
    let world = World::new();
    let (second, home) = (world.another_stream(), world.home(MIB2));
    let given = Given::of(&[&home]);
    let binding = world.binding(vec![SMALL], Threshold(4096));
    begin(&binding, second, &given).expect("begin");
    binding.end().expect("end");
    world.device.forget_stream(second).expect("forgotten");
    world.fault.streams().destroy(second).expect("destroyed");
    begin(&binding, world.stream, &given).expect("another stream");
    binding.end().expect("end");
}

#[test]
fn a_mapping_holds_its_block_until_it_is_replaced() {
    let world = World::new();
    let bare = || {
        let block = block(&world);
        let buffer =
            Buffer { address: DevicePtr::NULL, bytes: ByteSize(MIB2), id: block.id().0, has_block: true };
        Given { buffers: vec![(buffer, Some(block))], epoch: 0 }
    };
    let binding = world.binding(vec![BIG], Threshold::OFF);
    for _ in 0..4 {
        let given = bare();
        begin(&binding, world.stream, &given).expect("begin");
        binding.end().expect("end");
        drop(given);
        assert_eq!(world.trace.live().blocks, 1, "the last step's block is held, earlier ones are gone");
    }
    world.synchronize();
    assert_eq!(binding.drop_idle().expect("idle"), 1);
    assert_eq!(world.trace.live().blocks, 0);
    assert_eq!(binding.drop_idle().expect("idle"), 0);
    begin(&binding, world.stream, &bare()).expect("begin");
    assert_eq!(binding.drop_idle().expect("in use"), 0, "a step is in progress");
    binding.end().expect("end");
    let gate = Gate::close(&world, world.stream);
    assert_eq!(binding.drop_idle().expect("in flight"), 0);
    gate.open();
    assert_eq!(world.trace.live().blocks, 1);
}

#[test]
fn a_binding_may_go_while_the_gpu_works() {
    let world = World::new();
    let (big, small) = (world.home(MIB2), world.home(MIB2));
    let slots = [BIG, SMALL];
    let before = world.trace.live();
    let binding = world.binding(slots.to_vec(), Threshold(4096));
    begin(&binding, world.stream, &Given::of(&[&big, &small])).expect("begin");
    let gate = Gate::close(&world, world.stream);
    write_all(&world, &binding, &slots, 7);
    binding.end().expect("end");
    assert_eq!(shadow_budget(&world.device).booked, SMALL.bytes);
    binding.destroy().expect("destroyed");
    drop(binding);
    assert_eq!(shadow_budget(&world.device).booked, ByteSize::ZERO, "the share is back at once");
    world.device.collect();
    assert_eq!(world.trace.live().mappings, before.mappings + 2, "the memory is not");
    gate.open();
    world.device.drain().expect("drained");
    assert!(holds(big.address(), BIG.bytes, 7) && holds(small.address(), SMALL.bytes, 8));
    let after = world.trace.live();
    assert_eq!((after.blocks, after.ranges, after.mappings), (before.blocks, before.ranges, before.mappings));
}

/// Old stream, new stream: a begin on the new one that answers RECORD_AGAIN.
fn leave(binding: &Binding, world: &World, second: Stream, given: &Given, generation: u64) -> StepReport {
    let before = world.trace.counts().of(Call::TIMELINE_WRITE);
    let (outcome, report) = binding.begin(second, given, generation).expect("begin");
    assert_eq!(outcome, Outcome::RecordAgain);
    assert_eq!(
        world.trace.counts().of(Call::TIMELINE_WRITE) - before,
        1,
        "recorded on the stream that is left"
    );
    assert_eq!(report.calls.timeline_writes, 1);
    assert_eq!(world.trace.counts().of(Call::STREAM_WAIT), 0, "nothing on the new one");
    report
}

#[test]
fn a_stream_may_go_once_a_begin_on_another_said_record_again() {
    for laid_out in [false, true] {
        let world = World::new();
        let (first, second) = (world.another_stream(), world.another_stream());
        let homes = [world.home(MIB2), world.home(MIB2), world.home(MIB2)];
        let slots = vec![SMALL, BIG, SMALL.flags(SlotFlags::REGISTERED)];
        let binding = world.binding(slots, Threshold(4096));
        let given = Given::of(&[&homes[0], &homes[1], &homes[2]]);
        begin(&binding, first, &given).expect("begin");
        binding.end().expect("end");
        let moved = Given {
            buffers: vec![given.buffers[0].clone(), given.buffers[1].clone(), world.home(MIB2).buffer()],
            epoch: 0,
        };
        let report = if laid_out {
            leave(&binding, &world, second, &moved, 1)
        } else {
            leave(&binding, &world, second, &given, 0)
        };
        assert_eq!(report.generation, 1 + u64::from(laid_out));
        world.fault.streams().destroy(first).expect("the caller may");
        let (_, again) = binding.begin(second, &given, 0).expect("record again, once more");
        assert_eq!(again.calls.timeline_writes, 0, "that is done");
        let now = if laid_out { &moved } else { &given };
        begin(&binding, second, now).expect("begin");
        binding.end().expect("end");
        world.synchronize_stream(second);
        // What remaps waits for the steps before; those of the stream that is gone have passed.
        let other = Given {
            buffers: vec![now.buffers[0].clone(), world.home(MIB2).buffer(), now.buffers[2].clone()],
            epoch: 0,
        };
        assert_eq!(begin(&binding, second, &other).expect("begin").remapped_slots, 1);
        binding.end().expect("end");
        binding.destroy().expect("destroyed");
        world.device.drain().expect("drained");
    }
}

#[test]
fn a_captured_stream_cannot_be_left() {
    let world = World::new();
    let second = world.another_stream();
    let (home, other) = (world.home(MIB2), world.home(MIB2));
    let given = Given::of(&[&home]);
    let binding = world.binding(vec![SMALL.flags(SlotFlags::REGISTERED)], Threshold(4096));
    begin(&binding, world.stream, &given).expect("begin");
    binding.end().expect("end");
    let before = binding.info().expect("info");
    let streams = world.fault.streams();
    streams.capture_begin(world.stream).expect("capture");
    for (given, generation) in [(&given, 0), (&Given::of(&[&other]), 1)] {
        let e = binding.begin(second, given, generation).expect_err("captured");
        assert_eq!(e.kind, Kind::StreamCapturing);
        let after = binding.info().expect("info");
        assert_eq!((after.generation, after.record_agains), (before.generation, before.record_agains));
    }
    streams.destroy_graph(streams.capture_end(world.stream).expect("captured")).expect("destroyed");
    leave(&binding, &world, second, &given, 0);
    begin(&binding, second, &Given::of(&[&other])).expect("begin");
    binding.end().expect("end");
}

#[test]
fn laying_out_anew_twice_enqueues_nothing() {
    let world = World::new();
    let homes: Vec<Home> = (1..4).map(|n| world.home(n * MIB2)).collect();
    let binding = world.binding(vec![BIG], Threshold::OFF);
    begin(&binding, world.stream, &Given::of(&[&homes[0]])).expect("begin");
    binding.end().expect("end");
    // Each block is too large for the window before, and the first step's layout waits for its event all along.
    for (i, home) in homes.iter().enumerate().skip(1) {
        let (outcome, report) =
            binding.begin(world.stream, &Given::of(&[home]), i as u64).expect("a new layout");
        assert_eq!((outcome, report.generation), (Outcome::RecordAgain, i as u64 + 1));
        assert_eq!((report.calls.timeline_writes, report.calls.copy_launches), (0, 0));
    }
    let (_, report) = binding.begin(world.stream, &Given::of(&[&homes[2]]), 3).expect("begin");
    assert_eq!(report.calls.timeline_writes, 1, "a step that starts records what earlier layouts wait for");
}

#[test]
fn a_step_that_copies_is_not_begun_or_ended_inside_a_capture() {
    let world = World::new();
    let home = world.home(MIB2);
    let (slots, given) = ([SMALL], Given::of(&[&home]));
    let binding = world.binding(slots.to_vec(), Threshold(4096));
    step(&world, &binding, &given, &slots, 1);
    let streams = world.fault.streams();
    streams.capture_begin(world.stream).expect("capture");
    let e = binding.begin(world.stream, &given, 1).expect_err("captured");
    assert_eq!(e.kind, Kind::StreamCapturing);
    streams.capture_end(world.stream).expect("the capture's end");
    begin(&binding, world.stream, &given).expect("nothing was begun");
    streams.capture_begin(world.stream).expect("capture");
    assert_eq!(binding.end().expect_err("captured").kind, Kind::StreamCapturing);
    streams.capture_end(world.stream).expect("the capture's end");
    write_all(&world, &binding, &slots, 7);
    binding.end().expect("the step is still there");
    world.synchronize();
    assert!(holds(home.address(), SMALL.bytes, 7));
}
