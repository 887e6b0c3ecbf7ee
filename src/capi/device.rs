//! Devices.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::status::{GVMM_ERROR_INTERNAL, gvmm_status};
use super::types::{gvmm_block, gvmm_device};
use std::ffi::c_char;

/// The driver that `GVMM_DRIVER` names, else the first that this machine has.
pub const GVMM_DRIVER_AUTO: u32 = 0;
/// NVIDIA's.
pub const GVMM_DRIVER_CUDA: u32 = 1;
/// AMD's.
pub const GVMM_DRIVER_HIP: u32 = 2;
/// Intel's.
pub const GVMM_DRIVER_LEVEL_ZERO: u32 = 3;
/// The host's own memory and threads.
pub const GVMM_DRIVER_HOST: u32 = 4;

/// Bit of `gvmm_device_info.capabilities`: reserve, map, set access and unmap are there at all.
pub const GVMM_CAPABILITY_VIRTUAL_MEMORY: u64 = 1;
/// Bit: a block may be mapped at several addresses at once.
pub const GVMM_CAPABILITY_ALIASING: u64 = 2;
/// Bit: access is given to single devices; without it, to all at once.
pub const GVMM_CAPABILITY_DEVICE_ACCESS: u64 = 4;
/// Bit: access may be set on a part of a reservation; without it, only on the whole.
pub const GVMM_CAPABILITY_RANGE_ACCESS: u64 = 8;
/// Bit: one set-access may span several neighbouring mappings.
pub const GVMM_CAPABILITY_JOINED_ACCESS: u64 = 16;
/// Bit: many copies cost one launch.
pub const GVMM_CAPABILITY_JOINT_COPIES: u64 = 32;
/// Bit: blocks can be exported to and imported from other processes as file descriptors.
pub const GVMM_CAPABILITY_SHARING: u64 = 64;
/// Bit: the host can read and write device addresses.
pub const GVMM_CAPABILITY_HOST_TOUCH: u64 = 128;
/// Bit: host functions can be enqueued on a `gvmm_stream`, and such streams captured into graphs.
pub const GVMM_CAPABILITY_HOST_FUNCTIONS: u64 = 256;
/// Bit: blocks are backed by huge pages (of the host driver).
pub const GVMM_CAPABILITY_HUGE_PAGES: u64 = 512;
/// Bit: NULL names the device's default stream.
pub const GVMM_CAPABILITY_NULL_STREAM: u64 = 1024;

/// Which device to open; all zero but `struct_size` is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_device_desc {
    /// `sizeof(gvmm_device_desc)`.
    pub struct_size: usize,
    /// `GVMM_DRIVER_...`.
    pub driver: u32,
    /// The device's number among its driver's, from 0.
    pub ordinal: u32,
}

/// What a device is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_device_info {
    /// `sizeof(gvmm_device_info)`.
    pub struct_size: usize,
    /// `GVMM_DRIVER_...`, never AUTO.
    pub driver: u32,
    /// The device's number, from 0.
    pub ordinal: u32,
    /// How many devices the driver has.
    pub device_count: u32,
    /// 0.
    pub reserved: u32,
    /// `GVMM_CAPABILITY_...` bits.
    pub capabilities: u64,
    /// The smallest unit that the device maps, in bytes: a power of two.
    pub granularity_bytes: u64,
    /// Its memory in bytes; 0 where unknown.
    pub total_bytes: u64,
    /// Bytes a second that its memory moves, reads and writes both counted; 0 where unknown.
    pub bandwidth_bytes_per_s: u64,
    /// Its name, cut to 63 bytes, with a NUL.
    pub name: [c_char; 64],
    /// The table of simulated costs that each call is made to take, or empty: then times are real.
    pub simulated_costs: [c_char; 32],
}

/// How many driver calls of each sort.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_call_counts {
    /// `sizeof(gvmm_call_counts)`.
    pub struct_size: usize,
    /// Ranges reserved.
    pub reserve: u64,
    /// Ranges freed.
    pub free: u64,
    /// Blocks created.
    pub create: u64,
    /// Blocks released.
    pub release: u64,
    /// Blocks mapped.
    pub map: u64,
    /// Mappings unmapped.
    pub unmap: u64,
    /// Set-access calls.
    pub set_access: u64,
    /// Launches of copies.
    pub copy_launches: u64,
    /// Writes of a timeline enqueued on a stream.
    pub timeline_writes: u64,
}

/// Counts the devices of a driver, opening the driver where that has not been done.
///
/// State: after success the driver is open for the life of the process; after a failure a later call tries again.
/// Parameters: `driver`, `GVMM_DRIVER_...`; `out_count`, a number of devices.
/// Statuses: INVALID_ARGUMENT (no such driver number), DRIVER_NOT_FOUND, DRIVER_TOO_OLD.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_count(driver: u32, out_count: *mut u32) -> gvmm_status {
    let _ = (driver, out_count);
    GVMM_ERROR_INTERNAL
}

/// Opens a device. Opening one twice gives two handles of the same device: they share its memory budget, and
/// objects made through one may be used with the other.
///
/// State: after success the handle lives until `gvmm_device_close`.
/// Parameters: `desc`, which device, or NULL for device 0 of GVMM_DRIVER_AUTO; `out_device`, the handle.
/// Statuses: INVALID_ARGUMENT (no such driver number), UNKNOWN_VERSION, DRIVER_NOT_FOUND, DRIVER_TOO_OLD, NO_DEVICE.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_open(
    desc: *const gvmm_device_desc,
    out_device: *mut *mut gvmm_device,
) -> gvmm_status {
    let _ = (desc, out_device);
    GVMM_ERROR_INTERNAL
}

/// Closes a handle of a device.
///
/// State: before, everything made through this handle has been destroyed; after success the handle is invalid.
/// Closing the last handle of a device waits until what was retired there has been unmapped.
/// Parameters: `device`, the handle.
/// Statuses: IN_USE (something made through this handle still lives; nothing has changed).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_close(device: *mut gvmm_device) -> gvmm_status {
    let _ = device;
    GVMM_ERROR_INTERNAL
}

/// Says what a device is.
///
/// State: changes none.
/// Parameters: `device`; `out_info`, whose `struct_size` is set.
/// Statuses: UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_query(
    device: *mut gvmm_device,
    out_info: *mut gvmm_device_info,
) -> gvmm_status {
    let _ = (device, out_info);
    GVMM_ERROR_INTERNAL
}

/// Reads a device's memory figures.
///
/// State: changes none.
/// Parameters: `device`; `out_free_bytes` and `out_total_bytes`, in bytes, 0 where the driver cannot tell.
/// Statuses: those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_memory(
    device: *mut gvmm_device,
    out_free_bytes: *mut u64,
    out_total_bytes: *mut u64,
) -> gvmm_status {
    let _ = (device, out_free_bytes, out_total_bytes);
    GVMM_ERROR_INTERNAL
}

/// Counts the calls that this process made to the device's driver through this library, for all devices of that
/// driver together, from the start.
///
/// State: changes none.
/// Parameters: `device`; `out_counts`, whose `struct_size` is set; numbers of calls.
/// Statuses: UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_counters(
    device: *mut gvmm_device,
    out_counts: *mut gvmm_call_counts,
) -> gvmm_status {
    let _ = (device, out_counts);
    GVMM_ERROR_INTERNAL
}

/// Unmaps and frees what was retired and whose streams have passed. Never waits.
///
/// State: after success `out_collected` retired things are gone; those whose streams have not passed remain.
/// Parameters: `device`; `out_collected`, a number of things.
/// Statuses: those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_collect(
    device: *mut gvmm_device,
    out_collected: *mut u64,
) -> gvmm_status {
    let _ = (device, out_collected);
    GVMM_ERROR_INTERNAL
}

/// Waits until the streams of everything that was retired have passed, and unmaps and frees it.
///
/// State: after success nothing is retired any more.
/// Parameters: `device`.
/// Statuses: STREAM_CAPTURING (a stream to wait for is being captured), DEVICE_FAULT, those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_drain(device: *mut gvmm_device) -> gvmm_status {
    let _ = device;
    GVMM_ERROR_INTERNAL
}

/// Finds the block behind an address. Takes no lock.
///
/// State: changes none.
/// Parameters: `device`; `address`, any; `out_block`, the block's handle (not a new one: do not destroy it for
/// this call); `out_offset_bytes`, the bytes from the block's start to `address`.
/// Statuses: NOT_MAPPED (no block with a handle lies there).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_find(
    device: *mut gvmm_device,
    address: u64,
    out_block: *mut *mut gvmm_block,
    out_offset_bytes: *mut u64,
) -> gvmm_status {
    let _ = (device, address, out_block, out_offset_bytes);
    GVMM_ERROR_INTERNAL
}
