//! PyTorch's pluggable allocator, CUDA and ROCm: functions of the exact types that it calls.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::function;
use super::pools::{Pools, shared_device};
use super::tell;
use crate::capi::entry::entry;
use crate::capi::pool::{PoolObject, explain};
use crate::capi::status::gvmm_status;
use crate::capi::stream::resolve;
use crate::capi::types::gvmm_pool;
use crate::capi::versioned::Caller;
use crate::config;
use crate::driver;
use crate::error::{Error, Kind, Operation, Result};
use crate::pool::{Pool, PoolId};
use crate::units::{ByteSize, DevicePtr};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

static POOLS: Pools = Pools::new();

/// The number of a pool for graphs: PyTorch's `std::pair` of two numbers, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_torch_pool_id {
    /// Its first half.
    pub first: u64,
    /// Its second half.
    pub second: u64,
}

impl gvmm_torch_pool_id {
    const fn id(self) -> PoolId {
        PoolId(self.first, self.second)
    }
}

/// The pool of a device, over the driver that the process uses.
#[inline]
fn pool(device: c_int) -> Result<&'static Arc<Pool>> {
    POOLS.of(device, |ordinal| {
        let number = config::get().driver.unwrap_or_else(|| driver::of_framework().0);
        shared_device(number, ordinal)
    })
}

/// The pool that has a block in use at an address.
fn pool_over(address: DevicePtr, operation: Operation) -> Result<&'static Arc<Pool>> {
    let hint = "no block in use holds this address";
    let missing = || Error { address, ..Error::new(Kind::InvalidArgument, operation, hint) };
    POOLS.over(address).ok_or_else(missing)
}

/// PyTorch's allocation: memory of a device for work on a stream. The device's pool is made at the first call for it, over
/// the driver that GVMM_DRIVER names, else HIP's where the process has HIP's library, else CUDA's.
///
/// State: after success the block lives until `gvmm_torch_free`. The caller's current context is as before, and no other
/// device is touched.
/// Parameters: `size_bytes`; `device`, PyTorch's number; `stream`, of this device.
/// Returns: the block, or NULL for 0 bytes, and NULL where it failed: then `gvmm_last_error_message` says why, and for lack
/// of memory how much was asked, free, lent, and held by whom.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_alloc(
    size_bytes: usize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let mut address = DevicePtr::NULL;
    let status = entry(Operation::Allocate, || {
        if size_bytes != 0 {
            let pool = pool(device)?;
            let given = pool.alloc(ByteSize(size_bytes as u64), resolve(pool.device(), stream)?);
            address = given.inspect_err(|error| explain(pool, error))?;
        }
        Ok(())
    });
    tell(status, "PyTorch gets no memory");
    address.get() as *mut c_void
}

/// PyTorch's free: gives a block back. An address at which no block in use starts is logged, the first as a warning, and
/// left alone; so is everything in a child made by fork.
///
/// State: after it the block is used again for its stream at once, for others once that stream and those of
/// `gvmm_torch_record_stream` have passed what is enqueued on them now.
/// Parameters: `address`, or NULL; `size_bytes`, which is not looked at; `device`, PyTorch's number; `stream`, the last that
/// uses the block.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_free(
    address: *mut c_void,
    size_bytes: usize,
    device: c_int,
    stream: *mut c_void,
) {
    let _ = size_bytes;
    entry(Operation::Deallocate, || {
        if !address.is_null() {
            POOLS.free(DevicePtr(address.addr() as u64), device, stream);
        }
        Ok(())
    });
}

/// Gives a block back by its address alone (PyTorch's `raw_delete`), after the last use on its own stream. Else as
/// `gvmm_torch_free`.
///
/// State: as after `gvmm_torch_free` with the block's own stream.
/// Parameters: `address`, or NULL.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_delete(address: *mut c_void) {
    entry(Operation::Deallocate, || {
        if !address.is_null() {
            POOLS.delete(DevicePtr(address.addr() as u64));
        }
        Ok(())
    });
}

/// PyTorch's first word to its current allocator. Nothing is made yet: pools come with the first allocation.
///
/// State: changes none.
/// Parameters: `device_count`, which is not looked at.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_init(device_count: c_int) {
    let status = entry(Operation::Open, || Ok(()));
    log::debug!("PyTorch sees {device_count} devices ({status})");
}

/// PyTorch's `empty_cache`: gives back the memory that nothing uses, of all devices.
///
/// State: waits for the streams that used it; nothing is given back while a stream is captured.
/// Parameters: none.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_reset() {
    let status = entry(Operation::Release, || POOLS.all().try_for_each(|pool| pool.trim().map(drop)));
    tell(status, "a pool keeps what nothing uses");
}

/// PyTorch's `set_per_process_memory_fraction`. A device without a pool keeps it in mind.
///
/// State: after a failure (`gvmm_last_error_message`) the limit is as before.
/// Parameters: `fraction` of the device's memory, above 0 and at most 1, and no less than blocks in use take; `device`,
/// PyTorch's number.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_memory_fraction(fraction: f64, device: c_int) {
    let status = entry(Operation::Allocate, || POOLS.set_fraction(device, fraction));
    tell(status, "a memory fraction is not set");
}

/// The block that an address lies in.
///
/// State: changes none.
/// Parameters: `address`, in a block in use; `out_size_bytes`, its size, or NULL.
/// Returns: where the block starts, or NULL where there is none.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_base_alloc(
    address: *mut c_void,
    out_size_bytes: *mut usize,
) -> *mut c_void {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    let mut base = DevicePtr::NULL;
    entry(Operation::Query, || {
        let at = DevicePtr(address.addr() as u64);
        let place = pool_over(at, Operation::Query)?.find(at);
        let hint = "the block was freed meanwhile";
        let place = place.ok_or_else(|| Error::new(Kind::InvalidArgument, Operation::Query, hint))?;
        if !out_size_bytes.is_null() {
            c.out(out_size_bytes)?.write(place.size.get() as usize);
        }
        base = place.address;
        Ok(())
    });
    base.get() as *mut c_void
}

/// Says that a stream uses a block, too (PyTorch's `record_stream`). An address in no block is logged and left alone.
///
/// State: once the block is freed, it is used again only after this stream has passed what is enqueued on it then.
/// Parameters: `address`, in a block in use; `stream`, of the same device.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_record_stream(address: *mut c_void, stream: *mut c_void) {
    let status = entry(Operation::Stream, || {
        if address.is_null() {
            return Ok(());
        }
        let at = DevicePtr(address.addr() as u64);
        let pool = pool_over(at, Operation::Stream)?;
        pool.record_stream(at, resolve(pool.device(), stream)?)
    });
    tell(status, "a stream is not recorded");
}

/// From here on, a device's allocations for the streams that a filter takes go to a pool of their own, for a graph that is
/// being captured. Until the end, nothing of the device's pools is unmapped, lent or waited for.
///
/// State: the pool is made where it does not exist, and has one user more. After a failure nothing has changed.
/// Parameters: `device`, PyTorch's number; `id`, the pool's; `filter`, a `const std::function<bool(stream)> *` of libstdc++
/// that is read during the call and copied.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_begin_allocate_to_pool(
    device: c_int,
    id: gvmm_torch_pool_id,
    filter: *const c_void,
) {
    let status = entry(Operation::Capture, || {
        // SAFETY: the caller vouches that it is such an object, for the length of this call.
        let filter = unsafe { function::filter(filter) }?;
        pool(device)?.begin_capture(id.id(), filter)
    });
    tell(status, "a pool for graphs is not begun");
}

/// Ends what `gvmm_torch_begin_allocate_to_pool` began. The pool stays for its users.
///
/// State: after a failure nothing has changed.
/// Parameters: `device`, PyTorch's number; `id`, the pool's.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_end_allocate_to_pool(device: c_int, id: gvmm_torch_pool_id) {
    let status = entry(Operation::Capture, || pool(device)?.end_capture(id.id()));
    tell(status, "a pool for graphs is not ended");
}

/// A pool for graphs has one user less; without any, its free memory is used for everything.
///
/// State: after a failure nothing has changed.
/// Parameters: `device`, PyTorch's number; `id`, the pool's.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_release_pool(device: c_int, id: gvmm_torch_pool_id) {
    let status = entry(Operation::Capture, || pool(device)?.release_pool(id.id()));
    tell(status, "a pool for graphs is not released");
}

/// A handle on the pool that PyTorch's allocations of a device come from: for statistics, limits and snapshots.
///
/// State: after success the handle lives until `gvmm_pool_destroy`, which gives up the handle only.
/// Parameters: `device`, PyTorch's number; `out_pool`, the handle.
/// Statuses: NO_DEVICE, WRONG_STATE (nothing was allocated there yet, so that there is no pool).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_torch_pool(device: c_int, out_pool: *mut *mut gvmm_pool) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out(out_pool)?;
        let hint = "PyTorch has allocated nothing on this device yet";
        let missing = || Error::new(Kind::WrongState, Operation::Query, hint);
        out.write(PoolObject::insert(Arc::clone(POOLS.known(device)?.ok_or_else(missing)?), None)?);
        Ok(())
    })
}
