//! The HIP driver against a fake library that is stricter than the real one and counts breaches of its rules. No AMD
//! hardware is needed, and none was at hand: see docs/hip.md.

mod hip_common;

use gvmm::driver::{Access, AccessMode, Capabilities, CopySlice, CreateOptions, Driver, Ordinal, Stream};
use gvmm::error::Kind;
use gvmm::units::{ByteSize, DevicePtr, Granularity};
use hip_common::{EVENTS, FIRST, Fake, Parts, SECOND, conforms, copy, counted, granule, kind, line};
use std::sync::Arc;

#[test]
fn the_driver_conforms() {
    let fake = Fake::build("conforms", &[]);
    let driver = fake.driver();
    let info = driver.device_info(SECOND).expect("a device");
    assert!(info.capabilities.has(Capabilities::JOINT_COPIES.with(Capabilities::VIRTUAL_MEMORY)));
    assert_eq!(info.bandwidth, 2 * 1_300_000_000 * 1024);
    assert_eq!(driver.architecture(FIRST).expect("a device"), "gfx942");
    assert!(!driver.may_patch(FIRST).expect("a device"));
    conforms(driver, EVENTS);
    fake.clean();
}

#[test]
fn every_release_conforms() {
    for (major, minor) in [(6, 0), (6, 4), (7, 0), (7, 1), (7, 10), (7, 14)] {
        let fake = Fake::build(&format!("conforms-{major}-{minor}"), &[]).version(major, minor);
        conforms(fake.driver(), EVENTS);
        fake.clean();
    }
}

#[test]
fn the_driver_conforms_with_values_in_memory() {
    let fake = Fake::build("values", &[]).set("FAKE_HIP_DEVICES", 1);
    conforms(fake.without("hip-stream-values"), (&[], ""));
    fake.clean();
}

#[test]
fn the_driver_conforms_without_virtual_memory_and_kernels() {
    let fake =
        Fake::build("plain", &[]).set("FAKE_HIP_VMM", 0).set("FAKE_HIP_RTC", 0).set("FAKE_HIP_BATCH", 0);
    let driver = fake.driver();
    let capabilities = driver.device_info(FIRST).expect("a device").capabilities;
    assert!(!capabilities.has(Capabilities::VIRTUAL_MEMORY) && !capabilities.has(Capabilities::JOINT_COPIES));
    conforms(driver, EVENTS);
    fake.clean();
}

#[test]
fn without_a_compiler_slices_go_in_one_call() {
    let fake = Fake::build("batch", &[]).set("FAKE_HIP_RTC", 0);
    let driver = fake.driver();
    let capabilities = driver.device_info(FIRST).expect("a device").capabilities;
    assert!(!capabilities.has(Capabilities::JOINT_COPIES), "a batch is a copy for each slice");
    let at = driver.allocate(FIRST, ByteSize(4096)).expect("memory");
    fake.write(FIRST, at, &[7; 100]);
    let stream = driver.streams().create(FIRST).expect("a stream");
    let slice =
        |i: u64| CopySlice { dst: DevicePtr(at.get() + 200 + i), src: DevicePtr(at.get() + i), bytes: 1 };
    let slices: Vec<_> = (0..100).map(slice).collect();
    assert_eq!(driver.copy(FIRST, stream, &slices).expect("copied"), 100);
    driver.streams().synchronize(stream).expect("done");
    assert_eq!((fake.calls("hipMemcpyBatchAsync"), fake.calls("hipMemcpyAsync")), (1, 0));
    assert_eq!(fake.read(FIRST, slice(0).dst, 100), [7; 100]);
    driver.deallocate(FIRST, at).expect("freed");
    drop(driver);
    let lacks = Fake::build("batchless", &["-DhipMemcpyBatchAsync=hidden", "-DhiprtcCreateProgram=hidden2"]);
    conforms(lacks.driver(), EVENTS);
    lacks.clean();
    fake.clean();
}

#[test]
fn slices_go_across_mappings_with_and_without_a_kernel() {
    for rtc in [1, 0] {
        let fake = Fake::build(&format!("across-{rtc}"), &[]).set("FAKE_HIP_RTC", rtc);
        let driver = fake.driver();
        let parts = Parts::new(&driver, 3).map(&driver);
        driver.set_access(parts.range, &[line(FIRST)]).expect("accessible");
        let size = parts.range.size().get() / 3;
        let (from, to) = (parts.range.start(), DevicePtr(parts.range.start().get() + size + size / 2));
        for (at, byte) in [(0, 1), (size / 2, 2), (size - 1, 3)] {
            fake.write(FIRST, DevicePtr(from.get() + at), &[byte]);
        }
        copy(&driver, FIRST, to, from, size);
        let read = |at: u64| fake.read(FIRST, DevicePtr(to.get() + at), 1)[0];
        assert_eq!([read(0), read(size / 2), read(size - 1)], [1, 2, 3]);
        parts.end(&driver);
        drop(driver);
        fake.clean();
    }
}

#[test]
fn absence_has_a_reason() {
    let told = |fake: Fake| {
        let error = fake.open(&[]).expect_err("absent");
        (error.kind, error.hint, error.native.map(|n| n.code))
    };
    let (kind, hint, _) = told(Fake::build("lacks", &["-DhipMemMap=hidden"]));
    assert_eq!(kind, Kind::DriverTooOld);
    assert!(hint.contains("hipMemMap") && hint.contains("libamdhip64-lacks.so"), "{hint}");
    for code in [100, 101] {
        let fake = Fake::build(&format!("nodevice-{code}"), &[]).set("FAKE_HIP_INIT", code);
        let (kind, hint, native) = told(fake);
        assert_eq!((kind, native), (Kind::NoDevice, Some(code as i64)));
        assert!(hint.contains("HIP_VISIBLE_DEVICES"), "{hint}");
    }
    let (kind, _, code) = told(Fake::build("zero", &[]).set("FAKE_HIP_DEVICES", 0));
    assert_eq!((kind, code), (Kind::NoDevice, Some(100)));
    let (kind, hint, code) = told(Fake::build("ancient", &[]).version(5, 7));
    assert_eq!((kind, code), (Kind::DriverTooOld, Some(50_743_482)));
    assert!(hint.contains("5.7.43482") && hint.contains("6.0"), "{hint}");
    let (kind, hint, _) = told(Fake::build("front", &["-DFAKE_IN_FRONT"]));
    assert_eq!(kind, Kind::DriverNotFound);
    assert!(hint.contains("in front"), "{hint}");
    let error = gvmm::driver::hip::HipDriver::open(Some("/nowhere/libamdhip64.so".as_ref()), &[]);
    let error = error.expect_err("no such file");
    assert_eq!(error.kind, Kind::DriverNotFound);
    assert!(error.hint.contains("/nowhere/libamdhip64.so"), "{error}");
}

/// A real library, where this machine has one, is opened and says why it is of no use without a GPU.
#[test]
fn a_real_library_without_a_gpu_is_absent_with_a_reason() {
    let places = ["libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7"];
    let mut tried = 0;
    for place in places {
        match gvmm::driver::hip::HipDriver::open(Some(place.as_ref()), &[]) {
            Ok(driver) => println!("{}: HIP {}", driver.library().display(), driver.version()),
            Err(error) if error.kind == Kind::DriverNotFound => continue,
            Err(error) => {
                println!("{place}: {error}");
                assert!(matches!(error.kind, Kind::NoDevice | Kind::DriverTooOld), "{error}");
            }
        }
        tried += 1;
    }
    if tried == 0 {
        println!("skipped: no HIP library on this machine");
    }
}

#[test]
fn failures_keep_their_number_and_change_nothing() {
    let fake = Fake::build("fails", &[]);
    let driver = fake.driver();
    let granule = granule(&driver);
    let reserve = || driver.reserve(FIRST, granule.size(), granule);
    let create = || driver.create(FIRST, granule.size(), CreateOptions::default());
    fake.fail("hipMemAddressReserve", 1, 2);
    assert_eq!(kind(reserve()), Some(Kind::OutOfAddressSpace));
    fake.fail("hipMemCreate", 1, 2);
    assert_eq!(kind(create()), Some(Kind::OutOfDeviceMemory));
    let (range, block) = (reserve().expect("a range"), create().expect("a block"));
    fake.fail("hipMemMap", 1, 4242);
    let error = driver.map(range, block).expect_err("failed");
    assert_eq!(error.to_string(), format!("map 2 MiB at {}: hipErrorOfTheFake (4242)", range.start()));
    driver.map(range, block).expect("nothing was mapped");
    fake.fail("hipMemUnmap", 1, 999);
    driver.set_access(range, &[line(FIRST)]).expect("accessible");
    assert_eq!(kind(driver.unmap(range)), Some(Kind::DriverError));
    driver.unmap(range).expect("it was still mapped");
    fake.fail("hipMemAddressFree", 1, 1);
    driver.free(range).expect_err("failed");
    driver.free(range).expect("it was still reserved");
    fake.fail("hipMemRelease", 1, 1);
    driver.release(block).expect_err("failed");
    driver.release(block).expect("it was still there");
    drop(driver);
    fake.clean();
}

/// A set-access that fails for good leaves what was granted before, and nothing more.
#[test]
fn a_failed_set_access_grants_nothing() {
    let fake = Fake::build("undone", &[]).version(7, 14).with("access-part");
    let driver = fake.driver();
    let parts = Parts::new(&driver, 3).map(&driver);
    let read = |device| Access { device, mode: AccessMode::READ };
    driver.set_access(parts.range, &[read(FIRST), read(SECOND)]).expect("readable");
    // The first part can be changed. The second cannot, and the whole would change the first as well.
    driver.set_access(parts.parts[0], &[line(FIRST)]).expect("writable");
    let error = driver.set_access(parts.parts[1], &[line(FIRST)]).expect_err("not without the others");
    assert_eq!((error.kind, error.native.map(|n| n.code)), (Kind::InvalidArgument, Some(1)));
    fake.write(FIRST, parts.parts[0].start(), &[1]);
    assert_eq!(fake.call("hipMemcpy", [parts.parts[1].start().get(), [1_u8].as_ptr() as u64, 1, 4]), 1);
    assert_eq!(fake.read(SECOND, parts.parts[1].start(), 1), [0]);
    parts.end(&driver);
    drop(driver);
    fake.clean();
}

#[test]
fn the_current_device_is_left_alone() {
    let fake = Fake::build("current", &[]);
    let driver = fake.driver();
    for device in [0, 1] {
        fake.call("hipSetDevice", [device, 0, 0, 0]);
        let memory = driver.allocate(SECOND, ByteSize(64)).expect("memory");
        driver.allocate(FIRST, ByteSize(1 << 60)).expect_err("too much");
        let stream = driver.streams().create(SECOND).expect("a stream");
        driver.copy(SECOND, stream, &[CopySlice { dst: memory, src: memory, bytes: 0 }]).expect("nothing");
        driver.memory(SECOND).expect("figures");
        driver.device_info(SECOND).expect("a device");
        driver.streams().destroy(stream).expect("destroyed");
        driver.deallocate(SECOND, memory).expect("freed");
        assert_eq!(fake.number("fake_hip_current", 0) & 0xffff_ffff, device);
    }
    drop(driver);
    fake.clean();
}

/// HIP keeps a thread's last error; what comes of our calls is not the program's.
#[test]
fn no_error_of_ours_is_left_behind() {
    let fake = Fake::build("quiet", &[]);
    let driver = fake.driver();
    let kept = || fake.call("hipPeekAtLastError", [0; 4]);
    fake.fail("hipMemCreate", 1, 2);
    driver.create(FIRST, granule(&driver).size(), CreateOptions::default()).expect_err("failed");
    assert_eq!(kept(), 0);
    driver.is_capturing(FIRST, Stream(0x1234_5678)).expect_err("no such stream");
    assert_eq!(kept(), 0);
    let (stream, timeline) = (
        driver.streams().create(FIRST).expect("a stream"),
        driver.timeline_create(FIRST).expect("a timeline"),
    );
    let pause = || std::thread::sleep(std::time::Duration::from_millis(50));
    driver.streams().enqueue(stream, Arc::new(pause)).expect("enqueued");
    driver.timeline_write(stream, timeline, 1).expect("written");
    assert_eq!(driver.timeline_read(timeline).expect("read"), 0);
    assert_eq!(kept(), 0);
    driver.timeline_wait(timeline, 1).expect("reached");
    assert_eq!(kept(), 0);
    // What the program left is still there.
    fake.fail("hipStreamQuery", 1, 999);
    assert_eq!(fake.call("hipStreamQuery", [0; 4]), 999);
    driver.memory(FIRST).expect("figures");
    assert_eq!(fake.call("hipGetLastError", [0; 4]), 999);
    drop(driver);
    fake.clean();
}

/// Although timelines are events here, a number that only the host reads is written by the stream.
#[test]
fn a_counter_is_written_by_the_stream() {
    let fake = Fake::build("counter", &[]);
    let driver = fake.driver();
    let stream = driver.streams().create(FIRST).expect("a stream");
    let (counter, address) = driver.counter_create(FIRST).expect("a counter");
    driver.timeline_write(stream, counter, 3).expect("written");
    driver.streams().synchronize(stream).expect("idle");
    assert_eq!(counted(address), 3);
    driver.timeline_destroy(counter).expect("destroyed");
    driver.streams().destroy(stream).expect("destroyed");
    drop(driver);
    fake.clean();
}

#[test]
fn a_frameworks_streams_and_default_streams_work() {
    let fake = Fake::build("foreign", &[]);
    let driver = fake.driver();
    let at = driver.allocate(SECOND, ByteSize(8192)).expect("memory");
    fake.write(SECOND, at, &[9; 64]);
    let timeline = driver.timeline_create(SECOND).expect("a timeline");
    for (value, stream) in [(1, fake.stream(SECOND)), (2, Stream(0)), (3, Stream(1)), (4, Stream(2))] {
        let dst = DevicePtr(at.get() + 64 * value);
        driver.copy(SECOND, stream, &[CopySlice { dst, src: at, bytes: 64 }]).expect("copied");
        driver.timeline_write(stream, timeline, value).expect("written");
        driver.timeline_wait(timeline, value).expect("reached");
        assert!(!driver.is_capturing(SECOND, stream).expect("asked"));
        assert_eq!(fake.read(SECOND, dst, 64), [9; 64]);
    }
    let theirs = fake.stream(FIRST);
    assert_eq!(
        kind(driver.copy(SECOND, theirs, &[CopySlice { dst: at, src: at, bytes: 1 }])),
        Some(Kind::InvalidStream)
    );
    assert_eq!(kind(driver.is_capturing(FIRST, Stream(0x1234_5678))), Some(Kind::InvalidStream));
    driver.timeline_destroy(timeline).expect("destroyed");
    driver.deallocate(SECOND, at).expect("freed");
    drop(driver);
    fake.clean();
}

#[test]
fn wrong_sizes_and_numbers_never_reach_the_driver() {
    let fake = Fake::build("wrong", &[]);
    let driver = fake.driver();
    let granule = granule(&driver);
    let small = Granularity::new(4096).expect("a power of two");
    assert_eq!(kind(driver.reserve(Ordinal(9), granule.size(), granule)), Some(Kind::NoDevice));
    assert_eq!(kind(driver.reserve(FIRST, ByteSize(4096), granule)), Some(Kind::InvalidSize));
    assert_eq!(kind(driver.reserve(FIRST, granule.size(), small)), Some(Kind::Misaligned));
    assert_eq!(kind(driver.allocate(FIRST, ByteSize::ZERO)), Some(Kind::InvalidSize));
    assert_eq!(kind(driver.timeline_read(gvmm::driver::TimelineId(99))), Some(Kind::InvalidHandle));
    assert_eq!(kind(driver.streams().synchronize(Stream(0x1234_5678))), Some(Kind::InvalidStream));
    drop(driver);
    fake.clean();
}

#[test]
fn a_broken_device_ends_waits() {
    let fake = Fake::build("broken", &[]).set("FAKE_HIP_DEVICES", 1);
    let driver = fake.driver();
    let parts = Parts::new(&driver, 1);
    let dst = driver.allocate(FIRST, ByteSize(256)).expect("memory");
    let (stream, timeline) = (
        driver.streams().create(FIRST).expect("a stream"),
        driver.timeline_create(FIRST).expect("a timeline"),
    );
    let slices =
        [64, 0].map(|at| CopySlice { dst: DevicePtr(dst.get() + at), src: parts.range.start(), bytes: 64 });
    driver.copy(FIRST, stream, &slices).expect("enqueued");
    let write = driver.timeline_write(stream, timeline, 1);
    let error = write.and_then(|()| driver.timeline_wait(timeline, 1)).expect_err("the copy failed");
    assert_eq!((error.kind, error.native.map(|n| n.code)), (Kind::DeviceFault, Some(700)), "{error}");
    assert_eq!(kind(driver.streams().synchronize(stream)), Some(Kind::DeviceFault));
}
