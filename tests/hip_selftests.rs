//! Lines of the quirk table about streams and graphs, and those that depend on the hardware: the self-tests that run
//! when a device opens, and what follows from them.

mod hip_common;

use gvmm::driver::hip::{HipDriver, Verdict};
use gvmm::driver::{Capabilities, CopySlice, CreateOptions, Driver, TimelineId};
use gvmm::error::{Error, Kind};
use gvmm::units::{ByteSize, DevicePtr};
use hip_common::{FIRST, Fake, Parts, SECOND, copy, granule, kind, line};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The name and the end of the one self-test that ran.
fn the_test(driver: &HipDriver) -> (&'static str, Verdict) {
    driver.device_info(FIRST).expect("a device");
    let tests = driver.self_tests(FIRST).expect("a device");
    assert_eq!(tests.len(), 1, "{tests:?}");
    (tests[0].name, tests[0].verdict.clone())
}

#[test]
fn fresh_mappings_are_tried_on_gfx1201() {
    const NAME: &str = "a kernel sees a fresh mapping";
    let good = Fake::build("fresh-good", &[]).version(7, 14).arch("gfx1201");
    let driver = good.driver();
    assert_eq!(the_test(&driver), (NAME, Verdict::Passed));
    drop(driver);
    good.clean();
    let fake = Fake::build("fresh", &[]).version(7, 14).arch("gfx1201").with("fresh-zeros");
    let driver = fake.driver();
    assert!(matches!(the_test(&driver), (NAME, Verdict::Failed(_))));
    let capabilities = driver.device_info(FIRST).expect("a device").capabilities;
    assert!(!capabilities.has(Capabilities::VIRTUAL_MEMORY));
    let error = driver.create(FIRST, granule(&driver).size(), CreateOptions::default()).expect_err("refused");
    assert_eq!(error.kind, Kind::Unsupported);
    assert!(error.hint.contains("self-test"), "{error}");
    drop(driver);
    // Without the care, what is read right after a map is wrong.
    let driver = fake.without("hip-fresh-zeros");
    assert!(driver.self_tests(FIRST).expect("a device").is_empty());
    let parts = Parts::new(&driver, 1).map(&driver);
    driver.set_access(parts.range, &[line(FIRST)]).expect("accessible");
    fake.write(FIRST, parts.range.start(), &[9; 16]);
    driver.unmap(parts.range).expect("unmapped");
    let buffer = driver.allocate(FIRST, ByteSize(16)).expect("memory");
    driver.map(parts.range, parts.blocks[0]).expect("mapped");
    driver.set_access(parts.range, &[line(FIRST)]).expect("accessible");
    copy(&driver, FIRST, buffer, parts.range.start(), 16);
    assert_eq!(fake.read(FIRST, buffer, 16), [0; 16]);
    driver.deallocate(FIRST, buffer).expect("freed");
    parts.end(&driver);
    drop(driver);
    fake.clean();
}

/// Copies into a buffer and launches a graph that reads it; what the graph saw.
fn before_a_graph(fake: &Fake, driver: &HipDriver) -> Result<u8, Error> {
    let at = driver.allocate(FIRST, ByteSize(4096))?;
    let [source, buffer, target] = [0, 256, 512].map(|o| DevicePtr(at.get() + o));
    fake.write(FIRST, at, &[0; 1024]);
    fake.write(FIRST, source, &[8]);
    let stream = driver.streams().create(FIRST)?;
    driver.streams().capture_begin(stream)?;
    driver.copy(FIRST, stream, &[CopySlice { dst: target, src: buffer, bytes: 1 }])?;
    let graph = driver.streams().capture_end(stream)?;
    let copied = driver.copy(FIRST, stream, &[CopySlice { dst: buffer, src: source, bytes: 1 }]);
    let seen = copied.and_then(|_| {
        driver.streams().launch(graph, stream)?;
        driver.streams().synchronize(stream)?;
        Ok(fake.read(FIRST, target, 1)[0])
    });
    driver.streams().destroy_graph(graph)?;
    driver.streams().destroy(stream)?;
    driver.deallocate(FIRST, at)?;
    seen
}

#[test]
fn copies_before_graphs_are_tried_on_gfx950() {
    const NAME: &str = "a graph sees what its stream wrote before";
    let build = |name: &str| Fake::build(name, &[]).version(7, 2).arch("gfx950");
    let good = build("graph-good");
    let driver = good.driver();
    assert_eq!(the_test(&driver), (NAME, Verdict::Passed));
    assert!(driver.copies_before_graphs(FIRST).expect("a device"));
    assert_eq!(before_a_graph(&good, &driver), Ok(8));
    // A wait on the host helps: each copy is waited for.
    let fake = build("graph-stale").with("stale-graph");
    let driver = fake.driver();
    assert!(matches!(the_test(&driver), (NAME, Verdict::Failed(_))));
    assert!(!driver.copies_before_graphs(FIRST).expect("a device"));
    assert_eq!(before_a_graph(&fake, &driver), Ok(8));
    drop(driver);
    assert_eq!(before_a_graph(&fake, &fake.without("hip-stale-graph")), Ok(0));
    fake.clean();
    // Nothing helps: copies outside of graphs are refused.
    let fake = build("graph-always").with("stale-graph").with("stale-always");
    let driver = fake.driver();
    assert!(matches!(the_test(&driver), (NAME, Verdict::Failed(_))));
    assert_eq!(kind(before_a_graph(&fake, &driver)), Some(Kind::Unsupported));
    drop(driver);
    fake.clean();
}

#[test]
fn graphs_are_not_patched() {
    let fake = Fake::build("patch", &[]);
    let says = |driver: &HipDriver| {
        let info = driver.device_info(FIRST).expect("a device");
        (driver.may_patch(FIRST).expect("a device"), info.capabilities.has(Capabilities::PATCHES))
    };
    assert_eq!(says(&fake.driver()), (false, false), "whatever commands a binding's caller names");
    assert_eq!(says(&fake.without("hip-graph-patch")), (true, true));
    before_a_graph(&fake, &fake.driver()).expect("it runs");
    // The fake counts every call that changes a graph as a breach.
    fake.clean();
    fake.call("hipGraphExecUpdate", [0; 4]);
    assert_eq!(fake.breaches(), 1);
}

/// Lets a stream of one device wait for another's value; true where it is let go in time.
fn across_devices(fake: &Fake, driver: &HipDriver) -> bool {
    let timeline: TimelineId = driver.timeline_create(FIRST).expect("a timeline");
    let (writer, waiter) = (
        driver.streams().create(SECOND).expect("a stream"),
        driver.streams().create(FIRST).expect("a stream"),
    );
    driver.timeline_write(writer, timeline, 1).expect("written");
    driver.stream_wait(waiter, timeline, 1).expect("waits");
    let passed = Arc::new(AtomicBool::new(false));
    let set = passed.clone();
    driver.streams().enqueue(waiter, Arc::new(move || set.store(true, Ordering::SeqCst))).expect("enqueued");
    let start = Instant::now();
    while !passed.load(Ordering::SeqCst) && start.elapsed() < Duration::from_millis(500) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let in_time = passed.load(Ordering::SeqCst);
    fake.show("stream-values", false);
    [writer, waiter].into_iter().for_each(|s| driver.streams().destroy(s).expect("destroyed"));
    driver.timeline_destroy(timeline).expect("destroyed");
    in_time
}

#[test]
fn timelines_are_events_where_values_deadlock() {
    let fake = Fake::build("values", &[]).with("stream-values");
    assert!(across_devices(&fake, &fake.driver()));
    fake.show("stream-values", true);
    assert!(!across_devices(&fake, &fake.without("hip-stream-values")));
    fake.clean();
}
