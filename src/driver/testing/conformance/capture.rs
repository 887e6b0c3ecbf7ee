//! Host functions and captured graphs.

use super::rig::{Rig, refused, same};
use super::{Check, Verdict};
use crate::driver::{Capabilities, CopySlice, Graph, HostFunction};
use crate::error::Kind;
use crate::units::ByteSize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const FUNCTIONS: Capabilities = Capabilities::HOST_FUNCTIONS;

pub(super) const CHECKS: &[Check] = &[
    Check::new("functions run in order, among copies", in_order).needs(FUNCTIONS),
    Check::new("what is captured runs at each launch and not before", kept).needs(FUNCTIONS),
    Check::new("captured copies read what is there at the launch", fresh).needs(FUNCTIONS),
    Check::new("a capturing stream says so", says_so).needs(FUNCTIONS),
    Check::new("a capturing stream is not waited for, written by or launched on", guarded).needs(FUNCTIONS),
    Check::new("a capture is begun once and ended once", begin_end).needs(FUNCTIONS),
    Check::new("work from before a capture runs, other streams are free", beside).needs(FUNCTIONS),
    Check::new("an empty graph runs", empty).needs(FUNCTIONS),
    Check::new("a graph that is destroyed while it runs still finishes", destroyed).needs(FUNCTIONS),
    Check::new("one graph runs on several streams", on_streams).needs(FUNCTIONS),
    Check::new("a stream that captures can be destroyed", destroy_capturing).needs(FUNCTIONS),
    Check::new("a stream does not wait for itself", itself).needs(FUNCTIONS),
    Check::new("functions that are not there are refused", none).lacks(FUNCTIONS),
];

/// A counter, and a function that adds to it.
fn counter() -> (Arc<AtomicU64>, HostFunction) {
    let count = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&count);
    let add = move || {
        own.fetch_add(1, Ordering::SeqCst);
    };
    (count, Arc::new(add))
}

fn count(of: &AtomicU64) -> u64 {
    of.load(Ordering::SeqCst)
}

fn in_order(rig: &mut Rig) -> Verdict {
    let (stream, a, b) = (rig.stream()?, rig.plain(ByteSize(256))?, rig.plain(ByteSize(256))?);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for i in 0..100_u32 {
        let seen = Arc::clone(&seen);
        let note = move || seen.lock().unwrap_or_else(PoisonError::into_inner).push(i);
        rig.streams().enqueue(stream, Arc::new(note))?;
        rig.driver.copy(rig.device, stream, &[CopySlice { dst: b, src: a, bytes: 8 }])?;
    }
    rig.streams().synchronize(stream)?;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    same("the order of the calls", (0..100).collect::<Vec<_>>(), seen)
}

fn kept(rig: &mut Rig) -> Verdict {
    let (stream, (calls, function)) = (rig.stream()?, counter());
    rig.streams().capture_begin(stream)?;
    for _ in 0..3 {
        rig.streams().enqueue(stream, Arc::clone(&function))?;
    }
    let graph = rig.capture_end(stream)?;
    rig.streams().synchronize(stream)?;
    same("calls before a launch", 0, count(&calls))?;
    for launch in 1..=5 {
        rig.streams().launch(graph, stream)?;
        rig.streams().synchronize(stream)?;
        same("calls after a launch", 3 * launch, count(&calls))?;
    }
    Ok(())
}

fn fresh(rig: &mut Rig) -> Verdict {
    let (stream, a, b) = (rig.stream()?, rig.plain(ByteSize(256))?, rig.plain(ByteSize(256))?);
    rig.streams().capture_begin(stream)?;
    let launches = rig.driver.copy(rig.device, stream, &[CopySlice { dst: b, src: a, bytes: 5 }])?;
    let graph = rig.capture_end(stream)?;
    same("launches counted at the capture", 1, launches)?;
    for bytes in [b"first", b"other"] {
        rig.write(a, bytes)?;
        rig.streams().launch(graph, stream)?;
        rig.streams().synchronize(stream)?;
        same("the bytes at a launch", bytes.to_vec(), rig.read(b, 5)?)?;
    }
    Ok(())
}

fn says_so(rig: &mut Rig) -> Verdict {
    let stream = rig.stream()?;
    let capturing = |rig: &Rig| rig.driver.is_capturing(rig.device, stream);
    same("before", false, capturing(rig)?)?;
    rig.streams().capture_begin(stream)?;
    same("meanwhile", true, capturing(rig)?)?;
    rig.capture_end(stream)?;
    same("afterwards", false, capturing(rig)?)
}

fn guarded(rig: &mut Rig) -> Verdict {
    let (stream, timeline) = (rig.stream()?, rig.timeline()?);
    rig.streams().capture_begin(stream)?;
    let graph = rig.capture_end(stream)?;
    rig.streams().capture_begin(stream)?;
    let refuse = |what, result| refused(Kind::StreamCapturing, what, result);
    refuse("a timeline write", rig.driver.timeline_write(stream, timeline, 1))?;
    refuse("a wait of the stream", rig.driver.stream_wait(stream, timeline, 0))?;
    refuse("a wait for the stream", rig.streams().synchronize(stream))?;
    refuse("a launch", rig.streams().launch(graph, stream))?;
    rig.capture_end(stream)?;
    rig.driver.timeline_write(stream, timeline, 1)?;
    Ok(rig.driver.timeline_wait(timeline, 1)?)
}

fn begin_end(rig: &mut Rig) -> Verdict {
    let stream = rig.stream()?;
    refused(Kind::WrongState, "end without begin", rig.streams().capture_end(stream))?;
    rig.streams().capture_begin(stream)?;
    refused(Kind::WrongState, "begin twice", rig.streams().capture_begin(stream))?;
    rig.capture_end(stream)?;
    refused(Kind::WrongState, "end twice", rig.streams().capture_end(stream))?;
    refused(Kind::InvalidHandle, "no such graph", rig.streams().launch(Graph(0), stream))
}

fn beside(rig: &mut Rig) -> Verdict {
    let (stream, other, (calls, function)) = (rig.stream()?, rig.stream()?, counter());
    rig.streams().enqueue(stream, Arc::clone(&function))?;
    rig.streams().capture_begin(stream)?;
    rig.streams().enqueue(other, function)?;
    rig.streams().synchronize(other)?;
    rig.eventually("the call from before the capture", || count(&calls) == 2)?;
    rig.capture_end(stream)?;
    Ok(())
}

fn empty(rig: &mut Rig) -> Verdict {
    let stream = rig.stream()?;
    rig.streams().capture_begin(stream)?;
    let graph = rig.capture_end(stream)?;
    rig.streams().launch(graph, stream)?;
    Ok(rig.streams().synchronize(stream)?)
}

fn destroyed(rig: &mut Rig) -> Verdict {
    let (stream, (calls, function)) = (rig.stream()?, counter());
    rig.streams().capture_begin(stream)?;
    for _ in 0..50 {
        rig.streams().enqueue(stream, Arc::clone(&function))?;
    }
    let graph = rig.capture_end(stream)?;
    for _ in 0..20 {
        rig.streams().launch(graph, stream)?;
    }
    rig.destroy_graph(graph)?;
    refused(Kind::InvalidHandle, "a launch", rig.streams().launch(graph, stream))?;
    refused(Kind::InvalidHandle, "destroying twice", rig.streams().destroy_graph(graph))?;
    rig.streams().synchronize(stream)?;
    same("calls", 1000, count(&calls))
}

fn on_streams(rig: &mut Rig) -> Verdict {
    let (first, second, (calls, function)) = (rig.stream()?, rig.stream()?, counter());
    rig.streams().capture_begin(first)?;
    rig.streams().enqueue(first, function)?;
    let graph = rig.capture_end(first)?;
    for stream in [first, second, first, second] {
        rig.streams().launch(graph, stream)?;
    }
    rig.streams().synchronize(first)?;
    rig.streams().synchronize(second)?;
    same("calls", 4, count(&calls))
}

fn destroy_capturing(rig: &mut Rig) -> Verdict {
    let (stream, (calls, function)) = (rig.stream()?, counter());
    rig.streams().enqueue(stream, Arc::clone(&function))?;
    rig.streams().capture_begin(stream)?;
    rig.streams().enqueue(stream, function)?;
    rig.destroy(stream)?;
    same("calls: the one from before", 1, count(&calls))
}

fn itself(rig: &mut Rig) -> Verdict {
    let stream = rig.stream()?;
    let (driver, seen) = (Arc::clone(&rig.driver), Arc::new(Mutex::new(Vec::new())));
    let own = Arc::clone(&seen);
    let wait = move || {
        let tries = [driver.streams().synchronize(stream), driver.streams().destroy(stream)];
        let kinds = tries.map(|result| result.err().map(|e| e.kind));
        own.lock().unwrap_or_else(PoisonError::into_inner).extend(kinds);
    };
    rig.streams().enqueue(stream, Arc::new(wait))?;
    rig.streams().synchronize(stream)?;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    same("both refused", vec![Some(Kind::WrongState); 2], seen)
}

fn none(rig: &mut Rig) -> Verdict {
    let (stream, (_, function)) = (rig.stream()?, counter());
    refused(Kind::Unsupported, "a function", rig.streams().enqueue(stream, function))?;
    refused(Kind::Unsupported, "a capture", rig.streams().capture_begin(stream))
}
