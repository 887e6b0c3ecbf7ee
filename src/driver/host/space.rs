//! The address space in books: ranges, what is mapped in them, and who may touch it.

use super::access::Rights;
use super::sys::Window;
use crate::driver::{NativeBlock, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// A block visible at some addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) range: DeviceRange,
    pub(super) block: NativeBlock,
    /// The block's own device.
    pub(super) home: Ordinal,
    pub(super) rights: Rights,
}

/// A reserved range, with its mappings by their first address.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) window: Window,
    mappings: BTreeMap<u64, Mapping>,
}

/// Plain memory of one device.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) window: Window,
    pub(super) device: Ordinal,
    pub(super) charge: ByteSize,
    pub(super) rights: Rights,
}

/// One range of addresses of ours.
#[derive(Debug)]
pub(super) enum Region {
    Reserved(Reserved),
    Plain(Plain),
}

impl Region {
    fn range(&self) -> DeviceRange {
        match self {
            Self::Reserved(reserved) => reserved.window.range(),
            Self::Plain(plain) => plain.window.range(),
        }
    }
}

/// What is at an address: until where, and who may touch it (none: it is not ours).
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Where the reservation or the plain memory ends that it belongs to; no access goes past it.
    pub(super) region_end: u64,
    pub(super) rights: Option<Rights>,
}

/// All ranges of ours, by their first address. They do not overlap, since the system gave each.
#[derive(Debug, Default)]
pub(super) struct Space(BTreeMap<u64, Region>);

impl Space {
    pub(super) fn insert(&mut self, region: Region) {
        self.0.insert(region.range().start().0, region);
    }

    /// The region that `address` lies in.
    fn at(&self, address: DevicePtr) -> Option<&Region> {
        let (_, region) = self.0.range(..=address.0).next_back()?;
        region.range().contains(address).then_some(region)
    }

    /// The reserved range that holds all of `range`.
    pub(super) fn reserved(&mut self, range: DeviceRange, operation: Operation) -> Result<&mut Reserved> {
        let before = self.0.range_mut(..=range.start().0).next_back();
        match before {
            Some((_, Region::Reserved(r))) if r.window.range().contains_range(range) => Ok(r),
            _ => Err(fail(Kind::OutOfRange, operation, "the range does not lie in one reservation", range)),
        }
    }

    /// Takes out exactly a reserved range without mappings.
    pub(super) fn take_reserved(&mut self, range: DeviceRange) -> Result<Reserved> {
        let reserved = self.reserved(range, Operation::Free)?;
        if reserved.window.range() != range {
            let hint = "a reservation is freed as a whole";
            return Err(fail(Kind::OutOfRange, Operation::Free, hint, range));
        }
        if !reserved.mappings.is_empty() {
            return Err(fail(Kind::InUse, Operation::Free, "unmap what is mapped there first", range));
        }
        match self.0.remove(&range.start().0) {
            Some(Region::Reserved(reserved)) => Ok(reserved),
            _ => Err(fail(Kind::Internal, Operation::Free, "", range)),
        }
    }

    /// Takes out the plain memory that starts at `address`.
    pub(super) fn take_plain(&mut self, device: Ordinal, address: DevicePtr) -> Result<Plain> {
        let wrong =
            |hint| Error::new(Kind::InvalidArgument, Operation::Deallocate, hint).at(address, ByteSize::ZERO);
        match self.0.remove(&address.0) {
            Some(Region::Plain(plain)) if plain.device == device => Ok(plain),
            Some(other) => {
                self.insert(other);
                Err(wrong("it is not plain memory of this device"))
            }
            None => Err(wrong("no plain memory starts there")),
        }
    }

    /// True where another device can reach a mapping of `home`'s memory.
    pub(super) fn is_reached(&self, home: Ordinal) -> bool {
        let reserved = self.0.values().filter_map(|region| match region {
            Region::Reserved(reserved) => Some(reserved),
            Region::Plain(_) => None,
        });
        let mut mappings = reserved.flat_map(|reserved| reserved.mappings.values());
        mappings.any(|mapping| mapping.home == home && mapping.rights.beyond(home) > 0)
    }

    /// What is at `address`.
    pub(super) fn span(&self, address: DevicePtr) -> Span {
        match self.at(address) {
            Some(Region::Reserved(reserved)) => reserved.span(address),
            Some(Region::Plain(plain)) => span(plain.window.range(), plain.window.range(), plain.rights),
            None => {
                let start = self.0.range(..address.0).next_back().map_or(0, |(_, r)| r.range().end().0);
                let end = self.0.range(address.0..).next().map_or(u64::MAX, |(&start, _)| start);
                Span { start, end, region_end: end, rights: None }
            }
        }
    }
}

impl Reserved {
    pub(super) const fn new(window: Window) -> Self {
        Self { window, mappings: BTreeMap::new() }
    }

    /// The last mapping that starts at or before `address`.
    fn before(&self, address: u64) -> Option<&Mapping> {
        self.mappings.range(..=address).next_back().map(|(_, mapping)| mapping)
    }

    /// What is at `address`; nobody may touch a hole.
    fn span(&self, address: DevicePtr) -> Span {
        let before = self.before(address.0);
        if let Some(mapping) = before.filter(|m| m.range.contains(address)) {
            return span(mapping.range, self.window.range(), mapping.rights);
        }
        let all = self.window.range();
        let start = before.map_or(all.start().0, |m| m.range.end().0);
        let after = self.mappings.range((Excluded(address.0), Unbounded)).next();
        let end = after.map_or(all.end().0, |(&start, _)| start);
        Span { start, end, region_end: all.end().0, rights: Some(Rights::default()) }
    }

    /// The hole that holds all of `range`, or that something is mapped there.
    fn hole(&self, range: DeviceRange) -> Result<Span> {
        let hole = self.span(range.start());
        let mapped = self.before(range.start().0).is_some_and(|m| m.range.contains(range.start()));
        if mapped || hole.end < range.end().0 {
            return Err(fail(Kind::AlreadyMapped, Operation::Map, "unmap what is mapped there first", range));
        }
        Ok(hole)
    }

    /// How many mappings of the process a mapping at `range` adds, or that something is mapped there.
    pub(super) fn growth(&self, range: DeviceRange) -> Result<i64> {
        let hole = self.hole(range)?;
        Ok(i64::from(hole.start < range.start().0) + i64::from(range.end().0 < hole.end))
    }

    pub(super) fn insert(&mut self, mapping: Mapping) {
        self.mappings.insert(mapping.range.start().0, mapping);
    }

    /// The mapping at exactly `range`.
    pub(super) fn exactly(&self, range: DeviceRange) -> Result<Mapping> {
        match self.mappings.get(&range.start().0) {
            Some(mapping) if mapping.range == range => return Ok(*mapping),
            _ => {}
        }
        let hole = self.hole(range).is_ok();
        Err(if hole {
            fail(Kind::NotMapped, Operation::Unmap, "nothing is mapped there", range)
        } else {
            fail(
                Kind::PartialMapping,
                Operation::Unmap,
                "exactly one whole mapping is unmapped at a time",
                range,
            )
        })
    }

    /// Takes out the mapping at `range`. Says how many mappings of the process go with it.
    pub(super) fn remove(&mut self, range: DeviceRange) -> i64 {
        self.mappings.remove(&range.start().0);
        let hole = self.span(range.start());
        -(i64::from(hole.start < range.start().0) + i64::from(range.end().0 < hole.end))
    }

    /// The mappings inside `range`, in order.
    pub(super) fn within(&self, range: DeviceRange) -> impl Iterator<Item = &Mapping> {
        self.mappings.range(range.start().0..range.end().0).map(|(_, mapping)| mapping)
    }

    /// Changes the rights of every mapping inside `range`.
    pub(super) fn set_rights(&mut self, range: DeviceRange, change: impl Fn(Rights) -> Rights) {
        for (_, mapping) in self.mappings.range_mut(range.start().0..range.end().0) {
            mapping.rights = change(mapping.rights);
        }
    }

    /// Checks that `range` covers whole mappings, and without holes where `dense`. Gives their number.
    pub(super) fn covered(&self, range: DeviceRange, dense: bool) -> Result<u64> {
        let (mut count, mut bytes, mut end) = (0, 0, range.start().0);
        for mapping in self.within(range) {
            (count, bytes, end) = (count + 1, bytes + mapping.range.size().0, mapping.range.end().0);
        }
        let cut_in = self
            .before(range.start().0)
            .is_some_and(|m| m.range.start() < range.start() && m.range.contains(range.start()));
        let error = |kind, hint| Err(fail(kind, Operation::SetAccess, hint, range));
        if cut_in || end > range.end().0 {
            return error(Kind::PartialMapping, "the range must cover whole mappings");
        }
        if count == 0 || dense && bytes != range.size().0 {
            return error(Kind::NotMapped, "something in the range is not mapped");
        }
        Ok(count)
    }
}

fn span(range: DeviceRange, region: DeviceRange, rights: Rights) -> Span {
    let (start, end) = (range.start().0, range.end().0);
    Span { start, end, region_end: region.end().0, rights: Some(rights) }
}

/// A failure at a range.
pub(super) const fn fail(kind: Kind, operation: Operation, hint: &'static str, range: DeviceRange) -> Error {
    Error::new(kind, operation, hint).at(range.start(), range.size())
}
