//! A clock for what takes a few dozen nanoseconds. What reading it costs is measured and taken off.
#![allow(unsafe_code, reason = "the processor's counter is read by an intrinsic")]

use std::time::Instant;

/// Where a span of time began, on both clocks.
#[derive(Clone, Copy)]
pub(super) struct Ticks {
    instant: Instant,
    start: u64,
    /// What two readings with nothing in between are apart.
    cost: u64,
}

impl Ticks {
    pub(super) fn start() -> Self {
        let mut empty: Vec<u64> = (0..1001).map(|_| now()).collect();
        empty = empty.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        empty.sort_unstable();
        Self { instant: Instant::now(), start: now(), cost: empty[empty.len() / 2] }
    }

    /// How long `run` takes, in ticks.
    #[inline]
    pub(super) fn time<T>(&self, run: impl FnOnce() -> T) -> (T, u32) {
        let start = now();
        let result = run();
        let ticks = now().wrapping_sub(start).saturating_sub(self.cost);
        (result, u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    /// Nanoseconds of a tick, by all the time that has passed since the start.
    pub(super) fn nanoseconds(&self) -> f64 {
        let (nanoseconds, ticks) = (self.instant.elapsed().as_nanos(), now().wrapping_sub(self.start));
        nanoseconds as f64 / (ticks.max(1)) as f64
    }
}

/// The processor's own counter, read after all that comes before and before all that comes after.
#[cfg(target_arch = "x86_64")]
#[inline]
fn now() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: the instruction is part of SSE2, which every x86-64 processor has; it only waits.
    unsafe { _mm_lfence() };
    // SAFETY: every x86-64 processor has the instruction, which reads a counter and touches nothing.
    let ticks = unsafe { _rdtsc() };
    // SAFETY: as above.
    unsafe { _mm_lfence() };
    ticks
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn now() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
