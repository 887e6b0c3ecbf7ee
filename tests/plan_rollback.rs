//! Fails the first, the second, the third ... driver call of a life with a planner: what is watched, planned, patched and
//! repaired is as if nothing had failed, nothing leaks, and the data arrive.

mod rebind_support;

use gvmm::error::{Error, Kind, Operation};
use gvmm::rebind::profile::Profile;
use gvmm::rebind::{
    Action, Binding, Commands, Direction, Options, Outcome, PlanOptions, Slot, Threshold, shadow_budget,
};
use gvmm::units::{ByteSize, DevicePtr};
use rebind_support::{Given, Home, World, actions, addresses, fill, holds};

const MIB2: u64 = 2 << 20;
const INJECTED: Error = Error::new(Kind::DriverError, Operation::None, "injected");
const COUNT: usize = 24;

/// Many small ones that move, one that moves and is too large for a copy, and three that stay for a while.
fn slots() -> Vec<Slot> {
    let mut slots = vec![Slot::new(ByteSize(4000)); COUNT - 4];
    slots.push(Slot::new(ByteSize(3 * MIB2)).direction(Direction::IN));
    slots.extend([Slot::new(ByteSize(MIB2)); 3]);
    slots
}

/// What is seen of a life: all that a failure must not change.
#[derive(PartialEq, Debug, Default)]
struct Seen {
    record_agains: u64,
    digests: Vec<Option<u64>>,
    actions: Vec<Vec<Action>>,
    patched: Vec<u64>,
    surprises: u64,
}

struct Life<'a> {
    world: &'a World,
    slots: Vec<Slot>,
    homes: &'a [[Home; 2]],
    failures: u32,
    seen: Seen,
    /// What the command buffer was recorded with, and patched to since.
    recorded: Vec<DevicePtr>,
}

impl Life<'_> {
    fn step(&mut self, binding: &Binding, n: usize, large: usize) {
        let pick = |i: usize| if i + 3 < COUNT { n % 2 } else { usize::from(i + large >= COUNT) };
        let homes: Vec<&Home> = self.homes.iter().enumerate().map(|(i, pair)| &pair[pick(i)]).collect();
        let (given, seed) = (Given::of(&homes), 1000 * n as u64);
        for (i, slot) in self.slots.iter().enumerate() {
            fill(homes[i].address(), slot.bytes, seed + i as u64);
        }
        self.begin(binding, &given);
        self.world.synchronize();
        for (i, slot) in self.slots.iter().enumerate() {
            assert!(holds(self.recorded[i], slot.bytes, seed + i as u64), "slot {i} of step {n}");
            if slot.direction.writes() {
                fill(self.recorded[i], slot.bytes, seed + 500 + i as u64);
            }
        }
        while binding.end().map_err(|e| self.note(e)).is_err() {}
        self.world.synchronize();
        for (i, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.direction.writes()) {
            assert!(holds(homes[i].address(), slot.bytes, seed + 500 + i as u64), "slot {i} of step {n}");
        }
        self.seen.digests.push(binding.info().expect("info").plan.digest);
        self.seen.actions.push(actions(binding, COUNT));
    }

    fn begin(&mut self, binding: &Binding, given: &Given) {
        loop {
            let generation = binding.info().expect("info").generation;
            match binding.begin(self.world.stream, given, generation) {
                Ok((Outcome::RecordAgain, _)) => self.recorded = addresses(binding, COUNT),
                Ok((Outcome::Started, report)) => {
                    self.seen.patched.push(report.patched_commands);
                    break;
                }
                Err(e) => self.note(e),
            }
        }
        for patch in binding.patches().expect("a planner") {
            self.recorded[patch.slot as usize] = patch.address;
        }
    }

    fn note(&mut self, e: Error) {
        assert!(matches!(e.kind, Kind::DriverError | Kind::RangeLost), "{e}");
        self.failures += 1;
    }

    /// Watches, plans, repairs two slots, plans again.
    fn live(&mut self) {
        let mut commands = Commands::default();
        (0..COUNT).for_each(|i| commands.push((i == COUNT - 4).then_some(7)));
        let plan = PlanOptions {
            commands: Some(commands),
            profile: Profile::builtin("h200"),
            ..PlanOptions::default()
        };
        let options = Options { threshold: Threshold(4096), ..Options::default() };
        let binding =
            Binding::planned(&self.world.device, self.slots.clone(), options, plan).expect("a binding");
        (0..7).for_each(|n| self.step(&binding, n, 0));
        (7..9).for_each(|n| self.step(&binding, n, 1));
        (9..11).for_each(|n| self.step(&binding, n, 2));
        binding.replan().expect("a planner");
        (11..18).for_each(|n| self.step(&binding, n, 1 + n % 2));
        let info = binding.info().expect("info");
        (self.seen.record_agains, self.seen.surprises) = (info.record_agains, info.plan.surprises);
        while binding.destroy().map_err(|e| self.note(e)).is_err() {}
    }
}

/// One life whose `nth` driver call fails, and how many calls it made.
fn live(nth: Option<u64>) -> (Seen, u32, u64) {
    let world = World::new();
    let homes: Vec<[Home; 2]> =
        slots().iter().map(|slot| [0, 1].map(|_| world.home(slot.bytes.get().max(MIB2)))).collect();
    let (before, calls) = (world.trace.live(), world.fault.calls());
    if let Some(nth) = nth {
        world.fault.fail(None, nth, 1, INJECTED);
    }
    let mut life = Life {
        world: &world,
        slots: slots(),
        homes: &homes,
        failures: 0,
        seen: Seen::default(),
        recorded: Vec::new(),
    };
    life.live();
    let (seen, failures, made) = (life.seen, life.failures, world.fault.calls() - calls);
    world.fault.clear();
    for _ in 0..3 {
        let _ = world.device.drain();
    }
    let lives =
        |live: gvmm::driver::testing::Live| (live.blocks, live.ranges, live.mappings, live.allocations);
    assert_eq!(lives(world.trace.live()), lives(before), "call {nth:?}");
    assert_eq!(shadow_budget(&world.device).booked, ByteSize::ZERO, "call {nth:?}");
    (seen, failures, made)
}

#[test]
fn a_life_in_which_a_call_fails_is_as_one_in_which_none_does() {
    let (wanted, failures, made) = live(None);
    assert_eq!(failures, 0);
    let (planned, repaired) = (&wanted.actions[6], &wanted.actions[9]);
    assert_eq!(planned[..COUNT - 4], [Action::COPY; COUNT - 4]);
    assert_eq!(planned[COUNT - 4..], [Action::PATCH, Action::BAKE, Action::BAKE, Action::BAKE]);
    assert!(repaired[COUNT - 1] != Action::BAKE && repaired[COUNT - 2] != Action::BAKE);
    assert_eq!(repaired[COUNT - 3], Action::BAKE);
    let mut failed = 0;
    for nth in 1..=made {
        let (seen, failures, _) = live(Some(nth));
        assert_eq!(seen, wanted, "call {nth}");
        failed += failures;
    }
    assert!(failed > 30, "{failed} failures in {made} calls");
}
