//! Plain memory, and blocks that come from or go to other processes.

use super::access::Rights;
use super::memory::{Memory, check_size};
use super::space::{Plain, Region};
use super::sys::{MemFile, Prot, Window, page};
use crate::driver::{Capabilities, NativeBlock, Ordinal, unsupported};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr};
use std::os::fd::{BorrowedFd, OwnedFd};

impl Memory {
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
        books.maps.book(1);
        drop(books);
        match Window::anonymous(bytes, Prot::ReadWrite) {
            Ok(window) => Ok(self.enter(window, device, charge)),
            Err(errno) => {
                self.forget(device, charge);
                Err(errno.error(Operation::Allocate, Kind::OutOfHostMemory).of(size))
            }
        }
    }

    fn enter(&self, window: Window, device: Ordinal, charge: ByteSize) -> DevicePtr {
        self.shape.huge.advise(&window);
        let everyone = !self.has(Capabilities::DEVICE_ACCESS);
        let rights = if everyone { Rights::everyone(self.shape.devices) } else { Rights::all_for(device) };
        let address = window.range().start();
        self.write().space.insert(Region::Plain(Plain { window, device, charge, rights }));
        address
    }

    fn forget(&self, device: Ordinal, charge: ByteSize) {
        let mut books = self.write();
        books.maps.book(-1);
        books.blocks.refund(device, charge);
    }

    pub(super) fn deallocate(&self, device: Ordinal, address: DevicePtr) -> Result<()> {
        let Plain { window, device, charge, rights } = self.write().space.take_plain(device, address)?;
        // Outside the lock, since it takes long where much was touched. Nobody gets the addresses before.
        if let Err((window, errno)) = self.close(window) {
            self.write().space.insert(Region::Plain(Plain { window, device, charge, rights }));
            return Err(errno.error(Operation::Deallocate, Kind::OutOfHostMemory).at(address, charge));
        }
        self.forget(device, charge);
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
        Ok(self.write().blocks.insert(device, size, 0, Some(file), false))
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
