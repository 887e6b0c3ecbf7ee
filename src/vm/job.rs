//! Carries out a map or a remap: locks the books, plans, waits with the locks released, plans again, runs the
//! plan, and brings the books up to date.

use super::entries::Blocks;
use super::mapping::{Books, Mapping, State};
use super::plan::{
    Action, Entry, Held, HeldState, Mode, Place, Plan, Snapshot, Source, Step, StrayAt, Want, WantBlock, Why,
};
use super::retire::{Garbage, Marks, wait_all};
use super::shared::Shared;
use super::transaction::{self, Failure};
use super::{Block, Reservation, remap};
use crate::driver::Stream;
use crate::error::{Error, Kind, Result};
use crate::units::DeviceRange;
use std::borrow::Cow;
use std::sync::{Arc, MutexGuard};

/// What is to be done.
pub(crate) struct Job<'a, E> {
    pub(crate) shared: &'a Shared,
    pub(crate) mode: Mode,
    /// Ordered by number, so that two jobs never wait for each other.
    pub(crate) places: &'a [&'a Reservation],
    pub(crate) wants: &'a [Want],
    pub(crate) entries: &'a mut E,
    pub(crate) wait_for: &'a [Stream],
}

/// What was done.
#[derive(Clone, Copy, Default)]
pub(crate) struct Done {
    pub(crate) skipped: u64,
    pub(crate) mapped: u64,
    pub(crate) unmapped: u64,
}

impl<E: Blocks> Job<'_, E> {
    pub(crate) fn run(self) -> Result<Done> {
        let mut waited = self.wait_for.is_empty();
        loop {
            self.free_aliases()?;
            let alone = self.shared.alone();
            // Held across the driver calls: books and driver change together.
            let mut books: Vec<_> = self.places.iter().map(|place| place.books()).collect();
            let places = places(self.places, &books);
            let plan = self.plan(&books, &places)?;
            let in_the_way = marks_in_the_way(&plan, &books);
            if (plan.waits && !waited) || !in_the_way.is_empty() {
                drop(books);
                drop(alone);
                let streams = if waited || !plan.waits { &[][..] } else { self.wait_for };
                waited |= plan.waits;
                self.wait(streams, &in_the_way)?;
                continue;
            }
            let (result, garbage) =
                carry_out(self.shared, self.places, &places, &mut books, &plan, self.entries);
            drop(books);
            drop(alone);
            drop(garbage);
            log_lost(&result);
            return result.map(|()| done(&plan));
        }
    }

    fn wait(&self, streams: &[Stream], in_the_way: &[Marks]) -> Result<()> {
        let marks: Vec<_> = streams.iter().map(|stream| self.shared.clocks.mark(*stream)).collect();
        wait_all(marks.iter().chain(in_the_way.iter().flat_map(|marks| marks.iter())))
    }

    /// Without aliasing, a retired mapping of a block elsewhere must go before the block is mapped here.
    fn free_aliases(&self) -> Result<()> {
        if self.shared.shape.aliasing {
            return Ok(());
        }
        for want in self.wants {
            let Some(block) = self.entries.block(want.entry.index()) else { continue };
            if block.places() > 0 {
                let here = (self.places[want.place as usize].id(), want.offset);
                let garbage = self.shared.queue.flush(block.id(), here)?;
                self.shared.bury(garbage);
            }
        }
        Ok(())
    }

    /// The wants with what their blocks' counts are now; they matter without aliasing only, where nobody else maps
    /// meanwhile.
    fn wants_now(&self) -> Cow<'_, [Want]> {
        if self.shared.shape.aliasing {
            return Cow::Borrowed(self.wants);
        }
        let now = |want: &Want| {
            let block = self.entries.block(want.entry.index());
            Want { block: block.map(|block| want_block(block)), ..*want }
        };
        self.wants.iter().map(now).collect()
    }

    fn plan(&self, books: &[MutexGuard<'_, Books>], places: &[Place]) -> Result<Plan> {
        let mut held = Vec::with_capacity(self.wants.len());
        let mut strays = Vec::new();
        for (place, books) in (0_u32..).zip(books) {
            let wants = wants_of(self.wants, place);
            snapshot(place, books, wants, self.mode, &mut held);
            let over = |offset: u64, size: u64| {
                let hits = |w: &Want| {
                    w.block.is_some_and(|b| w.offset < offset + size && offset < w.offset + b.size)
                };
                self.mode == Mode::Remap || wants.iter().any(hits)
            };
            let here = books.strays.iter().filter(|s| over(s.offset, s.block.size().get()));
            strays.extend(here.map(|s| StrayAt {
                place,
                offset: s.offset,
                block: want_block(&s.block),
                idle: s.idle,
            }));
        }
        let (mode, shape, wants) = (self.mode, self.shared.shape, &self.wants_now());
        remap::plan(&Snapshot { mode, shape, places, wants, held: &held, strays: &strays })
    }
}

/// A block as the planner sees it.
pub(crate) fn want_block(block: &Block) -> WantBlock {
    WantBlock { id: block.id(), native: block.native(), size: block.size().get(), places: block.places() }
}

/// The reservations as the planner sees them.
pub(crate) fn places(places: &[&Reservation], books: &[MutexGuard<'_, Books>]) -> Vec<Place> {
    let place = |(r, b): (&&Reservation, &MutexGuard<'_, Books>)| Place { range: r.range(), list: b.list };
    places.iter().zip(books).map(place).collect()
}

fn wants_of(wants: &[Want], place: u32) -> &[Want] {
    let first = wants.partition_point(|want| want.place < place);
    let count = wants[first..].partition_point(|want| want.place == place);
    &wants[first..first + count]
}

fn held(place: u32, offset: u64, mapping: &Mapping) -> Held {
    let state = match mapping.state {
        State::Live => HeldState::Live,
        State::Lost => HeldState::Lost,
        State::Retired { .. } => HeldState::Retired,
    };
    let (applied, custom) = (mapping.applied, mapping.custom);
    Held { place, offset, block: want_block(&mapping.block), state, applied, custom }
}

/// What the wants touch; where something is lost, everything, since that is rebuilt.
fn snapshot(place: u32, books: &Books, wants: &[Want], mode: Mode, out: &mut Vec<Held>) {
    if books.lost > 0 && mode == Mode::Remap {
        out.extend(books.mappings.iter().map(|(offset, mapping)| held(place, *offset, mapping)));
        return;
    }
    let mut next = 0;
    for want in wants {
        let size = want.block.map_or(1, |block| block.size);
        if let Some(mapping) = books.exactly(want.offset, size) {
            if want.offset >= next {
                out.push(held(place, want.offset, mapping));
                next = want.offset + 1;
            }
            continue;
        }
        for (offset, mapping) in books.overlapping(want.offset, size) {
            if offset >= next {
                out.push(held(place, offset, mapping));
                next = offset + 1;
            }
        }
    }
}

/// The marks that retired mappings in the way still wait for.
fn marks_in_the_way(plan: &Plan, books: &[MutexGuard<'_, Books>]) -> Vec<Marks> {
    if !plan.evicts {
        return Vec::new();
    }
    let marks = |step: &Step| match &step.action {
        Action::Unmap { why: Why::Retired, .. } => {
            match &books[step.place as usize].mappings.get(&step.offset)?.state {
                State::Retired { marks, .. } => Some(Arc::clone(marks)),
                _ => None,
            }
        }
        _ => None,
    };
    let waiting = |marks: &Marks| marks.iter().any(|mark| !mark.passed().unwrap_or(false));
    plan.steps.iter().filter_map(marks).filter(waiting).collect()
}

fn done(plan: &Plan) -> Done {
    let mut done = Done { skipped: plan.skipped, ..Done::default() };
    for step in &plan.steps {
        match &step.action {
            Action::Unmap { .. } => done.unmapped += step.range.size().get(),
            Action::Map { .. } => done.mapped += step.range.size().get(),
            Action::Access { .. } => {}
        }
    }
    done
}

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
