//! From what was seen of a binding's slots to how each is served, and why. Pure: shapes, churn, profile, rules and
//! budget go in, so that the same figures give the same plan on every rank.

#[cfg(test)]
mod tests;

use super::choice::{Allowed, Candidate, Events, Ledger, Problem, Solution, Ways, solve};
use super::churn::{Churn, Moves};
use super::cost::{Cost, Costs, Rules};
use super::profile::{Picos, Profile};
use super::slot::{Action, Slot, SlotFlags};
use crate::units::{ByteSize, Granularity};

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
    let problem = situation.open_problem();
    let Solution { actions, bound, .. } = solve(&problem);
    let price = situation.price(&problem, &actions);
    SlotPlan { actions, price, bound: mean(bound, &problem) }
}

/// What a step costs by `actions`, one a slot.
pub fn price(situation: &Situation<'_>, actions: &[Action]) -> Price {
    situation.price(&situation.problem(), actions)
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
        Costs::new(self.profile, self.rules)
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

    /// What slot `i` costs by itself in all watched steps.
    fn own(&self, problem: &Problem, i: usize, action: Action) -> Cost {
        let (costs, slot) = (self.costs(), &self.slots[i]);
        let moves = problem.weight(problem.slots[i].moves);
        match action {
            Action::BAKE => Costs::bake().times(moves),
            Action::MAP => costs.remap(self.window(slot)).times(moves),
            Action::COPY => costs.copy(slot).times(u64::from(problem.steps())),
            _ => costs.patch_slot().times(moves),
        }
        .plus(costs.changed().times(moves))
    }

    fn price(&self, problem: &Problem, actions: &[Action]) -> Price {
        let (costs, ledger) = (self.costs(), Ledger::of(problem, actions));
        let (counted, shadows) = (problem.price_with_cache(actions), problem.shadows(actions));
        let (mut step, mut still) = (Cost::default(), Picos::ZERO);
        for (i, &action) in actions.iter().enumerate() {
            // What stays and never moves costs nothing.
            if action != Action::BAKE || problem.slots[i].moves != Moves::NEVER {
                let own = self.own(problem, i, action);
                step = step.plus(own);
                still = if action == Action::MAP { still.plus(own.gpu) } else { still };
            }
        }
        let Events { remaps, patches, commands, singles, copies } = ledger.events();
        let copied = |wanted: bool| {
            let slots = actions.iter().zip(self.slots);
            slots.filter(move |(action, _)| (**action == Action::COPY) == wanted).map(|(_, slot)| slot)
        };
        let bytes: u128 = copied(true).map(|slot| u128::from(slot.bytes.get())).sum();
        // What is copied is where the copy left it, which is in its own cost.
        let is_cold = costs.warm_bytes().is_some_and(|warm| bytes > u128::from(warm));
        let cold = if is_cold { costs.cold(copied(false)) } else { Cost::default() };
        // After a remap too, where it was not before; and the address of what was copied is looked up anew.
        let kept = if is_cold { costs.looked_up(copied(false)) } else { costs.cold(copied(false)) };
        let anew = kept.plus(costs.looked_up(copied(true)));
        let charges = [
            costs.any_step(self.slots.len() as u64).times(u64::from(problem.steps())),
            costs.any_remap().plus(anew).times(remaps),
            costs.any_patch().times(patches),
            costs.patch().times(commands),
            costs.patch_single().times(singles),
            costs.any_copy_in().times(copies[0]),
            costs.any_copy_out().times(copies[1]),
            cold.times(u64::from(problem.steps())),
        ];
        let step = charges.into_iter().fold(step, Cost::plus);
        let still = still.plus(costs.any_remap().gpu.times(remaps));
        let each = |side: Picos| mean(u128::from(side.0), problem);
        Price {
            step: Cost { host: each(step.host), gpu: each(step.gpu) },
            still: each(still),
            counted: mean(counted, problem),
            shadows: ByteSize(u64::try_from(shadows).unwrap_or(u64::MAX)),
        }
    }

    /// What a step costs besides in which anything is remapped: afterwards the device reads everything anew, as it does
    /// where copies have filled its cache. A plan is chosen as if what is copied did so too.
    fn any_remap(&self) -> Cost {
        let costs = self.costs();
        costs.any_remap().plus(costs.cold(self.slots.iter()))
    }

    /// How many bytes of shadows leave the device's cache to the command buffer: what is copied besides, since it brings
    /// its own shadow, is in it too. Any number where there is nothing to lose.
    fn warm(&self) -> u64 {
        let own = self.slots.iter().filter(|slot| slot.brings_shadow());
        let own = own.fold(0u64, |sum, slot| sum.saturating_add(slot.bytes.get()));
        self.costs().warm_bytes().and_then(|warm| warm.checked_sub(own)).unwrap_or(u64::MAX)
    }

    /// The bytes of a slot's window.
    fn window(&self, slot: &Slot) -> ByteSize {
        self.granularity.round_up(slot.bytes).unwrap_or(ByteSize(u64::MAX))
    }

    /// The same as plain numbers.
    pub(super) fn problem(&self) -> Problem {
        self.problem_of(|_| true)
    }

    /// The same for who decides: nobody asks what else could serve a slot that costs nothing as it is.
    fn open_problem(&self) -> Problem {
        self.problem_of(|slot| !Problem::is_settled(slot))
    }

    /// With the costs of those slots that are asked for.
    fn problem_of(&self, is_asked: impl Fn(&Candidate) -> bool) -> Problem {
        let costs = self.costs();
        let weigh = |cost: Cost| costs.weigh(cost);
        let columns = Columns::new(self.churn);
        let mut problem = Problem {
            patch: weigh(costs.patch()),
            patch_single: weigh(costs.patch_single()),
            any_patch: weigh(costs.any_patch()),
            any_remap: weigh(self.any_remap()),
            any_copy: [weigh(costs.any_copy_in()), weigh(costs.any_copy_out())],
            budget: self.budget.get(),
            warm: self.warm(),
            cold: weigh(costs.cold(self.slots.iter())),
            slots: Vec::with_capacity(self.slots.len()),
            ..Problem::default()
        };
        // Small slots have windows of one size.
        let mut remap = (ByteSize::ZERO, costs.remap(ByteSize::ZERO));
        for (i, slot) in self.slots.iter().enumerate() {
            let start = problem.commands.len() as u32;
            problem.commands.extend(self.commands.map(|commands| commands.of(i)).unwrap_or_default());
            let candidate = Candidate {
                moves: columns.of(self.moves(i)),
                allowed: self.allowed(i),
                ways: Ways(u8::from(slot.direction.reads()) | u8::from(slot.direction.writes()) << 1),
                shadow: if slot.brings_shadow() { 0 } else { slot.bytes.get() },
                bake: weigh(Costs::bake()),
                patch: weigh(costs.patch_slot()),
                commands: (start, problem.commands.len() as u32),
                ..Candidate::default()
            };
            if !is_asked(&candidate) {
                problem.slots.push(candidate);
                continue;
            }
            let window = self.window(slot);
            remap = if window == remap.0 { remap } else { (window, costs.remap(window)) };
            let (map, copy) = (weigh(remap.1), weigh(costs.copy(slot)));
            problem.slots.push(Candidate { map, copy, ..candidate });
        }
        number(&mut problem);
        problem.weights = columns.weights;
        problem
    }
}

/// How many commands there are, and the number of each, in order. A table serves as long as it is small.
fn numbered(commands: &[u32]) -> (u32, impl Fn(u32) -> u32 + use<>) {
    let last = commands.iter().copied().max().map_or(0, |last| last as usize + 1);
    let (mut table, mut known) = (Vec::new(), Vec::new());
    if last <= 4 * commands.len() {
        table = vec![0; last];
        commands.iter().for_each(|&command| table[command as usize] = 1);
        let mut sum = 0;
        for number in &mut table {
            (*number, sum) = (sum, sum + *number);
        }
        return (sum, numbers(table, known));
    }
    known.extend_from_slice(commands);
    known.sort_unstable();
    known.dedup();
    table.clear();
    (known.len() as u32, numbers(table, known))
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
