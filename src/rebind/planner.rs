//! From what was seen of a binding's slots to how each is served, and why. Pure: shapes, churn, profile, rules and
//! budget go in, so that the same figures give the same plan on every rank.

mod kinds;
#[cfg(test)]
mod tests;

use super::choice::{Allowed, Candidate, Events, Ledger, Problem, Solution, Ways, Weights, solve};
use super::churn::{Churn, Moves};
use super::cost::{Cost, Costs, Rules};
use super::profile::{Picos, Profile};
use super::slot::{Action, Slot, SlotFlags};
use crate::units::{ByteSize, Granularity};
use kinds::{Kind, Kinds};

/// The commands that use each slot: what must be patched where it is patched. A slot without one is never patched.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Commands {
    ends: Vec<u32>,
    numbers: Vec<u32>,
}

impl Commands {
    /// Those of the next slot, by numbers of the caller's choice.
    pub fn push(&mut self, commands: impl IntoIterator<Item = u32>) {
        self.numbers.extend(commands);
        self.ends.push(u32::try_from(self.numbers.len()).unwrap_or(u32::MAX));
    }

    /// The commands of slot `i`; none for a slot that was not pushed.
    pub fn of(&self, i: usize) -> &[u32] {
        let end = |i: usize| self.ends.get(i).map(|&end| end as usize);
        let start = if i == 0 { Some(0) } else { end(i - 1) };
        start.zip(end(i)).and_then(|(start, end)| self.numbers.get(start..end)).unwrap_or_default()
    }
}

/// All that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The slots.
    pub slots: &'a [Slot],
    /// Which of them have memory that a window of ours could show; one element a slot. On a device without virtual
    /// memory none has.
    pub mappable: &'a [bool],
    /// The commands that use each slot; none where the executor cannot patch.
    pub commands: Option<&'a Commands>,
    /// When each slot moved.
    pub churn: &'a Churn,
    /// What everything costs.
    pub profile: &'a Profile,
    /// How it is done.
    pub rules: Rules,
    /// What windows are multiples of.
    pub granularity: Granularity,
    /// How many bytes of shadows there may be.
    pub budget: ByteSize,
}

/// How each slot is to be served, and what a step then costs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotPlan {
    /// One action a slot.
    pub actions: Vec<Action>,
    /// What a step costs.
    pub price: Price,
    /// No plan within the budget costs less a step. It is the plan's own cost where that is exact: always unless
    /// the budget binds and more than 14 slots have a choice.
    pub bound: Picos,
}

/// What a step costs by a plan: the mean over the watched steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Price {
    /// Host and GPU time that begin, patches and end add to the command buffer alone.
    pub step: Cost,
    /// How much of that GPU time is that the device stands still while the host remaps.
    pub still: Picos,
    /// What counts of it, and is made as small as can be: GPU time, and host time unless it is hidden; without what
    /// any step takes, and changed slots whatever their action.
    pub counted: Picos,
    /// Bytes of shadows.
    pub shadows: ByteSize,
}

/// Why a slot is served as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// How it is served.
    pub action: Action,
    /// What the step would cost less without this slot, charges that only it needs included.
    pub cost: Picos,
    /// The next best action, and what the step would cost more than without this slot; none where there is no other.
    pub next: Option<(Action, Picos)>,
    /// In how many of the watched steps the slot moved.
    pub moved: u32,
}

/// The cheapest plan.
pub fn plan(situation: &Situation<'_>) -> SlotPlan {
    // Nothing is to be decided for a slot that costs nothing as it is.
    let posed =
        situation.posed(|i| situation.moves(i) != Moves::NEVER || !situation.allowed(i).has(Action::BAKE));
    let Solution { actions, cost, bound, .. } = solve(&posed.problem);
    let price = situation.price(&posed, &actions, cost);
    SlotPlan { actions: posed.spread(&actions), price, bound: mean(bound, &posed.problem) }
}

/// What a step costs by `actions`, one a slot.
pub fn price(situation: &Situation<'_>, actions: &[Action]) -> Price {
    let posed = situation.posed(|_| true);
    situation.price(&posed, actions, posed.problem.price_with_cache(actions))
}

/// Why each slot is served as `actions` say.
pub fn explain(situation: &Situation<'_>, actions: &[Action]) -> Vec<Explanation> {
    let problem = situation.problem();
    let mut ledger = Ledger::new(&problem);
    actions.iter().enumerate().for_each(|(i, &action)| {
        ledger.add(i, action);
    });
    let left = u128::from(problem.budget).saturating_sub(problem.shadows(actions));
    let explain_one = |(i, &action): (usize, &Action)| {
        ledger.remove(i, action);
        let own = if action == Action::COPY { problem.slots[i].shadow } else { 0 };
        let next = ledger.next_best(i, action, left + u128::from(own));
        let cost = ledger.add(i, action);
        Explanation {
            action,
            cost: mean(cost, &problem),
            next: next.map(|(action, cost)| (action, mean(cost, &problem))),
            moved: situation.moves(i).count(),
        }
    };
    actions.iter().enumerate().map(explain_one).collect()
}

/// What is to be decided, and what was worked out for it.
struct Posed {
    problem: Problem,
    /// The slots that it is about.
    slots: Vec<u32>,
    kinds: Kinds,
}

impl Posed {
    /// The actions of all slots, from those of the problem's; the others stay where they are.
    fn spread(&self, actions: &[Action]) -> Vec<Action> {
        let mut all: Vec<Action> = vec![Action::BAKE; self.kinds.of.len()];
        self.slots.iter().zip(actions).for_each(|(&i, &action)| all[i as usize] = action);
        all
    }
}

/// A cost of all watched steps as one of each.
fn mean(cost: u128, problem: &Problem) -> Picos {
    Picos(u64::try_from(cost / u128::from(problem.steps().max(1))).unwrap_or(u64::MAX))
}

/// How many steps count: one where none was seen after the first.
const fn steps(churn: &Churn) -> u32 {
    if churn.steps() == 0 { 1 } else { churn.steps() }
}

impl<'a> Situation<'a> {
    const fn costs(&self) -> Costs<'a> {
        Costs::new(self.profile, self.rules).of(self.slots.len() as u64)
    }

    fn moves(&self, i: usize) -> Moves {
        self.churn.moves().get(i).copied().unwrap_or_default()
    }

    /// Which actions may serve a slot.
    pub(super) fn allowed(&self, i: usize) -> Allowed {
        let slot = &self.slots[i];
        let mappable = self.mappable.get(i).is_some_and(|&mappable| mappable);
        let patchable = self.commands.is_some_and(|commands| !commands.of(i).is_empty());
        let registered = slot.flags.has(SlotFlags::REGISTERED);
        Allowed::default()
            .and(Action::BAKE, !slot.brings_shadow())
            .and(Action::MAP, mappable && slot.may_map())
            .and(Action::COPY, slot.brings_shadow() || slot.may_copy())
            .and(Action::PATCH, patchable && !registered && !slot.brings_shadow())
    }

    /// What the problem's slots cost by `actions`, which count as much as `counted` in all watched steps.
    fn price(&self, posed: &Posed, actions: &[Action], counted: u128) -> Price {
        let Posed { problem, slots, kinds } = posed;
        let (costs, steps) = (self.costs(), u64::from(problem.steps()));
        let (mut step, mut still, weights) = (Cost::default(), Picos::ZERO, Weights::new(problem));
        for ((&i, slot), &action) in slots.iter().zip(&problem.slots).zip(actions) {
            // What stays and never moves costs nothing.
            if action != Action::BAKE || slot.moves != Moves::NEVER {
                let (kind, moves) = (kinds.get(i as usize), weights.of(slot.moves));
                let own = match action {
                    Action::BAKE => Costs::bake().times(moves),
                    Action::MAP => kind.remap.times(moves),
                    Action::COPY => kind.copy.times(steps),
                    _ => costs.patch_slot().times(moves),
                };
                step = step.plus(own).plus(costs.changed().times(moves));
                still = if action == Action::MAP { still.plus(own.gpu) } else { still };
            }
        }
        let Events { remaps, patches, commands, singles, copies } = Ledger::of(problem, actions).events();
        let all = &posed.spread(actions);
        let copied = |wanted: bool| (0..all.len()).filter(move |&i| (all[i] == Action::COPY) == wanted);
        let bytes: u128 = copied(true).map(|i| u128::from(self.slots[i].bytes.get())).sum();
        // What is copied is where the copy left it, which is in its own cost.
        let is_cold = costs.warm_bytes().is_some_and(|warm| bytes > u128::from(warm));
        let cold = kinds.sum(copied(false), |kind| kind.cold);
        // After a remap all is read anew, what is cold already as far as that costs more.
        let known = |kind: &Kind| if is_cold { kind.cold.gpu } else { Picos::ZERO };
        let kept =
            kinds.sum(copied(false), |kind| Cost { gpu: kind.anew.gpu.less(known(kind)), ..kind.anew });
        let anew = kept.plus(kinds.sum(copied(true), |kind| kind.anew_copy));
        let charges = [
            costs.any_step(self.slots.len() as u64).times(steps),
            costs.any_remap().plus(anew).times(remaps),
            costs.any_patch().times(patches),
            costs.patch().times(commands),
            costs.patch_single().times(singles),
            costs.any_copy_in().times(copies[0]),
            costs.any_copy_out().times(copies[1]),
            if is_cold { cold.times(steps) } else { Cost::default() },
        ];
        let step = charges.into_iter().fold(step, Cost::plus);
        let still = still.plus(costs.any_remap().gpu.times(remaps));
        let each = |side: Picos| mean(u128::from(side.0), problem);
        let shadows = problem.shadows(actions);
        Price {
            step: Cost { host: each(step.host), gpu: each(step.gpu) },
            still: each(still),
            counted: mean(counted, problem),
            shadows: ByteSize(u64::try_from(shadows).unwrap_or(u64::MAX)),
        }
    }

    /// How many bytes of shadows leave the device's cache to the command buffer: what is copied besides, since it brings
    /// its own shadow, is in it too. Any number where there is nothing to lose.
    fn warm(&self) -> u64 {
        let own = self.slots.iter().filter(|slot| slot.brings_shadow());
        let own = own.fold(0u64, |sum, slot| sum.saturating_add(slot.bytes.get()));
        self.costs().warm_bytes().and_then(|warm| warm.checked_sub(own)).unwrap_or(u64::MAX)
    }

    /// The same as plain numbers.
    pub(super) fn problem(&self) -> Problem {
        self.posed(|_| true).problem
    }

    /// With those slots that are asked for.
    fn posed(&self, is_asked: impl Fn(usize) -> bool) -> Posed {
        let (costs, kinds, columns) = (self.costs(), Kinds::new(self), Columns::new(self.churn));
        let weigh = |cost: Cost| costs.weigh(cost);
        let [cold, anew]: [Cost; 2] =
            [|kind: &Kind| kind.cold, |kind: &Kind| kind.anew].map(|of| kinds.sum(0..self.slots.len(), of));
        let slots: Vec<u32> = (0..self.slots.len() as u32).filter(|&i| is_asked(i as usize)).collect();
        let mut problem = Problem {
            patch: weigh(costs.patch()),
            patch_single: weigh(costs.patch_single()),
            any_patch: weigh(costs.any_patch()),
            // Afterwards the device reads everything anew. A plan is chosen as if nothing were copied.
            any_remap: weigh(costs.any_remap().plus(anew)),
            any_copy: [weigh(costs.any_copy_in()), weigh(costs.any_copy_out())],
            budget: self.budget.get(),
            warm: self.warm(),
            cold: weigh(cold),
            slots: Vec::with_capacity(slots.len()),
            ..Problem::default()
        };
        for i in slots.iter().map(|&i| i as usize) {
            let (slot, kind, start) = (&self.slots[i], kinds.get(i), problem.commands.len() as u32);
            problem.commands.extend(self.commands.map(|commands| commands.of(i)).unwrap_or_default());
            problem.slots.push(Candidate {
                moves: columns.of(self.moves(i)),
                allowed: self.allowed(i),
                ways: Ways(u8::from(slot.direction.reads()) | u8::from(slot.direction.writes()) << 1),
                shadow: if slot.brings_shadow() { 0 } else { slot.bytes.get() },
                bake: weigh(Costs::bake()),
                map: weigh(kind.remap),
                copy: weigh(kind.copy),
                patch: weigh(costs.patch_slot()),
                commands: (start, problem.commands.len() as u32),
            });
        }
        number(&mut problem);
        problem.weights = columns.weights;
        Posed { problem, slots, kinds }
    }
}

/// How many commands there are, and the number of each, in order. A table serves as long as it is small.
fn numbered(commands: &[u32]) -> (u32, impl Fn(u32) -> u32 + use<>) {
    let last = commands.iter().copied().max().map_or(0, |last| last as usize + 1);
    if last <= 4 * commands.len() {
        let mut table = vec![0; last];
        commands.iter().for_each(|&command| table[command as usize] = 1);
        let mut sum = 0;
        for number in &mut table {
            (*number, sum) = (sum, sum + *number);
        }
        return (sum, numbers(table, Vec::new()));
    }
    let mut known = commands.to_vec();
    known.sort_unstable();
    known.dedup();
    (known.len() as u32, numbers(Vec::new(), known))
}

fn numbers(table: Vec<u32>, known: Vec<u32>) -> impl Fn(u32) -> u32 {
    move |command| match table.get(command as usize) {
        Some(&number) => number,
        None => known.partition_point(|&other| other < command) as u32,
    }
}

/// Numbers the commands from 0, and leaves each once a slot.
fn number(problem: &mut Problem) {
    let (known, numbers_of) = numbered(&problem.commands);
    problem.command_count = known;
    let mut numbers: Vec<u32> = Vec::with_capacity(problem.commands.len());
    for slot in &mut problem.slots {
        let own = &problem.commands[slot.commands.0 as usize..slot.commands.1 as usize];
        let start = numbers.len();
        numbers.extend(own.iter().map(|&command| numbers_of(command)));
        numbers[start..].sort_unstable();
        let mut kept = start;
        for at in start..numbers.len() {
            if at == start || numbers[at] != numbers[at - 1] {
                numbers[kept] = numbers[at];
                kept += 1;
            }
        }
        numbers.truncate(kept);
        slot.commands = (start as u32, kept as u32);
    }
    problem.commands = numbers;
}

/// The watched steps, those as one in which the same slots moved.
struct Columns {
    /// The first step of each column.
    first: Vec<u32>,
    weights: Vec<u32>,
}

impl Columns {
    fn new(churn: &Churn) -> Self {
        let steps = steps(churn);
        // Bit `t` of `differs[s]`: some slot moved in one of the steps s and t and not in the other.
        let mut differs = [0u8; 8];
        for moves in churn.moves() {
            for (s, differs) in differs.iter_mut().enumerate().take(steps as usize) {
                *differs |= if moves.0 >> s & 1 == 1 { !moves.0 } else { moves.0 };
            }
        }
        let mut columns = Self { first: Vec::new(), weights: Vec::new() };
        for step in 0..steps {
            let same = columns.first.iter().position(|&first| differs[first as usize] >> step & 1 == 0);
            match same {
                Some(column) => columns.weights[column] += 1,
                None => {
                    columns.first.push(step);
                    columns.weights.push(1);
                }
            }
        }
        columns
    }

    /// The columns in which a slot moves.
    fn of(&self, moves: Moves) -> Moves {
        let columns = self.first.iter().enumerate();
        Moves(columns.fold(0, |bits, (column, &first)| bits | (moves.0 >> first & 1) << column))
    }
}
