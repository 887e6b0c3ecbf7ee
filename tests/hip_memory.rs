//! Memory of the HIP driver over the fake library: ranges, peers, sharing, the layer above.

mod hip_common;

use gvmm::driver::{Access, AccessMode, CopySlice, CreateOptions, Driver};
use gvmm::error::{Error, Kind};
use gvmm::pool::Settings;
use gvmm::units::{ByteSize, DevicePtr, Granularity};
use gvmm::vm::{Device, Owner, RemapEntry};
use hip_common::{FIRST, Fake, Parts, RW, SECOND, copy, granule, kind, line};
use std::os::fd::AsFd;
use std::sync::Arc;

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
    let block = driver
        .create(FIRST, size, CreateOptions { exportable: true, ..CreateOptions::default() })
        .expect("a block");
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
fn threads_do_not_disturb_each_other() {
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

/// A remap that fails at any of HIP's calls leaves the bytes where they were, on every release.
#[test]
fn a_remap_that_fails_half_way_is_undone() {
    for (major, minor) in [(6, 4), (7, 14)] {
        let fake = Fake::build(&format!("undo-{major}"), &[]).version(major, minor);
        let driver: Arc<dyn Driver> = Arc::new(fake.driver());
        let device = Device::open(driver.clone(), FIRST).expect("a device");
        let granule = device.granularity().size().get();
        let at = |i: usize| ByteSize(i as u64 * granule);
        let block = |_| device.create_block(ByteSize(granule), CreateOptions::default()).expect("a block");
        let blocks: Vec<_> = (0..4).map(block).collect();
        let range = device.reserve(at(4), None, &[], Owner::Caller).expect("a range");
        let remap = |shift: usize| {
            let entry = |i: usize| RemapEntry {
                reservation: range.clone(),
                offset: at(i),
                block: Some(blocks[(i + shift) % 4].clone()),
            };
            device.remap(&(0..4).map(entry).collect::<Vec<_>>(), &[])
        };
        let address = |i: usize| DevicePtr(range.range().start().get() + at(i).get());
        let seen = |shift: u8| {
            (0..4).for_each(|i| assert_eq!(fake.read(FIRST, address(i), 8), [(i as u8 + shift) % 4; 8]));
        };
        remap(0).expect("remapped");
        (0..4).for_each(|i| fake.write(FIRST, address(i), &[i as u8; 8]));
        for call in ["hipMemMap", "hipMemUnmap"] {
            for nth in 1..=4 {
                fake.fail(call, nth, 999);
                remap(1).expect_err("it fails");
                seen(0);
            }
        }
        remap(1).expect("nothing fails any more");
        seen(1);
        drop((range, blocks));
        device.drain().expect("drained");
        drop((device, driver));
        fake.clean();
    }
}

/// A handle costs a file descriptor here, so that a pool makes fewer and larger ones.
#[test]
fn a_pool_has_large_chunks() {
    let fake = Fake::build("pool-chunks", &[]);
    let device = Device::open(Arc::new(fake.driver()), FIRST).expect("a device");
    for limit in [None, Some(ByteSize::mib(640))] {
        let settings = Settings { limit, ..Settings::default() };
        assert_eq!(settings.large_sizes(&device).map(|(_, chunk)| chunk), Ok(ByteSize::mib(64)));
    }
    drop(device);
    fake.clean();
}
