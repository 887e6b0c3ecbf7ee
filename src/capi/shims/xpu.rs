//! PyTorch's pluggable allocator for Intel GPUs (`torch.xpu`): functions of the exact types that it calls.
//!
//! A stream is a `sycl::queue *`. What it stands for is asked once (`sycl`), and memory is made in its context.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::pools::Pools;
use super::sycl::{self, Parts};
use super::tell;
use crate::capi::drivers::DeviceObject;
use crate::capi::entry::entry;
use crate::capi::pool::{PoolObject, explain};
use crate::capi::status::gvmm_status;
use crate::capi::types::gvmm_pool;
use crate::capi::versioned::Caller;
use crate::config;
use crate::driver::Stream;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

static POOLS: Pools = Pools::new();
static QUEUES: RwLock<Option<HashMap<usize, Queue>>> = RwLock::new(None);

/// A queue that was seen, by its address.
#[derive(Clone, Copy)]
struct Queue {
    device: c_int,
    parts: Parts,
    /// It may allocate; else it was only named as using a block.
    declared: bool,
}

impl Queue {
    const fn stream(self) -> Stream {
        Stream(self.parts.list)
    }

    /// Whether work for it is that of `other`: a copy of a `sycl::queue` is the same stream.
    fn is(&self, other: &Self) -> bool {
        (self.device, self.parts.list) == (other.device, other.parts.list)
    }
}

fn known(queue: *const c_void) -> Option<Queue> {
    let queues = QUEUES.read().unwrap_or_else(PoisonError::into_inner);
    queues.as_ref()?.get(&queue.addr()).copied()
}

/// The queue, for allocations of a device.
///
/// # Safety
/// `queue` is NULL, or a live `sycl::queue` that lives as long as blocks of it are in use.
#[inline]
unsafe fn declared(device: c_int, queue: *const c_void) -> Result<Queue> {
    match known(queue) {
        Some(queue) if queue.declared && queue.device == device => Ok(queue),
        // SAFETY: as the caller says.
        _ => unsafe { admit(device, queue, true) },
    }
}

/// Takes a queue in, and makes the device's pool where it is the first.
///
/// # Safety
/// As [`declared`].
#[cold]
unsafe fn admit(device: c_int, queue: *const c_void, declared: bool) -> Result<Queue> {
    static ADMITTING: Mutex<()> = Mutex::new(());
    POOLS.known(device)?;
    // SAFETY: as the caller says.
    let parts = unsafe { sycl::parts(queue) }?;
    let new = Queue { device, parts, declared };
    // Held across the driver's calls, so that of two first queues one is the second.
    let _one = ADMITTING.lock().unwrap_or_else(PoisonError::into_inner);
    let others: Vec<Queue> = {
        let queues = QUEUES.read().unwrap_or_else(PoisonError::into_inner);
        queues.iter().flat_map(HashMap::values).filter(|other| other.device == device).copied().collect()
    };
    check(&new, &others)?;
    POOLS
        .of(device, |_| Ok(Arc::clone(&DeviceObject::for_libraries(parts.context, parts.device)?.device)))?;
    let mut queues = QUEUES.write().unwrap_or_else(PoisonError::into_inner);
    queues.get_or_insert_default().insert(queue.addr(), new);
    Ok(new)
}

/// Refuses a queue beside those of the same device that are there.
fn check(new: &Queue, others: &[Queue]) -> Result<()> {
    let refused = |hint| Err(Error::new(Kind::InvalidStream, Operation::Stream, hint));
    let place = |queue: &Queue| (queue.parts.context, queue.parts.device);
    if others.iter().any(|other| place(other) != place(new)) {
        return refused("the sycl::queue is of another device or context than the others of this number");
    }
    let second = others.iter().any(|other| other.declared && !other.is(new));
    if new.declared && second && !config::get().pool.xpu_any_stream {
        return refused(
            "a second stream, where one is declared: nobody tells which streams use a block. Use torch.xpu.MemPool \
             (gvmm.xpu.mem_pool), or gvmm.xpu.enable with its hook, or one stream; GVMM_XPU_STREAMS=any where that is so",
        );
    }
    Ok(())
}

/// Where a queue's work goes, for a block that is freed: none for the block's own stream.
///
/// # Safety
/// As [`declared`].
unsafe fn freed_on(address: DevicePtr, queue: *const c_void) -> Result<Option<(c_int, Stream)>> {
    if let Some(queue) = known(queue).filter(|queue| queue.declared) {
        return Ok(Some((queue.device, queue.stream())));
    }
    // What is nobody's is not worth asking SYCL.
    let Some((device, _)) = POOLS.numbered_over(address).filter(|_| !queue.is_null()) else {
        return Ok(None);
    };
    // SAFETY: as the caller says.
    let queue = unsafe { declared(device, queue) }?;
    Ok(Some((device, queue.stream())))
}

/// PyTorch's allocation on an Intel GPU: memory of the queue's device, in its context, for work on it. The device's pool is
/// made at the first call for it. Where the driver does not know the type of mapped memory, so that libraries would refuse it,
/// the pool is of plain allocations.
///
/// State: after success the block lives until `gvmm_xpu_free`. The context is kept from the first call on.
/// Parameters: `size_bytes`; `device`, PyTorch's number; `queue`, a `sycl::queue *` of Level Zero, in order, which lives as long
/// as blocks of it are in use. Unless GVMM_XPU_STREAMS is `any`, all calls for a device are for one.
/// Returns: the block, or NULL for 0 bytes, and NULL where it failed: then `gvmm_last_error_message` says why, and for lack
/// of memory how much was asked, free, lent, and held by whom.
/// Threads: thread-safe. Nobody else may enqueue on the same queue meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_xpu_alloc(size_bytes: usize, device: c_int, queue: *mut c_void) -> *mut c_void {
    let mut address = DevicePtr::NULL;
    let status = entry(Operation::Allocate, || {
        if size_bytes != 0 {
            // SAFETY: the caller vouches for the queue.
            let stream = unsafe { declared(device, queue) }?.stream();
            let pool = POOLS.known(device)?.ok_or_else(no_pool)?;
            let given = pool.alloc(ByteSize(size_bytes as u64), stream);
            address = given.inspect_err(|error| explain(pool, error))?;
        }
        Ok(())
    });
    tell(status, "PyTorch gets no memory");
    address.get() as *mut c_void
}

fn no_pool() -> Error {
    Error::new(Kind::WrongState, Operation::Query, "PyTorch has allocated nothing on this device yet")
}

/// PyTorch's free on an Intel GPU. An address at which no block in use starts is logged, the first as a warning, and left
/// alone; so is a block whose queue is a second one where one is declared, and everything in a child made by fork.
///
/// State: after it the block is used again for its queue at once, for others once that queue and those of
/// `gvmm_xpu_record_stream` have passed what is enqueued on them now.
/// Parameters: `address`, or NULL; `size_bytes`, which is not looked at; `device`, PyTorch's number; `queue`, the last that
/// uses the block, or NULL for the one that it was allocated for.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_xpu_free(
    address: *mut c_void,
    size_bytes: usize,
    device: c_int,
    queue: *mut c_void,
) {
    let _ = size_bytes;
    let status = entry(Operation::Deallocate, || {
        let at = DevicePtr(address.addr() as u64);
        if address.is_null() {
            return Ok(());
        }
        // SAFETY: the caller vouches for the queue.
        let (device, stream) = unsafe { freed_on(at, queue) }?.unwrap_or((device, Stream(0)));
        POOLS.free(at, device, std::ptr::without_provenance_mut(stream.0 as usize));
        Ok(())
    });
    tell(status, "a block stays in use");
}

/// Says that a queue uses a block, too (PyTorch's `record_stream`). An address in no block is logged and left alone.
///
/// State: once the block is freed, it is used again only after this queue has passed what is enqueued on it then.
/// Parameters: `address`, in a block in use; `queue`, a `sycl::queue *` of the same device, which lives as long.
/// Returns: nothing.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_xpu_record_stream(address: *mut c_void, queue: *mut c_void) {
    let status = entry(Operation::Stream, || {
        if address.is_null() {
            return Ok(());
        }
        let at = DevicePtr(address.addr() as u64);
        let hint = "no block in use holds this address";
        let missing = || Error { address: at, ..Error::new(Kind::InvalidArgument, Operation::Stream, hint) };
        let (device, pool) = POOLS.numbered_over(at).ok_or_else(missing)?;
        let queue = match known(queue).filter(|found| found.device == device) {
            Some(queue) => queue,
            // SAFETY: the caller vouches for the queue.
            None => unsafe { admit(device, queue, false) }?,
        };
        pool.record_stream(at, queue.stream())
    });
    tell(status, "a stream is not recorded");
}

/// A handle on the pool that PyTorch's allocations of an Intel GPU come from: for statistics, limits and snapshots.
///
/// State: after success the handle lives until `gvmm_pool_destroy`, which gives up the handle only.
/// Parameters: `device`, PyTorch's number; `out_pool`, the handle.
/// Statuses: NO_DEVICE, WRONG_STATE (nothing was allocated there yet, so that there is no pool).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_xpu_pool(device: c_int, out_pool: *mut *mut gvmm_pool) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out(out_pool)?;
        out.write(PoolObject::insert(Arc::clone(POOLS.known(device)?.ok_or_else(no_pool)?), None)?);
        Ok(())
    })
}
