//! A growing array for readers without locks.

use std::sync::OnceLock;

const FIRST_CHUNK: u32 = 64;
const CHUNKS: usize = 26;

/// A growing array whose elements never move, each index valid for ever once made.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
}

impl<T: Default> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { chunks: std::array::from_fn(|_| OnceLock::new()) }
    }

    /// Chunk k holds 64 · 2^k elements, so index + 64 has the chunk in its highest bit.
    const fn locate(index: u32) -> (usize, usize) {
        let n = index as u64 + FIRST_CHUNK as u64;
        let chunk = n.ilog2() - FIRST_CHUNK.ilog2();
        (chunk as usize, (n - ((FIRST_CHUNK as u64) << chunk)) as usize)
    }

    /// The element, if it was made.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, at) = Self::locate(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    /// The element, made with its chunk where needed; none past the last index there can be.
    pub(crate) fn make(&self, index: u32) -> Option<&T> {
        let (chunk, at) = Self::locate(index);
        let fill = || (0..(FIRST_CHUNK as usize) << chunk).map(|_| T::default()).collect();
        self.chunks.get(chunk)?.get_or_init(fill).get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_reach_every_index_once() {
        let mut seen = std::collections::HashSet::new();
        for index in 0..10_000 {
            assert!(seen.insert(Slab::<u32>::locate(index)));
        }
        assert_eq!(Slab::<u32>::locate(u32::MAX - FIRST_CHUNK).0, CHUNKS - 1);
    }
}
