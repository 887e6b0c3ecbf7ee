//! Bindings with a planner where steps do not begin, are aborted, or find their windows unmapped.

mod rebind_support;

use gvmm::error::Kind;
use gvmm::rebind::profile::Profile;
use gvmm::rebind::{
    Action, Binding, Churn, Commands, Moves, Options, Outcome, PlanOptions, Slot, export_plan,
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
