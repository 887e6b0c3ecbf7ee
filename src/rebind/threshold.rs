//! Up to which size a slot is copied rather than mapped: a pure function of sizes and of what is known of the
//! device, the same on every rank.

use crate::units::ByteSize;

/// Up to how many bytes a slot is copied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Threshold(pub u64);

impl Threshold {
    /// What `XLA_VMM_TMP_COPY_THRESHOLD` says, else automatic.
    pub const DEFAULT: Self = Self(0);
    /// Computed by [`compute_threshold`].
    pub const AUTO: Self = Self(1);
    /// Nothing is copied.
    pub const OFF: Self = Self(u64::MAX);

    /// True where a slot of `size` is copied. Only [`OFF`](Self::OFF) and numbers of bytes have an answer.
    pub const fn admits(self, size: ByteSize) -> bool {
        self.0 > Self::AUTO.0 && self.0 != Self::OFF.0 && size.0 <= self.0
    }
}

/// What a binding may copy at most where no bandwidth is known, in bytes a slot.
const WITHOUT_BANDWIDTH: Threshold = Threshold(65_536);

/// What bounds the shadows where no memory figure is known.
pub(super) const UNKNOWN_MEMORY_BOUND: ByteSize = ByteSize::mib(64);

/// The automatic rule. `bandwidth` is in bytes a second, reads and writes both counted; 0 says that a figure is
/// not known.
///
/// Without a bandwidth it is 65,536. Otherwise a slice may take 8 µs to copy both ways, and all that are admitted
/// together 15 µs and 1 % of the free memory (0.5 % of the total where the free figure is missing, 64 MiB where
/// both are); smallest first, slices of one size together or not at all. The last size admitted is the threshold;
/// where none is, it is [`Threshold::OFF`]. Sizes of 0 are ignored, and a size of 1 counts as 2 so that no result
/// means automatic.
pub fn compute_threshold(sizes: &[ByteSize], bandwidth: u64, free: ByteSize, total: ByteSize) -> Threshold {
    if bandwidth == 0 {
        return WITHOUT_BANDWIDTH;
    }
    let bandwidth = u128::from(bandwidth);
    let largest = u64::try_from(bandwidth * 4 / 1_000_000).unwrap_or(u64::MAX);
    let budget = (bandwidth * 15 / 1_000_000).min(memory_bound(free, total));
    let admitted = admit(sizes, Threshold(largest.min(Threshold::OFF.0 - 1)), budget / 2);
    admitted.threshold
}

/// How many bytes twice the shadows may have.
fn memory_bound(free: ByteSize, total: ByteSize) -> u128 {
    u128::from(match (free.0, total.0) {
        (0, 0) => UNKNOWN_MEMORY_BOUND.0,
        (0, total) => total / 200,
        (free, _) => free / 100,
    })
}

/// What an upper limit and a budget let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Admitted {
    /// The largest size let in, or off.
    pub(super) threshold: Threshold,
    /// The sum of all sizes let in, in bytes.
    pub(super) bytes: u128,
    /// True where a size within the limit was kept out by the budget.
    pub(super) cut: bool,
}

/// Lets sizes in up to `limit`, smallest first, one size together, while their sum stays within `budget` bytes.
pub(super) fn admit(sizes: &[ByteSize], limit: Threshold, budget: u128) -> Admitted {
    let mut sorted: Vec<u64> = sizes
        .iter()
        .filter(|s| !s.is_zero())
        .map(|s| s.0.max(2))
        .filter(|&s| limit.admits(ByteSize(s)))
        .collect();
    sorted.sort_unstable();
    let mut admitted = Admitted { threshold: Threshold::OFF, bytes: 0, cut: false };
    for group in sorted.chunk_by(|a, b| a == b) {
        let sum = admitted.bytes + u128::from(group[0]) * group.len() as u128;
        if sum > budget {
            admitted.cut = true;
            break;
        }
        (admitted.threshold, admitted.bytes) = (Threshold(group[0]), sum);
    }
    admitted
}
