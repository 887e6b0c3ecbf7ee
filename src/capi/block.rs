//! Blocks: physical memory.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::status::{GVMM_ERROR_INTERNAL, gvmm_status};
use super::types::{gvmm_block, gvmm_device};
use std::ffi::c_int;

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
/// Statuses: INVALID_SIZE, INVALID_ARGUMENT (`flags`), OUT_OF_DEVICE_MEMORY, OUT_OF_FILE_DESCRIPTORS, UNSUPPORTED.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_block_create(
    device: *mut gvmm_device,
    size_bytes: u64,
    flags: u32,
    out_block: *mut *mut gvmm_block,
) -> gvmm_status {
    let _ = (device, size_bytes, flags, out_block);
    GVMM_ERROR_INTERNAL
}

/// Makes a block of a native handle that the caller got from the driver.
///
/// State: after success the block lives until `gvmm_block_destroy`. Without GVMM_BLOCK_OWNED the native handle
/// stays the caller's, who keeps it until the block is destroyed and its last mapping is gone.
/// Parameters: `device`; `native_handle`, the driver's; `size_bytes`, its size, a multiple of the granularity;
/// `flags`, 0 or GVMM_BLOCK_OWNED; `out_block`, the handle.
/// Statuses: INVALID_SIZE, INVALID_ARGUMENT (`flags`, or the driver does not know the handle).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_block_adopt(
    device: *mut gvmm_device,
    native_handle: u64,
    size_bytes: u64,
    flags: u32,
    out_block: *mut *mut gvmm_block,
) -> gvmm_status {
    let _ = (device, native_handle, size_bytes, flags, out_block);
    GVMM_ERROR_INTERNAL
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
    let _ = (block, out_info);
    GVMM_ERROR_INTERNAL
}

/// Gives up a block.
///
/// State: after success the handle is invalid; the memory goes back with the last mapping that a binding or a
/// retired place still has.
/// Parameters: `block`.
/// Statuses: IN_USE (the caller has it mapped, or an allocation owns it; nothing has changed).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_block_destroy(block: *mut gvmm_block) -> gvmm_status {
    let _ = block;
    GVMM_ERROR_INTERNAL
}

/// Exports a block for another process.
///
/// State: after success the descriptor is the caller's to close.
/// Parameters: `block`, made with GVMM_BLOCK_EXPORTABLE; `out_fd`, a file descriptor, close-on-exec.
/// Statuses: UNSUPPORTED (no GVMM_CAPABILITY_SHARING, or not made exportable), OUT_OF_FILE_DESCRIPTORS.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_block_export(block: *mut gvmm_block, out_fd: *mut c_int) -> gvmm_status {
    let _ = (block, out_fd);
    GVMM_ERROR_INTERNAL
}

/// Makes a block of a descriptor that another process, or this one, exported.
///
/// State: after success the block lives until `gvmm_block_destroy`. The descriptor stays the caller's and may
/// be closed.
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
    let _ = (device, fd, size_bytes, out_block);
    GVMM_ERROR_INTERNAL
}
