//! Which slots are patched, given what each costs otherwise: a least cut, exact however commands are shared.
//!
//! A patched slot needs each of its commands patched in each step in which it moves, and each such **cell** is paid
//! once, however many slots need it; so is the charge of a step in which anything is patched. Two rules decide
//! almost all: a cell that costs no less than all that its users could save is not worth it, nor are its users;
//! a slot that saves more than its cells cost is worth it by itself, and its cells are free for others. What remains
//! is a network in which the least cut is found.

use super::flow::Flow;
use super::{Problem, relaxed::Totals};
use crate::rebind::slot::Action;

/// The cells of a problem, and who needs them.
#[derive(Debug)]
pub(super) struct Patching {
    /// What each cell costs: first commands by column, then the charge of each column.
    cost: Vec<u128>,
    needs: Lists,
    users: Lists,
    /// What each slot pays at least if it is patched: its part of each cell, were all users patched.
    share: Vec<u64>,
}

/// Lists of numbers, one behind the other.
#[derive(Debug)]
struct Lists {
    ends: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    fn of(&self, i: usize) -> &[u32] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.items[start as usize..self.ends[i] as usize]
    }

    /// For each of `count` items the lists that have it.
    fn turned(&self, count: usize) -> Self {
        let mut ends = vec![0u32; count];
        self.items.iter().for_each(|&item| ends[item as usize] += 1);
        let mut sum = 0;
        let mut free: Vec<u32> = Vec::with_capacity(count);
        for end in &mut ends {
            free.push(sum);
            sum += *end;
            *end = sum;
        }
        let mut items = vec![0; self.items.len()];
        for list in 0..self.ends.len() {
            for &item in self.of(list) {
                items[free[item as usize] as usize] = list as u32;
                free[item as usize] += 1;
            }
        }
        Self { ends, items }
    }
}

/// What is known of a slot or a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Open,
    Yes,
    No,
}

/// The two rules at work.
struct Work<'a> {
    patching: &'a Patching,
    saves: &'a [u64],
    slots: Vec<Fate>,
    cells: Vec<Fate>,
    /// What the cells of a slot still cost.
    left: Vec<u128>,
    /// What the open users of a cell could save.
    worth: Vec<u128>,
    /// Slots and cells to look at again.
    slots_due: Due,
    cells_due: Due,
}

/// Numbers, each once.
struct Due {
    list: Vec<u32>,
    is_in: Vec<bool>,
}

impl Due {
    fn new(list: Vec<u32>, count: usize) -> Self {
        let mut is_in = vec![false; count];
        list.iter().for_each(|&i| is_in[i as usize] = true);
        Self { list, is_in }
    }

    fn push(&mut self, i: u32) {
        if !std::mem::replace(&mut self.is_in[i as usize], true) {
            self.list.push(i);
        }
    }

    fn pop(&mut self) -> Option<usize> {
        let i = self.list.pop()? as usize;
        self.is_in[i] = false;
        Some(i)
    }
}

impl Patching {
    /// None where no slot could be patched.
    pub(super) fn new(problem: &Problem) -> Option<Self> {
        let columns = problem.weights.len();
        let charges = problem.command_count as usize * columns;
        let mut cost: Vec<u128> = Vec::with_capacity(charges + columns);
        let weights = problem.weights.iter().map(|&weight| u128::from(weight));
        for _ in 0..problem.command_count {
            cost.extend(weights.clone().map(|weight| u128::from(problem.patch) * weight));
        }
        cost.extend(weights.map(|weight| u128::from(problem.any_patch) * weight));
        let mut needs = Lists { ends: Vec::with_capacity(problem.slots.len()), items: Vec::new() };
        for slot in &problem.slots {
            if slot.allowed.has(Action::PATCH) {
                for k in (0..columns).filter(|k| slot.moves.0 >> k & 1 == 1) {
                    let cells = problem.commands_of(slot).iter().map(|&c| c as usize * columns + k);
                    let cells = cells.chain([charges + k]).filter(|&cell| cost[cell] > 0);
                    needs.items.extend(cells.map(|cell| cell as u32));
                }
            }
            needs.ends.push(needs.items.len() as u32);
        }
        let any = problem.slots.iter().any(|slot| slot.allowed.has(Action::PATCH));
        let users = needs.turned(cost.len());
        let part = |(cell, cost): (usize, &u128)| cost / users.of(cell).len().max(1) as u128;
        let parts: Vec<u128> = cost.iter().enumerate().map(part).collect();
        let share = |i: usize| {
            let share: u128 = needs.of(i).iter().map(|&cell| parts[cell as usize]).sum();
            u64::try_from(share).unwrap_or(super::NEVER)
        };
        let share = (0..problem.slots.len()).map(share).collect();
        any.then_some(Self { cost, needs, users, share })
    }

    /// What slot `i` pays at least for its commands if it is patched.
    pub(super) fn share(&self, i: usize) -> u64 {
        self.share[i]
    }

    /// Says which slots are patched where slot `i` costs `saves[i]` otherwise; 0 for one that is not to be patched. `before`
    /// were best where none saved more: they are among them, since what is worth its cells stays so.
    pub(super) fn choose(&self, saves: &[u64], before: Option<&[bool]>) -> Vec<bool> {
        let mut work = Work::new(self, saves, before.unwrap_or_default());
        work.run();
        let open: Vec<usize> = (0..saves.len()).filter(|&i| work.slots[i] == Fate::Open).collect();
        let mut patched: Vec<bool> = work.slots.iter().map(|fate| *fate == Fate::Yes).collect();
        for (i, yes) in open.iter().zip(self.cut(&open, &work)) {
            patched[*i] = yes;
        }
        patched
    }

    /// What the cells of these slots cost together.
    pub(super) fn paid(&self, patched: &[bool]) -> u128 {
        let mut seen = vec![false; self.cost.len()];
        let mut sum = 0;
        for i in (0..patched.len()).filter(|&i| patched[i]) {
            for &cell in self.needs.of(i) {
                if !std::mem::replace(&mut seen[cell as usize], true) {
                    sum += self.cost[cell as usize];
                }
            }
        }
        sum
    }

    /// Decides the slots that the rules left open.
    fn cut(&self, open: &[usize], work: &Work<'_>) -> Vec<bool> {
        if open.is_empty() {
            return Vec::new();
        }
        let mut number = vec![0; self.cost.len()];
        let cells: Vec<usize> = (0..self.cost.len()).filter(|&cell| work.cells[cell] == Fate::Open).collect();
        let (source, sink, first) = (0, 1, 2 + open.len());
        let mut flow = Flow::new(first + cells.len());
        for (n, &cell) in cells.iter().enumerate() {
            number[cell] = first + n;
            flow.edge(first + n, sink, self.cost[cell]);
        }
        for (n, &i) in open.iter().enumerate() {
            flow.edge(source, 2 + n, u128::from(work.saves[i]));
            for &cell in self.needs.of(i).iter().filter(|&&cell| work.cells[cell as usize] == Fate::Open) {
                flow.edge(2 + n, number[cell as usize], u128::MAX >> 1);
            }
        }
        let side = flow.cut(source, sink);
        (0..open.len()).map(|n| side[2 + n]).collect()
    }
}

impl<'a> Work<'a> {
    fn new(patching: &'a Patching, saves: &'a [u64], before: &[bool]) -> Self {
        let mut worth = vec![0; patching.cost.len()];
        let mut left = vec![0; saves.len()];
        let mut slots = vec![Fate::No; saves.len()];
        let mut cells = vec![Fate::Open; worth.len()];
        for i in (0..before.len()).filter(|&i| before[i]) {
            slots[i] = Fate::Yes;
            patching.needs.of(i).iter().for_each(|&cell| cells[cell as usize] = Fate::Yes);
        }
        let mut slots_due = Vec::new();
        for (i, &saved) in saves.iter().enumerate() {
            if saved == 0 || slots[i] == Fate::Yes {
                continue;
            }
            slots[i] = Fate::Open;
            slots_due.push(i as u32);
            for &cell in patching.needs.of(i) {
                let cell = cell as usize;
                worth[cell] += u128::from(saved);
                left[i] += if cells[cell] == Fate::Open { patching.cost[cell] } else { 0 };
            }
        }
        let slots_due = Due::new(slots_due, saves.len());
        let cells_due = Due::new((0..worth.len() as u32).collect(), worth.len());
        Self { patching, saves, slots, cells, left, worth, slots_due, cells_due }
    }

    fn run(&mut self) {
        loop {
            if let Some(cell) = self.cells_due.pop() {
                self.look_at_cell(cell);
            } else if let Some(i) = self.slots_due.pop() {
                self.look_at_slot(i);
            } else {
                return;
            }
        }
    }

    /// Gives up a cell that is not worth its cost, with all its users.
    fn look_at_cell(&mut self, cell: usize) {
        let patching = self.patching;
        if self.cells[cell] != Fate::Open || self.worth[cell] > patching.cost[cell] {
            return;
        }
        self.cells[cell] = Fate::No;
        for &i in patching.users.of(cell) {
            if self.slots[i as usize] == Fate::Open {
                self.slots[i as usize] = Fate::No;
                for &other in patching.needs.of(i as usize) {
                    self.worth[other as usize] -= u128::from(self.saves[i as usize]);
                    self.cells_due.push(other);
                }
            }
        }
    }

    /// Patches a slot that saves more than its cells cost.
    fn look_at_slot(&mut self, i: usize) {
        let patching = self.patching;
        if self.slots[i] != Fate::Open || u128::from(self.saves[i]) <= self.left[i] {
            return;
        }
        self.slots[i] = Fate::Yes;
        for &cell in patching.needs.of(i) {
            if self.cells[cell as usize] == Fate::Open {
                self.cells[cell as usize] = Fate::Yes;
                for &user in patching.users.of(cell as usize) {
                    if self.slots[user as usize] == Fate::Open {
                        self.left[user as usize] -= patching.cost[cell as usize];
                        self.slots_due.push(user);
                    }
                }
            }
        }
    }
}

/// What patching would save each slot, its commands aside: what it costs by the cheapest action that is not patching.
pub(super) fn savings(totals: &Totals, best: impl Fn(usize) -> u64) -> Vec<u64> {
    let saved = |i: usize| best(i).saturating_sub(totals.get(i).patch);
    (0..totals.len()).map(|i| if totals.may_patch(i) { saved(i) } else { 0 }).collect()
}
