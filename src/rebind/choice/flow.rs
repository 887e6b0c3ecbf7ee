//! The least cut of a network, by Dinic's method: levels, then paths that go up one level at a time.

use std::collections::VecDeque;

/// A network whose edges have capacities.
#[derive(Debug)]
pub(super) struct Flow {
    edges: Vec<Edge>,
    /// The edges that leave each node.
    leaving: Vec<Vec<u32>>,
}

/// An edge; its twin, which leads back, has the number with the last bit turned.
#[derive(Debug)]
struct Edge {
    to: u32,
    left: u128,
}

impl Flow {
    pub(super) fn new(nodes: usize) -> Self {
        Self { edges: Vec::new(), leaving: vec![Vec::new(); nodes] }
    }

    /// Leads `capacity` from one node to another.
    pub(super) fn edge(&mut self, from: usize, to: usize, capacity: u128) {
        for (from, to, left) in [(from, to, capacity), (to, from, 0)] {
            self.leaving[from].push(self.edges.len() as u32);
            self.edges.push(Edge { to: to as u32, left });
        }
    }

    /// Lets as much flow as will; says which nodes the source then still reaches: its side of the least cut.
    pub(super) fn cut(mut self, source: usize, sink: usize) -> Vec<bool> {
        loop {
            let levels = self.levels(source);
            if levels[sink] == u32::MAX {
                return levels.iter().map(|&level| level != u32::MAX).collect();
            }
            let mut next = vec![0; self.leaving.len()];
            while self.push(source, sink, &levels, &mut next) {}
        }
    }

    /// How many edges with room lie between the source and each node.
    fn levels(&self, source: usize) -> Vec<u32> {
        let mut levels = vec![u32::MAX; self.leaving.len()];
        levels[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for &edge in &self.leaving[node] {
                let Edge { to, left } = self.edges[edge as usize];
                if left > 0 && levels[to as usize] == u32::MAX {
                    levels[to as usize] = levels[node] + 1;
                    queue.push_back(to as usize);
                }
            }
        }
        levels
    }

    /// Fills one path; false where there is none left on these levels. `next` are the edges that were not yet tried.
    fn push(&mut self, source: usize, sink: usize, levels: &[u32], next: &mut [usize]) -> bool {
        let (mut path, mut node) = (Vec::new(), source);
        while node != sink {
            let edge = self.leaving[node][next[node]..].iter().position(|&edge| {
                let Edge { to, left } = self.edges[edge as usize];
                left > 0 && levels[to as usize] == levels[node] + 1
            });
            match (edge, path.pop()) {
                (Some(skipped), last) => {
                    next[node] += skipped;
                    path.extend(last);
                    let edge = self.leaving[node][next[node]];
                    path.push(edge);
                    node = self.edges[edge as usize].to as usize;
                }
                // A dead end: back, and never here again. A node that many lead to has as many edges back, which must not
                // be looked through for each of them.
                (None, Some(edge)) => {
                    next[node] = self.leaving[node].len();
                    node = self.edges[edge as usize ^ 1].to as usize;
                    next[node] += 1;
                }
                (None, None) => return false,
            }
        }
        let room = path.iter().map(|&edge| self.edges[edge as usize].left).min().unwrap_or(0);
        for edge in path {
            self.edges[edge as usize].left -= room;
            self.edges[edge as usize ^ 1].left += room;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_is_where_the_network_is_narrow() {
        // 0 is the source, 3 the sink.
        let mut flow = Flow::new(4);
        flow.edge(0, 1, 10);
        flow.edge(0, 2, 1);
        flow.edge(1, 2, 3);
        flow.edge(1, 3, 2);
        flow.edge(2, 3, 9);
        assert_eq!(flow.cut(0, 3), [true, true, false, false]);
    }

    /// Not to be done in time where each of them looks through all.
    #[test]
    fn many_may_lead_to_one_that_is_full() {
        // Miri is slow; what it looks for shows with few.
        let count = if cfg!(miri) { 100 } else { 100_000 };
        let mut flow = Flow::new(3 + count);
        flow.edge(2, 1, 1);
        for node in 3..3 + count {
            flow.edge(0, node, 1);
            flow.edge(node, 2, u128::MAX >> 1);
        }
        let side = flow.cut(0, 1);
        assert!(!side[1] && side.iter().filter(|&&here| here).count() == 2 + count);
    }

    #[test]
    fn a_flow_that_was_badly_begun_is_led_back() {
        // The first path found may be 0-1-4-5, which must be undone in part to get the other through.
        let mut flow = Flow::new(6);
        flow.edge(0, 1, 1);
        flow.edge(0, 2, 1);
        flow.edge(1, 4, 1);
        flow.edge(1, 3, 1);
        flow.edge(2, 4, 1);
        flow.edge(3, 5, 1);
        flow.edge(4, 5, 1);
        assert_eq!(flow.cut(0, 5), [true, false, false, false, false, false]);
    }
}
