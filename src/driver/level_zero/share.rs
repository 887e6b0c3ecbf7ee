//! Blocks that go to other processes, come from them, or come from a framework in this one.
#![allow(unsafe_code, reason = "the driver gives a file descriptor as a number")]

use super::api::UNSUPPORTED;
use super::context::Core;
use super::device::{descriptor_of, size_of_block};
use super::layout::{ImportFd, PhysicalDesc, address};
use super::memory::Ledger;
use crate::driver::books::Block;
use crate::driver::{NativeBlock, Ordinal, unsupported};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

impl Core {
    pub(super) fn export(&self, ledger: &Ledger, block: NativeBlock) -> Result<OwnedFd> {
        let entry = ledger.books.block(block, Operation::Share)?;
        let found = self.device(entry.device, Operation::Share)?;
        if found.share_as == 0 {
            return Err(unsupported(Operation::Share, "this device's blocks cannot be exported"));
        }
        if !entry.exportable {
            let hint = "the block was not made exportable";
            return Err(Error::new(Kind::WrongState, Operation::Share, hint).of(entry.size));
        }
        let descriptor = descriptor_of(&self.api, found.context, block.0, found.share_as)?;
        // SAFETY: on success the descriptor is open until the block is destroyed, which the books know of: it was
        // there above, and whoever releases it meanwhile breaks the caller's own rule.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        // The driver gives the same number each time and closes it with the block: the caller gets another.
        borrowed.try_clone_to_owned().map_err(|error| of_system(&error, entry.size))
    }

    pub(super) fn import(
        &self,
        ledger: &Ledger,
        device: Ordinal,
        fd: BorrowedFd<'_>,
        size: ByteSize,
    ) -> Result<NativeBlock> {
        let found = self.device(device, Operation::Share)?;
        if found.share_as == 0 {
            return Err(unsupported(Operation::Share, "this device imports no blocks"));
        }
        check_descriptor(fd, size)?;
        let import = ImportFd { flags: found.share_as, descriptor: fd.as_raw_fd(), ..ImportFd::blank() };
        let desc = PhysicalDesc { next: address(&import), bytes: size.get(), ..PhysicalDesc::blank() };
        let mut block = 0;
        let status = self.api.physical_create(found.context, found.handle, &desc, &mut block);
        let block = self.api.given(status, block, Operation::Share).map_err(|e| not_a_block(e).of(size))?;
        ledger.add_guest(block);
        ledger.books.add_block(block, Block { size, device, references: 1, exportable: true });
        Ok(NativeBlock(block))
    }

    /// Checks a handle from outside, and books it so that it can be mapped. The driver tells the size only, and
    /// older ones not even that.
    pub(super) fn check_native(
        &self,
        ledger: &Ledger,
        device: Ordinal,
        block: NativeBlock,
        size: ByteSize,
    ) -> Result<()> {
        let found = self.device(device, Operation::Query)?;
        if let Ok(known) = ledger.books.block(block, Operation::Query) {
            return same(known, device, size);
        }
        let not = |hint| Err(Error::new(Kind::InvalidHandle, Operation::Query, hint).of(size));
        if block.0 == 0 {
            return not("0 is no block");
        }
        match size_of_block(&self.api, found.context, block.0) {
            Ok(bytes) if bytes == size.get() => {}
            Ok(_) => return wrong_size(size),
            Err(UNSUPPORTED) => return not("not a block of ours, and this driver cannot tell of others"),
            Err(_) => return not("not a block of this context"),
        }
        ledger.books.add_block(block.0, Block { size, device, references: 0, exportable: false });
        Ok(())
    }
}

fn wrong_size<T>(size: ByteSize) -> Result<T> {
    Err(Error::new(Kind::InvalidSize, Operation::Share, "the block has another size").of(size))
}

fn same(known: Block, device: Ordinal, size: ByteSize) -> Result<()> {
    if known.device != device {
        let hint = "the block is another device's";
        return Err(Error::new(Kind::InvalidHandle, Operation::Query, hint).of(size));
    }
    if known.size == size { Ok(()) } else { wrong_size(size) }
}

/// The driver takes any size for a descriptor, and ends the process for one that has none: the descriptor itself
/// tells how many bytes are behind it.
fn check_descriptor(fd: BorrowedFd<'_>, size: ByteSize) -> Result<()> {
    if size.is_zero() {
        return Err(Error::new(Kind::InvalidSize, Operation::Share, "0 bytes"));
    }
    // SAFETY: the descriptor is open for the length of the borrow; its place does not matter to a block's.
    let end = unsafe { libc::lseek(fd.as_raw_fd(), 0, libc::SEEK_END) };
    match u64::try_from(end) {
        Err(_) => {
            let hint = "the descriptor is not of an exported block";
            Err(Error::new(Kind::InvalidArgument, Operation::Share, hint).of(size))
        }
        Ok(end) if end == size.get() => Ok(()),
        Ok(_) => wrong_size(size),
    }
}

/// What the driver says of a descriptor that is no block's.
fn not_a_block(error: Error) -> Error {
    match error.kind {
        Kind::OutOfFileDescriptors | Kind::DeviceLost => error,
        _ => {
            Error { kind: Kind::InvalidArgument, hint: "the descriptor is not of an exported block", ..error }
        }
    }
}

fn of_system(error: &std::io::Error, size: ByteSize) -> Error {
    let kind = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => Kind::OutOfFileDescriptors,
        _ => Kind::DriverError,
    };
    let code = i64::from(error.raw_os_error().unwrap_or(0));
    Error::new(kind, Operation::Share, "the descriptor could not be doubled").of(size).native(code, "errno")
}
