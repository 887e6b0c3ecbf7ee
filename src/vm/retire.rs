//! The queue of what goes once its streams have passed.

use super::shared::Shared;
use super::{Block, BlockId, Mark, Reservation};
use crate::error::Result;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Marks that must all have passed.
pub(crate) type Marks = Arc<[Arc<Mark>]>;

/// Waits for marks, all recorded before the first wait; nothing is left out because of a failure, and the first
/// one is given.
pub(crate) fn wait_all<'a>(marks: impl Iterator<Item = &'a Arc<Mark>> + Clone) -> Result<()> {
    let mut result = Ok(());
    for mark in marks.clone() {
        result = result.and(mark.record());
    }
    for mark in marks.filter(|mark| mark.is_recorded()) {
        result = result.and(mark.wait());
    }
    result
}

/// Records marks, up to the first that cannot be.
pub(crate) fn record_all(marks: &[Arc<Mark>]) -> Result<()> {
    marks.iter().try_for_each(|mark| mark.record())
}

/// True where all have passed; a mark that cannot tell has not. Each clock is asked once: `stuck` lists those that
/// had not got there.
fn all_passed(marks: &[Arc<Mark>], stuck: &mut Vec<usize>) -> bool {
    marks.iter().all(|mark| {
        if mark.is_behind() || !mark.is_recorded() {
            return mark.is_recorded();
        }
        let clock = mark.clock_key();
        let passed = !stuck.contains(&clock) && mark.passed().unwrap_or(false);
        if !passed {
            stuck.push(clock);
        }
        passed
    })
}

/// One mapping that is to be unmapped.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) reservation: Arc<Reservation>,
    pub(crate) offset: u64,
    /// Which retirement it is: a mapping that came back, or another one there, has not this number.
    pub(crate) token: u64,
    pub(crate) block: BlockId,
}

enum Cargo {
    Mappings(Vec<Pending>),
    Value(Box<dyn Send>),
}

struct Ticket {
    marks: Marks,
    cargo: Cargo,
}

/// What is to be dropped once no lock is held.
#[derive(Default)]
pub(crate) struct Garbage {
    pub(crate) count: usize,
    pub(crate) blocks: Vec<Arc<Block>>,
    reservations: Vec<Arc<Reservation>>,
    values: Vec<Box<dyn Send>>,
}

/// The queue, oldest first.
#[derive(Default)]
pub(crate) struct Queue {
    tickets: Mutex<VecDeque<Ticket>>,
    /// Held while mappings are unmapped, so that who drains waits for what another thread collects.
    collecting: Mutex<()>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("tickets", &self.tickets().len()).finish()
    }
}

impl Queue {
    fn tickets(&self) -> MutexGuard<'_, VecDeque<Ticket>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, shared: &Shared, ticket: Ticket) {
        shared.add_pending(1);
        self.tickets().push_back(ticket);
    }

    pub(crate) fn push_mappings(&self, shared: &Shared, marks: Marks, mappings: Vec<Pending>) {
        self.push(shared, Ticket { marks, cargo: Cargo::Mappings(mappings) });
    }

    pub(crate) fn push_value(&self, shared: &Shared, marks: Marks, value: Box<dyn Send>) {
        self.push(shared, Ticket { marks, cargo: Cargo::Value(value) });
    }

    /// Tickets that are still waiting.
    pub(crate) fn len(&self) -> usize {
        self.tickets().len()
    }

    /// Waits for retired mappings of `block`, except one at the place `here`, and unmaps them.
    pub(crate) fn flush(&self, block: BlockId, here: (u64, u64)) -> Result<Garbage> {
        let mut pending = Vec::new();
        // What another thread has taken out of the queue is unmapped before it lets go of this.
        let collected = self.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        for ticket in self.tickets().iter() {
            let Cargo::Mappings(mappings) = &ticket.cargo else { continue };
            let elsewhere = |p: &&Pending| p.block == block && (p.reservation.id(), p.offset) != here;
            for p in mappings.iter().filter(elsewhere) {
                pending.push((Arc::clone(&p.reservation), p.offset, p.token, Arc::clone(&ticket.marks)));
            }
        }
        drop(collected);
        let mut garbage = Garbage::default();
        for (reservation, offset, token, marks) in pending {
            if reservation.is_pending(offset, token) {
                wait_all(marks.iter())?;
                garbage.blocks.extend(reservation.unmap_retired(offset, token)?);
            }
            garbage.reservations.push(reservation);
        }
        Ok(garbage)
    }

    /// Collects what has passed, unless another thread is at it.
    pub(crate) fn poll(&self, shared: &Shared) -> Garbage {
        match self.collecting.try_lock() {
            Ok(_guard) => self.pass(shared, false).0,
            Err(std::sync::TryLockError::Poisoned(_)) => self.pass(shared, false).0,
            Err(std::sync::TryLockError::WouldBlock) => Garbage::default(),
        }
    }

    /// Waits for everything that is in the queue now, and collects.
    pub(crate) fn wait(&self, shared: &Shared) -> (Garbage, Result<()>) {
        let marks: Vec<Marks> = self.tickets().iter().map(|ticket| Arc::clone(&ticket.marks)).collect();
        let waited = wait_all(marks.iter().flat_map(|marks| marks.iter()));
        // Driver calls are made under this lock, but nothing is waited for.
        let _guard = self.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        let (garbage, unmapped) = self.pass(shared, false);
        (garbage, waited.and(unmapped))
    }

    /// Collects everything, passed or not.
    pub(crate) fn force(&self, shared: &Shared) -> Garbage {
        let _guard = self.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        self.pass(shared, true).0
    }

    fn pass(&self, shared: &Shared, force: bool) -> (Garbage, Result<()>) {
        let (mut garbage, mut result) = (Garbage::default(), Ok(()));
        for ticket in self.take_passed(force) {
            shared.sub_pending(1);
            match ticket.cargo {
                Cargo::Value(value) => {
                    garbage.values.push(value);
                    garbage.count += 1;
                }
                Cargo::Mappings(mappings) => {
                    let left = unmap(mappings, &mut garbage, &mut result);
                    if !left.is_empty() {
                        self.push_mappings(shared, ticket.marks, left);
                    }
                }
            }
        }
        (garbage, result)
    }

    fn take_passed(&self, force: bool) -> Vec<Ticket> {
        let mut tickets = self.tickets();
        if force {
            return tickets.drain(..).collect();
        }
        // Reading a timeline is a look at memory; it may happen under this lock, which is a leaf.
        let (mut stuck, mut passed) = (Vec::new(), Vec::new());
        for ticket in std::mem::take(&mut *tickets) {
            if all_passed(&ticket.marks, &mut stuck) {
                passed.push(ticket)
            } else {
                tickets.push_back(ticket)
            }
        }
        passed
    }
}

/// Unmaps what is still retired; what the driver refused comes back.
fn unmap(mappings: Vec<Pending>, garbage: &mut Garbage, result: &mut Result<()>) -> Vec<Pending> {
    let mut left = Vec::new();
    for pending in mappings {
        match pending.reservation.unmap_retired(pending.offset, pending.token) {
            Ok(block) => {
                garbage.count += usize::from(block.is_some());
                garbage.blocks.extend(block);
                garbage.reservations.push(pending.reservation);
            }
            Err(e) => {
                log::warn!("a retired mapping stays for now: {e}");
                *result = result.and(Err(e));
                left.push(pending);
            }
        }
    }
    left
}
