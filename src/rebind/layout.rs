//! A layout in force: the addresses that a generation's command buffer was recorded with.

use super::buffers::Buffer;
use super::plan::Plan;
use super::shadow::{Arena, Region};
use super::slot::{Action, Slot};
use crate::driver::{Access, CopySlice};
use crate::error::{Error, Result};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::{Block, Device, Owner, RemapEntry, Reservation};
use std::sync::Arc;

/// Where a slot is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) action: Action,
    pub(super) address: DevicePtr,
    /// Of a mapped slot's window, in the reservation.
    offset: ByteSize,
    /// How many bytes that window has.
    pub(super) window: ByteSize,
    /// Of a copied slot, in [`Copies`] in and out.
    pub(super) copy_in: Option<u32>,
    pub(super) copy_out: Option<u32>,
}

/// Copies that each step makes in one direction.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pub(super) slices: Vec<CopySlice>,
    /// Slices that copy something.
    pub(super) count: u64,
    /// What they copy together.
    pub(super) bytes: u64,
}

impl Copies {
    fn push(&mut self, slice: CopySlice) -> u32 {
        self.slices.push(CopySlice { bytes: 0, ..slice });
        self.set(self.slices.len() - 1, slice);
        (self.slices.len() - 1) as u32
    }

    /// Replaces a slice; one that copies onto itself copies nothing.
    fn set(&mut self, at: usize, slice: CopySlice) {
        let bytes = if slice.src == slice.dst { 0 } else { slice.bytes };
        let old = self.slices[at].bytes;
        self.count = self.count + u64::from(bytes != 0) - u64::from(old != 0);
        self.bytes = self.bytes.wrapping_sub(old).wrapping_add(bytes);
        self.slices[at] = CopySlice { bytes, ..slice };
    }
}

/// Addresses, and the memory behind those that are ours.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) places: Vec<Place>,
    /// What each window holds.
    pub(super) held: Vec<Option<Arc<Block>>>,
    pub(super) copies_in: Copies,
    pub(super) copies_out: Copies,
    reservation: Option<Arc<Reservation>>,
    shadows: Option<Region>,
    /// True once a step may use what the windows hold.
    pub(super) used: bool,
}

/// What remains of a layout until its last step has passed.
#[derive(Debug)]
pub(super) struct Remains {
    _reservation: Option<Arc<Reservation>>,
    _shadows: Option<Region>,
    _token: Arc<()>,
}

impl Layout {
    /// Reserves and allocates what `plan` asks for; nothing is mapped yet.
    pub(super) fn build(
        device: &Device,
        slots: &[Slot],
        plan: &Plan,
        windows: &[ByteSize],
        access: &[Access],
    ) -> Result<Self> {
        let reservation = reserve(device, plan, access)?;
        let shadows = allocate(device, plan, access)?;
        let mut layout = Self {
            places: Vec::with_capacity(slots.len()),
            held: vec![None; slots.len()],
            copies_in: Copies::default(),
            copies_out: Copies::default(),
            reservation,
            shadows,
            used: false,
        };
        for (i, slot) in slots.iter().enumerate() {
            let place = layout.place(slot, plan, i, windows[i]);
            layout.places.push(place);
        }
        Ok(layout)
    }

    fn place(&mut self, slot: &Slot, plan: &Plan, i: usize, window: ByteSize) -> Place {
        let (action, offset) = (plan.actions[i], plan.offsets[i]);
        let base = match action {
            Action::MAP => self.reservation.as_ref().map(|r| r.range().start()),
            Action::COPY => self.shadows.as_ref().map(Region::address),
            _ => None,
        };
        let ours = base.and_then(|base| base.checked_add(offset)).unwrap_or_default();
        let address = if slot.brings_shadow() { slot.shadow_address } else { ours };
        let mut place = Place { action, address, offset, window, copy_in: None, copy_out: None };
        if action == Action::COPY {
            let slice = CopySlice { dst: address, src: address, bytes: slot.bytes.get() };
            place.copy_in = slot.direction.reads().then(|| self.copies_in.push(slice));
            place.copy_out = slot.direction.writes().then(|| self.copies_out.push(slice));
        }
        place
    }

    /// Says where a slot's buffer is: that is its address, or where its shadow is copied from and to.
    pub(super) fn point(&mut self, i: usize, slot: &Slot, buffer: &Buffer) {
        let place = &mut self.places[i];
        if place.action == Action::BAKE {
            place.address = buffer.address;
        }
        let (ours, theirs, bytes) = (place.address, buffer.address, slot.bytes.get());
        if let Some(at) = place.copy_in {
            self.copies_in.set(at as usize, CopySlice { dst: ours, src: theirs, bytes });
        }
        if let Some(at) = place.copy_out {
            self.copies_out.set(at as usize, CopySlice { dst: theirs, src: ours, bytes });
        }
    }

    /// What makes slot `i`'s window hold `block`; nothing for a slot that has none.
    pub(super) fn entry(&self, i: usize, block: Option<Arc<Block>>) -> Option<RemapEntry> {
        if self.places[i].action != Action::MAP {
            return None;
        }
        let reservation = Arc::clone(self.reservation.as_ref()?);
        Some(RemapEntry { reservation, offset: self.places[i].offset, block })
    }

    /// What empties every window that holds something.
    pub(super) fn emptying(&self) -> Vec<RemapEntry> {
        (0..self.places.len())
            .filter(|&i| self.held[i].is_some())
            .filter_map(|i| self.entry(i, None))
            .collect()
    }

    /// The slots that are mapped, in the order of their windows.
    pub(super) fn mapped(&self) -> impl Iterator<Item = usize> {
        (0..self.places.len()).filter(|&i| self.places[i].action == Action::MAP)
    }

    /// The failure of a copy, blaming the slot instead of the slice.
    pub(super) fn blame(&self, e: Error, slice: impl Fn(&Place) -> Option<u32>) -> Error {
        let slot =
            e.entry.and_then(|at| self.places.iter().position(|p| slice(p).map(u64::from) == Some(at)));
        Error { entry: slot.map(|i| i as u64), ..e }
    }

    /// True where a step may use memory of ours.
    pub(super) const fn is_in_use(&self) -> bool {
        self.used && (self.reservation.is_some() || self.shadows.is_some())
    }

    /// How many slots are served by `action`.
    pub(super) fn count(&self, action: Action) -> u64 {
        self.places.iter().filter(|place| place.action == action).count() as u64
    }

    /// What must stay until the last step has passed; the blocks stay with their mappings.
    pub(super) fn into_remains(self, token: Arc<()>) -> Remains {
        Remains { _reservation: self.reservation, _shadows: self.shadows, _token: token }
    }
}

fn reserve(device: &Device, plan: &Plan, access: &[Access]) -> Result<Option<Arc<Reservation>>> {
    if plan.windows.size.is_zero() {
        return Ok(None);
    }
    device.reserve(plan.windows.size, Some(plan.windows.alignment), access, Owner::Library).map(Some)
}

fn allocate(device: &Device, plan: &Plan, access: &[Access]) -> Result<Option<Region>> {
    if plan.shadows.size.is_zero() {
        return Ok(None);
    }
    Arena::of(device).take(device, plan.shadows.size, plan.shadows.alignment, access).map(Some)
}
