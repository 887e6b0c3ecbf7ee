//! Timelines, made of events: each write signals one, and the value is the highest whose event is signaled.
//!
//! A wait of a stream is for the event of a write that is enqueued already. Streams may share a queue of the device,
//! where a wait that comes before its write would hold that write up for ever: such a wait is refused.

use super::context::Core;
use super::events::Event;
use super::stream::{Line, Lines, Work};
use crate::driver::{Ordinal, Stream, TimelineId};
use crate::error::{Error, Kind, Operation, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long a waiting thread spins, and how long its naps are at first and at most.
const SPIN: Duration = Duration::from_micros(50);
const NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// How often it asks whether the device still works.
const CHECK: Duration = Duration::from_millis(20);

/// A write whose event is not known to be signaled.
#[derive(Debug)]
struct Write {
    value: u64,
    event: Arc<Event>,
    /// The stream that it is enqueued on.
    stream: u64,
}

/// A stream's wait: `awaited` is in use until `passed` is signaled.
#[derive(Debug)]
struct Wait {
    passed: Event,
    awaited: Arc<Event>,
}

#[derive(Debug, Default)]
struct State {
    value: u64,
    writes: Vec<Write>,
    waits: Vec<Wait>,
}

/// One timeline.
#[derive(Debug)]
struct Timeline {
    device: Ordinal,
    state: Mutex<State>,
    /// Threads inside `wait`.
    waiting: AtomicU64,
    /// Devices of the streams that had to do with it.
    devices: Mutex<Vec<Ordinal>>,
}

/// All timelines of a driver.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    next: AtomicU64,
    by_id: RwLock<HashMap<u64, Arc<Timeline>>>,
}

/// What a timeline's calls need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub(super) core: &'a Core,
    pub(super) lines: &'a Lines,
    pub(super) work: &'a Work,
}

fn unknown() -> Error {
    Error::new(Kind::InvalidHandle, Operation::Timeline, "no such timeline")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Raises the value by the events that are signaled, and forgets the waits that have passed. Asking never
    /// blocks; the lock is held so that each event is given back once.
    fn poll(&mut self, core: &Core) -> Result<u64> {
        let signaled = |event: &Event| event.is_signaled(&core.api, Operation::Timeline);
        let mut at = 0;
        while let Some(write) = self.writes.get(at) {
            if signaled(&write.event)? {
                self.value = self.value.max(write.value);
                self.writes.swap_remove(at);
            } else {
                at += 1;
            }
        }
        let mut at = 0;
        while let Some(wait) = self.waits.get(at) {
            if signaled(&wait.passed)? {
                self.waits.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Ok(self.value)
    }

    /// The event that a stream of a context waits for, or none where it need not.
    fn awaited(&self, line: &Line, value: u64) -> Result<Option<Arc<Event>>> {
        let mut reaching = self.writes.iter().filter(|write| write.value >= value);
        if reaching.clone().any(|write| write.stream == line.key) {
            return Ok(None);
        }
        let refuse = |hint| Err(Error::new(Kind::Unsupported, Operation::Timeline, hint));
        match reaching.next() {
            None => {
                refuse("on this driver a stream can wait only for a value whose write is enqueued already")
            }
            Some(write) if write.event.context != line.context => {
                refuse("the streams are of two drivers: wait on the host")
            }
            Some(write) => Ok(Some(Arc::clone(&write.event))),
        }
    }

    /// Streams that failed may still have these events.
    fn abandon(&mut self) {
        for wait in self.waits.drain(..) {
            wait.passed.abandon();
            std::mem::forget(wait.awaited);
        }
        self.writes.drain(..).for_each(|write| std::mem::forget(write.event));
    }
}

impl Timeline {
    fn read(&self, core: &Core) -> Result<u64> {
        lock(&self.state).poll(core)
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

    fn check_health(&self, core: &Core) -> Result<()> {
        let met = lock(&self.devices).clone();
        met.iter().try_for_each(|device| core.check_health(*device, Operation::Timeline))
    }

    fn met(&self, device: Ordinal) {
        let mut devices = lock(&self.devices);
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
}

impl Timelines {
    fn find(&self, id: TimelineId) -> Result<Arc<Timeline>> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        by_id.get(&id.0).cloned().ok_or_else(unknown)
    }

    pub(super) fn create(&self, core: &Core, device: Ordinal) -> Result<TimelineId> {
        core.device(device, Operation::Timeline)?;
        let (state, waiting, devices) = (Mutex::default(), AtomicU64::new(0), Mutex::new(vec![device]));
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let timeline = Arc::new(Timeline { device, state, waiting, devices });
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).insert(id, timeline);
        Ok(TimelineId(id))
    }

    pub(super) fn destroy(&self, core: &Core, id: TimelineId) -> Result<()> {
        let timeline = self.find(id)?;
        if timeline.waiting.load(Ordering::Acquire) > 0 {
            return Err(Error::new(Kind::InUse, Operation::Timeline, "a thread waits for it"));
        }
        let mut state = lock(&timeline.state);
        let asked = state.poll(core);
        if asked.is_err() || !state.writes.is_empty() || !state.waits.is_empty() {
            // What was enqueued on a device that is lost never comes.
            if asked.is_ok() && timeline.check_health(core).is_ok() {
                return Err(Error::new(Kind::InUse, Operation::Timeline, "a write or a wait is pending"));
            }
            state.abandon();
        }
        drop(state);
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).remove(&id.0).ok_or_else(unknown)?;
        Ok(())
    }

    pub(super) fn write(&self, around: Around<'_>, stream: Stream, id: TimelineId, value: u64) -> Result<()> {
        let Around { core, lines, work } = around;
        let timeline = self.find(id)?;
        let line = lines.find(core, timeline.device, stream, Operation::Timeline)?;
        let using = line.using(Operation::Timeline)?;
        core.refuse_capturing(&line, Operation::Timeline)?;
        let event = work.events.take(&core.api, line.context, Operation::Timeline)?;
        core.barrier(work, &line, event.handle, &[])?;
        drop(using);
        timeline.met(line.device);
        lock(&timeline.state).writes.push(Write { value, event: Arc::new(event), stream: line.key });
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

    pub(super) fn stream_wait(
        &self,
        around: Around<'_>,
        stream: Stream,
        id: TimelineId,
        value: u64,
    ) -> Result<()> {
        let Around { core, lines, work } = around;
        let timeline = self.find(id)?;
        let line = lines.find(core, timeline.device, stream, Operation::Timeline)?;
        let _using = line.using(Operation::Timeline)?;
        core.refuse_capturing(&line, Operation::Timeline)?;
        let mut state = lock(&timeline.state);
        if state.poll(core)? >= value {
            return Ok(());
        }
        let Some(awaited) = state.awaited(&line, value)? else { return Ok(()) };
        drop(state);
        let passed = work.events.take(&core.api, line.context, Operation::Timeline)?;
        core.barrier(work, &line, passed.handle, &[awaited.handle])?;
        timeline.met(line.device);
        lock(&timeline.state).waits.push(Wait { passed, awaited });
        Ok(())
    }

    /// Forgets all timelines; events that no stream has come to are left.
    pub(super) fn close(&self, core: &Core) {
        for (_, timeline) in self.by_id.write().unwrap_or_else(PoisonError::into_inner).drain() {
            let mut state = lock(&timeline.state);
            if state.poll(core).is_err() || !state.writes.is_empty() || !state.waits.is_empty() {
                state.abandon();
            }
        }
    }
}
