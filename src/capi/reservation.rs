//! Reservations: ranges of addresses, and what is mapped there.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::status::{GVMM_ERROR_INTERNAL, gvmm_status};
use super::types::{gvmm_block, gvmm_device, gvmm_reservation};
use std::ffi::c_void;

/// Access mode: nothing.
pub const GVMM_ACCESS_NONE: u32 = 0;
/// Access mode: reading.
pub const GVMM_ACCESS_READ: u32 = 1;
/// Access mode: reading and writing.
pub const GVMM_ACCESS_READ_WRITE: u32 = 3;

/// One line of an access list: what one device may do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_access {
    /// The device's number.
    pub device: u32,
    /// `GVMM_ACCESS_...`.
    pub mode: u32,
}

/// How to reserve; all zero but `struct_size` is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_reserve_desc {
    /// `sizeof(gvmm_reserve_desc)`.
    pub struct_size: usize,
    /// Alignment of the range in bytes, a power of two; 0 or less than the granularity: the granularity.
    pub alignment_bytes: u64,
    /// Who may do what with what is mapped there; may be NULL if the count is 0.
    pub access: *const gvmm_access,
    /// Number of elements; 0: the device itself, read and write.
    pub access_count: usize,
    /// Distance of two elements in bytes.
    pub access_stride_bytes: usize,
}

/// What a reservation is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_reservation_info {
    /// `sizeof(gvmm_reservation_info)`.
    pub struct_size: usize,
    /// Its first address.
    pub address: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// How many of these bytes are mapped.
    pub mapped_bytes: u64,
    /// How many blocks are mapped there.
    pub mapping_count: u64,
}

/// One place of a remap.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_remap_entry {
    /// Where.
    pub reservation: *mut gvmm_reservation,
    /// The place's offset in it, in bytes, a multiple of the granularity.
    pub offset_bytes: u64,
    /// What is to be mapped there, as a whole; NULL: nothing, what is there is unmapped.
    pub block: *mut gvmm_block,
}

/// What a remap did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_remap_report {
    /// `sizeof(gvmm_remap_report)`.
    pub struct_size: usize,
    /// Map calls to the driver.
    pub map_calls: u64,
    /// Unmap calls to the driver.
    pub unmap_calls: u64,
    /// Set-access calls to the driver.
    pub set_access_calls: u64,
    /// Entries that were already as asked.
    pub skipped_entries: u64,
    /// Bytes mapped.
    pub mapped_bytes: u64,
    /// Bytes unmapped.
    pub unmapped_bytes: u64,
    /// Nanoseconds spent waiting for streams.
    pub wait_ns: u64,
    /// Nanoseconds spent in driver calls.
    pub driver_ns: u64,
}

/// Reserves a range of addresses.
///
/// State: after success the range is the caller's until `gvmm_reservation_destroy`; nothing is mapped there.
/// Parameters: `device`; `size_bytes`, a multiple of the granularity; `desc`, or NULL for the default;
/// `out_reservation`, the handle; `out_address`, the range's first address.
/// Statuses: INVALID_SIZE, MISALIGNED (`alignment_bytes` is no power of two), INVALID_ARGUMENT (an access mode),
/// NO_DEVICE (in the access list), UNKNOWN_VERSION, OUT_OF_ADDRESS_SPACE, UNSUPPORTED.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_reserve(
    device: *mut gvmm_device,
    size_bytes: u64,
    desc: *const gvmm_reserve_desc,
    out_reservation: *mut *mut gvmm_reservation,
    out_address: *mut u64,
) -> gvmm_status {
    let _ = (device, size_bytes, desc, out_reservation, out_address);
    GVMM_ERROR_INTERNAL
}

/// Maps a whole block into a reservation. No access is given: `gvmm_reservation_set_access` does that, or use
/// `gvmm_remap`, which gives the reservation's.
///
/// State: before, nothing is mapped where the block will be. After success the reservation keeps the block's
/// memory until it is unmapped, and destroying the block is IN_USE.
/// Parameters: `reservation`; `offset_bytes`, a multiple of the granularity; `block`, of the same device.
/// Statuses: MISALIGNED, OUT_OF_RANGE, ALREADY_MAPPED, INVALID_ARGUMENT (of another device, or mapped elsewhere without
/// GVMM_CAPABILITY_ALIASING), MAP_LIMIT.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_map(
    reservation: *mut gvmm_reservation,
    offset_bytes: u64,
    block: *mut gvmm_block,
) -> gvmm_status {
    let _ = (reservation, offset_bytes, block);
    GVMM_ERROR_INTERNAL
}

/// Changes what is mapped at any number of places, of one or several reservations, in one transaction: places
/// that are as asked are skipped (by the block, not by its address), everything is unmapped before anything is
/// mapped, access is set once over each contiguous changed range.
///
/// State: after success every place is as its entry says and has its reservation's access. If a driver call
/// fails, all is as before; if undoing that fails too, the status is RANGE_LOST: the entries concerned are
/// unmapped, their blocks are still held, and the next remap there rebuilds them.
/// Parameters: `device`; `entries`, `count` elements `stride_bytes` apart; `streams`, `stream_count` streams
/// that the host waits for before the first unmap; if 0, the caller vouches that nothing running uses what is
/// unmapped; `out_report`, what was done, or NULL.
/// Statuses: as `gvmm_map`; OVERLAP (two entries of one place), NOT_MAPPED (unmap of nothing), PARTIAL_MAPPING,
/// INVALID_STREAM, STREAM_CAPTURING, UNKNOWN_VERSION, RANGE_LOST; the last-error detail names the entry.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_remap(
    device: *mut gvmm_device,
    entries: *const gvmm_remap_entry,
    count: usize,
    stride_bytes: usize,
    streams: *const *mut c_void,
    stream_count: usize,
    out_report: *mut gvmm_remap_report,
) -> gvmm_status {
    let _ = (device, entries, count, stride_bytes, streams, stream_count, out_report);
    GVMM_ERROR_INTERNAL
}

/// Defers the unmapping of mappings until streams have passed what is enqueued on them now.
///
/// State: before, a block is mapped at each entry's offset. After success those places count as unmapped for the
/// caller, while the streams still see the blocks; the driver's unmap follows once they have passed, at a later
/// call. Mapping the same block at the same place again takes the mapping back without a driver call.
/// Parameters: `device`; `entries`, `count` elements `stride_bytes` apart, of which `block` is ignored;
/// `streams`, `stream_count` streams, none if 0: then the mappings may go at once.
/// Statuses: NOT_MAPPED, INVALID_STREAM, STREAM_CAPTURING, UNKNOWN_VERSION (`stride_bytes`); the last-error detail
/// names the entry.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_retire(
    device: *mut gvmm_device,
    entries: *const gvmm_remap_entry,
    count: usize,
    stride_bytes: usize,
    streams: *const *mut c_void,
    stream_count: usize,
) -> gvmm_status {
    let _ = (device, entries, count, stride_bytes, streams, stream_count);
    GVMM_ERROR_INTERNAL
}

/// Unmaps, at once: nothing running may use it.
///
/// State: before, the range is exactly one or several whole mappings; after success it is unmapped.
/// Parameters: `reservation`; `offset_bytes` and `size_bytes`, the range in it.
/// Statuses: INVALID_SIZE, MISALIGNED, OUT_OF_RANGE, NOT_MAPPED, PARTIAL_MAPPING.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_reservation_unmap(
    reservation: *mut gvmm_reservation,
    offset_bytes: u64,
    size_bytes: u64,
) -> gvmm_status {
    let _ = (reservation, offset_bytes, size_bytes);
    GVMM_ERROR_INTERNAL
}

/// Sets who may do what. On the whole reservation, the list becomes the reservation's own and is applied to all
/// that is mapped, now and later; on exact mappings, it is for these until they are unmapped.
///
/// State: after success the access is as listed.
/// Parameters: `reservation`; `offset_bytes` and `size_bytes`, the whole or exact mappings; `access`, `count`
/// elements `stride_bytes` apart; 0: the device itself, read and write.
/// Statuses: INVALID_SIZE, MISALIGNED, OUT_OF_RANGE, NOT_MAPPED, PARTIAL_MAPPING, INVALID_ARGUMENT (a mode),
/// NO_DEVICE, UNSUPPORTED, UNKNOWN_VERSION (`stride_bytes`).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_reservation_set_access(
    reservation: *mut gvmm_reservation,
    offset_bytes: u64,
    size_bytes: u64,
    access: *const gvmm_access,
    count: usize,
    stride_bytes: usize,
) -> gvmm_status {
    let _ = (reservation, offset_bytes, size_bytes, access, count, stride_bytes);
    GVMM_ERROR_INTERNAL
}

/// Says what a reservation is.
///
/// State: changes none.
/// Parameters: `reservation`; `out_info`, whose `struct_size` is set.
/// Statuses: UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_reservation_query(
    reservation: *mut gvmm_reservation,
    out_info: *mut gvmm_reservation_info,
) -> gvmm_status {
    let _ = (reservation, out_info);
    GVMM_ERROR_INTERNAL
}

/// Gives a range of addresses back.
///
/// State: before, nothing is mapped there. After success the handle is invalid; the addresses are free once
/// what was retired there has been unmapped.
/// Parameters: `reservation`.
/// Statuses: IN_USE (something is mapped there; nothing has changed).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_reservation_destroy(reservation: *mut gvmm_reservation) -> gvmm_status {
    let _ = reservation;
    GVMM_ERROR_INTERNAL
}
