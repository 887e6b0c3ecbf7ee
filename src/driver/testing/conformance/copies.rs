//! Copies on a stream.

use super::rig::{Rig, mismatch, refused, same};
use super::{Check, Checked, Verdict};
use crate::driver::{AccessMode, Capabilities, CopySlice, Stream};
use crate::error::Kind;
use crate::units::{ByteSize, DevicePtr, DeviceRange};

const VM: Capabilities = Capabilities::VIRTUAL_MEMORY;

pub(super) const CHECKS: &[Check] = &[
    Check::new("one slice is copied", one).needs(VM),
    Check::new("3 slices of odd sizes and places are copied together", three).needs(VM),
    Check::new("256 slices of odd sizes and places are copied together", many).needs(VM),
    Check::new("5000 slices of odd sizes and places are copied together", very_many).needs(VM),
    Check::new("slices of no bytes copy nothing and cost no launch", empty_slices),
    Check::new("no slices cost no launch", no_slices),
    Check::new("joint copies are one launch, others one each", launches),
    Check::new("a slice may span neighbouring mappings", across).needs(VM),
    Check::new("a large slice is copied as a whole", large).needs(VM),
    Check::new("copies run in the order in which they were enqueued", order),
    Check::new("a slice past the last address is refused and blamed", past_the_end),
    Check::new("a stream that does not exist is refused", no_stream).lacks(Capabilities::NULL_STREAM),
    Check::new("a destroyed stream is refused", destroyed_stream).lacks(Capabilities::NULL_STREAM),
    Check::new("another device's stream is refused", other_s_stream).devices(2),
    Check::new("an address that nobody has ends a stream for good", fault),
    Check::new("a copy out of a hole is a fault", fault_in_hole).needs(VM),
    Check::new("a copy from what was unmapped before it ran is a fault", fault_unmapped)
        .needs(VM.with(Capabilities::EARLY_WAITS)),
    Check::new("destroying a stream waits for its copies", destroy_waits),
];

/// `count` slices of odd sizes, at odd places, from one half of memory to the other.
fn slices(memory: DeviceRange, count: u64) -> Vec<CopySlice> {
    let half = memory.size().0 / 2;
    let room = half / count;
    let slice = |i: u64| {
        // At most 9 bytes aside and at most room − 16 bytes long: slices stay apart.
        let bytes = (1 + i * 37 % 4096).min(room.saturating_sub(16));
        let (from, to) = (i * room + i % 10, i * room + i * 7 % 10);
        CopySlice {
            dst: DevicePtr(memory.start().0 + half + to),
            src: DevicePtr(memory.start().0 + from),
            bytes,
        }
    };
    (0..count).map(slice).collect()
}

/// Bytes that differ from place to place, and from page to page.
fn pattern(size: u64) -> Vec<u8> {
    /// A prime, so that pages and slices never begin at the same byte of it.
    const PERIOD: u32 = 65_521;
    let tile: Vec<u8> = (0..PERIOD).map(|i| (i ^ i >> 8) as u8).collect();
    let mut bytes = tile.repeat((size / u64::from(PERIOD)) as usize + 1);
    bytes.truncate(size as usize);
    bytes
}

/// What memory holds after `slices`, which copy from its first half to its second.
fn expected(memory: DeviceRange, mut bytes: Vec<u8>, slices: &[CopySlice]) -> Vec<u8> {
    for slice in slices {
        let from = (slice.src.0 - memory.start().0) as usize;
        let to = (slice.dst.0 - memory.start().0) as usize;
        bytes.copy_within(from..from + slice.bytes as usize, to);
    }
    bytes
}

/// The first place where two memories differ.
fn difference(expected: &[u8], seen: &[u8]) -> Option<(usize, u8, u8)> {
    if expected == seen {
        return None;
    }
    let mut both = expected.iter().zip(seen).enumerate();
    both.find_map(|(i, (e, s))| (e != s).then_some((i, *e, *s)))
}

fn copied_together(rig: &mut Rig, count: u64) -> Verdict {
    let (memory, stream) = (rig.memory(1)?, rig.stream()?);
    let before = pattern(memory.size().0);
    rig.write(memory.start(), &before)?;
    let slices = slices(memory, count);
    rig.driver.copy(rig.device, stream, &slices)?;
    rig.streams().synchronize(stream)?;
    let seen = rig.read(memory.start(), before.len())?;
    same("first difference (at, expected, seen)", None, difference(&expected(memory, before, &slices), &seen))
}

fn one(rig: &mut Rig) -> Verdict {
    copied_together(rig, 1)
}

fn three(rig: &mut Rig) -> Verdict {
    copied_together(rig, 3)
}

fn many(rig: &mut Rig) -> Verdict {
    copied_together(rig, 256)
}

fn very_many(rig: &mut Rig) -> Verdict {
    copied_together(rig, 5000)
}

/// Two places of plain memory, which every device has.
fn two(rig: &mut Rig) -> Checked<(DevicePtr, DevicePtr, Stream)> {
    Ok((rig.plain(ByteSize(8192))?, rig.plain(ByteSize(8192))?, rig.stream()?))
}

fn empty_slices(rig: &mut Rig) -> Verdict {
    let (a, b, stream) = two(rig)?;
    let empty = CopySlice { dst: b, src: a, bytes: 0 };
    let nowhere = CopySlice { dst: DevicePtr::NULL, src: DevicePtr(1), bytes: 0 };
    same("launches", 0, rig.driver.copy(rig.device, stream, &[empty, nowhere])?)?;
    same("launches with one that is not empty", 1, {
        let full = CopySlice { dst: b, src: a, bytes: 1 };
        rig.driver.copy(rig.device, stream, &[nowhere, full, empty])?
    })?;
    Ok(rig.streams().synchronize(stream)?)
}

fn no_slices(rig: &mut Rig) -> Verdict {
    let stream = rig.stream()?;
    same("launches", 0, rig.driver.copy(rig.device, stream, &[])?)?;
    Ok(rig.streams().synchronize(stream)?)
}

fn launches(rig: &mut Rig) -> Verdict {
    let (a, b, stream) = two(rig)?;
    let at = |base: DevicePtr, i: u64| DevicePtr(base.0 + i * 16);
    let slices: Vec<_> = (0..20).map(|i| CopySlice { dst: at(b, i), src: at(a, i), bytes: 16 }).collect();
    let seen = rig.driver.copy(rig.device, stream, &slices)?;
    rig.streams().synchronize(stream)?;
    same("launches", if rig.has(Capabilities::JOINT_COPIES) { 1 } else { 20 }, seen)
}

fn across(rig: &mut Rig) -> Verdict {
    let (range, target, stream) = (rig.reserve(2)?, rig.memory(1)?, rig.stream()?);
    for granule in 0..2 {
        let (part, block) = (rig.part(range, granule, 1)?, rig.block(1)?);
        rig.map(part, block)?;
        rig.open(part, AccessMode::READ_WRITE)?;
    }
    let middle = DevicePtr(rig.part(range, 1, 1)?.start().0 - 1000);
    rig.write(middle, &pattern(2000))?;
    rig.copy(stream, target.start(), middle, 2000)?;
    rig.holds(target, &pattern(2000), "what lay across the border")
}

fn large(rig: &mut Rig) -> Verdict {
    let (a, b, stream) = (rig.memory(3)?, rig.memory(3)?, rig.stream()?);
    let bytes = pattern(a.size().0);
    rig.write(a.start(), &bytes)?;
    rig.copy(stream, b.start(), a.start(), a.size().0)?;
    let seen = rig.read(b.start(), bytes.len())?;
    same("first difference (at, expected, seen)", None, difference(&bytes, &seen))
}

fn order(rig: &mut Rig) -> Verdict {
    let (a, b, stream) = two(rig)?;
    let at = |base: DevicePtr, i: u64| DevicePtr(base.0 + i);
    rig.write(a, &pattern(64))?;
    // Each copy moves on what the one before has brought; in any other order the bytes differ.
    for i in 0..500 {
        let (from, to) = if i % 2 == 0 { (at(a, i), at(b, i + 1)) } else { (at(b, i), at(a, i + 1)) };
        rig.driver.copy(rig.device, stream, &[CopySlice { dst: to, src: from, bytes: 64 }])?;
    }
    rig.streams().synchronize(stream)?;
    same("the bytes after 500 moves", pattern(64), rig.read(at(a, 500), 64)?)
}

fn past_the_end(rig: &mut Rig) -> Verdict {
    let (a, b, stream) = two(rig)?;
    let good = CopySlice { dst: b, src: a, bytes: 16 };
    for bad in [CopySlice { src: DevicePtr(u64::MAX), ..good }, CopySlice { dst: b, src: a, bytes: u64::MAX }]
    {
        let copied = rig.driver.copy(rig.device, stream, &[good, bad]);
        same("the slice to blame", Some(1), copied.err().and_then(|e| e.entry))?;
        refused(Kind::OutOfRange, "copy", copied)?;
    }
    Ok(rig.streams().synchronize(stream)?)
}

fn no_stream(rig: &mut Rig) -> Verdict {
    let (a, b, _) = two(rig)?;
    let copied = rig.driver.copy(rig.device, Stream(0), &[CopySlice { dst: b, src: a, bytes: 16 }]);
    refused(Kind::InvalidStream, "copy", copied)?;
    refused(Kind::InvalidStream, "synchronize", rig.streams().synchronize(Stream(0)))?;
    refused(Kind::InvalidStream, "destroy", rig.streams().destroy(Stream(0)))?;
    refused(Kind::InvalidStream, "is_capturing", rig.driver.is_capturing(rig.device, Stream(0)))
}

fn destroyed_stream(rig: &mut Rig) -> Verdict {
    let (a, b, stream) = two(rig)?;
    rig.destroy(stream)?;
    let copied = rig.driver.copy(rig.device, stream, &[CopySlice { dst: b, src: a, bytes: 16 }]);
    refused(Kind::InvalidStream, "copy", copied)?;
    refused(Kind::InvalidStream, "destroy", rig.streams().destroy(stream))?;
    same("the number comes back", false, rig.stream()? == stream)
}

fn other_s_stream(rig: &mut Rig) -> Verdict {
    let (a, b, _) = two(rig)?;
    let other = rig.other();
    let stream = rig.stream_of(other)?;
    let copied = rig.driver.copy(rig.device, stream, &[CopySlice { dst: b, src: a, bytes: 16 }]);
    refused(Kind::InvalidStream, "copy", copied)
}

fn fault(rig: &mut Rig) -> Verdict {
    rig.survives_faults()?;
    let (a, b, stream) = two(rig)?;
    let good = CopySlice { dst: b, src: a, bytes: 16 };
    for bad in [CopySlice { src: DevicePtr(64), ..good }, CopySlice { dst: DevicePtr::NULL, ..good }] {
        let stream = rig.stream()?;
        rig.driver.copy(rig.device, stream, &[bad])?;
        refused(Kind::DeviceFault, "synchronize", rig.streams().synchronize(stream))?;
        refused(Kind::DeviceFault, "synchronize again", rig.streams().synchronize(stream))?;
        refused(Kind::DeviceFault, "a good copy", rig.driver.copy(rig.device, stream, &[good]))?;
    }
    rig.driver.copy(rig.device, stream, &[good])?;
    Ok(rig.streams().synchronize(stream)?)
}

fn fault_in_hole(rig: &mut Rig) -> Verdict {
    rig.survives_faults()?;
    let (range, block, target) = (rig.reserve(2)?, rig.block(1)?, rig.memory(1)?);
    let first = rig.part(range, 0, 1)?;
    rig.map(first, block)?;
    rig.open(first, AccessMode::READ_WRITE)?;
    let border = first.end();
    for from in [border.0, border.0 - 1, border.0 + 4096] {
        let stream = rig.stream()?;
        let copied = rig.copy(stream, target.start(), DevicePtr(from), 64);
        refused(Kind::DeviceFault, "out of the hole", copied)?;
    }
    Ok(())
}

fn fault_unmapped(rig: &mut Rig) -> Verdict {
    rig.survives_faults()?;
    let (range, block, target) = (rig.reserve(1)?, rig.block(1)?, rig.memory(1)?);
    rig.map(range, block)?;
    rig.open(range, AccessMode::READ_WRITE)?;
    let (stream, gate) = (rig.stream()?, rig.timeline()?);
    rig.driver.stream_wait(stream, gate, 1)?;
    let slice = CopySlice { dst: target.start(), src: range.start(), bytes: 64 };
    rig.driver.copy(rig.device, stream, &[slice])?;
    rig.unmap(range)?;
    let opener = rig.stream()?;
    rig.driver.timeline_write(opener, gate, 1)?;
    refused(Kind::DeviceFault, "synchronize", rig.streams().synchronize(stream))
}

fn destroy_waits(rig: &mut Rig) -> Verdict {
    let (a, b, stream) = two(rig)?;
    rig.write(a, &[9; 4096])?;
    for _ in 0..200 {
        rig.driver.copy(rig.device, stream, &[CopySlice { dst: b, src: a, bytes: 4096 }])?;
    }
    let last = DevicePtr(b.0 + 4096);
    rig.driver.copy(rig.device, stream, &[CopySlice { dst: last, src: b, bytes: 4096 }])?;
    rig.destroy(stream)?;
    if rig.read(last, 4096)? == [9; 4096] {
        Ok(())
    } else {
        Err(mismatch("the last copy's bytes", &"others"))
    }
}
