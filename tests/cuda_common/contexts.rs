//! The caller's context is left alone, and a framework's own is accepted.

use super::{Bench, mapped, noise};
use gvmm::driver::{CopySlice, Stream};
use gvmm::units::{ByteSize, DevicePtr};

/// The caller's current context is as before after every call, whether there was one or not.
pub(crate) fn contexts_are_left_alone(bench: &Bench) {
    let all = || {
        use_everything(bench);
        bench.native.current()
    };
    assert_eq!(bench.native.current(), 0, "a fresh thread");
    assert_eq!(all(), 0);
    let primary = bench.native.enter(0);
    assert_eq!(all(), primary);
    bench.native.leave();
    let own = bench.native.own_context(0);
    assert_eq!(all(), own);
    foreign_streams_work(bench);
    assert_eq!(bench.native.current(), own);
    bench.native.call("cuCtxDestroy_v2", own, 0, 0);
    assert_eq!(all(), 0);
}

/// A call of every kind, good and refused. What is copied is mapped memory: plain memory belongs to one context.
fn use_everything(bench: &Bench) {
    let driver = &bench.driver;
    driver.memory(bench.device).expect("memory");
    let stream = bench.stream();
    let timeline = driver.timeline_create(bench.device).expect("a timeline");
    driver.timeline_write(stream, timeline, 1).expect("written");
    driver.stream_wait(stream, timeline, 1).expect("waits");
    driver.timeline_wait(timeline, 1).expect("reached");
    bench.wait(stream);
    driver.timeline_destroy(timeline).expect("destroyed");
    let (range, block) = mapped(bench, 1);
    let slice = CopySlice { dst: DevicePtr(range.start().get() + 32), src: range.start(), bytes: 32 };
    driver.copy(bench.device, stream, &[slice]).expect("copied");
    driver.copy(bench.device, Stream(0), &[slice]).expect("on the default stream");
    bench.wait(stream);
    let nobody = bench.native.current() == 0;
    if nobody {
        bench.native.enter(bench.device.0);
    }
    bench.native.must("cuStreamSynchronize", 0, 0, 0);
    if nobody {
        bench.native.leave();
    }
    driver.free(range).expect_err("still mapped");
    driver.unmap(range).expect("unmapped");
    driver.unmap(range).expect_err("not mapped");
    driver.release(block).expect("released");
    driver.free(range).expect("freed");
    driver.allocate(bench.device, ByteSize(1 << 60)).expect_err("too much");
    driver.streams().destroy(stream).expect("destroyed");
}

/// A stream of a framework's own context, which is current.
fn foreign_streams_work(bench: &Bench) {
    let stream = bench.native.stream();
    let (range, block) = mapped(bench, 1);
    let (src, dst) = (range.start(), DevicePtr(range.start().get() + 4096));
    bench.native.write(bench.device.0, src, &noise(4096, 5));
    let timeline = bench.driver.timeline_create(bench.device).expect("a timeline");
    bench.driver.copy(bench.device, stream, &[CopySlice { dst, src, bytes: 4096 }]).expect("copied");
    bench.driver.timeline_write(stream, timeline, 7).expect("written");
    bench.driver.timeline_wait(timeline, 7).expect("reached");
    assert!(!bench.driver.is_capturing(bench.device, stream).expect("asked"));
    assert_eq!(bench.native.read(bench.device.0, dst, 4096), noise(4096, 5));
    bench.driver.timeline_destroy(timeline).expect("destroyed");
    bench.native.call("cuStreamDestroy_v2", stream.0, 0, 0);
    bench.driver.unmap(range).expect("unmapped");
    bench.driver.release(block).expect("released");
    bench.driver.free(range).expect("freed");
}
