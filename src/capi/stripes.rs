//! An object once for each group of threads, so that threads that use it at the same time share no cache line. One
//! thread at a time uses a stripe; one that finds its stripe taken goes the longer way.
#![allow(unsafe_code, reason = "a flag guards what lies beside it, so that leaving costs a plain store")]

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Threads are numbered as they come; those with equal numbers up to this share a stripe.
const COUNT: usize = 32;
/// How often one who takes an object out looks again at a stripe that is in use.
const LOOKS: u32 = 64;

/// A key and the object that it stands for, in cache lines of their own (two: they are fetched in pairs).
#[repr(align(128))]
struct Stripe<T> {
    busy: AtomicBool,
    object: UnsafeCell<Option<(u64, Arc<T>)>>,
}

// SAFETY: `object` is used by whoever has set `busy` only, which the others then see; an `Arc` may be used and dropped
// by any thread where `T` is both.
unsafe impl<T: Send + Sync> Sync for Stripe<T> {}

/// All stripes of one place for objects.
pub(super) struct Stripes<T>(Box<[Stripe<T>; COUNT]>);

/// A stripe that is in use until this is dropped.
struct Taken<'a, T>(&'a Stripe<T>);

/// An object in use: it stays until this is dropped.
pub(super) struct Visit<'a, T>(Taken<'a, T>);

impl<T> Stripe<T> {
    #[inline]
    fn take(&self) -> Option<Taken<'_, T>> {
        if self.busy.swap(true, Ordering::Acquire) { None } else { Some(Taken(self)) }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

impl<T> Taken<'_, T> {
    fn replace(&mut self, with: Option<(u64, Arc<T>)>) -> Option<(u64, Arc<T>)> {
        // SAFETY: `take` found `busy` unset and set it, so nobody else uses the object, and `self` is borrowed alone.
        unsafe { self.0.object.get().replace(with) }
    }

    #[inline]
    fn get(&self) -> Option<&(u64, Arc<T>)> {
        // SAFETY: as above; while the answer lives, `self` is borrowed and `replace` cannot be called.
        let object = unsafe { &*self.0.object.get() };
        object.as_ref()
    }
}

impl<T> Visit<'_, T> {
    /// The object, where it is that of `key`.
    #[inline]
    pub(super) fn of(&self, key: u64) -> Option<&T> {
        self.0.get().filter(|(known, _)| *known == key).map(|(_, object)| &**object)
    }
}

impl<T> Stripes<T> {
    pub(super) fn new() -> Self {
        let empty = |_| Stripe { busy: AtomicBool::new(false), object: UnsafeCell::new(None) };
        Self(Box::new(std::array::from_fn(empty)))
    }

    /// Lets a thread in, unless its stripe is in use. Never waits.
    #[inline]
    pub(super) fn visit(&self, thread: u32) -> Option<Visit<'_, T>> {
        self.0[thread as usize % COUNT].take().map(Visit)
    }

    /// Puts an object in. A stripe that a call still uses keeps what it has: its threads go the longer way.
    pub(super) fn fill(&self, key: u64, object: &Arc<T>) {
        for stripe in &*self.0 {
            let old = stripe.take().and_then(|mut taken| taken.replace(Some((key, Arc::clone(object)))));
            // With the stripe free again: what it drops may take its time.
            drop(old);
        }
    }

    /// Takes an object out, once nobody finds it any more. Stripes that calls still use are left to these, which do
    /// the same as they leave and find it dead. One that left a moment ago may not have found it dead, while that it
    /// left is not seen here yet: so this looks a few times.
    #[cold]
    pub(super) fn clear(&self, key: u64) {
        for stripe in &*self.0 {
            let take = |_| {
                stripe.take().or_else(|| {
                    std::thread::yield_now();
                    None
                })
            };
            let taken = (0..LOOKS).find_map(take);
            let old = taken.and_then(|mut taken| {
                let is_its = taken.get().is_some_and(|(known, _)| *known == key);
                if is_its { taken.replace(None) } else { None }
            });
            drop(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_goes_with_the_last_visit() {
        let (stripes, object) = (Stripes::new(), Arc::new(5));
        stripes.fill(7, &object);
        assert_eq!(Arc::strong_count(&object), COUNT + 1);
        let visit = stripes.visit(3).expect("free");
        assert_eq!((visit.of(7), visit.of(8)), (Some(&5), None));
        assert!(stripes.visit(3 + COUNT as u32).is_none(), "in use");
        assert!(stripes.visit(4).is_some());
        stripes.clear(8);
        assert_eq!(Arc::strong_count(&object), COUNT + 1, "of another key");
        stripes.clear(7);
        assert_eq!(Arc::strong_count(&object), 2, "the visit's");
        let next = Arc::new(6);
        stripes.fill(9, &next);
        assert_eq!(visit.of(9), None, "still the old one");
        drop(visit);
        stripes.clear(7);
        assert_eq!(Arc::strong_count(&object), 1);
        assert!(stripes.visit(3).expect("free").of(9).is_none(), "it was in use");
        assert_eq!(stripes.visit(5).expect("free").of(9), Some(&6));
    }

    #[test]
    fn threads_that_come_and_go_leave_nothing_behind() {
        let (stripes, dead) = (Stripes::new(), AtomicBool::new(false));
        let object = Arc::new(1);
        stripes.fill(7, &object);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (stripes, dead) = (&stripes, &dead);
                scope.spawn(move || {
                    while !dead.load(Ordering::SeqCst) {
                        drop(stripes.visit(thread));
                        if dead.load(Ordering::SeqCst) {
                            stripes.clear(7);
                        }
                    }
                });
            }
            std::thread::yield_now();
            dead.store(true, Ordering::SeqCst);
            stripes.clear(7);
        });
        assert_eq!(Arc::strong_count(&object), 1);
    }
}
