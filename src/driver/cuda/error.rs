//! `CUresult` → [`Error`]: the number and its name are kept, the kind is the same event's kind on every driver.
#![allow(unsafe_code, reason = "reads the name that the driver gives for a number")]

use super::api::{Api, SUCCESS, Status};
use crate::driver::codes::{Row, failure, no_descriptor_left};
use crate::driver::delegate::error_calls;
use crate::driver::library::intern;
use crate::error::{Error, Kind, Operation, Result};
use std::ffi::{CStr, c_char};

const DESTROYED: &str = "the context was destroyed or reset by its owner: open the device again";
const FAULT: &str = "work on the device failed, and nothing more will run there: restart the process";
const LOST: &str = "the device is lost: restart the process, and look into the kernel log";
const MISMATCH: &str = "the driver library does not fit the kernel module: reboot, or install matching ones";
const CAPTURE: &str = "a stream is being captured: do this outside of the capture";

/// What each known number means. Where a kind depends on the operation, `kind_of` says so.
pub(super) const ROWS: &[Row<Status>] = &[
    Row(1, "CUDA_ERROR_INVALID_VALUE", Kind::InvalidArgument, ""),
    Row(2, "CUDA_ERROR_OUT_OF_MEMORY", Kind::OutOfDeviceMemory, ""),
    Row(3, "CUDA_ERROR_NOT_INITIALIZED", Kind::DriverError, "the process may be a child made by fork"),
    Row(4, "CUDA_ERROR_DEINITIALIZED", Kind::DriverError, "the driver is shutting down"),
    Row(34, "CUDA_ERROR_STUB_LIBRARY", Kind::DriverNotFound, "a toolkit's stub is no driver"),
    Row(46, "CUDA_ERROR_DEVICE_UNAVAILABLE", Kind::Busy, "another process has the device to itself"),
    Row(100, "CUDA_ERROR_NO_DEVICE", Kind::NoDevice, "the driver sees no device: check CUDA_VISIBLE_DEVICES"),
    Row(101, "CUDA_ERROR_INVALID_DEVICE", Kind::NoDevice, ""),
    Row(200, "CUDA_ERROR_INVALID_IMAGE", Kind::Unsupported, ""),
    Row(201, "CUDA_ERROR_INVALID_CONTEXT", Kind::WrongState, DESTROYED),
    Row(209, "CUDA_ERROR_NO_BINARY_FOR_GPU", Kind::Unsupported, ""),
    Row(214, "CUDA_ERROR_ECC_UNCORRECTABLE", Kind::DeviceLost, LOST),
    Row(
        217,
        "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        Kind::Unsupported,
        "these devices cannot reach each other",
    ),
    Row(218, "CUDA_ERROR_INVALID_PTX", Kind::Unsupported, ""),
    Row(220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", Kind::DeviceLost, LOST),
    Row(222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", Kind::Unsupported, ""),
    Row(226, "CUDA_ERROR_CONTAINED", Kind::DeviceLost, LOST),
    Row(304, "CUDA_ERROR_OPERATING_SYSTEM", Kind::DriverError, ""),
    Row(400, "CUDA_ERROR_INVALID_HANDLE", Kind::InvalidHandle, ""),
    Row(401, "CUDA_ERROR_ILLEGAL_STATE", Kind::WrongState, ""),
    Row(500, "CUDA_ERROR_NOT_FOUND", Kind::Unsupported, "this driver lacks the function"),
    Row(600, "CUDA_ERROR_NOT_READY", Kind::Busy, ""),
    Row(700, "CUDA_ERROR_ILLEGAL_ADDRESS", Kind::DeviceFault, FAULT),
    Row(701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", Kind::DriverError, ""),
    Row(702, "CUDA_ERROR_LAUNCH_TIMEOUT", Kind::DeviceFault, FAULT),
    Row(709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", Kind::WrongState, DESTROYED),
    Row(710, "CUDA_ERROR_ASSERT", Kind::DeviceFault, FAULT),
    Row(714, "CUDA_ERROR_HARDWARE_STACK_ERROR", Kind::DeviceFault, FAULT),
    Row(715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", Kind::DeviceFault, FAULT),
    Row(716, "CUDA_ERROR_MISALIGNED_ADDRESS", Kind::DeviceFault, FAULT),
    Row(717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", Kind::DeviceFault, FAULT),
    Row(718, "CUDA_ERROR_INVALID_PC", Kind::DeviceFault, FAULT),
    Row(719, "CUDA_ERROR_LAUNCH_FAILED", Kind::DeviceFault, FAULT),
    Row(800, "CUDA_ERROR_NOT_PERMITTED", Kind::Unsupported, ""),
    Row(801, "CUDA_ERROR_NOT_SUPPORTED", Kind::Unsupported, ""),
    Row(802, "CUDA_ERROR_SYSTEM_NOT_READY", Kind::DriverNotFound, "the fabric manager is not running"),
    Row(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", Kind::DriverTooOld, MISMATCH),
    Row(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", Kind::DriverTooOld, MISMATCH),
    Row(900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", Kind::StreamCapturing, CAPTURE),
    Row(901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", Kind::StreamCapturing, "the capture is broken: end it"),
    Row(902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", Kind::StreamCapturing, CAPTURE),
    Row(903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", Kind::StreamCapturing, CAPTURE),
    Row(904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", Kind::StreamCapturing, CAPTURE),
    Row(905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", Kind::StreamCapturing, CAPTURE),
    Row(906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", Kind::StreamCapturing, CAPTURE),
    Row(907, "CUDA_ERROR_CAPTURED_EVENT", Kind::StreamCapturing, CAPTURE),
    Row(908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", Kind::StreamCapturing, CAPTURE),
    Row(999, "CUDA_ERROR_UNKNOWN", Kind::DriverError, ""),
];

error_calls!();

/// The same number means another thing in some operations.
fn kind_of(kind: Kind, code: Status, operation: Operation) -> Kind {
    match (code, operation) {
        // Sizes and alignments were checked before: what is left is that no range is large enough.
        (1 | 2, Operation::Reserve) => Kind::OutOfAddressSpace,
        (
            400,
            Operation::Stream
            | Operation::Copy
            | Operation::Timeline
            | Operation::Capture
            | Operation::Launch,
        ) => Kind::InvalidStream,
        (304, Operation::Share | Operation::Create) if no_descriptor_left() => Kind::OutOfFileDescriptors,
        (1 | 2 | 999, Operation::Share) if no_descriptor_left() => Kind::OutOfFileDescriptors,
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
        assert_eq!(kind_of(Kind::InvalidHandle, 400, Operation::Stream), Kind::InvalidStream);
    }
}
