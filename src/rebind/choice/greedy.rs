//! A good plan within a budget for many slots, and a bound of what the best could cost.
//!
//! Each shadow pays a rent by its bytes, and the cheapest plan is found as if there were no budget: patches that slots
//! share are decided exactly then. Whatever the rent, no plan within the budget costs less than that one with the rents,
//! less what the whole budget would pay. Its shadows are fitted to the budget by two greedies, by gain a byte and by gain;
//! a few rents are tried, until plan and bound lie close together. The plan is the better of these and of the
//! rules by size, with all of which it competes, and of baking or patching all.

use super::relaxed::{Prepared, cheapest};
use super::{Candidate, Case, Ledger, NEVER, Problem, Solution, Ways};
use crate::rebind::churn::Moves;
use crate::rebind::slot::Action;
use std::cmp::Ordering;

/// Rents are in parts of a picosecond of 2^-20.
const RENT_BITS: u32 = 20;

/// How many rents are tried.
pub(super) const MOST_RENTS: u32 = 3;

/// Plan and bound are close where they differ by less than such a part of the bound.
const CLOSE: u128 = 200;

/// A slot that could be copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    slot: u32,
    /// What it costs more where it is not copied.
    gain: u64,
    bytes: u64,
}

/// Most gain a byte first.
fn by_density(a: &Item, b: &Item) -> Ordering {
    let cross = |gain: u64, bytes: u64| u128::from(gain) * u128::from(bytes);
    cross(b.gain, a.bytes).cmp(&cross(a.gain, b.bytes)).then(a.slot.cmp(&b.slot))
}

/// Most gain first.
fn by_gain(a: &Item, b: &Item) -> Ordering {
    b.gain.cmp(&a.gain).then(a.slot.cmp(&b.slot))
}

/// The search within one budget.
pub(super) struct Search<'a> {
    pub(super) problem: &'a Problem,
    prepared: &'a Prepared,
    pub(super) budget: u64,
    /// What is copied where there is no budget, or a low rent: most gain a byte first, and most gain first.
    orders: [Vec<Item>; 2],
    best: Solution,
    /// The first rent, and the cheapest plan with it.
    rent: u64,
    first: Vec<Action>,
}

/// What `actions` copy, in both orders.
fn orders(problem: &Problem, actions: &[Action], ledger: &Ledger<'_>) -> [Vec<Item>; 2] {
    let mut items = Vec::new();
    for i in (0..actions.len()).filter(|&i| actions[i] == Action::COPY && problem.slots[i].shadow > 0) {
        let Some((_, otherwise)) = ledger.next_best(i, Action::COPY, 0) else { continue };
        let gain = otherwise.saturating_sub(u128::from(problem.own(&problem.slots[i], Action::COPY)));
        let gain = u64::try_from(gain).unwrap_or(u64::MAX);
        items.push(Item { slot: i as u32, gain, bytes: problem.slots[i].shadow });
    }
    items.sort_unstable_by(by_density);
    let dense = items.clone();
    items.sort_unstable_by(by_gain);
    [dense, items]
}

impl<'a> Search<'a> {
    /// With a first rent, which says whether the budget binds.
    pub(super) fn new(problem: &'a Problem, prepared: &'a Prepared, budget: u64) -> Self {
        let best = Solution { actions: Vec::new(), cost: u128::MAX, bound: 0, tried: 0 };
        let (orders, first) = Default::default();
        let mut search = Self { problem, prepared, budget, orders, best, rent: 0, first };
        // Without patches it is known beforehand who would be copied.
        search.rent = if prepared.patching.is_none() { search.low_rent() } else { 0 };
        search.first = search.rented(search.rent);
        if search.rent > 0 && search.has_room(&search.first) {
            // It is too high, and may not be needed.
            search.rent = 0;
            search.first = search.rented(0);
        }
        search
    }

    /// True where the cheapest plan of all is within the budget.
    pub(super) fn is_free(&self) -> bool {
        self.rent == 0 && self.has_room(&self.first)
    }

    /// No plan costs less.
    pub(super) const fn bound(&self) -> u128 {
        self.best.bound
    }

    /// A plan within the budget.
    pub(super) fn solve(mut self) -> Solution {
        if self.is_free() {
            return Solution { actions: self.first, cost: self.best.bound, ..self.best };
        }
        let actions = std::mem::take(&mut self.first);
        let ledger = Ledger::of(self.problem, &actions);
        self.orders = orders(self.problem, &actions, &ledger);
        self.offer(self.by_rule());
        if self.prepared.patching.is_some() {
            self.offer(self.all_patched());
        }
        self.offer(self.all_still());
        self.fit(&actions, &ledger);
        self.raise(self.rent);
        self.best
    }

    /// Takes a plan that is cheaper than the best so far.
    fn offer(&mut self, actions: Vec<Action>) {
        self.best.tried += 1;
        if !self.problem.slots.iter().zip(&actions).all(|(slot, &action)| slot.allowed.has(action))
            || !self.has_room(&actions)
        {
            return;
        }
        let cost = self.problem.price(&actions);
        if cost < self.best.cost {
            (self.best.actions, self.best.cost) = (actions, cost);
        }
    }

    fn is_close(&self) -> bool {
        self.best.cost - self.best.bound.min(self.best.cost) <= self.best.bound / CLOSE
    }

    fn has_room(&self, actions: &[Action]) -> bool {
        self.problem.shadows(actions) <= u128::from(self.budget)
    }

    /// Tries higher rents than `low`, with which shadows pass the budget, until plan and bound are close.
    fn raise(&mut self, mut low: u64) {
        let first = self.first_rent(self.first_without_room(&mut self.orders[0].clone()));
        let (mut high, mut rent) = (u64::MAX, first.max(low.saturating_add(1)));
        for _ in 1..MOST_RENTS {
            if self.is_close() {
                return;
            }
            let actions = self.rented(rent);
            self.fit(&actions, &Ledger::of(self.problem, &actions));
            (low, high) = if self.has_room(&actions) { (low, rent) } else { (rent, high) };
            rent = if high == u64::MAX { low.saturating_mul(2) } else { low + (high - low) / 2 };
        }
    }

    /// Offers a plan with as many shadows as there is room for, in both orders.
    fn fit(&mut self, actions: &[Action], ledger: &Ledger<'_>) {
        for order in 0..2 {
            self.offer(self.fitted(actions, ledger.clone(), order));
        }
    }

    /// A rent that is too low rather than too high: as if every remap were shared with others, and then some.
    fn low_rent(&self) -> u64 {
        let totals = &self.prepared.totals;
        let all = Case { remaps: Moves(u8::MAX), ways: Ways(Ways::ALL) };
        let mut items = Vec::new();
        for (i, (total, slot)) in totals.iter().zip(&self.problem.slots).enumerate() {
            let otherwise = total.in_place(all).0;
            if slot.shadow > 0 && otherwise > total.copy {
                items.push(Item { slot: i as u32, gain: otherwise - total.copy, bytes: slot.shadow });
            }
        }
        let rent = self.first_rent(self.first_without_room(&mut items));
        rent - rent / 8
    }

    /// Looks, most gain a byte first, for the first that has no room: sorted only as far as needed.
    fn first_without_room<'i>(&self, mut items: &'i mut [Item]) -> Option<&'i Item> {
        let mut room = self.budget;
        while items.len() > 1 {
            let middle = items.len() / 2;
            items.select_nth_unstable_by(middle, by_density);
            let (before, after) = items.split_at_mut(middle);
            match before.iter().try_fold(room, |room, item| room.checked_sub(item.bytes)) {
                Some(left) => (room, items) = (left, after),
                None => items = before,
            }
        }
        items.first().filter(|item| item.bytes > room)
    }

    /// What a byte of this shadow gains; 0 where there is none.
    fn first_rent(&self, item: Option<&Item>) -> u64 {
        let rent = |item: &Item| (u128::from(item.gain) << RENT_BITS) / u128::from(item.bytes);
        item.map_or(0, |item| u64::try_from(rent(item)).unwrap_or(u64::MAX))
    }

    /// The cheapest plan where each shadow pays this rent. It is rounded so that none pays too much, and the budget not too
    /// little: the bound is one.
    fn rented(&mut self, rent: u64) -> Vec<Action> {
        let of = |bytes: u64| (u128::from(rent) * u128::from(bytes)) >> RENT_BITS;
        let of = |bytes: u64| u64::try_from(of(bytes)).unwrap_or(NEVER);
        let totals = self.prepared.totals.with_rent(self.problem, of);
        let (actions, cost, tried) = cheapest(self.problem, &totals, self.prepared.patching.as_ref());
        let whole = (u128::from(rent) * u128::from(self.budget)).div_ceil(1 << RENT_BITS);
        self.best.bound = self.best.bound.max(cost.saturating_sub(whole));
        self.best.tried += tried;
        actions
    }

    /// The plan with as many shadows as there is room for.
    fn fitted(&self, actions: &[Action], mut ledger: Ledger<'_>, order: usize) -> Vec<Action> {
        let (problem, mut actions) = (self.problem, actions.to_vec());
        let mut used = problem.shadows(&actions);
        let budget = u128::from(self.budget);
        let copied = |i: usize, actions: &[Action]| actions[i] == Action::COPY;
        if used > budget {
            // The last first, and before them what is copied for the rent's sake alone.
            let known = self.orders[order].iter().rev().map(|item| item.slot as usize);
            let mut last = vec![true; actions.len()];
            self.orders[order].iter().for_each(|item| last[item.slot as usize] = false);
            let others = (0..actions.len()).filter(|&i| last[i]).collect::<Vec<usize>>();
            for i in others.into_iter().chain(known) {
                if used <= budget {
                    break;
                }
                let bytes = u128::from(problem.slots[i].shadow);
                if bytes == 0 || !copied(i, &actions) {
                    continue;
                }
                ledger.remove(i, Action::COPY);
                actions[i] = ledger.next_best(i, Action::COPY, 0).map_or(Action::COPY, |(action, _)| action);
                ledger.add(i, actions[i]);
                used -= if copied(i, &actions) { 0 } else { bytes };
            }
        }
        for item in &self.orders[order] {
            let (i, bytes) = (item.slot as usize, u128::from(item.bytes));
            if copied(i, &actions) || used + bytes > budget {
                continue;
            }
            ledger.remove(i, actions[i]);
            if ledger.marginal(i, Action::COPY) < ledger.marginal(i, actions[i]) {
                actions[i] = Action::COPY;
                used += bytes;
            }
            ledger.add(i, actions[i]);
        }
        actions
    }

    /// The best rule by size, whatever the size: the smaller slots are copied, and the others mapped where they may be, or
    /// baked; patches aside.
    fn by_rule(&self) -> Vec<Action> {
        let totals = &self.prepared.totals;
        let all = Case { remaps: Moves(u8::MAX), ways: Ways(Ways::ALL) };
        let order = self.by_size();
        // From each slot on: what it costs not to copy, and the columns in which that remaps.
        let mut kept = vec![(0u128, 0u8); order.len() + 1];
        for (n, &i) in order.iter().enumerate().rev() {
            let total = totals.get(i as usize);
            let (cost, action) = total.in_place(all);
            let remaps = if action == Action::MAP { total.moves.0 } else { 0 };
            kept[n] = (kept[n + 1].0 + u128::from(cost), kept[n + 1].1 | remaps);
        }
        let stay = totals.iter().filter(|total| !total.may_copy() && total.in_place(all).1 == Action::MAP);
        let remaps = stay.fold(0, |columns, total| columns | total.moves.0);
        let (mut copied, mut ways, mut room) = (0u128, 0u8, self.budget);
        let mut best = (u128::MAX, 0);
        for (n, (others, columns)) in kept.into_iter().enumerate() {
            let case = Case { remaps: Moves(columns | remaps), ways: Ways(ways) };
            best = best.min((copied + others + self.problem.charges(case), n));
            let Some(&i) = order.get(n) else { break };
            let Some(left) = room.checked_sub(self.problem.slots[i as usize].shadow) else { break };
            let total = totals.get(i as usize);
            (room, copied, ways) = (left, copied + u128::from(total.copy), ways | total.ways.0);
        }
        let mut actions: Vec<Action> = totals.iter().map(|total| total.in_place(all).1).collect();
        order[..best.1].iter().for_each(|&i| actions[i as usize] = Action::COPY);
        actions
    }

    /// Slots that may be copied, the smallest first: before them all those that nothing else can serve.
    fn by_size(&self) -> Vec<u32> {
        let totals = &self.prepared.totals;
        let each = (0..).zip(totals.iter().zip(&self.problem.slots));
        let copied = each.filter(|(_, (total, _))| total.may_copy());
        let mut order: Vec<(u64, u32)> = copied.map(|(i, (_, slot))| (slot.shadow, i)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, i)| i).collect()
    }

    fn all_patched(&self) -> Vec<Action> {
        self.first_of(&[Action::PATCH, Action::MAP, Action::BAKE, Action::COPY])
    }

    fn all_still(&self) -> Vec<Action> {
        self.first_of(&[Action::BAKE, Action::MAP, Action::COPY, Action::PATCH])
    }

    /// For each slot the first of these that it may have.
    fn first_of(&self, actions: &[Action]) -> Vec<Action> {
        let first = |slot: &Candidate| actions.iter().copied().find(|&action| slot.allowed.has(action));
        self.problem.slots.iter().map(|slot| first(slot).unwrap_or(Action::BAKE)).collect()
    }
}
