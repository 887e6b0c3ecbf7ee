//! The pieces that a segment's addresses are cut into, linked by address, in one growing array. Pure.
//!
//! The first element is no piece: links that lead nowhere lead there, so that it may be written to and nobody asks.

/// No piece.
pub(super) const NIL: u32 = 0;

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

/// A piece. 32 bytes: two in a cache line, none across two.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(32))]
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
        let mut all = Vec::with_capacity(1024);
        all.push(Node::default());
        Self { all, unused: NIL }
    }

    /// A piece that is not in use, to be filled in.
    #[inline]
    fn spare(&mut self) -> u32 {
        if self.unused == NIL {
            self.add();
        }
        let i = self.unused;
        self.unused = self[i].forward;
        i
    }

    #[cold]
    fn add(&mut self) {
        self.unused = self.all.len() as u32;
        self.all.push(Node::default());
    }

    /// The first piece of all.
    pub(super) fn first(&mut self, size: u32, state: State) -> u32 {
        let i = self.spare();
        self[i] = Node { size, state, ..Node::default() };
        i
    }

    /// Cuts a piece after `units`, and gives the new piece behind the cut, which has the same state.
    #[inline]
    pub(super) fn cut(&mut self, i: u32, units: u32) -> u32 {
        let rest = self.spare();
        let all = &mut *self.all;
        let Node { start, size, next, state, .. } = all[i as usize];
        (all[i as usize].size, all[i as usize].next) = (units, rest);
        all[next as usize].prev = rest;
        let (start, size) = (start + units, size - units);
        all[rest as usize] = Node { start, size, prev: i, next, back: NIL, forward: NIL, slack: 0, state };
        rest
    }

    /// Joins the piece after `i` to it.
    #[inline]
    pub(super) fn join(&mut self, i: u32) {
        let all = &mut *self.all;
        let gone = all[i as usize].next;
        let Node { size, next, .. } = all[gone as usize];
        all[i as usize].size += size;
        all[i as usize].next = next;
        all[next as usize].prev = i;
        (all[gone as usize].state, all[gone as usize].forward) = (State::Unused, self.unused);
        self.unused = gone;
    }

    /// True where `i` is a piece in this state, which is not [`State::Unused`].
    #[inline]
    pub(super) fn is(&self, i: u32, state: State) -> bool {
        self[i].state == state
    }

    /// Puts `i` at the front of the list that starts at `head`.
    #[inline]
    pub(super) fn push(&mut self, head: &mut u32, i: u32) {
        let all = &mut *self.all;
        let old = std::mem::replace(head, i);
        (all[i as usize].back, all[i as usize].forward) = (NIL, old);
        all[old as usize].back = i;
    }

    /// Takes `i` out of the list that starts at `head`.
    #[inline]
    pub(super) fn pull(&mut self, head: &mut u32, i: u32) {
        let all = &mut *self.all;
        let Node { back, forward, .. } = all[i as usize];
        if back == NIL {
            *head = forward;
        } else {
            all[back as usize].forward = forward;
        }
        all[forward as usize].back = back;
    }
}
