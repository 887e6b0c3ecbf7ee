//! Pools: caching allocators.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::access::{access_list, check_access, gvmm_access};
use super::drivers::{Child, DeviceObject};
use super::entry::{entry, entry_short};
use super::handle::{self, Noun, Ref, Table, Visited};
use super::last_error;
use super::peer::Peers;
use super::status::gvmm_status;
use super::stream;
use super::types::{gvmm_device, gvmm_pool};
use super::versioned::{Caller, Versioned, versioned};
use crate::error::{Error, Kind, Operation, Result};
use crate::pool::{Place, Pool, Settings};
use crate::units::{ByteSize, DevicePtr};
use std::ffi::c_void;
use std::sync::Arc;

/// Limit of a pool: all that there is.
pub const GVMM_POOL_NO_LIMIT: u64 = u64::MAX;

/// How to make a pool; all zero but `struct_size` is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_pool_desc {
    /// `sizeof(gvmm_pool_desc)`.
    pub struct_size: usize,
    /// Bytes of a chunk for requests of up to 1 MiB, a multiple of the granularity and at least 1 MiB; 0:
    /// `GVMM_POOL_SMALL_CHUNK`, else by the driver.
    pub small_chunk_bytes: u64,
    /// The same for larger requests; 0: `GVMM_POOL_CHUNK`, else by the driver.
    pub large_chunk_bytes: u64,
    /// The most that the pool may hold of the device's memory, in bytes, or GVMM_POOL_NO_LIMIT; 0:
    /// `GVMM_POOL_LIMIT`, else no limit.
    pub limit_bytes: u64,
    /// Bytes of addresses that all segments together may take; 0: 64 TiB.
    pub address_limit_bytes: u64,
    /// Bytes of one segment's addresses; 0: nine eighths of the device's memory.
    pub segment_bytes: u64,
    /// Who may use the memory; may be NULL if the count is 0.
    pub access: *const gvmm_access,
    /// Number of elements; 0: the device itself, read and write.
    pub access_count: usize,
    /// Distance of two elements in bytes.
    pub access_stride_bytes: usize,
    /// How many events to keep for snapshots, for each stream; 0: none.
    pub history: u32,
    /// 0.
    pub reserved: u32,
}

/// A block that the program holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_pool_block {
    /// `sizeof(gvmm_pool_block)`.
    pub struct_size: usize,
    /// Where it starts.
    pub address: u64,
    /// Its size in bytes, rounded up to 512.
    pub size_bytes: u64,
    /// The stream that it was allocated for.
    pub stream: *mut c_void,
    /// The id of the private pool that it is of, first half; 0 and 0 for none.
    pub id_high: u64,
    /// The id's second half.
    pub id_low: u64,
}

/// Makes a pool, without memory: that comes with the first allocations. On a device without virtual memory it caches plain
/// device memory by size; whole blocks go from stream to stream then, where chunks would, and no events are kept.
///
/// State: after success the pool lives until `gvmm_pool_destroy`.
/// Parameters: `device`; `desc`, or NULL for the default; `out_pool`, the handle.
/// Statuses: INVALID_SIZE (a chunk or a segment that does not fit the device), INVALID_ARGUMENT (an access mode),
/// NO_DEVICE (in the access list), UNSUPPORTED (other devices in the list, and no virtual memory), UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_create(
    device: *mut gvmm_device,
    desc: *const gvmm_pool_desc,
    out_pool: *mut *mut gvmm_pool,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Create, || {
        let out = c.out(out_pool)?;
        let desc = c.in_struct_or_default(desc)?;
        let access = access_list(c.elements(desc.access, desc.access_count, desc.access_stride_bytes)?);
        let device = handle::get::<DeviceObject>(device)?;
        check_access(&device.device, &access)?;
        let child = device.adopt()?;
        let settings = Settings { access, ..settings(&desc) };
        let pool = Pool::new(&device.device, &settings)?;
        if settings.access.is_empty() {
            Peers::of(&device.device).join(&pool)?;
        }
        out.write(PoolObject::insert(pool, Some(child))?);
        Ok(())
    })
}

/// Gives a pool's memory back once the streams that used it have passed what is enqueued on them now. Never waits for
/// them.
///
/// State: before, every block has been freed and every private pool released; after success the handle is invalid.
/// A handle that was given for a pool of somebody else's only ends itself.
/// Parameters: `pool`.
/// Statuses: IN_USE (a block is in use, or a private pool has a user; nothing has changed).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_destroy(pool: *mut gvmm_pool) -> gvmm_status {
    entry(Operation::Destroy, || {
        handle::leave_if::<PoolObject>(pool, check_unused)?.gone();
        Ok(())
    })
}

/// Allocates memory for work on a stream, aligned to 512 bytes. What an earlier block of that stream left is used
/// again at once, since a stream runs in order. May call the pressure functions, and may wait for streams, though
/// never while one is captured.
///
/// State: after success the block is the caller's until `gvmm_pool_free`.
/// Parameters: `pool`; `size_bytes`, above 0; `stream`, a `gvmm_stream` or the vendor's own; `out_address`, where the
/// block starts.
/// Statuses: INVALID_SIZE (0, or 2 TiB and more), INVALID_STREAM, OUT_OF_DEVICE_MEMORY (the message says how much was
/// asked, free and lent, and who holds what), OUT_OF_ADDRESS_SPACE (more than a segment has in a row, or too many
/// streams; the message says as much), OUT_OF_FILE_DESCRIPTORS, MAP_LIMIT, and those of the driver. Nothing has changed then, and it may be tried
/// again.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_alloc(
    pool: *mut gvmm_pool,
    size_bytes: u64,
    stream: *mut c_void,
    out_address: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry_short(Operation::Allocate, |thread| {
        let out = c.out(out_address)?;
        handle::visit(thread, pool, |visited: &Visited<'_, PoolObject>| {
            let pool = &visited.object.pool;
            let stream = stream::resolve(pool.device(), stream)?;
            let address =
                pool.alloc(ByteSize(size_bytes), stream).inspect_err(|error| explain(pool, error))?;
            // Destroyed meanwhile, while nothing was in use: the block would go with the pool.
            if !visited.is_live() {
                let _ = pool.free(address);
                return Err(handle::invalid());
            }
            out.write(address.get());
            Ok(())
        })
    })
}

/// Frees a block. Work that is enqueued on its own stream, and on streams that `gvmm_pool_record_stream` named for
/// it, may still use it. Never waits.
///
/// State: after success the block is the pool's.
/// Parameters: `pool`; `address`, what `gvmm_pool_alloc` gave.
/// Statuses: INVALID_ARGUMENT (no block in use starts there: never allocated, freed already, or another pool's).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_free(pool: *mut gvmm_pool, address: u64) -> gvmm_status {
    entry_short(Operation::Free, |thread| {
        handle::visit(thread, pool, |visited: &Visited<'_, PoolObject>| {
            visited.object.pool.free(DevicePtr(address))
        })
    })
}

/// Frees a block that work on `stream` was the last to use, whatever stream it was allocated for.
///
/// State: after success the block is the pool's; its own stream uses it again once `stream` has passed what is
/// enqueued there now.
/// Parameters: `pool`; `address`, what `gvmm_pool_alloc` gave; `stream`, a `gvmm_stream` or the vendor's own.
/// Statuses: INVALID_ARGUMENT (no block in use starts there), INVALID_STREAM.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_free_on(
    pool: *mut gvmm_pool,
    address: u64,
    stream: *mut c_void,
) -> gvmm_status {
    entry_short(Operation::Free, |thread| {
        handle::visit(thread, pool, |visited: &Visited<'_, PoolObject>| {
            let pool = &visited.object.pool;
            pool.free_on(DevicePtr(address), stream::resolve(pool.device(), stream)?)
        })
    })
}

/// Says that a stream uses a block, too: once the block is freed it is used again only after that stream has passed
/// what is enqueued there then.
///
/// State: after success the stream is noted, once, until the block is freed.
/// Parameters: `pool`; `address`, any in a block in use; `stream`, a `gvmm_stream` or the vendor's own.
/// Statuses: INVALID_ARGUMENT (no block in use holds it), INVALID_STREAM.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_record_stream(
    pool: *mut gvmm_pool,
    address: u64,
    stream: *mut c_void,
) -> gvmm_status {
    entry_short(Operation::Stream, |thread| {
        handle::visit(thread, pool, |visited: &Visited<'_, PoolObject>| {
            let pool = &visited.object.pool;
            pool.record_stream(DevicePtr(address), stream::resolve(pool.device(), stream)?)
        })
    })
}

/// Says that a stream is about to be destroyed. Call it for each pool that allocated for the stream: a later stream
/// may have the same number, and work of this one may still run.
///
/// State: after success what the stream has enqueued is remembered, its free memory goes to whoever needs it, and
/// its blocks in use stay until they are freed.
/// Parameters: `pool`; `stream`, a `gvmm_stream` or the vendor's own.
/// Statuses: INVALID_STREAM, STREAM_CAPTURING; the stream is still known then.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_forget_stream(pool: *mut gvmm_pool, stream: *mut c_void) -> gvmm_status {
    entry(Operation::Stream, || {
        let pool = &handle::get::<PoolObject>(pool)?.pool;
        pool.forget_stream(stream::resolve(pool.device(), stream)?)
    })
}

/// Finds the block in use that holds an address.
///
/// State: changes none.
/// Parameters: `pool`; `address`, any; `out_block`, whose `struct_size` is set.
/// Statuses: INVALID_ARGUMENT (no block in use holds it), UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_find(
    pool: *mut gvmm_pool,
    address: u64,
    out_block: *mut gvmm_pool_block,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_struct(out_block)?;
        let pool = &handle::get::<PoolObject>(pool)?.pool;
        let place = pool.find(DevicePtr(address)).ok_or_else(|| {
            Error::new(Kind::InvalidArgument, Operation::Query, "no block in use holds this address")
                .at(DevicePtr(address), ByteSize::ZERO)
        })?;
        out.write(&block(pool, place));
        Ok(())
    })
}

versioned!(gvmm_pool_desc {
    small_chunk_bytes,
    large_chunk_bytes,
    limit_bytes,
    address_limit_bytes,
    segment_bytes,
    access,
    access_count,
    access_stride_bytes,
    history,
    reserved,
});
versioned!(gvmm_pool_block { address, size_bytes, stream, id_high, id_low });

/// What a handle of a pool stands for.
pub(super) struct PoolObject {
    pub(super) pool: Arc<Pool>,
    /// None for a pool that is somebody else's.
    child: Option<Child>,
}

static POOLS: Table<PoolObject> = Table::new();

impl Noun for PoolObject {
    const TYPE: u64 = 8;
    type Handle = gvmm_pool;
    const STRIPED: bool = true;
    fn table() -> &'static Table<Self> {
        &POOLS
    }
}

impl PoolObject {
    /// A handle of a pool. Without `child` the pool is somebody else's, and destroying the handle only ends that.
    pub(super) fn insert(pool: Arc<Pool>, child: Option<Child>) -> Result<*mut gvmm_pool> {
        handle::insert(Self { pool, child })
    }
}

/// Fails where blocks are in use or graphs have private pools; a half-done pool goes all the same.
fn check_unused(object: &Ref<PoolObject>) -> Result<()> {
    let refuse = |hint| Err(Error::new(Kind::InUse, Operation::Destroy, hint));
    if object.is_poisoned() || object.child.is_none() {
        return Ok(());
    }
    if object.pool.in_use() > ByteSize::ZERO {
        return refuse("blocks of the pool are in use: free them first");
    }
    if object.pool.private_pools() > 0 {
        return refuse("a private pool has a user: release it first, once its graphs are gone");
    }
    Ok(())
}

fn settings(desc: &gvmm_pool_desc) -> Settings {
    let default = Settings::from_environment();
    let or = |bytes: u64, default: ByteSize| if bytes == 0 { default } else { ByteSize(bytes) };
    Settings {
        small_chunk: or(desc.small_chunk_bytes, default.small_chunk),
        large_chunk: or(desc.large_chunk_bytes, default.large_chunk),
        limit: match desc.limit_bytes {
            0 => default.limit,
            GVMM_POOL_NO_LIMIT => None,
            bytes => Some(ByteSize(bytes)),
        },
        address_limit: or(desc.address_limit_bytes, default.address_limit),
        segment: or(desc.segment_bytes, default.segment),
        history: desc.history,
        ..default
    }
}

/// Leaves with the failure how much was asked, free and lent, and who holds what.
#[cold]
pub(super) fn explain(pool: &Pool, error: &Error) {
    // Another thread's may have come later.
    if let Some(shortage) = pool.shortage().filter(|shortage| shortage.error == *error) {
        last_error::add(&shortage);
    }
}

fn block(pool: &Pool, place: Place) -> gvmm_pool_block {
    gvmm_pool_block {
        address: place.address.get(),
        size_bytes: place.size.get(),
        stream: stream::to_caller(pool.device(), place.stream),
        id_high: place.pool.0,
        id_low: place.pool.1,
        ..Versioned::DEFAULT
    }
}
