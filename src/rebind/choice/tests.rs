//! Plans against exhaustive search, and against every pure strategy.

use super::*;
use proptest::prelude::*;

/// A slot as a test makes it up.
#[derive(Clone, Debug)]
struct Made {
    moves: u8,
    allowed: u8,
    ways: u8,
    shadow: u64,
    costs: [u64; 4],
    commands: Vec<u32>,
}

fn made(columns: u32, commands: u32) -> impl Strategy<Value = Made> {
    let allowed = prop_oneof![
        4 => Just(0b1111u8),
        4 => (0u8..16).prop_map(|bits| bits | 1),
        1 => Just(0b0100u8),
        1 => Just(0b0001u8),
    ];
    let costs = [Just(10_000u64).boxed(), (0u64..60).boxed(), (0u64..60).boxed(), (0u64..30).boxed()];
    (0..1u8 << columns, allowed, 1u8..4, 0u64..20, costs, prop::collection::vec(0..commands, 1..3)).prop_map(
        |(moves, allowed, ways, shadow, costs, mut commands)| {
            commands.sort_unstable();
            commands.dedup();
            // A slot that brings its shadow takes nothing of the budget.
            let shadow = if allowed & 1 == 0 { 0 } else { shadow };
            Made { moves, allowed, ways, shadow, costs, commands }
        },
    )
}

fn problem(slots: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Problem> {
    let (columns, commands) = (3u32, 5u32);
    let weights = prop::collection::vec(1u32..3, columns as usize);
    let slots = prop::collection::vec(made(columns, commands), slots);
    let charges =
        [(0u64..80).boxed(), (0u64..80).boxed(), (0u64..120).boxed(), (0u64..80).boxed(), (0u64..80).boxed()];
    let budget = || prop_oneof![Just(0u64), 1u64..60, Just(u64::MAX)];
    let limits = (budget(), budget(), 0u64..200, 0u64..120);
    (weights, slots, charges, limits).prop_map(move |(weights, slots, charges, limits)| {
        let (budget, warm, cold, patch_single) = limits;
        let mut problem =
            Problem { weights, command_count: commands, budget, warm, cold, ..Problem::default() };
        let [patch, any_patch, any_remap, copy_in, copy_out] = charges;
        (problem.patch, problem.any_patch, problem.any_remap) = (patch, any_patch, any_remap);
        problem.any_copy = [copy_in, copy_out];
        problem.patch_single = patch_single;
        for made in slots {
            let start = problem.commands.len() as u32;
            problem.commands.extend(&made.commands);
            let [bake, map, copy, patch] = made.costs;
            problem.slots.push(Candidate {
                moves: Moves(made.moves),
                allowed: Allowed(made.allowed),
                ways: Ways(made.ways),
                shadow: made.shadow,
                bake,
                map,
                copy,
                patch,
                commands: (start, problem.commands.len() as u32),
            });
        }
        problem
    })
}

/// The greedy way, whether or not there is a need.
fn greedy(problem: &Problem) -> Solution {
    Search::new(problem, &relaxed::Prepared::new(problem), problem.budget).solve()
}

/// As many cases as `PROPTEST_CASES` says, and more than usual where it says nothing.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let config = ProptestConfig::default();
    if asked { config } else { ProptestConfig { cases: 400, ..config } }
}

/// What a plan costs, said in another way than the ledger does: step by step, everything that happens in it.
fn cost(problem: &Problem, actions: &[Action]) -> u128 {
    let mut sum = 0u128;
    for (k, &weight) in problem.weights.iter().enumerate() {
        let moved: Vec<usize> =
            (0..actions.len()).filter(|&i| problem.slots[i].moves.0 >> k & 1 == 1).collect();
        let by =
            |action: Action| moved.iter().filter(move |&&i| actions[i] == action).map(|&i| &problem.slots[i]);
        let mut step: u64 = by(Action::BAKE).map(|slot| slot.bake).sum();
        step += by(Action::MAP).map(|slot| slot.map).sum::<u64>();
        step += if by(Action::MAP).next().is_some() { problem.any_remap } else { 0 };
        let mut commands: Vec<u32> =
            by(Action::PATCH).flat_map(|slot| problem.commands_of(slot)).copied().collect();
        commands.sort_unstable();
        let shared = commands.chunk_by(|a, b| a == b);
        step += shared.map(|slots| problem.patch.min(problem.patch_single * slots.len() as u64)).sum::<u64>();
        step += by(Action::PATCH).map(|slot| slot.patch).sum::<u64>();
        step += if by(Action::PATCH).next().is_some() { problem.any_patch } else { 0 };
        let copied = || (0..actions.len()).filter(|&i| actions[i] == Action::COPY).map(|i| &problem.slots[i]);
        step += copied().map(|slot| slot.copy).sum::<u64>();
        for way in 0..2 {
            step += if copied().any(|slot| slot.ways.0 >> way & 1 == 1) { problem.any_copy[way] } else { 0 };
        }
        let shadows: u64 = copied().map(|slot| slot.shadow).sum();
        step += if shadows > problem.warm { problem.cold } else { 0 };
        sum += u128::from(step) * u128::from(weight);
    }
    sum
}

fn is_possible(problem: &Problem, actions: &[Action]) -> bool {
    let allowed = problem.slots.iter().zip(actions).all(|(slot, action)| slot.allowed.has(*action));
    allowed && problem.shadows(actions) <= u128::from(problem.budget)
}

/// The least cost of all plans that are possible, each of which is tried.
fn exhaustive(problem: &Problem) -> u128 {
    let count = problem.slots.len() as u32;
    let plans = (0..4u64.pow(count))
        .map(|code| -> Vec<Action> { (0..count).map(|i| Action((code >> (2 * i) & 3) as u32)).collect() });
    plans
        .filter(|plan| is_possible(problem, plan))
        .map(|plan| cost(problem, &plan))
        .min()
        .expect("baking is possible")
}

/// Every slot by `action` while it may and there is room, smallest first, up to `size`; the others mapped, else baked.
fn pure(problem: &Problem, action: Action, size: u64) -> Vec<Action> {
    let first = |slot: &Candidate, of: &[Action]| of.iter().copied().find(|action| slot.allowed.has(*action));
    let mut order: Vec<usize> = (0..problem.slots.len()).collect();
    order.sort_by_key(|&i| problem.slots[i].shadow);
    let mut room = problem.budget;
    let mut actions = vec![Action::BAKE; problem.slots.len()];
    for i in order {
        let slot = &problem.slots[i];
        let room_for_it = slot.shadow <= room && slot.shadow <= size;
        actions[i] = match first(slot, &[action, Action::MAP, Action::BAKE, Action::COPY]) {
            Some(Action::COPY) if !room_for_it => {
                first(slot, &[Action::MAP, Action::BAKE, Action::PATCH]).expect("not only a copy")
            }
            Some(action) => action,
            None => Action::BAKE,
        };
        room -= if actions[i] == Action::COPY { slot.shadow } else { 0 };
    }
    actions
}

/// Map all, bake all, copy all together, patch all, and XLA's rule with every size.
fn strategies(problem: &Problem) -> Vec<Vec<Action>> {
    let whole = ACTIONS.map(|action| pure(problem, action, u64::MAX));
    let sizes = problem.slots.iter().map(|slot| pure(problem, Action::COPY, slot.shadow));
    whole.into_iter().chain(sizes).filter(|plan| is_possible(problem, plan)).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_plan_is_cheaper(problem in problem(0..6)) {
        let solution = solve(&problem);
        prop_assert!(is_possible(&problem, &solution.actions));
        prop_assert_eq!(solution.cost, cost(&problem, &solution.actions));
        prop_assert_eq!(solution.cost, exhaustive(&problem));
        prop_assert_eq!(solution.bound, solution.cost);
    }

    #[test]
    fn a_greedy_keeps_its_bound_and_the_budget(mut problem in problem(0..6)) {
        problem.cold = 0;
        let greedy = greedy(&problem);
        let best = exhaustive(&problem);
        prop_assert!(is_possible(&problem, &greedy.actions));
        prop_assert_eq!(greedy.cost, cost(&problem, &greedy.actions));
        prop_assert!(greedy.bound <= best && best <= greedy.cost);
    }

    #[test]
    fn sets_of_slots_are_right_whatever_the_budget(mut problem in problem(0..6)) {
        problem.cold = 0;
        let small = small::solve(&problem, problem.budget);
        prop_assert!(is_possible(&problem, &small.actions));
        prop_assert_eq!(small.cost, cost(&problem, &small.actions));
        prop_assert_eq!(small.cost, exhaustive(&problem));
    }

    #[test]
    fn no_pure_strategy_is_cheaper(problem in problem(0..60)) {
        let solution = solve(&problem);
        prop_assert!(is_possible(&problem, &solution.actions));
        prop_assert_eq!(solution.cost, cost(&problem, &solution.actions));
        for plan in strategies(&problem) {
            prop_assert!(solution.cost <= cost(&problem, &plan), "{:?} against {:?}", solution, plan);
        }
    }

    #[test]
    fn many_slots_without_a_binding_budget_are_exact(mut problem in problem(0..40)) {
        // Both ways of solving it, one of which knows nothing of cases, agree.
        problem.slots.truncate(8);
        (problem.budget, problem.warm) = (u64::MAX, u64::MAX);
        prop_assert_eq!(greedy(&problem).cost, small::solve(&problem, problem.budget).cost);
    }

    #[test]
    fn a_slot_costs_what_a_plan_without_it_saves(problem in problem(1..8)) {
        let actions = solve(&problem).actions;
        let mut ledger = Ledger::new(&problem);
        actions.iter().enumerate().for_each(|(i, &action)| {
            ledger.add(i, action);
        });
        for (i, &action) in actions.iter().enumerate() {
            ledger.remove(i, action);
            let room = u128::from(problem.budget) - problem.shadows(&actions)
                + if action == Action::COPY { u128::from(problem.slots[i].shadow) } else { 0 };
            if let Some((other, next)) = ledger.next_best(i, action, room) {
                // The plan is the best, so no single change makes it cheaper.
                prop_assert!(ledger.marginal(i, action) <= next);
                let mut changed = actions.clone();
                changed[i] = other;
                prop_assert_eq!(cost(&problem, &changed) - cost(&problem, &actions), next - ledger.marginal(i, action));
            }
            ledger.add(i, action);
        }
    }
}

#[test]
fn fourteen_slots_are_exact_and_fifteen_are_not() {
    let slot = |n: u64| Candidate {
        moves: Moves(1),
        allowed: Allowed(0b0111),
        ways: Ways(3),
        shadow: 10 + n % 3,
        bake: 1_000_000,
        map: 100 + n * n % 17,
        copy: 1 + n % 2,
        patch: 0,
        commands: (0, 0),
    };
    let problem = |slots: u64| Problem {
        weights: vec![1],
        slots: (0..slots).map(slot).collect(),
        budget: 55,
        any_remap: 5,
        any_copy: [3, 3],
        warm: u64::MAX,
        ..Problem::default()
    };
    let exact = solve(&problem(14));
    assert_eq!(exact.cost, exact.bound);
    assert!(greedy(&problem(14)).cost >= exact.cost);
    let good = solve(&problem(15));
    assert!(good.bound < good.cost && good.cost < good.bound * 2);
}

#[test]
fn nothing_to_decide_costs_nothing() {
    assert_eq!(solve(&Problem::default()), Solution { actions: vec![], cost: 0, bound: 0, tried: 1 });
}

/// Work, not time: what is solved is a case for each set of steps in which slots move together, whatever their number.
#[test]
fn ten_thousand_slots_are_as_many_cases_as_they_have_rhythms() {
    let cases = |moves: &[u8]| {
        let slot = |i: usize| Candidate {
            moves: Moves(moves[i % moves.len()]),
            allowed: Allowed(0b1111),
            bake: 9,
            map: 1,
            copy: 1,
            ..Candidate::default()
        };
        let problem =
            Problem { weights: vec![1; 4], slots: (0..10_000).map(slot).collect(), ..Problem::default() };
        relaxed::cases(&relaxed::Totals::new(&problem)).len()
    };
    assert_eq!(cases(&[0]), 1);
    assert_eq!(cases(&[0, 0b1111]), 2 * 4);
    assert_eq!(cases(&[0, 0b0101, 0b1010]), 4 * 4);
    assert_eq!(cases(&(0..16).collect::<Vec<u8>>()), 16 * 4);
}

/// 10,000 slots of which half move in any of 8 steps, 16 and more a command, with an H200's costs or nearly.
fn ten_thousand(patch: u64, budget: u64) -> Problem {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % end
    };
    let mut problem = Problem {
        weights: vec![1; 8],
        command_count: 626,
        patch,
        patch_single: patch / 2,
        any_patch: 450_000,
        any_remap: 90_000_000,
        any_copy: [5_500_000; 2],
        budget,
        warm: u64::MAX,
        ..Problem::default()
    };
    for i in 0..10_000u64 {
        let (shadow, ways) = (4 << below(27), 1 + below(3) as u8);
        let start = problem.commands.len() as u32;
        problem.commands.extend([(i / 16) as u32, below(626) as u32]);
        let moves = if below(2) == 0 { below(256) as u8 } else { 0 };
        problem.slots.push(Candidate {
            moves: Moves(moves),
            allowed: Allowed(0b1111),
            ways: Ways(ways),
            shadow,
            bake: 100_000_000_000,
            map: 2 * (55_000_000 + shadow / 20),
            copy: u64::from(ways.count_ones()) * (8_000 + shadow / 2),
            patch: 50_000,
            commands: (start, problem.commands.len() as u32),
        });
    }
    problem
}

/// Work, not time: few plans are made, however many settings of the charges there are.
#[test]
fn ten_thousand_slots_that_move_in_any_steps_take_few_plans() {
    if cfg!(miri) {
        return;
    }
    // Each rent is solved by few, and fitted in two orders; the rest are rules.
    let most = 8 + 3 + greedy::MOST_RENTS * (8 + 2);
    for patch in [620_000, 15_000] {
        for budget in [u64::MAX, 64 << 20, 0] {
            let problem = ten_thousand(patch, budget);
            assert_eq!(relaxed::cases(&relaxed::Totals::new(&problem)).len(), 256 * 4);
            let solution = solve(&problem);
            assert!(solution.tried <= most, "{patch}, {budget}: {}", solution.tried);
            assert!(solution.cost <= solution.bound + solution.bound / 50, "{patch}, {budget}: {solution:?}");
        }
    }
}

/// A slot that never moves costs what copying it takes, if it is copied.
#[test]
fn what_stays_is_paid_for_where_it_is_copied() {
    let slot =
        Candidate { allowed: Allowed(0b0101), ways: Ways(1), shadow: 8, copy: 7, ..Candidate::default() };
    let problem = Problem {
        weights: vec![2, 1],
        slots: vec![slot],
        any_copy: [10, 0],
        warm: 7,
        cold: 100,
        ..Problem::default()
    };
    assert_eq!(problem.price_with_cache(&[Action::BAKE]), 0);
    assert_eq!(problem.price_with_cache(&[Action::COPY]), 3 * 117);
}
