//! Remap and retire: many mappings in one call.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::array::{Element, Elements};
use super::block::BlockObject;
use super::drivers::DeviceObject;
use super::entry::entry;
use super::handle;
use super::reservation::ReservationObject;
use super::status::gvmm_status;
use super::stream;
use super::types::{gvmm_block, gvmm_device, gvmm_reservation};
use super::versioned::{Caller, Versioned, versioned};
use crate::error::{Operation, Result};
use crate::units::ByteSize;
use crate::vm::{RemapEntry, RemapReport, RetireEntry};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

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

/// Changes what is mapped at any number of places, of one or several reservations, in one transaction:
/// places that are as asked are skipped (by the block, not by its address), everything is unmapped before
/// anything is mapped, access is set once over each contiguous changed range.
///
/// State: after success every place is as its entry says and has its reservation's access. If a driver call
/// fails, all is as before; if undoing that fails too, the status is RANGE_LOST: the entries concerned are
/// unmapped, their blocks are still held, and the next remap there rebuilds them.
/// Parameters: `device`; `entries`, `count` elements `stride_bytes` apart; `streams`, `stream_count`
/// streams that the host waits for before the first unmap; if 0, the caller vouches that nothing running
/// uses the places named; `out_report`, what was done, or NULL.
/// Statuses: as `gvmm_map`; INVALID_ARGUMENT (one place named twice, another device's reservation),
/// PARTIAL_MAPPING, INVALID_STREAM, STREAM_CAPTURING, UNKNOWN_VERSION, RANGE_LOST; the last-error detail
/// names the entry.
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
/// State: before, a block is mapped at each entry's offset. After success those places count as unmapped
/// for the caller, while the streams still see the blocks; the driver's unmap follows once they have
/// passed, at a later call. Mapping the same block at the same place again takes the mapping back without a
/// driver call.
/// Parameters: `device`; `entries`, `count` elements `stride_bytes` apart, of which `block` is ignored;
/// `streams`, `stream_count` streams, none if 0: then the mappings may go at once.
/// Statuses: NOT_MAPPED, INVALID_ARGUMENT (another device's reservation), INVALID_STREAM, STREAM_CAPTURING,
/// UNKNOWN_VERSION (`stride_bytes`); the last-error detail names the entry.
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
// SAFETY: two raw pointers and a number.
unsafe impl Element for gvmm_remap_entry {}

fn remap_entries(entries: &Elements<gvmm_remap_entry>) -> Result<Vec<RemapEntry>> {
    entries.try_map(|entry| {
        let reservation = Arc::clone(&handle::get::<ReservationObject>(entry.reservation)?.reservation);
        let block = match entry.block.is_null() {
            true => None,
            false => Some(Arc::clone(&handle::look_up::<BlockObject>(entry.block)?.block)),
        };
        Ok(RemapEntry { reservation, offset: ByteSize(entry.offset_bytes), block })
    })
}

fn retire_entries(entries: &Elements<gvmm_remap_entry>) -> Result<Vec<RetireEntry>> {
    entries.try_map(|entry| {
        let reservation = Arc::clone(&handle::get::<ReservationObject>(entry.reservation)?.reservation);
        Ok(RetireEntry { reservation, offset: ByteSize(entry.offset_bytes) })
    })
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
