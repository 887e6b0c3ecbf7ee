//! Copies: one slice is appended to the stream itself, several are recorded and submitted as one.

use super::context::Core;
use super::stream::{Line, Native, Work};
use crate::driver::CopySlice;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;

/// Refuses a slice that passes the last address.
fn check(slice: &CopySlice) -> Result<()> {
    let size = ByteSize(slice.bytes);
    if slice.src.checked_add(size).is_some() && slice.dst.checked_add(size).is_some() {
        return Ok(());
    }
    let hint = "the slice passes the last address";
    Err(Error::new(Kind::OutOfRange, Operation::Copy, hint).at(slice.dst, size))
}

/// Refuses what no driver takes.
pub(super) fn check_all(slices: &[CopySlice]) -> Result<()> {
    slices.iter().enumerate().try_for_each(|(at, slice)| check(slice).map_err(|e| e.entry(at as u64)))
}

impl Core {
    /// Enqueues all slices, and says in how many submissions. The line is held by the caller.
    pub(super) fn copy(&self, work: &Work, line: &Line, slices: &[CopySlice]) -> Result<u32> {
        let count = slices.iter().filter(|slice| slice.bytes > 0).count();
        let joint = line.group.filter(|_| line.joins && count > 1 || matches!(line.native, Native::Queue(_)));
        match (joint, &line.native) {
            _ if count == 0 => Ok(0),
            (Some(group), _) => {
                let record = |list| self.append(list, slices);
                work.lists.submit(&self.api, &work.events, line, group, Operation::Copy, record)?;
                Ok(1)
            }
            (None, Native::Immediate(list)) => {
                self.append(*list, slices)?;
                Ok(u32::try_from(count).unwrap_or(u32::MAX))
            }
            (None, Native::Queue(_)) => {
                Err(Error::new(Kind::Internal, Operation::Copy, "a queue without its group"))
            }
        }
    }

    fn append(&self, list: u64, slices: &[CopySlice]) -> Result<()> {
        for (at, slice) in slices.iter().enumerate().filter(|(_, slice)| slice.bytes > 0) {
            let (dst, src, none) = (slice.dst.get(), slice.src.get(), std::ptr::null());
            let status = self.api.append_copy(list, dst, src, slice.bytes, 0, 0, none);
            self.api.check(status, Operation::Copy).map_err(|e| e.entry(at as u64))?;
        }
        Ok(())
    }
}
