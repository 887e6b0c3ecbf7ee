//! Copies that are made again and again between memory of ours, which stays, and callers' buffers, which do not.

use super::Device;
use super::cleanup::Leftover;
use super::shared::Shared;
use crate::driver::{Capabilities, CopySlice, Graph, Point, RecordId, RouteId, RouteSlice, Stream, Way};
use crate::error::{Error, Kind, Operation, Result};
use std::sync::Arc;

/// A route. Whoever drops it vouches that none of its copies is pending. On a device without routes it is there all
/// the same; it can only [`copy`](Self::copy).
#[derive(Debug)]
pub struct Route {
    shared: Arc<Shared>,
    id: Option<RouteId>,
}

impl Device {
    /// Makes a route.
    ///
    /// # Errors
    /// The driver's.
    pub fn route(&self, way: Way, slices: &[RouteSlice]) -> Result<Route> {
        let shared = self.shared();
        let native = shared.calls.has(Capabilities::ROUTES) && !slices.is_empty();
        let id =
            if native { Some(shared.with_room(|| shared.calls.route_create(way, slices))?) } else { None };
        Ok(Route { shared: Arc::clone(shared), id })
    }
}

impl Route {
    /// True where launches read what the driver keeps for the route.
    pub(crate) const fn is_native(&self) -> bool {
        self.id.is_some()
    }

    /// Enqueues the copies of `slices`, whose near ends and bytes are the route's (or whose bytes are 0), and says how
    /// many launches that took. The caller vouches for the slices as for [`Device::copy_vouched`].
    ///
    /// # Errors
    /// The driver's.
    pub fn copy(&self, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        match self.id {
            Some(id) => self.shared.calls.route_copy(stream, id, slices),
            None => self.shared.calls.copy(stream, slices),
        }
    }

    /// Puts the copies into the graph that `stream` is being captured into; they copy nothing before
    /// [`point`](Self::point). They may bring along where those of `behind` go.
    ///
    /// # Errors
    /// `Unsupported`, `WrongState` (the stream is not being captured), and the driver's.
    pub fn record(&self, stream: Stream, behind: Option<&Self>) -> Result<RecordId> {
        let (id, calls) = (self.recordable()?, &self.shared.calls);
        match behind.and_then(|route| route.id) {
            Some(behind) => calls.route_record_ahead(stream, id, behind),
            None => calls.route_record(stream, id),
        }
    }

    /// The same for copies behind those of `ahead`, which were recorded with this route, and whether one update points
    /// both: then [`point`](Self::point) gets both, these right behind those.
    ///
    /// # Errors
    /// As [`record`](Self::record)'s.
    pub fn record_behind(&self, stream: Stream, ahead: RecordId) -> Result<(RecordId, bool)> {
        self.shared.calls.route_record_behind(stream, self.recordable()?, ahead)
    }

    fn recordable(&self) -> Result<RouteId> {
        let hint = "copies cannot be recorded on this device: begin and end make them";
        self.id.ok_or(Error::new(Kind::Unsupported, Operation::Copy, hint))
    }

    /// Points recorded copies of `graph`, of routes of this device, at the far ends of slices for its later launches.
    ///
    /// # Errors
    /// The driver's, with which point it is; point all again before a launch.
    pub fn point(&self, graph: Graph, points: &[Point<'_>]) -> std::result::Result<(), (usize, Error)> {
        self.shared.calls.route_point_all(graph, points)
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let result = self.shared.calls.route_destroy(id);
            self.shared.or_keep(result, || Leftover::Route(id));
        }
    }
}
