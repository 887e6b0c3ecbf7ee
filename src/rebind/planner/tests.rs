//! Plans for slots that are made up.

use super::*;
use crate::rebind::slot::{Direction, MemorySpace};
use crate::units::DevicePtr;

const GRANULE: Granularity = match Granularity::new(2 << 20) {
    Some(granule) => granule,
    None => unreachable!(),
};

/// A plan for slots that moved as `moves` say in 4 steps, all mappable and each with a command of its own.
fn planned(slots: &[Slot], moves: &[u8], change: impl Fn(&mut Situation<'_>)) -> SlotPlan {
    let churn = Churn::new(moves.iter().map(|&m| Moves(m)).collect(), 4);
    let profile = Profile::builtin("h200").expect("built in");
    let mut commands = Commands::default();
    (0..slots.len() as u32).for_each(|i| commands.push([i]));
    let mut situation = Situation {
        slots,
        mappable: &vec![true; slots.len()],
        commands: Some(&commands),
        churn: &churn,
        profile: &profile,
        rules: Rules::default(),
        granularity: GRANULE,
        budget: ByteSize::gib(1),
    };
    change(&mut situation);
    plan(&situation)
}

fn slot(bytes: u64) -> Slot {
    Slot::new(ByteSize(bytes))
}

#[test]
fn what_never_moves_is_baked_and_costs_nothing() {
    let plan = planned(&[slot(4), slot(1 << 30)], &[0, 0], |_| ());
    assert_eq!(plan.actions, [Action::BAKE; 2]);
    // They are looked at.
    let costs = Profile::builtin("h200").expect("built in");
    let host = costs.step.median.plus(costs.slot.median.times(2));
    let step = Cost { host, gpu: Picos::ZERO };
    assert_eq!((plan.price, plan.bound), (Price { step, ..Price::default() }, Picos::ZERO));
}

#[test]
fn one_small_slot_is_patched_and_many_are_copied() {
    assert_eq!(planned(&[slot(64)], &[0xf], |_| ()).actions, [Action::PATCH]);
    assert_eq!(planned(&vec![slot(64); 40], &[0xf; 40], |_| ()).actions, [Action::COPY; 40]);
}

#[test]
fn a_large_one_that_rarely_moves_is_mapped_where_nothing_can_be_patched() {
    let slots = [slot(1 << 30), slot(1 << 30)];
    let plan = planned(&slots, &[0b1000, 0], |s| (s.commands, s.budget) = (None, ByteSize::gib(4)));
    assert_eq!(plan.actions, [Action::MAP, Action::BAKE]);
    // A remap and what it stops, in one step of four; and a slot that changed.
    let profile = Profile::builtin("h200").expect("built in");
    let costs = Costs::new(&profile, Rules::default());
    let remap = costs.remap(ByteSize::gib(1)).plus(costs.any_remap()).plus(costs.changed());
    let expected = remap.plus(costs.any_step(2).times(4));
    assert_eq!(plan.price.step.host, Picos(expected.host.0 / 4));
}

#[test]
fn what_brings_its_shadow_is_copied_though_it_never_moves() {
    let mut own_shadow = slot(64);
    own_shadow.shadow_address = DevicePtr(1 << 20);
    let plan = planned(&[slot(64), own_shadow, slot(64)], &[0, 0, 0], |_| ());
    assert_eq!(plan.actions, [Action::BAKE, Action::COPY, Action::BAKE]);
}

#[test]
fn each_slot_has_only_the_actions_that_it_may_have() {
    let mut own_shadow = slot(64);
    own_shadow.shadow_address = DevicePtr(1 << 20);
    let mut host = slot(64);
    host.space = MemorySpace::HOST;
    let slots = [
        slot(64).flags(SlotFlags::REGISTERED),
        slot(64).flags(SlotFlags::FOREIGN),
        own_shadow,
        host,
        slot(64).direction(Direction::IN),
    ];
    let allowed = |mappable: bool, patches: bool, i: usize| {
        let mut commands = Commands::default();
        slots.iter().for_each(|_| commands.push([7]));
        let churn = Churn::new(vec![Moves(1); slots.len()], 1);
        let profile = Profile::builtin("h200").expect("built in");
        let situation = Situation {
            slots: &slots,
            mappable: &vec![mappable; slots.len()],
            commands: patches.then_some(&commands),
            churn: &churn,
            profile: &profile,
            rules: Rules::default(),
            granularity: GRANULE,
            budget: ByteSize::ZERO,
        };
        let allowed = situation.allowed(i);
        [Action::BAKE, Action::MAP, Action::COPY, Action::PATCH].map(|action| allowed.has(action))
    };
    assert_eq!(allowed(true, true, 0), [true, false, false, false]);
    assert_eq!(allowed(true, true, 1), [true, false, true, true]);
    assert_eq!(allowed(true, true, 2), [false, false, true, false]);
    assert_eq!(allowed(true, true, 3), [true, false, false, true]);
    assert_eq!(allowed(true, true, 4), [true; 4]);
    assert_eq!(allowed(false, true, 4), [true, false, true, true]);
    assert_eq!(allowed(true, false, 4), [true, true, true, false]);
}

#[test]
fn without_a_budget_nothing_of_ours_is_copied() {
    let slots = vec![slot(64); 40];
    let plan = planned(&slots, &[0xf; 40], |s| s.budget = ByteSize::ZERO);
    assert_eq!(plan.actions, [Action::PATCH; 40]);
    let plan = planned(&slots, &[0xf; 40], |s| (s.budget, s.commands) = (ByteSize::ZERO, None));
    assert_eq!(plan.actions, [Action::MAP; 40]);
    let plan =
        planned(&slots, &[0xf; 40], |s| (s.budget, s.commands, s.mappable) = (ByteSize::ZERO, None, &[]));
    assert_eq!(plan.actions, [Action::BAKE; 40]);
}

#[test]
fn steps_in_which_the_same_slots_move_are_one_column() {
    let columns = |moves: &[u8], steps| {
        let columns = Columns::new(&Churn::new(moves.iter().map(|&m| Moves(m)).collect(), steps));
        let moves: Vec<u8> = moves.iter().map(|&m| columns.of(Moves(m)).0).collect();
        (columns.weights, moves)
    };
    assert_eq!(columns(&[0b1111, 0], 4), (vec![4], vec![1, 0]));
    assert_eq!(columns(&[0b0101, 0b1111], 4), (vec![2, 2], vec![0b01, 0b11]));
    assert_eq!(columns(&[0b0001, 0b0100], 4), (vec![1, 2, 1], vec![0b001, 0b100]));
    assert_eq!(columns(&[0], 0), (vec![1], vec![0]));
}

#[test]
fn commands_are_numbered_and_each_counts_once() {
    let mut commands = Commands::default();
    commands.push([9, 3, 9]);
    commands.push([]);
    commands.push([3]);
    assert_eq!((commands.of(0), commands.of(1), commands.of(2)), (&[9, 3, 9][..], &[][..], &[3][..]));
    assert!(commands.of(3).is_empty());
    let mut problem = Problem { commands: vec![9, 3, 9, 3], ..Problem::default() };
    problem.slots =
        [(0, 3), (3, 3), (3, 4)].map(|commands| Candidate { commands, ..Candidate::default() }).to_vec();
    number(&mut problem);
    assert_eq!((problem.commands, problem.command_count), (vec![0, 1, 0], 2));
    assert_eq!(problem.slots.iter().map(|s| s.commands).collect::<Vec<_>>(), [(0, 2), (2, 2), (2, 3)]);
}

/// For an executor that cannot patch, with room for all copies.
fn unpatched<'a>(
    slots: &'a [Slot],
    mappable: &'a [bool],
    churn: &'a Churn,
    profile: &'a Profile,
) -> Situation<'a> {
    let (rules, budget) = (Rules::default(), ByteSize::gib(1));
    Situation { slots, mappable, commands: None, churn, profile, rules, granularity: GRANULE, budget }
}

#[test]
fn a_plan_is_explained() {
    let slots = vec![slot(64); 40];
    let churn = Churn::new(vec![Moves(0xf); 40], 4);
    let profile = Profile::builtin("h200").expect("built in");
    let situation = unpatched(&slots, &[true; 40], &churn, &profile);
    let plan = plan(&situation);
    for explanation in explain(&situation, &plan.actions) {
        assert_eq!((explanation.action, explanation.moved), (Action::COPY, 4));
        let costs = situation.costs();
        let copy = costs.copy(&slots[0]);
        assert_eq!(explanation.cost, copy.host.plus(copy.gpu));
        let (next, cost) = explanation.next.expect("it may be mapped");
        // Of itself and for the wait, on both sides; and afterwards all is read anew.
        let anew = slots.iter().fold(Cost::default(), |sum, slot| sum.plus(costs.anew(slot)));
        let remap = costs.remap(ByteSize::mib(2)).plus(costs.any_remap()).plus(anew);
        assert_eq!((next, cost), (Action::MAP, remap.host.plus(remap.gpu)));
    }
    let without = Situation { budget: ByteSize::ZERO, ..situation };
    for explanation in explain(&without, &[Action::MAP; 40]) {
        assert_eq!(
            explanation.next.map(|(action, _)| action),
            Some(Action::BAKE),
            "there is no room for a copy"
        );
    }
}

/// Copies that push it out of the cache make what is not copied slower.
#[test]
fn a_price_has_what_the_cache_loses() {
    let slots = [slot(4096), slot(1 << 20)];
    let churn = Churn::new(vec![Moves(0xf), Moves::NEVER], 4);
    let priced = |cache_bytes: u64| {
        let profile = Profile { cache_bytes, ..Profile::builtin("h200").expect("built in") };
        let situation = unpatched(&slots, &[true; 2], &churn, &profile);
        let cold = situation.costs().cold(slots[1..].iter()).gpu;
        (price(&situation, &[Action::COPY, Action::BAKE]).step.gpu, cold)
    };
    let ((warm, _), (cold, lost)) = (priced(1 << 30), priced(4096));
    assert!(lost > Picos::ZERO && cold == warm.plus(lost));
}

/// After a remap what was not copied is read anew, and what is copied costs more.
#[test]
fn a_price_has_what_a_remap_makes_cold_and_how_long_the_device_stands_still() {
    let slots = [slot(64 << 10), slot(64 << 10), slot(1 << 30)];
    let churn = Churn::new(vec![Moves(0xf), Moves::NEVER, Moves(0b1000)], 4);
    let priced = |cache_bytes: u64, actions: [Action; 3]| {
        let profile = Profile { cache_bytes, ..Profile::builtin("h200").expect("built in") };
        let situation = unpatched(&slots, &[true; 3], &churn, &profile);
        let costs = situation.costs();
        let still = costs.remap(ByteSize::gib(1)).plus(costs.any_remap()).gpu;
        let more = |slot: &Slot| {
            let (anew, known) = (costs.anew(slot).gpu, costs.cold(std::iter::once(slot)).gpu);
            if cache_bytes == 4096 { anew.less(known) } else { anew }
        };
        let anew = costs.anew_copy(&slots[0]).gpu.plus(more(&slots[1])).plus(more(&slots[2]));
        (price(&situation, &actions), still, anew)
    };
    let others = [Action::COPY, Action::BAKE, Action::BAKE];
    for cache in [1 << 30, 4096] {
        let (with, still, anew) = priced(cache, [Action::COPY, Action::BAKE, Action::MAP]);
        let (without, ..) = priced(cache, others);
        assert_eq!((with.still, without.still), (Picos(still.0 / 4), Picos::ZERO));
        let more = (with.step.gpu.0 - without.step.gpu.0) as i64 - (still.plus(anew).0 / 4) as i64;
        assert!(more.abs() <= 1, "{more} ps");
    }
}

/// The H200's profile with every time replaced: those that are curves, and the others.
fn absurd(curve: &str, time: &str) -> Profile {
    let text = Profile::builtin("h200").expect("built in").to_text();
    let replaced = |line: &str| match line.split_once(" = ") {
        Some((key, value)) if key.ends_with("_us") => {
            format!("{key} = {}", if value.contains(':') { curve } else { time })
        }
        _ => line.to_owned(),
    };
    Profile::parse(&text.lines().map(replaced).collect::<Vec<_>>().join("\n")).expect("a profile")
}

/// Kinds share places of a small table, sizes that lie apart by a power of two too.
#[test]
fn each_slot_costs_what_its_own_kind_costs() {
    let sizes = (1..400).chain((2..40).map(|power| 1 << power));
    let ways = [Direction::IN, Direction::OUT, Direction::IN_OUT];
    let slots: Vec<Slot> = sizes.flat_map(|bytes| ways.map(|way| slot(bytes).direction(way))).collect();
    let churn = Churn::new(vec![Moves::NEVER; slots.len()], 4);
    let profile = Profile::builtin("h200").expect("built in");
    let situation = unpatched(&slots, &[], &churn, &profile);
    let (kinds, costs) = (Kinds::new(&situation), situation.costs());
    for (i, slot) in slots.iter().enumerate().rev() {
        let kind = kinds.get(i);
        assert_eq!(
            (kind.copy, kind.anew_copy, kind.anew),
            (costs.copy(slot), costs.anew_copy(slot), costs.anew(slot))
        );
    }
}

#[test]
fn figures_as_absurd_as_a_file_may_have_them_give_a_plan() {
    // More than are decided exactly.
    const COUNT: usize = 16;
    let slots: Vec<Slot> =
        (0..COUNT).map(|i| slot(if i % 4 == 0 { u64::MAX } else { 64 << (i % 4) })).collect();
    let churn = Churn::new((0..COUNT).map(|i| Moves(i as u8)).collect(), 4);
    for (curve, time) in [
        ("0: 0, 1: 10000000", "10000000"),
        ("0: 10000000, 18446744073709551615: 0", "0"),
        ("18446744073709551615: 10000000", "0"),
        ("0: 0", "0"),
    ] {
        let mut profile = absurd(curve, time);
        for bandwidth in [1_000_000, 1_000_000_000_000_000] {
            profile.bandwidth = bandwidth;
            let mut commands = Commands::default();
            (0..COUNT as u32).for_each(|i| commands.push([i / 2, u32::MAX - i]));
            let situation = Situation {
                commands: Some(&commands),
                budget: ByteSize(u64::MAX),
                ..unpatched(&slots, &[true; COUNT], &churn, &profile)
            };
            let plan = plan(&situation);
            assert!(plan.bound <= plan.price.counted, "{curve}");
            assert_eq!(price(&situation, &plan.actions), plan.price, "{curve}");
            assert_eq!(explain(&situation, &plan.actions).len(), COUNT);
        }
    }
}
