//! What a plan costs, slot by slot: who pays for what is shared.

use super::{Allowed, Candidate, Problem, columns};
use crate::rebind::slot::Action;

/// Counts who needs each charge.
#[derive(Clone, Debug)]
pub(in crate::rebind) struct Ledger<'a> {
    problem: &'a Problem,
    /// Mapped slots that move, by column.
    remaps: [u32; 8],
    /// Patched slots that move, by column.
    patches: [u32; 8],
    /// Patched slots by command and column.
    commands: Vec<u32>,
    /// Copied slots, in and out.
    copies: [u32; 2],
    /// Bytes of their shadows.
    shadows: u128,
}

/// How often each charge is paid in all watched steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::rebind) struct Events {
    /// Steps in which something is remapped.
    pub(in crate::rebind) remaps: u64,
    /// Steps in which something is patched.
    pub(in crate::rebind) patches: u64,
    /// Commands that are patched as a whole, in all steps together.
    pub(in crate::rebind) commands: u64,
    /// Slots that commands are patched for which cost less so.
    pub(in crate::rebind) singles: u64,
    /// Joint copies in and out.
    pub(in crate::rebind) copies: [u64; 2],
}

/// Whether a slot comes or goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Comes,
    Goes,
}

impl<'a> Ledger<'a> {
    /// With no slot yet.
    pub(in crate::rebind) fn new(problem: &'a Problem) -> Self {
        let commands = vec![0; problem.command_count as usize * problem.weights.len()];
        Self { problem, remaps: [0; 8], patches: [0; 8], commands, copies: [0; 2], shadows: 0 }
    }

    /// With all slots, served by `actions`.
    pub(in crate::rebind) fn of(problem: &'a Problem, actions: &[Action]) -> Self {
        let mut ledger = Self::new(problem);
        actions.iter().enumerate().for_each(|(i, &action)| ledger.count(i, action, Change::Comes));
        ledger
    }

    /// How often each charge is paid by those that are in.
    pub(in crate::rebind) fn events(&self) -> Events {
        let weights = &self.problem.weights;
        let paid = |counts: &[u32]| -> u64 {
            let columns = counts.iter().zip(weights.iter().cycle());
            columns.filter(|(count, _)| **count > 0).map(|(_, &weight)| u64::from(weight)).sum()
        };
        let problem = self.problem;
        // As a whole, or slot by slot.
        let patched = |whole: bool| -> u64 {
            let cells = self.commands.iter().zip(weights.iter().cycle()).filter(|(slots, _)| **slots > 0);
            let is_whole = |slots: u64| problem.patch_one().saturating_mul(slots) >= problem.patch;
            let times = cells.map(|(&slots, &weight)| (u64::from(slots), u64::from(weight)));
            let times = times.filter(|(slots, _)| is_whole(*slots) == whole);
            times.map(|(slots, weight)| if whole { weight } else { slots * weight }).sum()
        };
        let columns = weights.len();
        Events {
            remaps: paid(&self.remaps[..columns]),
            patches: paid(&self.patches[..columns]),
            commands: patched(true),
            singles: patched(false),
            copies: self.copies.map(|count| if count > 0 { u64::from(self.problem.steps()) } else { 0 }),
        }
    }

    /// What slot `i` by `action` costs more than those that are in, with the charges that only it needs.
    pub(in crate::rebind) fn marginal(&self, i: usize, action: Action) -> u128 {
        let (problem, slot) = (self.problem, &self.problem.slots[i]);
        let own = u128::from(problem.own(slot, action));
        let shared = match action {
            Action::MAP => {
                columns(slot.moves).map(|k| self.fresh(self.remaps[k], problem.any_remap, k)).sum()
            }
            Action::PATCH => self.patching(slot),
            Action::COPY => {
                let ways = (0..2).filter(|way| slot.ways.0 >> way & 1 == 1 && self.copies[*way] == 0);
                let launches: u128 = ways.map(|way| u128::from(problem.any_copy[way])).sum();
                (launches + self.cooling(slot)) * u128::from(problem.steps())
            }
            _ => 0,
        };
        own + shared
    }

    /// What its shadow costs a step where it is the one for which the cache has no room.
    fn cooling(&self, slot: &Candidate) -> u128 {
        let (warm, with_it) = (u128::from(self.problem.warm), self.shadows + u128::from(slot.shadow));
        if self.shadows <= warm && with_it > warm { u128::from(self.problem.cold) } else { 0 }
    }

    fn patching(&self, slot: &Candidate) -> u128 {
        let problem = self.problem;
        let column = |k: usize| -> u128 {
            let commands = problem.commands_of(slot).iter();
            let more = |&c: &u32| {
                let slots = self.commands[self.cell(c, k)];
                u128::from(problem.patched(slots + 1) - problem.patched(slots))
            };
            let own = commands.map(more).sum::<u128>() * u128::from(problem.weights[k]);
            own + self.fresh(self.patches[k], problem.any_patch, k)
        };
        columns(slot.moves).map(column).sum()
    }

    /// A charge in column `k`, if nobody pays it yet.
    fn fresh(&self, payers: u32, charge: u64, k: usize) -> u128 {
        if payers == 0 { u128::from(charge) * u128::from(self.problem.weights[k]) } else { 0 }
    }

    fn cell(&self, command: u32, k: usize) -> usize {
        command as usize * self.problem.weights.len() + k
    }

    /// Takes slot `i` in; gives what that costs more.
    pub(in crate::rebind) fn add(&mut self, i: usize, action: Action) -> u128 {
        let cost = self.marginal(i, action);
        self.count(i, action, Change::Comes);
        cost
    }

    /// Takes slot `i` out, which was in by `action`.
    pub(in crate::rebind) fn remove(&mut self, i: usize, action: Action) {
        self.count(i, action, Change::Goes);
    }

    fn count(&mut self, i: usize, action: Action, change: Change) {
        let slot = self.problem.slots[i];
        let step = |count: &mut u32| match change {
            Change::Comes => *count += 1,
            Change::Goes => *count -= 1,
        };
        match action {
            Action::MAP => columns(slot.moves).for_each(|k| step(&mut self.remaps[k])),
            Action::COPY => {
                let bytes = u128::from(slot.shadow);
                self.shadows =
                    if change == Change::Comes { self.shadows + bytes } else { self.shadows - bytes };
                (0..2).filter(|way| slot.ways.0 >> way & 1 == 1).for_each(|way| step(&mut self.copies[way]));
            }
            Action::PATCH => {
                for k in columns(slot.moves) {
                    step(&mut self.patches[k]);
                    for &command in self.problem.commands_of(&slot) {
                        let cell = self.cell(command, k);
                        step(&mut self.commands[cell]);
                    }
                }
            }
            _ => {}
        }
    }

    /// The cheapest action but `taken` for slot `i`, which is not in, and what it costs more; `room` are the bytes
    /// that its shadow may have.
    pub(in crate::rebind) fn next_best(&self, i: usize, taken: Action, room: u128) -> Option<(Action, u128)> {
        let slot = &self.problem.slots[i];
        let fits = |action: &Action| *action != Action::COPY || u128::from(slot.shadow) <= room;
        let others = super::ACTIONS.into_iter().filter(|&action| action != taken && slot.allowed.has(action));
        others.filter(fits).map(|action| (action, self.marginal(i, action))).min_by_key(|&(_, cost)| cost)
    }
}

impl Problem {
    /// The only action of a slot that has one.
    pub(super) fn forced(slot: &Candidate) -> Option<Action> {
        let only = |Allowed(bits): Allowed| bits.is_power_of_two().then(|| Action(bits.trailing_zeros()));
        if Self::is_settled(slot) { Some(Action::BAKE) } else { only(slot.allowed) }
    }
}
