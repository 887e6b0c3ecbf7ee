//! Streams of our own, host functions, capture and graphs.
#![allow(unsafe_code, reason = "a host function comes back from the driver as a pointer")]

use super::api::SUCCESS;
use super::context::{Core, NON_BLOCKING, RELAXED};
use crate::driver::{Graph, HostFunction, Ordinal, Stream};
use crate::error::{Error, Kind, Operation, Result};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A function at an address that stays, for the driver to call.
struct Call(HostFunction);

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("host function")
    }
}

/// The functions of a graph; they must outlive every launch of it.
type Calls = Arc<Vec<Arc<Call>>>;

#[derive(Debug)]
struct Own {
    device: Ordinal,
    /// While the stream is captured: the functions that were kept.
    capture: Option<Vec<Arc<Call>>>,
}

#[derive(Clone, Debug)]
struct Kept {
    device: Ordinal,
    graph: u64,
    exec: u64,
    calls: Calls,
}

/// The streams that we made, and the graphs captured from them.
#[derive(Debug, Default)]
pub(super) struct Lines {
    streams: Mutex<HashMap<u64, Own>>,
    graphs: Mutex<HashMap<u64, Kept>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unknown(operation: Operation) -> Error {
    Error::new(Kind::InvalidStream, operation, "not a stream of ours, or destroyed")
}

/// Runs a function that is called once, and drops it.
unsafe extern "C" fn call_once(data: u64) {
    // SAFETY: `data` is a box of `enqueue`'s, which the driver gives back exactly once.
    let call = unsafe { Box::from_raw(data as *mut Call) };
    run(&call);
    // What it holds is the program's own, and its clean-up may panic too.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(call)));
}

/// Runs a function of a graph, which the graph keeps.
unsafe extern "C" fn call_kept(data: u64) {
    // SAFETY: `data` points into the graph's list, which the launch keeps alive.
    let call = unsafe { &*(data as *const Call) };
    run(call);
}

/// Lets go of a graph's functions after a launch.
unsafe extern "C" fn let_go(data: u64) {
    // SAFETY: `data` is the `Calls` that `launch` boxed, which the driver gives back exactly once.
    let calls = unsafe { Box::from_raw(data as *mut Calls) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(calls)));
}

thread_local! {
    /// True while a host function runs on this thread: the driver allows no call of its own from there.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Refuses a driver call from a host function, which would fail or never end.
pub(super) fn refuse_inside(operation: Operation) -> Result<()> {
    if INSIDE.get() {
        return Err(Error::new(Kind::WrongState, operation, "a host function must make no driver call"));
    }
    Ok(())
}

/// Nothing may unwind into the driver.
fn run(call: &Call) {
    INSIDE.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| (call.0)()));
    INSIDE.set(false);
    if result.is_err() {
        log::error!("a host function panicked on a stream");
    }
}

impl Core {
    /// Refuses what must not be captured. The stream's context is current.
    pub(super) fn refuse_capturing(&self, stream: Stream, operation: Operation) -> Result<()> {
        if self.captures(stream, operation)? {
            return Err(Error::new(Kind::StreamCapturing, operation, "the stream is being captured"));
        }
        Ok(())
    }

    /// The stream's context is current.
    fn captures(&self, stream: Stream, operation: Operation) -> Result<bool> {
        let mut status = 0;
        self.api.check(self.api.stream_is_capturing(stream.0, &mut status), operation)?;
        Ok(status != 0)
    }

    pub(super) fn is_capturing(&self, device: Ordinal, stream: Stream) -> Result<bool> {
        let context = self.context_on(stream, device, Operation::Stream)?;
        let _entered = self.enter(context.handle, Operation::Stream)?;
        self.captures(stream, Operation::Stream)
    }
}

impl Lines {
    /// The device of a stream of ours.
    fn device_of(&self, stream: Stream, operation: Operation) -> Result<Ordinal> {
        lock(&self.streams).get(&stream.0).map(|own| own.device).ok_or_else(|| unknown(operation))
    }

    fn refuse_capturing(&self, stream: Stream, operation: Operation) -> Result<()> {
        match lock(&self.streams).get(&stream.0) {
            Some(Own { capture: Some(_), .. }) => Err(Error::new(
                Kind::StreamCapturing,
                operation,
                "the stream is being captured: end the capture first",
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn create(&self, core: &Core, device: Ordinal) -> Result<Stream> {
        let _entered = core.enter_primary(device, Operation::Stream)?;
        let mut stream = 0;
        core.api.check(core.api.stream_create(&mut stream, NON_BLOCKING), Operation::Stream)?;
        lock(&self.streams).insert(stream, Own { device, capture: None });
        Ok(Stream(stream))
    }

    pub(super) fn destroy(&self, core: &Core, stream: Stream) -> Result<()> {
        refuse_inside(Operation::Stream)?;
        let own = lock(&self.streams).remove(&stream.0).ok_or_else(|| unknown(Operation::Stream))?;
        let _entered = core.enter_primary(own.device, Operation::Stream)?;
        if own.capture.is_some() {
            let mut graph = 0;
            if core.api.capture_end(stream.0, &mut graph) == SUCCESS && graph != 0 {
                core.log("destroy a graph", core.api.graph_destroy(graph));
            }
        }
        // What the stream still has to do is done first, so that its functions' boxes come back.
        let waited = core.api.check(core.api.stream_synchronize(stream.0), Operation::Stream);
        core.log("destroy a stream", core.api.stream_destroy(stream.0));
        drop(own);
        match waited {
            // A stream that failed is gone all the same.
            Err(error) if !matches!(error.kind, Kind::DeviceFault | Kind::DeviceLost) => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn synchronize(&self, core: &Core, stream: Stream) -> Result<()> {
        let device = self.device_of(stream, Operation::Stream)?;
        self.refuse_capturing(stream, Operation::Stream)?;
        let _entered = core.enter_primary(device, Operation::Stream)?;
        core.api.check(core.api.stream_synchronize(stream.0), Operation::Stream)
    }

    pub(super) fn enqueue(&self, core: &Core, stream: Stream, function: HostFunction) -> Result<()> {
        let device = self.device_of(stream, Operation::Stream)?;
        let _entered = core.enter_primary(device, Operation::Stream)?;
        let call = Call(function);
        // Held across the call: a capture must not end between its launch and its list.
        let mut streams = lock(&self.streams);
        let own = streams.get_mut(&stream.0).ok_or_else(|| unknown(Operation::Stream))?;
        if let Some(kept) = &mut own.capture {
            let call = Arc::new(call);
            let status = core.api.launch_host(stream.0, call_kept, Arc::as_ptr(&call) as u64);
            core.api.check(status, Operation::Stream)?;
            kept.push(call);
            return Ok(());
        }
        drop(streams);
        let data = Box::into_raw(Box::new(call));
        let status = core.api.launch_host(stream.0, call_once, data as u64);
        core.api.check(status, Operation::Stream).inspect_err(|_| {
            // SAFETY: the driver refused the call, so the box is still ours.
            drop(unsafe { Box::from_raw(data) });
        })
    }

    pub(super) fn capture_begin(&self, core: &Core, stream: Stream) -> Result<()> {
        let device = self.device_of(stream, Operation::Capture)?;
        let _entered = core.enter_primary(device, Operation::Capture)?;
        // Held across the call: whether a stream is captured and what the driver thinks must agree.
        let mut streams = lock(&self.streams);
        let own = streams.get_mut(&stream.0).ok_or_else(|| unknown(Operation::Capture))?;
        if own.capture.is_some() {
            return Err(Error::new(
                Kind::WrongState,
                Operation::Capture,
                "the stream is being captured already",
            ));
        }
        // Relaxed: another thread may end it, and nothing that other threads do breaks it.
        core.api.check(core.api.capture_begin(stream.0, RELAXED), Operation::Capture)?;
        own.capture = Some(Vec::new());
        Ok(())
    }

    pub(super) fn capture_end(&self, core: &Core, stream: Stream) -> Result<Graph> {
        let device = self.device_of(stream, Operation::Capture)?;
        let _entered = core.enter_primary(device, Operation::Capture)?;
        let kept = lock(&self.streams).get_mut(&stream.0).and_then(|own| own.capture.take());
        let not = || Error::new(Kind::WrongState, Operation::Capture, "the stream is not being captured");
        let calls = Arc::new(kept.ok_or_else(not)?);
        let mut graph = 0;
        core.api.check(core.api.capture_end(stream.0, &mut graph), Operation::Capture)?;
        let exec = instantiate(core, graph).inspect_err(|_| {
            core.log("destroy a graph", core.api.graph_destroy(graph));
        })?;
        lock(&self.graphs).insert(exec, Kept { device, graph, exec, calls });
        Ok(Graph(exec))
    }

    pub(super) fn launch(&self, core: &Core, graph: Graph, stream: Stream) -> Result<()> {
        let no_graph = || Error::new(Kind::InvalidHandle, Operation::Launch, "no such graph");
        let kept = lock(&self.graphs).get(&graph.0).cloned().ok_or_else(no_graph)?;
        let context = core.context_of(stream, kept.device, Operation::Launch)?;
        if context.device != kept.device {
            let hint = "the graph was captured on another device";
            return Err(Error::new(Kind::InvalidArgument, Operation::Launch, hint));
        }
        let _entered = core.enter(context.handle, Operation::Launch)?;
        core.refuse_capturing(stream, Operation::Launch)?;
        core.api.check(core.api.graph_launch(kept.exec, stream.0), Operation::Launch)?;
        if !kept.calls.is_empty() {
            let data = Box::into_raw(Box::new(kept.calls.clone()));
            // Where this fails the functions stay for ever: they may still be called.
            core.log("watch a launch", core.api.launch_host(stream.0, let_go, data as u64));
        }
        Ok(())
    }

    pub(super) fn destroy_graph(&self, core: &Core, graph: Graph) -> Result<()> {
        refuse_inside(Operation::Destroy)?;
        let kept = lock(&self.graphs).remove(&graph.0);
        let kept =
            kept.ok_or_else(|| Error::new(Kind::InvalidHandle, Operation::Destroy, "no such graph"))?;
        let _entered = core.enter_primary(kept.device, Operation::Destroy)?;
        core.log("destroy a graph", core.api.graph_exec_destroy(kept.exec));
        core.log("destroy a graph", core.api.graph_destroy(kept.graph));
        Ok(())
    }

    /// Ends what is left.
    pub(super) fn close(&self, core: &Core) {
        let streams: Vec<u64> = lock(&self.streams).keys().copied().collect();
        for stream in streams {
            if let Err(error) = self.destroy(core, Stream(stream)) {
                log::warn!("could not end a stream: {error}");
            }
        }
        let graphs: Vec<u64> = lock(&self.graphs).keys().copied().collect();
        for graph in graphs {
            if let Err(error) = self.destroy_graph(core, Graph(graph)) {
                log::warn!("could not end a graph: {error}");
            }
        }
    }
}

fn instantiate(core: &Core, graph: u64) -> Result<u64> {
    let mut exec = 0;
    let mut status = core.api.graph_instantiate_flags(&mut exec, graph, 0);
    if status == super::api::NOT_FOUND {
        let (node, log) = (std::ptr::null_mut(), std::ptr::null_mut());
        status = core.api.graph_instantiate_old(&mut exec, graph, node, log, 0);
    }
    core.api.check(status, Operation::Capture)?;
    Ok(exec)
}
