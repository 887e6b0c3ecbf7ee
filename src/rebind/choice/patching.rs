//! Which slots are patched, given what each costs otherwise: a least cut, exact however commands are shared.
//!
//! A patched slot needs each of its commands patched in each step in which it moves. Such a **cell** is paid for slot by
//! slot, or once for all; the charge of a step in which anything is patched only once for all. Three rules decide almost
//! all: a cell is not paid for as a whole where that costs no less than all that its users could pay; it is where those
//! that are patched anyway would pay as much; a slot that saves more than it could have to pay is patched anyway. What
//! remains is a network in which the least cut is found.

use super::flow::Flow;
use super::relaxed::{Total, Totals};
use super::{NEVER, Problem, columns};
use crate::rebind::slot::Action;

/// The cells of a problem, and who needs them.
#[derive(Debug)]
pub(super) struct Patching {
    /// What each cell costs as a whole: first commands by column, then the charge of each column.
    cost: Vec<u64>,
    /// What it costs for one slot.
    single: Vec<u64>,
    /// The most of these: a slot that saves so much could pay for any one of them.
    dearest: u64,
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

impl Fate {
    const fn of(saves: u64, is_known: bool) -> Self {
        match saves {
            _ if is_known => Self::Yes,
            0 => Self::No,
            _ => Self::Open,
        }
    }
}

/// Which slots are patched.
#[derive(Clone, Debug)]
pub(super) struct Patched {
    pub(super) slots: Vec<bool>,
    /// How many of them need each cell.
    users: Vec<u32>,
}

/// The rules at work.
struct Work<'a> {
    patching: &'a Patching,
    /// What each slot still saves, cells that it pays for by itself subtracted.
    saves: Vec<u64>,
    slots: Vec<Fate>,
    cells: Vec<Fate>,
    /// What open cells may cost a slot.
    left: Vec<u128>,
    /// What users could pay for a cell, and what those would that are patched anyway.
    worth: Vec<u128>,
    sure: Vec<u128>,
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
    fn new(count: usize) -> Self {
        Self { list: Vec::with_capacity(count), is_in: vec![false; count] }
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
        let width = problem.weights.len();
        let charges = problem.command_count as usize * width;
        let (mut cost, mut single) = (Vec::with_capacity(charges + width), Vec::new());
        let weights = problem.weights.iter().map(|&weight| u64::from(weight));
        for _ in 0..problem.command_count {
            cost.extend(weights.clone().map(|weight| problem.patch * weight));
            single.extend(weights.clone().map(|weight| problem.patch_one() * weight));
        }
        // A step's charge is never a slot's own.
        cost.extend(weights.clone().map(|weight| problem.any_patch * weight));
        single.extend(weights.map(|weight| problem.any_patch * weight));
        let mut needs = Lists { ends: Vec::with_capacity(problem.slots.len()), items: Vec::new() };
        for slot in &problem.slots {
            if slot.allowed.has(Action::PATCH) {
                for k in columns(slot.moves) {
                    let cells = problem.commands_of(slot).iter().map(|&c| c as usize * width + k);
                    let cells = cells.chain([charges + k]).filter(|&cell| cost[cell] > 0);
                    needs.items.extend(cells.map(|cell| cell as u32));
                }
            }
            needs.ends.push(needs.items.len() as u32);
        }
        let any = problem.slots.iter().any(|slot| slot.allowed.has(Action::PATCH));
        let users = needs.turned(cost.len());
        let part = |(cell, cost): (usize, &u64)| single[cell].min(cost / users.of(cell).len().max(1) as u64);
        let parts: Vec<u64> = cost.iter().enumerate().map(part).collect();
        let share = |i: usize| {
            needs.of(i).iter().fold(0, |sum: u64, &cell| sum.saturating_add(parts[cell as usize])).min(NEVER)
        };
        let share = (0..problem.slots.len()).map(share).collect();
        let dearest = single.iter().copied().max().unwrap_or(0);
        any.then_some(Self { cost, single, dearest, needs, users, share })
    }

    /// The cells that slot `i` needs, and what each costs for it alone.
    fn each(&self, i: usize, mut tell: impl FnMut(usize, u64)) {
        self.needs.of(i).iter().for_each(|&cell| tell(cell as usize, self.single[cell as usize]));
    }

    /// What slot `i` pays at least for its commands if it is patched.
    pub(super) fn share(&self, i: usize) -> u64 {
        self.share[i]
    }

    /// Says which slots are patched where slot `i` costs `saves[i]` otherwise; 0 for one that is not to be patched. `before`
    /// were best where none saved more: they are among them, since what is worth its cells stays so.
    pub(super) fn choose(&self, saves: Vec<u64>, before: Option<&Patched>) -> Patched {
        let none = Patched { slots: vec![false; saves.len()], users: vec![0; self.cost.len()] };
        let mut patched = before.cloned().unwrap_or(none);
        let mut work = Work::new(self, saves, &patched);
        work.run();
        let open: Vec<usize> = (0..work.slots.len()).filter(|&i| work.slots[i] == Fate::Open).collect();
        for (&i, yes) in open.iter().zip(self.cut(&open, &work)) {
            work.slots[i] = if yes { Fate::Yes } else { Fate::No };
        }
        for (i, fate) in work.slots.into_iter().enumerate() {
            if fate == Fate::Yes && !std::mem::replace(&mut patched.slots[i], true) {
                self.each(i, |cell, _| patched.users[cell] += 1);
            }
        }
        patched
    }

    /// What the cells of these slots cost together.
    pub(super) fn paid(&self, patched: &Patched) -> u128 {
        let cells = self.cost.iter().zip(&self.single).zip(&patched.users);
        cells
            .map(|((&cost, &single), &users)| u128::from(cost.min(single.saturating_mul(users.into()))))
            .sum()
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
            flow.edge(first + n, sink, self.cost[cell].into());
            flow.edge(source, first + n, work.sure[cell]);
        }
        for (n, &i) in open.iter().enumerate() {
            flow.edge(source, 2 + n, work.saves[i].into());
            for &cell in self.needs.of(i).iter().filter(|&&cell| work.cells[cell as usize] == Fate::Open) {
                flow.edge(2 + n, number[cell as usize], self.single[cell as usize].into());
            }
        }
        let side = flow.cut(source, sink);
        (0..open.len()).map(|n| side[2 + n]).collect()
    }
}

impl<'a> Work<'a> {
    fn new(patching: &'a Patching, saves: Vec<u64>, before: &Patched) -> Self {
        let (count, cells) = (saves.len(), patching.cost.len());
        let paid = |(&single, &users): (&u64, &u32)| u128::from(single) * u128::from(users);
        let mut work = Self {
            patching,
            slots: (0..count).map(|i| Fate::of(saves[i], before.slots[i])).collect(),
            saves,
            cells: vec![Fate::Open; cells],
            left: vec![0; count],
            worth: Vec::new(),
            sure: patching.single.iter().zip(&before.users).map(paid).collect(),
            slots_due: Due::new(count),
            cells_due: Due::new(cells),
        };
        // Before anything else what is sure at once, which for most slots is the end of it.
        work.find_paid();
        for i in 0..count {
            work.count_left(i);
            if work.slots[i] == Fate::Open && u128::from(work.saves[i]) > work.left[i] {
                work.slots[i] = Fate::Yes;
                patching.each(i, |cell, single| work.sure[cell] += u128::from(single));
            }
        }
        work.find_paid();
        work.worth.clone_from(&work.sure);
        for i in 0..count {
            work.count_left(i);
            if work.slots[i] == Fate::Open {
                patching.each(i, |cell, single| work.worth[cell] += u128::from(single.min(work.saves[i])));
                work.slots_due.push(i as u32);
            }
        }
        (0..cells as u32).for_each(|cell| work.cells_due.push(cell));
        work
    }

    /// Those cells for which enough is paid.
    fn find_paid(&mut self) {
        for (cell, &cost) in self.patching.cost.iter().enumerate() {
            if self.sure[cell] >= u128::from(cost) {
                self.cells[cell] = Fate::Yes;
            }
        }
    }

    /// What cells may cost an open slot that are open.
    fn count_left(&mut self, i: usize) {
        if self.slots[i] == Fate::Open {
            self.left[i] = 0;
            self.patching.each(i, |cell, single| {
                self.left[i] += if self.cells[cell] == Fate::Open { u128::from(single) } else { 0 };
            });
        }
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

    fn look_at_cell(&mut self, cell: usize) {
        let (patching, cost) = (self.patching, u128::from(self.patching.cost[cell]));
        if self.cells[cell] != Fate::Open {
            return;
        }
        if self.sure[cell] >= cost {
            self.cells[cell] = Fate::Yes;
            for &i in patching.users.of(cell).iter().filter(|&&i| self.slots[i as usize] == Fate::Open) {
                self.left[i as usize] -= u128::from(patching.single[cell]).min(self.left[i as usize]);
                self.slots_due.push(i);
            }
        } else if self.worth[cell] <= cost {
            self.cells[cell] = Fate::No;
            for &i in patching.users.of(cell) {
                self.pay(i as usize, patching.single[cell]);
            }
        }
    }

    /// A slot pays for a cell by itself, if it is patched.
    fn pay(&mut self, i: usize, single: u64) {
        if self.slots[i] != Fate::Open {
            return;
        }
        let before = self.saves[i];
        self.saves[i] = before.saturating_sub(single);
        self.left[i] -= u128::from(single).min(self.left[i]);
        if self.saves[i] == 0 {
            self.slots[i] = Fate::No;
        }
        let patching = self.patching;
        self.slots_due.push(i as u32);
        if self.saves[i] >= patching.dearest {
            return;
        }
        for &cell in patching.needs.of(i).iter().filter(|&&cell| self.cells[cell as usize] == Fate::Open) {
            let single = patching.single[cell as usize];
            let less = single.min(before) - single.min(self.saves[i]);
            if less > 0 {
                self.worth[cell as usize] -= u128::from(less);
                self.cells_due.push(cell);
            }
        }
    }

    /// Patches a slot that saves more than its cells could cost it.
    fn look_at_slot(&mut self, i: usize) {
        if self.slots[i] != Fate::Open || u128::from(self.saves[i]) <= self.left[i] {
            return;
        }
        self.slots[i] = Fate::Yes;
        let patching = self.patching;
        for &cell in patching.needs.of(i).iter().filter(|&&cell| self.cells[cell as usize] == Fate::Open) {
            let single = patching.single[cell as usize];
            self.worth[cell as usize] += u128::from(single - single.min(self.saves[i]));
            self.sure[cell as usize] += u128::from(single);
            self.cells_due.push(cell);
        }
    }
}

/// What patching would save each slot, its commands aside: what it costs by the cheapest action that is not patching.
pub(super) fn savings(totals: &Totals, best: impl Fn(&Total) -> u64) -> Vec<u64> {
    let saved = |total: &Total| if total.may_patch { best(total).saturating_sub(total.patch) } else { 0 };
    totals.iter().map(saved).collect()
}
