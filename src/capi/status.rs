//! Statuses.
#![allow(unsafe_code, reason = "exports a symbol")]

use crate::error::Kind;
use std::ffi::{CStr, c_char};

/// What a function answers: `GVMM_STATUS_...` (0 and 1: its outputs are written) or `GVMM_ERROR_...`
/// (nothing is written and nothing has changed, unless the function's comment says otherwise). Values are
/// grouped by hundreds and never reused.
#[allow(non_camel_case_types, reason = "the C name")]
pub type gvmm_status = i32;

/// The call did what it says.
pub const GVMM_STATUS_SUCCESS: gvmm_status = 0;
/// Success of another kind, of `gvmm_binding_begin` only: no step was started; the addresses are new.
pub const GVMM_STATUS_RECORD_AGAIN: gvmm_status = 1;

/// Caller: a value that is not one of those allowed.
pub const GVMM_ERROR_INVALID_ARGUMENT: gvmm_status = 100;
/// Caller: NULL where a pointer is needed.
pub const GVMM_ERROR_NULL_POINTER: gvmm_status = 101;
/// Caller: a size that is 0, too large, or no multiple of what it must be.
pub const GVMM_ERROR_INVALID_SIZE: gvmm_status = 102;
/// Caller: an address, an offset or an alignment that is not aligned as it must be.
pub const GVMM_ERROR_MISALIGNED: gvmm_status = 103;
/// Caller: an offset, an index or a range that lies outside.
pub const GVMM_ERROR_OUT_OF_RANGE: gvmm_status = 104;
/// Caller: a handle that is stale, doubled, of another type or of another copy of the library.
pub const GVMM_ERROR_INVALID_HANDLE: gvmm_status = 105;
/// Caller: the object still has children or users.
pub const GVMM_ERROR_IN_USE: gvmm_status = 106;
/// Caller: the range is mapped already.
pub const GVMM_ERROR_ALREADY_MAPPED: gvmm_status = 107;
/// Caller: nothing is mapped there.
pub const GVMM_ERROR_NOT_MAPPED: gvmm_status = 108;
/// Caller: the range covers a mapping in part only.
pub const GVMM_ERROR_PARTIAL_MAPPING: gvmm_status = 109;
/// Caller: the call does not fit the object's state (begin twice, end without begin).
pub const GVMM_ERROR_WRONG_STATE: gvmm_status = 110;
/// Caller: another thread is inside the same object.
pub const GVMM_ERROR_BUSY: gvmm_status = 111;
/// Caller: one block behind two slots of which one is written.
pub const GVMM_ERROR_ALIASED: gvmm_status = 112;
/// Caller: slices of one copy overlap.
pub const GVMM_ERROR_OVERLAP: gvmm_status = 113;
/// Caller: a stream that does not exist, or NULL where the driver has no default stream.
pub const GVMM_ERROR_INVALID_STREAM: gvmm_status = 114;
/// Caller: the stream is being captured, and the call must not be.
pub const GVMM_ERROR_STREAM_CAPTURING: gvmm_status = 115;
/// Caller: the number of elements differs from what the object was made for.
pub const GVMM_ERROR_COUNT_MISMATCH: gvmm_status = 116;
/// Caller: a struct or an array element of a size that this version does not know.
pub const GVMM_ERROR_UNKNOWN_VERSION: gvmm_status = 117;
/// Caller: a plan of other slots, or another plan than the one that was agreed on.
pub const GVMM_ERROR_PLAN_MISMATCH: gvmm_status = 118;

/// Memory: the host's memory is used up.
pub const GVMM_ERROR_OUT_OF_HOST_MEMORY: gvmm_status = 200;
/// Memory: the device's memory is used up.
pub const GVMM_ERROR_OUT_OF_DEVICE_MEMORY: gvmm_status = 201;
/// Memory: no free range of addresses of that size.
pub const GVMM_ERROR_OUT_OF_ADDRESS_SPACE: gvmm_status = 202;
/// Memory: the process has no file descriptor left.
pub const GVMM_ERROR_OUT_OF_FILE_DESCRIPTORS: gvmm_status = 203;
/// Memory: the process may hold no more mappings (`vm.max_map_count`).
pub const GVMM_ERROR_MAP_LIMIT: gvmm_status = 204;

/// Driver: no such driver on this machine.
pub const GVMM_ERROR_DRIVER_NOT_FOUND: gvmm_status = 300;
/// Driver: it is older than what is needed.
pub const GVMM_ERROR_DRIVER_TOO_OLD: gvmm_status = 301;
/// Driver: no device of that number.
pub const GVMM_ERROR_NO_DEVICE: gvmm_status = 302;
/// Driver: this device or driver cannot do that.
pub const GVMM_ERROR_UNSUPPORTED: gvmm_status = 303;
/// Driver: the device is lost; the process must be restarted.
pub const GVMM_ERROR_DEVICE_LOST: gvmm_status = 304;
/// Driver: work on a stream failed, mostly since it touched memory that it had no access to; the stream has stopped.
pub const GVMM_ERROR_DEVICE_FAULT: gvmm_status = 305;
/// Driver: any other failure of a driver call; the native code tells (`gvmm_last_error_detail`).
pub const GVMM_ERROR_DRIVER_ERROR: gvmm_status = 306;

/// Ours: a failed call could not be undone. The entries concerned are unmapped, their blocks are kept, and
/// the next remap rebuilds them.
pub const GVMM_ERROR_RANGE_LOST: gvmm_status = 400;
/// Ours: a defect of this library; please report it with the message.
pub const GVMM_ERROR_INTERNAL: gvmm_status = 401;
/// Ours: an earlier defect left this object half done; destroy it.
pub const GVMM_ERROR_POISONED: gvmm_status = 402;
/// Ours: the process is a child made by fork after the library was used.
pub const GVMM_ERROR_FORKED: gvmm_status = 403;

macro_rules! failures {
    ($($kind:ident $name:ident),* $(,)?) => {
        /// Every failure: its kind, its code, its C name.
        pub(super) const FAILURES: &[(Kind, gvmm_status, &CStr)] = &[
            $((Kind::$kind, $name, match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"GVMM_STATUS_UNKNOWN",
            })),*
        ];
    };
}

failures! {
    InvalidArgument GVMM_ERROR_INVALID_ARGUMENT, NullPointer GVMM_ERROR_NULL_POINTER,
    InvalidSize GVMM_ERROR_INVALID_SIZE, Misaligned GVMM_ERROR_MISALIGNED,
    OutOfRange GVMM_ERROR_OUT_OF_RANGE, InvalidHandle GVMM_ERROR_INVALID_HANDLE,
    InUse GVMM_ERROR_IN_USE, AlreadyMapped GVMM_ERROR_ALREADY_MAPPED,
    NotMapped GVMM_ERROR_NOT_MAPPED, PartialMapping GVMM_ERROR_PARTIAL_MAPPING,
    WrongState GVMM_ERROR_WRONG_STATE, Busy GVMM_ERROR_BUSY,
    Aliased GVMM_ERROR_ALIASED, Overlap GVMM_ERROR_OVERLAP,
    InvalidStream GVMM_ERROR_INVALID_STREAM, StreamCapturing GVMM_ERROR_STREAM_CAPTURING,
    CountMismatch GVMM_ERROR_COUNT_MISMATCH, UnknownVersion GVMM_ERROR_UNKNOWN_VERSION,
    PlanMismatch GVMM_ERROR_PLAN_MISMATCH,
    OutOfHostMemory GVMM_ERROR_OUT_OF_HOST_MEMORY, OutOfDeviceMemory GVMM_ERROR_OUT_OF_DEVICE_MEMORY,
    OutOfAddressSpace GVMM_ERROR_OUT_OF_ADDRESS_SPACE,
    OutOfFileDescriptors GVMM_ERROR_OUT_OF_FILE_DESCRIPTORS, MapLimit GVMM_ERROR_MAP_LIMIT,
    DriverNotFound GVMM_ERROR_DRIVER_NOT_FOUND, DriverTooOld GVMM_ERROR_DRIVER_TOO_OLD,
    NoDevice GVMM_ERROR_NO_DEVICE, Unsupported GVMM_ERROR_UNSUPPORTED,
    DeviceLost GVMM_ERROR_DEVICE_LOST, DeviceFault GVMM_ERROR_DEVICE_FAULT,
    DriverError GVMM_ERROR_DRIVER_ERROR, RangeLost GVMM_ERROR_RANGE_LOST,
    Internal GVMM_ERROR_INTERNAL, Poisoned GVMM_ERROR_POISONED, Forked GVMM_ERROR_FORKED,
}

/// The status of a kind of failure.
pub(super) const fn of(kind: Kind) -> gvmm_status {
    kind as gvmm_status
}

/// The kind of a failure's status, or none where it is no failure that this version knows.
pub(super) fn kind(status: gvmm_status) -> Option<Kind> {
    FAILURES.iter().find(|(_, code, _)| *code == status).map(|(kind, _, _)| *kind)
}

/// Gives the name of a status as it is spelled in this header, such as `GVMM_ERROR_IN_USE`.
///
/// State: needs none and changes none; works in a child after fork.
/// Parameters: `status`, any number; one that this version does not know gives `GVMM_STATUS_UNKNOWN`.
/// Returns: a string that lives as long as the process, never NULL.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gvmm_status_name(status: gvmm_status) -> *const c_char {
    let name = match status {
        GVMM_STATUS_SUCCESS => c"GVMM_STATUS_SUCCESS",
        GVMM_STATUS_RECORD_AGAIN => c"GVMM_STATUS_RECORD_AGAIN",
        _ => FAILURES
            .iter()
            .find(|(_, code, _)| *code == status)
            .map_or(c"GVMM_STATUS_UNKNOWN", |(_, _, name)| *name),
    };
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_its_kinds_number_and_appears_once() {
        for (i, (kind, code, name)) in FAILURES.iter().enumerate() {
            assert_eq!(*code, of(*kind), "{name:?}");
            assert!(FAILURES[i + 1..].iter().all(|(_, other, _)| other != code), "{name:?} twice");
            assert!(name.to_bytes().starts_with(b"GVMM_ERROR_"), "{name:?}");
        }
        assert_eq!(kind(106), Some(Kind::InUse));
        assert_eq!(kind(0), None);
        assert_eq!(kind(999), None);
    }
}
