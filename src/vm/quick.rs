//! A lock for what is held a few dozen nanoseconds at a time, mostly by one thread: taking it is one atomic exchange,
//! leaving it a plain store.
//!
//! A lock that puts waiting threads to sleep must ask, as it is left, whether there are any: a second exchange. Here one
//! who finds it taken looks again a few times, then lets others run, and then sleeps for moments, so that a holder that
//! was interrupted gets on whatever the threads' priorities.
#![allow(unsafe_code, reason = "a flag guards what lies beside it, so that leaving costs a plain store")]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// After so many looks one who waits lets others run between them, and after so many sleeps.
const LOOKS: u32 = 100;
const YIELDED: u32 = 200;
const SLEEP: Duration = Duration::from_micros(50);

#[cfg(test)]
thread_local! {
    /// How often this thread has taken one.
    pub(crate) static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The lock, and what it guards. A panic while it is held leaves it free.
pub(crate) struct Quick<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached by whoever has set `taken` only (see `lock`), one thread after the other, each of which
// sees what the one before did; so a `T` that may be sent may be shared in here.
unsafe impl<T: Send> Sync for Quick<T> {}

/// The lock is held until this is dropped, by the thread that took it.
pub(crate) struct QuickGuard<'a, T> {
    lock: &'a Quick<T>,
    /// It stays on its thread.
    here: PhantomData<*const ()>,
}

impl<T> Quick<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> QuickGuard<'_, T> {
        #[cfg(test)]
        TAKEN.set(TAKEN.get() + 1);
        if self.taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
        QuickGuard { lock: self, here: PhantomData }
    }

    /// Takes it once it is free.
    #[cold]
    fn wait(&self) {
        let mut turn = 0_u32;
        loop {
            match turn {
                0..LOOKS => std::hint::spin_loop(),
                LOOKS..YIELDED => std::thread::yield_now(),
                _ => std::thread::sleep(SLEEP),
            }
            turn = turn.saturating_add(1);
            if !self.taken.load(Ordering::Relaxed) && !self.taken.swap(true, Ordering::Acquire) {
                return;
            }
        }
    }
}

impl<T> Deref for QuickGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `lock` found `taken` unset and set it, and it stays set while this guard lives, so nobody else has the
        // value; the guard is borrowed.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for QuickGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for QuickGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.taken.store(false, Ordering::Release);
    }
}

/// Without what it guards, which this thread may hold.
impl<T> fmt::Debug for Quick<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quick").field("taken", &self.taken).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: u64 = if cfg!(miri) { 50 } else { 10_000 };

    #[test]
    fn threads_do_not_meet() {
        let shared = Quick::new((0_u64, 0_u64));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut both = shared.lock();
                        both.0 += 1;
                        // Another would see them apart.
                        both.1 += 1;
                        assert_eq!(both.0, both.1);
                    }
                });
            }
        });
        assert_eq!(*shared.lock(), (8 * ROUNDS, 8 * ROUNDS));
    }

    #[test]
    fn one_who_waits_long_gets_it_and_a_panic_leaves_it_free() {
        let shared = Quick::new(1);
        std::thread::scope(|scope| {
            let held = shared.lock();
            let waits = scope.spawn(|| *shared.lock());
            std::thread::sleep(SLEEP * 20);
            drop(held);
            assert_eq!(waits.join().expect("it gets it"), 1);
        });
        let panics = || {
            let _held = shared.lock();
            panic!("held");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(*shared.lock(), 1);
    }
}
