//! A route's copies inside a graph. The node reads the far ends from a table in pinned memory, and pointing the graph at
//! other ones is a table that nobody reads and one update of the node for later launches.
//!
//! A ring of tables in four parts. What was launched is over once the stream has passed a point behind it. No launch
//! after an update reads the table that the node pointed at before, however often the graph was launched until then;
//! so when the node leaves a part for the next one, an event is recorded, and once that has passed, the part is free.
//! That is one event in as many steps as a part has tables. A part that is not free when its turn comes is not waited for.
#![allow(
    unsafe_code,
    reason = "writes the pinned memory that kernels read, and reads the driver's list of nodes"
)]

use super::api::{KernelNode, NO_TIMING, SUCCESS};
use super::context::Core;
use super::pieces::{Piece, Pieces};
use super::route::{Route, Routes, fail, launch};
use crate::driver::lines::refuse_captured;
use crate::driver::tiles::{ROUTE_HEADER, THREADS};
use crate::driver::{CopySlice, Graph, RecordId, RouteId, Stream};
use crate::error::{Error, Kind, Operation, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PARTS: usize = 4;
/// Tables of a ring, and bytes that it may take for more than the fewest.
const MOST_TABLES: u64 = 64;
const FEWEST_TABLES: u64 = 8;
const RING_BYTES: u64 = 1 << 20;
/// A table begins on a cache line of its own.
const LINE: u64 = 64;

/// What may read a part's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Nothing.
    Free,
    /// The node points, or pointed last, at one of them.
    Used,
    /// Launches from before; no event is behind them yet.
    Left,
    /// Launches from before the part's event.
    Fenced,
}

#[derive(Debug)]
struct Ring {
    memory: Piece,
    table_bytes: u64,
    tables_in_part: u64,
    /// The next table.
    next: u64,
    parts: [Part; PARTS],
    /// Each part's event, 0 before it is needed.
    events: [u64; PARTS],
}

/// Recorded copies.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) route: Arc<Route>,
    /// `CUgraphNode`.
    node: u64,
    ring: Mutex<Ring>,
}

impl Ring {
    fn new(core: &Core, pieces: &Pieces, route: &Route) -> Result<Self> {
        let table_bytes = (8 * route.bytes.len() as u64).next_multiple_of(LINE);
        let tables = (RING_BYTES / table_bytes).clamp(FEWEST_TABLES, MOST_TABLES);
        let tables_in_part = tables / PARTS as u64;
        let memory = pieces.pinned(core, &route.context, table_bytes * tables_in_part * PARTS as u64)?;
        let (parts, events) = ([Part::Free; PARTS], [0; PARTS]);
        Ok(Self { memory, table_bytes, tables_in_part, next: 0, parts, events })
    }

    /// The part of the next table.
    const fn part(&self) -> usize {
        (self.next / self.tables_in_part) as usize % PARTS
    }

    /// Records the events that are missing. Where one cannot be, its part is not free.
    fn fence(&mut self, core: &Core, route: &Route, stream: Stream) {
        if !self.parts.contains(&Part::Left) || !can_fence(core, route, stream) {
            return;
        }
        for (part, event) in self.parts.iter_mut().zip(&mut self.events) {
            if *part != Part::Left {
                continue;
            }
            let made = *event != 0 || core.api.event_create(event, NO_TIMING) == SUCCESS;
            if made && core.api.event_record(*event, stream.0) == SUCCESS {
                *part = Part::Fenced;
            }
        }
    }

    /// The offset of a table that nothing reads, or none; never waits.
    fn find(&mut self, core: &Core) -> Option<u64> {
        let at = self.part();
        if self.parts[at] == Part::Fenced && core.api.event_query(self.events[at]) == SUCCESS {
            self.parts[at] = Part::Free;
        }
        let free = matches!(self.parts[at], Part::Free | Part::Used);
        free.then_some(self.next * self.table_bytes)
    }

    /// Fills the table at `offset`.
    fn write(&mut self, offset: u64, far: impl Iterator<Item = u64>) {
        let (table, words) = ((self.memory.host + offset) as *mut u64, self.table_bytes as usize / 8);
        // SAFETY: `find` gave the offset of a whole table of the ring's pinned piece, which is ours until the record goes
        // and begins on a page; nothing on the device reads this table, and the ring's lock keeps other threads away.
        let table = unsafe { std::slice::from_raw_parts_mut(table, words) };
        table.iter_mut().zip(far).for_each(|(word, address)| *word = address);
    }

    /// Notes that the node points at the next table.
    fn took(&mut self) {
        let at = self.part();
        for (i, part) in self.parts.iter_mut().enumerate() {
            match *part {
                Part::Used if i != at => *part = Part::Left,
                _ => {}
            }
        }
        self.parts[at] = Part::Used;
        self.next = (self.next + 1) % (self.tables_in_part * PARTS as u64);
    }
}

impl Record {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Points the node of `graph` at a table, or at none for address 0.
    fn update(&self, core: &Core, graph: Graph, far: u64) -> Result<()> {
        let (words, tiles) = parameters(&self.route, far);
        let list = [words.as_ptr().cast()];
        let node = KernelNode {
            function: recorded(&self.route)?,
            grid: [tiles, 1, 1],
            block: [THREADS, 1, 1],
            shared: 0,
            parameters: list.as_ptr(),
            extra: std::ptr::null(),
        };
        core.api.check(core.api.graph_exec_kernel(graph.0, self.node, &node), Operation::Copy)
    }

    /// Gives back what the record has.
    pub(super) fn retire(&self, core: &Core, pieces: &Pieces) {
        let mut ring = self.ring();
        if let Ok(_entered) = core.enter(self.route.context.handle, Operation::Destroy) {
            for event in std::mem::take(&mut ring.events).into_iter().filter(|event| *event != 0) {
                core.log_status("destroy an event", core.api.event_destroy(event));
            }
        }
        pieces.give_back(ring.memory);
    }
}

/// True where an event of the route's context can be recorded on `stream`, and is not captured there.
fn can_fence(core: &Core, route: &Route, stream: Stream) -> bool {
    let context = core.context_on(stream, route.context.device, Operation::Copy);
    context.is_ok_and(|context| context.handle == route.context.handle)
        && refuse_captured(core, stream, Operation::Copy).is_ok()
}

fn recorded(route: &Route) -> Result<u64> {
    let missing = || fail(Kind::Internal, "the context has no kernels");
    route.context.kernels.as_ref().map(|kernels| kernels.recorded).ok_or_else(missing)
}

/// The kernel's parameter, and its grid.
fn parameters(route: &Route, far: u64) -> ([u64; ROUTE_HEADER + 1], u32) {
    let ([tiles, slices, outward], grid) = route.head(0, route.bytes.len());
    ([tiles, slices, outward, far], grid)
}

impl Routes {
    pub(super) fn record(&self, core: &Core, stream: Stream, route: RouteId) -> Result<RecordId> {
        let route = self.find(route)?;
        let context = core.context_on(stream, route.context.device, Operation::Copy)?;
        if context.handle != route.context.handle {
            let hint = "only streams of the primary context record copies: let begin and end make them";
            return Err(fail(Kind::Unsupported, hint));
        }
        let ring = Ring::new(core, &self.pieces, &route)?;
        let memory = ring.memory;
        let node = capture(core, &route, stream).inspect_err(|_| self.pieces.give_back(memory))?;
        let record = Arc::new(Record { route, node, ring: Mutex::new(ring) });
        let id = self.number();
        self.records.write().unwrap_or_else(PoisonError::into_inner).insert(id, record);
        Ok(RecordId(id))
    }

    pub(super) fn point(
        &self,
        core: &Core,
        record: RecordId,
        graph: Graph,
        stream: Stream,
        slices: &[CopySlice],
    ) -> Result<bool> {
        let record = self.find_record(record)?;
        record.route.check(slices)?;
        let _entered = core.enter(record.route.context.handle, Operation::Copy)?;
        // Held across the calls: what the node points at and the books must agree.
        let mut ring = record.ring();
        ring.fence(core, &record.route, stream);
        let Some(table) = ring.find(core) else {
            return record.update(core, graph, 0).map(|()| false);
        };
        ring.write(table, record.route.far(slices));
        record.update(core, graph, ring.memory.device + table)?;
        ring.took();
        ring.fence(core, &record.route, stream);
        Ok(true)
    }
}

/// Captures the kernel with no table, and gives its node.
fn capture(core: &Core, route: &Route, stream: Stream) -> Result<u64> {
    let _entered = core.enter(route.context.handle, Operation::Copy)?;
    let mut status = 0;
    core.api.check(core.api.stream_is_capturing(stream.0, &mut status), Operation::Copy)?;
    if status == 0 {
        return Err(fail(Kind::WrongState, "the stream is not being captured"));
    }
    let (words, tiles) = parameters(route, 0);
    launch(core, recorded(route)?, tiles, stream, &words)?;
    let (mut id, mut graph, mut nodes, mut count) = (0, 0, std::ptr::null(), 0);
    let info = core.api.capture_info(stream.0, &mut status, &mut id, &mut graph, &mut nodes, &mut count);
    core.api.check(info, Operation::Copy)?;
    if count != 1 || nodes.is_null() {
        return Err(Error::new(
            Kind::DriverError,
            Operation::Copy,
            "the capture does not tell its last node",
        ));
    }
    // SAFETY: the driver said that one node is there, and nothing was enqueued on the stream since.
    Ok(unsafe { nodes.read() })
}
