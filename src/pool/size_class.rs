//! Sizes: rounded to 512 bytes, small and large apart. Pure.

use super::settings::SMALL_LIMIT;
use crate::units::ByteSize;

/// log2 of the unit that sizes are rounded to.
pub(super) const UNIT_SHIFT: u32 = 9;
/// The unit that sizes are rounded to, in bytes.
pub(super) const UNIT: u64 = 1 << UNIT_SHIFT;
/// The largest small size in units.
pub(super) const SMALL_UNITS: u32 = (SMALL_LIMIT.get() >> UNIT_SHIFT) as u32;

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class {
    /// 0 for small blocks, 1 for large ones.
    pub(super) heap: usize,
    /// How many units.
    pub(super) units: u32,
    /// Bytes of them that were not asked for, below a unit.
    pub(super) slack: u16,
}

/// The class of a request, or none for 0 bytes and for more than 2^32 - 2 units.
#[inline]
pub(super) const fn classify(size: ByteSize) -> Option<Class> {
    // Of 0 bytes there are far too many.
    let whole = size.get().wrapping_sub(1) >> UNIT_SHIFT;
    if whole >= u32::MAX as u64 - 1 {
        return None;
    }
    let units = whole as u32 + 1;
    // Bits above a unit's say nothing here.
    let slack = (size.get() as u32).wrapping_neg() % UNIT as u32;
    Some(Class { heap: (units > SMALL_UNITS) as usize, units, slack: slack as u16 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_and_the_border() {
        assert_eq!(classify(ByteSize(0)), None);
        assert_eq!(classify(ByteSize(u64::MAX)), None);
        assert_eq!(classify(ByteSize(1)), Some(Class { heap: 0, units: 1, slack: 511 }));
        assert_eq!(classify(SMALL_LIMIT), Some(Class { heap: 0, units: 2048, slack: 0 }));
        assert_eq!(classify(ByteSize((1 << 20) + 1)), Some(Class { heap: 1, units: 2049, slack: 511 }));
        let most = (u64::from(u32::MAX) - 1) * UNIT;
        assert_eq!(classify(ByteSize(most)).map(|c| c.units), Some(u32::MAX - 1));
        assert_eq!(classify(ByteSize(most + 1)), None);
    }

    proptest! {
        #[test]
        fn units_cover_the_bytes_and_no_more(bytes in 1_u64..=(1 << 40)) {
            let class = classify(ByteSize(bytes)).expect("a size that can be");
            prop_assert_eq!(u64::from(class.units) * UNIT, bytes + u64::from(class.slack));
            prop_assert!(u64::from(class.slack) < UNIT);
        }
    }
}
