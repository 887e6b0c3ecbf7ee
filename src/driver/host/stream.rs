//! A stream: a thread that runs a queue in order.

use super::copy;
use super::costs::Delay;
use super::memory::Memory;
use super::routes::Leg;
use super::sys;
use super::timeline::Ticket;
use crate::driver::{CopySlice, HostFunction, Ordinal, RecordId};
use crate::error::{Error, Kind, Operation, Result};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What can be captured.
pub(super) enum Work {
    /// Copies, and how many µs a device would take for them.
    Copy(Box<[CopySlice]>, f64),
    /// A route's copies, where the launch says: nothing where it does not.
    Recorded(RecordId, f64),
    /// A call of the program's.
    Call(HostFunction),
}

/// What waits in a queue.
pub(super) enum Item {
    One(Work),
    /// A route's copies, and how many µs a device would take for them.
    Leg(Leg, f64),
    /// A captured graph, and where its recorded copies go in this launch; every launch shares what it kept.
    Graph(Arc<[Work]>, Vec<(RecordId, Leg)>),
    Write(Ticket),
    Wait(Ticket),
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One(_) => "work",
            Self::Leg(..) => "route's copies",
            Self::Graph(..) => "graph",
            Self::Write(_) => "timeline write",
            Self::Wait(_) => "timeline wait",
        })
    }
}

/// One stream, shared by its thread and its users.
pub(super) struct Line {
    pub(super) device: Ordinal,
    state: Mutex<State>,
    /// Told when the thread has something to do.
    work: Condvar,
    /// Told when something was finished that somebody waits for.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Item>,
    /// What is kept while the stream is captured.
    capture: Option<Vec<Work>>,
    /// What stopped the stream, for good.
    failed: Option<Error>,
    /// The stream takes nothing more, and its thread ends when the queue is empty.
    closed: bool,
    entered: u64,
    finished: u64,
    sleeping: bool,
    waiting: u32,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("device", &self.device).finish_non_exhaustive()
    }
}

fn error(kind: Kind, hint: &'static str) -> Error {
    Error::new(kind, Operation::Stream, hint)
}

impl Line {
    /// A stream of `device` and its thread.
    pub(super) fn start(
        number: u64,
        device: Ordinal,
        memory: Arc<Memory>,
    ) -> Result<(Arc<Self>, JoinHandle<()>)> {
        let (state, work, idle) = (Mutex::default(), Condvar::new(), Condvar::new());
        let line = Arc::new(Self { device, state, work, idle });
        let own = Arc::clone(&line);
        let body = move || {
            sys::block_signals();
            own.run(&memory);
        };
        let thread = std::thread::Builder::new().name(format!("gvmm-stream-{number}")).spawn(body);
        let thread = thread.map_err(|e| {
            let code = i64::from(e.raw_os_error().unwrap_or(0));
            error(Kind::OutOfHostMemory, "no thread could be started for the stream").native(code, "")
        })?;
        Ok((line, thread))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues work, or keeps it while the stream is captured.
    pub(super) fn push(&self, work: Work) -> Result<()> {
        let mut state = self.state();
        state.check()?;
        match &mut state.capture {
            Some(kept) => kept.push(work),
            None => self.enter(state, Item::One(work)),
        }
        Ok(())
    }

    /// Keeps what is there for captures only.
    pub(super) fn push_captured(&self, work: Work) -> Result<()> {
        let mut state = self.state();
        state.check()?;
        let hint = "the stream is not being captured";
        let kept = state.capture.as_mut().ok_or_else(|| error(Kind::WrongState, hint))?;
        kept.push(work);
        Ok(())
    }

    /// Enqueues what cannot be captured.
    pub(super) fn push_live(&self, item: Item) -> Result<()> {
        let state = self.state();
        let fit = state.check().and_then(|()| state.check_live());
        match (fit, item) {
            (Ok(()), item) => self.enter(state, item),
            (Err(error), Item::Write(ticket)) if state.failed.is_some() => {
                drop(state);
                // Whoever waits for this value already must not wait for ever.
                ticket.abandon(error);
                return Err(error);
            }
            (Err(error), _) => return Err(error),
        }
        Ok(())
    }

    fn enter(&self, mut state: MutexGuard<'_, State>, item: Item) {
        state.queue.push_back(item);
        state.entered += 1;
        let asleep = std::mem::take(&mut state.sleeping);
        drop(state);
        // A thread that runs looks at the queue by itself.
        if asleep {
            self.work.notify_one();
        }
    }

    /// Blocks until all that was enqueued before has run.
    pub(super) fn synchronize(&self) -> Result<()> {
        let mut state = self.state();
        state.check_live()?;
        let goal = state.entered;
        while state.finished < goal {
            state.waiting += 1;
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.failed.map_or(Ok(()), Err)
    }

    pub(super) fn is_capturing(&self) -> bool {
        self.state().capture.is_some()
    }

    pub(super) fn capture_begin(&self) -> Result<()> {
        let mut state = self.state();
        state.check()?;
        if state.capture.is_some() {
            return Err(
                error(Kind::WrongState, "the stream is being captured already").during(Operation::Capture)
            );
        }
        state.capture = Some(Vec::new());
        Ok(())
    }

    pub(super) fn capture_end(&self) -> Result<Arc<[Work]>> {
        let kept = self.state().capture.take();
        let kept = kept.ok_or_else(|| error(Kind::WrongState, "the stream is not being captured"));
        kept.map(Arc::from).map_err(|e| e.during(Operation::Capture))
    }

    /// Takes nothing more; with `drop_queue`, what waits is given up.
    pub(super) fn close(&self, drop_queue: bool) {
        let mut state = self.state();
        state.closed = true;
        state.sleeping = false;
        let capture = state.capture.take();
        let dropped = if drop_queue { std::mem::take(&mut state.queue) } else { VecDeque::new() };
        state.finished += dropped.len() as u64;
        drop(state);
        self.work.notify_one();
        self.idle.notify_all();
        // Outside the lock, since what is dropped may be the program's own.
        drop((capture, dropped));
    }

    /// The thread's life.
    fn run(&self, memory: &Memory) {
        while let Some(item) = self.next() {
            // Also what the item drops may be the program's own, and may panic.
            let result = catch_unwind(AssertUnwindSafe(|| self.execute(memory, item))).unwrap_or_else(|_| {
                Err(error(Kind::DeviceFault, "a host function panicked on the stream, which has stopped"))
            });
            let mut state = self.state();
            state.finished += 1;
            if let Err(error) = result {
                self.fail(state, error);
            } else if state.waiting > 0 {
                self.idle.notify_all();
            }
        }
    }

    /// The next item, or none at the end.
    fn next(&self) -> Option<Item> {
        let mut state = self.state();
        loop {
            if let Some(item) = state.queue.pop_front() {
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state.sleeping = true;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn execute(&self, memory: &Memory, item: Item) -> Result<()> {
        match item {
            Item::One(work) => self.work(memory, &work, &[]),
            Item::Leg(leg, us) => self.copy(memory, &leg.slices, us),
            Item::Graph(kept, legs) => kept.iter().try_for_each(|work| self.work(memory, work, &legs)),
            Item::Write(ticket) => {
                ticket.write();
                Ok(())
            }
            Item::Wait(ticket) => ticket.wait(),
        }
    }

    fn work(&self, memory: &Memory, work: &Work, legs: &[(RecordId, Leg)]) -> Result<()> {
        match work {
            Work::Copy(slices, us) => self.copy(memory, slices, *us),
            Work::Recorded(record, us) => match legs.iter().find(|(of, _)| of == record) {
                Some((_, leg)) => self.copy(memory, &leg.slices, *us),
                None => Ok(()),
            },
            Work::Call(function) => {
                function();
                Ok(())
            }
        }
    }

    fn copy(&self, memory: &Memory, slices: &[CopySlice], us: f64) -> Result<()> {
        let delay = Delay::start(memory.shape.costs.is_some());
        copy::run(memory, self.device, slices)?;
        delay.until(us);
        Ok(())
    }

    /// Stops the stream for good: what waits is dropped, and whoever waits for it is told.
    fn fail(&self, mut state: MutexGuard<'_, State>, error: Error) {
        state.failed = Some(error);
        let dropped = std::mem::take(&mut state.queue);
        drop(state);
        log::error!("a stream of device {} stopped: {error}", self.device.0);
        let count = dropped.len() as u64;
        for item in dropped {
            if let Item::Write(ticket) = item {
                ticket.abandon(error);
            }
        }
        self.state().finished += count;
        self.idle.notify_all();
    }
}

impl State {
    /// Refuses everything on a stream that failed or was closed.
    fn check(&self) -> Result<()> {
        match self.failed {
            Some(failed) => Err(failed),
            None if self.closed => Err(error(Kind::InvalidStream, "the stream was destroyed")),
            None => Ok(()),
        }
    }

    /// Refuses what a captured stream must not do.
    fn check_live(&self) -> Result<()> {
        if self.capture.is_none() {
            return Ok(());
        }
        Err(error(Kind::StreamCapturing, "the stream is being captured: end the capture first"))
    }
}
