//! The last events of one arena, where they are kept.

use super::PoolId;
use super::snapshot::{Event, EventKind};
use crate::driver::Stream;
use crate::units::{ByteSize, DevicePtr};
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
}

impl History {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { entries: Vec::new(), capacity, next: 0 }
    }

    #[inline]
    pub(super) fn add(&mut self, clock: &AtomicU64, kind: EventKind, address: DevicePtr, bytes: u64) {
        if self.capacity != 0 {
            self.keep(clock, kind, address, bytes);
        }
    }

    #[cold]
    fn keep(&mut self, clock: &AtomicU64, kind: EventKind, address: DevicePtr, bytes: u64) {
        let number = clock.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { number, kind, address, size: ByteSize(bytes) };
        if self.entries.len() < self.capacity {
            self.entries.push(entry);
        } else {
            self.entries[self.next] = entry;
        }
        self.next = (self.next + 1) % self.capacity;
    }

    /// What is kept, for a snapshot.
    pub(super) fn events(&self, stream: Stream, pool: PoolId) -> impl Iterator<Item = Event> + '_ {
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
