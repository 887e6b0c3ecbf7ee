//! Canaries by kernels.

use super::Turn;
use crate::cuda::{Gpu, NONE, Work};
use crate::replay::player::Held;
use gvmm::error::Result;
use gvmm::vm::Device;

/// What is to be written and checked is kept back, so that few are launched: writes at most until their
/// block is freed, checks until the pool is asked for memory, before which it gives nothing to anybody.
pub(in crate::replay) struct OfGpu {
    gpu: Gpu,
    turn: Turn,
    /// For each stream; no two of them touch the same memory.
    kept: Vec<Vec<Work>>,
    /// Some of them are checks.
    checks: bool,
}

/// So many go into one launch.
const TOGETHER: usize = 16;
/// A queue holds about a thousand launches, and not every operation takes one.
pub(super) const MOST_LAG: u64 = 2000;

impl OfGpu {
    pub(super) fn new(device: &Device, turn: Turn) -> Result<Self> {
        let blocks = turn.blocks as usize;
        let gpu = Gpu::new(device.ordinal(), blocks, blocks)?;
        let seeds: Vec<u64> = (0..turn.blocks).map(|block| turn.seed(block).number()).collect();
        gpu.prepare(&seeds)?;
        Ok(Self { gpu, kept: vec![Vec::new(); turn.streams.len()], turn, checks: false })
    }

    pub(super) fn errors(&self) -> Result<u64> {
        Ok(self.gpu.counters()?.into_iter().filter(|words| *words > 0).count() as u64)
    }

    pub(super) fn write(&mut self, block: u32, held: &Held) -> Result<()> {
        self.keep(held.stream as usize, Work { write: block, ..work(block, held) })
    }

    pub(super) fn check(&mut self, stream: u32, block: u32, held: &Held) -> Result<()> {
        let stream = stream as usize;
        // One launch has no order in itself, so a block's own write goes before.
        if self.kept[stream].iter().any(|work| work.counter == block) {
            self.flush(stream)?;
        }
        self.keep(stream, Work { check: block, ..work(block, held) })?;
        self.checks = true;
        if self.turn.alone { Ok(()) } else { self.flush(stream) }
    }

    fn keep(&mut self, stream: usize, work: Work) -> Result<()> {
        self.kept[stream].push(work);
        if self.kept[stream].len() < TOGETHER { Ok(()) } else { self.flush(stream) }
    }

    pub(super) fn before_alloc(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.checks) {
            return Ok(());
        }
        (0..self.kept.len()).try_for_each(|stream| self.flush(stream))
    }

    pub(super) fn flush(&mut self, stream: usize) -> Result<()> {
        let kept = &mut self.kept[stream];
        if !kept.is_empty() {
            self.gpu.launch(self.turn.streams[stream], kept)?;
            kept.clear();
        }
        Ok(())
    }
}

fn work(block: u32, held: &Held) -> Work {
    Work {
        address: held.address.get(),
        bytes: held.bytes,
        check: NONE,
        write: NONE,
        counter: block,
        unused: 0,
    }
}
