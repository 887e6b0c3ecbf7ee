//! Blocks that go to other processes, come from them, or come from a framework in this one.
#![allow(unsafe_code, reason = "the driver gives a file descriptor as a number")]

use super::alone::alone;
use super::api::{SUCCESS, number};
use super::context::Core;
use crate::driver::books::{Block, Books};
use crate::driver::quirks::Care;
use crate::driver::structs::{AccessDesc, AllocationProp, Location, ON_DEVICE, PINNED, POSIX_FD};
use crate::driver::{NativeBlock, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

impl Core {
    pub(super) fn export(&self, books: &Books, block: NativeBlock) -> Result<OwnedFd> {
        let entry = books.block(block, Operation::Share)?;
        if !entry.exportable {
            let hint = "the block was not made exportable";
            return Err(Error::new(Kind::WrongState, Operation::Share, hint).of(entry.size));
        }
        let care = self.care_of(entry.device);
        let _entered = self.enter_device(entry.device, Operation::Share)?;
        let mut descriptor = -1;
        let status = {
            let _alone = alone(care);
            self.api.export_handle(&mut descriptor, block.0, POSIX_FD, 0)
        };
        self.check_memory(care, status, Operation::Share).map_err(|e| e.of(entry.size))?;
        if descriptor < 0 {
            return Err(Error::new(Kind::DriverError, Operation::Share, "the driver gave no descriptor"));
        }
        // SAFETY: on success the descriptor is open and the caller's to close.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    pub(super) fn import(
        &self,
        books: &Books,
        device: Ordinal,
        fd: BorrowedFd<'_>,
        size: ByteSize,
    ) -> Result<NativeBlock> {
        let care = self.virtual_memory(device, Operation::Share)?.care;
        if size.is_zero() {
            return Err(Error::new(Kind::InvalidSize, Operation::Share, "0 bytes"));
        }
        check_size(fd, size)?;
        let _entered = self.enter_device(device, Operation::Share)?;
        let (mut handle, number) = (0, fd.as_raw_fd());
        let status = {
            let _alone = alone(care);
            let by_value = u64::from(number.unsigned_abs());
            let word = if care.has(Care::IMPORT_POINTER) { &raw const number as u64 } else { by_value };
            self.api.import_handle(&mut handle, word, POSIX_FD)
        };
        self.check_memory(care, status, Operation::Share).map_err(|e| not_a_block(e).of(size))?;
        books.add_block(handle, Block { size, device, references: 1, exportable: true });
        self.count_block(care);
        Ok(NativeBlock(handle))
    }

    /// Checks a handle from outside, and books it so that it can be mapped. HIP looks behind a handle without
    /// checking it, so only one that HIP gave must come here; what we released ourselves is remembered, and refused
    /// without asking.
    pub(super) fn check_native(
        &self,
        books: &Books,
        device: Ordinal,
        block: NativeBlock,
        size: ByteSize,
    ) -> Result<()> {
        let care = self.virtual_memory(device, Operation::Query)?.care;
        match books.block(block, Operation::Query) {
            // A block that was only shown to us may be gone, and its handle another block's by now.
            Ok(known) if known.references > 0 => return same(known, device, size),
            _ => {}
        }
        if block.0 == 0 || self.holds.is_given_up(block.0) {
            return Err(Error::new(Kind::InvalidHandle, Operation::Query, "no block has this handle"));
        }
        let _entered = self.enter_device(device, Operation::Query)?;
        let properties = self.properties_of(block.0)?;
        let location = Location::device(number(device));
        if properties.kind != PINNED
            || properties.location.kind != ON_DEVICE
            || properties.location != location
        {
            let hint = "the block is not this device's";
            return Err(Error::new(Kind::InvalidHandle, Operation::Query, hint).of(size));
        }
        self.probe(care, device, block.0, size)?;
        let exportable = properties.handle_types & POSIX_FD != 0;
        books.add_block(block.0, Block { size, device, references: 0, exportable });
        Ok(())
    }

    fn properties_of(&self, handle: u64) -> Result<AllocationProp> {
        let mut properties = AllocationProp::default();
        match self.api.handle_properties(&mut properties, handle) {
            SUCCESS => Ok(properties),
            status => {
                let error = self.api.error(status, Operation::Query);
                let wrong = matches!(status, 1 | 400);
                Err(if wrong { Error { kind: Kind::InvalidHandle, ..error } } else { error })
            }
        }
    }

    /// Checks a block's size, which HIP does not tell: a mapping with access, taken away at once, shows it, as far
    /// as HIP looks.
    fn probe(&self, care: Care, device: Ordinal, handle: u64, size: ByteSize) -> Result<()> {
        let granularity = self.granularity(device)?;
        let hint = "the block has another size";
        let wrong_size = || Error::new(Kind::InvalidSize, Operation::Query, hint).of(size);
        if size.is_zero() || !granularity.divides(size) {
            return Err(wrong_size());
        }
        let _alone = alone(care);
        let (mut at, bytes) = (0, size.get());
        let align = granularity.size().get();
        self.api.check(self.api.address_reserve(&mut at, bytes, align, 0, 0), Operation::Query)?;
        let mut mapped = self.api.map(at, bytes, 0, handle, 0);
        if mapped == SUCCESS {
            let own = AccessDesc { location: Location::device(number(device)), flags: 3 };
            mapped = self.api.set_access(at, bytes, &raw const own, 1);
            let (mut base, mut found) = (0, 0);
            if mapped == SUCCESS || self.api.address_range(&mut base, &mut found, at) == SUCCESS {
                self.log_status("unmap a probed block", self.api.unmap(at, bytes));
            }
        }
        self.log_status("free a probe's range", self.api.address_free(at, bytes));
        match mapped {
            SUCCESS => Ok(()),
            1 | 801 => Err(wrong_size()),
            status => Err(self.api.error(status, Operation::Query)),
        }
    }
}

/// A block's descriptor tells its size by where it ends; a pipe or a socket has no end.
fn check_size(fd: BorrowedFd<'_>, size: ByteSize) -> Result<()> {
    let seek = |offset, whence| {
        // SAFETY: the descriptor is open for the call; the position is all that is changed, and it is set back.
        unsafe { libc::lseek(fd.as_raw_fd(), offset, whence) }
    };
    let before = seek(0, libc::SEEK_CUR);
    let end = seek(0, libc::SEEK_END);
    if before >= 0 {
        seek(before, libc::SEEK_SET);
    }
    let hint = "the block has another size";
    match u64::try_from(end) {
        Ok(0) => Ok(()),
        Ok(end) if end == size.get() => Ok(()),
        Ok(_) => Err(Error::new(Kind::InvalidSize, Operation::Share, hint).of(size)),
        Err(_) => {
            let hint = "the descriptor is not of an exported block";
            Err(Error::new(Kind::InvalidArgument, Operation::Share, hint).of(size))
        }
    }
}

fn same(known: Block, device: Ordinal, size: ByteSize) -> Result<()> {
    let error = |kind, hint| Err(Error::new(kind, Operation::Query, hint).of(size));
    match known {
        _ if known.device != device => error(Kind::InvalidHandle, "the block is another device's"),
        _ if known.size != size => error(Kind::InvalidSize, "the block has another size"),
        _ => Ok(()),
    }
}

/// What the driver says of a descriptor that is no block's.
fn not_a_block(error: Error) -> Error {
    match error.kind {
        Kind::OutOfFileDescriptors | Kind::OutOfDeviceMemory | Kind::DeviceLost | Kind::DeviceFault => error,
        _ => {
            Error { kind: Kind::InvalidArgument, hint: "the descriptor is not of an exported block", ..error }
        }
    }
}
