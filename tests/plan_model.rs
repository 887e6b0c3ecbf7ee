//! Random lives of a binding with a planner against a plain executor: what is recorded and patched is where the data is, whatever
//! moves, grows, fails, is aborted, imported, planned again, unmapped or short of budget meanwhile.

mod rebind_support;

use gvmm::error::{Error, Kind, Operation};
use gvmm::rebind::{
    Action, Binding, Commands, Direction, Options, Outcome, PlanOptions, Slot, SlotFlags, Threshold,
    set_shadow_budget, shadow_budget,
};
use gvmm::units::{ByteSize, DevicePtr};
use proptest::prelude::*;
use rebind_support::planned::{Foreign, exported, h200, slot};
use rebind_support::{Given, Home, World, fill, holds};

const SLOTS: usize = 5;
const BYTES: u64 = 3000;
const INJECTED: Error = Error::new(Kind::DriverError, Operation::None, "injected");

#[derive(Clone, Debug)]
enum Deed {
    /// Which of its buffers each slot uses, and how many begins are aborted before.
    Step([u8; SLOTS], u8),
    Replan,
    Import([u8; SLOTS]),
    DropIdle,
    Budget(u64),
    /// The driver call that fails once.
    Fail(u64),
    /// Begin with a generation that is over.
    Old([u8; SLOTS]),
}

fn deed() -> impl Strategy<Value = Deed> {
    let picks = || prop_oneof![3 => prop::array::uniform5(0u8..2), 1 => prop::array::uniform5(0u8..3)];
    prop_oneof![
        12 => (picks(), prop_oneof![4 => Just(0u8), 1 => 1u8..3]).prop_map(|(picks, aborts)| Deed::Step(picks, aborts)),
        1 => Just(Deed::Replan),
        2 => prop::array::uniform5(0u8..4).prop_map(Deed::Import),
        1 => Just(Deed::DropIdle),
        1 => prop_oneof![Just(0u64), Just(BYTES), Just(1 << 20)].prop_map(Deed::Budget),
        1 => picks().prop_map(Deed::Old),
        2 => (1u64..12).prop_map(Deed::Fail),
    ]
}

fn slots() -> [Slot; SLOTS] {
    [
        slot(BYTES),
        slot(BYTES).direction(Direction::IN),
        slot(BYTES).direction(Direction::OUT),
        slot(BYTES).flags(SlotFlags::FOREIGN),
        slot(BYTES).flags(SlotFlags::REGISTERED),
    ]
}

struct Life<'a> {
    world: &'a World,
    binding: Binding,
    slots: [Slot; SLOTS],
    homes: Vec<[Home; 2]>,
    foreign: Vec<Foreign>,
    /// What the command buffer has.
    recorded: Vec<DevicePtr>,
    generation: u64,
    seed: u64,
}

impl Life<'_> {
    fn given(&self, picks: [u8; SLOTS]) -> Given {
        let mut given = Given::default();
        for (i, &pick) in picks.iter().enumerate() {
            given.buffers.push(match self.homes[i].get(usize::from(pick)) {
                Some(home) => home.buffer(),
                None => (self.foreign[i].buffer(BYTES), None),
            });
        }
        given
    }

    /// Begins until a step starts; false where the budget does not do for a plan that came from elsewhere.
    fn begin(&mut self, given: &Given) -> bool {
        for _ in 0..6 {
            match self.binding.begin(self.world.stream, given, self.generation) {
                Ok((Outcome::Started, report)) => {
                    let patches = self.binding.patches().expect("not busy");
                    assert_eq!(patches.len() as u64, report.patched_commands);
                    for patch in patches {
                        assert_eq!(patch.command, 10 + patch.slot);
                        self.recorded[patch.slot as usize] = patch.address;
                    }
                    return true;
                }
                Ok((Outcome::RecordAgain, _)) => {
                    assert_eq!(self.binding.patches(), Ok(vec![]));
                    self.generation = self.binding.addresses(&mut self.recorded).expect("a layout");
                }
                Err(e) if matches!(e.kind, Kind::DriverError | Kind::RangeLost) => {}
                Err(e) => {
                    assert_eq!(e.kind, Kind::OutOfDeviceMemory, "{e}");
                    return false;
                }
            }
        }
        panic!("it is never recorded right");
    }

    fn step(&mut self, picks: [u8; SLOTS], aborts: u8) {
        let given = self.given(picks);
        self.seed += 100;
        let seed = |i: usize| self.seed + i as u64;
        for (i, (buffer, _)) in given.buffers.iter().enumerate() {
            fill(buffer.address, ByteSize(BYTES), seed(i));
        }
        for _ in 0..aborts {
            // Nobody has patched for a step that was aborted.
            let before = self.recorded.clone();
            let generation = self.generation;
            if !self.begin(&given) {
                return;
            }
            self.binding.abort().expect("abort");
            if generation == self.generation {
                self.recorded = before;
            }
        }
        if !self.begin(&given) {
            return;
        }
        self.world.synchronize();
        let seed = |i: usize| self.seed + i as u64;
        let mut at = vec![DevicePtr::NULL; SLOTS];
        self.binding.addresses(&mut at).expect("a layout");
        assert_eq!(at, self.recorded, "what the binding says is what the executor has");
        for (i, slot) in self.slots.iter().enumerate() {
            assert!(!slot.direction.reads() || holds(at[i], slot.bytes, seed(i)), "slot {i} came in");
            if slot.direction.writes() {
                fill(at[i], slot.bytes, seed(i) + 50);
            }
        }
        while let Err(e) = self.binding.end() {
            assert_eq!(e.kind, Kind::DriverError, "{e}");
        }
        self.world.synchronize();
        for (i, (slot, (buffer, _))) in self.slots.iter().zip(&given.buffers).enumerate() {
            let wanted = if slot.direction.writes() { seed(i) + 50 } else { seed(i) };
            assert!(holds(buffer.address, slot.bytes, wanted), "slot {i} went out");
        }
    }

    fn import(&mut self, codes: [u8; SLOTS]) {
        let mut actions = codes.map(|code| Action(u32::from(code)));
        actions[3] = if actions[3] == Action::MAP { Action::COPY } else { actions[3] };
        actions[4] = Action::BAKE;
        self.binding.import_plan(&exported(&self.slots, &actions)).expect("a plan of these slots");
        assert!(self.binding.plan_digest().is_ok());
    }

    fn act(&mut self, deed: Deed) {
        match deed {
            Deed::Step(picks, aborts) => self.step(picks, aborts),
            Deed::Replan => self.binding.replan().expect("a planner"),
            Deed::Import(codes) => self.import(codes),
            Deed::DropIdle => drop(self.binding.drop_idle()),
            Deed::Fail(nth) => self.world.fault.fail(None, nth, 1, INJECTED),
            Deed::Budget(bytes) => set_shadow_budget(&self.world.device, ByteSize(bytes)),
            Deed::Old(picks) if self.generation > 0 => {
                let begun = self.binding.begin(self.world.stream, &self.given(picks), self.generation - 1);
                assert_eq!(begun.expect("not busy").0, Outcome::RecordAgain);
                assert_eq!(self.binding.patches(), Ok(vec![]));
            }
            Deed::Old(_) => {}
        }
    }
}

fn live(off: &[&str], patches: bool, threshold: Threshold, deeds: Vec<Deed>) {
    let world = World::without(off);
    let mut commands = Commands::default();
    (0..SLOTS as u32).for_each(|i| commands.push([10 + i]));
    let plan = PlanOptions { commands: patches.then_some(commands), watched_steps: 3, ..h200() };
    let options = Options { threshold, ..Options::default() };
    let homes: Vec<[Home; 2]> = (0..SLOTS).map(|_| [world.home(2 << 20), world.home(4 << 20)]).collect();
    let mut life = Life {
        binding: Binding::planned(&world.device, slots().to_vec(), options, plan).expect("a binding"),
        world: &world,
        slots: slots(),
        homes,
        foreign: (0..SLOTS).map(|_| Foreign::new(BYTES as usize)).collect(),
        recorded: vec![DevicePtr::NULL; SLOTS],
        generation: 0,
        seed: 0,
    };
    deeds.into_iter().for_each(|deed| life.act(deed));
    world.fault.clear();
    // Whatever came before, a plan that needs nothing serves.
    life.import([0; SLOTS]);
    life.step([0; SLOTS], 0);
    life.binding.destroy().expect("destroyed");
    assert_eq!(shadow_budget(&world.device).booked, ByteSize::ZERO);
    world.synchronize();
}

const SHAPES: [&[&str]; 5] =
    [&[], &["virtual_memory"], &["aliasing"], &["patches"], &["joint_copies", "routes"]];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_executor_has_what_the_binding_says(
        shape in 0..SHAPES.len(), patches in any::<bool>(),
        threshold in prop_oneof![Just(Threshold::OFF), Just(Threshold(4096)), Just(Threshold::AUTO)],
        deeds in prop::collection::vec(deed(), 1..30),
    ) {
        live(SHAPES[shape], patches, threshold, deeds);
    }
}
