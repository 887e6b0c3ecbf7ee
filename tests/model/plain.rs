//! The plain model: what is mapped where, in maps of the standard library.

use crate::moves::ROOM;
use gvmm::driver::Access;
use gvmm::error::Kind;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mapped {
    pub(crate) block: usize,
    pub(crate) size: u64,
    /// What the driver may hold: usually one answer; two where a retired mapping may or may not have come back.
    pub(crate) access: Vec<Vec<Access>>,
    pub(crate) custom: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) list: Vec<Access>,
    pub(crate) maps: BTreeMap<u64, Mapped>,
}

/// The plain model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) ranges: BTreeMap<usize, Range>,
    pub(crate) sizes: Vec<u64>,
    pub(crate) ranged: bool,
    pub(crate) aliasing: bool,
}

impl Model {
    pub(crate) fn overlaps(&self, r: usize, at: u64, size: u64) -> bool {
        self.ranges[&r].maps.iter().any(|(o, m)| *o < at + size && at < *o + m.size)
    }

    fn places(&self, block: usize) -> usize {
        self.ranges.values().flat_map(|r| r.maps.values()).filter(|m| m.block == block).count()
    }

    pub(crate) fn map(&mut self, r: usize, at: u64, block: usize) -> std::result::Result<(), Kind> {
        let size = self.sizes[block];
        if at + size > ROOM {
            return Err(Kind::OutOfRange);
        }
        if self.overlaps(r, at, size) {
            return Err(Kind::AlreadyMapped);
        }
        if !self.aliasing && self.places(block) > 0 {
            return Err(Kind::Unsupported);
        }
        let range = self.ranges.get_mut(&r).expect("there");
        let access = vec![Vec::new(), range.list.clone()];
        range.maps.insert(at, Mapped { block, size, access, custom: false });
        Ok(())
    }

    /// Where only the whole can be set, what was set on the way of a failed call cannot be taken from one mapping.
    pub(crate) fn may_have_been_given(&mut self) {
        for range in self.ranges.values_mut().filter(|_| !self.ranged) {
            range.maps.values_mut().for_each(|m| m.access.push(range.list.clone()));
        }
    }

    /// Whether a range is made up of whole mappings.
    pub(crate) fn exact(&self, r: usize, at: u64, size: u64) -> std::result::Result<(), Kind> {
        if at + size > ROOM {
            return Err(Kind::OutOfRange);
        }
        let mut next = at;
        for (o, m) in &self.ranges[&r].maps {
            if *o + m.size <= at || *o >= at + size {
                continue;
            }
            if *o < at || *o + m.size > at + size {
                return Err(Kind::PartialMapping);
            }
            if *o != next {
                return Err(Kind::NotMapped);
            }
            next = *o + m.size;
        }
        if next == at + size { Ok(()) } else { Err(Kind::NotMapped) }
    }

    /// True where `at` is inside of a mapping.
    fn holds_inside(&self, r: usize, at: u64) -> bool {
        self.ranges[&r].maps.iter().any(|(o, m)| *o < at && at < *o + m.size)
    }

    /// Gives a mapping of `block` that is at its place already the reservation's access, and says whether that changed
    /// it; none where there is none.
    fn keep(&mut self, r: usize, at: u64, block: usize) -> Option<bool> {
        let range = self.ranges.get_mut(&r).expect("there");
        let there = range.maps.get_mut(&at).filter(|m| m.block == block)?;
        let changes = !there.custom && there.access != [range.list.clone()];
        if changes {
            there.access = vec![range.list.clone()];
        }
        Some(changes)
    }

    pub(crate) fn remap(
        &mut self,
        places: &[(usize, u64, Option<usize>)],
    ) -> std::result::Result<(u64, u64), Kind> {
        let mut names = BTreeSet::new();
        if places.iter().any(|(r, at, _)| !names.insert((*r, *at))) {
            return Err(Kind::InvalidArgument);
        }
        if places.iter().any(|(_, at, b)| at + b.map_or(1, |b| self.sizes[b]) > ROOM) {
            return Err(Kind::OutOfRange);
        }
        let mut next = self.clone();
        let (mut unmapped, mut fresh, mut changed) = (0, Vec::new(), BTreeSet::new());
        for (r, at, block) in places {
            let range = next.ranges.get_mut(r).expect("there");
            let same = range.maps.get(at).is_some_and(|m| Some(m.block) == *block);
            if !same && range.maps.remove(at).is_some() {
                unmapped += 1;
            }
        }
        for (r, at, block) in places {
            match block {
                None if self.holds_inside(*r, *at) => return Err(Kind::PartialMapping),
                None => {}
                Some(block) => match next.keep(*r, *at, *block) {
                    None => fresh.push((*r, *at, *block)),
                    Some(true) => _ = changed.insert(*r),
                    Some(false) => {}
                },
            }
        }
        for (r, at, block) in &fresh {
            let size = next.sizes[*block];
            if next.overlaps(*r, *at, size) {
                return Err(Kind::AlreadyMapped);
            }
            let range = next.ranges.get_mut(r).expect("there");
            let access = vec![range.list.clone()];
            range.maps.insert(*at, Mapped { block: *block, size, access, custom: false });
            changed.insert(*r);
        }
        if !next.aliasing && fresh.iter().any(|(_, _, block)| next.places(*block) > 1) {
            return Err(Kind::Unsupported);
        }
        if !next.ranged {
            // The whole was set, or a retired mapping came back and nothing was.
            for r in changed {
                let range = next.ranges.get_mut(&r).expect("there");
                for m in range.maps.values_mut().filter(|m| !m.access.contains(&range.list)) {
                    m.access.push(range.list.clone());
                }
            }
        }
        *self = next;
        Ok((unmapped, fresh.len() as u64))
    }

    pub(crate) fn set_access(
        &mut self,
        r: usize,
        at: u64,
        size: u64,
        list: &[Access],
    ) -> std::result::Result<(), Kind> {
        let whole = at == 0 && size == ROOM;
        if at + size > ROOM {
            return Err(Kind::OutOfRange);
        }
        if !whole && !self.ranged {
            return Err(Kind::Unsupported);
        }
        if !whole {
            self.exact(r, at, size)?;
        }
        let range = self.ranges.get_mut(&r).expect("there");
        for (_, m) in range.maps.range_mut(at..at + size) {
            (m.access, m.custom) = (vec![list.to_vec()], !whole);
        }
        if whole {
            range.list = list.to_vec();
        }
        Ok(())
    }
}
