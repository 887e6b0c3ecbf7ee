//! Blocks: physical memory.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::drivers::{Child, DeviceObject};
use super::entry::entry;
use super::handle::{self, Noun, Table};
use super::status::gvmm_status;
use super::types::{gvmm_block, gvmm_device};
use super::versioned::{Caller, Versioned, versioned};
use crate::driver::{CreateOptions, NativeBlock};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use crate::vm::{Block, Device};
use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};
use std::sync::Arc;

/// Flag of `gvmm_block_adopt`: the native handle becomes ours and is released with the block.
pub const GVMM_BLOCK_OWNED: u32 = 1;
/// Flag of `gvmm_block_create`: the block can be exported.
pub const GVMM_BLOCK_EXPORTABLE: u32 = 2;

/// What a block is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_block_info {
    /// `sizeof(gvmm_block_info)`.
    pub struct_size: usize,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// A number that no other block of this process has or had.
    pub allocation_id: u64,
    /// The driver's own handle (`CUmemGenericAllocationHandle` and the like).
    pub native_handle: u64,
    /// The number of its device.
    pub ordinal: u32,
    /// At how many places the caller has mapped it; mappings of bindings do not count.
    pub mapping_count: u32,
}

/// Creates a block of device memory.
///
/// State: after success the block lives until `gvmm_block_destroy`; it is not mapped.
/// Parameters: `device`; `size_bytes`, a multiple of the device's granularity; `flags`, 0 or
/// GVMM_BLOCK_EXPORTABLE; `out_block`, the handle.
/// Statuses: INVALID_SIZE, INVALID_ARGUMENT (`flags`), OUT_OF_DEVICE_MEMORY, OUT_OF_FILE_DESCRIPTORS,
/// UNSUPPORTED.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_block_create(
    device: *mut gvmm_device,
    size_bytes: u64,
    flags: u32,
    out_block: *mut *mut gvmm_block,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Create, || {
        let out = c.out(out_block)?;
        check_flags(flags, GVMM_BLOCK_EXPORTABLE)?;
        let device = handle::get::<DeviceObject>(device)?;
        let child = device.adopt()?;
        let options =
            CreateOptions { exportable: flags == GVMM_BLOCK_EXPORTABLE, ..CreateOptions::default() };
        let block = device.device.create_block(ByteSize(size_bytes), options)?;
        out.write(BlockObject::insert(block, child, Holder::Caller)?);
        Ok(())
    })
}

/// Makes a block of a native handle that the caller got from the driver.
///
/// State: after success the block lives until `gvmm_block_destroy`. Without GVMM_BLOCK_OWNED the native
/// handle stays the caller's, who keeps it until the block is destroyed and its last mapping is gone.
/// Parameters: `device`; `native_handle`, the driver's; `size_bytes`, its size, a multiple of the
/// granularity; `flags`, 0 or GVMM_BLOCK_OWNED; `out_block`, the handle.
/// Statuses: INVALID_SIZE, INVALID_ARGUMENT (`flags`, a native handle of 0, or with GVMM_BLOCK_OWNED one of
/// the host driver that the library owns already), INVALID_HANDLE (the driver does not know the native
/// handle, as far as it can tell: a vendor's may crash on a number that is none), UNSUPPORTED.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_block_adopt(
    device: *mut gvmm_device,
    native_handle: u64,
    size_bytes: u64,
    flags: u32,
    out_block: *mut *mut gvmm_block,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Create, || {
        let out = c.out(out_block)?;
        check_flags(flags, GVMM_BLOCK_OWNED)?;
        let device = handle::get::<DeviceObject>(device)?;
        let child = device.adopt()?;
        let (native, size) = (NativeBlock(native_handle), ByteSize(size_bytes));
        let block = device.device.adopt_block(native, size, flags == GVMM_BLOCK_OWNED)?;
        out.write(BlockObject::insert(block, child, Holder::Caller)?);
        Ok(())
    })
}

/// Says what a block is.
///
/// State: changes none.
/// Parameters: `block`; `out_info`, whose `struct_size` is set.
/// Statuses: UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_block_query(
    block: *mut gvmm_block,
    out_info: *mut gvmm_block_info,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_struct(out_info)?;
        let block = &handle::get::<BlockObject>(block)?.block;
        out.write(&gvmm_block_info {
            size_bytes: block.size().get(),
            allocation_id: block.id().0,
            native_handle: block.native().0,
            ordinal: block.ordinal().0,
            mapping_count: block.caller_mappings(),
            ..Versioned::DEFAULT
        });
        Ok(())
    })
}

/// Gives up a block.
///
/// State: after success the handle is invalid; the memory goes back with the last mapping that a binding or
/// a retired place still has.
/// Parameters: `block`.
/// Statuses: IN_USE (the caller has it mapped, or an allocation owns it; nothing has changed).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_block_destroy(block: *mut gvmm_block) -> gvmm_status {
    entry(Operation::Destroy, || {
        handle::leave_if::<BlockObject>(block, |block| block.check_loose())?.gone();
        Ok(())
    })
}

/// Exports a block for another process.
///
/// State: after success the descriptor is the caller's to close.
/// Parameters: `block`, made with GVMM_BLOCK_EXPORTABLE; `out_fd`, a file descriptor, close-on-exec.
/// Statuses: WRONG_STATE (not made exportable), UNSUPPORTED (no GVMM_CAPABILITY_SHARING),
/// OUT_OF_FILE_DESCRIPTORS.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_block_export(block: *mut gvmm_block, out_fd: *mut c_int) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Share, || {
        let out = c.out(out_fd)?;
        out.write(handle::get::<BlockObject>(block)?.block.export()?.into_raw_fd());
        Ok(())
    })
}

/// Makes a block of a descriptor that another process, or this one, exported.
///
/// State: after success the block lives until `gvmm_block_destroy`. The descriptor stays the caller's and
/// may be closed.
/// Parameters: `device`; `fd`; `size_bytes`, the block's size; `out_block`, the handle.
/// Statuses: INVALID_ARGUMENT (`fd`), INVALID_SIZE, UNSUPPORTED, OUT_OF_FILE_DESCRIPTORS.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_block_import(
    device: *mut gvmm_device,
    fd: c_int,
    size_bytes: u64,
    out_block: *mut *mut gvmm_block,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Share, || {
        let out = c.out(out_block)?;
        let fd = descriptor(fd)?;
        let device = handle::get::<DeviceObject>(device)?;
        let child = device.adopt()?;
        let block = device.device.import_block(fd.as_fd(), ByteSize(size_bytes))?;
        out.write(BlockObject::insert(block, child, Holder::Caller)?);
        Ok(())
    })
}

versioned!(gvmm_block_info { size_bytes, allocation_id, native_handle, ordinal, mapping_count });

/// Whose a block's handle is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// The caller's.
    Caller,
    /// An allocation's, with which it ends.
    Allocation,
}

/// What a handle of a block stands for.
pub(super) struct BlockObject {
    pub(super) block: Arc<Block>,
    holder: Holder,
    _child: Child,
}

static BLOCKS: Table<BlockObject> = Table::new();

impl Noun for BlockObject {
    const TYPE: u64 = 2;
    type Handle = gvmm_block;
    fn table() -> &'static Table<Self> {
        &BLOCKS
    }

    /// Its size in bytes and its device's number, neither ever 0.
    fn facts(&self) -> [u64; 2] {
        [self.block.size().get(), self.block.device_number()]
    }
}

impl BlockObject {
    /// A handle of a block, by which addresses find it.
    pub(super) fn insert(block: Arc<Block>, child: Child, holder: Holder) -> Result<*mut gvmm_block> {
        let tagged = Arc::clone(&block);
        let made = handle::insert(Self { block, holder, _child: child })?;
        tagged.set_tag(handle::key(made));
        Ok(made)
    }

    /// A number that changes whenever a handle of a block dies.
    pub(super) fn deaths() -> u64 {
        Self::table().deaths()
    }

    /// True while a handle is good. Takes no lock.
    pub(super) fn is_live(block: *mut gvmm_block) -> bool {
        Self::table().is_live(handle::key(block))
    }

    /// The size of a block of `device`, as [`Noun::facts`] tell it. Takes no lock.
    pub(super) fn size_on(block: *mut gvmm_block, device: &Device) -> Option<ByteSize> {
        let [size, number] = handle::facts::<Self>(block)?;
        (number == device.number() && size != 0).then_some(ByteSize(size))
    }

    /// Fails where the caller has it mapped.
    pub(super) fn check_unused(&self) -> Result<()> {
        if self.block.caller_mappings() == 0 {
            return Ok(());
        }
        let error = Error::new(Kind::InUse, Operation::Destroy, "the block is mapped: unmap it first");
        Err(error.of(self.block.size()))
    }

    /// Fails where the caller has it mapped, or an allocation owns it.
    fn check_loose(&self) -> Result<()> {
        self.check_unused()?;
        if self.holder == Holder::Allocation {
            let hint = "an allocation owns the block: destroy the allocation";
            return Err(Error::new(Kind::InUse, Operation::Destroy, hint));
        }
        Ok(())
    }
}

fn check_flags(flags: u32, known: u32) -> Result<()> {
    if flags & !known == 0 {
        return Ok(());
    }
    Err(Error::new(Kind::InvalidArgument, Operation::Create, "flags has a bit that means nothing here"))
}

/// A descriptor of the caller's, for the time of the call.
fn descriptor(fd: c_int) -> Result<BorrowedFd<'static>> {
    // SAFETY: asks whether the descriptor is open, whatever its number.
    let open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    if fd < 0 || !open {
        return Err(Error::new(Kind::InvalidArgument, Operation::Share, "fd is no open file descriptor"));
    }
    // SAFETY: it is open, and the caller keeps it so until the call returns, which is as long as it is
    // used.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}
