//! What the planner is given and what it gives: plain data.

use super::BlockId;
use super::access::{List, Shape};
use crate::driver::NativeBlock;
use crate::units::DeviceRange;
use std::num::NonZeroU32;

/// Whether it is a remap or a plain map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Replaces what is there, sets access, rebuilds what is lost.
    Remap,
    /// Wants the place empty and sets no access.
    Map,
}

/// The number of an entry in the caller's array, so that one word says which or none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Entry(NonZeroU32);

impl Entry {
    /// Entry `index`, below the last number there is.
    pub(crate) const fn new(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    pub(crate) const fn index(self) -> usize {
        (self.0.get() - 1) as usize
    }

    /// As errors name it.
    pub(crate) const fn blame(self) -> u64 {
        self.index() as u64
    }
}

/// A reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) range: DeviceRange,
    pub(crate) list: List,
}

/// What shall be at a place. Sorted by place and offset, no two the same, inside the range and aligned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) place: u32,
    pub(crate) offset: u64,
    pub(crate) block: Option<WantBlock>,
    pub(crate) entry: Entry,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WantBlock {
    pub(crate) id: BlockId,
    pub(crate) native: NativeBlock,
    pub(crate) size: u64,
    /// How many mappings of it the driver holds.
    pub(crate) places: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeldState {
    Live,
    Lost,
    Retired,
}

/// What the books hold: at least what shares a byte with a want, and what is lost. Sorted like the wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) place: u32,
    pub(crate) offset: u64,
    pub(crate) block: WantBlock,
    pub(crate) state: HeldState,
    pub(crate) applied: List,
    pub(crate) custom: Option<List>,
}

impl Held {
    pub(crate) const fn end(&self) -> u64 {
        self.offset + self.block.size
    }
}

/// A mapping that the driver holds outside the books; all of the places' are given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StrayAt {
    pub(crate) place: u32,
    pub(crate) offset: u64,
    pub(crate) block: WantBlock,
    pub(crate) idle: bool,
}

/// Why something is unmapped, and so what an undo does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    /// It is in use: an undo maps it again and restores this access.
    Replaced { restore: List },
    /// It was retired and has passed.
    Retired,
    /// It should not have been there.
    Stray,
}

/// Where a mapping's block is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// In the caller's entry.
    Entry(Entry),
    /// In the books, which hold it as lost.
    Rebuild,
}

/// A call that takes back a change of access on a mapping that stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back {
    pub(crate) range: DeviceRange,
    pub(crate) call: List,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// `followed`: a map at the same offset follows.
    Unmap { native: NativeBlock, why: Why, followed: bool },
    /// `to`: what it is given by the set-access that follows.
    Map { native: NativeBlock, source: Source, to: List },
    /// `back`: how it is taken back, the part of [`Plan::backs`] from the first number to before the second.
    Access { call: List, to: List, back: (u32, u32) },
}

/// One driver call. Small, since a plan has three for each slot that moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) place: u32,
    pub(crate) offset: u64,
    pub(crate) range: DeviceRange,
    pub(crate) entry: Option<Entry>,
    pub(crate) action: Action,
}

/// What is to be done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The driver calls: all unmaps, then all maps, then all set-access.
    pub(crate) steps: Vec<Step>,
    /// What takes changes of access back.
    pub(crate) backs: Vec<Back>,
    /// Lost mappings that are given up.
    pub(crate) forgotten: Vec<(u32, u64)>,
    /// Retired mappings that come back.
    pub(crate) revived: Vec<(u32, u64)>,
    /// Entries that need no driver call.
    pub(crate) skipped: u64,
    /// Something is unmapped that work may be using.
    pub(crate) waits: bool,
    /// Something is unmapped that was retired.
    pub(crate) evicts: bool,
}

/// A mapping whose access changes.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) place: u32,
    pub(crate) offset: u64,
    pub(crate) range: DeviceRange,
    pub(crate) call: List,
    pub(crate) to: List,
    /// The call that takes it back, for a mapping that was there before.
    pub(crate) back: Option<List>,
    pub(crate) entry: Option<Entry>,
}

/// What the planner looks at.
pub(crate) struct Snapshot<'a> {
    pub(crate) mode: Mode,
    pub(crate) shape: Shape,
    pub(crate) places: &'a [Place],
    pub(crate) wants: &'a [Want],
    pub(crate) held: &'a [Held],
    pub(crate) strays: &'a [StrayAt],
}

impl Plan {
    /// What takes a change of access back.
    pub(crate) fn backs(&self, (from, to): (u32, u32)) -> &[Back] {
        self.backs.get(from as usize..to as usize).unwrap_or_default()
    }
}
