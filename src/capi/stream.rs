//! Streams and graphs of this library.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::array::Elements;
use super::drivers::{Child, DeviceObject};
use super::entry::entry;
use super::handle::{self, Noun, Table};
use super::status::gvmm_status;
use super::types::{gvmm_device, gvmm_graph, gvmm_stream};
use super::versioned::Caller;
use crate::driver::{Capabilities, DriverKind, Graph, Ordinal, Stream, Streams};
use crate::error::{Error, Kind, Operation, Result};
use crate::vm::Device;
use std::ffi::c_void;
use std::sync::Arc;

/// A function that a stream calls.
pub type gvmm_host_function = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Makes a stream of a device.
///
/// State: after success the stream is idle and lives until `gvmm_stream_destroy`.
/// Parameters: `device`; `out_stream`, the handle.
/// Statuses: UNSUPPORTED (the driver has no streams of ours), OUT_OF_HOST_MEMORY.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_create(
    device: *mut gvmm_device,
    out_stream: *mut *mut gvmm_stream,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Stream, || {
        let out = c.out(out_stream)?;
        let device = handle::get::<DeviceObject>(device)?;
        let child = device.adopt()?;
        out.write(StreamObject::make(&device.device, child, |streams, at| streams.create(at))?);
        Ok(())
    })
}

/// Waits for what is enqueued on a stream and ends it; a capture under way is dropped. What
/// `gvmm_stream_forget` does is done first.
///
/// State: after success the handle is invalid. Not to be called by a function that runs on this stream.
/// Parameters: `stream`.
/// Statuses: STREAM_CAPTURING (someone must still wait for work before the capture: end the capture first).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_destroy(stream: *mut gvmm_stream) -> gvmm_status {
    entry(Operation::Destroy, || {
        let leaving = handle::leave::<StreamObject>(stream)?;
        leaving.forget()?;
        leaving.device.driver().streams().destroy(leaving.stream)?;
        leaving.gone();
        Ok(())
    })
}

/// Waits until all that was enqueued on a stream has run.
///
/// State: after success the stream is idle. Not to be called by a function that runs on this stream.
/// Parameters: `stream`.
/// Statuses: STREAM_CAPTURING, DEVICE_FAULT (a copy touched memory that it had no access to; the stream has
/// stopped).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_synchronize(stream: *mut gvmm_stream) -> gvmm_status {
    entry(Operation::Stream, || {
        let stream = handle::get::<StreamObject>(stream)?;
        stream.device.driver().streams().synchronize(stream.stream)
    })
}

/// Enqueues a call of a function. On a capturing stream it becomes part of the graph and runs at each
/// launch.
///
/// State: `function` runs on a thread of ours once all before it on the stream has run.
/// Parameters: `stream`; `function`, which may call this library but must not wait for its own stream,
/// unwind or end the thread; `user_data`, handed to it, which must live until it has run (for a graph:
/// until the graph is destroyed and its launches have run); may be NULL.
/// Statuses: UNSUPPORTED (no GVMM_CAPABILITY_HOST_FUNCTIONS).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_host_function(
    stream: *mut gvmm_stream,
    function: gvmm_host_function,
    user_data: *mut c_void,
) -> gvmm_status {
    entry(Operation::Stream, || {
        let stream = handle::get::<StreamObject>(stream)?;
        let function = function
            .ok_or_else(|| Error::new(Kind::NullPointer, Operation::Stream, "the function is NULL"))?;
        let call = HostCall { function, user_data };
        stream.device.driver().streams().enqueue(stream.stream, Arc::new(move || call.run()))
    })
}

/// Begins a capture: what is enqueued on the stream from here on is kept instead of run.
///
/// State: before, the stream does not capture; after success it does.
/// Parameters: `stream`.
/// Statuses: WRONG_STATE (it does already), UNSUPPORTED.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_capture_begin(stream: *mut gvmm_stream) -> gvmm_status {
    entry(Operation::Capture, || {
        let stream = handle::get::<StreamObject>(stream)?;
        stream.device.driver().streams().capture_begin(stream.stream)
    })
}

/// Ends a capture and gives what it kept.
///
/// State: before, the stream captures; after success it does not, and the graph lives until
/// `gvmm_graph_destroy`.
/// Parameters: `stream`; `out_graph`, the handle.
/// Statuses: WRONG_STATE (it does not capture), UNSUPPORTED.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_capture_end(
    stream: *mut gvmm_stream,
    out_graph: *mut *mut gvmm_graph,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Capture, || {
        let out = c.out(out_graph)?;
        out.write(GraphObject::of_capture(&*handle::get::<StreamObject>(stream)?)?);
        Ok(())
    })
}

/// Says whether a stream is being captured.
///
/// State: changes none.
/// Parameters: `device`; `stream`, a `gvmm_stream` or the vendor's own; `out_capturing`, 1 or 0.
/// Statuses: INVALID_STREAM.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_is_capturing(
    device: *mut gvmm_device,
    stream: *mut c_void,
    out_capturing: *mut u32,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out(out_capturing)?;
        let device = &handle::get::<DeviceObject>(device)?.device;
        let stream = resolve(device, stream)?;
        out.write(u32::from(device.driver().is_capturing(device.ordinal(), stream)?));
        Ok(())
    })
}

/// Tells the library that a vendor's stream is about to be destroyed: whoever must later wait for work on
/// it has that recorded now.
///
/// State: after success the library touches the stream no more, until it is given again.
/// Parameters: `device`; `stream`, a `gvmm_stream` or the vendor's own.
/// Statuses: INVALID_STREAM, STREAM_CAPTURING (something must be recorded and cannot be).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_forget(device: *mut gvmm_device, stream: *mut c_void) -> gvmm_status {
    entry(Operation::Stream, || {
        let device = &handle::get::<DeviceObject>(device)?.device;
        device.forget_stream(resolve(device, stream)?)
    })
}

/// Enqueues everything that a graph kept.
///
/// State: changes none but the stream's queue. A graph may be launched any number of times.
/// Parameters: `graph`; `stream`, of the same device.
/// Statuses: STREAM_CAPTURING, INVALID_ARGUMENT (of another device), WRONG_STATE (it has copies of a binding that are
/// gone with their generation; not every driver can tell).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_graph_launch(graph: *mut gvmm_graph, stream: *mut gvmm_stream) -> gvmm_status {
    entry(Operation::Launch, || {
        let graph = handle::get::<GraphObject>(graph)?;
        let stream = handle::get::<StreamObject>(stream)?;
        if !Arc::ptr_eq(&graph.device, &stream.device) {
            let hint = "the stream is of another device than the graph";
            return Err(Error::new(Kind::InvalidArgument, Operation::Launch, hint));
        }
        graph.device.driver().streams().launch(graph.graph, stream.stream)
    })
}

/// Gives up a graph; launches under way still finish.
///
/// State: after success the handle is invalid.
/// Parameters: `graph`.
/// Statuses: none of its own.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_graph_destroy(graph: *mut gvmm_graph) -> gvmm_status {
    entry(Operation::Destroy, || {
        let leaving = handle::leave::<GraphObject>(graph)?;
        leaving.device.driver().streams().destroy_graph(leaving.graph)?;
        leaving.gone();
        Ok(())
    })
}

/// What a handle of a stream stands for.
pub(super) struct StreamObject {
    stream: Stream,
    device: Arc<Device>,
    child: Child,
}

static STREAMS: Table<StreamObject> = Table::new();

impl Noun for StreamObject {
    const TYPE: u64 = 5;
    type Handle = gvmm_stream;
    fn table() -> &'static Table<Self> {
        &STREAMS
    }

    fn facts(&self) -> [u64; 2] {
        [self.stream.0, address(&self.device)]
    }
}

/// A device's address, to be compared only.
fn address(device: &Arc<Device>) -> u64 {
    Arc::as_ptr(device).addr() as u64
}

impl StreamObject {
    /// A handle for the stream that `make` gives.
    pub(super) fn make(
        device: &Arc<Device>,
        child: Child,
        make: impl FnOnce(&dyn Streams, Ordinal) -> Result<Stream>,
    ) -> Result<*mut gvmm_stream> {
        let stream = make(device.driver().streams(), device.ordinal())?;
        let object = Self { stream, device: Arc::clone(device), child };
        handle::insert(object).inspect_err(|_| {
            if let Err(error) = device.driver().streams().destroy(stream) {
                log::warn!("{error}");
            }
        })
    }

    /// What must be done before the stream goes. A stream that has failed cannot record anything any more,
    /// and may go all the same.
    fn forget(&self) -> Result<()> {
        match self.device.forget_stream(self.stream) {
            Err(error) if error.kind == Kind::StreamCapturing => Err(error),
            Err(error) => {
                log::warn!("a stream that is destroyed: {error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// What a handle of a graph stands for.
pub(super) struct GraphObject {
    graph: Graph,
    device: Arc<Device>,
    _child: Child,
}

static GRAPHS: Table<GraphObject> = Table::new();

impl Noun for GraphObject {
    const TYPE: u64 = 6;
    type Handle = gvmm_graph;
    fn table() -> &'static Table<Self> {
        &GRAPHS
    }
}

impl GraphObject {
    fn of_capture(stream: &StreamObject) -> Result<*mut gvmm_graph> {
        let streams = stream.device.driver().streams();
        let child = stream.child.again()?;
        let graph = streams.capture_end(stream.stream)?;
        let object = Self { graph, device: Arc::clone(&stream.device), _child: child };
        handle::insert(object).inspect_err(|_| {
            if let Err(error) = streams.destroy_graph(graph) {
                log::warn!("{error}");
            }
        })
    }
}

/// A caller's function and what it is called with.
struct HostCall {
    function: unsafe extern "C" fn(*mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the header says that the function runs on a thread of ours, and so must be good for that with its
// data.
unsafe impl Send for HostCall {}
// SAFETY: launches of a graph may run it from several threads, as the header says.
unsafe impl Sync for HostCall {}

impl HostCall {
    fn run(&self) {
        // SAFETY: the caller vouches for the function with this data until the stream has run it.
        unsafe { (self.function)(self.user_data) };
    }
}

/// The driver's stream behind a `void *stream`: a key of ours, or the vendor's own.
#[inline]
pub(super) fn resolve(device: &Arc<Device>, stream: *mut c_void) -> Result<Stream> {
    let named = handle::to_pointer::<StreamObject>(handle::key(stream));
    match handle::facts::<StreamObject>(named) {
        Some([stream, of]) if of == address(device) => Ok(Stream(stream)),
        _ => resolve_other(device, stream),
    }
}

/// The vendor's own, and all that is wrong.
fn resolve_other(device: &Arc<Device>, stream: *mut c_void) -> Result<Stream> {
    let key = handle::key(stream);
    if handle::has_type::<StreamObject>(key) {
        let ours = handle::look_up::<StreamObject>(handle::to_pointer::<StreamObject>(key)).ok();
        return match ours.filter(|object| Arc::ptr_eq(&object.device, device)) {
            Some(object) => Ok(object.stream),
            None => Err(invalid("a gvmm_stream that is stale, foreign or of another device")),
        };
    }
    if stream.is_null() && !device.capabilities().has(Capabilities::NULL_STREAM) {
        return Err(invalid("NULL is no stream here: make one by gvmm_stream_create"));
    }
    if !stream.is_null() && device.driver().kind() == DriverKind::HOST {
        return Err(invalid("the host driver knows streams of gvmm_stream_create only"));
    }
    Ok(Stream(key))
}

/// What a caller knows a driver's stream by: the `gvmm_stream` that it has, else the vendor's own.
pub(super) fn to_caller(device: &Arc<Device>, stream: Stream) -> *mut c_void {
    let key = STREAMS.find([stream.0, address(device)]).unwrap_or(stream.0);
    std::ptr::without_provenance_mut(key as usize)
}

/// The driver's graph behind a `void *graph`: a `gvmm_graph`, or the vendor's own; none for NULL.
pub(super) fn resolve_graph(device: &Arc<Device>, graph: *mut c_void) -> Result<Option<Graph>> {
    let key = handle::key(graph);
    if graph.is_null() {
        return Ok(None);
    }
    let invalid = |hint| Err(Error::new(Kind::InvalidHandle, Operation::Capture, hint));
    if handle::has_type::<GraphObject>(key) {
        let ours = handle::look_up::<GraphObject>(handle::to_pointer::<GraphObject>(key)).ok();
        return match ours.filter(|object| Arc::ptr_eq(&object.device, device)) {
            Some(object) => Ok(Some(object.graph)),
            None => invalid("a gvmm_graph that is stale, foreign or of another device"),
        };
    }
    if device.driver().kind() != DriverKind::CUDA {
        return invalid("this driver knows graphs of gvmm_stream_capture_end only");
    }
    Ok(Some(Graph(key)))
}

/// What [`resolve`] gives for each element of an array, blaming the element.
pub(super) fn resolve_all(device: &Arc<Device>, streams: &Elements<*mut c_void>) -> Result<Vec<Stream>> {
    streams.try_map(|stream| resolve(device, stream))
}

fn invalid(hint: &'static str) -> Error {
    Error::new(Kind::InvalidStream, Operation::Stream, hint)
}
