//! Memory that moves, is shared, adopted and reached by peers.

use super::{Bench, Native, RW, mapped, noise};
use gvmm::driver::{Access, CopySlice, CreateOptions, NativeBlock, Ordinal};
use gvmm::error::Kind;
use gvmm::units::ByteSize;
use std::ffi::c_void;
use std::os::fd::AsFd;

/// The memory behind an address changes, the address does not; one block is seen at two addresses.
pub(crate) fn memory_moves_behind_an_address(bench: &Bench) {
    let driver = &bench.driver;
    let access = [Access { device: bench.device, mode: RW }];
    let ((one, first), (two, second)) = (mapped(bench, 1), mapped(bench, 1));
    bench.native.write(0, one.start(), &noise(1000, 1));
    bench.native.write(0, two.start(), &noise(1000, 2));
    driver.unmap(one).expect("unmapped");
    driver.map(one, second).expect("an alias");
    driver.set_access(one, &access).expect("accessible");
    assert_eq!(bench.native.read(0, one.start(), 1000), noise(1000, 2));
    driver.unmap(two).expect("unmapped");
    driver.map(two, first).expect("swapped");
    driver.set_access(two, &access).expect("accessible");
    assert_eq!(bench.native.read(0, two.start(), 1000), noise(1000, 1));
    for range in [one, two] {
        driver.unmap(range).expect("unmapped");
        driver.free(range).expect("freed");
    }
    for block in [first, second] {
        driver.release(block).expect("released");
    }
}

/// A list with a peer in it, and a copy by that peer; skipped with one device.
pub(crate) fn peers_reach_blocks(bench: &Bench) -> Result<(), &'static str> {
    if bench.driver.device_count() < 2 {
        return Err("one device only");
    }
    let (driver, peer) = (&bench.driver, Ordinal(1));
    let (range, block) = mapped(bench, 2);
    let both = [Access { device: bench.device, mode: RW }, Access { device: peer, mode: RW }];
    match driver.set_access(range, &both) {
        Err(error) if error.kind == Kind::Unsupported => return Err("the devices cannot reach each other"),
        other => other.expect("accessible for both"),
    }
    bench.native.write(0, range.start(), &noise(4096, 9));
    let dst = driver.allocate(peer, ByteSize(4096)).expect("memory");
    let stream = driver.streams().create(peer).expect("a stream");
    driver.copy(peer, stream, &[CopySlice { dst, src: range.start(), bytes: 4096 }]).expect("copied");
    bench.wait(stream);
    assert_eq!(bench.native.read(1, dst, 4096), noise(4096, 9));
    driver.deallocate(peer, dst).expect("freed");
    driver.streams().destroy(stream).expect("destroyed");
    driver.unmap(range).expect("unmapped");
    driver.release(block).expect("released");
    driver.free(range).expect("freed");
    Ok(())
}

/// An exported block comes back with its bytes and its size; a block is recognised by its handle.
pub(crate) fn blocks_are_shared(bench: &Bench) {
    let driver = &bench.driver;
    let granule = driver.granularity(bench.device, ByteSize(1)).expect("a granule");
    let (size, double) = (granule.size(), ByteSize(granule.size().get() * 2));
    let block = driver
        .create(bench.device, size, CreateOptions { exportable: true, ..CreateOptions::default() })
        .expect("a block");
    let range = driver.reserve(bench.device, size, granule).expect("a range");
    let access = [Access { device: bench.device, mode: RW }];
    driver.map(range, block).expect("mapped");
    driver.set_access(range, &access).expect("accessible");
    bench.native.write(0, range.start(), &noise(100, 3));
    driver.unmap(range).expect("unmapped");
    let fd = driver.export(block).expect("exported");
    let wrong = driver.import(bench.device, fd.as_fd(), double).expect_err("another size");
    assert_eq!(wrong.kind, Kind::InvalidSize);
    let again = driver.import(bench.device, fd.as_fd(), size).expect("imported");
    driver.release(block).expect("released");
    driver.map(range, again).expect("mapped");
    driver.set_access(range, &access).expect("accessible");
    assert_eq!(bench.native.read(0, range.start(), 100), noise(100, 3));
    driver.unmap(range).expect("unmapped");
    assert_eq!(
        driver.check_native(bench.device, again, double).expect_err("a wrong size").kind,
        Kind::InvalidSize
    );
    driver.check_native(bench.device, again, size).expect("the right size");
    driver.release(again).expect("released");
    driver.free(range).expect("freed");
}

/// A handle that somebody else in the process made is checked, mapped and left to its maker. The numbers of blocks
/// that are gone come back for others.
pub(crate) fn foreign_blocks_are_adopted(bench: &Bench) {
    let driver = &bench.driver;
    let granule = driver.granularity(bench.device, ByteSize(1)).expect("a granule");
    for granules in [1, 2, 1] {
        let size = ByteSize(granule.size().get() * granules);
        let own = driver.create(bench.device, granule.size(), CreateOptions::default()).expect("a block");
        driver.release(own).expect("released");
        let block = foreign_block(&bench.native, size);
        let range = driver.reserve(bench.device, ByteSize(size.get() * 2), granule).expect("a range");
        let too_large = driver.check_native(bench.device, block, range.size()).expect_err("too large");
        assert_eq!(too_large.kind, Kind::InvalidSize);
        driver.check_native(bench.device, block, size).expect("the right size");
        let part = range.slice(ByteSize::ZERO, size).expect("a part");
        driver.map(part, block).expect("mapped");
        driver.set_access(part, &[Access { device: bench.device, mode: RW }]).expect("accessible");
        bench.native.write(0, part.start(), &[1, 2, 3]);
        driver.unmap(part).expect("unmapped");
        driver.free(range).expect("freed");
        assert_eq!(bench.native.call("cuMemRelease", block.0, 0, 0), 0);
    }
}

/// A block of device 0 that a framework made by the driver's own call.
fn foreign_block(native: &Native, size: ByteSize) -> NativeBlock {
    // CUmemAllocationProp: pinned (1), no handle types, on a device (1), number 0.
    let properties: [u32; 8] = [1, 0, 1, 0, 0, 0, 0, 0];
    let mut handle = 0_u64;
    type Create = unsafe extern "C" fn(*mut u64, u64, *const u32, u64) -> i32;
    // SAFETY: the signature that cuda.h gives it.
    let create = unsafe { std::mem::transmute::<*mut c_void, Create>(native.symbol("cuMemCreate")) };
    // SAFETY: all pointers are to live locals of the sizes asked for.
    assert_eq!(unsafe { create(&raw mut handle, size.get(), properties.as_ptr(), 0) }, 0);
    NativeBlock(handle)
}
