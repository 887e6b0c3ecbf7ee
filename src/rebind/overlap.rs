//! Finds copies that would write where something else of the same call is read or written. Pure.
//!
//! Copies in write shadows, copies out write callers' buffers. Shadows lie apart, so two things can go wrong: two
//! buffers that are written overlap, or a buffer lies over a shadow. The first is found by keeping the written
//! ones in order and merging those of a step's changed slots into it. The second is rare, and not always wrong (a
//! buffer may be its own shadow), so it is only noticed here, and the slices themselves are looked at then.

use crate::units::{ByteSize, DevicePtr, DeviceRange};

/// A buffer that copies out write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Written {
    start: u64,
    end: u64,
    slot: u32,
}

/// What is known of a layout's copies. One check is: [`start`](Self::start), [`look`](Self::look) at each slot that
/// changed, [`check`](Self::check), and once the step has begun [`accept`](Self::accept). A check that is not
/// accepted leaves no trace.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    /// Where the shadows are, in order; ours count as one.
    shadows: Vec<DeviceRange>,
    /// A buffer may lie over a shadow: from here on the slices are looked at.
    mixed: bool,
    written: Vec<Written>,
    /// The same as this check would have it, where it changes.
    next: Vec<Written>,
    fresh: Vec<Written>,
    /// Their order.
    keys: Vec<u64>,
    /// By slot, the last check that looked at it.
    seen: Vec<u64>,
    check: u64,
    changes: bool,
    mixes: bool,
}

impl Overlap {
    /// For `slots` slots, of which `outs` are copied out, with shadows in `shadows`.
    pub(super) fn new(slots: usize, outs: usize, mut shadows: Vec<DeviceRange>) -> Self {
        shadows.sort_unstable();
        let mixed = shadows.windows(2).any(|pair| pair[0].overlaps(pair[1]));
        let room = || Vec::with_capacity(outs);
        let (written, next, fresh) = (room(), room(), room());
        let (keys, seen) = (Vec::with_capacity(outs), vec![0; slots]);
        Self { shadows, mixed, written, next, fresh, keys, seen, ..Self::default() }
    }

    /// Starts a check.
    pub(super) fn start(&mut self) {
        self.check += 1;
        self.fresh.clear();
        (self.changes, self.mixes) = (false, false);
    }

    /// Looks at a copied slot whose buffer changed; false where the buffer passes the end of the addresses. A
    /// buffer that is its own shadow has no bytes to copy.
    #[inline]
    pub(super) fn look(&mut self, slot: u32, buffer: DevicePtr, bytes: ByteSize, written: bool) -> bool {
        if written {
            self.seen[slot as usize] = self.check;
            self.changes = true;
        }
        if bytes.is_zero() {
            return true;
        }
        let Some(range) = DeviceRange::new(buffer, bytes) else { return false };
        self.mixes |= self.over_shadow(range);
        if written {
            self.fresh.push(Written { start: range.start().get(), end: range.end().get(), slot });
        }
        true
    }

    #[inline]
    fn over_shadow(&self, range: DeviceRange) -> bool {
        let after = self.shadows.partition_point(|shadow| shadow.start() < range.end());
        after.checked_sub(1).is_some_and(|last| self.shadows[last].overlaps(range))
    }

    /// True where buffers may lie over shadows.
    pub(super) const fn is_mixed(&self) -> bool {
        self.mixed || self.mixes
    }

    /// Checks that no two buffers that are written overlap; gives a slot whose buffer does.
    pub(super) fn check(&mut self) -> Result<(), u32> {
        if !self.changes {
            return Ok(());
        }
        self.next.clear();
        let Self { written, next, fresh, keys, seen, check, .. } = self;
        let mask = sort(fresh, keys);
        let mut fresh = keys.iter().map(|key| fresh[(key & mask) as usize]).peekable();
        for &old in written.iter().filter(|old| seen[old.slot as usize] != *check) {
            while let Some(new) = fresh.next_if(|new| *new < old) {
                push(next, new)?;
            }
            push(next, old)?;
        }
        fresh.try_for_each(|new| push(next, new))
    }

    /// The step with what was looked at has begun.
    pub(super) fn accept(&mut self) {
        if self.changes {
            std::mem::swap(&mut self.written, &mut self.next);
        }
        self.mixed |= self.mixes;
        (self.changes, self.mixes) = (false, false);
    }
}

/// Puts them in order: each key has an index in the bits of the mask that is given. Numbers are sorted several times
/// faster than structs.
fn sort(fresh: &mut [Written], keys: &mut Vec<u64>) -> u64 {
    let starts = || fresh.iter().map(|new| new.start);
    let (low, high) = (starts().min().unwrap_or(0), starts().max().unwrap_or(0));
    let bits = usize::BITS - fresh.len().leading_zeros();
    keys.clear();
    if bits <= (high - low).leading_zeros() {
        keys.extend((0..).zip(starts()).map(|(i, start): (u64, u64)| (start - low) << bits | i));
        keys.sort_unstable();
    } else {
        fresh.sort_unstable();
        keys.extend(0..fresh.len() as u64);
    }
    (1 << bits) - 1
}

fn push(ordered: &mut Vec<Written>, next: Written) -> Result<(), u32> {
    if ordered.last().is_some_and(|last| last.end > next.start) {
        return Err(next.slot);
    }
    ordered.push(next);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, bytes: u64) -> DeviceRange {
        DeviceRange::new(DevicePtr(start), ByteSize(bytes)).expect("a range")
    }

    fn overlap(shadows: &[(u64, u64)]) -> Overlap {
        Overlap::new(16, 16, shadows.iter().map(|&(start, bytes)| range(start, bytes)).collect())
    }

    fn step(o: &mut Overlap, changed: &[(u32, u64, u64)]) -> Result<(), u32> {
        o.start();
        for &(slot, start, bytes) in changed {
            assert!(o.look(slot, DevicePtr(start), ByteSize(bytes), true));
        }
        o.check().inspect(|()| o.accept())
    }

    #[test]
    fn buffers_that_are_written_may_touch_and_no_more() {
        let mut o = overlap(&[]);
        assert_eq!(step(&mut o, &[(0, 100, 10), (1, 110, 10), (2, 90, 10)]), Ok(()));
        assert_eq!(step(&mut o, &[(3, 119, 1)]), Err(3));
        assert_eq!(step(&mut o, &[(3, 81, 10)]), Err(2), "the later one is named");
        assert_eq!(step(&mut o, &[(1, 100, 10), (0, 110, 10)]), Ok(()), "two swap");
        assert_eq!(step(&mut o, &[(1, 500, 10)]), Ok(()));
        assert_eq!(step(&mut o, &[(3, 100, 10)]), Ok(()), "where another was");
        assert_eq!(step(&mut o, &[(3, 100, 0), (4, 100, 10)]), Ok(()), "no bytes are in nobody's way");
    }

    #[test]
    fn a_refused_check_leaves_no_trace() {
        let mut o = overlap(&[(1000, 100)]);
        assert_eq!(step(&mut o, &[(0, 100, 10), (1, 200, 10)]), Ok(()));
        assert_eq!(step(&mut o, &[(0, 300, 10), (1, 305, 10), (2, 1000, 1)]), Err(1));
        assert!(!{
            o.start();
            o.is_mixed()
        });
        assert_eq!(step(&mut o, &[(2, 105, 1)]), Err(2));
        assert_eq!(step(&mut o, &[(2, 305, 1)]), Ok(()));
    }

    #[test]
    fn buffers_over_shadows_are_noticed_and_remembered() {
        let mut o = overlap(&[(2000, 10), (1000, 100)]);
        for (start, bytes, mixed) in
            [(990, 10, false), (1100, 900, false), (2010, 1, false), (2009, 1, true), (10, 10, true)]
        {
            assert_eq!(step(&mut o, &[(0, start, bytes)]), Ok(()));
            assert_eq!(o.is_mixed(), mixed, "{start}");
        }
        assert!(overlap(&[(100, 10), (109, 1)]).is_mixed(), "shadows over each other");
        let mut o = overlap(&[]);
        o.start();
        assert!(!o.look(0, DevicePtr(u64::MAX), ByteSize(2), false));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_search(
            steps in prop::collection::vec(prop::collection::btree_map(0u32..16, (1u64..200, 0u64..12), 0..8), 1..12),
            far in prop_oneof![3 => Just(0), 1 => Just(u64::MAX - 300)],
        ) {
            let mut o = overlap(&[]);
            let mut plain: std::collections::BTreeMap<u32, (u64, u64)> = Default::default();
            for mut changed in steps {
                changed.values_mut().filter(|(start, _)| start % 3 == 0).for_each(|(start, _)| *start += far);
                let mut after = plain.clone();
                after.extend(changed.iter());
                let meets = |(i, a): (&u32, &(u64, u64))| {
                    after.iter().any(|(j, b)| i != j && a.1 > 0 && b.1 > 0 && a.0 < b.0 + b.1 && b.0 < a.0 + a.1)
                };
                let clashes: Vec<u32> = after.iter().filter(|x| meets(*x)).map(|(i, _)| *i).collect();
                let list: Vec<_> = changed.iter().map(|(i, (start, bytes))| (*i, *start, *bytes)).collect();
                match step(&mut o, &list) {
                    Ok(()) => {
                        prop_assert!(clashes.is_empty());
                        plain = after;
                    }
                    Err(slot) => prop_assert!(clashes.contains(&slot)),
                }
            }
        }
    }
}
