//! The cheapest plan within a budget for few slots: exact, by sets of slots.

use super::ledger::Ledger;
use super::{NEVER, Problem, Solution};
use crate::rebind::slot::Action;

/// The slots with a choice, as bits of a set; the others' actions are known.
struct Few<'a> {
    problem: &'a Problem,
    /// The slots with a choice.
    slots: Vec<usize>,
    /// With the others in it.
    base: Ledger<'a>,
}

/// What each set of slots costs, and more than any cost where it cannot be.
type Sets = Vec<u128>;

const IMPOSSIBLE: u128 = 1 << 120;

pub(super) fn solve(problem: &Problem, budget: u64) -> Solution {
    let mut actions: Vec<Action> = vec![Action::BAKE; problem.slots.len()];
    let mut few = Few { problem, slots: Vec::new(), base: Ledger::new(problem) };
    for (i, slot) in problem.slots.iter().enumerate() {
        match Problem::forced(slot) {
            Some(action) => {
                actions[i] = action;
                few.base.add(i, action);
            }
            None => few.slots.push(i),
        }
    }
    let room = u128::from(budget).saturating_sub(problem.shadows(&actions));
    few.decide(room, &mut actions);
    let cost = problem.price(&actions);
    Solution { actions, cost, bound: cost, tried: 1 }
}

impl Few<'_> {
    /// Splits the slots into copied, patched, mapped and baked ones.
    fn decide(&self, room: u128, actions: &mut [Action]) {
        let all = (1usize << self.slots.len()) - 1;
        let (copied, patched) = (self.sets(Action::COPY), self.sets(Action::PATCH));
        let kept = self.with_baked(self.sets(Action::MAP));
        // What is not copied: some patched, the others kept.
        let rest = |set: usize| {
            subsets(set).map(|part| (patched[part].saturating_add(kept[set ^ part]), part)).min()
        };
        let plans = (0..=all).filter(|&set| self.shadows(set) <= room).map(|copy| {
            let (cost, patch) = rest(all ^ copy).unwrap_or((IMPOSSIBLE, 0));
            (copied[copy].saturating_add(cost), copy, patch)
        });
        let Some((_, copy, patch)) = plans.min() else { return };
        self.put(copy, Action::COPY, actions);
        self.put(patch, Action::PATCH, actions);
        self.split_kept(all ^ copy ^ patch, actions);
    }

    /// What it costs to serve each set by `action`.
    fn sets(&self, action: Action) -> Sets {
        let mut sets = vec![0; 1 << self.slots.len()];
        self.fill(action, 0, 0, 0, &mut self.base.clone(), &mut sets);
        sets
    }

    /// Every set that has `set` among its first `n` slots, which costs `cost`.
    fn fill(
        &self,
        action: Action,
        n: usize,
        set: usize,
        cost: u128,
        ledger: &mut Ledger<'_>,
        sets: &mut Sets,
    ) {
        let Some(&i) = self.slots.get(n) else {
            sets[set] = cost.min(IMPOSSIBLE);
            return;
        };
        self.fill(action, n + 1, set, cost, ledger, sets);
        if !self.problem.slots[i].allowed.has(action) {
            return self.rule_out(n, set, sets);
        }
        let more = ledger.add(i, action);
        self.fill(action, n + 1, set | 1 << n, cost + more, ledger, sets);
        ledger.remove(i, action);
    }

    /// Every set that has slot `n` and `set` before it.
    fn rule_out(&self, n: usize, set: usize, sets: &mut Sets) {
        let later = self.slots.len() - n - 1;
        for more in 0..1usize << later {
            sets[set | 1 << n | more << (n + 1)] = IMPOSSIBLE;
        }
    }

    /// The cheapest for each set of which some may be baked, which is without charges.
    fn with_baked(&self, mapped: Sets) -> Sets {
        let mut kept = mapped;
        for (n, &i) in self.slots.iter().enumerate() {
            let bake = u128::from(self.problem.own(&self.problem.slots[i], Action::BAKE));
            if bake < u128::from(NEVER) {
                for set in (0..kept.len()).filter(|set| set >> n & 1 == 1) {
                    kept[set] = kept[set].min(kept[set ^ 1 << n].saturating_add(bake));
                }
            }
        }
        kept
    }

    /// Bakes what is cheaper so than mapped.
    fn split_kept(&self, kept: usize, actions: &mut [Action]) {
        let mapped = self.sets(Action::MAP);
        let bake = |set: usize| -> u128 {
            let slots = self.slots.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1);
            slots.map(|(_, &i)| u128::from(self.problem.own(&self.problem.slots[i], Action::BAKE))).sum()
        };
        let plans = subsets(kept).map(|map| (mapped[map].saturating_add(bake(kept ^ map)), map));
        if let Some((_, map)) = plans.min() {
            self.put(map, Action::MAP, actions);
            self.put(kept ^ map, Action::BAKE, actions);
        }
    }

    fn put(&self, set: usize, action: Action, actions: &mut [Action]) {
        for (n, &i) in self.slots.iter().enumerate() {
            if set >> n & 1 == 1 {
                actions[i] = action;
            }
        }
    }

    fn shadows(&self, set: usize) -> u128 {
        let slots = self.slots.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1);
        slots.map(|(_, &i)| u128::from(self.problem.slots[i].shadow)).sum()
    }
}

/// Every part of `set`, the whole first and nothing last.
fn subsets(set: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(set), move |&part| (part != 0).then(|| (part - 1) & set))
}
