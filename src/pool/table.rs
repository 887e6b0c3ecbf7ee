//! All arenas: found by pool and stream, and by address, without locks. They are made, given to new owners, and
//! never taken away while the pool lives.

use super::arena::Arena;
use crate::driver::Stream;
use crate::units::DevicePtr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The most arenas of one pool.
const MOST: usize = 4096;
const STREAM_HINTS: usize = 256;
const ADDRESS_HINTS: usize = 1024;
/// Addresses are looked up by the GiB that they lie in.
const ADDRESS_SHIFT: u32 = 30;

/// All arenas, with guesses where to look first: a wrong one costs a walk, and is set right.
#[derive(Debug)]
pub(super) struct Table {
    arenas: Box<[OnceLock<Box<Arena>>]>,
    len: AtomicUsize,
    by_stream: Box<[AtomicU32]>,
    by_address: Box<[AtomicU32]>,
}

impl Table {
    pub(super) fn new() -> Self {
        let hints = |n| (0..n).map(|_| AtomicU32::new(0)).collect();
        Self {
            arenas: (0..MOST).map(|_| OnceLock::new()).collect(),
            len: AtomicUsize::new(0),
            by_stream: hints(STREAM_HINTS),
            by_address: hints(ADDRESS_HINTS),
        }
    }

    #[inline]
    fn get(&self, i: u32) -> Option<&Arena> {
        self.arenas.get(i as usize)?.get().map(|arena| &**arena)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arena> {
        let len = self.len.load(Ordering::Acquire);
        self.arenas[..len].iter().filter_map(|cell| cell.get().map(|arena| &**arena))
    }

    /// The arena of a pool and a stream.
    #[inline]
    pub(super) fn of(&self, pool: u32, stream: Stream) -> Option<&Arena> {
        let key = (stream.0 ^ u64::from(pool) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hint = &self.by_stream[(key >> 56) as usize];
        let guess = self.get(hint.load(Ordering::Relaxed));
        match guess.filter(|arena| arena.is_of(pool, stream)) {
            Some(arena) => Some(arena),
            None => self.search(hint, |arena| arena.is_of(pool, stream)),
        }
    }

    /// The arena that has an address.
    #[inline]
    pub(super) fn at(&self, address: DevicePtr) -> Option<(&Arena, usize, u64)> {
        let hint = &self.by_address[(address.get() >> ADDRESS_SHIFT) as usize % ADDRESS_HINTS];
        let guess = self.get(hint.load(Ordering::Relaxed));
        let found = guess.and_then(|arena| arena.locate(address).map(|(heap, offset)| (arena, heap, offset)));
        if found.is_some() {
            return found;
        }
        let arena = self.search(hint, |arena| arena.locate(address).is_some())?;
        arena.locate(address).map(|(heap, offset)| (arena, heap, offset))
    }

    #[cold]
    fn search(&self, hint: &AtomicU32, wanted: impl Fn(&Arena) -> bool) -> Option<&Arena> {
        let len = self.len.load(Ordering::Acquire) as u32;
        let i = (0..len).find(|i| self.get(*i).is_some_and(&wanted))?;
        hint.store(i, Ordering::Relaxed);
        self.get(i)
    }

    /// Adds an arena, unless there are too many. Only one thread at a time adds.
    pub(super) fn add(&self, arena: Box<Arena>) -> bool {
        let len = self.len.load(Ordering::Acquire);
        let added = self.arenas.get(len).is_some_and(|cell| cell.set(arena).is_ok());
        if added {
            self.len.store(len + 1, Ordering::Release);
        }
        added
    }

    /// Takes all arenas, to end them.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Box<Arena>> {
        self.arenas.iter_mut().filter_map(OnceLock::take)
    }
}
