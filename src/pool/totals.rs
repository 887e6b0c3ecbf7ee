//! Figures over all streams. Arenas add what changed when it is much, so that they do not meet in one cache line at
//! each allocation.

use super::ledger::Ledger;
use super::stats::Figure;
use crate::vm::Quick;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A change of more than this, and a 64th of what there is, is added at once.
const MUCH: u64 = 1 << 20;
/// Where that comes about within so few allocations, a change must be twice as large from then on, up to `MOST`: else
/// threads that allocate and free a large block by turns would meet here each time.
const OFTEN: u64 = 16;
const MOST: u64 = 64 << 20;
const PART: u64 = 64;
/// Figures that are summed.
const FIGURES: usize = 5;

#[derive(Clone, Copy, Default, Debug)]
struct Total {
    current: i64,
    peak: i64,
}

impl Total {
    const fn add(&mut self, change: i64) {
        self.current += change;
        if self.current > self.peak {
            self.peak = self.current;
        }
    }
}

/// Allocated, requested and active bytes and blocks of all arenas, without what they still owe.
#[derive(Debug)]
pub(super) struct Totals {
    /// Behind one lock, which is taken where arenas are locked; it costs less than an atomic addition for each.
    totals: Quick<[Total; FIGURES]>,
    /// There is more than one arena; one alone knows its sums.
    several: AtomicBool,
}

impl Default for Totals {
    fn default() -> Self {
        Self { totals: Quick::new(Default::default()), several: AtomicBool::new(false) }
    }
}

impl Totals {
    /// The highest sums that were seen: allocated, requested, active, blocks, active blocks.
    pub(super) fn peaks(&self) -> [u64; FIGURES] {
        self.totals.lock().map(|total| total.peak.max(0) as u64)
    }

    pub(super) fn reset(&self) {
        self.totals.lock().iter_mut().for_each(|total| total.peak = total.current);
    }

    /// From here on, arenas add what they have.
    pub(super) fn set_several(&self) {
        self.several.store(true, Ordering::Relaxed);
    }
}

/// What one arena has added, and how far what it has allocated may move before it adds again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flushed {
    added: [u64; FIGURES],
    low: u64,
    span: u64,
    much: u64,
    /// Allocations when it added last.
    at: u64,
}

impl Default for Flushed {
    fn default() -> Self {
        Self { added: [0; FIGURES], low: 0, span: 0, much: MUCH, at: 0 }
    }
}

impl Flushed {
    /// Half of what may be owed: what is allocated may owe as much, and what is pending.
    const fn half(&self, now: u64) -> u64 {
        (self.much + now / PART) / 2
    }

    /// Adds what has changed, where that is much.
    #[inline]
    pub(super) fn follow(&mut self, ledger: &Ledger, totals: &Totals) {
        if ledger.allocated().wrapping_sub(self.low) > self.span {
            self.flush(ledger, totals);
        }
    }

    /// Something became pending, or ceased to be: where that is much, the next [`Self::follow`] adds it.
    pub(super) const fn note_pending(&mut self, ledger: &Ledger) {
        if ledger.active().abs_diff(self.added[2]) > self.half(ledger.active()) {
            (self.low, self.span) = (u64::MAX, 0);
        }
    }

    /// Adds what has changed, unless the arena is the only one.
    #[cold]
    pub(super) fn flush(&mut self, ledger: &Ledger, totals: &Totals) {
        if !totals.several.load(Ordering::Relaxed) {
            (self.low, self.span) = (0, u64::MAX);
            return;
        }
        let now = ledger.sums();
        for (total, (now, then)) in totals.totals.lock().iter_mut().zip(now.into_iter().zip(&mut self.added))
        {
            total.add(now.wrapping_sub(std::mem::replace(then, now)) as i64);
        }
        let allocations = ledger.allocations();
        if allocations - std::mem::replace(&mut self.at, allocations) < OFTEN {
            self.much = MOST.min(2 * self.much);
        }
        let half = self.half(now[0]);
        self.low = now[0].saturating_sub(half);
        self.span = now[0] + half - self.low;
    }
}

/// A figure that everybody changes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    current: AtomicU64,
    peak: AtomicU64,
    total: AtomicU64,
}

impl Shared {
    pub(super) fn figure(&self) -> Figure {
        let current = self.current.load(Ordering::Relaxed);
        let peak = self.peak.load(Ordering::Relaxed).max(current);
        Figure { current, peak, total: self.total.load(Ordering::Relaxed) }
    }

    /// Adds `n` where the sum stays within `limit`.
    pub(super) fn add_within(&self, n: u64, limit: u64) -> bool {
        let fits = |now: u64| now.checked_add(n).filter(|sum| *sum <= limit);
        match self.current.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(before) => {
                self.peak.fetch_max(before + n, Ordering::Relaxed);
                self.total.fetch_add(n, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }

    /// Takes back what was added for nothing.
    pub(super) fn undo(&self, n: u64) {
        self.sub(n);
        self.total.fetch_sub(n, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, n: u64) {
        self.current.fetch_sub(n, Ordering::Relaxed);
    }

    pub(super) fn reset(&self) {
        self.peak.store(self.current.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_added_a_few_times_only_and_what_stays_is_there() {
        let (totals, mut ledger, mut flushed) = (Totals::default(), Ledger::default(), Flushed::default());
        totals.set_several();
        let mut added = 0;
        for _ in 0..1000 {
            for take in [true, false] {
                let before = flushed.added;
                if take {
                    ledger.hand_out(8 << 20, 8 << 20)
                } else {
                    ledger.give_up(8 << 20, 8 << 20)
                }
                flushed.follow(&ledger, &totals);
                added += u32::from(flushed.added != before);
            }
        }
        assert!(added < 20, "{added} times");
        (0..32).for_each(|_| {
            ledger.hand_out(64 << 20, 64 << 20);
            flushed.follow(&ledger, &totals);
        });
        let (peak, is) = (totals.peaks()[0], 32 << 26);
        assert!(peak <= is && is - peak <= MOST + is / PART, "{peak}");
    }
}
