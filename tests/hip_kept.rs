//! The fault that memory is returned only once its range is freed. The driver frees the range and reserves it again;
//! meanwhile another thread of the process may take its addresses, so these tests have a process of their own and run
//! one at a time.

mod hip_common;

use gvmm::driver::hip::HipDriver;
use gvmm::driver::{CreateOptions, Driver};
use gvmm::error::{Error, Kind};
use gvmm::units::ByteSize;
use hip_common::{EVENTS, FIRST, Fake, conforms, granule, kind, line};
use std::sync::{Mutex, MutexGuard, PoisonError};

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn the_driver_conforms_while_known_faults_are_shown() {
    let _alone = alone();
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

/// Fills the device's memory, gives it back and fills it again, in a range that stays.
fn fill_twice(driver: &HipDriver) -> Result<(), Error> {
    let size = ByteSize::mib(512);
    let range = driver.reserve(FIRST, size, granule(driver))?;
    for _ in 0..3 {
        let block = driver.create(FIRST, size, CreateOptions::default())?;
        driver.map(range, block)?;
        driver.set_access(range, &[line(FIRST)])?;
        driver.unmap(range)?;
        driver.release(block)?;
    }
    driver.free(range)
}

#[test]
fn memory_that_a_range_keeps_is_given_back() {
    let _alone = alone();
    let fake = Fake::build("kept", &[]).version(7, 2).with("memory-kept").set("FAKE_HIP_MEMORY", 1 << 30);
    let driver = fake.driver();
    let before = driver.memory(FIRST).expect("figures").free;
    fill_twice(&driver).expect("it is returned");
    assert_eq!(driver.memory(FIRST).expect("figures").free, before);
    fake.clean();
    assert_eq!(kind(fill_twice(&fake.without("hip-memory-kept"))), Some(Kind::OutOfDeviceMemory));
}
