//! An object once for each thread that comes, so that threads that use it at the same time share no cache line, and none
//! of them needs an atomic exchange. Of the threads that live, [`OWN_NUMBERS`] have a stripe to themselves; the others
//! share some, one thread at a time; one that finds its stripe taken goes the longer way.
#![allow(
    unsafe_code,
    reason = "a flag guards what lies beside it, so that coming and leaving cost plain stores"
)]

use super::barrier::{heavy, light};
use crate::logging::OWN_NUMBERS;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Stripes of threads that have one to themselves, by their numbers from 1, and behind those the shared ones.
const OWN: usize = OWN_NUMBERS as usize;
const SHARED: usize = 32;

/// No object's keys.
const EMPTY: u64 = 0;
const ENDED: u64 = 1;

/// A key and the object that it stands for, in cache lines of their own (two: they are fetched in pairs).
#[repr(align(128))]
struct Stripe<T> {
    busy: AtomicBool,
    /// The key of the object; [`ENDED`] once it has ended, [`EMPTY`] once it was taken out.
    key: AtomicU64,
    object: UnsafeCell<Option<Arc<T>>>,
}

// SAFETY: `object` is read by a thread that has set `busy`, passed a barrier and then found `key` to be its own, and
// changed by one that holds `Stripes::changing` where `key` is nobody's, after a heavy barrier behind that, with `busy` unset
// since. By the barriers' rule one of the two sees the other, and stays away. An `Arc` may be used and dropped by any
// thread where `T` is both.
unsafe impl<T: Send + Sync> Sync for Stripe<T> {}

/// All stripes of one place for objects.
pub(super) struct Stripes<T> {
    all: Box<[Stripe<T>]>,
    /// Held by whoever puts objects in or takes them out.
    changing: Mutex<()>,
}

/// A thread's stay: what it finds stays until this is dropped.
pub(super) struct Visit<'a, T> {
    stripes: &'a Stripes<T>,
    stripe: &'a Stripe<T>,
    key: u64,
}

impl<T> Visit<'_, T> {
    /// The object, where it is that of the key.
    #[inline]
    pub(super) fn object(&self) -> Option<&T> {
        if self.stripe.key.load(Ordering::Acquire) != self.key {
            return None;
        }
        // SAFETY: `visit` set `busy` and passed the barrier, and the key was found after that: see `Sync`. It stays so
        // while `self` lives, which the answer borrows.
        let object = unsafe { &*self.stripe.object.get() };
        object.as_deref()
    }
}

impl<T> Drop for Visit<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.stripe.busy.store(false, Ordering::Release);
        light();
        // It ended meanwhile, and who ended it could not take it out of here.
        if self.stripe.key.load(Ordering::Relaxed) == ENDED {
            self.stripes.collect(std::slice::from_ref(self.stripe));
        }
    }
}

impl<T> Stripes<T> {
    pub(super) fn new() -> Self {
        let empty = |_| Stripe {
            busy: AtomicBool::new(false),
            key: AtomicU64::new(EMPTY),
            object: UnsafeCell::new(None),
        };
        Self { all: (0..OWN + SHARED).map(empty).collect(), changing: Mutex::new(()) }
    }

    /// Lets a thread in, which has `number`, to look for the object of `key` (above [`ENDED`]), unless its stripe is in use. Never
    /// waits.
    #[inline]
    pub(super) fn visit(&self, number: u32, key: u64) -> Option<Visit<'_, T>> {
        let number = number as usize;
        let stripe = if (1..=OWN).contains(&number) {
            // Nobody else sets it here: only a call of this thread that is still under way.
            let stripe = &self.all[number - 1];
            if stripe.busy.load(Ordering::Relaxed) {
                return None;
            }
            stripe.busy.store(true, Ordering::Relaxed);
            stripe
        } else {
            let stripe = &self.all[OWN + number % SHARED];
            if stripe.busy.swap(true, Ordering::Acquire) {
                return None;
            }
            stripe
        };
        light();
        Some(Visit { stripes: self, stripe, key })
    }

    /// Puts an object in, where the last one has ended. A stripe that a call still uses stays as it is: its threads go
    /// the longer way.
    pub(super) fn fill(&self, key: u64, object: &Arc<T>) {
        let put = |stripe: &Stripe<T>| {
            let old = stripe.replace(Some(Arc::clone(object)));
            stripe.key.store(key, Ordering::Release);
            old
        };
        self.change(&self.all, |key| key <= ENDED, put);
    }

    /// Ends an object that nobody may look for any more. Stripes that calls still use are left to these, which take it
    /// out as they leave.
    #[cold]
    pub(super) fn clear(&self, key: u64) {
        for stripe in &*self.all {
            let _ = stripe.key.compare_exchange(key, ENDED, Ordering::SeqCst, Ordering::Relaxed);
        }
        self.collect(&self.all);
    }

    /// Takes out what has ended and is not in use.
    #[cold]
    fn collect(&self, stripes: &[Stripe<T>]) {
        let take = |stripe: &Stripe<T>| {
            let old = stripe.replace(None);
            stripe.key.store(EMPTY, Ordering::Release);
            old
        };
        self.change(stripes, |key| key == ENDED, take);
    }

    /// Changes stripes with such keys that are not in use.
    fn change(
        &self,
        stripes: &[Stripe<T>],
        is: impl Fn(u64) -> bool,
        change: impl Fn(&Stripe<T>) -> Option<Arc<T>>,
    ) {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        heavy();
        let free = |stripe: &&Stripe<T>| {
            is(stripe.key.load(Ordering::Relaxed)) && !stripe.busy.load(Ordering::Acquire)
        };
        let old: Vec<_> = stripes.iter().filter(free).map(change).collect();
        drop(changing);
        // With the stripes free again: what this drops may take its time.
        drop(old);
    }
}

impl<T> Stripe<T> {
    /// Only by [`Stripes::change`].
    fn replace(&self, with: Option<Arc<T>>) -> Option<Arc<T>> {
        // SAFETY: the caller holds `changing`, found `key` nobody's and `busy` unset after a heavy barrier: see `Sync`.
        unsafe { self.object.get().replace(with) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::barrier::{self, HEAVY};
    use super::*;

    const COUNT: usize = OWN + SHARED;

    #[test]
    fn an_object_goes_with_the_last_visit() {
        barrier::start();
        let (stripes, object) = (Stripes::new(), Arc::new(5));
        stripes.fill(7, &object);
        assert_eq!(Arc::strong_count(&object), COUNT + 1);
        for number in [3, OWN_NUMBERS + 3] {
            let visit = stripes.visit(number, 7).expect("free");
            assert_eq!(visit.object(), Some(&5));
            assert!(stripes.visit(number, 7).is_none(), "in use");
        }
        assert!(stripes.visit(4, 8).expect("free").object().is_none(), "another key");
        let visits = [3, OWN_NUMBERS + 3].map(|number| stripes.visit(number, 7).expect("free"));
        assert!(stripes.visit(OWN_NUMBERS + 3 + SHARED as u32, 7).is_none(), "shared, and in use");
        stripes.clear(8);
        assert_eq!(Arc::strong_count(&object), COUNT + 1, "of another key");
        stripes.clear(7);
        assert_eq!(Arc::strong_count(&object), 3, "the visits'");
        let next = Arc::new(6);
        stripes.fill(9, &next);
        drop(visits);
        assert_eq!(Arc::strong_count(&object), 1);
        assert_eq!(Arc::strong_count(&next), COUNT - 1);
        assert!(stripes.visit(3, 9).expect("free").object().is_none(), "it was in use");
        let barriers = HEAVY.get();
        assert!((0..9).all(|_| stripes.visit(3, 9).expect("free").object().is_none()), "and stays empty");
        assert_eq!(HEAVY.get(), barriers, "which costs nothing");
        assert_eq!(stripes.visit(5, 9).expect("free").object(), Some(&6));
        stripes.clear(9);
        assert_eq!(Arc::strong_count(&next), 1);
    }

    #[test]
    fn threads_that_come_and_go_leave_nothing_behind_and_never_find_what_is_gone() {
        barrier::start();
        for round in 1..if cfg!(miri) { 10 } else { 200_u64 } {
            let (stripes, dead) = (Stripes::new(), AtomicBool::new(false));
            let object = Arc::new(AtomicU64::new(round));
            stripes.fill(round, &object);
            std::thread::scope(|scope| {
                for thread in [1, 2, OWN_NUMBERS + 1, OWN_NUMBERS + 1] {
                    let (stripes, dead) = (&stripes, &dead);
                    scope.spawn(move || {
                        while !dead.load(Ordering::Relaxed) {
                            if let Some(visit) = stripes.visit(thread, round)
                                && let Some(object) = visit.object()
                            {
                                assert_eq!(object.load(Ordering::Relaxed), round);
                            }
                        }
                    });
                }
                std::thread::yield_now();
                stripes.clear(round);
                dead.store(true, Ordering::Relaxed);
            });
            assert_eq!(Arc::strong_count(&object), 1, "round {round}");
        }
    }
}
