//! The copies that each step makes in one direction: launched by begin and end, or recorded in the caller's graph.

use crate::driver::{CopySlice, Graph, RecordId, RouteSlice, Stream, Way};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::DevicePtr;
use crate::vm::{Device, Route};

/// Which of the copies is a slot's, if any; in four bytes, since a step reads it for each slot that changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At(u32);

impl At {
    pub(super) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(super) const fn get(self) -> Option<usize> {
        if self.0 == u32::MAX { None } else { Some(self.0 as usize) }
    }
}

/// Copies in the caller's graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    id: RecordId,
    /// Those before them, if these are pointed by the update that points those.
    ahead: Option<RecordId>,
}

/// Copies that each step makes in one direction.
#[derive(Debug)]
pub(super) struct Copies {
    way: Way,
    pub(super) slices: Vec<CopySlice>,
    /// Slices that copy something.
    pub(super) count: u64,
    /// What they copy together.
    pub(super) bytes: u64,
    /// What stays of them, until the route is made of it.
    near: Vec<RouteSlice>,
    route: Option<Route>,
    /// The copies in the caller's graph.
    record: Option<Recorded>,
    /// The graph whose next launch copies the slices as they are.
    aimed: Option<Graph>,
}

impl Copies {
    pub(super) const fn new(way: Way) -> Self {
        Self {
            way,
            slices: Vec::new(),
            count: 0,
            bytes: 0,
            near: Vec::new(),
            route: None,
            record: None,
            aimed: None,
        }
    }

    /// Adds a slice with a shadow at `near` that copies nothing yet.
    pub(super) fn push(&mut self, near: DevicePtr, bytes: u64) -> At {
        self.slices.push(CopySlice { dst: near, src: near, bytes: 0 });
        self.near.push(RouteSlice { near, bytes });
        At((self.slices.len() - 1) as u32)
    }

    /// Says that there are no more slices.
    pub(super) fn seal(&mut self, device: &Device) -> Result<()> {
        self.route = Some(device.route(self.way, &self.near)?);
        self.near = Vec::new();
        Ok(())
    }

    /// Replaces a slice; one of no bytes copies nothing.
    #[inline]
    pub(super) fn set(&mut self, at: usize, new: CopySlice) {
        let (old, bytes) = (self.slices[at], new.bytes);
        if new == old {
            return;
        }
        if bytes != old.bytes {
            self.count = self.count + u64::from(bytes != 0) - u64::from(old.bytes != 0);
            self.bytes = self.bytes.wrapping_sub(old.bytes).wrapping_add(bytes);
        }
        (self.slices[at], self.aimed) = (new, None);
    }

    /// The route, where there is something to record.
    fn recordable(&self) -> Option<&Route> {
        self.route.as_ref().filter(|_| !self.slices.is_empty())
    }

    /// Puts the copies into the graph that `stream` is being captured into; nothing where there are none. They may bring
    /// along where those of `behind` go.
    pub(super) fn record(&self, stream: Stream, behind: &Self) -> Result<Option<Recorded>> {
        let record = |route: &Route| route.record(stream, behind.recordable());
        let recorded = self.recordable().map(record).transpose()?;
        Ok(recorded.map(|id| Recorded { id, ahead: None }))
    }

    /// The same for copies behind those that were recorded as `ahead`.
    pub(super) fn record_behind(&self, stream: Stream, ahead: Option<Recorded>) -> Result<Option<Recorded>> {
        let Some(route) = self.recordable() else { return Ok(None) };
        let Some(Recorded { id: ahead, .. }) = ahead else {
            return Ok(Some(Recorded { id: route.record(stream, None)?, ahead: None }));
        };
        let (id, joined) = route.record_behind(stream, ahead)?;
        Ok(Some(Recorded { id, ahead: joined.then_some(ahead) }))
    }

    /// What is recorded of them.
    pub(super) const fn in_graph(&self) -> Option<Recorded> {
        self.record
    }

    /// From now on these recorded copies are the ones.
    pub(super) fn recorded(&mut self, record: Option<Recorded>) {
        (self.record, self.aimed) = (record, None);
    }

    /// What any graph's copies point at is not known any more.
    pub(super) const fn forget_aim(&mut self) {
        self.aimed = None;
    }

    pub(super) const fn is_recorded(&self) -> bool {
        self.record.is_some()
    }

    /// Points the recorded copies of `graph` at the slices, those in and out in one call. A failure comes with which of
    /// them it is.
    pub(super) fn aim(ways: [&mut Self; 2], graph: Option<Graph>) -> std::result::Result<(), (usize, Error)> {
        let Some(graph) = graph else { return Ok(()) };
        let joined = Self::are_joined(&ways).map_err(|e| (1, e))?;
        let needs = [0, 1].map(|i: usize| ways[i].needs_aim(Some(graph)));
        let wanted = if joined { [needs[0] || needs[1]; 2] } else { needs };
        let point = |i: usize| {
            let record = ways[i].record.filter(|_| wanted[i]);
            record.map(|record| (record.id, &ways[i].slices[..]))
        };
        let (points, first) = match [point(0), point(1)] {
            [Some(a), Some(b)] => ([a, b], 0),
            [Some(a), None] => ([a, a], 0),
            [None, Some(b)] => ([b, b], 1),
            [None, None] => return Ok(()),
        };
        let count = wanted.iter().filter(|wanted| **wanted).count();
        if let Some(route) = &ways[first].route {
            route.point(graph, &points[..count]).map_err(|(i, e)| (first + i, e))?;
        }
        for (way, _) in ways.into_iter().zip(wanted).filter(|(_, wanted)| *wanted) {
            way.aimed = Some(graph);
        }
        Ok(())
    }

    /// True where one update points both, which it does only for those that were recorded together.
    fn are_joined([copied_in, copied_out]: &[&mut Self; 2]) -> Result<bool> {
        let Some(ahead) = copied_out.record.and_then(|record| record.ahead) else { return Ok(false) };
        if copied_in.record.is_some_and(|record| record.id == ahead) { Ok(true) } else { Err(APART) }
    }

    /// Enqueues the copies, unless the graph makes them.
    pub(super) fn launch(&self, stream: Stream) -> Result<()> {
        match &self.route {
            Some(route) if self.needs_launch() => route.copy(stream, &self.slices).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// True where launches would become part of a graph that the stream is being captured into.
    pub(super) fn is_unguarded(&self) -> bool {
        !self.route.as_ref().is_some_and(Route::is_native)
    }

    /// True where no graph makes the copies of the step that was begun last.
    pub(super) const fn needs_launch(&self) -> bool {
        self.count != 0 && self.aimed.is_none()
    }

    /// True where a step with `graph` and the slices as they are has something to point.
    pub(super) fn needs_aim(&self, graph: Option<Graph>) -> bool {
        self.record.is_some() && self.aimed != graph
    }

    /// What must stay until the last step has passed.
    pub(super) fn into_route(self) -> Option<Route> {
        self.route
    }

    /// True where launches read something of the driver's that must stay.
    pub(super) fn has_route(&self) -> bool {
        self.route.as_ref().is_some_and(Route::is_native)
    }
}

const APART: Error = Error::new(
    Kind::InvalidArgument,
    Operation::Begin,
    "the copies in were recorded anew without those out: record both into the graph",
);
