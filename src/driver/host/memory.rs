//! Ranges, blocks and mappings over one large file in memory.
//!
//! A block is a part of that file, at a multiple of the granule; mapping it is one `mmap` straight over what was
//! there, so that other threads never see a gap. Pages are committed when they are first touched. A block reads
//! as zero when it is new, which callers must not rely on: no other driver promises it. A released block's part
//! is punched out of the file, so that the system has the memory back, and used again.

use super::access::Rights;
use super::blocks::Blocks;
use super::budget::Budget;
use super::shape::Shape;
use super::space::{Mapping, Region, Reserved, Space, fail};
use super::store::Store;
use super::sys::{Errno, Prot, Window};
use crate::driver::{AccessMode, Capabilities, NativeBlock, Ordinal, unsupported};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The granule: 2 MiB, as on NVIDIA's GPUs.
pub(super) const GRANULE: Granularity = match Granularity::new(2 << 20) {
    Some(granule) => granule,
    None => panic!("2 MiB is a power of two"),
};

/// Everything that changes, under one lock. The books say what the address space is, so they change together,
/// and the lock is held across the system calls. Copies hold it shared while they move bytes, so that nothing
/// is unmapped under them.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) space: Space,
    pub(super) blocks: Blocks,
    pub(super) maps: Budget,
}

/// The memory of all devices of one driver.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) shape: Shape,
    books: RwLock<Books>,
    pub(super) store: Store,
    owner: u32,
}

impl Memory {
    pub(super) fn new(shape: Shape, max_maps: u64) -> Result<Self> {
        let store = Store::new().map_err(|e| e.error(Operation::Open, Kind::OutOfHostMemory))?;
        let blocks = Blocks::new(shape.devices, shape.total);
        let books = Books { space: Space::default(), blocks, maps: Budget::new(max_maps) };
        Ok(Self { shape, books: RwLock::new(books), store, owner: std::process::id() })
    }

    /// True in the process that opened the driver; a child made by fork shares the file and must leave it alone.
    pub(super) fn is_ours(&self) -> bool {
        std::process::id() == self.owner
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Books> {
        self.books.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Books> {
        self.books.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, wanted: Capabilities) -> bool {
        self.shape.capabilities.has(wanted)
    }

    /// Refuses what needs virtual memory where it is switched off.
    pub(super) fn needs_virtual_memory(&self, operation: Operation) -> Result<()> {
        if self.has(Capabilities::VIRTUAL_MEMORY) {
            return Ok(());
        }
        Err(unsupported(operation, "virtual memory is switched off"))
    }

    /// A device's free bytes.
    pub(super) fn free_bytes(&self, device: Ordinal) -> ByteSize {
        ByteSize(self.read().blocks.free(device))
    }

    /// What a device may do at an address.
    pub(super) fn access_at(&self, device: Ordinal, address: DevicePtr) -> AccessMode {
        match self.read().space.span(address).rights {
            Some(rights) if rights.may_write(device) => AccessMode::READ_WRITE,
            Some(rights) if rights.may_read(device) => AccessMode::READ,
            _ => AccessMode::NONE,
        }
    }

    pub(super) fn reserve(&self, size: ByteSize, alignment: Granularity) -> Result<DeviceRange> {
        self.needs_virtual_memory(Operation::Reserve)?;
        check_size(size, Operation::Reserve)?;
        if alignment < GRANULE {
            let hint = "the alignment must be a granule at least";
            return Err(Error::new(Kind::Misaligned, Operation::Reserve, hint).of(size));
        }
        self.book_map(Operation::Reserve).map_err(|e| e.of(size))?;
        match Window::reserve(size.0, alignment.size().0) {
            Ok(window) => {
                let range = window.range();
                self.write().space.insert(Region::Reserved(Reserved::new(window)));
                Ok(range)
            }
            Err(errno) => {
                self.write().maps.book(-1);
                Err(errno.error(Operation::Reserve, Kind::OutOfAddressSpace).of(size))
            }
        }
    }

    /// Books one mapping of the process, before it is made outside the lock.
    pub(super) fn book_map(&self, operation: Operation) -> Result<()> {
        let mut books = self.write();
        books.maps.check(1, operation)?;
        books.maps.book(1);
        Ok(())
    }

    pub(super) fn free(&self, range: DeviceRange) -> Result<()> {
        self.needs_virtual_memory(Operation::Free)?;
        let mut books = self.write();
        let reserved = books.space.take_reserved(range)?;
        if let Err((window, errno)) = self.close(reserved.window) {
            books.space.insert(Region::Reserved(Reserved::new(window)));
            return Err(at(errno, Operation::Free, range));
        }
        books.maps.book(-1);
        Ok(())
    }

    /// Gives addresses back; on a failure nothing has changed.
    pub(super) fn close(&self, window: Window) -> std::result::Result<(), (Window, Errno)> {
        let mut window = Some(window);
        let mut close = || match window.take().map(Window::close) {
            Some(Err((kept, errno))) => {
                window = Some(kept);
                Err(errno)
            }
            _ => Ok(()),
        };
        let closed = self.store.freeing(&mut close);
        match (closed, window) {
            (Err(errno), Some(window)) => Err((window, errno)),
            _ => Ok(()),
        }
    }

    pub(super) fn map(&self, range: DeviceRange, handle: NativeBlock) -> Result<()> {
        self.needs_virtual_memory(Operation::Map)?;
        check_range(range, Operation::Map)?;
        let mut guard = self.write();
        let books = &mut *guard;
        let block =
            books.blocks.get(handle, Operation::Map).map_err(|e| e.at(range.start(), range.size()))?;
        let reserved = books.space.reserved(range, Operation::Map)?;
        if block.size != range.size() {
            return Err(fail(Kind::InvalidSize, Operation::Map, "a block is mapped as a whole", range));
        }
        let growth = reserved.growth(range)?;
        if Blocks::is_mapped(block) && !self.has(Capabilities::ALIASING) {
            let hint = "the block is mapped elsewhere, and this device has no aliasing";
            return Err(fail(Kind::Unsupported, Operation::Map, hint, range));
        }
        books.maps.check(growth, Operation::Map).map_err(|e| e.at(range.start(), range.size()))?;
        let file = block.file.as_ref().unwrap_or(self.store.file());
        let placed = reserved.window.place(range, file, block.offset, Prot::None);
        placed.map_err(|e| at(e, Operation::Map, range))?;
        reserved.insert(Mapping { range, block: handle, home: block.device, rights: Rights::default() });
        books.blocks.mapped(handle);
        books.maps.book(growth);
        Ok(())
    }

    /// Unmaps, and says how long that takes in simulated time.
    pub(super) fn unmap(&self, range: DeviceRange) -> Result<f64> {
        self.needs_virtual_memory(Operation::Unmap)?;
        let mut books = self.write();
        let reserved = books.space.reserved(range, Operation::Unmap)?;
        let mapping = reserved.exactly(range)?;
        let cleared = self.store.freeing(|| reserved.window.clear(range));
        cleared.map_err(|e| at(e, Operation::Unmap, range))?;
        let growth = reserved.remove(range);
        books.maps.book(growth);
        let gone = books.blocks.unmapped(mapping.block);
        let us = self.shape.costs.as_ref().map_or(0.0, |costs| {
            let last = costs.tells_first_and_last() && !books.space.is_reached(mapping.home);
            costs.unmap_us(range.size(), mapping.rights.beyond(mapping.home), last)
        });
        drop(books);
        self.give_back(gone);
        Ok(us)
    }
}

pub(super) fn at(errno: Errno, operation: Operation, range: DeviceRange) -> Error {
    errno.error(operation, Kind::OutOfHostMemory).at(range.start(), range.size())
}

pub(super) fn check_size(size: ByteSize, operation: Operation) -> Result<()> {
    if size.is_zero() || !GRANULE.divides(size) {
        let hint = "the size must be a multiple of the granule, 2 MiB, and not 0";
        return Err(Error::new(Kind::InvalidSize, operation, hint).of(size));
    }
    Ok(())
}

pub(super) fn check_range(range: DeviceRange, operation: Operation) -> Result<()> {
    if !range.start().is_aligned(GRANULE) {
        let hint = "the address must be a multiple of the granule, 2 MiB";
        return Err(fail(Kind::Misaligned, operation, hint, range));
    }
    check_size(range.size(), operation).map_err(|e| e.at(range.start(), range.size()))
}
