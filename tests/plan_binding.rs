//! Bindings with a planner: what is watched, when the plan is frozen, what happens to what it did not foresee.

mod rebind_support;

use gvmm::driver::testing::Call;
use gvmm::error::{Error, Kind, Operation};
use gvmm::rebind::profile::Profile;
use gvmm::rebind::{
    Action, Binding, Churn, Commands, Moves, Options, Outcome, Patch, PlanOptions, Slot, SlotFlags,
    StepReport, Threshold, export_plan, set_shadow_budget, shadow_budget,
};
use gvmm::units::ByteSize;
use rebind_support::recording::{Homes, Recording};
use rebind_support::{Given, Home, World, actions, addresses, begin, holds, step, write_all};

const MIB: u64 = 1 << 20;
const INJECTED: Error = Error::new(Kind::DriverError, Operation::Copy, "injected");

/// A plan of slots that were never seen to move.
fn exported(slots: &[Slot], actions: &[Action]) -> Vec<u8> {
    export_plan(slots, actions, &Churn::new(vec![Moves::NEVER; slots.len()], 4))
}

fn slot(bytes: u64) -> Slot {
    Slot::new(ByteSize(bytes))
}

/// With the costs of an H200, whose windows and copies the host simulates.
fn options() -> PlanOptions {
    PlanOptions { profile: Profile::builtin("h200"), ..PlanOptions::default() }
}

fn planned(world: &World, slots: &[Slot], options: PlanOptions) -> Binding {
    Binding::planned(&world.device, slots.to_vec(), Options::default(), options).expect("a binding")
}

/// One command for each slot.
fn patching(slots: usize) -> PlanOptions {
    let mut commands = Commands::default();
    (0..slots as u32).for_each(|i| commands.push([10 + i]));
    PlanOptions { commands: Some(commands), ..options() }
}

/// Runs a step and looks at what it wrote; gives the report of begin.
fn run(world: &World, binding: &Binding, slots: &[Slot], homes: &[&Home], seed: u64) -> StepReport {
    let report = begin(binding, world.stream, &Given::of(homes)).expect("begin");
    write_all(world, binding, slots, seed);
    binding.end().expect("end");
    world.synchronize();
    for (i, (slot, home)) in slots.iter().zip(homes).enumerate() {
        assert!(holds(home.address(), slot.bytes, seed + i as u64), "slot {i} of step {seed}");
    }
    report
}

fn record_agains(binding: &Binding) -> u64 {
    binding.info().expect("info").record_agains
}

/// `count` slots of 4 KiB that move from one of two homes to the other, and one of 8 MiB that stays.
struct Mixed {
    slots: Vec<Slot>,
    homes: [Vec<Home>; 2],
    large: Home,
}

impl Mixed {
    fn new(world: &World, count: usize) -> Self {
        let mut slots = vec![slot(4096); count];
        slots.push(slot(8 * MIB));
        let homes = [0, 1].map(|_| (0..count).map(|_| world.home(2 * MIB)).collect());
        Self { slots, homes, large: world.home(8 * MIB) }
    }

    fn step(&self, n: usize) -> Vec<&Home> {
        self.homes[n % 2].iter().chain([&self.large]).collect()
    }
}

#[test]
fn the_first_steps_are_watched_and_then_recorded_again_once() {
    let (world, count) = (World::new(), 20);
    let mixed = Mixed::new(&world, count);
    let binding = planned(&world, &mixed.slots, options());
    for n in 0..5 {
        run(&world, &binding, &mixed.slots, &mixed.step(n), n as u64 * 100);
        assert_eq!((record_agains(&binding), binding.info().expect("info").plan.digest), (1, None));
    }
    for n in 5..12 {
        let report = run(&world, &binding, &mixed.slots, &mixed.step(n), n as u64 * 100);
        assert_eq!((report.copied_slots, report.remapped_slots, report.calls.copy_launches), (20, 0, 1));
        assert_eq!(record_agains(&binding), 2);
    }
    let mut wanted = vec![Action::COPY; count];
    wanted.push(Action::BAKE);
    assert_eq!(actions(&binding, count + 1), wanted);
    let info = binding.info().expect("info");
    assert_eq!((info.shadow_bytes, info.plan.surprises), (ByteSize(count as u64 * 4096), 0));
    assert_eq!(info.plan.digest, Some(binding.plan_digest().expect("a plan")));
    let (price, why) = binding.explain().expect("a plan");
    assert!(price.step.gpu.0 > 0 && why.len() == count + 1 && why[0].moved == 4 && why[count].moved == 0);
}

#[test]
fn a_plan_that_changes_no_address_is_not_recorded_again() {
    let world = World::without(&["virtual_memory"]);
    let homes: Vec<Home> = (0..3).map(|_| world.home(2 * MIB)).collect();
    let (slots, homes) = (vec![slot(2 * MIB); 3], homes.iter().collect::<Vec<_>>());
    let threshold = Options { threshold: Threshold::OFF, ..Options::default() };
    let binding = Binding::planned(&world.device, slots.clone(), threshold, options()).expect("a binding");
    (0..8).for_each(|n| {
        run(&world, &binding, &slots, &homes, n);
    });
    assert_eq!(record_agains(&binding), 1);
    assert!(binding.plan_digest().is_ok());
}

#[test]
fn what_is_patched_is_listed_once_and_again_after_an_abort() {
    let world = World::new();
    let slots = [slot(4096), slot(MIB)];
    let (a, b, large) = (world.home(2 * MIB), world.home(2 * MIB), world.home(2 * MIB));
    let binding = planned(&world, &slots, patching(2));
    for n in 0..6 {
        run(&world, &binding, &slots, &[[&a, &b][n % 2], &large], n as u64);
    }
    assert_eq!(actions(&binding, 2), [Action::PATCH, Action::BAKE]);
    // Recorded anew with the addresses as they are.
    assert_eq!(binding.patches(), Ok(vec![]));
    let patch = |home: &Home| Patch { slot: 0, command: 10, address: home.address() };
    let report = run(&world, &binding, &slots, &[&a, &large], 10);
    assert_eq!((report.patched_commands, report.calls.map, report.calls.copy_launches), (1, 0, 0));
    assert_eq!(binding.patches(), Ok(vec![patch(&a)]));
    assert_eq!(addresses(&binding, 2)[0], a.address());
    assert_eq!(run(&world, &binding, &slots, &[&a, &large], 11).patched_commands, 0);
    assert_eq!(binding.patches(), Ok(vec![]));

    begin(&binding, world.stream, &Given::of(&[&b, &large])).expect("begin");
    binding.abort().expect("abort");
    let report = run(&world, &binding, &slots, &[&b, &large], 12);
    assert_eq!((report.patched_commands, binding.patches()), (1, Ok(vec![patch(&b)])));
    assert_eq!(run(&world, &binding, &slots, &[&b, &large], 13).patched_commands, 0);

    // A begin that fails patches nothing, and what it looked at is forgotten.
    let mut given = Given::of(&[&a, &large]);
    given.buffers[1].0.bytes = ByteSize(1);
    assert_eq!(kind(binding.begin(world.stream, &given, 2)), Kind::InvalidSize);
    assert_eq!(run(&world, &binding, &slots, &[&b, &large], 14).patched_commands, 0);
    assert_eq!(record_agains(&binding), 2);
}

#[test]
fn a_baked_slot_that_moves_gets_an_address_of_ours_once() {
    let world = World::new();
    let slots = [slot(8 * MIB), slot(8 * MIB)];
    let homes: Vec<Home> = (0..4).map(|_| world.home(8 * MIB)).collect();
    let binding = planned(&world, &slots, options());
    (0..6).for_each(|n| {
        run(&world, &binding, &slots, &[&homes[0], &homes[1]], n);
    });
    assert_eq!(actions(&binding, 2), [Action::BAKE; 2]);
    let (digest, before) = (binding.plan_digest().expect("a plan"), record_agains(&binding));
    let exported = binding.export_plan();
    for n in 6..20 {
        run(&world, &binding, &slots, &[&homes[[0, 2, 3][n as usize % 3]], &homes[1]], n);
    }
    assert_eq!(record_agains(&binding), before + 1);
    let after = actions(&binding, 2);
    assert!(after[0] == Action::MAP || after[0] == Action::COPY, "{after:?}");
    assert_eq!((after[1], binding.plan_digest()), (Action::BAKE, Ok(digest)));
    assert_eq!(binding.export_plan(), exported, "what was repaired is not in it");
}

#[test]
fn a_mapped_slot_that_was_to_stay_is_remapped_and_counted() {
    let world = World::new();
    let (slots, homes) = ([slot(8 * MIB)], [world.home(8 * MIB), world.home(8 * MIB)]);
    let plan = exported(&slots, &[Action::MAP]);
    let binding = planned(&world, &slots, options());
    binding.import_plan(&plan).expect("a plan of these slots");
    for n in 0..16 {
        run(&world, &binding, &slots, &[&homes[usize::from(n >= 8)]], n);
    }
    let info = binding.info().expect("info");
    assert_eq!((info.record_agains, info.mapped, info.plan.surprises), (1, 1, 1));
    assert!(!info.plan.replan_advised);
    for n in 16..24 {
        let report = run(&world, &binding, &slots, &[&homes[n % 2]], n as u64);
        assert_eq!(report.replan_advised, n > 16, "step {n}");
    }
    // Asked to, it watches anew, and serves as before meanwhile.
    binding.replan().expect("a planner");
    assert_eq!(kind(binding.export_plan()), Kind::WrongState);
    for n in 0..6 {
        run(&world, &binding, &slots, &[&homes[n % 2]], n as u64);
        assert_eq!(record_agains(&binding), 1 + u64::from(n == 5 && actions(&binding, 1) != [Action::MAP]));
    }
    assert!(!binding.info().expect("info").plan.replan_advised);
}

#[test]
fn a_watched_step_that_fails_is_watched_when_it_is_tried_again() {
    let world = World::new();
    let mixed = Mixed::new(&world, 20);
    let binding = planned(&world, &mixed.slots, options());
    for n in 0..8 {
        if n < 7 {
            world.fault.fail(Some(Call::COPY), 1, 1, INJECTED);
            let failed = begin(&binding, world.stream, &Given::of(&mixed.step(n)));
            assert_eq!(failed.map_err(|e| e.kind), Err(Kind::DriverError));
        }
        run(&world, &binding, &mixed.slots, &mixed.step(n), n as u64 * 100);
        assert_eq!(binding.info().expect("info").plan.digest.is_some(), n >= 5, "step {n}");
    }
    assert_eq!(binding.explain().expect("a plan").1[0].moved, 4);
    assert_eq!(record_agains(&binding), 2);
}

#[test]
fn a_caller_that_does_not_record_again_is_told_again_and_nothing_changes() {
    let world = World::new();
    let mixed = Mixed::new(&world, 20);
    let binding = planned(&world, &mixed.slots, options());
    (0..5).for_each(|n| {
        run(&world, &binding, &mixed.slots, &mixed.step(n), n as u64);
    });
    let given = Given::of(&mixed.step(5));
    let generation = binding.info().expect("info").generation;
    for _ in 0..3 {
        let (outcome, report) = binding.begin(world.stream, &given, generation).expect("begin");
        assert_eq!((outcome, report.generation), (Outcome::RecordAgain, generation + 1));
    }
    run(&world, &binding, &mixed.slots, &mixed.step(5), 500);
    assert_eq!(binding.info().expect("info").generation, generation + 1);
}

#[test]
fn a_slot_that_flips_between_two_sizes_is_laid_out_at_most_once_more() {
    let world = World::new();
    let slots = [slot(2 * MIB)];
    let homes = [world.home(2 * MIB), world.home(6 * MIB)];
    for first in [0, 1] {
        let binding = planned(&world, &slots, options());
        (0..20).for_each(|n| {
            run(&world, &binding, &slots, &[&homes[(n + first) % 2]], n as u64);
        });
        assert!(record_agains(&binding) <= 3, "{}", record_agains(&binding));
        assert_ne!(actions(&binding, 1), [Action::BAKE]);
    }
}

#[test]
fn registered_slots_stay_where_they_are_and_are_recorded_again_when_they_move() {
    let world = World::new();
    let slots = [slot(4096).flags(SlotFlags::REGISTERED); 2];
    let homes: Vec<Home> = (0..3).map(|_| world.home(2 * MIB)).collect();
    let binding = planned(&world, &slots, patching(2));
    (0..8).for_each(|n| {
        run(&world, &binding, &slots, &[&homes[0], &homes[1]], n);
    });
    assert_eq!((actions(&binding, 2), record_agains(&binding)), (vec![Action::BAKE; 2], 1));
    run(&world, &binding, &slots, &[&homes[2], &homes[1]], 9);
    assert_eq!((actions(&binding, 2), record_agains(&binding)), (vec![Action::BAKE; 2], 2));
}

#[test]
fn a_budget_of_nothing_copies_nothing() {
    let world = World::new();
    set_shadow_budget(&world.device, ByteSize::ZERO);
    let mixed = Mixed::new(&world, 20);
    for options in [options(), patching(21)] {
        let patches = options.commands.is_some();
        let binding = planned(&world, &mixed.slots, options);
        (0..8).for_each(|n| {
            run(&world, &binding, &mixed.slots, &mixed.step(n), n as u64 * 100);
        });
        let served = if patches { Action::PATCH } else { Action::MAP };
        assert_eq!(actions(&binding, 21)[..20], [served; 20]);
        assert_eq!(shadow_budget(&world.device).booked, ByteSize::ZERO);
    }
    // A rank that has less than the one that planned is told so, and can do with another plan.
    let plan = exported(&mixed.slots, &[Action::COPY; 21]);
    let binding = planned(&world, &mixed.slots, options());
    binding.import_plan(&plan).expect("a plan of these slots");
    let given = Given::of(&mixed.step(0));
    for _ in 0..2 {
        let failed = binding.begin(world.stream, &given, 0);
        assert_eq!(failed.map_err(|e| e.kind), Err(Kind::OutOfDeviceMemory));
    }
    let other = exported(&mixed.slots, &[Action::MAP; 21]);
    binding.import_plan(&other).expect("a plan of these slots");
    run(&world, &binding, &mixed.slots, &mixed.step(0), 1);
    // Or with one of its own: until that is made, the slots are served as they were.
    binding.import_plan(&plan).expect("a plan of these slots");
    let failed = binding.begin(world.stream, &given, 1);
    assert_eq!(failed.map_err(|e| e.kind), Err(Kind::OutOfDeviceMemory));
    binding.replan().expect("a planner");
    (1..4).for_each(|n| {
        run(&world, &binding, &mixed.slots, &mixed.step(n), n as u64);
    });
    assert_eq!(binding.info().expect("info").generation, 1);
}

#[test]
fn memory_of_any_allocator_is_planned_without_virtual_memory() {
    let world = World::without(&["virtual_memory"]);
    let mixed = Mixed::new(&world, 20);
    let binding = planned(&world, &mixed.slots, options());
    for n in 0..12 {
        run(&world, &binding, &mixed.slots, &mixed.step(n), n as u64 * 100);
    }
    assert_eq!(actions(&binding, 21)[..20], [Action::COPY; 20]);
    // As the default layout has them already.
    assert_eq!(record_agains(&binding), 1);
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    result.expect_err("it is refused").kind
}

#[test]
fn wrong_calls_have_a_status_each_and_change_nothing() {
    let world = World::new();
    let (slots, home) = ([slot(4096)], world.home(2 * MIB));
    let plain = Binding::by_threshold(&world.device, slots.to_vec(), Options::default()).expect("a binding");
    assert_eq!(kind(plain.export_plan()), Kind::WrongState);
    assert_eq!(kind(plain.replan()), Kind::WrongState);
    assert_eq!(kind(plain.explain()), Kind::WrongState);
    let plan = exported(&slots, &[Action::COPY]);
    assert_eq!(kind(plain.import_plan(&plan)), Kind::WrongState);
    assert_eq!(plain.patches(), Ok(vec![]));
    for watched_steps in [1, 10] {
        let options = PlanOptions { watched_steps, ..options() };
        let refused = Binding::planned(&world.device, slots.to_vec(), Options::default(), options);
        assert_eq!(kind(refused), Kind::InvalidArgument);
    }
    let binding = planned(&world, &slots, options());
    assert_eq!(kind(binding.export_plan()), Kind::WrongState);
    assert_eq!(kind(binding.import_plan(b"GVMMPLAN")), Kind::InvalidArgument);
    let other = exported(&[slot(8192)], &[Action::COPY]);
    assert_eq!(kind(binding.import_plan(&other)), Kind::PlanMismatch);
    begin(&binding, world.stream, &Given::of(&[&home])).expect("begin");
    assert_eq!(kind(binding.import_plan(&plan)), Kind::WrongState);
    binding.end().expect("end");
    binding.import_plan(&plan).expect("a plan of these slots");
    assert_eq!(binding.export_plan(), Ok(plan));
    assert_eq!(kind(binding.check_plan(1)), Kind::PlanMismatch);
    assert_eq!(binding.check_plan(binding.plan_digest().expect("a plan")), Ok(()));
    step(&world, &binding, &Given::of(&[&home]), &slots, 1);
}

/// Counts a step of each recorded run from the plan on: what moves is copied together, or mapped where it is large.
#[test]
fn the_recorded_runs_are_served_as_planned() {
    for (name, copied, launches) in
        [("llama_donate", 196, 2), ("llama_donate_all", 20, 2), ("llama_nodonate", 504, 2)]
    {
        let world = World::new();
        let recording = Recording::load(name);
        let binding = planned(&world, &recording.slots, options());
        let mut homes = Homes::new(&world);
        for (n, uses) in recording.steps.iter().enumerate().take(12) {
            let report = begin(&binding, world.stream, &homes.step(uses)).expect("begin");
            let ended = binding.end().expect("end");
            if n < 5 {
                continue;
            }
            let made = report.calls.plus(ended.calls);
            assert_eq!((made.map, made.unmap, made.set_access), (0, 0, 0), "{name}, step {n}");
            assert_eq!(made.copy_launches, launches, "{name}, step {n}");
        }
        let info = binding.info().expect("info");
        assert_eq!((info.copied, info.mapped, info.record_agains), (copied, 0, 2), "{name}");
        world.synchronize();
    }
}
