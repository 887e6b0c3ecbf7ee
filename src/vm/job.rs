//! Carries out a map or a remap: locks the books, plans, waits with the locks released, plans again, and has the plan
//! run.

use super::cleanup::log_failure;
use super::commit::{carry_out, log_lost};
use super::entries::Blocks;
use super::mapping::{Books, Mapping, State};
use super::plan::{
    Action, Held, HeldState, Mode, Place, Plan, Snapshot, Step, StrayAt, Want, WantBlock, Why,
};
use super::retire::{Marks, wait_all};
use super::shared::Shared;
use super::{Block, BlockId, Reservation, remap};
use crate::driver::Stream;
use crate::error::Result;
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
            let busy: Vec<_> = books.iter().map(|books| books.busy_strays()).collect();
            drop(books);
            drop(alone);
            drop(garbage);
            if result.is_err() {
                self.settle(&busy, waited);
            }
            log_lost(&result);
            return result.map(|()| done(&plan));
        }
    }

    /// After a failure, unmaps what an undo could not: at once, or once the streams named have passed where the call
    /// has not waited for them, since it was to unmap nothing that work may be using. A plain map names no streams and
    /// vouches for nothing.
    fn settle(&self, busy: &[Vec<(u64, BlockId)>], waited: bool) {
        let vouched = self.mode == Mode::Remap;
        let streams = if waited || busy.iter().all(Vec::is_empty) { &[][..] } else { self.wait_for };
        let passed = self.wait(streams, &[]);
        let go = vouched && passed.is_ok();
        log_failure("what a failed remap left waits for the next one", passed);
        for (reservation, busy) in self.places.iter().zip(busy) {
            reservation.settle_now(if go { busy } else { &[] });
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
