//! Timelines: numbers that streams write, for the caller to look at.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::drivers::{Child, DeviceObject};
use super::entry::entry;
use super::handle::{self, Noun, Table};
use super::status::gvmm_status;
use super::stream::resolve;
use super::types::{gvmm_device, gvmm_timeline};
use super::versioned::Caller;
use crate::error::Operation;
use crate::vm::{Counter, Device};
use std::ffi::c_void;
use std::sync::Arc;

/// Makes a timeline: a number in host memory that streams write, so that the caller sees without a call how far they
/// are. Memory that a stream may still use can be freed once a number written behind its last use has come.
///
/// State: after success the number is 0 and lives until `gvmm_timeline_destroy`.
/// Parameters: `device`; `out_timeline`, the handle; `out_value`, where the number stands, aligned and written whole:
/// read it atomically, with acquire order.
/// Statuses: UNSUPPORTED (streams of this driver write no numbers: Level Zero's), OUT_OF_HOST_MEMORY.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_timeline_create(
    device: *mut gvmm_device,
    out_timeline: *mut *mut gvmm_timeline,
    out_value: *mut *const u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Timeline, || {
        let (out, value) = (c.out(out_timeline)?, c.out(out_value)?);
        let device = handle::get::<DeviceObject>(device)?;
        let child = device.adopt()?;
        let device = Arc::clone(&device.device);
        let counter = device.counter()?;
        let address = std::ptr::with_exposed_provenance(counter.address() as usize);
        out.write(handle::insert(TimelineObject { counter, device, _child: child })?);
        value.write(address);
        Ok(())
    })
}

/// Enqueues a write: once the stream has run all that was enqueued before, the timeline's number becomes `value`.
///
/// State: changes none but the stream's queue. Write the numbers of one timeline on one stream: the last to arrive stands.
/// Parameters: `timeline`; `stream`, a `gvmm_stream` or the vendor's own; `value`, at most 2^63 - 1, and not below one that
/// was written before.
/// Statuses: INVALID_ARGUMENT (another value), INVALID_STREAM, STREAM_CAPTURING, those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_timeline_write(
    timeline: *mut gvmm_timeline,
    stream: *mut c_void,
    value: u64,
) -> gvmm_status {
    entry(Operation::Timeline, || {
        let timeline = handle::get::<TimelineObject>(timeline)?;
        timeline.counter.write(resolve(&timeline.device, stream)?, value)
    })
}

/// Gives up a timeline. Its number must not be looked at any more.
///
/// State: before, the streams have written what was enqueued; after success the handle is invalid.
/// Parameters: `timeline`.
/// Statuses: IN_USE (a write is pending; nothing has changed).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_timeline_destroy(timeline: *mut gvmm_timeline) -> gvmm_status {
    entry(Operation::Destroy, || {
        let leaving = handle::leave::<TimelineObject>(timeline)?;
        leaving.counter.end()?;
        leaving.gone();
        Ok(())
    })
}

/// What a handle of a timeline stands for.
struct TimelineObject {
    counter: Counter,
    device: Arc<Device>,
    _child: Child,
}

static TIMELINES: Table<TimelineObject> = Table::new();

impl Noun for TimelineObject {
    const TYPE: u64 = 20;
    type Handle = gvmm_timeline;
    fn table() -> &'static Table<Self> {
        &TIMELINES
    }
}
