//! One thread that replays a recording on streams of its own.

use super::canary::{Canary, Turn};
use super::recording::Recording;
use super::run::Run;
use crate::failure::{Context, Failure};
use crate::stream::CommandStream;
use gvmm::driver::Driver;
use gvmm::error::Result;
use gvmm::pool::Pool;
use gvmm::units::DevicePtr;
use gvmm::vm::Device;
use std::sync::Arc;

/// A block in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) address: DevicePtr,
    pub(super) bytes: u64,
    pub(super) stream: u32,
}

pub(super) const NOTHING: Held = Held { address: DevicePtr::NULL, bytes: 0, stream: 0 };

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
    /// What calls to the pool took that were timed each by itself.
    pub(super) nanoseconds: Vec<f32>,
    /// How many were timed in groups, and what they took together, in nanoseconds.
    pub(super) grouped: (u64, f64),
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
    /// There is one thread.
    pub(super) alone: bool,
    pub(super) canary: bool,
    pub(super) lag: u32,
    /// Whether points for a curve are taken.
    pub(super) curve: bool,
}

/// A thread's streams.
pub(super) struct Player<'a> {
    pub(super) device: &'a Arc<Device>,
    /// The device's driver, for calls that are not the pool's.
    pub(super) driver: &'a dyn Driver,
    pub(super) pool: &'a Pool,
    pub(super) recording: &'a Recording,
    pub(super) streams: Vec<CommandStream>,
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
        let blocks = self.recording.blocks;
        let streams = self.streams.iter().map(CommandStream::id).collect();
        let turn = Turn { number: task.turn, alone: task.alone, blocks, streams };
        let canary = if task.canary { Canary::new(self.device, turn)? } else { Canary::Off };
        let mut run = Run::new(self, task, canary);
        let played = run.play(progress);
        run.let_go();
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
