//! Points in streams: a clock for each stream, and marks that are recorded only when somebody needs them.
//!
//! A clock has one timeline of the driver, made at the first recording. Marks that are asked for while none has
//! been recorded since the last are the same mark: recorded once, it stands behind all of their work. A stream
//! that is forgotten leaves its timeline to a later one as soon as all of its values are reached; since values
//! only grow, a wait for an old one that some stream still has in its queue stays right. Timelines are destroyed
//! with the device.
//!
//! A stream that failed, or is gone, can neither record nor reach a value. Once it was forgotten nobody can mend
//! that, and its work will never run any more: then all its marks have passed.
#![allow(unsafe_code, reason = "reads where a stream writes its timeline's value")]

use super::calls::Calls;
use super::cleanup::log_failure;
use crate::driver::{Stream, TimelineCell, TimelineId};
use crate::error::{Error, Kind, Operation, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// All clocks of a device.
#[derive(Debug)]
pub(crate) struct Clocks {
    calls: Arc<Calls>,
    table: Mutex<Table>,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    by_stream: HashMap<Stream, Arc<Clock>>,
    /// Clocks of forgotten streams whose last value is not known to be reached.
    forgotten: Vec<Arc<Clock>>,
    /// Timelines without a stream, with the last value written.
    idle: Vec<(TimelineId, u64)>,
    /// For each clock whose stream was told to wait for a timeline, a mark behind the last such wait.
    waiters: Vec<Arc<Mark>>,
}

/// One stream's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    clocks: Arc<Clocks>,
    stream: Stream,
    timeline: OnceLock<TimelineId>,
    /// Where its value stands, if the driver says; set before the timeline.
    cell: OnceLock<TimelineCell>,
    /// The highest value known to be reached.
    reached: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last value written.
    issued: u64,
    /// The mark that is not recorded yet.
    open: Weak<Mark>,
    /// Somebody wants the stream forgotten, and nothing was recorded since.
    leaving: bool,
    /// The stream was forgotten.
    over: bool,
}

/// What [`Clock::reached`] is for a stream that will run nothing any more, and the value of its unrecorded mark.
const DEAD: u64 = u64::MAX;

/// True where a stream that answers this runs nothing any more.
const fn is_dead(kind: Kind) -> bool {
    matches!(kind, Kind::InvalidStream | Kind::DeviceFault | Kind::DeviceLost)
}

/// A point in a stream: everything that was enqueued before the mark was asked for. Nothing is enqueued for it
/// until it is recorded, and marks of one stream that are recorded together cost one timeline write; a mark
/// recorded late passes late, never early. A stream must live until it is forgotten or its marks have passed.
#[derive(Debug)]
pub struct Mark {
    clock: Arc<Clock>,
    /// The timeline's value, 0 before it is recorded.
    value: AtomicU64,
}

impl Clocks {
    pub(crate) fn new(calls: Arc<Calls>) -> Arc<Self> {
        Arc::new(Self { calls, table: Mutex::default(), closed: AtomicBool::new(false) })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clock(self: &Arc<Self>, stream: Stream) -> Arc<Clock> {
        let new = || {
            Arc::new(Clock {
                clocks: Arc::clone(self),
                stream,
                timeline: OnceLock::new(),
                cell: OnceLock::new(),
                reached: AtomicU64::new(0),
                state: Mutex::default(),
            })
        };
        Arc::clone(self.table().by_stream.entry(stream).or_insert_with(new))
    }

    /// A mark behind what is enqueued on `stream` now.
    pub(crate) fn mark(self: &Arc<Self>, stream: Stream) -> Arc<Mark> {
        loop {
            let clock = self.clock(stream);
            let mut state = clock.state();
            if state.over {
                // Forgotten since it was looked up: the stream's number has a new clock by now.
                continue;
            }
            if let Some(mark) = state.open.upgrade() {
                return mark;
            }
            let mark = Arc::new(Mark { clock: Arc::clone(&clock), value: AtomicU64::new(0) });
            state.open = Arc::downgrade(&mark);
            return mark;
        }
    }

    /// Records what is held of the stream's marks and drops the stream. Where it cannot be dropped and is gone later,
    /// its marks have passed.
    pub(crate) fn forget(&self, stream: Stream) -> Result<()> {
        let Some(clock) = self.table().by_stream.get(&stream).map(Arc::clone) else { return Ok(()) };
        let mut state = clock.state();
        state.leaving = true;
        if let Some(mark) = state.open.upgrade() {
            clock.write(&mut state, &mark)?;
        }
        if std::mem::replace(&mut state.over, true) {
            return Ok(());
        }
        drop(state);
        let mut table = self.table();
        table.by_stream.remove(&stream);
        if clock.timeline.get().is_some() {
            table.forgotten.push(clock);
        }
        Ok(())
    }

    /// A timeline and the last value written to it. Called under the lock of a clock that is in use; the clocks
    /// asked here are forgotten ones, whose locks nobody holds while waiting for another.
    fn timeline(&self) -> Result<(TimelineId, u64)> {
        if let Some(idle) = self.table().idle.pop() {
            return Ok(idle);
        }
        let forgotten = std::mem::take(&mut self.table().forgotten);
        let (mut over, mut pending) = (Vec::new(), Vec::new());
        for clock in forgotten {
            match clock.timeline.get() {
                // Waits for a dead stream's timeline may go on failing.
                Some(timeline) if !clock.has_reached(DEAD) && clock.is_over().unwrap_or(false) => {
                    over.push((*timeline, clock.state().issued))
                }
                _ => pending.push(clock),
            }
        }
        let idle = over.pop();
        let mut table = self.table();
        table.forgotten.append(&mut pending);
        table.idle.append(&mut over);
        drop(table);
        match idle {
            Some(idle) => Ok(idle),
            None => Ok((self.calls.timeline_create()?, 0)),
        }
    }

    /// Notes that a wait is pending on the mark's stream.
    fn note_waiter(&self, mark: Arc<Mark>) {
        let mut table = self.table();
        table.waiters.retain(|old| !Arc::ptr_eq(&old.clock, &mark.clock) && !old.is_behind());
        table.waiters.push(mark);
    }

    /// Waits for everything that is pending and destroys the timelines; what could not be destroyed comes back.
    pub(crate) fn close(&self) -> Vec<TimelineId> {
        let waiters = std::mem::take(&mut self.table().waiters);
        for mark in &waiters {
            log_failure("wait for a stream while closing the device", mark.wait());
        }
        self.closed.store(true, Ordering::Release);
        let table = std::mem::take(&mut *self.table());
        let mut timelines: Vec<TimelineId> = table.idle.iter().map(|(timeline, _)| *timeline).collect();
        for clock in table.by_stream.values().chain(&table.forgotten) {
            let Some(timeline) = clock.timeline.get() else { continue };
            let mut state = clock.state();
            state.over = true;
            let issued = state.issued;
            drop(state);
            if !clock.has_reached(issued) {
                log_failure("wait for a timeline while closing", self.calls.timeline_wait(*timeline, issued));
                clock.reached.fetch_max(issued, Ordering::AcqRel);
            }
            timelines.push(*timeline);
        }
        timelines.retain(|timeline| self.calls.timeline_destroy(*timeline).is_err());
        timelines
    }

    /// The timelines are gone after this.
    fn check_open(&self) -> Result<()> {
        if !self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Error::new(Kind::WrongState, Operation::Timeline, "the device was closed"))
    }
}

impl Clock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the mark's value. The clock's lock is held across the driver call: values must be enqueued in their
    /// order.
    fn write(&self, state: &mut State, mark: &Mark) -> Result<()> {
        if mark.is_recorded() {
            return Ok(());
        }
        self.clocks.check_open()?;
        if state.over {
            return Err(Error::new(Kind::WrongState, Operation::Timeline, "the stream was forgotten"));
        }
        let timeline = match self.timeline.get() {
            Some(timeline) => *timeline,
            None => {
                let (timeline, issued) = self.clocks.timeline()?;
                state.issued = issued;
                self.reached.store(issued, Ordering::Release);
                if let Some(cell) = self.clocks.calls.timeline_cell(timeline) {
                    self.cell.get_or_init(|| cell);
                }
                *self.timeline.get_or_init(|| timeline)
            }
        };
        let value = state.issued + 1;
        let written = self.clocks.calls.timeline_write(self.stream, timeline, value);
        let value = match written {
            Err(e) if state.leaving && is_dead(e.kind) => {
                log::debug!("the marks of a stream that is gone have passed: {e}");
                self.reached.store(DEAD, Ordering::Release);
                DEAD
            }
            Err(e) => return Err(e),
            Ok(()) => {
                (state.issued, state.leaving) = (value, false);
                value
            }
        };
        state.open = Weak::new();
        mark.value.store(value, Ordering::Release);
        Ok(())
    }

    fn has_reached(&self, value: u64) -> bool {
        self.reached.load(Ordering::Acquire) >= value
    }

    /// Looks at the value, or asks the driver for it, where the known one does not do.
    fn reaches(&self, value: u64) -> Result<bool> {
        if self.has_reached(value) {
            return Ok(true);
        }
        let Some(timeline) = self.timeline.get() else { return Ok(false) };
        self.clocks.check_open()?;
        let now = match self.cell.get() {
            // SAFETY: `calls` keeps the driver that gave it (see `timeline_cell`); the timeline lives as long as the
            // device is open, which was asked just now, and after that nobody needs the answer.
            Some(cell) => unsafe { cell.read() },
            None => self.clocks.calls.timeline_read(*timeline)?,
        };
        self.reached.fetch_max(now, Ordering::AcqRel);
        Ok(now >= value)
    }

    fn is_over(&self) -> Result<bool> {
        let issued = self.state().issued;
        self.reaches(issued)
    }

    fn wait(&self, value: u64) -> Result<()> {
        if self.has_reached(value) {
            return Ok(());
        }
        if let Some(timeline) = self.timeline.get() {
            self.clocks.check_open()?;
            let reached = match self.clocks.calls.timeline_wait(*timeline, value) {
                Err(e) if is_dead(e.kind) && self.state().over => DEAD,
                Err(e) => return Err(e),
                Ok(()) => value,
            };
            self.reached.fetch_max(reached, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl Mark {
    /// The stream it is a point of.
    pub fn stream(&self) -> Stream {
        self.clock.stream
    }

    /// True once it has been recorded.
    pub fn is_recorded(&self) -> bool {
        self.value.load(Ordering::Acquire) != 0
    }

    /// Enqueues it, unless that was done.
    ///
    /// # Errors
    /// `StreamCapturing` while the stream is captured (try again later; the mark stays good), `WrongState` after
    /// the device was closed, and the driver's.
    pub fn record(&self) -> Result<()> {
        if self.is_recorded() {
            return Ok(());
        }
        let mut state = self.clock.state();
        self.clock.write(&mut state, self)
    }

    /// True where it is known, without asking the driver, that the stream has passed it.
    pub(crate) fn is_behind(&self) -> bool {
        let value = self.value.load(Ordering::Acquire);
        value != 0 && self.clock.has_reached(value)
    }

    /// The same for all marks of one clock, and for no others while they live.
    pub(crate) fn clock_key(&self) -> usize {
        Arc::as_ptr(&self.clock).addr()
    }

    /// True once the stream has passed it; false while it is unrecorded. Never blocks.
    ///
    /// # Errors
    /// The driver's.
    pub fn passed(&self) -> Result<bool> {
        match self.value.load(Ordering::Acquire) {
            0 => Ok(false),
            value => self.clock.reaches(value),
        }
    }

    /// Records it where needed and blocks the calling thread until the stream has passed it.
    ///
    /// # Errors
    /// As [`Self::record`], and what stopped the stream.
    pub fn wait(&self) -> Result<()> {
        self.record()?;
        self.clock.wait(self.value.load(Ordering::Acquire))
    }

    /// Makes `stream` wait for it, on the device; the same stream needs no wait, and nothing is enqueued then.
    ///
    /// # Errors
    /// As [`Self::record`], for either stream.
    pub fn wait_on(&self, stream: Stream) -> Result<()> {
        if self.stream() == stream && !self.clock.state().over {
            return Ok(());
        }
        self.record()?;
        let value = self.value.load(Ordering::Acquire);
        if self.clock.reaches(value)? {
            return Ok(());
        }
        let Some(timeline) = self.clock.timeline.get() else { return Ok(()) };
        let clocks = &self.clock.clocks;
        clocks.calls.stream_wait(stream, *timeline, value)?;
        // Asked for after the wait was enqueued, so that it stands behind it.
        clocks.note_waiter(clocks.mark(stream));
        Ok(())
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
