//! reserved ⇄ mapped.

use super::rig::{Rig, mismatch, refused, same};
use super::{Check, Verdict};
use crate::driver::{AccessMode, Capabilities};
use crate::error::Kind;
use crate::units::{ByteSize, DevicePtr, DeviceRange};

const VM: Capabilities = Capabilities::VIRTUAL_MEMORY;
const ALIASING: Capabilities = Capabilities::ALIASING;
const RW: AccessMode = AccessMode::READ_WRITE;

pub(super) const CHECKS: &[Check] = &[
    Check::new("map and unmap can go on for ever", cycle).needs(VM),
    Check::new("mapping over a mapping is refused and changes nothing", over).needs(VM),
    Check::new("mapping outside of a reservation is refused", outside).needs(VM),
    Check::new("a part of a block, or more than it, is not mapped", size).needs(VM),
    Check::new("mapping at an odd address is refused", misaligned).needs(VM),
    Check::new("mapping a handle that does not exist is refused", no_block).needs(VM),
    Check::new("what is not mapped is not unmapped", unmap_nothing).needs(VM),
    Check::new("a mapping is unmapped once", unmap_twice).needs(VM),
    Check::new("a part of a mapping is not unmapped", unmap_part).needs(VM),
    Check::new("two mappings are not unmapped by one call", unmap_two).needs(VM),
    Check::new("a block keeps its bytes when it moves to another address", moves).needs(VM),
    Check::new("an address shows the bytes of the block that is mapped there", replaced).needs(VM),
    Check::new("holes between mappings can be filled in any order", holes).needs(VM),
    Check::new("two views of one block show the same bytes", aliases).needs(VM).needs(ALIASING),
    Check::new("a view outlives the other", one_alias_left).needs(VM).needs(ALIASING),
    Check::new("a block whose first view is gone is mapped again after its access changed", first_view_gone)
        .needs(VM)
        .needs(ALIASING),
    Check::new("without aliasing a block is mapped once at a time", no_alias).needs(VM).lacks(ALIASING),
];

fn cycle(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(1)?, rig.block(1)?);
    for _ in 0..300 {
        rig.map(range, block)?;
        rig.open(range, RW)?;
        rig.unmap(range)?;
    }
    Ok(())
}

fn over(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(3)?, rig.block(2)?);
    let first = rig.part(range, 0, 2)?;
    rig.map(first, block)?;
    rig.open(first, RW)?;
    rig.write(first.start(), b"mine").or_else(skipped_is_fine)?;
    let (same_size, one) = (rig.block(2)?, rig.block(1)?);
    let all = rig.block(3)?;
    refused(Kind::AlreadyMapped, "the same range", rig.driver.map(first, same_size))?;
    refused(Kind::AlreadyMapped, "its end", rig.driver.map(rig.part(range, 1, 2)?, same_size))?;
    refused(Kind::AlreadyMapped, "inside", rig.driver.map(rig.part(range, 1, 1)?, one))?;
    refused(Kind::AlreadyMapped, "around", rig.driver.map(range, all))?;
    rig.holds(first, b"mine", "the first mapping's content").or_else(skipped_is_fine)?;
    let last = rig.part(range, 2, 1)?;
    Ok(rig.map(last, one)?)
}

/// Goes on where only the looking at bytes is not to be had.
fn skipped_is_fine(stop: super::Stop) -> Verdict {
    match stop {
        super::Stop::Skip(_) => Ok(()),
        stop @ super::Stop::Fail(_) => Err(stop),
    }
}

fn outside(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(2)?, rig.block(2)?);
    let past = DeviceRange::new(rig.part(range, 1, 1)?.start(), rig.granules(2));
    let past = past.ok_or_else(|| mismatch("a range", &range))?;
    refused(Kind::OutOfRange, "past the end", rig.driver.map(past, block))?;
    let nowhere = DeviceRange::new(DevicePtr(rig.granule.size().0), rig.granules(2));
    let nowhere = nowhere.ok_or_else(|| mismatch("a range", &range))?;
    refused(Kind::OutOfRange, "in no reservation", rig.driver.map(nowhere, block))?;
    rig.free(range)?;
    refused(Kind::OutOfRange, "in a freed one", rig.driver.map(range, block))
}

fn size(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(4)?, rig.block(2)?);
    for n in [1, 3, 4] {
        refused(Kind::InvalidSize, "map", rig.driver.map(rig.part(range, 0, n)?, block))?;
    }
    let first = rig.part(range, 0, 2)?;
    Ok(rig.map(first, block)?)
}

fn misaligned(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(2)?, rig.block(1)?);
    for offset in [1, 4096, rig.granule.size().0 / 2] {
        let part =
            range.slice(ByteSize(offset), rig.granules(1)).ok_or_else(|| mismatch("a part", &range))?;
        refused(Kind::Misaligned, "map", rig.driver.map(part, block))?;
    }
    Ok(())
}

fn no_block(rig: &mut Rig) -> Verdict {
    let range = rig.reserve(1)?;
    for handle in [0, u64::MAX] {
        let mapped = rig.driver.map(range, crate::driver::NativeBlock(handle));
        refused(Kind::InvalidHandle, "map", mapped)?;
    }
    Ok(())
}

fn unmap_nothing(rig: &mut Rig) -> Verdict {
    let range = rig.reserve(3)?;
    refused(Kind::NotMapped, "an empty range", rig.driver.unmap(range))?;
    let (middle, block) = (rig.part(range, 1, 1)?, rig.block(1)?);
    rig.map(middle, block)?;
    refused(Kind::NotMapped, "beside a mapping", rig.driver.unmap(rig.part(range, 0, 1)?))?;
    refused(Kind::NotMapped, "behind a mapping", rig.driver.unmap(rig.part(range, 2, 1)?))
}

fn unmap_twice(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(1)?, rig.block(1)?);
    rig.map(range, block)?;
    rig.unmap(range)?;
    refused(Kind::NotMapped, "unmapping twice", rig.driver.unmap(range))
}

fn unmap_part(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(4)?, rig.block(2)?);
    let middle = rig.part(range, 1, 2)?;
    rig.map(middle, block)?;
    for (first, count) in [(1, 1), (2, 1), (0, 2), (2, 2), (0, 4)] {
        let part = rig.part(range, first, count)?;
        refused(Kind::PartialMapping, "unmapping a part", rig.driver.unmap(part))?;
    }
    Ok(rig.unmap(middle)?)
}

fn unmap_two(rig: &mut Rig) -> Verdict {
    let (range, a, b) = (rig.reserve(2)?, rig.block(1)?, rig.block(1)?);
    let (first, second) = (rig.part(range, 0, 1)?, rig.part(range, 1, 1)?);
    rig.map(first, a)?;
    rig.map(second, b)?;
    refused(Kind::PartialMapping, "both at once", rig.driver.unmap(range))?;
    rig.unmap(first)?;
    Ok(rig.unmap(second)?)
}

fn moves(rig: &mut Rig) -> Verdict {
    let (from, to, block) = (rig.reserve(1)?, rig.reserve(1)?, rig.block(1)?);
    rig.map(from, block)?;
    rig.open(from, RW)?;
    rig.write(from.start(), b"carried over")?;
    rig.unmap(from)?;
    rig.map(to, block)?;
    rig.open(to, RW)?;
    rig.holds(to, b"carried over", "the bytes at the new address")
}

fn replaced(rig: &mut Rig) -> Verdict {
    let (range, a, b) = (rig.reserve(1)?, rig.block(1)?, rig.block(1)?);
    for (block, bytes) in [(a, b"aaaa"), (b, b"bbbb")] {
        rig.map(range, block)?;
        rig.open(range, RW)?;
        rig.write(range.start(), bytes)?;
        rig.unmap(range)?;
    }
    rig.map(range, a)?;
    rig.open(range, RW)?;
    rig.holds(range, b"aaaa", "the first block's bytes")
}

fn holes(rig: &mut Rig) -> Verdict {
    let range = rig.reserve(8)?;
    for granule in [3, 0, 7, 4, 2, 6, 1, 5] {
        let (part, block) = (rig.part(range, granule, 1)?, rig.block(1)?);
        rig.map(part, block)?;
    }
    for granule in [5, 3, 4, 0, 7, 1, 6, 2] {
        let part = rig.part(range, granule, 1)?;
        rig.unmap(part)?;
    }
    let block = rig.block(8)?;
    Ok(rig.map(range, block)?)
}

fn aliases(rig: &mut Rig) -> Verdict {
    let (a, b, block) = (rig.reserve(1)?, rig.reserve(1)?, rig.block(1)?);
    for range in [a, b] {
        rig.map(range, block)?;
        rig.open(range, RW)?;
    }
    rig.write(a.start(), b"through a")?;
    rig.holds(b, b"through a", "what the second view shows")?;
    rig.write(b.start(), b"through b")?;
    rig.holds(a, b"through b", "what the first view shows")
}

fn first_view_gone(rig: &mut Rig) -> Verdict {
    let ([first, second, third], block) =
        ([rig.reserve(1)?, rig.reserve(1)?, rig.reserve(1)?], rig.block(1)?);
    rig.map(first, block)?;
    rig.map(second, block)?;
    rig.unmap(first)?;
    rig.open(second, RW)?;
    rig.map(first, block)?;
    rig.open(first, RW)?;
    rig.map(third, block)?;
    rig.open(third, AccessMode::READ)?;
    Ok(rig.open(third, RW)?)
}

fn one_alias_left(rig: &mut Rig) -> Verdict {
    let (a, b, block) = (rig.reserve(1)?, rig.reserve(1)?, rig.block(1)?);
    for range in [a, b] {
        rig.map(range, block)?;
        rig.open(range, RW)?;
    }
    rig.write(a.start(), b"kept")?;
    rig.unmap(a)?;
    rig.release(block)?;
    rig.holds(b, b"kept", "what the view that is left shows")?;
    same("the other one is gone", (false, false), rig.touch(a)?)
}

fn no_alias(rig: &mut Rig) -> Verdict {
    let (a, b, block) = (rig.reserve(1)?, rig.reserve(1)?, rig.block(1)?);
    rig.map(a, block)?;
    refused(Kind::Unsupported, "a second view", rig.driver.map(b, block))?;
    rig.unmap(a)?;
    Ok(rig.map(b, block)?)
}
