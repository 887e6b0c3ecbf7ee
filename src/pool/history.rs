//! The last events of one arena, where they are kept.

use super::PoolId;
use super::snapshot::{Event, EventKind};
use crate::driver::Stream;
use crate::units::{ByteSize, DevicePtr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An event without what its arena knows.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    kind: EventKind,
    address: DevicePtr,
    size: ByteSize,
}

/// A ring.
#[derive(Debug)]
pub(super) struct History {
    entries: Vec<Entry>,
    capacity: usize,
    next: usize,
    /// The number of the next event, of all arenas.
    clock: Arc<AtomicU64>,
}

impl History {
    pub(super) const fn new(capacity: usize, clock: Arc<AtomicU64>) -> Self {
        Self { entries: Vec::new(), capacity, next: 0, clock }
    }

    #[inline]
    pub(super) fn add(&mut self, kind: EventKind, address: DevicePtr, bytes: u64) {
        if self.capacity != 0 {
            self.keep(kind, address, bytes);
        }
    }

    #[cold]
    fn keep(&mut self, kind: EventKind, address: DevicePtr, bytes: u64) {
        let number = self.clock.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { number, kind, address, size: ByteSize(bytes) };
        if self.entries.len() < self.capacity {
            self.entries.push(entry);
        } else {
            self.entries[self.next] = entry;
        }
        self.next = (self.next + 1) % self.capacity;
    }

    /// What is kept, for a snapshot.
    pub(super) fn events(&self, stream: Option<Stream>, pool: PoolId) -> impl Iterator<Item = Event> + '_ {
        self.entries.iter().map(move |entry| Event {
            number: entry.number,
            kind: entry.kind,
            address: entry.address,
            size: entry.size,
            stream,
            pool,
        })
    }
}
