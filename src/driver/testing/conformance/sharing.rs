//! Blocks as file descriptors.

use super::rig::{Rig, refused, same};
use super::{Check, Checked, Stop, Verdict};
use crate::driver::{AccessMode, Capabilities, CreateOptions, NativeBlock};
use crate::error::Kind;
use std::os::fd::{AsFd, OwnedFd};

const SHARING: Capabilities = Capabilities::VIRTUAL_MEMORY.with(Capabilities::SHARING);
const EXPORTABLE: CreateOptions = CreateOptions { exportable: true, stays: false };

pub(super) const CHECKS: &[Check] = &[
    Check::new("an imported block is the exported one", same_bytes).needs(SHARING),
    Check::new("an imported block outlives the exported one", outlives).needs(SHARING),
    Check::new("an imported block of another size is refused", other_size).needs(SHARING),
    Check::new("a descriptor of something else is refused", something_else).needs(SHARING),
    Check::new("only what was made exportable is exported", not_exportable).needs(SHARING),
    Check::new("a block that is gone is not exported", gone).needs(SHARING),
    Check::new("sharing that is not there is refused", none)
        .needs(Capabilities::VIRTUAL_MEMORY)
        .lacks(Capabilities::SHARING),
];

fn import(rig: &mut Rig, fd: &OwnedFd, n: u64) -> Checked<NativeBlock> {
    let block = rig.driver.import(rig.device, fd.as_fd(), rig.granules(n))?;
    Ok(rig.keep(block))
}

fn same_bytes(rig: &mut Rig) -> Verdict {
    let (a, b, block) = (rig.reserve(2)?, rig.reserve(2)?, rig.block_with(2, EXPORTABLE)?);
    let fd = rig.driver.export(block)?;
    let imported = import(rig, &fd, 2)?;
    drop(fd);
    for (range, block) in [(a, block), (b, imported)] {
        rig.map(range, block)?;
        rig.open(range, AccessMode::READ_WRITE)?;
    }
    rig.write(a.start(), b"from the exporter")?;
    rig.holds(b, b"from the exporter", "the importer's view")?;
    rig.write(b.start(), b"from the importer")?;
    rig.holds(a, b"from the importer", "the exporter's view")
}

fn outlives(rig: &mut Rig) -> Verdict {
    let (range, block) = (rig.reserve(1)?, rig.block_with(1, EXPORTABLE)?);
    rig.map(range, block)?;
    rig.open(range, AccessMode::READ_WRITE)?;
    rig.write(range.start(), b"left behind")?;
    rig.unmap(range)?;
    let fd = rig.driver.export(block)?;
    rig.release(block)?;
    let imported = import(rig, &fd, 1)?;
    rig.map(range, imported)?;
    rig.open(range, AccessMode::READ_WRITE)?;
    rig.holds(range, b"left behind", "the importer's view")
}

fn other_size(rig: &mut Rig) -> Verdict {
    let block = rig.block_with(2, EXPORTABLE)?;
    let fd = rig.driver.export(block)?;
    for n in [1, 3] {
        let imported = rig.driver.import(rig.device, fd.as_fd(), rig.granules(n));
        refused(Kind::InvalidSize, "import", imported)?;
    }
    Ok(())
}

fn something_else(rig: &mut Rig) -> Verdict {
    let Ok((reader, _writer)) = std::io::pipe() else { return Err(Stop::Skip("no pipe could be made")) };
    let imported = rig.driver.import(rig.device, reader.as_fd(), rig.granules(1));
    refused(Kind::InvalidArgument, "importing a pipe", imported)
}

fn not_exportable(rig: &mut Rig) -> Verdict {
    let block = rig.block(1)?;
    refused(Kind::WrongState, "export", rig.driver.export(block))
}

fn gone(rig: &mut Rig) -> Verdict {
    let block = rig.block_with(1, EXPORTABLE)?;
    rig.release(block)?;
    refused(Kind::InvalidHandle, "export", rig.driver.export(block))
}

fn none(rig: &mut Rig) -> Verdict {
    let block = rig.block(1)?;
    refused(Kind::Unsupported, "export", rig.driver.export(block))?;
    let made = rig.driver.create(rig.device, rig.granules(1), EXPORTABLE);
    refused(Kind::Unsupported, "an exportable block", made)?;
    same("the block is still there", Ok(()), rig.driver.check_native(rig.device, block, rig.granules(1)))
}
