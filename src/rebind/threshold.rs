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
    let mut sorted: Vec<u64> =
        sizes.iter().filter(|s| !s.is_zero() && limit.admits(**s)).map(|s| s.0).collect();
    sorted.sort_unstable();
    let mut admitted = Admitted { threshold: Threshold::OFF, bytes: 0, cut: false };
    for group in sorted.chunk_by(|a, b| smallest(*a) == smallest(*b)) {
        let sum = group.iter().fold(admitted.bytes, |sum, &size| sum + u128::from(size));
        if sum > budget {
            admitted.cut = true;
            break;
        }
        (admitted.threshold, admitted.bytes) = (Threshold(smallest(group[0])), sum);
    }
    admitted
}

/// The smallest threshold that admits `size`.
const fn smallest(size: u64) -> u64 {
    if size > Threshold::AUTO.0 { size } else { Threshold::AUTO.0 + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const H200: u64 = 4_200_000_000_000;

    fn sizes(of: &[u64]) -> Vec<ByteSize> {
        of.iter().map(|&s| ByteSize(s)).collect()
    }

    fn compute(of: &[u64], bandwidth: u64, free: u64, total: u64) -> Threshold {
        compute_threshold(&sizes(of), bandwidth, ByteSize(free), ByteSize(total))
    }

    #[test]
    fn without_bandwidth_it_is_64_kib() {
        assert_eq!(compute(&[], 0, 0, 0), Threshold(65_536));
        assert_eq!(compute(&[4, 1 << 30], 0, 1, 1), Threshold(65_536));
    }

    #[test]
    fn one_slice_takes_8_us_both_ways_at_most() {
        let largest = H200 / 1_000_000 * 4;
        assert_eq!(compute(&[8, largest], H200, 0, 1 << 40), Threshold(largest));
        assert_eq!(compute(&[8, largest + 1], H200, 0, 1 << 40), Threshold(8));
        assert_eq!(compute(&[largest + 1], H200, 0, 1 << 40), Threshold::OFF);
    }

    #[test]
    fn all_together_take_15_us_at_most() {
        // 63 MB there and back: 31.5 MB of slices.
        let two = [H200 / 1_000_000 * 15 / 4; 2];
        assert_eq!(compute(&two, H200, 0, 1 << 40), Threshold(two[0]));
        assert_eq!(compute(&[two[0], two[0], two[0]], H200, 0, 1 << 40), Threshold::OFF);
    }

    #[test]
    fn memory_bounds_it_by_the_free_figure_first() {
        assert_eq!(compute(&[500, 500], H200, 200_000, 1 << 40), Threshold(500));
        assert_eq!(compute(&[500, 500], H200, 199_900, 1 << 40), Threshold::OFF);
        assert_eq!(compute(&[500, 500], H200, 0, 400_000), Threshold(500));
        assert_eq!(compute(&[500, 500], H200, 0, 399_800), Threshold::OFF);
    }

    #[test]
    fn no_figure_at_all_still_bounds_it() {
        let fits = vec![1 << 20; 32];
        assert_eq!(compute(&fits, u64::MAX, 0, 0), Threshold(1 << 20));
        let too_many = vec![1 << 20; 33];
        assert_eq!(compute(&too_many, u64::MAX, 0, 0), Threshold::OFF);
    }

    #[test]
    fn a_size_goes_in_together_or_not_at_all() {
        // 1 % of 100,000 is 1,000: 500 bytes of slices.
        assert_eq!(compute(&[10, 200, 200, 200], H200, 100_000, 0), Threshold(10));
        assert_eq!(compute(&[10, 200, 200], H200, 100_000, 0), Threshold(200));
    }

    #[test]
    fn no_result_means_automatic_or_default() {
        assert_eq!(compute(&[1], H200, 0, 1 << 40), Threshold(2));
        assert_eq!(compute(&[0], H200, 0, 1 << 40), Threshold::OFF);
        assert_eq!(compute(&[], H200, 0, 1 << 40), Threshold::OFF);
        assert!(Threshold(2).admits(ByteSize(1)));
    }

    #[test]
    fn special_values_admit_nothing() {
        for t in [Threshold::DEFAULT, Threshold::AUTO, Threshold::OFF] {
            assert!(!t.admits(ByteSize(1)) && !t.admits(ByteSize(u64::MAX)));
        }
    }

    proptest! {
        #[test]
        fn what_is_admitted_keeps_every_bound(
            sizes in prop::collection::vec(prop_oneof![0u64..100_000, any::<u64>()], 0..60),
            bandwidth in prop_oneof![Just(0), 1u64..10_000_000_000_000, any::<u64>()],
            free in prop_oneof![Just(0), 1u64..1 << 40], total in prop_oneof![Just(0), 1u64..1 << 40],
        ) {
            let all: Vec<ByteSize> = sizes.iter().map(|&s| ByteSize(s)).collect();
            let t = compute_threshold(&all, bandwidth, ByteSize(free), ByteSize(total));
            prop_assert!(t != Threshold::DEFAULT && t != Threshold::AUTO);
            let mut turned = all.clone();
            turned.reverse();
            prop_assert_eq!(compute_threshold(&turned, bandwidth, ByteSize(free), ByteSize(total)), t);
            if bandwidth == 0 {
                prop_assert_eq!(t, Threshold(65_536));
            } else if t != Threshold::OFF {
                prop_assert!(sizes.iter().any(|&s| s.max(2) == t.0 && s != 0));
                let sum: u128 = sizes.iter().filter(|&&s| t.admits(ByteSize(s))).map(|&s| u128::from(s)).sum();
                prop_assert!(2 * sum <= u128::from(bandwidth) * 15 / 1_000_000);
                prop_assert!(2 * sum <= memory_bound(ByteSize(free), ByteSize(total)));
                prop_assert!(u128::from(t.0) * 1_000_000 <= u128::from(bandwidth) * 4);
            }
        }

        #[test]
        fn a_budget_cuts_between_sizes(
            sizes in prop::collection::vec(1u64..50, 0..40), limit in 2u64..60, budget in 0u64..600,
        ) {
            let all: Vec<ByteSize> = sizes.iter().map(|&s| ByteSize(s)).collect();
            let a = admit(&all, Threshold(limit), u128::from(budget));
            let sum = |t: Threshold| -> u128 {
                sizes.iter().filter(|&&s| t.admits(ByteSize(s))).map(|&s| u128::from(s)).sum()
            };
            prop_assert_eq!(sum(a.threshold), a.bytes);
            prop_assert!(a.bytes <= u128::from(budget));
            prop_assert_eq!(a.cut, a.bytes < sum(Threshold(limit)));
        }
    }
}
