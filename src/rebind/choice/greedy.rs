//! A good plan within a budget for many slots, and a bound of what the best could cost.
//!
//! For each setting of the charges the shadows are a knapsack: a slot gains what it costs otherwise less what the copy
//! costs, and weighs its bytes. The settings whose bounds are least, a few, are filled by gain a byte and by gain, of
//! which the better saves at least half of what the best could; those of the pure strategies are filled smallest first,
//! which is never worse than a rule by size, and not at all, which is never worse than mapping or patching all. The best
//! of these is the plan. The bound lets each shadow pay a rent by its bytes and takes back what the whole budget would pay:
//! whatever the rent, no plan within the budget costs less.

use super::patching::{Patching, savings};
use super::relaxed::{Cores, Priced, Totals, price, price_with};
use super::{Case, Ledger, NEVER, Problem, Solution, Ways};
use crate::rebind::churn::Moves;
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

const BY_GAIN: [Option<Order>; 2] = [Some(by_density), Some(|a, b| b.gain.cmp(&a.gain))];
const BY_RULE: [Option<Order>; 2] = [Some(|a, b| a.bytes.cmp(&b.bytes)), None];

/// How many settings are filled by gain, however many there are.
pub(super) const MOST_FILLED: usize = 4;

/// Most gain a byte first.
fn by_density(a: &Item, b: &Item) -> Ordering {
    let cross = |gain: u64, bytes: u64| u128::from(gain) * u128::from(bytes);
    cross(b.gain, a.bytes).cmp(&cross(a.gain, b.bytes))
}

/// Rents are in parts of a picosecond of 2^-20.
const RENT_BITS: u32 = 20;

/// How many rents are tried.
const MOST_RENTS: usize = 4;

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
    let bounded = search.bounded();
    let rules = search.rules();
    let mut cores = Cores::new(problem, &search.totals, search.patching.as_ref());
    let mut best = Solution { actions: Vec::new(), cost: u128::MAX, bound: 0, tried: 0 };
    let (mut bound, mut filled) = (u128::MAX, 0);
    for Priced { case, least, .. } in bounded {
        if best.cost <= least {
            break;
        }
        // It costs more to find than the first one.
        let least = least.max(cores.least(case));
        bound = bound.min(least);
        if best.cost <= least {
            continue;
        }
        let by_gain = if filled < MOST_FILLED { &BY_GAIN[..] } else { &[] };
        let by_rule = if rules.contains(&case) { &BY_RULE[..] } else { &[] };
        filled += 1;
        for actions in search.fill(case, by_gain.iter().chain(by_rule)) {
            let cost = Ledger::price(problem, &actions);
            best.tried += 1;
            if cost < best.cost {
                best = Solution { actions, cost, ..best };
            }
        }
    }
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

    /// The slots that gain by a copy, where one that is patched costs `patched`.
    fn items(&self, case: Case, patched: &[u64]) -> Vec<Item> {
        let mut items = Vec::new();
        for (i, total) in self.totals.iter().enumerate().filter(|(_, total)| !total.settled) {
            let otherwise = total.in_place(case).0.min(patched[i]);
            let gain = otherwise.saturating_sub(total.shadow(case));
            if gain > 0 {
                items.push(Item { slot: i as u32, gain, bytes: self.problem.slots[i].shadow });
            }
        }
        items
    }

    /// Every setting, with what its plans cost at least, the least first. The rent is that of the setting whose plans may be
    /// the cheapest, and again while that becomes another.
    fn bounded(&self) -> Vec<Priced> {
        let mut priced = price(self.problem, &self.totals, self.patching.as_ref());
        let mut rented: Vec<Case> = Vec::new();
        for _ in 0..MOST_RENTS {
            let first = priced.iter().min_by_key(|priced| priced.least).map(|first| first.case);
            let Some(case) = first.filter(|case| !rented.contains(case)) else { break };
            rented.push(case);
            self.let_out(self.rent(case), &mut priced);
        }
        priced.sort_by_key(|priced| priced.least);
        priced
    }

    /// Raises bounds by what shadows at this rent say. It is rounded so that none pays too much, and the budget not too
    /// little.
    fn let_out(&self, rent: u64, priced: &mut [Priced]) {
        let of = |bytes: u64| (u128::from(rent) * u128::from(bytes)) >> RENT_BITS;
        let of = |bytes: u64| u64::try_from(of(bytes)).unwrap_or(NEVER);
        let whole = (u128::from(rent) * u128::from(self.problem.budget)).div_ceil(1 << RENT_BITS);
        let rented = price_with(self.problem, &self.totals, self.patching.as_ref(), of);
        for (priced, rented) in priced.iter_mut().zip(rented) {
            priced.least = priced.least.max(rented.least.saturating_sub(whole));
        }
    }

    /// What a byte of the first shadow that has no room gains in this case: the rent with the highest bound for it.
    fn rent(&self, case: Case) -> u64 {
        let mut items = self.items(case, &self.share);
        items.sort_unstable_by(|a, b| by_density(a, b).then(a.slot.cmp(&b.slot)));
        let mut room = self.problem.budget;
        let last = items.iter().find(|item| match room.checked_sub(item.bytes) {
            Some(left) => {
                room = left;
                false
            }
            None => true,
        });
        let rent = |item: &Item| (u128::from(item.gain) << RENT_BITS) / u128::from(item.bytes.max(1));
        last.map_or(0, |item| u64::try_from(rent(item)).unwrap_or(u64::MAX))
    }

    /// The settings that a rule by size pays for, whatever the size: with it the smaller slots are copied, and the others
    /// mapped where they may be; and those in which nothing is remapped, or only what cannot be patched.
    fn rules(&self) -> Vec<Case> {
        let totals = &self.totals;
        let mut slots: Vec<u32> = (0..totals.len() as u32).collect();
        slots.retain(|&i| !totals.get(i as usize).settled);
        slots.sort_by_key(|&i| self.problem.slots[i as usize].shadow);
        let maps =
            |i: u32| if totals.get(i as usize).map < NEVER { totals.get(i as usize).moves.0 } else { 0 };
        let copies =
            |i: u32| if totals.get(i as usize).copy < NEVER { totals.get(i as usize).ways.0 } else { 0 };
        // From the last slot on: the columns in which those that are not copied are remapped.
        let mut remaps = vec![0; slots.len() + 1];
        for (n, &i) in slots.iter().enumerate().rev() {
            let own = if self.must_copy(i) { 0 } else { maps(i) };
            remaps[n] = remaps[n + 1] | own;
        }
        let must = slots.iter().filter(|&&i| self.must_copy(i)).fold(0, |ways, &i| ways | copies(i));
        // All patched, and those mapped that cannot be.
        let stay = slots.iter().filter(|&&i| !totals.may_patch(i as usize) && !self.must_copy(i));
        let stay = stay.fold(0, |columns, &i| columns | maps(i));
        let mut rules = [0, stay].map(|remaps| Case { remaps: Moves(remaps), ways: Ways(must) }).to_vec();
        let mut ways = must;
        for (n, remaps) in remaps.into_iter().enumerate() {
            let case = Case { remaps: Moves(remaps), ways: Ways(ways) };
            if rules.last() != Some(&case) {
                rules.push(case);
            }
            ways |= slots.get(n).map_or(0, |&i| copies(i));
        }
        rules
    }

    /// True for a slot that nothing else can serve.
    fn must_copy(&self, i: u32) -> bool {
        let slot = &self.problem.slots[i as usize];
        slot.allowed.has(Action::COPY) && slot.allowed.count() == 1
    }

    /// The plans of this case, one for each order.
    fn fill<'o>(
        &self,
        case: Case,
        orders: impl Iterator<Item = &'o Option<Order>>,
    ) -> impl Iterator<Item = Vec<Action>> {
        let items = self.items(case, &self.alone);
        orders.map(move |order| self.plan(case, self.copied(items.clone(), *order)))
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
