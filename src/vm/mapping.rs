//! The books of one reservation: what is mapped where, with which access. Each change here follows a driver call
//! that succeeded, and keeps the blocks' counts and the address table in step.

use super::access::List;
use super::retire::Marks;
use super::shared::Shared;
use super::{Block, BlockId, Owner};
use crate::driver::Access;
use crate::units::{ByteSize, DeviceRange};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// How a mapping stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingState {
    /// Mapped.
    Live,
    /// Unmapped as soon as its streams have passed.
    Retired,
    /// A failed call could not be undone here: nothing usable is mapped, the block is kept, and the next remap
    /// that names the reservation rebuilds it.
    Lost,
}

/// One mapping, for people and tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappingInfo {
    /// Where it starts in its reservation.
    pub offset: ByteSize,
    /// How many bytes.
    pub size: ByteSize,
    /// The block.
    pub block: BlockId,
    /// How it stands.
    pub state: MappingState,
    /// What the driver was told that devices may do here (empty after a plain map).
    pub access: Vec<Access>,
    /// True where set-access on exact mappings overrides the reservation's list.
    pub overridden: bool,
}

#[derive(Debug)]
pub(crate) enum State {
    Live,
    Lost,
    Retired { token: u64, marks: Marks },
}

#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) block: Arc<Block>,
    pub(crate) state: State,
    /// What the driver holds; nothing before the first set-access.
    pub(crate) applied: List,
    /// What it shall hold instead of the reservation's list.
    pub(crate) custom: Option<List>,
    /// Its number in the address table, while live.
    entry: Option<u32>,
}

impl Mapping {
    pub(crate) fn size(&self) -> u64 {
        self.block.size().get()
    }

    pub(crate) const fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    pub(crate) const fn is_retired(&self) -> bool {
        matches!(self.state, State::Retired { .. })
    }

    /// A live mapping's place was given to another block of its size, which has `applied` as access; gives the old
    /// block.
    pub(crate) fn exchange(&mut self, ctx: Context<'_>, block: Arc<Block>, applied: List) -> Arc<Block> {
        if !ctx.shared.shape.aliasing {
            block.count_place(true);
            self.block.count_place(false);
        }
        ctx.count_caller(&block, true);
        ctx.count_caller(&self.block, false);
        if let Some(entry) = self.entry {
            ctx.shared.registry.replace(entry, block.cell());
        }
        (self.applied, self.custom) = (applied, None);
        std::mem::replace(&mut self.block, block)
    }

    fn info(&self, offset: u64) -> MappingInfo {
        MappingInfo {
            offset: ByteSize(offset),
            size: self.block.size(),
            block: self.block.id(),
            state: match self.state {
                State::Live => MappingState::Live,
                State::Lost => MappingState::Lost,
                State::Retired { .. } => MappingState::Retired,
            },
            access: self.applied.to_vec(),
            overridden: self.custom.is_some(),
        }
    }
}

/// A mapping that the driver holds and the caller does not know of, left by an undo that failed.
#[derive(Debug)]
pub(crate) struct Stray {
    pub(crate) offset: u64,
    pub(crate) block: Arc<Block>,
    /// Nothing can be using it: it may be unmapped at any time.
    pub(crate) idle: bool,
}

/// Whose books they are.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) range: DeviceRange,
    pub(crate) owner: Owner,
}

impl Context<'_> {
    fn list_address(&self, offset: u64, block: &Block) -> Option<u32> {
        let range = self.range.slice(ByteSize(offset), block.size())?;
        Some(self.shared.registry.insert(range, block.cell()))
    }

    fn unlist_address(&self, offset: u64, mapping: &mut Mapping) {
        let range = self.range.slice(ByteSize(offset), mapping.block.size());
        if let (Some(entry), Some(range)) = (mapping.entry.take(), range) {
            self.shared.registry.remove(range, entry);
        }
    }

    fn count_caller(&self, block: &Block, up: bool) {
        if self.owner == Owner::Caller {
            block.count_caller(up);
        }
    }
}

/// The books.
#[derive(Debug)]
pub(crate) struct Books {
    /// What mappings get that are not told otherwise.
    pub(crate) list: List,
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    pub(crate) lost: usize,
    pub(crate) retired: usize,
    pub(crate) strays: Vec<Stray>,
}

impl Books {
    pub(crate) const fn new(list: List) -> Self {
        Self { list, mappings: BTreeMap::new(), lost: 0, retired: 0, strays: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.mappings.len() == self.retired
    }

    pub(crate) fn infos(&self) -> Vec<MappingInfo> {
        self.mappings.iter().map(|(offset, mapping)| mapping.info(*offset)).collect()
    }

    /// The mapping at `offset`, where nothing else shares a byte with `size` bytes from there: the common case,
    /// found by one search.
    pub(crate) fn exactly(&self, offset: u64, size: u64) -> Option<&Mapping> {
        self.mappings.get(&offset).filter(|mapping| mapping.size() >= size)
    }

    /// Mappings that share a byte with `size` bytes (0 counts as 1) from `offset`, by offset.
    pub(crate) fn overlapping(&self, offset: u64, size: u64) -> impl Iterator<Item = (u64, &Mapping)> {
        let before = self.mappings.range(..offset).next_back().filter(|(o, m)| *o + m.size() > offset);
        let end = offset.saturating_add(size.max(1));
        before.into_iter().chain(self.mappings.range(offset..end)).map(|(o, m)| (*o, m))
    }

    /// A block was mapped and given access, perhaps in place of another block, which comes back.
    pub(crate) fn add(
        &mut self,
        ctx: Context<'_>,
        offset: u64,
        block: Arc<Block>,
        applied: List,
    ) -> Option<Arc<Block>> {
        block.count_place(true);
        ctx.count_caller(&block, true);
        let state = State::Live;
        let fresh = |block, entry| Mapping { block, state, applied, custom: None, entry };
        match self.mappings.entry(offset) {
            Entry::Vacant(place) => {
                let entry = ctx.list_address(offset, &block);
                place.insert(fresh(block, entry));
                None
            }
            Entry::Occupied(place) => {
                let mapping = place.into_mut();
                mapping.block.count_place(false);
                if mapping.is_retired() {
                    self.retired -= 1;
                    mapping.state = State::Live;
                } else {
                    ctx.count_caller(&mapping.block, false);
                }
                let same_size = mapping.size() == block.size().get();
                if let Some(entry) = mapping.entry.filter(|_| same_size) {
                    ctx.shared.registry.replace(entry, block.cell());
                } else {
                    ctx.unlist_address(offset, mapping);
                    mapping.entry = ctx.list_address(offset, &block);
                }
                (mapping.applied, mapping.custom) = (applied, None);
                Some(std::mem::replace(&mut mapping.block, block))
            }
        }
    }

    /// A lost mapping was mapped again and given access.
    pub(crate) fn rebuild(&mut self, ctx: Context<'_>, offset: u64, applied: List) {
        let Some(mapping) = self.mappings.get_mut(&offset) else { return };
        mapping.block.count_place(true);
        mapping.entry = ctx.list_address(offset, &mapping.block);
        (mapping.state, mapping.applied) = (State::Live, applied);
        self.lost -= 1;
    }

    /// A mapping was unmapped, or a lost one given up.
    pub(crate) fn take(&mut self, ctx: Context<'_>, offset: u64) -> Option<Arc<Block>> {
        let mut mapping = self.mappings.remove(&offset)?;
        ctx.unlist_address(offset, &mut mapping);
        match mapping.state {
            State::Live => mapping.block.count_place(false),
            State::Lost => self.lost -= 1,
            State::Retired { .. } => {
                mapping.block.count_place(false);
                self.retired -= 1;
            }
        }
        if !matches!(mapping.state, State::Retired { .. }) {
            ctx.count_caller(&mapping.block, false);
        }
        Some(mapping.block)
    }

    /// A live mapping could not be brought back. Where the driver still holds it, it is a stray as well.
    pub(crate) fn lose(&mut self, ctx: Context<'_>, offset: u64, still_mapped: Option<bool>) {
        let Some(mapping) = self.mappings.get_mut(&offset) else { return };
        ctx.unlist_address(offset, mapping);
        (mapping.state, mapping.applied) = (State::Lost, List::NOTHING);
        self.lost += 1;
        match still_mapped {
            Some(idle) => self.strays.push(Stray { offset, block: Arc::clone(&mapping.block), idle }),
            None => mapping.block.count_place(false),
        }
    }

    /// A live mapping goes once the marks have passed; until then it is hidden.
    pub(crate) fn retire(&mut self, ctx: Context<'_>, offset: u64, token: u64, marks: Marks) {
        let Some(mapping) = self.mappings.get_mut(&offset) else { return };
        ctx.unlist_address(offset, mapping);
        ctx.count_caller(&mapping.block, false);
        (mapping.state, mapping.custom) = (State::Retired { token, marks }, None);
        self.retired += 1;
    }

    /// A retired mapping comes back into use.
    pub(crate) fn revive(&mut self, ctx: Context<'_>, offset: u64) {
        let Some(mapping) = self.mappings.get_mut(&offset) else { return };
        ctx.count_caller(&mapping.block, true);
        mapping.entry = ctx.list_address(offset, &mapping.block);
        mapping.state = State::Live;
        self.retired -= 1;
    }

    /// The driver holds this access from `offset` on.
    pub(crate) fn applied(&mut self, offset: u64, size: u64, list: List) {
        let end = offset.saturating_add(size);
        for (_, mapping) in self.mappings.range_mut(offset..end).filter(|(_, m)| !m.is_lost()) {
            mapping.applied = list;
        }
    }

    /// Set-access was asked for `list`: over the whole reservation, or over exact mappings.
    pub(crate) fn want(&mut self, offset: u64, size: u64, list: List, whole: bool) {
        if whole {
            self.list = list;
        }
        let end = offset.saturating_add(size);
        for (_, mapping) in self.mappings.range_mut(offset..end).filter(|(_, m)| !m.is_retired()) {
            mapping.custom = (!whole).then_some(list);
        }
    }

    /// The driver holds a mapping that should not be there.
    pub(crate) fn add_stray(&mut self, offset: u64, block: Arc<Block>, idle: bool) {
        block.count_place(true);
        self.strays.push(Stray { offset, block, idle });
    }

    /// Strays that work may be using.
    pub(crate) fn busy_strays(&self) -> Vec<(u64, BlockId)> {
        self.strays.iter().filter(|stray| !stray.idle).map(|stray| (stray.offset, stray.block.id())).collect()
    }

    /// A stray was unmapped.
    pub(crate) fn take_stray(&mut self, offset: u64) -> Option<Arc<Block>> {
        let at = self.strays.iter().position(|stray| stray.offset == offset)?;
        let stray = self.strays.swap_remove(at);
        stray.block.count_place(false);
        Some(stray.block)
    }
}
