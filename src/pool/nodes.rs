//! The pieces that a segment's addresses are cut into, linked by address, in one growing array. Pure.

/// No piece.
pub(super) const NIL: u32 = u32::MAX;

/// How a piece stands.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum State {
    /// Not a piece now.
    #[default]
    Unused,
    /// Live memory that nobody has.
    Free,
    /// The same, freed last, and not joined to its neighbours yet.
    Resting,
    /// Whole places without chunks.
    Hole,
    /// Whole places whose chunks were taken, and whose old view a stream may still use.
    Cooling,
    /// A block that the program has.
    Used,
    /// A block that was freed, and that other streams still use.
    Pending,
    /// Free, and part of a window that is being made live.
    HeldFree,
    /// A hole that is being made live.
    HeldHole,
}

/// A piece. 32 bytes: two in a cache line.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Node {
    /// Where it starts, in units.
    pub(super) start: u32,
    /// Its units.
    pub(super) size: u32,
    /// The piece before it, by address.
    pub(super) prev: u32,
    /// The piece after it.
    pub(super) next: u32,
    /// In a list of free pieces or holes: the one before. In use: the first stream that also uses it.
    pub(super) back: u32,
    /// In a list: the one after. In the array's list of unused pieces: the next.
    pub(super) forward: u32,
    /// Bytes that were not asked for.
    pub(super) slack: u16,
    pub(super) state: State,
}

/// All pieces of one segment.
#[derive(Debug)]
pub(super) struct Nodes {
    all: Vec<Node>,
    unused: u32,
}

impl std::ops::Index<u32> for Nodes {
    type Output = Node;
    #[inline]
    fn index(&self, i: u32) -> &Node {
        &self.all[i as usize]
    }
}

impl std::ops::IndexMut<u32> for Nodes {
    #[inline]
    fn index_mut(&mut self, i: u32) -> &mut Node {
        &mut self.all[i as usize]
    }
}

impl Nodes {
    pub(super) fn new() -> Self {
        Self { all: Vec::with_capacity(1024), unused: NIL }
    }

    /// A piece of its own, linked to nothing.
    #[inline]
    fn make(&mut self, start: u32, size: u32, state: State) -> u32 {
        let node = Node { start, size, prev: NIL, next: NIL, back: NIL, forward: NIL, slack: 0, state };
        if self.unused == NIL {
            self.all.push(node);
            return self.all.len() as u32 - 1;
        }
        let i = self.unused;
        self.unused = self[i].forward;
        self[i] = node;
        i
    }

    /// The first piece of all.
    pub(super) fn first(&mut self, size: u32, state: State) -> u32 {
        self.make(0, size, state)
    }

    /// Cuts a piece after `units`, and gives the new piece behind the cut, which has the same state.
    #[inline]
    pub(super) fn cut(&mut self, i: u32, units: u32) -> u32 {
        let Node { start, size, next, state, .. } = self[i];
        let rest = self.make(start + units, size - units, state);
        (self[rest].prev, self[rest].next) = (i, next);
        (self[i].size, self[i].next) = (units, rest);
        if next != NIL {
            self[next].prev = rest;
        }
        rest
    }

    /// Joins the piece after `i` to it.
    #[inline]
    pub(super) fn join(&mut self, i: u32) {
        let gone = self[i].next;
        let Node { size, next, .. } = self[gone];
        self[i].size += size;
        self[i].next = next;
        if next != NIL {
            self[next].prev = i;
        }
        (self[gone].state, self[gone].forward) = (State::Unused, self.unused);
        self.unused = gone;
    }

    /// True where `i` is a piece in this state.
    #[inline]
    pub(super) fn is(&self, i: u32, state: State) -> bool {
        i != NIL && self[i].state == state
    }

    /// Puts `i` at the front of the list that starts at `head`.
    #[inline]
    pub(super) fn push(&mut self, head: &mut u32, i: u32) {
        let old = std::mem::replace(head, i);
        (self[i].back, self[i].forward) = (NIL, old);
        if old != NIL {
            self[old].back = i;
        }
    }

    /// Takes `i` out of the list that starts at `head`.
    #[inline]
    pub(super) fn pull(&mut self, head: &mut u32, i: u32) {
        let Node { back, forward, .. } = self[i];
        if back == NIL {
            *head = forward;
        } else {
            self[back].forward = forward;
        }
        if forward != NIL {
            self[forward].back = back;
        }
    }
}
