//! One repetition of one thread: operation after operation, timed in groups, and in some of them each by itself.

use super::canary::Canary;
use super::pace::Pace;
use super::player::{Held, NOTHING, Outcome, Player, Point, Task};
use super::recording::{Op, Recording};
use super::ticks::Ticks;
use crate::failure::{Context, Failure};
use gvmm::driver::{Driver, Stream, TimelineId};
use gvmm::error::{Error, Kind, Result};
use gvmm::units::ByteSize;
use gvmm::vm::Device;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Work that lags is held back at so many places for each length of the lag.
const GATES: u64 = 32;
/// How many points a curve has.
const POINTS: usize = 1000;
/// After so many operations the progress is shown.
const SHOWN: usize = 4096;

/// Operations that are timed together.
const GROUP: usize = 64;
/// In one of so many groups each operation is timed by itself.
const SAMPLED: usize = 4;

/// For so long the host stays awake while it waits for a stream.
const AWAKE: Duration = Duration::from_micros(200);
/// Streams that take so long have failed.
const ARRIVAL: Duration = Duration::from_secs(10);

/// One repetition of one thread.
pub(super) struct Run<'a> {
    player: &'a Player<'a>,
    task: Task,
    canary: Canary,
    held: Vec<Held>,
    pace: Arc<Pace>,
    ticks: Ticks,
    times: Vec<u32>,
    /// Another stream uses some of the freed blocks.
    shares: bool,
    /// Whether each operation is timed by itself now.
    each: bool,
    /// Operations that were timed in groups, and their ticks.
    grouped: (u64, u64),
    baton: Option<Baton<'a>>,
    /// Until when another stream uses a block that was freed, and who says that it has passed that.
    shared: Vec<(u64, Receiver<()>)>,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    pub(super) fn new(player: &'a Player<'a>, task: Task, canary: Canary) -> Self {
        let Recording { blocks, ops, .. } = player.recording;
        Self {
            player,
            task,
            canary,
            held: vec![NOTHING; *blocks as usize],
            pace: Pace::new(),
            ticks: Ticks::start(),
            times: Vec::with_capacity(ops.len()),
            shares: player.recording.shares(),
            each: true,
            grouped: (0, 0),
            baton: None,
            shared: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    /// Lets streams go on that lag.
    pub(super) fn let_go(&self) {
        self.pace.open();
    }

    fn stream(&self, number: u32) -> Stream {
        self.player.streams[number as usize].id()
    }

    /// All operations, and the frees of what the program kept.
    pub(super) fn play(&mut self, progress: impl Fn(u64)) -> std::result::Result<(), Failure> {
        let recording = self.player.recording;
        // What else is done between the operations is no cost of the pool.
        let busy = self.task.lag > 0 || self.shares || self.canary.is_on() || self.task.curve;
        let mut shown = 0;
        for (group, ops) in recording.ops.chunks(GROUP).enumerate() {
            let first = group * GROUP;
            self.each = busy || group.is_multiple_of(SAMPLED);
            if self.each {
                ops.iter().enumerate().try_for_each(|(i, op)| self.step_and_see(first + i, op))?;
            } else {
                self.play_group(first, ops)?;
            }
            shown += ops.len();
            if shown >= SHOWN {
                progress(std::mem::take(&mut shown) as u64);
            }
        }
        progress(shown as u64);
        self.give_back().during("giving back what the program kept")
    }

    /// Operations that are timed together, with the reading of the recording and of what is held.
    fn play_group(&mut self, first: usize, ops: &[Op]) -> std::result::Result<(), Failure> {
        let (mut done, clock) = (0, self.ticks);
        let (played, ticks) = clock.time(|| {
            ops.iter().try_for_each(|op| {
                done += 1;
                self.step(op)
            })
        });
        played.map_err(|error| failed(first + done - 1, &error))?;
        self.grouped = (self.grouped.0 + ops.len() as u64, self.grouped.1 + u64::from(ticks));
        Ok(())
    }

    /// One operation, and what streams have to do with it.
    fn step_and_see(&mut self, i: usize, op: &Op) -> std::result::Result<(), Failure> {
        let lag = u64::from(self.task.lag).min(self.canary.most_lag());
        let every = (lag / GATES).max(1);
        if lag > 0 && (i as u64).is_multiple_of(every) {
            self.hold_back(i as u64 + every + lag).during("--lag")?;
        }
        self.step(op).map_err(|error| failed(i, &error))?;
        if lag > 0 || self.shares {
            self.pace.advance(i as u64 + 1);
            self.see_completed(i as u64 + 1);
        }
        if self.task.curve && i.is_multiple_of((self.player.recording.ops.len() / POINTS).max(1)) {
            self.note(i);
        }
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Result<()> {
        match *op {
            Op::Alloc { block, bytes, stream } => self.alloc(block, bytes, stream),
            Op::Free { block, until } => {
                let held = std::mem::replace(&mut self.held[block as usize], NOTHING);
                if held.address.is_null() {
                    return Ok(());
                }
                match until {
                    0 => self.canary.check(held.stream, block, &held)?,
                    until => self.share(block, &held, until)?,
                }
                self.time(|player| player.pool.free(held.address))?;
                if until > 0 { self.expect(&held, until) } else { Ok(()) }
            }
        }
    }

    /// Calls the pool.
    #[inline]
    fn time<T>(&mut self, call: impl FnOnce(&Player<'_>) -> T) -> T {
        if !self.each {
            return call(self.player);
        }
        let (result, ticks) = self.ticks.time(|| call(self.player));
        self.times.push(ticks);
        result
    }

    fn alloc(&mut self, block: u32, bytes: u64, stream: u32) -> Result<()> {
        self.canary.before_alloc()?;
        let id = self.stream(stream);
        match self.time(|player| player.pool.alloc(ByteSize(bytes), id)) {
            Ok(address) => {
                let held = Held { address, bytes, stream };
                self.held[block as usize] = held;
                self.canary.write(block, &held)
            }
            Err(error) if error.kind == Kind::OutOfDeviceMemory => {
                self.out_of_memory(&error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The program goes on without the block.
    fn out_of_memory(&mut self, error: &Error) {
        self.outcome.oom += 1;
        let why = || {
            let shortage = self.player.pool.shortage();
            let more = shortage.map(|s| format!("; reserved {}, of that free {}", s.reserved, s.free));
            format!("{error}{}", more.unwrap_or_default())
        };
        if self.outcome.first_oom.is_none() {
            self.outcome.first_oom = Some(why());
        }
    }

    /// Another stream is behind the block's own, uses the block until the host is so far, and checks it then.
    fn share(&mut self, block: u32, held: &Held, until: u32) -> Result<()> {
        let second = u32::from(held.stream == 0);
        let (own, other) = (self.stream(held.stream), self.stream(second));
        if self.canary.is_on() {
            self.canary.flush(held.stream)?;
            if self.baton.is_none() {
                self.baton = Some(Baton::new(self.player.driver, self.player.device)?);
            }
            if let Some(baton) = &mut self.baton {
                baton.pass(own, other)?;
            }
        }
        self.player.pool.record_stream(held.address, other)?;
        self.player.driver.streams().enqueue(other, self.pace.gate(u64::from(until)))?;
        self.canary.check(second, block, held)?;
        self.canary.flush(second)
    }

    /// Without lag, what another stream has to do with a freed block is over where the recording says so, however
    /// fast the replay is.
    fn expect(&mut self, held: &Held, until: u32) -> Result<()> {
        if self.task.lag > 0 {
            return Ok(());
        }
        let (passed, arrival) = channel();
        let stream = self.stream(u32::from(held.stream == 0));
        // Nobody listens any more where the replay has failed.
        let tell = move || {
            passed.send(()).ok();
        };
        self.player.driver.streams().enqueue(stream, Arc::new(tell))?;
        self.shared.push((u64::from(until), arrival));
        Ok(())
    }

    fn see_completed(&mut self, done: u64) {
        self.shared.retain(|(until, arrival)| {
            if *until > done {
                return true;
            }
            // A program would not sleep here: what comes next would find a cold core.
            let (asked, mut passed) = (Instant::now(), arrival.try_recv().is_ok());
            while !passed && asked.elapsed() < AWAKE {
                std::hint::spin_loop();
                passed = arrival.try_recv().is_ok();
            }
            if !passed && arrival.recv_timeout(ARRIVAL).is_err() {
                log::warn!("a stream did not pass a shared block in time");
            }
            false
        });
    }

    /// From here on, the streams go no further before the host has done so many operations.
    fn hold_back(&self, goal: u64) -> Result<()> {
        let streams = self.player.driver.streams();
        self.player.streams.iter().try_for_each(|stream| streams.enqueue(stream.id(), self.pace.gate(goal)))
    }

    fn note(&mut self, op: usize) {
        let bytes = self.player.pool.stats().bytes;
        self.outcome.curve.push(Point {
            op,
            requested: bytes.requested.current,
            allocated: bytes.allocated.current,
            reserved: bytes.reserved.current,
        });
    }

    /// What the program still had at the end is checked and freed, and counts as no operation.
    fn give_back(&mut self) -> Result<()> {
        for block in 0..self.held.len() {
            let held = std::mem::replace(&mut self.held[block], NOTHING);
            if !held.address.is_null() {
                self.canary.check(held.stream, block as u32, &held)?;
                self.player.pool.free(held.address)?;
            }
        }
        self.canary.before_alloc()
    }

    /// What was found, once the streams have been waited for.
    pub(super) fn finish(mut self) -> Result<Outcome> {
        self.outcome.canary_errors = self.canary.errors()?;
        let nanoseconds = self.ticks.nanoseconds();
        self.outcome.nanoseconds =
            self.times.iter().map(|&ticks| (f64::from(ticks) * nanoseconds) as f32).collect();
        self.outcome.grouped = (self.grouped.0, self.grouped.1 as f64 * nanoseconds);
        Ok(self.outcome)
    }
}

fn failed(operation: usize, error: &Error) -> Failure {
    Failure::of_call(&format!("operation {operation}"), error)
}

/// Lets one stream go on behind another.
struct Baton<'a> {
    driver: &'a dyn Driver,
    timeline: TimelineId,
    value: u64,
}

impl<'a> Baton<'a> {
    fn new(driver: &'a dyn Driver, device: &Device) -> Result<Self> {
        Ok(Self { driver, timeline: driver.timeline_create(device.ordinal())?, value: 0 })
    }

    fn pass(&mut self, from: Stream, to: Stream) -> Result<()> {
        self.value += 1;
        self.driver.timeline_write(from, self.timeline, self.value)?;
        self.driver.stream_wait(to, self.timeline, self.value)
    }
}

impl Drop for Baton<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.driver.timeline_destroy(self.timeline) {
            log::warn!("a timeline was not destroyed: {error}");
        }
    }
}
