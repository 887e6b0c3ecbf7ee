//! The tables of slices that the copy kernels of `cuda/copy.cu` and `route.cu` take, as words of 64 bits.

use crate::driver::{CopySlice, RouteSlice};
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

/// As in `route.cu`: words of a route's head, and of a tile.
pub(in crate::driver) const ROUTE_HEADER: usize = 3;
pub(in crate::driver) const TILE: usize = 3;
/// A route's tiles are in a table of their own: fewer of them do, and grow for it.
const MOST_ROUTE_TILES: u64 = 1 << 16;

/// What stays of a route: its tiles, and the number of each slice's first one (and, at the end, of all).
pub(in crate::driver) struct Tiles {
    pub(in crate::driver) words: Vec<u64>,
    pub(in crate::driver) firsts: Vec<u32>,
}

/// Cuts a route's slices into tiles.
///
/// # Errors
/// With the slice to blame: `InvalidSize` (no bytes, or 1 TiB), `OutOfRange`.
pub(in crate::driver) fn cut(slices: &[RouteSlice]) -> Result<Tiles> {
    let at = |slice: &RouteSlice| CopySlice { dst: slice.near, src: slice.near, bytes: slice.bytes };
    for (i, slice) in slices.iter().enumerate() {
        let empty = Error::new(Kind::InvalidSize, Operation::Copy, "a route's slice has no bytes");
        if slice.bytes == 0 { Err(empty) } else { check(&at(slice)) }.map_err(|e| e.entry(i as u64))?;
    }
    let tiles_at = |shift: u32| slices.iter().map(|s| s.bytes.div_ceil(1 << shift)).sum::<u64>();
    let mut shift = TILE_SHIFT;
    while tiles_at(shift) > MOST_ROUTE_TILES.max(slices.len() as u64) {
        shift += 1;
    }
    let (mut words, mut firsts) = (Vec::new(), Vec::with_capacity(slices.len() + 1));
    for (number, slice) in slices.iter().enumerate() {
        firsts.push((words.len() / TILE) as u32);
        for start in (0..slice.bytes).step_by(1 << shift) {
            let bytes = (slice.bytes - start).min(1 << shift);
            words.extend([slice.near.get() + start, start, bytes | (number as u64) << 32]);
        }
    }
    firsts.push((words.len() / TILE) as u32);
    Ok(Tiles { words, firsts })
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
    fn a_route_is_cut_into_tiles_that_know_their_slice() {
        let slice = |near: u64, bytes| RouteSlice { near: DevicePtr(near), bytes };
        let tiles = cut(&[slice(0x1000, 5), slice(0x9000, (16 << 10) + 1)]).expect("cut");
        assert_eq!(tiles.firsts, [0, 1, 3]);
        let second = [0x9000, 0, 16 << 10 | 1 << 32, 0x9000 + (16 << 10), 16 << 10, 1 | 1 << 32];
        assert_eq!((&tiles.words[..3], &tiles.words[3..]), (&[0x1000, 0, 5][..], &second[..]));
        let huge = cut(&[slice(0x1000, MOST_BYTES), slice(0x1000, 1 << 39)]).expect("cut");
        assert!(huge.firsts[2] <= 1 << 16 && huge.words[2] < 1 << 32);
        let kind = |slice| cut(&[slice]).map(|_| ()).map_err(|e| (e.kind, e.entry));
        assert_eq!(kind(slice(0x1000, 0)), Err((Kind::InvalidSize, Some(0))));
        assert_eq!(kind(slice(u64::MAX, 2)), Err((Kind::OutOfRange, Some(0))));
    }

    #[test]
    fn empty_slices_are_left_out_and_wrong_ones_blamed() {
        assert_eq!(checked(&[slice(0), slice(5)]).expect("fine")[..], [slice(5)]);
        let error = checked(&[slice(1), slice(u64::MAX)]).expect_err("too long");
        assert_eq!((error.kind, error.entry), (Kind::OutOfRange, Some(1)));
    }
}
