//! Peers: other devices that may use a device's memory.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::access::{access_list, check_access, gvmm_access};
use super::allocation::AllocationObject;
use super::drivers::DeviceObject;
use super::entry::entry;
use super::handle;
use super::status::gvmm_status;
use super::types::{gvmm_allocation, gvmm_device};
use super::versioned::Caller;
use crate::driver::{Access, AccessMode, Capabilities, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::pool::{ExpandableSegment, Pool};
use crate::units::ByteSize;
use crate::vm::{Allocation, Device};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Says whether another device can be given access to this device's memory. The other direction is a question of its
/// own: ask it of the other device.
///
/// State: changes none.
/// Parameters: `device`; `peer`, the other device's number; `out_reaches`, 1 or 0.
/// Statuses: NO_DEVICE (no such number).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_peer_query(
    device: *mut gvmm_device,
    peer: u32,
    out_reaches: *mut u32,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out(out_reaches)?;
        let device = &handle::get::<DeviceObject>(device)?.device;
        out.write(u32::from(reaches(device, Ordinal(peer))?));
        Ok(())
    })
}

/// Gives another device access to this device's allocations, segments and pools, those that live and those to come, but
/// for those whose access was or is given as a list. This direction only: for the other, call it for the other device.
///
/// State: after success the peer may do what `mode` says; after a failure all is as before.
/// Parameters: `device`; `peer`, the other device's number; `mode`, `GVMM_ACCESS_...`, NONE to take it away.
/// Statuses: NO_DEVICE (no such number), INVALID_ARGUMENT (`mode`, or the device itself), UNSUPPORTED (the peer cannot
/// reach this device's memory, or it has no virtual memory), and those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_peer_enable(
    device: *mut gvmm_device,
    peer: u32,
    mode: u32,
) -> gvmm_status {
    entry(Operation::SetAccess, || {
        let device = &handle::get::<DeviceObject>(device)?.device;
        let line = Access { device: Ordinal(peer), mode: AccessMode(mode) };
        check_access(device, &[line]).map_err(|error| Error { entry: None, ..error })?;
        let refuse = |kind, hint| Err(Error::new(kind, Operation::SetAccess, hint));
        if line.device == device.ordinal() {
            return refuse(Kind::InvalidArgument, "a device is no peer of itself");
        }
        if !device.capabilities().has(Capabilities::VIRTUAL_MEMORY) {
            return refuse(Kind::Unsupported, "without virtual memory, memory is for its own device");
        }
        if line.mode != AccessMode::NONE && !reaches(device, line.device)? {
            return refuse(Kind::Unsupported, "the peer cannot reach this device's memory");
        }
        Peers::of(device).enable(device.ordinal(), line)
    })
}

/// Sets who may use an allocation's memory. `gvmm_device_peer_enable` changes nothing about it from then on.
///
/// State: after success the access is as listed; after a failure as before.
/// Parameters: `allocation`; `access`, `count` elements `stride_bytes` apart; 0: the device itself, read and write.
/// Statuses: INVALID_ARGUMENT (a mode), NO_DEVICE (in the list), UNSUPPORTED (a device that cannot reach this one's
/// memory, or plain device memory), UNKNOWN_VERSION (`stride_bytes`), and those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_allocation_set_access(
    allocation: *mut gvmm_allocation,
    access: *const gvmm_access,
    count: usize,
    stride_bytes: usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::SetAccess, || {
        let access = access_list(c.elements(access, count, stride_bytes)?);
        let object = handle::get::<AllocationObject>(allocation)?;
        check_access(object.device(), &access)?;
        Peers::of(object.device()).leave(&object.allocation, &access)
    })
}

/// Whether a device can be given access.
fn reaches(device: &Device, peer: Ordinal) -> Result<bool> {
    device.driver().reaches(peer, device.ordinal())
}

/// What follows the device's peers.
pub(super) trait Member: Send + Sync {
    /// Sets who may use it.
    fn set_access(&self, access: &[Access]) -> Result<()>;
}

impl Member for Allocation {
    fn set_access(&self, access: &[Access]) -> Result<()> {
        let Some(reservation) = self.reservation() else {
            let hint = "plain device memory is for its own device";
            return Err(Error::new(Kind::Unsupported, Operation::SetAccess, hint));
        };
        reservation.set_access(ByteSize::ZERO, reservation.range().size(), access)
    }
}

impl Member for ExpandableSegment {
    fn set_access(&self, access: &[Access]) -> Result<()> {
        Self::set_access(self, access)
    }
}

impl Member for Pool {
    fn set_access(&self, access: &[Access]) -> Result<()> {
        Self::set_access(self, access)
    }
}

/// A device's peers, and what follows them. Its lock is held across the driver calls: what is made meanwhile shall not
/// miss them.
#[derive(Default)]
pub(super) struct Peers(Mutex<State>);

#[derive(Default)]
struct State {
    /// The device itself first; empty without peers.
    access: Vec<Access>,
    members: Vec<Weak<dyn Member>>,
    /// How many members there may be before those that are gone are looked for.
    room: usize,
}

impl Peers {
    pub(super) fn of(device: &Device) -> Arc<Self> {
        device.extension()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets something that was made for its own device only follow the peers.
    pub(super) fn join<M: Member + 'static>(&self, member: &Arc<M>) -> Result<()> {
        let mut state = self.state();
        if !state.access.is_empty() {
            member.set_access(&state.access)?;
        }
        if state.members.len() >= state.room {
            state.members.retain(|member| member.strong_count() > 0);
            state.room = 2 * state.members.len() + 16;
        }
        let member: Arc<dyn Member> = Arc::<M>::clone(member);
        state.members.push(Arc::downgrade(&member));
        Ok(())
    }

    /// Gives something a list of its own: it follows the peers no more.
    pub(super) fn leave<M: Member>(&self, member: &Arc<M>, access: &[Access]) -> Result<()> {
        let mut state = self.state();
        member.set_access(access)?;
        state.members.retain(|other| !std::ptr::addr_eq(other.as_ptr(), Arc::as_ptr(member)));
        Ok(())
    }

    fn enable(&self, own: Ordinal, line: Access) -> Result<()> {
        let mut state = self.state();
        let mut access = state.access.clone();
        if access.is_empty() {
            access.push(Access { device: own, mode: AccessMode::READ_WRITE });
        }
        access.retain(|known| known.device != line.device);
        if line.mode != AccessMode::NONE {
            access.push(line);
        }
        let members: Vec<Arc<dyn Member>> = state.members.iter().filter_map(Weak::upgrade).collect();
        for (done, member) in members.iter().enumerate() {
            if let Err(error) = member.set_access(&access) {
                for member in &members[..done] {
                    if let Err(error) = member.set_access(&state.access) {
                        log::warn!("memory keeps its new access: {error}");
                    }
                }
                return Err(error);
            }
        }
        state.access = access;
        Ok(())
    }
}
