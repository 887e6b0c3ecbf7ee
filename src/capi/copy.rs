//! Copies.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::array::Element;
use super::drivers::DeviceObject;
use super::entry::entry;
use super::handle;
use super::status::gvmm_status;
use super::stream;
use super::types::gvmm_device;
use super::versioned::Caller;
use crate::driver::CopySlice;
use crate::error::Operation;
use crate::units::DevicePtr;
use std::ffi::c_void;

/// One slice of a copy.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_copy_slice {
    /// Device address to write to.
    pub dst: u64,
    /// Device address to read from.
    pub src: u64,
    /// How many bytes; 0 copies nothing.
    pub size_bytes: u64,
}

/// Enqueues many copies, together where the device can (GVMM_CAPABILITY_JOINT_COPIES). Their order is free.
/// On a capturing stream they become part of the graph.
///
/// State: changes none but the stream's queue. Nothing to copy enqueues nothing.
/// Parameters: `device`; `stream`, a `gvmm_stream` or the vendor's own; `slices`, `count` elements
/// `stride_bytes` apart; `out_launches`, the number of launches that took, or NULL.
/// Statuses: OVERLAP (a byte is written twice, or written and read), INVALID_ARGUMENT (address 0),
/// OUT_OF_RANGE (past 2^64), INVALID_STREAM, UNKNOWN_VERSION (`stride_bytes`); the last-error detail names
/// the slice. Memory without access shows later, as DEVICE_FAULT of the stream.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_shadow_copy(
    device: *mut gvmm_device,
    stream: *mut c_void,
    slices: *const gvmm_copy_slice,
    count: usize,
    stride_bytes: usize,
    out_launches: *mut u32,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Copy, || {
        let out = c.out_or_null(out_launches);
        let slices = c.elements(slices, count, stride_bytes)?;
        let device = &handle::get::<DeviceObject>(device)?.device;
        let stream = stream::resolve(device, stream)?;
        let slices: Vec<CopySlice> = slices.iter().map(slice).collect();
        let launches = device.shadow_copy(stream, &slices)?;
        if let Some(out) = out {
            out.write(launches);
        }
        Ok(())
    })
}

// SAFETY: three numbers.
unsafe impl Element for gvmm_copy_slice {}

fn slice(slice: gvmm_copy_slice) -> CopySlice {
    CopySlice { dst: DevicePtr(slice.dst), src: DevicePtr(slice.src), bytes: slice.size_bytes }
}
