//! What a binding's caller asks of its planner.

use super::binding::{Binding, Options};
use super::exchange::{export_plan, import_plan};
use super::permanent;
use super::planner::{Explanation, Price};
use super::planning::{Patch, PlanOptions, Planner};
use super::slot::Slot;
use crate::error::{Error, Kind, Operation, Result};
use crate::rebind::MOST_WATCHED_STEPS;
use crate::vm::Device;
use std::sync::Arc;

impl Binding {
    /// A binding of `slots` whose actions are chosen by what they cost. Its first steps are watched, at the addresses that
    /// the threshold gives (what that would bake is patched, or copied once it has moved); then a plan is frozen, and [`RecordAgain`](super::Outcome::RecordAgain) is said once if
    /// that changes an address. A slot that moves although the plan has it stay is remapped where it is mapped; where
    /// it is baked it gets an address of ours, with one more `RecordAgain`.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and `InvalidArgument` (the number of watched steps).
    pub fn planned(
        device: &Arc<Device>,
        slots: Vec<Slot>,
        options: Options,
        plan: PlanOptions,
    ) -> Result<Self> {
        if plan.watched_steps != 0 && !(2..=MOST_WATCHED_STEPS).contains(&plan.watched_steps) {
            return Err(WATCHED_STEPS);
        }
        let mut slots = slots;
        let memory = permanent::give(device, &mut slots, &options.access)?;
        let planner = Planner::new(device, &slots, &options.access, plan);
        let mut binding = Self::with(device, slots, options, memory);
        binding.engine_mut().planner = Some(planner);
        Ok(binding)
    }

    /// What the step that was begun last needs patched before its launch: each command of each patched slot whose
    /// address is another one than in the step before. After a step that was aborted the same is listed again.
    /// After [`RecordAgain`](super::Outcome::RecordAgain) nothing is: what is recorded with the new addresses is right.
    ///
    /// # Errors
    /// `Busy`.
    pub fn patches(&self) -> Result<Vec<Patch>> {
        let engine = self.enter(Operation::Query)?;
        Ok(engine.planner.as_ref().map(|planner| planner.patches().to_vec()).unwrap_or_default())
    }

    /// The plan as bytes, for [`import_plan`](Self::import_plan) of other ranks. It is there once the watched steps are
    /// over; what was repaired since is not in it.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (no planner, or no plan yet).
    pub fn export_plan(&self) -> Result<Vec<u8>> {
        let mut engine = self.enter(Operation::Bind)?;
        let (slots, actions, _, churn) = engine.frozen_plan()?;
        Ok(export_plan(slots, actions, churn))
    }

    /// Uses another rank's plan from the next begin on, instead of one of its own. Slots whose buffers here do not allow
    /// what the plan says are served as after a repair.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (no planner, or a step is in progress), and those of [`import_plan`]; then
    /// nothing has changed. A begin then fails with `OutOfDeviceMemory` where this device's budget of shadows is too
    /// small for the plan, until there is room, or another plan is imported or [made](Self::replan).
    pub fn import_plan(&self, bytes: &[u8]) -> Result<()> {
        let mut engine = self.enter(Operation::Bind)?;
        let (actions, churn) = import_plan(&engine.slots, bytes)?;
        engine.adopt_plan(actions, churn)
    }

    /// True where costs decide, not a threshold.
    ///
    /// # Errors
    /// `Busy`.
    pub fn has_planner(&self) -> Result<bool> {
        Ok(self.enter(Operation::Query)?.planner.is_some())
    }

    /// The digest of the plan, to be compared with that of other ranks.
    ///
    /// # Errors
    /// As for [`export_plan`](Self::export_plan).
    pub fn plan_digest(&self) -> Result<u64> {
        Ok(self.enter(Operation::Bind)?.frozen_plan()?.2)
    }

    /// Checks that the plan has this digest, which another rank's has.
    ///
    /// # Errors
    /// `PlanMismatch`, and as for [`export_plan`](Self::export_plan).
    pub fn check_plan(&self, digest: u64) -> Result<()> {
        if self.plan_digest()? == digest { Ok(()) } else { Err(OTHER_PLAN) }
    }

    /// What a step costs by the plan as it is served, as predicted, and for each slot why.
    ///
    /// # Errors
    /// As for [`export_plan`](Self::export_plan).
    pub fn explain(&self) -> Result<(Price, Vec<Explanation>)> {
        self.enter(Operation::Query)?.explain()
    }

    /// Watches the next steps and makes a new plan from them. Until then the slots are served as they are.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (no planner).
    pub fn replan(&self) -> Result<()> {
        self.enter(Operation::Bind)?.replan()
    }
}

const WATCHED_STEPS: Error =
    Error::new(Kind::InvalidArgument, Operation::Bind, "watch 2 to 9 steps, or 0 for the default of 5");
const OTHER_PLAN: Error = Error::new(
    Kind::PlanMismatch,
    Operation::Bind,
    "another rank has another plan: export one rank's and import it on all",
);
