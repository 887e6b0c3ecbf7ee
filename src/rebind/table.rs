//! A hash table of numbers that mean something to its user, who has their hashes and compares. Pure.

/// The numbers, each beside its hash, where the hash says or after that. Small, since most steps look into it while
/// their caches are cold.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The hash, and below it the number + 1; 0 where there is nothing. At most a third is taken, or two, so that
    /// most are found at once.
    places: Vec<u64>,
}

/// Spreads ids that are addresses, counters or keys over all hashes: the high half of a product.
pub(super) const fn hash(id: u64) -> u32 {
    (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

const fn hash_of(place: u64) -> u32 {
    (place >> 32) as u32
}

const fn number_of(place: u64) -> u32 {
    place as u32 - 1
}

impl Table {
    /// Empties it and makes room for `count` numbers below 2^32 - 1.
    pub(super) fn start(&mut self, count: usize) {
        self.start_with(count * 3);
    }

    /// The same in half the memory, for a count that is seldom reached.
    pub(super) fn start_small(&mut self, count: usize) {
        self.start_with(count + count / 2);
    }

    fn start_with(&mut self, places: usize) {
        let wanted = places.next_power_of_two().max(4);
        if self.places.len() < wanted {
            self.places = vec![0; wanted];
        } else {
            self.places.fill(0);
        }
    }

    /// Where a hash belongs: by its high bits, in which all bits of an address count, however it is aligned.
    #[inline]
    const fn home(&self, hash: u32) -> usize {
        ((hash as u64 * self.places.len() as u64) >> 32) as usize
    }

    const fn mask(&self) -> usize {
        self.places.len() - 1
    }

    /// The number with that hash which `is` says is the one.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.places.len().wrapping_sub(1);
        let mut at = self.home(hash);
        loop {
            match *self.places.get(at)? {
                0 => return None,
                place if hash_of(place) == hash && is(number_of(place)) => return Some(number_of(place)),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// The number with that hash which `is` says is the one; where there is none, adds `number`, for which there must
    /// be room.
    pub(super) fn find_or_add(&mut self, hash: u32, number: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.mask();
        let mut at = self.home(hash);
        loop {
            match self.places[at] {
                0 => {
                    self.places[at] = (u64::from(hash) << 32) | (u64::from(number) + 1);
                    return None;
                }
                place if hash_of(place) == hash && is(number_of(place)) => return Some(number_of(place)),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Takes a number out, if it is there.
    pub(super) fn remove(&mut self, hash: u32, number: u32) {
        let mask = self.mask();
        let wanted = (u64::from(hash) << 32) | (u64::from(number) + 1);
        let mut hole = self.home(hash);
        while self.places[hole] != wanted {
            if self.places[hole] == 0 {
                return;
            }
            hole = (hole + 1) & mask;
        }
        // What was pushed past the hole comes nearer to where its hash says.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let place = self.places[at];
            if place == 0 {
                break;
            }
            let home = self.home(hash_of(place));
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Few hashes, all at the end of the table, so that they collide and wrap around.
        #[test]
        fn it_agrees_with_a_map(moves in prop::collection::vec((0u32..16, 0u32..6), 0..200)) {
            let mut table = Table::default();
            table.start(16);
            let mut plain = BTreeMap::new();
            for (number, hash) in moves {
                let hash = u32::MAX - hash;
                match plain.remove(&number) {
                    Some(old) => table.remove(old, number),
                    None => {
                        prop_assert_eq!(table.find_or_add(hash, number, |n| n == number), None);
                        plain.insert(number, hash);
                    }
                }
                prop_assert_eq!(table.find(u32::MAX - 9, |_| true), None);
                for (number, hash) in &plain {
                    prop_assert_eq!(table.find(*hash, |n| n == *number), Some(*number));
                    prop_assert_eq!(table.find_or_add(*hash, 99, |n| n == *number), Some(*number));
                }
                prop_assert_eq!(table.places.iter().filter(|place| **place != 0).count(), plain.len());
            }
        }
    }
}
