//! A route's copies inside a graph: the nodes carry the far ends by value, as launches do, and pointing the graph at other
//! ones is an update of each node, which concerns later launches only. So any number of launches may be under way, also
//! several of one step, and nothing has to be kept for them or waited for.
#![allow(unsafe_code, reason = "reads the driver's list of nodes")]

use super::api::KernelNode;
use super::context::{Core, Entered};
use super::route::{Route, Routes, fail, launch};
use crate::driver::tiles::THREADS;
use crate::driver::{CopySlice, Graph, Point, RecordId, RouteId, Stream};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::DevicePtr;
use std::sync::{Arc, PoisonError};

/// Recorded copies.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) route: Arc<Route>,
    /// A `CUgraphNode` for each part of the route.
    nodes: Vec<u64>,
}

impl Routes {
    pub(super) fn record(&self, core: &Core, stream: Stream, route: RouteId) -> Result<RecordId> {
        let route = self.find(route)?;
        let context = core.context_on(stream, route.context.device, Operation::Copy)?;
        if context.handle != route.context.handle {
            let hint = "only streams of the primary context record copies: let begin and end make them";
            return Err(fail(Kind::Unsupported, hint));
        }
        let nodes = capture(core, &route, stream)?;
        let id = self.number();
        let record = Arc::new(Record { route, nodes });
        self.records.write().unwrap_or_else(PoisonError::into_inner).insert(id, record);
        Ok(RecordId(id))
    }

    /// Points a graph's copies at far ends, and asks once whether the context is as it was. Where an update fails, earlier
    /// ones hold: the caller does not launch the graph, and points it again. A failure comes with which it is.
    pub(super) fn point(
        &self,
        core: &Core,
        graph: Graph,
        points: &[Point<'_>],
    ) -> std::result::Result<(), (usize, Error)> {
        let mut entered: Option<(u64, Entered<'_>)> = None;
        for (i, &(record, slices)) in points.iter().enumerate() {
            let mut one = || {
                let record = self.find_record(record)?;
                record.route.check(slices)?;
                let context = &record.route.context;
                if entered.as_ref().is_none_or(|(handle, _)| *handle != context.handle) {
                    // What was pushed last is popped first.
                    drop(entered.take());
                    entered = Some((context.handle, core.enter_known(context, Operation::Copy)?));
                }
                record.update(core, graph, slices)
            };
            one().map_err(|e| (i, e))?;
        }
        Ok(())
    }
}

impl Record {
    /// Points this record's nodes. Its context is current.
    fn update(&self, core: &Core, graph: Graph, slices: &[CopySlice]) -> Result<()> {
        let mut nodes = self.nodes.iter();
        self.route.each_part(slices, |part| {
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
        })
    }
}

/// Captures the kernels with no far ends, which copy nothing, and gives their nodes.
fn capture(core: &Core, route: &Route, stream: Stream) -> Result<Vec<u64>> {
    let _entered = core.enter(route.context.handle, Operation::Copy)?;
    let mut status = 0;
    core.api.check(core.api.stream_is_capturing(stream.0, &mut status), Operation::Copy)?;
    if status == 0 {
        return Err(fail(Kind::WrongState, "the stream is not being captured"));
    }
    let nothing = vec![CopySlice { dst: DevicePtr::NULL, src: DevicePtr::NULL, bytes: 0 }; route.bytes.len()];
    let mut nodes = Vec::new();
    route.each_part(&nothing, |part| {
        launch(core, &part, stream)?;
        nodes.push(last_node(core, stream)?);
        Ok(())
    })?;
    Ok(nodes)
}

/// The node that a capturing stream was given last.
fn last_node(core: &Core, stream: Stream) -> Result<u64> {
    let (mut status, mut id, mut graph, mut nodes, mut count) = (0, 0, 0, std::ptr::null(), 0);
    let info = core.api.capture_info(stream.0, &mut status, &mut id, &mut graph, &mut nodes, &mut count);
    core.api.check(info, Operation::Copy)?;
    if count != 1 || nodes.is_null() {
        let hint = "the capture does not tell its last node";
        return Err(Error::new(Kind::DriverError, Operation::Copy, hint));
    }
    // SAFETY: the driver said that one node is there, and nothing was enqueued on the stream since.
    Ok(unsafe { nodes.read() })
}
