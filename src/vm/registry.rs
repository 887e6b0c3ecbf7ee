//! From an address to the block that is mapped there, without locks for readers.
//!
//! A radix table over granule numbers, nine bits a level. A slot holds the number of an entry; a mapping that
//! covers a whole inner slot is written there and not in every leaf. Nodes are made when first needed and never
//! freed, so a reader can never meet one that is gone. Entries are used again, so each carries a version, odd
//! while it is written, and a reader takes what it read only if the version was even and the same before and
//! after.
//!
//! Why that is sound. Writers take turns under a mutex. To insert, a writer fills the entry and then stores its
//! number into the slots (release); a reader that loads a slot (acquire) sees a filled entry. To remove, it clears
//! the slots and then makes the version odd (release): a reader that meets a version it cannot use (acquire) also
//! sees the cleared slots when it looks again, so it never spins on a stalled writer. Fields are relaxed atomics
//! between the version's fences, the usual sequence lock: a torn read is never taken.

use super::slab::Slab;
use super::{BlockId, Found};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const BITS: u32 = 9;
const FAN: usize = 1 << BITS;

/// A mapping.
#[derive(Debug, Default)]
struct Entry {
    version: AtomicU64,
    start: AtomicU64,
    size: AtomicU64,
    cell: AtomicU32,
}

/// The first half of reading an entry.
#[derive(Clone, Copy)]
struct Look {
    version: u64,
    start: DevicePtr,
    size: ByteSize,
    cell: u32,
}

impl Entry {
    fn look(&self) -> Look {
        let version = self.version.load(Ordering::Acquire);
        let start = DevicePtr(self.start.load(Ordering::Relaxed));
        let size = ByteSize(self.size.load(Ordering::Relaxed));
        Look { version, start, size, cell: self.cell.load(Ordering::Relaxed) }
    }
}

/// A block's id and tag.
#[derive(Debug, Default)]
struct Cell {
    id: AtomicU64,
    tag: AtomicU64,
}

#[derive(Debug)]
struct Node {
    /// Entry number + 1, or 0.
    entries: [AtomicU32; FAN],
    children: OnceLock<Box<[OnceLock<Box<Self>>]>>,
}

impl Node {
    fn new() -> Box<Self> {
        Box::new(Self { entries: [const { AtomicU32::new(0) }; FAN], children: OnceLock::new() })
    }

    fn child(&self, i: usize) -> Option<&Self> {
        self.children.get()?[i].get().map(|node| &**node)
    }

    fn make_child(&self, i: usize) -> &Self {
        let children = self.children.get_or_init(|| (0..FAN).map(|_| OnceLock::new()).collect());
        children[i].get_or_init(Self::new)
    }

    /// Calls `write` for the slots that make up granules `first..=last`.
    fn walk(&self, level: u32, first: u64, last: u64, make: bool, write: &impl Fn(&AtomicU32)) {
        let shift = level * BITS;
        let (from, to) = (slot(first, level), slot(last, level));
        for i in from..=to {
            let low = if i == from { first } else { ((first >> shift) + (i - from) as u64) << shift };
            let end = low | ((1 << shift) - 1);
            let high = if i == to { last } else { end };
            let whole = low & ((1 << shift) - 1) == 0 && high == end;
            match self.child(i) {
                Some(node) => node.walk(level - 1, low, high, make, write),
                None if whole || !make => write(&self.entries[i]),
                None => self.make_child(i).walk(level - 1, low, high, make, write),
            }
        }
    }
}

const fn slot(granule: u64, level: u32) -> usize {
    (granule >> (level * BITS)) as usize & (FAN - 1)
}

/// Numbers to be given out, old ones first.
#[derive(Debug, Default)]
struct Numbers {
    free: Vec<u32>,
    next: u32,
}

impl Numbers {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let next = self.next;
            self.next = next.saturating_add(1);
            next
        })
    }
}

#[derive(Debug, Default)]
struct Writer {
    entries: Numbers,
    cells: Numbers,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Registry {
    granularity: Granularity,
    /// The level of the root; leaves are level 0.
    top: u32,
    root: Box<Node>,
    entries: Slab<Entry>,
    cells: Slab<Cell>,
    writer: Mutex<Writer>,
}

impl Registry {
    pub(crate) fn new(granularity: Granularity) -> Self {
        let levels = (u64::BITS - granularity.shift()).div_ceil(BITS);
        Self {
            granularity,
            top: levels.saturating_sub(1),
            root: Node::new(),
            entries: Slab::new(),
            cells: Slab::new(),
            writer: Mutex::default(),
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a block's id and tag, until [`Self::free_cell`].
    pub(crate) fn cell(&self, id: BlockId) -> u32 {
        let mut writer = self.writer();
        let index = writer.cells.take();
        if let Some(cell) = self.cells.make(index) {
            // A reader that still holds an entry of the cell's last block and sees the new id must also see that
            // entry's version gone on.
            fence(Ordering::Release);
            cell.tag.store(0, Ordering::Relaxed);
            cell.id.store(id.0, Ordering::Relaxed);
        }
        index
    }

    /// Gives up a cell that no mapping names any more.
    pub(crate) fn free_cell(&self, index: u32) {
        self.writer().cells.free.push(index);
    }

    pub(crate) fn set_tag(&self, index: u32, tag: u64) {
        if let Some(cell) = self.cells.get(index) {
            cell.tag.store(tag, Ordering::Release);
        }
    }

    pub(crate) fn tag(&self, index: u32) -> u64 {
        self.cells.get(index).map_or(0, |cell| cell.tag.load(Ordering::Acquire))
    }

    fn granules(&self, range: DeviceRange) -> (u64, u64) {
        let shift = self.granularity.shift();
        (range.start().get() >> shift, (range.end().get() - 1) >> shift)
    }

    /// Lists a mapping of the block of `cell` and gives the number to remove it by.
    pub(crate) fn insert(&self, range: DeviceRange, cell: u32) -> u32 {
        let mut writer = self.writer();
        let index = writer.entries.take();
        if let Some(entry) = self.entries.make(index) {
            write(entry, range.start().get(), range.size().get(), cell);
            let (first, last) = self.granules(range);
            self.root.walk(self.top, first, last, true, &|slot| slot.store(index + 1, Ordering::Release));
        }
        index
    }

    /// The mapping now is one of the block of `cell`, at the same range. Only the mapping's owner calls this, so no
    /// other writer touches the entry.
    pub(crate) fn replace(&self, index: u32, cell: u32) {
        if let Some(entry) = self.entries.get(index) {
            // Start and size stay, so either cell is right for a reader under way, as long as it is not given to
            // another block: that happens after the version has gone on.
            entry.cell.store(cell, Ordering::Release);
            let version = entry.version.load(Ordering::Relaxed);
            entry.version.store(version.wrapping_add(2), Ordering::Release);
        }
    }

    /// Takes a mapping off the list.
    pub(crate) fn remove(&self, range: DeviceRange, index: u32) {
        let mut writer = self.writer();
        let (first, last) = self.granules(range);
        let own = index + 1;
        self.root.walk(self.top, first, last, false, &|slot| {
            // A slot of another mapping is met only where this one was never written.
            if slot.load(Ordering::Relaxed) == own {
                slot.store(0, Ordering::Release);
            }
        });
        if let Some(entry) = self.entries.get(index) {
            write(entry, 0, 0, 0);
        }
        writer.entries.free.push(index);
    }

    /// What is mapped at `address`.
    pub(crate) fn find(&self, address: DevicePtr) -> Option<Found> {
        let granule = address.get() >> self.granularity.shift();
        loop {
            let entry = self.entries.get(self.entry_of(granule)?)?;
            if let Some(found) = self.resolve(entry, entry.look(), address) {
                return Some(found);
            }
            std::hint::spin_loop();
        }
    }

    fn entry_of(&self, granule: u64) -> Option<u32> {
        let (mut node, mut level) = (&*self.root, self.top);
        loop {
            let i = slot(granule, level);
            match node.entries[i].load(Ordering::Acquire) {
                0 => (node, level) = (node.child(i)?, level.checked_sub(1)?),
                number => return Some(number - 1),
            }
        }
    }

    /// The second half of reading an entry, which knows whether anything came between.
    fn resolve(&self, entry: &Entry, look: Look, address: DevicePtr) -> Option<Found> {
        let Look { version, start, size, cell } = look;
        let cell = self.cells.get(cell)?;
        let (block, tag) = (BlockId(cell.id.load(Ordering::Relaxed)), cell.tag.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let steady = version & 1 == 0 && entry.version.load(Ordering::Relaxed) == version;
        let offset = address.offset_from(start).filter(|offset| *offset < size)?;
        steady.then_some(Found { block, tag, start, size, offset })
    }
}

/// Under the writer's mutex.
fn write(entry: &Entry, start: u64, size: u64, cell: u32) {
    let version = entry.version.load(Ordering::Relaxed);
    // Release: who sees the odd version sees the slots that were cleared before. The fence keeps the fields below
    // from being seen before it.
    entry.version.store(version.wrapping_add(1), Ordering::Release);
    fence(Ordering::Release);
    entry.start.store(start, Ordering::Relaxed);
    entry.size.store(size, Ordering::Relaxed);
    entry.cell.store(cell, Ordering::Relaxed);
    entry.version.store(version.wrapping_add(2), Ordering::Release);
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
