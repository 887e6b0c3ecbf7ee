//! Callers' arrays: checked entry by entry, sorted, and turned into jobs.

use super::job::{Done, Job, want_block};
use super::mapping::Books;
use super::plan::{Entry, Mode, Want};
use super::retire::{Garbage, Marks, Pending, record_all};
use super::shared::{Shared, next_number};
use super::{Block, Reservation};
use crate::driver::Stream;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use std::sync::Arc;

/// One entry of a remap: what shall be mapped at a place.
#[derive(Clone, Debug)]
pub struct RemapEntry {
    /// The reservation.
    pub reservation: Arc<Reservation>,
    /// The offset in it.
    pub offset: ByteSize,
    /// The block to be mapped there, or none to unmap what is.
    pub block: Option<Arc<Block>>,
}

/// One entry of a remap in one reservation.
#[derive(Clone, Debug)]
pub struct PlaceEntry {
    /// The offset in the reservation.
    pub offset: ByteSize,
    /// The block to be mapped there, or none to unmap what is.
    pub block: Option<Arc<Block>>,
}

/// One entry of a retire: the mapping that starts at a place.
#[derive(Clone, Debug)]
pub struct RetireEntry {
    /// The reservation.
    pub reservation: Arc<Reservation>,
    /// The offset in it at which the mapping starts.
    pub offset: ByteSize,
}

/// The blocks of a caller's array.
pub(crate) trait Blocks {
    fn block(&self, i: usize) -> Option<&Arc<Block>>;

    /// The block of an entry that is mapped now, for the books.
    fn take(&mut self, i: usize) -> Option<Arc<Block>> {
        self.block(i).map(Arc::clone)
    }

    /// What was mapped at an entry's place until now; what is not wanted comes back.
    fn give(&mut self, _: usize, old: Option<Arc<Block>>) -> Option<Arc<Block>> {
        old
    }
}

/// A caller's array.
pub(crate) trait Entries<'a>: Blocks {
    fn len(&self) -> usize;
    fn reservation(&self, i: usize) -> &'a Reservation;
    fn offset(&self, i: usize) -> ByteSize;
}

/// None.
impl Blocks for () {
    fn block(&self, _: usize) -> Option<&Arc<Block>> {
        None
    }
}

impl Blocks for &[RemapEntry] {
    fn block(&self, i: usize) -> Option<&Arc<Block>> {
        self[i].block.as_ref()
    }
}

impl<'a> Entries<'a> for &'a [RemapEntry] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn reservation(&self, i: usize) -> &'a Reservation {
        &self[i].reservation
    }

    fn offset(&self, i: usize) -> ByteSize {
        self[i].offset
    }
}

impl Blocks for &[RetireEntry] {
    fn block(&self, _: usize) -> Option<&Arc<Block>> {
        None
    }
}

impl<'a> Entries<'a> for &'a [RetireEntry] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn reservation(&self, i: usize) -> &'a Reservation {
        &self[i].reservation
    }

    fn offset(&self, i: usize) -> ByteSize {
        self[i].offset
    }
}

/// Entries of one reservation, which exchange their blocks for those that were there before.
pub(crate) struct In<'a, 'b> {
    pub(crate) reservation: &'a Reservation,
    pub(crate) entries: &'b mut [PlaceEntry],
}

impl Blocks for In<'_, '_> {
    fn block(&self, i: usize) -> Option<&Arc<Block>> {
        self.entries[i].block.as_ref()
    }

    fn take(&mut self, i: usize) -> Option<Arc<Block>> {
        self.entries[i].block.take()
    }

    fn give(&mut self, i: usize, old: Option<Arc<Block>>) -> Option<Arc<Block>> {
        std::mem::replace(&mut self.entries[i].block, old)
    }
}

impl<'a> Entries<'a> for In<'a, '_> {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn reservation(&self, _: usize) -> &'a Reservation {
        self.reservation
    }

    fn offset(&self, i: usize) -> ByteSize {
        self.entries[i].offset
    }
}

/// Places named by an array: reservations by number, and entries by reservation and offset.
struct Sorted<'a> {
    places: Vec<&'a Reservation>,
    /// The entry's index and its reservation's place.
    order: Vec<(u32, u32)>,
}

/// Sorts, and refuses other devices' reservations and places named twice.
fn sort<'a>(shared: &Shared, operation: Operation, entries: &impl Entries<'a>) -> Result<Sorted<'a>> {
    let blame = |i: usize, hint| Err(Error::new(Kind::InvalidArgument, operation, hint).entry(i as u64));
    let Ok(count) = u32::try_from(entries.len()) else {
        return Err(Error::new(Kind::OutOfRange, operation, "a call takes at most 2^32 - 1 entries"));
    };
    if let Some(i) = (0..entries.len()).find(|&i| !entries.reservation(i).is_of(shared)) {
        return blame(i, "the reservation is one of another device");
    }
    let key = |i: u32| (entries.reservation(i as usize).id(), entries.offset(i as usize));
    let mut sorted = Sorted { places: Vec::new(), order: (0..count).map(|i| (i, 0)).collect() };
    sorted.order.sort_unstable_by_key(|(i, _)| (key(*i), *i));
    let mut last: Option<(u64, ByteSize)> = None;
    for (i, place) in &mut sorted.order {
        let here = key(*i);
        if last == Some(here) {
            return blame(*i as usize, "another entry names the same place");
        }
        if last.is_none_or(|(id, _)| id != here.0) {
            sorted.places.push(entries.reservation(*i as usize));
        }
        last = Some(here);
        *place = sorted.places.len() as u32 - 1;
    }
    Ok(sorted)
}

/// Checks an entry that is to hold `block`.
fn check(shared: &Shared, reservation: &Reservation, offset: ByteSize, block: Option<&Block>) -> Result<()> {
    let (size, granularity) = match block {
        Some(block) if !block.is_of(shared) => {
            let hint = "the block is one of another device";
            return Err(Error::new(Kind::InvalidArgument, Operation::Remap, hint));
        }
        Some(block) => (block.size(), block.granularity()),
        None => (shared.info.granularity.size(), shared.info.granularity),
    };
    reservation.check(Operation::Remap, offset, size, Some(granularity)).map(|_| ())
}

/// One remap.
pub(crate) fn remap<'a>(
    shared: &Shared,
    entries: &mut impl Entries<'a>,
    wait_for: &[Stream],
) -> Result<Done> {
    let sorted = sort(shared, Operation::Remap, entries)?;
    let mut wants = Vec::with_capacity(sorted.order.len());
    for &(entry, place) in &sorted.order {
        let (offset, block) = (entries.offset(entry as usize), entries.block(entry as usize));
        let checked = check(shared, sorted.places[place as usize], offset, block.map(|block| &**block));
        checked.map_err(|e| e.entry(u64::from(entry)))?;
        let block = block.map(|block| want_block(block));
        wants.push(Want { place, offset: offset.get(), block, entry: Entry::new(entry) });
    }
    let (places, mode) = (&sorted.places[..], Mode::Remap);
    Job { shared, mode, places, wants: &wants, entries, wait_for }.run()
}

/// Retires mappings; what was lost is given up at once, and comes back to be dropped.
pub(crate) fn retire(shared: &Shared, entries: &[RetireEntry], after: &[Stream]) -> Result<Garbage> {
    let mut garbage = Garbage::default();
    if entries.is_empty() {
        return Ok(garbage);
    }
    let sorted = sort(shared, Operation::Retire, &entries)?;
    let mut books: Vec<_> = sorted.places.iter().map(|place| place.books()).collect();
    for &(i, place) in &sorted.order {
        let mapping = books[place as usize].mappings.get(&entries[i as usize].offset.get());
        if mapping.is_none_or(super::mapping::Mapping::is_retired) {
            let error = Error::new(Kind::NotMapped, Operation::Retire, "no mapping starts there");
            return Err(error.entry(u64::from(i)));
        }
    }
    // Recorded under the books' locks: whether the entries are good and whether the marks could be recorded must
    // be known before anything changes. Recording waits for nothing.
    let marks: Marks = after.iter().map(|stream| shared.clocks.mark(*stream)).collect();
    record_all(&marks)?;
    let mut pending = Vec::with_capacity(entries.len());
    for &(i, place) in &sorted.order {
        let entry = &entries[i as usize];
        let (books, offset) = (&mut books[place as usize], entry.offset.get());
        pending.extend(retire_one(&entry.reservation, books, offset, &marks, &mut garbage));
    }
    drop(books);
    if !pending.is_empty() {
        shared.queue.push_mappings(shared, marks, pending);
    }
    Ok(garbage)
}

/// Retires all that is mapped in a reservation; what was lost is given up at once, and comes back to be dropped. The
/// marks are not recorded.
pub(crate) fn retire_all(shared: &Shared, reservation: &Arc<Reservation>, marks: Marks) -> Garbage {
    let mut garbage = Garbage::default();
    let mut books = reservation.books();
    let offsets: Vec<u64> = books
        .mappings
        .iter()
        .filter(|(_, mapping)| !mapping.is_retired())
        .map(|(offset, _)| *offset)
        .collect();
    let retire = |offset| retire_one(reservation, &mut books, offset, &marks, &mut garbage);
    let pending: Vec<Pending> = offsets.into_iter().filter_map(retire).collect();
    drop(books);
    if !pending.is_empty() {
        shared.queue.push_mappings(shared, marks, pending);
    }
    garbage
}

/// Retires one mapping, or gives it up if it was lost.
fn retire_one(
    reservation: &Arc<Reservation>,
    books: &mut Books,
    offset: u64,
    marks: &Marks,
    garbage: &mut Garbage,
) -> Option<Pending> {
    let (context, mapping) = (reservation.context(), books.mappings.get(&offset)?);
    if mapping.is_lost() {
        garbage.blocks.extend(books.take(context, offset));
        return None;
    }
    let (token, block) = (next_number(), mapping.block.id());
    books.retire(context, offset, token, Arc::clone(marks));
    Some(Pending { reservation: Arc::clone(reservation), offset, token, block })
}
