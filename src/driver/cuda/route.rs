//! Routes: near ends and bytes are put into device memory once, and a launch brings the far ends by value. So any
//! number of launches may be under way, and none has anything to keep.

use super::context::{Context, Core};
use super::copy::{Kernels, LONE};
use super::pieces::{Piece, Pieces};
use super::record::Record;
use crate::driver::lines::refuse_captured;
use crate::driver::tiles::{ROUTE_HEADER, THREADS, TILE, checked, cut};
use crate::driver::{CopySlice, Ordinal, RecordId, RouteId, RouteSlice, Stream, Way};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// What stays.
#[derive(Debug)]
pub(super) struct Route {
    /// The one in which the tiles are, and whose kernels read them.
    pub(super) context: Arc<Context>,
    way: Way,
    pub(super) bytes: Vec<u64>,
    tiles: Piece,
    /// The number of each slice's first tile, and of all tiles.
    firsts: Vec<u32>,
    /// The most bytes of a slice.
    most: u64,
    /// The parameters of a launch, so that none needs memory of its own.
    words: Mutex<Vec<u64>>,
}

/// Routes and what was recorded of them, by number.
#[derive(Debug, Default)]
pub(super) struct Routes {
    last: AtomicU64,
    routes: RwLock<BTreeMap<u64, Arc<Route>>>,
    pub(super) records: RwLock<BTreeMap<u64, Arc<Record>>>,
    pub(super) pieces: Pieces,
}

pub(super) fn fail(kind: Kind, hint: &'static str) -> Error {
    Error::new(kind, Operation::Copy, hint)
}

impl Route {
    /// Refuses slices that are not the route's, as far as what is used of them goes.
    pub(super) fn check(&self, slices: &[CopySlice]) -> Result<()> {
        if slices.len() != self.bytes.len() {
            return Err(fail(Kind::CountMismatch, "one slice is needed for each of the route's"));
        }
        // A single part is looked at where it is laid out.
        let parts = slices.len().div_ceil(self.most_of_part().max(1));
        if parts > 1 && !self.fits(self.far(slices).fold(0, u64::max)) { self.blame(slices) } else { Ok(()) }
    }

    /// True where no slice passes the last address whose far ends are `highest` at most.
    const fn fits(&self, highest: u64) -> bool {
        highest <= u64::MAX - self.most
    }

    fn most_of_part(&self) -> usize {
        self.context.kernels.as_ref().map_or(1, Kernels::most_of_route)
    }

    /// The failure of a slice that passes the last address, if one does.
    #[cold]
    fn blame(&self, slices: &[CopySlice]) -> Result<()> {
        for (i, (slice, bytes)) in slices.iter().zip(&self.bytes).enumerate() {
            let (far, size) = (RouteSlice::far(self.way, slice), ByteSize(*bytes));
            if far.checked_add(size).is_none() {
                let error = fail(Kind::OutOfRange, "the slice passes the last address");
                return Err(error.at(far, size).entry(i as u64));
            }
        }
        Ok(())
    }

    /// The far ends of `slices`, 0 where nothing is copied.
    pub(super) fn far<'a>(&self, slices: &'a [CopySlice]) -> impl Iterator<Item = u64> + use<'a> {
        let way = self.way;
        slices.iter().map(move |slice| RouteSlice::far(way, slice).get())
    }

    /// The head of the parameters for `count` slices from `first` on, and their tiles.
    pub(super) fn head(&self, first: usize, count: usize) -> ([u64; ROUTE_HEADER], u32) {
        let (from, to) = (self.firsts[first], self.firsts[first + count]);
        let tiles = self.tiles.device + u64::from(from) * 8 * TILE as u64;
        let outward = u64::from(self.way == Way::Out);
        ([tiles, count as u64 | (first as u64) << 32, outward], to - from)
    }

    /// A lone large slice goes to the driver's own copy.
    fn is_lone(&self) -> bool {
        matches!(self.bytes[..], [bytes] if bytes >= LONE)
    }
}

impl Routes {
    pub(super) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn find(&self, route: RouteId) -> Result<Arc<Route>> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        routes.get(&route.0).cloned().ok_or_else(|| fail(Kind::InvalidHandle, "no such route"))
    }

    pub(super) fn create(
        &self,
        core: &Core,
        device: Ordinal,
        way: Way,
        slices: &[RouteSlice],
    ) -> Result<RouteId> {
        let cut = cut(slices)?;
        let context = core.primary(device, Operation::Copy)?;
        if context.kernels.is_none() || !core.api.has_graph_updates() {
            return Err(fail(Kind::Unsupported, "this driver has no routes: use copies"));
        }
        let tiles = self.pieces.device(core, context, 8 * cut.words.len() as u64)?;
        if let Err(e) = core.upload(context, tiles.device, &cut.words) {
            self.pieces.give_back(tiles);
            return Err(e);
        }
        let bytes: Vec<u64> = slices.iter().map(|slice| slice.bytes).collect();
        let most = bytes.iter().copied().max().unwrap_or(0);
        let (context, firsts, words) = (Arc::clone(context), cut.firsts, Mutex::default());
        let route = Route { context, way, bytes, tiles, firsts, most, words };
        let id = self.number();
        self.routes.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(route));
        Ok(RouteId(id))
    }

    pub(super) fn destroy(&self, id: RouteId) -> Result<()> {
        let route = self.find(id)?;
        let mut records = self.records.write().unwrap_or_else(PoisonError::into_inner);
        records.retain(|_, record| !Arc::ptr_eq(&record.route, &route));
        drop(records);
        let taken = self.routes.write().unwrap_or_else(PoisonError::into_inner).remove(&id.0);
        // Whoever else destroys it at the same time has not given the piece back.
        if let Some(route) = taken {
            self.pieces.give_back(route.tiles);
        }
        Ok(())
    }

    /// Enqueues a route's copies, and says in how many launches.
    pub(super) fn copy(
        &self,
        core: &Core,
        device: Ordinal,
        stream: Stream,
        id: RouteId,
        slices: &[CopySlice],
    ) -> Result<u32> {
        let route = self.find(id)?;
        route.check(slices)?;
        core.launching(stream, device, |context| {
            // In a graph these copies would outlive the route.
            refuse_captured(core, stream, Operation::Copy)?;
            if context.handle != route.context.handle || route.is_lone() {
                return core.enqueue(context, stream, &checked(slices)?);
            }
            launch_all(core, &route, stream, slices)
        })
    }

    /// Gives back what is left.
    pub(super) fn close(&self, core: &Core) {
        let routes: Vec<u64> =
            self.routes.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect();
        for route in routes {
            if let Err(error) = self.destroy(RouteId(route)) {
                log::warn!("could not end a route: {error}");
            }
        }
        self.pieces.close(core);
    }

    pub(super) fn find_record(&self, record: RecordId) -> Result<Arc<Record>> {
        let records = self.records.read().unwrap_or_else(PoisonError::into_inner);
        let missing = || fail(Kind::InvalidHandle, "no such copies were recorded");
        records.get(&record.0).cloned().ok_or_else(missing)
    }
}

/// What one launch, or one node, takes: the kernel, its grid, and its only parameter.
pub(super) struct Part<'a> {
    pub(super) function: u64,
    pub(super) tiles: u32,
    pub(super) words: &'a [u64],
    /// False where all far ends are 0.
    copies: bool,
}

impl Route {
    /// Gives `take` the parts that `slices` go in, each as many as a kernel holds.
    pub(super) fn each_part(
        &self,
        slices: &[CopySlice],
        mut take: impl FnMut(Part<'_>) -> Result<()>,
    ) -> Result<()> {
        let missing = || fail(Kind::Internal, "no kernel holds that many slices");
        let kernels = self.context.kernels.as_ref().ok_or_else(missing)?;
        let most = kernels.most_of_route();
        // Held across driver calls: it is only tried, so nobody waits for it.
        let (mut kept, mut own) = (self.words.try_lock().ok(), Vec::new());
        let words = kept.as_deref_mut().unwrap_or(&mut own);
        for (at, part) in slices.chunks(most).enumerate() {
            let (capacity, function) = kernels.of_route(part.len()).ok_or_else(missing)?;
            let (head, tiles) = self.head(at * most, part.len());
            words.resize(ROUTE_HEADER + capacity, 0);
            let (first, rest) = words.split_at_mut(ROUTE_HEADER);
            first.copy_from_slice(&head);
            let mut highest = 0;
            for (word, far) in rest.iter_mut().zip(self.far(part)) {
                *word = far;
                highest = far.max(highest);
            }
            if !self.fits(highest) {
                self.blame(slices)?;
            }
            rest[part.len()..].fill(0);
            take(Part { function, tiles, words, copies: highest != 0 })?;
        }
        Ok(())
    }
}

fn launch_all(core: &Core, route: &Route, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
    let mut launches = 0;
    route.each_part(slices, |part| {
        if part.copies {
            launch(core, &part, stream)?;
            launches += 1;
        }
        Ok(())
    })?;
    Ok(launches)
}

/// Launches one of the kernels for routes.
pub(super) fn launch(core: &Core, part: &Part<'_>, stream: Stream) -> Result<()> {
    // The driver copies the parameters before it returns, also into a graph.
    let parameters: [*const c_void; 1] = [part.words.as_ptr().cast()];
    let (list, none) = (parameters.as_ptr(), std::ptr::null());
    let status =
        core.api.launch_kernel(part.function, part.tiles, 1, 1, THREADS, 1, 1, 0, stream.0, list, none);
    core.api.check(status, Operation::Copy)
}
