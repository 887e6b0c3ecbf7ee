//! Clean-up that failed: kept, and tried again.

use super::calls::Calls;
use super::{Block, Reservation};
use crate::driver::{NativeBlock, RouteId, TimelineId};
use crate::error::Result;
use crate::units::{DevicePtr, DeviceRange};
use std::sync::{Arc, Weak};

/// Something that must still be given back to the driver.
#[derive(Debug)]
pub(crate) enum Leftover {
    /// A block.
    Block(NativeBlock),
    /// Plain memory.
    Memory(DevicePtr),
    /// A timeline.
    Timeline(TimelineId),
    /// A route.
    Route(RouteId),
    /// A range, and what is still mapped in it.
    Range(DeviceRange, Vec<(DeviceRange, Arc<Block>)>),
    /// Mappings that a failed undo left in a reservation that lives.
    Strays(Weak<Reservation>),
}

impl Leftover {
    /// Tries again; what is left comes back with the failure.
    pub(crate) fn settle(self, calls: &Calls) -> std::result::Result<(), (Self, crate::error::Error)> {
        match self {
            Self::Block(block) => calls.release(block).map_err(|e| (self, e)),
            Self::Memory(address) => calls.deallocate(address).map_err(|e| (self, e)),
            Self::Timeline(timeline) => calls.timeline_destroy(timeline).map_err(|e| (self, e)),
            Self::Route(route) => calls.route_destroy(route).map_err(|e| (self, e)),
            Self::Range(range, mapped) => {
                let mut failure = None;
                let left: Vec<_> = mapped
                    .into_iter()
                    .filter(|(part, block)| match calls.unmap(*part) {
                        Ok(()) => {
                            block.count_place(false);
                            false
                        }
                        Err(e) => {
                            failure = Some(e);
                            true
                        }
                    })
                    .collect();
                match failure.map_or_else(|| calls.free(range), Err) {
                    Ok(()) => Ok(()),
                    Err(e) => Err((Self::Range(range, left), e)),
                }
            }
            Self::Strays(ref reservation) => {
                match reservation.upgrade().map_or(Ok(()), |r| r.settle_strays(&[])) {
                    Ok(()) => Ok(()),
                    Err(e) => Err((self, e)),
                }
            }
        }
    }
}

/// Logs a failure that has no caller to go to.
pub(crate) fn log_failure(what: &str, result: Result<()>) {
    if let Err(e) = result {
        log::warn!("{what}: {e}");
    }
}
