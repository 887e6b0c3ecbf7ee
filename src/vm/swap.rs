//! The remap of most steps: each entry puts another block of the same size in a live mapping's place. One walk over
//! the books finds the mappings, and the calls follow from them; everything else is left to the planner.

use super::access::List;
use super::commit::{fail, log_lost};
use super::entries::{In, PlaceEntry};
use super::job::Done;
use super::mapping::{Books, Mapping, State};
use super::plan::{Action, Entry, Place, Plan, Source, Step, Why};
use super::shared::Shared;
use super::{Reservation, transaction};
use crate::error::{Error, Result};
use crate::units::{ByteSize, DeviceRange};
use std::slice;

/// Carries the entries out, if they are of that sort; nothing has happened where not.
pub(crate) fn swap(
    shared: &Shared,
    reservation: &Reservation,
    entries: &mut [PlaceEntry],
) -> Option<Result<Done>> {
    // Else a block must leave its old place first, or access is not a mapping's own.
    if !shared.shape.aliasing || !shared.shape.ranged || !reservation.is_of(shared) {
        return None;
    }
    // Held across the driver calls: books and driver change together.
    let mut books = reservation.books();
    let place = Place { range: reservation.range(), list: books.list };
    let mut swaps = Swaps::find(shared, place, &mut books, entries)?;
    match transaction::make(&shared.calls, swaps.steps(entries)) {
        Ok(()) => {
            let context = reservation.context();
            for (mapping, entry) in swaps.mappings.iter_mut().zip(entries) {
                entry.block = entry.block.take().map(|block| mapping.exchange(context, block, place.list));
            }
            Some(Ok(swaps.done()))
        }
        Err((made, error)) => {
            let plan = Plan { steps: swaps.steps(entries).collect(), ..Plan::default() };
            drop(swaps);
            let (places, entries) = (slice::from_ref(&place), &mut In { reservation, entries });
            let failure = transaction::undo(&shared.calls, shared.shape, places, &plan, made, error);
            let (error, garbage) = fail(shared, &[reservation], &mut [books], &plan, &failure, entries);
            drop(garbage);
            reservation.settle_now(&[]);
            Some(lost(error))
        }
    }
}

fn lost(error: Error) -> Result<Done> {
    log_lost(&Err(error));
    Err(error)
}

/// How many mappings are walked past for each that is named, before searching for each would cost less.
const WALK: usize = 16;

/// What is found for entries, in their order.
struct Swaps<'a> {
    place: Place,
    mappings: Vec<&'a mut Mapping>,
    ranges: Vec<DeviceRange>,
    /// What is set with one call, and the first entry in it.
    access: Vec<(DeviceRange, u32)>,
    call: Option<List>,
}

impl<'a> Swaps<'a> {
    /// The live mappings that the entries name, if each is to hold another block of its size, and nothing else is to
    /// be done in the reservation.
    fn find(shared: &Shared, place: Place, books: &'a mut Books, entries: &[PlaceEntry]) -> Option<Self> {
        if books.lost > 0 || !books.strays.is_empty() || u32::try_from(entries.len()).is_err() {
            return None;
        }
        let room = entries.len();
        let (mappings, ranges) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let call = shared.shape.change(List::NOTHING, place.list);
        let mut found = Self { place, mappings, ranges, access: Vec::with_capacity(room), call };
        let from = books.mappings.range_mut(entries.first()?.offset.get()..);
        let mut walk = from.take(room.saturating_mul(WALK));
        for entry in entries {
            let (offset, mapping) = walk.find(|(offset, _)| **offset >= entry.offset.get())?;
            let block = entry.block.as_ref()?;
            let range = place.range.slice(ByteSize(*offset), block.size())?;
            let fits = range.start().is_aligned(block.granularity()) && block.is_of(shared);
            let live = matches!(mapping.state, State::Live) && mapping.block.size() == block.size();
            if *offset != entry.offset.get() || !fits || !live || mapping.block.id() == block.id() {
                return None;
            }
            found.mappings.push(mapping);
            found.give_access(range, shared.shape.joined);
            found.ranges.push(range);
        }
        Some(found)
    }

    fn give_access(&mut self, range: DeviceRange, joined: bool) {
        if let Some((last, _)) =
            self.access.last_mut().filter(|(last, _)| joined && last.end() == range.start())
        {
            let size = ByteSize(last.size().get() + range.size().get());
            *last = DeviceRange::new(last.start(), size).unwrap_or(*last);
        } else {
            self.access.push((range, self.ranges.len() as u32));
        }
    }

    /// The driver calls.
    fn steps(&self, entries: &[PlaceEntry]) -> impl Iterator<Item = Step> {
        let (start, to) = (self.place.range.start(), self.place.list);
        let step = move |range: DeviceRange, i: usize, action| {
            let offset = range.start().offset_from(start).unwrap_or_default().get();
            Step { place: 0, offset, range, entry: Some(Entry::new(i as u32)), action }
        };
        let unmaps = self.ranges.iter().zip(&self.mappings).enumerate().map(move |(i, (range, mapping))| {
            let (native, why) = (mapping.block.native(), Why::Replaced { restore: mapping.applied });
            step(*range, i, Action::Unmap { native, why, followed: true })
        });
        let maps = self.ranges.iter().zip(entries).enumerate().filter_map(move |(i, (range, entry))| {
            let (native, source) = (entry.block.as_ref()?.native(), Source::Entry(Entry::new(i as u32)));
            Some(step(*range, i, Action::Map { native, source, to }))
        });
        let access = self.call.into_iter().flat_map(move |call| {
            let give = move |(range, i): &(DeviceRange, u32)| {
                step(*range, *i as usize, Action::Access { call, to, back: (0, 0) })
            };
            self.access.iter().map(give)
        });
        unmaps.chain(maps).chain(access)
    }

    fn done(&self) -> Done {
        let bytes = self.ranges.iter().map(|range| range.size().get()).sum();
        Done { skipped: 0, mapped: bytes, unmapped: bytes }
    }
}

#[cfg(test)]
#[path = "swap_tests.rs"]
mod tests;
