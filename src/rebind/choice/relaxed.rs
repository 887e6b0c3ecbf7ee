//! The cheapest plan where the budget is no matter: exact.

use super::patching::{Patching, savings};
use super::{Candidate, Case, Ledger, NEVER, Problem, Solution, Ways};
use crate::rebind::churn::Moves;
use crate::rebind::slot::Action;

/// What each slot costs by itself in all watched steps, by action.
#[derive(Debug)]
pub(super) struct Totals {
    slots: Vec<Total>,
}

/// One slot's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Total {
    pub(super) bake: u64,
    pub(super) map: u64,
    pub(super) copy: u64,
    /// Without its commands.
    pub(super) patch: u64,
    pub(super) moves: Moves,
    pub(super) ways: Ways,
    pub(super) may_patch: bool,
    /// True for a slot that costs nothing baked: there is nothing to decide.
    pub(super) settled: bool,
}

impl Totals {
    pub(super) fn new(problem: &Problem) -> Self {
        let total = |slot: &Candidate| Total {
            bake: problem.own(slot, Action::BAKE),
            map: problem.own(slot, Action::MAP),
            copy: problem.own(slot, Action::COPY),
            patch: problem.own(slot, Action::PATCH),
            moves: slot.moves,
            ways: slot.ways,
            may_patch: slot.allowed.has(Action::PATCH) && !Problem::is_settled(slot),
            settled: Problem::is_settled(slot),
        };
        Self { slots: problem.slots.iter().map(total).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn may_patch(&self, i: usize) -> bool {
        self.slots[i].may_patch
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Total> {
        self.slots.iter()
    }

    pub(super) fn get(&self, i: usize) -> &Total {
        &self.slots[i]
    }
}

impl Total {
    /// The cheapest without a shadow that `case` allows, patching aside.
    pub(super) const fn in_place(&self, case: Case) -> (u64, Action) {
        if self.map < self.bake && self.moves.within(case.remaps) {
            (self.map, Action::MAP)
        } else {
            (self.bake, Action::BAKE)
        }
    }

    /// What a shadow costs where `case` allows one.
    pub(super) const fn shadow(&self, case: Case) -> u64 {
        if self.ways.within(case.ways) { self.copy } else { NEVER }
    }

    /// The cheapest that `case` allows, patching aside.
    pub(super) const fn best(&self, case: Case) -> (u64, Action) {
        let (in_place, shadow) = (self.in_place(case), self.shadow(case));
        if shadow < in_place.0 { (shadow, Action::COPY) } else { in_place }
    }
}

/// Every setting of the charges that could matter: any set of columns in which slots that may be mapped move, and any of
/// the copies.
pub(super) fn cases(totals: &Totals) -> Vec<Case> {
    let mut reachable = vec![false; 256];
    reachable[0] = true;
    for total in totals.iter().filter(|total| !total.settled && total.map < NEVER) {
        if !reachable[total.moves.0 as usize] {
            (0..256).rev().filter(|set| reachable[*set]).collect::<Vec<usize>>().into_iter().for_each(
                |set| {
                    reachable[set | total.moves.0 as usize] = true;
                },
            );
        }
    }
    let copies = totals.iter().any(|total| !total.settled && total.copy < NEVER);
    let ways = if copies { 0..=Ways::ALL } else { 0..=0 };
    let remaps = (0..=u8::MAX).filter(|&set| reachable[set as usize]).map(Moves);
    remaps.flat_map(|remaps| ways.clone().map(move |ways| Case { remaps, ways: Ways(ways) })).collect()
}

/// A case with what its plan costs at most, which is so without patches, and at least.
#[derive(Clone, Copy, Debug)]
pub(super) struct Priced {
    pub(super) case: Case,
    pub(super) most: u128,
    pub(super) least: u128,
}

/// What all slots cost at best, each by itself, by the charges that are paid for: summed once, not for each case.
#[derive(Debug)]
struct Sums {
    /// By the copies that are paid for, without remaps.
    still: [u128; 4],
    /// By those and the columns in which remaps are paid for: what that saves.
    saved: Vec<[u128; 4]>,
}

impl Sums {
    /// Of slots by what they cost otherwise, mapped and copied.
    fn new(slots: impl Iterator<Item = (Moves, Ways, [u64; 3])>) -> Self {
        let mut sums = Self { still: [0; 4], saved: vec![[0; 4]; 256] };
        for (moves, ways, [otherwise, map, copy]) in slots {
            for paid in 0..=Ways::ALL {
                let copied = if ways.within(Ways(paid)) { copy } else { NEVER };
                let still = otherwise.min(copied);
                sums.still[paid as usize] += u128::from(still);
                sums.saved[moves.0 as usize][paid as usize] += u128::from(still - still.min(map));
            }
        }
        // From what slots save that move in just these columns to those that move in some of them.
        for bit in 0..8 {
            for set in (0..256usize).filter(|set| set >> bit & 1 == 1) {
                let less = sums.saved[set ^ 1 << bit];
                sums.saved[set].iter_mut().zip(less).for_each(|(sum, less)| *sum += less);
            }
        }
        sums
    }

    fn of(&self, case: Case) -> u128 {
        let ways = case.ways.0 as usize;
        self.still[ways] - self.saved[case.remaps.0 as usize][ways]
    }
}

/// Prices every case at once.
pub(super) fn price(problem: &Problem, totals: &Totals, patching: Option<&Patching>) -> Vec<Priced> {
    price_with(problem, totals, patching, |_| 0)
}

/// The same where each shadow of so many bytes costs `rent` besides.
pub(super) fn price_with(
    problem: &Problem,
    totals: &Totals,
    patching: Option<&Patching>,
    rent: impl Fn(u64) -> u64,
) -> Vec<Priced> {
    let open = || totals.iter().enumerate().filter(|(_, total)| !total.settled);
    let slot = |(i, total): (usize, &Total), otherwise: u64| {
        let copy = total.copy.saturating_add(rent(problem.slots[i].shadow)).min(NEVER);
        (total.moves, total.ways, [otherwise, total.map, copy])
    };
    let most = Sums::new(open().map(|(i, total)| slot((i, total), total.bake)));
    let share = |i: usize, total: &Total| {
        let share = patching.filter(|_| total.may_patch).map(|patching| patching.share(i) + total.patch);
        share.unwrap_or(NEVER).min(total.bake)
    };
    let least = Sums::new(open().map(|(i, total)| slot((i, total), share(i, total))));
    let priced = |case: Case| {
        let charges = problem.charges(case);
        Priced { case, most: charges + most.of(case), least: charges + least.of(case) }
    };
    cases(totals).into_iter().map(priced).collect()
}

pub(super) fn solve(problem: &Problem) -> Solution {
    let totals = Totals::new(problem);
    let patching = Patching::new(problem);
    let mut priced = price(problem, &totals, patching.as_ref());
    // The first of equals counts.
    let Some(first) = priced.iter().min_by_key(|priced| priced.most).copied() else {
        return Solution { actions: Vec::new(), cost: 0, bound: 0, tried: 0 };
    };
    let mut best = (first.most, first.case, None);
    let Some(patching) = &patching else { return solution(problem, actions(&totals, first.case, None), 1) };
    let mut cores = Cores::new(problem, &totals, Some(patching));
    priced.sort_by_key(|priced| priced.least);
    let mut tried = 1;
    for Priced { case, least, .. } in priced {
        if least >= best.0 {
            break;
        }
        let core = cores.of(patching, case.ways);
        let own = Case { remaps: core.remaps, ways: case.ways };
        let cost = core.cost + problem.charges(own);
        if cost < best.0 {
            best = (cost, own, Some(core.patched.clone()));
        }
        if case == own || core.cost + problem.charges(case) >= best.0 {
            continue;
        }
        tried += 1;
        let (core, patched) = decide(&totals, patching, case);
        let cost = core + problem.charges(case);
        if cost < best.0 {
            best = (cost, case, Some(patched));
        }
    }
    solution(problem, actions(&totals, best.1, best.2.as_deref()), tried + cores.found())
}

/// What all slots cost in a case at best, its charges aside, and which slots are patched.
fn decide(totals: &Totals, patching: &Patching, case: Case) -> (u128, Vec<bool>) {
    let best = |i: usize| totals.get(i).best(case).0;
    let patched = patching.choose(&savings(totals, best));
    let open = totals.iter().zip(&patched).enumerate().filter(|(_, (total, _))| !total.settled);
    let own = open.map(|(i, (total, &patched))| if patched { total.patch } else { best(i) });
    let own: u128 = own.map(u128::from).sum();
    (own + patching.paid(&patched), patched)
}

/// The cheapest plan for any set of copies, with every remap allowed and its charges aside: found once, and no plan of a
/// case costs less, whatever its budget. It is a bound that knows how patches are shared.
pub(super) struct Cores<'a> {
    problem: &'a Problem,
    totals: &'a Totals,
    patching: Option<&'a Patching>,
    known: [Option<Core>; 4],
}

/// One of them.
struct Core {
    cost: u128,
    /// The columns in which it remaps.
    remaps: Moves,
    patched: Vec<bool>,
}

impl<'a> Cores<'a> {
    pub(super) const fn new(
        problem: &'a Problem,
        totals: &'a Totals,
        patching: Option<&'a Patching>,
    ) -> Self {
        Self { problem, totals, patching, known: [const { None }; 4] }
    }

    /// No plan of this case costs less, whatever its budget.
    pub(super) fn least(&mut self, case: Case) -> u128 {
        let Some(patching) = self.patching else { return 0 };
        self.of(patching, case.ways).cost + self.problem.charges(case)
    }

    fn of(&mut self, patching: &Patching, ways: Ways) -> &Core {
        let totals = self.totals;
        self.known[ways.0 as usize].get_or_insert_with(|| {
            let case = Case { remaps: Moves(u8::MAX), ways };
            let (cost, patched) = decide(totals, patching, case);
            let mapped = totals
                .iter()
                .zip(&patched)
                .filter(|(total, patched)| !total.settled && !**patched && total.best(case).1 == Action::MAP);
            let remaps = Moves(mapped.fold(0, |columns, (total, _)| columns | total.moves.0));
            Core { cost, remaps, patched }
        })
    }

    /// How many were found.
    fn found(&self) -> u32 {
        self.known.iter().flatten().count() as u32
    }
}

fn actions(totals: &Totals, case: Case, patched: Option<&[bool]>) -> Vec<Action> {
    let action = |(i, total): (usize, &Total)| match patched {
        _ if total.settled => Action::BAKE,
        Some(patched) if patched[i] => Action::PATCH,
        _ => total.best(case).1,
    };
    totals.iter().enumerate().map(action).collect()
}

fn solution(problem: &Problem, actions: Vec<Action>, tried: u32) -> Solution {
    let cost = Ledger::price(problem, &actions);
    Solution { actions, cost, bound: cost, tried }
}
