//! Whether we take part: what the environment asks for, whether we were loaded in time, forks and the end.
#![allow(unsafe_code, reason = "the loader, pthread_atfork")]

use crate::call::Vendor;
use crate::note::{self, Level};
use crate::{real, report};
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What we do with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Nothing: it goes to the vendor.
    Out,
    /// Count and time it.
    Observe,
    /// Take care.
    On,
}

/// Set in a child after a fork: books and traces are the parent's.
static FORKED: AtomicBool = AtomicBool::new(false);
static PART: OnceLock<Part> = OnceLock::new();

/// What we do with a call of this process.
pub fn part(vendor: &'static Vendor) -> Part {
    let asked = *PART.get_or_init(|| start(vendor));
    if asked != Part::Out && FORKED.load(Ordering::Relaxed) {
        static SAID: AtomicBool = AtomicBool::new(false);
        note::once(&SAID, vendor, "called in a child after a fork: calls go to the vendor there");
        return Part::Out;
    }
    asked
}

/// Runs when the library is loaded, or at the first call, should that come earlier.
fn start(vendor: &'static Vendor) -> Part {
    // Read now: not in a child, where another thread may have been half way through it.
    note::wants(Level::Warn);
    let asked = match std::env::var("GVMM_PRELOAD").as_deref() {
        Ok("observe") => Part::Observe,
        Ok("on") => Part::On,
        Ok("off" | "") | Err(_) => return Part::Out,
        Ok(other) => {
            let text = format!("GVMM_PRELOAD={other}: off, observe or on; off is taken");
            note::say(vendor, Level::Warn, &text);
            return Part::Out;
        }
    };
    if !is_first(vendor) {
        return Part::Out;
    }
    // SAFETY: a function that may run in a child: it sets a flag.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    asked
}

extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// True where the program's calls come to this copy: what the main program sees under our key's name is ours.
fn is_first(vendor: &'static Vendor) -> bool {
    // SAFETY: NULL is the main program, with all that it sees.
    let main = unsafe { libc::dlopen(ptr::null(), libc::RTLD_LAZY) };
    let seen = real::symbol(main, vendor.key);
    if !seen.is_null() && base(seen) == base(ptr::from_ref(&PART).cast_mut().cast()) {
        return true;
    }
    let marked = !seen.is_null() && is_preload(seen);
    let why =
        if marked { "preloaded twice" } else { "loaded too late: set LD_PRELOAD before the program starts" };
    note::say(vendor, Level::Warn, &format!("{why}; this copy stays out"));
    false
}

/// Where the library of an address begins.
fn base(address: *mut c_void) -> *mut c_void {
    real::info(address).map_or(ptr::null_mut(), |info| info.dli_fbase)
}

/// True where an address lies in a copy of ours.
fn is_preload(address: *mut c_void) -> bool {
    let Some(info) = real::info(address).filter(|info| !info.dli_fname.is_null()) else { return false };
    // SAFETY: the name of a library that is there; nothing is loaded.
    let handle = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    !handle.is_null() && !real::symbol(handle, c"gvmm_preload_marker").is_null()
}

/// The library was loaded.
pub fn loaded(vendor: &'static Vendor) {
    let _ = part(vendor);
}

/// The process ends. Threads may still call: nothing is taken away.
pub fn ends(vendor: &'static Vendor) {
    if PART.get().is_some_and(|part| *part != Part::Out) && !FORKED.load(Ordering::Relaxed) {
        report::at_exit(vendor);
    }
}
