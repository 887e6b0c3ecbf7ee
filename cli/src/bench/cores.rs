//! The core that the calling thread runs on: of those that it may use one that nobody else disturbs.
//!
//! On a machine that is shared, what a core shares with others makes host times differ by a half, for milliseconds or for
//! minutes, and not on all cores at once.

use super::quiet::{QUIET, us};
use super::spread::median;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How often the fixed work goes through its numbers.
const LOOPS: u64 = 1_000;
/// Samples on one core, of which the middle counts.
const SAMPLES: usize = 5;

/// The cores that the calling thread may use; it may use all of them again when this goes.
pub(super) struct Cores {
    /// None where it stays wherever the system puts it.
    allowed: Option<CpuSet>,
    /// What the fixed work took at least.
    pub(super) least: Cell<f64>,
}

impl Cores {
    /// Whoever has the host driver does not move: threads that are made meanwhile get the same core, and that driver's do
    /// the work.
    pub(super) fn new(moves: bool) -> Self {
        let unknown = |error: &_| log::debug!("this thread goes to no quiet core: {error}");
        let allowed = if moves { sched_getaffinity(None).inspect_err(unknown).ok() } else { None };
        let allowed = allowed.filter(|cores| cores.count() > 1);
        let cores = Self { allowed, least: Cell::new(f64::INFINITY) };
        let here = cores.sample();
        cores.search(here, false);
        cores
    }

    /// Stays where nothing disturbs, or goes where least does; true where that is nothing.
    pub(super) fn settle(&self) -> bool {
        let here = self.sample();
        self.is_quiet(here) || self.search(here, true)
    }

    /// Goes where least disturbs, beside `here`; to the first core that is quiet, where `is_enough`. True if it is.
    fn search(&self, here: f64, is_enough: bool) -> bool {
        let Some(allowed) = self.allowed else { return false };
        // Back to where it is now, if nothing is better.
        let mut best = (here, only(sched_getcpu()));
        for core in (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)) {
            let one = only(core);
            // It may be gone by now, or may not be asked for: the others remain.
            if sched_setaffinity(None, &one).is_err() {
                continue;
            }
            let there = self.sample();
            if there < best.0 {
                best = (there, one);
            }
            if is_enough && self.is_quiet(there) {
                return true;
            }
        }
        if let Err(error) = sched_setaffinity(None, &best.1) {
            log::debug!("this thread stays on the core where it is: {error}");
        }
        self.is_quiet(best.0)
    }

    fn is_quiet(&self, us: f64) -> bool {
        us <= self.least.get() * QUIET
    }

    fn sample(&self) -> f64 {
        let middle = median((0..SAMPLES).map(|_| fixed_us()).collect()).unwrap_or(0.0);
        self.least.set(self.least.get().min(middle));
        middle
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        if let Some(allowed) = &self.allowed
            && let Err(error) = sched_setaffinity(None, allowed)
        {
            log::warn!("this thread may not use all of its cores again: {error}");
        }
    }
}

/// A set of one core.
fn only(core: usize) -> CpuSet {
    let mut one = CpuSet::new();
    one.set(core);
    one
}

/// How long the fixed work takes now.
pub(super) fn fixed_us() -> f64 {
    let started = Instant::now();
    std::hint::black_box(fixed_work());
    us(started.elapsed())
}

/// Locked additions with independent ones between: a chain of dependent ones does not notice a busy sibling of the core.
fn fixed_work() -> u64 {
    let counter = AtomicU64::new(0);
    let mut sums = [0u64; 4];
    for i in 0..LOOPS {
        for (n, sum) in sums.iter_mut().enumerate() {
            *sum = std::hint::black_box(sum.wrapping_add(i ^ n as u64));
        }
        counter.fetch_add(1, Ordering::SeqCst);
    }
    counter.into_inner() ^ sums.into_iter().fold(0, |all, sum| all ^ sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> CpuSet {
        sched_getaffinity(None).expect("known")
    }

    #[test]
    fn it_stays_where_it_is_quiet_and_goes_elsewhere_where_it_is_not() {
        let before = allowed();
        let cores = Cores::new(true);
        let moves = cores.allowed.is_some();
        // Everything is quiet beside that.
        cores.least.set(f64::MAX);
        let there = allowed();
        assert!(cores.settle() && allowed() == there);
        // Nothing is: it is on one of its cores then.
        cores.least.set(0.0);
        assert!(!cores.settle());
        let now = allowed();
        assert_eq!(now.count(), if moves { 1 } else { before.count() });
        assert!((0..CpuSet::MAX_CPU).all(|core| !now.is_set(core) || before.is_set(core)));
        drop(cores);
        assert_eq!(allowed(), before);
        let stays = Cores::new(false);
        stays.least.set(0.0);
        assert!(!stays.settle() && allowed() == before);
    }
}
