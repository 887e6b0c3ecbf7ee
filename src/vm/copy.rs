//! What slices of one copy must be like.

use crate::driver::CopySlice;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr};

/// One end of a slice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Side {
    start: u64,
    end: u64,
    written: bool,
    slice: usize,
}

/// Checks that no destination overlaps another slice; false where there is nothing to copy.
pub(crate) fn check(slices: &[CopySlice]) -> Result<bool> {
    let mut sides = Vec::with_capacity(2 * slices.len());
    for (i, slice) in slices.iter().enumerate().filter(|(_, slice)| slice.bytes > 0) {
        sides.push(side(slice.dst, slice.bytes, true, i)?);
        sides.push(side(slice.src, slice.bytes, false, i)?);
    }
    sides.sort_unstable();
    // The furthest ends so far of what is written and of what is read.
    let (mut written, mut read) = (0, 0);
    for side in &sides {
        if side.start < written || (side.written && side.start < read) {
            let error = Error::new(Kind::Overlap, Operation::Copy, "a destination overlaps another slice");
            return Err(error
                .at(DevicePtr(side.start), ByteSize(side.end - side.start))
                .entry(side.slice as u64));
        }
        let furthest = if side.written { &mut written } else { &mut read };
        *furthest = side.end.max(*furthest);
    }
    Ok(!sides.is_empty())
}

fn side(at: DevicePtr, bytes: u64, written: bool, slice: usize) -> Result<Side> {
    let fail =
        |kind, hint| Err(Error::new(kind, Operation::Copy, hint).at(at, ByteSize(bytes)).entry(slice as u64));
    if at.is_null() {
        return fail(Kind::InvalidArgument, "an address is NULL");
    }
    match at.checked_add(ByteSize(bytes)) {
        Some(end) => Ok(Side { start: at.get(), end: end.get(), written, slice }),
        None => fail(Kind::OutOfRange, "the range passes the end of the address space"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(dst: u64, src: u64, bytes: u64) -> CopySlice {
        CopySlice { dst: DevicePtr(dst), src: DevicePtr(src), bytes }
    }

    #[test]
    fn sources_may_be_shared_and_destinations_may_touch() {
        assert_eq!(check(&[]), Ok(false));
        assert_eq!(check(&[slice(0, 0, 0)]), Ok(false));
        assert_eq!(check(&[slice(100, 500, 10), slice(110, 500, 10), slice(90, 505, 10)]), Ok(true));
    }

    #[test]
    fn overlap_names_a_slice() {
        let kind = |slices: &[CopySlice]| check(slices).map_err(|e| e.kind);
        assert_eq!(kind(&[slice(100, 500, 10), slice(109, 600, 10)]), Err(Kind::Overlap));
        assert_eq!(kind(&[slice(100, 500, 10), slice(505, 900, 1)]), Err(Kind::Overlap));
        assert_eq!(kind(&[slice(100, 105, 10)]), Err(Kind::Overlap));
        assert_eq!(kind(&[slice(100, 50, 100), slice(300, 120, 1)]), Err(Kind::Overlap));
        let e = check(&[slice(100, 500, 10), slice(0, 600, 10)]).expect_err("NULL");
        assert_eq!((e.kind, e.entry), (Kind::InvalidArgument, Some(1)));
        assert_eq!(kind(&[slice(u64::MAX - 5, 600, 10)]), Err(Kind::OutOfRange));
    }
}
