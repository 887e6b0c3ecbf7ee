//! Devices and queues that a framework already uses.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::drivers::DeviceObject;
use super::entry::entry;
use super::handle;
use super::status::gvmm_status;
use super::stream::StreamObject;
use super::types::{gvmm_device, gvmm_stream};
use super::versioned::{Caller, versioned};
use crate::error::{Error, Kind, Operation};

/// The group of a queue that the driver is to find out.
pub const GVMM_QUEUE_GROUP_UNKNOWN: u32 = u32::MAX;

/// A device as a framework knows it; all zero but `struct_size` is the first device of GVMM_DRIVER_AUTO.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_attach_desc {
    /// `sizeof(gvmm_attach_desc)`.
    pub struct_size: usize,
    /// `GVMM_DRIVER_...`.
    pub driver: u32,
    /// 0.
    pub reserved: u32,
    /// CUDA: a `CUcontext`, or 0 for a device's primary one. HIP: 0. Level Zero: a `ze_context_handle_t`.
    pub native_context: u64,
    /// CUDA: a `CUdevice`, not looked at where a context is given. HIP: a `hipDevice_t`. Level Zero: a
    /// `ze_device_handle_t`.
    pub native_device: u64,
}

/// Opens the device that a framework in this process uses, by the driver's own handles. On Level Zero memory is of use
/// in its own context only, so this is the way to memory that the framework's kernels can touch; on CUDA and HIP it
/// only finds the device's number: their memory is the same in every context, and streams of any context of the device
/// are taken.
///
/// State: after success the handle lives until `gvmm_device_close`; the framework's context must live longer.
/// Parameters: `desc`, whose handles must be live (a driver may crash over one that is not); `out_device`, the handle.
/// Statuses: NULL_POINTER, UNKNOWN_VERSION, INVALID_ARGUMENT (no such driver number, or no handles), DRIVER_NOT_FOUND,
/// DRIVER_TOO_OLD, NO_DEVICE, UNSUPPORTED (the host driver has no contexts).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_attach(
    desc: *const gvmm_attach_desc,
    out_device: *mut *mut gvmm_device,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Open, || {
        let out = c.out(out_device)?;
        let desc = c.in_struct(desc)?;
        if desc.reserved != 0 {
            return Err(Error::new(Kind::InvalidArgument, Operation::Open, "reserved must be 0"));
        }
        let object = DeviceObject::attach(desc.driver, desc.native_context, desc.native_device)?;
        out.write(handle::insert(object)?);
        Ok(())
    })
}

/// Makes a stream of a framework's queue, where streams of the driver are no plain handles: on Level Zero a
/// `ze_command_queue_handle_t` (an in-order immediate command list is passed as it is).
///
/// State: after success `out_stream` lives until `gvmm_stream_destroy`, which gives up the handle only; the queue stays
/// its owner's, and must live longer.
/// Parameters: `device`, in whose context the queue was made; `native_queue`, live; `queue_group`, the ordinal of the
/// queue's group, or GVMM_QUEUE_GROUP_UNKNOWN where the driver can tell; `out_stream`, the handle.
/// Statuses: INVALID_STREAM (0 is no queue), INVALID_ARGUMENT (this driver cannot tell the group), UNSUPPORTED (streams of
/// this driver are passed as they are).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_wrap_queue(
    device: *mut gvmm_device,
    native_queue: u64,
    queue_group: u32,
    out_stream: *mut *mut gvmm_stream,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Stream, || {
        let out = c.out(out_stream)?;
        let device = handle::get::<DeviceObject>(device)?;
        let child = device.adopt()?;
        let group = (queue_group != GVMM_QUEUE_GROUP_UNKNOWN).then_some(queue_group);
        let made =
            StreamObject::make(&device.device, child, |streams, at| streams.wrap(at, native_queue, group));
        out.write(made?);
        Ok(())
    })
}

versioned!(gvmm_attach_desc { driver, reserved, native_context, native_device });
