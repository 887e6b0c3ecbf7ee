//! Streams of our own, for callers who have none.

use super::{Graph, Ordinal, Stream, unsupported};
use crate::error::{Operation, Result};
use std::sync::Arc;

/// A function that a stream calls in order.
pub type HostFunction = Arc<dyn Fn() + Send + Sync>;

/// Streams of our own: made, waited for, captured. Functions and capture are there where
/// [`Capabilities::HOST_FUNCTIONS`](super::Capabilities::HOST_FUNCTIONS) says so.
pub trait Streams {
    /// A stream of `device`.
    fn create(&self, device: Ordinal) -> Result<Stream>;

    /// Waits for what is enqueued and ends the stream; a captured one is dropped with its capture.
    fn destroy(&self, stream: Stream) -> Result<()>;

    /// Blocks until all that was enqueued has run; gives the error that stopped the stream, if one did.
    fn synchronize(&self, stream: Stream) -> Result<()>;

    /// Enqueues a call of `function`.
    fn enqueue(&self, stream: Stream, function: HostFunction) -> Result<()>;

    /// From here on, what is enqueued is kept instead of run.
    fn capture_begin(&self, stream: Stream) -> Result<()>;

    /// Ends the capture and gives what was kept.
    fn capture_end(&self, stream: Stream) -> Result<Graph>;

    /// Enqueues everything that `graph` kept. Refused on a capturing stream.
    fn launch(&self, graph: Graph, stream: Stream) -> Result<()>;

    /// Gives up a graph; launches under way still finish.
    fn destroy_graph(&self, graph: Graph) -> Result<()>;

    /// A stream for a queue of a framework's, where the driver takes no queue as it is. `group` is the queue's
    /// ordinal, for drivers that cannot tell it.
    fn wrap(&self, _device: Ordinal, _queue: u64, _group: Option<u32>) -> Result<Stream> {
        Err(unsupported(
            Operation::Stream,
            "this driver's streams are passed as they are, and are not wrapped",
        ))
    }
}
