//! Copies as a device makes them: byte by byte checked against what the device may touch.
#![allow(unsafe_code, reason = "moving bytes between addresses")]

use super::memory::{Books, Memory};
use super::space::Span;
use super::sys;
use crate::driver::{CopySlice, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr};

/// How many bytes are moved at most before somebody else may change the address space.
const STEP: u64 = 256 << 10;

/// Carries out `slices` as `device`. An address outside all memory of the driver's is the process's own memory,
/// which every device may read and write. The first address that may not be touched, or where nothing is, ends
/// the work with [`Kind::DeviceFault`]; what was copied before stays.
pub(super) fn run(memory: &Memory, device: Ordinal, slices: &[CopySlice]) -> Result<()> {
    let mut rest = slices.iter().filter(|slice| slice.bytes > 0);
    let mut work = None;
    loop {
        // Shared, and held while bytes move: an unmap in between would take the pages away under the copy.
        let books = memory.read();
        let mut sides = Sides::new(&books, device);
        let mut left = STEP;
        while left > 0 {
            if work.is_none() {
                work = rest.next().map(|slice| Work { slice: *slice, done: 0, ours: None });
            }
            let Some(current) = &mut work else { return Ok(()) };
            left = left.saturating_sub(sides.advance(current, left)?.max(1));
            if current.done == current.slice.bytes {
                work = None;
            }
        }
    }
}

/// One slice under way.
struct Work {
    slice: CopySlice,
    done: u64,
    /// Whether source and destination are memory of ours, as found when the slice was begun; what is freed in
    /// between must not be taken for the process's own memory.
    ours: Option<(bool, bool)>,
}

/// What was last found at either side, since slices are mostly neighbours.
struct Sides<'a> {
    books: &'a Books,
    device: Ordinal,
    src: Span,
    dst: Span,
}

impl<'a> Sides<'a> {
    const fn new(books: &'a Books, device: Ordinal) -> Self {
        let nothing = Span { start: 0, end: 0, region_end: 0, rights: None };
        Self { books, device, src: nothing, dst: nothing }
    }

    /// Moves at most `limit` bytes of a slice and says how many.
    fn advance(&mut self, work: &mut Work, limit: u64) -> Result<u64> {
        let CopySlice { dst, src, bytes } = work.slice;
        if work.ours.is_none() {
            work.ours = Some((self.may_read(src, bytes)?, self.may_write(dst, bytes)?));
        }
        let n = limit.min(bytes - work.done);
        let (src, dst) = (DevicePtr(src.0 + work.done), DevicePtr(dst.0 + work.done));
        let ours = (self.may_read(src, n)?, self.may_write(dst, n)?);
        if Some(ours) != work.ours {
            return Err(fault(src, n));
        }
        if ours == (true, true) {
            // SAFETY: both ranges were just found in windows of ours with the rights needed, and the pages
            // follow the rights; the books are locked until after the call, so that they stay.
            unsafe { sys::move_bytes(dst, src, n) };
        } else {
            sys::move_foreign(dst, src, n).map_err(|_| fault(src, n))?;
        }
        work.done += n;
        Ok(n)
    }

    fn may_read(&mut self, at: DevicePtr, bytes: u64) -> Result<bool> {
        let device = self.device;
        check(self.books, &mut self.src, at, bytes, |span| span.rights.is_some_and(|r| r.may_read(device)))
    }

    fn may_write(&mut self, at: DevicePtr, bytes: u64) -> Result<bool> {
        let device = self.device;
        check(self.books, &mut self.dst, at, bytes, |span| span.rights.is_some_and(|r| r.may_write(device)))
    }
}

/// Checks `bytes` bytes from `at` on: all ours and allowed (true), or all outside (false). They lie in one
/// reservation or one plain memory, since the next one is a neighbour by chance only.
fn check(
    books: &Books,
    last: &mut Span,
    at: DevicePtr,
    bytes: u64,
    allowed: impl Fn(&Span) -> bool,
) -> Result<bool> {
    // `copy` has checked that the sum does not wrap.
    let (mut next, end) = (at.0, at.0 + bytes);
    loop {
        if next < last.start || last.end <= next {
            *last = books.space.span(DevicePtr(next));
        }
        let ours = last.rights.is_some();
        if last.region_end < end || ours && !allowed(last) {
            return Err(fault(DevicePtr(next), bytes));
        }
        if end <= last.end {
            return Ok(ours);
        }
        next = last.end;
    }
}

fn fault(at: DevicePtr, bytes: u64) -> Error {
    let hint = "a copy touched memory that its device may not, or that is not there";
    Error::new(Kind::DeviceFault, Operation::Copy, hint).at(at, ByteSize(bytes))
}
