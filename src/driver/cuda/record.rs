//! A route's copies inside a graph: the nodes carry the far ends by value, as launches do, and pointing the graph at other
//! ones is an update of each node, which concerns later launches only. So any number of launches may be under way, also
//! several of one step, and nothing has to be kept for them or waited for.
//!
//! Copies in that are ahead of copies out in one graph carry the far ends of both, so that a step is one update: they leave
//! those of the copies out in the device memory of that route, in the order of the stream, with every launch.
#![allow(unsafe_code, reason = "reads the driver's list of nodes")]

use super::api::KernelNode;
use super::context::{Core, Entered};
use super::route::{Others, Part, Route, Routes, fail, launch};
use crate::driver::tiles::THREADS;
use crate::driver::{CopySlice, Graph, Point, RecordId, RouteId, Stream};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::DevicePtr;
use std::sync::{Arc, PoisonError};

/// What is recorded with copies in the same capture.
#[derive(Clone, Copy)]
pub(super) enum Beside {
    Nothing,
    /// Copies that will come behind them.
    Behind(RouteId),
    /// Copies that came before them.
    Ahead(RecordId),
}

/// Recorded copies.
#[derive(Debug)]
pub(super) struct Record {
    route: Arc<Route>,
    /// A `CUgraphNode` for each part of the route.
    nodes: Vec<u64>,
    /// The stream and what the driver calls the capture: what comes later there is behind these copies.
    capture: (Stream, u64),
    /// The route behind, whose far ends the only node brings too.
    others: Option<Arc<Route>>,
    /// The copies that bring the far ends of these.
    ahead: Option<RecordId>,
}

/// A failure comes with the point that it is about.
type Pointed = std::result::Result<(), (usize, Error)>;

impl Routes {
    /// Records a route's copies, and says whether those ahead bring their far ends.
    pub(super) fn record(
        &self,
        core: &Core,
        stream: Stream,
        route: RouteId,
        beside: Beside,
    ) -> Result<(RecordId, bool)> {
        let route = self.find(route)?;
        let context = core.context_on(stream, route.context.device, Operation::Copy)?;
        if context.handle != route.context.handle {
            let hint = "only streams of the primary context record copies: let begin and end make them";
            return Err(fail(Kind::Unsupported, hint));
        }
        let _entered = core.enter(context.handle, Operation::Copy)?;
        let (id, _) = capture_of(core, stream)?;
        let capture = (stream, id.ok_or(fail(Kind::WrongState, "the stream is not being captured"))?);
        let (mut others, mut ahead) = (None, None);
        match beside {
            Beside::Nothing => {}
            Beside::Behind(behind) => others = Some(self.find(behind)?).filter(|other| route.carries(other)),
            Beside::Ahead(before) => {
                let record = self.find_record(before)?;
                ahead = (record.capture == capture && record.brings(&route)).then_some(before);
            }
        }
        let mut record = Record { route, nodes: Vec::new(), capture, others, ahead };
        record.capture(core)?;
        let id = RecordId(self.number());
        self.records.write().unwrap_or_else(PoisonError::into_inner).insert(id.0, Arc::new(record));
        Ok((id, ahead.is_some()))
    }

    /// Points a graph's copies at far ends, and asks once whether the context is as it was. Where an update fails, earlier
    /// ones hold: the caller does not launch the graph, and points it again.
    pub(super) fn point(&self, core: &Core, graph: Graph, points: &[Point<'_>]) -> Pointed {
        let mut entered: Option<(u64, Entered<'_>)> = None;
        let mut rest = points.iter().enumerate().peekable();
        while let Some((i, &(id, slices))) = rest.next() {
            let record = self.find_record(id).map_err(|e| (i, e))?;
            record.check(slices).map_err(|e| (i, e))?;
            let next = match rest.peek() {
                Some(&(_, &(next, slices))) if record.others.is_some() => self
                    .find_record(next)
                    .map_err(|e| (i + 1, e))?
                    .behind(id, slices)
                    .map_err(|e| (i + 1, e))?,
                _ => None,
            };
            if next.is_some() {
                rest.next();
            }
            let context = &record.route.context;
            if entered.as_ref().is_none_or(|(handle, _)| *handle != context.handle) {
                // What was pushed last is popped first.
                drop(entered.take());
                let known = core.enter_known(context, Operation::Copy).map_err(|e| (i, e))?;
                entered = Some((context.handle, known));
            }
            record.update(core, graph, slices, next).map_err(|(at, e)| (i + at, e))?;
        }
        Ok(())
    }
}

impl Record {
    /// True where it cannot be without `route`.
    pub(super) fn is_of(&self, route: &Arc<Route>) -> bool {
        Arc::ptr_eq(&self.route, route) || self.brings(route)
    }

    fn brings(&self, route: &Arc<Route>) -> bool {
        self.others.as_ref().is_some_and(|others| Arc::ptr_eq(others, route))
    }

    /// Refuses a point that has to come with another one, and slices that are not the route's.
    fn check(&self, slices: &[CopySlice]) -> Result<()> {
        if self.ahead.is_some() {
            let hint = "these copies are pointed by those ahead of them: point both in one call";
            return Err(fail(Kind::InvalidArgument, hint));
        }
        self.route.check(slices)
    }

    /// The slices, where the copies with the number `ahead` bring the far ends of these.
    fn behind<'a>(&self, ahead: RecordId, slices: &'a [CopySlice]) -> Result<Option<&'a [CopySlice]>> {
        if self.ahead != Some(ahead) {
            return Ok(None);
        }
        self.route.check_count(slices).map(|()| Some(slices))
    }

    /// Points this record's nodes, and what they bring for others. Its context is current.
    fn update(&self, core: &Core, graph: Graph, slices: &[CopySlice], next: Option<&[CopySlice]>) -> Pointed {
        let mut nodes = self.nodes.iter();
        let take = |part: Part<'_>| {
            let Some(node) = nodes.next() else { return Ok(()) };
            let list = [part.words.as_ptr().cast()];
            let parameters = KernelNode {
                function: part.function,
                grid: [part.tiles, 1, 1],
                block: [THREADS, 1, 1],
                shared: 0,
                parameters: list.as_ptr(),
                extra: std::ptr::null(),
            };
            core.api.check(core.api.graph_exec_kernel(graph.0, *node, &parameters), Operation::Copy)
        };
        match &self.others {
            Some(route) => self.route.with_others(slices, &Others { route, slices: next }, take),
            None => self.route.each_part(slices, take).map_err(|e| (0, e)),
        }
    }

    /// Captures the kernels with no far ends, which copy nothing, and keeps their nodes. The context is current.
    fn capture(&mut self, core: &Core) -> Result<()> {
        let (stream, mut nodes) = (self.capture.0, Vec::new());
        let nothing = CopySlice { dst: DevicePtr::NULL, src: DevicePtr::NULL, bytes: 0 };
        let nothing = vec![nothing; self.route.bytes.len()];
        let take = |part: Part<'_>| {
            launch(core, &part, stream)?;
            nodes.push(last_node(core, stream)?);
            Ok(())
        };
        match &self.others {
            _ if self.ahead.is_some() => self.route.behind(take)?,
            Some(route) => {
                let others = Others { route, slices: None };
                self.route.with_others(&nothing, &others, take).map_err(|(_, e)| e)?;
            }
            None => self.route.each_part(&nothing, take)?,
        }
        self.nodes = nodes;
        Ok(())
    }
}

/// What the driver calls the capture of `stream`, if there is one, and the node that it was given last, if it is one.
fn capture_of(core: &Core, stream: Stream) -> Result<(Option<u64>, Option<u64>)> {
    let (mut status, mut id, mut graph, mut nodes, mut count) = (0, 0, 0, std::ptr::null(), 0);
    let info = core.api.capture_info(stream.0, &mut status, &mut id, &mut graph, &mut nodes, &mut count);
    core.api.check(info, Operation::Copy)?;
    let one = status != 0 && count == 1 && !nodes.is_null();
    // SAFETY: the driver said that one node is there, and nothing was enqueued on the stream since.
    let node = one.then(|| unsafe { nodes.read() });
    Ok(((status != 0).then_some(id), node))
}

/// The node that a capturing stream was given last.
fn last_node(core: &Core, stream: Stream) -> Result<u64> {
    let hint = "the capture does not tell its last node";
    let missing = Error::new(Kind::DriverError, Operation::Copy, hint);
    capture_of(core, stream)?.1.ok_or(missing)
}
