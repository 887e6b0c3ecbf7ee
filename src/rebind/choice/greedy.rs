//! A good plan within a budget for many slots, and a bound of what the best could cost.
//!
//! For each setting of the charges the shadows are a knapsack: a slot gains what it costs otherwise less what the copy
//! costs, and weighs its bytes. It is filled by gain a byte and by gain, of which the better saves at least half of what
//! the best could; smallest first, which is never worse than a rule by size; and not at all, which is never worse than
//! mapping or patching all. The best of these is the plan. The bound fills the knapsack by gain a byte and cuts the
//! last slot.

use super::patching::{Patching, savings};
use super::relaxed::{Cores, Priced, Totals, price};
use super::{Case, Ledger, NEVER, Problem, Solution};
use crate::rebind::slot::Action;
use std::cmp::Ordering;

/// A slot that could be copied.
#[derive(Clone, Copy, Debug)]
struct Item {
    slot: u32,
    gain: u64,
    bytes: u64,
}

impl Item {
    /// True for a slot that nothing else can serve.
    const fn must(&self) -> bool {
        self.gain >= NEVER / 2
    }
}

type Order = fn(&Item, &Item) -> Ordering;

const ORDERS: [Option<Order>; 4] =
    [Some(by_density), Some(|a, b| b.gain.cmp(&a.gain)), Some(|a, b| a.bytes.cmp(&b.bytes)), None];

/// Most gain a byte first.
fn by_density(a: &Item, b: &Item) -> Ordering {
    let cross = |gain: u64, bytes: u64| u128::from(gain) * u128::from(bytes);
    cross(b.gain, a.bytes).cmp(&cross(a.gain, b.bytes))
}

/// What every case needs.
struct Search<'a> {
    problem: &'a Problem,
    totals: Totals,
    patching: Option<Patching>,
    /// What it costs to patch a slot that shares nothing.
    alone: Vec<u64>,
    /// The least that it could.
    share: Vec<u64>,
}

pub(super) fn solve(problem: &Problem) -> Solution {
    let search = Search::new(problem);
    let mut priced = price(problem, &search.totals, search.patching.as_ref());
    priced.sort_by_key(|priced| priced.least);
    let mut cores = Cores::new(problem, &search.totals, search.patching.as_ref());
    let mut best: Option<Solution> = None;
    let mut bound = u128::MAX;
    for Priced { case, least, .. } in priced {
        let is_beaten = |least: u128| best.as_ref().is_some_and(|best| best.cost <= least);
        if is_beaten(least) {
            break;
        }
        // Each bound costs more to find than the one before.
        let mut least = least.max(cores.least(case));
        if !is_beaten(least) {
            least = least.max(search.bound(case));
        }
        bound = bound.min(least);
        if is_beaten(least) {
            continue;
        }
        for actions in search.fill(case) {
            let cost = Ledger::price(problem, &actions);
            if best.as_ref().is_none_or(|best| cost < best.cost) {
                best = Some(Solution { actions, cost, bound: 0 });
            }
        }
    }
    let best = best.unwrap_or(Solution { actions: Vec::new(), cost: 0, bound: 0 });
    Solution { bound: bound.min(best.cost), ..best }
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem) -> Self {
        let totals = Totals::new(problem);
        let patching = Patching::new(problem);
        let alone = problem.slots.iter().map(|slot| problem.patch_alone(slot)).collect();
        let share = (0..totals.len()).map(|i| match &patching {
            Some(patching) if totals.may_patch(i) => patching.share(i) + totals.get(i).patch,
            _ => NEVER,
        });
        let share = share.collect();
        Self { problem, totals, patching, alone, share }
    }

    /// The slots that gain by a copy, where one that is patched costs `patched`; and what all would cost without.
    fn items(&self, case: Case, patched: &[u64]) -> (Vec<Item>, u128) {
        let (mut items, mut without) = (Vec::new(), 0);
        for (i, total) in self.totals.iter().enumerate().filter(|(_, total)| !total.settled) {
            let otherwise = total.in_place(case).0.min(patched[i]);
            without += u128::from(otherwise);
            let gain = otherwise.saturating_sub(total.shadow(case));
            if gain > 0 {
                items.push(Item { slot: i as u32, gain, bytes: self.problem.slots[i].shadow });
            }
        }
        (items, without)
    }

    /// No plan of this case costs less.
    fn bound(&self, case: Case) -> u128 {
        let (mut items, without) = self.items(case, &self.share);
        items.sort_unstable_by(|a, b| by_density(a, b).then(a.slot.cmp(&b.slot)));
        let (mut room, mut gained) = (self.problem.budget, 0u128);
        for item in items {
            if item.bytes <= room {
                room -= item.bytes;
                gained += u128::from(item.gain);
            } else {
                // The part that fits, rounded up.
                gained += (u128::from(item.gain) * u128::from(room)).div_ceil(u128::from(item.bytes));
                break;
            }
        }
        self.problem.charges(case) + without.saturating_sub(gained)
    }

    /// The plans of this case, one for each order.
    fn fill(&self, case: Case) -> impl Iterator<Item = Vec<Action>> {
        let (items, _) = self.items(case, &self.alone);
        ORDERS.into_iter().map(move |order| self.plan(case, self.copied(items.clone(), order)))
    }

    /// Which slots are copied if they are taken in this order while there is room; without one, those that must be.
    fn copied(&self, mut items: Vec<Item>, order: Option<Order>) -> Vec<bool> {
        let mut copied = vec![false; self.totals.len()];
        let mut room = self.problem.budget;
        match order {
            Some(order) => items.sort_unstable_by(|a, b| {
                b.must().cmp(&a.must()).then_with(|| order(a, b)).then(a.slot.cmp(&b.slot))
            }),
            None => items.retain(Item::must),
        }
        for item in items {
            if item.bytes <= room {
                room -= item.bytes;
                copied[item.slot as usize] = true;
            }
        }
        copied
    }

    /// The best for the other slots.
    fn plan(&self, case: Case, copied: Vec<bool>) -> Vec<Action> {
        let in_place = |i: usize| if copied[i] { 0 } else { self.totals.get(i).in_place(case).0 };
        let patched =
            self.patching.as_ref().map(|patching| patching.choose(&savings(&self.totals, in_place)));
        let action = |(i, copied): (usize, &bool)| match &patched {
            _ if *copied => Action::COPY,
            Some(patched) if patched[i] => Action::PATCH,
            _ => self.totals.get(i).in_place(case).1,
        };
        copied.iter().enumerate().map(action).collect()
    }
}
