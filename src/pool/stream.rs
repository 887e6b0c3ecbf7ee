//! Whose the arenas are: made for a stream, given on when it ends, kept for a pool of its own.

use super::PoolId;
use super::arena::Arena;
use super::capture::{DEFAULT, Filter};
use super::history::History;
use super::pool::{Pool, lock};
use super::segment::ExpandableSegment;
use super::settings::Chosen;
use crate::driver::Stream;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use std::sync::Arc;

impl Pool {
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
            let history = History::new(*history, Arc::clone(&self.events));
            let arena = Arena::new(segments, pool, stream, history);
            arena.lock().private = self.capture.is_private(pool);
            if self.table.all().next().is_some() {
                self.totals.set_several();
                self.table.all().for_each(|arena| arena.lock().add_to(&self.totals));
            }
            if self.table.add(Box::new(arena)) { Ok(()) } else { Err(full("the pool has too many streams")) }
        });
        added.inspect_err(|_| self.addresses.undo(bytes))
    }

    /// Gives an arena whose owner is gone to a new one, if there is such an arena.
    fn reuse(&self, pool: u32, stream: Stream) -> Result<bool> {
        for arena in self.table.all() {
            let mark = {
                let state = arena.lock();
                // A graph writes into free blocks too, long after its stream has ended.
                let over = !state.private && (state.ended.is_some() || state.pool != DEFAULT);
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

    /// Says that a stream is about to be destroyed: what it still has enqueued is remembered, its free memory goes
    /// to whoever needs it, and its blocks in use stay until they are freed.
    ///
    /// # Errors
    /// `StreamCapturing`, and the driver's; the stream is then still known.
    pub fn forget_stream(&self, stream: Stream) -> Result<()> {
        let mark = self.device.mark(stream);
        self.device.forget_stream(stream)?;
        self.plain.iter().for_each(|plain| plain.forget_stream(stream, &mark));
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
        // Asked for before: arenas are locked before pools' ids.
        let mut used: Vec<u32> = self.table.all().map(|arena| arena.lock().pool).collect();
        used.extend(self.plain.iter().flat_map(|plain| plain.pools()));
        self.capture.begin(id, filter, &used)
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
            self.plain.iter().for_each(|plain| plain.release(number));
            for arena in self.table.all() {
                let mut state = arena.lock();
                if state.pool == number {
                    state.private = false;
                }
            }
        }
        Ok(())
    }
}
