//! Where a request goes that no free piece holds: the place that needs the fewest chunks more. Pure.

use super::nodes::{NIL, Nodes, State};

/// A place for a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Window {
    /// How many chunks are missing there.
    pub(super) missing: u32,
    /// Where it starts, in units.
    pub(super) start: u32,
    /// The piece that it starts in.
    pub(super) node: u32,
}

/// The window of `units` with the fewest chunks missing, and of those the first by address. Windows lie in runs of
/// free pieces and holes, start where a piece starts or end where a free piece ends.
pub(super) fn best(nodes: &Nodes, holes: u32, units: u32, chunk: u32) -> Option<Window> {
    let (mut best, mut hole) = (None, holes);
    while hole != NIL {
        if let Some(first) = run_of(nodes, hole) {
            best = search(nodes, first, units, chunk, best);
        }
        hole = nodes[hole].forward;
    }
    best
}

fn is_open(nodes: &Nodes, i: u32) -> bool {
    nodes.is(i, State::Free) || nodes.is(i, State::Hole)
}

/// The first piece of the run around a hole, if the hole is the run's first one.
fn run_of(nodes: &Nodes, hole: u32) -> Option<u32> {
    let mut first = hole;
    while is_open(nodes, nodes[first].prev) {
        first = nodes[first].prev;
        if nodes[first].state == State::Hole {
            return None;
        }
    }
    Some(first)
}

fn search(nodes: &Nodes, first: u32, units: u32, chunk: u32, mut best: Option<Window>) -> Option<Window> {
    let origin = nodes[first].start;
    let mut node = first;
    while is_open(nodes, node) {
        let (start, end) = (nodes[node].start, nodes[node].start + nodes[node].size);
        let at_end = (nodes[node].state == State::Free).then(|| end.checked_sub(units)).flatten();
        for start in [Some(start), at_end.filter(|start| *start >= origin)].into_iter().flatten() {
            let from = if start >= nodes[node].start { node } else { holder(nodes, node, start) };
            if let Some(missing) = missing(nodes, from, start, units, chunk) {
                let window = Window { missing, start, node: from };
                best = Some(best.map_or(window, |best| best.min(window)));
            }
        }
        node = nodes[node].next;
    }
    best
}

/// The piece at or before `node` that holds `unit`.
fn holder(nodes: &Nodes, node: u32, unit: u32) -> u32 {
    let mut i = node;
    while nodes[i].start > unit && nodes[i].prev != NIL {
        i = nodes[i].prev;
    }
    i
}

/// The chunks missing in `units` from `start`, which lies in `node`; none where the run is too short.
fn missing(nodes: &Nodes, node: u32, start: u32, units: u32, chunk: u32) -> Option<u32> {
    let end = start.checked_add(units)?;
    let (mut count, mut i) = (0, node);
    while is_open(nodes, i) {
        let piece = &nodes[i];
        let last = piece.start + piece.size;
        if piece.state == State::Hole {
            count += end.min(last).div_ceil(chunk) - start.max(piece.start) / chunk;
        }
        if last >= end {
            return Some(count);
        }
        i = piece.next;
    }
    None
}
