//! free ⇄ reserved.

use super::rig::{Rig, mismatch, refused, same};
use super::{Check, Verdict};
use crate::driver::Capabilities;
use crate::error::Kind;
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};

const VM: Capabilities = Capabilities::VIRTUAL_MEMORY;

pub(super) const CHECKS: &[Check] = &[
    Check::new("a range is aligned as asked and has the size asked", alignment).needs(VM),
    Check::new("ranges do not overlap", apart).needs(VM),
    Check::new("a range of no bytes or half a granule is refused", bad_sizes).needs(VM),
    Check::new("a range near 2^64 bytes is refused", huge).needs(VM),
    Check::new("an alignment below the granule is refused", bad_alignment).needs(VM),
    Check::new("a range is freed once, and as a whole", free_exactly).needs(VM),
    Check::new("a range that was never reserved is not freed", free_unknown).needs(VM),
    Check::new("a range with a mapping is in use", free_mapped).needs(VM),
    Check::new("reserving and freeing can go on for ever", again).needs(VM),
];

fn alignment(rig: &mut Rig) -> Verdict {
    for shift in 0..6 {
        let alignment = Granularity::new(rig.granule.size().0 << shift);
        let alignment = alignment.ok_or_else(|| mismatch("a power of two", &shift))?;
        let range = rig.driver.reserve(rig.device, rig.granules(3), alignment)?;
        let aligned = range.start().is_aligned(alignment);
        let size = range.size();
        rig.driver.free(range)?;
        same("aligned, and as large as asked", (true, rig.granules(3)), (aligned, size))?;
    }
    Ok(())
}

fn apart(rig: &mut Rig) -> Verdict {
    let mut ranges = Vec::new();
    for n in 1..20 {
        ranges.push(rig.reserve(n)?);
    }
    ranges.sort();
    let touching = ranges.windows(2).any(|pair| pair[0].overlaps(pair[1]));
    same("some ranges overlap", false, touching)
}

fn bad_sizes(rig: &mut Rig) -> Verdict {
    // Half of a large page may be whole small ones.
    let granule = rig.driver.granularity(rig.device, ByteSize(1))?.size().0;
    for bytes in [0, 1, granule / 2, granule + 1] {
        let reserved = rig.driver.reserve(rig.device, ByteSize(bytes), rig.granule);
        refused(Kind::InvalidSize, "reserve", reserved)?;
    }
    Ok(())
}

fn huge(rig: &mut Rig) -> Verdict {
    let most = rig.granule.round_down(ByteSize(u64::MAX));
    for size in [most, ByteSize(1 << 62)] {
        let reserved = rig.driver.reserve(rig.device, size, rig.granule);
        refused(Kind::OutOfAddressSpace, "reserve", reserved)?;
    }
    Ok(())
}

fn bad_alignment(rig: &mut Rig) -> Verdict {
    let half =
        Granularity::new(rig.granule.size().0 / 2).ok_or_else(|| mismatch("a granule of two halves", &1))?;
    refused(Kind::Misaligned, "reserve", rig.driver.reserve(rig.device, rig.granules(1), half))
}

fn free_exactly(rig: &mut Rig) -> Verdict {
    let range = rig.reserve(4)?;
    for (first, count) in [(0, 2), (2, 2), (1, 2)] {
        let part = rig.part(range, first, count)?;
        refused(Kind::OutOfRange, "freeing a part", rig.driver.free(part))?;
    }
    rig.free(range)?;
    refused(Kind::OutOfRange, "freeing twice", rig.driver.free(range))
}

fn free_unknown(rig: &mut Rig) -> Verdict {
    let nowhere = DeviceRange::new(DevicePtr(rig.granule.size().0), rig.granules(1));
    let nowhere = nowhere.ok_or_else(|| mismatch("a range", &rig.granule))?;
    refused(Kind::OutOfRange, "free", rig.driver.free(nowhere))
}

fn free_mapped(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(2)?, rig.block(1)?);
    let first = rig.part(range, 0, 1)?;
    rig.map(first, block)?;
    refused(Kind::InUse, "free", rig.driver.free(range))?;
    rig.unmap(first)?;
    Ok(rig.free(range)?)
}

fn again(rig: &mut Rig) -> Verdict {
    for n in 0..200 {
        let range = rig.reserve(1 + n % 7)?;
        rig.free(range)?;
    }
    Ok(())
}
