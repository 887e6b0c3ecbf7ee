//! Where the copies of a step are made.

use crate::stream::{CommandBuffer, CommandStream};
use clap::ValueEnum;
use gvmm::driver::{Capabilities, DriverKind, Stream};
use gvmm::error::Result;
use gvmm::rebind::{Binding, CopyWays};
use gvmm::vm::Device;
use serde::Serialize;

/// Who is to make the copies of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum CopiesChoice {
    /// The command buffer, where that is a GPU's graph and the driver can point copies in it; else around it
    Auto,
    /// The command buffer has them, and begin points them at the step's buffers
    Graph,
    /// Begin and end launch them, around the command buffer
    #[value(alias = "step")]
    Around,
}

/// Who makes the copies of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Copies {
    /// Begin and end.
    Around,
    /// The command buffer.
    Graph,
}

impl CopiesChoice {
    /// What that is on `device`. The host's command buffer is a list of functions, which copies cost the same in.
    pub(crate) fn on(self, device: &Device) -> Copies {
        let has_routes = device.capabilities().has(Capabilities::ROUTES);
        match self {
            Self::Graph => Copies::Graph,
            Self::Auto if has_routes && device.driver().kind() == DriverKind::CUDA => Copies::Graph,
            _ => Copies::Around,
        }
    }
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
        if self == Self::Around {
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
