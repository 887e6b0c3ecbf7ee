//! How much of a device's memory is ours. The driver gives more than there is, and loses the device later, when the
//! memory is used: so we count ourselves, and ask before each block.

use super::api::Api;
use super::sysman::Modules;
use crate::driver::MemoryInfo;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use std::sync::atomic::{AtomicU64, Ordering};

/// One device's memory.
#[derive(Debug)]
pub(super) struct Budget {
    /// All bytes, or 0 where unknown.
    total: u64,
    /// Bytes that we hold.
    held: AtomicU64,
    modules: Option<Modules>,
}

impl Budget {
    pub(super) const fn new(total: ByteSize, modules: Option<Modules>) -> Self {
        Self { total: total.get(), held: AtomicU64::new(0), modules }
    }

    pub(super) const fn total(&self) -> ByteSize {
        ByteSize(self.total)
    }

    /// The figures now.
    pub(super) fn info(&self, api: &Api) -> MemoryInfo {
        let free = self.modules.as_ref().and_then(|modules| modules.free(api));
        let most = if self.total == 0 { u64::MAX } else { self.total };
        MemoryInfo { free: free.map(|free| ByteSize(free.min(most))), total: self.total() }
    }

    /// Books `size` bytes, or refuses.
    pub(super) fn take(&self, api: &Api, size: ByteSize, operation: Operation) -> Result<()> {
        let free = self.info(api).free.map_or(u64::MAX, ByteSize::get);
        let most = if self.total == 0 { u64::MAX } else { self.total };
        let book = |held: u64| held.checked_add(size.get()).filter(|sum| *sum <= most && size.get() <= free);
        match self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, book) {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(Error::new(Kind::OutOfDeviceMemory, operation, "the device has no room for it").of(size))
            }
        }
    }

    /// Gives `size` bytes back.
    pub(super) fn give(&self, size: ByteSize) {
        let less = |held: u64| Some(held.saturating_sub(size.get()));
        // The closure always gives a value, so this cannot fail.
        let _ = self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}
