//! Timelines between streams, and the layer above.

use super::{Bench, counted, noise};
use gvmm::driver::{CopySlice, CreateOptions, Stream, TimelineId};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Device, Owner, RemapEntry};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Streams of one device wait for each other's timelines, also where the wait is enqueued first.
pub(crate) fn timelines_order_streams(bench: &Bench, wait_first: bool) {
    let driver = &bench.driver;
    let (first, second) = (bench.stream(), bench.stream());
    let timeline = driver.timeline_create(bench.device).expect("a timeline");
    let order = Arc::new(AtomicU32::new(0));
    let step = |stream: Stream, expected: u32| {
        let order = order.clone();
        let function = Arc::new(move || {
            let _ = order.compare_exchange(expected, expected + 1, Ordering::SeqCst, Ordering::SeqCst);
        });
        driver.streams().enqueue(stream, function).expect("enqueued");
    };
    let wait = |timeline: TimelineId| {
        driver.stream_wait(second, timeline, 5).expect("waits");
        step(second, 1);
    };
    if wait_first {
        wait(timeline);
    }
    step(first, 0);
    driver.timeline_write(first, timeline, 5).expect("written");
    if !wait_first {
        wait(timeline);
    }
    driver.timeline_wait(timeline, 5).expect("reached");
    assert!(driver.timeline_read(timeline).expect("read") >= 5);
    bench.wait(second);
    assert_eq!(order.load(Ordering::SeqCst), 2);
    driver.timeline_destroy(timeline).expect("destroyed");
    for stream in [first, second] {
        driver.streams().destroy(stream).expect("destroyed");
    }
}

/// A stream that comes late to a wait for a timeline that is gone is not held up by whoever has its memory now.
pub(crate) fn late_waits_are_let_go(bench: &Bench) {
    let driver = &bench.driver;
    let (first, late) = (bench.stream(), bench.stream());
    let timeline = driver.timeline_create(bench.device).expect("a timeline");
    let gate = Arc::new(AtomicU32::new(0));
    let held = gate.clone();
    let hold = move || {
        while held.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    };
    driver.timeline_write(first, timeline, 5).expect("written");
    driver.timeline_wait(timeline, 5).expect("reached");
    driver.streams().enqueue(late, Arc::new(hold)).expect("enqueued");
    driver.stream_wait(late, timeline, 5).expect("waits");
    driver.timeline_destroy(timeline).expect("nothing is owed");
    let next: Vec<TimelineId> =
        (0..4).map(|_| driver.timeline_create(bench.device).expect("a timeline")).collect();
    for timeline in &next {
        assert_eq!(driver.timeline_read(*timeline).expect("read"), 0);
    }
    gate.store(1, Ordering::SeqCst);
    bench.wait(late);
    driver.timeline_write(first, next[0], 3).expect("written");
    driver.timeline_wait(next[0], 3).expect("reached");
    assert_eq!(driver.timeline_read(next[0]).expect("read"), 3);
    next.into_iter().for_each(|timeline| driver.timeline_destroy(timeline).expect("destroyed"));
    for stream in [first, late] {
        driver.streams().destroy(stream).expect("destroyed");
    }
}

/// A counter's value stands in host memory, at 0 at first, also where its cell was another's before.
pub(crate) fn counters_are_seen_without_a_call(bench: &Bench) {
    let driver = &bench.driver;
    let stream = bench.stream();
    for _ in 0..2 {
        let (counter, address) = driver.counter_create(bench.device).expect("a counter");
        assert_eq!(counted(address), 0);
        for wanted in [1, 5] {
            driver.timeline_write(stream, counter, wanted).expect("written");
            bench.wait(stream);
            assert_eq!(counted(address), wanted);
        }
        driver.timeline_destroy(counter).expect("destroyed");
    }
    driver.streams().destroy(stream).expect("destroyed");
}

/// What the layer above does: many entries remapped in one call, shuffled, copied, retired.
pub(crate) fn the_layer_above_works(bench: &Bench) {
    let device = Device::open(bench.driver.clone(), bench.device).expect("a device");
    let granule = device.granularity().size().get();
    let at = |i: usize| ByteSize(i as u64 * granule);
    let blocks: Vec<_> = (0..16)
        .map(|_| device.create_block(ByteSize(granule), CreateOptions::default()).expect("a block"))
        .collect();
    let range = device.reserve(at(16), None, &[], Owner::Caller).expect("a range");
    let stream = bench.stream();
    let remap = |shift: usize| {
        let entry = |i: usize| RemapEntry {
            reservation: range.clone(),
            offset: at(i),
            block: Some(blocks[(i + shift) % 16].clone()),
        };
        device.remap(&(0..16).map(entry).collect::<Vec<_>>(), &[stream]).expect("remapped")
    };
    let report = remap(0);
    assert_eq!((report.calls.map, report.calls.set_access), (16, 1));
    let address = |i: usize| DevicePtr(range.range().start().get() + at(i).get());
    for i in 0..16 {
        bench.native.write(0, address(i), &noise(64, i as u64 + 1));
    }
    let report = remap(5);
    assert_eq!((report.calls.unmap, report.calls.map, report.calls.set_access), (16, 16, 1));
    for i in 0..16 {
        assert_eq!(bench.native.read(0, address(i), 64), noise(64, (i as u64 + 5) % 16 + 1));
    }
    let slices: Vec<CopySlice> = (0..8)
        .map(|i| CopySlice { dst: DevicePtr(address(i).get() + 4096), src: address(i + 8), bytes: 64 })
        .collect();
    assert_eq!(device.shadow_copy(stream, &slices).expect("copied"), 1);
    device.forget_stream(stream).expect("forgotten");
    // What a stream still uses is retired, or waited for as here, and dropped then.
    bench.wait(stream);
    drop((range, blocks));
    device.drain().expect("drained");
    drop(device);
    bench.driver.streams().destroy(stream).expect("destroyed");
}
