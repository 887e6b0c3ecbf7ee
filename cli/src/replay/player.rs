//! One thread that replays a recording on streams of its own.

use super::canary::Canary;
use super::pace::Pace;
use super::recording::{Op, Recording};
use super::ticks::Ticks;
use crate::failure::{Context, Failure};
use crate::stream::CommandStream;
use gvmm::driver::{Driver, Stream, TimelineId};
use gvmm::error::{Error, Kind, Result};
use gvmm::pool::Pool;
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::Device;
use std::sync::Arc;

/// Work that lags is held back at so many places for each length of the lag.
const GATES: u64 = 32;
/// How many points a curve has.
const POINTS: usize = 1000;
/// After so many operations the progress is shown.
const SHOWN: usize = 4096;

/// A block in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) address: DevicePtr,
    pub(super) bytes: u64,
    pub(super) stream: u32,
}

const NOTHING: Held = Held { address: DevicePtr::NULL, bytes: 0, stream: 0 };

/// What the pool holds at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) op: usize,
    pub(super) requested: u64,
    pub(super) allocated: u64,
    pub(super) reserved: u64,
}

/// What one thread found in one repetition.
#[derive(Default, Debug)]
pub(super) struct Outcome {
    /// What each call to the pool took.
    pub(super) nanoseconds: Vec<f32>,
    /// Allocations that failed for lack of memory.
    pub(super) oom: u64,
    pub(super) first_oom: Option<String>,
    pub(super) canary_errors: u64,
    pub(super) curve: Vec<Point>,
}

/// What a repetition is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// Tells repetitions and threads apart.
    pub(super) turn: usize,
    pub(super) canary: bool,
    pub(super) lag: u32,
    /// Whether points for a curve are taken.
    pub(super) curve: bool,
}

/// A thread's streams.
pub(super) struct Player<'a> {
    device: &'a Arc<Device>,
    /// The device's driver, for calls that are not the pool's.
    driver: &'a dyn Driver,
    pool: &'a Pool,
    recording: &'a Recording,
    streams: Vec<CommandStream>,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        device: &'a Arc<Device>,
        driver: &'a dyn Driver,
        pool: &'a Pool,
        recording: &'a Recording,
    ) -> Result<Self> {
        let streams = (0..recording.streams).map(|_| CommandStream::new(device)).collect::<Result<_>>()?;
        Ok(Self { device, driver, pool, recording, streams })
    }

    /// Replays all of it once, gives back what the program kept, and waits for the streams.
    pub(super) fn run(&self, task: Task, progress: impl Fn(u64)) -> std::result::Result<Outcome, Failure> {
        let (blocks, streams) = (self.recording.blocks, self.streams.len());
        let canary = match task.canary {
            true => Canary::new(self.device, task.turn, blocks, streams)?,
            false => Canary::Off,
        };
        let mut run = Run {
            player: self,
            task,
            canary,
            held: vec![NOTHING; blocks as usize],
            pace: Pace::new(),
            ticks: Ticks::start(),
            times: Vec::with_capacity(self.recording.ops.len()),
            baton: None,
            shared: Vec::new(),
            outcome: Outcome::default(),
        };
        let played = run.play(progress);
        run.pace.open();
        let waited = self.streams.iter().try_for_each(CommandStream::synchronize).during("streams");
        played.and(waited)?;
        self.pool.poll();
        run.finish().during("canaries")
    }
}

impl Drop for Player<'_> {
    /// Tells the pool that the streams end.
    fn drop(&mut self) {
        for stream in &self.streams {
            if let Err(error) = self.pool.forget_stream(stream.id()) {
                log::warn!("a stream ends, and the pool does not know: {error}");
            }
        }
    }
}

/// One repetition.
struct Run<'a> {
    player: &'a Player<'a>,
    task: Task,
    canary: Canary,
    held: Vec<Held>,
    pace: Arc<Pace>,
    ticks: Ticks,
    times: Vec<u32>,
    baton: Option<Baton<'a>>,
    /// Until when which stream uses a block that was freed.
    shared: Vec<(u64, Stream)>,
    outcome: Outcome,
}

impl Run<'_> {
    fn stream(&self, number: u32) -> Stream {
        self.player.streams[number as usize].id()
    }

    fn play(&mut self, progress: impl Fn(u64)) -> std::result::Result<(), Failure> {
        let ops = &self.player.recording.ops;
        let paced = self.task.lag > 0 || self.player.recording.shares();
        let every = (u64::from(self.task.lag) / GATES).max(1);
        for (i, op) in ops.iter().enumerate() {
            if self.task.lag > 0 && (i as u64).is_multiple_of(every) {
                self.hold_back(i as u64 + every + u64::from(self.task.lag)).during("--lag")?;
            }
            self.step(op).map_err(|error| Failure::of_call(&format!("operation {i}"), &error))?;
            if paced {
                self.pace.advance(i as u64 + 1);
                self.see_completed(i as u64 + 1).during("streams")?;
            }
            if self.task.curve && i.is_multiple_of((ops.len() / POINTS).max(1)) {
                self.note(i);
            }
            if (i + 1).is_multiple_of(SHOWN) {
                progress(SHOWN as u64);
            }
        }
        progress((ops.len() % SHOWN) as u64);
        self.give_back().during("giving back what the program kept")
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
                    0 => self.canary.check(self.stream(held.stream), block, &held)?,
                    until => self.share(block, &held, until)?,
                }
                let (freed, ticks) = self.ticks.time(|| self.player.pool.free(held.address));
                self.times.push(ticks);
                freed
            }
        }
    }

    fn alloc(&mut self, block: u32, bytes: u64, stream: u32) -> Result<()> {
        let id = self.stream(stream);
        let (address, ticks) = self.ticks.time(|| self.player.pool.alloc(ByteSize(bytes), id));
        match address {
            Ok(address) => {
                self.times.push(ticks);
                let held = Held { address, bytes, stream };
                self.held[block as usize] = held;
                self.canary.write(id, block, &held)
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
        let (own, other) = (self.stream(held.stream), self.stream(u32::from(held.stream == 0)));
        if self.canary.is_on() {
            self.canary.flush(held.stream, own)?;
            if self.baton.is_none() {
                self.baton = Some(Baton::new(self.player.driver, self.player.device)?);
            }
            if let Some(baton) = &mut self.baton {
                baton.pass(own, other)?;
            }
        }
        self.player.pool.record_stream(held.address, other)?;
        self.player.driver.streams().enqueue(other, self.pace.gate(u64::from(until)))?;
        self.shared.push((u64::from(until), other));
        self.canary.check(other, block, held)
    }

    /// Without lag, a free is complete where the recording says so, however fast the replay is.
    fn see_completed(&mut self, done: u64) -> Result<()> {
        if self.task.lag > 0 || self.shared.iter().all(|(until, _)| *until > done) {
            return Ok(());
        }
        let (over, still) = self.shared.drain(..).partition::<Vec<_>, _>(|(until, _)| *until <= done);
        self.shared = still;
        let streams = self.player.driver.streams();
        over.into_iter().try_for_each(|(_, stream)| streams.synchronize(stream))
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
                self.canary.check(self.stream(held.stream), block as u32, &held)?;
                self.player.pool.free(held.address)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Outcome> {
        self.outcome.canary_errors = self.canary.errors()?;
        let nanoseconds = self.ticks.nanoseconds();
        self.outcome.nanoseconds =
            self.times.iter().map(|&ticks| (f64::from(ticks) * nanoseconds) as f32).collect();
        Ok(self.outcome)
    }
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
