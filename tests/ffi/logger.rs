//! A Rust program's own logger is never replaced.
#![allow(unsafe_code, reason = "calls the C ABI from Rust")]

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

struct Mine;

static SEEN: AtomicU32 = AtomicU32::new(0);

impl log::Log for Mine {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }

    fn flush(&self) {}
}

unsafe extern "C" fn never(_: u32, _: *const c_char, _: *const c_char, _: *mut c_void) {
    std::process::abort();
}

#[test]
fn a_logger_that_is_there_stays() {
    log::set_logger(&Mine).expect("this test program's only logger");
    log::set_max_level(log::LevelFilter::Warn);
    let nothing = std::ptr::null_mut();
    // SAFETY: the function is good for any call, and has no data.
    let status = unsafe { gvmm::capi::log::gvmm_log_set_callback(Some(never), nothing, 5) };
    assert_eq!(status, gvmm::capi::status::GVMM_ERROR_IN_USE);
    // SAFETY: no function is given.
    let status = unsafe { gvmm::capi::log::gvmm_log_set_callback(None, nothing, 0) };
    assert_eq!(status, gvmm::capi::status::GVMM_STATUS_SUCCESS);
    assert_eq!(log::max_level(), log::LevelFilter::Warn, "the level is the program's too");
    log::warn!("seen");
    assert!(SEEN.load(Ordering::Relaxed) >= 1);
}
