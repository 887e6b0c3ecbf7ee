//! Bad input to bindings: a status that names the entry, and nothing changed.

mod rebind_support;

use gvmm::driver::CreateOptions;
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::rebind::{
    Action, Binding, Buffer, Buffers, Direction, MemorySpace, Options, Slot, SlotFlags, Threshold,
};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::Block;
use rebind_support::{Given, World, addresses, begin, fill, holds};
use std::sync::{Arc, Mutex};

const MIB2: u64 = 2 << 20;
const BIG: Slot = Slot::new(ByteSize(MIB2));
const SMALL: Slot = Slot::new(ByteSize(1000));

/// Begins and expects a failure after which everything is as before.
fn refused(world: &World, binding: &Binding, given: &impl Buffers) -> (Kind, Option<u64>) {
    let info = binding.info().expect("info");
    let e = binding.begin(world.stream, given, info.generation).expect_err("refused");
    let after = binding.info().expect("info");
    assert_eq!(
        (after.generation, after.shadow_bytes, after.record_agains),
        (info.generation, info.shadow_bytes, info.record_agains)
    );
    assert_eq!(binding.end().expect_err("no step").kind, Kind::WrongState);
    (e.kind, e.entry)
}

#[test]
fn bad_slots_make_no_binding() {
    let world = World::new();
    let slots = vec![SMALL, Slot::new(ByteSize::ZERO)];
    let e = Binding::new(&world.device, slots, Options::default()).expect_err("no bytes");
    assert_eq!((e.kind, e.entry), (Kind::InvalidSize, Some(1)));
}

#[test]
fn counts_sizes_and_addresses_are_checked_at_the_first_begin_and_later() {
    let world = World::new();
    let homes = [world.home(MIB2), world.home(MIB2), world.home(MIB2)];
    let good = Given::of(&[&homes[0], &homes[1], &homes[2]]);
    let slots = vec![BIG, SMALL, SMALL.flags(SlotFlags::REGISTERED)];
    let binding = world.binding(slots, Threshold(4096));
    let changed = |i: usize, change: &dyn Fn(&mut Buffer)| {
        let mut given = good.clone();
        change(&mut given.buffers[i].0);
        given
    };
    for round in 0..2 {
        let short = Given { buffers: good.buffers[..2].to_vec(), epoch: 0 };
        assert_eq!(refused(&world, &binding, &short), (Kind::CountMismatch, None));
        let small = changed(1, &|buffer| buffer.bytes = ByteSize(999));
        assert_eq!(refused(&world, &binding, &small), (Kind::InvalidSize, Some(1)));
        for i in [1, 2] {
            let nowhere = changed(i, &|buffer| buffer.address = DevicePtr::NULL);
            assert_eq!(refused(&world, &binding, &nowhere), (Kind::InvalidArgument, Some(i as u64)));
        }
        let report = begin(&binding, world.stream, &good).expect("good ones");
        assert_eq!(report.generation, 1, "round {round}");
        binding.end().expect("end");
        let large = changed(1, &|buffer| buffer.bytes = ByteSize(1 << 40));
        begin(&binding, world.stream, &large).expect("larger is fine");
        binding.end().expect("end");
    }
    assert_eq!(binding.addresses(&mut [DevicePtr::NULL; 2]).expect_err("three").kind, Kind::CountMismatch);
    assert_eq!(binding.actions(&mut [Action::BAKE; 4]).expect_err("three").kind, Kind::CountMismatch);
}

#[test]
fn a_block_must_be_large_enough_and_of_this_device() {
    let world = World::new();
    let binding = world.binding(vec![Slot::new(ByteSize(MIB2 + 1))], Threshold::OFF);
    let of = |block: Arc<Block>| {
        let (address, bytes) = (DevicePtr::NULL, ByteSize(2 * MIB2));
        let buffer = Buffer { address, bytes, id: block.id().0, has_block: true };
        Given { buffers: vec![(buffer, Some(block))], epoch: 0 }
    };
    let small = world.device.create_block(ByteSize(MIB2), CreateOptions::default()).expect("a block");
    assert_eq!(refused(&world, &binding, &of(small)), (Kind::InvalidSize, Some(0)));
    let elsewhere = World::new();
    let foreign =
        elsewhere.device.create_block(ByteSize(2 * MIB2), CreateOptions::default()).expect("a block");
    assert_eq!(refused(&world, &binding, &of(foreign)), (Kind::InvalidArgument, Some(0)));
}

/// Buffers whose handles died.
struct Stale(Given);

impl Buffers for Stale {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, i: usize) -> Buffer {
        self.0.get(i)
    }

    fn block(&self, i: usize) -> Result<Arc<Block>> {
        if i == 1 { Err(Error::new(Kind::InvalidHandle, Operation::None, "stale")) } else { self.0.block(i) }
    }

    fn epoch(&self) -> u64 {
        self.0.epoch
    }
}

#[test]
fn handles_are_looked_at_again_when_one_was_destroyed() {
    let world = World::new();
    let homes = [world.home(MIB2), world.home(MIB2)];
    let good = Given::of(&[&homes[0], &homes[1]]);
    for threshold in [Threshold::OFF, Threshold(1 << 30)] {
        let binding = world.binding(vec![BIG, BIG], threshold);
        begin(&binding, world.stream, &good).expect("begin");
        binding.end().expect("end");
        begin(&binding, world.stream, &Stale(good.clone())).expect("nothing was destroyed since");
        binding.end().expect("end");
        let later = Given { epoch: 1, ..good.clone() };
        assert_eq!(refused(&world, &binding, &Stale(later.clone())), (Kind::InvalidHandle, Some(1)));
        let report = begin(&binding, world.stream, &later).expect("all alive");
        assert_eq!((report.changed_slots, report.calls.map), (0, 0));
        binding.end().expect("end");
    }
}

/// Buffers that call into their binding while it reads them.
struct Inside<'a>(&'a Given, &'a Binding, Mutex<Vec<Kind>>);

impl Buffers for Inside<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, i: usize) -> Buffer {
        let kinds = [self.1.end().map(|_| ()), self.1.abort(), self.1.info().map(|_| ()), self.1.destroy()];
        self.2.lock().expect("kinds").extend(kinds.into_iter().filter_map(|r| r.err().map(|e| e.kind)));
        self.0.get(i)
    }

    fn block(&self, i: usize) -> Result<Arc<Block>> {
        self.0.block(i)
    }

    fn epoch(&self) -> u64 {
        self.0.epoch
    }
}

#[test]
fn a_second_caller_is_told_busy() {
    let world = World::new();
    let home = world.home(MIB2);
    let given = Given::of(&[&home]);
    let binding = world.binding(vec![SMALL], Threshold(4096));
    let inside = Inside(&given, &binding, Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        scope.spawn(|| binding.begin(world.stream, &inside, 0).expect("begin"));
    });
    let kinds = inside.2.into_inner().expect("kinds");
    assert!(kinds.len() >= 4 && kinds.iter().all(|kind| *kind == Kind::Busy), "{kinds:?}");
}

#[test]
fn host_slots_and_registered_slots_keep_their_addresses() {
    let world = World::new();
    let (a, b) = (world.home(MIB2), world.home(MIB2));
    let slots = vec![Slot { space: MemorySpace::HOST, ..SMALL }, SMALL.flags(SlotFlags::REGISTERED)];
    let binding = world.binding(slots, Threshold(1 << 20));
    begin(&binding, world.stream, &Given::of(&[&a, &b])).expect("begin");
    assert_eq!(addresses(&binding, 2), [a.address(), b.address()]);
    let info = binding.info().expect("info");
    assert_eq!((info.baked, info.shadow_bytes), (2, ByteSize::ZERO));
    binding.end().expect("end");
}

#[test]
fn alignment_is_kept_or_asked_for() {
    let world = World::new();
    let (a, b, c) = (world.home(MIB2), world.home(MIB2), world.home(MIB2));
    let aligned = |slot: Slot, alignment| Slot { alignment, ..slot };
    let slots = vec![aligned(BIG, 1 << 24), aligned(SMALL, 1 << 22), BIG];
    let binding = world.binding(slots, Threshold(4096));
    begin(&binding, world.stream, &Given::of(&[&a, &b, &c])).expect("begin");
    let at = addresses(&binding, 3);
    assert_eq!((at[0].get() % (1 << 24), at[1].get() % (1 << 22), at[2].get() % MIB2), (0, 0, 0));
    binding.end().expect("end");
    let baked = world.binding(vec![aligned(SMALL, 512).flags(SlotFlags::REGISTERED)], Threshold::OFF);
    let address = DevicePtr(a.address().get() + 256);
    let given = Given::memory(&[Buffer { address, bytes: ByteSize(1000), id: 1, has_block: false }]);
    assert_eq!(refused(&world, &baked, &given), (Kind::Misaligned, Some(0)));
}

/// What overlaps among what copies write is refused by begin, and the step before goes on as it was.
#[test]
fn buffers_that_copies_would_write_twice_are_refused_when_they_change() {
    let world = World::new();
    let home = world.home(MIB2);
    let at = |offset: u64| DevicePtr(home.address().get() + offset);
    let buffer =
        |id: u64, offset| Buffer { address: at(offset), bytes: ByteSize(1000), id, has_block: false };
    let input = SMALL.direction(Direction::IN);
    let binding = world.binding(vec![SMALL, SMALL, input, input], Threshold(4096));
    let good = Given::memory(&[buffer(1, 0), buffer(2, 1000), buffer(3, 5000), buffer(4, 5999)]);
    let clash = Given::memory(&[buffer(1, 0), buffer(5, 999), buffer(3, 5000), buffer(4, 5999)]);
    assert_eq!(refused(&world, &binding, &clash), (Kind::Overlap, Some(1)), "laying out");
    for round in 0..2 {
        fill(at(0), SMALL.bytes, round);
        let report = begin(&binding, world.stream, &good).expect("sources may overlap, the others touch");
        assert_eq!(report.generation, 1);
        world.synchronize();
        assert!(holds(addresses(&binding, 4)[0], SMALL.bytes, round));
        binding.end().expect("end");
        world.synchronize();
        let before = world.trace.counts().total();
        assert_eq!(refused(&world, &binding, &clash), (Kind::Overlap, Some(1)));
        let wraps = Buffer { address: DevicePtr(u64::MAX - 99), ..buffer(6, 0) };
        let wraps = Given::memory(&[good.buffers[0].0, good.buffers[1].0, wraps, good.buffers[3].0]);
        assert_eq!(refused(&world, &binding, &wraps), (Kind::OutOfRange, Some(2)));
        assert_eq!(world.trace.counts().total(), before, "no driver call was made");
    }
    let swapped = Given::memory(&[buffer(7, 1000), buffer(8, 0), buffer(3, 5000), buffer(4, 5999)]);
    begin(&binding, world.stream, &swapped).expect("two swap");
    binding.end().expect("end");
}

#[test]
fn a_buffer_may_be_its_own_shadow_and_no_other_slots() {
    let world = World::new();
    let home = world.home(MIB2);
    let at = |offset: u64| DevicePtr(home.address().get() + offset);
    let buffer =
        |id: u64, offset| Buffer { address: at(offset), bytes: ByteSize(1000), id, has_block: false };
    let slots = vec![
        Slot { shadow_address: at(0), ..SMALL },
        Slot { shadow_address: at(1000), ..SMALL },
        SMALL.direction(Direction::IN),
    ];
    let binding = world.binding(slots, Threshold(4096));
    let own = Given::memory(&[buffer(1, 0), buffer(2, 1000), buffer(3, 5000)]);
    begin(&binding, world.stream, &own).expect("nothing to copy");
    assert_eq!(binding.end().expect("end").copied_slots, 0);
    let reads = Given::memory(&[buffer(1, 0), buffer(2, 1000), buffer(4, 500)]);
    begin(&binding, world.stream, &reads).expect("nobody writes there");
    binding.end().expect("end");
    let written = Given::memory(&[buffer(5, 8000), buffer(2, 1000), buffer(4, 500)]);
    assert_eq!(refused(&world, &binding, &written).0, Kind::Overlap);
    let over = Given::memory(&[buffer(1, 0), buffer(6, 100), buffer(3, 5000)]);
    assert_eq!(refused(&world, &binding, &over), (Kind::Overlap, Some(1)), "its own shadow in part");
    begin(&binding, world.stream, &own).expect("as before");
    binding.end().expect("end");
}
