//! What blocks are filled with, in stream order, so that memory given to two at once is seen.
#![allow(
    unsafe_code,
    reason = "the host touches a block through its address, in a function on the block's stream"
)]

use super::player::Held;
use crate::cuda::{Gpu, NONE, Work};
use crate::failure::{Context, Failure};
use crate::pattern::{Memory, Seed};
use gvmm::driver::{Capabilities, Driver, DriverKind, Stream};
use gvmm::error::Result;
use gvmm::units::ByteSize;
use gvmm::vm::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of one repetition of one thread, on which it stays.
pub(super) enum Canary {
    Off,
    Host(OfHost),
    Gpu(OfGpu),
}

impl Canary {
    /// `turn` tells repetitions and threads apart; there are `blocks` blocks and `streams` streams.
    pub(super) fn new(
        device: &Device,
        turn: usize,
        blocks: u32,
        streams: usize,
    ) -> std::result::Result<Self, Failure> {
        let needed = Capabilities::HOST_TOUCH.with(Capabilities::HOST_FUNCTIONS);
        if device.driver().kind() == DriverKind::CUDA {
            OfGpu::new(device, turn, blocks, streams).map(Self::Gpu).during("kernels for --canary")
        } else if device.capabilities().has(needed) {
            let (driver, wrong) = (Arc::clone(device.driver()), Arc::default());
            Ok(Self::Host(OfHost { driver, turn, wrong }))
        } else {
            Err(Failure::new("--canary: nothing can look at this device's memory: use --driver host or cuda"))
        }
    }

    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Enqueues the writing of a block on its stream.
    pub(super) fn write(&mut self, stream: Stream, block: u32, held: &Held) -> Result<()> {
        match self {
            Self::Off => Ok(()),
            Self::Host(host) => host.write(stream, block, held),
            Self::Gpu(gpu) => gpu.write(stream, block, held),
        }
    }

    /// Enqueues the checking of a block on a stream that is behind its writing.
    pub(super) fn check(&mut self, stream: Stream, block: u32, held: &Held) -> Result<()> {
        match self {
            Self::Off => Ok(()),
            Self::Host(host) => host.check(stream, block, held),
            Self::Gpu(gpu) => gpu.check(stream, block, held),
        }
    }

    /// Enqueues what was kept back of a stream, by number.
    pub(super) fn flush(&mut self, number: u32, stream: Stream) -> Result<()> {
        if let Self::Gpu(gpu) = self { gpu.flush(number as usize, stream) } else { Ok(()) }
    }

    /// How many blocks were wrong, once all streams have been waited for.
    pub(super) fn errors(&self) -> Result<u64> {
        match self {
            Self::Off => Ok(0),
            Self::Host(host) => Ok(host.wrong.load(Ordering::Acquire)),
            Self::Gpu(gpu) => {
                let counters = gpu.gpu.counters()?;
                Ok(counters.into_iter().filter(|words| *words > 0).count() as u64)
            }
        }
    }
}

fn seed(turn: usize, block: u32) -> Seed {
    Seed::of_input(turn, block as usize)
}

/// Functions on streams.
pub(super) struct OfHost {
    driver: Arc<dyn Driver>,
    turn: usize,
    wrong: Arc<AtomicU64>,
}

impl OfHost {
    fn write(&self, stream: Stream, block: u32, held: &Held) -> Result<()> {
        let (memory, seed) = (memory(held), seed(self.turn, block));
        self.driver.streams().enqueue(stream, Arc::new(move || memory.write(seed)))
    }

    fn check(&self, stream: Stream, block: u32, held: &Held) -> Result<()> {
        let (memory, seed, wrong) = (memory(held), seed(self.turn, block), Arc::clone(&self.wrong));
        let check = move || {
            if !memory.matches(seed) {
                wrong.fetch_add(1, Ordering::Release);
            }
        };
        self.driver.streams().enqueue(stream, Arc::new(check))
    }
}

fn memory(held: &Held) -> Memory {
    // SAFETY: it is touched on streams that use the block, between its allocation and its free in their order, and
    // that long the pool keeps it mapped; that nobody else touches it then is what is being checked.
    unsafe { Memory::new(held.address, ByteSize(held.bytes)) }.by_address()
}

/// Kernels: a stream's writes are kept back until one of its blocks is freed, and go together with that one's check.
pub(super) struct OfGpu {
    gpu: Gpu,
    kept: Vec<Vec<Work>>,
}

/// So many go into one launch.
const TOGETHER: usize = 16;

impl OfGpu {
    fn new(device: &Device, turn: usize, blocks: u32, streams: usize) -> Result<Self> {
        let gpu = Gpu::new(device.ordinal(), blocks as usize, blocks as usize)?;
        let seeds: Vec<u64> = (0..blocks).map(|block| seed(turn, block).number()).collect();
        gpu.prepare(&seeds)?;
        Ok(Self { gpu, kept: vec![Vec::new(); streams] })
    }

    fn write(&mut self, stream: Stream, block: u32, held: &Held) -> Result<()> {
        let kept = &mut self.kept[held.stream as usize];
        kept.push(Work { write: block, ..work(block, held) });
        if kept.len() < TOGETHER { Ok(()) } else { self.flush(held.stream as usize, stream) }
    }

    fn check(&mut self, stream: Stream, block: u32, held: &Held) -> Result<()> {
        let number = held.stream as usize;
        // One launch has no order in itself, so a block's own write goes before.
        if self.kept[number].iter().any(|work| work.counter == block) {
            self.flush(number, stream)?;
        }
        let mut together = std::mem::take(&mut self.kept[number]);
        together.push(Work { check: block, ..work(block, held) });
        self.gpu.launch(stream, &together)
    }

    fn flush(&mut self, number: usize, stream: Stream) -> Result<()> {
        let kept = std::mem::take(&mut self.kept[number]);
        if kept.is_empty() { Ok(()) } else { self.gpu.launch(stream, &kept) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{CostChoice, Joint, open_device};
    use crate::stream::CommandStream;
    use gvmm::vm::Owner;

    #[test]
    fn memory_given_to_two_at_once_is_seen() {
        let device =
            open_device(Some(DriverKind::HOST), CostChoice::None, 0, Joint::On).expect("the host driver");
        let memory = device.allocate(ByteSize::mib(2), &[], Owner::Caller).expect("memory");
        let stream = CommandStream::new(&device).expect("a stream");
        let at = |offset| memory.address().checked_add(ByteSize(offset)).expect("inside");
        let held = |offset, bytes| Held { address: at(offset), bytes, stream: 0 };
        let (first, second) = (held(512, 1 << 20), held(512 + (1 << 20), 512));
        let others =
            [(held(0, 512), 0), (held(0, 1024), 1), (held(60 << 10, 8 << 10), 1), (held(1 << 20, 1024), 2)];
        for (other, wrong) in others {
            let mut canary = Canary::new(&device, 0, 3, 1).expect("the host can look");
            let id = stream.id();
            canary.write(id, 0, &first).and_then(|()| canary.write(id, 1, &second)).expect("enqueued");
            canary.write(id, 2, &other).and_then(|()| canary.check(id, 2, &other)).expect("enqueued");
            canary.check(id, 0, &first).and_then(|()| canary.check(id, 1, &second)).expect("enqueued");
            stream.synchronize().expect("it runs");
            assert_eq!(canary.errors(), Ok(wrong), "{other:?}");
        }
    }
}
