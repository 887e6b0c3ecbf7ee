//! Private pools, for graphs.
#![allow(unsafe_code, reason = "exports symbols; calls the caller's function")]

use super::entry::entry;
use super::handle;
use super::pool::PoolObject;
use super::status::gvmm_status;
use super::stream;
use super::types::gvmm_pool;
use crate::driver::Stream;
use crate::error::Operation;
use crate::pool::PoolId;
use crate::vm::Device;
use std::ffi::c_void;
use std::sync::Arc;

/// A function that says whether allocations for a stream go to the private pool: not 0 for yes.
pub type gvmm_filter_function =
    Option<unsafe extern "C" fn(stream: *mut c_void, user_data: *mut c_void) -> u32>;

/// Begins to allocate to a private pool, which is made where it does not exist: what a captured graph uses must not
/// move, and its free blocks must not be given to others, as each replay writes into them.
///
/// State: before, nothing is being allocated to this private pool. After success allocations for streams that
/// `filter` takes go there, it has one user more, and until `gvmm_pool_capture_end` nothing of the whole pool is
/// unmapped, lent or waited for.
/// Parameters: `pool`; `id_high` and `id_low`, the private pool's id, not 0 and 0; `filter`, or NULL to take every
/// stream; it is called on the threads that allocate, with no lock held, must not allocate and must not unwind;
/// `user_data`, handed to it, may be NULL. Both must last until `gvmm_pool_capture_end` has returned and calls under
/// way have ended.
/// Statuses: INVALID_ARGUMENT (the id 0 and 0), WRONG_STATE (it is being allocated to already).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_capture_begin(
    pool: *mut gvmm_pool,
    id_high: u64,
    id_low: u64,
    filter: gvmm_filter_function,
    user_data: *mut c_void,
) -> gvmm_status {
    entry(Operation::Capture, || {
        let pool = &handle::get::<PoolObject>(pool)?.pool;
        let id = PoolId(id_high, id_low);
        let Some(function) = filter else { return pool.begin_capture(id, Arc::new(|_| true)) };
        let chooser = Chooser { function, user_data, device: Arc::clone(pool.device()) };
        pool.begin_capture(id, Arc::new(move |stream| chooser.takes(stream)))
    })
}

/// Ends what `gvmm_pool_capture_begin` began. The private pool stays for its users.
///
/// State: after success allocations go where they went before.
/// Parameters: `pool`; `id_high` and `id_low`, the private pool's id.
/// Statuses: WRONG_STATE (nothing was begun for it).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_capture_end(
    pool: *mut gvmm_pool,
    id_high: u64,
    id_low: u64,
) -> gvmm_status {
    entry(Operation::Capture, || handle::get::<PoolObject>(pool)?.pool.end_capture(PoolId(id_high, id_low)))
}

/// Says that a private pool has one user (a graph) less; each `gvmm_pool_capture_begin` made one.
///
/// State: after the last user its free memory is lent and given back like all other; its blocks in use stay until
/// they are freed.
/// Parameters: `pool`; `id_high` and `id_low`, the private pool's id.
/// Statuses: INVALID_ARGUMENT (no such private pool, or it was released), WRONG_STATE (the last user of one that is
/// being allocated to).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_capture_release(
    pool: *mut gvmm_pool,
    id_high: u64,
    id_low: u64,
) -> gvmm_status {
    entry(Operation::Capture, || handle::get::<PoolObject>(pool)?.pool.release_pool(PoolId(id_high, id_low)))
}

/// A caller's function and what it is called with.
struct Chooser {
    function: unsafe extern "C" fn(*mut c_void, *mut c_void) -> u32,
    user_data: *mut c_void,
    device: Arc<Device>,
}

// SAFETY: the header says that the function is called on whichever thread allocates, with this data.
unsafe impl Send for Chooser {}
// SAFETY: the same; several threads may allocate at once.
unsafe impl Sync for Chooser {}

impl Chooser {
    fn takes(&self, stream: Stream) -> bool {
        let stream = stream::to_caller(&self.device, stream);
        // SAFETY: the caller vouches for the function with this data until the capture has ended.
        let takes = unsafe { (self.function)(stream, self.user_data) };
        takes != 0
    }
}
