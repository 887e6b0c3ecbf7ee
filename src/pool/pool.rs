//! The pool as callers see it.

use super::Shortage;
use super::arena::{Arena, Pending};
use super::capture::{Captures, DEFAULT, Filter};
use super::segment::ExpandableSegment;
use super::settings::{Chosen, Settings};
use super::size_class::{UNIT, UNIT_SHIFT, classify};
use super::snapshot::EventKind;
use super::supply::Spare;
use super::table::Table;
use super::totals::{Shared, Totals};
use crate::driver::{Access, Capabilities, Stream};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::{CallCounts, Device, Mark, calls};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of a pool of its own: PyTorch's pair. [`PoolId::DEFAULT`] is where everything else goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PoolId(pub u64, pub u64);

impl PoolId {
    /// Where allocations go that no filter takes.
    pub const DEFAULT: Self = Self(0, 0);
}

/// Called when an allocation of so many bytes cannot be satisfied, with no lock held, before it is tried a last
/// time. It may free, and must not allocate from the pool.
pub type Pressure = Arc<dyn Fn(ByteSize) + Send + Sync>;

/// A block that the program holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Where the block starts.
    pub address: DevicePtr,
    /// Its size, rounded.
    pub size: ByteSize,
    /// The stream it was allocated for.
    pub stream: Stream,
    /// The pool.
    pub pool: PoolId,
}

/// A caching allocator of one device. Everything may be called from any thread.
///
/// # Locks
///
/// Each arena has one, and no other lock of the pool is taken while it is held but the leaves (spare chunks, pools'
/// ids, callbacks, counts), each alone. Driver calls are made with none of them held, but for `making`: two threads that
/// meet a new stream shall not both reserve addresses for it.
pub struct Pool {
    pub(super) device: Arc<Device>,
    pub(super) chosen: Chosen,
    pub(super) table: Table,
    pub(super) capture: Captures,
    pub(super) totals: Totals,
    /// Bytes of blocks that the pool holds.
    pub(super) reserved: Shared,
    pub(super) limit: AtomicU64,
    pub(super) addresses: Shared,
    pub(super) lent: AtomicU64,
    /// Chunks moved although memory was not short.
    pub(super) shifted: AtomicU64,
    pub(super) stream_waits: AtomicU64,
    pub(super) host_waits: AtomicU64,
    pub(super) forced_trims: AtomicU64,
    pub(super) out_of_memory: AtomicU64,
    /// The number of the next event.
    pub(super) events: AtomicU64,
    access: Mutex<Vec<Access>>,
    spares: Mutex<Vec<Spare>>,
    pub(super) callbacks: Mutex<Vec<Pressure>>,
    pub(super) shortage: Mutex<Option<Shortage>>,
    pub(super) calls: Mutex<(CallCounts, u64)>,
    making: Mutex<()>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reserved = ByteSize(self.reserved.figure().current);
        f.debug_struct("Pool").field("device", &self.device).field("reserved", &reserved).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool without memory.
    ///
    /// # Errors
    /// `Unsupported` without virtual memory, `InvalidSize` for settings that do not fit the device.
    pub fn new(device: &Arc<Device>, settings: &Settings) -> Result<Arc<Self>> {
        if !device.capabilities().has(Capabilities::VIRTUAL_MEMORY) {
            let hint = "this device has no virtual memory, which a pool is made of";
            return Err(Error::new(Kind::Unsupported, Operation::Open, hint));
        }
        let chosen = settings.choose(device)?;
        Ok(Arc::new(Self {
            device: Arc::clone(device),
            table: Table::new(),
            capture: Captures::new(),
            totals: Totals::default(),
            reserved: Shared::default(),
            limit: AtomicU64::new(chosen.limit),
            addresses: Shared::default(),
            lent: AtomicU64::new(0),
            shifted: AtomicU64::new(0),
            stream_waits: AtomicU64::new(0),
            host_waits: AtomicU64::new(0),
            forced_trims: AtomicU64::new(0),
            out_of_memory: AtomicU64::new(0),
            events: AtomicU64::new(0),
            access: Mutex::new(chosen.access.clone()),
            spares: Mutex::default(),
            callbacks: Mutex::default(),
            shortage: Mutex::default(),
            calls: Mutex::default(),
            making: Mutex::default(),
            chosen,
        }))
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn spares(&self) -> MutexGuard<'_, Vec<Spare>> {
        lock(&self.spares)
    }

    /// Memory for work on `stream`, aligned to 512 bytes: what an earlier block of that stream left is used again at
    /// once, since the stream runs in order. May call the pressure callbacks, and may block the calling thread while
    /// it waits for streams (never while one is captured).
    ///
    /// # Errors
    /// `InvalidSize` for 0 and for more than a segment has, `OutOfDeviceMemory` (then [`Self::shortage`] says more),
    /// `OutOfAddressSpace`, and the driver's. Nothing has changed then.
    #[inline]
    pub fn alloc(&self, size: ByteSize, stream: Stream) -> Result<DevicePtr> {
        let Some(class) = classify(size) else { return Err(bad_size(size)) };
        let pool = if self.capture.open() == 0 { DEFAULT } else { self.capture.route(stream) };
        if let Some(arena) = self.table.of(pool, stream) {
            let mut state = arena.lock();
            if state.is_of(pool, stream)
                && let Some(unit) = state.alloc(class, &self.totals)
            {
                let address = arena.address(class.heap, unit);
                state.history.add(&self.events, EventKind::Alloc, address, size.get());
                return Ok(address);
            }
        }
        self.counted(|| self.alloc_more(class, pool, stream, size))
    }

    /// Runs what makes driver calls, and counts them.
    pub(super) fn counted<T>(&self, run: impl FnOnce() -> T) -> T {
        let (before, times) = (calls::thread_counts(), calls::thread_times());
        let result = run();
        let (after, now) = (calls::thread_counts().minus(before), calls::thread_times());
        if now.waited > times.waited {
            self.host_waits.fetch_add(1, Ordering::Relaxed);
        }
        let mut total = lock(&self.calls);
        let driver = now.driver.saturating_sub(times.driver);
        *total = (total.0.plus(after), total.1.saturating_add(driver.as_nanos() as u64));
        result
    }

    /// The arena of a pool and a stream, made where there is none.
    pub(super) fn arena(&self, pool: u32, stream: Stream) -> Result<&Arena> {
        if let Some(arena) = self.table.of(pool, stream) {
            return Ok(arena);
        }
        // Held across the driver calls: see the type.
        let _making = lock(&self.making);
        if let Some(arena) = self.table.of(pool, stream) {
            return Ok(arena);
        }
        if !self.reuse(pool, stream)? {
            self.make(pool, stream)?;
        }
        let hint = "the arena was taken while it was made: do not forget a stream that is in use";
        self.table.of(pool, stream).ok_or_else(|| Error::new(Kind::InvalidStream, Operation::Allocate, hint))
    }

    fn make(&self, pool: u32, stream: Stream) -> Result<()> {
        let Chosen { segment, chunk, address_limit, history, .. } = &self.chosen;
        let full = |hint| Error::new(Kind::OutOfAddressSpace, Operation::Reserve, hint);
        let bytes = segment[0].get() + segment[1].get();
        if !self.addresses.add_within(bytes, *address_limit) {
            let hint = "the pool's limit of addresses is reached: use fewer streams, shorter segments or a higher limit";
            return Err(full(hint).of(ByteSize(bytes)));
        }
        let access = lock(&self.access).clone();
        let segment = |i: usize| ExpandableSegment::new(&self.device, segment[i], chunk[i], &access);
        let added = segment(0).and_then(|small| Ok([small, segment(1)?])).and_then(|segments| {
            let arena = Arena::new(segments, pool, stream, *history);
            arena.lock().private = self.capture.is_private(pool);
            if self.table.all().next().is_some() {
                self.totals.set_several();
            }
            if self.table.add(Box::new(arena)) { Ok(()) } else { Err(full("the pool has too many streams")) }
        });
        added.inspect_err(|_| self.addresses.sub(bytes))
    }

    /// Gives an arena whose owner is gone to a new one, if there is such an arena.
    fn reuse(&self, pool: u32, stream: Stream) -> Result<bool> {
        for arena in self.table.all() {
            let mark = {
                let state = arena.lock();
                let over = state.ended.is_some() || (state.pool != DEFAULT && !state.private);
                if !over || !state.is_idle() || !state.pending.is_empty() {
                    continue;
                }
                match &state.ended {
                    Some(mark) => Arc::clone(mark),
                    None => self.device.mark(state.stream),
                }
            };
            // What it holds was used by the old stream.
            if mark.wait_on(stream).is_err() {
                continue;
            }
            let mut state = arena.lock();
            if state.is_idle() {
                state.private = self.capture.is_private(pool);
                arena.rekey(&mut state, pool, stream);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives back what [`Self::alloc`] gave. Work already enqueued on the block's own stream may still use it, and so
    /// may work on the streams that [`Self::record_stream`] named.
    ///
    /// # Errors
    /// `InvalidArgument` for an address that is not the start of a block of this pool, or one that was freed already.
    #[inline]
    pub fn free(&self, address: DevicePtr) -> Result<()> {
        let Some((arena, heap, offset)) = self.table.at(address) else { return Err(unknown(address)) };
        let mut state = arena.lock();
        let Some(node) = state.block_at(heap, offset) else { return Err(unknown(address)) };
        if state.is_shared(heap, node) {
            let piece = state.heaps[heap].block(node);
            let bytes = u64::from(piece.size) * UNIT - u64::from(piece.slack);
            let streams = state.leave(heap, node, &self.totals);
            state.history.add(&self.events, EventKind::FreeRequested, address, bytes);
            drop(state);
            self.counted(|| self.follow(arena, heap, node, &streams));
            return Ok(());
        }
        let bytes = state.free(heap, node, &self.totals);
        state.history.add(&self.events, EventKind::FreeCompleted, address, bytes);
        Ok(())
    }

    /// The same where work on `stream` was the last to use it, whatever stream it was allocated for.
    ///
    /// # Errors
    /// As [`Self::free`].
    pub fn free_on(&self, address: DevicePtr, stream: Stream) -> Result<()> {
        let Some((arena, heap, offset)) = self.table.at(address) else { return Err(unknown(address)) };
        let mut state = arena.lock();
        let Some(node) = state.block_at(heap, offset) else { return Err(unknown(address)) };
        state.share(heap, node, stream);
        drop(state);
        self.free(address)
    }

    /// Waits for the streams that also use a freed block, by events behind what is enqueued on them now.
    fn follow(&self, arena: &Arena, heap: usize, node: u32, streams: &[Stream]) {
        let marks: Vec<Arc<Mark>> = streams.iter().map(|stream| self.device.mark(*stream)).collect();
        marks.iter().for_each(|mark| self.record(mark));
        arena.lock().pending.push_back(Pending { heap, node, marks });
    }

    /// Records a mark as far as that can be done now: while its stream is captured it cannot, and is tried again.
    pub(super) fn record(&self, mark: &Arc<Mark>) {
        match mark.record() {
            Err(e) if e.kind == Kind::InvalidStream => {
                // Destroyed without a word: forgetting it lets its marks pass.
                if let Err(e) = self.device.forget_stream(mark.stream()) {
                    log::debug!("a stream that is gone could not be forgotten: {e}");
                }
            }
            Err(e) => log::debug!("an event is recorded later: {e}"),
            Ok(()) => {}
        }
    }

    /// Says that `stream` uses the block that holds `address`, too: once it is freed, it is used again only after
    /// that stream has passed what is enqueued on it then.
    ///
    /// # Errors
    /// `InvalidArgument` for an address that no block in use holds.
    pub fn record_stream(&self, address: DevicePtr, stream: Stream) -> Result<()> {
        let Some((arena, heap, offset)) = self.table.at(address) else { return Err(unknown(address)) };
        let mut state = arena.lock();
        let node = state.heaps[heap].block_over((offset >> UNIT_SHIFT) as u32);
        let Some(node) = node else { return Err(unknown(address)) };
        state.share(heap, node, stream);
        Ok(())
    }

    /// The block in use that holds `address`.
    pub fn find(&self, address: DevicePtr) -> Option<Place> {
        let (arena, heap, offset) = self.table.at(address)?;
        let state = arena.lock();
        let piece = state.heaps[heap].block(state.heaps[heap].block_over((offset >> UNIT_SHIFT) as u32)?);
        Some(Place {
            address: arena.address(heap, piece.start),
            size: ByteSize(u64::from(piece.size) * UNIT),
            stream: state.stream,
            pool: self.capture.id(state.pool),
        })
    }

    /// The chunks that `size` bytes from `address` touch are neither moved nor given back until they are unpinned:
    /// for memory that was registered elsewhere by its address.
    ///
    /// # Errors
    /// `InvalidArgument` for an address that is not the pool's, `OutOfRange`.
    pub fn pin(&self, address: DevicePtr, size: ByteSize) -> Result<()> {
        self.pinned(address, size, |heap, places| {
            heap.pin(places);
            true
        })
    }

    /// Undoes one [`Self::pin`] of the same bytes.
    ///
    /// # Errors
    /// As [`Self::pin`], and `WrongState` for what is not pinned.
    pub fn unpin(&self, address: DevicePtr, size: ByteSize) -> Result<()> {
        self.pinned(address, size, super::heap::Heap::unpin)
    }

    fn pinned(
        &self,
        address: DevicePtr,
        size: ByteSize,
        change: impl FnOnce(&mut super::heap::Heap, std::ops::Range<u32>) -> bool,
    ) -> Result<()> {
        let Some((arena, heap, _)) = self.table.at(address) else { return Err(unknown(address)) };
        let places = arena.segments[heap].outwards(address, size)?;
        if change(&mut arena.lock().heaps[heap], places) {
            return Ok(());
        }
        Err(Error::new(Kind::WrongState, Operation::None, "these bytes are not pinned").of(size))
    }

    /// Sets the most that the pool may reserve; none: all that there is. What it holds beyond is given back where
    /// nothing uses it.
    ///
    /// # Errors
    /// `InvalidSize` for 0, `InUse` for less than blocks in use take; then all is as before. Those of
    /// [`Self::trim`].
    pub fn set_limit(&self, limit: Option<ByteSize>) -> Result<()> {
        let refuse = |kind, hint| Err(Error::new(kind, Operation::Allocate, hint));
        let bytes = limit.map_or(u64::MAX, ByteSize::get);
        if bytes == 0 {
            return refuse(Kind::InvalidSize, "a limit of 0 bytes leaves no memory");
        }
        let active: u64 = self.table.all().map(|arena| arena.lock().bytes.active.current).sum();
        if bytes < active {
            return refuse(Kind::InUse, "blocks in use take more than that: free some first");
        }
        self.limit.store(bytes, Ordering::Relaxed);
        if self.reserved.figure().current > bytes && self.captures() == 0 {
            self.trim()?;
        }
        Ok(())
    }

    /// Sets the limit as a fraction of the device's memory, above 0 and at most 1.
    ///
    /// # Errors
    /// `InvalidArgument` for another number, `Unsupported` where the device's memory is unknown, and those of
    /// [`Self::set_limit`].
    pub fn set_fraction(&self, fraction: f64) -> Result<()> {
        let refuse = |kind, hint| Err(Error::new(kind, Operation::Allocate, hint));
        if !(fraction > 0.0 && fraction <= 1.0) {
            return refuse(Kind::InvalidArgument, "a fraction is above 0 and at most 1");
        }
        let total = self.device.info().total.get();
        if total == 0 {
            return refuse(Kind::Unsupported, "the device's memory is unknown: set a limit in bytes");
        }
        self.set_limit(Some(ByteSize((total as f64 * fraction) as u64)))
    }

    /// Sets who may use the memory of the pool, also what lives already (an empty list: its own device).
    ///
    /// # Errors
    /// As [`crate::vm::Reservation::set_access`]; then all is as before, as far as the driver lets it.
    pub fn set_access(&self, access: &[Access]) -> Result<()> {
        // Held across the driver calls: no segment shall be made with the old list meanwhile.
        let _making = lock(&self.making);
        let old = std::mem::replace(&mut *lock(&self.access), access.to_vec());
        let mut done: Vec<&ExpandableSegment> = Vec::new();
        for segment in self.table.all().flat_map(|arena| &arena.segments) {
            if let Err(e) = segment.set_access(access) {
                for segment in done {
                    if let Err(e) = segment.set_access(&old) {
                        log::warn!("a segment keeps its new access: {e}");
                    }
                }
                *lock(&self.access) = old;
                return Err(e);
            }
            done.push(segment);
        }
        Ok(())
    }

    /// Says that a stream is about to be destroyed: what it still has enqueued is remembered, its free memory goes
    /// to whoever needs it, and its blocks in use stay until they are freed.
    ///
    /// # Errors
    /// `StreamCapturing`, and the driver's; the stream is then still known.
    pub fn forget_stream(&self, stream: Stream) -> Result<()> {
        let mark = self.device.mark(stream);
        self.device.forget_stream(stream)?;
        for arena in self.table.all() {
            let mut state = arena.lock();
            if state.stream == stream && state.ended.is_none() {
                state.ended = Some(Arc::clone(&mark));
                arena.hide();
            }
        }
        Ok(())
    }

    /// From here on, allocations for streams that `filter` takes go to the pool `id`, which is made where it does not
    /// exist; it has one user more. Until [`Self::end_capture`], nothing is unmapped, lent or waited for.
    ///
    /// # Errors
    /// `InvalidArgument` for [`PoolId::DEFAULT`], `WrongState` where `id` is being allocated to already.
    pub fn begin_capture(&self, id: PoolId, filter: Filter) -> Result<()> {
        let is_used = |pool| self.table.all().any(|arena| arena.lock().pool == pool);
        self.capture.begin(id, filter, is_used)
    }

    /// Ends what [`Self::begin_capture`] began. The pool stays for its users.
    ///
    /// # Errors
    /// `WrongState` where nothing was begun.
    pub fn end_capture(&self, id: PoolId) -> Result<()> {
        self.capture.end(id)
    }

    /// The pool `id` has one user (a graph) less. Without any, its free memory is lent and trimmed like all other.
    ///
    /// # Errors
    /// `InvalidArgument` for a pool that does not exist, `WrongState` for the last user of one that is being allocated
    /// to.
    pub fn release_pool(&self, id: PoolId) -> Result<()> {
        if let Some(number) = self.capture.release(id)? {
            for arena in self.table.all() {
                let mut state = arena.lock();
                if state.pool == number {
                    state.private = false;
                }
            }
        }
        Ok(())
    }

    /// Adds a callback for when memory runs out.
    pub fn on_pressure(&self, callback: Pressure) {
        lock(&self.callbacks).push(callback);
    }

    /// Looks whether freed blocks that other streams used have come free, and collects. Never blocks.
    pub fn poll(&self) {
        self.table.all().for_each(|arena| self.look(arena));
        self.device.collect();
    }

    /// Records what could not be recorded before, and looks at everything that waits.
    pub(super) fn look(&self, arena: &Arena) {
        let unrecorded = |mark: &&Arc<Mark>| !mark.is_recorded();
        let marks: Vec<Arc<Mark>> = {
            let state = arena.lock();
            state.pending.iter().flat_map(|p| p.marks.iter().filter(unrecorded)).cloned().collect()
        };
        marks.iter().for_each(|mark| self.record(mark));
        arena.lock().look_at_all();
    }
}

impl Drop for Pool {
    /// Its memory goes once the streams that used it have passed what they have enqueued now.
    fn drop(&mut self) {
        for arena in self.table.take() {
            let (stream, ended, pending) = {
                let mut state = arena.lock();
                (state.stream, state.ended.take(), std::mem::take(&mut state.pending))
            };
            let mark = ended.unwrap_or_else(|| self.device.mark(stream));
            let marks: Vec<_> = pending.into_iter().flat_map(|p| p.marks).chain([mark]).collect();
            marks.iter().for_each(|mark| self.record(mark));
            self.device.retire_value(Box::new(arena), marks);
        }
    }
}

#[cold]
fn bad_size(size: ByteSize) -> Error {
    let hint = if size.is_zero() { "the size is 0" } else { "the size is larger than a segment can be" };
    Error::new(Kind::InvalidSize, Operation::Allocate, hint).of(size)
}

#[cold]
fn unknown(address: DevicePtr) -> Error {
    let hint = "no block in use starts there: it was freed already, or is not of this pool";
    Error { address, ..Error::new(Kind::InvalidArgument, Operation::Free, hint) }
}
