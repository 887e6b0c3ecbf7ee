//! Slots with a permanent address: memory of the binding's own that is there before the first layout and never moves, for
//! whoever must be told of an address once, such as a communicator.

use super::slot::{DEFAULT_ALIGNMENT, Slot, SlotFlags, validate};
use crate::driver::{Access, Capabilities};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, Granularity};
use crate::vm::{Allocation, Device, Owner};
use std::sync::Arc;

/// Checks the slots, and gives those that ask for it an address in memory that `access` may use; none where none asks.
///
/// # Errors
/// Those of a bad slot, `Misaligned` for more than the device's granule, and the driver's; then no slot has changed.
pub(super) fn give(
    device: &Device,
    slots: &mut [Slot],
    access: &[Access],
) -> Result<Option<Arc<Allocation>>> {
    validate(slots)?;
    let maps = device.capabilities().has(Capabilities::VIRTUAL_MEMORY);
    let unit = if maps { device.granularity() } else { DEFAULT_ALIGNMENT };
    let (offsets, size) = offsets(slots, unit)?;
    let Some(size) = size.filter(|size| !size.is_zero()) else { return Ok(None) };
    let memory = device.allocate(unit.round_up(size).ok_or(TOO_LARGE)?, access, Owner::Library)?;
    for (slot, offset) in slots.iter_mut().zip(offsets) {
        if let Some(offset) = offset {
            slot.shadow_address = memory.address().checked_add(offset).ok_or(TOO_LARGE)?;
        }
    }
    Ok(Some(memory))
}

/// Where each slot that asks for it lies, and how long all are.
fn offsets(slots: &[Slot], unit: Granularity) -> Result<(Vec<Option<ByteSize>>, Option<ByteSize>)> {
    let (mut offsets, mut end) = (vec![None; slots.len()], ByteSize::ZERO);
    for (i, slot) in slots.iter().enumerate().filter(|(_, s)| s.flags.has(SlotFlags::PERMANENT)) {
        if slot.wanted_alignment() > unit {
            return Err(ALIGNMENT.entry(i as u64));
        }
        let start = slot.wanted_alignment().round_up(end).ok_or(TOO_LARGE)?;
        offsets[i] = Some(start);
        end = start.checked_add(slot.bytes).ok_or(TOO_LARGE)?;
    }
    Ok((offsets, Some(end)))
}

const TOO_LARGE: Error =
    Error::new(Kind::OutOfAddressSpace, Operation::Bind, "the slots with permanent addresses are too large");
const ALIGNMENT: Error = Error::new(
    Kind::Misaligned,
    Operation::Bind,
    "a permanent address is aligned to the device's granule at most",
);
