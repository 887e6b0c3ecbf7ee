//! The Level Zero driver's streams, copies and timelines against the fake loader, whose queues run in order: where
//! all streams share one, a wait for what nobody enqueued would hang.

mod ze_common;

use gvmm::driver::level_zero::LevelZeroDriver;
use gvmm::driver::{Capabilities, CopySlice, Driver, Ordinal, Stream};
use gvmm::error::{Error, Kind};
use gvmm::units::{ByteSize, DevicePtr};
use std::sync::Arc;
use std::time::Duration;
use ze_common::{Fake, ZERO, noise, stream};

fn kind<T>(result: Result<T, Error>) -> Option<Kind> {
    result.err().map(|e| e.kind)
}

fn at(base: DevicePtr, offset: usize) -> DevicePtr {
    DevicePtr(base.get() + offset as u64)
}

/// A fake and a driver in a context of the test's own, so that lists and queues can be made beside it.
struct Bench {
    fake: Fake,
    driver: Arc<LevelZeroDriver>,
    context: u64,
    device: u64,
}

impl Bench {
    fn new(name: &str, settings: &[(&str, u64)]) -> Self {
        let fake = Fake::build(name, &[]);
        settings.iter().for_each(|(setting, value)| fake.change(setting, *value));
        let (context, device) = (fake.context(), fake.device());
        let driver = Arc::new(LevelZeroDriver::attach(Some(&fake.path), context, device).expect("attached"));
        Self { fake, driver, context, device }
    }

    fn buffer(&self, bytes: &[u8]) -> DevicePtr {
        let at = self.driver.allocate(ZERO, ByteSize(bytes.len() as u64)).expect("memory");
        assert!(self.fake.poke((self.context, self.device), at, bytes));
        at
    }

    /// Copies as `layout` says, as (to, from, bytes), and compares every byte; gives the launches.
    fn copies(&self, stream: Stream, layout: &[(usize, usize, usize)]) -> u32 {
        let size = layout.iter().map(|(to, from, bytes)| to.max(from) + bytes).max().unwrap_or(0) + 64;
        let (source, mut model) = (noise(size, 77), noise(size, 78));
        let (src, dst) = (self.buffer(&source), self.buffer(&model));
        let slice = |&(to, from, bytes): &(usize, usize, usize)| CopySlice {
            dst: at(dst, to),
            src: at(src, from),
            bytes: bytes as u64,
        };
        let slices: Vec<CopySlice> = layout.iter().map(slice).collect();
        let launches = self.driver.copy(ZERO, stream, &slices).expect("copied");
        self.driver.streams().synchronize(stream).expect("the stream works");
        for &(to, from, bytes) in layout {
            model[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
        }
        assert!(
            self.fake.peek((self.context, self.device), dst, size).as_deref() == Some(&model[..]),
            "the bytes are right"
        );
        for at in [src, dst] {
            self.driver.deallocate(ZERO, at).expect("freed");
        }
        launches
    }

    fn end(self) {
        drop(self.driver);
        self.fake.must("zeContextDestroy", &[self.context]);
        self.fake.clean();
    }
}

fn many(count: usize) -> Vec<(usize, usize, usize)> {
    (0..count).map(|i| (i * 64 + i % 7, i * 64 + i % 5, i * 7 % 50)).collect()
}

#[test]
fn many_copies_are_one_submission() {
    let bench = Bench::new("copies", &[]);
    let own = stream(&*bench.driver);
    let appended = bench.fake.calls("zeCommandListImmediateAppendCommandListsExp");
    for count in [0, 1, 2, 8, 256, 1024, 5000] {
        assert_eq!(
            bench.copies(own, &many(count)),
            u32::from(count > 1),
            "{count} slices, the first is empty"
        );
    }
    assert_eq!(bench.fake.calls("zeCommandListImmediateAppendCommandListsExp"), appended + 4);
    // One list is used again and again.
    assert_eq!(bench.fake.calls("zeCommandListCreate"), 1);
    let list = bench.fake.list("zeCommandListCreateImmediate", bench.context, bench.device);
    assert_eq!(bench.copies(Stream(list), &many(100)), 1, "a framework's list");
    bench.fake.must("zeCommandListDestroy", &[list]);
    bench.driver.streams().destroy(own).expect("destroyed");
    bench.end();
}

/// A list that has not run is not touched: the next copy gets another one.
#[test]
fn lists_that_have_not_run_are_left_alone() {
    let bench = Bench::new("lists", &[]);
    let (own, buffer) = (stream(&*bench.driver), bench.buffer(&noise(8192, 1)));
    let slice = |i: usize| CopySlice { dst: at(buffer, 4096 + i * 64), src: at(buffer, i * 64), bytes: 64 };
    let copy = || bench.driver.copy(ZERO, own, &[slice(0), slice(1), slice(2)]).expect("enqueued");
    bench.fake.hold(true);
    (0..3).for_each(|_| assert_eq!(copy(), 1));
    assert_eq!(bench.fake.calls("zeCommandListCreate"), 3);
    bench.fake.hold(false);
    bench.driver.streams().synchronize(own).expect("the stream works");
    (0..3).for_each(|_| assert_eq!(copy(), 1));
    assert_eq!(bench.fake.calls("zeCommandListCreate"), 3);
    bench.driver.streams().synchronize(own).expect("the stream works");
    bench.driver.deallocate(ZERO, buffer).expect("freed");
    bench.end();
}

#[test]
fn without_the_extension_each_copy_is_counted() {
    let bench = Bench::new("single", &[("FAKE_ZE_APPEND", 0)]);
    let own = stream(&*bench.driver);
    assert!(!bench.driver.device_info(ZERO).expect("a device").capabilities.has(Capabilities::JOINT_COPIES));
    assert_eq!(bench.copies(own, &many(50)), 49, "one of them is empty");
    bench.end();
}

#[test]
fn a_queue_works_once_it_is_wrapped() {
    let bench = Bench::new("queue", &[]);
    let queue = bench.fake.list("zeCommandQueueCreate", bench.context, bench.device);
    assert_eq!(kind(bench.driver.wrap_queue(ZERO, 0, None)), Some(Kind::InvalidStream));
    let wrapped = bench.driver.wrap_queue(ZERO, queue, None).expect("wrapped");
    assert_ne!(wrapped.0, queue, "a key, not a pointer");
    assert_eq!(bench.copies(wrapped, &many(1)), 0);
    assert_eq!(bench.copies(wrapped, &[(3, 4, 5)]), 1);
    assert_eq!(bench.copies(wrapped, &many(300)), 1);
    let (own, timeline) = (stream(&*bench.driver), bench.driver.timeline_create(ZERO).expect("a timeline"));
    bench.driver.timeline_write(wrapped, timeline, 3).expect("written");
    bench.driver.stream_wait(own, timeline, 3).expect("waits");
    bench.driver.timeline_write(own, timeline, 5).expect("written");
    bench.driver.stream_wait(wrapped, timeline, 5).expect("waits");
    bench.driver.timeline_wait(timeline, 5).expect("reached");
    bench.driver.streams().synchronize(wrapped).expect("idle");
    bench.driver.timeline_destroy(timeline).expect("nothing is owed");
    bench.driver.streams().destroy(wrapped).expect("the number goes");
    assert_eq!(kind(bench.driver.is_capturing(ZERO, wrapped)), Some(Kind::InvalidStream));
    bench.fake.must("zeCommandQueueDestroy", &[queue]);
    bench.end();
}

#[test]
fn a_queue_s_group_must_be_known() {
    let fake = Fake::build("group", &["-DzeCommandQueueGetOrdinal=hidden"]);
    let (context, device) = (fake.context(), fake.device());
    let driver = LevelZeroDriver::attach(Some(&fake.path), context, device).expect("attached");
    let queue = fake.list("zeCommandQueueCreate", context, device);
    assert_eq!(kind(driver.wrap_queue(ZERO, queue, None)), Some(Kind::InvalidArgument));
    let wrapped = driver.wrap_queue(ZERO, queue, Some(1)).expect("wrapped");
    driver.streams().synchronize(wrapped).expect("works");
    drop(driver);
    fake.must("zeContextDestroy", &[context]);
    fake.clean();
}

#[test]
fn what_is_pending_is_in_use() {
    let bench = Bench::new("pending", &[]);
    let driver = &bench.driver;
    let (first, second) = (stream(&**driver), stream(&**driver));
    let timeline = driver.timeline_create(ZERO).expect("a timeline");
    bench.fake.hold(true);
    driver.timeline_write(first, timeline, 1).expect("written");
    assert_eq!(kind(driver.timeline_destroy(timeline)), Some(Kind::InUse));
    driver.stream_wait(second, timeline, 1).expect("its write is enqueued");
    assert_eq!(kind(driver.stream_wait(second, timeline, 2)), Some(Kind::Unsupported), "this one's is not");
    driver.stream_wait(first, timeline, 1).expect("the same stream need not wait");
    assert_eq!(driver.timeline_read(timeline).expect("read"), 0);
    bench.fake.hold(false);
    driver.timeline_wait(timeline, 1).expect("reached");
    driver.streams().synchronize(second).expect("let go");
    driver.timeline_destroy(timeline).expect("nothing is owed");
    bench.end();
}

/// Events are used again, and never while a stream still has them: the fake counts that as a breach.
#[test]
fn events_are_used_again() {
    let bench = Bench::new("events", &[("FAKE_ZE_QUEUES", 4)]);
    let driver = &bench.driver;
    let streams: Vec<Stream> = (0..4).map(|_| stream(&**driver)).collect();
    let timelines: Vec<_> = (0..4).map(|_| driver.timeline_create(ZERO).expect("a timeline")).collect();
    for round in 1..=200_u64 {
        for (i, stream) in streams.iter().enumerate() {
            driver.timeline_write(*stream, timelines[i], round).expect("written");
            driver.stream_wait(streams[(i + 1) % 4], timelines[i], round).expect("waits");
        }
    }
    for timeline in &timelines {
        driver.timeline_wait(*timeline, 200).expect("reached");
    }
    for stream in streams {
        driver.streams().destroy(stream).expect("destroyed");
    }
    timelines.into_iter().for_each(|timeline| driver.timeline_destroy(timeline).expect("destroyed"));
    let made = bench.fake.calls("zeEventCreate");
    assert!(made <= 200 * 8, "{made} events");
    bench.end();
}

#[test]
fn threads_may_share_a_stream() {
    let bench = Bench::new("threads", &[("FAKE_ZE_QUEUES", 2)]);
    let foreign = bench.fake.list("zeCommandListCreateImmediate", bench.context, bench.device);
    let own = stream(&*bench.driver);
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let (bench, shared) = (&bench, if thread % 2 == 0 { own } else { Stream(foreign) });
            scope.spawn(move || {
                let timeline = bench.driver.timeline_create(ZERO).expect("a timeline");
                for value in 1..=20 {
                    bench.copies(shared, &many(10 + thread as usize));
                    bench.driver.timeline_write(shared, timeline, value).expect("written");
                    bench.driver.timeline_wait(timeline, value).expect("reached");
                }
                bench.driver.timeline_destroy(timeline).expect("destroyed");
            });
        }
    });
    // Destroyed while others use it: each of their calls works, or is told that the stream is gone.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let tell = |result: Result<(), Error>| {
                    assert!(matches!(kind(result), None | Some(Kind::InvalidStream)));
                };
                (0..50).for_each(|_| tell(bench.driver.streams().synchronize(own)));
            });
        }
        std::thread::sleep(Duration::from_millis(2));
        bench.driver.streams().destroy(own).expect("destroyed");
    });
    bench.fake.must("zeCommandListDestroy", &[foreign]);
    bench.end();
}

#[test]
fn streams_that_are_none_are_refused() {
    let bench = Bench::new("none", &[]);
    let driver = &bench.driver;
    let timeline = driver.timeline_create(ZERO).expect("a timeline");
    let desc = [0xf_u32, 0, 0, 0, 1, 0];
    let mut regular = 0_u64;
    let words = [bench.context, bench.device, desc.as_ptr() as u64, &raw mut regular as u64];
    bench.fake.must("zeCommandListCreate", &words);
    for wrong in [0, 0x5a45 << 48 | 999, regular] {
        assert_eq!(kind(driver.timeline_write(Stream(wrong), timeline, 1)), Some(Kind::InvalidStream));
        assert_eq!(kind(driver.streams().synchronize(Stream(wrong))), Some(Kind::InvalidStream));
        assert_eq!(kind(driver.streams().destroy(Stream(wrong))), Some(Kind::InvalidStream));
    }
    driver.timeline_destroy(timeline).expect("unused");
    bench.fake.must("zeCommandListDestroy", &[regular]);
    bench.end();
}

#[test]
fn nothing_is_put_into_somebody_else_s_capture() {
    let bench = Bench::new("capture", &[]);
    let list = bench.fake.list("zeCommandListCreateImmediate", bench.context, bench.device);
    let timeline = bench.driver.timeline_create(ZERO).expect("a timeline");
    assert!(!bench.driver.is_capturing(ZERO, Stream(list)).expect("asked"));
    bench.fake.call("fake_ze_capture", &[list, 1]);
    assert!(bench.driver.is_capturing(ZERO, Stream(list)).expect("asked"));
    let refused = kind(bench.driver.timeline_write(Stream(list), timeline, 1));
    assert_eq!(refused, Some(Kind::StreamCapturing));
    assert_eq!(kind(bench.driver.stream_wait(Stream(list), timeline, 0)), Some(Kind::StreamCapturing));
    bench.fake.call("fake_ze_capture", &[list, 0]);
    bench.driver.timeline_write(Stream(list), timeline, 1).expect("written");
    bench.driver.timeline_wait(timeline, 1).expect("reached");
    bench.driver.timeline_destroy(timeline).expect("destroyed");
    bench.end();
}

/// A lost device ends every wait with that, and what was enqueued never comes.
#[test]
fn a_lost_device_ends_waits() {
    let fake = Fake::build("lost", &[]).set("FAKE_ZE_DEVICES", 1);
    let driver = Arc::new(fake.driver());
    let (own, timeline) = (stream(&*driver), driver.timeline_create(ZERO).expect("a timeline"));
    fake.hold(true);
    driver.timeline_write(own, timeline, 1).expect("written");
    std::thread::scope(|scope| {
        let waits = [
            scope.spawn(|| driver.timeline_wait(timeline, 1)),
            scope.spawn(|| driver.timeline_wait(timeline, 7)),
            scope.spawn(|| driver.streams().synchronize(own)),
        ];
        std::thread::sleep(Duration::from_millis(30));
        fake.call("fake_ze_break", &[0, 0x7000_0001]);
        fake.hold(false);
        for wait in waits {
            let error = wait.join().expect("no panic").expect_err("lost");
            assert_eq!((error.kind, error.native.map(|n| n.code)), (Kind::DeviceLost, Some(0x7000_0001)));
            assert!(error.hint.contains("restart"), "{error}");
        }
    });
    assert_eq!(kind(driver.timeline_write(own, timeline, 2)), Some(Kind::DeviceLost));
    driver.timeline_destroy(timeline).expect("nothing is owed any more");
    driver.streams().destroy(own).expect("it is gone all the same");
    fake.no_breach();
}

/// A copy from where nothing is loses the device: Level Zero tells no fault apart.
#[test]
fn a_fault_is_a_lost_device() {
    let fake = Fake::build("fault", &[]).set("FAKE_ZE_DEVICES", 1);
    let driver = fake.driver();
    let (own, timeline) = (stream(&driver), driver.timeline_create(ZERO).expect("a timeline"));
    let slice = CopySlice { dst: DevicePtr(4096), src: DevicePtr(8192), bytes: 64 };
    driver.copy(ZERO, own, &[slice]).expect("enqueued");
    let write = driver.timeline_write(own, timeline, 1);
    let error = write.and_then(|()| driver.timeline_wait(timeline, 1)).expect_err("lost");
    assert_eq!(error.kind, Kind::DeviceLost);
    fake.no_breach();
}

#[test]
fn streams_of_two_drivers_do_not_wait_for_each_other() {
    let fake = Fake::build("apart2", &[]).set("FAKE_ZE_DRIVERS", 2);
    let driver = fake.driver();
    let (here, there) = (stream(&driver), driver.streams().create(Ordinal(1)).expect("a stream"));
    let timeline = driver.timeline_create(ZERO).expect("a timeline");
    fake.hold(true);
    driver.timeline_write(here, timeline, 1).expect("written");
    let refused = driver.stream_wait(there, timeline, 1).expect_err("another context");
    assert!(refused.kind == Kind::Unsupported && refused.hint.contains("two drivers"), "{refused}");
    fake.hold(false);
    driver.timeline_wait(timeline, 1).expect("the host waits for both");
    driver.stream_wait(there, timeline, 1).expect("nothing to wait for");
    driver.timeline_destroy(timeline).expect("destroyed");
    drop(driver);
    fake.clean();
}

#[test]
fn a_failed_copy_or_write_leaves_everything_usable() {
    let bench = Bench::new("halfway", &[]);
    let driver = &bench.driver;
    let (own, timeline) = (stream(&**driver), driver.timeline_create(ZERO).expect("a timeline"));
    let buffer = bench.buffer(&noise(8192, 1));
    let slices: Vec<CopySlice> = (0..4)
        .map(|i| CopySlice { dst: at(buffer, 4096 + i * 64), src: at(buffer, i * 64), bytes: 64 })
        .collect();
    for (function, blamed) in [
        ("zeCommandListAppendMemoryCopy", Some(2)),
        ("zeCommandListClose", None),
        ("zeCommandListImmediateAppendCommandListsExp", None),
        ("zeCommandListCreate", None),
    ] {
        bench.fake.fail(function, if blamed.is_some() { 3 } else { 1 }, 0x7000_0002);
        let copied = driver.copy(ZERO, own, &slices);
        if function == "zeCommandListCreate" {
            copied.expect("the list from before is used again");
            bench.fake.fail("zeCommandListCreate", 0, 0);
            continue;
        }
        let error = copied.expect_err("failed");
        assert_eq!((error.kind, error.entry), (Kind::OutOfHostMemory, blamed), "{function}: {error}");
    }
    bench.fake.fail("zeCommandListAppendBarrier", 1, 0x7000_0002);
    assert_eq!(kind(driver.timeline_write(own, timeline, 1)), Some(Kind::OutOfHostMemory));
    driver.timeline_write(own, timeline, 1).expect("written");
    driver.timeline_wait(timeline, 1).expect("reached");
    driver.timeline_destroy(timeline).expect("destroyed");
    driver.deallocate(ZERO, buffer).expect("freed");
    bench.end();
}
