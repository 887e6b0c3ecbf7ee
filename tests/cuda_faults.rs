//! What CUDA's driver says when things go wrong, and what is left of it: each case in a process of its own, since some
//! end the process's use of the device. On a real GPU where there is one (else skipped visibly), and on the fake.
#![allow(unsafe_code, reason = "sets the limit of a child process")]

mod cuda_common;

use cuda_common::fake::Fake;
use cuda_common::{Bench, RW, mapped, noise};
use gvmm::driver::cuda::CudaDriver;
use gvmm::driver::{Access, CopySlice, CreateOptions, Ordinal, RouteSlice, Way};
use gvmm::error::{Error, Kind};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Device, Owner};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A case: why it cannot be made, or nothing once it held.
type Case = fn(&Bench) -> Result<(), &'static str>;

const CASES: &[(&str, Case)] = &[
    ("a fault ends every wait and every later call", fault),
    ("a context that its owner has reset is told as such", reset),
    ("the end of file descriptors has a status of its own", descriptors),
    ("a device that is not there is refused by number", no_such_device),
    ("a peer that cannot be reached is refused and nothing changes", unreachable_peer),
    ("more memory than there is is refused and nothing changes", too_much),
];

/// Runs one case in this process, which the parent has started for it.
#[test]
#[ignore = "run by the others, in a process of its own"]
fn child() {
    let wanted = std::env::var("GVMM_TEST_CASE").expect("the parent names it");
    let (name, case) = CASES.iter().find(|(name, _)| *name == wanted).expect("a case");
    let path = std::env::var_os("GVMM_CUDA_LIBRARY").map(PathBuf::from);
    let bench = Bench::new(CudaDriver::open(path.as_deref()).expect("the parent has looked"));
    let result = case(&bench);
    // What is left is closed, whatever state it is in.
    drop(bench);
    match result {
        Ok(()) => println!("held: {name}"),
        Err(reason) => println!("skipped: {name}: {reason}"),
    }
}

/// Runs a case in a child process with the library at `path`, and gives what it printed.
fn run(name: &str, path: Option<&PathBuf>, settings: &[(&str, &str)]) -> String {
    let this = std::env::current_exe().expect("this program");
    let mut command = Command::new(this);
    command.args(["--ignored", "--exact", "child", "--nocapture"]).env("GVMM_TEST_CASE", name);
    command.envs(settings.iter().copied()).envs(path.map(|path| ("GVMM_CUDA_LIBRARY", path)));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let start = Instant::now();
    while child.try_wait().expect("it can be watched").is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().expect("it ends");
            panic!("it does not end: {name}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("it has ended");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{all}", output.status);
    all
}

#[test]
fn on_the_fake_every_case_holds() {
    let fake = Fake::build("faults", &[]);
    for (name, _) in CASES {
        let apart = name.contains("cannot be reached");
        let peers = if apart { "0" } else { "1" };
        let text = run(name, Some(&fake.path), &[("FAKE_CUDA_TRACE", "1"), ("FAKE_CUDA_PEERS", peers)]);
        assert!(text.contains(&format!("held: {name}")), "{text}");
        assert!(!text.contains("fake_cuda breach"), "{text}");
    }
}

#[test]
fn on_the_gpu_every_case_holds() {
    let path = std::env::var_os("GVMM_CUDA_LIBRARY").map(PathBuf::from);
    if let Err(error) = CudaDriver::open(path.as_deref()) {
        println!("skipped: {error}");
        assert!(
            std::env::var_os("GVMM_NO_SKIP").is_none_or(|v| v != "1"),
            "GVMM_NO_SKIP=1 and skipped: {error}"
        );
        return;
    }
    for (name, _) in CASES {
        let text = run(name, path.as_ref(), &[]);
        text.lines().filter(|l| !l.is_empty() && !l.starts_with("test ")).for_each(|l| println!("{l}"));
        assert!(text.contains(&format!("held: {name}")) || text.contains("skipped: "), "{text}");
    }
}

fn is_fault(error: &Error) -> bool {
    matches!(error.kind, Kind::DeviceFault | Kind::DeviceLost) && error.hint.contains("restart the process")
}

/// The call fails with the device's failure, which says what to do.
fn faults<T>(what: &str, result: Result<T, Error>) {
    let error = result.err().unwrap_or_else(|| panic!("{what} works on a device that failed"));
    assert!(is_fault(&error), "{what}: {error}");
    assert!(error.native.is_some_and(|n| matches!(n.code, 700 | 719)), "{what}: {error}");
}

/// A copy from an address where nothing is.
fn fault(bench: &Bench) -> Result<(), &'static str> {
    let (driver, device) = (&bench.driver, bench.device);
    let granule = driver.granularity(device, ByteSize(1)).expect("a granule");
    let hole = driver.reserve(device, granule.size(), granule).expect("a range");
    let (range, block) = mapped(bench, 1);
    let dst = bench.buffer(&[0; 256]);
    let (stream, other) = (bench.stream(), bench.stream());
    let timeline = driver.timeline_create(device).expect("a timeline");
    let above = Device::open(driver.clone(), device).expect("a device");
    let kept = above.create_block(granule.size(), CreateOptions::default()).expect("a block");
    let slices = [64, 0].map(|at| CopySlice { dst: DevicePtr(dst.get() + at), src: hole.start(), bytes: 64 });
    driver.copy(device, stream, &slices).expect("enqueued");
    let write = driver.timeline_write(stream, timeline, 1);
    let error = write.and_then(|()| driver.timeline_wait(timeline, 1)).expect_err("the copy failed");
    println!("{error}");
    faults("a wait", Err::<(), _>(error));
    // For good, on every stream.
    let slice = CopySlice { dst, src: range.start(), bytes: 64 };
    faults("a stream", driver.streams().synchronize(stream));
    faults("another stream", driver.streams().synchronize(other));
    faults("a copy", driver.copy(device, other, &[slice]));
    faults("a write", driver.timeline_write(other, timeline, 2));
    faults("a wait", driver.timeline_wait(timeline, 2));
    faults("a new stream", driver.streams().create(device));
    faults("memory", driver.allocate(device, ByteSize(64)));
    faults("the figures", driver.memory(device));
    // Memory calls may go on or fail like the others; nothing else, and nothing is lost in our books.
    let ended = [driver.unmap(range), driver.release(block), driver.free(range), driver.free(hole)];
    for result in ended {
        if let Err(error) = result {
            assert!(is_fault(&error) || error.kind == Kind::InUse, "{error}");
        }
    }
    let _ = driver.deallocate(device, dst);
    let _ = driver.timeline_destroy(timeline);
    drop(kept);
    let _ = above.drain();
    Ok(())
}

/// The primary context is reset while we have streams, timelines and memory.
fn reset(bench: &Bench) -> Result<(), &'static str> {
    let (driver, device) = (&bench.driver, bench.device);
    let (range, block) = mapped(bench, 1);
    let stream = bench.stream();
    let timeline = driver.timeline_create(device).expect("a timeline");
    driver.timeline_write(stream, timeline, 1).expect("written");
    driver.timeline_wait(timeline, 1).expect("reached");
    let slice = CopySlice { dst: DevicePtr(range.start().get() + 64), src: range.start(), bytes: 64 };
    let stays = [RouteSlice { near: slice.dst, bytes: 64 }];
    let route = driver.route_create(device, Way::In, &stays).expect("a route");
    // Twice, so that the stream is known.
    for _ in 0..2 {
        driver.route_copy(device, stream, route, &[slice]).expect("copied");
    }
    driver.timeline_write(stream, timeline, 2).expect("written");
    driver.timeline_wait(timeline, 2).expect("reached");
    bench.native.must("cuDevicePrimaryCtxReset_v2", u64::from(device.0), 0, 0);
    let told = |what: &str, result: Result<(), Error>| {
        let error = result.err().unwrap_or_else(|| panic!("{what} works in a context that is gone"));
        assert_eq!(error.kind, Kind::WrongState, "{what}: {error}");
        assert!(error.hint.contains("destroyed or reset") && error.hint.contains("open"), "{what}: {error}");
        assert!(error.native.is_some_and(|n| matches!(n.code, 201 | 709)), "{what}: {error}");
    };
    told("a copy", driver.copy(device, stream, &[slice]).map(drop));
    told("a route's copy", driver.route_copy(device, stream, route, &[slice]).map(drop));
    told("a write", driver.timeline_write(stream, timeline, 3));
    told("a stream", driver.streams().synchronize(stream));
    told("a new stream", driver.streams().create(device).map(drop));
    told("memory", driver.allocate(device, ByteSize(64)).map(drop));
    // What is mapped may be given back or not; nothing ends the process.
    for result in [driver.unmap(range), driver.release(block), driver.free(range)] {
        if let Err(error) = result {
            println!("afterwards: {error}");
        }
    }
    // A driver that is opened again goes on.
    let again = CudaDriver::open(std::env::var_os("GVMM_CUDA_LIBRARY").map(PathBuf::from).as_deref());
    println!("again: {}", again.is_ok());
    Ok(())
}

fn limit_descriptors(most: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the output is valid for the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    limit.rlim_cur = most.min(limit.rlim_max);
    // SAFETY: the limit is valid for the call; nothing else runs in this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

fn descriptors(bench: &Bench) -> Result<(), &'static str> {
    let (driver, device) = (&bench.driver, bench.device);
    let size = ByteSize(bench.granule());
    let make = || driver.create(device, size, CreateOptions { exportable: true, ..CreateOptions::default() });
    let (block, before) = (make().expect("a block"), driver.memory(device).expect("figures").free);
    drop(driver.export(block).expect("exported"));
    let open = std::fs::read_dir("/proc/self/fd").expect("our own").count() as u64;
    limit_descriptors(open + 12);
    let (mut blocks, mut files) = (Vec::new(), Vec::new());
    let error = loop {
        assert!(files.len() < 100, "they never end");
        match make().and_then(|block| {
            blocks.push(block);
            driver.export(block)
        }) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    println!("{} exported, then {error}", files.len());
    assert_eq!(error.kind, Kind::OutOfFileDescriptors, "{error}");
    assert!(!files.is_empty() && error.size == size, "{error}");
    // With some closed it goes on, and all is given back.
    files.clear();
    drop(driver.export(block).expect("again"));
    blocks.into_iter().for_each(|block| driver.release(block).expect("released"));
    assert_eq!(driver.memory(device).expect("figures").free, before);
    driver.release(block).expect("released");
    Ok(())
}

fn no_such_device(bench: &Bench) -> Result<(), &'static str> {
    let (driver, device) = (&bench.driver, bench.device);
    let beyond = Ordinal(driver.device_count());
    let refused = |what: &str, result: Result<(), Error>| {
        let error = result.err().unwrap_or_else(|| panic!("{what} works"));
        assert_eq!(error.kind, Kind::NoDevice, "{what}: {error}");
        assert!(error.hint.contains("gvmm_device_count"), "{what}: {error}");
        error
    };
    let granule = driver.granularity(device, ByteSize(1)).expect("a granule");
    refused("a description", driver.device_info(beyond).map(drop));
    refused("a block", driver.create(beyond, granule.size(), CreateOptions::default()).map(drop));
    refused("a range", driver.reserve(beyond, granule.size(), granule).map(drop));
    refused("a stream", driver.streams().create(beyond).map(drop));
    refused("the layer above", Device::open(driver.clone(), beyond).map(drop));
    let (range, block) = mapped(bench, 1);
    bench.native.write(device.0, range.start(), &noise(64, 3));
    let list = [Access { device, mode: RW }, Access { device: beyond, mode: RW }];
    let error = refused("an access list", driver.set_access(range, &list));
    assert_eq!(error.entry, Some(1), "the second line");
    assert_eq!(bench.native.read(device.0, range.start(), 64), noise(64, 3), "what was granted still is");
    driver.unmap(range).expect("unmapped");
    driver.release(block).expect("released");
    driver.free(range).expect("freed");
    Ok(())
}

fn unreachable_peer(bench: &Bench) -> Result<(), &'static str> {
    let (driver, device, peer) = (&bench.driver, bench.device, Ordinal(1));
    if driver.device_count() < 2 {
        return Err("one device only");
    }
    let (range, block) = mapped(bench, 1);
    bench.native.write(device.0, range.start(), &noise(64, 4));
    let list = [Access { device, mode: RW }, Access { device: peer, mode: RW }];
    let result = driver.set_access(range, &list);
    let reached = result.is_ok();
    if let Err(error) = result {
        assert_eq!((error.kind, error.entry), (Kind::Unsupported, Some(1)), "{error}");
        assert!(error.hint.contains("take it off the access list"), "{error}");
    }
    assert_eq!(bench.native.read(device.0, range.start(), 64), noise(64, 4), "what was granted still is");
    driver.unmap(range).expect("unmapped");
    driver.release(block).expect("released");
    driver.free(range).expect("freed");
    // The layer above refuses the same.
    let above = Device::open(driver.clone(), device).expect("a device");
    let reservation = above.reserve(ByteSize(bench.granule()), None, &list, Owner::Caller);
    assert!(reached || reservation.is_err() || reservation.is_ok_and(|r| r.is_empty()));
    if reached { Err("the devices reach each other") } else { Ok(()) }
}

fn too_much(bench: &Bench) -> Result<(), &'static str> {
    let (driver, device) = (&bench.driver, bench.device);
    let above = Device::open(driver.clone(), device).expect("a device");
    let granule = bench.granule();
    // What the driver takes for itself with the first block, it keeps.
    drop(above.create_block(ByteSize(granule), CreateOptions::default()).expect("a block"));
    above.drain().expect("drained");
    let figures = driver.memory(device).expect("figures");
    let more = ByteSize((figures.total.get() / granule + 2) * granule);
    let refused = |what: &str, result: Result<(), Error>| {
        let error = result.err().unwrap_or_else(|| panic!("{what} works"));
        assert_eq!((error.kind, error.size), (Kind::OutOfDeviceMemory, more), "{what}: {error}");
    };
    refused("a block", driver.create(device, more, CreateOptions::default()).map(drop));
    refused("memory", driver.allocate(device, more).map(drop));
    let error = above.create_block(more, CreateOptions::default()).map(drop);
    println!("{}", error.as_ref().expect_err("too much"));
    refused("a block of the layer above", error);
    assert_eq!(driver.memory(device).expect("figures").free, figures.free, "nothing was taken");
    let block = above.create_block(ByteSize(granule), CreateOptions::default()).expect("a small one");
    drop(block);
    above.drain().expect("drained");
    assert_eq!(driver.memory(device).expect("figures").free, figures.free, "all was given back");
    Ok(())
}
