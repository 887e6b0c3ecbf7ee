//! The faults of HIP's set-access: with the fault shown and the quirk off the failure is seen, with the quirk on it is
//! taken care of.

mod hip_common;

use gvmm::driver::hip::HipDriver;
use gvmm::driver::{Access, AccessMode, Driver};
use gvmm::error::{Error, Kind};
use hip_common::{FIRST, Fake, Parts, SECOND, kind, line};

#[test]
fn a_set_access_that_fails_is_made_again() {
    for fault in ["access-fails", "access-joined"] {
        let fake = Fake::build(fault, &[]).version(7, 14).with(fault);
        let driver = fake.without("hip-set-access-fails");
        let parts = Parts::new(&driver, 3).map(&driver);
        let error = driver.set_access(parts.range, &[line(FIRST)]).expect_err("once is not enough");
        assert_eq!(error.native.map(|n| n.code), Some(1));
        parts.end(&driver);
        let driver = fake.driver();
        let parts = Parts::new(&driver, 3).map(&driver);
        for _ in 0..5 {
            driver
                .set_access(parts.range, &[line(FIRST), line(SECOND)])
                .expect("again, or mapping by mapping");
        }
        fake.write(FIRST, parts.parts[2].start(), &[1]);
        parts.end(&driver);
        fake.clean();
    }
}

/// Access for a part in the middle after the whole has it.
fn access_to_a_part(driver: &HipDriver) -> Result<(), Error> {
    let parts = Parts::new(driver, 3);
    let map = |i: usize| driver.map(parts.parts[i], parts.blocks[i]);
    (0..3).try_for_each(map)?;
    driver.set_access(parts.range, &[line(FIRST)])?;
    driver.unmap(parts.parts[1])?;
    map(1)?;
    let result = driver.set_access(parts.parts[1], &[line(FIRST)]);
    parts.end(driver);
    result
}

#[test]
fn where_a_part_is_refused_all_that_is_mapped_is_named() {
    let fake = Fake::build("access-part", &[]).version(7, 14).with("access-part");
    access_to_a_part(&fake.driver()).expect("by the whole");
    let driver = fake.without("hip-set-access-part");
    assert_eq!(kind(access_to_a_part(&driver)), Some(Kind::InvalidArgument));
    fake.clean();
}

/// Grants the own device and then a peer, in one call and in two, and reads what is there.
fn grant_peers(fake: &Fake, driver: &HipDriver) -> [u8; 2] {
    let parts = Parts::new(driver, 2).map(driver);
    let [first, second] = [parts.parts[0], parts.parts[1]];
    driver.set_access(first, &[line(FIRST), line(SECOND)]).expect("granted");
    driver.set_access(second, &[line(FIRST)]).expect("granted");
    driver.set_access(second, &[Access { device: SECOND, mode: AccessMode::READ }]).expect("granted");
    let seen = [first, second].map(|part| {
        fake.write(FIRST, part.start(), &[7]);
        fake.read(FIRST, part.start(), 1)[0]
    });
    parts.end(driver);
    seen
}

#[test]
fn peers_are_granted_first_and_the_own_device_last() {
    let fake = Fake::build("peer-last", &[]).version(7, 14).with("peer-last");
    assert_eq!(grant_peers(&fake, &fake.driver()), [7, 7]);
    assert_eq!(grant_peers(&fake, &fake.without("hip-peer-after-local")), [0xEE, 0xEE]);
    fake.clean();
}

/// What the host may do with a mapping of which the device has all.
fn host_access(fake: &Fake, driver: &HipDriver) -> u64 {
    let parts = Parts::new(driver, 1).map(driver);
    driver.set_access(parts.range, &[line(FIRST)]).expect("accessible");
    let flags = fake.number("fake_hip_host", parts.range.start().get());
    parts.end(driver);
    flags
}

#[test]
fn the_host_has_what_the_device_has_on_large_bars() {
    let fake = Fake::build("bar", &[]).version(7, 2);
    let driver = fake.driver();
    assert_eq!(host_access(&fake, &driver), 3);
    assert!(driver.host_reaches(FIRST).expect("a device"));
    assert_eq!(host_access(&fake, &fake.without("hip-large-bar")), 0);
    // Before 7.2 it cannot be granted, and small bars have nothing to grant: people are told.
    let old = Fake::build("bar-old", &[]).version(7, 1);
    let small = Fake::build("bar-small", &[]).version(7, 2).set("FAKE_HIP_LARGE_BAR", 0);
    let refused = Fake::build("bar-refused", &[]).version(7, 2).with("host-refused");
    for fake in [&old, &small, &refused] {
        let driver = fake.driver();
        for _ in 0..2 {
            assert_eq!(host_access(fake, &driver), 0);
        }
        assert!(!driver.host_reaches(FIRST).expect("a device"));
        let notes = driver.notes(FIRST).expect("a device").join("; ");
        assert!(notes.contains("PyTorch"), "{notes}");
        drop(driver);
        fake.clean();
    }
    // Once refused, it is not asked for again.
    let calls = refused.calls("hipMemSetAccess");
    assert!(calls <= 4 + 1 + 1, "{calls}");
    fake.clean();
}
