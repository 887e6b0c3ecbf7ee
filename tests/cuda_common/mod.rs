//! Checks of the CUDA driver beyond the conformance suite, for a real library and for the fake one alike.
#![allow(unsafe_code, reason = "calls the driver library as a framework in the same process would")]
#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod fake;

use gvmm::driver::cuda::CudaDriver;
use gvmm::driver::testing::conformance::{self, Outcome, Staged};
use gvmm::driver::{
    Access, AccessMode, Capabilities, CopySlice, CreateOptions, Driver, NativeBlock, Ordinal, Stream,
    TimelineId,
};
use gvmm::error::Kind;
use gvmm::units::{ByteSize, DevicePtr, DeviceRange};
use gvmm::vm::{Device, Owner, RemapEntry};
use std::ffi::{CString, c_void};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

pub(crate) const RW: AccessMode = AccessMode::READ_WRITE;

/// The driver library as somebody else in this process uses it.
pub(crate) struct Native(*mut c_void);

// SAFETY: the handle is only given to dlsym.
unsafe impl Send for Native {}
// SAFETY: as above.
unsafe impl Sync for Native {}

impl Native {
    pub(crate) fn open(path: &Path) -> Self {
        let path = CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
        // SAFETY: a path that ends in a zero byte.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?} opens");
        Self(handle)
    }

    pub(crate) fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("no zero byte");
        // SAFETY: the handle is open for ever.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is there");
        address
    }

    /// Calls a function of up to three words; those that are too many are ignored by the C convention.
    pub(crate) fn call(&self, name: &str, a: u64, b: u64, c: u64) -> i32 {
        type Function = unsafe extern "C" fn(u64, u64, u64) -> i32;
        // SAFETY: every function called by this takes integers and pointers only.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.symbol(name)) };
        // SAFETY: the callers below pass what cuda.h asks for.
        unsafe { function(a, b, c) }
    }

    /// Calls a function of up to nine words, or gives none where the library lacks it.
    pub(crate) fn call_long(&self, name: &str, a: [u64; 9]) -> Option<i32> {
        type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;
        let symbol = CString::new(name).expect("no zero byte");
        // SAFETY: the handle is open for ever.
        let address = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        if address.is_null() {
            return None;
        }
        // SAFETY: as for `call`.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
        // SAFETY: as for `call`.
        Some(unsafe { function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]) })
    }

    pub(crate) fn must(&self, name: &str, a: u64, b: u64, c: u64) {
        assert_eq!(self.call(name, a, b, c), 0, "{name}");
    }

    pub(crate) fn current(&self) -> u64 {
        let mut context = 0_u64;
        self.must("cuCtxGetCurrent", &raw mut context as u64, 0, 0);
        context
    }

    /// Makes the primary context of a device current on this thread.
    pub(crate) fn enter(&self, device: u32) -> u64 {
        let mut context = 0_u64;
        self.must("cuDevicePrimaryCtxRetain", &raw mut context as u64, u64::from(device), 0);
        self.must("cuCtxPushCurrent_v2", context, 0, 0);
        context
    }

    pub(crate) fn leave(&self) {
        let mut context = 0_u64;
        self.must("cuCtxPopCurrent_v2", &raw mut context as u64, 0, 0);
    }

    /// A context of a framework's own, current on this thread.
    pub(crate) fn own_context(&self, device: u32) -> u64 {
        let mut context = 0_u64;
        self.must("cuCtxCreate_v2", &raw mut context as u64, 0, u64::from(device));
        context
    }

    pub(crate) fn stream(&self) -> Stream {
        let mut stream = 0_u64;
        self.must("cuStreamCreate", &raw mut stream as u64, 1, 0);
        Stream(stream)
    }

    pub(crate) fn write(&self, device: u32, to: DevicePtr, bytes: &[u8]) {
        self.enter(device);
        self.must("cuMemcpyHtoD_v2", to.get(), bytes.as_ptr() as u64, bytes.len() as u64);
        // From pageable memory it may return before the last bytes are there.
        self.must("cuStreamSynchronize", 0, 0, 0);
        self.leave();
    }

    pub(crate) fn read(&self, device: u32, from: DevicePtr, size: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; size];
        self.enter(device);
        self.must("cuMemcpyDtoH_v2", bytes.as_mut_ptr() as u64, from.get(), size as u64);
        self.leave();
        bytes
    }
}

/// What every check gets.
pub(crate) struct Bench {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) native: Native,
    pub(crate) device: Ordinal,
}

impl Bench {
    pub(crate) fn new(driver: CudaDriver) -> Self {
        let native = Native::open(driver.library());
        Self { driver: Arc::new(driver), native, device: Ordinal(0) }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.driver.device_info(self.device).expect("a device").capabilities
    }

    fn granule(&self) -> u64 {
        self.driver.granularity(self.device, ByteSize(1)).expect("a granule").size().get()
    }

    fn stream(&self) -> Stream {
        self.driver.streams().create(self.device).expect("a stream")
    }

    fn wait(&self, stream: Stream) {
        self.driver.streams().synchronize(stream).expect("the stream works");
    }

    fn buffer(&self, bytes: &[u8]) -> DevicePtr {
        let at = self.driver.allocate(self.device, ByteSize(bytes.len() as u64)).expect("memory");
        self.native.write(self.device.0, at, bytes);
        at
    }

    fn give_back(&self, buffers: &[DevicePtr]) {
        for at in buffers {
            self.driver.deallocate(self.device, *at).expect("freed");
        }
    }
}

/// Pseudo-random bytes.
pub(crate) fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..size).map(|_| step()).collect()
}

/// Bytes by the vendor's own copies, and access as the vendor's driver knows it.
fn staged(library: &Path) -> Staged {
    let native = Arc::new(Native::open(library));
    let (reader, asker) = (native.clone(), native.clone());
    let write = move |device: Ordinal, to: DevicePtr, bytes: &[u8]| {
        native.write(device.0, to, bytes);
        true
    };
    let read = move |device: Ordinal, from: DevicePtr, bytes: &mut [u8]| {
        bytes.copy_from_slice(&reader.read(device.0, from, bytes.len()));
        true
    };
    let access = move |device: Ordinal, at: DevicePtr| {
        // CUmemLocation: on a device (1), its number.
        let (mut flags, location) = (0_u64, [1_u32, device.0]);
        let status = asker.call("cuMemGetAccess", &raw mut flags as u64, location.as_ptr() as u64, at.get());
        (status == 0 && flags & 1 != 0, status == 0 && flags & 2 != 0)
    };
    Staged { write: Arc::new(write), read: Arc::new(read), access: Arc::new(access) }
}

/// Makes every conformance check on every device. Those in `lacking` must fail for the reason given.
pub(crate) fn conforms(driver: CudaDriver, lacking: (&[&str], &str)) {
    let staged = staged(driver.library());
    let driver: &Arc<dyn Driver> = &(Arc::new(driver) as Arc<dyn Driver>);
    let mut failed = Vec::new();
    for device in (0..driver.device_count()).map(Ordinal) {
        let mut passed = 0;
        for check in conformance::checks() {
            // Named before it is made: a driver that crashes tells no more.
            let name = check.name;
            print!("device {}: {name} ", device.0);
            std::io::stdout().flush().expect("standard output");
            let start = Instant::now();
            let outcome = check.run_staged(driver, device, Some(&staged));
            println!("({} ms)", start.elapsed().as_millis());
            match outcome {
                Outcome::Passed => passed += 1,
                Outcome::Skipped(reason) => println!("skipped: {name}: {reason}"),
                Outcome::Failed(mismatch) if lacking.0.contains(&name) => {
                    assert!(mismatch.seen.contains(lacking.1), "{name}: {mismatch}");
                    println!("not here: {name}: {}", lacking.1);
                }
                Outcome::Failed(mismatch) => failed.push(format!("device {}: {name}: {mismatch}", device.0)),
            }
        }
        println!("device {}: {passed} conformance checks passed", device.0);
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

/// One copy with the slices that `layout` gives as (to, from, bytes) offsets, against a plain model.
fn copy_as_modelled(bench: &Bench, size: usize, layout: &[(usize, usize, usize)]) -> u32 {
    let (source, mut model) = (noise(size, 77), noise(size, 78));
    let (src, dst) = (bench.buffer(&source), bench.buffer(&model));
    let at = |base: DevicePtr, offset: usize| DevicePtr(base.get() + offset as u64);
    let slices: Vec<CopySlice> = layout
        .iter()
        .map(|&(to, from, bytes)| CopySlice { dst: at(dst, to), src: at(src, from), bytes: bytes as u64 })
        .collect();
    let stream = bench.stream();
    let launches = bench.driver.copy(bench.device, stream, &slices).expect("copied");
    bench.wait(stream);
    for &(to, from, bytes) in layout {
        model[to..to + bytes].copy_from_slice(&source[from..from + bytes]);
    }
    let seen = bench.native.read(bench.device.0, dst, size);
    if let Some(first) = seen.iter().zip(&model).position(|(a, b)| a != b) {
        let blame = layout.iter().find(|(to, _, bytes)| (*to..to + bytes).contains(&first));
        panic!("byte {first} is wrong; the slice: {blame:?}");
    }
    bench.driver.streams().destroy(stream).expect("destroyed");
    bench.give_back(&[src, dst]);
    launches
}

/// Every alignment of both sides with sizes around every step of the kernel; every byte of the target is compared,
/// so that a byte too many is seen as well.
pub(crate) fn copies_of_every_alignment(bench: &Bench) {
    const SIZES: [usize; 22] =
        [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000, 1023, 4096, 4099, 4113];
    for skew in 0..16 {
        let (mut layout, mut at) = (Vec::new(), 64);
        for to in 0..16 {
            for bytes in SIZES {
                layout.push((at + to, at + (to + skew) % 16, bytes));
                at += (bytes + 64).next_multiple_of(32);
            }
        }
        copy_as_modelled(bench, at + 64, &layout);
    }
}

/// Slices larger than a tile, aligned and not, beside small ones.
pub(crate) fn copies_of_large_slices(bench: &Bench) {
    let step = 6 << 20;
    let mut layout = Vec::new();
    for (i, skew) in [0, 1, 4, 6, 8, 15].into_iter().enumerate() {
        layout.push((i * step + 16, i * step + 16 + skew, (5 << 20) + 12_345 + i));
        layout.push(((i + 1) * step - 200, (i + 1) * step - 180, 100));
    }
    let launches = copy_as_modelled(bench, 6 * step, &layout);
    if bench.capabilities().has(Capabilities::JOINT_COPIES) {
        assert_eq!(launches, 1);
    }
    copy_as_modelled(bench, 12 << 20, &[(5, 3, (11 << 20) + 7)]);
}

/// As many launches as tables are needed.
pub(crate) fn copies_share_launches(bench: &Bench, most: usize) {
    let layout = |count: usize| (0..count).map(|i| (i * 64, i * 64, 48)).collect::<Vec<_>>();
    for count in [1, 2, 8, 9, 64, 170, most] {
        assert_eq!(copy_as_modelled(bench, count * 64, &layout(count)), 1, "{count} slices");
    }
    assert_eq!(copy_as_modelled(bench, (most + 1) * 64, &layout(most + 1)), 2);
    let stream = bench.stream();
    assert_eq!(bench.driver.copy(bench.device, stream, &[]).expect("nothing"), 0);
    bench.driver.streams().destroy(stream).expect("destroyed");
}

/// A captured copy carries its table, and reads the bytes that are there when the graph runs.
pub(crate) fn copies_are_captured(bench: &Bench) {
    let (driver, stream) = (&bench.driver, bench.stream());
    let (src, dst) = (bench.buffer(&noise(4096, 1)), bench.buffer(&[0; 4096]));
    let mut slices: Vec<CopySlice> = (0..16)
        .map(|i| CopySlice {
            dst: DevicePtr(dst.get() + i * 256),
            src: DevicePtr(src.get() + i * 256),
            bytes: 256,
        })
        .collect();
    driver.streams().capture_begin(stream).expect("captured");
    assert!(driver.is_capturing(bench.device, stream).expect("asked"));
    driver.copy(bench.device, stream, &slices).expect("copied");
    let timeline = driver.timeline_create(bench.device).expect("also while a stream is captured");
    let refused = driver.timeline_write(stream, timeline, 1).expect_err("not into a graph");
    assert_eq!(refused.kind, Kind::StreamCapturing);
    let graph = driver.streams().capture_end(stream).expect("a graph");
    slices.clear();
    for seed in [11, 12] {
        let bytes = noise(4096, seed);
        bench.native.write(bench.device.0, src, &bytes);
        driver.streams().launch(graph, stream).expect("launched");
        bench.wait(stream);
        assert_eq!(bench.native.read(bench.device.0, dst, 4096), bytes);
    }
    driver.streams().destroy_graph(graph).expect("destroyed");
    driver.timeline_destroy(timeline).expect("destroyed");
    driver.streams().destroy(stream).expect("destroyed");
    bench.give_back(&[src, dst]);
}

/// The caller's current context is as before after every call, whether there was one or not.
pub(crate) fn contexts_are_left_alone(bench: &Bench) {
    let all = || {
        use_everything(bench);
        bench.native.current()
    };
    assert_eq!(bench.native.current(), 0, "a fresh thread");
    assert_eq!(all(), 0);
    let primary = bench.native.enter(0);
    assert_eq!(all(), primary);
    bench.native.leave();
    let own = bench.native.own_context(0);
    assert_eq!(all(), own);
    foreign_streams_work(bench);
    assert_eq!(bench.native.current(), own);
    bench.native.call("cuCtxDestroy_v2", own, 0, 0);
    assert_eq!(all(), 0);
}

/// A call of every kind, good and refused. What is copied is mapped memory: plain memory belongs to one context.
fn use_everything(bench: &Bench) {
    let driver = &bench.driver;
    driver.memory(bench.device).expect("memory");
    let stream = bench.stream();
    let timeline = driver.timeline_create(bench.device).expect("a timeline");
    driver.timeline_write(stream, timeline, 1).expect("written");
    driver.stream_wait(stream, timeline, 1).expect("waits");
    driver.timeline_wait(timeline, 1).expect("reached");
    bench.wait(stream);
    driver.timeline_destroy(timeline).expect("destroyed");
    let (range, block) = mapped(bench, 1);
    let slice = CopySlice { dst: DevicePtr(range.start().get() + 32), src: range.start(), bytes: 32 };
    driver.copy(bench.device, stream, &[slice]).expect("copied");
    driver.copy(bench.device, Stream(0), &[slice]).expect("on the default stream");
    bench.wait(stream);
    let nobody = bench.native.current() == 0;
    if nobody {
        bench.native.enter(bench.device.0);
    }
    bench.native.must("cuStreamSynchronize", 0, 0, 0);
    if nobody {
        bench.native.leave();
    }
    driver.free(range).expect_err("still mapped");
    driver.unmap(range).expect("unmapped");
    driver.unmap(range).expect_err("not mapped");
    driver.release(block).expect("released");
    driver.free(range).expect("freed");
    driver.allocate(bench.device, ByteSize(1 << 60)).expect_err("too much");
    driver.streams().destroy(stream).expect("destroyed");
}

/// A stream of a framework's own context, which is current.
fn foreign_streams_work(bench: &Bench) {
    let stream = bench.native.stream();
    let (range, block) = mapped(bench, 1);
    let (src, dst) = (range.start(), DevicePtr(range.start().get() + 4096));
    bench.native.write(bench.device.0, src, &noise(4096, 5));
    let timeline = bench.driver.timeline_create(bench.device).expect("a timeline");
    bench.driver.copy(bench.device, stream, &[CopySlice { dst, src, bytes: 4096 }]).expect("copied");
    bench.driver.timeline_write(stream, timeline, 7).expect("written");
    bench.driver.timeline_wait(timeline, 7).expect("reached");
    assert!(!bench.driver.is_capturing(bench.device, stream).expect("asked"));
    assert_eq!(bench.native.read(bench.device.0, dst, 4096), noise(4096, 5));
    bench.driver.timeline_destroy(timeline).expect("destroyed");
    bench.native.call("cuStreamDestroy_v2", stream.0, 0, 0);
    bench.driver.unmap(range).expect("unmapped");
    bench.driver.release(block).expect("released");
    bench.driver.free(range).expect("freed");
}

/// A block of some granules, mapped in a range of its own for its device.
fn mapped(bench: &Bench, granules: u64) -> (DeviceRange, gvmm::driver::NativeBlock) {
    let driver = &bench.driver;
    let granule = driver.granularity(bench.device, ByteSize(1)).expect("a granule");
    let size = ByteSize(granule.size().get() * granules);
    let range = driver.reserve(bench.device, size, granule).expect("a range");
    let block = driver.create(bench.device, size, CreateOptions::default()).expect("a block");
    driver.map(range, block).expect("mapped");
    driver.set_access(range, &[Access { device: bench.device, mode: RW }]).expect("accessible");
    (range, block)
}

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
    let block = driver.create(bench.device, size, CreateOptions { exportable: true }).expect("a block");
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

/// Streams of one device wait for each other's timelines, also where the wait is enqueued first.
pub(crate) fn timelines_order_streams(bench: &Bench, wait_first: bool) {
    let driver = &bench.driver;
    let (first, second) = (bench.stream(), bench.stream());
    let timeline = driver.timeline_create(bench.device).expect("a timeline");
    let order = Arc::new(AtomicU32::new(0));
    let step = |stream: Stream, expected: u32| {
        let order = order.clone();
        let function = Arc::new(move || {
            let _ = order.compare_exchange(expected, expected + 1, Ordering::SeqCst, Ordering::SeqCst);
        });
        driver.streams().enqueue(stream, function).expect("enqueued");
    };
    let wait = |timeline: TimelineId| {
        driver.stream_wait(second, timeline, 5).expect("waits");
        step(second, 1);
    };
    if wait_first {
        wait(timeline);
    }
    step(first, 0);
    driver.timeline_write(first, timeline, 5).expect("written");
    if !wait_first {
        wait(timeline);
    }
    driver.timeline_wait(timeline, 5).expect("reached");
    assert!(driver.timeline_read(timeline).expect("read") >= 5);
    bench.wait(second);
    assert_eq!(order.load(Ordering::SeqCst), 2);
    driver.timeline_destroy(timeline).expect("destroyed");
    for stream in [first, second] {
        driver.streams().destroy(stream).expect("destroyed");
    }
}

/// A stream that comes late to a wait for a timeline that is gone is not held up by whoever has its memory now.
pub(crate) fn late_waits_are_let_go(bench: &Bench) {
    let driver = &bench.driver;
    let (first, late) = (bench.stream(), bench.stream());
    let timeline = driver.timeline_create(bench.device).expect("a timeline");
    let gate = Arc::new(AtomicU32::new(0));
    let held = gate.clone();
    let hold = move || {
        while held.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    };
    driver.timeline_write(first, timeline, 5).expect("written");
    driver.timeline_wait(timeline, 5).expect("reached");
    driver.streams().enqueue(late, Arc::new(hold)).expect("enqueued");
    driver.stream_wait(late, timeline, 5).expect("waits");
    driver.timeline_destroy(timeline).expect("nothing is owed");
    let next: Vec<TimelineId> =
        (0..4).map(|_| driver.timeline_create(bench.device).expect("a timeline")).collect();
    for timeline in &next {
        assert_eq!(driver.timeline_read(*timeline).expect("read"), 0);
    }
    gate.store(1, Ordering::SeqCst);
    bench.wait(late);
    driver.timeline_write(first, next[0], 3).expect("written");
    driver.timeline_wait(next[0], 3).expect("reached");
    assert_eq!(driver.timeline_read(next[0]).expect("read"), 3);
    next.into_iter().for_each(|timeline| driver.timeline_destroy(timeline).expect("destroyed"));
    for stream in [first, late] {
        driver.streams().destroy(stream).expect("destroyed");
    }
}

/// What the layer above does: many entries remapped in one call, shuffled, copied, retired.
pub(crate) fn the_layer_above_works(bench: &Bench) {
    let device = Device::open(bench.driver.clone(), bench.device).expect("a device");
    let granule = device.granularity().size().get();
    let at = |i: usize| ByteSize(i as u64 * granule);
    let blocks: Vec<_> = (0..16)
        .map(|_| device.create_block(ByteSize(granule), CreateOptions::default()).expect("a block"))
        .collect();
    let range = device.reserve(at(16), None, &[], Owner::Caller).expect("a range");
    let stream = bench.stream();
    let remap = |shift: usize| {
        let entry = |i: usize| RemapEntry {
            reservation: range.clone(),
            offset: at(i),
            block: Some(blocks[(i + shift) % 16].clone()),
        };
        device.remap(&(0..16).map(entry).collect::<Vec<_>>(), &[stream]).expect("remapped")
    };
    let report = remap(0);
    assert_eq!((report.calls.map, report.calls.set_access), (16, 1));
    let address = |i: usize| DevicePtr(range.range().start().get() + at(i).get());
    for i in 0..16 {
        bench.native.write(0, address(i), &noise(64, i as u64 + 1));
    }
    let report = remap(5);
    assert_eq!((report.calls.unmap, report.calls.map, report.calls.set_access), (16, 16, 1));
    for i in 0..16 {
        assert_eq!(bench.native.read(0, address(i), 64), noise(64, (i as u64 + 5) % 16 + 1));
    }
    let slices: Vec<CopySlice> = (0..8)
        .map(|i| CopySlice { dst: DevicePtr(address(i).get() + 4096), src: address(i + 8), bytes: 64 })
        .collect();
    assert_eq!(device.shadow_copy(stream, &slices).expect("copied"), 1);
    device.forget_stream(stream).expect("forgotten");
    // What a stream still uses is retired, or waited for as here, and dropped then.
    bench.wait(stream);
    drop((range, blocks));
    device.drain().expect("drained");
    drop(device);
    bench.driver.streams().destroy(stream).expect("destroyed");
}

/// A copy from an address where nothing is ends every wait with the device's failure. Afterwards the process has
/// no use of the device, so this runs in a process of its own.
pub(crate) fn faults_end_waits(bench: &Bench) {
    let driver = &bench.driver;
    let granule = driver.granularity(bench.device, ByteSize(1)).expect("a granule");
    let hole = driver.reserve(bench.device, granule.size(), granule).expect("a range");
    let dst = bench.buffer(&[0; 256]);
    let (stream, timeline) = (bench.stream(), driver.timeline_create(bench.device).expect("a timeline"));
    let slices = [64, 0].map(|at| CopySlice { dst: DevicePtr(dst.get() + at), src: hole.start(), bytes: 64 });
    driver.copy(bench.device, stream, &slices).expect("enqueued");
    let write = driver.timeline_write(stream, timeline, 1);
    let error = write.and_then(|()| driver.timeline_wait(timeline, 1)).expect_err("the copy failed");
    assert!(matches!(error.kind, Kind::DeviceFault | Kind::DeviceLost), "{error}");
    assert!(error.native.is_some_and(|n| n.code == 700 || n.code == 719), "{error}");
    let sticky = driver.streams().synchronize(stream).expect_err("for good");
    assert!(matches!(sticky.kind, Kind::DeviceFault | Kind::DeviceLost), "{sticky}");
    println!("{error}");
}

/// Granules of the device, so that a test can be sized.
pub(crate) fn granule(bench: &Bench) -> u64 {
    bench.granule()
}
