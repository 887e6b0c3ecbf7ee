//! What HIP was told: which block is mapped where, with what access, and what is still to be said. `books.rs` keeps
//! the trait's rules; this keeps what HIP's faults make necessary.

use crate::driver::Ordinal;
use crate::driver::structs::AccessDesc;
use crate::units::{ByteSize, DevicePtr, DeviceRange};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mapping.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) range: DeviceRange,
    /// The block's handle and its device.
    pub(super) block: u64,
    pub(super) owner: Ordinal,
    /// Who may do what, in the order in which it was granted.
    pub(super) granted: Vec<AccessDesc>,
    /// A set-access has worked on it: it is really there.
    pub(super) proven: bool,
    /// HIP does not have it (any more): nothing about it is to be said to HIP.
    pub(super) ghost: bool,
}

impl Held {
    pub(super) fn new(range: DeviceRange, block: u64, owner: Ordinal) -> Self {
        Self { range, block, owner, granted: Vec::new(), proven: false, ghost: false }
    }

    /// Books what was granted.
    pub(super) fn grant(&mut self, list: &[AccessDesc]) {
        for line in list {
            self.granted.retain(|known| known.location != line.location);
            self.granted.push(*line);
        }
    }

    /// What a location may do; 0 where nothing was granted.
    pub(super) fn flags_of(&self, line: &AccessDesc) -> i32 {
        self.granted.iter().find(|known| known.location == line.location).map_or(0, |known| known.flags)
    }
}

/// A reservation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) range: DeviceRange,
    pub(super) device: Ordinal,
    /// What HIP gave: more than the range, where HIP had to be helped to align it.
    pub(super) native: (u64, u64),
    /// Something was mapped in it since it was made.
    pub(super) used: bool,
    /// HIP does not have it any more.
    pub(super) lost: bool,
}

#[derive(Debug, Default)]
struct State {
    rooms: BTreeMap<DevicePtr, Room>,
    mappings: BTreeMap<DevicePtr, Held>,
    /// How often each block is mapped.
    uses: HashMap<u64, u64>,
    /// Releases to be made when a block's last mapping is gone.
    owed: HashMap<u64, u64>,
}

/// What HIP was told.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<State>);

impl Holds {
    /// A leaf: no driver call and no other lock while it is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_room(&self, room: Room) {
        self.state().rooms.insert(room.range.start(), room);
    }

    pub(super) fn take_room(&self, range: DeviceRange) -> Option<Room> {
        self.state().rooms.remove(&range.start())
    }

    /// The reservation that `range` lies in.
    pub(super) fn room_of(&self, range: DeviceRange) -> Option<Room> {
        let state = self.state();
        let (_, room) = state.rooms.range(..=range.start()).next_back()?;
        room.range.contains_range(range).then_some(*room)
    }

    /// Reservations that were used and have nothing mapped now.
    pub(super) fn idle_rooms(&self) -> Vec<Room> {
        let state = self.state();
        let empty = |room: &&Room| {
            let range = room.range;
            room.used && !room.lost && state.mappings.range(range.start()..range.end()).next().is_none()
        };
        state.rooms.values().filter(empty).copied().collect()
    }

    pub(super) fn add(&self, held: Held) {
        let mut state = self.state();
        *state.uses.entry(held.block).or_default() += 1;
        if let Some((_, room)) = state.rooms.range_mut(..=held.range.start()).next_back() {
            room.used = true;
        }
        state.mappings.insert(held.range.start(), held);
    }

    pub(super) fn get(&self, range: DeviceRange) -> Option<Held> {
        self.state().mappings.get(&range.start()).cloned()
    }

    /// Books the end of a mapping, and gives the releases that its block is owed by now.
    pub(super) fn remove(&self, range: DeviceRange) -> u64 {
        let mut state = self.state();
        let Some(held) = state.mappings.remove(&range.start()) else { return 0 };
        let left = state.uses.get_mut(&held.block).map_or(0, |uses| {
            *uses = uses.saturating_sub(1);
            *uses
        });
        if left > 0 {
            return 0;
        }
        state.uses.remove(&held.block);
        state.owed.remove(&held.block).unwrap_or(0)
    }

    /// Changes what is booked of the mappings in `range`.
    pub(super) fn update(&self, range: DeviceRange, change: impl Fn(&mut Held)) {
        self.state().mappings.range_mut(range.start()..range.end()).for_each(|(_, held)| change(held));
    }

    /// The mappings in `range`, in order.
    pub(super) fn within(&self, range: DeviceRange) -> Vec<Held> {
        self.state().mappings.range(range.start()..range.end()).map(|(_, held)| held.clone()).collect()
    }

    /// Owes a release where the block is mapped, and says whether it is.
    pub(super) fn owe_release(&self, block: u64) -> bool {
        let mut state = self.state();
        let mapped = state.uses.contains_key(&block);
        if mapped {
            *state.owed.entry(block).or_default() += 1;
        }
        mapped
    }

    /// True for a block that was given up and lives on in its mappings.
    pub(super) fn is_given_up(&self, block: u64) -> bool {
        self.state().owed.contains_key(&block)
    }

    /// How many bytes from an address on lie in one mapping; all there are where it is in none.
    pub(super) fn room_at(&self, address: u64) -> u64 {
        let state = self.state();
        let found = state.mappings.range(..=DevicePtr(address)).next_back();
        match found {
            Some((_, held)) if held.range.contains(DevicePtr(address)) => held.range.end().get() - address,
            _ => u64::MAX,
        }
    }
}

/// Neighbouring mappings without a hole between them.
pub(super) fn runs(mappings: &[Held]) -> Vec<DeviceRange> {
    let mut runs: Vec<DeviceRange> = Vec::new();
    for held in mappings {
        let joined = runs.last().filter(|run| run.end() == held.range.start()).and_then(|run| {
            DeviceRange::new(run.start(), ByteSize(run.size().get() + held.range.size().get()))
        });
        match (joined, runs.last_mut()) {
            (Some(joined), Some(last)) => *last = joined,
            _ => runs.push(held.range),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 2 << 20;

    fn range(at: u64, granules: u64) -> DeviceRange {
        DeviceRange::new(DevicePtr(at * G), ByteSize(granules * G)).expect("a range")
    }

    #[test]
    fn runs_end_at_holes() {
        let held = [16, 17, 20, 21, 23].map(|at| Held::new(range(at, 1), at, Ordinal(0)));
        assert_eq!(runs(&held), [range(16, 2), range(20, 2), range(23, 1)]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn releases_are_owed_until_the_last_mapping_is_gone() {
        let holds = Holds::default();
        assert!(!holds.owe_release(7));
        [16, 18].into_iter().for_each(|at| holds.add(Held::new(range(at, 1), 7, Ordinal(0))));
        assert!(holds.owe_release(7) && holds.is_given_up(7));
        assert_eq!((holds.remove(range(16, 1)), holds.remove(range(18, 1))), (0, 1));
        assert!(!holds.is_given_up(7));
    }

    #[test]
    fn used_and_empty_rooms_are_idle() {
        let holds = Holds::default();
        let room = Room { range: range(16, 4), device: Ordinal(0), native: (0, 0), used: false, lost: false };
        holds.add_room(room);
        assert!(holds.idle_rooms().is_empty());
        holds.add(Held::new(range(17, 1), 7, Ordinal(0)));
        assert!(holds.idle_rooms().is_empty());
        assert_eq!((holds.room_at(17 * G + 5), holds.room_at(16 * G)), (G - 5, u64::MAX));
        holds.remove(range(17, 1));
        assert_eq!(holds.idle_rooms().len(), 1);
    }
}
