//! What the program has: ranges, mappings, handles. Plain data; who calls the vendor is elsewhere.

use crate::memory::{Grant, Location};
use std::collections::BTreeMap;

/// A block at an address.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// Bytes.
    pub size: u64,
    /// The block.
    pub handle: u64,
    /// Where the block lives, where that is known.
    pub owner: Option<Location>,
    /// What the vendor was told, in the order of the last call for each.
    pub granted: Vec<Grant>,
    /// Those of it that the program has not asked for yet.
    pub ahead: Vec<Location>,
}

impl Mapping {
    /// What a location has here: 0 none.
    pub fn flags_of(&self, location: Location) -> i32 {
        self.granted.iter().find(|grant| grant.location == location).map_or(0, |grant| grant.flags)
    }

    /// The vendor was told so.
    pub fn grant(&mut self, list: &[Grant]) {
        for line in list {
            self.granted.retain(|known| known.location != line.location);
            if line.flags != 0 {
                self.granted.push(*line);
            }
        }
    }

    /// True where all of `list` holds already and was not asked for yet.
    pub fn claims(&self, list: &[Grant]) -> bool {
        !list.is_empty()
            && list
                .iter()
                .all(|line| self.ahead.contains(&line.location) && self.flags_of(line.location) == line.flags)
    }

    /// The program has asked for these.
    pub fn asked(&mut self, list: &[Grant]) {
        self.ahead.retain(|location| list.iter().all(|line| line.location != *location));
    }
}

/// A block, by the vendor's handle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block {
    /// Where it lives.
    pub owner: Option<Location>,
    /// References that the program has.
    pub refs: u64,
    /// Its mappings.
    pub maps: u64,
    /// The program's last reference is gone, and the vendor's is kept until the last mapping is.
    pub kept: bool,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Books {
    /// Reserved ranges: start and size.
    pub ranges: BTreeMap<u64, u64>,
    /// Mappings by their start.
    pub maps: BTreeMap<u64, Mapping>,
    /// Blocks by handle.
    pub blocks: BTreeMap<u64, Block>,
}

/// How a range lies over what is mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// Mappings that lie wholly within: start and size.
    pub whole: Vec<(u64, u64)>,
    /// Some mapping lies partly within.
    pub partial: bool,
    /// The mappings fill the range.
    pub full: bool,
}

impl Books {
    /// Empty.
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new(), maps: BTreeMap::new(), blocks: BTreeMap::new() }
    }

    /// The reserved range that holds all of a range.
    pub fn range_of(&self, at: u64, size: u64) -> Option<(u64, u64)> {
        let (&start, &bytes) = self.ranges.range(..=at).next_back()?;
        (at.checked_add(size)? <= start.checked_add(bytes)?).then_some((start, bytes))
    }

    /// The mapping that holds an address.
    pub fn map_of(&self, at: u64) -> Option<(u64, &Mapping)> {
        let (&start, map) = self.maps.range(..=at).next_back()?;
        (at - start < map.size).then_some((start, map))
    }

    /// What is mapped within a range.
    pub fn cover(&self, at: u64, size: u64) -> Cover {
        let end = at.saturating_add(size);
        let mut cover =
            Cover { partial: self.map_of(at).is_some_and(|(start, _)| start < at), ..Cover::default() };
        let mut filled = 0_u64;
        for (&start, map) in self.maps.range(at..end) {
            if start.saturating_add(map.size) > end {
                cover.partial = true;
            } else {
                cover.whole.push((start, map.size));
                filled = filled.saturating_add(map.size);
            }
        }
        cover.full = !cover.partial && filled == size;
        cover
    }

    /// The mappings without a hole from the start of a range on: their end.
    pub fn run_end(&self, start: u64) -> u64 {
        let mut end = start;
        while let Some(map) = self.maps.get(&end) {
            end = end.saturating_add(map.size.max(1));
        }
        end
    }

    /// A block was made, or is named once more.
    pub fn hold(&mut self, handle: u64, owner: Option<Location>) {
        let block = self.blocks.entry(handle).or_default();
        block.refs = block.refs.saturating_add(1);
        block.owner = block.owner.or(owner);
    }

    /// A block was mapped.
    pub fn map(&mut self, at: u64, size: u64, handle: u64) {
        let block = self.blocks.get_mut(&handle);
        let owner = block.as_ref().and_then(|block| block.owner);
        if let Some(block) = block {
            block.maps = block.maps.saturating_add(1);
        }
        self.maps.insert(at, Mapping { size, handle, owner, ..Mapping::default() });
    }

    /// A mapping is gone. The handle whose kept reference may go now.
    pub fn unmapped(&mut self, map: &Mapping) -> Option<u64> {
        let block = self.blocks.get_mut(&map.handle)?;
        block.maps = block.maps.saturating_sub(1);
        if block.maps != 0 || !block.kept {
            return None;
        }
        block.kept = false;
        if block.refs == 0 {
            self.blocks.remove(&map.handle);
        }
        Some(map.handle)
    }

    /// The program gives back a reference. True where the vendor is to be told now, false where its reference is kept
    /// until the last mapping is gone.
    pub fn release(&mut self, handle: u64, keep_mapped: bool) -> bool {
        let Some(block) = self.blocks.get_mut(&handle) else { return true };
        if block.refs == 0 {
            return true;
        }
        block.refs -= 1;
        if block.refs != 0 {
            return true;
        }
        if keep_mapped && block.maps != 0 && !block.kept {
            block.kept = true;
            return false;
        }
        if block.maps == 0 {
            self.blocks.remove(&handle);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Books {
        let mut books = Books::new();
        books.ranges.insert(100, 50);
        books.hold(7, Some(Location { kind: 1, id: 0 }));
        books.map(100, 10, 7);
        books.map(110, 20, 7);
        books
    }

    #[test]
    fn a_range_lies_over_mappings() {
        let books = books();
        assert!(books.cover(100, 30).full && books.cover(100, 30).whole.len() == 2);
        assert!(!books.cover(100, 40).full && !books.cover(100, 40).partial);
        assert!(books.cover(105, 25).partial && books.cover(100, 15).partial);
        assert!(books.cover(130, 20).whole.is_empty());
        assert_eq!(books.run_end(100), 130);
        assert_eq!(books.range_of(140, 10), Some((100, 50)));
        assert_eq!(books.range_of(140, 11), None);
    }

    #[test]
    fn the_last_reference_is_kept_while_mapped() {
        let mut books = books();
        books.hold(7, None);
        assert!(books.release(7, true), "not the last");
        assert!(!books.release(7, true), "the last is kept");
        books.hold(7, None);
        assert!(books.release(7, true), "taken again by its mapping: the vendor's is kept already");
        let [first, second] = [100, 110].map(|at| books.maps.remove(&at).expect("mapped"));
        assert_eq!(books.unmapped(&first), None);
        assert_eq!(books.unmapped(&second), Some(7));
        assert!(books.blocks.is_empty());
        assert!(books.release(7, true), "unknown: the vendor's matter");
    }
}
