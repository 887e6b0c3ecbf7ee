//! Figures of pools.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::entry::entry;
use super::handle;
use super::pool::PoolObject;
use super::status::gvmm_status;
use super::stream;
use super::types::gvmm_pool;
use super::versioned::{Caller, Versioned, versioned};
use crate::error::Operation;
use crate::pool::{Bytes, Figure, Pool, Stats, StreamStats};
use std::ffi::c_void;

/// A figure.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_figure {
    /// Now.
    pub current: u64,
    /// The most since the pool was made, or since `gvmm_pool_reset_peaks`.
    pub peak: u64,
    /// All that was ever added; what was taken away is this less `current`.
    pub total: u64,
}

/// Memory in its states. Fixed: later versions do not append to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_pool_bytes {
    /// Bytes in blocks that the program holds, each rounded up to 512.
    pub allocated_bytes: gvmm_figure,
    /// What the program asked for in them.
    pub requested_bytes: gvmm_figure,
    /// Allocated, or freed while another stream still uses it.
    pub active_bytes: gvmm_figure,
    /// Device memory held, used or not.
    pub reserved_bytes: gvmm_figure,
    /// Blocks that the program holds; `total` counts the allocations, and less `current` the frees.
    pub blocks: gvmm_figure,
    /// The same with blocks that were freed while another stream still uses them.
    pub active_blocks: gvmm_figure,
    /// Chunks mapped; `total` counts those that moved here, too.
    pub chunks: gvmm_figure,
}

/// What a pool has. With several streams, peaks of what they hold together, reserved and addresses apart, may be too low
/// by up to 1 MiB (64 MiB for a stream that allocates and frees large blocks by turns) and a 64th of each stream's share;
/// those of `small` and `large` are the highest of one stream, or what is now.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_pool_stats {
    /// `sizeof(gvmm_pool_stats)`.
    pub struct_size: usize,
    /// All of it.
    pub all: gvmm_pool_bytes,
    /// Of it, what serves requests of up to 1 MiB.
    pub small: gvmm_pool_bytes,
    /// Of it, what serves larger ones.
    pub large: gvmm_pool_bytes,
    /// Bytes of addresses reserved.
    pub address_space: gvmm_figure,
    /// Bytes of chunks that lie ready and belong to no stream; part of `all.reserved_bytes`.
    pub spare_bytes: u64,
    /// The most that the pool may reserve, or GVMM_POOL_NO_LIMIT.
    pub limit_bytes: u64,
    /// Chunks that moved to where they were needed.
    pub lent_chunks: u64,
    /// Times that a stream was made to wait for another so that memory could be used again.
    pub stream_waits: u64,
    /// Times that the host waited for streams.
    pub host_waits: u64,
    /// Times that the host waited for a whole device: 0, it never does.
    pub device_syncs: u64,
    /// Trims that were made to satisfy an allocation.
    pub forced_trims: u64,
    /// Allocations that failed for lack of memory.
    pub out_of_memory: u64,
    /// Driver calls made for allocations, frees and trims: ranges reserved.
    pub reserve_calls: u64,
    /// Ranges freed.
    pub free_calls: u64,
    /// Blocks created.
    pub create_calls: u64,
    /// Blocks released.
    pub release_calls: u64,
    /// Blocks mapped.
    pub map_calls: u64,
    /// Mappings unmapped; those that follow later, once streams have passed, `gvmm_device_counters` counts.
    pub unmap_calls: u64,
    /// Set-access calls.
    pub set_access_calls: u64,
    /// Writes of a timeline enqueued on a stream.
    pub timeline_writes: u64,
    /// Their time in nanoseconds, waits not included.
    pub driver_ns: u64,
}

/// What one stream has, of the pool or of a private pool. An element of an array.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_pool_stream {
    /// The stream; NULL, too, once it was forgotten (see `has_ended`).
    pub stream: *mut c_void,
    /// The private pool's id, first half; 0 and 0 for none.
    pub id_high: u64,
    /// The id's second half.
    pub id_low: u64,
    /// 1 once the stream was forgotten or destroyed.
    pub has_ended: u32,
    /// 0.
    pub reserved: u32,
    /// Bytes of addresses reserved.
    pub address_space_bytes: u64,
    /// Chunks that moved away from it.
    pub lent_chunks: u64,
    /// Chunks that moved to it.
    pub borrowed_chunks: u64,
    /// All of it.
    pub all: gvmm_pool_bytes,
    /// Of it, what serves requests of up to 1 MiB.
    pub small: gvmm_pool_bytes,
    /// Of it, what serves larger ones.
    pub large: gvmm_pool_bytes,
}

/// Says what a pool has.
///
/// State: changes none.
/// Parameters: `pool`; `out_stats`, whose `struct_size` is set.
/// Statuses: UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_query(
    pool: *mut gvmm_pool,
    out_stats: *mut gvmm_pool_stats,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_struct(out_stats)?;
        out.write(&all(&handle::get::<PoolObject>(pool)?.pool.stats()));
        Ok(())
    })
}

/// Says what each stream of a pool has.
///
/// State: changes none.
/// Parameters: `pool`; `out_streams`, room for `count` elements `stride_bytes` apart, filled as far as that goes; may
/// be NULL if the count is 0; `out_needed`, how many there are.
/// Statuses: UNKNOWN_VERSION (`stride_bytes`).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_stream_stats(
    pool: *mut gvmm_pool,
    out_streams: *mut gvmm_pool_stream,
    count: usize,
    stride_bytes: usize,
    out_needed: *mut usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let needed = c.out(out_needed)?;
        let out = c.out_elements(out_streams, count, stride_bytes)?;
        let pool = &handle::get::<PoolObject>(pool)?.pool;
        let streams = pool.stream_stats();
        out.write(streams.iter().map(|stats| one(pool, stats)));
        needed.write(streams.len());
        Ok(())
    })
}

/// Starts all peaks of a pool again from what is now.
///
/// State: after success each `peak` is its `current`.
/// Parameters: `pool`.
/// Statuses: none of its own.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_reset_peaks(pool: *mut gvmm_pool) -> gvmm_status {
    entry(Operation::Query, || {
        handle::get::<PoolObject>(pool)?.pool.reset_peaks();
        Ok(())
    })
}

versioned!(gvmm_pool_stats {
    all,
    small,
    large,
    address_space,
    spare_bytes,
    limit_bytes,
    lent_chunks,
    stream_waits,
    host_waits,
    device_syncs,
    forced_trims,
    out_of_memory,
    reserve_calls,
    free_calls,
    create_calls,
    release_calls,
    map_calls,
    unmap_calls,
    set_access_calls,
    timeline_writes,
    driver_ns,
});

fn all(stats: &Stats) -> gvmm_pool_stats {
    let calls = stats.calls;
    gvmm_pool_stats {
        all: bytes(&stats.bytes),
        small: bytes(&stats.parts[0]),
        large: bytes(&stats.parts[1]),
        address_space: figure(stats.address_space),
        spare_bytes: stats.spare.get(),
        limit_bytes: stats.limit.get(),
        lent_chunks: stats.lent_chunks,
        stream_waits: stats.stream_waits,
        host_waits: stats.host_waits,
        device_syncs: 0,
        forced_trims: stats.forced_trims,
        out_of_memory: stats.out_of_memory,
        reserve_calls: calls.reserve,
        free_calls: calls.free,
        create_calls: calls.create,
        release_calls: calls.release,
        map_calls: calls.map,
        unmap_calls: calls.unmap,
        set_access_calls: calls.set_access,
        timeline_writes: calls.timeline_writes,
        driver_ns: stats.driver_ns,
        ..Versioned::DEFAULT
    }
}

fn one(pool: &Pool, stats: &StreamStats) -> gvmm_pool_stream {
    gvmm_pool_stream {
        stream: stats.stream.map_or(std::ptr::null_mut(), |s| stream::to_caller(pool.device(), s)),
        id_high: stats.pool.0,
        id_low: stats.pool.1,
        has_ended: u32::from(stats.stream.is_none()),
        reserved: 0,
        address_space_bytes: stats.address_space.get(),
        lent_chunks: stats.lent.0,
        borrowed_chunks: stats.lent.1,
        all: bytes(&stats.bytes),
        small: bytes(&stats.parts[0]),
        large: bytes(&stats.parts[1]),
    }
}

fn bytes(bytes: &Bytes) -> gvmm_pool_bytes {
    gvmm_pool_bytes {
        allocated_bytes: figure(bytes.allocated),
        requested_bytes: figure(bytes.requested),
        active_bytes: figure(bytes.active),
        reserved_bytes: figure(bytes.reserved),
        blocks: figure(bytes.blocks),
        active_blocks: figure(bytes.active_blocks),
        chunks: figure(bytes.chunks),
    }
}

const fn figure(figure: Figure) -> gvmm_figure {
    let Figure { current, peak, total } = figure;
    gvmm_figure { current, peak, total }
}
