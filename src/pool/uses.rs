//! Which other streams use blocks: short lists in one array.

use super::nodes::NIL;
use crate::driver::Stream;

#[derive(Clone, Copy, Debug)]
struct Use {
    stream: Stream,
    next: u32,
}

const NOTHING: Use = Use { stream: Stream(0), next: NIL };

/// All lists of one arena. The first entry is in none, as [`NIL`] stands for it.
#[derive(Debug)]
pub(super) struct Uses {
    all: Vec<Use>,
    unused: u32,
}

impl Default for Uses {
    fn default() -> Self {
        Self { all: vec![NOTHING], unused: NIL }
    }
}

impl Uses {
    /// Adds a stream to the list that starts at `head`, unless it is there, and gives the list's start.
    pub(super) fn add(&mut self, head: u32, stream: Stream) -> u32 {
        let mut i = head;
        while i != NIL {
            let Use { stream: known, next } = self.all[i as usize];
            if known == stream {
                return head;
            }
            i = next;
        }
        let entry = Use { stream, next: head };
        if self.unused == NIL {
            self.all.push(entry);
            return self.all.len() as u32 - 1;
        }
        let i = self.unused;
        self.unused = self.all[i as usize].next;
        self.all[i as usize] = entry;
        i
    }

    /// Ends a list and gives its streams.
    pub(super) fn take(&mut self, head: u32) -> Vec<Stream> {
        let (mut streams, mut i) = (Vec::new(), head);
        while i != NIL {
            let Use { stream, next } = self.all[i as usize];
            streams.push(stream);
            (self.all[i as usize].next, self.unused) = (self.unused, i);
            i = next;
        }
        streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_listed_once_and_entries_are_used_again() {
        let mut uses = Uses::default();
        let one = uses.add(NIL, Stream(1));
        let two = uses.add(one, Stream(2));
        assert_eq!(uses.add(two, Stream(1)), two);
        assert_eq!(uses.take(two), [Stream(2), Stream(1)]);
        assert_eq!(uses.take(NIL), []);
        let again = uses.add(NIL, Stream(3));
        uses.add(again, Stream(4));
        assert_eq!(uses.all.len(), 3);
    }
}
