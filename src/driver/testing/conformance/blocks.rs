//! Blocks, and the memory that they take.

use super::rig::{Rig, mismatch, refused, same};
use super::{Check, Checked, Stop, Verdict};
use crate::driver::{AccessMode, Capabilities, CreateOptions, DriverKind, NativeBlock};
use crate::error::Kind;
use crate::units::ByteSize;

const VM: Capabilities = Capabilities::VIRTUAL_MEMORY;

pub(super) const CHECKS: &[Check] = &[
    Check::new("a block of no bytes or half a granule is refused", bad_sizes).needs(VM),
    Check::new("every block has a handle of its own", handles).needs(VM),
    Check::new("a block is released once", release_once).needs(VM),
    Check::new("a handle that was never given is refused", release_unknown).needs(VM),
    Check::new("a released block cannot be mapped", map_released).needs(VM),
    Check::new("a block released while mapped lives until it is unmapped", release_mapped).needs(VM),
    Check::new("a block larger than the memory is refused and takes nothing", too_large).needs(VM),
    Check::new("blocks take memory and give it back", figures).needs(VM),
    Check::new("a released block's memory goes with its last mapping", figures_mapped).needs(VM),
    Check::new("all memory can be had, and once more", exhaust).needs(VM),
    Check::new("a native handle is checked for device and size", native).needs(VM),
    Check::new("a released block's native handle is refused", native_released).needs(VM),
];

/// The free bytes now.
fn free(rig: &Rig) -> Checked<ByteSize> {
    rig.driver.memory(rig.device)?.free.ok_or(Stop::Skip("the driver does not tell how much memory is free"))
}

fn bad_sizes(rig: &mut Rig) -> Verdict {
    // Half of a large page may be whole small ones.
    let granule = rig.driver.granularity(rig.device, ByteSize(1))?.size().0;
    for bytes in [0, 1, granule / 2, granule + 1] {
        let created = rig.driver.create(rig.device, ByteSize(bytes), CreateOptions::default());
        refused(Kind::InvalidSize, "create", created)?;
    }
    Ok(())
}

fn handles(rig: &mut Rig) -> Verdict {
    let mut seen = Vec::new();
    for _ in 0..8 {
        seen.push(rig.block(1)?.0);
    }
    seen.sort_unstable();
    seen.dedup();
    same("eight handles, none of them 0", (8, false), (seen.len(), seen.contains(&0)))
}

fn release_once(rig: &mut Rig) -> Verdict {
    let block = rig.block(1)?;
    rig.release(block)?;
    refused(Kind::InvalidHandle, "releasing twice", rig.driver.release(block))
}

fn release_unknown(rig: &mut Rig) -> Verdict {
    for handle in [0, u64::MAX] {
        refused(Kind::InvalidHandle, "release", rig.driver.release(NativeBlock(handle)))?;
    }
    Ok(())
}

fn map_released(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(1)?, rig.block(1)?);
    rig.release(block)?;
    refused(Kind::InvalidHandle, "map", rig.driver.map(range, block))
}

fn release_mapped(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(1)?, rig.block(1)?);
    rig.map(range, block)?;
    rig.open(range, AccessMode::READ_WRITE)?;
    rig.release(block)?;
    refused(Kind::InvalidHandle, "releasing twice", rig.driver.release(block))?;
    rig.write(range.start(), b"still here")?;
    rig.holds(range, b"still here", "the mapping's content")
}

fn too_large(rig: &mut Rig) -> Verdict {
    let before = free(rig)?;
    let total = rig.driver.memory(rig.device)?.total;
    let past = rig.granule.round_up(total).and_then(|size| size.checked_add(rig.granules(1)));
    let past = past.ok_or_else(|| mismatch("a total below 2^64", &total))?;
    for size in [past, rig.granule.round_down(ByteSize(u64::MAX))] {
        let created = rig.driver.create(rig.device, size, CreateOptions::default());
        refused(Kind::OutOfDeviceMemory, "create", created)?;
    }
    same("free bytes", before, free(rig)?)
}

fn figures(rig: &mut Rig) -> Verdict {
    let before = free(rig)?;
    let block = rig.block(4)?;
    let less = before.checked_sub(rig.granules(4)).ok_or(Stop::Skip("there are no four granules"))?;
    same("free bytes with a block of four granules", true, free(rig)? <= less)?;
    rig.release(block)?;
    same("free bytes after its release", before, free(rig)?)
}

fn figures_mapped(rig: &mut Rig) -> Verdict {
    let range = rig.reserve(1)?;
    let before = free(rig)?;
    let block = rig.block(1)?;
    let with = free(rig)?;
    rig.map(range, block)?;
    rig.release(block)?;
    same("free bytes while mapped", with, free(rig)?)?;
    rig.unmap(range)?;
    same("free bytes after the unmap", before, free(rig)?)
}

fn exhaust(rig: &mut Rig) -> Verdict {
    let before = free(rig)?;
    let eighth = rig.granule.round_down(ByteSize(before.0 / 8)).0 / rig.granule.size().0;
    if eighth == 0 || rig.has(Capabilities::HUGE_PAGES) {
        return Err(Stop::Skip("it would take all memory of this machine, or there is too little of it"));
    }
    for _ in 0..2 {
        let mut blocks = Vec::new();
        for _ in 0..8 {
            blocks.push(rig.block(eighth)?);
        }
        let rest = free(rig)?.0 / rig.granule.size().0;
        refused(Kind::OutOfDeviceMemory, "one granule too many", rig.block(rest + 1))?;
        for block in blocks {
            rig.release(block)?;
        }
        same("free bytes after all were released", before, free(rig)?)?;
    }
    Ok(())
}

fn native(rig: &mut Rig) -> Verdict {
    let block = rig.block(2)?;
    let check = |block, n| rig.driver.check_native(rig.device, block, rig.granules(n));
    check(block, 2)?;
    refused(Kind::InvalidSize, "another size", check(block, 1))?;
    refused(Kind::InvalidHandle, "no handle", check(NativeBlock(0), 2))?;
    if rig.driver.device_count() > 1 {
        let other = rig.driver.check_native(rig.other(), block, rig.granules(2));
        refused(Kind::InvalidHandle, "another device's block", other)?;
    }
    Ok(())
}

fn native_released(rig: &mut Rig) -> Verdict {
    if rig.driver.kind() == DriverKind::CUDA {
        return Err(Stop::Skip("the driver gives handles again, and may crash when asked about a stale one"));
    }
    let block = rig.block(2)?;
    rig.release(block)?;
    let released = rig.driver.check_native(rig.device, block, rig.granules(2));
    refused(Kind::InvalidHandle, "a released block", released)
}
