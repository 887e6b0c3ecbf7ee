//! A block beside those that are measured: as in a program that has more memory than one range.

use super::calls::Calls;
use super::grant::Grant;
use gvmm::driver::NativeBlock;
use gvmm::error::Result;
use gvmm::units::{ByteSize, DeviceRange};

/// A block of one granule in a range of its own, to which the same devices have access.
pub(super) struct Anchor {
    range: DeviceRange,
    block: Option<NativeBlock>,
    mapped: bool,
}

impl Anchor {
    /// Puts it into `place`; what there is of it when a call fails stays there, to be ended.
    pub(super) fn put(place: &mut Option<Self>, calls: &mut Calls, grant: &Grant) -> Result<()> {
        let granularity = calls.granularity(ByteSize(1))?;
        let (range, _) = calls.reserve(granularity.size(), granularity)?;
        let anchor = place.insert(Self { range, block: None, mapped: false });
        let (block, _) = calls.create(granularity.size())?;
        anchor.block = Some(block);
        calls.map(range, block)?;
        anchor.mapped = true;
        grant.give(calls, range)?;
        Ok(())
    }

    /// Gives back what is in `place`. May be tried again.
    pub(super) fn end(place: &mut Option<Self>, calls: &mut Calls) -> Result<()> {
        let Some(anchor) = place else { return Ok(()) };
        if anchor.mapped {
            calls.unmap(anchor.range)?;
            anchor.mapped = false;
        }
        if let Some(block) = anchor.block {
            calls.release(block)?;
            anchor.block = None;
        }
        calls.free(anchor.range)?;
        *place = None;
        Ok(())
    }
}
