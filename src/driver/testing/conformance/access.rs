//! mapped → accessible, and for whom.

use super::rig::{Rig, mismatch, refused, same};
use super::{Check, Checked, Verdict};
use crate::driver::{Access, AccessMode, Capabilities, Ordinal};
use crate::error::Kind;
use crate::units::{DevicePtr, DeviceRange};

const VM: Capabilities = Capabilities::VIRTUAL_MEMORY;
const RANGE: Capabilities = Capabilities::RANGE_ACCESS;
const JOINED: Capabilities = Capabilities::JOINED_ACCESS;
const SEPARATE: Capabilities = Capabilities::DEVICE_ACCESS;
const RW: AccessMode = AccessMode::READ_WRITE;

pub(super) const CHECKS: &[Check] = &[
    Check::new("nobody may touch a mapping before access is set", none_at_first).needs(VM),
    Check::new("who may read may not write", read_only).needs(VM),
    Check::new("access is lost at unmap", lost).needs(VM),
    Check::new("access can be taken away", taken).needs(VM),
    Check::new("access to a part of a mapping is refused", partial).needs(VM).needs(RANGE),
    Check::new("access to what is not mapped is refused", not_mapped).needs(VM),
    Check::new("access outside of a reservation is refused", outside).needs(VM),
    Check::new("a bad access list is refused and changes nothing", bad_list).needs(VM),
    Check::new("one call sets access for neighbours", joined).needs(VM.with(RANGE).with(JOINED)),
    Check::new("a hole among the neighbours is refused", hole).needs(VM.with(RANGE).with(JOINED)),
    Check::new("one call is for one mapping", one_by_one).needs(VM.with(RANGE)).lacks(JOINED),
    Check::new("a whole reservation may have holes", whole).needs(VM),
    Check::new("access is for the whole reservation only", whole_only).needs(VM).lacks(RANGE),
    Check::new("neighbours keep their own access", neighbours).needs(VM.with(RANGE)),
    Check::new("a device touches only what it was given", per_device).needs(VM.with(SEPARATE)).devices(2),
    Check::new("a device that is not listed keeps its access", not_listed)
        .needs(VM.with(SEPARATE))
        .devices(2),
    Check::new("without access of its own every device has all", for_all)
        .needs(VM)
        .lacks(SEPARATE)
        .devices(2),
];

fn none_at_first(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(1)?, rig.block(1)?);
    same("an empty range", (false, false), rig.touch(range)?)?;
    rig.map(range, block)?;
    same("a mapping without access", (false, false), rig.touch(range)?)?;
    rig.open(range, RW)?;
    same("a mapping with access", (true, true), rig.touch(range)?)
}

fn read_only(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(1)?, rig.block(1)?);
    rig.map(range, block)?;
    rig.open(range, AccessMode::READ)?;
    same("may be read, not written", (true, false), rig.touch(range)?)?;
    rig.survives_faults()?;
    let (good, stream) = (rig.memory(1)?, rig.stream()?);
    rig.copy(stream, good.start(), range.start(), 64)?;
    refused(Kind::DeviceFault, "a copy into it", rig.copy(stream, range.start(), good.start(), 64))
}

fn lost(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(1)?, rig.block(1)?);
    rig.map(range, block)?;
    rig.open(range, RW)?;
    rig.unmap(range)?;
    same("after the unmap", (false, false), rig.touch(range)?)?;
    rig.map(range, block)?;
    same("mapped again", (false, false), rig.touch(range)?)
}

fn taken(rig: &mut Rig) -> Verdict {
    let range = rig.memory(1)?;
    for (mode, seen) in
        [(AccessMode::READ, (true, false)), (AccessMode::NONE, (false, false)), (RW, (true, true))]
    {
        rig.open(range, mode)?;
        same("what the host may do", seen, rig.touch(range)?)?;
    }
    Ok(())
}

fn partial(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(4)?, rig.block(2)?);
    let middle = rig.part(range, 1, 2)?;
    rig.map(middle, block)?;
    for (first, count) in [(1, 1), (2, 1), (0, 2), (2, 2)] {
        let part = rig.part(range, first, count)?;
        refused(Kind::PartialMapping, "a part", rig.driver.set_access(part, &[rig.line(RW)]))?;
    }
    same("what the host may do", (false, false), rig.touch(middle)?)
}

fn not_mapped(rig: &mut Rig) -> Verdict {
    let range = rig.reserve(2)?;
    refused(Kind::NotMapped, "an empty range", rig.driver.set_access(range, &[rig.line(RW)]))
}

fn outside(rig: &mut Rig) -> Verdict {
    let range = rig.memory(1)?;
    let past = DeviceRange::new(range.start(), rig.granules(2)).ok_or_else(|| mismatch("a range", &range))?;
    refused(Kind::OutOfRange, "past the end", rig.driver.set_access(past, &[rig.line(RW)]))?;
    let nowhere = DeviceRange::new(DevicePtr(rig.granule.size().0), rig.granules(1));
    let nowhere = nowhere.ok_or_else(|| mismatch("a range", &range))?;
    refused(Kind::OutOfRange, "nowhere", rig.driver.set_access(nowhere, &[rig.line(RW)]))
}

fn bad_list(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(1)?, rig.block(1)?);
    rig.map(range, block)?;
    let set = |list: &[Access]| rig.driver.set_access(range, list);
    refused(Kind::InvalidArgument, "an empty list", set(&[]))?;
    refused(Kind::InvalidArgument, "a mode of 2", set(&[rig.line(RW), rig.line(AccessMode(2))]))?;
    let none = Access { device: Ordinal(rig.driver.device_count()), mode: RW };
    refused(Kind::NoDevice, "no such device", set(&[rig.line(RW), none]))?;
    same("what the host may do", (false, false), rig.touch(range)?)
}

/// Four granules with three mappings: of one, of two, and of one.
fn three(rig: &mut Rig) -> Checked<(DeviceRange, [DeviceRange; 3])> {
    let range = rig.reserve(4)?;
    let parts = [rig.part(range, 0, 1)?, rig.part(range, 1, 2)?, rig.part(range, 3, 1)?];
    for part in parts {
        let block = rig.block(part.size().0 / rig.granule.size().0)?;
        rig.map(part, block)?;
    }
    Ok((range, parts))
}

fn joined(rig: &mut Rig) -> Verdict {
    let (range, parts) = three(rig)?;
    rig.driver.set_access(rig.part(range, 1, 3)?, &[rig.line(RW)])?;
    same("the first keeps what it has", (false, false), rig.touch(parts[0])?)?;
    same("the second", (true, true), rig.touch(parts[1])?)?;
    same("the third", (true, true), rig.touch(parts[2])?)?;
    rig.driver.set_access(range, &[rig.line(AccessMode::READ)])?;
    for part in parts {
        same("after one call for all", (true, false), rig.touch(part)?)?;
    }
    Ok(())
}

fn hole(rig: &mut Rig) -> Verdict {
    let (range, parts) = three(rig)?;
    rig.unmap(parts[1])?;
    for (first, count) in [(0, 3), (1, 3), (1, 2)] {
        let part = rig.part(range, first, count)?;
        refused(Kind::NotMapped, "with a hole", rig.driver.set_access(part, &[rig.line(RW)]))?;
    }
    same("what the host may do", (false, false), rig.touch(parts[0])?)
}

fn one_by_one(rig: &mut Rig) -> Verdict {
    let (range, parts) = three(rig)?;
    let two = rig.part(range, 0, 3)?;
    refused(Kind::Unsupported, "two mappings", rig.driver.set_access(two, &[rig.line(RW)]))?;
    refused(Kind::Unsupported, "all mappings", rig.driver.set_access(range, &[rig.line(RW)]))?;
    for part in parts {
        rig.driver.set_access(part, &[rig.line(RW)])?;
        same("one mapping", (true, true), rig.touch(part)?)?;
    }
    Ok(())
}

fn whole(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(3)?, rig.block(1)?);
    let middle = rig.part(range, 1, 1)?;
    rig.map(middle, block)?;
    rig.driver.set_access(range, &[rig.line(RW)])?;
    same("the mapping", (true, true), rig.touch(middle)?)?;
    same("the hole", (false, false), rig.touch(range)?)
}

fn whole_only(rig: &mut Rig) -> Verdict {
    let (range, parts) = three(rig)?;
    for part in parts {
        refused(Kind::Unsupported, "one mapping", rig.driver.set_access(part, &[rig.line(RW)]))?;
    }
    rig.driver.set_access(range, &[rig.line(RW)])?;
    same("all", (true, true), rig.touch(parts[2])?)
}

fn neighbours(rig: &mut Rig) -> Verdict {
    let (_, parts) = three(rig)?;
    let modes = [RW, AccessMode::READ, AccessMode::NONE];
    for (part, mode) in parts.iter().zip(modes) {
        rig.driver.set_access(*part, &[rig.line(mode)])?;
    }
    for (part, seen) in parts.iter().zip([(true, true), (true, false), (false, false)]) {
        same("each as it was given", seen, rig.touch(*part)?)?;
    }
    Ok(())
}

/// Whether another device can copy out of `range`.
fn other_reads(rig: &mut Rig, range: DeviceRange) -> Checked<bool> {
    let other = rig.other();
    let stream = rig.stream_of(other)?;
    let memory = rig.driver.allocate(other, rig.granules(1))?;
    let slice = crate::driver::CopySlice { dst: memory, src: range.start(), bytes: 64 };
    rig.driver.copy(other, stream, &[slice])?;
    let ended = rig.streams().synchronize(stream);
    rig.destroy(stream)?;
    rig.driver.deallocate(other, memory)?;
    match ended {
        Ok(()) => Ok(true),
        Err(error) if error.kind == Kind::DeviceFault => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn per_device(rig: &mut Rig) -> Verdict {
    rig.survives_faults()?;
    let range = rig.memory(1)?;
    same("the other device reads what it was not given", false, other_reads(rig, range)?)?;
    let other = Access { device: rig.other(), mode: AccessMode::READ };
    rig.driver.set_access(range, &[rig.line(RW), other])?;
    same("the other device reads what it was given", true, other_reads(rig, range)?)?;
    rig.driver.set_access(range, &[rig.line(AccessMode::NONE)])?;
    if rig.has(Capabilities::HOST_TOUCH) {
        same("the host may do what any device may", (true, false), rig.touch(range)?)?;
    }
    let stream = rig.stream()?;
    let copied = rig.copy(stream, range.start(), range.start(), 64);
    refused(Kind::DeviceFault, "the own device without access", copied)
}

fn not_listed(rig: &mut Rig) -> Verdict {
    let range = rig.memory(1)?;
    let other = rig.other();
    rig.driver.set_access(range, &[Access { device: other, mode: AccessMode::READ }])?;
    same("the own device may still write", (true, true), rig.touch(range)?)?;
    rig.driver.set_access(range, &[rig.line(RW)])?;
    same("the other device may still read", true, other_reads(rig, range)?)
}

fn for_all(rig: &mut Rig) -> Verdict {
    let range = rig.memory(1)?;
    same("the other device reads", true, other_reads(rig, range)?)
}
