//! Blocks that go to other processes, come from them, or come from a framework in this one.
#![allow(unsafe_code, reason = "the driver gives a file descriptor as a number")]

use super::api::SUCCESS;
use super::context::Core;
use crate::driver::books::{Block, Books};
use crate::driver::structs::{AllocationProp, ON_DEVICE, PINNED, POSIX_FD};
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
        let _entered = self.enter_primary(entry.device, Operation::Share)?;
        let mut descriptor = -1;
        let status = self.api.export_handle(&mut descriptor, block.0, POSIX_FD, 0);
        self.api.check(status, Operation::Share).map_err(|e| e.of(entry.size))?;
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
        let _entered = self.enter_primary(device, Operation::Share)?;
        if size.is_zero() {
            return Err(Error::new(Kind::InvalidSize, Operation::Share, "0 bytes"));
        }
        let (mut handle, number) = (0, u64::from(fd.as_raw_fd().unsigned_abs()));
        let status = self.api.import_handle(&mut handle, number, POSIX_FD);
        self.api.check(status, Operation::Share).map_err(|e| not_a_block(e).of(size))?;
        if let Err(error) = self.probe(device, handle, size, Operation::Share) {
            self.log_status("release an imported block", self.api.release(handle));
            return Err(error);
        }
        books.add_block(handle, Block { size, device, references: 1, exportable: true });
        Ok(NativeBlock(handle))
    }

    /// Checks a handle from outside, and books it so that it can be mapped.
    ///
    /// A number that never was a handle, or whose block was released, cannot be told from a handle: the driver looks
    /// behind it, and may crash. Nor can we remember what we released ourselves: the driver soon gives the same
    /// numbers again, to whoever asks next (on an H200, 100 blocks made one after the other had 9 handles).
    pub(super) fn check_native(
        &self,
        books: &Books,
        device: Ordinal,
        block: NativeBlock,
        size: ByteSize,
    ) -> Result<()> {
        let _entered = self.enter_primary(device, Operation::Query)?;
        match books.block(block, Operation::Query) {
            // A block that was only shown to us may be gone, and its handle another block's by now.
            Ok(known) if known.references > 0 => return same(known, device, size),
            _ => {}
        }
        if block.0 == 0 {
            return Err(Error::new(Kind::InvalidHandle, Operation::Query, "0 is no block"));
        }
        self.probe(device, block.0, size, Operation::Query)?;
        let exportable = self.properties_of(block.0, Operation::Query)?.handle_types & POSIX_FD != 0;
        books.add_block(block.0, Block { size, device, references: 0, exportable });
        Ok(())
    }

    fn properties_of(&self, handle: u64, operation: Operation) -> Result<AllocationProp> {
        let mut properties = AllocationProp::default();
        match self.api.handle_properties(&mut properties, handle) {
            SUCCESS => Ok(properties),
            status => {
                let error = self.api.error(status, operation);
                let wrong = matches!(status, 1 | 400);
                Err(if wrong { Error { kind: Kind::InvalidHandle, ..error } } else { error })
            }
        }
    }

    /// Checks that a handle is pinned memory of `device`, and of `size` bytes: the driver does not tell the size,
    /// but maps a block whole only, so a mapping without access, taken away at once, shows it.
    fn probe(&self, device: Ordinal, handle: u64, size: ByteSize, operation: Operation) -> Result<()> {
        let properties = self.properties_of(handle, operation)?;
        let own = self.device(device, operation)?.handle;
        if properties.kind != PINNED || properties.location.kind != ON_DEVICE || properties.location.id != own
        {
            return Err(Error::new(Kind::InvalidHandle, operation, "the block is not this device's").of(size));
        }
        let granularity = self.granularity(device)?;
        let wrong_size = || Error::new(Kind::InvalidSize, operation, "the block has another size").of(size);
        if size.is_zero() || !granularity.divides(size) {
            return Err(wrong_size());
        }
        let mut at = 0;
        self.api.check(self.api.address_reserve(&mut at, size.get(), 0, 0, 0), operation)?;
        let mapped = self.api.map(at, size.get(), 0, handle, 0);
        if mapped == SUCCESS {
            self.log_status("unmap a probed block", self.api.unmap(at, size.get()));
        }
        self.log_status("free a probe's range", self.api.address_free(at, size.get()));
        match mapped {
            SUCCESS => Ok(()),
            1 | 801 => Err(wrong_size()),
            status => Err(self.api.error(status, operation)),
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
