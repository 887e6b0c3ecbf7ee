//! Slots.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::array::Element;
use super::entry::entry;
use super::status::gvmm_status;
use super::versioned::{Caller, unknown};
use crate::error::{Operation, Result};
use crate::rebind::{self, Direction, MemorySpace, Slot, SlotFlags};
use crate::units::{ByteSize, DevicePtr};

/// Direction of a slot: the command buffer reads and writes it. It is copied in and back where it is
/// copied.
pub const GVMM_DIRECTION_IN_OUT: u32 = 0;
/// Direction of a slot: it is only read, and never copied back.
pub const GVMM_DIRECTION_IN: u32 = 1;
/// Direction of a slot: each launch writes every byte of it, and it is never copied in.
pub const GVMM_DIRECTION_OUT: u32 = 2;

/// Flag of a slot: its buffer is registered with a collective; only the buffer's own address will do.
pub const GVMM_SLOT_REGISTERED: u32 = 1;
/// Flag of a slot: its buffer is memory that this library cannot map.
pub const GVMM_SLOT_FOREIGN: u32 = 2;
/// Flag of a slot: it gets an address that is made with the binding and never moves (`gvmm_binding_permanent`), in memory
/// beside the budget of shadows; each step copies to and from it. For buffers that a collective is told of once.
pub const GVMM_SLOT_PERMANENT: u32 = 4;

/// Memory space of a slot: the device's memory.
pub const GVMM_MEMORY_SPACE_DEVICE: u32 = 0;
/// Memory space of a slot: the host's memory, which is never mapped or copied.
pub const GVMM_MEMORY_SPACE_HOST: u32 = 1;

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
    /// The alignment of its address in bytes, a power of two; 0 is 256. Above 4096 and above the slot's
    /// size, the slot gets no shadow of ours.
    pub alignment_bytes: u64,
    /// `GVMM_MEMORY_SPACE_...`.
    pub memory_space: u32,
    /// 0.
    pub reserved: u32,
    /// A fixed address of the caller's own memory that the slot is copied to and from, or 0.
    pub shadow_address: u64,
}

/// Computes the automatic threshold: the largest slot size that is worth copying instead of mapping. A pure
/// function: the same numbers give the same answer, on every rank.
///
/// State: needs none and changes none.
/// Parameters: `size_bytes`, `count` sizes in bytes, in any order, 0 ignored; `bandwidth_bytes_per_s`,
/// `free_bytes`, `total_bytes`, the device's figures, each 0 where unknown; `out_threshold_bytes`, in
/// bytes, or GVMM_THRESHOLD_OFF where nothing is worth copying.
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
// SAFETY: numbers.
unsafe impl Element for gvmm_slot {}

pub(super) fn slot(slot: gvmm_slot) -> Result<Slot> {
    if slot.reserved != 0 {
        return Err(unknown("reserved is set, and means nothing in this version: set it to 0"));
    }
    Ok(Slot {
        bytes: ByteSize(slot.size_bytes),
        direction: Direction(slot.direction),
        flags: SlotFlags(slot.flags),
        alignment: slot.alignment_bytes,
        space: MemorySpace(slot.memory_space),
        shadow_address: DevicePtr(slot.shadow_address),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rebind::Threshold;

    #[test]
    fn the_numbers_are_the_slots() {
        assert_eq!(Direction(GVMM_DIRECTION_IN_OUT), Direction::IN_OUT);
        assert_eq!(Direction(GVMM_DIRECTION_IN), Direction::IN);
        assert_eq!(Direction(GVMM_DIRECTION_OUT), Direction::OUT);
        assert_eq!(SlotFlags(GVMM_SLOT_REGISTERED), SlotFlags::REGISTERED);
        assert_eq!(SlotFlags(GVMM_SLOT_FOREIGN), SlotFlags::FOREIGN);
        assert_eq!(MemorySpace(GVMM_MEMORY_SPACE_DEVICE), MemorySpace::DEVICE);
        assert_eq!(MemorySpace(GVMM_MEMORY_SPACE_HOST), MemorySpace::HOST);
        assert_eq!(Threshold(GVMM_THRESHOLD_DEFAULT), Threshold::DEFAULT);
        assert_eq!(Threshold(GVMM_THRESHOLD_AUTO), Threshold::AUTO);
        assert_eq!(Threshold(GVMM_THRESHOLD_OFF), Threshold::OFF);
    }
}
