//! Data that depends on step, slot and position, so that stale or misplaced bytes are seen.
//!
//! Of up to 64 KiB every byte is written and checked; of more, the first and the last 64 bytes and a word in
//! every 64 KiB.
#![allow(unsafe_code, reason = "a device address of the host driver is touched through a pointer")]

use gvmm::units::{ByteSize, DevicePtr};

const WHOLE_BYTES: u64 = 64 << 10;
const EDGE_BYTES: u64 = 64;
const WORD_BYTES: u64 = 8;

/// Names the data of one slot in one step, going in or coming out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seed(u64);

impl Seed {
    /// Of what goes in.
    pub(crate) fn of_input(step: usize, slot: usize) -> Self {
        Self(mix(mix(2 * step as u64).wrapping_add(slot as u64)))
    }

    /// Of what comes out.
    pub(crate) fn of_output(step: usize, slot: usize) -> Self {
        Self(mix(mix(2 * step as u64 + 1).wrapping_add(slot as u64)))
    }

    /// The number that the data comes from.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    fn word(self, at: u64) -> [u8; 8] {
        mix(self.0.wrapping_add(at)).to_le_bytes()
    }
}

/// One to one and well mixed (the finalizer of splitmix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Device memory that the host can touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    address: DevicePtr,
    bytes: u64,
    /// How much before multiples of 64 KiB the words in the middle are.
    phase: u64,
}

impl Memory {
    /// # Safety
    /// Whenever [`write`](Self::write) or [`matches`](Self::matches) runs, `bytes` bytes at `address` are mapped
    /// into this process for reading and writing, and nobody else touches them.
    pub(crate) unsafe fn new(address: DevicePtr, bytes: ByteSize) -> Self {
        Self { address, bytes: bytes.get(), phase: 0 }
    }

    /// The same, looked at where addresses are multiples of 64 KiB: of memory that is used again and again, mostly one page
    /// in sixteen is touched. Whoever writes and whoever checks must see it at one address.
    pub(crate) fn by_address(self) -> Self {
        Self { phase: (self.address.get() % WHOLE_BYTES) & !(WORD_BYTES - 1), ..self }
    }

    /// Writes the data of `seed`.
    pub(crate) fn write(self, seed: Seed) {
        each_word(self.bytes, self.phase, |at, count| {
            let word = seed.word(at);
            let target = (self.address.get() + at) as *mut u8;
            // SAFETY: `at + count` is at most `bytes`, and `new`'s caller promised that these can be written.
            unsafe { target.copy_from_nonoverlapping(word.as_ptr(), count) };
            true
        });
    }

    /// True where the data is that of `seed`.
    pub(crate) fn matches(self, seed: Seed) -> bool {
        each_word(self.bytes, self.phase, |at, count| {
            let mut word = [0; 8];
            let source = (self.address.get() + at) as *const u8;
            // SAFETY: `at + count` is at most `bytes`, and `new`'s caller promised that these can be read.
            unsafe { source.copy_to_nonoverlapping(word.as_mut_ptr(), count) };
            word[..count] == seed.word(at)[..count]
        })
    }
}

/// Calls `visit` with the offset and the length (8, or less at the end) of each word that is looked at, until one
/// is refused. The words in the middle are `phase` before multiples of 64 KiB.
fn each_word(bytes: u64, phase: u64, mut visit: impl FnMut(u64, usize) -> bool) -> bool {
    let mut span = |begin: u64, end: u64| {
        (begin..end).step_by(WORD_BYTES as usize).all(|at| visit(at, (end - at).min(WORD_BYTES) as usize))
    };
    if bytes <= WHOLE_BYTES {
        return span(0, bytes);
    }
    let tail = (bytes - EDGE_BYTES) & !(WORD_BYTES - 1);
    let words = (1..).map(|i| i * WHOLE_BYTES - phase).take_while(|at| at + WORD_BYTES <= bytes);
    span(0, EDGE_BYTES) && words.into_iter().all(|at| span(at, at + WORD_BYTES)) && span(tail, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: &mut [u8]) -> Memory {
        let address = DevicePtr(bytes.as_mut_ptr() as u64);
        // SAFETY: the callers below use it at once, while they hold the bytes.
        unsafe { Memory::new(address, ByteSize(bytes.len() as u64)) }
    }

    #[test]
    fn every_byte_of_a_small_buffer_counts() {
        let mut bytes = [0; 4099];
        let seed = Seed::of_input(3, 4);
        memory(&mut bytes).write(seed);
        assert!(memory(&mut bytes).matches(seed));
        for i in 0..bytes.len() {
            bytes[i] ^= 1;
            assert!(!memory(&mut bytes).matches(seed), "byte {i}");
            bytes[i] ^= 1;
        }
    }

    #[test]
    fn a_large_buffer_is_seen_at_both_ends_and_in_every_64_kib() {
        let mut bytes = vec![0; (1 << 20) + 13];
        let (seed, end) = (Seed::of_output(1, 2), bytes.len());
        let by_address = (bytes.as_ptr().addr() % (64 << 10)) & !7;
        for (look, phase) in [(Memory::clone as fn(&Memory) -> Memory, 0), (|of| of.by_address(), by_address)]
        {
            look(&memory(&mut bytes)).write(seed);
            assert!(look(&memory(&mut bytes)).matches(seed));
            for i in (0..64).chain(end - 64..end).chain((1..16).map(|i| (i << 16) - phase)) {
                bytes[i] ^= 0x80;
                assert!(!look(&memory(&mut bytes)).matches(seed), "byte {i}");
                bytes[i] ^= 0x80;
            }
        }
    }

    #[test]
    fn seeds_of_other_steps_slots_and_directions_differ() {
        let seed = Seed::of_input(1, 2);
        for other in [Seed::of_input(2, 2), Seed::of_input(1, 3), Seed::of_output(1, 2), Seed::of_input(2, 1)]
        {
            assert_ne!(seed, other);
        }
    }
}
