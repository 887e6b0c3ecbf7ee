//! Streams and graphs of this library.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::status::{GVMM_ERROR_INTERNAL, gvmm_status};
use super::types::{gvmm_device, gvmm_graph, gvmm_stream};
use std::ffi::c_void;

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
    let _ = (device, out_stream);
    GVMM_ERROR_INTERNAL
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
    let _ = stream;
    GVMM_ERROR_INTERNAL
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
    let _ = stream;
    GVMM_ERROR_INTERNAL
}

/// Enqueues a call of a function. On a capturing stream it becomes part of the graph and runs at each launch.
///
/// State: `function` runs on a thread of ours once all before it on the stream has run.
/// Parameters: `stream`; `function`, which may call this library but must not wait for its own stream, unwind
/// or end the thread; `user_data`, handed to it, which must live until it has run (for a graph: until the graph
/// is destroyed and its launches have run); may be NULL.
/// Statuses: UNSUPPORTED (no GVMM_CAPABILITY_HOST_FUNCTIONS).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_host_function(
    stream: *mut gvmm_stream,
    function: gvmm_host_function,
    user_data: *mut c_void,
) -> gvmm_status {
    let _ = (stream, function, user_data);
    GVMM_ERROR_INTERNAL
}

/// Begins a capture: what is enqueued on the stream from here on is kept instead of run.
///
/// State: before, the stream does not capture; after success it does.
/// Parameters: `stream`.
/// Statuses: STREAM_CAPTURING (it does already), UNSUPPORTED.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_capture_begin(stream: *mut gvmm_stream) -> gvmm_status {
    let _ = stream;
    GVMM_ERROR_INTERNAL
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
    let _ = (stream, out_graph);
    GVMM_ERROR_INTERNAL
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
    let _ = (device, stream, out_capturing);
    GVMM_ERROR_INTERNAL
}

/// Tells the library that a vendor's stream is about to be destroyed: whoever must later wait for work on it
/// has that recorded now.
///
/// State: after success the library touches the stream no more, until it is given again.
/// Parameters: `device`; `stream`, a `gvmm_stream` or the vendor's own.
/// Statuses: INVALID_STREAM, STREAM_CAPTURING (something must be recorded and cannot be).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_stream_forget(device: *mut gvmm_device, stream: *mut c_void) -> gvmm_status {
    let _ = (device, stream);
    GVMM_ERROR_INTERNAL
}

/// Enqueues everything that a graph kept.
///
/// State: changes none but the stream's queue. A graph may be launched any number of times.
/// Parameters: `graph`; `stream`, of the same device.
/// Statuses: STREAM_CAPTURING, INVALID_ARGUMENT (of another device).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_graph_launch(graph: *mut gvmm_graph, stream: *mut gvmm_stream) -> gvmm_status {
    let _ = (graph, stream);
    GVMM_ERROR_INTERNAL
}

/// Gives up a graph; launches under way still finish.
///
/// State: after success the handle is invalid.
/// Parameters: `graph`.
/// Statuses: none of its own.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_graph_destroy(graph: *mut gvmm_graph) -> gvmm_status {
    let _ = graph;
    GVMM_ERROR_INTERNAL
}
