//! Finds slots that share an allocation.

use super::buffers::Buffer;
use super::slot::Slot;
use crate::error::{Error, Kind, Operation, Result};

/// A hash table of the allocations of one step, kept so that a step allocates nothing: filling it anew marks all
/// earlier entries as old instead of clearing them.
#[derive(Debug, Default)]
pub(super) struct Ids {
    entries: Vec<Entry>,
    stamp: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    id: u64,
    /// The slot, and above it whether the id is a block's.
    slot: u32,
    has_block: bool,
    stamp: u32,
}

impl Ids {
    /// Checks that no allocation that is written stands behind two slots, and tells `twin` each slot that shares
    /// its allocation with an earlier one. An id of 0 tells nothing.
    pub(super) fn check(
        &mut self,
        slots: &[Slot],
        buffer: impl Fn(usize) -> Buffer,
        mut twin: impl FnMut(usize),
    ) -> Result<()> {
        self.start(slots.len());
        for (i, slot) in slots.iter().enumerate() {
            let buffer = buffer(i);
            let Some(first) = self.insert(&buffer, i as u32) else { continue };
            if slot.direction.writes() || slots[first].direction.writes() {
                return Err(ALIASED.at(buffer.address, buffer.bytes).entry(i as u64));
            }
            twin(i);
        }
        Ok(())
    }

    /// Makes room for `count` ids and forgets the earlier ones.
    fn start(&mut self, count: usize) {
        let wanted = (count * 2).next_power_of_two().max(4);
        if self.entries.len() < wanted || self.stamp == u32::MAX {
            self.entries.clear();
            self.entries.resize(wanted, Entry::default());
            self.stamp = 0;
        }
        self.stamp += 1;
    }

    /// Adds a slot's allocation, or gives the slot that has it already.
    fn insert(&mut self, buffer: &Buffer, slot: u32) -> Option<usize> {
        if buffer.id == 0 {
            return None;
        }
        let mask = self.entries.len() - 1;
        let mut at = hash(buffer.id) as usize & mask;
        loop {
            let entry = &mut self.entries[at];
            if entry.stamp != self.stamp {
                *entry = Entry { id: buffer.id, slot, has_block: buffer.has_block, stamp: self.stamp };
                return None;
            }
            if entry.id == buffer.id && entry.has_block == buffer.has_block {
                return Some(entry.slot as usize);
            }
            at = (at + 1) & mask;
        }
    }
}

/// Spreads ids that are addresses, counters or keys over the table: the high bits of a product, folded down.
const fn hash(id: u64) -> u64 {
    let product = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product >> 32
}

const ALIASED: Error = Error::new(
    Kind::Aliased,
    Operation::Begin,
    "an allocation that is written may stand behind one slot only",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rebind::slot::Direction;
    use crate::units::ByteSize;
    use proptest::prelude::*;

    const IN: Slot = Slot::new(ByteSize(8)).direction(Direction::IN);
    const OUT: Slot = Slot::new(ByteSize(8)).direction(Direction::OUT);

    fn twins(slots: &[Slot], ids: &[(u64, bool)]) -> Result<Vec<usize>> {
        let mut found = Vec::new();
        let buffer = |i: usize| Buffer { id: ids[i].0, has_block: ids[i].1, ..Buffer::default() };
        Ids::default().check(slots, buffer, |i| found.push(i)).map(|()| found)
    }

    #[test]
    fn inputs_may_share_and_outputs_may_not() {
        assert_eq!(twins(&[IN, OUT, IN], &[(1, true), (2, true), (1, true)]), Ok(vec![2]));
        for slots in [[IN, IN, OUT], [OUT, IN, IN], [OUT, OUT, OUT]] {
            let e = twins(&slots, &[(7, false), (8, false), (7, false)]).expect_err("aliased");
            assert_eq!((e.kind, e.entry), (Kind::Aliased, Some(2)));
        }
    }

    #[test]
    fn a_block_and_a_callers_number_are_different_things() {
        assert_eq!(twins(&[OUT, OUT], &[(5, true), (5, false)]), Ok(vec![]));
        assert_eq!(twins(&[OUT, OUT], &[(0, false), (0, false)]), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_a_plain_search(
            steps in prop::collection::vec(prop::collection::vec((0u64..30, any::<bool>()), 0..30), 1..5),
        ) {
            let mut table = Ids::default();
            for ids in steps {
                let slots = vec![IN; ids.len()];
                let mut found = Vec::new();
                let buffer = |i: usize| Buffer { id: ids[i].0 << 33, has_block: ids[i].1, ..Buffer::default() };
                table.check(&slots, buffer, |i| found.push(i)).expect("inputs only");
                let plain: Vec<usize> =
                    (0..ids.len()).filter(|&i| ids[i].0 != 0 && ids[..i].contains(&ids[i])).collect();
                prop_assert_eq!(found, plain);
            }
        }
    }
}
