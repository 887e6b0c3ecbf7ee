//! `ze_result_t` → [`Error`]: the number and its name are kept, the kind is the same event's kind on every driver.

use super::api::{Api, SUCCESS, Status};
use crate::driver::codes::{Row, failure, no_descriptor_left};
use crate::error::{Error, Kind, Operation, Result};

const LOST: &str = "the device is lost, which too much memory in use may also be the cause of: restart the process, \
    and look into the kernel log";
const LACKS: &str = "this driver lacks the function";
const STARTED: &str = "the driver is not initialised: the process may be a child made by fork";

/// What each known number means. Where a kind depends on the operation, `kind_of` says so.
pub(super) const ROWS: &[Row<Status>] = &[
    Row(1, "ZE_RESULT_NOT_READY", Kind::Busy, ""),
    Row(0x7000_0001, "ZE_RESULT_ERROR_DEVICE_LOST", Kind::DeviceLost, LOST),
    Row(0x7000_0002, "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY", Kind::OutOfHostMemory, ""),
    Row(0x7000_0003, "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", Kind::OutOfDeviceMemory, ""),
    Row(0x7000_0006, "ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET", Kind::DeviceLost, LOST),
    Row(0x7000_0007, "ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE", Kind::Busy, "the device sleeps: try again"),
    Row(
        0x7001_0000,
        "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS",
        Kind::Unsupported,
        "this user may not do that: allow access to /dev/dri",
    ),
    Row(0x7001_0001, "ZE_RESULT_ERROR_NOT_AVAILABLE", Kind::Busy, "another process has the device to itself"),
    Row(
        0x7002_0000,
        "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE",
        Kind::DriverNotFound,
        "the driver lacks a library that it needs",
    ),
    Row(0x7800_0001, "ZE_RESULT_ERROR_UNINITIALIZED", Kind::DriverError, STARTED),
    Row(0x7800_0002, "ZE_RESULT_ERROR_UNSUPPORTED_VERSION", Kind::DriverTooOld, ""),
    Row(0x7800_0003, "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE", Kind::Unsupported, LACKS),
    Row(0x7800_0004, "ZE_RESULT_ERROR_INVALID_ARGUMENT", Kind::InvalidArgument, ""),
    Row(0x7800_0005, "ZE_RESULT_ERROR_INVALID_NULL_HANDLE", Kind::InvalidHandle, ""),
    Row(0x7800_0006, "ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE", Kind::InUse, ""),
    Row(0x7800_0007, "ZE_RESULT_ERROR_INVALID_NULL_POINTER", Kind::InvalidArgument, ""),
    Row(0x7800_0008, "ZE_RESULT_ERROR_INVALID_SIZE", Kind::InvalidSize, ""),
    Row(0x7800_0009, "ZE_RESULT_ERROR_UNSUPPORTED_SIZE", Kind::InvalidSize, ""),
    Row(0x7800_000a, "ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT", Kind::Misaligned, ""),
    Row(0x7800_000b, "ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT", Kind::InvalidHandle, ""),
    Row(0x7800_000c, "ZE_RESULT_ERROR_INVALID_ENUMERATION", Kind::InvalidArgument, ""),
    Row(0x7800_000d, "ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION", Kind::Unsupported, LACKS),
    Row(0x7800_0019, "ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE", Kind::InvalidStream, ""),
    Row(0x7800_001a, "ZE_RESULT_ERROR_OVERLAPPING_REGIONS", Kind::Overlap, ""),
    Row(0x7fff_fffe, "ZE_RESULT_ERROR_UNKNOWN", Kind::DriverError, ""),
];

impl Api {
    /// The failure that `status` stands for.
    pub(super) fn error(&self, status: Status, operation: Operation) -> Error {
        error(status, operation)
    }

    /// `Ok` for success, else the failure.
    pub(super) fn check(&self, status: Status, operation: Operation) -> Result<()> {
        if status == SUCCESS { Ok(()) } else { Err(error(status, operation)) }
    }

    /// The same for a call that had something to give, and must have: success with nothing is a failure too.
    pub(super) fn given(&self, status: Status, value: u64, operation: Operation) -> Result<u64> {
        self.check(status, operation)?;
        if value != 0 {
            return Ok(value);
        }
        let hint = "the driver says success and gives nothing: update the driver";
        Err(Error::new(Kind::DriverError, operation, hint).native(0, "ZE_RESULT_SUCCESS"))
    }

    /// Logs a failed clean-up.
    pub(super) fn log(&self, what: &str, status: Status) {
        if status != SUCCESS {
            log::warn!("could not {what}: {}", error(status, Operation::Destroy));
        }
    }
}

fn error(status: Status, operation: Operation) -> Error {
    failure(ROWS, status, operation, |kind, _, operation| kind_of(kind, operation), |_| "")
}

/// The same number means another thing in some operations.
fn kind_of(kind: Kind, operation: Operation) -> Kind {
    match (kind, operation) {
        // Sizes were checked before: what is left is that no range is large enough.
        (
            Kind::OutOfHostMemory | Kind::OutOfDeviceMemory | Kind::InvalidSize | Kind::InvalidArgument,
            Operation::Reserve,
        ) => Kind::OutOfAddressSpace,
        // Larger than the device can ever give.
        (Kind::InvalidSize, Operation::Allocate) => Kind::OutOfDeviceMemory,
        (Kind::InvalidHandle, Operation::Stream | Operation::Copy | Operation::Timeline) => {
            Kind::InvalidStream
        }
        // The driver calls every failure of the system that.
        (
            Kind::OutOfDeviceMemory | Kind::OutOfHostMemory | Kind::DriverError,
            Operation::Create | Operation::Share,
        ) if no_descriptor_left() => Kind::OutOfFileDescriptors,
        _ => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_the_operation_matters() {
        assert!(ROWS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let kind = |status, operation| error(status, operation).kind;
        assert_eq!(kind(0x7000_0003, Operation::Create), Kind::OutOfDeviceMemory);
        assert_eq!(kind(0x7000_0003, Operation::Reserve), Kind::OutOfAddressSpace);
        assert_eq!(kind(0x7800_0009, Operation::Map), Kind::InvalidSize);
        assert_eq!(kind(0x7800_0005, Operation::Stream), Kind::InvalidStream);
    }

    #[test]
    fn an_unknown_number_is_kept() {
        let seen = error(0x7fff_0007, Operation::Map);
        assert_eq!((seen.kind, seen.native.map(|n| n.code)), (Kind::DriverError, Some(0x7fff_0007)));
    }
}
