//! Barriers in pairs, one of them nearly free: whoever passes the light one often pays nothing for it where the kernel can
//! make all threads of the process pass a full one (Linux's `membarrier`), which the heavy one asks for.
//!
//! After `A; light(); B` on one thread and `C; heavy(); D` on another: where B does not see C, D sees A.
#![allow(unsafe_code, reason = "the system call has no safe door")]

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};
use std::time::Duration;

/// Who does it: said before the first call of the library goes on, and taken back where a sandbox forbids the call later.
static BY: AtomicU8 = AtomicU8::new(OURSELVES);
const OURSELVES: u8 = 0;
const KERNEL: u8 = 1;
/// Some threads may not have seen yet that the kernel does it no more.
const LEAVING: u8 = 2;

/// Far longer than that takes, and than a store of such a thread stays unseen: it runs, or the kernel's switch away from it was a
/// full barrier. The memory model promises no time; this happens once, and only where the kernel refuses what it had granted.
const SETTLED: Duration = Duration::from_millis(10);

#[cfg(test)]
thread_local! {
    /// How many of the dear ones this thread has passed.
    pub(super) static HEAVY: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(all(target_os = "linux", not(miri)))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(any(not(target_os = "linux"), miri))]
fn membarrier(_: libc::c_int) -> bool {
    false
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, and the command that registers for it (linux/membarrier.h).
const EXPEDITED: libc::c_int = 1 << 3;
const REGISTER: libc::c_int = 1 << 4;

/// Asks the kernel, once. No call of the library is under way yet.
pub(super) fn start() {
    if membarrier(REGISTER) && membarrier(EXPEDITED) {
        BY.store(KERNEL, Ordering::SeqCst);
    }
}

/// The cheap one of a pair.
#[inline]
pub(super) fn light() {
    if BY.load(Ordering::Relaxed) == KERNEL {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The dear one.
#[cold]
pub(super) fn heavy() {
    #[cfg(test)]
    HEAVY.set(HEAVY.get() + 1);
    fence(Ordering::SeqCst);
    let by = BY.load(Ordering::SeqCst);
    if by == OURSELVES || (by == KERNEL && membarrier(EXPEDITED)) {
        return;
    }
    BY.store(LEAVING, Ordering::SeqCst);
    std::thread::sleep(SETTLED);
    BY.store(OURSELVES, Ordering::SeqCst);
}
