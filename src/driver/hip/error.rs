//! `hipError_t` → [`Error`]: the number and its name are kept, the kind is the same event's kind on every driver.
#![allow(unsafe_code, reason = "reads the name that the driver gives for a number")]

use super::api::{Api, SUCCESS, Status};
use crate::driver::codes::{Row, failure};
use crate::driver::delegate::error_calls;
use crate::driver::library::intern;
use crate::error::{Error, Kind, Operation, Result};
use std::ffi::{CStr, c_char};

const FAULT: &str = "work on the device failed, and nothing more will run there: restart the process";
const LOST: &str = "the device is lost: restart the process, and look into the kernel log";
const CAPTURE: &str = "a stream is being captured: do this outside of the capture";
const NO_DEVICE: &str = "HIP sees no device: check HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and /dev/kfd";
const OLD: &str = "the kernel's driver does not fit this ROCm: install matching ones";

/// What each known number means. Where a kind depends on the operation, `kind_of` says so.
const ROWS: &[Row<Status>] = &[
    Row(1, "hipErrorInvalidValue", Kind::InvalidArgument, ""),
    Row(2, "hipErrorOutOfMemory", Kind::OutOfDeviceMemory, ""),
    Row(3, "hipErrorNotInitialized", Kind::DriverError, "the process may be a child made by fork"),
    Row(4, "hipErrorDeinitialized", Kind::DriverError, "the driver is shutting down"),
    Row(17, "hipErrorInvalidDevicePointer", Kind::InvalidArgument, ""),
    Row(35, "hipErrorInsufficientDriver", Kind::DriverTooOld, OLD),
    Row(98, "hipErrorInvalidDeviceFunction", Kind::Unsupported, ""),
    Row(100, "hipErrorNoDevice", Kind::NoDevice, NO_DEVICE),
    Row(101, "hipErrorInvalidDevice", Kind::NoDevice, NO_DEVICE),
    Row(200, "hipErrorInvalidImage", Kind::Unsupported, ""),
    Row(201, "hipErrorInvalidContext", Kind::WrongState, ""),
    Row(205, "hipErrorMapFailed", Kind::DriverError, ""),
    Row(206, "hipErrorUnmapFailed", Kind::DriverError, ""),
    Row(208, "hipErrorAlreadyMapped", Kind::AlreadyMapped, ""),
    Row(209, "hipErrorNoBinaryForGpu", Kind::Unsupported, ""),
    Row(211, "hipErrorNotMapped", Kind::NotMapped, ""),
    Row(214, "hipErrorECCNotCorrectable", Kind::DeviceLost, LOST),
    Row(217, "hipErrorPeerAccessUnsupported", Kind::Unsupported, "these devices cannot reach each other"),
    Row(302, "hipErrorSharedObjectSymbolNotFound", Kind::Unsupported, ""),
    Row(303, "hipErrorSharedObjectInitFailed", Kind::DriverError, ""),
    Row(304, "hipErrorOperatingSystem", Kind::DriverError, ""),
    Row(400, "hipErrorInvalidHandle", Kind::InvalidHandle, ""),
    Row(401, "hipErrorIllegalState", Kind::WrongState, ""),
    Row(500, "hipErrorNotFound", Kind::Unsupported, "this driver lacks the function"),
    Row(600, "hipErrorNotReady", Kind::Busy, ""),
    Row(700, "hipErrorIllegalAddress", Kind::DeviceFault, FAULT),
    Row(701, "hipErrorLaunchOutOfResources", Kind::DriverError, ""),
    Row(702, "hipErrorLaunchTimeOut", Kind::DeviceFault, FAULT),
    Row(709, "hipErrorContextIsDestroyed", Kind::WrongState, ""),
    Row(710, "hipErrorAssert", Kind::DeviceFault, FAULT),
    Row(719, "hipErrorLaunchFailure", Kind::DeviceFault, FAULT),
    Row(801, "hipErrorNotSupported", Kind::Unsupported, ""),
    Row(900, "hipErrorStreamCaptureUnsupported", Kind::StreamCapturing, CAPTURE),
    Row(901, "hipErrorStreamCaptureInvalidated", Kind::StreamCapturing, "the capture is broken: end it"),
    Row(902, "hipErrorStreamCaptureMerge", Kind::StreamCapturing, CAPTURE),
    Row(903, "hipErrorStreamCaptureUnmatched", Kind::StreamCapturing, CAPTURE),
    Row(904, "hipErrorStreamCaptureUnjoined", Kind::StreamCapturing, CAPTURE),
    Row(905, "hipErrorStreamCaptureIsolation", Kind::StreamCapturing, CAPTURE),
    Row(906, "hipErrorStreamCaptureImplicit", Kind::StreamCapturing, CAPTURE),
    Row(907, "hipErrorCapturedEvent", Kind::StreamCapturing, CAPTURE),
    Row(908, "hipErrorStreamCaptureWrongThread", Kind::StreamCapturing, CAPTURE),
    Row(999, "hipErrorUnknown", Kind::DriverError, ""),
    Row(1052, "hipErrorRuntimeMemory", Kind::OutOfHostMemory, ""),
    Row(1053, "hipErrorRuntimeOther", Kind::DriverError, ""),
];

error_calls!();

/// The same number means another thing in some operations.
fn kind_of(kind: Kind, code: Status, operation: Operation) -> Kind {
    match (code, operation) {
        // Sizes and alignments were checked before: what is left is that no range is large enough.
        (1 | 2, Operation::Reserve) => Kind::OutOfAddressSpace,
        // HIP looks a stream up and, where it is not there, says that its context is.
        (
            400 | 709,
            Operation::Stream
            | Operation::Copy
            | Operation::Timeline
            | Operation::Capture
            | Operation::Launch,
        ) => Kind::InvalidStream,
        _ => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_the_operation_matters() {
        assert!(ROWS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let oom = |operation| kind_of(Kind::OutOfDeviceMemory, 2, operation);
        assert_eq!(oom(Operation::Create), Kind::OutOfDeviceMemory);
        assert_eq!(oom(Operation::Reserve), Kind::OutOfAddressSpace);
        assert_eq!(kind_of(Kind::WrongState, 709, Operation::Copy), Kind::InvalidStream);
    }
}
