//! From what was seen of a binding's slots to how each is served, and why. Pure: shapes, churn, profile, rules and
//! budget go in, so that the same figures give the same plan on every rank.

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
    /// Host and GPU time that begin and end add, what each changed slot takes included.
    pub step: Cost,
    /// What counts of it, and is made as small as can be: GPU time, and host time unless it is hidden; without what
    /// changed slots take whatever their action.
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
    let problem = situation.problem();
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
            _ => Cost::default(),
        }
        .plus(costs.changed().times(moves))
    }

    fn price(&self, problem: &Problem, actions: &[Action]) -> Price {
        let (costs, mut ledger) = (self.costs(), Ledger::new(problem));
        let (mut counted, mut step, mut shadows) = (0u128, Cost::default(), 0u128);
        for (i, &action) in actions.iter().enumerate() {
            counted += ledger.add(i, action);
            step = step.plus(self.own(problem, i, action));
            shadows += if action == Action::COPY { u128::from(problem.slots[i].shadow) } else { 0 };
        }
        let Events { remaps, patches, commands, copies } = ledger.events();
        let charges = [
            costs.any_remap().times(remaps),
            costs.any_patch().times(patches),
            costs.patch().times(commands),
            costs.any_copy_in().times(copies[0]),
            costs.any_copy_out().times(copies[1]),
        ];
        let step = charges.into_iter().fold(step, Cost::plus);
        let each = |side: Picos| mean(u128::from(side.0), problem);
        Price {
            step: Cost { host: each(step.host), gpu: each(step.gpu) },
            counted: mean(counted, problem),
            shadows: ByteSize(u64::try_from(shadows).unwrap_or(u64::MAX)),
        }
    }

    /// The bytes of a slot's window.
    fn window(&self, slot: &Slot) -> ByteSize {
        self.granularity.round_up(slot.bytes).unwrap_or(ByteSize(u64::MAX))
    }

    /// The same as plain numbers.
    pub(super) fn problem(&self) -> Problem {
        let costs = self.costs();
        let weigh = |cost: Cost| costs.weigh(cost);
        let columns = Columns::new(self.churn);
        let mut problem = Problem {
            patch: weigh(costs.patch()),
            any_patch: weigh(costs.any_patch()),
            any_remap: weigh(costs.any_remap()),
            any_copy: [weigh(costs.any_copy_in()), weigh(costs.any_copy_out())],
            budget: self.budget.get(),
            slots: Vec::with_capacity(self.slots.len()),
            ..Problem::default()
        };
        for (i, slot) in self.slots.iter().enumerate() {
            let start = problem.commands.len() as u32;
            problem.commands.extend(self.commands.map(|commands| commands.of(i)).unwrap_or_default());
            problem.slots.push(Candidate {
                moves: columns.of(self.moves(i)),
                allowed: self.allowed(i),
                ways: Ways(u8::from(slot.direction.reads()) | u8::from(slot.direction.writes()) << 1),
                shadow: if slot.brings_shadow() { 0 } else { slot.bytes.get() },
                bake: weigh(Costs::bake()),
                map: weigh(costs.remap(self.window(slot))),
                copy: weigh(costs.copy(slot)),
                commands: (start, problem.commands.len() as u32),
            });
        }
        number(&mut problem);
        problem.weights = columns.weights;
        problem
    }
}

/// Numbers the commands from 0, and leaves each once a slot.
fn number(problem: &mut Problem) {
    let mut known = problem.commands.clone();
    known.sort_unstable();
    known.dedup();
    problem.command_count = known.len() as u32;
    let mut numbers: Vec<u32> = Vec::with_capacity(problem.commands.len());
    for slot in &mut problem.slots {
        let own = &problem.commands[slot.commands.0 as usize..slot.commands.1 as usize];
        let start = numbers.len();
        numbers.extend(own.iter().map(|command| known.partition_point(|other| other < command) as u32));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rebind::slot::{Direction, MemorySpace};
    use crate::units::DevicePtr;

    const GRANULE: Granularity = match Granularity::new(2 << 20) {
        Some(granule) => granule,
        None => unreachable!(),
    };

    /// A plan for slots that moved as `moves` say in 4 steps, all mappable and each with a command of its own.
    fn planned(slots: &[Slot], moves: &[u8], change: impl Fn(&mut Situation<'_>)) -> SlotPlan {
        let churn = Churn::new(moves.iter().map(|&m| Moves(m)).collect(), 4);
        let profile = Profile::builtin("h200").expect("built in");
        let mut commands = Commands::default();
        (0..slots.len() as u32).for_each(|i| commands.push([i]));
        let mut situation = Situation {
            slots,
            mappable: &vec![true; slots.len()],
            commands: Some(&commands),
            churn: &churn,
            profile: &profile,
            rules: Rules::default(),
            granularity: GRANULE,
            budget: ByteSize::gib(1),
        };
        change(&mut situation);
        plan(&situation)
    }

    fn slot(bytes: u64) -> Slot {
        Slot::new(ByteSize(bytes))
    }

    #[test]
    fn what_never_moves_is_baked_and_costs_nothing() {
        let plan = planned(&[slot(4), slot(1 << 30)], &[0, 0], |_| ());
        assert_eq!(plan.actions, [Action::BAKE; 2]);
        assert_eq!((plan.price, plan.bound), (Price::default(), Picos::ZERO));
    }

    #[test]
    fn one_small_slot_is_patched_and_many_are_copied() {
        assert_eq!(planned(&[slot(64)], &[0xf], |_| ()).actions, [Action::PATCH]);
        assert_eq!(planned(&vec![slot(64); 40], &[0xf; 40], |_| ()).actions, [Action::COPY; 40]);
    }

    #[test]
    fn a_large_one_that_rarely_moves_is_mapped_where_nothing_can_be_patched() {
        let slots = [slot(1 << 30), slot(1 << 30)];
        let plan = planned(&slots, &[0b1000, 0], |s| (s.commands, s.budget) = (None, ByteSize::gib(4)));
        assert_eq!(plan.actions, [Action::MAP, Action::BAKE]);
        // 36, 1.15 and 77 µs for the remap and 85 for what it stops, in one step of four; and a slot that changed.
        assert_eq!(plan.price.step.host, Picos((114_150_000 + 85_000_000) / 4 + 48_000 / 4));
    }

    #[test]
    fn each_slot_has_only_the_actions_that_it_may_have() {
        let mut own_shadow = slot(64);
        own_shadow.shadow_address = DevicePtr(1 << 20);
        let mut host = slot(64);
        host.space = MemorySpace::HOST;
        let slots = [
            slot(64).flags(SlotFlags::REGISTERED),
            slot(64).flags(SlotFlags::FOREIGN),
            own_shadow,
            host,
            slot(64).direction(Direction::IN),
        ];
        let allowed = |mappable: bool, patches: bool, i: usize| {
            let mut commands = Commands::default();
            slots.iter().for_each(|_| commands.push([7]));
            let churn = Churn::new(vec![Moves(1); slots.len()], 1);
            let profile = Profile::builtin("h200").expect("built in");
            let situation = Situation {
                slots: &slots,
                mappable: &vec![mappable; slots.len()],
                commands: patches.then_some(&commands),
                churn: &churn,
                profile: &profile,
                rules: Rules::default(),
                granularity: GRANULE,
                budget: ByteSize::ZERO,
            };
            let allowed = situation.allowed(i);
            [Action::BAKE, Action::MAP, Action::COPY, Action::PATCH].map(|action| allowed.has(action))
        };
        assert_eq!(allowed(true, true, 0), [true, false, false, false]);
        assert_eq!(allowed(true, true, 1), [true, false, true, true]);
        assert_eq!(allowed(true, true, 2), [false, false, true, false]);
        assert_eq!(allowed(true, true, 3), [true, false, false, true]);
        assert_eq!(allowed(true, true, 4), [true; 4]);
        assert_eq!(allowed(false, true, 4), [true, false, true, true]);
        assert_eq!(allowed(true, false, 4), [true, true, true, false]);
    }

    #[test]
    fn without_a_budget_nothing_of_ours_is_copied() {
        let slots = vec![slot(64); 40];
        let plan = planned(&slots, &[0xf; 40], |s| s.budget = ByteSize::ZERO);
        assert_eq!(plan.actions, [Action::PATCH; 40]);
        let plan = planned(&slots, &[0xf; 40], |s| (s.budget, s.commands) = (ByteSize::ZERO, None));
        assert_eq!(plan.actions, [Action::MAP; 40]);
        let plan =
            planned(&slots, &[0xf; 40], |s| (s.budget, s.commands, s.mappable) = (ByteSize::ZERO, None, &[]));
        assert_eq!(plan.actions, [Action::BAKE; 40]);
    }

    #[test]
    fn steps_in_which_the_same_slots_move_are_one_column() {
        let columns = |moves: &[u8], steps| {
            let columns = Columns::new(&Churn::new(moves.iter().map(|&m| Moves(m)).collect(), steps));
            let moves: Vec<u8> = moves.iter().map(|&m| columns.of(Moves(m)).0).collect();
            (columns.weights, moves)
        };
        assert_eq!(columns(&[0b1111, 0], 4), (vec![4], vec![1, 0]));
        assert_eq!(columns(&[0b0101, 0b1111], 4), (vec![2, 2], vec![0b01, 0b11]));
        assert_eq!(columns(&[0b0001, 0b0100], 4), (vec![1, 2, 1], vec![0b001, 0b100]));
        assert_eq!(columns(&[0], 0), (vec![1], vec![0]));
    }

    #[test]
    fn commands_are_numbered_and_each_counts_once() {
        let mut commands = Commands::default();
        commands.push([9, 3, 9]);
        commands.push([]);
        commands.push([3]);
        assert_eq!((commands.of(0), commands.of(1), commands.of(2)), (&[9, 3, 9][..], &[][..], &[3][..]));
        assert_eq!(commands.of(3), []);
        let mut problem = Problem { commands: vec![9, 3, 9, 3], ..Problem::default() };
        problem.slots =
            [(0, 3), (3, 3), (3, 4)].map(|commands| Candidate { commands, ..Candidate::default() }).to_vec();
        number(&mut problem);
        assert_eq!((problem.commands, problem.command_count), (vec![0, 1, 0], 2));
        assert_eq!(problem.slots.iter().map(|s| s.commands).collect::<Vec<_>>(), [(0, 2), (2, 2), (2, 3)]);
    }

    #[test]
    fn a_plan_is_explained() {
        let slots = vec![slot(64); 40];
        let churn = Churn::new(vec![Moves(0xf); 40], 4);
        let profile = Profile::builtin("h200").expect("built in");
        let situation = Situation {
            slots: &slots,
            mappable: &[true; 40],
            commands: None,
            churn: &churn,
            profile: &profile,
            rules: Rules::default(),
            granularity: GRANULE,
            budget: ByteSize::gib(1),
        };
        let plan = plan(&situation);
        for explanation in explain(&situation, &plan.actions) {
            assert_eq!((explanation.action, explanation.moved), (Action::COPY, 4));
            // Two slices of 7 and 10 ns, and 256 bytes moved.
            assert!((34_000..35_000).contains(&explanation.cost.0), "{explanation:?}");
            let (next, cost) = explanation.next.expect("it may be mapped");
            // Of itself and for the wait, on both sides.
            assert_eq!((next, cost), (Action::MAP, Picos::ns(2 * (48_150 + 85_000))));
        }
    }
}
