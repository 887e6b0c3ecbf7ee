//! The books of one segment: which addresses are blocks, free, or without memory. Pure.
//!
//! Free pieces have memory throughout and join their neighbours; holes are whole places without chunks. A request
//! takes a free piece that fits, or else a window over a run of both, which is held while its missing chunks are
//! found, and then becomes a block or what it was.

use super::free_index::FreeIndex;
use super::nodes::{NIL, Nodes, State};
use super::size_class::SMALL_UNITS;
use super::starts::Starts;
use super::window;
use std::ops::Range;

/// The books.
#[derive(Debug)]
pub(super) struct Heap {
    nodes: Nodes,
    index: FreeIndex,
    starts: Starts,
    /// The first hole.
    holes: u32,
    /// The first piece.
    first: u32,
    /// The block that was freed last: the next request of its size takes it as it is.
    resting: u32,
    /// Units of a chunk.
    chunk: u32,
    /// Units in free pieces.
    free: u64,
    /// How often each place is pinned.
    pins: Vec<u32>,
}

/// A window that is being made live.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Held {
    first: u32,
    count: u32,
    start: u32,
    units: u32,
    /// The places that need chunks.
    pub(super) missing: Vec<u32>,
}

/// A piece, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) start: u32,
    pub(super) size: u32,
    pub(super) slack: u16,
    pub(super) state: State,
}

impl Heap {
    /// `places` places for chunks of `chunk` units, all without.
    pub(super) fn new(places: u32, chunk: u32, small: bool) -> Self {
        let mut nodes = Nodes::new();
        let first = nodes.first(places * chunk, State::Hole);
        let shift = if small { 0 } else { SMALL_UNITS.trailing_zeros() };
        let (index, starts) = (FreeIndex::new(), Starts::new(shift));
        Self { nodes, index, starts, holes: first, first, resting: NIL, chunk, free: 0, pins: Vec::new() }
    }

    /// Units that are free.
    pub(super) const fn free_units(&self) -> u64 {
        self.free
    }

    /// Takes a free piece for `units` and gives where it starts.
    #[inline]
    pub(super) fn alloc(&mut self, units: u32, slack: u16) -> Option<u32> {
        if self.resting != NIL {
            if self.nodes[self.resting].size == units {
                self.free -= u64::from(units);
                let node = &mut self.nodes[std::mem::replace(&mut self.resting, NIL)];
                // Where it starts is still known.
                (node.state, node.slack, node.back) = (State::Used, slack, NIL);
                return Some(node.start);
            }
            self.settle();
        }
        self.alloc_found(units, slack)
    }

    /// The same where none was freed just now.
    #[inline(never)]
    fn alloc_found(&mut self, units: u32, slack: u16) -> Option<u32> {
        let (list, i) = self.index.find(&self.nodes, units)?;
        self.index.remove_from(list, &mut self.nodes, i);
        self.free -= u64::from(units);
        if self.nodes[i].size > units {
            let rest = self.nodes.cut(i, units);
            self.index.insert(&mut self.nodes, rest);
        }
        Some(self.hand_out(i, slack))
    }

    #[inline]
    fn hand_out(&mut self, i: u32, slack: u16) -> u32 {
        let node = &mut self.nodes[i];
        (node.state, node.slack, node.back) = (State::Used, slack, NIL);
        self.starts.set(node.start, i);
        node.start
    }

    /// The block in use that starts at `unit`.
    #[inline]
    pub(super) fn block_at(&self, unit: u32) -> Option<u32> {
        let i = self.starts.get(unit)?;
        let node = &self.nodes[i];
        (node.start == unit && node.state == State::Used).then_some(i)
    }

    /// The block in use that holds `unit`.
    pub(super) fn block_over(&self, unit: u32) -> Option<u32> {
        let start = |i: u32| (self.nodes[i].state == State::Used).then_some(self.nodes[i].start);
        let i = self.starts.at_or_before(unit, start)?;
        let node = &self.nodes[i];
        // A line may stand for a start a little behind `unit`: then the block before it is meant.
        let i = if node.start > unit { self.used_before(i)? } else { i };
        let node = &self.nodes[i];
        (unit - node.start < node.size && node.state == State::Used).then_some(i)
    }

    fn used_before(&self, i: u32) -> Option<u32> {
        let mut i = self.nodes[i].prev;
        while i != NIL && self.nodes[i].state != State::Used {
            i = self.nodes[i].prev;
        }
        (i != NIL).then_some(i)
    }

    /// Start, units and slack of a block.
    #[inline]
    pub(super) fn block(&self, i: u32) -> Piece {
        let node = &self.nodes[i];
        Piece { start: node.start, size: node.size, slack: node.slack, state: node.state }
    }

    /// The first entry of a block's list of other streams, [`NIL`] for none.
    #[inline]
    pub(super) fn uses(&self, i: u32) -> u32 {
        self.nodes[i].back
    }

    pub(super) fn set_uses(&mut self, i: u32, uses: u32) {
        self.nodes[i].back = uses;
    }

    /// A block in use is freed.
    #[inline]
    pub(super) fn free(&mut self, i: u32) {
        self.settle();
        let node = &mut self.nodes[i];
        node.state = State::Resting;
        self.free += u64::from(node.size);
        self.resting = i;
    }

    /// Joins the block that was freed last to its neighbours.
    #[inline]
    fn settle(&mut self) {
        let i = std::mem::replace(&mut self.resting, NIL);
        if i != NIL {
            self.join_free(i);
        }
    }

    /// A block in use is freed, and others still use it.
    pub(super) fn set_pending(&mut self, i: u32) {
        (self.nodes[i].state, self.nodes[i].back) = (State::Pending, NIL);
    }

    /// Nobody uses a pending block any more.
    pub(super) fn end_pending(&mut self, i: u32) {
        self.make_free(i);
    }

    fn make_free(&mut self, i: u32) {
        self.free += u64::from(self.nodes[i].size);
        self.join_free(i);
    }

    #[inline]
    fn join_free(&mut self, mut i: u32) {
        let (prev, next) = (self.nodes[i].prev, self.nodes[i].next);
        if self.nodes.is(next, State::Free) {
            self.index.remove(&mut self.nodes, next);
            self.nodes.join(i);
        }
        if self.nodes.is(prev, State::Free) {
            self.index.remove(&mut self.nodes, prev);
            self.nodes.join(prev);
            i = prev;
        }
        self.nodes[i].state = State::Free;
        self.index.insert(&mut self.nodes, i);
    }

    fn make_hole(&mut self, i: u32) {
        let mut i = i;
        let (prev, next) = (self.nodes[i].prev, self.nodes[i].next);
        if self.nodes.is(next, State::Hole) {
            self.nodes.pull(&mut self.holes, next);
            self.nodes.join(i);
        }
        if self.nodes.is(prev, State::Hole) {
            self.nodes.pull(&mut self.holes, prev);
            self.nodes.join(prev);
            i = prev;
        }
        self.nodes[i].state = State::Hole;
        self.nodes.push(&mut self.holes, i);
    }

    /// Holds the best window for `units`; none where no run of addresses is that long.
    pub(super) fn hold(&mut self, units: u32) -> Option<Held> {
        self.settle();
        let found = window::best(&self.nodes, self.holes, units, self.chunk)?;
        let end = found.start + units;
        let mut held = Held { first: found.node, count: 0, start: found.start, units, missing: Vec::new() };
        let mut i = found.node;
        loop {
            i = self.hold_piece(i, held.start, end, &mut held.missing);
            if held.count == 0 {
                held.first = i;
            }
            held.count += 1;
            if self.nodes[i].start + self.nodes[i].size >= end {
                return Some(held);
            }
            i = self.nodes[i].next;
        }
    }

    /// Holds the part of a piece that lies in a window, of holes in whole places, and gives the part.
    fn hold_piece(&mut self, i: u32, start: u32, end: u32, missing: &mut Vec<u32>) -> u32 {
        let piece = self.block(i);
        let hole = piece.state == State::Hole;
        let (mut from, mut to) = (start.max(piece.start), end.min(piece.start + piece.size));
        if hole {
            from = from / self.chunk * self.chunk;
            to = to.div_ceil(self.chunk) * self.chunk;
            self.nodes.pull(&mut self.holes, i);
            missing.extend(from / self.chunk..to / self.chunk);
        } else {
            self.index.remove(&mut self.nodes, i);
            self.free -= u64::from(piece.size);
        }
        let mut part = i;
        if to < piece.start + piece.size {
            let rest = self.nodes.cut(part, to - piece.start);
            self.put_back(rest, hole);
        }
        if from > piece.start {
            part = self.nodes.cut(i, from - piece.start);
            self.put_back(i, hole);
        }
        self.nodes[part].state = if hole { State::HeldHole } else { State::HeldFree };
        part
    }

    /// Lists a piece that cannot have equal neighbours.
    fn put_back(&mut self, i: u32, hole: bool) {
        if hole {
            self.nodes.push(&mut self.holes, i);
        } else {
            self.free += u64::from(self.nodes[i].size);
            self.index.insert(&mut self.nodes, i);
        }
    }

    /// The missing chunks are there: the window becomes a block. Gives where it starts.
    pub(super) fn commit(&mut self, held: &Held, slack: u16) -> u32 {
        for _ in 1..held.count {
            self.nodes.join(held.first);
        }
        let (mut i, piece) = (held.first, self.block(held.first));
        let tail = piece.start + piece.size - (held.start + held.units);
        if tail > 0 {
            let rest = self.nodes.cut(i, piece.size - tail);
            self.make_free(rest);
        }
        if held.start > piece.start {
            let lead = i;
            i = self.nodes.cut(lead, held.start - piece.start);
            self.make_free(lead);
        }
        self.hand_out(i, slack)
    }

    /// The chunks were not to be had: all is as before.
    pub(super) fn release(&mut self, held: &Held) {
        // Joining takes pieces away, so they are listed first.
        let (mut pieces, mut i) = (Vec::with_capacity(held.count as usize), held.first);
        for _ in 0..held.count {
            pieces.push(i);
            i = self.nodes[i].next;
        }
        for i in pieces {
            if self.nodes[i].state == State::HeldHole { self.make_hole(i) } else { self.make_free(i) }
        }
    }

    /// Free pieces that hold a whole chunk, with the places that they hold whole.
    pub(super) fn whole_places(&mut self) -> Vec<Range<u32>> {
        self.settle();
        let mut places = Vec::new();
        self.index.each_from(&self.nodes, self.chunk, |_, node| {
            let (from, to) = (node.start.div_ceil(self.chunk), (node.start + node.size) / self.chunk);
            if from < to {
                places.push(from..to);
            }
        });
        places
    }

    /// The chunks of free places are taken away.
    pub(super) fn take(&mut self, places: Range<u32>) {
        self.settle();
        let (start, size) = (places.start * self.chunk, (places.end - places.start) * self.chunk);
        let Some(i) = self.free_over(start) else { return };
        self.index.remove(&mut self.nodes, i);
        self.free -= u64::from(self.nodes[i].size);
        let mut part = i;
        if start > self.nodes[i].start {
            part = self.nodes.cut(i, start - self.nodes[i].start);
            self.put_back(i, false);
        }
        if self.nodes[part].size > size {
            let rest = self.nodes.cut(part, size);
            self.put_back(rest, false);
        }
        self.nodes[part].state = State::Cooling;
    }

    /// The free piece that holds `unit`.
    fn free_over(&self, unit: u32) -> Option<u32> {
        let mut found = None;
        self.index.each_from(&self.nodes, self.chunk, |i, node| {
            if node.start <= unit && unit - node.start < node.size {
                found = Some(i);
            }
        });
        found
    }

    /// The chunks that were taken come back (`live`), or their old view is gone.
    pub(super) fn end_cooling(&mut self, places: Range<u32>, live: bool) {
        let start = places.start * self.chunk;
        let mut i = self.first;
        while i != NIL {
            let next = self.nodes[i].next;
            if self.nodes[i].state == State::Cooling && self.nodes[i].start == start {
                if live {
                    self.make_free(i)
                } else {
                    self.make_hole(i)
                }
                return;
            }
            i = next;
        }
    }

    /// Every piece, by address.
    pub(super) fn pieces(&mut self) -> Vec<Piece> {
        self.settle();
        let (mut pieces, mut i) = (Vec::new(), self.first);
        while i != NIL {
            pieces.push(self.block(i));
            i = self.nodes[i].next;
        }
        pieces
    }

    /// Chunks in these places are not taken until they are unpinned as often.
    pub(super) fn pin(&mut self, places: Range<u32>) {
        if self.pins.len() < places.end as usize {
            self.pins.resize(places.end as usize, 0);
        }
        self.pins[places.start as usize..places.end as usize].iter_mut().for_each(|pins| *pins += 1);
    }

    /// Undoes one pin; where one of the places is not pinned, nothing changes.
    pub(super) fn unpin(&mut self, places: Range<u32>) -> bool {
        let all = self.pins.get_mut(places.start as usize..places.end as usize);
        let Some(all) = all.filter(|all| all.iter().all(|pins| *pins > 0)) else { return false };
        all.iter_mut().for_each(|pins| *pins -= 1);
        true
    }

    pub(super) fn is_pinned(&self, place: u32) -> bool {
        self.pins.get(place as usize).is_some_and(|pins| *pins > 0)
    }
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
