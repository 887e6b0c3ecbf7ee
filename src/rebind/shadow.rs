//! Shadows: one arena and one budget a device.
//!
//! The budget is booked, not measured: a binding books what it asks for when it is laid out and gives it back when
//! it is destroyed, whatever the GPU still does, so that the same calls give the same plans. The memory itself
//! goes when its last step has passed, which is when its [`Region`] is dropped.

use super::free_list::FreeList;
use super::settings;
use super::slot::DEFAULT_ALIGNMENT;
use super::threshold::{Admitted, Threshold, admit};
use crate::driver::{Access, Capabilities};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use crate::vm::{Allocation, Device, Owner};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a chunk has at least.
const CHUNK: ByteSize = ByteSize::mib(2);

/// A device's budget of shadows, shared by all bindings of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShadowBudget {
    /// How many bytes bindings may book together.
    pub limit: ByteSize,
    /// How many bytes they have booked.
    pub booked: ByteSize,
}

/// The budget of `device`: `GVMM_SHADOW_BUDGET` bytes, or 1 % of the device's memory, or 64 MiB where that is
/// not known.
pub fn shadow_budget(device: &Device) -> ShadowBudget {
    let arena = Arena::of(device);
    let books = arena.books();
    ShadowBudget { limit: books.limit(device), booked: books.booked }
}

/// Sets the limit of `device`'s budget, in bytes. What is booked stays booked.
pub fn set_shadow_budget(device: &Device, limit: ByteSize) {
    Arena::of(device).books().limit = Some(limit);
}

/// All shadows of a device.
#[derive(Debug, Default)]
pub(super) struct Arena {
    books: Mutex<Books>,
    /// Taken after no other lock, and never while calling `vm`.
    chunks: Mutex<Vec<Chunk>>,
}

#[derive(Debug, Default)]
struct Books {
    limit: Option<ByteSize>,
    booked: ByteSize,
}

impl Books {
    fn limit(&self, device: &Device) -> ByteSize {
        self.limit.unwrap_or_else(|| settings::shadow_budget(device.info().total))
    }

    /// What is left for the holder of `own` bytes.
    fn room(&self, device: &Device, own: ByteSize) -> ByteSize {
        let others = self.booked.checked_sub(own).unwrap_or_default();
        self.limit(device).checked_sub(others).unwrap_or_default()
    }
}

/// A piece of memory that shadows share.
#[derive(Debug)]
struct Chunk {
    memory: Arc<Allocation>,
    access: Vec<Access>,
    free: FreeList,
}

impl Arena {
    pub(super) fn of(device: &Device) -> Arc<Self> {
        device.extension()
    }

    /// Books what `limit` and the budget let in of `sizes`.
    pub(super) fn book(self: &Arc<Self>, device: &Device, sizes: &[ByteSize], limit: Threshold) -> Booking {
        let mut books = self.books();
        let left = books.limit(device).checked_sub(books.booked).unwrap_or_default();
        let admitted = admit(sizes, limit, u128::from(left.get()));
        let bytes = ByteSize(u64::try_from(admitted.bytes).unwrap_or(u64::MAX));
        books.booked = books.booked.checked_add(bytes).unwrap_or(books.booked);
        Booking { arena: Arc::clone(self), bytes, threshold: in_force(limit, admitted) }
    }

    /// What others than the holder of `own` bytes have left of the budget.
    pub(super) fn room(&self, device: &Device, own: ByteSize) -> ByteSize {
        let books = self.books();
        books.room(device, own)
    }

    /// Books `bytes` in the place of `own` bytes, which are to be given back then; none where they are more than the room. What
    /// one has stays one's own, whatever others book at the moment, or the limit has become.
    pub(super) fn book_bytes(
        self: &Arc<Self>,
        device: &Device,
        own: ByteSize,
        bytes: ByteSize,
        threshold: Threshold,
    ) -> Option<Booking> {
        let mut books = self.books();
        if bytes > books.room(device, own).max(own) {
            return None;
        }
        books.booked = books.booked.checked_add(bytes)?;
        Some(Booking { arena: Arc::clone(self), bytes, threshold })
    }

    /// Books what `bytes` are more than `own`, which stay booked; none where there is no room for them.
    pub(super) fn book_more(
        self: &Arc<Self>,
        device: &Device,
        own: ByteSize,
        bytes: ByteSize,
    ) -> Option<Booking> {
        let more = bytes.checked_sub(own).unwrap_or_default();
        self.book_bytes(device, ByteSize::ZERO, more, Threshold::OFF)
    }

    /// Memory of `size` bytes at a multiple of `alignment` that the devices in `access` may use.
    pub(super) fn take(
        self: &Arc<Self>,
        device: &Device,
        size: ByteSize,
        alignment: Granularity,
        access: &[Access],
    ) -> Result<Region> {
        let taken =
            self.chunks().iter_mut().filter(|c| c.access == access).find_map(|c| c.take(size, alignment));
        let address = match taken {
            Some(address) => address,
            None => self.grow(device, size, alignment, access)?,
        };
        Ok(Region { arena: Arc::clone(self), address, size })
    }

    /// The same from a new chunk.
    fn grow(
        &self,
        device: &Device,
        size: ByteSize,
        alignment: Granularity,
        access: &[Access],
    ) -> Result<DevicePtr> {
        let wanted = chunk_size(device, size, alignment).ok_or(NO_CHUNK)?;
        let memory = device.allocate(wanted, access, Owner::Library)?;
        let (start, size_got) = (memory.address().get(), memory.size().get());
        let free = FreeList::new(start, start + size_got);
        let mut chunk = Chunk { memory, access: access.to_vec(), free };
        let address = chunk.take(size, alignment).ok_or(NO_CHUNK)?;
        self.chunks().push(chunk);
        Ok(address)
    }

    /// Takes `size` bytes at `address` back; gives the chunk that nobody uses any more.
    fn give_back(&self, address: DevicePtr, size: ByteSize) -> Option<Chunk> {
        let mut chunks = self.chunks();
        let i = chunks.iter().position(|c| c.contains(address))?;
        chunks[i].free.give_back(address.get(), size.get());
        chunks[i].free.is_whole().then(|| chunks.swap_remove(i))
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chunks(&self) -> MutexGuard<'_, Vec<Chunk>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chunk {
    fn take(&mut self, size: ByteSize, alignment: Granularity) -> Option<DevicePtr> {
        self.free.take(size.get(), alignment).map(DevicePtr)
    }

    fn contains(&self, address: DevicePtr) -> bool {
        address.offset_from(self.memory.address()).is_some_and(|offset| offset < self.memory.size())
    }
}

/// How large a chunk must be to hold `size` bytes at a multiple of `alignment`.
fn chunk_size(device: &Device, size: ByteSize, alignment: Granularity) -> Option<ByteSize> {
    let maps = device.capabilities().has(Capabilities::VIRTUAL_MEMORY);
    let unit = if maps { device.granularity() } else { DEFAULT_ALIGNMENT };
    let slack = if alignment > unit { alignment.size() } else { ByteSize::ZERO };
    unit.round_up(size.checked_add(slack)?.max(CHUNK))
}

const NO_CHUNK: Error =
    Error::new(Kind::OutOfAddressSpace, Operation::Allocate, "the shadows and their alignment are too large");

/// The threshold that a binding works with: the one asked for, unless the budget kept something out.
const fn in_force(limit: Threshold, admitted: Admitted) -> Threshold {
    if admitted.cut { admitted.threshold } else { limit }
}

/// A binding's share of the budget; given back when dropped.
#[derive(Debug)]
pub(super) struct Booking {
    arena: Arc<Arena>,
    bytes: ByteSize,
    threshold: Threshold,
}

impl Booking {
    /// How many bytes were booked.
    pub(super) const fn bytes(&self) -> ByteSize {
        self.bytes
    }

    /// Up to which size slots are copied.
    pub(super) const fn threshold(&self) -> Threshold {
        self.threshold
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        let mut books = self.arena.books();
        books.booked = books.booked.checked_sub(self.bytes).unwrap_or_default();
    }
}

/// Memory of one layout's shadows; given back when dropped, so it is dropped once its last step has passed.
#[derive(Debug)]
pub(super) struct Region {
    arena: Arc<Arena>,
    address: DevicePtr,
    size: ByteSize,
}

impl Region {
    /// Its first address.
    pub(super) const fn address(&self) -> DevicePtr {
        self.address
    }

    /// Its addresses.
    pub(super) fn range(&self) -> Option<DeviceRange> {
        DeviceRange::new(self.address, self.size)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // The lock is open again before the chunk's memory goes back to the driver.
        drop(self.arena.give_back(self.address, self.size));
    }
}
