//! Recorded lists: many commands that are submitted as one. A list is used again once it has run.

use super::api::Api;
use super::events::{Event, Events};
use super::layout::CommandListDesc;
use super::stream::{Line, Native};
use crate::error::{Operation, Result};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a list is made for: a context, a device's handle, and a group of queues.
type Home = (u64, u64, u32);

#[derive(Debug)]
struct Running {
    home: Home,
    list: u64,
    done: Event,
}

/// All recorded lists of a driver.
#[derive(Debug, Default)]
pub(super) struct Lists {
    idle: Mutex<HashMap<Home, Vec<u64>>>,
    running: Mutex<Vec<Running>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lists {
    /// Records commands by `record`, which gets the list, and submits them as one.
    pub(super) fn submit(
        &self,
        api: &Api,
        events: &Events,
        line: &Line,
        group: u32,
        operation: Operation,
        record: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let home = (line.context, line.device_handle, group);
        let done = events.take(api, line.context, operation)?;
        let list = self.take(api, home, operation)?;
        let submitted = fill(api, line, list, &done, operation, record)
            .and_then(|()| api.check(api.list_close(list), operation))
            .and_then(|()| run(api, line, list, &done, operation));
        match submitted {
            Ok(()) => {
                lock(&self.running).push(Running { home, list, done });
                Ok(())
            }
            Err(error) => {
                self.put_back(api, home, list);
                Err(error)
            }
        }
    }

    /// A list that is empty and open.
    fn take(&self, api: &Api, home: Home, operation: Operation) -> Result<u64> {
        if let Some(list) = self.pop(home) {
            return Ok(list);
        }
        self.sweep(api);
        if let Some(list) = self.pop(home) {
            return Ok(list);
        }
        let (context, device, group) = home;
        let mut list = 0;
        let desc = CommandListDesc { group, ..CommandListDesc::blank() };
        api.given(api.list_create(context, device, &desc, &mut list), list, operation)
    }

    fn pop(&self, home: Home) -> Option<u64> {
        lock(&self.idle).get_mut(&home)?.pop()
    }

    /// Takes back the lists that have run. Which of them have is asked under the lock, so that each comes back
    /// once; asking never blocks.
    fn sweep(&self, api: &Api) {
        let over = {
            let mut running = lock(&self.running);
            let has_run = |r: &mut Running| r.done.is_signaled(api, Operation::Copy).unwrap_or(false);
            running.extract_if(.., has_run).collect::<Vec<_>>()
        };
        over.into_iter().for_each(|over| self.put_back(api, over.home, over.list));
    }

    /// Empties a list that no queue has, for the next use.
    fn put_back(&self, api: &Api, home: Home, list: u64) {
        if api.list_reset(list) == 0 {
            lock(&self.idle).entry(home).or_default().push(list);
        } else {
            api.log("destroy a list", api.list_destroy(list));
        }
    }

    /// Destroys what has run; what has not, on a stream of somebody else's, stays.
    pub(super) fn close(&self, api: &Api) {
        self.sweep(api);
        for running in lock(&self.running).drain(..) {
            log::warn!("a list stays: its stream has not come to it");
            running.done.abandon();
        }
        for (_, lists) in lock(&self.idle).drain() {
            lists.into_iter().for_each(|list| api.log("destroy a list", api.list_destroy(list)));
        }
    }
}

/// On a queue, lists may overlap unless barriers keep them apart, and the list itself says that it has run.
fn fill(
    api: &Api,
    line: &Line,
    list: u64,
    done: &Event,
    operation: Operation,
    record: impl FnOnce(u64) -> Result<()>,
) -> Result<()> {
    let queued = matches!(line.native, Native::Queue(_));
    let barrier = |signal| api.check(api.append_barrier(list, signal, 0, std::ptr::null()), operation);
    if queued {
        barrier(0)?;
    }
    record(list)?;
    if queued { barrier(done.handle) } else { Ok(()) }
}

fn run(api: &Api, line: &Line, list: u64, done: &Event, operation: Operation) -> Result<()> {
    let status = match line.native {
        Native::Queue(queue) => api.queue_execute(queue, 1, &raw const list, 0),
        Native::Immediate(stream) => {
            api.list_append_lists(stream, 1, &raw const list, done.handle, 0, std::ptr::null())
        }
    };
    api.check(status, operation)
}
