//! Streams of our own, host functions, capture and graphs, over the few calls that a vendor's runtime has for them.
#![allow(unsafe_code, reason = "a host function comes back from the driver as a pointer")]

use crate::driver::{Graph, HostFunction, Ordinal, Stream};
use crate::error::{Error, Kind, Operation, Result};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A function that a stream calls.
pub(in crate::driver) type HostFn = unsafe extern "C" fn(data: u64);

/// What a vendor's runtime does for streams. Where a call names no place, the right one is current.
pub(in crate::driver) trait Runtime {
    /// Where a stream lives: a context, or a device.
    type Place: Clone + PartialEq + fmt::Debug + Send + Sync;
    /// While it lives, a place is current on this thread.
    type Entered<'a>
    where
        Self: 'a;

    /// Makes a place current, and refuses a thread that must not call the driver (see [`refuse_inside`]).
    fn enter(&self, place: &Self::Place, operation: Operation) -> Result<Self::Entered<'_>>;
    /// Where our own things of `device` live.
    fn home(&self, device: Ordinal, operation: Operation) -> Result<Self::Place>;
    /// Where `stream` lives; a default stream's place is one of `device`.
    fn place_of(&self, stream: Stream, device: Ordinal, operation: Operation) -> Result<Self::Place>;
    /// The device of a place.
    fn device_of(&self, place: &Self::Place) -> Ordinal;
    /// True while `stream` is captured.
    fn captures(&self, stream: Stream, operation: Operation) -> Result<bool>;
    /// Logs a failed clean-up.
    fn log(&self, what: &str, result: Result<()>);

    /// A stream that does not wait for the default one.
    fn stream_create(&self) -> Result<u64>;
    /// Ends a stream.
    fn stream_destroy(&self, stream: u64) -> Result<()>;
    /// Waits for a stream.
    fn stream_synchronize(&self, stream: u64) -> Result<()>;
    /// Enqueues a call.
    fn host_function(&self, stream: u64, function: HostFn, data: u64) -> Result<()>;
    /// Begins a relaxed capture: another thread may end it, and nothing that other threads do breaks it.
    fn capture_begin(&self, stream: u64) -> Result<()>;
    /// Ends a capture and gives the graph.
    fn capture_end(&self, stream: u64) -> Result<u64>;
    /// Makes a graph that can be launched.
    fn instantiate(&self, graph: u64) -> Result<u64>;
    /// Launches it.
    fn graph_launch(&self, exec: u64, stream: u64) -> Result<()>;
    /// Gives it up.
    fn exec_destroy(&self, exec: u64) -> Result<()>;
    /// Gives up the graph that it was made of.
    fn graph_destroy(&self, graph: u64) -> Result<()>;
}

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
pub(in crate::driver) struct Lines {
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
pub(in crate::driver) fn refuse_inside(operation: Operation) -> Result<()> {
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

/// A bad handle of a stream is a bad stream, also where the call is about something else.
pub(in crate::driver) const fn about_streams(operation: Operation) -> Operation {
    match operation {
        Operation::Copy | Operation::Timeline | Operation::Capture | Operation::Launch => operation,
        _ => Operation::Stream,
    }
}

/// Makes the place of our own things of `device` current.
pub(in crate::driver) fn enter_home<R: Runtime>(
    runtime: &R,
    device: Ordinal,
    operation: Operation,
) -> Result<R::Entered<'_>> {
    runtime.enter(&runtime.home(device, operation)?, operation)
}

/// Refuses what must not be captured. The stream's place is current.
pub(in crate::driver) fn refuse_captured(
    runtime: &impl Runtime,
    stream: Stream,
    operation: Operation,
) -> Result<()> {
    if runtime.captures(stream, operation)? {
        return Err(Error::new(Kind::StreamCapturing, operation, "the stream is being captured"));
    }
    Ok(())
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

    pub(in crate::driver) fn create(&self, runtime: &impl Runtime, device: Ordinal) -> Result<Stream> {
        let _entered = enter_home(runtime, device, Operation::Stream)?;
        let stream = runtime.stream_create()?;
        lock(&self.streams).insert(stream, Own { device, capture: None });
        Ok(Stream(stream))
    }

    pub(in crate::driver) fn destroy(&self, runtime: &impl Runtime, stream: Stream) -> Result<()> {
        refuse_inside(Operation::Stream)?;
        let own = lock(&self.streams).remove(&stream.0).ok_or_else(|| unknown(Operation::Stream))?;
        let _entered = enter_home(runtime, own.device, Operation::Stream)?;
        if own.capture.is_some()
            && let Ok(graph) = runtime.capture_end(stream.0)
            && graph != 0
        {
            runtime.log("destroy a graph", runtime.graph_destroy(graph));
        }
        // What the stream still has to do is done first, so that its functions' boxes come back.
        let waited = runtime.stream_synchronize(stream.0);
        runtime.log("destroy a stream", runtime.stream_destroy(stream.0));
        drop(own);
        match waited {
            // A stream that failed is gone all the same.
            Err(error) if !matches!(error.kind, Kind::DeviceFault | Kind::DeviceLost) => Err(error),
            _ => Ok(()),
        }
    }

    pub(in crate::driver) fn synchronize(&self, runtime: &impl Runtime, stream: Stream) -> Result<()> {
        let device = self.device_of(stream, Operation::Stream)?;
        self.refuse_capturing(stream, Operation::Stream)?;
        let _entered = enter_home(runtime, device, Operation::Stream)?;
        runtime.stream_synchronize(stream.0)
    }

    pub(in crate::driver) fn enqueue(
        &self,
        runtime: &impl Runtime,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        let device = self.device_of(stream, Operation::Stream)?;
        let _entered = enter_home(runtime, device, Operation::Stream)?;
        let call = Call(function);
        // Held across the call: a capture must not end between its launch and its list.
        let mut streams = lock(&self.streams);
        let own = streams.get_mut(&stream.0).ok_or_else(|| unknown(Operation::Stream))?;
        if let Some(kept) = &mut own.capture {
            let call = Arc::new(call);
            runtime.host_function(stream.0, call_kept, Arc::as_ptr(&call) as u64)?;
            kept.push(call);
            return Ok(());
        }
        drop(streams);
        let data = Box::into_raw(Box::new(call));
        runtime.host_function(stream.0, call_once, data as u64).inspect_err(|_| {
            // SAFETY: the driver refused the call, so the box is still ours.
            drop(unsafe { Box::from_raw(data) });
        })
    }

    pub(in crate::driver) fn capture_begin(&self, runtime: &impl Runtime, stream: Stream) -> Result<()> {
        let device = self.device_of(stream, Operation::Capture)?;
        let _entered = enter_home(runtime, device, Operation::Capture)?;
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
        runtime.capture_begin(stream.0)?;
        own.capture = Some(Vec::new());
        Ok(())
    }

    pub(in crate::driver) fn capture_end(&self, runtime: &impl Runtime, stream: Stream) -> Result<Graph> {
        let device = self.device_of(stream, Operation::Capture)?;
        let _entered = enter_home(runtime, device, Operation::Capture)?;
        let kept = lock(&self.streams).get_mut(&stream.0).and_then(|own| own.capture.take());
        let not = || Error::new(Kind::WrongState, Operation::Capture, "the stream is not being captured");
        let calls = Arc::new(kept.ok_or_else(not)?);
        let graph = runtime.capture_end(stream.0)?;
        let exec = runtime.instantiate(graph).inspect_err(|_| {
            runtime.log("destroy a graph", runtime.graph_destroy(graph));
        })?;
        lock(&self.graphs).insert(exec, Kept { device, graph, exec, calls });
        Ok(Graph(exec))
    }

    pub(in crate::driver) fn launch(
        &self,
        runtime: &impl Runtime,
        graph: Graph,
        stream: Stream,
    ) -> Result<()> {
        let no_graph = || Error::new(Kind::InvalidHandle, Operation::Launch, "no such graph");
        let kept = lock(&self.graphs).get(&graph.0).cloned().ok_or_else(no_graph)?;
        let place = runtime.place_of(stream, kept.device, Operation::Launch)?;
        if runtime.device_of(&place) != kept.device {
            let hint = "the graph was captured on another device";
            return Err(Error::new(Kind::InvalidArgument, Operation::Launch, hint));
        }
        let _entered = runtime.enter(&place, Operation::Launch)?;
        refuse_captured(runtime, stream, Operation::Launch)?;
        runtime.graph_launch(kept.exec, stream.0)?;
        if !kept.calls.is_empty() {
            let data = Box::into_raw(Box::new(kept.calls.clone()));
            // Where this fails the functions stay for ever: they may still be called.
            runtime.log("watch a launch", runtime.host_function(stream.0, let_go, data as u64));
        }
        Ok(())
    }

    pub(in crate::driver) fn destroy_graph(&self, runtime: &impl Runtime, graph: Graph) -> Result<()> {
        refuse_inside(Operation::Destroy)?;
        let kept = lock(&self.graphs).remove(&graph.0);
        let kept =
            kept.ok_or_else(|| Error::new(Kind::InvalidHandle, Operation::Destroy, "no such graph"))?;
        let _entered = enter_home(runtime, kept.device, Operation::Destroy)?;
        runtime.log("destroy a graph", runtime.exec_destroy(kept.exec));
        runtime.log("destroy a graph", runtime.graph_destroy(kept.graph));
        Ok(())
    }

    /// Ends what is left.
    pub(in crate::driver) fn close(&self, runtime: &impl Runtime) {
        let streams: Vec<u64> = lock(&self.streams).keys().copied().collect();
        for stream in streams {
            runtime.log("end a stream", self.destroy(runtime, Stream(stream)));
        }
        let graphs: Vec<u64> = lock(&self.graphs).keys().copied().collect();
        for graph in graphs {
            runtime.log("end a graph", self.destroy_graph(runtime, Graph(graph)));
        }
    }
}
