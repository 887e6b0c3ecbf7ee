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
    if is_plain(slices) {
        return Ok(true);
    }
    check_any(slices)
}

/// True where it takes no sorting to see that all is well: destinations in order, and all sources on one side of them.
fn is_plain(slices: &[CopySlice]) -> bool {
    let Some(first) = slices.first() else { return false };
    let (mut end, mut low, mut high, mut good) = (1, u64::MAX, 0, true);
    for slice in slices {
        let (dst, src, bytes) = (slice.dst.get(), slice.src.get(), slice.bytes);
        let (dst_end, src_end) = (dst.wrapping_add(bytes), src.wrapping_add(bytes));
        // An end at or before its start: no bytes, or past the last address.
        good &= (dst >= end) & (dst_end > dst) & (src_end > src) & (src != 0);
        (end, low, high) = (dst_end, low.min(src), high.max(src_end));
    }
    good && (high <= first.dst.get() || low >= end)
}

fn check_any(slices: &[CopySlice]) -> Result<bool> {
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
    use proptest::prelude::*;

    fn slice(dst: u64, src: u64, bytes: u64) -> CopySlice {
        CopySlice { dst: DevicePtr(dst), src: DevicePtr(src), bytes }
    }

    #[test]
    fn sources_may_be_shared_and_destinations_may_touch() {
        assert_eq!(check(&[]), Ok(false));
        assert_eq!(check(&[slice(0, 0, 0)]), Ok(false));
        assert_eq!(check(&[slice(100, 500, 10), slice(110, 500, 10), slice(90, 505, 10)]), Ok(true));
        assert_eq!(check(&[slice(100, 500, 10), slice(110, 500, 10)]), Ok(true));
        assert_eq!(check(&[slice(500, 90, 10), slice(510, 100, 10), slice(520, 0, 0)]), Ok(true));
    }

    proptest! {
        /// What is seen without sorting is what sorting sees.
        #[test]
        fn plain_copies_are_good_ones(
            starts in prop::collection::vec((0u64..40, 0u64..80, 0u64..6), 0..5),
            ordered in any::<bool>(),
            end in any::<bool>(),
        ) {
            let base = if end { u64::MAX - 60 } else { 0 };
            let at = |(dst, src, bytes): (u64, u64, u64)| slice(base.wrapping_add(dst), base.wrapping_add(src), bytes);
            let mut slices: Vec<CopySlice> = starts.into_iter().map(at).collect();
            if ordered {
                slices.sort_by_key(|slice| slice.dst);
            }
            if is_plain(&slices) {
                prop_assert_eq!(check_any(&slices), Ok(true));
            }
            prop_assert_eq!(check(&slices), check_any(&slices));
        }
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
