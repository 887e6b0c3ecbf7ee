//! Streams: immediate command lists, in order, ours or a framework's; and queues, once they are wrapped.
//!
//! A list or a queue may be used by one thread at a time, so each has a lock, which is held across the driver's
//! calls that append to it: appending never waits for running work. What a framework appends by itself meanwhile is
//! for it to keep apart.

use super::api::{NOT_READY, QUERY_TRUE, SUCCESS};
use super::context::Core;
use super::device::Device;
use super::events::Events;
use super::layout::CommandQueueDesc;
use super::lists::Lists;
use crate::driver::{Ordinal, Stream};
use crate::error::{Error, Kind, Operation, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

/// The numbers of our own streams and of wrapped queues start here. No pointer of a process looks like this.
const KEYS: u64 = 0x5a45 << 48;
/// How many locks streams of others share.
const LOCKS: usize = 64;
/// `ZE_COMMAND_QUEUE_FLAG_IN_ORDER`.
const IN_ORDER: u32 = 2;
/// `ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS`.
const ASYNCHRONOUS: u32 = 2;
/// How long one wait takes before the device is asked whether it still works, in ns.
const PATIENCE: u64 = 100_000_000;

/// What the driver calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Native {
    /// An immediate `ze_command_list_handle_t`.
    Immediate(u64),
    /// A `ze_command_queue_handle_t`.
    Queue(u64),
}

/// A stream.
#[derive(Debug)]
pub(super) struct Line {
    /// The number that it goes by.
    pub(super) key: u64,
    pub(super) native: Native,
    pub(super) device: Ordinal,
    pub(super) device_handle: u64,
    pub(super) context: u64,
    /// Its group of queues, where known.
    pub(super) group: Option<u32>,
    /// Recorded lists can be submitted to it.
    pub(super) joins: bool,
    /// We made it.
    own: bool,
    append: Arc<Mutex<()>>,
    /// True once it is destroyed; held for reading by whoever uses it.
    over: RwLock<bool>,
}

/// While it lives, the stream exists, and nobody else of ours appends to it.
#[derive(Debug)]
pub(super) struct Using<'a> {
    _exists: RwLockReadGuard<'a, bool>,
    _alone: MutexGuard<'a, ()>,
}

/// What streams need from elsewhere.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) events: Events,
    pub(super) lists: Lists,
}

/// The streams that we made and the queues that we wrapped.
#[derive(Debug)]
pub(super) struct Lines {
    next: AtomicU64,
    by_key: RwLock<HashMap<u64, Arc<Line>>>,
    locks: Vec<Arc<Mutex<()>>>,
}

impl Default for Lines {
    fn default() -> Self {
        let locks = (0..LOCKS).map(|_| Arc::default()).collect();
        Self { next: AtomicU64::new(KEYS), by_key: RwLock::default(), locks }
    }
}

fn invalid(operation: Operation, hint: &'static str) -> Error {
    Error::new(Kind::InvalidStream, operation, hint)
}

impl Line {
    /// Keeps the stream and keeps others off it.
    pub(super) fn using(&self, operation: Operation) -> Result<Using<'_>> {
        let exists = self.exists(operation)?;
        Ok(Using { _exists: exists, _alone: self.append.lock().unwrap_or_else(PoisonError::into_inner) })
    }

    fn exists(&self, operation: Operation) -> Result<RwLockReadGuard<'_, bool>> {
        let exists = self.over.read().unwrap_or_else(PoisonError::into_inner);
        if *exists { Err(invalid(operation, "the stream is destroyed")) } else { Ok(exists) }
    }
}

impl Lines {
    fn table(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<u64, Arc<Line>>> {
        self.by_key.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, device: &Device, native: Native, group: u32, own: bool) -> Stream {
        let key = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let line = Line {
            key,
            native,
            device: device.ordinal,
            device_handle: device.handle,
            context: device.context,
            group: Some(group),
            joins: device.append_lists,
            own,
            append: Arc::default(),
            over: RwLock::default(),
        };
        self.table().insert(key, Arc::new(line));
        Stream(key)
    }

    /// The stream of a number: one of ours, a wrapped queue, or a framework's immediate list. `device` is what
    /// a list counts for whose device the loader cannot tell.
    pub(super) fn find(
        &self,
        core: &Core,
        device: Ordinal,
        stream: Stream,
        operation: Operation,
    ) -> Result<Arc<Line>> {
        if stream.0 == 0 {
            return Err(invalid(operation, "NULL: this driver has no default stream"));
        }
        if stream.0 >> 48 == KEYS >> 48 {
            let by_key = self.by_key.read().unwrap_or_else(PoisonError::into_inner);
            let unknown = || invalid(operation, "not a stream of ours, or destroyed");
            return by_key.get(&stream.0).cloned().ok_or_else(unknown);
        }
        self.foreign(core, device, stream.0, operation).map(Arc::new)
    }

    /// The same, refusing a stream of another device.
    pub(super) fn find_on(
        &self,
        core: &Core,
        device: Ordinal,
        stream: Stream,
        operation: Operation,
    ) -> Result<Arc<Line>> {
        core.device(device, operation)?;
        let line = self.find(core, device, stream, operation)?;
        if line.device == device {
            Ok(line)
        } else {
            Err(invalid(operation, "the stream is another device's"))
        }
    }

    /// A list that somebody else made, as far as the loader tells what it is.
    fn foreign(&self, core: &Core, device: Ordinal, list: u64, operation: Operation) -> Result<Line> {
        let api = &core.api;
        let (mut immediate, mut handle, mut context, mut group) = (0, 0, 0, 0);
        if api.list_is_immediate(list, &mut immediate) == SUCCESS && immediate == 0 {
            return Err(invalid(operation, "not an immediate command list: wrap its queue"));
        }
        let found = if api.list_device(list, &mut handle) == SUCCESS {
            let ours = core.devices.iter().find(|d| d.handle == handle);
            ours.ok_or_else(|| invalid(operation, "the list's device is none of this driver's"))?
        } else {
            core.device(device, operation)?
        };
        if api.list_context(list, &mut context) == SUCCESS && context != found.context {
            return Err(invalid(operation, "the list belongs to another context: attach to that one"));
        }
        let grouped = api.list_group(list, &mut group) == SUCCESS;
        Ok(Line {
            key: list,
            native: Native::Immediate(list),
            device: found.ordinal,
            device_handle: found.handle,
            context: found.context,
            group: grouped.then_some(group),
            joins: found.append_lists && grouped,
            own: false,
            append: Arc::clone(&self.locks[(list >> 4) as usize % LOCKS]),
            over: RwLock::default(),
        })
    }

    /// An immediate list of our own; one after the other they go to the queues of the device.
    pub(super) fn create(&self, core: &Core, device: Ordinal) -> Result<Stream> {
        let found = core.device(device, Operation::Stream)?;
        let index = self.next.load(Ordering::Relaxed) % u64::from(found.queues.max(1));
        let desc = CommandQueueDesc {
            group: found.group,
            index: u32::try_from(index).unwrap_or(0),
            flags: IN_ORDER,
            mode: ASYNCHRONOUS,
            ..CommandQueueDesc::blank()
        };
        let mut list = 0;
        let status = core.api.list_create_immediate(found.context, found.handle, &desc, &mut list);
        let list = core.api.given(status, list, Operation::Stream)?;
        Ok(self.add(found, Native::Immediate(list), found.group, true))
    }

    /// A number for a queue of the driver's context, which stays its owner's.
    pub(super) fn wrap(
        &self,
        core: &Core,
        device: Ordinal,
        queue: u64,
        group: Option<u32>,
    ) -> Result<Stream> {
        let found = core.device(device, Operation::Stream)?;
        if queue == 0 {
            return Err(invalid(Operation::Stream, "NULL is no queue"));
        }
        let mut told = 0;
        let told = (core.api.queue_group(queue, &mut told) == SUCCESS).then_some(told);
        let hint = "this loader cannot tell the queue's group: name it";
        let none = || Error::new(Kind::InvalidArgument, Operation::Stream, hint);
        let group = group.or(told).ok_or_else(none)?;
        Ok(self.add(found, Native::Queue(queue), group, false))
    }

    /// Waits for what is enqueued, then ends the stream; of a wrapped queue only the number goes.
    pub(super) fn destroy(&self, core: &Core, work: &Work, stream: Stream) -> Result<()> {
        let unknown = || invalid(Operation::Stream, "not a stream of ours, or destroyed");
        let line = self.table().remove(&stream.0).ok_or_else(unknown)?;
        let waited = core.synchronize(work, &line);
        // Waits for whoever uses the stream still; they all end, since what was enqueued has run.
        *line.over.write().unwrap_or_else(PoisonError::into_inner) = true;
        let destroyed = match line.native {
            Native::Immediate(list) if line.own => core.api.list_destroy(list),
            _ => SUCCESS,
        };
        match waited {
            // A stream that failed is gone all the same.
            Err(error) if !matches!(error.kind, Kind::DeviceFault | Kind::DeviceLost) => Err(error),
            _ => core.api.check(destroyed, Operation::Stream),
        }
    }

    /// Ends what is left.
    pub(super) fn close(&self, core: &Core, work: &Work) {
        let left: Vec<u64> = self.table().keys().copied().collect();
        for key in left {
            if let Err(error) = self.destroy(core, work, Stream(key)) {
                log::warn!("could not end a stream: {error}");
            }
        }
    }
}

impl Core {
    /// Enqueues: what comes later waits for what came before and for `waits`; then `signal` (0 none) is signaled.
    /// The line is held by the caller.
    pub(super) fn barrier(&self, work: &Work, line: &Line, signal: u64, waits: &[u64]) -> Result<()> {
        let count = u32::try_from(waits.len()).unwrap_or(u32::MAX);
        let record = |list| {
            let status = self.api.append_barrier(list, signal, count, waits.as_ptr());
            self.api.check(status, Operation::Timeline)
        };
        match (line.native, line.group) {
            (Native::Immediate(list), _) => record(list),
            (Native::Queue(_), group) => {
                let group = group.unwrap_or_default();
                work.lists.submit(&self.api, &work.events, line, group, Operation::Timeline, record)
            }
        }
    }

    /// Blocks until all that was enqueued has run. Nobody is kept from appending meanwhile.
    pub(super) fn synchronize(&self, work: &Work, line: &Line) -> Result<()> {
        let event = work.events.take(&self.api, line.context, Operation::Stream)?;
        let using = line.using(Operation::Stream)?;
        let enqueued = self.barrier(work, line, event.handle, &[]);
        drop(using);
        enqueued.map_err(|e| e.during(Operation::Stream))?;
        let _exists = line.exists(Operation::Stream)?;
        loop {
            match self.api.event_wait(event.handle, PATIENCE) {
                SUCCESS => return Ok(()),
                NOT_READY => {}
                status => {
                    event.abandon();
                    return Err(self.api.error(status, Operation::Stream));
                }
            }
            if let Err(error) = self.check_health(line.device, Operation::Stream) {
                event.abandon();
                return Err(error);
            }
        }
    }

    /// Refuses what must not be captured. The line is held by the caller.
    pub(super) fn refuse_capturing(&self, line: &Line, operation: Operation) -> Result<()> {
        if self.is_capturing(line) {
            return Err(Error::new(Kind::StreamCapturing, operation, "the stream is being captured"));
        }
        Ok(())
    }

    /// Only newer drivers capture, and only they can tell.
    pub(super) fn is_capturing(&self, line: &Line) -> bool {
        match line.native {
            Native::Immediate(list) if !line.own => self.api.list_is_captured(list) == QUERY_TRUE,
            _ => false,
        }
    }
}
