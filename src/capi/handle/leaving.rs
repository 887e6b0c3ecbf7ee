//! Handles whose objects are being destroyed.

use super::{INDEX_SHIFT, LAST_GENERATION, Noun, Ref, Table};
use std::ops::Deref;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// A handle on its way out: dropped, it comes back; gone, it is invalid for ever. No lock is held
/// meanwhile, so that destroying may wait.
pub(in crate::capi) struct Leaving<N: Noun> {
    table: &'static Table<N>,
    key: u64,
    pub(super) object: Ref<N>,
    back: bool,
}

impl<N: Noun> Deref for Leaving<N> {
    type Target = N;

    fn deref(&self) -> &N {
        &self.object
    }
}

impl<N: Noun> Leaving<N> {
    /// Of a handle that its table no longer finds.
    pub(super) const fn new(table: &'static Table<N>, key: u64, object: Ref<N>) -> Self {
        Self { table, key, object, back: true }
    }

    /// Ends the handle. The object is dropped with the last call that uses it, here if that is this one.
    pub(in crate::capi) fn gone(mut self) {
        self.back = false;
        let Some(slot) = self.table.slot(self.key) else { return };
        drop(slot.object.write().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(stripes) = slot.stripes.get() {
            stripes.clear(self.key);
        }
        let (index, generation) = ((self.key >> INDEX_SHIFT) & ((1 << 20) - 1), self.key & LAST_GENERATION);
        if generation < LAST_GENERATION {
            let mut free = self.table.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.again.push_back((index, generation + 1));
        }
    }
}

impl<N: Noun> Drop for Leaving<N> {
    fn drop(&mut self) {
        if let (true, Some(slot)) = (self.back, self.table.slot(self.key)) {
            slot.key.store(self.key, Ordering::Release);
        }
    }
}
