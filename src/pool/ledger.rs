//! What one arena counts: as little as can be in each allocation. Pure.

use super::stats::{Bytes, Figure};

/// Counts of one arena, or of one of its heaps.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ledger {
    allocated: Figure,
    requested: Figure,
    blocks: Figure,
    reserved: Figure,
    chunks: Figure,
    /// Bytes and blocks that were freed while other streams still use them.
    pending: [u64; 2],
    /// The most bytes and blocks that were active while some were pending.
    peaks: [u64; 2],
}

impl Ledger {
    /// The program gets a block.
    #[inline]
    pub(super) fn hand_out(&mut self, bytes: u64, requested: u64) {
        self.allocated.add(bytes);
        self.requested.add(requested);
        self.blocks.add(1);
        if self.pending[1] != 0 {
            self.note_active();
        }
    }

    /// The program gives up a block that nobody else uses.
    #[inline]
    pub(super) const fn give_up(&mut self, bytes: u64, requested: u64) {
        self.allocated.sub(bytes);
        self.requested.sub(requested);
        self.blocks.sub(1);
    }

    /// The program gives up a block that others use.
    pub(super) fn leave(&mut self, bytes: u64, requested: u64) {
        self.give_up(bytes, requested);
        self.pending = [self.pending[0] + bytes, self.pending[1] + 1];
        self.note_active();
    }

    /// Nobody uses such a block any more.
    pub(super) const fn settle(&mut self, bytes: u64) {
        self.pending = [self.pending[0] - bytes, self.pending[1] - 1];
    }

    #[cold]
    fn note_active(&mut self) {
        let now = [self.active(), self.blocks.current + self.pending[1]];
        self.peaks = [self.peaks[0].max(now[0]), self.peaks[1].max(now[1])];
    }

    /// Chunks come.
    pub(super) fn grow(&mut self, chunks: u64, bytes: u64) {
        self.chunks.add(chunks);
        self.reserved.add(bytes);
    }

    /// Chunks go.
    pub(super) const fn shrink(&mut self, chunks: u64, bytes: u64) {
        self.chunks.sub(chunks);
        self.reserved.sub(bytes);
    }

    /// Bytes that the program holds.
    #[inline]
    pub(super) const fn allocated(&self) -> u64 {
        self.allocated.current
    }

    /// Bytes that somebody may use.
    #[inline]
    pub(super) const fn active(&self) -> u64 {
        self.allocated.current + self.pending[0]
    }

    /// The most that this has been.
    pub(super) fn active_peak(&self) -> u64 {
        self.peaks[0].max(self.allocated.peak)
    }

    /// Allocations so far.
    pub(super) const fn allocations(&self) -> u64 {
        self.blocks.total
    }

    /// Allocated, requested and active bytes, blocks, and active blocks.
    pub(super) const fn sums(&self) -> [u64; 5] {
        let blocks = self.blocks.current;
        [self.allocated.current, self.requested.current, self.active(), blocks, blocks + self.pending[1]]
    }

    /// Peaks start again.
    pub(super) fn reset(&mut self) {
        let all = [
            &mut self.allocated,
            &mut self.requested,
            &mut self.blocks,
            &mut self.reserved,
            &mut self.chunks,
        ];
        all.into_iter().for_each(Figure::reset);
        self.peaks = [0; 2];
        self.note_active();
    }

    /// For people.
    pub(super) fn bytes(&self) -> Bytes {
        let active = |of: Figure, pending: u64, peak: u64| Figure {
            current: of.current + pending,
            peak: peak.max(of.peak),
            total: of.total,
        };
        Bytes {
            allocated: self.allocated,
            requested: self.requested,
            active: active(self.allocated, self.pending[0], self.peaks[0]),
            reserved: self.reserved,
            blocks: self.blocks,
            active_blocks: active(self.blocks, self.pending[1], self.peaks[1]),
            chunks: self.chunks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_bytes_and_their_peak_follow_what_is_pending() {
        let mut ledger = Ledger::default();
        ledger.hand_out(1024, 1000);
        ledger.hand_out(512, 512);
        ledger.leave(1024, 1000);
        ledger.hand_out(2048, 2048);
        let bytes = ledger.bytes();
        assert_eq!((bytes.allocated.current, bytes.active.current), (2560, 3584));
        assert_eq!((bytes.allocated.peak, bytes.active.peak, bytes.active.total), (2560, 3584, 3584));
        assert_eq!((bytes.blocks.current, bytes.active_blocks.current, bytes.active_blocks.peak), (2, 3, 3));
        ledger.settle(1024);
        ledger.give_up(2048, 2048);
        ledger.reset();
        let bytes = ledger.bytes();
        assert_eq!((bytes.active.current, bytes.active.peak, bytes.active_blocks.peak), (512, 512, 1));
        assert_eq!((bytes.requested.current, bytes.requested.total), (512, 3560));
    }
}
