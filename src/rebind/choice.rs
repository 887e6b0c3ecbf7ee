//! The cheapest mixture of actions: pure, exact arithmetic, the same on every machine.
//!
//! A step's cost is the sum of what each slot costs by itself and of charges that slots share: a remap in a step, the
//! joint copy in, the joint copy out, a patch in a step, and each patched command in a step. The copies' charges
//! are on or off; those of remaps and patches may be on in some of the watched steps and off in others, and a slot
//! needs them in those steps in which it moves.
//!
//! [`solve`] tries every setting of the copies' and the remaps' charges and solves the rest for each (`relaxed`):
//! each slot takes its cheapest action that the setting allows, and which slots are patched instead is a least
//! cut (`patching`), so slots that share commands are decided together, however many they are. That is exact where the
//! budget of shadows does not bind. Where it does, up to 14 slots with a choice are solved exactly (`small`),
//! more by rents for shadows and two greedies, with a bound of what the best could cost (`greedy`). That copies
//! leave the device's cache to the command buffer is a budget too, or a charge.

mod flow;
mod greedy;
mod ledger;
mod patching;
mod relaxed;
mod small;
#[cfg(test)]
mod tests;

use greedy::Search;
pub(super) use ledger::{Events, Ledger};

use super::churn::{MOST_WATCHED_STEPS, Moves};
use super::slot::Action;

/// More than any sum of one slot's costs: an action that is not to be had.
const NEVER: u64 = 1 << 60;

/// Up to how many slots with a choice a binding budget is solved exactly.
pub(super) const EXACT_SLOTS: usize = 14;

/// The four actions, in the order in which they are preferred at equal cost.
pub(super) const ACTIONS: [Action; 4] = [Action::BAKE, Action::PATCH, Action::MAP, Action::COPY];

/// Which actions may serve a slot, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Allowed(u8);

impl Allowed {
    pub(super) const fn and(self, action: Action, really: bool) -> Self {
        if really { Self(self.0 | 1 << action.0) } else { self }
    }

    pub(super) const fn has(self, action: Action) -> bool {
        self.0 >> action.0 & 1 == 1
    }

    const fn count(self) -> u32 {
        self.0.count_ones()
    }
}

/// Which of the joint copies a slot needs, or which are made: bit 0 in, bit 1 out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ways(pub(super) u8);

impl Ways {
    const ALL: u8 = 0b11;

    const fn within(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }
}

/// One slot, with what its actions cost by themselves in picoseconds (each at most `cost::DEAREST`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Candidate {
    /// In which columns it moves.
    pub(super) moves: Moves,
    pub(super) allowed: Allowed,
    /// Which joint copies it needs if it is copied.
    pub(super) ways: Ways,
    /// Bytes of the budget that its shadow takes.
    pub(super) shadow: u64,
    /// A move of the baked slot.
    pub(super) bake: u64,
    /// A move of the mapped slot.
    pub(super) map: u64,
    /// Each step of the copied slot.
    pub(super) copy: u64,
    /// A move of the patched slot, its commands aside.
    pub(super) patch: u64,
    /// Its commands: a part of [`Problem::commands`].
    pub(super) commands: (u32, u32),
}

/// What is to be decided.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Problem {
    /// How many watched steps each column stands for: steps in which the same slots moved are one column.
    pub(super) weights: Vec<u32>,
    pub(super) slots: Vec<Candidate>,
    /// The slots' commands, numbered from 0, each once a slot.
    pub(super) commands: Vec<u32>,
    /// How many commands there are.
    pub(super) command_count: u32,
    /// A command that is patched in a step, for any number of slots.
    pub(super) patch: u64,
    /// The same for one slot.
    pub(super) patch_single: u64,
    /// What a step costs besides in which anything is patched.
    pub(super) any_patch: u64,
    /// What a step costs besides in which anything is remapped.
    pub(super) any_remap: u64,
    /// The joint copies in and out, each step.
    pub(super) any_copy: [u64; 2],
    /// Bytes of shadows that may be used.
    pub(super) budget: u64,
    /// Bytes of shadows from which on each step pays `cold` besides: its copies push out of the cache what the command
    /// buffer uses.
    pub(super) warm: u64,
    pub(super) cold: u64,
}

/// What was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Solution {
    pub(super) actions: Vec<Action>,
    /// What all watched steps cost, in picoseconds.
    pub(super) cost: u128,
    /// No plan within the budget costs less; the same as `cost` where the solution is exact.
    pub(super) bound: u128,
    /// How many plans were made for it.
    pub(super) tried: u32,
}

/// Which charges are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Case {
    /// The columns in which remaps are paid for.
    remaps: Moves,
    /// The joint copies that are paid for.
    ways: Ways,
}

/// What `action` costs a slot by itself that moves in so many of `steps` watched steps.
const fn own(slot: &Candidate, action: Action, moves: u64, steps: u64) -> u64 {
    match action {
        _ if !slot.allowed.has(action) => NEVER,
        Action::BAKE => slot.bake * moves,
        Action::MAP => slot.map * moves,
        Action::COPY => slot.copy * steps,
        _ => slot.patch * moves,
    }
}

/// The numbers of these columns.
fn columns(moves: Moves) -> impl Iterator<Item = usize> {
    let sets = std::iter::successors(Some(moves.0), |set| Some(set & set.wrapping_sub(1)));
    sets.take_while(|&set| set != 0).map(|set| set.trailing_zeros() as usize)
}

/// How many watched steps each set of columns stands for.
pub(super) struct Weights {
    of: Vec<u64>,
    steps: u64,
}

impl Weights {
    pub(super) fn new(problem: &Problem) -> Self {
        let sets = 1u32 << problem.weights.len();
        let of = (0..sets).map(|set| problem.weight(Moves(set as u8))).collect();
        Self { of, steps: u64::from(problem.steps()) }
    }

    pub(super) fn of(&self, moves: Moves) -> u64 {
        self.of[moves.0 as usize]
    }

    fn own(&self, slot: &Candidate, action: Action) -> u64 {
        own(slot, action, self.of(slot.moves), self.steps)
    }
}

impl Problem {
    /// How many steps were watched.
    pub(super) fn steps(&self) -> u32 {
        self.weights.iter().sum()
    }

    /// How many watched steps these columns stand for.
    pub(super) fn weight(&self, moves: Moves) -> u64 {
        columns(moves).filter_map(|k| self.weights.get(k)).copied().map(u64::from).sum()
    }

    /// What a command costs for each slot that it is patched for, until as a whole it costs less.
    fn patch_one(&self) -> u64 {
        self.patch_single.min(self.patch)
    }

    /// What a command costs that is patched for so many slots.
    fn patched(&self, slots: u32) -> u64 {
        self.patch.min(self.patch_one().saturating_mul(slots.into()))
    }

    fn commands_of(&self, slot: &Candidate) -> &[u32] {
        &self.commands[slot.commands.0 as usize..slot.commands.1 as usize]
    }

    /// What `action` costs a slot by itself in all watched steps.
    fn own(&self, slot: &Candidate, action: Action) -> u64 {
        own(slot, action, self.weight(slot.moves), u64::from(self.steps()))
    }

    /// What the charges of `case` cost in all watched steps.
    fn charges(&self, case: Case) -> u128 {
        let copies = [0, 1].map(|way| if case.ways.0 >> way & 1 == 1 { self.any_copy[way] } else { 0 });
        u128::from(self.any_remap) * u128::from(self.weight(case.remaps))
            + u128::from(copies[0] + copies[1]) * u128::from(self.steps())
    }

    /// What all watched steps of `actions` cost, in picoseconds.
    pub(super) fn price_with_cache(&self, actions: &[Action]) -> u128 {
        let cold = if self.is_cold(actions) { self.cold } else { 0 };
        self.price(actions) + u128::from(cold) * u128::from(self.steps())
    }

    /// The same, the cache aside.
    fn price(&self, actions: &[Action]) -> u128 {
        let width = self.weights.len();
        let mut commands = vec![0u32; self.command_count as usize * width];
        let (mut remaps, mut patches, mut ways, mut own) = (0, 0, 0, 0u128);
        let weights = Weights::new(self);
        for (slot, &action) in self.slots.iter().zip(actions) {
            match action {
                Action::BAKE if slot.moves == Moves::NEVER => continue,
                Action::MAP => remaps |= slot.moves.0,
                Action::COPY => ways |= slot.ways.0,
                Action::PATCH => {
                    patches |= slot.moves.0;
                    for &command in self.commands_of(slot) {
                        columns(slot.moves).for_each(|k| commands[command as usize * width + k] += 1);
                    }
                }
                _ => {}
            }
            own += u128::from(weights.own(slot, action));
        }
        let paid = |(slots, weight): (u32, &u32)| u128::from(self.patched(slots)) * u128::from(*weight);
        let commands: u128 = commands.into_iter().zip(self.weights.iter().cycle()).map(paid).sum();
        let patched = u128::from(self.any_patch) * u128::from(weights.of(Moves(patches)));
        own + commands + patched + self.charges(Case { remaps: Moves(remaps), ways: Ways(ways) })
    }

    /// True for a slot that costs nothing at its buffer's own address, whatever others do.
    pub(super) fn is_settled(slot: &Candidate) -> bool {
        slot.moves == Moves::NEVER && slot.allowed.has(Action::BAKE)
    }

    /// True where the copies of `actions` push out of the cache what the command buffer uses.
    fn is_cold(&self, actions: &[Action]) -> bool {
        self.shadows(actions) > u128::from(self.warm)
    }

    /// The shadows that `actions` need, in bytes.
    pub(super) fn shadows(&self, actions: &[Action]) -> u128 {
        let copied = self.slots.iter().zip(actions).filter(|(_, action)| **action == Action::COPY);
        copied.map(|(slot, _)| u128::from(slot.shadow)).sum()
    }
}

/// The cheapest plan within the budget: the cheapest that leaves the cache to the command buffer, which is a budget too, or
/// the cheapest that does not, which pays for it.
pub(super) fn solve(problem: &Problem) -> Solution {
    debug_assert!(problem.steps() < MOST_WATCHED_STEPS, "no more columns than bits");
    let free = Problem { cold: 0, ..problem.clone() };
    let prepared = relaxed::Prepared::new(&free);
    let warm = Search::new(&free, &prepared, problem.budget.min(problem.warm));
    if warm.is_free() {
        return warm.solve();
    }
    let charge = u128::from(problem.cold) * u128::from(problem.steps());
    let least = relaxed::least(&free, &prepared) + charge;
    let solve_cold = || {
        let mut cold = within(Search::new(&free, &prepared, problem.budget));
        cold.bound += charge;
        cold.cost += if problem.is_cold(&cold.actions) { charge } else { 0 };
        cold
    };
    // The more promising first, which may spare the other.
    let no_less = warm.bound();
    let mut cold = (problem.budget > problem.warm && least < no_less).then(solve_cold);
    if let Some(cold) = cold.take_if(|cold| cold.cost < no_less) {
        return Solution { bound: cold.bound.min(cold.cost), ..cold };
    }
    let warm = within(warm);
    let is_warm = !problem.is_cold(&warm.actions);
    if is_warm && problem.budget <= problem.warm {
        return warm;
    }
    if is_warm && least >= warm.cost {
        return Solution { bound: warm.bound.min(least), ..warm };
    }
    let cold = cold.unwrap_or_else(solve_cold);
    // Some must be copied, however large.
    if !is_warm {
        return cold;
    }
    let (bound, tried) = (cold.bound.min(warm.bound), cold.tried + warm.tried);
    let best = if warm.cost <= cold.cost { warm } else { cold };
    Solution { bound: bound.min(best.cost), tried, ..best }
}

/// What is within the budget of a search: of few slots exactly.
fn within(search: Search<'_>) -> Solution {
    let choices = |slot: &&Candidate| !Problem::is_settled(slot) && slot.allowed.count() > 1;
    let is_few = search.problem.slots.iter().filter(choices).count() <= EXACT_SLOTS;
    if is_few && !search.is_free() { small::solve(search.problem, search.budget) } else { search.solve() }
}
