//! Made-up steps, one rule each.

mod rebind_support;

use gvmm::driver::testing::Call;
use gvmm::driver::{CreateOptions, Driver, Streams};
use gvmm::error::Kind;
use gvmm::rebind::{
    Action, Binding, Buffer, Direction, Outcome, Slot, SlotFlags, Threshold, set_shadow_budget, shadow_budget,
};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Block, Owner, RemapEntry, Reservation};
use rebind_support::{Gate, Given, Home, World, addresses, begin, fill, holds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MIB2: u64 = 2 << 20;
const BIG: Slot = Slot::new(ByteSize(MIB2));
const SMALL: Slot = Slot::new(ByteSize(1000));

fn actions(binding: &Binding, count: usize) -> Vec<Action> {
    let mut actions = vec![Action::default(); count];
    binding.actions(&mut actions).expect("a layout");
    actions
}

/// A step whose commands fill every written slot with `seed` at its recorded address; waits for it.
fn step(world: &World, binding: &Binding, given: &Given, slots: &[Slot], seed: u64) {
    begin(binding, world.stream, given).expect("begin");
    write_all(world, binding, slots, seed);
    binding.end().expect("end");
    world.synchronize();
}

fn write_all(world: &World, binding: &Binding, slots: &[Slot], seed: u64) {
    let (baked, slots) = (addresses(binding, slots.len()), slots.to_vec());
    world.enqueue(world.stream, move || {
        for (i, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.direction.writes()) {
            fill(baked[i], slot.bytes, seed + i as u64);
        }
    });
}

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

fn block(world: &World) -> Arc<Block> {
    world.device.create_block(ByteSize(MIB2), CreateOptions::default()).expect("a block")
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

#[test]
fn bindings_share_one_budget_and_the_same_calls_give_the_same_plans() {
    let world = World::new();
    set_shadow_budget(&world.device, ByteSize(2600));
    let home: Vec<Home> = (0..3).map(|_| world.home(MIB2)).collect();
    let given = Given::of(&[&home[0], &home[1], &home[2]]);
    let slots = vec![SMALL, SMALL, Slot::new(ByteSize(500))];
    let plan = || {
        let binding = world.binding(slots.clone(), Threshold(4096));
        binding.begin(world.stream, &given, 0).expect("begin");
        binding
    };
    let copied = |binding: &Binding| {
        let info = binding.info().expect("info");
        (info.copied, info.shadow_bytes.get(), info.threshold)
    };
    let first = plan();
    assert_eq!(copied(&first), (3, 2500, Threshold(4096)));
    let second = plan();
    assert_eq!(copied(&second), (0, 0, Threshold::OFF), "nothing is left");
    drop(first);
    let third = plan();
    assert_eq!(copied(&third), (3, 2500, Threshold(4096)));
    set_shadow_budget(&world.device, ByteSize(4500));
    let fourth = plan();
    assert_eq!(copied(&fourth), (1, 500, Threshold(500)), "one size together or not at all");
    assert_eq!(shadow_budget(&world.device).booked, ByteSize(3000));
}

#[test]
fn no_slots_at_all_work() {
    let world = World::new();
    let binding = world.binding(Vec::new(), Threshold::DEFAULT);
    let given = Given::default();
    for _ in 0..3 {
        begin(&binding, world.stream, &given).expect("begin");
        binding.end().expect("end");
    }
    assert_eq!(binding.info().expect("info").generation, 1);
    assert_eq!(world.trace.counts().of(Call::RESERVE), 0);
}

#[test]
fn a_hundred_thousand_slots_are_copied() {
    const COUNT: u64 = 100_000;
    let world = World::new();
    let home = world.home(COUNT * 16);
    let at = |i: u64| DevicePtr(home.address().get() + i * 16);
    let buffers: Vec<Buffer> = (0..COUNT)
        .map(|i| Buffer { address: at(i), bytes: ByteSize(16), id: i + 1, has_block: false })
        .collect();
    let slots = vec![Slot::new(ByteSize(16)); COUNT as usize];
    let binding = world.binding(slots, Threshold(4096));
    fill(at(77_777), ByteSize(16), 3);
    let report = begin(&binding, world.stream, &Given::memory(&buffers)).expect("begin");
    assert_eq!((report.copied_slots, report.calls.copy_launches), (COUNT, 1));
    world.synchronize();
    let shadows = addresses(&binding, COUNT as usize);
    assert!(holds(shadows[77_777], ByteSize(16), 3));
    fill(shadows[99_999], ByteSize(16), 4);
    binding.end().expect("end");
    world.synchronize();
    assert!(holds(at(99_999), ByteSize(16), 4));
}

#[test]
fn a_hundred_thousand_mapped_slots_work_or_reach_the_limit() {
    const COUNT: usize = 100_000;
    let world = World::new();
    let given: Vec<(Buffer, Option<Arc<Block>>)> = (0..COUNT)
        .map(|_| {
            let block = block(&world);
            let buffer =
                Buffer { address: DevicePtr::NULL, bytes: ByteSize(8), id: block.id().0, has_block: true };
            (buffer, Some(block))
        })
        .collect();
    let given = Given { buffers: given, epoch: 0 };
    let binding = world.binding(vec![Slot::new(ByteSize(8)); COUNT], Threshold::OFF);
    if let Err(e) = binding.begin(world.stream, &given, 0) {
        assert_eq!(e.kind, Kind::MapLimit);
        assert_eq!(world.trace.live().mappings, 0);
        assert_eq!(binding.info().expect("info").generation, 0);
    }
}
