//! Runs a plan, and brings the books up to date with what came of it.

use super::Reservation;
use super::entries::Blocks;
use super::mapping::{Books, State};
use super::plan::{Action, Entry, Place, Plan, Source, Step, Why};
use super::retire::Garbage;
use super::shared::Shared;
use super::transaction::{self, Failure};
use crate::error::{Error, Kind, Result};
use crate::units::DeviceRange;
use std::sync::{Arc, MutexGuard};

/// Runs the plan and brings the books up to date, whatever came of it. The second value is to be dropped once no
/// lock is held.
pub(crate) fn carry_out(
    shared: &Shared,
    reservations: &[&Reservation],
    places: &[Place],
    books: &mut [MutexGuard<'_, Books>],
    plan: &Plan,
    entries: &mut impl Blocks,
) -> (Result<()>, Garbage) {
    match transaction::run(&shared.calls, shared.shape, places, plan) {
        Ok(()) => {
            let mut commit = Commit::new(shared, reservations, books, entries);
            commit.all(plan);
            (Ok(()), commit.garbage)
        }
        Err(failure) => {
            let (error, garbage) = fail(shared, reservations, books, plan, &failure, entries);
            (Err(error), garbage)
        }
    }
}

/// Brings the books up to date after a failure, and gives the error for the caller. The second value is to be
/// dropped once no lock is held.
pub(crate) fn fail(
    shared: &Shared,
    reservations: &[&Reservation],
    books: &mut [MutexGuard<'_, Books>],
    plan: &Plan,
    failure: &Failure,
    entries: &mut impl Blocks,
) -> (Error, Garbage) {
    let mut commit = Commit::new(shared, reservations, books, entries);
    let error = commit.failure(plan, failure);
    (error, commit.garbage)
}

/// Says what could not be undone, once no lock is held.
pub(crate) fn log_lost(result: &Result<()>) {
    if let Err(error) = result
        && error.kind == Kind::RangeLost
    {
        log::error!("{error}");
    }
}

struct Commit<'a, 'b, E> {
    reservations: &'a [&'a Reservation],
    books: &'a mut [MutexGuard<'b, Books>],
    entries: &'a mut E,
    /// Parts of reservations can be set.
    ranged: bool,
    garbage: Garbage,
}

impl<'a, 'b, E: Blocks> Commit<'a, 'b, E> {
    fn new(
        shared: &Shared,
        reservations: &'a [&'a Reservation],
        books: &'a mut [MutexGuard<'b, Books>],
        entries: &'a mut E,
    ) -> Self {
        Self { reservations, books, entries, ranged: shared.shape.ranged, garbage: Garbage::default() }
    }

    fn all(&mut self, plan: &Plan) {
        for &(place, offset) in &plan.forgotten {
            self.take(place, offset, None);
        }
        for &(place, offset) in &plan.revived {
            self.books[place as usize].revive(self.reservations[place as usize].context(), offset);
        }
        for step in &plan.steps {
            self.step(step);
        }
    }

    fn take(&mut self, place: u32, offset: u64, entry: Option<Entry>) {
        let place = place as usize;
        let old = self.books[place].take(self.reservations[place].context(), offset);
        let unwanted = match entry {
            Some(entry) => self.entries.give(entry.index(), old),
            None => old,
        };
        self.garbage.blocks.extend(unwanted);
    }

    fn step(&mut self, step: &Step) {
        let place = step.place as usize;
        let context = self.reservations[place].context();
        match &step.action {
            Action::Unmap { why: Why::Stray, .. } => {
                self.garbage.blocks.extend(self.books[place].take_stray(step.offset));
            }
            // The map that follows replaces it in the books.
            Action::Unmap { followed: true, .. } => {}
            // An entry without a block; what is in another entry's way is not at its place.
            Action::Unmap { why: Why::Replaced { .. }, .. } => self.take(step.place, step.offset, step.entry),
            Action::Unmap { .. } => self.take(step.place, step.offset, None),
            Action::Map { source: Source::Rebuild, to, .. } => {
                self.books[place].rebuild(context, step.offset, *to)
            }
            Action::Map { source: Source::Entry(entry), to, .. } => {
                if let Some(block) = self.entries.take(entry.index()) {
                    let old = self.books[place].add(context, step.offset, block, *to);
                    self.garbage.blocks.extend(self.entries.give(entry.index(), old));
                }
            }
            // New mappings know it already.
            Action::Access { back, .. } if back.0 == back.1 && self.ranged => {}
            Action::Access { to, .. } => self.books[place].applied(step.offset, step.range.size().get(), *to),
        }
    }

    /// Notes what was unmapped for good and what could not be taken back, and gives the error for the caller.
    fn failure(&mut self, plan: &Plan, failure: &Failure) -> Error {
        for step in &plan.steps[..failure.made] {
            match step.action {
                Action::Unmap { why: Why::Retired, .. } => self.take(step.place, step.offset, None),
                Action::Unmap { why: Why::Stray, .. } => self.step(step),
                _ => {}
            }
        }
        for &(i, still_mapped) in &failure.lost {
            let step = &plan.steps[i];
            let context = self.reservations[step.place as usize].context();
            self.books[step.place as usize].lose(context, step.offset, still_mapped.then_some(true));
        }
        for &(place, all) in &failure.given {
            self.given(place, if all { &[] } else { &plan.steps[..failure.made] });
        }
        for &(place, range) in &failure.unsettled {
            self.unsettled(place as usize, range);
        }
        for &i in &failure.strays {
            self.stray(&plan.steps[i]);
        }
        self.watch_strays();
        let first = failure.lost.first().map(|(i, _)| plan.steps[*i].range);
        let Some(lost) = first.or_else(|| failure.unsettled.first().map(|(_, range)| *range)) else {
            return failure.error;
        };
        let hint =
            "undoing failed too: the entries are unmapped, their blocks kept; the next remap rebuilds them";
        Error { kind: Kind::RangeLost, hint, ..failure.error }.at(lost.start(), lost.size())
    }

    /// The whole reservation was given its list; what these steps unmapped came back later, without.
    fn given(&mut self, place: u32, steps: &[Step]) {
        let books = &mut self.books[place as usize];
        let list = books.list;
        let unmapped = |offset: u64| {
            let unmaps = |s: &Step| matches!(s.action, Action::Unmap { why: Why::Replaced { .. }, .. });
            steps.iter().any(|s| s.place == place && s.offset == offset && unmaps(s))
        };
        for (offset, mapping) in books.mappings.iter_mut().filter(|(_, m)| !m.is_lost()) {
            if !unmapped(*offset) {
                mapping.applied = list;
            }
        }
    }

    /// The access of these mappings is not what the books say: they are lost, and work may still be using them.
    fn unsettled(&mut self, place: usize, range: DeviceRange) {
        let start = self.reservations[place].range().start();
        let Some(offset) = range.start().offset_from(start) else { return };
        let mappings = self.books[place].overlapping(offset.get(), range.size().get());
        let live: Vec<u64> =
            mappings.filter(|(_, m)| matches!(m.state, State::Live)).map(|(o, _)| o).collect();
        for offset in live {
            self.books[place].lose(self.reservations[place].context(), offset, Some(false));
        }
        // Those that were to come back from retirement stay retired.
        let (books, end) = (&mut *self.books[place], offset.get().saturating_add(range.size().get()));
        let list = books.list;
        for (_, mapping) in books.mappings.range_mut(offset.get()..end).filter(|(_, m)| m.is_retired()) {
            mapping.applied = mapping.applied.unknown(list);
        }
    }

    fn stray(&mut self, step: &Step) {
        let place = step.place as usize;
        let Action::Map { source, .. } = &step.action else { return };
        let block = match source {
            Source::Entry(entry) => self.entries.block(entry.index()).map(Arc::clone),
            Source::Rebuild => self.books[place].mappings.get(&step.offset).map(|m| Arc::clone(&m.block)),
        };
        if let Some(block) = block {
            self.books[place].add_stray(step.offset, block, true);
        }
    }

    /// Strays that nothing uses are tried again by any later collect.
    fn watch_strays(&self) {
        for (reservation, books) in self.reservations.iter().zip(self.books.iter()) {
            if books.strays.iter().any(|stray| stray.idle) {
                reservation.watch_strays();
            }
        }
    }
}
