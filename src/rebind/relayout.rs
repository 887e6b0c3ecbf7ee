//! Lays a binding out anew for a step's buffers. The old layout stays in force until the new one stands.

use super::buffers::{Buffer, Buffers};
use super::engine::{Engine, refused};
use super::ids::{self, twins};
use super::layout::Layout;
use super::plan::{Area, Plan, choose, place};
use super::planning::Chance;
use super::report::StepReport;
use super::review::{Review, checked, is_mappable, needs_address};
use super::shadow::{Arena, Booking};
use super::slot::{Action, Slot};
use crate::driver::Capabilities;
use crate::error::{Error, Kind, Result};
use crate::units::{ByteSize, Granularity};
use crate::vm::{Block, Device, RemapEntry};
use std::sync::Arc;

/// What the buffers of one step offer.
struct Offer {
    blocks: Vec<Option<Arc<Block>>>,
    mappable: Vec<bool>,
    /// What each slot's window must have, if it gets one.
    windows: Vec<Area>,
}

impl Engine {
    /// Makes a layout for `buffers`, puts it in force and raises the generation.
    pub(super) fn lay_out(&mut self, buffers: &impl Buffers, review: Review) -> Result<StepReport> {
        let offer = self.offer(buffers)?;
        let (plan, fresh) = self.plan(&offer, buffers)?;
        let (device, access) = (Arc::clone(&self.device), &self.options.access);
        let mut layout = Layout::build(&device, &self.slots, &plan, &offer.windows, access)?;
        layout.permanent = self.permanent.clone();
        let all = (0..self.slots.len()).map(|i| (i, ids::NONE));
        layout.point_copies(all, |i| buffers.get(i), &mut self.scratch.ids)?;
        layout.accept_copies();
        let filled = fill(&device, &mut layout, &offer)?;
        let remapped_slots = if filled { layout.count(Action::MAP) } else { 0 };
        self.booking = fresh.or(self.booking.take());
        self.note_layout(&plan.actions, &offer.mappable);
        self.put_in_force(layout, offer, buffers, review);
        self.unsure = !filled;
        Ok(StepReport { changed_slots: review.changed, remapped_slots, ..StepReport::default() })
    }

    fn put_in_force(&mut self, layout: Layout, offer: Offer, buffers: &impl Buffers, review: Review) {
        if let Some(old) = self.layout.replace(layout) {
            self.marks.retire(&self.device, old);
        }
        self.scratch.ids.accept();
        self.generation += 1;
        (self.windows, self.epoch) = (offer.windows, review.epoch);
        self.served.iter_mut().enumerate().for_each(|(i, served)| *served = buffers.get(i));
    }

    /// Checks all buffers and says which can be mapped.
    fn offer(&mut self, buffers: &impl Buffers) -> Result<Offer> {
        let count = self.slots.len();
        let mut offer = Offer {
            blocks: Vec::with_capacity(count),
            mappable: Vec::with_capacity(count),
            windows: self.windows.clone(),
        };
        for (i, slot) in self.slots.iter().enumerate() {
            let buffer = buffers.get(i);
            let block = checked(&self.device, slot, buffers, i, &buffer)?;
            let mappable = block.as_ref().is_some_and(|b| is_mappable(&self.device, slot, &buffer, b));
            if let Some(block) = block.as_ref().filter(|_| mappable) {
                let window = &mut offer.windows[i];
                window.size = window.size.max(block.size());
                window.alignment = window.alignment.max(block.granularity());
            }
            offer.mappable.push(mappable);
            offer.blocks.push(block);
        }
        if !self.device.capabilities().has(Capabilities::ALIASING) {
            twins(&self.slots, |i| buffers.get(i), |twin| offer.mappable[twin] = false)?;
        }
        Ok(offer)
    }

    /// Books the binding's share of the device's shadows.
    fn book(&self) -> Booking {
        let sizes: Vec<ByteSize> = self.slots.iter().filter(|s| s.may_copy()).map(|s| s.bytes).collect();
        Arena::of(&self.device).book(&self.device, &sizes, self.threshold)
    }

    /// Decides how each slot is served, and where; with what is booked for that, unless it is what was.
    fn plan(&self, offer: &Offer, buffers: &impl Buffers) -> Result<(Plan, Option<Booking>)> {
        let chances = self.chances(offer, buffers);
        let (actions, booking) = match self.planned(&chances)? {
            Some((actions, booking)) => (actions, Some(booking)),
            None => self.by_threshold(offer, &chances),
        };
        for (i, (slot, action)) in self.slots.iter().zip(&actions).enumerate() {
            check_address(slot, *action, &buffers.get(i), i)?;
        }
        let plan = place(&self.slots, actions, &offer.windows, self.device.granularity())?;
        Ok((plan, booking))
    }

    /// Booked once: the same threshold holds for all later layouts. A failure gives it back.
    fn by_threshold(&self, offer: &Offer, chances: &[Chance<'_>]) -> (Vec<Action>, Option<Booking>) {
        let fresh = if self.booking.is_none() { Some(self.book()) } else { None };
        let threshold = self.booking.as_ref().or(fresh.as_ref()).map_or(self.threshold, Booking::threshold);
        let actions = self.watched(choose(&self.slots, &offer.mappable, threshold));
        match self.held_still(&actions, chances) {
            Some((actions, booking)) => (actions, Some(booking)),
            None => (actions, fresh),
        }
    }

    /// What the buffers of this step allow.
    fn chances(&self, offer: &Offer, buffers: &impl Buffers) -> Vec<Chance<'_>> {
        let moved = |i: usize, buffer: &Buffer| {
            let place = self.layout.as_ref().map(|layout| &layout.places[i]);
            place.is_some_and(|place| place.action == Action::BAKE && place.address != buffer.address)
        };
        let chance = |(i, slot)| {
            let buffer: Buffer = buffers.get(i);
            Chance { slot, mappable: offer.mappable[i], moved: moved(i, &buffer), buffer }
        };
        if self.planner.is_none() { Vec::new() } else { self.slots.iter().enumerate().map(chance).collect() }
    }
}

/// Makes the new layout's windows show their blocks. Without aliasing a block that is mapped must leave its place
/// first, which a step may be using: then all windows stay empty until a step begins, which may wait, and the answer
/// is false.
fn fill(device: &Device, layout: &mut Layout, offer: &Offer) -> Result<bool> {
    let window = |i: usize| layout.entry(i, offer.blocks[i].clone());
    let entries: Vec<RemapEntry> = (0..offer.blocks.len()).filter_map(window).collect();
    let is_mapped = |entry: &RemapEntry| entry.block.as_ref().is_some_and(|block| block.places() > 0);
    if entries.iter().any(is_mapped) {
        return Ok(false);
    }
    device.remap(&entries, &[]).map_err(|e| blame(e, layout))?;
    let id = |i: usize| layout.window(i).and(offer.blocks[i].as_ref()).map(|block| block.id());
    layout.held = (0..offer.blocks.len()).map(id).collect();
    Ok(true)
}

/// The failure of filling windows, blaming the slot.
fn blame(e: Error, layout: &Layout) -> Error {
    let slot = e.entry.and_then(|at| layout.mapped().nth(at as usize));
    Error { entry: slot.map(|i| i as u64), ..e }
}

/// Checks a buffer whose own address is baked, patched or copied from.
pub(super) fn check_address(slot: &Slot, action: Action, buffer: &Buffer, i: usize) -> Result<()> {
    if action == Action::MAP {
        return Ok(());
    }
    needs_address(buffer, i)?;
    match Granularity::new(slot.alignment) {
        Some(wanted) if action != Action::COPY && !buffer.address.is_aligned(wanted) => {
            Err(MISALIGNED.at(buffer.address, buffer.bytes).entry(i as u64))
        }
        _ => Ok(()),
    }
}

const MISALIGNED: Error =
    refused(Kind::Misaligned, "a slot that is baked or patched needs a buffer that is aligned as it asks");
