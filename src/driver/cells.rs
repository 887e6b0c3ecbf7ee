//! Where streams write the values of timelines: cells of pinned memory that only ever rise.
#![allow(unsafe_code, reason = "reads the pinned memory that streams write")]

use std::sync::atomic::{AtomicU64, Ordering};

/// The highest number in a cell: streams compare cyclically, so it must not look negative.
pub(super) const TOP: u64 = i64::MAX as u64;

/// Where the host reads a timeline's value without a call.
#[derive(Clone, Copy, Debug)]
pub struct TimelineCell {
    pub(super) host: u64,
    pub(super) base: u64,
}

impl TimelineCell {
    /// The value now, as [`crate::driver::Driver::timeline_read`] gives it.
    ///
    /// # Safety
    /// The driver that gave it lives. Of a timeline that was destroyed, the answer says nothing.
    #[inline]
    pub unsafe fn read(&self) -> u64 {
        lowered(self.base, cell(self.host).load(Ordering::Acquire))
    }
}

/// The value at an address of a pool's page.
pub(super) fn cell(host: u64) -> &'static AtomicU64 {
    // SAFETY: the address came from a pool, whose pages are aligned, and stay until the driver is dropped, after
    // which no timeline exists to read; streams and host write it whole.
    unsafe { AtomicU64::from_ptr(host as *mut u64) }
}

/// What a cell holds when the value is `value`.
pub(super) const fn raised(base: u64, value: u64) -> u64 {
    let sum = base.saturating_add(value);
    if sum < TOP { sum } else { TOP }
}

/// The value when a cell holds `seen`.
pub(super) const fn lowered(base: u64, seen: u64) -> u64 {
    if seen < TOP { seen.saturating_sub(base) } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_used_again_only_rises() {
        let base = raised(0, 41);
        assert_eq!((raised(base, 1), lowered(base, 42), lowered(base, base)), (42, 1, 0));
        // A stream that still waits for an old value is let go by whatever the cell holds now.
        assert!(raised(base, 0) >= raised(0, 41));
    }

    #[test]
    fn the_highest_value_reaches_every_wait() {
        assert_eq!(raised(7, u64::MAX), TOP);
        assert_eq!(lowered(7, TOP), u64::MAX);
        assert!((TOP.wrapping_sub(raised(7, 5))) as i64 >= 0);
    }
}
