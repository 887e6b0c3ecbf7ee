//! What HIP does for streams, host functions, capture and graphs; `lines.rs` keeps the books of them.

use super::api::{NON_BLOCKING, RELAXED};
use super::context::{Core, Entered};
use crate::driver::delegate::runtime_calls;
use crate::driver::lines::{HostFn, Runtime};
use crate::driver::{Ordinal, Stream};
use crate::error::{Operation, Result};

impl Core {
    pub(super) fn is_capturing(&self, device: Ordinal, stream: Stream) -> Result<bool> {
        self.check_stream(stream, device, Operation::Stream)?;
        let _entered = self.enter_device(device, Operation::Stream)?;
        self.captures(stream, Operation::Stream)
    }
}

impl Runtime for Core {
    type Place = Ordinal;
    type Entered<'a> = Entered<'a>;

    fn enter(&self, place: &Ordinal, operation: Operation) -> Result<Entered<'_>> {
        self.enter_device(*place, operation)
    }

    fn home(&self, device: Ordinal, operation: Operation) -> Result<Ordinal> {
        self.device(device, operation).map(|found| found.ordinal)
    }

    fn place_of(&self, stream: Stream, device: Ordinal, operation: Operation) -> Result<Ordinal> {
        self.device_of_stream(stream, device, operation)
    }

    fn device_of(&self, place: &Ordinal) -> Ordinal {
        *place
    }

    fn instantiate(&self, graph: u64) -> Result<u64> {
        let mut exec = 0;
        self.api.check(self.api.graph_instantiate(&mut exec, graph, 0), Operation::Capture)?;
        Ok(exec)
    }

    runtime_calls!();
}
