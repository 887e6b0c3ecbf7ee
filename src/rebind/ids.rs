//! Finds slots that share an allocation.

use super::buffers::Buffer;
use super::slot::Slot;
use super::table::{Table, hash};
use crate::error::{Error, Kind, Operation, Result};

/// The allocations of a step by their ids, kept from step to step.
#[derive(Debug, Default)]
pub(super) struct Ids {
    /// Slots by their allocations' ids.
    table: Table,
    /// The table has each allocation of the step that was checked last, and no two slots share one.
    whole: bool,
    /// So it is for the step that is served.
    kept: bool,
}

fn is_one(a: &Buffer, b: &Buffer) -> bool {
    (a.id, a.has_block) == (b.id, b.has_block)
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
        self.table.start(slots.len());
        (self.whole, self.kept) = (false, false);
        let mut whole = true;
        for (i, slot) in slots.iter().enumerate() {
            let Some(first) = self.add(i as u32, &buffer) else { continue };
            let buffer = buffer(i);
            if slot.direction.writes() || slots[first as usize].direction.writes() {
                return Err(ALIASED.at(buffer.address, buffer.bytes).entry(i as u64));
            }
            whole = false;
            twin(i);
        }
        self.whole = whole;
        Ok(())
    }

    /// The same for a step that differs from the one served in `changed` slots.
    pub(super) fn check_changed(
        &mut self,
        slots: &[Slot],
        served: &[Buffer],
        changed: &[u32],
        buffer: impl Fn(usize) -> Buffer,
        twin: impl FnMut(usize),
    ) -> Result<()> {
        if std::mem::take(&mut self.kept) && self.exchange(served, changed, &buffer) {
            self.whole = true;
            return Ok(());
        }
        self.check(slots, buffer, twin)
    }

    /// The step that was checked last is served now.
    pub(super) fn accept(&mut self) {
        self.kept = self.whole;
    }

    /// Puts new allocations in the place of those served; false where one is shared.
    fn exchange(&mut self, served: &[Buffer], changed: &[u32], buffer: &impl Fn(usize) -> Buffer) -> bool {
        let others = || changed.iter().filter(|i| !is_one(&served[**i as usize], &buffer(**i as usize)));
        for &i in others().filter(|i| served[**i as usize].id != 0) {
            self.table.remove(hash(served[i as usize].id), i);
        }
        others().all(|i| self.add(*i, buffer).is_none())
    }

    /// Adds a slot's allocation, or gives the slot that has it already.
    fn add(&mut self, slot: u32, buffer: &impl Fn(usize) -> Buffer) -> Option<u32> {
        let own = buffer(slot as usize);
        if own.id == 0 {
            return None;
        }
        self.table.find_or_add(hash(own.id), slot, |other| is_one(&buffer(other as usize), &own))
    }
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

    /// The twins of a step by a plain search, or the first slot that may not share.
    fn plain(slots: &[Slot], buffers: &[Buffer]) -> std::result::Result<Vec<usize>, u64> {
        let first = |i: usize| (0..i).find(|&j| buffers[i].id != 0 && is_one(&buffers[i], &buffers[j]));
        let twins: Vec<_> = (0..slots.len()).filter_map(|i| Some((i, first(i)?))).collect();
        match twins.iter().find(|(i, j)| [i, j].iter().any(|s| slots[**s].direction.writes())) {
            Some((i, _)) => Err(*i as u64),
            None => Ok(twins.into_iter().map(|(i, _)| i).collect()),
        }
    }

    proptest! {
        /// Steps that change some slots; some are checked, and not served.
        #[test]
        fn it_agrees_with_a_plain_search(
            writes in prop::collection::vec(prop::bool::weighted(0.3), 12),
            range in prop_oneof![Just(12u64), Just(200)],
            steps in prop::collection::vec(
                (prop::collection::btree_map(0usize..12, (any::<u64>(), prop::bool::weighted(0.8)), 0..8),
                 prop::bool::weighted(0.8)), 1..20),
        ) {
            let slots: Vec<Slot> = writes.iter().map(|writes| if *writes { OUT } else { IN }).collect();
            let mut ids = Ids::default();
            let mut served = vec![Buffer::default(); 12];
            for (changes, accepted) in steps {
                let mut buffers = served.clone();
                for (&i, &(id, has_block)) in &changes {
                    buffers[i] = Buffer { id: (id % range) << 33, has_block, ..buffers[i] };
                }
                let changed: Vec<u32> = changes.keys().map(|i| *i as u32).collect();
                let mut found = Vec::new();
                let seen = ids.check_changed(&slots, &served, &changed, |i| buffers[i], |i| found.push(i));
                let seen = seen.map(|()| found).map_err(|e| e.entry.expect("a slot"));
                prop_assert_eq!(&seen, &plain(&slots, &buffers));
                if seen.is_ok() && accepted {
                    ids.accept();
                    served = buffers;
                }
            }
        }
    }
}
