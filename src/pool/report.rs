//! What a pool says about itself.

use super::arena::Arena;
use super::ledger::Ledger;
use super::nodes::State;
use super::pool::Pool;
use super::size_class::UNIT;
use super::snapshot::{BlockInfo, BlockState, SegmentInfo, Snapshot};
use super::stats::{Bytes, Shortage, Stats, StreamStats};
use crate::units::ByteSize;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl Pool {
    /// Its figures.
    pub fn stats(&self) -> Stats {
        let arenas = self.stream_stats();
        let (calls, driver_ns) = *self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        Stats {
            bytes: self.bytes(&arenas),
            parts: [0, 1].map(|heap: usize| Bytes::join(arenas.iter().map(|arena| &arena.parts[heap]))),
            spare: ByteSize(self.spares().iter().map(|spare| spare.block.size().get()).sum()),
            address_space: self.addresses.figure(),
            limit: ByteSize(load(&self.limit)),
            lent_chunks: load(&self.lent),
            stream_waits: load(&self.stream_waits),
            host_waits: load(&self.host_waits),
            forced_trims: load(&self.forced_trims),
            out_of_memory: load(&self.out_of_memory),
            calls,
            driver_ns,
        }
    }

    fn bytes(&self, arenas: &[StreamStats]) -> Bytes {
        let mut bytes = Bytes::join(arenas.iter().map(|arena| &arena.bytes));
        if arenas.len() > 1 {
            let Bytes { allocated, requested, active, blocks, active_blocks, .. } = &mut bytes;
            for (figure, peak) in
                [allocated, requested, active, blocks, active_blocks].into_iter().zip(self.totals.peaks())
            {
                figure.peak = figure.peak.max(peak);
            }
        }
        // Chunks that lie ready are no stream's.
        Bytes { reserved: self.reserved.figure(), ..bytes }
    }

    /// Bytes in blocks that the program holds.
    pub fn in_use(&self) -> ByteSize {
        let plain = self.plain.iter().flat_map(|plain| plain.stats(self)).map(|s| s.bytes.allocated.current);
        ByteSize(self.table.all().map(|arena| arena.lock().ledger.allocated()).chain(plain).sum())
    }

    /// Pools of their own that have users.
    pub fn private_pools(&self) -> usize {
        self.capture.private_pools()
    }

    /// The figures of each (pool, stream).
    pub fn stream_stats(&self) -> Vec<StreamStats> {
        let of = |arena: &Arena| {
            let state = arena.lock();
            StreamStats {
                pool: self.capture.id(state.pool),
                stream: state.ended.is_none().then_some(state.stream),
                bytes: state.ledger.bytes(),
                parts: state.parts.map(|part| part.bytes()),
                lent: state.lent,
                address_space: ByteSize(arena.address_space()),
            }
        };
        let plain = self.plain.iter().flat_map(|plain| plain.stats(self));
        self.table.all().map(of).chain(plain).collect()
    }

    /// Peaks start again from what is now.
    pub fn reset_peaks(&self) {
        self.ever_used.fetch_max(self.most_used(), Ordering::Relaxed);
        for arena in self.table.all() {
            let mut state = arena.lock();
            state.ledger.reset();
            state.parts.iter_mut().for_each(Ledger::reset);
        }
        self.plain.iter().for_each(|plain| plain.reset_peaks());
        self.totals.reset();
        self.reserved.reset();
        self.addresses.reset();
    }

    /// The most that was in use, as far as it is known, since the pool was made.
    pub(super) fn most_used(&self) -> u64 {
        let arenas = self.table.all().map(|arena| arena.lock().ledger.active_peak());
        let now = arenas.max().unwrap_or_default().max(self.totals.peaks()[2]);
        now.max(self.ever_used.load(Ordering::Relaxed))
    }

    /// Why the last allocation failed for lack of memory or addresses, if one did.
    pub fn shortage(&self) -> Option<Shortage> {
        self.shortage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Segments, blocks, and events where they are kept.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for arena in self.table.all() {
            (0..2).for_each(|heap| self.picture(arena, heap, &mut snapshot.segments));
            let state = arena.lock();
            let stream = state.ended.is_none().then_some(state.stream);
            snapshot.events.extend(state.history.events(stream, self.capture.id(state.pool)));
        }
        self.plain.iter().for_each(|plain| plain.picture(self, &mut snapshot.segments));
        snapshot.segments.sort_by_key(|segment| segment.address);
        snapshot.events.sort_by_key(|event| event.number);
        snapshot
    }

    fn picture(&self, arena: &Arena, heap: usize, segments: &mut Vec<SegmentInfo>) {
        let mut state = arena.lock();
        let mut open: Option<SegmentInfo> = None;
        for piece in state.heaps[heap].pieces() {
            let block = match piece.state {
                State::Used => BlockState::Allocated,
                State::Pending => BlockState::Pending,
                State::Free | State::Resting | State::HeldFree => BlockState::Free,
                State::Hole | State::HeldHole | State::Cooling | State::Unused => {
                    segments.extend(open.take());
                    continue;
                }
            };
            let (address, bytes) = (arena.address(heap, piece.start), u64::from(piece.size) * UNIT);
            let segment = open.get_or_insert_with(|| SegmentInfo {
                pool: self.capture.id(state.pool),
                stream: state.ended.is_none().then_some(state.stream),
                address,
                size: ByteSize::ZERO,
                large: heap == 1,
                blocks: Vec::new(),
            });
            segment.size = ByteSize(segment.size.get() + bytes);
            let asked = if block == BlockState::Free { 0 } else { bytes - u64::from(piece.slack) };
            segment.blocks.push(BlockInfo {
                address,
                size: ByteSize(bytes),
                requested: ByteSize(asked),
                state: block,
            });
        }
        segments.extend(open);
    }
}
