//! Address ranges and what is mapped in them.

use super::access::{self, List};
use super::cleanup::{Leftover, log_failure};
use super::commit::{carry_out, log_lost};
use super::entries::In;
use super::job::{self, Job, want_block};
use super::mapping::{Books, Context, Mapping, State, Stray};
use super::plan::{Action, Back, Changed, Entry, Mode, Plan, Step, Want, Why};
use super::remap::push_access;
use super::retire::Garbage;
use super::shared::{Shared, next_number};
use super::{Block, BlockId, Device, MappingInfo, PlaceEntry};
use crate::driver::Access;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DeviceRange, Granularity};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Who made a reservation's mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The caller: a block mapped there is in use.
    Caller,
    /// This library (bindings, allocations, shadows): such mappings keep a block alive, and nothing more.
    Library,
}

/// A range of addresses of one device. Dropping it unmaps what is mapped and frees the range (once retired
/// mappings in it have passed); whoever drops it vouches that nothing uses what is still mapped.
#[derive(Debug)]
pub struct Reservation {
    shared: Arc<Shared>,
    id: u64,
    range: DeviceRange,
    owner: Owner,
    books: Mutex<Books>,
    me: Weak<Self>,
}

impl Reservation {
    pub(crate) fn new(shared: &Arc<Shared>, range: DeviceRange, list: List, owner: Owner) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            shared: Arc::clone(shared),
            id: next_number(),
            range,
            owner,
            books: Mutex::new(Books::new(list)),
            me: Weak::clone(me),
        })
    }

    /// Its addresses.
    pub const fn range(&self) -> DeviceRange {
        self.range
    }

    /// Who makes its mappings.
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// Its number, one of a kind in the process.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its device, unless that was closed.
    pub fn device(&self) -> Option<Arc<Device>> {
        self.shared.open_device()
    }

    /// True where it is a reservation of `device`.
    pub fn belongs_to(&self, device: &Device) -> bool {
        self.is_of(device.shared())
    }

    pub(crate) fn is_of(&self, shared: &Shared) -> bool {
        std::ptr::eq(&raw const *self.shared, shared)
    }

    /// Its access list, by device, without the devices that have none.
    pub fn access(&self) -> Arc<[Access]> {
        Arc::from(&*self.books().list)
    }

    /// What is mapped, by offset; retired and lost mappings are listed as such.
    pub fn mappings(&self) -> Vec<MappingInfo> {
        self.books().infos()
    }

    /// True where nothing is mapped; retired mappings do not count, lost ones do.
    pub fn is_empty(&self) -> bool {
        self.books().is_empty()
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context { shared: &self.shared, range: self.range, owner: self.owner }
    }

    /// Checks that `size` bytes at `offset` lie inside, and are aligned where that matters.
    pub(crate) fn check(
        &self,
        operation: Operation,
        offset: ByteSize,
        size: ByteSize,
        granularity: Option<Granularity>,
    ) -> Result<DeviceRange> {
        let fail = |kind, hint| Err(Error::new(kind, operation, hint).of(size));
        if size.is_zero() {
            return fail(Kind::InvalidSize, "the size is 0");
        }
        let Some(range) = self.range.slice(offset, size) else {
            return fail(Kind::OutOfRange, "the range does not lie inside the reservation");
        };
        if granularity.is_some_and(|granularity| !range.start().is_aligned(granularity)) {
            return fail(Kind::Misaligned, "the offset is no multiple of the granularity");
        }
        Ok(range)
    }

    /// Maps the whole of `block` at `offset`, without access; a later [`Self::set_access`] gives it. A retired
    /// mapping of the same block at the same place comes back into use with no driver call, unless its access was
    /// another than the list's; that one, or one of another block in the way, is waited for. A lost mapping of
    /// the same block is rebuilt.
    ///
    /// # Errors
    /// `InvalidArgument` for a block of another device, `Misaligned`, `OutOfRange`, `AlreadyMapped`,
    /// `Unsupported` where the block is mapped elsewhere and the device cannot alias, and the driver's. Nothing
    /// has changed then.
    pub fn map(&self, offset: ByteSize, block: &Arc<Block>) -> Result<()> {
        if !block.is_of(&self.shared) {
            return Err(Error::new(
                Kind::InvalidArgument,
                Operation::Map,
                "the block is one of another device",
            ));
        }
        self.check(Operation::Map, offset, block.size(), Some(block.granularity()))?;
        let result = self.shared.with_room(|| {
            let entry = Entry::new(0);
            let want = Want { place: 0, offset: offset.get(), block: Some(want_block(block)), entry };
            let (shared, mode) = (&*self.shared, Mode::Map);
            let entries = &mut [PlaceEntry { offset, block: Some(Arc::clone(block)) }];
            let entries = &mut In { reservation: self, entries };
            Job { shared, mode, places: &[self], wants: &[want], entries, wait_for: &[] }.run()
        });
        self.shared.collect();
        // There is one block, so no entry is to blame.
        result.map(|_| ()).map_err(|e| Error { entry: None, ..e })
    }

    /// Unmaps the one or several mappings that make up `size` bytes from `offset`. Nobody is waited for.
    ///
    /// # Errors
    /// `InvalidSize`, `OutOfRange`, `NotMapped` where nothing is mapped there, `PartialMapping` where the range
    /// cuts a mapping, and the driver's. Nothing has changed then, except for `RangeLost`.
    pub fn unmap(&self, offset: ByteSize, size: ByteSize) -> Result<()> {
        let range = self.check(Operation::Unmap, offset, size, None)?;
        let mut books = [self.books()];
        check_exact(Operation::Unmap, &books[0], range, offset.get())?;
        let mut plan = Plan::default();
        for (offset, mapping) in books[0].overlapping(offset.get(), size.get()) {
            if mapping.is_lost() {
                plan.forgotten.push((0, offset));
            } else if let (false, Some(range)) = (mapping.is_retired(), self.part(offset, &mapping.block)) {
                let why = Why::Replaced { restore: mapping.applied };
                let action = Action::Unmap { native: mapping.block.native(), why, followed: false };
                plan.steps.push(Step { place: 0, offset, range, entry: None, action });
            }
        }
        let (result, garbage) = self.carry_out(&mut books, &plan);
        drop(books);
        drop(garbage);
        if result.is_err() {
            self.settle_now(&[]);
        }
        log_lost(&result);
        self.shared.collect();
        result
    }

    /// Sets what devices may do. For the whole reservation this becomes its list and clears overrides; for exact
    /// mappings it overrides the list until they are unmapped or the whole is set. A device that is no longer
    /// listed loses its access; an empty list is the own device, read and write.
    ///
    /// # Errors
    /// `InvalidArgument` for a mode or a list that does not exist, `NoDevice`, `InvalidSize`, `OutOfRange`,
    /// `NotMapped`, `PartialMapping`, `Unsupported` for a part where the device sets only the whole, and the
    /// driver's. Nothing has changed then, except for `RangeLost`.
    pub fn set_access(&self, offset: ByteSize, size: ByteSize, access: &[Access]) -> Result<()> {
        let list = access::normalize(&self.shared.calls, Operation::SetAccess, access)?;
        let range = self.check(Operation::SetAccess, offset, size, None)?;
        let whole = range == self.range;
        let mut books = [self.books()];
        if !whole {
            if !self.shared.shape.ranged {
                let hint = "this device sets the access of whole reservations only";
                return Err(Error::new(Kind::Unsupported, Operation::SetAccess, hint).of(size));
            }
            check_exact(Operation::SetAccess, &books[0], range, offset.get())?;
        }
        let plan = self.access_plan(&books[0], range, offset.get(), list);
        let (result, garbage) = self.carry_out(&mut books, &plan);
        if result.is_ok() {
            books[0].want(offset.get(), size.get(), list, whole);
        }
        drop(books);
        drop(garbage);
        // Work may be using these mappings, and nobody vouched for it: the next remap waits for it and unmaps them.
        let result =
            result.map_err(|e| if e.kind == Kind::RangeLost { Error { hint: UNSETTLED, ..e } } else { e });
        log_lost(&result);
        result
    }

    /// The calls that give `list` to the mappings of a range, joined as far as the device allows. Retired
    /// mappings keep what they have, except where only the whole can be set.
    fn access_plan(&self, books: &Books, range: DeviceRange, offset: u64, list: List) -> Plan {
        let shape = self.shared.shape;
        let mut plan = Plan::default();
        for (offset, mapping) in books.overlapping(offset, range.size().get()) {
            if mapping.is_lost() || (mapping.is_retired() && shape.ranged) {
                continue;
            }
            let (call, part) = (shape.change(mapping.applied, list), self.part(offset, &mapping.block));
            let (Some(call), Some(range)) = (call, part) else { continue };
            let back = shape.change(list, mapping.applied);
            let change = Changed { place: 0, offset, range, call, to: list, back, entry: None };
            push_access(shape, self.range, &mut plan.steps, &mut plan.backs, change);
        }
        if let (false, [Step { action: Action::Access { back, .. }, range, .. }]) =
            (shape.ranged, &mut plan.steps[..])
        {
            // One state for all: the old list is what goes back.
            plan.backs.extend(shape.change(list, books.list).map(|call| Back { range: *range, call }));
            back.1 = plan.backs.len() as u32;
        }
        plan
    }

    fn part(&self, offset: u64, block: &Block) -> Option<DeviceRange> {
        self.range.slice(ByteSize(offset), block.size())
    }

    /// Runs a plan for this reservation alone, which maps nothing.
    fn carry_out(&self, books: &mut [MutexGuard<'_, Books>; 1], plan: &Plan) -> (Result<()>, Garbage) {
        let places = job::places(&[self], books);
        carry_out(&self.shared, &[self], &places, books, plan, &mut ())
    }

    /// Unmaps a retired mapping, if it still is that one, and gives its block. The books stay locked across the
    /// driver call, so that they and the driver change together.
    pub(crate) fn unmap_retired(&self, offset: u64, token: u64) -> Result<Option<Arc<Block>>> {
        let mut books = self.books();
        match books.mappings.get(&offset) {
            Some(Mapping { state: State::Retired { token: held, .. }, block, .. }) if *held == token => {
                if let Some(range) = self.part(offset, block) {
                    self.shared.calls.unmap(range)?;
                }
                Ok(books.take(self.context(), offset))
            }
            _ => Ok(None),
        }
    }

    /// True where the mapping at `offset` still is the one retired as `token`.
    pub(crate) fn is_pending(&self, offset: u64, token: u64) -> bool {
        let books = self.books();
        let mapping = books.mappings.get(&offset);
        mapping.is_some_and(|m| matches!(m.state, State::Retired { token: held, .. } if held == token))
    }

    /// Has what an undo left here, and nothing uses, tried again by the next collect.
    pub(crate) fn watch_strays(&self) {
        self.shared.keep(Leftover::Strays(Weak::clone(&self.me)));
    }

    /// Tries that again, and those of the busy ones that nothing uses any more, with the books locked across the
    /// driver calls.
    pub(crate) fn settle_strays(&self, passed: &[(u64, BlockId)]) -> Result<()> {
        let mut garbage = Vec::new();
        let mut books = self.books();
        let goes = |s: &&Stray| s.idle || passed.contains(&(s.offset, s.block.id()));
        let going: Vec<_> = books.strays.iter().filter(goes).map(|s| (s.offset, s.block.size())).collect();
        let result = going.into_iter().try_for_each(|(offset, size)| {
            if let Some(range) = self.range.slice(ByteSize(offset), size) {
                self.shared.calls.unmap(range)?;
            }
            garbage.extend(books.take_stray(offset));
            Ok(())
        });
        drop(books);
        drop(garbage);
        log_lost(&result);
        result
    }

    /// The same right after the failure that left them; what is not unmapped then waits for the next collect or remap.
    pub(crate) fn settle_now(&self, passed: &[(u64, BlockId)]) {
        log_failure("unmapping what an undo left", self.settle_strays(passed));
    }
}

/// Checks that a range is made up of whole mappings.
fn check_exact(operation: Operation, books: &Books, range: DeviceRange, offset: u64) -> Result<()> {
    let fail = |kind, hint| Err(Error::new(kind, operation, hint).at(range.start(), range.size()));
    let end = offset + range.size().get();
    let mut at = offset;
    for (start, mapping) in books.overlapping(offset, range.size().get()).filter(|(_, m)| !m.is_retired()) {
        if start < offset || start + mapping.size() > end {
            return fail(Kind::PartialMapping, "the range cuts a mapping: name whole ones");
        }
        if start != at {
            break;
        }
        at = start + mapping.size();
    }
    if at == end { Ok(()) } else { fail(Kind::NotMapped, "nothing is mapped in all or part of the range") }
}

const UNSETTLED: &str =
    "undoing failed too: what devices may do is not known until the next remap, which rebuilds the mappings";

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut books = std::mem::replace(&mut *self.books(), Books::new(List::NOTHING));
        let context = self.context();
        let (mut blocks, mut left) = (Vec::new(), Vec::new());
        let mut gone = |block: Option<Arc<Block>>, offset: u64, mapped: bool| {
            let Some(block) = block else { return };
            match self.part(offset, &block) {
                Some(range) if mapped => match self.shared.calls.unmap(range) {
                    Ok(()) => blocks.push(block),
                    Err(e) => {
                        log::warn!("a mapping stays for now: {e}");
                        block.count_place(true);
                        left.push((range, block));
                    }
                },
                _ => blocks.push(block),
            }
        };
        while let Some((offset, mapped)) = books.mappings.first_key_value().map(|(o, m)| (*o, !m.is_lost())) {
            gone(books.take(context, offset), offset, mapped);
        }
        while let Some(offset) = books.strays.last().map(|stray| stray.offset) {
            gone(books.take_stray(offset), offset, true);
        }
        // Unmap, then release, then free.
        drop(blocks);
        if left.is_empty() {
            self.shared.or_keep(self.shared.calls.free(self.range), || Leftover::Range(self.range, left));
        } else {
            self.shared.keep(Leftover::Range(self.range, left));
        }
    }
}
