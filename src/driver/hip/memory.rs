//! Ranges, blocks and mappings. Our own books are as strict as the trait says, so that HIP is never asked about what
//! it does not know: up to 6.4 that ends the process.
//!
//! A mapping is booked as busy before its call and settled after it. The lock for virtual-memory calls is the only
//! one held across a call (see `alone`).

use super::alone::alone;
use super::api::{OUT_OF_MEMORY, SUCCESS, Status, number};
use super::context::Core;
use super::device::{Device, no_virtual_memory};
use super::holds::{Held, Room};
use super::limits;
use crate::driver::books::{Block, Books};
use crate::driver::quirks::Care;
use crate::driver::structs::AllocationProp;
use crate::driver::{CreateOptions, MemoryInfo, NativeBlock, Ordinal, unsupported};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::sync::atomic::Ordering;

impl Core {
    pub(super) fn virtual_memory(&self, device: Ordinal, operation: Operation) -> Result<&Device> {
        let device = self.device(device, operation)?;
        if !device.virtual_memory {
            return Err(unsupported(operation, no_virtual_memory("this device has no virtual memory")));
        }
        if device.findings.get().is_some_and(|findings| !findings.fresh) {
            let reason = "a self-test found that this device's kernels do not see fresh mappings";
            return Err(unsupported(operation, no_virtual_memory(reason)));
        }
        Ok(device)
    }

    pub(super) fn care_of(&self, device: Ordinal) -> Care {
        self.devices.get(device.0 as usize).map_or(Care::default(), |d| d.care)
    }

    pub(super) fn granularity(&self, device: Ordinal) -> Result<Granularity> {
        self.device(device, Operation::Query).map(|d| d.granularity)
    }

    pub(super) fn memory(&self, device: Ordinal) -> Result<MemoryInfo> {
        let _entered = self.enter_device(device, Operation::Query)?;
        let (mut free, mut total) = (0, 0);
        self.api.check(self.api.memory_info(&mut free, &mut total), Operation::Query)?;
        Ok(MemoryInfo { free: Some(ByteSize(free)), total: ByteSize(total) })
    }

    fn whole_granules(&self, device: Ordinal, size: ByteSize, operation: Operation) -> Result<Granularity> {
        let granularity = self.granularity(device)?;
        if size.is_zero() || !granularity.divides(size) {
            return Err(
                Error::new(Kind::InvalidSize, operation, "not a multiple of the granularity").of(size)
            );
        }
        Ok(granularity)
    }

    pub(super) fn reserve(
        &self,
        books: &Books,
        device: Ordinal,
        size: ByteSize,
        alignment: Granularity,
    ) -> Result<DeviceRange> {
        let care = self.virtual_memory(device, Operation::Reserve)?.care;
        let granularity = self.whole_granules(device, size, Operation::Reserve)?;
        if alignment < granularity {
            return Err(Error::new(Kind::Misaligned, Operation::Reserve, "alignment below the granularity"));
        }
        let _entered = self.enter_device(device, Operation::Reserve)?;
        let (start, native) = self.reserve_aligned(care, size, alignment).map_err(|e| e.of(size))?;
        let Some(range) = DeviceRange::new(DevicePtr(start), size) else {
            let hint = "the driver gave a range that wraps";
            return Err(Error::new(Kind::DriverError, Operation::Reserve, hint));
        };
        self.holds.add_room(Room { range, device, native, used: false, lost: false });
        books.reserved(range, device);
        Ok(range)
    }

    /// The start, and the range that HIP gave: up to 6.4 it does not look at the alignment, so that a larger range
    /// is needed to find an aligned one inside.
    fn reserve_aligned(
        &self,
        care: Care,
        size: ByteSize,
        alignment: Granularity,
    ) -> Result<(u64, (u64, u64))> {
        let _alone = alone(care);
        let bytes = size.get();
        let (align, mut address) = (alignment.size().get(), 0);
        let status = self.api.address_reserve(&mut address, bytes, align, 0, 0);
        self.api.check(status, Operation::Reserve)?;
        if DevicePtr(address).is_aligned(alignment) {
            return Ok((address, (address, bytes)));
        }
        self.log_status("free a misaligned range", self.api.address_free(address, bytes));
        let too_large =
            || Error::new(Kind::OutOfAddressSpace, Operation::Reserve, "the alignment is too large");
        let larger = bytes.checked_add(align).ok_or_else(too_large)?;
        address = 0;
        let status = self.api.address_reserve(&mut address, larger, align, 0, 0);
        self.api.check(status, Operation::Reserve)?;
        Ok((address.next_multiple_of(align), (address, larger)))
    }

    pub(super) fn free(&self, books: &Books, range: DeviceRange) -> Result<()> {
        // Out of the books before the call: the driver may give the same range to another thread at once.
        let device = books.take_range(range)?;
        let room = self.holds.take_room(range);
        let (care, native) = (self.care_of(device), room.filter(|r| !r.lost).map(|r| r.native));
        let freed = self.enter_device(device, Operation::Free).and_then(|_entered| {
            let Some((at, bytes)) = native else { return Ok(()) };
            let _alone = alone(care);
            self.api.check(self.api.address_free(at, bytes), Operation::Free)
        });
        freed.map_err(|e| {
            room.into_iter().for_each(|room| self.holds.add_room(room));
            books.reserved(range, device);
            e.at(range.start(), range.size())
        })
    }

    pub(super) fn create(
        &self,
        books: &Books,
        device: Ordinal,
        size: ByteSize,
        options: CreateOptions,
    ) -> Result<NativeBlock> {
        let care = self.virtual_memory(device, Operation::Create)?.care;
        self.whole_granules(device, size, Operation::Create)?;
        let _entered = self.enter_device(device, Operation::Create)?;
        let properties = AllocationProp::pinned(number(device), options.exportable);
        let make = |handle: &mut u64| {
            let _alone = alone(care);
            self.api.create(handle, size.get(), &properties, 0)
        };
        let mut handle = 0;
        let mut status = make(&mut handle);
        if status == OUT_OF_MEMORY && care.has(Care::RETURN_MEMORY) && self.return_memory() {
            status = make(&mut handle);
        }
        self.check_memory(care, status, Operation::Create).map_err(|e| e.of(size))?;
        books.add_block(handle, Block { size, device, references: 1, exportable: options.exportable });
        self.count_block(care);
        Ok(NativeBlock(handle))
    }

    /// Counts a block that was made, and warns once before descriptors run out.
    pub(super) fn count_block(&self, care: Care) {
        static WARN: std::sync::Once = std::sync::Once::new();
        let blocks = self.blocks.fetch_add(1, Ordering::Relaxed) + 1;
        if care.has(Care::COUNT_DESCRIPTORS) && blocks.is_multiple_of(64) && limits::scarce() {
            WARN.call_once(|| log::warn!("{blocks} blocks hold a file descriptor each: the limit is near"));
        }
    }

    /// As `Api::check`, telling the end of file descriptors from the end of memory.
    pub(super) fn check_memory(&self, care: Care, status: Status, operation: Operation) -> Result<()> {
        let result = self.api.check(status, operation);
        if status != OUT_OF_MEMORY || !care.has(Care::COUNT_DESCRIPTORS) {
            return result;
        }
        let exhausted = limits::exhausted(self.blocks.load(Ordering::Relaxed));
        result.map_err(|e| match exhausted {
            Some(hint) => Error { kind: Kind::OutOfFileDescriptors, hint, ..e },
            None => e,
        })
    }

    /// A block that is still mapped is released when its last mapping is gone: released before, it would keep the
    /// range from ever being freed.
    pub(super) fn release(&self, books: &Books, block: NativeBlock) -> Result<()> {
        let entry = books.take_block(block)?;
        if self.care_of(entry.device).has(Care::RELEASE_LATE) && self.holds.owe_release(block.0) {
            return Ok(());
        }
        self.release_now(entry.device, block.0, entry.size).map_err(|e| {
            books.add_block(block.0, Block { references: 1, ..entry });
            e.of(entry.size)
        })
    }

    fn release_now(&self, device: Ordinal, handle: u64, size: ByteSize) -> Result<()> {
        let care = self.care_of(device);
        let verify = care.has(Care::RETURN_MEMORY) && !self.holds.idle_rooms().is_empty();
        let free = || self.memory(device).ok().and_then(|m| m.free).map(ByteSize::get);
        let before = if verify { free() } else { None };
        {
            let _entered = self.enter_device(device, Operation::Release)?;
            let _alone = alone(care);
            self.api.check(self.api.release(handle), Operation::Release)?;
        }
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        // Others allocate meanwhile, so half of it is enough to believe that it came back.
        let (Some(before), Some(after)) = (before, free().filter(|_| verify)) else { return Ok(()) };
        if after < before.saturating_add(size.get() / 2) && !self.return_memory() {
            log::debug!("{size} were released, and are not seen as free");
        }
        Ok(())
    }

    /// Frees and reserves again the ranges where nothing is mapped any more, at the same addresses: HIP may keep
    /// what was mapped there. False where there was none.
    fn return_memory(&self) -> bool {
        let rooms = self.holds.idle_rooms();
        for room in &rooms {
            let Ok(_entered) = self.enter_device(room.device, Operation::Reserve) else { continue };
            let _alone = alone(self.care_of(room.device));
            // Nobody maps while we are alone; somebody may have before.
            let still = self.holds.within(room.range).is_empty()
                && self.holds.room_of(room.range).is_some_and(|now| now.used && !now.lost);
            if still {
                let lost = !self.renew(room.native);
                self.holds.add_room(Room { used: false, lost, ..*room });
            }
        }
        !rooms.is_empty()
    }

    /// Frees a range and reserves it again where it was. The caller is alone.
    fn renew(&self, (at, bytes): (u64, u64)) -> bool {
        if self.api.address_free(at, bytes) != SUCCESS {
            // Still reserved.
            return true;
        }
        let (mut strays, mut found) = (Vec::new(), false);
        for _ in 0..3 {
            let mut address = 0;
            match self.api.address_reserve(&mut address, bytes, 0, at, 0) {
                SUCCESS if address == at => found = true,
                SUCCESS => strays.push(address),
                _ => {}
            }
            if found {
                break;
            }
        }
        for stray in strays {
            self.log_status("free a range", self.api.address_free(stray, bytes));
        }
        if !found {
            log::error!("the range at {} was taken while its memory was returned", DevicePtr(at));
        }
        found
    }

    pub(super) fn map(&self, books: &Books, range: DeviceRange, block: NativeBlock) -> Result<()> {
        let device = books.begin_map(range, block)?;
        let care = self.care_of(device);
        let mapped = self.enter_device(device, Operation::Map).and_then(|_entered| {
            let _alone = alone(care);
            if self.holds.room_of(range).is_some_and(|room| room.lost) {
                let hint = "the range was lost to somebody else: free it, and reserve another";
                return Err(Error::new(Kind::OutOfAddressSpace, Operation::Map, hint));
            }
            let status = self.api.map(range.start().get(), range.size().get(), 0, block.0, 0);
            self.check_memory(care, status, Operation::Map)?;
            self.holds.add(Held::new(range, block.0, device));
            Ok(())
        });
        books.end_map(range, mapped.is_ok());
        mapped.map_err(|e| e.at(range.start(), range.size()))
    }

    pub(super) fn unmap(&self, books: &Books, range: DeviceRange) -> Result<()> {
        let device = books.begin_unmap(range)?;
        let held = self.holds.get(range);
        let unmapped = self.enter_device(device, Operation::Unmap).and_then(|_entered| {
            let _alone = alone(self.care_of(device));
            match &held {
                Some(held) => self.unmap_held(held),
                None => Ok(()),
            }
        });
        let owed = if unmapped.is_ok() { self.holds.remove(range) } else { 0 };
        books.end_unmap(range, unmapped.is_ok());
        for _ in 0..owed {
            if let Some(Err(error)) = held.as_ref().map(|h| self.release_now(device, h.block, range.size())) {
                log::warn!("could not release a block that was given up while mapped: {error}");
            }
        }
        unmapped.map_err(|e| e.at(range.start(), range.size()))
    }

    /// Unmaps what HIP has. The caller is alone.
    pub(super) fn unmap_held(&self, held: &Held) -> Result<()> {
        let doubtful = !held.proven && self.care_of(held.owner).has(Care::MAP_UNTRUSTED);
        if held.ghost || doubtful && !self.is_known(held.range) {
            return Ok(());
        }
        let status = self.api.unmap(held.range.start().get(), held.range.size().get());
        self.api.check(status, Operation::Unmap)
    }

    /// True where HIP has a mapping of exactly that range.
    fn is_known(&self, range: DeviceRange) -> bool {
        let (mut base, mut bytes) = (0, 0);
        self.api.address_range(&mut base, &mut bytes, range.start().get()) == SUCCESS
            && (base, bytes) == (range.start().get(), range.size().get())
    }

    pub(super) fn allocate(&self, books: &Books, device: Ordinal, size: ByteSize) -> Result<DevicePtr> {
        if size.is_zero() {
            self.device(device, Operation::Allocate)?;
            return Err(Error::new(Kind::InvalidSize, Operation::Allocate, "0 bytes"));
        }
        let _entered = self.enter_device(device, Operation::Allocate)?;
        let mut address = 0;
        let status = self.api.memory_alloc(&mut address, size.get());
        self.api.check(status, Operation::Allocate).map_err(|e| e.of(size))?;
        books.add_allocation(DevicePtr(address), device);
        Ok(DevicePtr(address))
    }

    pub(super) fn deallocate(&self, books: &Books, device: Ordinal, address: DevicePtr) -> Result<()> {
        self.device(device, Operation::Deallocate)?;
        books.take_allocation(address, device)?;
        let freed = self
            .enter_device(device, Operation::Deallocate)
            .and_then(|_entered| self.api.check(self.api.memory_free(address.get()), Operation::Deallocate));
        freed.map_err(|e| {
            books.add_allocation(address, device);
            e.at(address, ByteSize::ZERO)
        })
    }
}
