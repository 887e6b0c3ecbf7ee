//! Every line of the quirk table about HIP: with the fault shown and the quirk off the failure is seen, with the quirk
//! on it is taken care of. What our own rules take care of anyway is shown on the library itself.
#![allow(unsafe_code, reason = "sets the limit of a child process")]

mod hip_common;

use gvmm::driver::hip::HipDriver;
use gvmm::driver::quirks::{Care, QUIRKS};
use gvmm::driver::{CopySlice, CreateOptions, Driver, DriverKind};
use gvmm::error::{Error, Kind};
use gvmm::units::ByteSize;
use hip_common::{FIRST, Fake, Parts, SECOND, granule, kind, line};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn is_forced(driver: &HipDriver, name: &str) -> bool {
    driver.quirks(FIRST).expect("a device").iter().any(|quirk| quirk.name == name)
}

/// A name that no quirk has would switch nothing.
#[test]
fn every_quirk_of_hip_is_shown_here() {
    let this = concat!(
        include_str!("hip_quirks.rs"),
        include_str!("hip_access.rs"),
        include_str!("hip_selftests.rs"),
        include_str!("hip_kept.rs")
    );
    let ours = |q: &&gvmm::driver::quirks::Quirk| q.name.starts_with("hip-");
    let missing: Vec<_> = QUIRKS
        .iter()
        .filter(ours)
        .filter(|q| !this.contains(&format!("\"{}\"", q.name)))
        .map(|q| q.name)
        .collect();
    assert!(missing.is_empty(), "not shown: {missing:?}");
    assert_eq!(DriverKind::HIP.name(), "hip");
}

#[test]
fn before_6_0_the_library_is_refused() {
    let fake = Fake::build("before-6", &[]).version(5, 7);
    assert_eq!(kind(fake.open(&[])), Some(Kind::DriverTooOld));
    fake.open(&[("hip-before-6", false)]).expect("by hand");
    assert_eq!(kind(Fake::build("now", &[]).open(&[("hip-before-6", true)])), Some(Kind::DriverTooOld));
}

#[test]
fn mappings_are_unmapped_one_by_one() {
    let fake = Fake::build("joint-unmap", &[]).version(6, 4).with("joint-unmap");
    let driver = fake.driver();
    assert!(is_forced(&driver, "hip-joint-unmap"));
    Parts::new(&driver, 4).map(&driver).end(&driver);
    fake.clean();
    // What the library does when several are unmapped at once.
    let parts = Parts::new(&driver, 2).map(&driver);
    let (at, bytes) = (parts.range.start().get(), parts.range.size().get());
    assert_eq!(fake.call("hipMemUnmap", [at, bytes, 0, 0]), 0);
    assert_eq!(fake.call("hipMemAddressFree", [at, bytes, 0, 0]), 999);
}

#[test]
fn what_hip_does_not_know_is_never_asked_for() {
    for (major, quirk) in [(6, "hip-unknown-address"), (7, "hip-unmap-twice")] {
        let fake = Fake::build(&format!("unknown-{major}"), &[]).version(major, 0);
        let driver = fake.driver();
        assert!(is_forced(&driver, quirk));
        let parts = Parts::new(&driver, 2);
        assert_eq!(kind(driver.unmap(parts.parts[0])), Some(Kind::NotMapped));
        let parts = parts.map(&driver);
        assert_eq!(kind(driver.free(parts.range)), Some(Kind::InUse));
        driver.unmap(parts.parts[0]).expect("unmapped");
        assert_eq!(kind(driver.unmap(parts.parts[0])), Some(Kind::NotMapped));
        driver.map(parts.parts[0], parts.blocks[0]).expect("mapped");
        let range = parts.range;
        parts.end(&driver);
        assert_eq!(kind(driver.free(range)), Some(Kind::OutOfRange));
        fake.clean();
        assert_ne!(fake.call("hipMemUnmap", [range.start().get(), range.size().get(), 0, 0]), 0);
        assert!(fake.breaches() > 0 && fake.last_breach().contains("unmap"));
    }
}

/// Releases a block while it is mapped, unmaps it and frees the range.
fn release_first(fake: &Fake, driver: &HipDriver) -> Result<(), Error> {
    let parts = Parts::new(driver, 1).map(driver);
    driver.set_access(parts.range, &[line(FIRST)])?;
    fake.write(FIRST, parts.range.start(), &[4; 8]);
    let (free, range, block) = (driver.memory(FIRST)?.free, parts.range, parts.blocks[0]);
    driver.release(block)?;
    assert_eq!(kind(driver.release(block)), Some(Kind::InvalidHandle));
    assert_eq!(kind(driver.check_native(FIRST, block, range.size())), Some(Kind::InvalidHandle));
    assert_eq!(fake.read(FIRST, range.start(), 8), [4; 8]);
    driver.unmap(range)?;
    assert!(driver.memory(FIRST)?.free > free, "the memory went with the last mapping");
    driver.free(range)
}

#[test]
fn a_mapped_block_is_released_after_its_last_mapping() {
    let fake = Fake::build("release-mapped", &[]).with("release-mapped");
    release_first(&fake, &fake.driver()).expect("in the right order");
    fake.clean();
    let driver = fake.without("hip-release-mapped");
    assert_eq!(kind(release_first(&fake, &driver)), Some(Kind::DriverError));
}

#[test]
fn a_map_that_failed_silently_is_found_out() {
    for (at, (major, minor)) in [(6, 4), (7, 2)].into_iter().enumerate() {
        let fake = Fake::build(&format!("silent-{at}"), &[]).version(major, minor);
        let driver = fake.driver();
        let parts = Parts::new(&driver, 2);
        driver.map(parts.parts[0], parts.blocks[0]).expect("mapped");
        fake.show("silent-map", true);
        driver.map(parts.parts[1], parts.blocks[1]).expect("so HIP says");
        fake.show("silent-map", false);
        driver.set_access(parts.parts[0], &[line(FIRST)]).expect("the first is there");
        let error = driver.set_access(parts.range, &[line(FIRST)]).expect_err("the second is not");
        assert_eq!((error.kind, error.native.map(|n| n.code)), (Kind::DriverError, Some(1)));
        assert!(error.hint.contains("had not"), "{error}");
        // The layer above unmaps, and maps again.
        driver.unmap(parts.parts[1]).expect("nothing is said to HIP");
        driver.map(parts.parts[1], parts.blocks[1]).expect("mapped");
        driver.set_access(parts.range, &[line(FIRST)]).expect("both");
        parts.end(&driver);
        // Unmapped without access ever set: HIP is asked whether it has it.
        fake.show("silent-map", true);
        Parts::new(&driver, 2).map(&driver).end(&driver);
        fake.show("silent-map", false);
        drop(driver);
        // A joined range with a silent hole is the one thing that HIP was asked in vain.
        assert!(fake.breaches() == 0 || fake.last_breach().contains("over a hole"), "{}", fake.last_breach());
    }
    let fake = Fake::build("silent-off", &[]).version(6, 4).with("silent-map");
    let driver = fake.without("hip-silent-map");
    let parts = Parts::new(&driver, 1).map(&driver);
    assert_eq!(kind(driver.set_access(parts.range, &[line(FIRST)])), Some(Kind::InvalidArgument));
    driver.unmap(parts.range).expect_err("HIP has no such mapping");
    assert!(fake.last_breach().contains("a crash"), "{}", fake.last_breach());
}

/// Several threads that map, set access and unmap; the first failure.
fn hammer(driver: &HipDriver) -> Result<(), Error> {
    let size = granule(driver).size();
    let one = || -> Result<(), Error> {
        for _ in 0..20 {
            let range = driver.reserve(FIRST, size, granule(driver))?;
            let block = driver.create(FIRST, size, CreateOptions::default())?;
            driver.map(range, block)?;
            driver.set_access(range, &[line(FIRST)])?;
            driver.unmap(range)?;
            driver.release(block)?;
            driver.free(range)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).find(Result::is_err).unwrap_or(Ok(()))
    })
}

#[test]
fn virtual_memory_calls_are_made_one_at_a_time() {
    let fake = Fake::build("calls-race", &[]).with("calls-race");
    hammer(&fake.driver()).expect("one at a time");
    fake.clean();
    let driver =
        fake.open(&[("hip-calls-race", false), ("hip-set-access-fails", false)]).expect("the fake opens");
    assert_eq!(hammer(&driver).expect_err("they race").native.map(|n| n.code), Some(999));
}

/// While an unmap waits inside HIP, whatever is no virtual-memory call goes on: nobody waits under our lock.
#[test]
fn only_virtual_memory_calls_wait_for_an_unmap_that_waits() {
    let fake = Fake::build("sync-all", &[]).version(7, 14).with("sync-all");
    let driver = fake.driver();
    assert!(is_forced(&driver, "hip-map-waits"));
    let parts = Parts::new(&driver, 1).map(&driver);
    driver.set_access(parts.range, &[line(FIRST), line(SECOND)]).expect("accessible");
    let (held, free) = (
        driver.streams().create(SECOND).expect("a stream"),
        driver.streams().create(FIRST).expect("one more"),
    );
    let gate = Arc::new(AtomicBool::new(false));
    let wait = gate.clone();
    let hold = move || {
        while !wait.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    };
    driver.streams().enqueue(held, Arc::new(hold)).expect("enqueued");
    std::thread::scope(|scope| {
        let unmap = scope.spawn(|| driver.unmap(parts.range));
        while fake.calls("hipMemUnmap") == 0 {
            std::thread::yield_now();
        }
        let memory = driver.allocate(FIRST, ByteSize(64)).expect("goes on");
        let timeline = driver.timeline_create(FIRST).expect("goes on");
        driver.copy(FIRST, free, &[CopySlice { dst: memory, src: memory, bytes: 0 }]).expect("goes on");
        driver.timeline_write(free, timeline, 1).expect("goes on");
        driver.timeline_wait(timeline, 1).expect("goes on");
        driver.timeline_destroy(timeline).expect("goes on");
        driver.deallocate(FIRST, memory).expect("goes on");
        assert!(!unmap.is_finished(), "HIP waits for the peer's stream");
        gate.store(true, Ordering::SeqCst);
        unmap.join().expect("no panic").expect("unmapped");
    });
    driver.map(parts.range, parts.blocks[0]).expect("mapped");
    parts.end(&driver);
    drop(driver);
    fake.clean();
}

#[test]
fn several_devices_are_warned_of_where_default_streams_are_waited_for() {
    let notes = |fake: &Fake, forced: &[(&str, bool)]| {
        fake.open(forced).expect("the fake opens").notes(FIRST).expect("a device").join("; ")
    };
    let fake = Fake::build("null-two", &[]).version(7, 2).with("null-stream");
    assert!(notes(&fake, &[]).contains("HIP_VISIBLE_DEVICES"));
    assert!(notes(&fake, &[("hip-null-stream", false)]).is_empty());
    let one = Fake::build("null-one", &[]).version(7, 2).set("FAKE_HIP_DEVICES", 1);
    assert!(notes(&one, &[]).is_empty());
    let later = Fake::build("null-later", &[]).version(7, 14);
    assert!(notes(&later, &[]).is_empty());
    // It works all the same, as long as the default stream moves on.
    let driver = fake.driver();
    Parts::new(&driver, 2).map(&driver).end(&driver);
    fake.clean();
}

#[test]
fn an_address_that_cannot_be_kept_is_lost_with_a_hint() {
    let fake = Fake::build("moves", &[]).version(7, 2).with("memory-kept").with("moves-hint");
    let driver = fake.driver();
    let parts = Parts::new(&driver, 1).map(&driver).unmap(&driver);
    let range = parts.release(&driver);
    let block = driver.create(FIRST, range.size(), CreateOptions::default()).expect("a block");
    let error = driver.map(range, block).expect_err("the range is somebody else's");
    assert_eq!(error.kind, Kind::OutOfAddressSpace);
    assert!(error.hint.contains("reserve another"), "{error}");
    driver.free(range).expect("nothing is said to HIP");
    driver.release(block).expect("released");
    drop(driver);
    fake.clean();
}

/// Runs in a process of its own, whose file descriptors run out.
#[test]
#[ignore = "run by `the_end_of_descriptors_is_told_from_the_end_of_memory`"]
fn descriptors_child() {
    let on = std::env::var("GVMM_TEST_QUIRK").is_ok_and(|v| v == "on");
    // An option, so that it is compiled apart from what the parent process copies.
    let fake =
        Fake::build(if on { "descriptors-on" } else { "descriptors-off" }, &["-DCHILD"]).version(7, 14);
    let driver = if on { fake.driver() } else { fake.without("hip-descriptors") };
    let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
    // SAFETY: the limit is valid for the call; nothing else runs in this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let size = granule(&driver).size();
    let blocks: Vec<_> =
        (0..200).map_while(|_| driver.create(FIRST, size, CreateOptions::default()).ok()).collect();
    let error = driver.create(FIRST, size, CreateOptions::default()).expect_err("no descriptor left");
    let wanted = if on { Kind::OutOfFileDescriptors } else { Kind::OutOfDeviceMemory };
    assert_eq!((error.kind, error.native.map(|n| n.code)), (wanted, Some(2)), "{error}");
    if on {
        assert!(error.hint.contains("ulimit") && error.hint.contains(&blocks.len().to_string()), "{error}");
    }
    assert!(blocks.len() > 50 && blocks.len() < 100, "{}", blocks.len());
    // With room again, a real end of memory is one.
    blocks.iter().for_each(|block| driver.release(*block).expect("released"));
    let error = driver.create(FIRST, ByteSize::gib(64), CreateOptions::default()).expect_err("too much");
    assert_eq!(error.kind, Kind::OutOfDeviceMemory, "{error}");
    println!("told apart: {on}");
}

#[test]
fn the_end_of_descriptors_is_told_from_the_end_of_memory() {
    for quirk in ["on", "off"] {
        let this = std::env::current_exe().expect("this program");
        let arguments = ["--ignored", "--exact", "descriptors_child", "--nocapture"];
        let output =
            Command::new(this).args(arguments).env("GVMM_TEST_QUIRK", quirk).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("told apart"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn granules_are_2_mib_at_least() {
    let fake = Fake::build("granule", &[]).version(7, 10);
    assert_eq!(granule(&fake.driver()).size(), ByteSize::mib(2));
    assert_eq!(granule(&fake.without("hip-small-granule")).size(), ByteSize::kib(4));
    let later = Fake::build("granule-later", &[]).version(7, 14);
    assert_eq!(granule(&later.without("hip-small-granule")).size(), ByteSize::mib(2));
}

/// Exports a block and imports it again.
fn import(driver: &HipDriver) -> Result<(), Error> {
    let size = granule(driver).size();
    let block = driver.create(FIRST, size, CreateOptions { exportable: true, ..CreateOptions::default() })?;
    let fd = driver.export(block)?;
    let imported = driver.import(FIRST, fd.as_fd(), size);
    driver.release(block)?;
    imported.and_then(|block| driver.release(block))
}

#[test]
fn descriptors_are_passed_as_the_release_takes_them() {
    for (minor, off) in [(0, false), (1, true)] {
        let fake = Fake::build(&format!("import-7-{minor}"), &[]).version(7, minor);
        import(&fake.driver()).expect("in the right form");
        fake.clean();
        let driver = fake.open(&[("hip-import-pointer", off)]).expect("the fake opens");
        assert_eq!(kind(import(&driver)), Some(Kind::InvalidArgument));
    }
}

#[test]
fn structs_with_two_layouts_are_not_asked_for() {
    let fake = Fake::build("structs", &[]);
    let driver = fake.driver();
    assert!(is_forced(&driver, "hip-structs"));
    assert_eq!(driver.architecture(FIRST).expect("a device"), "gfx942");
    // The fake counts each call of the old functions as a breach.
    fake.clean();
    // Without the function whose name pins its struct, the version is all there is.
    let lacks = Fake::build("structs-none", &["-DhipGetDevicePropertiesR0600=hidden"]);
    let driver = lacks.driver();
    assert_eq!(driver.architecture(FIRST).expect("a device"), "gfx94");
    assert!(Care::ALWAYS.has(Care::NO_STRUCTS));
    driver.device_info(FIRST).expect("a device");
    lacks.clean();
}
