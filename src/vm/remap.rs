//! The planner: from a snapshot of the books and what is wanted to the driver calls that lead there. Pure: no
//! driver, no lock, no clock.

use super::BlockId;
use super::access::{List, Shape};
use super::plan::{
    Action, Back, Changed, Entry, Held, HeldState, Mode, Plan, Snapshot, Source, Step, Want, WantBlock, Why,
};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DeviceRange};

/// A mapping of the final state.
#[derive(Clone, Copy)]
struct Final {
    place: u32,
    end: u64,
    entry: Option<Entry>,
}

struct Planner<'a> {
    on: &'a Snapshot<'a>,
    plan: Plan,
    maps: Vec<Step>,
    access: Vec<Step>,
    /// The last mapping of the final state so far, which comes in order.
    last: Option<Final>,
    /// The first two of them that would overlap.
    overlap: Option<Error>,
    /// Without aliasing, the blocks that leave a place, and those that need one, with how many they have.
    left: Vec<BlockId>,
    placed: Vec<(BlockId, u32, Option<Entry>)>,
}

/// Plans, or says which entry makes it impossible.
pub(crate) fn plan(snapshot: &Snapshot<'_>) -> Result<Plan> {
    let count = snapshot.wants.len();
    let mut planner = Planner {
        on: snapshot,
        plan: Plan::default(),
        maps: Vec::with_capacity(count),
        access: Vec::with_capacity(if snapshot.mode == Mode::Remap { count } else { 0 }),
        last: None,
        overlap: None,
        left: Vec::new(),
        placed: Vec::new(),
    };
    planner.plan.steps.reserve(3 * count);
    planner.strays();
    planner.walk()?;
    planner.overlap.map_or(Ok(()), Err)?;
    planner.check_aliases()?;
    Ok(planner.finish())
}

impl Planner<'_> {
    fn strays(&mut self) {
        for stray in self.on.strays {
            self.plan.waits |= !stray.idle;
            self.unmap(stray.place, stray.offset, stray.block, None, Why::Stray, false);
        }
    }

    /// Goes through wants and books side by side.
    fn walk(&mut self) -> Result<()> {
        let (mut i, mut j) = (0, 0);
        loop {
            match (self.on.wants.get(i), self.on.held.get(j)) {
                (None, None) => return Ok(()),
                (Some(want), Some(held)) if (want.place, want.offset) == (held.place, held.offset) => {
                    self.named(want, held)?;
                    (i, j) = (i + 1, j + 1);
                }
                (Some(want), held)
                    if held.is_none_or(|h| (want.place, want.offset) < (h.place, h.offset)) =>
                {
                    self.fresh(want, j.checked_sub(1).map(|before| &self.on.held[before]))?;
                    i += 1;
                }
                (_, Some(held)) => {
                    self.unnamed(held);
                    j += 1;
                }
                (Some(_), None) => return Ok(()),
            }
        }
    }

    /// Nothing starts where the entry points; `before` is what starts last before it.
    fn fresh(&mut self, want: &Want, before: Option<&Held>) -> Result<()> {
        let Some(block) = want.block else {
            let inside =
                |h: &Held| h.place == want.place && h.end() > want.offset && h.state != HeldState::Retired;
            if before.is_some_and(inside) {
                return Err(self.blame(
                    want,
                    Kind::PartialMapping,
                    "the offset lies inside a mapping: name its start",
                ));
            }
            self.plan.skipped += 1;
            return Ok(());
        };
        self.map(want.place, want.offset, block, Some(want.entry), Source::Entry(want.entry), None);
        Ok(())
    }

    /// An entry points at the start of a mapping.
    fn named(&mut self, want: &Want, held: &Held) -> Result<()> {
        let Some(block) = want.block else {
            self.give_up(want, held, true);
            return Ok(());
        };
        let same = block.id == held.block.id;
        if self.on.mode == Mode::Map
            && (held.state == HeldState::Live || held.state == HeldState::Lost && !same)
        {
            return Err(self.blame(want, Kind::AlreadyMapped, "unmap what is there first, or remap"));
        }
        match held.state {
            HeldState::Live if same => self.keep(want, held, held.custom),
            HeldState::Lost if same => {
                self.map(want.place, want.offset, block, Some(want.entry), Source::Rebuild, held.custom);
            }
            HeldState::Retired if same && self.comes_back(held) => {
                self.plan.revived.push((held.place, held.offset));
                self.keep(want, held, None);
            }
            _ => {
                self.give_up(want, held, false);
                self.map(want.place, want.offset, block, Some(want.entry), Source::Entry(want.entry), None);
            }
        }
        Ok(())
    }

    /// A plain map gives no access beyond the list's, so another kind of access does not come back by it.
    fn comes_back(&self, held: &Held) -> bool {
        let list = self.on.places[held.place as usize].list;
        self.on.mode == Mode::Remap || held.applied == list || held.applied.is_empty()
    }

    /// The right block is mapped there: only its access may have to change.
    fn keep(&mut self, want: &Want, held: &Held, custom: Option<List>) {
        let list = custom.unwrap_or(self.on.places[held.place as usize].list);
        let call = match self.on.mode {
            Mode::Remap => self.on.shape.change(held.applied, list),
            Mode::Map => None,
        };
        let range = self.range(held.place, held.offset, held.block.size);
        match (call, range) {
            (Some(call), Some(range)) => {
                let back = self.on.shape.change(list, held.applied);
                let (place, offset, to, entry) = (held.place, held.offset, list, Some(want.entry));
                self.change(Changed { place, offset, range, call, to, back, entry });
            }
            _ => self.plan.skipped += 1,
        }
        self.stays(held.place, held.offset, held.block.size, Some(want.entry));
    }

    /// What is there goes.
    fn give_up(&mut self, want: &Want, held: &Held, for_good: bool) {
        match held.state {
            HeldState::Live => {
                self.plan.waits = true;
                let why = Why::Replaced { restore: held.applied };
                self.unmap(held.place, held.offset, held.block, Some(want.entry), why, !for_good);
            }
            HeldState::Lost => {
                self.plan.forgotten.push((held.place, held.offset));
                self.plan.skipped += u64::from(for_good);
            }
            HeldState::Retired if for_good => {
                // It goes by itself, or makes room for a larger block that starts before it.
                self.plan.skipped += 1;
                self.unnamed(held);
            }
            HeldState::Retired => {
                self.unmap(held.place, held.offset, held.block, Some(want.entry), Why::Retired, true);
            }
        }
    }

    /// No entry points at the start of this mapping.
    fn unnamed(&mut self, held: &Held) {
        match held.state {
            HeldState::Live => self.stays(held.place, held.offset, held.block.size, None),
            HeldState::Lost if self.on.mode == Mode::Map => {
                self.stays(held.place, held.offset, held.block.size, None);
            }
            HeldState::Lost => {
                self.map(held.place, held.offset, held.block, None, Source::Rebuild, held.custom);
            }
            HeldState::Retired => {
                if let Some(entry) = self.entry_over(held) {
                    self.unmap(held.place, held.offset, held.block, Some(entry), Why::Retired, false);
                }
            }
        }
    }

    /// The entry of a block that would be mapped over `held`.
    fn entry_over(&self, held: &Held) -> Option<Entry> {
        let wants = self.on.wants;
        let after = wants.partition_point(|w| (w.place, w.offset) < (held.place, held.end()));
        let mut before = wants[..after].iter().rev().take_while(|w| w.place == held.place);
        // Blocks wanted do not overlap, so the first one from the right decides.
        let want = before.find(|w| w.block.is_some())?;
        (want.offset + want.block?.size > held.offset).then_some(want.entry)
    }

    fn map(
        &mut self,
        place: u32,
        offset: u64,
        block: WantBlock,
        entry: Option<Entry>,
        source: Source,
        custom: Option<List>,
    ) {
        let Some(range) = self.range(place, offset, block.size) else { return };
        let to = match self.on.mode {
            Mode::Remap => custom.unwrap_or(self.on.places[place as usize].list),
            Mode::Map => List::NOTHING,
        };
        let action = Action::Map { native: block.native, source, to };
        self.maps.push(Step { place, offset, range, entry, action });
        if !self.on.shape.aliasing {
            self.placed.push((block.id, block.places, entry));
        }
        self.stays(place, offset, block.size, entry);
        // A plain map wants nothing, so nothing changes.
        if let Some(call) = self.on.shape.change(List::NOTHING, to) {
            self.change(Changed { place, offset, range, call, to, back: None, entry });
        }
    }

    fn unmap(
        &mut self,
        place: u32,
        offset: u64,
        block: WantBlock,
        entry: Option<Entry>,
        why: Why,
        followed: bool,
    ) {
        let Some(range) = self.range(place, offset, block.size) else { return };
        let action = Action::Unmap { native: block.native, why, followed };
        self.plan.steps.push(Step { place, offset, range, entry, action });
        self.plan.evicts |= matches!(why, Why::Retired);
        if !self.on.shape.aliasing {
            self.left.push(block.id);
        }
    }

    #[inline(always)] // As there.
    fn change(&mut self, change: Changed) {
        let whole = self.on.places[change.place as usize].range;
        push_access(self.on.shape, whole, &mut self.access, &mut self.plan.backs, change);
    }

    /// A mapping of the final state. They come in order, and no two may share a byte.
    fn stays(&mut self, place: u32, offset: u64, size: u64, entry: Option<Entry>) {
        let before = self.last.replace(Final { place, end: offset + size, entry });
        if let Some(before) = before.filter(|b| b.place == place && b.end > offset) {
            let error = Error::new(Kind::AlreadyMapped, self.operation(), "two mappings would overlap");
            let error = self.range(place, offset, size).map_or(error, |r| error.at(r.start(), r.size()));
            let entry = before.entry.max(entry).map(Entry::blame);
            self.overlap.get_or_insert(Error { entry, ..error });
        }
    }

    fn range(&self, place: u32, offset: u64, size: u64) -> Option<DeviceRange> {
        self.on.places[place as usize].range.slice(ByteSize(offset), ByteSize(size))
    }

    fn blame(&self, want: &Want, kind: Kind, hint: &'static str) -> Error {
        let error = Error::new(kind, self.operation(), hint).entry(want.entry.blame());
        match self.range(want.place, want.offset, want.block.map_or(1, |block| block.size)) {
            Some(range) => error.at(range.start(), ByteSize(want.block.map_or(0, |block| block.size))),
            None => error,
        }
    }

    const fn operation(&self) -> Operation {
        match self.on.mode {
            Mode::Remap => Operation::Remap,
            Mode::Map => Operation::Map,
        }
    }

    /// Without aliasing, a block that is mapped must be mapped nowhere else once the unmaps are done.
    fn check_aliases(&mut self) -> Result<()> {
        let (left, placed) = (&mut self.left, &mut self.placed);
        left.sort_unstable();
        placed.sort_unstable();
        for (i, (id, places, entry)) in placed.iter().enumerate() {
            let gone = left.partition_point(|b| b <= id) - left.partition_point(|b| b < id);
            let twice = i > 0 && placed[i - 1].0 == *id;
            if twice || *places as usize > gone {
                let hint = "this device cannot map a block twice: unmap its old place in the same call";
                let (entry, during) = (entry.map(Entry::blame), self.operation());
                return Err(Error { entry, ..Error::new(Kind::Unsupported, during, hint) });
            }
        }
        Ok(())
    }

    fn finish(self) -> Plan {
        let mut plan = self.plan;
        plan.steps.extend(self.maps);
        plan.steps.extend(self.access);
        plan
    }
}

/// Adds a change of access to the steps, joined to the last one as far as the device allows.
#[inline(always)] // Else the change goes through memory, which costs as much as the rest of planning a mapping.
pub(crate) fn push_access(
    shape: Shape,
    whole: DeviceRange,
    steps: &mut Vec<Step>,
    backs: &mut Vec<Back>,
    change: Changed,
) {
    // Where only the whole can be set, what one mapping gains on the way cannot be taken back from it alone.
    let kept = backs.len() as u32;
    backs.extend(change.back.filter(|_| shape.ranged).map(|call| Back { range: change.range, call }));
    let upto = backs.len() as u32;
    let last = steps.last_mut().filter(|last| last.place == change.place);
    if let Some(Step { range, action: Action::Access { call, to, back }, .. }) = last {
        if !shape.ranged {
            *call = join_calls(*call, change.call);
            return;
        }
        let equal = *call == change.call && *to == change.to;
        let size = ByteSize(range.size().get() + change.range.size().get());
        let joint = DeviceRange::new(range.start(), size);
        let joins = shape.joined && equal && range.end() == change.range.start();
        if let Some(joint) = joint.filter(|_| joins) {
            (*range, back.1) = (joint, upto);
            return;
        }
    }
    let (range, offset) = if shape.ranged { (change.range, change.offset) } else { (whole, 0) };
    let action = Action::Access { call: change.call, to: change.to, back: (kept, upto) };
    steps.push(Step { place: change.place, offset, range, entry: change.entry, action });
}

/// `call` and the devices that only `other` names: those that leave.
fn join_calls(call: List, other: List) -> List {
    let extra = other.iter().filter(|a| !call.iter().any(|b| b.device == a.device));
    let joint: Vec<_> = extra.chain(call.iter()).copied().collect();
    if call == other || joint.len() == call.len() { call } else { List::of(&joint) }
}

#[cfg(test)]
#[path = "remap_tests.rs"]
mod tests;
