//! PyTorch's functions for Intel GPUs, on the fake Level Zero and a fake of what SYCL tells. Options and pools are the process's,
//! so each test is a process of its own.
#![allow(unsafe_code, reason = "calls the C ABI, and the fake's functions")]

mod ze_common;

use gvmm::capi::last_error::gvmm_last_error_message;
use gvmm::capi::options::{gvmm_configure, gvmm_options};
use gvmm::capi::pool::gvmm_pool_destroy;
use gvmm::capi::pool_stats::{gvmm_pool_query, gvmm_pool_stats};
use gvmm::capi::shims::xpu::*;
use gvmm::capi::status::{GVMM_ERROR_NO_DEVICE, GVMM_ERROR_WRONG_STATE, GVMM_STATUS_SUCCESS};
use gvmm::units::DevicePtr;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use ze_common::Fake;

const MIB: usize = 1 << 20;
/// An immediate list, in order, of Level Zero: what PyTorch's queues are.
const USUAL: u64 = 7;

/// Runs `body` in a process that runs only the test of this name.
fn alone(name: &str, body: fn(&str)) {
    if std::env::var("GVMM_TEST_ALONE").as_deref() == Ok(name) {
        return body(name);
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let output = command.args([name, "--exact", "--nocapture"]).env("GVMM_TEST_ALONE", name).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{errors}");
}

struct Bench {
    ze: Fake,
    sycl: *mut c_void,
    context: u64,
    devices: [u64; 2],
}

impl Bench {
    /// Both fakes, the second as of `libsycl.so.MAJOR`; no call of the library's was made yet.
    fn new(name: &str, major: u32, streams: &CStr, set: impl FnOnce(Fake) -> Fake) -> Self {
        let ze = set(Fake::build(name, &[]));
        let library = CString::new(ze.path.to_str().expect("UTF-8")).expect("no zero byte");
        // SAFETY: zero is a value of every number and pointer.
        let mut options: gvmm_options = unsafe { std::mem::zeroed() };
        options.struct_size = size_of::<gvmm_options>();
        options.level_zero_library = library.as_ptr();
        options.xpu_streams = streams.as_ptr();
        // SAFETY: the struct and its texts live during the call.
        assert_eq!(unsafe { gvmm_configure(&raw const options) }, GVMM_STATUS_SUCCESS);
        assert!(alloc(MIB, 0, 64).is_null());
        said("no SYCL library");
        let (context, mut count, mut driver, mut devices) = (ze.context(), 2_u32, 0_u64, [0_u64; 2]);
        ze.must("zeDriverGet", &[&raw mut count as u64, &raw mut driver as u64]);
        count = 2;
        ze.must("zeDeviceGet", &[driver, &raw mut count as u64, devices.as_mut_ptr() as u64]);
        Self { ze, sycl: sycl(name, major), context, devices }
    }

    fn call(&self, name: &CStr, words: [u64; 4]) -> u64 {
        // SAFETY: the handle is open for ever.
        let address = unsafe { libc::dlsym(self.sycl, name.as_ptr()) };
        assert!(!address.is_null());
        type Function = unsafe extern "C" fn(u64, u64, u64, u64) -> u64;
        // SAFETY: all of the fake's functions take numbers and pointers, and give one.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
        // SAFETY: the callers pass what the function asks for.
        unsafe { function(words[0], words[1], words[2], words[3]) }
    }

    fn queue_in(&self, context: u64, device: u64, kind: u64) -> u64 {
        let list = self.ze.list("zeCommandListCreateImmediate", context, device);
        self.call(c"fake_sycl_queue", [context, device, list, kind])
    }

    fn queue(&self) -> u64 {
        self.queue_in(self.context, self.devices[0], USUAL)
    }

    fn asked(&self) -> u64 {
        self.call(c"fake_sycl_asked", [0; 4])
    }

    fn usable(&self, context: u64, device: usize, at: *mut c_void) -> bool {
        self.ze.poke((context, self.devices[device]), DevicePtr(at as u64), &[1; 4096])
    }

    /// Waits until `wanted` is among what is given again, for a stream may have to pass first.
    fn comes_back(&self, wanted: *mut c_void, size: usize, queue: u64) {
        let begun = Instant::now();
        loop {
            let got = [(); 16].map(|()| alloc(size, 0, queue));
            got.iter().for_each(|block| free(*block, 0, queue));
            if got.contains(&wanted) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{wanted:?} is never used again");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The fake SYCL library, loaded as PyTorch has the real one.
fn sycl(name: &str, major: u32) -> *mut c_void {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sycl-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(format!("libsycl.so.{major}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("ffi_tests/fakes/fake_sycl.cc");
    let mut cc = Command::new("c++");
    cc.args(["-std=c++17", "-shared", "-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    let status = cc.arg(format!("-DMAJOR={major}")).arg("-o").arg(&path).arg(source).status();
    assert!(status.expect("a C++ compiler").success(), "the fake compiles");
    let text = CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
    // SAFETY: a path that ends in a zero byte.
    let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null());
    handle
}

fn alloc(size: usize, device: i32, queue: u64) -> *mut c_void {
    // SAFETY: the queue is one of the fake's, or is not looked at.
    unsafe { gvmm_xpu_alloc(size, device, queue as *mut c_void) }
}

fn free(address: *mut c_void, device: i32, queue: u64) {
    // SAFETY: as above; an address is looked up, not read.
    unsafe { gvmm_xpu_free(address, 0, device, queue as *mut c_void) };
}

fn record(address: *mut c_void, queue: u64) {
    // SAFETY: as above.
    unsafe { gvmm_xpu_record_stream(address, queue as *mut c_void) };
}

fn said(words: &str) {
    let (mut text, mut needed) = ([0_u8; 1024], 0);
    let to: *mut c_char = text.as_mut_ptr().cast();
    // SAFETY: there is room for as much as is said.
    assert_eq!(unsafe { gvmm_last_error_message(to, text.len(), &raw mut needed) }, GVMM_STATUS_SUCCESS);
    let text = CStr::from_bytes_until_nul(&text).expect("a text").to_string_lossy().into_owned();
    assert!(text.contains(words), "{words} is not in: {text}");
}

fn refused(device: i32, queue: u64, words: &str) {
    assert!(alloc(MIB, device, queue).is_null(), "{words}");
    said(words);
}

fn stats(device: i32) -> gvmm_pool_stats {
    let mut pool = std::ptr::null_mut();
    // SAFETY: zero is a value of every number.
    let mut stats: gvmm_pool_stats = unsafe { std::mem::zeroed() };
    stats.struct_size = size_of::<gvmm_pool_stats>();
    // SAFETY: there is a place for the handle.
    assert_eq!(unsafe { gvmm_xpu_pool(device, &raw mut pool) }, GVMM_STATUS_SUCCESS);
    // SAFETY: the handle is live, and the struct says its size.
    assert_eq!(unsafe { gvmm_pool_query(pool, &raw mut stats) }, GVMM_STATUS_SUCCESS);
    // SAFETY: as above.
    assert_eq!(unsafe { gvmm_pool_destroy(pool) }, GVMM_STATUS_SUCCESS);
    stats
}

#[test]
fn memory_is_of_the_queues_context_and_one_queue_is_declared() {
    alone("memory_is_of_the_queues_context_and_one_queue_is_declared", |_| {
        let bench = Bench::new("xpu-one", 8, c"one", |ze| ze.set("FAKE_ZE_MEMORY", 256 << 20));
        let mut none = std::ptr::null_mut();
        // SAFETY: there is a place for the handle.
        let pool = |device, to: &mut *mut _| unsafe { gvmm_xpu_pool(device, to) };
        assert_eq!([pool(0, &mut none), pool(64, &mut none)], [GVMM_ERROR_WRONG_STATE, GVMM_ERROR_NO_DEVICE]);
        bad_queues(&bench);
        let queue = bench.queue();
        let block = alloc(3 * MIB, 0, queue);
        assert!(bench.usable(bench.context, 0, block), "in the queue's context");
        assert!(!bench.usable(bench.ze.context(), 0, block), "and in no other");
        assert_eq!(bench.ze.calls("zeContextCreate"), 2, "by this test; none by the library");
        assert_eq!(bench.call(c"fake_sycl_holders", [queue, 0, 0, 0]), 2, "the queue, and the library");
        second_queues(&bench, queue, block);
        bad_frees(&bench, queue, block);
        used_by_another(&bench, queue);
        let most = alloc(200 * MIB, 0, queue);
        assert!(!most.is_null() && alloc(80 * MIB, 0, queue).is_null());
        said("80 MiB asked");
        free(most, 0, queue);
        assert_eq!(stats(0).all.requested_bytes.current, 0);
        bench.ze.no_breach();
    });
}

/// NULL, another backend, out of order, batched, a number that no device has, and one of a device that is none.
fn bad_queues(bench: &Bench) {
    assert!(alloc(0, 0, 0).is_null() && alloc(0, 77, 64).is_null());
    let kind = |kind| bench.queue_in(bench.context, bench.devices[0], kind);
    refused(0, 0, "NULL is no sycl::queue");
    refused(0, kind(3), "not one of Level Zero");
    refused(0, kind(5), "out of order");
    refused(0, kind(6), "UR_L0_USE_IMMEDIATE_COMMANDLISTS");
    for number in [-1, 64, i32::MAX] {
        refused(number, bench.queue(), "no device has this number");
    }
    let list = bench.ze.list("zeCommandListCreateImmediate", bench.context, bench.devices[0]);
    refused(0, bench.call(c"fake_sycl_queue", [bench.context, 0, list, USUAL]), "a context and a device");
    assert_eq!(bench.ze.calls("zePhysicalMemCreate"), 0);
}

fn second_queues(bench: &Bench, queue: u64, block: *mut c_void) {
    let other = bench.queue();
    refused(0, other, "a second stream, where one is declared");
    // What is freed for it stays in use, for nobody knows what it still does.
    free(block, 0, other);
    said("a second stream");
    let next = alloc(3 * MIB, 0, queue);
    assert_ne!(next, block);
    free(next, 0, queue);
    refused(0, bench.queue_in(bench.ze.context(), bench.devices[0], USUAL), "another device or context");
    // A copy of the object is the same stream, and nobody is asked twice.
    let copy = bench.call(c"fake_sycl_copy", [queue, 0, 0, 0]);
    let same = alloc(3 * MIB, 0, copy);
    let asked = bench.asked();
    free(same, 0, copy);
    assert_eq!(alloc(3 * MIB, 0, queue), same, "at once");
    free(same, 0, queue);
    assert_eq!(bench.asked(), asked);
    // Each device has its own.
    let second = bench.queue_in(bench.context, bench.devices[1], USUAL);
    let there = alloc(MIB, 1, second);
    assert!(bench.usable(bench.context, 1, there));
    free(there, 0, second);
    assert_eq!(stats(1).all.blocks.current, 0, "found although the number is wrong");
}

fn bad_frees(bench: &Bench, queue: u64, block: *mut c_void) {
    let (before, asked, on_stack) = (stats(0).all.blocks.current, bench.asked(), 0_u64);
    free(std::ptr::null_mut(), 0, queue);
    free((&raw const on_stack).cast_mut().cast(), 0, queue);
    // Garbage in place of a queue is not touched for an address that is nobody's.
    free((&raw const on_stack).cast_mut().cast(), 0, 24);
    free(block.wrapping_byte_add(512), 0, queue);
    record(std::ptr::null_mut(), queue);
    record((&raw const on_stack).cast_mut().cast(), 24);
    said("no block in use holds this address");
    assert_eq!((stats(0).all.blocks.current, bench.asked()), (before, asked));
    free(block, -7, queue);
    free(block, 0, queue);
    assert_eq!(stats(0).all.blocks.current, before - 1);
    // Without a queue: for the block's own.
    let again = alloc(3 * MIB, 0, queue);
    free(again, 0, 0);
    assert_eq!(alloc(3 * MIB, 0, queue), again);
    free(again, 0, queue);
    // The one that `second_queues` has left.
    let left = stats(0).all.blocks.current;
    assert_eq!(left, before - 1);
}

/// A queue that was named as using a block holds it back, and may still not allocate.
fn used_by_another(bench: &Bench, queue: u64) {
    let (other, block) = (bench.queue(), alloc(5 * MIB, 0, queue));
    bench.ze.hold(true);
    record(block.wrapping_byte_add(4096), other);
    refused(0, other, "a second stream");
    free(block, 0, queue);
    let elsewhere = alloc(5 * MIB, 0, queue);
    assert!(!elsewhere.is_null() && elsewhere != block);
    bench.ze.hold(false);
    bench.comes_back(block, 5 * MIB, queue);
    free(elsewhere, 0, queue);
}

#[test]
fn any_queue_allocates_where_that_is_said() {
    alone("any_queue_allocates_where_that_is_said", |_| {
        let bench = Bench::new("xpu-any", 9, c"any", |ze| ze);
        let queues = [bench.queue(), bench.queue()];
        let blocks = queues.map(|queue| alloc(5 * MIB, 0, queue));
        assert!(blocks.iter().all(|block| bench.usable(bench.context, 0, *block)) && blocks[0] != blocks[1]);
        free(blocks[1], 0, queues[1]);
        assert_eq!(alloc(5 * MIB, 0, queues[1]), blocks[1], "at once");
        // The last use of one is by the other's queue.
        bench.ze.hold(true);
        free(blocks[0], 0, queues[1]);
        assert_ne!(alloc(5 * MIB, 0, queues[0]), blocks[0]);
        bench.ze.hold(false);
        bench.comes_back(blocks[0], 5 * MIB, queues[0]);
        refused(0, bench.queue_in(bench.context, bench.devices[1], USUAL), "another device or context");
        bench.ze.no_breach();
    });
}

#[test]
fn memory_is_allocations_where_libraries_refuse_what_is_mapped() {
    alone("memory_is_allocations_where_libraries_refuse_what_is_mapped", |_| {
        let bench = Bench::new("xpu-plain", 8, c"one", |ze| ze.set("FAKE_ZE_USM", 0));
        let queue = bench.queue();
        let small = alloc(5000, 0, queue);
        let tried = bench.ze.calls("zePhysicalMemCreate");
        let blocks = [3, 40].map(|size| alloc(size * MIB, 0, queue));
        assert!(blocks.iter().chain([&small]).all(|block| bench.usable(bench.context, 0, *block)));
        assert_eq!(bench.ze.calls("zePhysicalMemCreate"), tried, "only when it was tried");
        assert!(bench.ze.calls("zeMemAllocDevice") > 0);
        free(blocks[1], 0, queue);
        assert_eq!(alloc(40 * MIB, 0, queue), blocks[1], "at once");
        bench.ze.no_breach();
    });
}

#[test]
fn of_many_first_queues_one_is_the_first_and_a_failure_leaves_none() {
    alone("of_many_first_queues_one_is_the_first_and_a_failure_leaves_none", |_| {
        let bench = Bench::new("xpu-first", 9, c"one", |ze| ze);
        let failed = bench.queue();
        bench.ze.fail("zeDeviceGetProperties", 1, 0x7000_0001);
        assert!(alloc(MIB, 0, failed).is_null(), "nothing is opened");
        let first = bench.queue();
        // The first block is made when virtual memory is tried.
        bench.ze.fail("zePhysicalMemCreate", 2, 0x7000_0002);
        assert!(alloc(MIB, 0, first).is_null(), "there is a pool, without memory");
        refused(0, failed, "a second stream");
        assert!(!alloc(MIB, 0, first).is_null());
        let queues: Vec<u64> =
            (0..8).map(|_| bench.queue_in(bench.context, bench.devices[1], USUAL)).collect();
        let start = std::sync::Barrier::new(queues.len());
        let taken = std::thread::scope(|scope| {
            let start = &start;
            let spawn = |queue: &u64| {
                let queue = *queue;
                scope.spawn(move || {
                    start.wait();
                    !alloc(MIB, 1, queue).is_null()
                })
            };
            let threads: Vec<_> = queues.iter().map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).filter(|taken| *taken).count()
        });
        assert_eq!((taken, stats(1).all.blocks.current), (1, 1));
        bench.ze.no_breach();
    });
}
