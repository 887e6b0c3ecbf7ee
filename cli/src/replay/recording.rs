//! A recording of what a program asked of its allocator: `a,ID,BYTES,STREAM`, `f,ID`, `c,ID`.

use crate::trace::{MAX_BYTES, TraceError, Unexpected, number, read_with, shown};
use std::collections::HashMap;

/// What a line looks like, for messages.
const SHAPE: &str = "a,ID,BYTES,STREAM or f,ID or c,ID";

/// One operation. Blocks and streams are numbered from 0 in the order in which they are met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Alloc {
        block: u32,
        bytes: u64,
        stream: u32,
    },
    Free {
        block: u32,
        /// Another stream uses the block until so many operations are done; 0: none does.
        until: u32,
    },
}

/// All of it.
#[derive(PartialEq, Eq, Default, Debug)]
pub(crate) struct Recording {
    pub(crate) ops: Vec<Op>,
    pub(crate) blocks: u32,
    /// How many streams it takes; at least two where a block is shared.
    pub(crate) streams: u32,
    /// The most bytes that the program held.
    pub(crate) peak: u64,
}

impl Recording {
    /// True where a block is used by another stream after its free.
    pub(crate) fn shares(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Free { until: 1.., .. }))
    }
}

/// Reads the recording `path`, plain or gzip; `-` is the standard input.
pub(crate) fn read(path: &str) -> Result<Recording, TraceError> {
    read_with(path, Builder::default(), Builder::add, |builder, _| builder.finish())
}

/// How the block of an id stands.
enum State {
    Used {
        block: u32,
        bytes: u64,
    },
    /// By the operation of this number.
    Freed(usize),
}

#[derive(Default)]
struct Builder {
    recording: Recording,
    ids: HashMap<u64, State>,
    streams: HashMap<u64, u32>,
    /// Bytes held now.
    held: u64,
}

impl Builder {
    fn add(&mut self, text: &str) -> Result<(), Unexpected> {
        let fields: Vec<&str> = text.split(',').collect();
        match fields[..] {
            ["a", id, bytes, stream] => self.alloc(id, bytes, stream),
            ["f", id] => self.free(id),
            ["c", id] => self.complete(id),
            _ => Err(Unexpected::new(SHAPE, shown(text))),
        }
    }

    fn alloc(&mut self, id: &str, bytes: &str, stream: &str) -> Result<(), Unexpected> {
        let (key, size) = (block_id(id)?, number(bytes, "a number of bytes")?);
        if !(1..=MAX_BYTES).contains(&size) {
            return Err(Unexpected::new(format!("1 to {MAX_BYTES} bytes"), shown(bytes)));
        }
        let next = self.streams.len() as u32;
        let stream = *self.streams.entry(number(stream, "a stream's number")?).or_insert(next);
        if matches!(self.ids.get(&key), Some(State::Used { .. })) {
            return Err(Unexpected::new("the id of no block in use", shown(id)));
        }
        let recording = &mut self.recording;
        let block = recording.blocks;
        let too_many = || Unexpected::new("at most 4294967295 allocations", "one more");
        recording.blocks = block.checked_add(1).ok_or_else(too_many)?;
        recording.ops.push(Op::Alloc { block, bytes: size, stream });
        self.ids.insert(key, State::Used { block, bytes: size });
        let too_much = || Unexpected::new("less than 16 EiB in use", shown(bytes));
        self.held = self.held.checked_add(size).ok_or_else(too_much)?;
        recording.peak = recording.peak.max(self.held);
        Ok(())
    }

    fn free(&mut self, id: &str) -> Result<(), Unexpected> {
        let key = block_id(id)?;
        let Some(State::Used { block, bytes }) = self.ids.get(&key) else {
            return Err(Unexpected::new("the id of a block in use", shown(id)));
        };
        self.held -= bytes;
        let block = *block;
        self.ids.insert(key, State::Freed(self.recording.ops.len()));
        self.recording.ops.push(Op::Free { block, until: 0 });
        Ok(())
    }

    /// Nothing more is to come of a free; where something came in between, another stream still used the block.
    fn complete(&mut self, id: &str) -> Result<(), Unexpected> {
        let key = block_id(id)?;
        let Some(State::Freed(at)) = self.ids.get(&key) else {
            return Err(Unexpected::new("the id of a block that was freed before", shown(id)));
        };
        let (at, done) = (*at, self.recording.ops.len());
        if let Some(Op::Free { until, .. }) = self.recording.ops.get_mut(at)
            && done > at + 1
        {
            *until = u32::try_from(done).map_err(|_| Unexpected::new("fewer operations", shown(id)))?;
        }
        self.ids.remove(&key);
        Ok(())
    }

    fn finish(mut self) -> Result<Recording, Unexpected> {
        if self.recording.ops.is_empty() {
            return Err(Unexpected::new(SHAPE, "the end of the file"));
        }
        let least = if self.recording.shares() { 2 } else { 1 };
        self.recording.streams = (self.streams.len() as u32).max(least);
        Ok(self.recording)
    }
}

fn block_id(text: &str) -> Result<u64, Unexpected> {
    number(text, "a block's id")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::read_from;
    use std::io::Cursor;

    fn read(text: &str) -> Result<Recording, String> {
        let finish = |builder: Builder, _: &str| builder.finish();
        let read = read_from(Cursor::new(text), "t.csv", Builder::default(), Builder::add, finish);
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn a_free_is_shared_where_its_end_comes_later() {
        let text = "# comment\na,7,100,9\na,8,50,2\nf,7\nf,8\nc,8\nc,7\na,7,120,9\nf,7\nc,7\na,8,4,9\nf,8\n";
        let recording = read(text).expect("a good recording");
        let alloc = |block, bytes, stream| Op::Alloc { block, bytes, stream };
        let free = |block, until| Op::Free { block, until };
        let ops = [
            alloc(0, 100, 0),
            alloc(1, 50, 1),
            free(0, 4),
            free(1, 0),
            alloc(2, 120, 0),
            free(2, 0),
            alloc(3, 4, 0),
            free(3, 0),
        ];
        assert_eq!(recording, Recording { ops: ops.to_vec(), blocks: 4, streams: 2, peak: 150 });
    }

    #[test]
    fn who_shares_takes_a_second_stream() {
        let streams = |text: &str| read(text).map(|recording| recording.streams);
        assert_eq!(streams("a,1,8,5\na,2,8,5\nf,1\nf,2\nc,1\n"), Ok(2));
        assert_eq!(streams("a,1,8,5\na,2,8,5\nf,1\nf,2\nc,2\n"), Ok(1));
    }

    #[test]
    fn broken_lines_are_named() {
        let cases = [
            ("", "t.csv:1: expected a,ID,BYTES,STREAM or f,ID or c,ID, found the end of the file"),
            ("a,1,2", "t.csv:1: expected a,ID,BYTES,STREAM or f,ID or c,ID, found \"a,1,2\""),
            ("# c\nb,1", "t.csv:2: expected a,ID,BYTES,STREAM or f,ID or c,ID, found \"b,1\""),
            ("a,-1,2,3", "t.csv:1: expected a block's id, found \"-1\""),
            ("a,1,0,3", "t.csv:1: expected 1 to 70368744177664 bytes, found \"0\""),
            ("a,1,2x,3", "t.csv:1: expected a number of bytes, found \"2x\""),
            ("a,1,2,s", "t.csv:1: expected a stream's number, found \"s\""),
            ("a,1,2,3\na,1,2,3", "t.csv:2: expected the id of no block in use, found \"1\""),
            ("a,1,2,3\nf,2", "t.csv:2: expected the id of a block in use, found \"2\""),
            ("a,1,2,3\nf,1\nf,1", "t.csv:3: expected the id of a block in use, found \"1\""),
            ("a,1,2,3\nc,1", "t.csv:2: expected the id of a block that was freed before, found \"1\""),
            (
                "a,1,2,3\nf,1\nc,1\nc,1",
                "t.csv:4: expected the id of a block that was freed before, found \"1\"",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(read(text), Err(message.to_owned()), "{text}");
        }
    }
}
