//! The table of slices that the copy kernel of `cuda/copy.cu` takes by value, as words of 64 bits.

use crate::driver::CopySlice;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use std::borrow::Cow;

/// As in `copy.cu`: threads of a block, and the smallest tile's log2 (16 KiB).
pub(in crate::driver) const THREADS: u32 = 256;
const TILE_SHIFT: u32 = 14;
/// Tiles grow rather than pass this number: a tile's number has 24 bits in the table.
const MOST_TILES: u64 = 1 << 20;
/// A slice's bytes have 40 bits in the table.
const MOST_BYTES: u64 = (1 << 40) - 1;
/// Words before the slices, and of a slice.
pub(in crate::driver) const HEADER: usize = 2;
pub(in crate::driver) const SLICE: usize = 3;

/// A kernel's parameters and its grid.
pub(in crate::driver) struct Table {
    pub(in crate::driver) words: Vec<u64>,
    pub(in crate::driver) tiles: u32,
}

/// Lays out the table of `slices` (none empty) for a kernel whose table holds `capacity` of them.
pub(in crate::driver) fn lay_out(slices: &[CopySlice], capacity: usize) -> Table {
    let tiles_at = |shift: u32| slices.iter().map(|s| s.bytes.div_ceil(1 << shift)).sum::<u64>();
    let mut shift = TILE_SHIFT;
    while tiles_at(shift) > MOST_TILES.max(slices.len() as u64) {
        shift += 1;
    }
    let mut words = vec![0_u64; HEADER + SLICE * capacity];
    let mut tile = 0_u64;
    for (entry, slice) in words[HEADER..].chunks_exact_mut(SLICE).zip(slices) {
        entry.copy_from_slice(&[slice.dst.get(), slice.src.get(), slice.bytes | tile << 40]);
        tile += slice.bytes.div_ceil(1 << shift);
    }
    words[0] = slices.len() as u64 | u64::from(shift) << 32;
    words[1] = u64::from(tile == slices.len() as u64);
    Table { words, tiles: u32::try_from(tile).unwrap_or(u32::MAX) }
}

/// Refuses slices that no table can name, and leaves out those of no bytes.
pub(in crate::driver) fn checked(slices: &[CopySlice]) -> Result<Cow<'_, [CopySlice]>> {
    slices.iter().enumerate().try_for_each(|(at, slice)| check(slice).map_err(|e| e.entry(at as u64)))?;
    if slices.iter().all(|s| s.bytes != 0) {
        return Ok(Cow::Borrowed(slices));
    }
    Ok(slices.iter().copied().filter(|s| s.bytes != 0).collect())
}

fn check(slice: &CopySlice) -> Result<()> {
    let size = ByteSize(slice.bytes);
    let refuse = |kind, hint| Err(Error::new(kind, Operation::Copy, hint).at(slice.dst, size));
    if slice.src.checked_add(size).is_none() || slice.dst.checked_add(size).is_none() {
        return refuse(Kind::OutOfRange, "the slice passes the last address");
    }
    if slice.bytes > MOST_BYTES {
        return refuse(Kind::InvalidSize, "a slice must be below 1 TiB");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::DevicePtr;

    fn slice(bytes: u64) -> CopySlice {
        CopySlice { dst: DevicePtr(0x1000), src: DevicePtr(0x2000), bytes }
    }

    #[test]
    fn small_slices_are_a_tile_each_and_found_directly() {
        let table = lay_out(&[slice(1), slice(16 << 10), slice(4096)], 8);
        assert_eq!((table.tiles, table.words[1], table.words.len()), (3, 1, 2 + 24));
        assert_eq!(table.words[0], 3 | 14 << 32);
        assert_eq!(table.words[2..5], [0x1000, 0x2000, 1]);
        assert_eq!(table.words[10], 4096 | 2 << 40);
    }

    #[test]
    fn large_slices_are_spread_over_tiles() {
        let table = lay_out(&[slice(4096), slice(1 << 30), slice(1)], 8);
        assert_eq!((table.tiles, table.words[1]), (65_536 + 2, 0));
        assert_eq!(table.words[10] >> 40, 65_537);
        let huge = lay_out(&[slice(MOST_BYTES), slice(MOST_BYTES)], 8);
        assert!(u64::from(huge.tiles) <= MOST_TILES);
        assert_eq!(huge.words[4], MOST_BYTES);
    }

    #[test]
    fn empty_slices_are_left_out_and_wrong_ones_blamed() {
        assert_eq!(checked(&[slice(0), slice(5)]).expect("fine")[..], [slice(5)]);
        let error = checked(&[slice(1), slice(u64::MAX)]).expect_err("too long");
        assert_eq!((error.kind, error.entry), (Kind::OutOfRange, Some(1)));
    }
}
