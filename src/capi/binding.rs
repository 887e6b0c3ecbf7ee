//! Bindings: the slots of one command buffer.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::access::{access_list, check_access, gvmm_access};
use super::array::Elements;
use super::block::BlockObject;
use super::drivers::{Child, DeviceObject};
use super::entry::entry;
use super::handle::{self, Noun, Table};
use super::plan::{self, gvmm_plan_desc};
use super::slot::{gvmm_slot, slot};
use super::status::gvmm_status;
use super::step::gvmm_buffer;
use super::types::{gvmm_binding, gvmm_device};
use super::versioned::{Caller, Versioned, versioned};
use crate::error::{Error, Kind, Operation, Result};
use crate::rebind::{Action, Binding, BindingInfo, Options, Threshold};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a binding does with a slot: the command buffer has the buffer's own address.
pub const GVMM_ACTION_BAKE: u32 = 0;
/// What a binding does with a slot: an address of ours, remapped when the buffer changes.
pub const GVMM_ACTION_MAP: u32 = 1;
/// What a binding does with a slot: a shadow, copied in at begin and back at end.
pub const GVMM_ACTION_COPY: u32 = 2;
/// What a binding does with a slot: the caller changes the address in its command buffer, as
/// `gvmm_binding_patches` says.
pub const GVMM_ACTION_PATCH: u32 = 3;

/// How a binding is to work; all zero but `struct_size` is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_binding_desc {
    /// `sizeof(gvmm_binding_desc)`.
    pub struct_size: usize,
    /// Slots of at most so many bytes are copied, larger ones mapped; or `GVMM_THRESHOLD_...`.
    pub threshold_bytes: u64,
    /// Free device memory in bytes for the automatic threshold, equal on all ranks of a job; 0: not used.
    pub free_bytes: u64,
    /// Who may do what in mappings and shadows; may be NULL if the count is 0.
    pub access: *const gvmm_access,
    /// Number of elements; 0: the device itself, read and write.
    pub access_count: usize,
    /// Distance of two elements in bytes.
    pub access_stride_bytes: usize,
    /// How it plans, or NULL for the default.
    pub plan: *const gvmm_plan_desc,
}

/// What a binding is and has done. Counts of calls: "setup" is up to and including the begin that started
/// the first step; "total" is all.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_binding_info {
    /// `sizeof(gvmm_binding_info)`.
    pub struct_size: usize,
    /// The generation of its addresses; 0 before the first begin.
    pub generation: u64,
    /// Number of slots.
    pub slot_count: u64,
    /// Slots with GVMM_ACTION_BAKE.
    pub baked_slots: u64,
    /// Slots with GVMM_ACTION_MAP.
    pub mapped_slots: u64,
    /// Slots with GVMM_ACTION_COPY.
    pub copied_slots: u64,
    /// The threshold in force, in bytes, or GVMM_THRESHOLD_OFF.
    pub threshold_bytes: u64,
    /// Bytes of shadows that it asked for.
    pub shadow_bytes: u64,
    /// How often begin said RECORD_AGAIN, also for a generation that is no longer in force.
    pub record_again_count: u64,
    /// Setup: ranges reserved.
    pub setup_reserve: u64,
    /// Setup: ranges freed.
    pub setup_free: u64,
    /// Setup: blocks created.
    pub setup_create: u64,
    /// Setup: blocks released.
    pub setup_release: u64,
    /// Setup: blocks mapped.
    pub setup_map: u64,
    /// Setup: mappings unmapped.
    pub setup_unmap: u64,
    /// Setup: set-access calls.
    pub setup_set_access: u64,
    /// Setup: launches of copies.
    pub setup_copy_launches: u64,
    /// Setup: timeline writes.
    pub setup_timeline_writes: u64,
    /// Total: ranges reserved.
    pub total_reserve: u64,
    /// Total: ranges freed.
    pub total_free: u64,
    /// Total: blocks created.
    pub total_create: u64,
    /// Total: blocks released.
    pub total_release: u64,
    /// Total: blocks mapped.
    pub total_map: u64,
    /// Total: mappings unmapped.
    pub total_unmap: u64,
    /// Total: set-access calls.
    pub total_set_access: u64,
    /// Total: launches of copies.
    pub total_copy_launches: u64,
    /// Total: timeline writes.
    pub total_timeline_writes: u64,
}

/// Creates a binding for a command buffer's slots. Nothing is laid out before the first begin.
///
/// State: after success the binding lives until `gvmm_binding_destroy`; it has no addresses yet.
/// Parameters: `device`; `desc`, or NULL for the default; `slots`, `count` elements `stride_bytes` apart, 0
/// allowed; `out_binding`, the handle.
/// Statuses: INVALID_SIZE (a slot of no bytes), INVALID_ARGUMENT (a direction, flag, memory space, access
/// mode, plan mode or number of watched steps), MISALIGNED (an alignment is no power of two, or a shadow address
/// does not have it, or a permanent one is to have more than a granule's), OUT_OF_RANGE and OVERLAP (shadow addresses), OUT_OF_DEVICE_MEMORY and
/// OUT_OF_ADDRESS_SPACE (permanent addresses), NO_DEVICE (in the access list), UNKNOWN_VERSION; the last-error detail names the slot.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_create(
    device: *mut gvmm_device,
    desc: *const gvmm_binding_desc,
    slots: *const gvmm_slot,
    count: usize,
    stride_bytes: usize,
    out_binding: *mut *mut gvmm_binding,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Bind, || {
        let out = c.out(out_binding)?;
        let desc = c.in_struct_or_default(desc)?;
        let slots = c.elements(slots, count, stride_bytes)?.try_map(slot)?;
        let device = handle::get::<DeviceObject>(device)?;
        let child = device.adopt()?;
        let options = options(c, &device.device, &desc)?;
        let binding = match plan::options(c, desc.plan, slots.len())? {
            None => Binding::new(&device.device, slots, options),
            Some(None) => Binding::by_threshold(&device.device, slots, options),
            Some(Some(plan)) => Binding::planned(&device.device, slots, options, plan),
        }?;
        let device = Arc::clone(&device.device);
        let (seen, epoch) = (AtomicU64::new(0), AtomicU64::new(0));
        out.write(handle::insert(BindingObject { binding, device, seen, epoch, _child: child })?);
        Ok(())
    })
}

/// Gives the slots' addresses, to be recorded into the command buffer.
///
/// State: changes none.
/// Parameters: `binding`; `out_addresses`, `count` addresses, one for each slot; `out_generation`, the
/// generation to give to the next begin.
/// Statuses: WRONG_STATE (nothing is laid out before the first begin), COUNT_MISMATCH, BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_addresses(
    binding: *mut gvmm_binding,
    out_addresses: *mut u64,
    count: usize,
    out_generation: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let (out, generation) = (c.out_array(out_addresses, count)?, c.out(out_generation)?);
        let binding = handle::get::<BindingObject>(binding)?;
        let mut addresses = room(out.len(), DevicePtr::NULL)?;
        let current = binding.binding.addresses(&mut addresses)?;
        out.write(addresses.into_iter().map(DevicePtr::get));
        generation.write(current);
        Ok(())
    })
}

/// Says what the binding does with each slot.
///
/// State: changes none.
/// Parameters: `binding`; `out_actions`, `count` `GVMM_ACTION_...`, one for each slot.
/// Statuses: WRONG_STATE (nothing is laid out before the first begin), COUNT_MISMATCH, BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_actions(
    binding: *mut gvmm_binding,
    out_actions: *mut u32,
    count: usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_array(out_actions, count)?;
        let binding = handle::get::<BindingObject>(binding)?;
        let mut actions = room(out.len(), Action::BAKE)?;
        binding.binding.actions(&mut actions)?;
        out.write(actions.into_iter().map(|action| action.0));
        Ok(())
    })
}

/// Says what a binding is and has done.
///
/// State: changes none.
/// Parameters: `binding`; `out_info`, whose `struct_size` is set.
/// Statuses: UNKNOWN_VERSION, BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_query(
    binding: *mut gvmm_binding,
    out_info: *mut gvmm_binding_info,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_struct(out_info)?;
        out.write(&handle::get::<BindingObject>(binding)?.binding.info()?.into());
        Ok(())
    })
}

/// Unmaps what no step in flight uses, so that the blocks' memory can go back. The next begin maps again.
/// While the last step is still running, this takes up to 50 ms to see that, and unmaps nothing.
///
/// State: the addresses stay.
/// Parameters: `binding`; `out_unmapped`, the number of slots unmapped.
/// Statuses: BUSY, STREAM_CAPTURING, those of the driver.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_drop_idle(
    binding: *mut gvmm_binding,
    out_unmapped: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Unmap, || {
        let out = c.out(out_unmapped)?;
        out.write(handle::get::<BindingObject>(binding)?.binding.drop_idle()?);
        Ok(())
    })
}

/// Gives up a binding. Its addresses and shadows are freed once the last step that used them has passed.
///
/// State: after success the handle is invalid. A step that is begun is aborted.
/// Parameters: `binding`.
/// Statuses: BUSY (another thread is inside it), STREAM_CAPTURING (the last step's stream is being
/// captured).
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_destroy(binding: *mut gvmm_binding) -> gvmm_status {
    entry(Operation::Destroy, || {
        let leaving = handle::leave::<BindingObject>(binding)?;
        match leaving.binding.destroy() {
            Err(error) if matches!(error.kind, Kind::Busy | Kind::StreamCapturing) => return Err(error),
            // Its stream has failed for good, or it is half done: dropping it does what can be done.
            Err(error) => log::warn!("a binding that is destroyed: {error}"),
            Ok(()) => {}
        }
        leaving.gone();
        Ok(())
    })
}

versioned!(gvmm_binding_desc {
    threshold_bytes,
    free_bytes,
    access,
    access_count,
    access_stride_bytes,
    plan
});
versioned!(gvmm_binding_info {
    generation,
    slot_count,
    baked_slots,
    mapped_slots,
    copied_slots,
    threshold_bytes,
    shadow_bytes,
    record_again_count,
    setup_reserve,
    setup_free,
    setup_create,
    setup_release,
    setup_map,
    setup_unmap,
    setup_set_access,
    setup_copy_launches,
    setup_timeline_writes,
    total_reserve,
    total_free,
    total_create,
    total_release,
    total_map,
    total_unmap,
    total_set_access,
    total_copy_launches,
    total_timeline_writes,
});

/// What a handle of a binding stands for.
pub(super) struct BindingObject {
    pub(super) binding: Binding,
    pub(super) device: Arc<Device>,
    /// How many blocks' handles had died when the last begin that started a step looked at its buffers.
    pub(super) seen: AtomicU64,
    /// Rises when a begin was given a handle that is dead.
    epoch: AtomicU64,
    _child: Child,
}

impl BindingObject {
    /// What `rebind` takes for the epoch of the blocks. Programs destroy blocks all the time; what counts
    /// for this binding is whether the handles of this step live, which takes a few ns each to see.
    pub(super) fn epoch(&self, deaths: u64, buffers: &Elements<gvmm_buffer>) -> u64 {
        let dead = |buffer: gvmm_buffer| !buffer.block.is_null() && !BlockObject::is_live(buffer.block);
        if self.seen.load(Ordering::Relaxed) != deaths && buffers.iter().any(dead) {
            self.epoch.fetch_add(1, Ordering::Relaxed);
        }
        self.epoch.load(Ordering::Relaxed)
    }
}

static BINDINGS: Table<BindingObject> = Table::new();

impl Noun for BindingObject {
    const TYPE: u64 = 7;
    type Handle = gvmm_binding;
    fn table() -> &'static Table<Self> {
        &BINDINGS
    }
}

fn options(c: Caller, device: &Device, desc: &gvmm_binding_desc) -> Result<Options> {
    let access = access_list(c.elements(desc.access, desc.access_count, desc.access_stride_bytes)?);
    // Its first use is at the first begin; a wrong one is better refused here.
    check_access(device, &access)?;
    let free = (desc.free_bytes != 0).then_some(ByteSize(desc.free_bytes));
    Ok(Options { threshold: Threshold(desc.threshold_bytes), free, access })
}

/// Room for `count` values, or a failure where `count` is garbage.
fn room<T: Clone>(count: usize, value: T) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| Error::new(Kind::OutOfHostMemory, Operation::Query, ""))?;
    room.resize(count, value);
    Ok(room)
}

impl From<BindingInfo> for gvmm_binding_info {
    fn from(info: BindingInfo) -> Self {
        let (setup, total) = (info.setup, info.total);
        Self {
            generation: info.generation,
            slot_count: info.slots,
            baked_slots: info.baked,
            mapped_slots: info.mapped,
            copied_slots: info.copied,
            threshold_bytes: info.threshold.0,
            shadow_bytes: info.shadow_bytes.get(),
            record_again_count: info.record_agains,
            setup_reserve: setup.reserve,
            setup_free: setup.free,
            setup_create: setup.create,
            setup_release: setup.release,
            setup_map: setup.map,
            setup_unmap: setup.unmap,
            setup_set_access: setup.set_access,
            setup_copy_launches: setup.copy_launches,
            setup_timeline_writes: setup.timeline_writes,
            total_reserve: total.reserve,
            total_free: total.free,
            total_create: total.create,
            total_release: total.release,
            total_map: total.map,
            total_unmap: total.unmap,
            total_set_access: total.set_access,
            total_copy_launches: total.copy_launches,
            total_timeline_writes: total.timeline_writes,
            ..Versioned::DEFAULT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_actions() {
        assert_eq!(Action(GVMM_ACTION_BAKE), Action::BAKE);
        assert_eq!(Action(GVMM_ACTION_MAP), Action::MAP);
        assert_eq!(Action(GVMM_ACTION_COPY), Action::COPY);
        assert_eq!(Action(GVMM_ACTION_PATCH), Action::PATCH);
    }
}
