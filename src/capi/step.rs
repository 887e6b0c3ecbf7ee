//! Steps: begin and end.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::array::{Element, Elements};
use super::binding::BindingObject;
use super::block::BlockObject;
use super::entry::entry;
use super::handle;
use super::remap::nanoseconds;
use super::status::gvmm_status;
use super::stream;
use super::types::{gvmm_binding, gvmm_block};
use super::versioned::{Caller, Versioned, versioned};
use crate::error::{Operation, Result};
use crate::rebind::{Buffer, Buffers, Outcome, StepReport};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::{Block, Device};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What stands behind a slot in one step.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_buffer {
    /// Its address.
    pub address: u64,
    /// Its size in bytes, at least the slot's.
    pub size_bytes: u64,
    /// Without a block: a number that changes with each allocation, 0 meaning "always changed". With a
    /// block it is ignored.
    pub allocation_id: u64,
    /// The block that starts at `address` and holds all of the buffer, or NULL.
    pub block: *mut gvmm_block,
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
    /// Commands that must be patched before the launch; `gvmm_binding_patches` lists them.
    pub patched_commands: u64,
    /// 1 where slots that the plan has stay move so often that `gvmm_binding_replan` may pay.
    pub replan_advised: u32,
    /// 0.
    pub reserved_too: u32,
}

/// Begins a step: puts this step's buffers behind the slots' addresses. Begin, the command buffer and end
/// run on one stream.
///
/// If the buffers can be served at the addresses of `generation`, the step starts (SUCCESS): copies in are
/// enqueued, moved slots are remapped (only then may the host wait, for the step before). Otherwise the
/// answer is RECORD_AGAIN, a success: the slots are laid out anew, the generation is raised, no step starts
/// and nothing is enqueued; ask `gvmm_binding_addresses`, record the command buffer with those, and begin
/// again. (Without GVMM_CAPABILITY_ALIASING, new addresses may have nothing behind them until that begin.)
///
/// State: before, no step is begun. After SUCCESS one is, until end or abort. A buffer must live until the
/// stream has passed end; then its block may be destroyed. The stream must live until the binding's next
/// begin on another stream, its destruction, or `gvmm_stream_forget`. After a failure the old addresses are
/// in force and no step is begun.
/// Parameters: `binding`; `stream`, a `gvmm_stream` or the vendor's own; `buffers`, one for each slot,
/// `count` elements `stride_bytes` apart; `generation`, the one whose addresses the caller recorded, 0
/// before the first; `out_report`, or NULL.
/// Statuses: RECORD_AGAIN; WRONG_STATE (a step is begun, or copies were recorded and no graph is named), BUSY
/// (another thread is in the binding), COUNT_MISMATCH, INVALID_SIZE (a buffer smaller than its slot), INVALID_HANDLE (a block),
/// INVALID_ARGUMENT (address 0 where one is needed, a block of another device, a generation that was never
/// given), MISALIGNED (a baked slot's buffer), ALIASED, OVERLAP (what is copied
/// out shares bytes with another buffer, or a shadow address does), INVALID_STREAM, STREAM_CAPTURING (something
/// must be enqueued, and the stream is being captured), DEVICE_FAULT (of the step before), the memory group,
/// RANGE_LOST, UNKNOWN_VERSION; the last-error detail names the slot.
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
        let buffers = c.elements(buffers, count, stride_bytes)?;
        let binding = handle::get::<BindingObject>(binding)?;
        let stream = stream::resolve(&binding.device, stream)?;
        let deaths = BlockObject::deaths();
        let buffers = StepBuffers { buffers, epoch: binding.epoch(deaths, &buffers), deaths };
        let (outcome, report) = binding.binding.begin(stream, &buffers, generation)?;
        if outcome == Outcome::Started {
            binding.seen.store(deaths, Ordering::Relaxed);
        }
        if let Some(out) = out {
            out.write(&report.into());
        }
        Ok(outcome)
    })
}

/// Ends a step: enqueues the copies back, on the step's stream. Enqueues nothing where nothing is copied
/// back, or the command buffer does it (`gvmm_binding_record_copies`).
///
/// State: before, a step is begun; after success none is. After a failure it still is: end or abort it.
/// Parameters: `binding`; `out_report`, or NULL.
/// Statuses: WRONG_STATE (no step is begun), BUSY, STREAM_CAPTURING (something must be copied back, and the
/// stream is being captured), UNKNOWN_VERSION, those of the driver.
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
    patched_commands,
    replan_advised,
    reserved_too,
});
// SAFETY: numbers and a raw pointer.
unsafe impl Element for gvmm_buffer {}

/// A step's buffers, read where the caller has them: nothing is copied or allocated for a step.
struct StepBuffers {
    buffers: Elements<gvmm_buffer>,
    epoch: u64,
    deaths: u64,
}

impl Buffers for StepBuffers {
    #[inline]
    fn len(&self) -> usize {
        self.buffers.len()
    }

    /// With a block, its handle is what tells it from others: no two blocks ever have the same.
    #[inline]
    fn get(&self, i: usize) -> Buffer {
        let buffer = self.buffers.get(i);
        let key = handle::key(buffer.block);
        let has_block = key != 0;
        let id = if has_block { key } else { buffer.allocation_id };
        Buffer { address: DevicePtr(buffer.address), bytes: ByteSize(buffer.size_bytes), id, has_block }
    }

    fn block(&self, i: usize) -> Result<Arc<Block>> {
        let block = handle::look_up::<BlockObject>(self.buffers.get(i).block);
        block
            .map(|object| Arc::clone(&object.block))
            .map_err(|error| error.during(Operation::Begin).entry(i as u64))
    }

    #[inline]
    fn block_size(&self, i: usize, device: &Device) -> Result<Option<ByteSize>> {
        match BlockObject::size_on(self.buffers.get(i).block, device) {
            Some(size) => Ok(Some(size)),
            // Which failure it is, the block itself says.
            None => Ok(self.block(i)?.size_on(device)),
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn deaths(&self) -> u64 {
        self.deaths
    }
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
            patched_commands: report.patched_commands,
            replan_advised: u32::from(report.replan_advised),
            ..Versioned::DEFAULT
        }
    }
}
