//! Reservations: ranges of addresses, and what is mapped there.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::block::BlockObject;
use super::drivers::{Child, DeviceObject};
use super::entry::entry;
use super::handle::{self, Noun, Table};
use super::status::gvmm_status;
use super::stream;
use super::types::{gvmm_block, gvmm_device, gvmm_reservation};
use super::versioned::{Caller, Element, Elements, Versioned, versioned};
use crate::driver::{Access, AccessMode, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, Granularity};
use crate::vm::{Device, MappingState, Owner, RemapEntry, RemapReport, Reservation, RetireEntry};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

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
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Reserve, || {
        let (out, address) = (c.out(out_reservation)?, c.out(out_address)?);
        let desc = c.in_struct_or_default(desc)?;
        let access = access_list(c.elements(desc.access, desc.access_count, desc.access_stride_bytes)?);
        let alignment = alignment(desc.alignment_bytes)?;
        let device = handle::get::<DeviceObject>(device)?;
        let child = device.adopt()?;
        let reservation = device.device.reserve(ByteSize(size_bytes), alignment, &access, Owner::Caller)?;
        let start = reservation.range().start();
        out.write(handle::insert(ReservationObject { reservation, _child: child })?);
        address.write(start.get());
        Ok(())
    })
}

/// Maps a whole block into a reservation. No access is given: `gvmm_reservation_set_access` does that, or use
/// `gvmm_remap`, which gives the reservation's.
///
/// State: before, nothing is mapped where the block will be. After success the reservation keeps the block's
/// memory until it is unmapped, and destroying the block is IN_USE.
/// Parameters: `reservation`; `offset_bytes`, a multiple of the granularity; `block`, of the same device.
/// Statuses: MISALIGNED, OUT_OF_RANGE, ALREADY_MAPPED, INVALID_ARGUMENT (of another device), UNSUPPORTED (mapped
/// elsewhere, and no GVMM_CAPABILITY_ALIASING), MAP_LIMIT.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_map(
    reservation: *mut gvmm_reservation,
    offset_bytes: u64,
    block: *mut gvmm_block,
) -> gvmm_status {
    entry(Operation::Map, || {
        let reservation = handle::get::<ReservationObject>(reservation)?;
        let block = handle::get::<BlockObject>(block)?;
        reservation.reservation.map(ByteSize(offset_bytes), &block.block)
    })
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
/// Statuses: as `gvmm_map`; INVALID_ARGUMENT (one place named twice, another device's reservation), PARTIAL_MAPPING,
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
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Remap, || {
        let out = c.out_struct_or_null(out_report)?;
        let entries = c.elements(entries, count, stride_bytes)?;
        let streams = c.elements(streams, stream_count, size_of::<*mut c_void>())?;
        let device = handle::get::<DeviceObject>(device)?;
        let entries = remap_entries(&entries)?;
        let report = device.device.remap(&entries, &stream::resolve_all(&device.device, &streams)?)?;
        if let Some(out) = out {
            out.write(&report.into());
        }
        Ok(())
    })
}

/// Defers the unmapping of mappings until streams have passed what is enqueued on them now.
///
/// State: before, a block is mapped at each entry's offset. After success those places count as unmapped for the
/// caller, while the streams still see the blocks; the driver's unmap follows once they have passed, at a later
/// call. Mapping the same block at the same place again takes the mapping back without a driver call.
/// Parameters: `device`; `entries`, `count` elements `stride_bytes` apart, of which `block` is ignored;
/// `streams`, `stream_count` streams, none if 0: then the mappings may go at once.
/// Statuses: NOT_MAPPED, INVALID_ARGUMENT (another device's reservation), INVALID_STREAM, STREAM_CAPTURING, UNKNOWN_VERSION (`stride_bytes`); the last-error detail
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
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Retire, || {
        let entries = c.elements(entries, count, stride_bytes)?;
        let streams = c.elements(streams, stream_count, size_of::<*mut c_void>())?;
        let device = handle::get::<DeviceObject>(device)?;
        let entries = retire_entries(&entries)?;
        device.device.retire(&entries, &stream::resolve_all(&device.device, &streams)?)
    })
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
    entry(Operation::Unmap, || {
        let reservation = &handle::get::<ReservationObject>(reservation)?.reservation;
        reservation.unmap(ByteSize(offset_bytes), ByteSize(size_bytes))
    })
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
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::SetAccess, || {
        let access = access_list(c.elements(access, count, stride_bytes)?);
        let reservation = &handle::get::<ReservationObject>(reservation)?.reservation;
        reservation.set_access(ByteSize(offset_bytes), ByteSize(size_bytes), &access)
    })
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
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_struct(out_info)?;
        out.write(&info(&handle::get::<ReservationObject>(reservation)?.reservation));
        Ok(())
    })
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
    entry(Operation::Destroy, || {
        let leaving = handle::leave::<ReservationObject>(reservation)?;
        if !leaving.is_poisoned() && !leaving.reservation.is_empty() {
            let range = leaving.reservation.range();
            let error =
                Error::new(Kind::InUse, Operation::Destroy, "something is mapped there: unmap it first");
            return Err(error.at(range.start(), range.size()));
        }
        leaving.gone();
        Ok(())
    })
}

versioned!(gvmm_reserve_desc { alignment_bytes, access, access_count, access_stride_bytes });
versioned!(gvmm_reservation_info { address, size_bytes, mapped_bytes, mapping_count });
versioned!(gvmm_remap_report {
    map_calls,
    unmap_calls,
    set_access_calls,
    skipped_entries,
    mapped_bytes,
    unmapped_bytes,
    wait_ns,
    driver_ns
});
// SAFETY: two numbers.
unsafe impl Element for gvmm_access {}
// SAFETY: two raw pointers and a number.
unsafe impl Element for gvmm_remap_entry {}

/// What a handle of a reservation stands for.
pub(super) struct ReservationObject {
    reservation: Arc<Reservation>,
    _child: Child,
}

static RESERVATIONS: Table<ReservationObject> = Table::new();

impl Noun for ReservationObject {
    const TYPE: u64 = 3;
    type Handle = gvmm_reservation;
    fn table() -> &'static Table<Self> {
        &RESERVATIONS
    }
}

/// An access list; the layer below checks it.
pub(super) fn access_list(access: Elements<gvmm_access>) -> Vec<Access> {
    access.iter().map(|a| Access { device: Ordinal(a.device), mode: AccessMode(a.mode) }).collect()
}

/// Fails for an access list that no driver could apply.
pub(super) fn check_access(device: &Device, access: &[Access]) -> Result<()> {
    let count = device.driver().device_count();
    for (i, access) in access.iter().enumerate() {
        let (kind, hint) = match access {
            a if !a.mode.is_known() => (Kind::InvalidArgument, "the mode is none of GVMM_ACCESS_..."),
            a if a.device.0 >= count => (Kind::NoDevice, "an access list names a device that is not there"),
            _ => continue,
        };
        return Err(Error::new(kind, Operation::SetAccess, hint).entry(i as u64));
    }
    Ok(())
}

fn alignment(bytes: u64) -> Result<Option<Granularity>> {
    if bytes == 0 {
        return Ok(None);
    }
    let hint = "alignment_bytes is no power of two";
    Granularity::new(bytes).map(Some).ok_or(Error::new(Kind::Misaligned, Operation::Reserve, hint))
}

fn remap_entries(entries: &Elements<gvmm_remap_entry>) -> Result<Vec<RemapEntry>> {
    blaming(entries, |entry: gvmm_remap_entry| {
        let reservation = Arc::clone(&handle::get::<ReservationObject>(entry.reservation)?.reservation);
        let block = match entry.block.is_null() {
            true => None,
            false => Some(Arc::clone(&handle::look_up::<BlockObject>(entry.block)?.block)),
        };
        Ok(RemapEntry { reservation, offset: ByteSize(entry.offset_bytes), block })
    })
}

fn retire_entries(entries: &Elements<gvmm_remap_entry>) -> Result<Vec<RetireEntry>> {
    blaming(entries, |entry: gvmm_remap_entry| {
        let reservation = Arc::clone(&handle::get::<ReservationObject>(entry.reservation)?.reservation);
        Ok(RetireEntry { reservation, offset: ByteSize(entry.offset_bytes) })
    })
}

/// All elements by `make`; a failure names the element.
fn blaming<T: Element, U>(elements: &Elements<T>, make: impl Fn(T) -> Result<U>) -> Result<Vec<U>> {
    let make = |(i, element)| make(element).map_err(|error| error.entry(i as u64));
    elements.iter().enumerate().map(make).collect()
}

fn info(reservation: &Reservation) -> gvmm_reservation_info {
    let mappings = reservation.mappings();
    // What is retired is gone for the caller.
    let mapped = mappings.iter().filter(|mapping| mapping.state != MappingState::Retired);
    gvmm_reservation_info {
        address: reservation.range().start().get(),
        size_bytes: reservation.range().size().get(),
        mapped_bytes: mapped.clone().map(|mapping| mapping.size.get()).sum(),
        mapping_count: mapped.count() as u64,
        ..Versioned::DEFAULT
    }
}

impl From<RemapReport> for gvmm_remap_report {
    fn from(report: RemapReport) -> Self {
        Self {
            map_calls: report.calls.map,
            unmap_calls: report.calls.unmap,
            set_access_calls: report.calls.set_access,
            skipped_entries: report.skipped,
            mapped_bytes: report.mapped_bytes.get(),
            unmapped_bytes: report.unmapped_bytes.get(),
            wait_ns: nanoseconds(report.waited),
            driver_ns: nanoseconds(report.driver_time),
            ..Versioned::DEFAULT
        }
    }
}

/// A time in whole nanoseconds; 584 years at most.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
