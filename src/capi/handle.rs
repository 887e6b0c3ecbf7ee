//! Handles: keys that are looked up, never dereferenced.
//!
//! ```text
//!  63    56 55            40 39          20 19           0
//!  │ type  │ library copy   │ index        │ generation   │
//! ```
//!
//! The type is above 0, so that no key is NULL or a user's address; the copy tells two loaded copies of
//! this library apart; an index is used again with the next generation, and never once those are used up.
//!
//! Each slot of a table has a lock of its own, in a cache line of its own: threads that use different
//! objects share nothing, and threads that use the same object share its lock's count (they are readers) as
//! they would share the count of its `Arc`. Making and destroying take the table's lock of free indices. Objects that
//! many threads use at once have stripes besides (see `stripes`).

mod leaving;

use super::stripes::Stripes;
use super::used::{self, Poison};
use crate::error::{Error, Kind, Operation, Result};
use crate::logging::Thread;
use leaving::Leaving;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

const TYPE_SHIFT: u32 = 56;
const COPY_SHIFT: u32 = 40;
const INDEX_SHIFT: u32 = 20;
const LAST_GENERATION: u64 = (1 << INDEX_SHIFT) - 1;
const SEGMENT: usize = 1024;
const SEGMENTS: usize = (1 << 20) / SEGMENT;

/// A sort of object that C has handles of.
pub(super) trait Noun: Sized + Send + Sync + 'static {
    /// The type's number in a key, above 0 and below 128.
    const TYPE: u64;
    /// The C type.
    type Handle;
    /// True where many threads use one object at once, by [`visit`].
    const STRIPED: bool = false;
    /// Where they are kept.
    fn table() -> &'static Table<Self>;

    /// What never changes about an object, to be read without a lock.
    fn facts(&self) -> [u64; 2] {
        [0; 2]
    }
}

/// The number of this copy of the library: from the place that it was loaded at. Two copies have the same only
/// where they lie a multiple of 256 MiB apart; then a handle of the other may be taken for one of ours, and is
/// still looked up only.
fn copy() -> u64 {
    static HERE: u8 = 0;
    ((&raw const HERE).addr() as u64 >> 12) & 0xffff
}

/// True where a value has the form of a key of type `N`, of this copy or another.
pub(super) const fn has_type<N: Noun>(key: u64) -> bool {
    key >> TYPE_SHIFT == N::TYPE
}

/// All objects of one sort.
pub(super) struct Table<N> {
    segments: [OnceLock<Box<[Slot<N>; SEGMENT]>>; SEGMENTS],
    free: Mutex<Free>,
    /// Rises whenever a handle dies.
    deaths: AtomicU64,
}

struct Free {
    /// Indices to be used again, with the generation to use; the oldest first, so that all wear evenly.
    again: VecDeque<(u64, u64)>,
    /// The first index that was never used.
    next: u64,
}

/// One index of a table.
#[repr(align(64))]
struct Slot<N> {
    /// The key that is valid here, or 0.
    key: AtomicU64,
    /// The object's, written before the key; zero where it is poisoned.
    facts: [AtomicU64; 2],
    object: RwLock<Option<Arc<Entry<N>>>>,
    /// The same object again, where it is [`Noun::STRIPED`]; they stay for the next one.
    stripes: OnceLock<Stripes<Entry<N>>>,
}

struct Entry<N> {
    object: N,
    poisoned: AtomicBool,
}

/// An object that a call uses: it stays until this is dropped, whatever becomes of the handle.
pub(super) struct Ref<N>(Arc<Entry<N>>);

impl<N> Deref for Ref<N> {
    type Target = N;

    fn deref(&self) -> &N {
        &self.0.object
    }
}

impl<N> Ref<N> {
    /// The same object once more.
    pub(super) fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// True where a defect left it half done.
    pub(super) fn is_poisoned(&self) -> bool {
        self.0.poisoned.load(Ordering::Relaxed)
    }
}

pub(super) fn invalid() -> Error {
    Error::new(Kind::InvalidHandle, Operation::None, "the handle is stale, foreign or of another type")
}

impl<N: Noun> Table<N> {
    /// An empty one.
    pub(super) const fn new() -> Self {
        Self {
            segments: [const { OnceLock::new() }; SEGMENTS],
            free: Mutex::new(Free { again: VecDeque::new(), next: 0 }),
            deaths: AtomicU64::new(0),
        }
    }

    /// A number that changes whenever a handle dies.
    pub(super) fn deaths(&self) -> u64 {
        self.deaths.load(Ordering::Acquire)
    }

    /// The place of a key, where it has the form of one of ours. The segment may not be there.
    #[inline]
    fn slot(&self, key: u64) -> Option<&Slot<N>> {
        let prefix = (N::TYPE << (TYPE_SHIFT - COPY_SHIFT)) | copy();
        let index = (key >> INDEX_SHIFT) as usize & ((1 << 20) - 1);
        if key >> COPY_SHIFT != prefix {
            return None;
        }
        self.segments[index / SEGMENT].get().map(|segment| &segment[index % SEGMENT])
    }

    /// True while `key` is valid. Takes no lock.
    pub(super) fn is_live(&self, key: u64) -> bool {
        self.slot(key).is_some_and(|slot| slot.key.load(Ordering::Acquire) == key)
    }

    fn get(&self, key: u64) -> Option<Ref<N>> {
        let slot = self.slot(key)?;
        let object = slot.object.read().unwrap_or_else(PoisonError::into_inner);
        if slot.key.load(Ordering::Acquire) != key {
            return None;
        }
        object.clone().map(Ref)
    }

    /// The facts of the object that `key` is valid for; none, too, where it is poisoned. Takes no lock.
    #[inline]
    fn facts(&self, key: u64) -> Option<[u64; 2]> {
        let slot = self.slot(key)?;
        if slot.key.load(Ordering::Acquire) != key {
            return None;
        }
        let facts = [0, 1].map(|i: usize| slot.facts[i].load(Ordering::Relaxed));
        // Facts of a later object at this index were written after the key had gone, which then is seen here.
        fence(Ordering::Acquire);
        (slot.key.load(Ordering::Relaxed) == key && facts != [0; 2]).then_some(facts)
    }

    /// The key of a live object with these facts. Looks through all; takes no lock.
    pub(super) fn find(&self, facts: [u64; 2]) -> Option<u64> {
        let slots = self.segments.iter().map_while(OnceLock::get).flat_map(|slots| slots.iter());
        let keys = slots.map(|slot| slot.key.load(Ordering::Acquire)).filter(|key| *key != 0);
        keys.into_iter().find(|key| self.facts(*key) == Some(facts))
    }

    fn insert(&self, object: N) -> Result<u64> {
        let (index, generation) = self.free_index()?;
        let segment = self.segments[index as usize / SEGMENT].get_or_init(empty_segment);
        let slot = &segment[index as usize % SEGMENT];
        let key = (N::TYPE << TYPE_SHIFT) | (copy() << COPY_SHIFT) | (index << INDEX_SHIFT) | generation;
        // Who sees these sees that the last key is gone.
        fence(Ordering::Release);
        slot.facts.iter().zip(object.facts()).for_each(|(place, fact)| place.store(fact, Ordering::Relaxed));
        let entry = Arc::new(Entry { object, poisoned: AtomicBool::new(false) });
        if N::STRIPED {
            slot.stripes.get_or_init(Stripes::new).fill(key, &entry);
        }
        *slot.object.write().unwrap_or_else(PoisonError::into_inner) = Some(entry);
        slot.key.store(key, Ordering::Release);
        Ok(key)
    }

    fn free_index(&self) -> Result<(u64, u64)> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(again) = free.again.pop_front() {
            return Ok(again);
        }
        if free.next as usize == SEGMENT * SEGMENTS {
            let hint = "all 2^20 handles of this type are in use";
            return Err(Error::new(Kind::OutOfHostMemory, Operation::Create, hint));
        }
        free.next += 1;
        Ok((free.next - 1, 1))
    }

    /// Takes a handle out of use for as long as the answer lives.
    fn leave(&'static self, key: u64) -> Option<Leaving<N>> {
        let slot = self.slot(key)?;
        // Only one thread wins; the others find the key gone.
        slot.key.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Acquire).ok()?;
        self.deaths.fetch_add(1, Ordering::AcqRel);
        let object = slot.object.read().unwrap_or_else(PoisonError::into_inner).clone();
        Some(Leaving::new(self, key, Ref(object?)))
    }
}

fn empty_segment<N>() -> Box<[Slot<N>; SEGMENT]> {
    let slot = || Slot {
        key: AtomicU64::new(0),
        facts: Default::default(),
        object: RwLock::new(None),
        stripes: OnceLock::new(),
    };
    let slots: Box<[Slot<N>]> = std::iter::repeat_with(slot).take(SEGMENT).collect();
    // It has that many.
    slots.try_into().unwrap_or_else(|_| unreachable!())
}

/// Gives an object a handle.
pub(super) fn insert<N: Noun>(object: N) -> Result<*mut N::Handle> {
    N::table().insert(object).map(to_pointer::<N>)
}

/// A key as C has it.
pub(super) fn to_pointer<N: Noun>(key: u64) -> *mut N::Handle
where
    N::Handle: Sized,
{
    std::ptr::without_provenance_mut(key as usize)
}

/// A handle's key.
pub(super) fn key<T>(handle: *mut T) -> u64 {
    handle.addr() as u64
}

/// The object of a handle, for a call that uses it.
pub(super) fn get<N: Noun>(handle: *mut N::Handle) -> Result<Ref<N>> {
    let object = look_up::<N>(handle)?;
    used::use_in_call(N::table(), key(handle));
    Ok(object)
}

/// A handle that a call uses.
pub(super) struct Visited<'a, N> {
    pub(super) object: &'a N,
    place: &'a AtomicU64,
    key: u64,
}

impl<N> Visited<'_, N> {
    /// False once the handle was destroyed meanwhile.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.place.load(Ordering::Acquire) == self.key
    }
}

/// Runs `body` with the object of a handle that many threads use at once: on a thread's own stripe, so that nothing is
/// written that another thread reads. A panic in `body` poisons the object.
#[inline]
pub(super) fn visit<N: Noun, A>(
    thread: &Thread,
    handle: *mut N::Handle,
    body: impl FnOnce(&Visited<'_, N>) -> Result<A>,
) -> Result<A> {
    let key = key(handle);
    if let Some(slot) = N::table().slot(key)
        && let Some(stripes) = slot.stripes.get()
        && let Some(visit) = stripes.visit(thread.number(), key)
        && let Some(entry) = visit.object()
        && slot.key.load(Ordering::Acquire) == key
        && !entry.poisoned.load(Ordering::Relaxed)
    {
        let _watch = Watch(&entry.poisoned);
        return body(&Visited { object: &entry.object, place: &slot.key, key });
    }
    visit_shared(handle, body)
}

/// The longer way, and the one that says why not.
#[cold]
fn visit_shared<N: Noun, A>(
    handle: *mut N::Handle,
    body: impl FnOnce(&Visited<'_, N>) -> Result<A>,
) -> Result<A> {
    let object = look_up::<N>(handle)?;
    let key = key(handle);
    let place = &N::table().slot(key).ok_or_else(invalid)?.key;
    let _watch = Watch(&object.0.poisoned);
    body(&Visited { object: &object, place, key })
}

/// Poisons an object where a panic passes.
struct Watch<'a>(&'a AtomicBool);

impl Drop for Watch<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// The same for elements of arrays and what a call does not change: a defect does not poison it.
pub(super) fn look_up<N: Noun>(handle: *mut N::Handle) -> Result<Ref<N>> {
    check_null(handle)?;
    let object = N::table().get(key(handle)).ok_or_else(invalid)?;
    if object.is_poisoned() {
        let hint = "an earlier defect left it half done: destroy it";
        return Err(Error::new(Kind::Poisoned, Operation::None, hint));
    }
    Ok(object)
}

/// The [`Noun::facts`] of a handle's object, where it is alive and whole. Takes no lock.
#[inline]
pub(super) fn facts<N: Noun>(handle: *mut N::Handle) -> Option<[u64; 2]> {
    N::table().facts(key(handle))
}

/// Takes a handle out of use, to destroy its object (a poisoned one too).
pub(super) fn leave<N: Noun>(handle: *mut N::Handle) -> Result<Leaving<N>> {
    check_null(handle)?;
    N::table().leave(key(handle)).ok_or_else(invalid)
}

/// The same for what may be in use, which `unused` says: a handle whose object is in use stays good all the
/// while, since other threads may be using it.
pub(super) fn leave_if<N: Noun>(
    handle: *mut N::Handle,
    unused: impl Fn(&Ref<N>) -> Result<()>,
) -> Result<Leaving<N>> {
    check_null(handle)?;
    unused(&N::table().get(key(handle)).ok_or_else(invalid)?)?;
    let leaving = leave::<N>(handle)?;
    unused(&leaving.object)?;
    Ok(leaving)
}

fn check_null<T>(handle: *mut T) -> Result<()> {
    if handle.is_null() {
        Err(Error::new(Kind::NullPointer, Operation::None, "a handle is NULL"))
    } else {
        Ok(())
    }
}

impl<N: Noun> Poison for Table<N> {
    fn poison(&self, key: u64) {
        if let Some(object) = self.get(key) {
            object.0.poisoned.store(true, Ordering::Relaxed);
            let facts = self.slot(key).map(|slot| &slot.facts);
            facts.into_iter().flatten().for_each(|fact| fact.store(0, Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
