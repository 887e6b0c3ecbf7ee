//! Ranges, blocks and mappings. This driver checks little: freeing a range neither checks nor unmaps, unmapping
//! what is not mapped succeeds, destroying a block frees it at once, mapped or not. So we keep books of our own and
//! are as strict as the trait says.
//!
//! Access is given by the map call, and changing it later is an unmap and a map of one mapping inside the driver
//! (and loses the others, where the range covers several). So `map` books a mapping only, and `set_access` makes
//! the driver's call: nobody can touch it before, and each mapping costs one call.

use super::context::Core;
use super::device::{self, Device, PLAIN};
use super::layout::{DeviceAllocDesc, RelaxedLimits, address};
use super::places::{Held, Place, Places, Reserved};
use super::{NO_ACCESS, READ_ONLY, READ_WRITE};
use crate::driver::books::{Block, Books};
use crate::driver::library::intern;
use crate::driver::{Access, AccessMode, CreateOptions, MemoryInfo, NativeBlock, Ordinal, unsupported};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

/// Everything that is booked.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) books: Books,
    pub(super) places: Places,
    /// The sizes of plain allocations, for the budget.
    plain: Mutex<HashMap<DevicePtr, ByteSize>>,
    /// Blocks whose memory another process, or another block, pays for.
    guests: Mutex<HashSet<u64>>,
}

impl Ledger {
    /// A block came from outside: it does not count.
    pub(super) fn add_guest(&self, block: u64) {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner).insert(block);
    }

    fn take_guest(&self, block: u64) -> bool {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner).remove(&block)
    }
}

impl Core {
    pub(super) fn virtual_memory(&self, device: Ordinal, operation: Operation) -> Result<&Device> {
        let device = self.device(device, operation)?;
        if device.virtual_memory {
            return Ok(device);
        }
        Err(unsupported(operation, "this device has no virtual memory: use allocations"))
    }

    pub(super) fn memory(&self, device: Ordinal) -> Result<MemoryInfo> {
        Ok(self.device(device, Operation::Query)?.budget.info(&self.api))
    }

    fn whole_pages(&self, device: Ordinal, size: ByteSize, operation: Operation) -> Result<Granularity> {
        let invalid = |hint| Err(Error::new(Kind::InvalidSize, operation, hint).of(size));
        if size.is_zero() {
            return invalid("0 bytes");
        }
        let granularity = self.granularity(device, size).map_err(|e| e.during(operation))?;
        if !granularity.divides(size) {
            return invalid("not a multiple of the granularity for this size");
        }
        Ok(granularity)
    }

    pub(super) fn reserve(
        &self,
        ledger: &Ledger,
        device: Ordinal,
        size: ByteSize,
        alignment: Granularity,
    ) -> Result<DeviceRange> {
        let found = self.virtual_memory(device, Operation::Reserve)?;
        let granularity = self.whole_pages(device, size, Operation::Reserve)?;
        if alignment < granularity {
            return Err(Error::new(Kind::Misaligned, Operation::Reserve, "alignment below the granularity"));
        }
        let (start, native) = self.aligned(found, size, alignment).map_err(|e| e.of(size))?;
        let Some(range) = DeviceRange::new(start, size) else {
            self.api.log("free a range", self.api.free(found.context, native.0, native.1));
            let hint = "the driver gave a range that wraps";
            return Err(Error::new(Kind::DriverError, Operation::Reserve, hint));
        };
        ledger.places.reserved(Reserved { range, native });
        ledger.books.reserved(range, device);
        Ok(range)
    }

    /// A range whose start is aligned. The driver takes no alignment, and an address only as a hint: where what
    /// comes back does not fit, a larger range does, of which a part is used.
    fn aligned(
        &self,
        device: &Device,
        size: ByteSize,
        alignment: Granularity,
    ) -> Result<(DevicePtr, (u64, u64))> {
        let first = self.range(device, size.get())?;
        if DevicePtr(first).is_aligned(alignment) {
            return Ok((DevicePtr(first), (first, size.get())));
        }
        self.api.check(self.api.free(device.context, first, size.get()), Operation::Reserve)?;
        let too_large = || Error::new(Kind::OutOfAddressSpace, Operation::Reserve, "no range is that large");
        let most = size.checked_add(alignment.size()).ok_or_else(too_large)?;
        let page = self.granularity(device.ordinal, most)?;
        let most = page.round_up(most).ok_or_else(too_large)?;
        let native = self.range(device, most.get())?;
        let start = alignment.round_up(ByteSize(native)).ok_or_else(too_large)?;
        Ok((DevicePtr(start.get()), (native, most.get())))
    }

    fn range(&self, device: &Device, bytes: u64) -> Result<u64> {
        let mut address = 0;
        let status = self.api.reserve(device.context, 0, bytes, &mut address);
        self.api.given(status, address, Operation::Reserve)
    }

    pub(super) fn free(&self, ledger: &Ledger, range: DeviceRange) -> Result<()> {
        // Out of the books before the call: the driver may give the same range to another thread at once.
        let device = ledger.books.take_range(range)?;
        let native = ledger.places.take_reserved(range);
        let (start, bytes) = native.map_or((range.start().get(), range.size().get()), |r| r.native);
        let freed = self
            .device(device, Operation::Free)
            .and_then(|found| self.api.check(self.api.free(found.context, start, bytes), Operation::Free));
        freed.map_err(|e| {
            ledger.places.reserved(Reserved { range, native: (start, bytes) });
            ledger.books.reserved(range, device);
            e.at(range.start(), range.size())
        })
    }

    pub(super) fn create(
        &self,
        ledger: &Ledger,
        device: Ordinal,
        size: ByteSize,
        options: CreateOptions,
    ) -> Result<NativeBlock> {
        let found = self.virtual_memory(device, Operation::Create)?;
        self.whole_pages(device, size, Operation::Create)?;
        if options.exportable && found.share_as == 0 {
            return Err(unsupported(Operation::Create, "this device's blocks cannot be exported").of(size));
        }
        self.settle(ledger);
        found.budget.take(&self.api, size, Operation::Create)?;
        let share_as = if options.exportable { found.share_as } else { 0 };
        let (status, block) =
            device::make_block(&self.api, found.context, found.handle, size.get(), share_as);
        let block = self.api.given(status, block, Operation::Create).map_err(|e| {
            found.budget.give(size);
            e.of(size)
        })?;
        ledger.books.add_block(block, Block { size, device, references: 1, exportable: options.exportable });
        Ok(NativeBlock(block))
    }

    /// A block that is mapped is destroyed at its unmap: the driver would take the memory away at once.
    pub(super) fn release(&self, ledger: &Ledger, block: NativeBlock) -> Result<()> {
        let entry = ledger.books.take_block(block)?;
        if entry.references > 1 {
            return Ok(());
        }
        let guest = ledger.take_guest(block.0);
        let held = Held { block: block.0, device: entry.device, size: entry.size, guest };
        if ledger.places.release(held) {
            return Ok(());
        }
        self.destroy(held).inspect_err(|_| {
            if guest {
                ledger.add_guest(block.0);
            }
            ledger.books.add_block(block.0, Block { references: 1, ..entry });
        })
    }

    fn destroy(&self, held: Held) -> Result<()> {
        let found = self.device(held.device, Operation::Release)?;
        let status = self.api.physical_destroy(found.context, held.block);
        self.api.check(status, Operation::Release).map_err(|e| e.of(held.size))?;
        if !held.guest {
            found.budget.give(held.size);
        }
        Ok(())
    }

    /// Destroys a block that nobody knows any more, now or later.
    fn discard(&self, ledger: &Ledger, held: Held) {
        if let Err(error) = self.destroy(held) {
            log::warn!("a block stays for now: {error}");
            ledger.places.keep(held);
        }
    }

    /// Tries again to destroy what could not be.
    pub(super) fn settle(&self, ledger: &Ledger) {
        for held in ledger.places.take_stuck() {
            self.discard(ledger, held);
        }
    }

    pub(super) fn map(&self, ledger: &Ledger, range: DeviceRange, block: NativeBlock) -> Result<()> {
        let here = |e: Error| e.at(range.start(), range.size());
        let known = ledger.books.block(block, Operation::Map).map_err(here)?;
        let granularity =
            self.granularity(known.device, known.size).map_err(|e| here(e.during(Operation::Map)))?;
        super::check_range(range, granularity, Operation::Map)?;
        let device = ledger.books.begin_map(range, block)?;
        let added = ledger.places.add(range, block, device);
        ledger.books.end_map(range, added.is_ok());
        added.map_err(here)
    }

    pub(super) fn unmap(&self, ledger: &Ledger, range: DeviceRange) -> Result<()> {
        ledger.books.begin_unmap(range)?;
        let unmapped = match ledger.places.at(range) {
            Some(place) if place.access != NO_ACCESS => self.native_unmap(&place),
            _ => Ok(()),
        };
        let released = if unmapped.is_ok() { ledger.places.take(range) } else { None };
        ledger.books.end_unmap(range, unmapped.is_ok());
        if let Some(held) = released {
            self.discard(ledger, held);
        }
        unmapped.map_err(|e| e.during(Operation::Unmap).at(range.start(), range.size()))
    }

    fn native_unmap(&self, place: &Place) -> Result<()> {
        let context = self.device(place.device, Operation::Unmap)?.context;
        let (start, bytes) = (place.range.start().get(), place.range.size().get());
        self.api.check(self.api.unmap(context, start, bytes), Operation::Unmap)
    }

    fn native_map(&self, place: &Place, access: u32) -> Result<()> {
        let context = self.device(place.device, Operation::SetAccess)?.context;
        let (start, bytes) = (place.range.start().get(), place.range.size().get());
        self.api.check(self.api.map(context, start, bytes, place.block, 0, access), Operation::SetAccess)
    }

    /// Access is the context's, and one for a whole reservation: the most that a line of the list asks for.
    pub(super) fn set_access(&self, ledger: &Ledger, range: DeviceRange, access: &[Access]) -> Result<()> {
        let here = |e: Error| e.at(range.start(), range.size());
        let wanted = self.check_list(access).map_err(here)?;
        if ledger.places.is_whole(range) == Some(false) {
            let hint = "this driver keeps one access for a whole reservation";
            return Err(here(unsupported(Operation::SetAccess, hint)));
        }
        let claim = ledger.books.begin_access(range)?;
        let result =
            self.check_reach(&claim.devices, access).and_then(|()| self.tell_all(ledger, range, wanted));
        ledger.books.end_access(range);
        result.map_err(here)
    }

    /// The mappings of `range` are booked as busy: nobody else touches them meanwhile.
    fn tell_all(&self, ledger: &Ledger, range: DeviceRange, wanted: u32) -> Result<()> {
        let places = ledger.places.within(range);
        for (at, place) in places.iter().enumerate() {
            if let Err(error) = self.tell(ledger, place, wanted) {
                for done in places[..=at].iter().rev() {
                    self.take_back(ledger, done);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives one mapping the access that is wanted.
    fn tell(&self, ledger: &Ledger, place: &Place, wanted: u32) -> Result<()> {
        if place.access == wanted {
            return Ok(());
        }
        if place.access != NO_ACCESS {
            self.native_unmap(place)?;
            ledger.places.told(place.range, NO_ACCESS);
        }
        if wanted != NO_ACCESS {
            self.native_map(place, wanted)?;
            ledger.places.told(place.range, wanted);
        }
        Ok(())
    }

    /// Brings a mapping back to what it was when it was read. What cannot be is without access, and is told.
    fn take_back(&self, ledger: &Ledger, before: &Place) {
        let Some(now) = ledger.places.at(before.range) else { return };
        if let Err(error) = self.tell(ledger, &now, before.access) {
            log::warn!("a mapping's access could not be brought back: {error}");
        }
    }

    fn check_list(&self, access: &[Access]) -> Result<u32> {
        if access.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, Operation::SetAccess, "the access list is empty"));
        }
        let mut most = NO_ACCESS;
        for (at, line) in access.iter().enumerate() {
            self.device(line.device, Operation::SetAccess).map_err(|e| e.entry(at as u64))?;
            match line.mode {
                AccessMode::NONE => {}
                AccessMode::READ if most == NO_ACCESS => most = READ_ONLY,
                AccessMode::READ => {}
                AccessMode::READ_WRITE => most = READ_WRITE,
                _ => {
                    let error = Error::new(Kind::InvalidArgument, Operation::SetAccess, "not an access mode");
                    return Err(error.entry(at as u64));
                }
            }
        }
        Ok(most)
    }

    /// Refuses a list that names a device which cannot reach a block's device.
    fn check_reach(&self, owners: &[Ordinal], access: &[Access]) -> Result<()> {
        for (at, line) in access.iter().enumerate().filter(|(_, line)| line.mode != AccessMode::NONE) {
            if let Some(owner) = owners.iter().find(|owner| !self.reaches(line.device, **owner)) {
                let (from, to) = (line.device.0, owner.0);
                let hint = format!("device {from} cannot reach device {to}: take it off the access list");
                return Err(unsupported(Operation::SetAccess, intern(&hint)).entry(at as u64));
            }
        }
        Ok(())
    }

    pub(super) fn reaches(&self, device: Ordinal, owner: Ordinal) -> bool {
        let found = |d| self.device(d, Operation::SetAccess);
        let (Ok(from), Ok(to)) = (found(device), found(owner)) else { return false };
        let mut can = 0;
        device == owner
            || (from.context == to.context
                && self.api.can_access_peer(from.handle, to.handle, &mut can) == 0
                && can != 0)
    }

    pub(super) fn allocate(&self, ledger: &Ledger, device: Ordinal, size: ByteSize) -> Result<DevicePtr> {
        let found = self.device(device, Operation::Allocate)?;
        if size.is_zero() {
            return Err(Error::new(Kind::InvalidSize, Operation::Allocate, "0 bytes"));
        }
        found.budget.take(&self.api, size, Operation::Allocate)?;
        let given = self.plain(found, size);
        let at = given.inspect_err(|_| found.budget.give(size)).map_err(|e| e.of(size))?;
        ledger.plain.lock().unwrap_or_else(PoisonError::into_inner).insert(at, size);
        ledger.books.add_allocation(at, device);
        Ok(at)
    }

    fn plain(&self, device: &Device, size: ByteSize) -> Result<DevicePtr> {
        /// `ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE`.
        const MAX_SIZE: u32 = 1;
        let relaxed = RelaxedLimits { flags: MAX_SIZE, ..RelaxedLimits::blank() };
        let next = if size.get() > device.largest { address(&relaxed) } else { 0 };
        let desc = DeviceAllocDesc { next, ..DeviceAllocDesc::blank() };
        let (alignment, mut at) = (PLAIN.size().get(), 0);
        let status = self.api.allocate(device.context, &desc, size.get(), alignment, device.handle, &mut at);
        self.api.given(status, at, Operation::Allocate).map(DevicePtr)
    }

    pub(super) fn deallocate(&self, ledger: &Ledger, device: Ordinal, address: DevicePtr) -> Result<()> {
        let found = self.device(device, Operation::Deallocate)?;
        ledger.books.take_allocation(address, device)?;
        let sizes = || ledger.plain.lock().unwrap_or_else(PoisonError::into_inner);
        let size = sizes().remove(&address).unwrap_or_default();
        let status = self.api.deallocate(found.context, address.get());
        self.api.check(status, Operation::Deallocate).map_err(|e| {
            sizes().insert(address, size);
            ledger.books.add_allocation(address, device);
            e.at(address, ByteSize::ZERO)
        })?;
        found.budget.give(size);
        Ok(())
    }
}
