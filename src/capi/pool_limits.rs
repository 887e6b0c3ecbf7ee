//! Limits of pools.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::access::{access_list, check_access, gvmm_access};
use super::entry::entry;
use super::handle;
use super::peer::Peers;
use super::pool::PoolObject;
use super::status::gvmm_status;
use super::types::gvmm_pool;
use super::versioned::{Caller, null};
use crate::error::Operation;
use crate::units::{ByteSize, DevicePtr};
use std::ffi::c_void;
use std::sync::Arc;

/// A function that a pool calls when an allocation of `size_bytes` cannot be satisfied.
pub type gvmm_pressure_function = Option<unsafe extern "C" fn(size_bytes: u64, user_data: *mut c_void)>;

/// Gives chunks in which nothing is in use back to the device. Waits for the streams that used them.
///
/// State: after success nothing is cached but in chunks that blocks in use share, that are pinned, or that private
/// pools with users have.
/// Parameters: `pool`; `out_bytes`, how many bytes were given back.
/// Statuses: STREAM_CAPTURING (nothing is given back meanwhile).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_trim(pool: *mut gvmm_pool, out_bytes: *mut u64) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Release, || {
        let out = c.out(out_bytes)?;
        out.write(handle::get::<PoolObject>(pool)?.pool.trim()?.get());
        Ok(())
    })
}

/// Sets the most that a pool may hold of the device's memory. What it holds beyond is given back where nothing uses
/// it, as by `gvmm_pool_trim`.
///
/// State: after success the limit holds for what is allocated from here on.
/// Parameters: `pool`; `limit_bytes`, above 0, or GVMM_POOL_NO_LIMIT.
/// Statuses: INVALID_SIZE (0), IN_USE (blocks in use take more; nothing has changed), STREAM_CAPTURING.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_set_limit(pool: *mut gvmm_pool, limit_bytes: u64) -> gvmm_status {
    entry(Operation::Allocate, || {
        handle::get::<PoolObject>(pool)?.pool.set_limit(Some(ByteSize(limit_bytes)))
    })
}

/// Sets the limit as a fraction of the device's memory.
///
/// State: as `gvmm_pool_set_limit`.
/// Parameters: `pool`; `fraction`, above 0 and at most 1.
/// Statuses: INVALID_ARGUMENT (another number), INVALID_SIZE (less than a byte), IN_USE (blocks in use take more;
/// nothing has changed), UNSUPPORTED (the device's memory is unknown), STREAM_CAPTURING.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_set_fraction(pool: *mut gvmm_pool, fraction: f64) -> gvmm_status {
    entry(Operation::Allocate, || handle::get::<PoolObject>(pool)?.pool.set_fraction(fraction))
}

/// Sets who may use a pool's memory, also what lives already: for peers, list them and the device itself.
/// `gvmm_device_peer_enable` changes nothing about it from then on.
///
/// State: after success the access is as listed, now and for all memory to come; after a failure as before.
/// Parameters: `pool`; `access`, `count` elements `stride_bytes` apart; 0: the device itself, read and write.
/// Statuses: INVALID_ARGUMENT (a mode), NO_DEVICE (in the list), UNSUPPORTED (a device that cannot reach this one's
/// memory), UNKNOWN_VERSION (`stride_bytes`), and those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_set_access(
    pool: *mut gvmm_pool,
    access: *const gvmm_access,
    count: usize,
    stride_bytes: usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::SetAccess, || {
        let access = access_list(c.elements(access, count, stride_bytes)?);
        let pool = &handle::get::<PoolObject>(pool)?.pool;
        check_access(pool.device(), &access)?;
        Peers::of(pool.device()).leave(pool, &access)
    })
}

/// Keeps chunks where they are: for memory that was registered elsewhere by its address.
///
/// State: after success the chunks that the bytes touch are neither moved nor given back until they are unpinned as
/// often.
/// Parameters: `pool`; `address` and `size_bytes`, the bytes.
/// Statuses: INVALID_ARGUMENT (the address is not the pool's), OUT_OF_RANGE.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_pin(pool: *mut gvmm_pool, address: u64, size_bytes: u64) -> gvmm_status {
    entry(Operation::None, || {
        handle::get::<PoolObject>(pool)?.pool.pin(DevicePtr(address), ByteSize(size_bytes))
    })
}

/// Undoes one `gvmm_pool_pin` of the same bytes.
///
/// State: before, they are pinned.
/// Parameters: `pool`; `address` and `size_bytes`, the bytes.
/// Statuses: INVALID_ARGUMENT (the address is not the pool's), OUT_OF_RANGE, WRONG_STATE (not pinned).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_unpin(pool: *mut gvmm_pool, address: u64, size_bytes: u64) -> gvmm_status {
    entry(Operation::None, || {
        handle::get::<PoolObject>(pool)?.pool.unpin(DevicePtr(address), ByteSize(size_bytes))
    })
}

/// Adds a function to be called when an allocation cannot be satisfied, before it is tried a last time.
///
/// State: after success the function is called, in the order of adding, until the pool is destroyed and calls under
/// way have ended.
/// Parameters: `pool`; `function`, called on the thread that allocates, with no lock held; it may free, and call
/// anything of this library but allocate from this pool or destroy it, and must not unwind; `user_data`, handed to
/// it, may be NULL.
/// Statuses: none of its own.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_on_pressure(
    pool: *mut gvmm_pool,
    function: gvmm_pressure_function,
    user_data: *mut c_void,
) -> gvmm_status {
    entry(Operation::None, || {
        let pool = &handle::get::<PoolObject>(pool)?.pool;
        let function = function.ok_or_else(|| null("the function is NULL"))?;
        let relief = Relief { function, user_data };
        pool.on_pressure(Arc::new(move |size| relief.call(size)));
        Ok(())
    })
}

/// A caller's function and what it is called with.
struct Relief {
    function: unsafe extern "C" fn(u64, *mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the header says that the function is called on whichever thread allocates, with this data.
unsafe impl Send for Relief {}
// SAFETY: the same; several threads may allocate at once.
unsafe impl Sync for Relief {}

impl Relief {
    fn call(&self, size: ByteSize) {
        // SAFETY: the caller vouches for the function with this data until the pool is destroyed.
        unsafe { (self.function)(size.get(), self.user_data) };
    }
}
