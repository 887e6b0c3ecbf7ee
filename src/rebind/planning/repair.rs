//! What a plan becomes where buffers are not as it foresaw.

use super::Planner;
use crate::error::{Error, Kind, Result};
use crate::rebind::buffers::Buffer;
use crate::rebind::choice::Ledger;
use crate::rebind::churn::{Churn, Moves};
use crate::rebind::engine::{Engine, refused};
use crate::rebind::planner::Situation;
use crate::rebind::shadow::{Arena, Booking};
use crate::rebind::slot::{Action, Slot};
use crate::rebind::threshold::Threshold;
use crate::units::{ByteSize, Granularity};

/// What one slot's buffer allows.
pub(in crate::rebind) struct Chance<'a> {
    pub(in crate::rebind) slot: &'a Slot,
    pub(in crate::rebind) buffer: Buffer,
    pub(in crate::rebind) mappable: bool,
    /// True where the layout in force has the slot at another address of the caller's.
    pub(in crate::rebind) moved: bool,
}

impl Chance<'_> {
    fn allows(&self, action: Action, patches: bool, room: u64) -> bool {
        let (slot, address) = (self.slot, self.buffer.address);
        let aligned = Granularity::new(slot.alignment).is_none_or(|wanted| address.is_aligned(wanted));
        let in_place = !address.is_null() && aligned && !slot.brings_shadow();
        match action {
            Action::MAP => self.mappable,
            Action::COPY if slot.brings_shadow() => true,
            Action::COPY => !address.is_null() && slot.may_copy() && slot.bytes.get() <= room,
            Action::PATCH => in_place && patches,
            _ => in_place && !self.moved,
        }
    }
}

impl Engine {
    /// How each slot is to be served in a new layout, the shadows booked, if the planner decides: the plan, and
    /// something else for each slot whose buffer does not allow it or has moved although it was to stay.
    pub(in crate::rebind) fn planned(
        &self,
        chances: &[Chance<'_>],
    ) -> Result<Option<(Vec<Action>, Booking)>> {
        let Some(planner) = &self.planner else { return Ok(None) };
        let Some(current) = &planner.current else { return Ok(None) };
        let mut actions = current.clone();
        let may =
            |i: usize, action, room| chances[i].allows(action, planner.patches_slot(&self.slots[i], i), room);
        let wrong: Vec<usize> = (0..actions.len()).filter(|&i| !may(i, actions[i], u64::MAX)).collect();
        if !wrong.is_empty() {
            let mappable: Vec<bool> = chances.iter().map(|chance| chance.mappable).collect();
            self.repair(planner, &mut actions, &wrong, &mappable, may);
        }
        let bytes = ByteSize(shadows(&self.slots, &actions));
        let threshold = self.booking.as_ref().map_or(Threshold::OFF, Booking::threshold);
        let booking = Arena::of(&self.device).book_bytes(&self.device, self.booked(), bytes, threshold);
        booking.map(|booking| Some((actions, booking))).ok_or(NO_ROOM.of(bytes))
    }

    /// Serves the `wrong` slots otherwise: mapped or copied, whichever costs less if they move once in a while; else
    /// whatever their buffers allow.
    fn repair(
        &self,
        planner: &Planner,
        actions: &mut [Action],
        wrong: &[usize],
        mappable: &[bool],
        may: impl Fn(usize, Action, u64) -> bool,
    ) {
        let mut moves = planner.churn.moves().to_vec();
        wrong.iter().for_each(|&i| moves[i] = moves[i].or(Moves(1)));
        let churn = Churn::new(moves, planner.churn.steps().max(1));
        let room = self.shadow_room();
        let situation = planner.situation(&self.device, &self.slots, &churn, room);
        let problem = Situation { mappable, ..situation }.problem();
        wrong.iter().for_each(|&i| actions[i] = Action::BAKE);
        let mut left = room.get().saturating_sub(shadows(&self.slots, actions));
        let mut ledger = Ledger::new(&problem);
        for (i, &action) in actions.iter().enumerate() {
            ledger.add(i, action);
        }
        for &i in wrong {
            ledger.remove(i, Action::BAKE);
            let ours = [Action::MAP, Action::COPY].into_iter().filter(|&action| may(i, action, left));
            let ours = ours.min_by_key(|&action| ledger.marginal(i, action));
            let other = Some(Action::PATCH).filter(|&action| may(i, action, left));
            actions[i] = ours.or(other).unwrap_or(Action::BAKE);
            ledger.add(i, actions[i]);
            if actions[i] == Action::COPY && !self.slots[i].brings_shadow() {
                left = left.saturating_sub(self.slots[i].bytes.get());
            }
        }
    }

    /// The default layout of a step that is watched: what it would bake is patched where that can be, so that its
    /// moving does not mean to record again.
    pub(in crate::rebind) fn watched(&self, mut actions: Vec<Action>) -> Vec<Action> {
        let Some(planner) = &self.planner else { return actions };
        for (i, action) in actions.iter_mut().enumerate().filter(|(_, action)| **action == Action::BAKE) {
            if planner.patches_slot(&self.slots[i], i) {
                *action = Action::PATCH;
            }
        }
        actions
    }

    /// The same for what would be baked again and moves while it is watched: it is copied from now on, where there is room, so
    /// that each slot's moving is recorded once at most. None where nothing is.
    pub(in crate::rebind) fn held_still(
        &self,
        actions: &[Action],
        chances: &[Chance<'_>],
    ) -> Option<(Vec<Action>, Booking)> {
        let (layout, booking) = (self.layout.as_ref()?, self.booking.as_ref()?);
        let mut still = actions.to_vec();
        let mut left = self.shadow_room().get().saturating_sub(shadows(&self.slots, actions));
        for (i, chance) in chances.iter().enumerate().filter(|(i, _)| actions[*i] == Action::BAKE) {
            let moves = chance.moved || layout.places[i].action == Action::COPY;
            if moves && chance.allows(Action::COPY, false, left) {
                still[i] = Action::COPY;
                left = left.saturating_sub(chance.slot.bytes.get());
            }
        }
        let bytes = ByteSize(shadows(&self.slots, &still));
        let booked =
            || Arena::of(&self.device).book_bytes(&self.device, self.booked(), bytes, booking.threshold());
        Some(still).filter(|still| still != actions).and_then(|still| Some((still, booked()?)))
    }
}

/// The bytes of our own shadows that `actions` need.
pub(super) fn shadows(slots: &[Slot], actions: &[Action]) -> u64 {
    let copied = slots.iter().zip(actions).filter(|(_, action)| **action == Action::COPY);
    let ours = copied.filter(|(slot, _)| !slot.brings_shadow());
    ours.fold(0u64, |sum, (slot, _)| sum.saturating_add(slot.bytes.get()))
}

const NO_ROOM: Error = refused(
    Kind::OutOfDeviceMemory,
    "the plan's shadows pass this device's budget: raise GVMM_SHADOW_BUDGET to what the planning rank has",
);
