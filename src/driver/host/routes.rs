//! Routes: copies of which one end stays. A launch carries its own far ends, also those in a graph.

use super::HostDriver;
use super::stream::Work;
use super::streams::Lines;
use crate::driver::{
    Capabilities, CopySlice, Graph, Ordinal, RecordId, RouteId, RouteSlice, Stream, Way, unsupported,
};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What stays.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) device: Ordinal,
    way: Way,
    slices: Box<[RouteSlice]>,
    /// Held by every launch that has not run.
    pending: Arc<()>,
}

/// One launch's copies, until they have run.
#[derive(Clone, Debug)]
pub(super) struct Leg {
    pub(super) slices: Arc<[CopySlice]>,
    pending: Arc<()>,
}

/// The copies of a graph's later launches; the route does not wait for those.
#[derive(Clone, Debug)]
pub(super) struct Aim {
    slices: Arc<[CopySlice]>,
    pending: Weak<()>,
}

impl Leg {
    pub(super) fn aim(self) -> Aim {
        Aim { slices: self.slices, pending: Arc::downgrade(&self.pending) }
    }
}

impl Aim {
    /// One launch's copies; none where the route is gone.
    pub(super) fn leg(&self) -> Option<Leg> {
        Some(Leg { slices: Arc::clone(&self.slices), pending: self.pending.upgrade()? })
    }
}

/// Routes and what was recorded of them, by number.
#[derive(Debug, Default)]
pub(super) struct Routes {
    last: AtomicU64,
    routes: Mutex<HashMap<u64, Arc<Route>>>,
    records: Mutex<HashMap<u64, Arc<Route>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fail(kind: Kind, hint: &'static str) -> Error {
    Error::new(kind, Operation::Copy, hint)
}

fn no_route() -> Error {
    fail(Kind::InvalidHandle, "no such route")
}

impl Route {
    /// The copies to `slices`' far ends, which must fit what stays.
    fn leg(&self, slices: &[CopySlice]) -> Result<Leg> {
        if slices.len() != self.slices.len() {
            return Err(fail(Kind::CountMismatch, "one slice is needed for each of the route's"));
        }
        let near = |slice: &CopySlice| if self.way == Way::In { slice.dst } else { slice.src };
        for (i, (slice, stays)) in slices.iter().zip(&self.slices).enumerate() {
            if slice.bytes != 0 && (near(slice), slice.bytes) != (stays.near, stays.bytes) {
                let error = fail(Kind::InvalidArgument, "the near end or the bytes are not the route's");
                return Err(error.at(near(slice), ByteSize(slice.bytes)).entry(i as u64));
            }
        }
        Ok(Leg { slices: slices.into(), pending: Arc::clone(&self.pending) })
    }
}

impl Routes {
    fn find(&self, route: RouteId) -> Result<Arc<Route>> {
        lock(&self.routes).get(&route.0).cloned().ok_or_else(no_route)
    }

    pub(super) fn create(&self, device: Ordinal, way: Way, slices: &[RouteSlice]) -> Result<RouteId> {
        for (i, slice) in slices.iter().enumerate() {
            let size = ByteSize(slice.bytes);
            if slice.bytes == 0 || slice.near.checked_add(size).is_none() {
                let error = fail(Kind::OutOfRange, "the slice is empty or passes the last address");
                return Err(error.at(slice.near, size).entry(i as u64));
            }
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let route = Route { device, way, slices: slices.into(), pending: Arc::default() };
        lock(&self.routes).insert(number, Arc::new(route));
        Ok(RouteId(number))
    }

    pub(super) fn destroy(&self, route: RouteId) -> Result<()> {
        let found = self.find(route)?;
        if Arc::strong_count(&found.pending) > 1 {
            return Err(fail(Kind::InUse, "copies of the route have not run yet"));
        }
        lock(&self.routes).remove(&route.0).ok_or_else(no_route)?;
        lock(&self.records).retain(|_, of| !Arc::ptr_eq(of, &found));
        Ok(())
    }

    pub(super) fn leg(&self, device: Ordinal, route: RouteId, slices: &[CopySlice]) -> Result<Leg> {
        let route = self.find(route)?;
        if route.device != device {
            return Err(fail(Kind::InvalidArgument, "the route is another device's"));
        }
        route.leg(slices)
    }

    /// Keeps the route's copies in the stream's capture; `device_us` is what they take there.
    pub(super) fn record(
        &self,
        lines: &Lines,
        stream: Stream,
        route: RouteId,
        device_us: impl FnOnce(&[RouteSlice]) -> f64,
    ) -> Result<RecordId> {
        let route = self.find(route)?;
        let line = lines.find_on(route.device, stream)?;
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        line.push_captured(Work::Recorded(RecordId(number), device_us(&route.slices)))?;
        lock(&self.records).insert(number, route);
        Ok(RecordId(number))
    }

    pub(super) fn point(
        &self,
        lines: &Lines,
        record: RecordId,
        graph: Graph,
        slices: &[CopySlice],
    ) -> Result<()> {
        let no_record = || fail(Kind::InvalidHandle, "no such copies were recorded");
        let route = lock(&self.records).get(&record.0).cloned().ok_or_else(no_record)?;
        lines.point(graph, record, route.leg(slices)?.aim())
    }

    /// True while the route of these recorded copies is there.
    pub(super) fn is_live(&self, record: RecordId) -> bool {
        lock(&self.records).contains_key(&record.0)
    }
}

impl HostDriver {
    /// µs on the host and on the device.
    pub(super) fn copy_us(&self, count: u64, bytes: u64) -> (f64, f64) {
        let joint = self.shape().capabilities.has(Capabilities::JOINT_COPIES);
        self.costs().map_or((0.0, 0.0), |costs| costs.copy_us(joint, count, bytes))
    }

    /// How many launches `count` slices take.
    pub(super) fn launches(&self, count: u64) -> u32 {
        let joint = self.shape().capabilities.has(Capabilities::JOINT_COPIES);
        if joint { 1 } else { u32::try_from(count).unwrap_or(u32::MAX) }
    }

    pub(super) fn needs_routes(&self) -> Result<()> {
        if self.shape().capabilities.has(Capabilities::ROUTES) {
            return Ok(());
        }
        Err(unsupported(Operation::Copy, "routes are switched off"))
    }
}
