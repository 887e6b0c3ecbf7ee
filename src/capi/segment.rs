//! Segments: long ranges of addresses that grow and shrink by chunks.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::access::{access_list, check_access, gvmm_access};
use super::drivers::{Child, DeviceObject};
use super::entry::entry;
use super::handle::{self, Noun, Ref, Table};
use super::peer::Peers;
use super::status::gvmm_status;
use super::stream;
use super::types::{gvmm_device, gvmm_segment};
use super::versioned::{Caller, Versioned, versioned};
use crate::error::{Error, Kind, Operation, Result};
use crate::pool::{ChunkIndex, ExpandableSegment, Settings};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::Device;
use std::ffi::c_void;
use std::mem::size_of;
use std::ops::Range;
use std::sync::Arc;

/// How to make a segment; all zero but `struct_size` is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_segment_desc {
    /// `sizeof(gvmm_segment_desc)`.
    pub struct_size: usize,
    /// Bytes of addresses, rounded up to chunks; 0: nine eighths of the device's memory.
    pub size_bytes: u64,
    /// Bytes of a chunk, a multiple of the granularity; 0: what a pool takes for requests of more than 1 MiB.
    pub chunk_bytes: u64,
    /// Who may use the memory; may be NULL if the count is 0.
    pub access: *const gvmm_access,
    /// Number of elements; 0: the device itself, read and write.
    pub access_count: usize,
    /// Distance of two elements in bytes.
    pub access_stride_bytes: usize,
}

/// What a segment is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_segment_info {
    /// `sizeof(gvmm_segment_info)`.
    pub struct_size: usize,
    /// Its first address.
    pub address: u64,
    /// Bytes of its addresses.
    pub size_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Places for chunks.
    pub chunk_count: u64,
    /// Places that have one.
    pub live_chunks: u64,
}

/// A run of neighbouring live chunks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_chunk_run {
    /// The number of its first chunk; chunk `i` starts `i` times `chunk_bytes` behind the segment's first address.
    pub first_chunk: u64,
    /// How many chunks it has.
    pub chunk_count: u64,
}

/// Makes a segment: addresses without memory.
///
/// State: after success the segment lives until `gvmm_segment_destroy`.
/// Parameters: `device`; `desc`, or NULL for the default; `out_segment`, the handle; `out_address`, its first address.
/// Statuses: INVALID_SIZE (a chunk that is no multiple of the granularity, or 2^32 chunks and more), INVALID_ARGUMENT
/// (an access mode), NO_DEVICE (in the access list), UNKNOWN_VERSION, OUT_OF_ADDRESS_SPACE, UNSUPPORTED (no virtual
/// memory).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_segment_create(
    device: *mut gvmm_device,
    desc: *const gvmm_segment_desc,
    out_segment: *mut *mut gvmm_segment,
    out_address: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Create, || {
        let (out, address) = (c.out(out_segment)?, c.out(out_address)?);
        let desc = c.in_struct_or_default(desc)?;
        let access = access_list(c.elements(desc.access, desc.access_count, desc.access_stride_bytes)?);
        let device = handle::get::<DeviceObject>(device)?;
        check_access(&device.device, &access)?;
        let child = device.adopt()?;
        let (size, chunk) = sizes(&device.device, &desc)?;
        let segment = Arc::new(ExpandableSegment::new(&device.device, size, chunk, &access)?);
        if access.is_empty() {
            Peers::of(&device.device).join(&segment)?;
        }
        let start = segment.range().start();
        let device = Arc::clone(&device.device);
        out.write(handle::insert(SegmentObject { segment, device, _child: child })?);
        address.write(start.get());
        Ok(())
    })
}

/// Says what a segment is.
///
/// State: changes none.
/// Parameters: `segment`; `out_info`, whose `struct_size` is set.
/// Statuses: UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_segment_query(
    segment: *mut gvmm_segment,
    out_info: *mut gvmm_segment_info,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_struct(out_info)?;
        let segment = &handle::get::<SegmentObject>(segment)?.segment;
        out.write(&gvmm_segment_info {
            address: segment.range().start().get(),
            size_bytes: segment.range().size().get(),
            chunk_bytes: segment.chunk_size().get(),
            chunk_count: u64::from(segment.capacity()),
            live_chunks: u64::from(segment.live()),
            ..Versioned::DEFAULT
        });
        Ok(())
    })
}

/// Gives memory to every chunk that a range touches and that has none.
///
/// State: after success the range, rounded outwards to chunks, is accessible; after a failure all is as before.
/// Parameters: `segment`; `address` and `size_bytes`, a range of its; the end of the segment is a valid end;
/// `out_address` and `out_size_bytes`, the range rounded outwards, or NULL.
/// Statuses: OUT_OF_RANGE, OUT_OF_DEVICE_MEMORY, OUT_OF_FILE_DESCRIPTORS, MAP_LIMIT, and those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_segment_map(
    segment: *mut gvmm_segment,
    address: u64,
    size_bytes: u64,
    out_address: *mut u64,
    out_size_bytes: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Map, || {
        let (start, size) = (c.out_or_null(out_address), c.out_or_null(out_size_bytes));
        let segment = &handle::get::<SegmentObject>(segment)?.segment;
        let live = segment.map(DevicePtr(address), ByteSize(size_bytes))?;
        if let Some(out) = start {
            out.write(live.start.get());
        }
        if let Some(out) = size {
            out.write(live.end.get() - live.start.get());
        }
        Ok(())
    })
}

/// Takes memory from every chunk that a range covers whole, once streams have passed what is enqueued on them now.
///
/// State: after success these chunks have none for the caller; after a failure all is as before.
/// Parameters: `segment`; `address` and `size_bytes`, a range of its, rounded inwards to chunks; `streams`,
/// `stream_count` streams that may still use it, each a `gvmm_stream` or the vendor's own; 0: nothing does, and the
/// memory goes at once; `out_bytes`, how many bytes of chunks went.
/// Statuses: OUT_OF_RANGE, INVALID_STREAM, STREAM_CAPTURING, and those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_segment_unmap(
    segment: *mut gvmm_segment,
    address: u64,
    size_bytes: u64,
    streams: *const *mut c_void,
    stream_count: usize,
    out_bytes: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Unmap, || {
        let out = c.out(out_bytes)?;
        let streams = c.elements(streams, stream_count, size_of::<*mut c_void>())?;
        let object = handle::get::<SegmentObject>(segment)?;
        let streams = stream::resolve_all(&object.device, &streams)?;
        let gone = object.segment.unmap(DevicePtr(address), ByteSize(size_bytes), &streams)?;
        out.write(gone as u64 * object.segment.chunk_size().get());
        Ok(())
    })
}

/// Lists the runs of neighbouring live chunks, by address.
///
/// State: changes none.
/// Parameters: `segment`; `out_runs`, room for `count` elements `stride_bytes` apart, filled as far as that goes; may be
/// NULL if the count is 0; `out_needed`, how many runs there are.
/// Statuses: UNKNOWN_VERSION (`stride_bytes`).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_segment_live_runs(
    segment: *mut gvmm_segment,
    out_runs: *mut gvmm_chunk_run,
    count: usize,
    stride_bytes: usize,
    out_needed: *mut usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let needed = c.out(out_needed)?;
        let out = c.out_elements(out_runs, count, stride_bytes)?;
        let runs = handle::get::<SegmentObject>(segment)?.segment.live_runs();
        out.write(runs.iter().map(run));
        needed.write(runs.len());
        Ok(())
    })
}

/// Sets who may use a segment's memory, also what lives already. `gvmm_device_peer_enable` changes nothing about it
/// from then on.
///
/// State: after success the access is as listed, now and for all memory to come.
/// Parameters: `segment`; `access`, `count` elements `stride_bytes` apart; 0: the device itself, read and write.
/// Statuses: INVALID_ARGUMENT (a mode), NO_DEVICE (in the list), UNSUPPORTED (a device that cannot reach this one's
/// memory), UNKNOWN_VERSION (`stride_bytes`), and those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_segment_set_access(
    segment: *mut gvmm_segment,
    access: *const gvmm_access,
    count: usize,
    stride_bytes: usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::SetAccess, || {
        let access = access_list(c.elements(access, count, stride_bytes)?);
        let object = handle::get::<SegmentObject>(segment)?;
        check_access(&object.device, &access)?;
        Peers::of(&object.device).leave(&object.segment, &access)
    })
}

/// Gives a segment's addresses back.
///
/// State: before, no chunk is live; after success the handle is invalid, and the addresses are free once what was
/// unmapped there has gone.
/// Parameters: `segment`.
/// Statuses: IN_USE (a chunk is live; nothing has changed).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_segment_destroy(segment: *mut gvmm_segment) -> gvmm_status {
    entry(Operation::Destroy, || {
        handle::leave_if::<SegmentObject>(segment, check_empty)?.gone();
        Ok(())
    })
}

versioned!(gvmm_segment_desc { size_bytes, chunk_bytes, access, access_count, access_stride_bytes });
versioned!(gvmm_segment_info { address, size_bytes, chunk_bytes, chunk_count, live_chunks });

/// What a handle of a segment stands for.
pub(super) struct SegmentObject {
    segment: Arc<ExpandableSegment>,
    device: Arc<Device>,
    _child: Child,
}

static SEGMENTS: Table<SegmentObject> = Table::new();

impl Noun for SegmentObject {
    const TYPE: u64 = 9;
    type Handle = gvmm_segment;
    fn table() -> &'static Table<Self> {
        &SEGMENTS
    }
}

/// Fails where a chunk is live; a half-done one goes all the same.
fn check_empty(object: &Ref<SegmentObject>) -> Result<()> {
    if object.is_poisoned() || object.segment.live() == 0 {
        return Ok(());
    }
    let range = object.segment.range();
    let error = Error::new(Kind::InUse, Operation::Destroy, "chunks are live there: unmap them first");
    Err(error.at(range.start(), range.size()))
}

/// Bytes of a segment and of its chunks.
fn sizes(device: &Arc<Device>, desc: &gvmm_segment_desc) -> Result<(ByteSize, ByteSize)> {
    let asked = |bytes, default| if bytes == 0 { default } else { ByteSize(bytes) };
    let (size, chunk) = Settings::from_environment().large_sizes(device)?;
    Ok((asked(desc.size_bytes, size), asked(desc.chunk_bytes, chunk)))
}

const fn run(run: &Range<ChunkIndex>) -> gvmm_chunk_run {
    gvmm_chunk_run { first_chunk: run.start.0 as u64, chunk_count: (run.end.0 - run.start.0) as u64 }
}
