//! Bindings: the slots of one command buffer.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::block::BlockObject;
use super::drivers::{self, Child, DeviceObject};
use super::entry::entry;
use super::handle::{self, Noun, Table};
use super::reservation::{access_list, check_access, gvmm_access, nanoseconds};
use super::status::gvmm_status;
use super::stream;
use super::types::{gvmm_binding, gvmm_block, gvmm_device};
use super::versioned::{Caller, Element, Elements, Versioned, versioned};
use crate::error::{Error, Kind, Operation, Result};
use crate::rebind::{
    self, Action, Binding, BindingInfo, Buffer, Buffers, Direction, MemorySpace, Options, Slot, SlotFlags,
    StepReport, Threshold,
};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::{Block, Device};
use std::ffi::c_void;
use std::sync::Arc;

/// Direction of a slot: the command buffer reads and writes it. It is copied in and back where it is copied.
pub const GVMM_DIRECTION_IN_OUT: u32 = 0;
/// Direction of a slot: it is only read, and never copied back.
pub const GVMM_DIRECTION_IN: u32 = 1;
/// Direction of a slot: each launch writes every byte of it, and it is never copied in.
pub const GVMM_DIRECTION_OUT: u32 = 2;

/// Flag of a slot: its buffer is registered with a collective; only the buffer's own address will do.
pub const GVMM_SLOT_REGISTERED: u32 = 1;
/// Flag of a slot: its buffer is memory that this library cannot map.
pub const GVMM_SLOT_FOREIGN: u32 = 2;

/// Memory space of a slot: the device's memory.
pub const GVMM_MEMORY_SPACE_DEVICE: u32 = 0;
/// Memory space of a slot: the host's memory, which is never mapped or copied.
pub const GVMM_MEMORY_SPACE_HOST: u32 = 1;

/// What a binding does with a slot: the command buffer has the buffer's own address.
pub const GVMM_ACTION_BAKE: u32 = 0;
/// What a binding does with a slot: an address of ours, remapped when the buffer changes.
pub const GVMM_ACTION_MAP: u32 = 1;
/// What a binding does with a slot: a shadow, copied in at begin and back at end.
pub const GVMM_ACTION_COPY: u32 = 2;
/// What a binding does with a slot: the executor changes the address. No binding of this version does.
pub const GVMM_ACTION_PATCH: u32 = 3;

/// Threshold: what `XLA_VMM_TMP_COPY_THRESHOLD` says, else automatic.
pub const GVMM_THRESHOLD_DEFAULT: u64 = 0;
/// Threshold: automatic, by `gvmm_compute_threshold` on the slots' sizes and the device's figures.
pub const GVMM_THRESHOLD_AUTO: u64 = 1;
/// Threshold: nothing is copied.
pub const GVMM_THRESHOLD_OFF: u64 = u64::MAX;

/// One buffer that the command buffer uses.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_slot {
    /// How many bytes the command buffer uses, at least 1.
    pub size_bytes: u64,
    /// `GVMM_DIRECTION_...`.
    pub direction: u32,
    /// `GVMM_SLOT_...` bits.
    pub flags: u32,
    /// The alignment of its address in bytes, a power of two; 0 is 256.
    pub alignment_bytes: u64,
    /// `GVMM_MEMORY_SPACE_...`.
    pub memory_space: u32,
    /// 0.
    pub reserved: u32,
    /// A fixed address of the caller's own memory that the slot is copied to and from, or 0.
    pub shadow_address: u64,
}

/// What stands behind a slot in one step.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_buffer {
    /// Its address.
    pub address: u64,
    /// Its size in bytes, at least the slot's.
    pub size_bytes: u64,
    /// Without a block: a number that changes with each allocation, 0 meaning "always changed". With a block it
    /// is ignored.
    pub allocation_id: u64,
    /// The block that starts at `address` and holds all of the buffer, or NULL.
    pub block: *mut gvmm_block,
}

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
}

/// What a binding is and has done. Counts of calls: "setup" is up to and including the begin that started the
/// first step; "total" is all.
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
    /// How often begin said RECORD_AGAIN with new addresses.
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

/// What a begin or an end did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_step_report {
    /// `sizeof(gvmm_step_report)`.
    pub struct_size: usize,
    /// The generation whose addresses are in force.
    pub generation: u64,
    /// Slots whose buffer is another than in the step before.
    pub changed_slots: u64,
    /// Slots remapped.
    pub remapped_slots: u64,
    /// Slots copied.
    pub copied_slots: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Launches of copies.
    pub copy_launches: u64,
    /// Map calls to the driver.
    pub map_calls: u64,
    /// Unmap calls to the driver.
    pub unmap_calls: u64,
    /// Set-access calls to the driver.
    pub set_access_calls: u64,
    /// Nanoseconds spent waiting on the host for the step before.
    pub wait_ns: u64,
    /// Nanoseconds spent in driver calls.
    pub driver_ns: u64,
    /// 1 where the host waited for the step before.
    pub waited: u32,
    /// 0.
    pub reserved: u32,
}

/// Computes the automatic threshold: the largest slot size that is worth copying instead of mapping. A pure
/// function: the same numbers give the same answer, on every rank.
///
/// State: needs none and changes none.
/// Parameters: `size_bytes`, `count` sizes in bytes, in any order, 0 ignored; `bandwidth_bytes_per_s`,
/// `free_bytes`, `total_bytes`, the device's figures, each 0 where unknown; `out_threshold_bytes`, in bytes, or
/// GVMM_THRESHOLD_OFF where nothing is worth copying.
/// Statuses: none of its own.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_compute_threshold(
    size_bytes: *const u64,
    count: usize,
    bandwidth_bytes_per_s: u64,
    free_bytes: u64,
    total_bytes: u64,
    out_threshold_bytes: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out(out_threshold_bytes)?;
        let sizes: Vec<_> = c.elements(size_bytes, count, size_of::<u64>())?.iter().map(ByteSize).collect();
        let (free, total) = (ByteSize(free_bytes), ByteSize(total_bytes));
        out.write(rebind::compute_threshold(&sizes, bandwidth_bytes_per_s, free, total).0);
        Ok(())
    })
}

/// Creates a binding for a command buffer's slots. Nothing is laid out before the first begin.
///
/// State: after success the binding lives until `gvmm_binding_destroy`; it has no addresses yet.
/// Parameters: `device`; `desc`, or NULL for the default; `slots`, `count` elements `stride_bytes` apart, 0
/// allowed; `out_binding`, the handle.
/// Statuses: INVALID_SIZE (a slot of no bytes), INVALID_ARGUMENT (a direction, flag, memory space or access mode),
/// MISALIGNED (an alignment is no power of two, or a shadow address does not have it), OUT_OF_RANGE and OVERLAP (shadow
/// addresses), NO_DEVICE (in the access list), UNKNOWN_VERSION; the last-error detail names the slot.
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
        let slots: Vec<_> = c.elements(slots, count, stride_bytes)?.iter().map(slot).collect();
        let device = handle::get::<DeviceObject>(device)?;
        let child = device.adopt()?;
        let binding = Binding::new(&device.device, slots, options(c, &device.device, &desc)?)?;
        let device = Arc::clone(&device.device);
        out.write(handle::insert(BindingObject { binding, device, _child: child })?);
        Ok(())
    })
}

/// Begins a step: puts this step's buffers behind the slots' addresses. Begin, the command buffer and end run on
/// one stream.
///
/// If the buffers can be served at the addresses of `generation`, the step starts (SUCCESS): copies in are
/// enqueued, moved slots are remapped (only then may the host wait, for the step before). Otherwise the answer is
/// RECORD_AGAIN, a success: the slots are laid out anew, the generation is raised, no step starts and nothing is
/// enqueued; ask `gvmm_binding_addresses`, record the command buffer with those, and begin again.
///
/// State: before, no step is begun. After SUCCESS one is, until end or abort. A buffer must live until the stream
/// has passed end; then its block may be destroyed. The stream must live until the binding's next begin on
/// another stream, its destruction, or `gvmm_stream_forget`. After a failure the old addresses are in force and
/// no step is begun.
/// Parameters: `binding`; `stream`, a `gvmm_stream` or the vendor's own; `buffers`, one for each slot, `count`
/// elements `stride_bytes` apart; `generation`, the one whose addresses the caller recorded, 0 before the first;
/// `out_report`, or NULL.
/// Statuses: RECORD_AGAIN; WRONG_STATE (a step is begun), BUSY (another thread is in the binding), COUNT_MISMATCH,
/// INVALID_SIZE (a buffer smaller than its slot), INVALID_HANDLE (a block), INVALID_ARGUMENT (address 0 where one is
/// needed, a block of another device, a generation that was never given), ALIASED, INVALID_STREAM, STREAM_CAPTURING, the
/// memory group, RANGE_LOST, UNKNOWN_VERSION; the last-error detail names the slot.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_begin(
    binding: *mut gvmm_binding,
    stream: *mut c_void,
    buffers: *const gvmm_buffer,
    count: usize,
    stride_bytes: usize,
    generation: u64,
    out_report: *mut gvmm_step_report,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Begin, || {
        let out = c.out_struct_or_null(out_report)?;
        let buffers = StepBuffers(c.elements(buffers, count, stride_bytes)?);
        let binding = handle::get::<BindingObject>(binding)?;
        let stream = stream::resolve(&binding.device, stream)?;
        let (outcome, report) = binding.binding.begin(stream, &buffers, generation)?;
        if let Some(out) = out {
            out.write(&report.into());
        }
        Ok(outcome)
    })
}

/// Ends a step: enqueues the copies back, on the step's stream. Enqueues nothing where nothing is copied back.
///
/// State: before, a step is begun; after success none is. After a failure it still is: end or abort it.
/// Parameters: `binding`; `out_report`, or NULL.
/// Statuses: WRONG_STATE (no step is begun), BUSY, UNKNOWN_VERSION, those of the driver.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_end(
    binding: *mut gvmm_binding,
    out_report: *mut gvmm_step_report,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::End, || {
        let out = c.out_struct_or_null(out_report)?;
        let report = handle::get::<BindingObject>(binding)?.binding.end()?;
        if let Some(out) = out {
            out.write(&report.into());
        }
        Ok(())
    })
}

/// Ends a step whose launch failed, without copying back.
///
/// State: before, a step is begun; after success none is.
/// Parameters: `binding`.
/// Statuses: WRONG_STATE (no step is begun), BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_abort(binding: *mut gvmm_binding) -> gvmm_status {
    entry(Operation::End, || handle::get::<BindingObject>(binding)?.binding.abort())
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
/// Statuses: BUSY (another thread is inside it), STREAM_CAPTURING (the last step's stream is being captured).
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_destroy(binding: *mut gvmm_binding) -> gvmm_status {
    entry(Operation::Destroy, || {
        let leaving = handle::leave::<BindingObject>(binding)?;
        if !leaving.is_poisoned() {
            leaving.binding.destroy()?;
        }
        leaving.gone();
        Ok(())
    })
}

versioned!(gvmm_binding_desc { threshold_bytes, free_bytes, access, access_count, access_stride_bytes });
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
versioned!(gvmm_step_report {
    generation,
    changed_slots,
    remapped_slots,
    copied_slots,
    copied_bytes,
    copy_launches,
    map_calls,
    unmap_calls,
    set_access_calls,
    wait_ns,
    driver_ns,
    waited,
    reserved,
});
// SAFETY: numbers.
unsafe impl Element for gvmm_slot {}
// SAFETY: numbers and a raw pointer.
unsafe impl Element for gvmm_buffer {}

/// What a handle of a binding stands for.
pub(super) struct BindingObject {
    binding: Binding,
    device: Arc<Device>,
    _child: Child,
}

static BINDINGS: Table<BindingObject> = Table::new();

impl Noun for BindingObject {
    const TYPE: u64 = 7;
    type Handle = gvmm_binding;
    fn table() -> &'static Table<Self> {
        &BINDINGS
    }
}

/// A step's buffers, read where the caller has them: nothing is copied or allocated for a step.
struct StepBuffers(Elements<gvmm_buffer>);

impl Buffers for StepBuffers {
    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    /// With a block, its handle is what tells it from others: no two blocks ever have the same.
    #[inline]
    fn get(&self, i: usize) -> Buffer {
        let buffer = self.0.get(i);
        let key = handle::key(buffer.block);
        let has_block = key != 0;
        let id = if has_block { key } else { buffer.allocation_id };
        Buffer { address: DevicePtr(buffer.address), bytes: ByteSize(buffer.size_bytes), id, has_block }
    }

    fn block(&self, i: usize) -> Result<Arc<Block>> {
        let block = handle::look_up::<BlockObject>(self.0.get(i).block);
        block
            .map(|object| Arc::clone(&object.block))
            .map_err(|error| error.during(Operation::Begin).entry(i as u64))
    }

    fn epoch(&self) -> u64 {
        drivers::block_epoch()
    }
}

fn options(c: Caller, device: &Device, desc: &gvmm_binding_desc) -> Result<Options> {
    let access = access_list(c.elements(desc.access, desc.access_count, desc.access_stride_bytes)?);
    // Its first use is at the first begin; a wrong one is better refused here.
    check_access(device, &access)?;
    let free = (desc.free_bytes != 0).then_some(ByteSize(desc.free_bytes));
    Ok(Options { threshold: Threshold(desc.threshold_bytes), free, access })
}

fn slot(slot: gvmm_slot) -> Slot {
    Slot {
        bytes: ByteSize(slot.size_bytes),
        direction: Direction(slot.direction),
        flags: SlotFlags(slot.flags),
        alignment: slot.alignment_bytes,
        space: MemorySpace(slot.memory_space),
        shadow_address: DevicePtr(slot.shadow_address),
    }
}

/// Room for `count` values, or a failure where `count` is garbage.
fn room<T: Clone>(count: usize, value: T) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| Error::new(Kind::OutOfHostMemory, Operation::Query, ""))?;
    room.resize(count, value);
    Ok(room)
}

impl From<StepReport> for gvmm_step_report {
    fn from(report: StepReport) -> Self {
        Self {
            generation: report.generation,
            changed_slots: report.changed_slots,
            remapped_slots: report.remapped_slots,
            copied_slots: report.copied_slots,
            copied_bytes: report.copied_bytes,
            copy_launches: report.calls.copy_launches,
            map_calls: report.calls.map,
            unmap_calls: report.calls.unmap,
            set_access_calls: report.calls.set_access,
            wait_ns: nanoseconds(report.wait_time),
            driver_ns: nanoseconds(report.driver_time),
            waited: u32::from(report.waited),
            ..Versioned::DEFAULT
        }
    }
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
    fn the_numbers_are_the_bindings() {
        assert_eq!(Direction(GVMM_DIRECTION_IN_OUT), Direction::IN_OUT);
        assert_eq!(Direction(GVMM_DIRECTION_IN), Direction::IN);
        assert_eq!(Direction(GVMM_DIRECTION_OUT), Direction::OUT);
        assert_eq!(SlotFlags(GVMM_SLOT_REGISTERED), SlotFlags::REGISTERED);
        assert_eq!(SlotFlags(GVMM_SLOT_FOREIGN), SlotFlags::FOREIGN);
        assert_eq!(MemorySpace(GVMM_MEMORY_SPACE_DEVICE), MemorySpace::DEVICE);
        assert_eq!(MemorySpace(GVMM_MEMORY_SPACE_HOST), MemorySpace::HOST);
        assert_eq!(Action(GVMM_ACTION_BAKE), Action::BAKE);
        assert_eq!(Action(GVMM_ACTION_MAP), Action::MAP);
        assert_eq!(Action(GVMM_ACTION_COPY), Action::COPY);
        assert_eq!(Action(GVMM_ACTION_PATCH), Action::PATCH);
        assert_eq!(Threshold(GVMM_THRESHOLD_DEFAULT), Threshold::DEFAULT);
        assert_eq!(Threshold(GVMM_THRESHOLD_AUTO), Threshold::AUTO);
        assert_eq!(Threshold(GVMM_THRESHOLD_OFF), Threshold::OFF);
    }
}
