//! Timelines: a 64-bit value in pinned host memory that streams write, so that the host reads it without a driver
//! call; where streams cannot write values, events in the order they were recorded.
#![allow(unsafe_code, reason = "reads the pinned memory that streams write")]

use super::api::{Api, NO_TIMING, NOT_READY, SUCCESS};
use super::context::{Context, Core};
use super::stream::refuse_inside;
use crate::driver::{Ordinal, Stream, TimelineId};
use crate::error::{Error, Kind, Operation, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Bytes of a page of values, and of a value: a cache line each, so that streams do not disturb each other.
const PAGE: u64 = 64 << 10;
const LINE: u64 = 64;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const PINNED: u32 = 3;
/// `CU_STREAM_WAIT_VALUE_GEQ`.
const AT_LEAST: u32 = 0;

/// The highest number in a cell: streams compare cyclically, so it must not look negative.
const TOP: u64 = i64::MAX as u64;

/// How long a waiting thread spins, and how long its naps are at first and at most.
const SPIN: Duration = Duration::from_micros(50);
const NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// How often it asks whether the device still works.
const CHECK: Duration = Duration::from_millis(20);

#[derive(Debug)]
enum Store {
    /// Addresses of a cell, for the host and for devices, and what it holds when the value is 0. A cell only ever
    /// rises: a stream may still have to look at it for a timeline that is gone, and must not be held up.
    Value {
        host: u64,
        device: u64,
        base: u64,
    },
    Events(Mutex<Events>),
}

/// The value reached so far, and the events that will raise it.
#[derive(Debug, Default)]
struct Events {
    value: u64,
    pending: VecDeque<(u64, u64)>,
}

/// One timeline.
#[derive(Debug)]
struct Timeline {
    device: Ordinal,
    store: Store,
    /// The highest value that a stream was told to write or to wait for.
    enqueued: AtomicU64,
    /// Threads inside `wait`.
    waiting: AtomicU64,
    /// Contexts of the streams that had to do with it, to see whether one failed.
    contexts: Mutex<Vec<Arc<Context>>>,
}

/// Pinned memory for values of one device.
#[derive(Debug, Default)]
struct Pool {
    /// Host and device address of values that nobody uses.
    idle: Vec<(u64, u64)>,
    pages: Vec<u64>,
}

/// All timelines of a driver.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    next: AtomicU64,
    by_id: RwLock<HashMap<u64, Arc<Timeline>>>,
    pools: Mutex<HashMap<Ordinal, Pool>>,
}

fn unknown() -> Error {
    Error::new(Kind::InvalidHandle, Operation::Timeline, "no such timeline")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value at an address of a pool's page.
fn cell(host: u64) -> &'static AtomicU64 {
    // SAFETY: the address came from a pool, whose pages are aligned, and stay until the driver is dropped, after
    // which no timeline exists to read; streams and host write it whole.
    unsafe { AtomicU64::from_ptr(host as *mut u64) }
}

/// What a cell holds when the value is `value`.
const fn raised(base: u64, value: u64) -> u64 {
    let sum = base.saturating_add(value);
    if sum < TOP { sum } else { TOP }
}

/// The value when a cell holds `seen`.
const fn lowered(base: u64, seen: u64) -> u64 {
    if seen < TOP { seen.saturating_sub(base) } else { u64::MAX }
}

impl Timeline {
    /// The value now.
    fn read(&self, core: &Core) -> Result<u64> {
        match &self.store {
            Store::Value { host, base, .. } => Ok(lowered(*base, cell(*host).load(Ordering::Acquire))),
            Store::Events(events) => {
                let _entered = core.enter_primary(self.device, Operation::Timeline)?;
                // Held across the queries: an event is destroyed by whoever sees it passed, and by nobody else.
                poll(&core.api, &mut lock(events))
            }
        }
    }

    fn wait(&self, core: &Core, value: u64) -> Result<()> {
        let start = Instant::now();
        let (mut nap, mut checked) = (NAP, start);
        while self.read(core)? < value {
            let now = Instant::now();
            if now - start < SPIN {
                std::hint::spin_loop();
                continue;
            }
            if now - checked > CHECK {
                self.check_health(core)?;
                checked = now;
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(LONGEST_NAP);
        }
        Ok(())
    }

    fn met(&self, context: &Arc<Context>) {
        let mut contexts = lock(&self.contexts);
        if !contexts.iter().any(|known| Arc::ptr_eq(known, context)) {
            contexts.push(context.clone());
        }
    }

    fn check_health(&self, core: &Core) -> Result<()> {
        let met = lock(&self.contexts).clone();
        if met.is_empty() {
            return core.primaries().try_for_each(|context| core.check_health(context));
        }
        met.iter().try_for_each(|context| core.check_health(context))
    }
}

/// Raises the value by the events that have passed.
fn poll(api: &Api, events: &mut Events) -> Result<u64> {
    while let Some((value, event)) = events.pending.front().copied() {
        match api.event_query(event) {
            SUCCESS => {
                events.value = events.value.max(value);
                events.pending.pop_front();
                api.event_destroy(event);
            }
            NOT_READY => break,
            status => return Err(api.error(status, Operation::Timeline)),
        }
    }
    Ok(events.value)
}

impl Timelines {
    fn find(&self, id: TimelineId) -> Result<Arc<Timeline>> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        by_id.get(&id.0).cloned().ok_or_else(unknown)
    }

    pub(super) fn create(&self, core: &Core, device: Ordinal) -> Result<TimelineId> {
        let found = core.device(device, Operation::Timeline)?;
        let store =
            if found.stream_values { self.value(core, device)? } else { Store::Events(Mutex::default()) };
        let (enqueued, waiting, contexts) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::default());
        let timeline = Arc::new(Timeline { device, store, enqueued, waiting, contexts });
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).insert(id, timeline);
        Ok(TimelineId(id))
    }

    fn value(&self, core: &Core, device: Ordinal) -> Result<Store> {
        let idle = lock(&self.pools).entry(device).or_default().idle.pop();
        let (host, address) = match idle {
            Some(found) => found,
            None => self.page(core, device)?,
        };
        Ok(Store::Value { host, device: address, base: cell(host).load(Ordering::Acquire) })
    }

    /// Adds a page to the device's pool, and gives its first value.
    fn page(&self, core: &Core, device: Ordinal) -> Result<(u64, u64)> {
        let _entered = core.enter_primary(device, Operation::Timeline)?;
        let (mut host, mut address) = (0, 0);
        core.api.check(core.api.host_alloc(&mut host, PAGE, PINNED), Operation::Timeline).map_err(|e| {
            if e.kind == Kind::OutOfDeviceMemory { Error { kind: Kind::OutOfHostMemory, ..e } } else { e }
        })?;
        let status = core.api.host_device_pointer(&mut address, host, 0);
        core.api.check(status, Operation::Timeline).inspect_err(|_| {
            core.log("free pinned memory", core.api.host_free(host));
        })?;
        (0..PAGE).step_by(LINE as usize).for_each(|at| cell(host + at).store(0, Ordering::Release));
        let mut pools = lock(&self.pools);
        let pool = pools.entry(device).or_default();
        pool.pages.push(host);
        pool.idle.extend((LINE..PAGE).step_by(LINE as usize).map(|at| (host + at, address + at)));
        Ok((host, address))
    }

    pub(super) fn destroy(&self, core: &Core, id: TimelineId) -> Result<()> {
        refuse_inside(Operation::Timeline)?;
        let timeline = self.find(id)?;
        if timeline.waiting.load(Ordering::Acquire) > 0 {
            return Err(Error::new(Kind::InUse, Operation::Timeline, "a thread waits for it"));
        }
        let pending = timeline.read(core).is_ok_and(|v| v < timeline.enqueued.load(Ordering::Acquire));
        // What was enqueued on a device that is lost never comes.
        if pending && timeline.check_health(core).is_ok() {
            return Err(Error::new(Kind::InUse, Operation::Timeline, "a write or a wait is pending"));
        }
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).remove(&id.0).ok_or_else(unknown)?;
        match &timeline.store {
            // A cell that may still be written, or that has little left to rise, is not used again.
            Store::Value { host, .. } if pending || cell(*host).load(Ordering::Acquire) > TOP / 2 => {}
            Store::Value { host, device, .. } => {
                lock(&self.pools).entry(timeline.device).or_default().idle.push((*host, *device));
            }
            Store::Events(events) => {
                let _entered = core.enter_primary(timeline.device, Operation::Timeline);
                for (_, event) in lock(events).pending.drain(..) {
                    core.api.event_destroy(event);
                }
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, core: &Core, stream: Stream, id: TimelineId, value: u64) -> Result<()> {
        let timeline = self.find(id)?;
        let context = core.context_of(stream, timeline.device, Operation::Timeline)?;
        let _entered = core.enter(context.handle, Operation::Timeline)?;
        core.refuse_capturing(stream, Operation::Timeline)?;
        match &timeline.store {
            Store::Value { device, base, .. } => {
                let status = core.api.stream_write_value(stream.0, *device, raised(*base, value), 0);
                core.api.check(status, Operation::Timeline)?;
            }
            // Held across the calls: the list must be in the order of recording.
            Store::Events(events) => record(&core.api, &mut lock(events), stream, value)?,
        }
        timeline.met(&context);
        timeline.enqueued.fetch_max(value, Ordering::AcqRel);
        Ok(())
    }

    pub(super) fn read(&self, core: &Core, id: TimelineId) -> Result<u64> {
        self.find(id)?.read(core)
    }

    pub(super) fn wait(&self, core: &Core, id: TimelineId, value: u64) -> Result<()> {
        let timeline = self.find(id)?;
        timeline.waiting.fetch_add(1, Ordering::AcqRel);
        let result = timeline.wait(core, value);
        timeline.waiting.fetch_sub(1, Ordering::AcqRel);
        result
    }

    /// Where streams share a queue of the device (there are 8 by default), a wait that comes before its write can
    /// hold that write up for ever. Enqueue the write first.
    pub(super) fn stream_wait(&self, core: &Core, stream: Stream, id: TimelineId, value: u64) -> Result<()> {
        let timeline = self.find(id)?;
        let context = core.context_of(stream, timeline.device, Operation::Timeline)?;
        let _entered = core.enter(context.handle, Operation::Timeline)?;
        core.refuse_capturing(stream, Operation::Timeline)?;
        match &timeline.store {
            Store::Value { device, base, .. } => {
                let status = core.api.stream_wait_value(stream.0, *device, raised(*base, value), AT_LEAST);
                core.api.check(status, Operation::Timeline)?;
            }
            Store::Events(events) => wait_event(&core.api, &mut lock(events), stream, value)?,
        }
        timeline.met(&context);
        timeline.enqueued.fetch_max(value, Ordering::AcqRel);
        Ok(())
    }

    /// Gives back the pinned memory.
    pub(super) fn close(&self, core: &Core) {
        for (device, pool) in std::mem::take(&mut *lock(&self.pools)) {
            let Ok(_entered) = core.enter_primary(device, Operation::Destroy) else { continue };
            for page in pool.pages {
                core.log("free pinned memory", core.api.host_free(page));
            }
        }
    }
}

fn record(api: &Api, events: &mut Events, stream: Stream, value: u64) -> Result<()> {
    let mut event = 0;
    api.check(api.event_create(&mut event, NO_TIMING), Operation::Timeline)?;
    let status = api.event_record(event, stream.0);
    api.check(status, Operation::Timeline).inspect_err(|_| {
        api.event_destroy(event);
    })?;
    events.pending.push_back((value, event));
    Ok(())
}

fn wait_event(api: &Api, events: &mut Events, stream: Stream, value: u64) -> Result<()> {
    if poll(api, events)? >= value {
        return Ok(());
    }
    let Some((_, event)) = events.pending.iter().find(|(reached, _)| *reached >= value) else {
        let hint = "on this driver a stream can wait only for a value whose write is enqueued already";
        return Err(Error::new(Kind::Unsupported, Operation::Timeline, hint));
    };
    api.check(api.stream_wait_event(stream.0, *event, 0), Operation::Timeline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_used_again_only_rises() {
        let base = raised(0, 41);
        assert_eq!((raised(base, 1), lowered(base, 42), lowered(base, base)), (42, 1, 0));
        // A stream that still waits for an old value is let go by whatever the cell holds now.
        assert!(raised(base, 0) >= raised(0, 41));
    }

    #[test]
    fn the_highest_value_reaches_every_wait() {
        assert_eq!(raised(7, u64::MAX), TOP);
        assert_eq!(lowered(7, TOP), u64::MAX);
        assert!((TOP.wrapping_sub(raised(7, 5))) as i64 >= 0);
    }
}
