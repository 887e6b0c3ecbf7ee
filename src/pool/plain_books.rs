//! The books of the pool without virtual memory: which blocks there are, whose, and in which state.

use super::ledger::Ledger;
use super::pool::Pool;
use super::settings::SMALL_LIMIT;
use super::size_class::UNIT;
use super::snapshot::BlockState;
use crate::driver::Stream;
use crate::units::DevicePtr;
use crate::vm::{Allocation, Mark};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct State {
    /// All that is held, by address.
    pub(super) blocks: BTreeMap<u64, Block>,
    /// Free ones by owner and size.
    pub(super) free: BTreeMap<(usize, u64), Vec<u64>>,
    /// Freed ones that other streams use.
    pub(super) pending: Vec<u64>,
    pub(super) owners: Vec<Owner>,
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) memory: Arc<Allocation>,
    pub(super) owner: usize,
    pub(super) requested: u64,
    pub(super) state: BlockState,
    /// Other streams that use it.
    pub(super) uses: Vec<Stream>,
    pub(super) marks: Vec<Arc<Mark>>,
    pub(super) pins: u32,
}

/// A pool and a stream.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) pool: u32,
    pub(super) stream: Stream,
    pub(super) ended: Option<Arc<Mark>>,
    pub(super) private: bool,
    pub(super) ledger: Ledger,
    pub(super) parts: [Ledger; 2],
}

/// Which free blocks an allocation may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The own stream's of this size.
    Exact,
    /// The own stream's that are larger, too.
    Larger,
    /// Any stream's, behind a wait.
    Others,
}

/// A block of up to so many times the size will do when memory is short; a larger one is given back instead.
const WASTE: u64 = 2;

/// Sizes by eighths of a power of two, so that what is cached fits again.
pub(super) const fn rounded(bytes: u64) -> u64 {
    let units = bytes.div_ceil(UNIT);
    let step = 1 << (63 - (units | 8).leading_zeros() - 3);
    units.div_ceil(step) * step * UNIT
}

pub(super) const fn heap(size: u64) -> usize {
    (size > SMALL_LIMIT.get()) as usize
}

impl State {
    pub(super) fn owner(&mut self, pool: u32, stream: Stream, private: bool) -> usize {
        let is_it = |o: &Owner| o.pool == pool && o.stream == stream && o.ended.is_none();
        if let Some(known) = self.owners.iter().position(is_it) {
            return known;
        }
        // One that is over and has nothing serves again.
        let is_over = |o: &Owner| o.ended.is_some() && o.ledger.bytes().reserved.current == 0;
        let Some(over) = self.owners.iter().position(is_over) else {
            let (ledger, parts) = (Ledger::default(), [Ledger::default(); 2]);
            self.owners.push(Owner { pool, stream, ended: None, private, ledger, parts });
            return self.owners.len() - 1;
        };
        let Owner { ledger, parts, .. } = self.owners[over];
        self.owners[over] = Owner { pool, stream, ended: None, private, ledger, parts };
        over
    }

    pub(super) fn each(&mut self, owner: usize, size: u64, change: impl Fn(&mut Ledger)) {
        let owner = &mut self.owners[owner];
        change(&mut owner.ledger);
        change(&mut owner.parts[heap(size)]);
    }

    /// Takes a free block for `owner`, and gives it with whose it was.
    pub(super) fn take(&mut self, owner: usize, size: u64, reach: Reach) -> Option<(u64, usize)> {
        let fits = |state: &Self, (key, list): (&(usize, u64), &Vec<u64>)| {
            let from = &state.owners[key.0];
            let ours =
                key.0 == owner || (reach == Reach::Others && !from.private && !state.owners[owner].private);
            let most = if reach == Reach::Exact { size } else { size.saturating_mul(WASTE) };
            (ours && (size..=most).contains(&key.1)).then(|| (key.1, list.last().copied()))
        };
        let best = self.free.iter().filter_map(|entry| fits(self, entry)).min()?;
        let address = best.1?;
        self.unlist(address);
        let block = self.blocks.get_mut(&address)?;
        // It is listed nowhere, so nobody else takes it.
        block.state = BlockState::Pending;
        let old = block.owner;
        self.give(address, owner);
        Some((address, old))
    }

    /// Makes a block another owner's.
    pub(super) fn give(&mut self, address: u64, owner: usize) {
        let Some(block) = self.blocks.get_mut(&address) else { return };
        let (old, size) = (std::mem::replace(&mut block.owner, owner), block.memory.size().get());
        if old != owner {
            self.each(old, size, |ledger| ledger.shrink(1, size));
            self.each(owner, size, |ledger| ledger.grow(1, size));
        }
    }

    /// A mark behind what an owner's stream has enqueued.
    pub(super) fn mark(&self, pool: &Pool, owner: usize) -> Arc<Mark> {
        let Owner { stream, ended, .. } = &self.owners[owner];
        ended.clone().unwrap_or_else(|| pool.device.mark(*stream))
    }

    /// Takes a free block out of its list.
    pub(super) fn unlist(&mut self, address: u64) {
        let Some(block) = self.blocks.get(&address) else { return };
        let key = (block.owner, block.memory.size().get());
        if let Some(list) = self.free.get_mut(&key) {
            list.retain(|other| *other != address);
            if list.is_empty() {
                self.free.remove(&key);
            }
        }
    }

    pub(super) fn list(&mut self, address: u64) {
        if let Some(block) = self.blocks.get_mut(&address) {
            block.state = BlockState::Free;
            let key = (block.owner, block.memory.size().get());
            self.free.entry(key).or_default().push(address);
        }
    }

    pub(super) fn hand_out(&mut self, address: u64, requested: u64) {
        let Some(block) = self.blocks.get_mut(&address) else { return };
        (block.state, block.requested) = (BlockState::Allocated, requested);
        let (owner, size) = (block.owner, block.memory.size().get());
        self.each(owner, size, |ledger| ledger.hand_out(size, requested));
    }

    /// The block that the program holds and that has an address.
    pub(super) fn over(&mut self, address: DevicePtr) -> Option<(u64, &mut Block)> {
        let (start, block) = self.blocks.range_mut(..=address.get()).next_back()?;
        let inside = address.get() - start < block.memory.size().get();
        (inside && block.state == BlockState::Allocated).then_some((*start, block))
    }

    /// Nobody uses a pending block any more.
    pub(super) fn settle(&mut self, address: u64) {
        let Some(block) = self.blocks.get_mut(&address) else { return };
        block.marks = Vec::new();
        let (owner, size) = (block.owner, block.memory.size().get());
        self.each(owner, size, |ledger| ledger.settle(size));
        self.list(address);
    }

    /// The same, unless it is no longer these marks that it waits for: it may have been used and freed again meanwhile.
    pub(super) fn settle_behind(&mut self, address: u64, marks: &[Arc<Mark>]) -> bool {
        let Some(at) = self.pending.iter().position(|other| *other == address) else { return false };
        let Some(block) = self.blocks.get(&address) else { return false };
        let same = block.marks.len() == marks.len()
            && block.marks.iter().zip(marks).all(|(mark, known)| Arc::ptr_eq(mark, known));
        if same {
            self.pending.swap_remove(at);
            self.settle(address);
        }
        same
    }

    pub(super) fn look(&mut self) {
        for address in std::mem::take(&mut self.pending) {
            let Some(block) = self.blocks.get(&address) else { continue };
            if block.marks.iter().all(|mark| mark.passed().unwrap_or(false)) {
                self.settle(address);
            } else {
                self.pending.push(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostConfig;
    use crate::driver::Ordinal;
    use crate::driver::host::HostDriver;
    use crate::units::ByteSize;
    use crate::vm::{Device, Owner as MadeFor};

    #[test]
    fn a_block_that_was_freed_again_meanwhile_waits_for_those_who_used_it_last() {
        let config =
            HostConfig { memory: 1 << 20, caps_off: vec!["virtual_memory".into()], ..HostConfig::default() };
        let driver = Arc::new(HostDriver::new(config, None).expect("a host driver"));
        let device = Device::open(driver, Ordinal(0)).expect("a device");
        let [first, second] = [1, 2].map(|stream| device.mark(Stream(stream)));
        let memory = device.allocate(ByteSize(4096), &[], MadeFor::Library).expect("memory");
        let (address, size, mut state) = (memory.address().get(), memory.size().get(), State::default());
        let owner = state.owner(0, Stream(3), false);
        state.each(owner, size, |ledger| {
            ledger.grow(1, size);
            ledger.hand_out(size, size);
            ledger.leave(size, size);
        });
        let (uses, marks) = (Vec::new(), vec![Arc::clone(&second)]);
        let block =
            Block { memory, owner, requested: size, state: BlockState::Pending, uses, marks, pins: 0 };
        state.blocks.insert(address, block);
        state.pending.push(address);
        assert!(
            !state.settle_behind(address, &[first]),
            "what was waited for is over, and somebody else came"
        );
        assert_eq!((state.pending.as_slice(), state.free.len()), (&[address][..], 0));
        assert!(state.settle_behind(address, &[second]));
        assert_eq!((state.pending.len(), state.free.len()), (0, 1));
    }

    #[test]
    fn sizes_are_rounded_by_an_eighth_at_most() {
        assert_eq!([1, 512, 513, 4096].map(rounded), [512, 512, 1024, 4096]);
        assert_eq!(
            [9 * 512, 17 * 512, (1 << 20) + 1].map(rounded),
            [9 * 512, 18 * 512, (1 << 20) + (1 << 17)]
        );
        for bytes in (1..40).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1]) {
            let size = rounded(bytes);
            assert!(size >= bytes && size - bytes < 512 + bytes / 8 && rounded(size) == size, "{bytes}");
        }
    }
}
