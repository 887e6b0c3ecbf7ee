//! What is reserved, mapped and made: the state that the trait's rules are checked against.

use crate::driver::{NativeBlock, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A block that we made, imported or were shown.
#[derive(Clone, Copy, Debug)]
pub(in crate::driver) struct Block {
    pub(in crate::driver) size: ByteSize,
    pub(in crate::driver) device: Ordinal,
    /// How often `release` is owed: an import may give a handle that is there already. 0 for a block that was
    /// only shown to us.
    pub(in crate::driver) references: u64,
    /// It was made to be exported.
    pub(in crate::driver) exportable: bool,
}

/// A mapping.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    range: DeviceRange,
    /// The block's device.
    device: Ordinal,
    /// A driver call about it is under way.
    busy: bool,
}

/// What a set-access is about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::driver) struct Claim {
    /// The blocks' devices, each once.
    pub(in crate::driver) devices: Vec<Ordinal>,
    /// The mappings, in order.
    pub(in crate::driver) mappings: Vec<DeviceRange>,
    /// The mappings without the holes between them, neighbours as one.
    pub(in crate::driver) runs: Vec<DeviceRange>,
}

impl Claim {
    fn add(&mut self, mapping: &Mapping) {
        if !self.devices.contains(&mapping.device) {
            self.devices.push(mapping.device);
        }
        self.mappings.push(mapping.range);
        let joined = self
            .runs
            .last()
            .filter(|run| run.end() == mapping.range.start())
            .and_then(|run| DeviceRange::new(run.start(), run.size().checked_add(mapping.range.size())?));
        match (joined, self.runs.last_mut()) {
            (Some(joined), Some(run)) => *run = joined,
            _ => self.runs.push(mapping.range),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    ranges: BTreeMap<DevicePtr, (DeviceRange, Ordinal)>,
    mappings: BTreeMap<DevicePtr, Mapping>,
    blocks: HashMap<u64, Block>,
    allocations: HashMap<DevicePtr, Ordinal>,
}

/// The books of one driver.
#[derive(Debug, Default)]
pub(in crate::driver) struct Books(Mutex<State>);

fn refuse(kind: Kind, operation: Operation, range: DeviceRange, hint: &'static str) -> Error {
    Error::new(kind, operation, hint).at(range.start(), range.size())
}

impl State {
    /// The mappings that share an address with `range`, in order.
    fn overlapping(&self, range: DeviceRange) -> impl Iterator<Item = &Mapping> {
        let before = self.mappings.range(..range.start()).next_back();
        let from = before.filter(|(_, m)| m.range.overlaps(range)).map_or(range.start(), |(at, _)| *at);
        self.mappings.range(from..range.end()).map(|(_, mapping)| mapping)
    }

    /// Refuses a range that does not lie in one reservation.
    fn check_inside(&self, range: DeviceRange, operation: Operation) -> Result<()> {
        match self.ranges.range(..=range.start()).next_back() {
            Some((_, (found, _))) if found.contains_range(range) => Ok(()),
            _ => Err(refuse(Kind::OutOfRange, operation, range, "the range does not lie in one reservation")),
        }
    }
}

impl Books {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::driver) fn reserved(&self, range: DeviceRange, device: Ordinal) {
        self.state().ranges.insert(range.start(), (range, device));
    }

    /// Takes a reserved range with nothing mapped out of the books.
    pub(in crate::driver) fn take_range(&self, range: DeviceRange) -> Result<Ordinal> {
        let mut state = self.state();
        let Some((found, device)) = state.ranges.get(&range.start()).copied().filter(|(r, _)| *r == range)
        else {
            return Err(refuse(
                Kind::OutOfRange,
                Operation::Free,
                range,
                "a reservation is freed as a whole",
            ));
        };
        if state.overlapping(found).next().is_some() {
            return Err(refuse(Kind::InUse, Operation::Free, range, "something is mapped there"));
        }
        state.ranges.remove(&range.start());
        Ok(device)
    }

    /// Books a block; one whose handle is there already is owed one release more.
    pub(in crate::driver) fn add_block(&self, handle: u64, block: Block) {
        let mut state = self.state();
        let entry = state.blocks.entry(handle).or_insert(Block { references: 0, ..block });
        (entry.size, entry.device, entry.exportable) = (block.size, block.device, block.exportable);
        entry.references += block.references;
    }

    pub(in crate::driver) fn block(&self, block: NativeBlock, operation: Operation) -> Result<Block> {
        let stale = || Error::new(Kind::InvalidHandle, operation, "not a block of this driver");
        self.state().blocks.get(&block.0).copied().ok_or_else(stale)
    }

    /// Takes one release off a block.
    pub(in crate::driver) fn take_block(&self, block: NativeBlock) -> Result<Block> {
        let mut state = self.state();
        let Some(entry) = state.blocks.get_mut(&block.0) else {
            return Err(Error::new(Kind::InvalidHandle, Operation::Release, "not a block of this driver"));
        };
        let taken = *entry;
        entry.references = entry.references.saturating_sub(1);
        if entry.references == 0 {
            state.blocks.remove(&block.0);
        }
        Ok(taken)
    }

    /// Checks a map and books it as under way; gives the block's device.
    pub(in crate::driver) fn begin_map(&self, range: DeviceRange, block: NativeBlock) -> Result<Ordinal> {
        let known = self.block(block, Operation::Map).map_err(|e| e.at(range.start(), range.size()))?;
        let mut state = self.state();
        state.check_inside(range, Operation::Map)?;
        if known.size != range.size() {
            return Err(refuse(Kind::InvalidSize, Operation::Map, range, "a block is mapped whole"));
        }
        if state.overlapping(range).next().is_some() {
            return Err(refuse(Kind::AlreadyMapped, Operation::Map, range, "unmap first"));
        }
        state.mappings.insert(range.start(), Mapping { range, device: known.device, busy: true });
        Ok(known.device)
    }

    pub(in crate::driver) fn end_map(&self, range: DeviceRange, mapped: bool) {
        self.settle(range, mapped);
    }

    /// Checks an unmap and books it as under way; gives the block's device.
    pub(in crate::driver) fn begin_unmap(&self, range: DeviceRange) -> Result<Ordinal> {
        let mut state = self.state();
        state.check_inside(range, Operation::Unmap)?;
        let exact = state.mappings.get_mut(&range.start()).filter(|m| m.range == range);
        if let Some(mapping) = exact {
            claim(mapping, Operation::Unmap)?;
            return Ok(mapping.device);
        }
        if state.overlapping(range).next().is_none() {
            return Err(refuse(Kind::NotMapped, Operation::Unmap, range, "nothing is mapped there"));
        }
        Err(refuse(Kind::PartialMapping, Operation::Unmap, range, "unmap exactly what was mapped"))
    }

    pub(in crate::driver) fn end_unmap(&self, range: DeviceRange, unmapped: bool) {
        self.settle(range, !unmapped);
    }

    fn settle(&self, range: DeviceRange, stays: bool) {
        let mut state = self.state();
        if !stays {
            state.mappings.remove(&range.start());
        } else if let Some(mapping) = state.mappings.get_mut(&range.start()) {
            mapping.busy = false;
        }
    }

    /// Checks a set-access over whole neighbouring mappings of one reservation, or over a whole reservation, which
    /// may have holes, and books it as under way.
    pub(in crate::driver) fn begin_access(&self, range: DeviceRange) -> Result<Claim> {
        let mut state = self.state();
        state.check_inside(range, Operation::SetAccess)?;
        let may_have_holes = state.ranges.get(&range.start()).is_some_and(|(whole, _)| *whole == range);
        let (mut bytes, mut claim) = (0, Claim::default());
        for mapping in state.overlapping(range) {
            if !range.contains_range(mapping.range) {
                return Err(refuse(Kind::PartialMapping, Operation::SetAccess, range, "name whole mappings"));
            }
            if mapping.busy {
                return Err(busy(mapping.range, Operation::SetAccess));
            }
            bytes += mapping.range.size().get();
            claim.add(mapping);
        }
        if bytes == 0 || !may_have_holes && bytes != range.size().get() {
            return Err(refuse(Kind::NotMapped, Operation::SetAccess, range, "not all of it is mapped"));
        }
        for (_, mapping) in state.mappings.range_mut(range.start()..range.end()) {
            mapping.busy = true;
        }
        Ok(claim)
    }

    pub(in crate::driver) fn end_access(&self, range: DeviceRange) {
        for (_, mapping) in self.state().mappings.range_mut(range.start()..range.end()) {
            mapping.busy = false;
        }
    }

    pub(in crate::driver) fn add_allocation(&self, address: DevicePtr, device: Ordinal) {
        self.state().allocations.insert(address, device);
    }

    pub(in crate::driver) fn take_allocation(&self, address: DevicePtr, device: Ordinal) -> Result<()> {
        let mut state = self.state();
        if state.allocations.get(&address) != Some(&device) {
            let error =
                Error::new(Kind::InvalidArgument, Operation::Deallocate, "not an allocation of this device");
            return Err(error.at(address, ByteSize::ZERO));
        }
        state.allocations.remove(&address);
        Ok(())
    }
}

fn busy(range: DeviceRange, operation: Operation) -> Error {
    refuse(Kind::Busy, operation, range, "another thread is at the same mapping")
}

fn claim(mapping: &mut Mapping, operation: Operation) -> Result<()> {
    if mapping.busy {
        return Err(busy(mapping.range, operation));
    }
    mapping.busy = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 2 << 20;

    fn range(at: u64, granules: u64) -> DeviceRange {
        DeviceRange::new(DevicePtr(at * G), ByteSize(granules * G)).expect("a range")
    }

    fn books() -> Books {
        let books = Books::default();
        books.reserved(range(16, 8), Ordinal(0));
        books.add_block(
            7,
            Block { size: ByteSize(2 * G), device: Ordinal(0), references: 1, exportable: false },
        );
        books
    }

    fn kind<T>(result: Result<T>) -> Option<Kind> {
        result.err().map(|e| e.kind)
    }

    fn map(books: &Books, at: u64) {
        books.begin_map(range(at, 2), NativeBlock(7)).expect("a map");
        books.end_map(range(at, 2), true);
    }

    #[test]
    fn maps_are_whole_inside_and_single() {
        let books = books();
        map(&books, 16);
        assert_eq!(kind(books.begin_map(range(17, 2), NativeBlock(7))), Some(Kind::AlreadyMapped));
        assert_eq!(kind(books.begin_map(range(18, 1), NativeBlock(7))), Some(Kind::InvalidSize));
        assert_eq!(kind(books.begin_map(range(23, 2), NativeBlock(7))), Some(Kind::OutOfRange));
        assert_eq!(kind(books.begin_map(range(18, 2), NativeBlock(8))), Some(Kind::InvalidHandle));
    }

    #[test]
    fn unmaps_are_exact() {
        let books = books();
        map(&books, 16);
        map(&books, 18);
        assert_eq!(kind(books.begin_unmap(range(16, 1))), Some(Kind::PartialMapping));
        assert_eq!(kind(books.begin_unmap(range(16, 4))), Some(Kind::PartialMapping));
        assert_eq!(kind(books.begin_unmap(range(17, 2))), Some(Kind::PartialMapping));
        assert_eq!(kind(books.begin_unmap(range(20, 2))), Some(Kind::NotMapped));
        assert_eq!(kind(books.take_range(range(16, 8))), Some(Kind::InUse));
        books.begin_unmap(range(16, 2)).expect("exact");
        assert_eq!(kind(books.begin_unmap(range(16, 2))), Some(Kind::Busy));
        books.end_unmap(range(16, 2), true);
        assert_eq!(kind(books.begin_unmap(range(16, 2))), Some(Kind::NotMapped));
    }

    #[test]
    fn access_covers_whole_neighbours_without_holes() {
        let books = books();
        map(&books, 16);
        map(&books, 20);
        assert_eq!(kind(books.begin_access(range(16, 6))), Some(Kind::NotMapped));
        let claim = books.begin_access(range(16, 8)).expect("a whole reservation");
        let mappings = vec![range(16, 2), range(20, 2)];
        assert_eq!(claim, Claim { devices: vec![Ordinal(0)], runs: mappings.clone(), mappings });
        books.end_access(range(16, 8));
        assert_eq!(kind(books.begin_access(range(16, 1))), Some(Kind::PartialMapping));
        assert_eq!(kind(books.begin_access(range(18, 2))), Some(Kind::NotMapped));
        map(&books, 18);
        assert_eq!(books.begin_access(range(16, 6)).expect("whole").runs, [range(16, 6)]);
        books.end_access(range(16, 6));
        assert_eq!(books.begin_access(range(18, 2)).expect("one").mappings, [range(18, 2)]);
    }

    #[test]
    fn a_failed_call_leaves_the_books_as_before() {
        let books = books();
        books.begin_map(range(16, 2), NativeBlock(7)).expect("a map");
        books.end_map(range(16, 2), false);
        assert_eq!(kind(books.begin_unmap(range(16, 2))), Some(Kind::NotMapped));
        map(&books, 16);
        books.begin_unmap(range(16, 2)).expect("exact");
        books.end_unmap(range(16, 2), false);
        books.begin_access(range(16, 2)).expect("still mapped");
    }

    #[test]
    fn a_handle_given_twice_is_owed_two_releases() {
        let books = books();
        books.add_block(
            7,
            Block { size: ByteSize(2 * G), device: Ordinal(0), references: 1, exportable: false },
        );
        books.take_block(NativeBlock(7)).expect("the first");
        books.take_block(NativeBlock(7)).expect("the second");
        assert_eq!(kind(books.take_block(NativeBlock(7))), Some(Kind::InvalidHandle));
    }
}
