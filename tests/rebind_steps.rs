//! Made-up steps, one rule each: generations, identity, directions, and what may be mapped.

mod rebind_support;

use gvmm::error::Kind;
use gvmm::rebind::{Action, Buffer, Direction, Outcome, Slot, SlotFlags, Threshold, shadow_budget};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Block, Owner, RemapEntry, Reservation};
use rebind_support::{Given, Home, World, actions, addresses, begin, block, fill, holds, step, write_all};
use std::sync::Arc;

const MIB2: u64 = 2 << 20;
const BIG: Slot = Slot::new(ByteSize(MIB2));
const SMALL: Slot = Slot::new(ByteSize(1000));

#[test]
fn generations_follow_the_protocol() {
    let world = World::new();
    let (a, b) = (world.home(MIB2), world.home(MIB2));
    let binding = world.binding(vec![BIG, SMALL.flags(SlotFlags::REGISTERED)], Threshold::OFF);
    let given = Given::of(&[&a, &b]);
    assert_eq!(binding.addresses(&mut [DevicePtr::NULL; 2]).expect_err("nothing yet").kind, Kind::WrongState);
    let (outcome, report) = binding.begin(world.stream, &given, 0).expect("begin");
    assert_eq!((outcome, report.generation, report.changed_slots), (Outcome::RecordAgain, 1, 2));
    assert_eq!(binding.end().expect_err("nothing began").kind, Kind::WrongState);
    let first = addresses(&binding, 2);
    assert_eq!(first[1], b.address(), "baked");

    // An old generation is told so again, whatever the buffers are.
    let calls = world.trace.counts();
    let swapped = Given::of(&[&b, &a]);
    let (outcome, report) = binding.begin(world.stream, &swapped, 0).expect("begin");
    assert_eq!((outcome, report.generation), (Outcome::RecordAgain, 1));
    assert_eq!((addresses(&binding, 2), world.trace.counts()), (first.clone(), calls));

    let (outcome, report) = binding.begin(world.stream, &given, 1).expect("begin");
    assert_eq!((outcome, report.generation, report.changed_slots), (Outcome::Started, 1, 0));
    assert_eq!(binding.begin(world.stream, &given, 1).expect_err("twice").kind, Kind::WrongState);
    binding.end().expect("end");
    assert_eq!(world.trace.counts(), calls, "nothing changed and nothing copied: no driver call");
    assert_eq!(binding.begin(world.stream, &given, 2).expect_err("never given").kind, Kind::InvalidArgument);

    // The registered slot moves.
    let (outcome, report) = binding.begin(world.stream, &swapped, 1).expect("begin");
    assert_eq!((outcome, report.generation), (Outcome::RecordAgain, 2));
    assert_eq!(addresses(&binding, 2)[1], a.address());
    assert_eq!(binding.info().expect("info").record_agains, 3);
}

/// A place of the caller's where blocks come and go.
struct Place {
    reservation: Arc<Reservation>,
}

impl Place {
    fn new(world: &World) -> Self {
        let size = ByteSize(MIB2);
        Self { reservation: world.device.reserve(size, None, &[], Owner::Caller).expect("addresses") }
    }

    fn put(&self, world: &World, block: Option<&Arc<Block>>) {
        let (reservation, block) = (Arc::clone(&self.reservation), block.cloned());
        world.device.remap(&[RemapEntry { reservation, offset: ByteSize::ZERO, block }], &[]).expect("remap");
    }

    fn given(&self, block: &Arc<Block>) -> Given {
        let address = self.reservation.range().start();
        let buffer = Buffer { address, bytes: ByteSize(MIB2), id: block.id().0, has_block: true };
        Given { buffers: vec![(buffer, Some(Arc::clone(block)))], epoch: 0 }
    }
}

#[test]
fn the_same_address_as_another_allocation_is_a_change() {
    let world = World::new();
    let (place, first, second) = (Place::new(&world), block(&world), block(&world));
    let slots = [BIG];
    let binding = world.binding(slots.to_vec(), Threshold::OFF);
    for (round, block) in [&first, &second, &first].into_iter().enumerate() {
        place.put(&world, Some(block));
        let report = begin(&binding, world.stream, &place.given(block)).expect("begin");
        assert_eq!(report.remapped_slots, u64::from(round > 0));
        write_all(&world, &binding, &slots, 10 + round as u64);
        binding.end().expect("end");
        world.synchronize();
        assert!(holds(place.reservation.range().start(), BIG.bytes, 10 + round as u64));
    }
    place.put(&world, None);
}

#[test]
fn the_same_allocation_at_another_address_is_a_change() {
    let world = World::new();
    let memory = world.home(MIB2);
    let at = |offset: u64| Buffer {
        address: DevicePtr(memory.address().get() + offset),
        bytes: ByteSize(4096),
        id: 7,
        has_block: false,
    };
    let slots = [SMALL, SMALL.flags(SlotFlags::REGISTERED)];
    let binding = world.binding(slots.to_vec(), Threshold(4096));
    let buffers = |a, b| Given::memory(&[at(a), Buffer { id: 8, ..at(b) }]);
    step(&world, &binding, &buffers(0, 8192), &slots, 1);
    assert_eq!(actions(&binding, 2), [Action::COPY, Action::BAKE]);
    step(&world, &binding, &buffers(65_536, 8192), &slots, 5);
    assert!(holds(at(65_536).address, SMALL.bytes, 5) && holds(at(0).address, SMALL.bytes, 1));
    assert_eq!(binding.info().expect("info").generation, 1, "the copied one is served");
    let (outcome, report) = binding.begin(world.stream, &buffers(65_536, 16_384), 1).expect("begin");
    assert_eq!((outcome, report.changed_slots), (Outcome::RecordAgain, 1), "the baked one is not");
}

#[test]
fn an_id_of_0_always_counts_as_changed_and_is_served() {
    let world = World::new();
    let memory = world.home(MIB2);
    let (address, bytes) = (memory.address(), ByteSize(4096));
    let other = DevicePtr(address.get() + 4096);
    let given = Given::memory(&[
        Buffer { address, bytes, id: 0, has_block: false },
        Buffer { address: other, bytes, id: 0, has_block: false },
    ]);
    let binding = world.binding(vec![SMALL, SMALL.flags(SlotFlags::FOREIGN)], Threshold::OFF);
    for _ in 0..3 {
        let report = begin(&binding, world.stream, &given).expect("begin");
        assert_eq!((report.changed_slots, report.generation), (2, 1));
        binding.end().expect("end");
    }
}

#[test]
fn inputs_may_share_a_block_and_outputs_may_not() {
    let world = World::new();
    let (a, b) = (world.home(MIB2), world.home(MIB2));
    let input = BIG.direction(Direction::IN);
    let binding = world.binding(vec![input, BIG, input], Threshold::OFF);
    begin(&binding, world.stream, &Given::of(&[&a, &b, &a])).expect("two inputs share");
    fill(a.address(), BIG.bytes, 3);
    let at = addresses(&binding, 3);
    assert!(at[0] != at[2] && holds(at[0], BIG.bytes, 3) && holds(at[2], BIG.bytes, 3));
    binding.end().expect("end");
    let e = binding.begin(world.stream, &Given::of(&[&a, &b, &b]), 1).expect_err("aliased");
    assert_eq!((e.kind, e.entry), (Kind::Aliased, Some(2)));
    begin(&binding, world.stream, &Given::of(&[&a, &b, &a])).expect("as before");
    binding.end().expect("end");

    let mut numbers = Given::of(&[&a, &b, &a]);
    numbers.buffers.iter_mut().for_each(|(buffer, _)| (buffer.id, buffer.has_block) = (9, false));
    let e = binding.begin(world.stream, &numbers, 1).expect_err("the caller's numbers too");
    assert_eq!((e.kind, e.entry), (Kind::Aliased, Some(1)));
}

#[test]
fn donated_blocks_may_swap_slots() {
    let world = World::new();
    let (a, b) = (world.home(MIB2), world.home(MIB2));
    let slots = [BIG, BIG];
    let binding = world.binding(slots.to_vec(), Threshold::OFF);
    step(&world, &binding, &Given::of(&[&a, &b]), &slots, 1);
    let swapped = Given::of(&[&b, &a]);
    let report = begin(&binding, world.stream, &swapped).expect("begin");
    let calls = report.calls;
    assert_eq!((calls.unmap, calls.map, calls.set_access, report.generation), (2, 2, 1, 1));
    let at = addresses(&binding, 2);
    assert!(holds(at[0], BIG.bytes, 2) && holds(at[1], BIG.bytes, 1));
    binding.end().expect("end");
}

#[test]
fn a_window_that_had_to_grow_stays_large() {
    let world = World::new();
    let (small, large) = (world.home(MIB2), world.home(2 * MIB2));
    let (a, b) = (world.home(MIB2), world.home(MIB2));
    let slots = [BIG, BIG.flags(SlotFlags::REGISTERED)];
    let binding = world.binding(slots.to_vec(), Threshold::OFF);
    for (home, registered, generation) in [(&large, &a, 1), (&small, &b, 2), (&large, &b, 2)] {
        step(&world, &binding, &Given::of(&[home, registered]), &slots, generation);
        assert_eq!(binding.info().expect("info").generation, generation);
    }
}

#[test]
fn a_slot_that_grows_is_laid_out_anew_once() {
    let world = World::new();
    let (small, large) = (world.home(MIB2), world.home(2 * MIB2));
    let slots = [BIG];
    let binding = world.binding(slots.to_vec(), Threshold::OFF);
    for round in 0..6 {
        let home = if round % 2 == 0 { &small } else { &large };
        step(&world, &binding, &Given::of(&[home]), &slots, round);
        assert!(holds(home.address(), BIG.bytes, round));
    }
    assert_eq!(binding.info().expect("info").generation, 2, "one layout for each size");
    world.device.drain().expect("drained");
    let ranges = world.trace.live().ranges;
    drop(binding);
    world.device.drain().expect("drained");
    assert_eq!(world.trace.live().ranges, ranges - 1, "the first layout's range is gone already");
}

#[test]
fn abort_copies_nothing_out() {
    let world = World::new();
    let home = world.home(MIB2);
    let (slots, given) = ([SMALL], Given::of(&[&home]));
    fill(home.address(), SMALL.bytes, 1);
    let binding = world.binding(slots.to_vec(), Threshold(4096));
    begin(&binding, world.stream, &given).expect("begin");
    write_all(&world, &binding, &slots, 2);
    binding.abort().expect("abort");
    assert_eq!(binding.abort().expect_err("over").kind, Kind::WrongState);
    world.synchronize();
    assert!(holds(home.address(), SMALL.bytes, 1));
    step(&world, &binding, &given, &slots, 3);
    assert!(holds(home.address(), SMALL.bytes, 3));
}

#[test]
fn directions_say_what_is_copied() {
    let world = World::new();
    let homes: Vec<Home> = (0..3).map(|_| world.home(MIB2)).collect();
    let slots = [SMALL, SMALL.direction(Direction::IN), SMALL.direction(Direction::OUT)];
    let given = Given::of(&[&homes[0], &homes[1], &homes[2]]);
    let binding = world.binding(slots.to_vec(), Threshold(4096));
    homes.iter().for_each(|home| fill(home.address(), SMALL.bytes, 1));
    let begun = begin(&binding, world.stream, &given).expect("begin");
    assert_eq!((begun.copied_slots, begun.copied_bytes, begun.calls.copy_launches), (2, 2000, 1));
    world.synchronize();
    let at = addresses(&binding, 3);
    assert!(holds(at[0], SMALL.bytes, 1) && holds(at[1], SMALL.bytes, 1) && !holds(at[2], SMALL.bytes, 1));
    at.iter().for_each(|address| fill(*address, SMALL.bytes, 2));
    let ended = binding.end().expect("end");
    assert_eq!((ended.copied_slots, ended.copied_bytes, ended.calls.copy_launches), (2, 2000, 1));
    world.synchronize();
    let arrived: Vec<bool> = homes.iter().map(|home| holds(home.address(), SMALL.bytes, 2)).collect();
    assert_eq!(arrived, [true, false, true], "an input is never copied back");
}

#[test]
fn a_slot_may_bring_its_shadow() {
    let world = World::new();
    let (home, shadow) = (world.home(MIB2), world.home(MIB2));
    let slots = [Slot { shadow_address: shadow.address(), ..BIG }];
    let binding = world.binding(slots.to_vec(), Threshold::OFF);
    let booked = shadow_budget(&world.device).booked;
    step(&world, &binding, &Given::of(&[&home]), &slots, 4);
    assert_eq!(addresses(&binding, 1), [shadow.address()]);
    assert!(holds(home.address(), BIG.bytes, 4) && holds(shadow.address(), BIG.bytes, 4));
    assert_eq!(shadow_budget(&world.device).booked, booked, "outside the budget");
    let report = begin(&binding, world.stream, &Given::of(&[&shadow])).expect("the buffer is the shadow");
    assert_eq!((report.copied_slots, report.calls.copy_launches), (0, 0));
    binding.end().expect("end");
}

#[test]
fn only_whole_blocks_are_mapped() {
    let world = World::new();
    let home = world.home(2 * MIB2);
    let (whole, block) = home.buffer();
    let inside = Buffer { address: DevicePtr(whole.address.get() + MIB2), bytes: ByteSize(MIB2), ..whole };
    let nowhere = Buffer { address: DevicePtr::NULL, ..whole };
    let unknown = Buffer { address: DevicePtr(0x1000), ..whole };
    for (buffer, expected) in
        [(whole, Action::MAP), (inside, Action::BAKE), (nowhere, Action::MAP), (unknown, Action::MAP)]
    {
        let binding = world.binding(vec![BIG], Threshold::OFF);
        let given = Given { buffers: vec![(buffer, block.clone())], epoch: 0 };
        binding.begin(world.stream, &given, 0).expect("begin");
        assert_eq!(actions(&binding, 1), [expected], "{buffer:?}");
    }
    let foreign = world.binding(vec![BIG.flags(SlotFlags::FOREIGN)], Threshold::OFF);
    foreign.begin(world.stream, &Given::of(&[&home]), 0).expect("begin");
    assert_eq!(actions(&foreign, 1), [Action::BAKE]);
}
