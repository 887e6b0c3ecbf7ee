//! Ranges, blocks and mappings over one large file in memory.
//!
//! A block is a part of that file, at a multiple of the granule; mapping it is one `mmap` straight over what was
//! there, so that other threads never see a gap. Pages are committed when they are first touched. A block reads
//! as zero when it is new, which callers must not rely on: no other driver promises it. A released block's part
//! is punched out of the file, so that the system has the memory back, and used again.

use super::access::{Change, Rights};
use super::blocks::{Blocks, Gone};
use super::budget::Budget;
use super::costs::Costs;
use super::huge::Huge;
use super::space::{Mapping, Plain, Region, Reserved, Space, fail};
use super::sys::{Errno, MemFile, Prot, Window, page};
use crate::driver::{Access, Capabilities, CreateOptions, NativeBlock, Ordinal, unsupported};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The granule: 2 MiB, as on NVIDIA's GPUs.
pub(super) const GRANULE: Granularity = match Granularity::new(2 << 20) {
    Some(granule) => granule,
    None => panic!("2 MiB is a power of two"),
};

/// The large file grows by at least this much.
const FILE_STEP: u64 = 1 << 30;

/// What a driver's devices are like, all of them alike.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) capabilities: Capabilities,
    pub(super) devices: u32,
    pub(super) total: u64,
    pub(super) huge: Huge,
    pub(super) costs: Option<Costs>,
}

/// Everything that changes, under one lock: the books say what the address space is, so they change together,
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
    file: Arc<MemFile>,
    file_size: AtomicU64,
    growing: Mutex<()>,
    owner: u32,
}

impl Memory {
    pub(super) fn new(shape: Shape, max_maps: u64) -> Result<Self> {
        let file = MemFile::new().map_err(|e| e.error(Operation::Open, Kind::OutOfHostMemory))?;
        let blocks = Blocks::new(shape.devices, shape.total);
        let books = Books { space: Space::default(), blocks, maps: Budget::new(max_maps) };
        Ok(Self {
            shape,
            books: RwLock::new(books),
            file: Arc::new(file),
            file_size: AtomicU64::new(0),
            growing: Mutex::new(()),
            owner: std::process::id(),
        })
    }

    /// True in the process that opened the driver; a child made by fork shares the file and must leave it alone.
    pub(super) fn is_ours(&self) -> bool {
        std::process::id() == self.owner
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Books> {
        self.books.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Books> {
        self.books.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, wanted: Capabilities) -> bool {
        self.shape.capabilities.has(wanted)
    }

    /// Refuses what needs virtual memory where it is switched off.
    fn needs_virtual_memory(&self, operation: Operation) -> Result<()> {
        if self.has(Capabilities::VIRTUAL_MEMORY) {
            return Ok(());
        }
        Err(unsupported(operation, "virtual memory is switched off"))
    }

    /// A device's free bytes.
    pub(super) fn free_bytes(&self, device: Ordinal) -> ByteSize {
        ByteSize(self.read().blocks.free(device))
    }

    pub(super) fn reserve(&self, size: ByteSize, alignment: Granularity) -> Result<DeviceRange> {
        self.needs_virtual_memory(Operation::Reserve)?;
        check_size(size, Operation::Reserve)?;
        if alignment < GRANULE {
            let hint = "the alignment must be a granule at least";
            return Err(Error::new(Kind::Misaligned, Operation::Reserve, hint).of(size));
        }
        let mut books = self.write();
        books.maps.check(1, Operation::Reserve).map_err(|e| e.of(size))?;
        let window = Window::reserve(size.0, alignment.size().0)
            .map_err(|e| e.error(Operation::Reserve, Kind::OutOfAddressSpace).of(size))?;
        let range = window.range();
        books.space.insert(Region::Reserved(Reserved::new(window)));
        books.maps.book(1);
        Ok(range)
    }

    pub(super) fn free(&self, range: DeviceRange) -> Result<()> {
        self.needs_virtual_memory(Operation::Free)?;
        let mut books = self.write();
        let reserved = books.space.take_reserved(range)?;
        if let Err((window, errno)) = reserved.window.close() {
            books.space.insert(Region::Reserved(Reserved::new(window)));
            return Err(at(errno, Operation::Free, range));
        }
        books.maps.book(-1);
        Ok(())
    }

    pub(super) fn create(
        &self,
        device: Ordinal,
        size: ByteSize,
        options: CreateOptions,
    ) -> Result<NativeBlock> {
        self.needs_virtual_memory(Operation::Create)?;
        check_size(size, Operation::Create)?;
        if options.exportable && !self.has(Capabilities::SHARING) {
            return Err(unsupported(Operation::Create, "sharing is switched off").of(size));
        }
        self.write().blocks.charge(device, size, Operation::Create)?;
        let made = if options.exportable { self.own_file(size) } else { self.part(size) };
        let mut books = self.write();
        match made {
            Ok((offset, file)) => Ok(books.blocks.insert(device, size, offset, file, true)),
            Err(error) => {
                books.blocks.refund(device, size);
                Err(error)
            }
        }
    }

    /// A sealed file of its own for one block.
    fn own_file(&self, size: ByteSize) -> Result<(u64, Option<Arc<MemFile>>)> {
        let make = || {
            let file = MemFile::new()?;
            file.resize(size.0)?;
            file.seal()?;
            self.shape.huge.back(&file, 0, size.0)?;
            Ok(file)
        };
        let file = make().map_err(|e: Errno| e.error(Operation::Create, Kind::OutOfHostMemory).of(size))?;
        Ok((0, Some(Arc::new(file))))
    }

    /// A part of the large file.
    fn part(&self, size: ByteSize) -> Result<(u64, Option<Arc<MemFile>>)> {
        let fail = |e: Errno| e.error(Operation::Create, Kind::OutOfHostMemory).of(size);
        let taken = self.write().blocks.take_part(size);
        let (offset, end) = taken.ok_or_else(|| fail(Errno(libc::EFBIG)))?;
        let backed = self.grow(end).and_then(|()| self.shape.huge.back(&self.file, offset, size.0));
        if let Err(errno) = backed {
            self.punch(offset, size.0);
            self.write().blocks.give_part(offset, size.0);
            return Err(fail(errno));
        }
        Ok((offset, None))
    }

    /// Makes the large file at least `end` bytes long.
    fn grow(&self, end: u64) -> std::result::Result<(), Errno> {
        if end <= self.file_size.load(Ordering::Acquire) {
            return Ok(());
        }
        // Held across the system call, so that two threads never make the file shorter.
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if end > self.file_size.load(Ordering::Acquire) {
            let size = end.checked_next_multiple_of(FILE_STEP).ok_or(Errno(libc::EFBIG))?;
            self.file.resize(size)?;
            self.file_size.store(size, Ordering::Release);
        }
        Ok(())
    }

    fn punch(&self, offset: u64, size: u64) {
        if let Err(errno) = self.file.punch(offset, size) {
            log::warn!("{} of memory stay in use: {errno:?}", ByteSize(size));
        }
    }

    /// Gives a block's memory back to the system, outside the lock, and only then to the books.
    fn give_back(&self, gone: Option<Gone>) {
        let Some(gone) = gone.filter(|_| self.is_ours()) else { return };
        if let Some((offset, size)) = gone.part {
            self.punch(offset, size);
        }
        self.write().blocks.settle(&gone);
    }

    pub(super) fn release(&self, block: NativeBlock) -> Result<()> {
        self.needs_virtual_memory(Operation::Release)?;
        let gone = self.write().blocks.release(block)?;
        self.give_back(gone);
        Ok(())
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
        let file = block.file.as_ref().unwrap_or(&self.file);
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
        reserved.window.clear(range).map_err(|e| at(e, Operation::Unmap, range))?;
        let growth = reserved.remove(range);
        books.maps.book(growth);
        let gone = books.blocks.unmapped(mapping.block);
        drop(books);
        self.give_back(gone);
        let peer = mapping.rights.beyond(mapping.home);
        Ok(self.shape.costs.as_ref().map_or(0.0, |costs| costs.unmap_us(range.size(), peer)))
    }

    /// Sets access, and says how long that takes in simulated time.
    pub(super) fn set_access(&self, range: DeviceRange, access: &[Access]) -> Result<f64> {
        self.needs_virtual_memory(Operation::SetAccess)?;
        check_range(range, Operation::SetAccess)?;
        let separate = self.has(Capabilities::DEVICE_ACCESS);
        let change = Change::new(access, self.shape.devices, separate)
            .map_err(|e| e.at(range.start(), range.size()))?;
        let mut books = self.write();
        let reserved = books.space.reserved(range, Operation::SetAccess)?;
        self.check_reach(reserved, range)?;
        protect(reserved, range, change).map_err(|e| at(e, Operation::SetAccess, range))?;
        reserved.set_rights(range, |rights| change.applied(rights));
        let Some(costs) = &self.shape.costs else { return Ok(0.0) };
        let mappings = reserved.within(range);
        // The list as it was given, since without separate access everybody is named.
        let peer = |m: &Mapping| {
            if separate { change.names_beyond(m.home) } else { access.iter().any(|a| a.device != m.home) }
        };
        Ok(costs.set_access_us(mappings.map(|m| (m.range.size(), peer(m)))))
    }

    /// Checks that the capabilities allow a set-access of `range`.
    fn check_reach(&self, reserved: &Reserved, range: DeviceRange) -> Result<()> {
        let whole = range == reserved.window.range();
        if !whole && !self.has(Capabilities::RANGE_ACCESS) {
            let hint = "access is set for the whole reservation only";
            return Err(fail(Kind::Unsupported, Operation::SetAccess, hint, range));
        }
        let count = reserved.covered(range, !whole)?;
        let joined = self.has(Capabilities::JOINED_ACCESS) || !self.has(Capabilities::RANGE_ACCESS);
        if count > 1 && !joined {
            let hint = "access is set for one mapping at a time";
            return Err(fail(Kind::Unsupported, Operation::SetAccess, hint, range));
        }
        Ok(())
    }

    pub(super) fn allocate(&self, device: Ordinal, size: ByteSize) -> Result<DevicePtr> {
        let error = |kind, hint| Error::new(kind, Operation::Allocate, hint).of(size);
        if size.is_zero() {
            return Err(error(Kind::InvalidSize, "the size is 0"));
        }
        let Some(bytes) = size.0.checked_next_multiple_of(page()) else {
            return Err(error(Kind::OutOfDeviceMemory, ""));
        };
        let charge = ByteSize(bytes);
        let mut books = self.write();
        books.maps.check(1, Operation::Allocate).map_err(|e| e.of(size))?;
        books.blocks.charge(device, charge, Operation::Allocate)?;
        let window = match Window::anonymous(bytes, Prot::ReadWrite) {
            Ok(window) => window,
            Err(errno) => {
                books.blocks.refund(device, charge);
                return Err(errno.error(Operation::Allocate, Kind::OutOfHostMemory).of(size));
            }
        };
        self.shape.huge.advise(&window);
        let everyone = !self.has(Capabilities::DEVICE_ACCESS);
        let rights = if everyone { Rights::EVERYONE } else { Rights::all_for(device) };
        let address = window.range().start();
        books.space.insert(Region::Plain(Plain { window, device, charge, rights }));
        books.maps.book(1);
        Ok(address)
    }

    pub(super) fn deallocate(&self, device: Ordinal, address: DevicePtr) -> Result<()> {
        let mut books = self.write();
        let Plain { window, device, charge, rights } = books.space.take_plain(device, address)?;
        if let Err((window, errno)) = window.close() {
            books.space.insert(Region::Plain(Plain { window, device, charge, rights }));
            return Err(errno.error(Operation::Deallocate, Kind::OutOfHostMemory).at(address, charge));
        }
        books.maps.book(-1);
        books.blocks.refund(device, charge);
        Ok(())
    }

    fn needs_sharing(&self) -> Result<()> {
        self.needs_virtual_memory(Operation::Share)?;
        if self.has(Capabilities::SHARING) {
            Ok(())
        } else {
            Err(unsupported(Operation::Share, "sharing is switched off"))
        }
    }

    pub(super) fn export(&self, handle: NativeBlock) -> Result<OwnedFd> {
        self.needs_sharing()?;
        let books = self.read();
        let block = books.blocks.get(handle, Operation::Share)?;
        let Some(file) = &block.file else {
            let hint = "the block was not made exportable";
            return Err(Error::new(Kind::WrongState, Operation::Share, hint).of(block.size));
        };
        file.descriptor().map_err(|e| e.error(Operation::Share, Kind::OutOfHostMemory).of(block.size))
    }

    /// Takes in a block that somebody exported. Whoever made it pays for its memory, not `device`.
    pub(super) fn import(&self, device: Ordinal, fd: BorrowedFd<'_>, size: ByteSize) -> Result<NativeBlock> {
        self.needs_sharing()?;
        check_size(size, Operation::Share)?;
        let adopted =
            MemFile::adopt(fd).map_err(|e| e.error(Operation::Share, Kind::OutOfHostMemory).of(size))?;
        let error = |kind, hint| Err(Error::new(kind, Operation::Share, hint).of(size));
        let Some((file, length)) = adopted else {
            return error(Kind::InvalidArgument, "the descriptor is not of an exported block");
        };
        if length != size.0 {
            return error(Kind::InvalidSize, "the exported block has another size");
        }
        Ok(self.write().blocks.insert(device, size, 0, Some(Arc::new(file)), false))
    }

    pub(super) fn check_native(&self, device: Ordinal, handle: NativeBlock, size: ByteSize) -> Result<()> {
        self.needs_virtual_memory(Operation::Query)?;
        let books = self.read();
        let block = books.blocks.get(handle, Operation::Query)?;
        let error = |kind, hint| Err(Error::new(kind, Operation::Query, hint).of(size));
        match block {
            _ if block.device != device => error(Kind::InvalidHandle, "the block is another device's"),
            _ if block.size != size => error(Kind::InvalidSize, "the block has another size"),
            _ => Ok(()),
        }
    }
}

/// Makes the pages of each mapping follow its new rights, run by run; all or none.
fn protect(reserved: &Reserved, range: DeviceRange, change: Change) -> std::result::Result<(), Errno> {
    let done = protect_runs(reserved, range, |m| (m.rights.prot(), change.applied(m.rights).prot()));
    if done.is_err() {
        // What was changed is set back; where that fails too, the pages allow less or more than the books say,
        // and the next set-access or unmap of them mends it.
        let _ = protect_runs(reserved, range, |m| (change.applied(m.rights).prot(), m.rights.prot()));
    }
    done
}

/// One system call for each run of neighbours that go to the same protection; those that have it are left out.
fn protect_runs(
    reserved: &Reserved,
    range: DeviceRange,
    from_to: impl Fn(&Mapping) -> (Prot, Prot),
) -> std::result::Result<(), Errno> {
    let mut run: Option<(DeviceRange, Prot)> = None;
    for mapping in reserved.within(range) {
        let (from, to) = from_to(mapping);
        if from == to {
            continue;
        }
        run = match run {
            Some((before, prot)) if prot == to && before.end() == mapping.range.start() => {
                let size = ByteSize(before.size().0 + mapping.range.size().0);
                DeviceRange::new(before.start(), size).map(|joined| (joined, to))
            }
            Some((before, prot)) => {
                reserved.window.protect(before, prot)?;
                Some((mapping.range, to))
            }
            None => Some((mapping.range, to)),
        };
    }
    run.map_or(Ok(()), |(last, prot)| reserved.window.protect(last, prot))
}

fn at(errno: Errno, operation: Operation, range: DeviceRange) -> Error {
    errno.error(operation, Kind::OutOfHostMemory).at(range.start(), range.size())
}

fn check_size(size: ByteSize, operation: Operation) -> Result<()> {
    if size.is_zero() || !GRANULE.divides(size) {
        let hint = "the size must be a multiple of the granule, 2 MiB, and not 0";
        return Err(Error::new(Kind::InvalidSize, operation, hint).of(size));
    }
    Ok(())
}

fn check_range(range: DeviceRange, operation: Operation) -> Result<()> {
    if !range.start().is_aligned(GRANULE) {
        return Err(fail(
            Kind::Misaligned,
            operation,
            "the address must be a multiple of the granule, 2 MiB",
            range,
        ));
    }
    check_size(range.size(), operation).map_err(|e| e.at(range.start(), range.size()))
}
