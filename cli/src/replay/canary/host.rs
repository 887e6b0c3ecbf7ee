//! Canaries by functions on streams.
#![allow(unsafe_code, reason = "a block is touched through its address, in a function on its stream")]

use super::Turn;
use crate::pattern::Memory;
use crate::replay::player::Held;
use gvmm::driver::{Driver, HostFunction};
use gvmm::error::Result;
use gvmm::units::ByteSize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of a device that the host can touch.
pub(in crate::replay) struct OfHost {
    driver: Arc<dyn Driver>,
    turn: Turn,
    wrong: Arc<AtomicU64>,
}

impl OfHost {
    pub(super) fn new(driver: Arc<dyn Driver>, turn: Turn) -> Self {
        Self { driver, turn, wrong: Arc::default() }
    }

    pub(super) fn errors(&self) -> u64 {
        self.wrong.load(Ordering::Acquire)
    }

    pub(super) fn write(&self, block: u32, held: &Held) -> Result<()> {
        let (memory, seed) = (memory(held), self.turn.seed(block));
        self.enqueue(held.stream, Arc::new(move || memory.write(seed)))
    }

    pub(super) fn check(&self, stream: u32, block: u32, held: &Held) -> Result<()> {
        let (memory, seed, wrong) = (memory(held), self.turn.seed(block), Arc::clone(&self.wrong));
        let check = move || {
            if !memory.matches(seed) {
                wrong.fetch_add(1, Ordering::Release);
            }
        };
        self.enqueue(stream, Arc::new(check))
    }

    fn enqueue(&self, stream: u32, function: HostFunction) -> Result<()> {
        self.driver.streams().enqueue(self.turn.streams[stream as usize], function)
    }
}

fn memory(held: &Held) -> Memory {
    // SAFETY: it is touched on streams that use the block, between its allocation and its free in their order, and
    // that long the pool keeps it mapped; that nobody else touches it then is what is being checked.
    unsafe { Memory::new(held.address, ByteSize(held.bytes)) }.by_address()
}
