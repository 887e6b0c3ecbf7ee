//! Copies inside the caller's command buffer.

use super::engine::Engine;
use crate::driver::{Graph, Stream};
use crate::error::{Error, Kind, Operation, Result};

/// Which copies of a step, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CopyWays(pub u32);

impl CopyWays {
    /// Those from the buffers to the shadows, before the commands.
    pub const IN: Self = Self(1);
    /// Those from the shadows to the buffers, after the commands.
    pub const OUT: Self = Self(2);
    /// All.
    pub const BOTH: Self = Self(3);

    const fn has(self, way: Self) -> bool {
        self.0 & way.0 != 0
    }
}

impl Engine {
    /// Puts copies of the layout in force into the graph that `stream` is being captured into.
    pub(super) fn record_copies(&mut self, stream: Stream, generation: u64, ways: CopyWays) -> Result<()> {
        if ways.0 == 0 || ways.0 & !CopyWays::BOTH.0 != 0 {
            return Err(refused(Kind::InvalidArgument, "which copies: in, out or both"));
        }
        if self.step.is_some() {
            return Err(refused(Kind::WrongState, "a step is in progress: end or abort it first"));
        }
        let Some(layout) = self.layout.as_mut().filter(|_| generation == self.generation) else {
            return Err(refused(
                Kind::WrongState,
                "another generation is in force: ask for the addresses again",
            ));
        };
        let (ins, outs) = (&layout.copies_in, &layout.copies_out);
        // Both or none: what is in the capture by then copies nothing, ever.
        let copied_in = if ways.has(CopyWays::IN) { ins.record(stream, outs)? } else { ins.in_graph() };
        let copied_out = if ways.has(CopyWays::OUT) { outs.record_behind(stream, copied_in)? } else { None };
        if ways.has(CopyWays::IN) {
            layout.copies_in.recorded(copied_in);
        }
        if ways.has(CopyWays::OUT) {
            layout.copies_out.recorded(copied_out);
        }
        Ok(())
    }

    /// Says which graph has the recorded copies from the next step on.
    pub(super) fn use_graph(&mut self, graph: Option<Graph>) -> Result<()> {
        if self.step.is_some() {
            return Err(refused(Kind::WrongState, "a step is in progress: end or abort it first"));
        }
        let Some(layout) = &mut self.layout else {
            return Err(refused(Kind::WrongState, "nothing is laid out before the first begin"));
        };
        layout.graph = graph;
        // It may be another one under a number that was given again, or have been updated: it is pointed anew.
        layout.copies_in.forget_aim();
        layout.copies_out.forget_aim();
        Ok(())
    }

    /// Refuses a step whose copies were recorded in a graph that nobody named.
    pub(super) fn check_graph(&self) -> Result<()> {
        let lacks = self.layout.as_ref().is_some_and(|layout| layout.lacks_graph());
        if lacks { Err(NO_GRAPH) } else { Ok(()) }
    }
}

const fn refused(kind: Kind, hint: &'static str) -> Error {
    Error::new(kind, Operation::Capture, hint)
}

const NO_GRAPH: Error = Error::new(
    Kind::WrongState,
    Operation::Begin,
    "copies were recorded, and no graph was named that has them: name it first",
);
