//! Free pieces by size, found in near-constant time: lists by size, a bit for each list that has any, and a bit for
//! each word of those bits. Pure.
//!
//! Up to [`EXACT`] units each size has a list; above, each power of two is cut into [`PARTS`] lists, so that sizes
//! in one list differ by less than 1.6 %. The fitting list and the first non-empty one above it are looked through
//! for a few pieces, for the smallest that fits.

use super::nodes::{NIL, Node, Nodes};

const EXACT_BITS: u32 = 11;
/// Sizes above this have lists of their own.
const EXACT: u32 = 1 << EXACT_BITS;
const PARTS_BITS: u32 = 6;
/// Lists for each power of two.
const PARTS: u32 = 1 << PARTS_BITS;
/// More than there are, so that every index of 12 bits is one.
const LISTS: usize = 1 << 12;
const WORDS: usize = LISTS / 64;
/// Pieces looked at in one list.
const LOOKS: u32 = 8;
/// And so many more where none of those fits, if a list above has pieces that do.
const MISSES: u32 = 24;

/// The lists.
#[derive(Debug)]
pub(super) struct FreeIndex {
    heads: Box<[u32; LISTS]>,
    words: Box<[u64; WORDS]>,
    top: u64,
}

const _: () = assert!(WORDS <= 64, "one word holds a bit for each word");
const _: () = assert!(list_of(u32::MAX) < LISTS);

/// The list of pieces of `units`.
#[inline]
const fn list_of(units: u32) -> usize {
    if units < EXACT {
        return units as usize;
    }
    let power = 31 - units.leading_zeros();
    // The highest bit comes along.
    let part = (units >> (power - PARTS_BITS)) - PARTS;
    (EXACT + ((power - EXACT_BITS) << PARTS_BITS) + part) as usize
}

impl FreeIndex {
    pub(super) fn new() -> Self {
        Self { heads: Box::new([NIL; LISTS]), words: Box::new([0; WORDS]), top: 0 }
    }

    #[inline]
    pub(super) fn insert(&mut self, nodes: &mut Nodes, i: u32) {
        let list = list_of(nodes[i].size) % LISTS;
        nodes.push(&mut self.heads[list], i);
        self.words[list / 64] |= 1 << (list % 64);
        self.top |= 1 << (list / 64);
    }

    #[inline]
    pub(super) fn remove(&mut self, nodes: &mut Nodes, i: u32) {
        self.remove_from(list_of(nodes[i].size), nodes, i);
    }

    /// The same where its list is known.
    #[inline]
    pub(super) fn remove_from(&mut self, list: usize, nodes: &mut Nodes, i: u32) {
        let list = list % LISTS;
        nodes.pull(&mut self.heads[list], i);
        if self.heads[list] == NIL {
            self.words[list / 64] &= !(1 << (list % 64));
            if self.words[list / 64] == 0 {
                self.top &= !(1 << (list / 64));
            }
        }
    }

    /// The first list from `list` on that has any.
    #[inline]
    fn next(&self, list: usize) -> Option<usize> {
        let word = list / 64 % WORDS;
        let here = self.words[word] & (!0 << (list % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let above = self.top & (!1 << word);
        if above == 0 {
            return None;
        }
        let word = above.trailing_zeros() as usize % WORDS;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// A piece of at least `units`, as small as a few looks show, and its list; it stays in the index.
    #[inline]
    pub(super) fn find(&self, nodes: &Nodes, units: u32) -> Option<(usize, u32)> {
        let list = self.next(list_of(units))?;
        let head = self.heads[list % LISTS];
        if list < EXACT as usize {
            return Some((list, head));
        }
        let (best, rest) = smallest(nodes, head, units);
        if best == NIL { self.find_further(nodes, list, rest, units) } else { Some((list, best)) }
    }

    /// What fits among the pieces of a list from `rest` on, or in the list above.
    #[cold]
    fn find_further(&self, nodes: &Nodes, list: usize, rest: u32, units: u32) -> Option<(usize, u32)> {
        let above = self.next(list + 1);
        let (mut i, mut looks) = (rest, if above.is_some() { MISSES } else { u32::MAX });
        while i != NIL && looks > 0 {
            if nodes[i].size >= units {
                return Some((list, i));
            }
            (i, looks) = (nodes[i].forward, looks - 1);
        }
        above.map(|list| (list, smallest(nodes, self.heads[list % LISTS], units).0))
    }

    /// Shows every piece in lists that may hold `units`.
    pub(super) fn each_from(&self, nodes: &Nodes, units: u32, mut show: impl FnMut(u32, &Node)) {
        let mut list = self.next(list_of(units));
        while let Some(this) = list {
            let mut i = self.heads[this];
            while i != NIL {
                show(i, &nodes[i]);
                i = nodes[i].forward;
            }
            list = self.next(this + 1);
        }
    }
}

/// The smallest of the first pieces of a list that fits, if one does, and the first piece that was not looked at.
#[inline]
fn smallest(nodes: &Nodes, head: u32, units: u32) -> (u32, u32) {
    // By how much it is larger; those that are smaller are so by far.
    let (mut best, mut more, mut looks) = (NIL, units.wrapping_neg(), LOOKS);
    let mut i = head;
    while i != NIL && looks > 0 && more > 0 {
        let Node { size, forward, .. } = nodes[i];
        if size.wrapping_sub(units) < more {
            (best, more) = (i, size.wrapping_sub(units));
        }
        (i, looks) = (forward, looks - 1);
    }
    (best, i)
}

#[cfg(test)]
mod tests {
    use super::super::nodes::State;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_in_the_order_of_sizes() {
        let mut last = 0;
        for power in 0..32 {
            for step in 0..256_u64 {
                let units = ((1_u64 << power) + (step << power) / 256) as u32;
                let list = list_of(units);
                assert!(list >= last && list < LISTS, "{units}");
                last = list;
            }
        }
        assert_eq!(list_of(u32::MAX), (EXACT + (32 - EXACT_BITS) * PARTS) as usize - 1);
    }

    proptest! {
        #[test]
        fn what_is_found_fits_and_nothing_that_fits_is_missed(
            sizes in prop::collection::vec(1_u32..20_000, 1..60),
            gone in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
            wanted in 1_u32..21_000,
        ) {
            let total: u32 = sizes.iter().sum();
            let mut nodes = Nodes::new();
            let mut last = nodes.first(total, State::Free);
            let mut all = vec![last];
            for size in &sizes[..sizes.len() - 1] {
                last = nodes.cut(last, *size);
                all.push(last);
            }
            let mut index = FreeIndex::new();
            all.iter().for_each(|i| index.insert(&mut nodes, *i));
            for pick in gone {
                if !all.is_empty() {
                    let i = all.swap_remove(pick.index(all.len()));
                    index.remove(&mut nodes, i);
                }
            }
            let fits: Vec<u32> = all.iter().map(|i| nodes[*i].size).filter(|s| *s >= wanted).collect();
            match index.find(&nodes, wanted) {
                None => prop_assert!(fits.is_empty()),
                Some((list, i)) => {
                    prop_assert!(all.contains(&i) && list == list_of(nodes[i].size));
                    let (found, best) = (nodes[i].size, *fits.iter().min().expect("one fits"));
                    prop_assert!(found >= wanted);
                    // Two neighbouring lists at most, and exact above.
                    prop_assert!(found == best || (best >= EXACT && list_of(found) <= list_of(best).max(list_of(wanted) + 1)));
                }
            }
        }
    }
}
