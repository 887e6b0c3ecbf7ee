//! Clocks and marks on the host driver's streams.

use super::*;
use crate::config::HostConfig;
use crate::driver::host::HostDriver;
use crate::driver::testing::{Call, Fault, Trace};
use crate::driver::{Capabilities, CopySlice, Driver, Ordinal};
use crate::units::DevicePtr;
use std::sync::mpsc;

struct Rig {
    trace: Arc<Trace>,
    fault: Arc<Fault>,
    clocks: Arc<Clocks>,
}

impl Rig {
    fn new() -> Self {
        let host = HostDriver::new(HostConfig::default(), None).expect("a host driver");
        let fault = Arc::new(Fault::new(Arc::new(host)));
        let trace = Arc::new(Trace::new(Arc::<Fault>::clone(&fault)));
        let driver: Arc<dyn Driver> = Arc::<Trace>::clone(&trace);
        let calls = Calls::new(driver, Ordinal(0), Capabilities::default());
        Self { trace, fault, clocks: Clocks::new(Arc::new(calls)) }
    }

    fn stream(&self) -> Stream {
        self.trace.streams().create(Ordinal(0)).expect("a stream")
    }

    fn writes(&self) -> u64 {
        self.trace.counts().of(Call::TIMELINE_WRITE)
    }

    /// Stops a stream until the sender is dropped or used.
    fn block(&self, stream: Stream) -> mpsc::Sender<()> {
        let (sender, receiver) = mpsc::channel::<()>();
        let receiver = Mutex::new(receiver);
        let wait = move || {
            let _ = receiver.lock().map(|receiver| receiver.recv());
        };
        self.trace.streams().enqueue(stream, Arc::new(wait)).expect("enqueued");
        sender
    }
}

#[test]
fn marks_cost_nothing_until_recorded_and_then_one_write() {
    let rig = Rig::new();
    let stream = rig.stream();
    let (a, b) = (rig.clocks.mark(stream), rig.clocks.mark(stream));
    assert_eq!(rig.trace.counts().total(), 0);
    assert_eq!(a.passed(), Ok(false));
    a.record().expect("recorded");
    assert!(b.is_recorded());
    b.wait().expect("waited");
    assert_eq!((a.passed(), rig.writes()), (Ok(true), 1));
    let c = rig.clocks.mark(stream);
    assert!(!c.is_recorded(), "what came after the write is not behind it");
    c.wait().expect("waited");
    assert_eq!(rig.writes(), 2);
    assert!(rig.clocks.close().is_empty());
    assert_eq!(rig.trace.live().timelines, 0);
}

#[test]
fn a_mark_passes_when_its_stream_gets_there_and_not_before() {
    let rig = Rig::new();
    let (slow, fast) = (rig.stream(), rig.stream());
    let gate = rig.block(slow);
    let (late, soon) = (rig.clocks.mark(slow), rig.clocks.mark(fast));
    late.record().expect("recorded");
    soon.wait().expect("waited");
    assert_eq!(late.passed(), Ok(false), "each stream has a timeline of its own");
    drop(gate);
    late.wait().expect("waited");
    assert_eq!(late.passed(), Ok(true));
    drop(rig.clocks.close());
}

#[test]
fn one_stream_waits_for_another_on_the_device() {
    let rig = Rig::new();
    let (first, second) = (rig.stream(), rig.stream());
    let gate = rig.block(first);
    let mark = rig.clocks.mark(first);
    mark.wait_on(first).expect("the same stream");
    assert_eq!(rig.trace.counts().total(), 0, "its own order does");
    mark.wait_on(second).expect("enqueued");
    let after = rig.clocks.mark(second);
    after.record().expect("recorded");
    assert_eq!(after.passed(), Ok(false));
    drop(gate);
    after.wait().expect("waited");
    assert_eq!(mark.passed(), Ok(true));
    let waits = rig.trace.counts().of(Call::STREAM_WAIT);
    mark.wait_on(second).expect("passed");
    assert_eq!((waits, rig.trace.counts().of(Call::STREAM_WAIT)), (1, 1));
    drop(rig.clocks.close());
}

#[test]
fn a_capturing_stream_refuses_and_loses_nothing() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mark = rig.clocks.mark(stream);
    rig.trace.streams().capture_begin(stream).expect("captured");
    assert_eq!(mark.record().map_err(|e| e.kind), Err(Kind::StreamCapturing));
    assert_eq!(rig.clocks.forget(stream).map_err(|e| e.kind), Err(Kind::StreamCapturing));
    assert_eq!(mark.passed(), Ok(false));
    rig.trace.streams().capture_end(stream).expect("a graph");
    mark.wait().expect("good again");
    drop(rig.clocks.close());
}

#[test]
fn forgetting_records_what_is_held_and_only_that() {
    let rig = Rig::new();
    let (a, b) = (rig.stream(), rig.stream());
    let held = rig.clocks.mark(a);
    drop(rig.clocks.mark(b));
    rig.clocks.forget(a).expect("forgotten");
    rig.clocks.forget(b).expect("forgotten");
    assert_eq!(rig.writes(), 1);
    rig.trace.streams().destroy(a).expect("destroyed");
    held.wait().expect("recorded before");
    assert_eq!(held.passed(), Ok(true));
    drop(rig.clocks.close());
    assert_eq!(rig.trace.live().timelines, 0);
}

#[test]
fn a_forgotten_streams_timeline_serves_the_next_and_its_values_grow() {
    let rig = Rig::new();
    let mut old = Vec::new();
    for _ in 0..5 {
        let stream = rig.stream();
        let mark = rig.clocks.mark(stream);
        mark.wait().expect("waited");
        rig.clocks.forget(stream).expect("forgotten");
        rig.trace.streams().destroy(stream).expect("destroyed");
        old.push(mark);
    }
    assert_eq!(rig.trace.live().timelines, 1);
    assert!(old.iter().all(|mark| mark.passed() == Ok(true)));
    drop(rig.clocks.close());
    assert_eq!(rig.trace.live().timelines, 0);
}

#[test]
fn a_timeline_whose_last_value_is_pending_is_not_used_again() {
    let rig = Rig::new();
    let (slow, other) = (rig.stream(), rig.stream());
    let gate = rig.block(slow);
    let late = rig.clocks.mark(slow);
    rig.clocks.forget(slow).expect("forgotten");
    rig.clocks.mark(other).wait().expect("waited");
    assert_eq!(late.passed(), Ok(false));
    assert_eq!(rig.trace.live().timelines, 2);
    drop(gate);
    late.wait().expect("waited");
    drop(rig.clocks.close());
}

#[test]
fn a_failed_write_leaves_the_mark_good() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mark = rig.clocks.mark(stream);
    for call in [Call::TIMELINE_CREATE, Call::TIMELINE_WRITE] {
        rig.fault.fail(Some(call), 1, 1, Error::new(Kind::DriverError, Operation::Timeline, "made to fail"));
        assert_eq!(mark.record().map_err(|e| e.kind), Err(Kind::DriverError));
    }
    mark.wait().expect("good again");
    assert!(rig.clocks.close().is_empty());
    assert_eq!(mark.passed(), Ok(true), "known to have passed");
    assert_eq!(mark.wait_on(Stream(99)), Ok(()));
}

#[test]
fn after_closing_nothing_touches_the_timelines() {
    let rig = Rig::new();
    let stream = rig.stream();
    let recorded = rig.clocks.mark(stream);
    recorded.record().expect("recorded");
    let unrecorded = rig.clocks.mark(stream);
    drop(rig.clocks.close());
    let before = rig.trace.counts().total();
    assert_eq!(unrecorded.record().map_err(|e| e.kind), Err(Kind::WrongState));
    assert_eq!(recorded.wait(), Ok(()), "closing waited for it");
    assert_eq!(rig.trace.counts().total(), before);
}

#[test]
fn marks_of_a_failed_stream_have_passed_once_it_is_forgotten() {
    let rig = Rig::new();
    let stream = rig.stream();
    let gate = rig.block(stream);
    let (early, slice) =
        (rig.clocks.mark(stream), CopySlice { dst: DevicePtr(1), src: DevicePtr(9), bytes: 1 });
    rig.trace.copy(Ordinal(0), stream, &[slice]).expect("enqueued");
    early.record().expect("recorded behind what fails");
    let late = rig.clocks.mark(stream);
    drop(gate);
    rig.trace.streams().synchronize(stream).expect_err("it failed");
    assert_eq!(
        early.wait().map_err(|e| e.kind),
        Err(Kind::DeviceFault),
        "told as long as somebody may mend it"
    );
    assert_eq!(late.record().map_err(|e| e.kind), Err(Kind::DeviceFault));
    rig.clocks.forget(stream).expect("forgotten");
    rig.trace.streams().destroy(stream).expect("destroyed");
    assert_eq!((late.passed(), early.wait(), early.passed()), (Ok(true), Ok(()), Ok(true)));
    // Its timeline, on which waits fail, serves nobody else.
    rig.clocks.mark(rig.stream()).wait().expect("another stream");
    drop(rig.clocks.close());
    assert_eq!(rig.trace.live().timelines, 0);
}

#[test]
fn recorded_marks_of_a_failed_stream_pass_too() {
    let slice = CopySlice { dst: DevicePtr(1), src: DevicePtr(9), bytes: 1 };
    for panics in [false, true] {
        let rig = Rig::new();
        let stream = rig.stream();
        let gate = rig.block(stream);
        if panics {
            rig.trace.streams().enqueue(stream, Arc::new(|| panic!("on purpose"))).expect("enqueued");
        } else {
            rig.trace.copy(Ordinal(0), stream, &[slice]).expect("enqueued");
        }
        let mark = rig.clocks.mark(stream);
        rig.clocks.forget(stream).expect("recorded and forgotten");
        drop(gate);
        rig.trace.streams().destroy(stream).expect("destroyed");
        assert_eq!((mark.wait(), mark.passed()), (Ok(()), Ok(true)));
        drop(rig.clocks.close());
    }
}

#[test]
fn a_stream_that_could_not_be_forgotten_and_is_gone_has_passed() {
    let rig = Rig::new();
    let stream = rig.stream();
    let mark = rig.clocks.mark(stream);
    rig.fault.fail(Some(Call::TIMELINE_WRITE), 1, 1, Error::new(Kind::DriverError, Operation::Timeline, ""));
    assert_eq!(rig.clocks.forget(stream).map_err(|e| e.kind), Err(Kind::DriverError));
    rig.trace.streams().destroy(stream).expect("destroyed");
    assert_eq!((mark.wait(), mark.passed()), (Ok(()), Ok(true)));
    // One that nobody wanted forgotten is an error.
    let stream = rig.stream();
    let mark = rig.clocks.mark(stream);
    rig.trace.streams().destroy(stream).expect("destroyed");
    assert_eq!(mark.wait().map_err(|e| e.kind), Err(Kind::InvalidStream));
    drop(rig.clocks.close());
}
