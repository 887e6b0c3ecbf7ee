//! The pool where a device has no virtual memory: plain device memory, cached by size. Nothing grows or is cut; when
//! memory is short, whole blocks go from stream to stream behind a wait on the device, or back to the driver.

use super::Holder;
use super::ledger::Ledger;
use super::plain_books::{Block, Owner, Reach, State, heap, rounded};
use super::pool::{Pool, lock, record, unknown};
use super::snapshot::{BlockInfo, BlockState, SegmentInfo};
use super::stats::StreamStats;
use crate::driver::Stream;
use crate::error::{Kind, Result};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::{Mark, Owner as MadeFor};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Everything, behind one lock; no driver call is made while it is held.
#[derive(Debug, Default)]
pub(super) struct Plain(Mutex<State>);

/// What is done when memory is short, in this order.
#[derive(Clone, Copy)]
enum Step {
    Fold,
    Trim,
    Callbacks,
}

impl Plain {
    /// As [`Pool::alloc`], for the pool of number `number`.
    pub(super) fn alloc(
        &self,
        pool: &Pool,
        number: u32,
        stream: Stream,
        size: ByteSize,
    ) -> Result<DevicePtr> {
        let bytes = rounded(size.get());
        self.look(pool);
        let private = pool.capture.is_private(number);
        let owner = lock(&self.0).owner(number, stream, private);
        let captures = pool.captures();
        let may_wait = captures == Ok(0);
        if let Some(address) = self.reuse(pool, owner, bytes, size, Reach::Exact)? {
            return Ok(address);
        }
        if let Some(address) = self.create(pool, owner, bytes, size)? {
            return Ok(address);
        }
        let reaches: &[Reach] = if may_wait { &[Reach::Larger, Reach::Others] } else { &[Reach::Larger] };
        for reach in reaches {
            if let Some(address) = self.reuse(pool, owner, bytes, size, *reach)? {
                return Ok(address);
            }
        }
        for step in [Step::Fold, Step::Trim, Step::Callbacks] {
            let freed = match step {
                Step::Fold => may_wait && self.fold(pool),
                Step::Trim => may_wait && self.trim(pool) > 0,
                Step::Callbacks => pool.call_back(size),
            };
            if !freed {
                continue;
            }
            self.look(pool);
            for reach in reaches {
                if let Some(address) = self.reuse(pool, owner, bytes, size, *reach)? {
                    return Ok(address);
                }
            }
            match step {
                Step::Fold => continue,
                Step::Trim => pool.forced_trims.fetch_add(1, Ordering::Relaxed),
                Step::Callbacks => u64::from(may_wait && self.trim(pool) > 0),
            };
            if let Some(address) = self.create(pool, owner, bytes, size)? {
                return Ok(address);
            }
        }
        captures?;
        Err(pool.fail(size))
    }

    fn reuse(
        &self,
        pool: &Pool,
        owner: usize,
        bytes: u64,
        size: ByteSize,
        reach: Reach,
    ) -> Result<Option<DevicePtr>> {
        let (stream, address, old, mark) = {
            let mut state = lock(&self.0);
            let Some((address, old)) = state.take(owner, bytes, reach) else { return Ok(None) };
            (state.owners[owner].stream, address, old, state.mark(pool, old))
        };
        if old != owner {
            // What it holds was used by the old stream.
            if let Err(error) = pool.wait_for(stream, std::iter::once(&mark)) {
                let mut state = lock(&self.0);
                state.give(address, old);
                state.list(address);
                return Err(error);
            }
            pool.lent.fetch_add(1, Ordering::Relaxed);
        }
        lock(&self.0).hand_out(address, size.get());
        Ok(Some(DevicePtr(address)))
    }

    /// A new block; none where there is no memory for it.
    fn create(&self, pool: &Pool, owner: usize, bytes: u64, size: ByteSize) -> Result<Option<DevicePtr>> {
        if !pool.reserved.add_within(bytes, pool.limit.load(Ordering::Relaxed)) {
            return Ok(None);
        }
        let memory = match pool.device.allocate(ByteSize(bytes), &[], MadeFor::Library) {
            Ok(memory) => memory,
            Err(error) => {
                pool.reserved.undo(bytes);
                return if error.kind == Kind::OutOfDeviceMemory { Ok(None) } else { Err(error) };
            }
        };
        let (address, state) = (memory.address(), BlockState::Free);
        let mut all = lock(&self.0);
        let block =
            Block { memory, owner, requested: 0, state, uses: Vec::new(), marks: Vec::new(), pins: 0 };
        all.blocks.insert(address.get(), block);
        all.each(owner, bytes, |ledger| ledger.grow(1, bytes));
        all.hand_out(address.get(), size.get());
        Ok(Some(address))
    }

    /// As [`Pool::free`]; with `on`, that stream uses it too.
    pub(super) fn free(&self, pool: &Pool, address: DevicePtr, on: Option<Stream>) -> Result<()> {
        let mut state = lock(&self.0);
        let Some((start, block)) = state.over(address).filter(|(start, _)| *start == address.get()) else {
            return Err(unknown(address));
        };
        let (owner, size, requested) = (block.owner, block.memory.size().get(), block.requested);
        let mut uses = std::mem::take(&mut block.uses);
        let Owner { stream, ref ended, .. } = state.owners[owner];
        uses.extend(on.filter(|on| *on != stream || ended.is_some()));
        if uses.is_empty() {
            state.each(owner, size, |ledger| ledger.give_up(size, requested));
            state.list(start);
            return Ok(());
        }
        state.each(owner, size, |ledger| ledger.leave(size, requested));
        let marks: Vec<Arc<Mark>> = uses.iter().map(|stream| pool.device.mark(*stream)).collect();
        if let Some(block) = state.blocks.get_mut(&start) {
            (block.state, block.marks) = (BlockState::Pending, marks.clone());
        }
        state.pending.push(start);
        drop(state);
        marks.iter().for_each(|mark| record(&pool.device, mark));
        Ok(())
    }

    /// Makes the streams of pending blocks wait, on the device, for those that use them: they are free then.
    fn fold(&self, pool: &Pool) -> bool {
        let waiting: Vec<(u64, Stream, Vec<Arc<Mark>>)> = {
            let state = lock(&self.0);
            let of = |address: &u64| {
                let block = state.blocks.get(address)?;
                let owner = &state.owners[block.owner];
                let may = owner.ended.is_none() && !owner.private;
                may.then(|| (*address, owner.stream, block.marks.clone()))
            };
            state.pending.iter().filter_map(of).collect()
        };
        let mut folded = false;
        for (address, stream, marks) in waiting {
            if let Err(error) = pool.wait_for(stream, marks.iter()) {
                log::debug!("a block stays pending: {error}");
                continue;
            }
            folded |= lock(&self.0).settle_behind(address, &marks);
        }
        folded
    }

    pub(super) fn share(&self, address: DevicePtr, stream: Stream) -> Result<()> {
        let mut state = lock(&self.0);
        let Some((_, block)) = state.over(address) else { return Err(unknown(address)) };
        if !block.uses.contains(&stream) {
            block.uses.push(stream);
        }
        Ok(())
    }

    /// Start, size, stream and pool of the block in use that holds an address.
    pub(super) fn find(&self, address: DevicePtr) -> Option<(u64, u64, Stream, u32)> {
        let mut state = lock(&self.0);
        let (start, block) = state.over(address)?;
        let (owner, size) = (block.owner, block.memory.size().get());
        Some((start, size, state.owners[owner].stream, state.owners[owner].pool))
    }

    pub(super) fn look(&self, pool: &Pool) {
        let marks: Vec<Arc<Mark>> = {
            let state = lock(&self.0);
            let pending = state.pending.iter().filter_map(|address| state.blocks.get(address));
            pending.flat_map(|block| block.marks.iter().filter(|mark| !mark.is_recorded())).cloned().collect()
        };
        marks.iter().for_each(|mark| record(&pool.device, mark));
        lock(&self.0).look();
    }

    /// Gives free blocks back, once their streams have passed, and says how many bytes. The caller knows that nothing is
    /// captured.
    pub(super) fn trim(&self, pool: &Pool) -> u64 {
        self.look(pool);
        let gone: Vec<(Block, Arc<Mark>)> = {
            let mut state = lock(&self.0);
            let may_go = |(_, block): &(&u64, &Block)| {
                block.state == BlockState::Free && block.pins == 0 && !state.owners[block.owner].private
            };
            let addresses: Vec<u64> = state.blocks.iter().filter(may_go).map(|(at, _)| *at).collect();
            addresses.into_iter().filter_map(|address| self.remove(pool, &mut state, address)).collect()
        };
        let bytes = gone.iter().map(|(block, _)| block.memory.size().get()).sum();
        for (block, mark) in gone {
            record(&pool.device, &mark);
            pool.device.retire_value(Box::new(block.memory), block.marks.into_iter().chain([mark]).collect());
        }
        if bytes > 0
            && let Err(error) = pool.device.drain()
        {
            log::warn!("memory is given back later: {error}");
        }
        pool.reserved.sub(bytes);
        bytes
    }

    fn remove(&self, pool: &Pool, state: &mut State, address: u64) -> Option<(Block, Arc<Mark>)> {
        state.unlist(address);
        let block = state.blocks.remove(&address)?;
        let size = block.memory.size().get();
        state.each(block.owner, size, |ledger| ledger.shrink(1, size));
        let mark = state.mark(pool, block.owner);
        Some((block, mark))
    }

    pub(super) fn forget_stream(&self, stream: Stream, mark: &Arc<Mark>) {
        for owner in &mut lock(&self.0).owners {
            if owner.stream == stream && owner.ended.is_none() {
                owner.ended = Some(Arc::clone(mark));
            }
        }
    }

    pub(super) fn release(&self, number: u32) {
        lock(&self.0).owners.iter_mut().filter(|o| o.pool == number).for_each(|o| o.private = false);
    }

    /// The pools that have memory.
    pub(super) fn pools(&self) -> Vec<u32> {
        let state = lock(&self.0);
        state.blocks.values().map(|block| state.owners[block.owner].pool).collect()
    }

    /// The streams that have not ended.
    pub(super) fn streams(&self) -> Vec<Stream> {
        let state = lock(&self.0);
        state.owners.iter().filter(|owner| owner.ended.is_none()).map(|owner| owner.stream).collect()
    }

    /// Pins or unpins the block that has an address; none where there is no such block, false where it is not pinned.
    pub(super) fn pin(&self, address: DevicePtr, pin: bool) -> Option<bool> {
        let mut state = lock(&self.0);
        let (start, block) = state.blocks.range_mut(..=address.get()).next_back()?;
        if address.get() - start >= block.memory.size().get() {
            return None;
        }
        let pins = if pin { block.pins.checked_add(1) } else { block.pins.checked_sub(1) };
        block.pins = pins.unwrap_or(block.pins);
        Some(pins.is_some())
    }

    pub(super) fn active(&self) -> u64 {
        lock(&self.0).owners.iter().map(|owner| owner.ledger.active()).sum()
    }

    pub(super) fn reset_peaks(&self) {
        for owner in &mut lock(&self.0).owners {
            owner.ledger.reset();
            owner.parts.iter_mut().for_each(Ledger::reset);
        }
    }

    pub(super) fn stats(&self, pool: &Pool) -> Vec<StreamStats> {
        let of = |owner: &Owner| StreamStats {
            pool: pool.capture.id(owner.pool),
            stream: owner.ended.is_none().then_some(owner.stream),
            bytes: owner.ledger.bytes(),
            parts: owner.parts.map(|part| part.bytes()),
            lent: (0, 0),
            address_space: ByteSize::ZERO,
        };
        lock(&self.0).owners.iter().map(of).collect()
    }

    pub(super) fn holders(&self, pool: &Pool) -> Vec<Holder> {
        let of = |stats: StreamStats| Holder {
            pool: stats.pool,
            stream: stats.stream,
            allocated: ByteSize(stats.bytes.allocated.current),
            pending: ByteSize(stats.bytes.active.current - stats.bytes.allocated.current),
            free: ByteSize(stats.bytes.reserved.current - stats.bytes.active.current),
        };
        self.stats(pool).into_iter().map(of).collect()
    }

    /// Each block as a segment of its own.
    pub(super) fn picture(&self, pool: &Pool, segments: &mut Vec<SegmentInfo>) {
        let state = lock(&self.0);
        for (address, block) in &state.blocks {
            let (owner, size) = (&state.owners[block.owner], block.memory.size());
            let requested = if block.state == BlockState::Free { 0 } else { block.requested };
            let address = DevicePtr(*address);
            let info = BlockInfo { address, size, requested: ByteSize(requested), state: block.state };
            segments.push(SegmentInfo {
                pool: pool.capture.id(owner.pool),
                stream: owner.ended.is_none().then_some(owner.stream),
                address,
                size,
                large: heap(size.get()) == 1,
                blocks: vec![info],
            });
        }
    }

    /// The pool ends: its memory goes once what uses it has passed.
    pub(super) fn end(&self, pool: &Pool) {
        let mut state = std::mem::take(&mut *lock(&self.0));
        let addresses: Vec<u64> = state.blocks.keys().copied().collect();
        for address in addresses {
            if let Some((block, mark)) = self.remove(pool, &mut state, address) {
                record(&pool.device, &mark);
                let marks = block.marks.into_iter().chain([mark]).collect();
                pool.device.retire_value(Box::new(block.memory), marks);
            }
        }
    }
}
