//! How much a pool may hold, who may use it, and what must stay.

use super::heap::Heap;
use super::pool::{Pool, lock, unknown};
use super::segment::ExpandableSegment;
use crate::driver::{Access, AccessMode};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::Device;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Pool {
    /// The chunks that `size` bytes from `address` touch are neither moved nor given back until they are unpinned:
    /// for memory that was registered elsewhere by its address.
    ///
    /// # Errors
    /// `InvalidArgument` for an address that is not the pool's, `OutOfRange`.
    pub fn pin(&self, address: DevicePtr, size: ByteSize) -> Result<()> {
        if let Some(plain) = &self.plain {
            return plain.pin(address, true).map(|_| ()).ok_or_else(|| unknown(address));
        }
        self.pinned(address, size, |heap, places| {
            heap.pin(places);
            true
        })
    }

    /// Undoes one [`Self::pin`] of the same bytes.
    ///
    /// # Errors
    /// As [`Self::pin`], and `WrongState` for what is not pinned.
    pub fn unpin(&self, address: DevicePtr, size: ByteSize) -> Result<()> {
        match self.plain.as_ref().map(|plain| plain.pin(address, false)) {
            None => self.pinned(address, size, Heap::unpin),
            Some(Some(true)) => Ok(()),
            Some(Some(false)) => Err(not_pinned(size)),
            Some(None) => Err(unknown(address)),
        }
    }

    fn pinned(
        &self,
        address: DevicePtr,
        size: ByteSize,
        change: impl FnOnce(&mut Heap, Range<u32>) -> bool,
    ) -> Result<()> {
        let Some((arena, heap, _)) = self.table.at(address) else { return Err(unknown(address)) };
        let places = arena.segments[heap].outwards(address, size)?;
        if change(&mut arena.lock().heaps[heap], places) {
            return Ok(());
        }
        Err(not_pinned(size))
    }

    /// Sets the most that the pool may reserve; none: all that there is. What it holds beyond is given back where
    /// nothing uses it.
    ///
    /// # Errors
    /// `InvalidSize` for 0, `InUse` for less than blocks in use take; then all is as before. Those of
    /// [`Self::trim`].
    pub fn set_limit(&self, limit: Option<ByteSize>) -> Result<()> {
        let refuse = |kind, hint| Err(Error::new(kind, Operation::Allocate, hint));
        let bytes = limit.map_or(u64::MAX, ByteSize::get);
        if bytes == 0 {
            return refuse(Kind::InvalidSize, "a limit of 0 bytes leaves no memory");
        }
        let active: u64 = self.table.all().map(|arena| arena.lock().ledger.active()).sum();
        let active = active + self.plain.as_ref().map_or(0, |plain| plain.active());
        if bytes < active {
            return refuse(Kind::InUse, "blocks in use take more than that: free some first");
        }
        let trim = self.reserved.figure().current > bytes && self.captures()? == 0;
        self.limit.store(bytes, Ordering::Relaxed);
        if trim {
            self.trim()?;
        }
        Ok(())
    }

    /// Sets the limit as a fraction of the device's memory, above 0 and at most 1.
    ///
    /// # Errors
    /// `InvalidArgument` for another number, `Unsupported` where the device's memory is unknown, and those of
    /// [`Self::set_limit`].
    pub fn set_fraction(&self, fraction: f64) -> Result<()> {
        let refuse = |kind, hint| Err(Error::new(kind, Operation::Allocate, hint));
        if !(fraction > 0.0 && fraction <= 1.0) {
            return refuse(Kind::InvalidArgument, "a fraction is above 0 and at most 1");
        }
        let total = self.device.info().total.get();
        if total == 0 {
            return refuse(Kind::Unsupported, "the device's memory is unknown: set a limit in bytes");
        }
        self.set_limit(Some(ByteSize((total as f64 * fraction) as u64)))
    }

    /// Sets who may use the memory of the pool, also what lives already (an empty list: its own device).
    ///
    /// # Errors
    /// As [`crate::vm::Reservation::set_access`]; then all is as before, as far as the driver lets it.
    pub fn set_access(&self, access: &[Access]) -> Result<()> {
        if self.plain.is_some() {
            return check_plain(&self.device, access);
        }
        // Held across the driver calls: no segment shall be made with the old list meanwhile.
        let _making = lock(&self.making);
        let old = std::mem::replace(&mut *lock(&self.access), access.to_vec());
        let mut done: Vec<&ExpandableSegment> = Vec::new();
        for segment in self.table.all().flat_map(|arena| &arena.segments) {
            if let Err(e) = segment.set_access(access) {
                for segment in done {
                    if let Err(e) = segment.set_access(&old) {
                        log::warn!("a segment keeps its new access: {e}");
                    }
                }
                *lock(&self.access) = old;
                return Err(e);
            }
            done.push(segment);
        }
        Ok(())
    }
}

const fn not_pinned(size: ByteSize) -> Error {
    Error::new(Kind::WrongState, Operation::None, "these bytes are not pinned").of(size)
}

/// Fails for a list that gives plain device memory to anybody but its device, to read and write.
pub(super) fn check_plain(device: &Device, access: &[Access]) -> Result<()> {
    let own = [Access { device: device.ordinal(), mode: AccessMode::READ_WRITE }];
    if access.is_empty() || *access == own {
        return Ok(());
    }
    let hint = "without virtual memory, memory is for its own device, read and write";
    Err(Error::new(Kind::Unsupported, Operation::SetAccess, hint))
}
