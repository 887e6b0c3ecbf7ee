//! Where the copies of a step are made.

use crate::stream::{CommandBuffer, CommandStream};
use clap::ValueEnum;
use gvmm::driver::Stream;
use gvmm::error::Result;
use gvmm::rebind::{Binding, CopyWays};

/// Who makes the copies of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Copies {
    /// Begin and end launch them
    #[default]
    Step,
    /// The command buffer has them, and begin points them at the step's buffers
    Graph,
}

impl Copies {
    /// Captures `commands`, and around them the copies of `binding` where the command buffer has them.
    pub(crate) fn capture(
        self,
        binding: &Binding,
        generation: u64,
        stream: &CommandStream,
        commands: impl FnOnce(Stream) -> Result<()>,
    ) -> Result<CommandBuffer> {
        if self == Self::Step {
            return stream.capture(commands);
        }
        let buffer = stream.capture(|stream| {
            binding.record_copies(stream, generation, CopyWays::IN)?;
            commands(stream)?;
            binding.record_copies(stream, generation, CopyWays::OUT)
        })?;
        binding.use_graph(Some(buffer.graph()))?;
        Ok(buffer)
    }
}
