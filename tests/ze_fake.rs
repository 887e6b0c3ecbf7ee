//! The Level Zero driver against a fake loader that counts breaches of the vendor's rules.

mod ze_common;

use gvmm::driver::level_zero::UsmType;
use gvmm::driver::{Access, AccessMode, Capabilities, CreateOptions, Driver, NativeBlock, Ordinal};
use gvmm::error::{Error, Kind};
use gvmm::units::{ByteSize, Granularity};
use std::sync::Arc;
use ze_common::{Fake, LARGE, LATE, RW, SMALL, ZERO, conforms, mapped, stream, unmapped};

const VM: Capabilities = Capabilities::VIRTUAL_MEMORY;

fn kind<T>(result: Result<T, Error>) -> Option<Kind> {
    result.err().map(|e| e.kind)
}

#[test]
fn the_driver_conforms_with_one_page_size() {
    let fake = Fake::build("uniform", &[]).set("FAKE_ZE_PAGES", 2).set("FAKE_ZE_MEMORY", 1 << 30);
    let driver = fake.driver();
    let info = driver.device_info(Ordinal(1)).expect("a device");
    let all = VM.with(Capabilities::JOINT_COPIES).with(Capabilities::SHARING).with(Capabilities::PATCHES);
    assert_eq!((info.capabilities, info.total), (all, ByteSize(1 << 30)), "honest bits");
    assert_eq!((info.bandwidth, info.name.as_str()), (1_600_000_000_000, "fake Level Zero device 1"));
    drop(driver);
    let fake = Arc::new(fake);
    let passed = conforms(&fake, &[LATE]);
    assert!(passed >= 140, "{passed}");
    fake.clean();
}

#[test]
fn the_driver_conforms_with_pages_by_size() {
    let fake = Arc::new(Fake::build("pages", &[]));
    let driver = fake.driver();
    let (small, large) = (SMALL, LARGE);
    for (bytes, page) in [(1, small), (SMALL, small), (LARGE - 1, small), (LARGE, large), (1 << 30, large)] {
        let seen = driver.granularity(ZERO, ByteSize(bytes)).expect("a page");
        assert_eq!(seen.size(), ByteSize(page), "for {bytes} bytes");
    }
    assert_eq!(driver.device_info(ZERO).expect("a device").granularity.size(), ByteSize(SMALL));
    drop(driver);
    let passed = conforms(&fake, &[LATE]);
    assert!(passed >= 138, "{passed}");
    fake.clean();
}

#[test]
fn the_driver_conforms_where_much_is_lacking() {
    for (name, settings) in [
        ("novmm", &["FAKE_ZE_VMM"][..]),
        ("noappend", &["FAKE_ZE_APPEND", "FAKE_ZE_SHARING"]),
        ("nosysman", &["FAKE_ZE_SYSMAN"]),
    ] {
        let fake = Fake::build(name, &[]).set("FAKE_ZE_PAGES", 2).set("FAKE_ZE_QUEUES", 4);
        settings.iter().for_each(|setting| fake.change(setting, 0));
        let fake = Arc::new(fake);
        conforms(&fake, &[LATE]);
        fake.clean();
    }
}

#[test]
fn the_driver_conforms_below_an_old_loader() {
    let lacks = [
        "zeInitDrivers",
        "zePhysicalMemGetProperties",
        "zeCommandListImmediateAppendCommandListsExp",
        "zeCommandListIsImmediate",
        "zeCommandListGetDeviceHandle",
        "zeCommandListGetContextHandle",
        "zeCommandListGetOrdinal",
        "zeCommandListIsGraphCaptureEnabledExt",
        "zeCommandQueueGetOrdinal",
        "zesInit",
        "zesDriverGetDeviceByUuidExp",
    ];
    let options = lacks.map(|symbol| format!("-D{symbol}=hidden_{symbol}"));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let fake = Fake::build("older", &options).set("FAKE_ZE_PAGES", 2).set("FAKE_ZE_SKEW", 1);
    let driver = fake.driver();
    assert_eq!(driver.device_info(ZERO).expect("a device").capabilities, VM.with(Capabilities::PATCHES));
    assert_eq!(driver.memory(ZERO).expect("figures").free, None);
    drop(driver);
    let fake = Arc::new(fake);
    conforms(&fake, &[LATE]);
    fake.clean();
}

#[test]
fn absence_has_a_reason() {
    let why = |fake: Fake| {
        let error = fake.open().expect_err("absent");
        (error.kind, error.hint, error.native.map(|n| n.code))
    };
    let (kind, hint, _) = why(Fake::build("lacks", &["-DzeVirtualMemMap=hidden"]));
    assert_eq!(kind, Kind::DriverTooOld);
    assert!(hint.contains("zeVirtualMemMap") && hint.contains("libze-lacks.so"), "{hint}");
    let (kind, hint, code) = why(Fake::build("nodevice", &[]).set("FAKE_ZE_DEVICES", 0));
    assert_eq!((kind, code), (Kind::DriverNotFound, Some(0x7800_0001)));
    assert!(hint.contains("libze_intel_gpu.so.1") && hint.contains("/dev/dri"), "{hint}");
    let (kind, hint, _) = why(Fake::build("cpuonly", &[]).set("FAKE_ZE_DEVICES", 0).set("FAKE_ZE_CPU", 1));
    assert_eq!((kind, hint), (Kind::NoDevice, "the Level Zero drivers have no GPU"));
    let (kind, hint, code) = why(Fake::build("dependency", &[]).set("FAKE_ZE_INIT", 0x7002_0000));
    assert_eq!((kind, code), (Kind::DriverNotFound, Some(0x7002_0000)));
    assert!(!hint.is_empty());
    let (kind, hint, _) = why(Fake::build("front", &["-DFAKE_IN_FRONT"]));
    assert_eq!(kind, Kind::DriverNotFound);
    assert!(hint.contains("in front"), "{hint}");
}

#[test]
fn only_gpus_count_and_drivers_are_kept_apart() {
    let fake = Fake::build("two", &[]).set("FAKE_ZE_CPU", 1).set("FAKE_ZE_DRIVERS", 2);
    let driver = fake.driver();
    assert_eq!(driver.device_count(), 2);
    let (first, second) = (driver.native(ZERO).expect("one"), driver.native(Ordinal(1)).expect("two"));
    assert_ne!(first.0, second.0, "a context for each driver");
    // A device of another context reaches nothing here, whatever the bus says.
    let (range, block) = mapped(&driver, ByteSize(LARGE));
    let list = [Access { device: ZERO, mode: RW }, Access { device: Ordinal(1), mode: RW }];
    let error = driver.set_access(range, &list).expect_err("out of reach");
    assert_eq!((error.kind, error.entry), (Kind::Unsupported, Some(1)));
    unmapped(&driver, range, block);
    drop(driver);
    fake.clean();
}

#[test]
fn peers_out_of_reach_are_refused_with_a_hint() {
    let fake = Fake::build("apart", &[]).set("FAKE_ZE_PEERS", 0);
    let driver = fake.driver();
    let (range, block) = mapped(&driver, ByteSize(LARGE));
    let list = [Access { device: ZERO, mode: RW }, Access { device: Ordinal(1), mode: RW }];
    let error = driver.set_access(range, &list).expect_err("out of reach");
    assert!(
        error.kind == Kind::Unsupported && error.hint.contains("device 1 cannot reach device 0"),
        "{error}"
    );
    unmapped(&driver, range, block);
    drop(driver);
    fake.clean();
}

/// The driver says success and gives nothing: never taken for an answer.
#[test]
fn success_with_nothing_is_a_failure() {
    let fake = Fake::build("lies", &[]);
    let driver = fake.driver();
    let granule = driver.granularity(ZERO, ByteSize(LARGE)).expect("a granule");
    let lies = |function: &str, call: &dyn Fn() -> Option<Error>| {
        fake.fail(function, 1, 0);
        let error = call().unwrap_or_else(|| panic!("{function} was believed"));
        assert_eq!(error.kind, Kind::DriverError, "{function}: {error}");
        assert!(error.hint.contains("gives nothing"), "{error}");
    };
    lies("zeVirtualMemQueryPageSize", &|| driver.granularity(ZERO, ByteSize(1)).err());
    lies("zeVirtualMemReserve", &|| driver.reserve(ZERO, ByteSize(LARGE), granule).err());
    lies("zePhysicalMemCreate", &|| driver.create(ZERO, ByteSize(LARGE), CreateOptions::default()).err());
    lies("zeMemAllocDevice", &|| driver.allocate(ZERO, ByteSize(LARGE)).err());
    lies("zeCommandListCreateImmediate", &|| driver.streams().create(ZERO).err());
    lies("zeEventPoolCreate", &|| {
        let (stream, timeline) = (stream(&driver), driver.timeline_create(ZERO).expect("a timeline"));
        driver.timeline_write(stream, timeline, 1).err()
    });
    assert_eq!(driver.memory(ZERO).expect("figures").free, Some(ByteSize(4 << 30)), "nothing was taken");
    drop(driver);
    fake.clean();
}

#[test]
fn a_page_of_no_bytes_at_open_means_no_virtual_memory() {
    let fake = Fake::build("nopage", &[]).set("FAKE_ZE_DEVICES", 1);
    fake.fail("zeVirtualMemQueryPageSize", 1, 0);
    let driver = fake.driver();
    assert!(!driver.device_info(ZERO).expect("a device").capabilities.has(VM));
    let at = driver.allocate(ZERO, ByteSize(100)).expect("plain memory is there");
    driver.deallocate(ZERO, at).expect("freed");
    drop(driver);
    fake.clean();
}

#[test]
fn memory_that_libraries_would_refuse_is_told() {
    for (name, setting, expected) in [("usm", 1, UsmType::DEVICE), ("nousm", 0, UsmType::UNKNOWN)] {
        let fake = Fake::build(name, &[]).set("FAKE_ZE_USM", setting);
        let driver = fake.driver();
        assert_eq!(driver.mapped_type(ZERO).expect("a device"), expected);
        assert!(driver.device_info(ZERO).expect("a device").capabilities.has(VM), "the bit stays");
        drop(driver);
        fake.clean();
    }
}

#[test]
fn addresses_are_aligned_whatever_comes_back() {
    let fake = Fake::build("skew", &[]).set("FAKE_ZE_SKEW", 1);
    let driver = fake.driver();
    for shift in [16, 20, 21, 24, 30] {
        let alignment = Granularity::new(1 << shift).expect("a power of two");
        for size in [SMALL, LARGE] {
            if alignment.size() < driver.granularity(ZERO, ByteSize(size)).expect("a page").size() {
                continue;
            }
            let range = driver.reserve(ZERO, ByteSize(size), alignment).expect("a range");
            assert!(range.start().is_aligned(alignment), "{range:?}");
            driver.free(range).expect("freed");
        }
    }
    let (range, block) = mapped(&driver, ByteSize(LARGE));
    unmapped(&driver, range, block);
    drop(driver);
    fake.clean();
}

/// More than there is would be given, and cost the device later: we count.
#[test]
fn what_is_not_there_is_not_asked_for() {
    for (name, sysman) in [("budget", 1), ("blind", 0), ("forbidden", 2)] {
        let fake = Fake::build(name, &[]).set("FAKE_ZE_MEMORY", 16 << 20).set("FAKE_ZE_SYSMAN", sysman);
        let driver = fake.driver();
        let free = (sysman == 1).then_some(ByteSize(16 << 20));
        assert_eq!(driver.memory(ZERO).expect("figures").free, free);
        let create = |size| driver.create(ZERO, ByteSize(size), CreateOptions::default());
        let blocks: Vec<NativeBlock> = (0..7).map(|_| create(LARGE).expect("there is room")).collect();
        let plain = driver.allocate(ZERO, ByteSize(LARGE)).expect("there is room");
        assert_eq!(kind(create(SMALL)), Some(Kind::OutOfDeviceMemory));
        assert_eq!(kind(driver.allocate(ZERO, ByteSize(1))), Some(Kind::OutOfDeviceMemory));
        driver.deallocate(ZERO, plain).expect("freed");
        driver.release(create(LARGE).expect("room again")).expect("released");
        for block in blocks {
            driver.release(block).expect("released");
        }
        let large = driver.allocate(ZERO, ByteSize(12 << 20)).expect("more than one allocation may have");
        driver.deallocate(ZERO, large).expect("freed");
        drop(driver);
        fake.clean();
    }
}

#[test]
fn a_block_released_while_mapped_is_destroyed_at_its_unmap() {
    let fake = Fake::build("released", &[]);
    let driver = fake.driver();
    let native = driver.native(ZERO).expect("a device");
    let (range, block) = mapped(&driver, ByteSize(LARGE));
    assert!(fake.poke(native, range.start(), b"still here"));
    let destroyed = fake.calls("zePhysicalMemDestroy");
    driver.release(block).expect("released");
    assert_eq!(kind(driver.release(block)), Some(Kind::InvalidHandle), "it is gone for us");
    assert_eq!(fake.peek(native, range.start(), 10).as_deref(), Some(&b"still here"[..]));
    assert_eq!(fake.calls("zePhysicalMemDestroy"), destroyed);
    // The unmap counts even where the block cannot be destroyed yet; that is tried again.
    fake.fail("zePhysicalMemDestroy", 1, 0x7fff_fffe);
    driver.unmap(range).expect("unmapped");
    driver.free(range).expect("freed");
    let (range, block) = mapped(&driver, ByteSize(SMALL));
    assert_eq!(fake.calls("zePhysicalMemDestroy"), destroyed + 2);
    unmapped(&driver, range, block);
    drop(driver);
    fake.clean();
}

#[test]
fn each_mapping_costs_one_call_and_failures_change_nothing() {
    let fake = Fake::build("access", &[]);
    let driver = fake.driver();
    let native = driver.native(ZERO).expect("a device");
    let granule = driver.granularity(ZERO, ByteSize(LARGE)).expect("a granule");
    let range = driver.reserve(ZERO, ByteSize(4 * LARGE), granule).expect("a range");
    let part = |i: u64| range.slice(ByteSize(i * LARGE), ByteSize(LARGE)).expect("inside");
    let create = || driver.create(ZERO, ByteSize(LARGE), CreateOptions::default()).expect("a block");
    let blocks: Vec<NativeBlock> = (0..4).map(|_| create()).collect();
    let all = |mode| driver.set_access(range, &[Access { device: ZERO, mode }]);
    let maps = fake.calls("zeVirtualMemMap");
    let seen = || (0..4).map(|i| fake.poke(native, part(i).start(), b"x")).collect::<Vec<_>>();
    (0..3).for_each(|i| driver.map(part(i as u64), blocks[i]).expect("mapped"));
    assert_eq!(fake.calls("zeVirtualMemMap"), maps, "nobody can touch it yet");
    fake.fail("zeVirtualMemMap", 3, 0x7000_0003);
    assert_eq!(kind(all(RW)), Some(Kind::OutOfDeviceMemory));
    assert_eq!(seen(), [false; 4], "all or nothing");
    all(RW).expect("accessible");
    assert_eq!(seen(), [true, true, true, false]);
    let maps = fake.calls("zeVirtualMemMap");
    driver.map(part(3), blocks[3]).expect("mapped");
    all(RW).expect("accessible");
    assert_eq!(fake.calls("zeVirtualMemMap"), maps + 1, "the others stay as they are");
    // From read-write to read-only is an unmap and a map; where one fails, all are as before.
    fake.fail("zeVirtualMemMap", 4, 0x7000_0003);
    assert_eq!(kind(all(AccessMode::READ)), Some(Kind::OutOfDeviceMemory));
    assert_eq!(seen(), [true; 4]);
    all(AccessMode::READ).expect("read-only");
    assert_eq!(seen(), [false; 4]);
    assert!(fake.peek(native, part(2).start(), 8).is_some());
    all(AccessMode::NONE).expect("nothing");
    assert!(fake.peek(native, part(2).start(), 8).is_none());
    assert_eq!(
        kind(driver.set_access(part(1), &[Access { device: ZERO, mode: RW }])),
        Some(Kind::Unsupported)
    );
    (0..4).for_each(|i| driver.unmap(part(i)).expect("unmapped"));
    blocks.into_iter().for_each(|block| driver.release(block).expect("released"));
    driver.free(range).expect("freed");
    drop(driver);
    fake.clean();
}

#[test]
fn failures_keep_their_number_and_change_nothing() {
    let fake = Fake::build("fails", &[]);
    let driver = fake.driver();
    let granule = driver.granularity(ZERO, ByteSize(LARGE)).expect("a granule");
    let reserve = || driver.reserve(ZERO, granule.size(), granule);
    let create = || driver.create(ZERO, granule.size(), CreateOptions::default());
    fake.fail("zeVirtualMemReserve", 1, 0x7000_0002);
    assert_eq!(kind(reserve()), Some(Kind::OutOfAddressSpace));
    fake.fail("zePhysicalMemCreate", 1, 0x7000_0003);
    assert_eq!(kind(create()), Some(Kind::OutOfDeviceMemory));
    let (range, block) = (reserve().expect("a range"), create().expect("a block"));
    driver.map(range, block).expect("mapped");
    fake.fail("zeVirtualMemMap", 1, 0x7fff_fffe);
    let error = driver.set_access(range, &[Access { device: ZERO, mode: RW }]).expect_err("failed");
    let place = range.start();
    assert_eq!(
        error.to_string(),
        format!("set access 2 MiB at {place}: ZE_RESULT_ERROR_UNKNOWN (2147483646)")
    );
    driver.set_access(range, &[Access { device: ZERO, mode: RW }]).expect("accessible");
    fake.fail("zeVirtualMemUnmap", 1, 0x4242);
    let error = driver.unmap(range).expect_err("failed");
    assert_eq!((error.kind, error.native.map(|n| n.code)), (Kind::DriverError, Some(0x4242)));
    driver.unmap(range).expect("it was still mapped");
    fake.fail("zeVirtualMemFree", 1, 0x7800_0004);
    driver.free(range).expect_err("failed");
    driver.free(range).expect("it was still reserved");
    fake.fail("zePhysicalMemDestroy", 1, 0x7fff_fffe);
    driver.release(block).expect_err("failed");
    driver.release(block).expect("it was still there");
    drop(driver);
    fake.clean();
}

#[test]
fn wrong_sizes_and_numbers_never_reach_the_driver() {
    let fake = Fake::build("wrong", &[]);
    let driver = fake.driver();
    let (small, large) = (Granularity::new(SMALL).expect("one"), Granularity::new(LARGE).expect("one"));
    let half = ByteSize(LARGE + LARGE / 2);
    assert_eq!(kind(driver.reserve(Ordinal(9), small.size(), small)), Some(Kind::NoDevice));
    assert_eq!(kind(driver.reserve(ZERO, ByteSize(4096), small)), Some(Kind::InvalidSize));
    assert_eq!(kind(driver.reserve(ZERO, half, large)), Some(Kind::InvalidSize), "1.5 large pages");
    assert_eq!(kind(driver.create(ZERO, half, CreateOptions::default())), Some(Kind::InvalidSize));
    assert_eq!(kind(driver.reserve(ZERO, large.size(), small)), Some(Kind::Misaligned));
    let block = driver.create(ZERO, large.size(), CreateOptions::default()).expect("a block");
    let range = driver.reserve(ZERO, ByteSize(2 * LARGE), large).expect("a range");
    let odd = range.slice(ByteSize(SMALL), large.size()).expect("inside");
    assert_eq!(kind(driver.map(odd, block)), Some(Kind::Misaligned), "aligned for a small block only");
    driver.free(range).expect("freed");
    driver.release(block).expect("released");
    drop(driver);
    fake.clean();
}
