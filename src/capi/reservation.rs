//! Reservations: ranges of addresses.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::access::{access_list, gvmm_access};
use super::block::BlockObject;
use super::drivers::{Child, DeviceObject};
use super::entry::entry;
use super::handle::{self, Noun, Ref, Table};
use super::status::gvmm_status;
use super::types::{gvmm_block, gvmm_device, gvmm_reservation};
use super::versioned::{Caller, Versioned, versioned};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, Granularity};
use crate::vm::{MappingState, Owner, Reservation};
use std::sync::Arc;

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

/// Reserves a range of addresses.
///
/// State: after success the range is the caller's until `gvmm_reservation_destroy`; nothing is mapped
/// there.
/// Parameters: `device`; `size_bytes`, a multiple of the granularity; `desc`, or NULL for the default;
/// `out_reservation`, the handle; `out_address`, the range's first address.
/// Statuses: INVALID_SIZE, MISALIGNED (`alignment_bytes` is no power of two), INVALID_ARGUMENT (an access
/// mode), NO_DEVICE (in the access list), UNKNOWN_VERSION, OUT_OF_ADDRESS_SPACE, UNSUPPORTED.
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

/// Maps a whole block into a reservation. No access is given: `gvmm_reservation_set_access` does that, or
/// use `gvmm_remap`, which gives the reservation's.
///
/// State: before, nothing is mapped where the block will be. After success the reservation keeps the
/// block's memory until it is unmapped, and destroying the block is IN_USE.
/// Parameters: `reservation`; `offset_bytes`, a multiple of the granularity; `block`, of the same device.
/// Statuses: MISALIGNED, OUT_OF_RANGE, ALREADY_MAPPED, INVALID_ARGUMENT (of another device), UNSUPPORTED
/// (mapped elsewhere, and no GVMM_CAPABILITY_ALIASING), MAP_LIMIT.
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

/// Sets who may do what. On the whole reservation, the list becomes the reservation's own and is applied to
/// all that is mapped, now and later; on exact mappings, it is for these until they are unmapped.
///
/// State: after success the access is as listed.
/// Parameters: `reservation`; `offset_bytes` and `size_bytes`, the whole or exact mappings; `access`,
/// `count` elements `stride_bytes` apart; 0: the device itself, read and write.
/// Statuses: INVALID_SIZE, MISALIGNED, OUT_OF_RANGE, NOT_MAPPED, PARTIAL_MAPPING, INVALID_ARGUMENT (a
/// mode), NO_DEVICE, UNSUPPORTED, UNKNOWN_VERSION (`stride_bytes`).
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
        handle::leave_if(reservation, check_empty)?.gone();
        Ok(())
    })
}

versioned!(gvmm_reserve_desc { alignment_bytes, access, access_count, access_stride_bytes });
versioned!(gvmm_reservation_info { address, size_bytes, mapped_bytes, mapping_count });

/// What a handle of a reservation stands for.
pub(super) struct ReservationObject {
    pub(super) reservation: Arc<Reservation>,
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

/// Fails where something is mapped; a half-done one goes all the same.
fn check_empty(object: &Ref<ReservationObject>) -> Result<()> {
    if object.is_poisoned() || object.reservation.is_empty() {
        return Ok(());
    }
    let range = object.reservation.range();
    let error = Error::new(Kind::InUse, Operation::Destroy, "something is mapped there: unmap it first");
    Err(error.at(range.start(), range.size()))
}

fn alignment(bytes: u64) -> Result<Option<Granularity>> {
    if bytes == 0 {
        return Ok(None);
    }
    let hint = "alignment_bytes is no power of two";
    Granularity::new(bytes).map(Some).ok_or(Error::new(Kind::Misaligned, Operation::Reserve, hint))
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
