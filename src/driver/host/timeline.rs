//! Values that streams raise and others wait for.

use crate::driver::TimelineId;
use crate::error::{Error, Kind, Operation, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// One value, and who still has to do with it.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    value: AtomicU64,
    /// The largest value whose write has been enqueued.
    promised: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Writes enqueued and waits begun that have not ended.
    pending: u64,
    /// Up to which value waits fail, since a stream that was to write it has failed, and with what.
    broken: Option<(u64, Error)>,
}

/// What a stream is to do with a timeline. Ends what it owes when dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    timeline: Arc<Timeline>,
    value: u64,
    settled: bool,
}

impl Timeline {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn value(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// Makes waits up to `value` fail with `error` from now on.
    fn fail(&self, state: &mut State, value: u64, error: Error) {
        let reach = state.broken.map_or(0, |(reach, _)| reach).max(value);
        state.broken = Some((reach, state.broken.map_or(error, |(_, first)| first)));
        self.changed.notify_all();
    }
}

impl Ticket {
    /// Raises the timeline.
    pub(super) fn write(mut self) {
        let mut state = self.timeline.state();
        // Under the lock, so that whoever sees the value may destroy the timeline at once.
        self.timeline.value.store(self.value, Ordering::Release);
        state.pending = state.pending.saturating_sub(1);
        self.timeline.changed.notify_all();
        drop(state);
        self.settled = true;
    }

    /// Blocks until the value is reached, or never will be.
    pub(super) fn wait(mut self) -> Result<()> {
        let mut state = self.timeline.state();
        let result = loop {
            if self.timeline.value() >= self.value {
                break Ok(());
            }
            match state.broken {
                Some((reach, error)) if self.value <= reach => break Err(error),
                _ => {}
            }
            state = self.timeline.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.pending = state.pending.saturating_sub(1);
        drop(state);
        self.settled = true;
        result
    }

    /// Gives up a write because its stream failed with `error`.
    pub(super) fn abandon(mut self, error: Error) {
        let mut state = self.timeline.state();
        state.pending = state.pending.saturating_sub(1);
        self.timeline.fail(&mut state, self.value, error);
        drop(state);
        self.settled = true;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            let mut state = self.timeline.state();
            state.pending = state.pending.saturating_sub(1);
        }
    }
}

/// All timelines of a driver.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    next: AtomicU64,
    by_id: RwLock<HashMap<u64, Arc<Timeline>>>,
}

impl Timelines {
    pub(super) fn create(&self) -> TimelineId {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::default());
        TimelineId(id)
    }

    /// Notes that a write of `value` is enqueued.
    pub(super) fn promise(&self, id: TimelineId, value: u64) {
        if let Some(timeline) = self.by_id.read().unwrap_or_else(PoisonError::into_inner).get(&id.0) {
            timeline.promised.fetch_max(value, Ordering::AcqRel);
        }
    }

    /// True where a write of `value` or more was enqueued at some time, or none is needed.
    pub(super) fn is_promised(&self, id: TimelineId, value: u64) -> Result<bool> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        let timeline = by_id.get(&id.0).ok_or_else(unknown)?;
        Ok(timeline.promised.load(Ordering::Acquire).max(timeline.value()) >= value)
    }

    pub(super) fn destroy(&self, id: TimelineId) -> Result<()> {
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        let timeline = by_id.get(&id.0).ok_or_else(unknown)?;
        if timeline.state().pending > 0 {
            let hint = "a write or a wait is pending";
            return Err(Error::new(Kind::InUse, Operation::Timeline, hint));
        }
        by_id.remove(&id.0);
        Ok(())
    }

    pub(super) fn read(&self, id: TimelineId) -> Result<u64> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        Ok(by_id.get(&id.0).ok_or_else(unknown)?.value())
    }

    /// Where the value stands until the timeline is destroyed: the table's `Arc` keeps it in place.
    pub(super) fn address(&self, id: TimelineId) -> Result<u64> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        let timeline = by_id.get(&id.0).ok_or_else(unknown)?;
        Ok((&raw const timeline.value).addr() as u64)
    }

    /// A write or a wait that is pending from now on.
    pub(super) fn ticket(&self, id: TimelineId, value: u64) -> Result<Ticket> {
        // Under the table's lock, so that nobody destroys the timeline before the ticket counts.
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        let timeline = Arc::clone(by_id.get(&id.0).ok_or_else(unknown)?);
        timeline.state().pending += 1;
        Ok(Ticket { timeline, value, settled: false })
    }

    /// Ends every wait that is not over, now and later.
    pub(super) fn end(&self) {
        let error = Error::new(Kind::DeviceLost, Operation::Timeline, "the driver was closed");
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        for timeline in by_id.values() {
            timeline.fail(&mut timeline.state(), u64::MAX, error);
        }
    }
}

const fn unknown() -> Error {
    Error::new(Kind::InvalidHandle, Operation::Timeline, "no such timeline")
}
