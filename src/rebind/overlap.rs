//! Finds copies that would write where something else of the same call is read or written. Pure.
//!
//! Copies in write shadows, copies out write callers' buffers. Shadows lie apart, so two things can go wrong: two
//! buffers that are written overlap, or a buffer lies over a shadow. The first is found by keeping ranges that are known
//! to lie apart: buffers come back, so most of a step's are among them, and then all that counts is that no two slots have
//! the same one. The second is rare, and not always wrong (a buffer may be its own shadow), so it is only noticed here,
//! and the slices themselves are looked at then.

use super::table::{Table, hash};
use crate::units::{ByteSize, DevicePtr, DeviceRange};

/// A buffer that copies out write, and nobody knew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Written {
    start: u64,
    end: u64,
    slot: u32,
}

/// A range that lies apart from all others that are known. A slot may have a part of it, from its start on.
#[derive(Clone, Copy, Debug)]
struct Known {
    start: u64,
    end: u64,
    /// The last check that gave it to a slot.
    claim: u32,
    /// The last slot that had it; it still has it where its [`Seen::at`] says so too.
    user: u32,
}

/// What is known of a slot.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The end of its buffer.
    end: u64,
    /// The last check that looked at it.
    check: u32,
    /// The number of its range.
    at: u32,
}

const _: () = assert!(size_of::<Known>() == 24 && size_of::<Seen>() == 16, "a step reads many of them");

/// A slot that a check looked at.
#[derive(Clone, Copy, Debug)]
struct Fresh {
    slot: u32,
    /// The number of its range.
    at: u32,
    /// The end of its buffer.
    end: u64,
}

/// No range, or no slot.
const NONE: u32 = u32::MAX;

/// What is known of a layout's copies. One check is: [`start`](Self::start), [`look`](Self::look) at each slot that
/// changed, [`check`](Self::check), and once the step has begun [`accept`](Self::accept). A check that is not
/// accepted leaves no trace.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    /// Where the shadows are, in order; ours count as one.
    shadows: Vec<DeviceRange>,
    /// A buffer may lie over a shadow: from here on the slices are looked at.
    mixed: bool,
    known: Vec<Known>,
    /// The known ones by where they start.
    index: Table,
    /// The same in order.
    order: Vec<(u64, u32)>,
    /// Numbers of known ranges that are free.
    free: Vec<u32>,
    /// How many may be known: those in use, and some that may come back.
    most: usize,
    slots: Vec<Seen>,
    /// Slots that this check looked at.
    fresh: Vec<Fresh>,
    /// The same where nobody knows the range yet, in order once they were checked.
    strangers: Vec<Written>,
    /// Known ranges that nobody has and strangers overlap.
    stale: Vec<u32>,
    /// Known ranges that somebody has a part of, and where a stranger begins behind that.
    cut: Vec<(u32, u64)>,
    check: u32,
    mixes: bool,
}

impl Overlap {
    /// For `slots` slots, of which `outs` are copied out, with shadows in `shadows`.
    pub(super) fn new(slots: usize, outs: usize, mut shadows: Vec<DeviceRange>) -> Self {
        shadows.sort_unstable();
        let mixed = shadows.windows(2).any(|pair| pair[0].overlaps(pair[1]));
        let most = 3 * outs + 8;
        let mut index = Table::default();
        index.start(most);
        let slots = vec![Seen { check: 0, end: 0, at: NONE }; slots];
        let (known, order) = (Vec::with_capacity(most), Vec::with_capacity(most));
        let (fresh, strangers) = (Vec::with_capacity(outs), Vec::with_capacity(outs));
        Self { shadows, mixed, known, index, order, most, slots, fresh, strangers, ..Self::default() }
    }

    /// Starts a check.
    pub(super) fn start(&mut self) {
        if self.check == u32::MAX {
            self.slots.iter_mut().for_each(|slot| slot.check = 0);
            self.known.iter_mut().for_each(|known| known.claim = 0);
            self.check = 0;
        }
        self.check += 1;
        self.fresh.clear();
        self.strangers.clear();
        self.stale.clear();
        self.cut.clear();
        self.mixes = false;
    }

    /// Looks at a copied slot whose buffer changed; false where the buffer passes the end of the addresses. A
    /// buffer that is its own shadow has no bytes to copy. `hint` is where the buffer's range was the last time, which
    /// may be wrong, and becomes where it is.
    #[inline]
    pub(super) fn look(
        &mut self,
        slot: u32,
        buffer: DevicePtr,
        bytes: ByteSize,
        written: bool,
        hint: Option<&mut u32>,
    ) -> bool {
        if written {
            self.slots[slot as usize].check = self.check;
        }
        if bytes.is_zero() {
            if written {
                self.fresh.push(Fresh { slot, at: NONE, end: 0 });
            }
            return true;
        }
        let start = buffer.get();
        let Some(end) = start.checked_add(bytes.get()) else { return false };
        if let Some(at) = if written { self.find(start, end, hint) } else { None } {
            // Where it lies over a shadow, that was noticed when it became known.
            self.fresh.push(Fresh { slot, at, end });
            return true;
        }
        self.look_at_stranger(Written { start, end, slot }, written);
        true
    }

    /// What is only read is never known, and there are few shadows.
    #[inline]
    fn look_at_stranger(&mut self, stranger: Written, written: bool) {
        let (start, bytes) = (DevicePtr(stranger.start), ByteSize(stranger.end - stranger.start));
        self.mixes |= DeviceRange::new(start, bytes).is_some_and(|range| self.over_shadow(range));
        if written {
            self.strangers.push(stranger);
        }
    }

    /// The number of the known range that begins with these addresses.
    #[inline]
    fn find(&self, start: u64, end: u64, hint: Option<&mut u32>) -> Option<u32> {
        let is = |known: &Known| known.start == start && known.end >= end;
        let Some(hint) = hint else { return self.index.find(hash(start), |n| is(&self.known[n as usize])) };
        if !self.known.get(*hint as usize).is_some_and(is) {
            *hint = self.index.find(hash(start), |n| is(&self.known[n as usize]))?;
        }
        Some(*hint)
    }

    #[inline]
    fn over_shadow(&self, range: DeviceRange) -> bool {
        let after = self.shadows.partition_point(|shadow| shadow.start() < range.end());
        after.checked_sub(1).is_some_and(|last| self.shadows[last].overlaps(range))
    }

    /// True where buffers may lie over shadows.
    pub(super) const fn is_mixed(&self) -> bool {
        self.mixed || self.mixes
    }

    /// Checks that no two buffers that are written overlap; gives a slot whose buffer does.
    pub(super) fn check(&mut self) -> Result<(), u32> {
        for i in 0..self.fresh.len() {
            let Fresh { slot, at, end } = self.fresh[i];
            if at == NONE {
                continue;
            }
            let start = self.known[at as usize].start;
            if let Some((other, other_end)) = self.user(at) {
                let other = Written { start, end: other_end, slot: other };
                return Err(other.max(Written { start, end, slot }).slot);
            }
            self.known[at as usize].claim = self.check;
        }
        if self.strangers.is_empty() { Ok(()) } else { self.check_strangers() }
    }

    /// The slot that has a range, and where its buffer ends: one that was not looked at, or one that was given it by
    /// this check.
    #[inline]
    fn user(&self, n: u32) -> Option<(u32, u64)> {
        let known = &self.known[n as usize];
        if known.claim == self.check {
            return self.fresh.iter().find(|fresh| fresh.at == n).map(|fresh| (fresh.slot, fresh.end));
        }
        let slot = self.slots.get(known.user as usize)?;
        (slot.at == n && slot.check != self.check).then_some((known.user, slot.end))
    }

    #[cold]
    fn check_strangers(&mut self) -> Result<(), u32> {
        self.strangers.sort_unstable();
        if let Some(pair) = self.strangers.windows(2).find(|pair| pair[0].end > pair[1].start) {
            return Err(pair[1].slot);
        }
        for stranger in &self.strangers {
            let first = self.order.partition_point(|(_, n)| self.known[*n as usize].end <= stranger.start);
            let over = self.order[first..].iter().take_while(|(start, _)| *start < stranger.end);
            for &(start, n) in over {
                match self.user(n) {
                    None => self.stale.push(n),
                    Some((_, end)) if end <= stranger.start => self.cut.push((n, stranger.start)),
                    Some((slot, end)) => return Err(Written { start, end, slot }.max(*stranger).slot),
                }
            }
        }
        Ok(())
    }

    /// The step with what was looked at has begun.
    pub(super) fn accept(&mut self) {
        for &Fresh { slot, at, end } in &self.fresh {
            let seen = &mut self.slots[slot as usize];
            (seen.at, seen.end) = (at, end);
            if at != NONE {
                self.known[at as usize].user = slot;
            }
        }
        if !self.strangers.is_empty() {
            self.learn();
        }
        self.mixed |= self.mixes;
        self.mixes = false;
        self.fresh.clear();
    }

    /// Makes the strangers known, in the place of what they overlap.
    #[cold]
    fn learn(&mut self) {
        for Written { slot, .. } in &self.strangers {
            self.slots[*slot as usize].at = NONE;
        }
        for (n, end) in self.cut.drain(..) {
            let known = &mut self.known[n as usize];
            known.end = known.end.min(end);
        }
        if self.known.len() - self.free.len() + self.strangers.len() > self.most {
            let unused = |n: &u32| self.user_now(*n).is_none();
            self.stale = self.order.iter().map(|(_, n)| *n).filter(unused).collect();
        }
        if !self.stale.is_empty() {
            // A stranger may overlap several, and several may overlap one.
            self.stale.sort_unstable();
            self.stale.dedup();
            for &n in &self.stale {
                let known = &mut self.known[n as usize];
                self.index.remove(hash(known.start), n);
                // No hint is right for it.
                known.end = 0;
            }
            self.order.retain(|(_, n)| self.stale.binary_search(n).is_err());
            self.free.append(&mut self.stale);
        }
        for at in 0..self.strangers.len() {
            let Written { start, end, slot } = self.strangers[at];
            let known = Known { start, end, claim: self.check, user: slot };
            let n = match self.free.pop() {
                Some(n) => {
                    self.known[n as usize] = known;
                    n
                }
                None => {
                    self.known.push(known);
                    (self.known.len() - 1) as u32
                }
            };
            self.index.find_or_add(hash(start), n, |_| false);
            let seen = &mut self.slots[slot as usize];
            (seen.at, seen.end) = (n, end);
        }
        self.put_in_order();
        self.strangers.clear();
    }

    fn user_now(&self, n: u32) -> Option<u32> {
        let user = self.known[n as usize].user;
        self.slots.get(user as usize).filter(|slot| slot.at == n).map(|_| user)
    }

    /// Merges the strangers, which are in order, into the order, from its end.
    fn put_in_order(&mut self) {
        let (mut from, mut to) = (self.order.len(), self.order.len() + self.strangers.len());
        self.order.resize(to, (0, NONE));
        for stranger in self.strangers.iter().rev() {
            while from > 0 && self.order[from - 1].0 > stranger.start {
                (from, to) = (from - 1, to - 1);
                self.order[to] = self.order[from];
            }
            to -= 1;
            self.order[to] = (stranger.start, self.slots[stranger.slot as usize].at);
        }
    }
}

#[cfg(test)]
mod tests;
