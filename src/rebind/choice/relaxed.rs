//! The cheapest plan where the budget is no matter: exact.

use super::patching::{Patched, Patching, savings};
use super::{Candidate, Case, NEVER, Problem, Ways, Weights};
use crate::rebind::churn::Moves;
use crate::rebind::slot::Action;

/// What is the same for every budget.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) totals: Totals,
    /// None where no slot can be patched.
    pub(super) patching: Option<Patching>,
}

impl Prepared {
    pub(super) fn new(problem: &Problem) -> Self {
        Self { totals: Totals::new(problem), patching: Patching::new(problem) }
    }
}

/// What each slot costs by itself in all watched steps, by action.
#[derive(Clone, Debug)]
pub(super) struct Totals(Vec<Total>);

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
}

impl Totals {
    pub(super) fn new(problem: &Problem) -> Self {
        let weights = Weights::new(problem);
        let total = |slot: &Candidate| Total {
            bake: weights.own(slot, Action::BAKE),
            map: weights.own(slot, Action::MAP),
            copy: weights.own(slot, Action::COPY),
            patch: weights.own(slot, Action::PATCH),
            moves: slot.moves,
            ways: slot.ways,
            may_patch: slot.allowed.has(Action::PATCH),
        };
        Self(problem.slots.iter().map(total).collect())
    }

    /// The same where each shadow of so many bytes costs `rent` besides.
    pub(super) fn with_rent(&self, problem: &Problem, rent: impl Fn(u64) -> u64) -> Self {
        let mut rented = self.clone();
        for (total, slot) in rented.0.iter_mut().zip(&problem.slots) {
            total.copy = total.copy.saturating_add(rent(slot.shadow)).min(NEVER);
        }
        rented
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Total> {
        self.0.iter()
    }

    pub(super) fn get(&self, i: usize) -> &Total {
        &self.0[i]
    }
}

impl Total {
    /// True for a slot that may be copied, and costs something where it is baked.
    pub(super) const fn may_copy(&self) -> bool {
        self.copy < NEVER && self.bake > 0
    }

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
    for total in totals.iter().filter(|total| total.map < NEVER) {
        if !reachable[total.moves.0 as usize] {
            (0..256).rev().filter(|set| reachable[*set]).collect::<Vec<usize>>().into_iter().for_each(
                |set| {
                    reachable[set | total.moves.0 as usize] = true;
                },
            );
        }
    }
    let copies = totals.iter().any(Total::may_copy);
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

/// Sums over all slots that are not settled, of which each costs `otherwise` where it is neither mapped nor copied.
fn sums(totals: &Totals, otherwise: impl Fn(usize, &Total) -> u64) -> Sums {
    let each = totals.iter().enumerate();
    Sums::new(each.map(|(i, total)| (total.moves, total.ways, [otherwise(i, total), total.map, total.copy])))
}

/// The least that a slot costs at its buffer's own address: it may be patched, and share all that it needs.
fn at_least(patching: Option<&Patching>) -> impl Fn(usize, &Total) -> u64 {
    move |i, total| {
        let share = patching.filter(|_| total.may_patch).map(|patching| patching.share(i) + total.patch);
        share.unwrap_or(NEVER).min(total.bake)
    }
}

/// Prices every case at once.
fn price(problem: &Problem, totals: &Totals, patching: Option<&Patching>) -> Vec<Priced> {
    let most = sums(totals, |_, total| total.bake);
    let least = patching.map(|_| sums(totals, at_least(patching)));
    let least = least.as_ref().unwrap_or(&most);
    let priced = |case: Case| {
        let charges = problem.charges(case);
        Priced { case, most: charges + most.of(case), least: charges + least.of(case) }
    };
    cases(totals).into_iter().map(priced).collect()
}

/// No plan costs less, whatever its budget.
pub(super) fn least(problem: &Problem, prepared: &Prepared) -> u128 {
    let least = sums(&prepared.totals, at_least(prepared.patching.as_ref()));
    let cases = cases(&prepared.totals).into_iter();
    cases.map(|case| problem.charges(case) + least.of(case)).min().unwrap_or(0)
}

/// The cheapest plan by these totals, what it costs, and how many plans were made for it.
pub(super) fn cheapest(
    problem: &Problem,
    totals: &Totals,
    patching: Option<&Patching>,
) -> (Vec<Action>, u128, u32) {
    let mut priced = price(problem, totals, patching);
    // The first of equals counts.
    let Some(first) = priced.iter().min_by_key(|priced| priced.most).copied() else {
        return (Vec::new(), 0, 0);
    };
    let mut best = (first.most, first.case, None);
    let Some(patching) = patching else { return (actions(totals, first.case, None), first.most, 1) };
    let mut cores = Cores::new(totals, patching);
    priced.sort_by_key(|priced| priced.least);
    let mut tried = 1;
    for Priced { case, least, .. } in priced {
        if least >= best.0 {
            break;
        }
        let core = cores.of(case.ways);
        let own = Case { remaps: core.remaps, ways: case.ways };
        let cost = core.cost + problem.charges(own);
        if cost < best.0 {
            best = (cost, own, Some(core.patched.clone()));
        }
        if case == own || core.cost + problem.charges(case) >= best.0 {
            continue;
        }
        tried += 1;
        let (core, patched) = decide(totals, patching, case, Some(&core.patched));
        let cost = core + problem.charges(case);
        if cost < best.0 {
            best = (cost, case, Some(patched));
        }
    }
    (actions(totals, best.1, best.2.as_ref()), best.0, tried + cores.found())
}

/// What all slots cost in a case at best, its charges aside, and which slots are patched.
/// `before` were patched in a case that allows all that this one does.
fn decide(totals: &Totals, patching: &Patching, case: Case, before: Option<&Patched>) -> (u128, Patched) {
    let best = |total: &Total| total.best(case).0;
    let patched = patching.choose(savings(totals, best), before);
    let each = totals.iter().zip(&patched.slots);
    let own: u128 =
        each.map(|(total, &patched)| u128::from(if patched { total.patch } else { best(total) })).sum();
    (own + patching.paid(&patched), patched)
}

/// The cheapest plan for any set of copies, with every remap allowed and its charges aside: found once, and no plan of a
/// case costs less. It is a bound that knows how patches are shared.
struct Cores<'a> {
    totals: &'a Totals,
    patching: &'a Patching,
    known: [Option<Core>; 4],
}

/// One of them.
struct Core {
    cost: u128,
    /// The columns in which it remaps.
    remaps: Moves,
    patched: Patched,
}

impl<'a> Cores<'a> {
    const fn new(totals: &'a Totals, patching: &'a Patching) -> Self {
        Self { totals, patching, known: [const { None }; 4] }
    }

    fn of(&mut self, ways: Ways) -> &Core {
        let (totals, patching) = (self.totals, self.patching);
        let [others @ .., all] = &mut self.known;
        let find = |ways, before: Option<&Patched>| {
            let case = Case { remaps: Moves(u8::MAX), ways };
            let (cost, patched) = decide(totals, patching, case, before);
            let others = totals.iter().zip(&patched.slots).filter(|(_, patched)| !**patched);
            let mapped = others.filter(|(total, _)| total.best(case).1 == Action::MAP);
            let mapped = mapped.fold(0, |columns, (total, _)| columns | total.moves.0);
            Core { cost, remaps: Moves(mapped), patched }
        };
        let all = all.get_or_insert_with(|| find(Ways(Ways::ALL), None));
        match others.get_mut(ways.0 as usize) {
            Some(other) => other.get_or_insert_with(|| find(ways, Some(&all.patched))),
            None => all,
        }
    }

    /// How many were found.
    fn found(&self) -> u32 {
        self.known.iter().flatten().count() as u32
    }
}

fn actions(totals: &Totals, case: Case, patched: Option<&Patched>) -> Vec<Action> {
    let action = |(i, total): (usize, &Total)| {
        if patched.is_some_and(|patched| patched.slots[i]) { Action::PATCH } else { total.best(case).1 }
    };
    totals.iter().enumerate().map(action).collect()
}
