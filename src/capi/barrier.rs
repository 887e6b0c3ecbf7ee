//! Barriers in pairs, one of them nearly free: whoever passes the light one often pays nothing for it where the kernel can
//! make all threads of the process pass a full one (Linux's `membarrier`), which the heavy one asks for.
//!
//! After `A; light(); B` on one thread and `C; heavy(); D` on another: where B does not see C, D sees A.
#![allow(unsafe_code, reason = "the system call has no safe door")]

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// The kernel does it: set before the first call of the library goes on, and never taken back.
static BY_KERNEL: AtomicBool = AtomicBool::new(false);

#[cfg(target_os = "linux")]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn membarrier(_: libc::c_int) -> bool {
    false
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, and the command that registers for it (linux/membarrier.h).
const EXPEDITED: libc::c_int = 1 << 3;
const REGISTER: libc::c_int = 1 << 4;

/// Asks the kernel, once. No call of the library is under way yet.
pub(super) fn start() {
    if membarrier(REGISTER) && membarrier(EXPEDITED) {
        BY_KERNEL.store(true, Ordering::SeqCst);
    }
}

/// The cheap one of a pair.
#[inline]
pub(super) fn light() {
    if BY_KERNEL.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The dear one. False where it could not be had: then nothing is known about the other threads.
#[cold]
#[must_use]
pub(super) fn heavy() -> bool {
    fence(Ordering::SeqCst);
    !BY_KERNEL.load(Ordering::SeqCst) || membarrier(EXPEDITED)
}
