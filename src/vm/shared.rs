//! What a device, its blocks and its reservations share.

use super::Device;
use super::access::Shape;
use super::calls::{self, Calls};
use super::cleanup::Leftover;
use super::registry::Registry;
use super::retire::{Garbage, Queue};
use super::timeline::Clocks;
use crate::driver::{Capabilities, DeviceInfo};
use crate::error::{Error, Kind, Operation, Result};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A number for a device, a block, a reservation or a retired mapping: never 0, one of a kind in the process.
pub(crate) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The state that outlives the device where blocks or reservations do.
#[derive(Debug)]
pub(crate) struct Shared {
    /// One of a kind in the process.
    pub(crate) number: u64,
    pub(crate) calls: Arc<Calls>,
    pub(crate) info: DeviceInfo,
    pub(crate) shape: Shape,
    pub(crate) registry: Registry,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) queue: Queue,
    leftovers: Mutex<Vec<Leftover>>,
    /// Things in the queue and among the left-overs; 0 is the common case, seen without a lock.
    pending: AtomicUsize,
    /// Held by whoever maps on a device without aliasing, across planning and driver calls: whether a block is
    /// mapped elsewhere must stay true until it is mapped here.
    alone: Mutex<()>,
    pub(crate) device: OnceLock<Weak<Device>>,
}

impl Shared {
    pub(crate) fn new(calls: Calls, info: DeviceInfo) -> Arc<Self> {
        let calls = Arc::new(calls);
        Arc::new(Self {
            number: next_number(),
            shape: Shape::of(&calls),
            registry: Registry::new(info.granularity),
            clocks: Clocks::new(Arc::clone(&calls)),
            queue: Queue::default(),
            leftovers: Mutex::default(),
            pending: AtomicUsize::new(0),
            alone: Mutex::default(),
            device: OnceLock::new(),
            info,
            calls,
        })
    }

    pub(crate) fn open_device(&self) -> Option<Arc<Device>> {
        self.device.get()?.upgrade()
    }

    pub(crate) fn require(
        &self,
        wanted: Capabilities,
        operation: Operation,
        hint: &'static str,
    ) -> Result<()> {
        if self.calls.has(wanted) { Ok(()) } else { Err(Error::new(Kind::Unsupported, operation, hint)) }
    }

    /// The lock of a device on which one thread maps at a time; none where blocks may be mapped twice.
    pub(crate) fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        if self.shape.aliasing {
            None
        } else {
            Some(self.alone.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    pub(crate) fn add_pending(&self, count: usize) {
        self.pending.fetch_add(count, Ordering::AcqRel);
    }

    pub(crate) fn sub_pending(&self, count: usize) {
        self.pending.fetch_sub(count, Ordering::AcqRel);
    }

    /// Keeps what could not be given back.
    pub(crate) fn keep(&self, leftover: Leftover) {
        self.add_pending(1);
        self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).push(leftover);
    }

    /// Keeps it if `result` is a failure, and logs that.
    pub(crate) fn or_keep(&self, result: Result<()>, leftover: impl FnOnce() -> Leftover) {
        if let Err(e) = result {
            let leftover = leftover();
            log::warn!("clean-up will be tried again: {e} ({leftover:?})");
            self.keep(leftover);
        }
    }

    /// Tries left-overs again; gives how many went and the first failure.
    fn settle(&self) -> (usize, Result<()>) {
        let taken = std::mem::take(&mut *self.leftovers.lock().unwrap_or_else(PoisonError::into_inner));
        if taken.is_empty() {
            return (0, Ok(()));
        }
        self.sub_pending(taken.len());
        let (mut gone, mut result) = (0, Ok(()));
        for leftover in taken {
            match leftover.settle(&self.calls) {
                Ok(()) => gone += 1,
                Err((leftover, e)) => {
                    log::debug!("clean-up failed again: {e} ({leftover:?})");
                    result = result.and(Err(e));
                    self.keep(leftover);
                }
            }
        }
        (gone, result)
    }

    /// Polls: unmaps and drops what has passed. Its driver calls are no part of the operation that happens to run
    /// it, so the thread's counts are as before.
    pub(crate) fn collect(&self) -> usize {
        if self.pending.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let (garbage, gone) = calls::unattributed(|| {
            let garbage = self.queue.poll(self);
            let (gone, _) = self.settle();
            (garbage, gone)
        });
        gone + self.bury(garbage)
    }

    /// Records, waits and collects, as far as it goes; gives the first failure.
    pub(crate) fn drain(&self) -> Result<()> {
        let (garbage, result) = calls::unattributed(|| {
            let (garbage, waited) = self.queue.wait(self);
            let (_, settled) = self.settle();
            (garbage, waited.and(settled))
        });
        self.bury(garbage);
        result
    }

    /// Drops what retired things held, with no lock held; their clean-up is no part of the thread's counts either.
    pub(crate) fn bury(&self, garbage: Garbage) -> usize {
        let gone = garbage.count;
        calls::unattributed(|| drop(garbage));
        gone
    }

    /// Runs `call`, and once more after a drain where it failed for lack of memory, addresses or mappings.
    pub(crate) fn with_room<T>(&self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        let first = call();
        let Err(e) = &first else { return first };
        let lacks = matches!(
            e.kind,
            Kind::OutOfDeviceMemory | Kind::OutOfAddressSpace | Kind::OutOfFileDescriptors | Kind::MapLimit
        );
        if !lacks || self.pending.load(Ordering::Acquire) == 0 {
            return first;
        }
        if let Err(e) = self.drain() {
            log::debug!("draining for room: {e}");
        }
        call()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let (_, result) = self.settle();
        if let Err(e) = result {
            log::error!("memory of a closed device could not be given back: {e}");
        }
    }
}
