//! What a call uses, so that a defect in it poisons that and nothing else.

use std::cell::RefCell;

/// A table, whatever it holds.
pub(super) trait Poison: Sync {
    /// Makes the object of a key, if it lives, refuse further calls.
    fn poison(&self, key: u64);
}

type Object = (&'static dyn Poison, u64);

/// The objects that this thread's call uses.
struct Used {
    objects: [Option<Object>; 8],
    count: usize,
}

thread_local! {
    static USED: RefCell<Used> = const { RefCell::new(Used { objects: [None; 8], count: 0 }) };
    /// What does not fit: a remap may name any number of reservations.
    static MORE: RefCell<Vec<Object>> = const { RefCell::new(Vec::new()) };
}

/// Notes that the call uses an object.
pub(super) fn use_in_call(table: &'static dyn Poison, key: u64) {
    USED.with_borrow_mut(|used| {
        match used.objects.get_mut(used.count) {
            Some(place) => *place = Some((table, key)),
            // A thread that is ending has no such list any more.
            None => drop(MORE.try_with(|more| more.borrow_mut().push((table, key)))),
        }
        used.count += 1;
    });
}

/// Forgets what the call before used.
pub(super) fn begin_call() {
    USED.with_borrow_mut(|used| {
        if used.count > used.objects.len() {
            let _ = MORE.try_with(|more| *more.borrow_mut() = Vec::new());
        }
        used.count = 0;
    });
}

/// Makes what this call used refuse further calls.
#[cold]
pub(super) fn poison_used() {
    USED.with_borrow(|used| {
        used.objects.iter().take(used.count).flatten().for_each(|(table, key)| table.poison(*key));
    });
    let _ = MORE.try_with(|more| more.borrow().iter().for_each(|(table, key)| table.poison(*key)));
}
