//! A number in host memory that streams write, for whoever looks at it without a call.

use super::Device;
use super::cleanup::Leftover;
use super::shared::Shared;
use crate::driver::{Stream, TimelineId};
use crate::error::{Error, Kind, Operation, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Streams compare numbers cyclically: more would look negative.
const LARGEST: u64 = i64::MAX as u64;

/// A counter, at 0 when it is made.
#[derive(Debug)]
pub struct Counter {
    shared: Arc<Shared>,
    id: TimelineId,
    address: u64,
    /// The last number that a stream was told to write.
    last: AtomicU64,
    ended: AtomicBool,
}

impl Device {
    /// Makes a counter.
    ///
    /// # Errors
    /// `Unsupported` where streams write no values to host memory, and the driver's.
    pub fn counter(&self) -> Result<Counter> {
        let shared = Arc::clone(self.shared());
        let (id, address) = shared.with_room(|| shared.calls.counter_create())?;
        Ok(Counter { shared, id, address, last: AtomicU64::new(0), ended: AtomicBool::new(false) })
    }
}

impl Counter {
    /// Where its value stands in host memory until it is destroyed: 8 bytes, aligned, written whole.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Enqueues: when `stream` gets there, the counter becomes `value`.
    ///
    /// # Errors
    /// `InvalidArgument` for a number above 2^63 - 1, or below one that was written before: it would never be known when
    /// the counter is at rest. `StreamCapturing`, and the driver's.
    pub fn write(&self, stream: Stream, value: u64) -> Result<()> {
        if value > LARGEST || value < self.last.load(Ordering::Acquire) {
            let hint = "numbers of a timeline rise, up to 2^63 - 1";
            return Err(Error::new(Kind::InvalidArgument, Operation::Timeline, hint));
        }
        self.shared.calls.timeline_write(stream, self.id, value)?;
        self.last.fetch_max(value, Ordering::AcqRel);
        Ok(())
    }

    /// Gives it up, unless a write is pending; then it can be used as before.
    ///
    /// # Errors
    /// `InUse`, and the driver's.
    pub fn end(&self) -> Result<()> {
        self.shared.calls.timeline_destroy(self.id)?;
        self.ended.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Acquire) {
            let result = self.shared.calls.timeline_destroy(self.id);
            self.shared.or_keep(result, || Leftover::Timeline(self.id));
        }
    }
}
