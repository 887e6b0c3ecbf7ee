//! Which slot has which allocation, from step to step: finds slots that share one, and remembers what is known of each.
//!
//! Allocations come back, so most of a step's are known already. A slot that changes takes one look at the allocation that it
//! gets; what it had is not touched, since an allocation's user counts only where that slot says the same.

use super::buffers::Buffer;
use super::slot::Slot;
use super::table::{Table, hash};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;

/// No allocation, no slot.
pub(super) const NONE: u32 = u32::MAX;

/// An allocation.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: u64,
    /// What its block has, as far as `facts` says; [`NO_BLOCK`] for one that has none.
    bytes: u64,
    /// The last slot that had it; it still does where [`Has::at`] says so too.
    user: u32,
    /// The last check that gave it to a slot.
    claim: u32,
    /// Which [`Ids::facts`] were in force when the block was asked for its size.
    facts: u32,
    /// Where the copies' own books have it, if they do.
    range: u32,
}

const _: () = assert!(size_of::<Known>() == 32, "a step reads one for each slot that changed");

/// No block is that large.
const NO_BLOCK: u64 = u64::MAX;

impl Known {
    fn new(buffer: &Buffer) -> Self {
        let bytes = if buffer.has_block { 0 } else { NO_BLOCK };
        Self { id: buffer.id, bytes, user: NONE, claim: 0, facts: 0, range: NONE }
    }

    /// What tells it from others.
    #[inline]
    const fn key(&self) -> (u64, bool) {
        (self.id, self.bytes != NO_BLOCK)
    }
}

/// What a slot has.
#[derive(Clone, Copy, Debug)]
struct Has {
    /// The last check that looked at it.
    check: u32,
    /// The number of its allocation in the step that is served.
    at: u32,
}

/// A slot that a check looked at.
#[derive(Clone, Copy, Debug)]
struct Fresh {
    slot: u32,
    at: u32,
}

/// The allocations of a binding's steps. One check is: [`start`](Self::start), [`look`](Self::look) at each slot that changed,
/// [`check`](Self::check), and once the step is served [`accept`](Self::accept). A check that is not accepted changes
/// nothing for later ones.
#[derive(Debug, Default)]
pub(super) struct Ids {
    /// The known ones by their ids.
    table: Table,
    known: Vec<Known>,
    /// Room for what is kept of them: a step allocates nothing.
    spare: Vec<Known>,
    slots: Vec<Has>,
    fresh: Vec<Fresh>,
    check: u32,
    /// No two slots of the step that is served share an allocation, and each says what it has.
    whole: bool,
    /// This check found some that do.
    shares: bool,
    /// This check found a slot with another allocation than in the step that is served.
    moves: bool,
    /// Rises when what is known of blocks may not hold any more.
    facts: u32,
    /// The caller's number that changes when a block's handle dies.
    deaths: u64,
}

impl Ids {
    /// Starts a check of a step of `slots` slots, each of which is looked at once at most.
    pub(super) fn start(&mut self, slots: usize, deaths: u64) {
        if self.slots.len() != slots || self.check == u32::MAX || self.facts == u32::MAX {
            self.forget(slots);
        }
        self.check += 1;
        self.facts += u32::from(self.deaths != deaths || self.facts == 0);
        // What is not checked stays as it was.
        (self.deaths, self.shares, self.moves) = (deaths, !self.whole, false);
        self.fresh.clear();
        if self.known.len() > kept(slots) {
            self.drop_unused();
        }
    }

    fn forget(&mut self, slots: usize) {
        let room = kept(slots) + slots;
        self.table.start_small(room);
        let (known, spare) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let (slots, fresh) = (vec![Has { check: 0, at: NONE }; slots], Vec::with_capacity(slots));
        *self =
            Self { table: std::mem::take(&mut self.table), known, spare, fresh, slots, ..Self::default() };
    }

    /// Keeps what slots have.
    #[cold]
    fn drop_unused(&mut self) {
        self.table.start_small(kept(self.slots.len()) + self.slots.len());
        std::mem::swap(&mut self.known, &mut self.spare);
        self.known.clear();
        for (slot, has) in self.slots.iter_mut().enumerate().filter(|(_, has)| has.at != NONE) {
            let own = self.spare[has.at as usize];
            let next = self.known.len() as u32;
            let same = |n: u32| self.known[n as usize].key() == own.key();
            has.at = self.table.find_or_add(hash(own.id), next, same).unwrap_or(next);
            if has.at == next {
                self.known.push(Known { user: slot as u32, ..own });
            }
        }
    }

    /// Looks at what a slot gets, and gives its number; an id of 0 tells nothing.
    #[inline]
    pub(super) fn look(&mut self, slot: u32, buffer: &Buffer) -> u32 {
        let at = if buffer.id == 0 { NONE } else { self.number(buffer) };
        let has = &mut self.slots[slot as usize];
        has.check = self.check;
        self.moves |= has.at != at;
        self.fresh.push(Fresh { slot, at });
        at
    }

    /// The number of a buffer's allocation.
    #[inline]
    fn number(&mut self, buffer: &Buffer) -> u32 {
        let (known, next, key) = (&self.known, self.known.len() as u32, (buffer.id, buffer.has_block));
        let found = self.table.find_or_add(hash(buffer.id), next, |n| known[n as usize].key() == key);
        if found.is_none() {
            self.known.push(Known::new(buffer));
        }
        found.unwrap_or(next)
    }

    /// How many bytes the block of allocation `n` has, where that is still known.
    #[inline]
    pub(super) fn block_size(&self, n: u32) -> Option<ByteSize> {
        let known = self.known.get(n as usize).filter(|known| known.facts == self.facts);
        known.map(|known| ByteSize(known.bytes))
    }

    /// Notes that.
    pub(super) fn note_block_size(&mut self, n: u32, bytes: ByteSize) {
        if let Some(known) = self.known.get_mut(n as usize).filter(|_| bytes.get() != NO_BLOCK) {
            (known.bytes, known.facts) = (bytes.get(), self.facts);
        }
    }

    /// Where the copies' books have allocation `n`: what they said last, which they check themselves.
    #[inline]
    pub(super) fn range(&mut self, n: u32) -> Option<&mut u32> {
        self.known.get_mut(n as usize).map(|known| &mut known.range)
    }

    /// Checks that no allocation that is written stands behind two slots, and tells `twin` each slot that shares its
    /// allocation with an earlier one. Where no slot has another allocation than in the step that is served, nobody is told
    /// anything.
    pub(super) fn check(
        &mut self,
        slots: &[Slot],
        buffer: impl Fn(usize) -> Buffer,
        twin: impl FnMut(usize),
    ) -> Result<()> {
        if !self.moves {
            return Ok(());
        }
        if !self.whole {
            let check = self.check;
            for slot in 0..slots.len() {
                if self.slots[slot].check != check {
                    self.look(slot as u32, &buffer(slot));
                }
            }
        }
        if self.is_unique() { Ok(()) } else { twins(slots, buffer, twin) }
    }

    /// False where an allocation stands behind two slots.
    fn is_unique(&mut self) -> bool {
        self.shares = false;
        for &Fresh { at, .. } in self.fresh.iter().filter(|fresh| fresh.at != NONE) {
            let known = &mut self.known[at as usize];
            let user = self.slots.get(known.user as usize);
            let stays = user.is_some_and(|has| has.at == at && has.check != self.check);
            self.shares |= stays | (known.claim == self.check);
            known.claim = self.check;
        }
        !self.shares
    }

    /// The step that was checked last is served now.
    pub(super) fn accept(&mut self) {
        for &Fresh { slot, at } in &self.fresh {
            self.slots[slot as usize].at = at;
            if let Some(known) = self.known.get_mut(at as usize) {
                known.user = slot;
            }
        }
        self.whole = !self.shares;
        self.fresh.clear();
    }
}

/// From how many known allocations on only those that slots have are kept: until then others may come back.
const fn kept(slots: usize) -> usize {
    2 * slots + 8
}

/// Checks all slots, whatever is known.
#[cold]
pub(super) fn twins(
    slots: &[Slot],
    buffer: impl Fn(usize) -> Buffer,
    mut twin: impl FnMut(usize),
) -> Result<()> {
    let mut table = Table::default();
    table.start(slots.len());
    for (i, slot) in slots.iter().enumerate() {
        let own = buffer(i);
        if own.id == 0 {
            continue;
        }
        let is = |other: u32| {
            let other = buffer(other as usize);
            (other.id, other.has_block) == (own.id, own.has_block)
        };
        let Some(first) = table.find_or_add(hash(own.id), i as u32, is) else { continue };
        if slot.direction.writes() || slots[first as usize].direction.writes() {
            return Err(ALIASED.at(own.address, own.bytes).entry(i as u64));
        }
        twin(i);
    }
    Ok(())
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
    use proptest::prelude::*;

    const IN: Slot = Slot::new(ByteSize(8)).direction(Direction::IN);
    const OUT: Slot = Slot::new(ByteSize(8)).direction(Direction::OUT);

    fn of(ids: &[(u64, bool)]) -> Vec<Buffer> {
        ids.iter().map(|&(id, has_block)| Buffer { id, has_block, ..Buffer::default() }).collect()
    }

    /// One check, in which `changed` changed; gives the twins.
    fn check(ids: &mut Ids, slots: &[Slot], buffers: &[Buffer], changed: &[u32]) -> Result<Vec<usize>> {
        ids.start(slots.len(), 0);
        for &slot in changed {
            ids.look(slot, &buffers[slot as usize]);
        }
        let mut found = Vec::new();
        ids.check(slots, |i| buffers[i], |i| found.push(i)).map(|()| found)
    }

    fn first(slots: &[Slot], ids: &[(u64, bool)]) -> Result<Vec<usize>> {
        let all: Vec<u32> = (0..slots.len() as u32).collect();
        check(&mut Ids::default(), slots, &of(ids), &all)
    }

    #[test]
    fn inputs_may_share_and_outputs_may_not() {
        assert_eq!(first(&[IN, OUT, IN], &[(1, true), (2, true), (1, true)]), Ok(vec![2]));
        for slots in [[IN, IN, OUT], [OUT, IN, IN], [OUT, OUT, OUT]] {
            let e = first(&slots, &[(7, false), (8, false), (7, false)]).expect_err("aliased");
            assert_eq!((e.kind, e.entry), (Kind::Aliased, Some(2)));
        }
    }

    #[test]
    fn a_block_and_a_callers_number_are_different_things() {
        assert_eq!(first(&[OUT, OUT], &[(5, true), (5, false)]), Ok(vec![]));
        assert_eq!(first(&[OUT, OUT], &[(0, false), (0, false)]), Ok(vec![]));
    }

    #[test]
    fn a_blocks_size_is_known_until_a_handle_dies() {
        let mut ids = Ids::default();
        let buffer = of(&[(5, true)])[0];
        for (deaths, known) in [(3, None), (3, Some(ByteSize(64))), (4, None)] {
            ids.start(1, deaths);
            let n = ids.look(0, &buffer);
            assert_eq!(ids.block_size(n), known, "{deaths}");
            ids.note_block_size(n, ByteSize(64));
            ids.accept();
        }
        ids.start(1, 4);
        let other = ids.look(0, &of(&[(5, false)])[0]);
        assert_eq!((ids.block_size(other), ids.block_size(NONE)), (None, None));
    }

    #[test]
    fn counters_that_are_used_up_begin_anew() {
        let mut ids = Ids::default();
        for last in [false, true, false] {
            (ids.check, ids.facts) = if last { (u32::MAX, u32::MAX) } else { (ids.check, ids.facts) };
            assert_eq!(check(&mut ids, &[OUT, OUT], &of(&[(1, true), (2, true)]), &[]), Ok(vec![]));
            ids.accept();
            let shared = of(&[(1, true), (1, true)]);
            assert_eq!(check(&mut ids, &[OUT, OUT], &shared, &[1]).map_err(|e| e.entry), Err(Some(1)));
        }
    }

    #[test]
    fn no_more_is_remembered_than_has_room() {
        let mut ids = Ids::default();
        for turn in 1..100 {
            let buffers = of(&[(turn, true), (1000 + turn, true), (1, false)]);
            assert_eq!(check(&mut ids, &[OUT; 3], &buffers, &[0, 1]), Ok(vec![]));
            ids.accept();
            assert!(ids.whole && ids.known.len() <= kept(3) + 3);
        }
    }

    /// The twins of a step by a plain search, or the first slot that may not share.
    fn plain(slots: &[Slot], buffers: &[Buffer]) -> std::result::Result<Vec<usize>, u64> {
        let is_one = |a: &Buffer, b: &Buffer| (a.id, a.has_block) == (b.id, b.has_block);
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
            range in prop_oneof![Just(12u64), Just(30), Just(200)],
            steps in prop::collection::vec(
                (prop::collection::btree_map(0usize..12, (any::<u64>(), prop::bool::weighted(0.8)), 0..8),
                 prop::bool::weighted(0.8)), 1..40),
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
                let seen = check(&mut ids, &slots, &buffers, &changed).map_err(|e| e.entry.expect("a slot"));
                let key = |buffer: &Buffer| (buffer.id != 0).then_some((buffer.id, buffer.has_block));
                let moves = changes.keys().any(|&i| key(&buffers[i]) != key(&served[i]));
                prop_assert_eq!(&seen, &if moves { plain(&slots, &buffers) } else { Ok(vec![]) });
                if seen.is_ok() && accepted {
                    ids.accept();
                    served = buffers;
                }
            }
        }
    }
}
