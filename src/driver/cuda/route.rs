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
    /// Where copies out have their far ends while a node ahead of theirs brings them; 0 for those in. Behind the tiles.
    table: u64,
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
        self.check_count(slices)?;
        // A single part is looked at where it is laid out.
        let parts = slices.len().div_ceil(self.most_of_part().max(1));
        if parts > 1 && !self.fits(self.highest(slices)) { self.blame(slices) } else { Ok(()) }
    }

    pub(super) fn check_count(&self, slices: &[CopySlice]) -> Result<()> {
        if slices.len() == self.bytes.len() {
            return Ok(());
        }
        Err(fail(Kind::CountMismatch, "one slice is needed for each of the route's"))
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

    /// The highest far end of `slices`.
    fn highest(&self, slices: &[CopySlice]) -> u64 {
        slices.iter().map(|slice| RouteSlice::far(self.way, slice).get()).max().unwrap_or(0)
    }

    /// The head of the parameters for `count` slices from `first` on, and their tiles.
    fn head(&self, first: usize, count: usize) -> ([u64; ROUTE_HEADER], u32) {
        let (from, to) = (self.firsts[first], self.firsts[first + count]);
        let tiles = self.tiles.device + u64::from(from) * 8 * TILE as u64;
        let outward = u64::from(self.way == Way::Out);
        ([tiles, count as u64 | (first as u64) << 32, outward], to - from)
    }

    /// True where one node takes the far ends of both routes.
    pub(super) fn carries(&self, other: &Self) -> bool {
        let count = self.bytes.len() + other.bytes.len() + 1;
        let same = self.context.handle == other.context.handle && other.table != 0;
        same && count <= self.most_of_part()
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
        let behind = cut.words.len();
        let mut words = cut.words;
        if way == Way::Out {
            words.resize(behind + slices.len(), 0);
        }
        let tiles = self.pieces.device(core, context, 8 * words.len() as u64)?;
        let table = if way == Way::Out { tiles.device + 8 * behind as u64 } else { 0 };
        if let Err(e) = core.upload(context, tiles.device, &words) {
            self.pieces.give_back(tiles);
            return Err(e);
        }
        let bytes: Vec<u64> = slices.iter().map(|slice| slice.bytes).collect();
        let most = bytes.iter().copied().max().unwrap_or(0);
        let (context, firsts, words) = (Arc::clone(context), cut.firsts, Mutex::default());
        let route = Route { context, way, bytes, tiles, table, firsts, most, words };
        let id = self.number();
        self.routes.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(route));
        Ok(RouteId(id))
    }

    pub(super) fn destroy(&self, id: RouteId) -> Result<()> {
        let route = self.find(id)?;
        let mut records = self.records.write().unwrap_or_else(PoisonError::into_inner);
        records.retain(|_, record| !record.is_of(&route));
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

/// Gives `work` memory for the parameters of a launch.
fn with_words<T>(words: &Mutex<Vec<u64>>, work: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    // Held across driver calls: it is only tried, so nobody waits for it.
    let (mut kept, mut own) = (words.try_lock().ok(), Vec::new());
    work(kept.as_deref_mut().unwrap_or(&mut own))
}

/// Writes the far ends, 0 where nothing is copied, and gives the bits that any of them has: none is higher than those
/// together.
fn write_far(words: &mut [u64], slices: &[CopySlice], far: impl Fn(&CopySlice) -> u64) -> u64 {
    let mut bits = 0;
    for (word, slice) in words.iter_mut().zip(slices) {
        *word = if slice.bytes == 0 { 0 } else { far(slice) };
        bits |= *word;
    }
    bits
}

/// What a node of a graph takes from one that is ahead of it, which leaves it in the table of `route`.
pub(super) struct Others<'a> {
    pub(super) route: &'a Route,
    /// None: nothing is copied.
    pub(super) slices: Option<&'a [CopySlice]>,
}

impl Route {
    /// Room for `far` words behind the head, and the kernel that takes them; what is behind those is not read.
    fn room<'a>(&self, words: &'a mut Vec<u64>, far: usize) -> Result<(u64, &'a mut [u64], &'a mut [u64])> {
        let missing = || fail(Kind::Internal, "no kernel holds that many slices");
        let kernels = self.context.kernels.as_ref().ok_or_else(missing)?;
        let (capacity, function) = kernels.of_route(far).ok_or_else(missing)?;
        words.resize(ROUTE_HEADER + capacity, 0);
        let (head, far) = words.split_at_mut(ROUTE_HEADER);
        Ok((function, head, far))
    }

    /// Writes the far ends, and says whether anything is copied.
    fn write(&self, words: &mut [u64], slices: &[CopySlice]) -> Result<bool> {
        let bits = match self.way {
            Way::In => write_far(words, slices, |slice| slice.src.get()),
            Way::Out => write_far(words, slices, |slice| slice.dst.get()),
        };
        if !self.fits(bits) {
            self.blame(slices)?;
        }
        Ok(bits != 0)
    }

    /// Gives `take` the parts that `slices` go in, each as many as a kernel holds.
    pub(super) fn each_part(
        &self,
        slices: &[CopySlice],
        mut take: impl FnMut(Part<'_>) -> Result<()>,
    ) -> Result<()> {
        let most = self.most_of_part();
        with_words(&self.words, |words| {
            for (at, part) in slices.chunks(most).enumerate() {
                let (function, head, far) = self.room(words, part.len())?;
                let (its, tiles) = self.head(at * most, part.len());
                head.copy_from_slice(&its);
                let copies = self.write(far, part)?;
                take(Part { function, tiles, words, copies })?;
            }
            Ok(())
        })
    }

    /// Gives `take` the only part, which brings the far ends of others too. A failure comes with 1 where it is theirs, else 0.
    pub(super) fn with_others(
        &self,
        slices: &[CopySlice],
        others: &Others<'_>,
        take: impl FnOnce(Part<'_>) -> Result<()>,
    ) -> std::result::Result<(), (usize, Error)> {
        let (count, more) = (self.bytes.len(), others.route.bytes.len());
        with_words(&self.words, |words| {
            let (function, head, far) = self.room(words, count + more + 1).map_err(|e| (0, e))?;
            let (its, tiles) = self.head(0, count);
            head.copy_from_slice(&its);
            head[2] |= (more as u64) << 32;
            let (own, rest) = far.split_at_mut(count);
            self.write(own, slices).map_err(|e| (0, e))?;
            match others.slices {
                Some(slices) => others.route.write(rest, slices).map(drop).map_err(|e| (1, e))?,
                None => rest[..more].fill(0),
            }
            rest[more] = others.route.table;
            take(Part { function, tiles, words, copies: true }).map_err(|e| (0, e))
        })
    }

    /// Gives `take` the only part, whose far ends a node ahead brings.
    pub(super) fn behind(&self, take: impl FnOnce(Part<'_>) -> Result<()>) -> Result<()> {
        with_words(&self.words, |words| {
            let (function, head, far) = self.room(words, 1)?;
            let (its, tiles) = self.head(0, self.bytes.len());
            head.copy_from_slice(&its);
            head[2] |= BEHIND;
            far[0] = self.table;
            take(Part { function, tiles, words, copies: true })
        })
    }
}

/// As in `route.cu`.
const BEHIND: u64 = 2;

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
