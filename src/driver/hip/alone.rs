//! The one lock for virtual-memory calls, where a driver's own are not safe against each other.

use crate::driver::quirks::Care;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// While it lives, no other thread of this process makes a virtual-memory call of ours.
pub(super) type Alone = Option<MutexGuard<'static, ()>>;

/// Takes the lock where `care` asks for it. It is held across the driver's call, and nothing else: it is taken last, and
/// nobody waits for a stream, sleeps or takes a lock but those of a driver's books while holding it.
pub(super) fn alone(care: Care) -> Alone {
    static LOCK: Mutex<()> = Mutex::new(());
    care.has(Care::ONE_LOCK).then(|| LOCK.lock().unwrap_or_else(PoisonError::into_inner))
}
