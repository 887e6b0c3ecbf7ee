//! What lies where, beyond the books that all vendors share: this driver gives access by the map call, maps a block
//! at one address only, and destroys a block at once even while it is mapped.

use crate::driver::{NativeBlock, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A reservation: the driver's own range may be larger, for the alignment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserved {
    pub(super) range: DeviceRange,
    pub(super) native: (u64, u64),
}

/// A mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) range: DeviceRange,
    pub(super) block: u64,
    pub(super) device: Ordinal,
    /// What the driver was told: `ze_memory_access_attribute_t`. With 0 the driver has no mapping.
    pub(super) access: u32,
}

/// A block whose handle the driver holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub(super) block: u64,
    pub(super) device: Ordinal,
    pub(super) size: ByteSize,
    /// It does not count as ours.
    pub(super) guest: bool,
}

#[derive(Debug, Default)]
struct State {
    reserved: BTreeMap<DevicePtr, Reserved>,
    places: BTreeMap<DevicePtr, Place>,
    /// Where each mapped block is.
    at: HashMap<u64, DevicePtr>,
    /// Blocks released while mapped.
    released: HashMap<u64, Held>,
    /// Blocks that could not be destroyed.
    stuck: Vec<Held>,
}

/// All of it, of one driver. The lock is never held across a driver call.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<State>);

impl Places {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reserved(&self, reserved: Reserved) {
        self.state().reserved.insert(reserved.range.start(), reserved);
    }

    pub(super) fn take_reserved(&self, range: DeviceRange) -> Option<Reserved> {
        self.state().reserved.remove(&range.start())
    }

    /// True where `range` is a whole reservation, none where it is a part of one.
    pub(super) fn is_whole(&self, range: DeviceRange) -> Option<bool> {
        let state = self.state();
        let (_, reserved) = state.reserved.range(..=range.start()).next_back()?;
        reserved.range.contains_range(range).then_some(reserved.range == range)
    }

    /// Books a mapping without access.
    pub(super) fn add(&self, range: DeviceRange, block: NativeBlock, device: Ordinal) -> Result<()> {
        let mut state = self.state();
        if state.at.contains_key(&block.0) {
            let hint = "the block is mapped elsewhere, and this driver maps one at one address only";
            return Err(Error::new(Kind::Unsupported, Operation::Map, hint));
        }
        state.at.insert(block.0, range.start());
        state.places.insert(range.start(), Place { range, block: block.0, device, access: 0 });
        Ok(())
    }

    pub(super) fn at(&self, range: DeviceRange) -> Option<Place> {
        self.state().places.get(&range.start()).copied()
    }

    /// The mapping that an address lies in.
    pub(super) fn holding(&self, address: DevicePtr) -> Option<Place> {
        let state = self.state();
        let (_, place) = state.places.range(..=address).next_back()?;
        place.range.contains(address).then_some(*place)
    }

    /// The mappings in a range, in order.
    pub(super) fn within(&self, range: DeviceRange) -> Vec<Place> {
        self.state().places.range(range.start()..range.end()).map(|(_, place)| *place).collect()
    }

    /// The driver was told.
    pub(super) fn told(&self, range: DeviceRange, access: u32) {
        if let Some(place) = self.state().places.get_mut(&range.start()) {
            place.access = access;
        }
    }

    /// A mapping is gone; gives its block where that was released meanwhile.
    pub(super) fn take(&self, range: DeviceRange) -> Option<Held> {
        let mut state = self.state();
        let place = state.places.remove(&range.start())?;
        state.at.remove(&place.block);
        state.released.remove(&place.block)
    }

    /// A block is released: true where it is mapped, and must wait.
    pub(super) fn release(&self, held: Held) -> bool {
        let mut state = self.state();
        let mapped = state.at.contains_key(&held.block);
        if mapped {
            state.released.insert(held.block, held);
        }
        mapped
    }

    /// Keeps a block that could not be destroyed.
    pub(super) fn keep(&self, held: Held) {
        self.state().stuck.push(held);
    }

    /// The blocks that could not be destroyed, to try again.
    pub(super) fn take_stuck(&self) -> Vec<Held> {
        std::mem::take(&mut self.state().stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 2 << 20;

    fn range(at: u64, granules: u64) -> DeviceRange {
        DeviceRange::new(DevicePtr(at * G), ByteSize(granules * G)).expect("a range")
    }

    const HELD: Held = Held { block: 7, device: Ordinal(0), size: ByteSize(2 * G), guest: false };

    #[test]
    fn a_block_is_at_one_place() {
        let places = Places::default();
        places.add(range(16, 2), NativeBlock(7), Ordinal(0)).expect("free");
        let error = places.add(range(20, 2), NativeBlock(7), Ordinal(0)).expect_err("mapped");
        assert_eq!(error.kind, Kind::Unsupported);
        assert_eq!(places.take(range(16, 2)), None);
        places.add(range(20, 2), NativeBlock(7), Ordinal(0)).expect("free again");
    }

    #[test]
    fn a_block_released_while_mapped_comes_back_at_the_unmap() {
        let places = Places::default();
        assert!(!places.release(HELD));
        places.add(range(16, 2), NativeBlock(7), Ordinal(0)).expect("free");
        assert!(places.release(HELD));
        assert_eq!(places.take(range(16, 2)), Some(HELD));
        assert_eq!(places.take(range(16, 2)), None);
    }

    #[test]
    fn parts_and_wholes_are_told_apart() {
        let places = Places::default();
        places.reserved(Reserved { range: range(16, 4), native: (16 * G, 4 * G) });
        assert_eq!(places.is_whole(range(16, 4)), Some(true));
        assert_eq!(places.is_whole(range(17, 1)), Some(false));
        assert_eq!(places.is_whole(range(18, 4)), None);
        assert_eq!(places.is_whole(range(1, 1)), None);
    }
}
