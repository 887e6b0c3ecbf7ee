//! PyTorch's hooks over HIP's driver, on the fake library: PyTorch reads scalars of a device whose memory is all in the host's
//! reach from there, so mapped memory is for it only where the host was granted access too. Each case in a process of its own,
//! since the options and the pools are the process's.
#![allow(unsafe_code, reason = "calls the C ABI from Rust")]

mod hip_common;

use gvmm::capi::options::{gvmm_configure, gvmm_options};
use gvmm::capi::shims::torch::*;
use gvmm::capi::status::GVMM_STATUS_SUCCESS;
use gvmm::driver::DriverKind;
use hip_common::Fake;
use std::ffi::{CStr, CString, c_void};
use std::process::Command;

const MIB: usize = 1 << 20;

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

fn configure(fake: &Fake, peers: &CStr) {
    let library = CString::new(fake.path.to_str().expect("UTF-8")).expect("no zero byte");
    // SAFETY: zero is a value of every number and pointer.
    let mut options: gvmm_options = unsafe { std::mem::zeroed() };
    options.struct_size = size_of::<gvmm_options>();
    (options.driver, options.hip_library) = (DriverKind::HIP.0, library.as_ptr());
    options.pool_peers = peers.as_ptr();
    // SAFETY: the struct and its texts live during the call.
    assert_eq!(unsafe { gvmm_configure(&raw const options) }, GVMM_STATUS_SUCCESS);
}

fn alloc(size: usize) -> *mut c_void {
    // SAFETY: plain values.
    unsafe { gvmm_torch_alloc(size, 0, std::ptr::null_mut()) }
}

fn free(address: *mut c_void) {
    // SAFETY: an address is looked up, not read.
    unsafe { gvmm_torch_free(address, 0, 0, std::ptr::null_mut()) };
}

/// Allocates, and gives how often physical memory was made, plain memory was allocated, and what the host may do there.
fn allocates(fake: &Fake) -> (u64, u64, u64) {
    configure(fake, c"none");
    let block = alloc(3 * MIB);
    assert!(!block.is_null());
    let host = fake.number("fake_hip_host", block as u64);
    free(block);
    assert_eq!(alloc(3 * MIB), block, "from the pool");
    free(block);
    assert_eq!(fake.breaches(), 0, "{}", fake.last_breach());
    (fake.calls("hipMemCreate"), fake.calls("hipMalloc"), host)
}

#[test]
fn mapped_memory_is_given_where_the_host_reads_it_too() {
    alone("mapped_memory_is_given_where_the_host_reads_it_too", |_| {
        let (made, _, host) = allocates(&Fake::build("torch-granted", &[]).version(7, 2));
        assert!(made >= 2, "for the trial, and for the pool");
        assert_eq!(host, 3);
    });
}

#[test]
fn mapped_memory_is_given_where_the_host_reads_nothing() {
    alone("mapped_memory_is_given_where_the_host_reads_nothing", |_| {
        let fake = Fake::build("torch-small", &[]).version(7, 1).set("FAKE_HIP_LARGE_BAR", 0);
        let (made, _, host) = allocates(&fake);
        assert_eq!((made, host), (1, 0));
    });
}

#[test]
fn before_the_host_can_be_granted_access_memory_is_plain() {
    alone("before_the_host_can_be_granted_access_memory_is_plain", |_| {
        let (made, plain, _) = allocates(&Fake::build("torch-old", &[]).version(7, 1));
        assert_eq!(made, 0);
        assert!(plain > 0);
    });
}

#[test]
fn where_the_host_is_refused_memory_is_plain() {
    alone("where_the_host_is_refused_memory_is_plain", |_| {
        let fake = Fake::build("torch-refused", &[]).version(7, 2).with("host-refused");
        let (made, plain, _) = allocates(&fake);
        assert_eq!(made, 1, "for the trial");
        assert!(plain > 0);
    });
}

#[test]
fn peers_of_plain_memory_are_an_error() {
    alone("peers_of_plain_memory_are_an_error", |_| {
        let fake = Fake::build("torch-peers", &[]).version(7, 1);
        configure(&fake, c"all");
        assert!(alloc(3 * MIB).is_null());
        assert_eq!((fake.calls("hipMemCreate"), fake.breaches()), (0, 0), "{}", fake.last_breach());
    });
}
