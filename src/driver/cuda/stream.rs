//! What CUDA does for streams, host functions, capture and graphs; `lines.rs` keeps the books of them.

use super::api::NOT_FOUND;
use super::context::{Context, Core, Entered, NON_BLOCKING, RELAXED};
use crate::driver::delegate::runtime_calls;
use crate::driver::lines::{HostFn, Runtime};
use crate::driver::{Ordinal, Stream};
use crate::error::{Operation, Result};
use std::sync::Arc;

impl Core {
    pub(super) fn is_capturing(&self, device: Ordinal, stream: Stream) -> Result<bool> {
        let context = self.context_on(stream, device, Operation::Stream)?;
        let _entered = self.enter_alive(context.handle, Operation::Stream)?;
        self.captures(stream, Operation::Stream)
    }
}

impl Runtime for Core {
    /// A context, which may be a framework's own.
    type Place = Arc<Context>;
    type Entered<'a> = Entered<'a>;

    fn enter(&self, place: &Arc<Context>, operation: Operation) -> Result<Entered<'_>> {
        Self::enter(self, place.handle, operation)
    }

    fn home(&self, device: Ordinal, operation: Operation) -> Result<Arc<Context>> {
        self.primary(device, operation).cloned()
    }

    fn place_of(&self, stream: Stream, device: Ordinal, operation: Operation) -> Result<Arc<Context>> {
        self.context_of(stream, device, operation)
    }

    fn device_of(&self, place: &Arc<Context>) -> Ordinal {
        place.device
    }

    fn instantiate(&self, graph: u64) -> Result<u64> {
        let mut exec = 0;
        let mut status = self.api.graph_instantiate_flags(&mut exec, graph, 0);
        if status == NOT_FOUND {
            let (node, log) = (std::ptr::null_mut(), std::ptr::null_mut());
            status = self.api.graph_instantiate_old(&mut exec, graph, node, log, 0);
        }
        self.api.check(status, Operation::Capture)?;
        Ok(exec)
    }

    runtime_calls!();
}
