//! The HIP driver against a fake library that is stricter than the real one and counts breaches of its rules. No AMD
//! hardware is needed, and none was at hand: see docs/hip.md.

mod hip_common;

use gvmm::driver::{Access, AccessMode, Capabilities, CopySlice, CreateOptions, Driver, Ordinal, Stream};
use gvmm::error::{Error, Kind};
use gvmm::units::{ByteSize, DevicePtr, Granularity};
use gvmm::vm::{Device, Owner, RemapEntry};
use hip_common::{EVENTS, FIRST, Fake, Parts, RW, SECOND, conforms, copy, granule, kind, line};
use std::os::fd::AsFd;
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
fn the_driver_conforms_while_known_faults_are_shown() {
    const FAULTS: [&str; 9] = [
        "joint-unmap",
        "release-mapped",
        "access-fails",
        "access-joined",
        "peer-last",
        "calls-race",
        "null-stream",
        "memory-kept",
        "host-refused",
    ];
    let fake = FAULTS.iter().fold(Fake::build("faulty", &[]), |fake, fault| fake.with(fault));
    conforms(fake.driver(), EVENTS);
    fake.clean();
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
fn peers_reach_blocks_or_are_refused_with_a_hint() {
    for peers in [1, 0] {
        let fake = Fake::build(&format!("peers-{peers}"), &[]).set("FAKE_HIP_PEERS", peers);
        let driver = fake.driver();
        let parts = Parts::new(&driver, 2).map(&driver);
        let both = [line(FIRST), line(SECOND)];
        if peers == 0 {
            let error = driver.set_access(parts.range, &both).expect_err("out of reach");
            assert_eq!((error.kind, error.entry), (Kind::Unsupported, Some(1)));
            assert!(error.hint.contains("device 1 cannot reach device 0"), "{error}");
            let nothing = [line(FIRST), Access { device: SECOND, mode: AccessMode::NONE }];
            driver.set_access(parts.range, &nothing).expect("nothing to take away");
        } else {
            driver.set_access(parts.range, &both).expect("accessible for both");
            fake.write(FIRST, parts.range.start(), &[5; 100]);
            let dst = driver.allocate(SECOND, ByteSize(100)).expect("memory");
            copy(&driver, SECOND, dst, parts.range.start(), 100);
            assert_eq!(fake.read(SECOND, dst, 100), [5; 100]);
            driver.deallocate(SECOND, dst).expect("freed");
        }
        parts.end(&driver);
        drop(driver);
        fake.clean();
    }
}

#[test]
fn larger_alignments_hold_on_every_release() {
    for (major, minor) in [(6, 2), (7, 2)] {
        let fake = Fake::build(&format!("aligned-{major}"), &[]).version(major, minor);
        let driver = fake.driver();
        let size = granule(&driver).size();
        for shift in [21, 23, 26, 30] {
            let alignment = Granularity::new(1 << shift).expect("a power of two");
            let range = driver.reserve(FIRST, size, alignment).expect("a range");
            assert!(range.start().is_aligned(alignment), "{range:?}");
            let block = driver.create(FIRST, size, CreateOptions::default()).expect("a block");
            driver.map(range, block).expect("mapped");
            driver.set_access(range, &[line(FIRST)]).expect("accessible");
            driver.unmap(range).expect("unmapped");
            driver.release(block).expect("released");
            driver.free(range).expect("freed");
        }
        drop(driver);
        fake.clean();
    }
}

/// A handle that somebody else in the process made is checked, mapped and left to its maker.
#[test]
fn foreign_blocks_are_adopted() {
    let fake = Fake::build("adopted", &[]);
    let driver = fake.driver();
    let size = granule(&driver).size();
    // hipMemAllocationProp: pinned (1), no handle types, on a device (1), number 0.
    let properties: [u32; 8] = [1, 0, 1, 0, 0, 0, 0, 0];
    let mut handle = 0_u64;
    let words = [&raw mut handle as u64, size.get(), properties.as_ptr() as u64, 0];
    assert_eq!(fake.call("hipMemCreate", words), 0);
    let block = gvmm::driver::NativeBlock(handle);
    let double = ByteSize(size.get() * 2);
    assert_eq!(kind(driver.check_native(FIRST, block, double)), Some(Kind::InvalidSize));
    assert_eq!(kind(driver.check_native(SECOND, block, size)), Some(Kind::InvalidHandle));
    assert_eq!(
        kind(driver.check_native(FIRST, gvmm::driver::NativeBlock(0), size)),
        Some(Kind::InvalidHandle)
    );
    driver.check_native(FIRST, block, size).expect("the right size");
    let range = driver.reserve(FIRST, double, granule(&driver)).expect("a range");
    let part = range.slice(ByteSize::ZERO, size).expect("a part");
    driver.map(part, block).expect("mapped");
    driver.set_access(part, &[line(FIRST)]).expect("accessible");
    fake.write(FIRST, part.start(), &[1, 2, 3]);
    driver.unmap(part).expect("unmapped");
    driver.free(range).expect("freed");
    assert_eq!(fake.call("hipMemRelease", [handle, 0, 0, 0]), 0);
    drop(driver);
    fake.clean();
}

#[test]
fn what_is_shared_has_one_memory() {
    let fake = Fake::build("shared", &[]);
    let driver = fake.driver();
    let size = granule(&driver).size();
    let block = driver.create(FIRST, size, CreateOptions { exportable: true }).expect("a block");
    let fd = driver.export(block).expect("exported");
    let again = driver.import(FIRST, fd.as_fd(), size).expect("imported");
    assert_ne!(block, again);
    let ranges = [block, again].map(|block| {
        let range = driver.reserve(FIRST, size, granule(&driver)).expect("a range");
        driver.map(range, block).expect("mapped");
        driver.set_access(range, &[line(FIRST)]).expect("accessible");
        range
    });
    fake.write(FIRST, ranges[0].start(), &[3; 10]);
    assert_eq!(fake.read(FIRST, ranges[1].start(), 10), [3; 10]);
    for (range, block) in ranges.into_iter().zip([block, again]) {
        driver.unmap(range).expect("unmapped");
        driver.free(range).expect("freed");
        driver.release(block).expect("released");
    }
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

/// What the layer above does: many entries remapped in one call, shuffled, copied, retired.
#[test]
fn the_layer_above_works() {
    for (major, minor) in [(6, 4), (7, 2), (7, 14)] {
        let fake = Fake::build(&format!("above-{major}-{minor}"), &[]).version(major, minor);
        let driver: Arc<dyn Driver> = Arc::new(fake.driver());
        let device = Device::open(driver.clone(), FIRST).expect("a device");
        let granule = device.granularity().size().get();
        let at = |i: usize| ByteSize(i as u64 * granule);
        let blocks: Vec<_> = (0..16)
            .map(|_| device.create_block(ByteSize(granule), CreateOptions::default()).expect("a block"))
            .collect();
        let both = [Access { device: FIRST, mode: RW }, Access { device: SECOND, mode: AccessMode::READ }];
        let range = device.reserve(at(16), None, &both, Owner::Caller).expect("a range");
        let stream = driver.streams().create(FIRST).expect("a stream");
        let remap = |shift: usize| {
            let entry = |i: usize| RemapEntry {
                reservation: range.clone(),
                offset: at(i),
                block: Some(blocks[(i + shift) % 16].clone()),
            };
            device.remap(&(0..16).map(entry).collect::<Vec<_>>(), &[stream]).expect("remapped")
        };
        assert_eq!(remap(0).calls.set_access, 1);
        let address = |i: usize| DevicePtr(range.range().start().get() + at(i).get());
        (0..16).for_each(|i| fake.write(FIRST, address(i), &[i as u8; 64]));
        let report = remap(5);
        assert_eq!((report.calls.unmap, report.calls.map, report.calls.set_access), (16, 16, 1));
        for i in 0..16 {
            assert_eq!(fake.read(FIRST, address(i), 64), [(i as u8 + 5) % 16; 64]);
            assert_eq!(fake.read(SECOND, address(i), 64), [(i as u8 + 5) % 16; 64]);
        }
        let slice =
            |i: usize| CopySlice { dst: DevicePtr(address(i).get() + 4096), src: address(i + 8), bytes: 64 };
        assert_eq!(device.shadow_copy(stream, &(0..8).map(slice).collect::<Vec<_>>()).expect("copied"), 1);
        device.forget_stream(stream).expect("forgotten");
        drop((range, blocks));
        device.drain().expect("drained");
        drop(device);
        driver.streams().destroy(stream).expect("destroyed");
        drop(driver);
        fake.clean();
    }
}

#[test]
fn errors_of_another_thread_are_not_seen() {
    let fake = Fake::build("threads", &[]);
    let driver = fake.driver();
    std::thread::scope(|scope| {
        for seed in 0..4_u8 {
            let (driver, fake) = (&driver, &fake);
            scope.spawn(move || -> Result<(), Error> {
                for round in 0..50_u8 {
                    let parts = Parts::new(driver, 2).map(driver);
                    driver.set_access(parts.range, &[line(FIRST)])?;
                    fake.write(FIRST, parts.parts[1].start(), &[seed ^ round; 16]);
                    assert_eq!(fake.read(FIRST, parts.parts[1].start(), 16), [seed ^ round; 16]);
                    parts.end(driver);
                }
                Ok(())
            });
        }
    });
    drop(driver);
    fake.clean();
}
