//! Bindings on a device that maps a block at one place only: laying out anew waits for nothing and enqueues nothing,
//! and the begin that follows moves the blocks from the old windows to the new ones.

mod rebind_support;

use gvmm::driver::CreateOptions;
use gvmm::driver::testing::{Call, Live};
use gvmm::error::{Error, Kind, Operation};
use gvmm::rebind::{Binding, Buffer, Outcome, Slot, StepReport, Threshold};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Block, CallCounts};
use rebind_support::{Gate, Given, World, addresses, begin, fill, holds};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const MIB2: u64 = 2 << 20;
const SLOT: Slot = Slot::new(ByteSize(MIB2));
const INJECTED: Error = Error::new(Kind::DriverError, Operation::None, "injected");

fn world() -> World {
    World::without(&["aliasing"])
}

fn block(world: &World, granules: u64) -> Arc<Block> {
    world.device.create_block(ByteSize(granules * MIB2), CreateOptions::default()).expect("a block")
}

/// Blocks without addresses of their own, as the buffers of a step.
fn given(blocks: [&Arc<Block>; 2]) -> Given {
    let buffer = |block: &Arc<Block>| {
        let (address, bytes) = (DevicePtr::NULL, block.size());
        (Buffer { address, bytes, id: block.id().0, has_block: true }, Some(Arc::clone(block)))
    };
    Given { buffers: blocks.map(buffer).to_vec(), epoch: 0 }
}

/// A binding of two windows.
fn binding(world: &World) -> Binding {
    world.binding(vec![SLOT; 2], Threshold::OFF)
}

/// A step that writes `seed` and the number after it.
fn write(world: &World, binding: &Binding, blocks: [&Arc<Block>; 2], seed: u64) {
    begin(binding, world.stream, &given(blocks)).expect("begin");
    for (address, seed) in addresses(binding, 2).into_iter().zip(seed..) {
        fill(address, SLOT.bytes, seed);
    }
    binding.end().expect("end");
}

/// A step that sees these two.
fn check(world: &World, binding: &Binding, blocks: [&Arc<Block>; 2], seeds: [u64; 2]) {
    begin(binding, world.stream, &given(blocks)).expect("begin");
    for (address, seed) in addresses(binding, 2).into_iter().zip(seeds) {
        assert!(holds(address, SLOT.bytes, seed), "{seed}");
    }
    binding.end().expect("end");
}

/// A begin that says to record again, and what it was to the device.
fn again(
    world: &World,
    binding: &Binding,
    blocks: [&Arc<Block>; 2],
    generation: u64,
) -> (StepReport, CallCounts) {
    let before = world.device.counters();
    let (outcome, report) = binding.begin(world.stream, &given(blocks), generation).expect("begin");
    assert_eq!(outcome, Outcome::RecordAgain);
    assert_eq!((report.waited, report.wait_time), (false, Duration::ZERO));
    let made = world.device.counters().minus(before);
    assert_eq!((made.timeline_writes, made.copy_launches), (0, 0), "nothing is enqueued");
    (report, made)
}

#[test]
fn laying_out_anew_waits_for_nothing_and_the_next_begin_says_that_it_waited() {
    let world = world();
    let (a, b, large) = (block(&world, 1), block(&world, 1), block(&world, 2));
    let binding = binding(&world);
    write(&world, &binding, [&a, &b], 1);
    let old = addresses(&binding, 2);
    let step = Gate::close(&world, world.stream);

    let (report, made) = again(&world, &binding, [&large, &a], 1);
    assert_eq!((report.generation, report.remapped_slots), (2, 0));
    assert_eq!((made.map, made.unmap, made.set_access), (0, 0, 0), "the step may be using its windows");
    assert!(holds(old[0], SLOT.bytes, 1) && holds(old[1], SLOT.bytes, 2));
    let at = addresses(&binding, 2);
    assert!(at.iter().all(|address| !old.contains(address)));

    let (report, made) = again(&world, &binding, [&large, &a], 1);
    assert_eq!((report.generation, made), (2, CallCounts::default()), "an old generation changes nothing");
    assert_eq!(addresses(&binding, 2), at);

    let asked = || world.trace.counts().of(Call::IS_CAPTURING);
    let (outcome, report) = thread::scope(|scope| {
        let before = asked();
        // Begin has seen by then that the step is not over.
        scope.spawn(move || {
            while asked() == before {
                thread::yield_now();
            }
            step.open();
        });
        binding.begin(world.stream, &given([&large, &a]), 2).expect("begin")
    });
    assert_eq!((outcome, report.waited, report.remapped_slots), (Outcome::Started, true, 2));
    assert!(holds(at[1], SLOT.bytes, 1));
    binding.end().expect("end");
    let (outcome, report) = binding.begin(world.stream, &given([&large, &a]), 2).expect("begin");
    assert_eq!((outcome, report.waited, report.calls), (Outcome::Started, false, CallCounts::default()));
    binding.abort().expect("abort");
    check(&world, &binding, [&b, &a], [2, 1]);
}

#[test]
fn what_is_mapped_nowhere_is_mapped_at_once() {
    let world = world();
    let (a, b, c, large) = (block(&world, 1), block(&world, 1), block(&world, 1), block(&world, 2));
    let binding = binding(&world);
    let (_, made) = again(&world, &binding, [&a, &b], 0);
    assert_eq!((made.map, made.set_access), (2, 1));
    write(&world, &binding, [&a, &b], 1);
    let _step = Gate::close(&world, world.stream);
    let (report, made) = again(&world, &binding, [&large, &c], 1);
    assert_eq!((report.remapped_slots, made.map), (2, 2));
    let (outcome, report) = binding.begin(world.stream, &given([&large, &c]), 2).expect("begin");
    assert_eq!((outcome, report.waited), (Outcome::Started, false));
    binding.abort().expect("abort");
}

#[test]
fn laid_out_twice_before_a_step_the_blocks_still_move() {
    let world = world();
    let (a, b, two, four) = (block(&world, 1), block(&world, 1), block(&world, 2), block(&world, 4));
    let binding = binding(&world);
    write(&world, &binding, [&a, &b], 1);
    let step = Gate::close(&world, world.stream);
    again(&world, &binding, [&two, &a], 1);
    let (report, made) = again(&world, &binding, [&four, &a], 2);
    assert_eq!((report.generation, made.map, made.unmap), (3, 0, 0));
    step.open();
    // The first buffers are served by the third layout too.
    check(&world, &binding, [&b, &a], [2, 1]);
    write(&world, &binding, [&four, &b], 3);
    check(&world, &binding, [&b, &four], [4, 3]);
    assert_eq!(binding.info().expect("info").generation, 4, "only the first slot has room for four");
}

#[test]
fn idle_windows_of_the_old_layout_go_before_the_next_step() {
    let world = world();
    let (a, b, large) = (block(&world, 1), block(&world, 1), block(&world, 2));
    let binding = binding(&world);
    write(&world, &binding, [&a, &b], 1);
    let step = Gate::close(&world, world.stream);
    again(&world, &binding, [&large, &a], 1);
    let mapped = world.trace.live().mappings;
    assert_eq!((binding.drop_idle(), world.trace.live().mappings), (Ok(0), mapped));
    step.open();
    world.synchronize();
    binding.drop_idle().expect("dropped");
    assert_eq!(world.trace.live().mappings, 0);
    check(&world, &binding, [&b, &a], [2, 1]);
}

#[test]
fn a_binding_destroyed_before_that_step_leaves_its_blocks_to_others() {
    let world = world();
    let (a, b, large) = (block(&world, 1), block(&world, 1), block(&world, 2));
    let first = binding(&world);
    write(&world, &first, [&a, &b], 1);
    let step = Gate::close(&world, world.stream);
    again(&world, &first, [&large, &a], 1);
    first.destroy().expect("destroyed");
    assert_eq!(world.trace.live().mappings, 2, "its step may be using them");
    // Another binding lays out without a wait, and waits when it needs the blocks.
    let second = binding(&world);
    let (report, _) = again(&world, &second, [&b, &a], 0);
    assert_eq!(report.generation, 1);
    step.open();
    check(&world, &second, [&b, &a], [2, 1]);
    second.destroy().expect("destroyed");
    drop((a, b, large));
    world.device.drain().expect("drained");
    let live = world.trace.live();
    assert_eq!(Live { timelines: 0, ..live }, Live::default());
}

/// Two layouts and the steps between them, where calls fail; each failure changes nothing, and trying again works.
fn live(world: &World, blocks: [&Arc<Block>; 3]) -> u32 {
    let [a, b, large] = blocks;
    let binding = binding(world);
    let mut failures = 0;
    let mut step = |given: &Given, seeds: [u64; 2], next: [u64; 2]| {
        for _ in 0..12 {
            let before = (binding.info().expect("info").generation, at(&binding));
            match binding.begin(world.stream, given, before.0) {
                Ok((Outcome::Started, _)) => {
                    for (address, (seed, next)) in at(&binding).into_iter().zip(seeds.into_iter().zip(next)) {
                        assert!(seed == 0 || holds(address, SLOT.bytes, seed), "{seed}");
                        fill(address, SLOT.bytes, next);
                    }
                    return binding.end().map(|_| ()).expect("end");
                }
                Ok(_) => {}
                Err(e) => {
                    failures += 1;
                    assert!(matches!(e.kind, Kind::DriverError | Kind::RangeLost), "{e}");
                    assert_eq!((binding.info().expect("info").generation, at(&binding)), before, "{e}");
                }
            }
        }
        panic!("still failing");
    };
    step(&given([a, b]), [0, 0], [1, 2]);
    step(&given([b, a]), [2, 1], [3, 4]);
    step(&given([large, b]), [0, 3], [5, 6]);
    step(&given([b, a]), [6, 4], [7, 8]);
    drop(binding);
    failures
}

fn at(binding: &Binding) -> Vec<DevicePtr> {
    if binding.info().expect("info").generation == 0 { Vec::new() } else { addresses(binding, 2) }
}

#[test]
fn each_call_fails_and_trying_again_works() {
    for count in 1..=3 {
        let mut failures = 0;
        for nth in 1.. {
            let world = world();
            let (a, b, large) = (block(&world, 1), block(&world, 1), block(&world, 2));
            let start = world.fault.calls();
            world.fault.fail(None, nth, count, INJECTED);
            failures += live(&world, [&a, &b, &large]);
            let made = world.fault.calls() - start;
            world.fault.clear();
            drop((a, b, large));
            for _ in 0..3 {
                let _ = world.device.drain();
            }
            assert_eq!(Live { timelines: 0, ..world.trace.live() }, Live::default(), "call {nth}");
            if nth > made {
                break;
            }
        }
        assert!(failures > 15, "{failures} failures");
    }
}
