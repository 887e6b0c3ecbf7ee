//! Where chunks come from: what lies ready, new blocks within the limit, and free chunks of others.

use super::arena::{Arena, Cooling, NO_POOL, State};
use super::pool::Pool;
use super::reclaim;
use super::segment::ChunkIndex;
use super::snapshot::EventKind;
use crate::driver::{CreateOptions, Stream};
use crate::error::{Error, Kind, Result};
use crate::units::ByteSize;
use crate::vm::{Block, Mark};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// So much of what was ever in use, as a fraction, may be reserved besides before a stream's own free chunks are moved
/// to where they are needed, although memory is not short.
const WASTE: u64 = 36;
/// Each chunk that was made may be moved once in this way, and one more for so many allocations.
const ALLOCATIONS_A_SHIFT: u64 = 1024;
/// After so many moves since the last chunk was made, one more is made: a program whose blocks fall into other places each
/// time it does the same would else move chunks for ever. On an H200 they take some 7 ms together.
const SHIFTS_A_CHUNK: u64 = 128;

/// A chunk in nobody's segment.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) block: Arc<Block>,
    /// What must have passed before its memory is used.
    pub(super) mark: Option<Arc<Mark>>,
    /// It was made for this allocation, so it goes where that fails.
    fresh: bool,
}

/// Why chunks could not be had.
#[derive(Debug)]
pub(super) enum Lack {
    /// There is no memory; so many bytes are missing.
    Memory(u64),
    /// Some of the stream's own has come free: look again.
    Again,
    /// Something failed.
    Failed(Error),
}

impl From<Error> for Lack {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Failures that mean "no more of these", so that what is there must do.
const fn is_shortage(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::OutOfDeviceMemory | Kind::OutOfHostMemory | Kind::OutOfFileDescriptors | Kind::MapLimit
    )
}

impl Pool {
    /// Puts chunks into the places that miss them; what cannot be done changes nothing that shows.
    pub(super) fn back(&self, arena: &Arena, heap: usize, missing: &[u32]) -> std::result::Result<(), Lack> {
        let chunk = self.chosen.chunk[heap];
        let mut hand = self.take_spares(chunk, missing.len());
        let result = self.fill(arena, heap, missing, &mut hand);
        self.stow(hand);
        result
    }

    fn fill(
        &self,
        arena: &Arena,
        heap: usize,
        missing: &[u32],
        hand: &mut Vec<Spare>,
    ) -> std::result::Result<(), Lack> {
        let chunk = self.chosen.chunk[heap];
        let (before, shift) = (hand.len(), self.to_shift(arena, heap, missing.len() - hand.len()));
        if shift > 0 {
            self.harvest_from(arena, heap, shift, hand);
            self.shifted.fetch_add((hand.len() - before) as u64, Ordering::Relaxed);
        }
        self.create(chunk, missing.len(), hand)?;
        if hand.len() < missing.len() && self.captures()? == 0 {
            // One wait costs less than moving chunks, and spares the others theirs.
            if self.fold(arena, missing.len() as u64 * chunk.get()) {
                return Err(Lack::Again);
            }
            self.harvest(arena, heap, missing.len(), hand);
        }
        if hand.len() < missing.len() {
            return Err(Lack::Memory((missing.len() - hand.len()) as u64 * chunk.get()));
        }
        let stream = arena.lock().stream;
        self.wait_for(stream, hand.iter().filter_map(|spare| spare.mark.as_ref()))?;
        let chunks: Vec<ChunkIndex> = missing.iter().map(|place| ChunkIndex(*place)).collect();
        let blocks = hand.iter().map(|spare| Arc::clone(&spare.block)).collect();
        arena.segments[heap].place(&chunks, blocks)?;
        let moved = hand.iter().filter(|spare| !spare.fresh).count() as u64;
        self.lent.fetch_add(moved, Ordering::Relaxed);
        hand.clear();
        let mut state = arena.lock();
        state.lent.1 += moved;
        state.grow(heap, missing.len() as u64, missing.len() as u64 * chunk.get());
        arena.note_chunks(&mut state, EventKind::SegmentMap, heap, &chunks);
        Ok(())
    }

    /// How many of `wanted` chunks are taken from the stream's own free ones, although new ones could be made: those with
    /// which what is reserved would pass what was ever in use by more than [`WASTE`], as long as that stays rare beside
    /// what was made and allocated. Moving a chunk costs about as much as making one; what is made instead is there the
    /// next time, so that a program that does the same again soon needs neither; see [`SHIFTS_A_CHUNK`] for one that does not.
    fn to_shift(&self, arena: &Arena, heap: usize, wanted: usize) -> usize {
        let (chunk, wanted) = (self.chosen.chunk[heap].get(), wanted as u64);
        let reserved = self.reserved.figure().current;
        let allocations = arena.lock().ledger.allocations();
        let used = self.most_used();
        let moved = self.shifted.load(Ordering::Relaxed);
        let restless = moved - self.shifted_before.load(Ordering::Relaxed).min(moved) >= SHIFTS_A_CHUNK;
        let new = ((used + used / WASTE).saturating_sub(reserved) / chunk).max(u64::from(restless));
        let is_limited = self.limit.load(Ordering::Relaxed) != u64::MAX;
        let shift = match wanted.saturating_sub(new) {
            // What could still be made is kept for other streams.
            1.. if is_limited => wanted,
            more => more,
        };
        let credit = reserved / chunk + allocations / ALLOCATIONS_A_SHIFT;
        let may = shift > 0 && moved + shift <= credit && self.captures() == Ok(0);
        if may { shift as usize } else { 0 }
    }

    /// Makes `stream` wait for the newest marks, each stream's once.
    pub(super) fn wait_for<'a>(
        &self,
        stream: Stream,
        marks: impl Iterator<Item = &'a Arc<Mark>>,
    ) -> Result<()> {
        let mut done: Vec<&Arc<Mark>> = Vec::new();
        for mark in marks {
            if done.iter().any(|known| Arc::ptr_eq(known, mark)) {
                continue;
            }
            if mark.stream() != stream && !mark.passed().unwrap_or(false) {
                self.stream_waits.fetch_add(1, Ordering::Relaxed);
            }
            mark.wait_on(stream)?;
            done.push(mark);
        }
        Ok(())
    }

    fn take_spares(&self, chunk: ByteSize, wanted: usize) -> Vec<Spare> {
        let mut spares = self.spares();
        let mut hand = Vec::new();
        while hand.len() < wanted {
            let Some(at) = spares.iter().rposition(|spare| spare.block.size() == chunk) else { break };
            hand.push(spares.swap_remove(at));
        }
        hand
    }

    /// Keeps what an allocation did not use; blocks that were made for it go.
    fn stow(&self, hand: Vec<Spare>) {
        let (fresh, old): (Vec<_>, Vec<_>) = hand.into_iter().partition(|spare| spare.fresh);
        for spare in fresh {
            self.reserved.undo(spare.block.size().get());
            drop(spare);
        }
        self.spares().extend(old);
    }

    /// Makes new blocks until there are `wanted`, as far as limit and device go.
    fn create(&self, chunk: ByteSize, wanted: usize, hand: &mut Vec<Spare>) -> Result<()> {
        while hand.len() < wanted {
            if !self.reserved.add_within(chunk.get(), self.limit.load(Ordering::Relaxed)) {
                break;
            }
            match self.device.create_block(chunk, CreateOptions::default()) {
                Ok(block) => {
                    self.shifted_before.store(self.shifted.load(Ordering::Relaxed), Ordering::Relaxed);
                    hand.push(Spare { block, mark: None, fresh: true });
                }
                Err(e) => {
                    self.reserved.undo(chunk.get());
                    return if is_shortage(e.kind) { Ok(()) } else { Err(e) };
                }
            }
        }
        Ok(())
    }

    /// Takes free chunks until there are `wanted`: the own ones first, where nobody has to wait, then those of streams
    /// that have ended, then all others'.
    fn harvest(&self, own: &Arena, heap: usize, wanted: usize, hand: &mut Vec<Spare>) {
        let mut arenas: Vec<&Arena> = self.table.all().filter(|arena| !std::ptr::eq(*arena, own)).collect();
        arenas.sort_by_key(|arena| arena.lock().ended.is_none());
        let chunk = self.chosen.chunk[heap];
        for arena in std::iter::once(own).chain(arenas) {
            for from in [heap, 1 - heap] {
                let left = wanted.saturating_sub(hand.len());
                if left > 0 && self.chosen.chunk[from] == chunk {
                    self.harvest_from(arena, from, left, hand);
                }
            }
        }
    }

    /// Takes at most `wanted` free chunks of one heap. A failing call leaves them there.
    pub(super) fn harvest_from(&self, arena: &Arena, heap: usize, wanted: usize, hand: &mut Vec<Spare>) {
        let Some(taking) = self.choose(arena, heap, wanted) else { return };
        let chunks: Vec<ChunkIndex> = taking.places.iter().cloned().flatten().map(ChunkIndex).collect();
        let result = self.retire(arena, heap, &chunks, &taking);
        let mut state = arena.lock();
        match result {
            Ok((blocks, mark)) => {
                let bytes = chunks.len() as u64 * self.chosen.chunk[heap].get();
                state.shrink(heap, chunks.len() as u64, bytes);
                state.lent.0 += chunks.len() as u64;
                arena.note_chunks(&mut state, EventKind::SegmentUnmap, heap, &chunks);
                state.cooling.push(Cooling { heap, places: taking.places, mark: mark.clone() });
                hand.extend(blocks.into_iter().map(|block| Spare {
                    block,
                    mark: mark.clone(),
                    fresh: false,
                }));
            }
            Err(e) => {
                log::debug!("chunks stay where they are: {e}");
                taking.places.into_iter().for_each(|places| state.heaps[heap].end_cooling(places, true));
            }
        }
    }

    fn choose(&self, arena: &Arena, heap: usize, wanted: usize) -> Option<Taking> {
        let mut state = arena.lock();
        let State { private, stream, ref ended, .. } = *state;
        let ended = ended.clone();
        if private || ended.as_ref().is_some_and(|mark| !mark.passed().unwrap_or(false)) {
            return None;
        }
        let books = &mut state.heaps[heap];
        let places = reclaim::choose(books.whole_places(), wanted, |place| books.is_pinned(place));
        places.iter().for_each(|places| books.take(places.clone()));
        (!places.is_empty()).then_some(Taking { places, stream, ended: ended.is_some() })
    }

    /// The old view goes once its stream has passed what is enqueued there now.
    fn retire(&self, arena: &Arena, heap: usize, chunks: &[ChunkIndex], taking: &Taking) -> Result<Taken> {
        if taking.ended {
            return Ok((arena.segments[heap].take(chunks, &[])?, None));
        }
        // Asked for before, so that it is the mark which the retirement records.
        let mark = self.device.mark(taking.stream);
        match arena.segments[heap].take(chunks, &[taking.stream]) {
            Ok(blocks) => Ok((blocks, Some(mark))),
            Err(e) if e.kind == Kind::InvalidStream => {
                // Destroyed without a word: nothing runs there any more.
                self.end_stream(arena, taking.stream)?;
                Ok((arena.segments[heap].take(chunks, &[])?, None))
            }
            Err(e) => Err(e),
        }
    }

    /// Remembers the end of a stream.
    pub(super) fn end_stream(&self, arena: &Arena, stream: Stream) -> Result<()> {
        let mark = self.device.mark(stream);
        self.device.forget_stream(stream)?;
        let mut state = arena.lock();
        if state.stream == stream && state.ended.is_none() {
            state.ended = Some(mark);
            arena.hide();
        }
        Ok(())
    }

    /// A stream that is gone is not captured.
    fn is_captured(&self, stream: Stream) -> Result<bool> {
        match self.device.is_capturing(stream) {
            Err(e) if e.kind == Kind::InvalidStream => Ok(false),
            Err(e) if e.kind == Kind::StreamCapturing => Ok(true),
            answer => answer,
        }
    }

    /// Streams that are being captured: nothing is unmapped, lent or waited for then.
    ///
    /// # Errors
    /// The driver's, where none is known to be captured and one cannot say.
    pub(super) fn captures(&self) -> Result<usize> {
        let arenas = self.table.all().filter(|arena| arena.pool() != NO_POOL);
        let streams = arenas.map(|arena| arena.lock().stream);
        let streams = streams.chain(self.plain.iter().flat_map(|plain| plain.streams()));
        let (mut count, mut unknown) = (self.capture.open(), None);
        for stream in streams {
            match self.is_captured(stream) {
                Ok(captured) => count += usize::from(captured),
                Err(e) => unknown = Some(e),
            }
        }
        match unknown.filter(|_| count == 0) {
            Some(e) => Err(e),
            None => Ok(count),
        }
    }
}

/// Chunks that were taken, and what must pass before their old view is gone.
type Taken = (Vec<Arc<Block>>, Option<Arc<Mark>>);

/// Places whose chunks are being taken.
struct Taking {
    places: Vec<Range<u32>>,
    stream: Stream,
    ended: bool,
}
