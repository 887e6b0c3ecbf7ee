//! The last error of a thread.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::status::{GVMM_ERROR_INTERNAL, gvmm_status};
use std::ffi::c_char;

/// No element of an array is to blame.
pub const GVMM_ENTRY_NONE: u64 = u64::MAX;

/// Operation of an error detail: none in particular.
pub const GVMM_OPERATION_NONE: u32 = 0;
/// Operation: opening a device.
pub const GVMM_OPERATION_OPEN: u32 = 1;
/// Operation: a query.
pub const GVMM_OPERATION_QUERY: u32 = 2;
/// Operation: reserving a range.
pub const GVMM_OPERATION_RESERVE: u32 = 3;
/// Operation: freeing a range.
pub const GVMM_OPERATION_FREE: u32 = 4;
/// Operation: creating a block.
pub const GVMM_OPERATION_CREATE: u32 = 5;
/// Operation: releasing a block.
pub const GVMM_OPERATION_RELEASE: u32 = 6;
/// Operation: mapping.
pub const GVMM_OPERATION_MAP: u32 = 7;
/// Operation: unmapping.
pub const GVMM_OPERATION_UNMAP: u32 = 8;
/// Operation: setting access.
pub const GVMM_OPERATION_SET_ACCESS: u32 = 9;
/// Operation: allocating plain memory.
pub const GVMM_OPERATION_ALLOCATE: u32 = 10;
/// Operation: giving plain memory back.
pub const GVMM_OPERATION_DEALLOCATE: u32 = 11;
/// Operation: copying.
pub const GVMM_OPERATION_COPY: u32 = 12;
/// Operation: using a timeline.
pub const GVMM_OPERATION_TIMELINE: u32 = 13;
/// Operation: using a stream.
pub const GVMM_OPERATION_STREAM: u32 = 14;
/// Operation: capturing.
pub const GVMM_OPERATION_CAPTURE: u32 = 15;
/// Operation: launching a graph.
pub const GVMM_OPERATION_LAUNCH: u32 = 16;
/// Operation: exporting or importing.
pub const GVMM_OPERATION_SHARE: u32 = 17;
/// Operation: remapping.
pub const GVMM_OPERATION_REMAP: u32 = 18;
/// Operation: retiring.
pub const GVMM_OPERATION_RETIRE: u32 = 19;
/// Operation: creating a binding.
pub const GVMM_OPERATION_BIND: u32 = 20;
/// Operation: beginning a step.
pub const GVMM_OPERATION_BEGIN: u32 = 21;
/// Operation: ending a step.
pub const GVMM_OPERATION_END: u32 = 22;
/// Operation: destroying.
pub const GVMM_OPERATION_DESTROY: u32 = 23;

/// The last failure of this thread, as numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_error_detail {
    /// `sizeof(gvmm_error_detail)`.
    pub struct_size: usize,
    /// What the call answered; GVMM_STATUS_SUCCESS where no call has failed on this thread.
    pub status: gvmm_status,
    /// What was being done: `GVMM_OPERATION_...`.
    pub operation: u32,
    /// The driver's own code (a `CUresult`, a `hipError_t`, a `ze_result_t`, an `errno`).
    pub native_code: i64,
    /// 1 where `native_code` counts.
    pub has_native: u32,
    /// 0.
    pub reserved: u32,
    /// Which element of the caller's array is to blame, or GVMM_ENTRY_NONE.
    pub entry: u64,
    /// Where, or 0.
    pub address: u64,
    /// How many bytes, or 0.
    pub size_bytes: u64,
}

/// Copies out the message that the last failing call on this thread left. Calls that succeed leave it, and so do
/// this function and `gvmm_last_error_detail` when they fail.
///
/// State: changes none.
/// Parameters: `out_message`, room for `capacity` bytes; a longer message is cut; it ends with a NUL unless
/// `capacity` is 0, and then it may be NULL; `out_needed`, the bytes that the whole message needs, with the NUL; 1 where no
/// call has failed.
/// Statuses: none of its own.
/// Threads: this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_last_error_message(
    out_message: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> gvmm_status {
    let _ = (out_message, capacity, out_needed);
    GVMM_ERROR_INTERNAL
}

/// Gives the last failure on this thread as numbers.
///
/// State: changes none.
/// Parameters: `out_detail`, whose `struct_size` is set.
/// Statuses: UNKNOWN_VERSION.
/// Threads: this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_last_error_detail(out_detail: *mut gvmm_error_detail) -> gvmm_status {
    let _ = out_detail;
    GVMM_ERROR_INTERNAL
}
