//! The free parts of one piece of memory: first fit, neighbours joined. Pure.

use crate::units::Granularity;
use std::collections::BTreeMap;

/// Free ranges of addresses by their first one; no two touch.
#[derive(Debug)]
pub(super) struct FreeList {
    start: u64,
    end: u64,
    free: BTreeMap<u64, u64>,
}

impl FreeList {
    /// All of `start .. end` is free.
    pub(super) fn new(start: u64, end: u64) -> Self {
        Self { start, end, free: BTreeMap::from([(start, end)]) }
    }

    /// Takes `size` bytes at a multiple of `alignment` and gives their address.
    pub(super) fn take(&mut self, size: u64, alignment: Granularity) -> Option<u64> {
        let fits = |(&start, &end): (&u64, &u64)| {
            let at = alignment.round_up(crate::units::ByteSize(start))?.get();
            (at.checked_add(size)? <= end).then_some((start, end, at))
        };
        let (start, end, at) = self.free.iter().find_map(fits)?;
        self.free.remove(&start);
        self.insert(start, at);
        self.insert(at + size, end);
        Some(at)
    }

    /// Gives back `size` bytes at `at`, which [`take`](Self::take) gave.
    pub(super) fn give_back(&mut self, at: u64, size: u64) {
        let (mut start, mut end) = (at, at + size);
        if let Some((&before, _)) = self.free.range(..at).next_back().filter(|(_, e)| **e == at) {
            self.free.remove(&before);
            start = before;
        }
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        self.insert(start, end);
    }

    /// True where nothing is taken.
    pub(super) fn is_whole(&self) -> bool {
        self.free.get(&self.start) == Some(&self.end)
    }

    fn insert(&mut self, start: u64, end: u64) {
        if start < end {
            self.free.insert(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_apart_aligned_and_come_together_again(
            steps in prop::collection::vec((1u64..400, 0u32..8, any::<prop::sample::Index>(), any::<bool>()), 0..80),
        ) {
            let mut list = FreeList::new(512, 4096 + 512);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (size, shift, pick, give) in steps {
                if give && !taken.is_empty() {
                    let (at, size) = taken.swap_remove(pick.index(taken.len()));
                    list.give_back(at, size);
                    continue;
                }
                let alignment = Granularity::new(1 << shift).expect("a power of two");
                if let Some(at) = list.take(size, alignment) {
                    prop_assert!(at % (1 << shift) == 0 && at >= 512 && at + size <= 4096 + 512);
                    prop_assert!(taken.iter().all(|&(a, s)| at + size <= a || a + s <= at));
                    taken.push((at, size));
                }
            }
            prop_assert_eq!(list.is_whole(), taken.is_empty());
            for (at, size) in taken {
                list.give_back(at, size);
            }
            prop_assert!(list.is_whole());
            prop_assert_eq!(list.take(4096, Granularity::new(512).expect("a power of two")), Some(512));
        }
    }
}
