//! What blocks are filled with, in stream order, so that memory given to two at once is seen.

mod gpu;
mod host;

use super::player::Held;
use crate::failure::{Context, Failure};
use crate::pattern::Seed;
use gpu::OfGpu;
use gvmm::driver::{Capabilities, DriverKind, Stream};
use gvmm::error::Result;
use gvmm::vm::Device;
use host::OfHost;
use std::sync::Arc;

/// Of one repetition of one thread, on which it stays. Streams are named by their numbers.
pub(super) enum Canary {
    Off,
    Host(OfHost),
    Gpu(Box<OfGpu>),
}

/// What tells one thread's repetition from others.
pub(super) struct Turn {
    /// Of all turns.
    pub(super) number: usize,
    /// No other thread asks the pool for memory meanwhile.
    pub(super) alone: bool,
    pub(super) blocks: u32,
    pub(super) streams: Vec<Stream>,
}

impl Canary {
    pub(super) fn new(device: &Device, turn: Turn) -> std::result::Result<Self, Failure> {
        let needed = Capabilities::HOST_TOUCH.with(Capabilities::HOST_FUNCTIONS);
        if device.driver().kind() == DriverKind::CUDA {
            OfGpu::new(device, turn).map(|gpu| Self::Gpu(Box::new(gpu))).during("kernels for --canary")
        } else if device.capabilities().has(needed) {
            Ok(Self::Host(OfHost::new(Arc::clone(device.driver()), turn)))
        } else {
            Err(Failure::new("--canary: nothing can look at this device's memory: use --driver host or cuda"))
        }
    }

    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }

    /// How far streams may lag: where more is enqueued than a GPU's queue holds, the host waits for the GPU.
    pub(super) fn most_lag(&self) -> u64 {
        if matches!(self, Self::Gpu(_)) { gpu::MOST_LAG } else { u64::MAX }
    }

    /// Enqueues the writing of a block on its stream.
    pub(super) fn write(&mut self, block: u32, held: &Held) -> Result<()> {
        match self {
            Self::Off => Ok(()),
            Self::Host(host) => host.write(block, held),
            Self::Gpu(gpu) => gpu.write(block, held),
        }
    }

    /// Enqueues the checking of a block on a stream that is behind its writing, at the latest when the pool is asked
    /// for memory.
    pub(super) fn check(&mut self, stream: u32, block: u32, held: &Held) -> Result<()> {
        match self {
            Self::Off => Ok(()),
            Self::Host(host) => host.check(stream, block, held),
            Self::Gpu(gpu) => gpu.check(stream, block, held),
        }
    }

    /// Enqueues the checks that were kept back.
    #[inline]
    pub(super) fn before_alloc(&mut self) -> Result<()> {
        match self {
            Self::Gpu(gpu) => gpu.before_alloc(),
            _ => Ok(()),
        }
    }

    /// Enqueues what was kept back of a stream.
    pub(super) fn flush(&mut self, stream: u32) -> Result<()> {
        if let Self::Gpu(gpu) = self { gpu.flush(stream as usize) } else { Ok(()) }
    }

    /// How many blocks were wrong, once all streams have been waited for.
    pub(super) fn errors(&self) -> Result<u64> {
        match self {
            Self::Off => Ok(0),
            Self::Host(host) => Ok(host.errors()),
            Self::Gpu(gpu) => gpu.errors(),
        }
    }
}

impl Turn {
    fn seed(&self, block: u32) -> Seed {
        Seed::of_input(self.number, block as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{CostChoice, Joint, open_device};
    use crate::stream::CommandStream;
    use gvmm::units::ByteSize;
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
            let turn = Turn { number: 0, alone: true, blocks: 3, streams: vec![stream.id()] };
            let mut canary = Canary::new(&device, turn).expect("the host can look");
            canary.write(0, &first).and_then(|()| canary.write(1, &second)).expect("enqueued");
            canary.write(2, &other).and_then(|()| canary.check(0, 2, &other)).expect("enqueued");
            canary.check(0, 0, &first).and_then(|()| canary.check(0, 1, &second)).expect("enqueued");
            stream.synchronize().expect("it runs");
            assert_eq!(canary.errors(), Ok(wrong), "{other:?}");
        }
    }
}
