//! All streams and graphs of a driver.

use super::memory::Memory;
use super::routes::{Aim, Leg};
use super::stream::{Item, Line, Work};
use crate::driver::{Graph, Ordinal, RecordId, Stream};
use crate::error::{Error, Kind, Operation, Result};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;

/// A stream and its thread.
#[derive(Debug)]
struct Entry {
    line: Arc<Line>,
    thread: JoinHandle<()>,
}

/// What a capture kept, for the device that it was captured on.
#[derive(Clone)]
struct Kept {
    device: Ordinal,
    work: Arc<[Work]>,
    /// Where later launches' recorded copies go.
    aims: Vec<(RecordId, Aim)>,
}

impl Kept {
    /// The copies that were recorded into it.
    fn records(&self) -> impl Iterator<Item = RecordId> {
        self.work.iter().filter_map(|work| match work {
            Work::Recorded(record, _) => Some(*record),
            _ => None,
        })
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} captured", self.work.len())
    }
}

/// Streams and graphs by number. Numbers start at 1 and are never given out again.
#[derive(Debug, Default)]
pub(super) struct Lines {
    last: AtomicU64,
    streams: RwLock<HashMap<u64, Entry>>,
    graphs: RwLock<HashMap<u64, Kept>>,
}

impl Lines {
    fn entries(&self) -> RwLockReadGuard<'_, HashMap<u64, Entry>> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries_mut(&self) -> RwLockWriteGuard<'_, HashMap<u64, Entry>> {
        self.streams.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn create(&self, device: Ordinal, memory: &Arc<Memory>) -> Result<Stream> {
        let number = self.number();
        let (line, thread) = Line::start(number, device, Arc::clone(memory))?;
        self.entries_mut().insert(number, Entry { line, thread });
        Ok(Stream(number))
    }

    /// The stream of that number.
    pub(super) fn find(&self, stream: Stream) -> Result<Arc<Line>> {
        self.entries().get(&stream.0).map(|entry| Arc::clone(&entry.line)).ok_or_else(unknown)
    }

    /// The stream of that number, which must be `device`'s.
    pub(super) fn find_on(&self, device: Ordinal, stream: Stream) -> Result<Arc<Line>> {
        let line = self.find(stream)?;
        if line.device == device { Ok(line) } else { Err(unknown()) }
    }

    /// Refuses what would make a stream wait for itself.
    fn not_from_itself(&self, stream: Stream) -> Result<()> {
        let own = std::thread::current().id();
        if self.entries().get(&stream.0).is_some_and(|entry| entry.thread.thread().id() == own) {
            return Err(fail(Kind::WrongState, "a host function must not wait for its own stream"));
        }
        Ok(())
    }

    pub(super) fn destroy(&self, stream: Stream) -> Result<()> {
        self.not_from_itself(stream)?;
        let entry = self.entries_mut().remove(&stream.0).ok_or_else(unknown)?;
        entry.line.close(false);
        if entry.thread.join().is_err() {
            log::error!("the thread of stream {} panicked", stream.0);
        }
        Ok(())
    }

    pub(super) fn synchronize(&self, stream: Stream) -> Result<()> {
        self.not_from_itself(stream)?;
        self.find(stream)?.synchronize()
    }

    pub(super) fn capture_end(&self, stream: Stream) -> Result<Graph> {
        let line = self.find(stream)?;
        let (device, work) = (line.device, line.capture_end()?);
        let number = self.number();
        let kept = Kept { device, work, aims: Vec::new() };
        self.graphs.write().unwrap_or_else(PoisonError::into_inner).insert(number, kept);
        Ok(Graph(number))
    }

    /// Says where recorded copies of a graph go from now on.
    pub(super) fn point(&self, graph: Graph, record: RecordId, aim: Aim) -> Result<()> {
        let mut graphs = self.graphs.write().unwrap_or_else(PoisonError::into_inner);
        let kept = graphs.get_mut(&graph.0).ok_or_else(no_graph)?;
        if !kept.records().any(|inside| inside == record) {
            let hint = "these copies were not recorded into this graph";
            return Err(Error::new(Kind::InvalidArgument, Operation::Copy, hint));
        }
        kept.aims.retain(|(of, _)| *of != record);
        kept.aims.push((record, aim));
        Ok(())
    }

    /// Enqueues a graph, all of whose recorded copies `is_live` knows.
    pub(super) fn launch(
        &self,
        graph: Graph,
        stream: Stream,
        is_live: impl Fn(RecordId) -> bool,
    ) -> Result<()> {
        let graphs = self.graphs.read().unwrap_or_else(PoisonError::into_inner);
        let kept = graphs.get(&graph.0).cloned().ok_or_else(no_graph)?;
        drop(graphs);
        if !kept.records().all(is_live) {
            let hint = "copies in the graph are of an earlier generation: record it again";
            return Err(Error::new(Kind::WrongState, Operation::Launch, hint));
        }
        let line = self.find(stream)?;
        if line.device != kept.device {
            return Err(fail(Kind::InvalidArgument, "the graph was captured on another device")
                .during(Operation::Launch));
        }
        let leg = |(of, aim): &(RecordId, Aim)| Some((*of, aim.leg()?));
        let legs: Vec<(RecordId, Leg)> = kept.aims.iter().filter_map(leg).collect();
        line.push_live(Item::Graph(kept.work, legs)).map_err(|e| e.during(Operation::Launch))
    }

    pub(super) fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let mut graphs = self.graphs.write().unwrap_or_else(PoisonError::into_inner);
        let kept = graphs.remove(&graph.0);
        drop(graphs);
        kept.map(drop).ok_or_else(no_graph)
    }

    /// Ends all streams; what they have not begun is given up.
    pub(super) fn end(&self) {
        let entries = std::mem::take(&mut *self.entries_mut());
        for entry in entries.values() {
            entry.line.close(true);
        }
        let own = std::thread::current().id();
        for (number, entry) in entries {
            // The driver may have been dropped by a function on one of its own streams.
            if entry.thread.thread().id() != own && entry.thread.join().is_err() {
                log::error!("the thread of stream {number} panicked");
            }
        }
    }
}

fn fail(kind: Kind, hint: &'static str) -> Error {
    Error::new(kind, Operation::Stream, hint)
}

fn unknown() -> Error {
    fail(Kind::InvalidStream, "no such stream of this device")
}

fn no_graph() -> Error {
    Error::new(Kind::InvalidHandle, Operation::Launch, "no such graph")
}
