//! Snapshots of pools.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::entry::entry;
use super::handle;
use super::pool::PoolObject;
use super::status::gvmm_status;
use super::stream;
use super::types::gvmm_pool;
use super::versioned::Caller;
use crate::error::Operation;
use crate::pool::{BlockState, EventKind, Pool, PoolId, SegmentInfo, Snapshot};
use std::ffi::c_char;
use std::fmt::{self, Write};

/// Copies out a picture of a pool as JSON: `{"device": 0, "segments": [...], "events": [...]}`. A segment, a run of live
/// chunks, has `address`, `size`, `stream` (a number; null once it was forgotten), `pool` (two numbers), `large`, and
/// `blocks`, by address, each with `address`, `size`, `requested_size` and `state` (`active_allocated`,
/// `active_pending_free` or `inactive`, as PyTorch's memory viewer has them). An event, oldest first, has `number`,
/// `action` (`alloc`, `free_requested`, `free_completed`, `segment_map`, `segment_unmap` or `oom`), `address`, `size`,
/// `stream` and `pool`; there are as many as the pool was made to keep.
///
/// State: changes none.
/// Parameters: `pool`; `out_json`, room for `capacity` bytes; a longer text is cut; it ends with a NUL unless `capacity`
/// is 0, and then it may be NULL; `out_needed`, the bytes that the whole text needs now, with the NUL.
/// Statuses: none of its own.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_pool_snapshot(
    pool: *mut gvmm_pool,
    out_json: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let place = c.out_bytes(out_json, capacity)?;
        let needed = c.out(out_needed)?;
        let text = json(&handle::get::<PoolObject>(pool)?.pool);
        place.write_text(text.as_bytes());
        needed.write(text.len() + 1);
        Ok(())
    })
}

fn json(pool: &Pool) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(text, "{}", Picture { pool, snapshot: &pool.snapshot() });
    text
}

struct Picture<'a> {
    pool: &'a Pool,
    snapshot: &'a Snapshot,
}

impl fmt::Display for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{\"device\": {}, \"segments\": [", self.pool.device().ordinal().0)?;
        for (i, segment) in self.snapshot.segments.iter().enumerate() {
            self.segment(f, if i == 0 { "" } else { ", " }, segment)?;
        }
        f.write_str("], \"events\": [")?;
        for (i, event) in self.snapshot.events.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{{\"number\": {}, \"action\": \"{}\"", event.number, action(event.kind))?;
            write!(f, ", \"address\": {}, \"size\": {}", event.address.get(), event.size.get())?;
            self.owner(f, event.stream, event.pool)?;
            f.write_char('}')?;
        }
        f.write_str("]}")
    }
}

impl Picture<'_> {
    fn segment(&self, f: &mut fmt::Formatter<'_>, comma: &str, segment: &SegmentInfo) -> fmt::Result {
        let (address, size) = (segment.address.get(), segment.size.get());
        write!(f, "{comma}{{\"address\": {address}, \"size\": {size}, \"large\": {}", segment.large)?;
        self.owner(f, segment.stream, segment.pool)?;
        f.write_str(", \"blocks\": [")?;
        for (i, block) in segment.blocks.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{{\"address\": {}, \"size\": {}", block.address.get(), block.size.get())?;
            let requested = block.requested.get();
            write!(f, ", \"requested_size\": {requested}, \"state\": \"{}\"}}", state(block.state))?;
        }
        f.write_str("]}")
    }

    fn owner(
        &self,
        f: &mut fmt::Formatter<'_>,
        stream: Option<crate::driver::Stream>,
        pool: PoolId,
    ) -> fmt::Result {
        match stream {
            Some(stream) => {
                let stream = stream::to_caller(self.pool.device(), stream).addr();
                write!(f, ", \"stream\": {stream}")?;
            }
            None => f.write_str(", \"stream\": null")?,
        }
        write!(f, ", \"pool\": [{}, {}]", pool.0, pool.1)
    }
}

const fn state(state: BlockState) -> &'static str {
    match state {
        BlockState::Allocated => "active_allocated",
        BlockState::Pending => "active_pending_free",
        BlockState::Free => "inactive",
    }
}

const fn action(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Alloc => "alloc",
        EventKind::FreeRequested => "free_requested",
        EventKind::FreeCompleted => "free_completed",
        EventKind::SegmentMap => "segment_map",
        EventKind::SegmentUnmap => "segment_unmap",
        EventKind::OutOfMemory => "oom",
    }
}
