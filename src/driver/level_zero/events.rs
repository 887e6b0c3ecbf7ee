//! Events: a point in a stream that others can wait for. They are made in pools of a context, reset and used again;
//! an event is given back only by whoever knows that no stream will touch it any more.

use super::api::{Api, NOT_READY, SUCCESS};
use super::layout::{EventDesc, EventPoolDesc};
use crate::error::{Operation, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events of a pool.
const POOL: u32 = 64;
/// `ZE_EVENT_POOL_FLAG_HOST_VISIBLE`.
const HOST_VISIBLE: u32 = 1;
/// `ZE_EVENT_SCOPE_FLAG_DEVICE` and `_HOST`.
const DEVICE: u32 = 2;
const HOST: u32 = 4;

#[derive(Debug, Default)]
struct Home {
    pools: Vec<u64>,
    events: Vec<u64>,
    idle: Vec<u64>,
}

/// All events of a driver, by context.
#[derive(Debug, Default)]
pub(super) struct Events(Arc<Mutex<HashMap<u64, Home>>>);

/// An event that is ours until it is dropped. Drop it only where it is signaled, or was never given to a stream.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) handle: u64,
    pub(super) context: u64,
    homes: Arc<Mutex<HashMap<u64, Home>>>,
}

fn lock(homes: &Mutex<HashMap<u64, Home>>) -> MutexGuard<'_, HashMap<u64, Home>> {
    homes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Events {
    /// An event that is not signaled.
    pub(super) fn take(&self, api: &Api, context: u64, operation: Operation) -> Result<Event> {
        let idle = lock(&self.0).entry(context).or_default().idle.pop();
        let handle = match idle {
            Some(handle) => handle,
            None => self.grow(api, context, operation)?,
        };
        let event = Event { handle, context, homes: Arc::clone(&self.0) };
        // New ones are reset too: a second reset does nothing.
        api.check(api.event_reset(handle), operation)?;
        Ok(event)
    }

    /// Makes a pool and its events, and gives one.
    fn grow(&self, api: &Api, context: u64, operation: Operation) -> Result<u64> {
        let desc = EventPoolDesc { flags: HOST_VISIBLE, count: POOL, ..EventPoolDesc::blank() };
        let mut pool = 0;
        let status = api.event_pool_create(context, &desc, 0, std::ptr::null(), &mut pool);
        let pool = api.given(status, pool, operation)?;
        let mut made = Vec::with_capacity(POOL as usize);
        for index in 0..POOL {
            match new_event(api, pool, index, operation) {
                Ok(event) => made.push(event),
                Err(error) => {
                    made.into_iter().for_each(|event| api.log("destroy an event", api.event_destroy(event)));
                    api.log("destroy events", api.event_pool_destroy(pool));
                    return Err(error);
                }
            }
        }
        let mut homes = lock(&self.0);
        let home = homes.entry(context).or_default();
        home.pools.push(pool);
        home.events.extend(&made);
        let first = made.swap_remove(0);
        home.idle.extend(made);
        Ok(first)
    }

    /// Destroys all events. Those that a stream may still touch stay, with their pools.
    pub(super) fn close(&self, api: &Api) {
        for (_, home) in std::mem::take(&mut *lock(&self.0)) {
            if home.idle.len() < home.events.len() {
                log::warn!(
                    "{} events stay: a stream may still signal them",
                    home.events.len() - home.idle.len()
                );
                continue;
            }
            home.events.into_iter().for_each(|event| api.log("destroy an event", api.event_destroy(event)));
            home.pools.into_iter().for_each(|pool| api.log("destroy events", api.event_pool_destroy(pool)));
        }
    }
}

fn new_event(api: &Api, pool: u64, index: u32, operation: Operation) -> Result<u64> {
    let desc = EventDesc { index, signal: HOST, wait: DEVICE, ..EventDesc::blank() };
    let mut event = 0;
    api.given(api.event_create(pool, &desc, &mut event), event, operation)
}

impl Event {
    /// True once a stream has signaled it. Never blocks.
    pub(super) fn is_signaled(&self, api: &Api, operation: Operation) -> Result<bool> {
        match api.event_query(self.handle) {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            status => Err(api.error(status, operation)),
        }
    }

    /// Never used again: a stream that failed may still have it.
    pub(super) fn abandon(self) {
        std::mem::forget(self);
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(home) = lock(&self.homes).get_mut(&self.context) {
            home.idle.push(self.handle);
        }
    }
}
