//! What HIP does for streams, host functions, capture and graphs; `lines.rs` keeps the books of them.

use super::api::{NON_BLOCKING, RELAXED};
use super::context::{Core, Entered};
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

    fn captures(&self, stream: Stream, operation: Operation) -> Result<bool> {
        let mut status = 0;
        self.api.check(self.api.stream_is_capturing(stream.0, &mut status), operation)?;
        Ok(status != 0)
    }

    fn log(&self, what: &str, result: Result<()>) {
        if let Err(error) = result {
            log::warn!("could not {what}: {error}");
        }
    }

    fn stream_create(&self) -> Result<u64> {
        let mut stream = 0;
        self.api.check(self.api.stream_create(&mut stream, NON_BLOCKING), Operation::Stream)?;
        Ok(stream)
    }

    fn stream_destroy(&self, stream: u64) -> Result<()> {
        self.api.check(self.api.stream_destroy(stream), Operation::Stream)
    }

    fn stream_synchronize(&self, stream: u64) -> Result<()> {
        self.api.check(self.api.stream_synchronize(stream), Operation::Stream)
    }

    fn host_function(&self, stream: u64, function: HostFn, data: u64) -> Result<()> {
        self.api.check(self.api.launch_host(stream, function, data), Operation::Stream)
    }

    fn capture_begin(&self, stream: u64) -> Result<()> {
        self.api.check(self.api.capture_begin(stream, RELAXED), Operation::Capture)
    }

    fn capture_end(&self, stream: u64) -> Result<u64> {
        let mut graph = 0;
        self.api.check(self.api.capture_end(stream, &mut graph), Operation::Capture)?;
        Ok(graph)
    }

    fn instantiate(&self, graph: u64) -> Result<u64> {
        let mut exec = 0;
        self.api.check(self.api.graph_instantiate(&mut exec, graph, 0), Operation::Capture)?;
        Ok(exec)
    }

    fn graph_launch(&self, exec: u64, stream: u64) -> Result<()> {
        self.api.check(self.api.graph_launch(exec, stream), Operation::Launch)
    }

    fn exec_destroy(&self, exec: u64) -> Result<()> {
        self.api.check(self.api.graph_exec_destroy(exec), Operation::Destroy)
    }

    fn graph_destroy(&self, graph: u64) -> Result<()> {
        self.api.check(self.api.graph_destroy(graph), Operation::Destroy)
    }
}
