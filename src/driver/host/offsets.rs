//! Which parts of the large file are free.

use std::collections::{BTreeMap, BTreeSet};

/// The free parts below the file's end; neighbours are always joined. Everything is logarithmic in their number.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    end: u64,
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Offsets {
    /// The end of what is in use: how long the file must be.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Takes `size` bytes: the smallest free part that fits, else new ones at the end; none past 2^64 − 1.
    pub(super) fn take(&mut self, size: u64) -> Option<u64> {
        if let Some(&(part, offset)) = self.by_size.range((size, 0)..).next() {
            self.remove(offset, part);
            if part > size {
                self.insert(offset + size, part - size);
            }
            return Some(offset);
        }
        let offset = self.end;
        self.end = offset.checked_add(size)?;
        Some(offset)
    }

    /// Gives back what `take` gave.
    pub(super) fn give(&mut self, mut offset: u64, mut size: u64) {
        if let Some(&after) = self.by_offset.get(&(offset + size)) {
            self.remove(offset + size, after);
            size += after;
        }
        let before = self.by_offset.range(..offset).next_back().map(|(&o, &s)| (o, s));
        if let Some((start, length)) = before.filter(|(start, length)| start + length == offset) {
            self.remove(start, length);
            (offset, size) = (start, size + length);
        }
        if offset + size == self.end {
            self.end = offset;
        } else {
            self.insert(offset, size);
        }
    }

    fn insert(&mut self, offset: u64, size: u64) {
        self.by_offset.insert(offset, size);
        self.by_size.insert((size, offset));
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(size, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_parts_are_reused_joined_and_leave_the_end() {
        let mut offsets = Offsets::default();
        let taken: Vec<_> = (0..4).map(|_| offsets.take(2)).collect();
        assert_eq!(taken, [Some(0), Some(2), Some(4), Some(6)]);
        offsets.give(0, 2);
        offsets.give(4, 2);
        assert_eq!(offsets.take(1), Some(0), "the first of the two smallest that fit");
        offsets.give(2, 2);
        assert_eq!(offsets.take(5), Some(1), "three parts joined");
        offsets.give(6, 2);
        offsets.give(1, 5);
        assert_eq!(offsets.end(), 1, "everything behind the one byte in use is the end again");
        offsets.give(0, 1);
        assert_eq!((offsets.end(), offsets.by_offset.len(), offsets.by_size.len()), (0, 0, 0));
    }

    #[test]
    fn more_than_there_is_gives_none() {
        let mut offsets = Offsets::default();
        assert_eq!(offsets.take(u64::MAX), Some(0));
        assert_eq!(offsets.take(1), None);
    }
}
