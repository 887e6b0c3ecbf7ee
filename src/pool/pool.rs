//! The pool as callers see it.

use super::Shortage;
use super::arena::{Arena, Pending};
use super::capture::{Captures, DEFAULT};
use super::plain::Plain;
use super::settings::{Chosen, Settings};
use super::size_class::{Class, UNIT, UNIT_SHIFT, classify};
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
    /// Of these, before the last chunk was made.
    pub(super) shifted_before: AtomicU64,
    /// What was in use at most before peaks were reset.
    pub(super) ever_used: AtomicU64,
    pub(super) stream_waits: AtomicU64,
    pub(super) host_waits: AtomicU64,
    pub(super) forced_trims: AtomicU64,
    pub(super) out_of_memory: AtomicU64,
    /// The number of the next event.
    pub(super) events: Arc<AtomicU64>,
    pub(super) access: Mutex<Vec<Access>>,
    spares: Mutex<Vec<Spare>>,
    pub(super) callbacks: Mutex<Vec<Pressure>>,
    pub(super) shortage: Mutex<Option<Shortage>>,
    pub(super) calls: Mutex<(CallCounts, u64)>,
    pub(super) making: Mutex<()>,
    /// Instead of arenas, without virtual memory.
    pub(super) plain: Option<Box<Plain>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reserved = ByteSize(self.reserved.figure().current);
        f.debug_struct("Pool").field("device", &self.device).field("reserved", &reserved).finish()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool without memory. On a device without virtual memory it caches plain device memory by size: nothing is lent
    /// but whole blocks.
    ///
    /// # Errors
    /// `Unsupported` for peers without virtual memory, `InvalidSize` for settings that do not fit the device.
    pub fn new(device: &Arc<Device>, settings: &Settings) -> Result<Arc<Self>> {
        let plain = (!device.capabilities().has(Capabilities::VIRTUAL_MEMORY)).then(Box::default);
        let chosen = settings.choose(device)?;
        if plain.is_some() {
            super::limits::check_plain(device, &chosen.access)?;
        }
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
            shifted_before: AtomicU64::new(0),
            ever_used: AtomicU64::new(0),
            stream_waits: AtomicU64::new(0),
            host_waits: AtomicU64::new(0),
            forced_trims: AtomicU64::new(0),
            out_of_memory: AtomicU64::new(0),
            events: Arc::default(),
            access: Mutex::new(chosen.access.clone()),
            spares: Mutex::default(),
            callbacks: Mutex::default(),
            shortage: Mutex::default(),
            calls: Mutex::default(),
            making: Mutex::default(),
            plain,
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
    /// `InvalidSize` for 0 and for more than a segment has, `OutOfDeviceMemory` and `OutOfAddressSpace` (then
    /// [`Self::shortage`] says more), and the driver's. Nothing has changed then.
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
                state.history.add(EventKind::Alloc, address, size.get());
                return Ok(address);
            }
        }
        self.alloc_slowly(class, pool, stream, size)
    }

    #[cold]
    fn alloc_slowly(&self, class: Class, pool: u32, stream: Stream, size: ByteSize) -> Result<DevicePtr> {
        let given = self.counted(|| match &self.plain {
            Some(plain) => plain.alloc(self, pool, stream, size),
            None => self.alloc_more(class, pool, stream, size),
        });
        given.inspect_err(|error| self.note_shortage(error, size, stream))
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

    /// Gives back what [`Self::alloc`] gave. Work already enqueued on the block's own stream may still use it, and so
    /// may work on the streams that [`Self::record_stream`] named.
    ///
    /// # Errors
    /// `InvalidArgument` for an address that is not the start of a block of this pool, or one that was freed already.
    #[inline]
    pub fn free(&self, address: DevicePtr) -> Result<()> {
        self.free_after(address, None)
    }

    /// The same where work on `stream` was the last to use it, whatever stream it was allocated for.
    ///
    /// # Errors
    /// As [`Self::free`].
    #[inline]
    pub fn free_on(&self, address: DevicePtr, stream: Stream) -> Result<()> {
        self.free_after(address, Some(stream))
    }

    #[inline]
    fn free_after(&self, address: DevicePtr, last: Option<Stream>) -> Result<()> {
        let Some((arena, heap, offset)) = self.table.at(address) else {
            return self.free_plain(address, last);
        };
        let mut state = arena.lock();
        let Some(node) = state.block_at(heap, offset) else { return Err(unknown(address)) };
        if let Some(stream) = last {
            state.share(heap, node, stream);
        }
        if state.is_shared(heap, node) {
            let piece = state.heaps[heap].block(node);
            let bytes = u64::from(piece.size) * UNIT - u64::from(piece.slack);
            let streams = state.leave(heap, node, &self.totals);
            state.history.add(EventKind::FreeRequested, address, bytes);
            drop(state);
            self.counted(|| self.follow(arena, heap, node, &streams));
            return Ok(());
        }
        let bytes = state.free(heap, node, &self.totals);
        state.history.add(EventKind::FreeCompleted, address, bytes);
        Ok(())
    }

    #[cold]
    fn free_plain(&self, address: DevicePtr, last: Option<Stream>) -> Result<()> {
        let Some(plain) = &self.plain else { return Err(unknown(address)) };
        self.counted(|| plain.free(self, address, last))
    }

    /// Waits for the streams that also use a freed block, by events behind what is enqueued on them now.
    fn follow(&self, arena: &Arena, heap: usize, node: u32, streams: &[Stream]) {
        let marks: Vec<Arc<Mark>> = streams.iter().map(|stream| self.device.mark(*stream)).collect();
        marks.iter().for_each(|mark| record(&self.device, mark));
        arena.lock().pending.push_back(Pending { heap, node, marks });
    }

    /// Says that `stream` uses the block that holds `address`, too: once it is freed, it is used again only after
    /// that stream has passed what is enqueued on it then.
    ///
    /// # Errors
    /// `InvalidArgument` for an address that no block in use holds.
    pub fn record_stream(&self, address: DevicePtr, stream: Stream) -> Result<()> {
        if let Some(plain) = &self.plain {
            return plain.share(address, stream);
        }
        let Some((arena, heap, offset)) = self.table.at(address) else { return Err(unknown(address)) };
        let mut state = arena.lock();
        let node = state.heaps[heap].block_over((offset >> UNIT_SHIFT) as u32);
        let Some(node) = node else { return Err(unknown(address)) };
        state.share(heap, node, stream);
        Ok(())
    }

    /// The block in use that holds `address`.
    pub fn find(&self, address: DevicePtr) -> Option<Place> {
        if let Some(plain) = &self.plain {
            let (start, size, stream, pool) = plain.find(address)?;
            let (address, size, pool) = (DevicePtr(start), ByteSize(size), self.capture.id(pool));
            return Some(Place { address, size, stream, pool });
        }
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

    /// Adds a callback for when memory runs out.
    pub fn on_pressure(&self, callback: Pressure) {
        lock(&self.callbacks).push(callback);
    }

    /// Looks whether freed blocks that other streams used have come free, and collects. Never blocks.
    pub fn poll(&self) {
        self.table.all().for_each(|arena| self.look(arena));
        self.plain.iter().for_each(|plain| plain.look(self));
        self.device.collect();
    }

    /// Records what could not be recorded before, and looks at everything that waits.
    pub(super) fn look(&self, arena: &Arena) {
        let unrecorded = |mark: &&Arc<Mark>| !mark.is_recorded();
        let marks: Vec<Arc<Mark>> = {
            let state = arena.lock();
            state.pending.iter().flat_map(|p| p.marks.iter().filter(unrecorded)).cloned().collect()
        };
        marks.iter().for_each(|mark| record(&self.device, mark));
        arena.lock().look_at_all();
    }
}

impl Drop for Pool {
    /// Its memory goes once the streams that used it have passed what they have enqueued now.
    fn drop(&mut self) {
        if let Some(plain) = self.plain.take() {
            plain.end(self);
        }
        let device = &self.device;
        for arena in self.table.take() {
            let (stream, ended, pending) = {
                let mut state = arena.lock();
                (state.stream, state.ended.take(), std::mem::take(&mut state.pending))
            };
            let mark = ended.unwrap_or_else(|| device.mark(stream));
            let marks: Vec<_> = pending.into_iter().flat_map(|p| p.marks).chain([mark]).collect();
            marks.iter().for_each(|mark| record(device, mark));
            device.retire_value(Box::new(arena), marks);
        }
    }
}

/// Records a mark as far as that can be done now: while its stream is captured it cannot, and is tried again.
pub(super) fn record(device: &Device, mark: &Mark) {
    match mark.record() {
        Err(e) if e.kind == Kind::InvalidStream => {
            // Destroyed without a word: forgetting it lets its marks pass.
            if let Err(e) = device.forget_stream(mark.stream()) {
                log::debug!("a stream that is gone could not be forgotten: {e}");
            }
        }
        Err(e) => log::debug!("an event is recorded later: {e}"),
        Ok(()) => {}
    }
}

#[cold]
fn bad_size(size: ByteSize) -> Error {
    let hint = if size.is_zero() { "the size is 0" } else { "the size is larger than a segment can be" };
    Error::new(Kind::InvalidSize, Operation::Allocate, hint).of(size)
}

#[cold]
pub(super) fn unknown(address: DevicePtr) -> Error {
    let hint = "no block in use starts there: it was freed already, or is not of this pool";
    Error { address, ..Error::new(Kind::InvalidArgument, Operation::Free, hint) }
}
