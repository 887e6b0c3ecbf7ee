//! Bindings on devices that lack something: the data arrive all the same.

mod rebind_support;

use gvmm::driver::CreateOptions;
use gvmm::rebind::{Action, Buffer, Direction, Slot, Threshold};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Block, Owner};
use rebind_support::{Given, Home, World, actions, addresses, begin, fill, holds};
use std::sync::Arc;

const MIB2: u64 = 2 << 20;
const SLOTS: [Slot; 4] = [
    Slot::new(ByteSize(MIB2)),
    Slot::new(ByteSize(MIB2)).direction(Direction::IN),
    Slot::new(ByteSize(3000)),
    Slot::new(ByteSize(70_000)).direction(Direction::OUT),
];

/// Runs steps over changing homes; gives the actions of the last layout, and how often it was laid out.
fn run(world: &World, threshold: Threshold) -> (Vec<Action>, u64) {
    let homes: Vec<Home> = (0..6).map(|_| world.home(MIB2)).collect();
    let binding = world.binding(SLOTS.to_vec(), threshold);
    for (round, picks) in [[0, 1, 2, 3], [1, 0, 3, 2], [4, 5, 2, 3], [4, 5, 2, 3]].iter().enumerate() {
        let given = Given::of(&picks.map(|i| &homes[i]));
        let seed = 100 * (round as u64 + 1);
        for (i, slot) in SLOTS.iter().enumerate() {
            fill(given.buffers[i].0.address, slot.bytes, seed + i as u64);
        }
        begin(&binding, world.stream, &given).expect("begin");
        world.synchronize();
        let at = addresses(&binding, SLOTS.len());
        for (i, slot) in SLOTS.iter().enumerate() {
            assert!(!slot.direction.reads() || holds(at[i], slot.bytes, seed + i as u64), "slot {i}");
            if slot.direction.writes() {
                fill(at[i], slot.bytes, seed + 50 + i as u64);
            }
        }
        binding.end().expect("end");
        world.synchronize();
        for (i, slot) in SLOTS.iter().enumerate() {
            let expected = seed + i as u64 + if slot.direction.writes() { 50 } else { 0 };
            assert!(holds(given.buffers[i].0.address, slot.bytes, expected), "slot {i}");
        }
    }
    let mut actions = vec![Action::default(); SLOTS.len()];
    binding.actions(&mut actions).expect("a layout");
    (actions, binding.info().expect("info").generation)
}

#[test]
fn everything_maps_and_copies() {
    for off in [&[][..], &["joined_access"], &["range_access"], &["device_access"], &["joint_copies"]] {
        let world = World::without(off);
        let (actions, generation) = run(&world, Threshold(4096));
        assert_eq!(actions, [Action::MAP, Action::MAP, Action::COPY, Action::MAP], "without {off:?}");
        assert_eq!(generation, 1, "without {off:?}");
    }
}

#[test]
fn without_aliasing_a_block_that_has_an_address_is_not_mapped() {
    let world = World::without(&["aliasing"]);
    let (actions, generation) = run(&world, Threshold(4096));
    assert_eq!(actions, [Action::BAKE, Action::BAKE, Action::COPY, Action::BAKE]);
    assert_eq!(generation, 3, "each move of a baked one is recorded again");
}

#[test]
fn without_virtual_memory_everything_is_copied_or_baked() {
    let world = World::without(&["virtual_memory"]);
    let (actions, _) = run(&world, Threshold(4096));
    assert_eq!(actions, [Action::BAKE, Action::BAKE, Action::COPY, Action::BAKE]);
    let (actions, generation) = run(&world, Threshold(1 << 30));
    assert_eq!((actions, generation), (vec![Action::COPY; 4], 1));
}

fn bare(block: &Arc<Block>) -> (Buffer, Option<Arc<Block>>) {
    let (address, bytes) = (DevicePtr::NULL, block.size());
    (Buffer { address, bytes, id: block.id().0, has_block: true }, Some(Arc::clone(block)))
}

#[test]
fn without_aliasing_blocks_without_addresses_swap_grow_and_stay() {
    let world = World::without(&["aliasing"]);
    let create = |size| world.device.create_block(ByteSize(size), CreateOptions::default()).expect("a block");
    let (a, b, large) = (create(MIB2), create(MIB2), create(2 * MIB2));
    let binding = world.binding(vec![SLOTS[0], SLOTS[0]], Threshold::OFF);
    let step = |first: &Arc<Block>, second: &Arc<Block>| {
        let given = Given { buffers: vec![bare(first), bare(second)], epoch: 0 };
        let report = begin(&binding, world.stream, &given).expect("begin");
        binding.end().expect("end");
        (report.generation, addresses(&binding, 2))
    };
    let (_, at) = step(&a, &b);
    fill(at[0], SLOTS[0].bytes, 1);
    fill(at[1], SLOTS[0].bytes, 2);
    let (generation, at) = step(&b, &a);
    assert!(generation == 1 && holds(at[0], SLOTS[0].bytes, 2) && holds(at[1], SLOTS[0].bytes, 1));
    // The old windows must be left before the new ones can show the same blocks.
    let (generation, at) = step(&large, &a);
    assert!(generation == 2 && holds(at[1], SLOTS[0].bytes, 1));
    let (generation, at) = step(&b, &a);
    assert!(generation == 2 && holds(at[0], SLOTS[0].bytes, 2));
}

#[test]
fn without_aliasing_a_callers_mapping_is_in_the_way() {
    let world = World::without(&["aliasing"]);
    let block = world.device.create_block(ByteSize(MIB2), CreateOptions::default()).expect("a block");
    let place = world.device.reserve(ByteSize(MIB2), None, &[], Owner::Caller).expect("addresses");
    place.map(ByteSize::ZERO, &block).expect("mapped");
    let binding = world.binding(vec![SLOTS[0]], Threshold::OFF);
    let given = Given { buffers: vec![bare(&block)], epoch: 0 };
    binding.begin(world.stream, &given, 0).expect_err("neither an address nor free to map");
    place.unmap(ByteSize::ZERO, ByteSize(MIB2)).expect("unmapped");
    begin(&binding, world.stream, &given).expect("free now");
    binding.end().expect("end");
}

#[test]
fn an_alignment_far_beyond_the_size_takes_no_memory() {
    let world = World::new();
    let homes: Vec<Home> = (0..4).map(|_| world.home(MIB2)).collect();
    let aligned = |alignment| Slot { alignment, ..Slot::new(ByteSize(64)) };
    let slots = [aligned(4096), aligned(8192), aligned(1 << 32), aligned(1 << 40)];
    let free = world.device.memory().expect("figures").free;
    let binding = world.binding(slots.to_vec(), Threshold(4096));
    begin(&binding, world.stream, &Given::of(&[&homes[0], &homes[1], &homes[2], &homes[3]])).expect("begin");
    assert_eq!(actions(&binding, 4), [Action::COPY, Action::MAP, Action::MAP, Action::MAP]);
    for (slot, address) in slots.iter().zip(addresses(&binding, 4)) {
        assert_eq!(address.get() % slot.alignment, 0);
    }
    let taken = free.zip(world.device.memory().expect("figures").free).map(|(a, b)| a.get() - b.get());
    assert_eq!(taken, Some(MIB2), "a chunk of shadows");
    binding.end().expect("end");
}
