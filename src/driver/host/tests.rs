//! What is special about the host driver; what every driver must do is in `testing::conformance`.
#![allow(unsafe_code, reason = "a child made by fork")]

use super::HostDriver;
use crate::config::HostConfig;
use crate::driver::{
    Access, AccessMode, CopySlice, CreateOptions, Driver, NativeBlock, Ordinal, Stream, Streams,
};
use crate::error::{Kind, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const DEVICE: Ordinal = Ordinal(0);
const READ_WRITE: Access = Access { device: DEVICE, mode: AccessMode::READ_WRITE };
const GRANULE: Granularity = super::memory::GRANULE;

fn driver(config: HostConfig) -> HostDriver {
    HostDriver::new(config, None).expect("a driver")
}

fn small() -> HostDriver {
    driver(HostConfig { memory: 1 << 30, ..HostConfig::default() })
}

fn granules(n: u64) -> ByteSize {
    ByteSize::mib(2 * n)
}

fn part(range: DeviceRange, n: u64) -> DeviceRange {
    range.slice(granules(n), granules(1)).expect("inside")
}

fn block(d: &HostDriver) -> NativeBlock {
    Driver::create(d, DEVICE, granules(1), CreateOptions::default()).expect("a block")
}

/// A granule that the device may touch.
fn memory(d: &HostDriver) -> (DeviceRange, NativeBlock) {
    let (range, block) = (d.reserve(DEVICE, granules(1), GRANULE).expect("a range"), block(d));
    d.map(range, block).expect("a mapping");
    d.set_access(range, &[READ_WRITE]).expect("access");
    (range, block)
}

fn stream(d: &HostDriver) -> Stream {
    Streams::create(d, DEVICE).expect("a stream")
}

/// Writes a few bytes through a copy, from the test's own memory.
fn put(d: &HostDriver, to: DevicePtr, bytes: &[u8]) -> Result<()> {
    let stream = stream(d);
    let src = DevicePtr(bytes.as_ptr() as u64);
    let copied = d.copy(DEVICE, stream, &[CopySlice { dst: to, src, bytes: bytes.len() as u64 }]);
    let done = copied.and_then(|_| d.synchronize(stream));
    Streams::destroy(d, stream)?;
    done
}

fn get(d: &HostDriver, from: DevicePtr, size: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; size];
    let (stream, dst) = (stream(d), DevicePtr(bytes.as_mut_ptr() as u64));
    let slice = CopySlice { dst, src: from, bytes: size as u64 };
    d.copy(DEVICE, stream, &[slice]).expect("a copy");
    d.synchronize(stream).expect("no fault");
    bytes
}

fn maps(d: &HostDriver) -> u64 {
    d.memory.read().maps.used()
}

/// How many mappings of the process lie inside `range`.
fn system_maps(range: DeviceRange) -> u64 {
    let text = std::fs::read_to_string("/proc/self/maps").expect("the process's mappings");
    let starts = text.lines().filter_map(|line| u64::from_str_radix(line.split_once('-')?.0, 16).ok());
    starts.filter(|start| range.contains(DevicePtr(*start))).count() as u64
}

#[test]
fn the_map_budget_counts_mappings_and_holes_and_a_refusal_changes_nothing() {
    let d = driver(HostConfig { memory: 1 << 30, max_maps: 7, ..HostConfig::default() });
    let range = d.reserve(DEVICE, granules(8), GRANULE).expect("a range");
    assert_eq!(maps(&d), 1);
    // Every second granule: each mapping makes a hole beside it.
    for (n, used) in [(1, 3), (3, 5), (5, 7)] {
        d.map(part(range, n), block(&d)).expect("room for a mapping");
        assert_eq!(maps(&d), used);
        assert!(system_maps(range) <= used);
    }
    // At the border of a hole it costs one, inside a hole two: neither is left.
    let one_more = block(&d);
    for n in [6, 7] {
        let refused = d.map(part(range, n), one_more).expect_err("no mapping left");
        assert_eq!(refused.kind, Kind::MapLimit);
    }
    assert_eq!(d.reserve(DEVICE, granules(1), GRANULE).expect_err("none left").kind, Kind::MapLimit);
    assert_eq!(d.allocate(DEVICE, ByteSize(1)).expect_err("none left").kind, Kind::MapLimit);
    assert_eq!(maps(&d), 7);
    // A hole that is filled exactly costs nothing.
    d.map(part(range, 2), one_more).expect("the hole becomes the mapping");
    assert_eq!(maps(&d), 7);
    for n in [1, 2, 3, 5] {
        d.unmap(part(range, n)).expect("mapped");
    }
    assert_eq!(maps(&d), 1);
    d.free(range).expect("empty");
    assert_eq!(maps(&d), 0);
}

#[test]
fn memory_is_committed_when_touched_and_goes_back() {
    let d = small();
    let before = d.memory.store.file().committed();
    let (range, block) = memory(&d);
    assert_eq!(d.memory.store.file().committed(), before, "nothing was touched");
    put(&d, range.start(), b"one page").expect("access");
    let touched = d.memory.store.file().committed() - before;
    assert!((1..=64 << 10).contains(&touched), "one page or a few, not {touched} bytes");
    d.release(block).expect("a block");
    assert_eq!(get(&d, range.start(), 8), b"one page", "it lives while it is mapped");
    d.unmap(range).expect("mapped");
    assert_eq!(d.memory.store.file().committed(), before);
}

#[test]
fn parts_of_the_file_are_used_again_and_read_as_zero() {
    let d = small();
    for round in 0..50 {
        let (range, block) = memory(&d);
        assert_eq!(get(&d, range.start(), 4), [0; 4], "round {round}");
        put(&d, range.start(), b"full").expect("access");
        d.unmap(range).expect("mapped");
        d.release(block).expect("a block");
        d.free(range).expect("empty");
    }
    let (_, end) = d.memory.write().blocks.take_part(granules(1)).expect("a part");
    assert_eq!(end, granules(1).0, "the file did not grow");
}

#[test]
fn a_host_function_that_panics_stops_its_stream_only() {
    let d = small();
    let (bad, good, timeline) = (stream(&d), stream(&d), d.timeline_create(DEVICE).expect("a timeline"));
    let gate = d.timeline_create(DEVICE).expect("a timeline");
    d.stream_wait(bad, gate, 1).expect("enqueued");
    d.enqueue(bad, Arc::new(|| panic!("on purpose"))).expect("enqueued");
    d.timeline_write(bad, timeline, 1).expect("enqueued");
    d.timeline_write(good, gate, 1).expect("enqueued");
    assert_eq!(d.timeline_wait(timeline, 1).expect_err("never written").kind, Kind::DeviceFault);
    assert_eq!(d.synchronize(bad).expect_err("stopped").kind, Kind::DeviceFault);
    d.synchronize(good).expect("another stream");
    Streams::destroy(&d, bad).expect("a stopped stream can be destroyed");
}

#[test]
fn dropping_a_driver_gives_up_pending_work() {
    let d = small();
    let (stream, gate) = (stream(&d), d.timeline_create(DEVICE).expect("a timeline"));
    d.stream_wait(stream, gate, 1).expect("enqueued");
    let ran = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&ran);
    d.enqueue(stream, Arc::new(move || own.store(true, Ordering::SeqCst))).expect("enqueued");
    drop(d);
    assert!(!ran.load(Ordering::SeqCst));
    assert_eq!(Arc::strong_count(&ran), 1, "the function was dropped with the stream");
}

#[test]
fn the_last_reference_may_be_dropped_on_a_stream() {
    let d = Arc::new(small());
    let (stream, gate) = (stream(&d), Arc::new(AtomicBool::new(false)));
    let (own, open) = (std::sync::Mutex::new(Some(Arc::clone(&d))), Arc::clone(&gate));
    let wait_and_drop = move || {
        while !open.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(own.lock().expect("no panic").take());
    };
    d.enqueue(stream, Arc::new(wait_and_drop)).expect("enqueued");
    let weak = Arc::downgrade(&d);
    drop(d);
    gate.store(true, Ordering::SeqCst);
    while weak.strong_count() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_child_made_by_fork_takes_nothing_away() {
    let d = small();
    let (range, block) = memory(&d);
    let _stream = stream(&d);
    put(&d, range.start(), b"the parent's").expect("access");
    // SAFETY: the child calls the driver, whose locks nobody else holds, and then ends without clean-up.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = (d.unmap(range), d.release(block));
        drop(d);
        // SAFETY: ends this child at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child ended well");
    assert_eq!(get(&d, range.start(), 12), b"the parent's");
}

#[test]
fn copies_that_race_with_unmaps_fault_or_work() {
    let d = small();
    let (source, _) = memory(&d);
    let (range, block) = (d.reserve(DEVICE, granules(1), GRANULE).expect("a range"), block(&d));
    let mut faults = 0;
    for _ in 0..100 {
        d.map(range, block).expect("not mapped");
        d.set_access(range, &[READ_WRITE]).expect("mapped");
        let stream = stream(&d);
        let slice = CopySlice { dst: range.start(), src: source.start(), bytes: granules(1).0 };
        d.copy(DEVICE, stream, &[slice]).expect("enqueued");
        d.unmap(range).expect("mapped");
        match d.synchronize(stream) {
            Ok(()) => {}
            Err(error) if error.kind == Kind::DeviceFault => faults += 1,
            Err(error) => panic!("{error}"),
        }
        Streams::destroy(&d, stream).expect("a stream");
    }
    println!("{faults} of 100 copies saw the unmap");
}

/// What one of many threads does: everything, on things of its own and on blocks that all share.
fn hammer(d: &HostDriver, shared: NativeBlock, thread: u8) -> Result<()> {
    let (stream, timeline) = (Streams::create(d, DEVICE)?, d.timeline_create(DEVICE)?);
    for round in 1..=150_u8 {
        let range = d.reserve(DEVICE, granules(4), GRANULE)?;
        let own = Driver::create(d, DEVICE, granules(1), CreateOptions::default())?;
        let plain = d.allocate(DEVICE, ByteSize(4096))?;
        d.map(part(range, 1), own)?;
        d.map(part(range, 2), shared)?;
        d.set_access(range.slice(granules(1), granules(2)).expect("inside"), &[READ_WRITE])?;
        let bytes = [thread ^ round; 64];
        let at = part(range, 1).start();
        put(d, at, &bytes)?;
        let slices = [
            CopySlice { dst: plain, src: at, bytes: 64 },
            CopySlice {
                dst: DevicePtr(part(range, 2).start().0 + u64::from(thread) * 64),
                src: at,
                bytes: 64,
            },
        ];
        d.copy(DEVICE, stream, &slices)?;
        d.timeline_write(stream, timeline, round.into())?;
        d.timeline_wait(timeline, round.into())?;
        assert_eq!(get(d, plain, 64), bytes);
        assert_eq!(get(d, slices[1].dst, 64), bytes);
        d.unmap(part(range, 1))?;
        d.unmap(part(range, 2))?;
        d.free(range)?;
        d.release(own)?;
        d.deallocate(DEVICE, plain)?;
    }
    Streams::destroy(d, stream)?;
    d.timeline_destroy(timeline)
}

#[test]
fn eight_threads_on_one_driver() {
    let d = small();
    let (free, shared) = (d.memory(DEVICE).expect("figures").free, block(&d));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let d = &d;
            scope.spawn(move || hammer(d, shared, thread).expect("all calls work"));
        }
    });
    d.release(shared).expect("a block");
    assert_eq!(d.memory(DEVICE).expect("figures").free, free);
    assert_eq!(maps(&d), 0);
}

#[test]
fn names_that_do_not_exist_are_ignored() {
    let caps_off = vec!["aliasing".to_owned(), "levitation".to_owned()];
    let d = driver(HostConfig { caps_off, costs: Some("a fortune".to_owned()), ..HostConfig::default() });
    let info = d.device_info(DEVICE).expect("a device");
    assert!(!info.capabilities.has(crate::driver::Capabilities::ALIASING));
    assert!(info.capabilities.has(crate::driver::Capabilities::VIRTUAL_MEMORY));
    assert_eq!((info.simulated_costs, info.bandwidth), (None, 0));
    let many = HostDriver::new(HostConfig { devices: 65, ..HostConfig::default() }, None);
    assert_eq!(many.expect_err("too many").kind, Kind::InvalidArgument);
}

#[test]
fn costs_show_in_the_device_s_information_and_in_what_a_call_shall_take() {
    let d = driver(HostConfig { costs: Some("h200".to_owned()), devices: 2, ..HostConfig::default() });
    let info = d.device_info(DEVICE).expect("a device");
    assert_eq!(info.simulated_costs.as_deref(), Some("h200"));
    assert_eq!(info.bandwidth, crate::driver::h200::BANDWIDTH);
    let (range, _) = memory(&d);
    let peer = Access { device: Ordinal(1), mode: AccessMode::READ };
    let us = d.memory.set_access(range, &[READ_WRITE, peer]).expect("access");
    assert!(us >= 1000.0, "a peer costs that much at least, not {us}");
}
