//! Callers' arrays: checked entry by entry, sorted, and turned into jobs.

use super::job::{Done, Job, want_block};
use super::plan::{Mode, Want};
use super::retire::{Garbage, Marks, Pending, record_all};
use super::shared::{Shared, next_number};
use super::{RemapEntry, Reservation, RetireEntry};
use crate::driver::Stream;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use std::sync::Arc;

/// Places named by an array: reservations by number, and entries by reservation and offset.
struct Sorted<'a> {
    places: Vec<&'a Reservation>,
    /// The entry's index and its reservation's place.
    order: Vec<(usize, u32)>,
}

/// Sorts, and refuses other devices' reservations and places named twice.
fn sort<'a>(
    shared: &Shared,
    operation: Operation,
    count: usize,
    at: impl Fn(usize) -> (&'a Arc<Reservation>, ByteSize),
) -> Result<Sorted<'a>> {
    let blame = |i: usize, hint| Err(Error::new(Kind::InvalidArgument, operation, hint).entry(i as u64));
    if let Some(i) = (0..count).find(|&i| !at(i).0.is_of(shared)) {
        return blame(i, "the reservation is one of another device");
    }
    let mut indices: Vec<usize> = (0..count).collect();
    indices.sort_unstable_by_key(|&i| (at(i).0.id(), at(i).1, i));
    let mut sorted = Sorted { places: Vec::new(), order: Vec::with_capacity(count) };
    let mut last: Option<(u64, ByteSize)> = None;
    for i in indices {
        let (reservation, offset) = at(i);
        if last == Some((reservation.id(), offset)) {
            return blame(i, "another entry names the same place");
        }
        if last.is_none_or(|(id, _)| id != reservation.id()) {
            sorted.places.push(reservation);
        }
        last = Some((reservation.id(), offset));
        sorted.order.push((i, u32::try_from(sorted.places.len() - 1).unwrap_or(u32::MAX)));
    }
    Ok(sorted)
}

/// Checks the entry and gives it in the planner's terms.
fn want(shared: &Shared, entry: &RemapEntry, place: u32, index: usize) -> Result<Want> {
    let (operation, index) = (Operation::Remap, index as u64);
    let (size, granularity) = match &entry.block {
        Some(block) if !block.is_of(shared) => {
            let hint = "the block is one of another device";
            return Err(Error::new(Kind::InvalidArgument, operation, hint).entry(index));
        }
        Some(block) => (block.size(), block.granularity()),
        None => (shared.info.granularity.size(), shared.info.granularity),
    };
    let checked = entry.reservation.check(operation, entry.offset, size, Some(granularity));
    checked.map_err(|e| e.entry(index))?;
    let block = entry.block.as_deref().map(want_block);
    Ok(Want { place, offset: entry.offset.get(), block, entry: index })
}

/// One remap.
pub(crate) fn remap(shared: &Shared, entries: &[RemapEntry], wait_for: &[Stream]) -> Result<Done> {
    let sorted =
        sort(shared, Operation::Remap, entries.len(), |i| (&entries[i].reservation, entries[i].offset))?;
    let wants: Result<Vec<Want>> =
        sorted.order.iter().map(|&(i, place)| want(shared, &entries[i], place, i)).collect();
    let block = |i: u64| entries.get(usize::try_from(i).ok()?)?.block.clone();
    let (places, mode) = (&sorted.places[..], Mode::Remap);
    Job { shared, mode, places, wants: &wants?, block: &block, wait_for }.run()
}

/// Retires mappings; what was lost is given up at once, and comes back to be dropped.
pub(crate) fn retire(shared: &Shared, entries: &[RetireEntry], after: &[Stream]) -> Result<Garbage> {
    let mut garbage = Garbage::default();
    if entries.is_empty() {
        return Ok(garbage);
    }
    let sorted =
        sort(shared, Operation::Retire, entries.len(), |i| (&entries[i].reservation, entries[i].offset))?;
    let mut books: Vec<_> = sorted.places.iter().map(|place| place.books()).collect();
    for &(i, place) in &sorted.order {
        let mapping = books[place as usize].mappings.get(&entries[i].offset.get());
        if mapping.is_none_or(super::mapping::Mapping::is_retired) {
            let error = Error::new(Kind::NotMapped, Operation::Retire, "no mapping starts there");
            return Err(error.entry(i as u64));
        }
    }
    // Recorded under the books' locks: whether the entries are good and whether the marks could be recorded must
    // be known before anything changes. Recording waits for nothing.
    let marks: Marks = after.iter().map(|stream| shared.clocks.mark(*stream)).collect();
    record_all(&marks)?;
    let mut pending = Vec::with_capacity(entries.len());
    for &(i, place) in &sorted.order {
        let (offset, place) = (entries[i].offset.get(), place as usize);
        let context = sorted.places[place].context();
        let Some(mapping) = books[place].mappings.get(&offset) else { continue };
        if mapping.is_lost() {
            garbage.blocks.extend(books[place].take(context, offset));
            continue;
        }
        let (token, block) = (next_number(), mapping.block.id());
        books[place].retire(context, offset, token, Arc::clone(&marks));
        pending.push(Pending { reservation: Arc::clone(&entries[i].reservation), offset, token, block });
    }
    drop(books);
    if !pending.is_empty() {
        shared.queue.push_mappings(shared, marks, pending);
    }
    Ok(garbage)
}
