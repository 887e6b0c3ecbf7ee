//! Figures over all streams. Arenas add what changed when it is much, so that they do not meet in one cache line at
//! each allocation.

use super::stats::Figure;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A change of more than this is added at once.
const MUCH: i64 = 1 << 20;

#[derive(Debug, Default)]
struct Total {
    current: AtomicI64,
    peak: AtomicI64,
}

impl Total {
    fn add(&self, change: i64) {
        let now = self.current.fetch_add(change, Ordering::Relaxed) + change;
        if change > 0 && now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }
}

/// Allocated, requested and active bytes of all arenas, without what they still owe.
#[derive(Debug, Default)]
pub(super) struct Totals {
    totals: [Total; 3],
}

impl Totals {
    /// The highest sums that were seen: allocated, requested, active.
    pub(super) fn peaks(&self) -> [u64; 3] {
        [0, 1, 2].map(|i: usize| self.totals[i].peak.load(Ordering::Relaxed).max(0) as u64)
    }

    pub(super) fn reset(&self) {
        for total in &self.totals {
            total.peak.store(total.current.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// What one arena has not added yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unflushed([i64; 3]);

impl Unflushed {
    #[inline]
    pub(super) fn add(&mut self, allocated: i64, requested: i64, active: i64, totals: &Totals) {
        self.0[0] += allocated;
        self.0[1] += requested;
        self.0[2] += active;
        if self.0[0].abs() >= MUCH || self.0[2].abs() >= MUCH {
            self.flush(totals);
        }
    }

    /// Active bytes that are added the next time.
    pub(super) const fn owe(&mut self, active: i64) {
        self.0[2] += active;
    }

    #[cold]
    fn flush(&mut self, totals: &Totals) {
        for (total, change) in totals.totals.iter().zip(std::mem::take(&mut self.0)) {
            total.add(change);
        }
    }
}

/// A figure that everybody changes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    current: AtomicU64,
    peak: AtomicU64,
}

impl Shared {
    pub(super) fn figure(&self) -> Figure {
        let current = self.current.load(Ordering::Relaxed);
        Figure { current, peak: self.peak.load(Ordering::Relaxed).max(current) }
    }

    /// Adds `n` where the sum stays within `limit`.
    pub(super) fn add_within(&self, n: u64, limit: u64) -> bool {
        let fits = |now: u64| now.checked_add(n).filter(|sum| *sum <= limit);
        match self.current.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(before) => {
                self.peak.fetch_max(before + n, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }

    pub(super) fn sub(&self, n: u64) {
        self.current.fetch_sub(n, Ordering::Relaxed);
    }

    pub(super) fn reset(&self) {
        self.peak.store(self.current.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
