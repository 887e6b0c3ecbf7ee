//! Timelines over the few calls that a vendor's runtime has for them: a 64-bit value in pinned host memory that
//! streams write, so that the host reads it without a driver call; where streams cannot write values, or must not,
//! events in the order they were recorded.

use super::cells::{TOP, TimelineCell, cell, lowered, raised};
use super::lines::{Runtime, enter_home, refuse_captured, refuse_inside};
use crate::driver::{NO_COUNTERS, Ordinal, Stream, TimelineId};
use crate::error::{Error, Kind, Operation, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Bytes of a page of values, and of a value: a cache line each, so that streams do not disturb each other.
const PAGE: u64 = 64 << 10;
const LINE: u64 = 64;

/// How long a waiting thread spins, and how long its naps are at first and at most.
const SPIN: Duration = Duration::from_micros(50);
const NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// How often it asks whether the device still works.
const CHECK: Duration = Duration::from_millis(20);

/// What a vendor's runtime does for timelines. Where a call names no place, the right one is current.
pub(in crate::driver) trait Clock: Runtime {
    /// True where streams of `device` write and wait for values.
    fn has_values(&self, device: Ordinal) -> Result<bool>;
    /// True where streams of `device` write values that only the host reads.
    fn has_counters(&self, device: Ordinal) -> Result<bool>;
    /// The places that were entered so far.
    fn opened(&self) -> Vec<Self::Place>;
    /// An error where a place no longer works. Makes no call that could wait for running work.
    fn check_health(&self, place: &Self::Place) -> Result<()>;

    /// Pinned memory that every device reaches: its address for the host and for the current device.
    fn pinned(&self, bytes: u64) -> Result<(u64, u64)>;
    /// Gives it back by its address for the host.
    fn pinned_free(&self, host: u64) -> Result<()>;
    /// Enqueues a write of a value.
    fn write_value(&self, stream: u64, address: u64, value: u64) -> Result<()>;
    /// Enqueues a wait for a value, compared cyclically or as unsigned numbers.
    fn wait_value(&self, stream: u64, address: u64, value: u64) -> Result<()>;

    /// An event without timing, recorded on a stream.
    fn event(&self, stream: u64) -> Result<u64>;
    /// True once what was recorded has passed.
    fn event_passed(&self, event: u64) -> Result<bool>;
    /// Enqueues a wait for it.
    fn event_wait(&self, stream: u64, event: u64) -> Result<()>;
    /// Gives it up; streams that wait for it still do.
    fn event_destroy(&self, event: u64);
}

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
struct Timeline<P> {
    device: Ordinal,
    store: Store,
    /// The highest value that a stream was told to write or to wait for.
    enqueued: AtomicU64,
    /// Threads inside `wait`.
    waiting: AtomicU64,
    /// Places of the streams that had to do with it, to see whether one failed.
    places: Mutex<Vec<P>>,
}

/// Pinned memory for values of one device.
#[derive(Debug, Default)]
struct Pool {
    /// Host and device address of values that nobody uses.
    idle: Vec<(u64, u64)>,
    pages: Vec<u64>,
}

/// All timelines of a driver.
#[derive(Debug)]
pub(in crate::driver) struct Timelines<P> {
    next: AtomicU64,
    by_id: RwLock<HashMap<u64, Arc<Timeline<P>>>>,
    pools: Mutex<HashMap<Ordinal, Pool>>,
}

impl<P> Default for Timelines<P> {
    fn default() -> Self {
        Self { next: AtomicU64::new(0), by_id: RwLock::default(), pools: Mutex::default() }
    }
}

fn unknown() -> Error {
    Error::new(Kind::InvalidHandle, Operation::Timeline, "no such timeline")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Clone + PartialEq> Timeline<P> {
    /// The value now.
    fn read(&self, clock: &impl Clock<Place = P>) -> Result<u64> {
        match &self.store {
            Store::Value { host, base, .. } => Ok(lowered(*base, cell(*host).load(Ordering::Acquire))),
            Store::Events(events) => {
                let _entered = enter_home(clock, self.device, Operation::Timeline)?;
                // Held across the queries: an event is destroyed by whoever sees it passed, and by nobody else.
                poll(clock, &mut lock(events))
            }
        }
    }

    fn wait(&self, clock: &impl Clock<Place = P>, value: u64) -> Result<()> {
        let start = Instant::now();
        let (mut nap, mut checked) = (NAP, start);
        while self.read(clock)? < value {
            let now = Instant::now();
            if now - start < SPIN {
                std::hint::spin_loop();
                continue;
            }
            if now - checked > CHECK {
                self.check_health(clock)?;
                checked = now;
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(LONGEST_NAP);
        }
        Ok(())
    }

    fn met(&self, place: &P) {
        let mut places = lock(&self.places);
        if !places.contains(place) {
            places.push(place.clone());
        }
    }

    fn check_health(&self, clock: &impl Clock<Place = P>) -> Result<()> {
        let met = lock(&self.places).clone();
        let asked = if met.is_empty() { clock.opened() } else { met };
        asked.iter().try_for_each(|place| clock.check_health(place))
    }
}

/// Raises the value by the events that have passed.
fn poll(clock: &impl Clock, events: &mut Events) -> Result<u64> {
    while let Some((value, event)) = events.pending.front().copied() {
        if !clock.event_passed(event)? {
            break;
        }
        events.value = events.value.max(value);
        events.pending.pop_front();
        clock.event_destroy(event);
    }
    Ok(events.value)
}

impl<P: Clone + PartialEq> Timelines<P> {
    fn find(&self, id: TimelineId) -> Result<Arc<Timeline<P>>> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        by_id.get(&id.0).cloned().ok_or_else(unknown)
    }

    pub(in crate::driver) fn create(
        &self,
        clock: &impl Clock<Place = P>,
        device: Ordinal,
    ) -> Result<TimelineId> {
        let values = clock.has_values(device)?;
        let store = if values { self.value(clock, device)? } else { Store::Events(Mutex::default()) };
        Ok(self.insert(device, store))
    }

    /// A timeline whose cell holds the value itself, and where that is for the host.
    pub(in crate::driver) fn create_counter(
        &self,
        clock: &impl Clock<Place = P>,
        device: Ordinal,
    ) -> Result<(TimelineId, u64)> {
        if !clock.has_counters(device)? {
            return Err(NO_COUNTERS);
        }
        let (host, address) = match self.untouched(device) {
            Some(found) => found,
            None => self.page(clock, device)?,
        };
        Ok((self.insert(device, Store::Value { host, device: address, base: 0 }), host))
    }

    /// An idle cell that still holds 0.
    fn untouched(&self, device: Ordinal) -> Option<(u64, u64)> {
        let mut pools = lock(&self.pools);
        let idle = &mut pools.entry(device).or_default().idle;
        let at = idle.iter().rposition(|(host, _)| cell(*host).load(Ordering::Acquire) == 0)?;
        Some(idle.swap_remove(at))
    }

    fn insert(&self, device: Ordinal, store: Store) -> TimelineId {
        let (enqueued, waiting, places) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::default());
        let timeline = Arc::new(Timeline { device, store, enqueued, waiting, places });
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).insert(id, timeline);
        TimelineId(id)
    }

    fn value(&self, clock: &impl Clock<Place = P>, device: Ordinal) -> Result<Store> {
        let idle = lock(&self.pools).entry(device).or_default().idle.pop();
        let (host, address) = match idle {
            Some(found) => found,
            None => self.page(clock, device)?,
        };
        Ok(Store::Value { host, device: address, base: cell(host).load(Ordering::Acquire) })
    }

    /// Adds a page to the device's pool, and gives its first value.
    fn page(&self, clock: &impl Clock<Place = P>, device: Ordinal) -> Result<(u64, u64)> {
        let _entered = enter_home(clock, device, Operation::Timeline)?;
        let (host, address) = clock.pinned(PAGE)?;
        (0..PAGE).step_by(LINE as usize).for_each(|at| cell(host + at).store(0, Ordering::Release));
        let mut pools = lock(&self.pools);
        let pool = pools.entry(device).or_default();
        pool.pages.push(host);
        pool.idle.extend((LINE..PAGE).step_by(LINE as usize).map(|at| (host + at, address + at)));
        Ok((host, address))
    }

    pub(in crate::driver) fn destroy(&self, clock: &impl Clock<Place = P>, id: TimelineId) -> Result<()> {
        refuse_inside(Operation::Timeline)?;
        let timeline = self.find(id)?;
        if timeline.waiting.load(Ordering::Acquire) > 0 {
            return Err(Error::new(Kind::InUse, Operation::Timeline, "a thread waits for it"));
        }
        let pending = timeline.read(clock).is_ok_and(|v| v < timeline.enqueued.load(Ordering::Acquire));
        // What was enqueued on a device that is lost never comes.
        if pending && timeline.check_health(clock).is_ok() {
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
                let _entered = enter_home(clock, timeline.device, Operation::Timeline);
                for (_, event) in lock(events).pending.drain(..) {
                    clock.event_destroy(event);
                }
            }
        }
        Ok(())
    }

    pub(in crate::driver) fn write(
        &self,
        clock: &impl Clock<Place = P>,
        stream: Stream,
        id: TimelineId,
        value: u64,
    ) -> Result<()> {
        let timeline = self.find(id)?;
        let place = clock.place_of(stream, timeline.device, Operation::Timeline)?;
        let _entered = clock.enter(&place, Operation::Timeline)?;
        refuse_captured(clock, stream, Operation::Timeline)?;
        match &timeline.store {
            Store::Value { device, base, .. } => {
                clock.write_value(stream.0, *device, raised(*base, value))?;
            }
            // Held across the calls: the list must be in the order of recording.
            Store::Events(events) => {
                let mut events = lock(events);
                events.pending.push_back((value, clock.event(stream.0)?));
            }
        }
        timeline.met(&place);
        timeline.enqueued.fetch_max(value, Ordering::AcqRel);
        Ok(())
    }

    pub(in crate::driver) fn read(&self, clock: &impl Clock<Place = P>, id: TimelineId) -> Result<u64> {
        self.find(id)?.read(clock)
    }

    /// Where the value of a timeline stands, where streams write it.
    pub(in crate::driver) fn cell(&self, id: TimelineId) -> Option<TimelineCell> {
        match self.find(id).ok()?.store {
            Store::Value { host, base, .. } => Some(TimelineCell { host, base }),
            Store::Events(_) => None,
        }
    }

    pub(in crate::driver) fn wait(
        &self,
        clock: &impl Clock<Place = P>,
        id: TimelineId,
        value: u64,
    ) -> Result<()> {
        let timeline = self.find(id)?;
        timeline.waiting.fetch_add(1, Ordering::AcqRel);
        let result = timeline.wait(clock, value);
        timeline.waiting.fetch_sub(1, Ordering::AcqRel);
        result
    }

    /// Where streams share a queue of the device (there are 8 by default), a wait that comes before its write can
    /// hold that write up for ever. Enqueue the write first.
    pub(in crate::driver) fn stream_wait(
        &self,
        clock: &impl Clock<Place = P>,
        stream: Stream,
        id: TimelineId,
        value: u64,
    ) -> Result<()> {
        let timeline = self.find(id)?;
        let place = clock.place_of(stream, timeline.device, Operation::Timeline)?;
        let _entered = clock.enter(&place, Operation::Timeline)?;
        refuse_captured(clock, stream, Operation::Timeline)?;
        match &timeline.store {
            Store::Value { device, base, .. } => {
                clock.wait_value(stream.0, *device, raised(*base, value))?;
            }
            Store::Events(events) => wait_event(clock, &mut lock(events), stream, value)?,
        }
        timeline.met(&place);
        timeline.enqueued.fetch_max(value, Ordering::AcqRel);
        Ok(())
    }

    /// Gives back the pinned memory.
    pub(in crate::driver) fn close(&self, clock: &impl Clock<Place = P>) {
        for (device, pool) in std::mem::take(&mut *lock(&self.pools)) {
            let Ok(_entered) = enter_home(clock, device, Operation::Destroy) else { continue };
            for page in pool.pages {
                clock.log("free pinned memory", clock.pinned_free(page));
            }
        }
    }
}

fn wait_event(clock: &impl Clock, events: &mut Events, stream: Stream, value: u64) -> Result<()> {
    if poll(clock, events)? >= value {
        return Ok(());
    }
    let Some((_, event)) = events.pending.iter().find(|(reached, _)| *reached >= value) else {
        let hint = "on this driver a stream can wait only for a value whose write is enqueued already";
        return Err(Error::new(Kind::Unsupported, Operation::Timeline, hint));
    };
    clock.event_wait(stream.0, *event)
}
