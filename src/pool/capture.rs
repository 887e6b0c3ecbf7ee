//! Pools of their own: which there are, who uses them, and where allocations go meanwhile.

use super::PoolId;
use crate::driver::Stream;
use crate::error::{Error, Kind, Operation, Result};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether allocations of a stream go to the pool that is being allocated to.
pub type Filter = Arc<dyn Fn(Stream) -> bool + Send + Sync>;

thread_local! {
    static IN_FILTER: Cell<bool> = const { Cell::new(false) };
}

/// The number of the pool for everything else.
pub(super) const DEFAULT: u32 = 0;

struct Entry {
    id: PoolId,
    users: u32,
    filter: Option<Filter>,
}

/// All pools by number.
pub(super) struct Captures {
    open: AtomicUsize,
    entries: Mutex<Vec<Entry>>,
}

impl fmt::Debug for Captures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captures").field("open", &self.open()).finish()
    }
}

const fn refuse<T>(kind: Kind, hint: &'static str) -> Result<T> {
    Err(Error::new(kind, Operation::Capture, hint))
}

impl Captures {
    pub(super) fn new() -> Self {
        let default = Entry { id: PoolId::DEFAULT, users: 1, filter: None };
        Self { open: AtomicUsize::new(0), entries: Mutex::new(vec![default]) }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pools that are being allocated to.
    #[inline]
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// The number of the pool that an allocation for `stream` goes to. The filters are called with no lock held.
    #[cold]
    pub(super) fn route(&self, stream: Stream) -> u32 {
        // What a filter allocates itself is not asked about, and so on without end.
        if IN_FILTER.replace(true) {
            return DEFAULT;
        }
        let open =
            |(number, entry): (usize, &Entry)| Some((number as u32, Arc::clone(entry.filter.as_ref()?)));
        let filters: Vec<_> = self.entries().iter().enumerate().filter_map(open).collect();
        let number = filters.iter().rev().find(|(_, filter)| filter(stream)).map(|(number, _)| *number);
        IN_FILTER.set(false);
        number.unwrap_or(DEFAULT)
    }

    /// `used` are the numbers of pools that still have memory.
    pub(super) fn begin(&self, id: PoolId, filter: Filter, used: &[u32]) -> Result<()> {
        if id == PoolId::DEFAULT {
            return refuse(Kind::InvalidArgument, "the default pool takes everything that no filter takes");
        }
        let mut entries = self.entries();
        let known = entries.iter().position(|entry| entry.id == id && entry.users > 0);
        let number = match known {
            Some(number) => number,
            None => {
                let over =
                    |(number, entry): (usize, &Entry)| entry.users == 0 && !used.contains(&(number as u32));
                let number = entries.iter().enumerate().position(over).unwrap_or(entries.len());
                let entry = Entry { id, users: 0, filter: None };
                if number == entries.len() {
                    entries.push(entry)
                } else {
                    entries[number] = entry
                }
                number
            }
        };
        if entries[number].filter.is_some() {
            return refuse(Kind::WrongState, "this pool is being allocated to already: end that first");
        }
        entries[number].users += 1;
        entries[number].filter = Some(filter);
        self.open.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    pub(super) fn end(&self, id: PoolId) -> Result<()> {
        let mut entries = self.entries();
        let entry = entries.iter_mut().find(|entry| entry.id == id && entry.filter.is_some());
        let Some(entry) = entry else {
            return refuse(Kind::WrongState, "nothing was begun for this pool");
        };
        let filter = entry.filter.take();
        drop(entries);
        self.open.fetch_sub(1, Ordering::AcqRel);
        drop(filter);
        Ok(())
    }

    /// One user less; gives the pool's number where that was the last.
    pub(super) fn release(&self, id: PoolId) -> Result<Option<u32>> {
        let mut entries = self.entries();
        let found = entries.iter().position(|e| e.id == id && e.users > 0 && id != PoolId::DEFAULT);
        let Some(number) = found else {
            return refuse(Kind::InvalidArgument, "there is no such pool, or it was released");
        };
        if entries[number].users == 1 && entries[number].filter.is_some() {
            return refuse(Kind::WrongState, "this pool is being allocated to: end that first");
        }
        entries[number].users -= 1;
        Ok((entries[number].users == 0).then_some(number as u32))
    }

    /// True while graphs use the pool.
    pub(super) fn is_private(&self, number: u32) -> bool {
        number != DEFAULT && self.entries().get(number as usize).is_some_and(|entry| entry.users > 0)
    }

    /// How many pools graphs use.
    pub(super) fn private_pools(&self) -> usize {
        self.entries().iter().skip(1).filter(|entry| entry.users > 0).count()
    }

    pub(super) fn id(&self, number: u32) -> PoolId {
        self.entries().get(number as usize).map_or(PoolId::DEFAULT, |entry| entry.id)
    }
}
