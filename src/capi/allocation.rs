//! Allocations: a block, a range, a mapping and access in one.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::status::{GVMM_ERROR_INTERNAL, gvmm_status};
use super::types::{gvmm_allocation, gvmm_block, gvmm_device};

/// What an allocation is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_allocation_info {
    /// `sizeof(gvmm_allocation_info)`.
    pub struct_size: usize,
    /// Its address.
    pub address: u64,
    /// Its size in bytes, as asked for.
    pub size_bytes: u64,
    /// Its block, which ends with the allocation; NULL for plain device memory.
    pub block: *mut gvmm_block,
}

/// Creates a block, reserves, maps and gives the device access, or undoes all of it.
///
/// State: after success the memory is accessible until `gvmm_allocation_destroy`.
/// Parameters: `device`; `size_bytes`, above 0, rounded up to the granularity; `out_allocation`, the handle;
/// `out_address`, the memory's address.
/// Statuses: INVALID_SIZE, OUT_OF_DEVICE_MEMORY, OUT_OF_ADDRESS_SPACE, MAP_LIMIT.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_allocation_create(
    device: *mut gvmm_device,
    size_bytes: u64,
    out_allocation: *mut *mut gvmm_allocation,
    out_address: *mut u64,
) -> gvmm_status {
    let _ = (device, size_bytes, out_allocation, out_address);
    GVMM_ERROR_INTERNAL
}

/// Says what an allocation is.
///
/// State: changes none.
/// Parameters: `allocation`; `out_info`, whose `struct_size` is set. Its `block` is not a new handle.
/// Statuses: UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_allocation_query(
    allocation: *mut gvmm_allocation,
    out_info: *mut gvmm_allocation_info,
) -> gvmm_status {
    let _ = (allocation, out_info);
    GVMM_ERROR_INTERNAL
}

/// Gives an allocation's memory and address back, at once: nothing running may use them.
///
/// State: after success the handle is invalid, and its block's handle too; memory that a binding has mapped
/// stays until that mapping goes.
/// Parameters: `allocation`.
/// Statuses: IN_USE (the caller has mapped its block elsewhere; nothing has changed).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_allocation_destroy(allocation: *mut gvmm_allocation) -> gvmm_status {
    let _ = allocation;
    GVMM_ERROR_INTERNAL
}
