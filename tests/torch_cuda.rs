//! PyTorch's hooks over CUDA's driver, on the fake library: whose contexts there are, and who may use the memory. One test, since
//! the options and the pools are the process's.
#![allow(unsafe_code, reason = "calls the C ABI from Rust")]

mod cuda_common;

use cuda_common::fake::Fake;
use gvmm::capi::options::{gvmm_configure, gvmm_options};
use gvmm::capi::shims::torch::*;
use gvmm::capi::status::GVMM_STATUS_SUCCESS;
use std::ffi::{CString, c_void};

const MIB: usize = 1 << 20;

fn configure(fake: &Fake) {
    let library = CString::new(fake.path.to_str().expect("UTF-8")).expect("no zero byte");
    // SAFETY: zero is a value of every number and pointer.
    let mut options: gvmm_options = unsafe { std::mem::zeroed() };
    options.struct_size = size_of::<gvmm_options>();
    options.cuda_library = library.as_ptr();
    options.pool_peers = c"1".as_ptr();
    // SAFETY: the struct and its texts live during the call.
    assert_eq!(unsafe { gvmm_configure(&raw const options) }, GVMM_STATUS_SUCCESS);
}

/// How often anybody asked for a device's primary context.
fn contexts(fake: &Fake) -> u64 {
    fake.calls("cuDevicePrimaryCtxRetain")
}

/// What a device may do at an address: CUDA's flags.
fn access(fake: &Fake, device: i32, address: *mut c_void) -> u64 {
    let (mut flags, location) = (0_u64, [1_i32, device]);
    fake.native.must("cuMemGetAccess", &raw mut flags as u64, location.as_ptr() as u64, address as u64);
    flags
}

fn alloc(size: usize, device: i32, stream: u64) -> *mut c_void {
    // SAFETY: plain values.
    unsafe { gvmm_torch_alloc(size, device, stream as *mut c_void) }
}

fn free(address: *mut c_void, device: i32, stream: u64) {
    // SAFETY: an address is looked up, not read.
    unsafe { gvmm_torch_free(address, 0, device, stream as *mut c_void) };
}

#[test]
fn contexts_are_pytorchs_and_peers_those_that_were_asked_for() {
    let fake = Fake::build("torch", &[]).set("FAKE_CUDA_DEVICES", 3);
    configure(&fake);
    assert_eq!(gvmm::driver::of_framework(), gvmm::driver::DriverKind::CUDA);
    // SAFETY: plain values.
    unsafe { gvmm_torch_init(3) };
    // Of a device that nobody uses yet.
    // SAFETY: plain values.
    unsafe { gvmm_torch_memory_fraction(0.5, 2) };
    fake.native.must("cuInit", 0, 0, 0);
    let own = fake.native.own_context(0);
    assert_eq!(contexts(&fake), 0);

    let on_default = alloc(3 * MIB, 0, 0);
    assert!(!on_default.is_null());
    assert_eq!(fake.native.current(), own, "the caller's context");
    assert_eq!(contexts(&fake), 1, "that of device 0");
    assert_eq!([0, 1, 2].map(|device| access(&fake, device, on_default)), [3, 3, 0]);

    fake.native.enter(0);
    let stream = fake.native.stream().0;
    let block = alloc(5 * MIB, 0, stream);
    let at = block as u64;
    assert!(!block.is_null() && at.is_multiple_of(512));
    // SAFETY: an address is looked up, not read.
    unsafe { gvmm_torch_record_stream(block, std::ptr::null_mut()) };
    free(block, 0, stream);
    free(on_default, 0, 0);
    // SAFETY: no values.
    unsafe { gvmm_torch_reset() };
    fake.native.leave();
    assert_eq!(fake.native.current(), own);
    assert_eq!(contexts(&fake), 2, "ours, and this test's");

    // A fraction that was set before there was a pool: of 4 GiB, half.
    assert!(alloc(2100 * MIB, 2, 0).is_null());
    let fits = alloc(1900 * MIB, 2, 0);
    assert!(!fits.is_null());
    assert_eq!(contexts(&fake), 3, "that of device 2 too, and none of device 1");
    assert_eq!([0, 1, 2].map(|device| access(&fake, device, fits)), [0, 3, 3]);
    free(fits, 2, 0);
    assert_eq!(fake.native.current(), own);
    assert_eq!(fake.number("fake_cuda_breaches"), 0, "{}", fake.last_breach());
}
