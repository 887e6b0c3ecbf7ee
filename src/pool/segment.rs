//! A long range of addresses that grows and shrinks by chunks.

use crate::driver::{Access, CreateOptions, Stream};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange};
use crate::vm::{Block, Device, Owner, PlaceEntry, Reservation, RetireEntry};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of a chunk's place in its segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkIndex(pub u32);

impl ChunkIndex {
    /// As an index.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// One reservation with places for chunks of one size, of which some are live. Everything is all or nothing: where
/// a driver call fails, all is as before. Everything may be called from any thread.
#[derive(Debug)]
pub struct ExpandableSegment {
    device: Arc<Device>,
    reservation: Arc<Reservation>,
    chunk: ByteSize,
    /// The chunks by place. Held across driver calls: books and driver change together.
    slots: Mutex<Vec<Option<Arc<Block>>>>,
}

impl ExpandableSegment {
    /// Reserves `size` bytes of addresses, rounded up to chunks of `chunk` bytes, without memory.
    ///
    /// # Errors
    /// `InvalidSize` for 0, for a chunk that is no multiple of the granule, and for 2^32 chunks and more; those of
    /// [`Device::reserve`].
    pub fn new(device: &Arc<Device>, size: ByteSize, chunk: ByteSize, access: &[Access]) -> Result<Self> {
        let refuse = |hint| Error::new(Kind::InvalidSize, Operation::Reserve, hint);
        if chunk.is_zero() || !device.granularity().divides(chunk) {
            return Err(refuse("a chunk is a multiple of the device's granule").of(chunk));
        }
        let count = size.get().div_ceil(chunk.get());
        let whole = count.checked_mul(chunk.get()).filter(|_| count < u64::from(u32::MAX));
        let whole = whole.ok_or_else(|| refuse("the segment is too large: use larger chunks").of(size))?;
        let reservation = device.reserve(ByteSize(whole), None, access, Owner::Library)?;
        let slots = Mutex::new(vec![None; count as usize]);
        Ok(Self { device: Arc::clone(device), reservation, chunk, slots })
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Option<Arc<Block>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its addresses.
    pub fn range(&self) -> DeviceRange {
        self.reservation.range()
    }

    /// The size of a chunk.
    pub const fn chunk_size(&self) -> ByteSize {
        self.chunk
    }

    /// Places for chunks.
    pub fn capacity(&self) -> u32 {
        self.slots().len() as u32
    }

    /// Live chunks.
    pub fn live(&self) -> u32 {
        self.slots().iter().flatten().count() as u32
    }

    /// Who may use it.
    pub fn access(&self) -> Arc<[Access]> {
        self.reservation.access()
    }

    /// Where a chunk's place starts; the end of the last place is a valid end.
    pub fn address(&self, chunk: ChunkIndex) -> DevicePtr {
        let offset = u64::from(chunk.0) * self.chunk.get();
        DevicePtr(self.range().start().get() + offset)
    }

    /// Offset and end of a range that must lie inside.
    fn inside(&self, operation: Operation, address: DevicePtr, size: ByteSize) -> Result<(u64, u64)> {
        let offset = address.offset_from(self.range().start()).map(ByteSize::get);
        let end = offset.and_then(|offset| offset.checked_add(size.get()));
        let fits = |end: &u64| *end <= self.range().size().get();
        match (offset, end.filter(fits)) {
            (Some(offset), Some(end)) => Ok((offset, end)),
            _ => {
                let hint = "the range does not lie inside the segment";
                Err(Error::new(Kind::OutOfRange, operation, hint).of(size))
            }
        }
    }

    /// The places of which a range covers at least a byte.
    ///
    /// # Errors
    /// `OutOfRange`.
    pub fn outwards(&self, address: DevicePtr, size: ByteSize) -> Result<Range<u32>> {
        let (offset, end) = self.inside(Operation::Map, address, size)?;
        let chunk = self.chunk.get();
        let first = (offset / chunk) as u32;
        Ok(first..if size.is_zero() { first } else { end.div_ceil(chunk) as u32 })
    }

    /// The places that a range covers whole.
    ///
    /// # Errors
    /// `OutOfRange`.
    pub fn inwards(&self, address: DevicePtr, size: ByteSize) -> Result<Range<u32>> {
        let (offset, end) = self.inside(Operation::Unmap, address, size)?;
        let (first, last) = (offset.div_ceil(self.chunk.get()), end / self.chunk.get());
        Ok(first as u32..last.max(first) as u32)
    }

    /// Makes every place that the range touches live, and says which range of bytes is sure to be live now.
    ///
    /// # Errors
    /// `OutOfRange`, and those of [`Device::create_block`] and [`Device::remap`].
    pub fn map(&self, address: DevicePtr, size: ByteSize) -> Result<Range<DevicePtr>> {
        let range = self.outwards(address, size)?;
        let mut slots = self.slots();
        let missing: Vec<ChunkIndex> =
            range.clone().map(ChunkIndex).filter(|chunk| slots[chunk.get()].is_none()).collect();
        let blocks =
            (0..missing.len()).map(|_| self.device.create_block(self.chunk, CreateOptions::default()));
        let blocks = blocks.collect::<Result<Vec<_>>>()?;
        self.place_in(&mut slots, &missing, blocks)?;
        Ok(self.address(ChunkIndex(range.start))..self.address(ChunkIndex(range.end)))
    }

    /// Unmaps and gives back every live chunk that the range covers whole once the streams in `after` have passed
    /// (none: at once; the caller vouches that nothing uses them), and says how many.
    ///
    /// # Errors
    /// `OutOfRange`, and those of [`Device::retire`].
    pub fn unmap(&self, address: DevicePtr, size: ByteSize, after: &[Stream]) -> Result<usize> {
        let range = self.inwards(address, size)?;
        let mut slots = self.slots();
        let live: Vec<ChunkIndex> =
            range.map(ChunkIndex).filter(|chunk| slots[chunk.get()].is_some()).collect();
        let gone = self.take_in(&mut slots, &live, after)?;
        Ok(gone.len())
    }

    /// The runs of neighbouring live chunks, by place.
    pub fn live_runs(&self) -> Vec<Range<ChunkIndex>> {
        let slots = self.slots();
        let mut runs: Vec<Range<ChunkIndex>> = Vec::new();
        for i in (0..slots.len()).filter(|i| slots[*i].is_some()) {
            let (this, next) = (ChunkIndex(i as u32), ChunkIndex(i as u32 + 1));
            match runs.last_mut().filter(|run| run.end == this) {
                Some(run) => run.end = next,
                None => runs.push(this..next),
            }
        }
        runs
    }

    /// Sets who may use it, what lives included.
    ///
    /// # Errors
    /// As [`Reservation::set_access`].
    pub fn set_access(&self, access: &[Access]) -> Result<()> {
        // So that nothing is mapped meanwhile with the old list.
        let _slots = self.slots();
        self.reservation.set_access(ByteSize::ZERO, self.range().size(), access)
    }

    /// Puts blocks into places that have none.
    pub(super) fn place(&self, chunks: &[ChunkIndex], blocks: Vec<Arc<Block>>) -> Result<()> {
        self.place_in(&mut self.slots(), chunks, blocks)
    }

    fn place_in(
        &self,
        slots: &mut [Option<Arc<Block>>],
        chunks: &[ChunkIndex],
        blocks: Vec<Arc<Block>>,
    ) -> Result<()> {
        if chunks.is_empty() {
            return Ok(());
        }
        let entry = |(chunk, block): (&ChunkIndex, &Arc<Block>)| PlaceEntry {
            offset: self.offset(*chunk),
            block: Some(Arc::clone(block)),
        };
        let mut entries: Vec<PlaceEntry> = chunks.iter().zip(&blocks).map(entry).collect();
        self.device.remap_in(&self.reservation, &mut entries, &[])?;
        for (chunk, block) in chunks.iter().zip(blocks) {
            slots[chunk.get()] = Some(block);
        }
        Ok(())
    }

    /// Takes blocks out of their places: their old view goes once the streams in `after` have passed.
    pub(super) fn take(&self, chunks: &[ChunkIndex], after: &[Stream]) -> Result<Vec<Arc<Block>>> {
        self.take_in(&mut self.slots(), chunks, after)
    }

    fn take_in(
        &self,
        slots: &mut [Option<Arc<Block>>],
        chunks: &[ChunkIndex],
        after: &[Stream],
    ) -> Result<Vec<Arc<Block>>> {
        let entry = |chunk: &ChunkIndex| RetireEntry {
            reservation: Arc::clone(&self.reservation),
            offset: self.offset(*chunk),
        };
        let entries: Vec<RetireEntry> = chunks.iter().map(entry).collect();
        self.device.retire(&entries, after)?;
        Ok(chunks.iter().filter_map(|chunk| slots[chunk.get()].take()).collect())
    }

    const fn offset(&self, chunk: ChunkIndex) -> ByteSize {
        ByteSize(chunk.0 as u64 * self.chunk.get())
    }
}
