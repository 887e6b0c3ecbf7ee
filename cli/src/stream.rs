//! A stream and a recorded command buffer that end when they are dropped.

use gvmm::driver::{Graph, HostFunction, Stream};
use gvmm::error::Result;
use gvmm::vm::Device;
use std::sync::Arc;

/// A stream of the driver's own.
pub(crate) struct CommandStream {
    device: Arc<Device>,
    id: Stream,
}

impl CommandStream {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        let id = device.driver().streams().create(device.ordinal())?;
        Ok(Self { device: Arc::clone(device), id })
    }

    pub(crate) fn id(&self) -> Stream {
        self.id
    }

    /// Waits for all that was enqueued.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.device.driver().streams().synchronize(self.id)
    }

    /// Enqueues calls of `functions`.
    pub(crate) fn enqueue(&self, mut functions: impl Iterator<Item = HostFunction>) -> Result<()> {
        let streams = self.device.driver().streams();
        functions.try_for_each(|function| streams.enqueue(self.id, function))
    }

    /// Captures what `enqueue` puts on the stream as a command buffer.
    pub(crate) fn capture(&self, enqueue: impl FnOnce(Stream) -> Result<()>) -> Result<CommandBuffer> {
        let streams = self.device.driver().streams();
        streams.capture_begin(self.id)?;
        let enqueued = enqueue(self.id);
        let graph = streams.capture_end(self.id)?;
        let commands = CommandBuffer { device: Arc::clone(&self.device), graph };
        enqueued.map(|()| commands)
    }
}

impl Drop for CommandStream {
    fn drop(&mut self) {
        if let Err(error) = self.device.driver().streams().destroy(self.id) {
            log::warn!("a stream was not destroyed: {error}");
        }
    }
}

/// A command buffer, to be launched again and again.
pub(crate) struct CommandBuffer {
    device: Arc<Device>,
    graph: Graph,
}

impl CommandBuffer {
    pub(crate) fn graph(&self) -> Graph {
        self.graph
    }

    pub(crate) fn launch(&self, stream: &CommandStream) -> Result<()> {
        self.device.driver().streams().launch(self.graph, stream.id)
    }
}

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        if let Err(error) = self.device.driver().streams().destroy_graph(self.graph) {
            log::warn!("a command buffer was not destroyed: {error}");
        }
    }
}
