//! An allocation that no free block serves: where it goes, and what is done when memory is short, mildest first.

use super::arena::{Arena, Pending};
use super::heap::Heap;
use super::pool::Pool;
use super::size_class::Class;
use super::snapshot::EventKind;
use super::stats::{Holder, Shortage};
use super::supply::Lack;
use crate::driver::Stream;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::Mark;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// What is done when memory is short, in this order; each once an allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Nothing yet: new chunks, and free ones of others.
    Plain,
    /// Blocks that other streams still use are used again, behind a wait on the GPU.
    Fold,
    /// Free chunks of other sizes are given back, and streams that have ended are waited for: theirs are free then.
    Trim,
    /// The callbacks free what they can.
    Callbacks,
    /// That was all.
    Fail,
}

impl Step {
    const fn next(self) -> Self {
        match self {
            Self::Plain => Self::Fold,
            Self::Fold => Self::Trim,
            Self::Trim => Self::Callbacks,
            Self::Callbacks | Self::Fail => Self::Fail,
        }
    }
}

impl Pool {
    /// The slow half of an allocation.
    #[cold]
    pub(super) fn alloc_more(
        &self,
        class: Class,
        pool: u32,
        stream: Stream,
        size: ByteSize,
    ) -> Result<DevicePtr> {
        let mut step = Step::Plain;
        loop {
            let arena = self.arena(pool, stream)?;
            self.look(arena);
            let short = match self.try_alloc(arena, class, size) {
                Ok(address) => return Ok(address),
                Err(Lack::Failed(e)) => return Err(e),
                Err(Lack::Again) => continue,
                Err(Lack::Memory(bytes)) => bytes,
            };
            loop {
                step = step.next();
                let freed = match step {
                    Step::Plain | Step::Fail => return Err(self.fail(size)),
                    _ if step < Step::Callbacks && self.captures()? > 0 => false,
                    Step::Fold => self.fold_all(),
                    Step::Trim => self.trim_others(class.heap, short) | self.await_ended(),
                    Step::Callbacks => self.call_back(size),
                };
                if freed {
                    break;
                }
            }
        }
    }

    fn try_alloc(&self, arena: &Arena, class: Class, size: ByteSize) -> std::result::Result<DevicePtr, Lack> {
        let (heap, totals) = (class.heap, &self.totals);
        let mut state = arena.lock();
        let mut unit = state.alloc(class, totals);
        if unit.is_none() {
            let Some(held) = state.heaps[heap].hold(class.units) else {
                let mark = state.cooling.iter().find(|c| c.heap == heap).and_then(|c| c.mark.clone());
                drop(state);
                if let Some(mark) = mark
                    && self.captures()? == 0
                {
                    // Places whose old view is still used are all that is left: rare, as addresses are plenty.
                    mark.wait()?;
                    return Err(Lack::Again);
                }
                let hint = "no run of the stream's addresses is that long: use a longer segment";
                return Err(Error::new(Kind::OutOfAddressSpace, Operation::Allocate, hint).of(size).into());
            };
            drop(state);
            let backed = self.back(arena, heap, &held.missing);
            state = arena.lock();
            if let Err(lack) = backed {
                state.heaps[heap].release(&held);
                return Err(lack);
            }
            unit = Some(state.heaps[heap].commit(&held, class.slack));
            state.count_alloc(class, totals);
        }
        let address = arena.address(heap, unit.unwrap_or_default());
        state.history.add(EventKind::Alloc, address, size.get());
        Ok(address)
    }

    /// Makes the arena's stream wait, on the device, for those that use its freed blocks, which are free then: the
    /// oldest blocks of `bytes` together, so that the stream waits for no more than it must.
    pub(super) fn fold(&self, arena: &Arena, bytes: u64) -> bool {
        let (stream, mut pending) = {
            let mut state = arena.lock();
            if state.ended.is_some() || state.private {
                return false;
            }
            (state.stream, state.oldest_pending(bytes))
        };
        // The newest of a stream stands behind all older ones.
        let mut newest: Vec<&Arc<Mark>> = Vec::new();
        for mark in pending.iter().rev().flat_map(|p| &p.marks) {
            if !newest.iter().any(|known| known.stream() == mark.stream()) {
                newest.push(mark);
            }
        }
        let waits = self.wait_for(stream, newest.into_iter());
        let mut state = arena.lock();
        if let Err(e) = waits {
            log::debug!("blocks stay pending: {e}");
            pending.append(&mut state.pending);
            state.pending = pending;
            return false;
        }
        let folded = !pending.is_empty();
        for Pending { heap, node, .. } in pending {
            state.end_pending(heap, node);
        }
        folded
    }

    /// The same for all streams.
    fn fold_all(&self) -> bool {
        self.table.all().fold(false, |folded, arena| self.fold(arena, u64::MAX) | folded)
    }

    /// Waits, on the host, for streams that have ended while some of their free chunks could not be lent; nothing follows on
    /// them, so that it takes no longer than what they have enqueued.
    fn await_ended(&self) -> bool {
        let waits = |arena: &Arena| {
            let mark = {
                let mut state = arena.lock();
                let free = |heap: &mut Heap| !heap.whole_places().is_empty();
                let lends = !state.private && state.heaps.iter_mut().any(free);
                lends.then(|| state.ended.clone()).flatten()
            };
            let mark = mark.filter(|mark| !mark.passed().unwrap_or(false))?;
            Some(mark.wait().inspect_err(|e| log::debug!("chunks of a stream that ended stay: {e}")).is_ok())
        };
        self.table.all().filter_map(waits).fold(false, |any, waited| any | waited)
    }

    /// Gives back free chunks of the other size, at least `bytes` of them if there are as many.
    fn trim_others(&self, heap: usize, bytes: u64) -> bool {
        let (other, chunk) = (1 - heap, self.chosen.chunk[1 - heap]);
        if chunk == self.chosen.chunk[heap] {
            return false;
        }
        let wanted = bytes.div_ceil(chunk.get()) as usize;
        let mut hand: Vec<_> = self.spares().extract_if(.., |spare| spare.block.size() == chunk).collect();
        for arena in self.table.all() {
            let left = wanted.saturating_sub(hand.len());
            if left > 0 {
                self.harvest_from(arena, other, left, &mut hand);
            }
        }
        let given = !hand.is_empty();
        self.forced_trims.fetch_add(u64::from(given), Ordering::Relaxed);
        self.give_back(hand);
        given
    }

    /// Gives back chunks that are in nobody's segment, once their old views are gone, which is waited for.
    fn give_back(&self, hand: Vec<super::supply::Spare>) -> u64 {
        if hand.is_empty() {
            return 0;
        }
        let bytes = hand.iter().map(|spare| spare.block.size().get()).sum();
        drop(hand);
        if let Err(e) = self.device.drain() {
            log::warn!("chunks are given back later: {e}");
        }
        self.reserved.sub(bytes);
        bytes
    }

    /// Gives back chunks in which nothing is in use, and says how many bytes. Waits for the streams that used them.
    ///
    /// # Errors
    /// `StreamCapturing` while a stream is captured, and the driver's, where it cannot say.
    pub fn trim(&self) -> Result<ByteSize> {
        if self.captures()? > 0 {
            let hint = "nothing is given back while a stream is captured";
            return Err(Error::new(Kind::StreamCapturing, Operation::Release, hint));
        }
        if let Some(plain) = &self.plain {
            return Ok(ByteSize(self.counted(|| plain.trim(self))));
        }
        let given = self.counted(|| {
            let mut hand: Vec<_> = std::mem::take(&mut *self.spares());
            self.await_ended();
            for arena in self.table.all() {
                self.look(arena);
                (0..2).for_each(|heap| self.harvest_from(arena, heap, usize::MAX, &mut hand));
            }
            let given = self.give_back(hand);
            self.table.all().for_each(|arena| arena.lock().look_at_all());
            given
        });
        Ok(ByteSize(given))
    }

    pub(super) fn call_back(&self, size: ByteSize) -> bool {
        let callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // One that allocates all the same must not be called for that, and so on without end.
        if callbacks.is_empty() || IN_CALLBACK.replace(true) {
            return false;
        }
        callbacks.iter().for_each(|callback| callback(size));
        IN_CALLBACK.set(false);
        if self.captures() == Ok(0) {
            self.fold_all();
        }
        true
    }

    /// There is no memory.
    pub(super) fn fail(&self, size: ByteSize) -> Error {
        self.out_of_memory.fetch_add(1, Ordering::Relaxed);
        let hint = "the pool's memory is used up, lending included: free blocks, or raise the limit";
        Error::new(Kind::OutOfDeviceMemory, Operation::Allocate, hint).of(size)
    }

    /// Takes down who holds what, where an allocation failed for lack of memory or addresses.
    #[cold]
    pub(super) fn note_shortage(&self, error: &Error, size: ByteSize, stream: Stream) {
        if !matches!(error.kind, Kind::OutOfDeviceMemory | Kind::OutOfAddressSpace) {
            return;
        }
        // Where nothing lives of this stream, there is nobody to keep it.
        if let Some(arena) = self.table.all().find(|arena| arena.lock().stream == stream) {
            let kind = EventKind::OutOfMemory;
            arena.lock().history.add(kind, DevicePtr::NULL, size.get());
        }
        let mut holders: Vec<Holder> = self.table.all().map(|arena| self.holder(arena)).collect();
        holders.extend(self.plain.iter().flat_map(|plain| plain.holders(self)));
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.allocated));
        let [small, large] = self.chosen.segment;
        let shortage = Shortage {
            error: *error,
            asked: size,
            stream,
            reserved: ByteSize(self.reserved.figure().current),
            limit: ByteSize(self.limit.load(Ordering::Relaxed)),
            free: ByteSize(holders.iter().map(|holder| holder.free.get()).sum()),
            lent_chunks: self.lent.load(Ordering::Relaxed),
            addresses: ByteSize(self.addresses.figure().current),
            address_limit: ByteSize(self.chosen.address_limit),
            addresses_of_stream: ByteSize(small.get() + large.get()),
            captures: self.captures().unwrap_or_default(),
            holders,
        };
        *self.shortage.lock().unwrap_or_else(PoisonError::into_inner) = Some(shortage);
    }

    fn holder(&self, arena: &Arena) -> Holder {
        let state = arena.lock();
        let units: u64 = state.heaps.iter().map(|heap| heap.free_units()).sum();
        Holder {
            pool: self.capture.id(state.pool),
            stream: state.ended.is_none().then_some(state.stream),
            allocated: ByteSize(state.ledger.allocated()),
            pending: ByteSize(state.ledger.active() - state.ledger.allocated()),
            free: ByteSize(units * super::size_class::UNIT),
        }
    }
}
