//! Where the bytes of blocks are: parts of one large file, or a file of their own for blocks that are shared.

use super::blocks::Gone;
use super::memory::{Memory, check_size};
use super::spare::Spare;
use super::sys::{Errno, MemFile};
use crate::driver::{Capabilities, CreateOptions, NativeBlock, Ordinal, unsupported};
use crate::error::{Kind, Operation, Result};
use crate::units::ByteSize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The large file grows by at least this much, which costs nothing until it is touched.
const STEP: u64 = 1 << 30;

/// The large file.
#[derive(Debug)]
pub(super) struct Store {
    file: MemFile,
    size: AtomicU64,
    growing: Mutex<()>,
    spare: Spare,
}

impl Store {
    pub(super) fn new() -> std::result::Result<Self, Errno> {
        let file = MemFile::new()?;
        let spare = Spare::new(&file);
        Ok(Self { file, size: AtomicU64::new(0), growing: Mutex::new(()), spare })
    }

    pub(super) const fn file(&self) -> &MemFile {
        &self.file
    }

    /// Does what frees addresses or memory, even where the process holds as many mappings as it may.
    pub(super) fn freeing<R>(
        &self,
        run: impl FnMut() -> std::result::Result<R, Errno>,
    ) -> std::result::Result<R, Errno> {
        self.spare.help(&self.file, run)
    }

    /// Makes the large file at least `end` bytes long.
    fn grow(&self, end: u64) -> std::result::Result<(), Errno> {
        if end <= self.size.load(Ordering::Acquire) {
            return Ok(());
        }
        // Held across the system call, so that two threads never make the file shorter.
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if end > self.size.load(Ordering::Acquire) {
            let size = end.checked_next_multiple_of(STEP).ok_or(Errno(libc::EFBIG))?;
            self.file.resize(size)?;
            self.size.store(size, Ordering::Release);
        }
        Ok(())
    }

    fn punch(&self, offset: u64, size: u64) {
        if let Err(errno) = self.file.punch(offset, size) {
            log::warn!("{} of memory stay in use: {errno:?}", ByteSize(size));
        }
    }
}

impl Memory {
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
    fn own_file(&self, size: ByteSize) -> Result<(u64, Option<MemFile>)> {
        let make = || {
            let file = MemFile::new()?;
            file.resize(size.0)?;
            file.seal()?;
            self.shape.huge.back(&file, 0, size.0)?;
            Ok(file)
        };
        let file = make().map_err(|e: Errno| e.error(Operation::Create, Kind::OutOfHostMemory).of(size))?;
        Ok((0, Some(file)))
    }

    /// A part of the large file.
    fn part(&self, size: ByteSize) -> Result<(u64, Option<MemFile>)> {
        let fail = |e: Errno| e.error(Operation::Create, Kind::OutOfHostMemory).of(size);
        let taken = self.write().blocks.take_part(size);
        let (offset, end) = taken.ok_or_else(|| fail(Errno(libc::EFBIG)))?;
        let backed =
            self.store.grow(end).and_then(|()| self.shape.huge.back(self.store.file(), offset, size.0));
        if let Err(errno) = backed {
            self.store.punch(offset, size.0);
            self.write().blocks.give_part(offset, size.0);
            return Err(fail(errno));
        }
        Ok((offset, None))
    }

    /// Gives a block's memory back to the system, outside the lock, and only then to the books.
    pub(super) fn give_back(&self, gone: Option<Gone>) {
        let Some(gone) = gone.filter(|_| self.is_ours()) else { return };
        if let Some((offset, size)) = gone.part {
            self.store.punch(offset, size);
        }
        self.write().blocks.settle(&gone);
    }

    /// Gives up a block, and says how long that takes in simulated time.
    pub(super) fn release(&self, block: NativeBlock) -> Result<f64> {
        self.needs_virtual_memory(Operation::Release)?;
        let mut books = self.write();
        let size = books.blocks.get(block, Operation::Release)?.size;
        let gone = books.blocks.release(block)?;
        drop(books);
        self.give_back(gone);
        Ok(self.shape.costs.as_ref().map_or(0.0, |costs| costs.release_us(size)))
    }
}
