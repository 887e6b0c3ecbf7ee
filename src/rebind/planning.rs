//! The planner's part of a binding: watches its first steps, freezes a plan, repairs what the plan did not foresee.

mod repair;

pub(super) use repair::Chance;

use super::buffers::Buffer;
use super::churn::{Churn, DEFAULT_WATCHED_STEPS, Moves, Watch};
use super::cost::{CopyPath, Rules};
use super::engine::Engine;
use super::exchange::plan_digest;
use super::layout::Layout;
use super::planner::{Commands, Explanation, Situation, SlotPlan, explain, plan, price};
use super::profile::Profile;
use super::profile_file::profile_of;
use super::shadow::{Arena, Booking};
use super::slot::{Action, Slot, SlotFlags};
use crate::driver::{Access, Capabilities};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::Device;
use repair::shadows;
use std::sync::Arc;

/// How a binding asks for the planner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlanOptions {
    /// The commands that use each slot; none where the executor cannot patch. They do not count on a device without
    /// [`PATCHES`](Capabilities::PATCHES).
    pub commands: Option<Commands>,
    /// How many steps to watch before the plan is frozen, 2 to [`MOST_WATCHED_STEPS`](super::MOST_WATCHED_STEPS); 0
    /// is [`DEFAULT_WATCHED_STEPS`].
    pub watched_steps: u32,
    /// What everything costs; none is what [`profile_of`] says.
    pub profile: Option<Profile>,
    /// How the joint copies get to the device, and whether host time is hidden. The peers are counted from the
    /// binding's access list.
    pub rules: Rules,
}

/// One address in one command that must be changed before the command buffer is launched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patch {
    /// The slot.
    pub slot: u32,
    /// The command that uses it, by the caller's number.
    pub command: u32,
    /// The slot's address from now on.
    pub address: DevicePtr,
}

/// What a planner tells of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlanInfo {
    /// The plan's digest; none while steps are watched.
    pub digest: Option<u64>,
    /// Slots that moved since the plan was made although it has them stay, each time counted.
    pub surprises: u64,
    /// True where those are so frequent that planning again may pay.
    pub replan_advised: bool,
}

/// What a binding with a planner knows.
#[derive(Debug)]
pub(super) struct Planner {
    commands: Option<Commands>,
    profile: Arc<Profile>,
    rules: Rules,
    watched_steps: u32,
    watch: Watch,
    /// Which slots could be mapped at the last layout.
    mappable: Vec<bool>,
    /// What the plan was made for.
    churn: Churn,
    /// The plan: what digests and exports are about.
    frozen: Option<Vec<Action>>,
    /// Of that plan.
    digest: u64,
    /// The plan with its repairs.
    current: Option<Vec<Action>>,
    /// True where no layout serves `current` yet.
    due: bool,
    /// What it needs beyond the layout in force, kept until then: others would book it meanwhile.
    kept: Option<Booking>,
    /// Steps since the plan was frozen.
    steps: u64,
    /// Slots in those steps that moved although the plan has them stay.
    surprises: u64,
    patches: Vec<Patch>,
    /// Slots whose patches an aborted step may not have made.
    owed: Vec<u32>,
}

/// From how many surprises on planning again is advised, if there was one in so many steps.
const SURPRISES: u64 = 2;
const FREQUENT: u64 = 8;

impl Planner {
    pub(super) fn new(device: &Device, slots: &[Slot], access: &[Access], options: PlanOptions) -> Self {
        let watched_steps = match options.watched_steps {
            0 => DEFAULT_WATCHED_STEPS,
            steps => steps,
        };
        let joins = device.capabilities().has(Capabilities::JOINT_COPIES);
        let copies = match options.rules.copies {
            CopyPath::Launched if !joins => CopyPath::OneByOne,
            copies => copies,
        };
        let peers = access.iter().filter(|access| access.device != device.ordinal()).count();
        Self {
            commands: options.commands.filter(|_| device.capabilities().has(Capabilities::PATCHES)),
            profile: options.profile.map_or_else(|| profile_of(device), Arc::new),
            rules: Rules { copies, peers: u32::try_from(peers).unwrap_or(u32::MAX), ..options.rules },
            watched_steps,
            watch: Watch::new(slots.len(), watched_steps),
            mappable: vec![false; slots.len()],
            churn: Churn::new(vec![Moves::NEVER; slots.len()], 0),
            frozen: None,
            digest: 0,
            current: None,
            due: false,
            kept: None,
            steps: 0,
            surprises: 0,
            patches: Vec::new(),
            owed: Vec::new(),
        }
    }

    /// True where the watched steps are over and nothing was decided from them.
    const fn is_ripe(&self) -> bool {
        self.watch.is_over() && !self.is_frozen()
    }

    /// True where there is a plan that nobody asked to make anew.
    const fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Notes a step that began.
    pub(super) const fn begun(&mut self) {
        self.steps += 1;
    }

    /// Notes a step that has ended; one that was aborted is tried again, and would be watched twice.
    pub(super) fn ended(&mut self, served: &[Buffer]) {
        self.watch.note(|i| served[i]);
    }

    /// Notes the windows that a step mapped anew.
    pub(super) fn note_moves(&mut self, slots: impl Iterator<Item = usize>) {
        if self.is_frozen() {
            self.surprises += slots.filter(|&i| self.churn.moves()[i] == Moves::NEVER).count() as u64;
        }
    }

    /// Notes a layout that is in force.
    fn laid_out(&mut self, actions: &[Action], mappable: &[bool]) {
        self.mappable.copy_from_slice(mappable);
        self.patches.clear();
        self.owed.clear();
        if let Some(current) = &mut self.current {
            current.copy_from_slice(actions);
            (self.due, self.kept) = (false, None);
        }
    }

    /// Forgets the patches of the step before, but not those that are owed.
    pub(super) fn forget_patches(&mut self) {
        self.patches.clear();
    }

    /// The same for a step that starts, which lists what is owed.
    pub(super) fn start_patches(&mut self) -> Vec<u32> {
        self.patches.clear();
        std::mem::take(&mut self.owed)
    }

    /// Takes the emptied list back: a step allocates nothing.
    pub(super) fn listed(&mut self, mut slots: Vec<u32>) {
        slots.clear();
        self.owed = slots;
    }

    /// Lists a slot's patches.
    pub(super) fn patch(&mut self, slot: u32, address: DevicePtr) {
        let commands = self.commands.as_ref().map(|commands| commands.of(slot as usize)).unwrap_or_default();
        self.patches.extend(commands.iter().map(|&command| Patch { slot, command, address }));
    }

    /// The step is no step, and what it listed may not have been done.
    pub(super) fn aborted(&mut self) {
        self.steps = self.steps.saturating_sub(1);
        self.owed = self.patches.iter().map(|patch| patch.slot).collect();
        self.owed.dedup();
    }

    pub(super) fn patches(&self) -> &[Patch] {
        &self.patches
    }

    /// True where what the plan did not foresee happens often; not while steps are watched for another one.
    pub(super) const fn advises(&self) -> bool {
        self.is_frozen() && self.surprises >= SURPRISES && self.surprises * FREQUENT >= self.steps
    }

    pub(super) fn info(&self) -> PlanInfo {
        PlanInfo {
            digest: self.frozen.as_ref().map(|_| self.digest),
            surprises: self.surprises,
            replan_advised: self.advises(),
        }
    }

    fn situation<'a>(
        &'a self,
        device: &Device,
        slots: &'a [Slot],
        churn: &'a Churn,
        budget: ByteSize,
    ) -> Situation<'a> {
        Situation {
            slots,
            mappable: &self.mappable,
            commands: self.commands.as_ref(),
            churn,
            profile: &self.profile,
            rules: self.rules,
            granularity: device.granularity(),
            budget,
        }
    }

    /// True where the executor can patch slot `i`, and only another address is in the way.
    fn patches_slot(&self, slot: &Slot, i: usize) -> bool {
        let registered = slot.flags.has(SlotFlags::REGISTERED);
        !registered && self.commands.as_ref().is_some_and(|commands| !commands.of(i).is_empty())
    }
}

impl Engine {
    /// No step began, so there is nothing to patch for it.
    pub(super) fn forget_patches(&mut self) {
        if let Some(planner) = &mut self.planner {
            planner.forget_patches();
        }
    }

    /// Makes the plan, once the watched steps are over.
    fn freeze(&mut self) {
        if !self.planner.as_ref().is_some_and(Planner::is_ripe) {
            return;
        }
        let budget = self.shadow_room();
        let Some(planner) = &mut self.planner else { return };
        planner.churn = planner.watch.churn();
        let situation = planner.situation(&self.device, &self.slots, &planner.churn, budget);
        let SlotPlan { actions, .. } = plan(&situation);
        let own = self.booking.as_ref().map(Booking::bytes).unwrap_or_default();
        let bytes = ByteSize(shadows(&self.slots, &actions));
        // Somebody else was quicker: the next call plans with what is left.
        let Some(kept) = Arena::of(&self.device).book_more(&self.device, own, bytes) else { return };
        planner.adopt(&self.slots, actions);
        planner.kept = Some(kept);
    }

    /// Makes `actions`, which were chosen for `churn`, the plan.
    pub(super) fn adopt_plan(&mut self, actions: Vec<Action>, churn: Churn) -> Result<()> {
        if self.step.is_some() {
            return Err(IN_STEP);
        }
        let planner = self.planner.as_mut().ok_or(NO_PLANNER)?;
        planner.churn = churn;
        planner.adopt(&self.slots, actions);
        Ok(())
    }

    /// Makes the plan anew from the steps to come. One that no layout serves yet is given up: it may be one that none can
    /// serve here.
    pub(super) fn replan(&mut self) -> Result<()> {
        let slots = self.slots.len();
        let planner = self.planner.as_mut().ok_or(NO_PLANNER)?;
        if std::mem::take(&mut planner.due) {
            let actions = |layout: &Layout| layout.places.iter().map(|place| place.action).collect();
            planner.current = self.layout.as_ref().map(actions);
            planner.kept = None;
        }
        planner.watch = Watch::new(slots, planner.watched_steps);
        planner.frozen = None;
        Ok(())
    }

    /// The plan, once there is one, with its digest and the churn that it was made for.
    pub(super) fn frozen_plan(&mut self) -> Result<(&[Slot], &[Action], u64, &Churn)> {
        self.freeze();
        let planner = self.planner.as_ref().ok_or(NO_PLANNER)?;
        let actions = planner.frozen.as_ref().ok_or(TOO_EARLY)?;
        Ok((&self.slots, actions, planner.digest, &planner.churn))
    }

    /// Why each slot is served as it is.
    pub(super) fn explain(&mut self) -> Result<(super::Price, Vec<Explanation>)> {
        self.freeze();
        let budget = self.shadow_room();
        let planner = self.planner.as_ref().ok_or(NO_PLANNER)?;
        let current = planner.current.as_ref().ok_or(TOO_EARLY)?;
        let situation = planner.situation(&self.device, &self.slots, &planner.churn, budget);
        Ok((price(&situation, current), explain(&situation, current)))
    }

    /// The bytes of shadows that this binding may have: what others have not booked.
    fn shadow_room(&self) -> ByteSize {
        Arena::of(&self.device).room(&self.device, self.booked())
    }

    /// The bytes of shadows that this binding has booked.
    fn booked(&self) -> ByteSize {
        let kept = self.planner.as_ref().and_then(|planner| planner.kept.as_ref());
        let all = self.booking.iter().chain(kept).map(Booking::bytes);
        all.fold(ByteSize::ZERO, |sum, bytes| sum.checked_add(bytes).unwrap_or(sum))
    }

    /// True where a plan waits for its layout and the one in force cannot be kept for it. One is kept where every slot
    /// stays where it is: then only who changes an address is another, who must be able to.
    fn plan_needs_layout(&mut self) -> bool {
        let Some(planner) = self.planner.as_mut().filter(|planner| planner.due) else { return false };
        let (Some(current), Some(layout)) = (&planner.current, &mut self.layout) else { return true };
        let own = |action: Action| action == Action::BAKE || action == Action::PATCH;
        let stays = |i: usize, (here, action): (Action, Action)| {
            here == action
                || own(here) && action == Action::BAKE
                || own(here) && action == Action::PATCH && planner.patches_slot(&self.slots[i], i)
        };
        let mut pairs =
            layout.places.iter().map(|place| place.action).zip(current.iter().copied()).enumerate();
        if !pairs.all(|(i, pair)| stays(i, pair)) {
            return true;
        }
        layout.places.iter_mut().zip(current).for_each(|(place, &action)| place.action = action);
        (planner.due, planner.kept) = (false, None);
        false
    }

    /// Notes a layout that came into force, and the slots that it serves otherwise than the one before since they moved.
    pub(super) fn note_layout(&mut self, actions: &[Action], mappable: &[bool]) {
        let Some(planner) = &mut self.planner else { return };
        if let Some(current) = planner.current.as_ref().filter(|_| !planner.due) {
            planner.surprises += current.iter().zip(actions).filter(|(a, b)| a != b).count() as u64;
        }
        planner.laid_out(actions, mappable);
    }

    /// Makes the plan if it is time; says whether a layout must be made for it.
    pub(super) fn plan_is_due(&mut self) -> bool {
        self.freeze();
        self.plan_needs_layout()
    }
}

impl Planner {
    fn adopt(&mut self, slots: &[Slot], actions: Vec<Action>) {
        self.digest = plan_digest(slots, &actions);
        self.current = Some(actions.clone());
        self.frozen = Some(actions);
        (self.due, self.steps, self.surprises, self.kept) = (true, 0, 0, None);
    }
}

const IN_STEP: Error =
    Error::new(Kind::WrongState, Operation::Bind, "a step is in progress: end or abort it first");
const NO_PLANNER: Error = Error::new(
    Kind::WrongState,
    Operation::Bind,
    "this binding goes by a threshold: ask for the planner when it is made, or set GVMM_PLAN=auto",
);
const TOO_EARLY: Error =
    Error::new(Kind::WrongState, Operation::Bind, "there is no plan yet: run the watched steps first");
