//! Fails the first, the second, the third ... driver call of a life of a binding, once and twice: nothing leaks,
//! what failed changes nothing, the same call works when tried again, and the data arrive.

mod rebind_support;

use gvmm::config::HostConfig;
use gvmm::driver::testing::{Call, Live};
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::rebind::{Action, Binding, Direction, Outcome, Slot, SlotFlags, Threshold, shadow_budget};
use gvmm::units::{ByteSize, DevicePtr};
use rebind_support::{Given, Home, World, addresses, begin, fill, holds, read};

const MIB2: u64 = 2 << 20;
const INJECTED: Error = Error::new(Kind::DriverError, Operation::None, "injected");

/// Mapped, mapped and read only, copied, copied and written only, baked.
const SLOTS: [Slot; 5] = [
    Slot::new(ByteSize(MIB2)),
    Slot::new(ByteSize(MIB2 / 2)).direction(Direction::IN),
    Slot::new(ByteSize(3000)),
    Slot::new(ByteSize(40)).direction(Direction::OUT),
    Slot::new(ByteSize(100)).flags(SlotFlags::REGISTERED),
];

/// What is compared around a failed call.
#[derive(PartialEq, Debug)]
struct State {
    generation: u64,
    at: Vec<DevicePtr>,
    booked: ByteSize,
    /// The first bytes at each address of a window.
    seen: Vec<Vec<u8>>,
}

fn state(world: &World, binding: &Binding) -> State {
    let generation = binding.info().expect("info").generation;
    let at = if generation == 0 { Vec::new() } else { addresses(binding, SLOTS.len()) };
    let mut actions = vec![Action::default(); at.len()];
    let _ = binding.actions(&mut actions);
    let windows = at.iter().zip(actions).filter(|(_, action)| *action == Action::MAP);
    let seen = windows.map(|(address, _)| read(*address, 64)).collect();
    State { generation, at, booked: shadow_budget(&world.device).booked, seen }
}

/// One life of a binding under failing calls.
struct Life<'a> {
    world: &'a World,
    failures: u32,
    /// True where a failure could not be undone, as two in a row can bring about.
    lost: bool,
}

impl Life<'_> {
    /// Tries until it works; each failure must have changed nothing.
    fn retry<R>(&mut self, binding: &Binding, mut call: impl FnMut() -> Result<R>) -> R {
        for _ in 0..8 {
            let before = state(self.world, binding);
            match call() {
                Ok(result) => return result,
                Err(e) => self.note(&e, &before, binding),
            }
        }
        panic!("still failing");
    }

    fn note(&mut self, e: &Error, before: &State, binding: &Binding) {
        self.failures += 1;
        self.lost |= e.kind == Kind::RangeLost;
        assert!(matches!(e.kind, Kind::DriverError | Kind::RangeLost), "{e}");
        let mut after = state(self.world, binding);
        for (now, was) in after.seen.iter_mut().zip(&before.seen) {
            // A window that was empty may keep what could not be unmapped again, to be tried later.
            if self.lost || was.iter().all(|byte| *byte == 0) {
                now.clone_from(was);
            }
        }
        assert_eq!(after, *before, "{e}");
    }

    fn step(&mut self, binding: &Binding, given: &Given, seed: u64) {
        let stream = self.world.stream;
        for (i, slot) in SLOTS.iter().enumerate().filter(|(_, slot)| slot.direction.reads()) {
            fill(given.buffers[i].0.address, slot.bytes, seed + i as u64);
        }
        loop {
            let generation = binding.info().expect("info").generation;
            if self.retry(binding, || binding.begin(stream, given, generation)).0 == Outcome::Started {
                break;
            }
        }
        self.world.synchronize();
        let at = addresses(binding, SLOTS.len());
        for (i, slot) in SLOTS.iter().enumerate() {
            if slot.direction.reads() {
                assert!(holds(at[i], slot.bytes, seed + i as u64), "slot {i} sees its data");
            }
            if slot.direction.writes() {
                fill(at[i], slot.bytes, seed + 50 + i as u64);
            }
        }
        self.retry(binding, || binding.end());
        self.world.synchronize();
        for (i, slot) in SLOTS.iter().enumerate() {
            let expected = seed + i as u64 + if slot.direction.writes() { 50 } else { 0 };
            assert!(holds(given.buffers[i].0.address, slot.bytes, expected), "slot {i} arrives");
        }
    }

    /// Layouts, remaps, copies, another stream, dropping idle windows, the end.
    fn live(&mut self, homes: &[Home]) {
        let of = |picks: [usize; 5]| Given::of(&picks.map(|i| &homes[i]));
        let binding = self.world.binding(SLOTS.to_vec(), Threshold(4096));
        self.step(&binding, &of([0, 1, 2, 3, 4]), 1000);
        self.step(&binding, &of([1, 0, 3, 2, 4]), 2000);
        self.step(&binding, &of([5, 0, 3, 2, 4]), 3000);
        self.retry(&binding, || binding.drop_idle());
        self.step(&binding, &of([5, 6, 2, 3, 4]), 4000);
        self.step(&binding, &of([0, 1, 2, 3, 7]), 5000);
        self.step(&binding, &of([1, 0, 2, 3, 7]), 6000);
        self.retry(&binding, || binding.destroy());
    }
}

/// The world of one attempt: its homes, and what lived before the binding.
fn prepare(config: &HostConfig) -> (World, Vec<Home>, Live) {
    let world = World::with(config.clone());
    let sizes = [MIB2, MIB2, MIB2, MIB2, MIB2, 2 * MIB2, MIB2, MIB2];
    let homes = sizes.map(|size| world.home(size)).to_vec();
    let live = world.trace.live();
    (world, homes, live)
}

fn check_nothing_leaked(world: &World, before: Live, nth: u64) {
    for _ in 0..3 {
        let _ = world.device.drain();
    }
    let after = world.trace.live();
    let lives = |live: Live| (live.blocks, live.ranges, live.mappings, live.allocations, live.routes);
    assert_eq!(lives(after), lives(before), "call {nth}");
    assert_eq!(shadow_budget(&world.device).booked, ByteSize::ZERO, "call {nth}");
}

fn fail_each_call(config: &HostConfig, count: u64) {
    let (mut nth, mut failures) = (1, 0);
    loop {
        let (world, homes, before) = prepare(config);
        let calls = world.fault.calls();
        world.fault.fail(None, nth, count, INJECTED);
        let mut life = Life { world: &world, failures: 0, lost: false };
        life.live(&homes);
        let made = world.fault.calls() - calls;
        world.fault.clear();
        check_nothing_leaked(&world, before, nth);
        failures += life.failures;
        if nth > made {
            break;
        }
        nth += 1;
    }
    assert!(failures > 30, "{failures} failures in {nth} calls");
}

#[test]
fn each_driver_call_may_fail_once() {
    fail_each_call(&HostConfig { memory: 1 << 40, ..HostConfig::default() }, 1);
}

#[test]
fn each_driver_call_may_fail_twice() {
    fail_each_call(&HostConfig { memory: 1 << 40, ..HostConfig::default() }, 2);
}

#[test]
fn each_driver_call_may_fail_without_joint_copies_and_ranges() {
    let caps_off = ["joint_copies", "joined_access", "range_access"].map(String::from).to_vec();
    fail_each_call(&HostConfig { memory: 1 << 40, caps_off, ..HostConfig::default() }, 1);
}

/// One mapped and one copied slot over two sets of homes, after a step on the first.
fn started(world: &World) -> (Binding, [Given; 2], [DevicePtr; 2], [Home; 4]) {
    let homes = [MIB2; 4].map(|size| world.home(size));
    let given = [Given::of(&[&homes[0], &homes[1]]), Given::of(&[&homes[2], &homes[3]])];
    homes.iter().zip(1..).for_each(|(home, seed)| fill(home.address(), SLOTS[2].bytes, seed));
    let binding = world.binding(vec![SLOTS[0], SLOTS[2]], Threshold(4096));
    begin(&binding, world.stream, &given[0]).expect("begin");
    binding.abort().expect("abort");
    let at = addresses(&binding, 2);
    (binding, given, [at[0], at[1]], homes)
}

/// The next step on the first set sees the first set's data.
fn check_first(world: &World, binding: &Binding, given: &Given, at: [DevicePtr; 2]) {
    begin(binding, world.stream, given).expect("as before");
    world.synchronize();
    assert!(holds(at[0], SLOTS[2].bytes, 1) && holds(at[1], SLOTS[2].bytes, 2));
    binding.end().expect("end");
}

#[test]
fn after_a_failed_begin_the_earlier_buffers_still_work() {
    let world = World::new();
    let (binding, given, at, _homes) = started(&world);
    world.fault.fail(Some(Call::COPY), 1, 1, INJECTED);
    let e = binding.begin(world.stream, &given[1], 1).expect_err("injected");
    assert_eq!(e.kind, Kind::DriverError);
    check_first(&world, &binding, &given[0], at);
}

#[test]
fn what_was_lost_is_rebuilt_for_the_earlier_buffers_too() {
    let world = World::new();
    let (binding, given, at, _homes) = started(&world);
    world.fault.fail(Some(Call::MAP), 1, 2, INJECTED);
    let e = binding.begin(world.stream, &given[1], 1).expect_err("injected");
    assert_eq!(e.kind, Kind::RangeLost);
    check_first(&world, &binding, &given[0], at);
}

/// Copying in fails, and so does a call that would put the mappings back.
fn fail_the_way_back(call: Call, nth: u64, count: u64) {
    let world = World::new();
    let (binding, given, at, _homes) = started(&world);
    world.fault.fail(Some(Call::COPY), 1, 1, INJECTED);
    world.fault.fail(Some(call), nth, count, INJECTED);
    let e = binding.begin(world.stream, &given[1], 1).expect_err("injected");
    assert_eq!(e.kind, Kind::RangeLost);
    check_first(&world, &binding, &given[0], at);
}

#[test]
fn a_failed_copy_whose_remap_cannot_be_undone_is_a_lost_range() {
    // The way back ends at its first call; at its second; and that cannot be undone either.
    fail_the_way_back(Call::UNMAP, 2, 1);
    fail_the_way_back(Call::MAP, 2, 1);
    fail_the_way_back(Call::MAP, 2, 2);
}
