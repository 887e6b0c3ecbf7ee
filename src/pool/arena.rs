//! What one (pool, stream) has: two heaps over two segments, behind one lock.

use super::heap::Heap;
use super::history::History;
use super::ledger::Ledger;
use super::nodes::NIL;
use super::segment::{ChunkIndex, ExpandableSegment};
use super::size_class::{Class, UNIT, UNIT_SHIFT};
use super::snapshot::EventKind;
use super::totals::{Flushed, Totals};
use super::uses::Uses;
use crate::driver::Stream;
use crate::units::DevicePtr;
use crate::vm::{Mark, Quick, QuickGuard};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of the pool of an arena that waits for a new owner.
pub(super) const NO_POOL: u32 = u32::MAX;

/// How many allocations pass between looks at blocks that other streams use.
const LOOK_EVERY: u32 = 8;

/// In cache lines of its own: threads on different streams share nothing.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Arena {
    /// Whose it is, for looks without the lock; `State` decides.
    pool: AtomicU32,
    stream: AtomicU64,
    starts: [u64; 2],
    sizes: [u64; 2],
    pub(super) segments: [ExpandableSegment; 2],
    state: Quick<State>,
}

/// What changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) heaps: [Heap; 2],
    pub(super) pool: u32,
    pub(super) stream: Stream,
    /// It belongs to a pool that still has a graph: nothing of it moves.
    pub(super) private: bool,
    /// Its stream was forgotten; behind this mark nothing of it runs.
    pub(super) ended: Option<Arc<Mark>>,
    pub(super) ledger: Ledger,
    /// Of small and of large blocks.
    pub(super) parts: [Ledger; 2],
    pub(super) lent: (u64, u64),
    pub(super) uses: Uses,
    /// Freed blocks that other streams use.
    pub(super) pending: VecDeque<Pending>,
    /// Places whose chunks were taken and whose old view may still be used.
    pub(super) cooling: Vec<Cooling>,
    pub(super) history: History,
    starts: [u64; 2],
    flushed: Flushed,
    looks: u32,
}

/// A freed block that other streams use.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) heap: usize,
    pub(super) node: u32,
    pub(super) marks: Vec<Arc<Mark>>,
}

/// Places without chunks that cannot be used yet.
#[derive(Debug)]
pub(super) struct Cooling {
    pub(super) heap: usize,
    pub(super) places: Vec<Range<u32>>,
    pub(super) mark: Option<Arc<Mark>>,
}

impl Arena {
    pub(super) fn new(segments: [ExpandableSegment; 2], pool: u32, stream: Stream, history: History) -> Self {
        let heap = |i: usize| {
            let segment = &segments[i];
            Heap::new(segment.capacity(), (segment.chunk_size().get() >> UNIT_SHIFT) as u32, i == 0)
        };
        let starts = [0, 1].map(|i: usize| segments[i].range().start().get());
        let state = State {
            heaps: [heap(0), heap(1)],
            pool,
            stream,
            private: false,
            ended: None,
            ledger: Ledger::default(),
            parts: [Ledger::default(); 2],
            lent: (0, 0),
            uses: Uses::default(),
            pending: VecDeque::new(),
            cooling: Vec::new(),
            history,
            starts,
            flushed: Flushed::default(),
            looks: 0,
        };
        Self {
            pool: AtomicU32::new(pool),
            stream: AtomicU64::new(stream.0),
            starts,
            sizes: [0, 1].map(|i: usize| segments[i].range().size().get()),
            segments,
            state: Quick::new(state),
        }
    }

    /// Its one lock. Never held across a driver call.
    #[inline]
    pub(super) fn lock(&self) -> QuickGuard<'_, State> {
        self.state.lock()
    }

    /// Whether it looks like the arena of this pool and stream.
    #[inline]
    pub(super) fn is_of(&self, pool: u32, stream: Stream) -> bool {
        self.stream.load(Ordering::Relaxed) == stream.0 && self.pool.load(Ordering::Acquire) == pool
    }

    pub(super) fn pool(&self) -> u32 {
        self.pool.load(Ordering::Acquire)
    }

    /// Its stream has ended: it is found by its addresses only.
    pub(super) fn hide(&self) {
        self.pool.store(NO_POOL, Ordering::Release);
    }

    /// Gives it to another pool and stream.
    pub(super) fn rekey(&self, state: &mut State, pool: u32, stream: Stream) {
        (state.pool, state.stream, state.ended) = (pool, stream, None);
        self.stream.store(stream.0, Ordering::Relaxed);
        self.pool.store(pool, Ordering::Release);
    }

    /// The heap and the place in it of an address, which need not be a block's.
    #[inline]
    pub(super) fn locate(&self, address: DevicePtr) -> Option<(usize, u64)> {
        let large = address.get().wrapping_sub(self.starts[1]);
        if large < self.sizes[1] {
            return Some((1, large));
        }
        let small = address.get().wrapping_sub(self.starts[0]);
        (small < self.sizes[0]).then_some((0, small))
    }

    /// The address of a unit.
    #[inline]
    pub(super) fn address(&self, heap: usize, unit: u32) -> DevicePtr {
        DevicePtr(self.starts[heap] + u64::from(unit) * UNIT)
    }

    /// Chunks came to places or went from them: an event for each run of neighbours.
    pub(super) fn note_chunks(&self, state: &mut State, kind: EventKind, heap: usize, chunks: &[ChunkIndex]) {
        let segment = &self.segments[heap];
        for run in chunks.chunk_by(|one, next| one.0 + 1 == next.0) {
            state.history.add(kind, segment.address(run[0]), segment.chunk_size().get() * run.len() as u64);
        }
    }

    /// Bytes of its addresses.
    pub(super) fn address_space(&self) -> u64 {
        self.sizes[0] + self.sizes[1]
    }
}

impl State {
    /// A free block that fits, if there is one.
    #[inline]
    pub(super) fn alloc(&mut self, class: Class, totals: &Totals) -> Option<u32> {
        if !self.pending.is_empty() {
            self.look();
        }
        let unit = self.heaps[class.heap].alloc(class.units, class.slack)?;
        self.count_alloc(class, totals);
        Some(unit)
    }

    #[inline]
    pub(super) fn count_alloc(&mut self, class: Class, totals: &Totals) {
        let bytes = u64::from(class.units) * UNIT;
        let requested = bytes - u64::from(class.slack);
        self.ledger.hand_out(bytes, requested);
        self.parts[class.heap].hand_out(bytes, requested);
        self.flushed.follow(&self.ledger, totals);
    }

    /// Frees a block that only its own stream uses, and says how many bytes the program had asked for.
    #[inline]
    pub(super) fn free(&mut self, heap: usize, node: u32, totals: &Totals) -> u64 {
        let piece = self.heaps[heap].block(node);
        let bytes = u64::from(piece.size) * UNIT;
        self.heaps[heap].free(node);
        let requested = bytes - u64::from(piece.slack);
        self.ledger.give_up(bytes, requested);
        self.parts[heap].give_up(bytes, requested);
        self.flushed.follow(&self.ledger, totals);
        requested
    }

    /// Chunks come.
    pub(super) fn grow(&mut self, heap: usize, chunks: u64, bytes: u64) {
        self.ledger.grow(chunks, bytes);
        self.parts[heap].grow(chunks, bytes);
    }

    /// Chunks go.
    pub(super) const fn shrink(&mut self, heap: usize, chunks: u64, bytes: u64) {
        self.ledger.shrink(chunks, bytes);
        self.parts[heap].shrink(chunks, bytes);
    }

    /// The program gives up a block that other streams use; gives those streams.
    pub(super) fn leave(&mut self, heap: usize, node: u32, totals: &Totals) -> Vec<Stream> {
        let piece = self.heaps[heap].block(node);
        let streams = self.uses.take(self.heaps[heap].uses(node));
        self.heaps[heap].set_pending(node);
        let bytes = u64::from(piece.size) * UNIT;
        self.ledger.leave(bytes, bytes - u64::from(piece.slack));
        self.parts[heap].leave(bytes, bytes - u64::from(piece.slack));
        self.flushed.note_pending(&self.ledger);
        self.flushed.follow(&self.ledger, totals);
        streams
    }

    /// Nobody uses a pending block any more.
    pub(super) fn end_pending(&mut self, heap: usize, node: u32) {
        let piece = self.heaps[heap].block(node);
        let bytes = u64::from(piece.size) * UNIT;
        let address = DevicePtr(self.starts[heap] + u64::from(piece.start) * UNIT);
        self.history.add(EventKind::FreeCompleted, address, bytes - u64::from(piece.slack));
        self.heaps[heap].end_pending(node);
        self.ledger.settle(bytes);
        self.parts[heap].settle(bytes);
        self.flushed.note_pending(&self.ledger);
    }

    /// Now and then: whether the oldest pending blocks have come free. Reads memory, and takes no lock.
    #[cold]
    fn look(&mut self) {
        self.looks += 1;
        if self.looks < LOOK_EVERY {
            return;
        }
        self.looks = 0;
        while self.pending.front().is_some_and(Pending::has_passed) {
            if let Some(done) = self.pending.pop_front() {
                self.end_pending(done.heap, done.node);
            }
        }
    }

    /// Looks at everything that waits for streams.
    pub(super) fn look_at_all(&mut self) {
        for _ in 0..self.pending.len() {
            let Some(pending) = self.pending.pop_front() else { break };
            if pending.has_passed() {
                self.end_pending(pending.heap, pending.node);
            } else {
                self.pending.push_back(pending);
            }
        }
        let passed = |c: &Cooling| c.mark.as_ref().is_none_or(|mark| mark.passed().unwrap_or(false));
        let (done, left): (Vec<_>, Vec<_>) = self.cooling.drain(..).partition(passed);
        self.cooling = left;
        for cooling in done {
            for places in cooling.places {
                self.heaps[cooling.heap].end_cooling(places, false);
            }
        }
    }

    /// Its pool has several arenas from now on: it adds what it has.
    pub(super) fn add_to(&mut self, totals: &Totals) {
        self.flushed.flush(&self.ledger, totals);
    }

    /// Takes the oldest pending blocks, of `bytes` together if there are as many.
    pub(super) fn oldest_pending(&mut self, bytes: u64) -> VecDeque<Pending> {
        let (mut count, mut sum) = (0, 0);
        while sum < bytes
            && let Some(pending) = self.pending.get(count)
        {
            sum += u64::from(self.heaps[pending.heap].block(pending.node).size) * UNIT;
            count += 1;
        }
        let rest = self.pending.split_off(count);
        std::mem::replace(&mut self.pending, rest)
    }

    /// True where no block of it is in use.
    pub(super) const fn is_idle(&self) -> bool {
        self.ledger.active() == 0
    }

    /// The block in use that starts at a place.
    #[inline]
    pub(super) fn block_at(&self, heap: usize, offset: u64) -> Option<u32> {
        if offset & (UNIT - 1) != 0 {
            return None;
        }
        self.heaps[heap].block_at((offset >> UNIT_SHIFT) as u32)
    }

    /// Whether it belongs to this pool and stream, now that it is locked.
    #[inline]
    pub(super) fn is_of(&self, pool: u32, stream: Stream) -> bool {
        self.stream == stream && self.pool == pool && self.ended.is_none()
    }

    /// Notes that another stream uses a block.
    pub(super) fn share(&mut self, heap: usize, node: u32, stream: Stream) {
        if stream != self.stream || self.ended.is_some() {
            let uses = self.uses.add(self.heaps[heap].uses(node), stream);
            self.heaps[heap].set_uses(node, uses);
        }
    }

    /// True where other streams use a block.
    #[inline]
    pub(super) fn is_shared(&self, heap: usize, node: u32) -> bool {
        self.heaps[heap].uses(node) != NIL
    }
}

impl Pending {
    fn has_passed(&self) -> bool {
        self.marks.iter().all(|mark| mark.passed().unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Pool, Settings};
    use crate::config::HostConfig;
    use crate::driver::host::HostDriver;
    use crate::driver::testing::{Counts, Trace};
    use crate::driver::{Driver, Ordinal};
    use crate::units::ByteSize;
    use crate::vm::{Device, TAKEN};
    use std::sync::Arc;

    #[test]
    fn a_pair_takes_one_lock_twice_and_calls_no_driver() {
        let host = Arc::new(HostDriver::new(HostConfig::default(), None).expect("a host driver"));
        let trace = Arc::new(Trace::new(Arc::<HostDriver>::clone(&host)));
        let device = Device::open(Arc::<Trace>::clone(&trace), Ordinal(0)).expect("a device");
        let pool = Pool::new(&device, &Settings::default()).expect("a pool");
        let streams = [0, 1].map(|_| host.streams().create(Ordinal(0)).expect("a stream"));
        // Something on either side, and another stream that has some.
        let around = streams.map(|stream| [4096, 3 << 20].map(|bytes| pool.alloc(ByteSize(bytes), stream)));
        assert!(around.iter().flatten().all(Result::is_ok));
        let pair = |bytes| {
            let address = pool.alloc(ByteSize(bytes), streams[0]).expect("memory");
            pool.free(address).expect("in use");
        };
        for bytes in [512, 4096, 3 << 20] {
            // While sums are added more and more rarely.
            (0..20).for_each(|_| pair(bytes));
            let (locks, calls) = (TAKEN.get(), trace.counts());
            (0..100).for_each(|_| pair(bytes));
            assert_eq!(TAKEN.get() - locks, 200, "{bytes}");
            assert_eq!(trace.counts().since(&calls), Counts::default(), "{bytes}");
        }
    }
}
