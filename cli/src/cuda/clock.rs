//! A clock on the GPU, and the driver's own copies to set ours beside.
#![allow(unsafe_code, reason = "calls through the address that dlsym gave")]

use super::api::{Api, library};
use gvmm::driver::{CopySlice, Ordinal, Stream};
use gvmm::error::{Error, Kind, Operation, Result};
use std::ffi::c_void;

/// `cuMemcpyBatchAsync` of CUDA 12.8: targets, sources, sizes, how many; attributes, from which copy on each holds,
/// how many; which copy failed; stream.
type Batch = unsafe extern "C" fn(
    *const u64,
    *const u64,
    *const u64,
    u64,
    *const Attributes,
    *const u64,
    u64,
    *mut u64,
    u64,
) -> i32;

/// As in `cuda.h`: how the source is read (1: in stream order), hints where both are, flags.
#[repr(C)]
struct Attributes {
    order: u32,
    hints: [[u32; 2]; 2],
    flags: u32,
}

/// Two events of a device, whose primary context is current on this thread while this lives.
pub(crate) struct Clock {
    api: Api,
    device: i32,
    events: [u64; 2],
    batch: Option<Batch>,
}

impl Clock {
    pub(crate) fn new(device: Ordinal) -> Result<Self> {
        let library = library()?;
        let batch = library.symbol(c"cuMemcpyBatchAsync").map(|address| {
            // SAFETY: the symbol has the signature that cuda.h gives it, which the type repeats.
            unsafe { std::mem::transmute::<*mut c_void, Batch>(address.as_ptr()) }
        });
        let (api, device, mut context) = (Api::open()?, device.0.cast_signed(), 0);
        api.primary_retain(&mut context, device)?;
        if let Err(error) = api.context_push(context) {
            api.primary_release(device)?;
            return Err(error);
        }
        // From here on its drop gives back what there is.
        let mut clock = Self { api, device, events: [0; 2], batch };
        for event in &mut clock.events {
            clock.api.event_create(event, 0)?;
        }
        Ok(clock)
    }

    /// Starts when the stream gets there.
    pub(crate) fn start(&self, stream: Stream) -> Result<()> {
        self.api.event_record(self.events[0], stream.0)
    }

    /// Stops when the stream gets there, waits for that, and says how many µs went by.
    pub(crate) fn stop(&self, stream: Stream) -> Result<f64> {
        self.api.event_record(self.events[1], stream.0)?;
        self.api.stream_synchronize(stream.0)?;
        let mut milliseconds = 0.0;
        self.api.event_elapsed(&mut milliseconds, self.events[0], self.events[1])?;
        Ok(f64::from(milliseconds) * 1e3)
    }

    /// `cuMemcpyDtoDAsync` for each slice.
    pub(crate) fn copy_each(&self, stream: Stream, slices: &[CopySlice]) -> Result<()> {
        slices.iter().try_for_each(|s| self.api.copy_async(s.dst.get(), s.src.get(), s.bytes, stream.0))
    }

    /// The driver's own call for many copies, where it has one.
    pub(crate) fn batch(&self) -> Option<BatchCall> {
        self.batch.map(BatchCall)
    }
}

/// `cuMemcpyBatchAsync`, ready for a list of copies.
pub(crate) struct BatchCall(Batch);

/// A list of copies as that call takes them.
pub(crate) struct BatchList {
    targets: Vec<u64>,
    sources: Vec<u64>,
    sizes: Vec<u64>,
}

impl BatchList {
    pub(crate) fn new(slices: &[CopySlice]) -> Self {
        let list = |of: fn(&CopySlice) -> u64| slices.iter().map(of).collect();
        Self { targets: list(|s| s.dst.get()), sources: list(|s| s.src.get()), sizes: list(|s| s.bytes) }
    }
}

impl BatchCall {
    /// Enqueues the copies.
    pub(crate) fn enqueue(&self, stream: Stream, list: &BatchList) -> Result<()> {
        let attributes = Attributes { order: 1, hints: [[0; 2]; 2], flags: 0 };
        let (from, mut failed) = (0_u64, 0_u64);
        let (targets, sources) = (list.targets.as_ptr(), list.sources.as_ptr());
        let (sizes, count) = (list.sizes.as_ptr(), list.sizes.len() as u64);
        // SAFETY: the lists have `count` elements each and outlive the call, and the copies are within memory that
        // the caller has.
        let code = unsafe {
            (self.0)(
                targets,
                sources,
                sizes,
                count,
                &raw const attributes,
                &raw const from,
                1,
                &raw mut failed,
                stream.0,
            )
        };
        match code {
            0 => Ok(()),
            code => {
                let error = Error::new(Kind::DriverError, Operation::Copy, "cuMemcpyBatchAsync");
                Err(error.native(code.into(), ""))
            }
        }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let events = self.events.iter().filter(|event| **event != 0);
        let mut ended: Vec<Result<()>> = events.map(|event| self.api.event_destroy(*event)).collect();
        ended.push(self.api.context_pop(&mut 0));
        ended.push(self.api.primary_release(self.device));
        for error in ended.into_iter().filter_map(Result::err) {
            log::warn!("something on the GPU was not given back: {error}");
        }
    }
}
