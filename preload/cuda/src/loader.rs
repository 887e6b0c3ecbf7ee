//! `dlsym`, answered for the few names that are ours. Every other call goes on with its registers and its return address as
//! they were: what the C library does for `RTLD_NEXT` and `RTLD_DEFAULT` depends on who called.

use crate::ours;
use gvmm_preload_core::call::CUDA;
use gvmm_preload_core::{lookup, real};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Whoever answers `dlsym` behind us.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// An answer, and 1; or 0 where it is not ours to give.
#[repr(C)]
struct Answer {
    address: *mut c_void,
    given: u64,
}

const PASS: Answer = Answer { address: ptr::null_mut(), given: 0 };

/// Stands in front of the C library's `dlsym`.
// SAFETY: the C library's name on purpose.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // The two parameters are kept over the call, with the stack aligned to 16 bytes at it.
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rdx, rdx",
        "jne 2f",
        "jmp qword ptr [rip + {next}]",
        "2:",
        "ret",
        choose = sym choose,
        next = sym NEXT,
    )
}

extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> Answer {
    if NEXT.load(Ordering::Acquire).is_null() {
        NEXT.store(next(), Ordering::Release);
    }
    if NEXT.load(Ordering::Acquire).is_null() {
        // No C library that is known: there is nothing to go on to.
        return Answer { given: 1, ..PASS };
    }
    if name.is_null() || handle == libc::RTLD_NEXT {
        return PASS;
    }
    // SAFETY: a name that is not NULL ends in a zero byte, as dlsym asks for.
    let name = unsafe { CStr::from_ptr(name) };
    if !name.to_bytes().starts_with(b"cu") || real::call_named(&CUDA, name).is_none() {
        return PASS;
    }
    let mut found = real::symbol(handle, name);
    let own = real::call_named(&CUDA, name).map_or(ptr::null_mut(), ours);
    if !found.is_null() && found == own {
        // Our own export, which says nothing: is the driver there?
        found = real::symbol(libc::RTLD_NEXT, name);
        if found.is_null() {
            return Answer { address: found, given: 1 };
        }
    }
    match lookup::by_loader(&CUDA, ours, name, found) {
        Some(address) => Answer { address, given: 1 },
        None => PASS,
    }
}

/// The next `dlsym` after ours, which may be another library's; the C library's where there is none.
fn next() -> *mut c_void {
    real::symbol(libc::RTLD_NEXT, c"dlsym")
}

/// The C library's answer, for those who must have the driver itself.
///
/// # Safety
///
/// As for `dlsym`: a handle of the loader's, and a name that ends in a zero byte.
// SAFETY: a name of ours.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gvmm_preload_symbol(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    if name.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    real::symbol(handle, unsafe { CStr::from_ptr(name) })
}
