//! Bindings with a planner where steps do not begin, are aborted, or find their windows unmapped.

mod rebind_support;

use gvmm::error::Kind;
use gvmm::rebind::profile::Profile;
use gvmm::rebind::{
    Action, Binding, Churn, Commands, Moves, Options, Outcome, PlanOptions, Slot, SlotFlags, Threshold,
    export_plan, set_shadow_budget, shadow_budget,
};
use gvmm::units::ByteSize;
use rebind_support::{Given, Home, World, actions, begin};

const MIB: u64 = 1 << 20;

fn planned(world: &World, slots: &[Slot], options: PlanOptions) -> Binding {
    let options = PlanOptions { profile: Profile::builtin("h200"), ..options };
    Binding::planned(&world.device, slots.to_vec(), Options::default(), options).expect("a binding")
}

#[test]
fn a_watched_step_that_is_aborted_and_tried_again_counts_once() {
    let world = World::new();
    let homes: Vec<Home> = (0..3).map(|_| world.home(2 * MIB)).collect();
    let given = |i: usize| Given::of(&[&homes[i]]);
    let options = PlanOptions { watched_steps: 3, ..PlanOptions::default() };
    let binding = planned(&world, &[Slot::new(ByteSize(4096))], options);
    for home in [0, 1] {
        for _ in 0..2 {
            begin(&binding, world.stream, &given(home)).expect("begin");
            binding.abort().expect("abort");
        }
        begin(&binding, world.stream, &given(home)).expect("begin");
        binding.end().expect("end");
        assert_eq!(binding.plan_digest().map_err(|e| e.kind), Err(Kind::WrongState), "fewer than 3 steps");
    }
    begin(&binding, world.stream, &given(2)).expect("begin");
    binding.end().expect("end");
    binding.plan_digest().expect("three steps");
}

#[test]
fn a_begin_with_an_old_generation_lists_no_patches_and_forgets_none() {
    let world = World::new();
    let homes: Vec<Home> = (0..2).map(|_| world.home(2 * MIB)).collect();
    let given = |i: usize| Given::of(&[&homes[i]]);
    let mut commands = Commands::default();
    commands.push([7]);
    let slots = [Slot::new(ByteSize(MIB))];
    let binding = planned(&world, &slots, PlanOptions { commands: Some(commands), ..PlanOptions::default() });
    let never = Churn::new(vec![Moves::NEVER], 4);
    binding.import_plan(&export_plan(&slots, &[Action::PATCH], &never)).expect("imported");
    begin(&binding, world.stream, &given(0)).expect("begin");
    binding.end().expect("end");
    assert_eq!(actions(&binding, 1), [Action::PATCH]);
    let patched = || binding.patches().expect("not busy").len();

    begin(&binding, world.stream, &given(1)).expect("begin");
    assert_eq!(patched(), 1);
    binding.abort().expect("abort");
    let (outcome, _) = binding.begin(world.stream, &given(1), 0).expect("begin");
    assert_eq!((outcome, patched()), (Outcome::RecordAgain, 0));
    begin(&binding, world.stream, &given(1)).expect("begin");
    assert_eq!(patched(), 1, "nobody has patched it yet");
    binding.end().expect("end");
    let (outcome, _) = binding.begin(world.stream, &given(1), 0).expect("begin");
    assert_eq!((outcome, patched()), (Outcome::RecordAgain, 0));
}

#[test]
fn windows_that_were_idle_and_come_back_are_no_surprise() {
    let world = World::new();
    let homes: Vec<Home> = (0..2).map(|_| world.home(2 * MIB)).collect();
    let slots = [Slot::new(ByteSize(2 * MIB))];
    let binding = planned(&world, &slots, PlanOptions::default());
    let never = Churn::new(vec![Moves::NEVER], 4);
    binding.import_plan(&export_plan(&slots, &[Action::MAP], &never)).expect("imported");
    for (home, surprises) in [(0, 0), (0, 0), (1, 1)] {
        begin(&binding, world.stream, &Given::of(&[&homes[home]])).expect("begin");
        binding.end().expect("end");
        assert_eq!(binding.info().expect("info").plan.surprises, surprises);
        world.synchronize();
        assert_eq!(binding.drop_idle(), Ok(1));
    }
}

#[test]
fn what_a_plan_needs_is_kept_for_it_until_it_is_laid_out() {
    let world = World::new();
    let budget = ByteSize(8 * 4096);
    set_shadow_budget(&world.device, budget);
    let homes: Vec<Home> = (0..16).map(|_| world.home(2 * MIB)).collect();
    let given = |n: usize| Given::of(&homes[8 * (n % 2)..][..8].iter().collect::<Vec<_>>());
    let slots = [Slot::new(ByteSize(4096)); 8];
    // Mapped while they are watched, and copied by the plan, since they move each time.
    let options = Options { threshold: Threshold::OFF, ..Options::default() };
    let planning = PlanOptions { profile: Profile::builtin("h200"), ..PlanOptions::default() };
    let binding = Binding::planned(&world.device, slots.to_vec(), options, planning).expect("a binding");
    let booked = || shadow_budget(&world.device).booked;
    let watch = |from: usize| {
        for n in from..from + 5 {
            begin(&binding, world.stream, &given(n)).expect("begin");
            binding.end().expect("end");
        }
    };
    watch(0);
    assert_eq!(booked(), ByteSize::ZERO);
    binding.plan_digest().expect("a plan");
    assert_eq!(booked(), budget);
    binding.replan().expect("given up");
    assert_eq!(booked(), ByteSize::ZERO);
    watch(5);
    binding.plan_digest().expect("a plan");

    let other = world.binding(slots.to_vec(), Threshold(4096));
    begin(&other, world.stream, &given(0)).expect("begin");
    assert_eq!(actions(&other, 8), [Action::MAP; 8], "nothing is left");
    begin(&binding, world.stream, &given(10)).expect("begin");
    binding.end().expect("end");
    assert_eq!((actions(&binding, 8), booked()), (vec![Action::COPY; 8], budget));
    binding.destroy().expect("destroyed");
    assert_eq!(booked(), ByteSize::ZERO);
}

/// What the watched steps have of the budget goes over to the plan.
#[test]
fn a_plan_needs_no_more_than_the_layout_that_it_replaces() {
    let world = World::new();
    let budget = ByteSize(8 * 4096);
    set_shadow_budget(&world.device, budget);
    let homes: Vec<Home> = (0..16).map(|_| world.home(2 * MIB)).collect();
    let slots = [Slot::new(ByteSize(4096)); 8];
    let binding = planned(&world, &slots, PlanOptions::default());
    for n in 0..8 {
        let given = Given::of(&homes[8 * (n % 2)..][..8].iter().collect::<Vec<_>>());
        begin(&binding, world.stream, &given).expect("begin");
        binding.end().expect("end");
        assert_eq!(
            (actions(&binding, 8), shadow_budget(&world.device).booked),
            (vec![Action::COPY; 8], budget)
        );
    }
    assert_eq!((binding.plan_digest().is_ok(), binding.info().expect("info").record_agains), (true, 1));
}

/// Until the new plan is there, the slots are served as they are, also where a layout must be made meanwhile.
#[test]
fn whoever_plans_again_keeps_what_there_is() {
    let world = World::new();
    let homes: Vec<Home> = (0..3).map(|_| world.home(2 * MIB)).collect();
    let slots = [Slot::new(ByteSize(4096)), Slot::new(ByteSize(4096)).flags(SlotFlags::REGISTERED)];
    let off = Options { threshold: Threshold::OFF, ..Options::default() };
    let planning = PlanOptions { profile: Profile::builtin("h200"), ..PlanOptions::default() };
    let binding = Binding::planned(&world.device, slots.to_vec(), off, planning).expect("a binding");
    let wanted = [Action::COPY, Action::BAKE];
    let never = Churn::new(vec![Moves::NEVER; 2], 4);
    binding.import_plan(&export_plan(&slots, &wanted, &never)).expect("imported");
    for (n, registered) in [1, 1, 2, 2].into_iter().enumerate() {
        begin(&binding, world.stream, &Given::of(&[&homes[0], &homes[registered]])).expect("begin");
        binding.end().expect("end");
        assert_eq!(
            (actions(&binding, 2), binding.plan_digest().is_ok()),
            (wanted.to_vec(), n < 1),
            "step {n}"
        );
        if n == 0 {
            binding.replan().expect("a planner");
        }
    }
    assert_eq!(binding.info().expect("info").record_agains, 2);
}

#[test]
fn a_binding_that_is_destroyed_with_its_plan_gives_back_what_was_kept() {
    let world = World::new();
    let homes: Vec<Home> = (0..2).map(|_| world.home(2 * MIB)).collect();
    let options = Options { threshold: Threshold::OFF, ..Options::default() };
    let planning = PlanOptions { profile: Profile::builtin("h200"), ..PlanOptions::default() };
    let slots = vec![Slot::new(ByteSize(4096))];
    let binding = Binding::planned(&world.device, slots, options, planning).expect("a binding");
    for n in 0..5 {
        begin(&binding, world.stream, &Given::of(&[&homes[n % 2]])).expect("begin");
        binding.end().expect("end");
    }
    binding.plan_digest().expect("a plan");
    assert_eq!(shadow_budget(&world.device).booked, ByteSize(4096));
    binding.destroy().expect("destroyed");
    assert_eq!(shadow_budget(&world.device).booked, ByteSize::ZERO);
}
