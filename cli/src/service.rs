//! How a run's slots are served: by a threshold, by the planner, or all in one way; and what that is said to cost.

use crate::copies::Copies;
use crate::executor::{Measured, StepCost, Tally, slots};
use crate::failure::{Context, Failure};
use crate::report::FIRST_COUNTED_STEP;
use crate::trace::Trace;
use clap::ValueEnum;
use gvmm::config;
use gvmm::driver::{Access, Capabilities};
use gvmm::error::Result;
use gvmm::rebind::profile::Profile;
use gvmm::rebind::{
    self, Action, Binding, BindingInfo, Churn, Commands, CopyPath, DEFAULT_WATCHED_STEPS, Explanation, Moves,
    Options, PlanOptions, Price, Rules, Situation, Slot, StepReport, Threshold,
};
use gvmm::vm::Device;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who decides how each slot is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PlanChoice {
    /// By size, as XLA does
    Threshold,
    /// The planner: by what each action costs, once the first steps were watched
    Auto,
    /// All slots are mapped
    Map,
    /// All slots are copied, the smallest first, as far as the budget of shadows goes; the others are mapped
    Copy,
    /// All slots are patched: the command buffer's addresses are changed
    Patch,
    /// The slots from this one on are copied, those before stay where they are.
    #[value(skip)]
    CopyFrom(usize),
}

/// How many slots a kernel uses unless told otherwise.
pub(crate) const PER_COMMAND: usize = 16;

/// How a run is to serve its slots.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) plan: PlanChoice,
    pub(crate) threshold: Threshold,
    /// None is the device's own.
    pub(crate) profile: Option<Profile>,
    pub(crate) copies: Copies,
    /// How many slots each kernel of a graph uses: 1 to 16.
    pub(crate) per_command: usize,
    /// Goes into every access list.
    pub(crate) access: Vec<Access>,
}

impl Serving {
    /// By size, with access for these devices.
    pub(crate) fn by_threshold(threshold: Threshold, access: &[Access]) -> Self {
        let (plan, copies) = (PlanChoice::Threshold, Copies::Around);
        Self { plan, threshold, profile: None, copies, per_command: PER_COMMAND, access: access.to_vec() }
    }

    /// The first step whose time counts, from 0: by then everything has settled, the planner's layout included.
    pub(crate) fn first_counted(&self) -> usize {
        match self.plan {
            PlanChoice::Auto => DEFAULT_WATCHED_STEPS as usize + 1,
            _ => FIRST_COUNTED_STEP,
        }
    }

    /// Who decides where `asked` says nothing and `threshold` neither.
    pub(crate) fn choice(asked: Option<PlanChoice>, threshold: Option<Threshold>) -> PlanChoice {
        let planned = config::get().plan_auto && threshold.is_none();
        asked.unwrap_or(if planned { PlanChoice::Auto } else { PlanChoice::Threshold })
    }

    fn rules(&self) -> Rules {
        let copies = if self.copies == Copies::Graph { CopyPath::Recorded } else { CopyPath::Launched };
        let peers = self.access.len().saturating_sub(1) as u32;
        Rules { host_hidden: false, copies, peers }
    }
}

/// What is said of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// None where no planner is asked.
    pub(crate) digest: Option<u64>,
    /// What a step costs; none where copies are made one by one, of which profiles say nothing.
    pub(crate) predicted: Option<Price>,
    /// Why each slot is served as it is.
    pub(crate) explained: Vec<Explanation>,
    /// How often the plan was made anew.
    pub(crate) replans: u64,
}

/// A binding, with what it was made of.
pub(crate) struct Service {
    pub(crate) binding: Binding,
    serving: Serving,
    device: Arc<Device>,
    slots: Vec<Slot>,
    churn: Churn,
    commands: Option<Commands>,
    replans: u64,
    /// What was to be said before the timed pass.
    said: Option<(BindingInfo, Told)>,
}

impl Service {
    /// `commands` are those that use each slot, where the executor can patch them.
    pub(crate) fn new(
        device: &Arc<Device>,
        trace: &Trace,
        serving: &Serving,
        commands: Option<Commands>,
    ) -> std::result::Result<Self, Failure> {
        let (slots, churn) = (slots(trace), churn(trace));
        let commands = commands.filter(|_| device.capabilities().has(Capabilities::PATCHES));
        let options = Options { threshold: serving.threshold, free: None, access: serving.access.clone() };
        let planned = |commands: &Option<Commands>| {
            let plan = PlanOptions {
                commands: commands.clone(),
                watched_steps: 0,
                profile: serving.profile.clone(),
                rules: serving.rules(),
            };
            Binding::planned(device, slots.clone(), options.clone(), plan).during("binding")
        };
        let forced = |actions: &[Action]| {
            let binding = planned(&commands)?;
            let bytes = rebind::export_plan(&slots, actions, &churn);
            binding.import_plan(&bytes).during("plan").map(|()| binding)
        };
        let binding = match serving.plan {
            PlanChoice::Threshold => {
                Binding::by_threshold(device, slots.clone(), options.clone()).during("binding")
            }
            PlanChoice::Auto => planned(&commands),
            PlanChoice::Map => forced(&vec![Action::MAP; slots.len()]),
            PlanChoice::Copy => forced(&copied(device, &slots)),
            PlanChoice::CopyFrom(first) => {
                let action = |i| if i < first { Action::BAKE } else { Action::COPY };
                forced(&(0..slots.len()).map(action).collect::<Vec<Action>>())
            }
            PlanChoice::Patch if commands.is_none() => {
                Err(Failure::new("--plan patch: this driver cannot patch a command buffer"))
            }
            PlanChoice::Patch => forced(&vec![Action::PATCH; slots.len()]),
        }?;
        let (device, serving) = (Arc::clone(device), serving.clone());
        Ok(Self { binding, serving, device, slots, churn, commands, replans: 0, said: None })
    }

    pub(crate) fn serving(&self) -> &Serving {
        &self.serving
    }

    /// Follows the advice to plan again, once a plan.
    pub(crate) fn follow(&mut self, begun: &StepReport) -> Result<()> {
        if self.serving.plan == PlanChoice::Auto && begun.replan_advised {
            self.binding.replan()?;
            self.replans += 1;
        }
        Ok(())
    }

    /// Takes as long as patching so many commands would, where the device simulates what calls cost.
    pub(crate) fn simulate_patches(&self, commands: u64) {
        if self.device.info().simulated_costs.is_none() {
            return;
        }
        let profile = self.profile();
        let picos = profile.patch.host.median.plus(profile.patch_command.host.median.times(commands)).0;
        let end = Instant::now() + Duration::from_nanos(picos / 1000);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }

    /// Notes what is to be said of the binding: the timed pass goes through its steps again.
    pub(crate) fn start_timing(&mut self) -> Result<()> {
        self.said = Some((self.binding.info()?, self.told()?));
        Ok(())
    }

    /// What all steps cost.
    pub(crate) fn finish(
        &mut self,
        steps: Vec<StepCost>,
        timed: Vec<StepCost>,
        tally: Tally,
    ) -> Result<Measured> {
        let (info, told) = match self.said.take() {
            Some(said) => said,
            None => (self.binding.info()?, self.told()?),
        };
        let (copies, first_counted) = (self.serving.copies, self.serving.first_counted());
        Ok(Measured { info, steps, timed, tally, told, copies, first_counted })
    }

    fn profile(&self) -> Arc<Profile> {
        let own = self.serving.profile.clone().map(Arc::new);
        own.unwrap_or_else(|| rebind::profile_of(&self.device))
    }

    /// What is to be said of the plan.
    pub(crate) fn told(&self) -> Result<Told> {
        let mut told = Told { replans: self.replans, ..Told::default() };
        if let Some(digest) = self.binding.info()?.plan.digest {
            let (price, explained) = self.binding.explain()?;
            (told.digest, told.predicted, told.explained) = (Some(digest), Some(price), explained);
        } else if !self.binding.has_planner()? {
            let mut actions = vec![Action::BAKE; self.slots.len()];
            self.binding.actions(&mut actions)?;
            (told.predicted, told.explained) = self.priced(&actions);
        }
        let joins = self.device.capabilities().has(Capabilities::JOINT_COPIES);
        told.predicted = told.predicted.filter(|_| joins);
        Ok(told)
    }

    /// What the actions of a binding without planner cost.
    fn priced(&self, actions: &[Action]) -> (Option<Price>, Vec<Explanation>) {
        let profile = self.profile();
        let maps = self.device.capabilities().has(Capabilities::VIRTUAL_MEMORY);
        let situation = Situation {
            slots: &self.slots,
            mappable: &vec![maps; self.slots.len()],
            commands: self.commands.as_ref(),
            churn: &self.churn,
            profile: &profile,
            rules: self.serving.rules(),
            granularity: self.device.granularity(),
            budget: rebind::shadow_budget(&self.device).limit,
        };
        (Some(rebind::price(&situation, actions)), rebind::explain(&situation, actions))
    }
}

/// The smallest slots that the budget has room for are copied, the others mapped.
fn copied(device: &Device, slots: &[Slot]) -> Vec<Action> {
    let budget = rebind::shadow_budget(device);
    let mut room = budget.limit.checked_sub(budget.booked).unwrap_or_default();
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|&i| slots[i].bytes);
    let mut actions = vec![Action::MAP; slots.len()];
    for i in order {
        let Some(left) = room.checked_sub(slots[i].bytes) else { break };
        (actions[i], room) = (Action::COPY, left);
    }
    actions
}

/// When each slot moves in the steps that a planner watches.
pub(crate) fn churn(trace: &Trace) -> Churn {
    let watched = &trace.steps[..trace.steps.len().min(DEFAULT_WATCHED_STEPS as usize)];
    let moves = |i: usize| {
        let pairs = watched.windows(2).enumerate();
        Moves(pairs.fold(0, |bits, (step, pair)| bits | u8::from(pair[0][i] != pair[1][i]) << step))
    };
    Churn::new((0..trace.slots.len()).map(moves).collect(), watched.len().saturating_sub(1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{CostChoice, Joint, open_device};
    use gvmm::driver::DriverKind;
    use gvmm::units::ByteSize;

    #[test]
    fn churn_is_what_moves_in_the_first_five_steps() {
        let slot = crate::trace::Slot { name: "s".into(), bytes: 8, is_in: true, is_out: false };
        let steps =
            [[1, 1, 1], [2, 1, 1], [1, 1, 1], [2, 1, 2], [1, 1, 2], [1, 7, 2]].map(Vec::from).to_vec();
        let trace = Trace { name: "t".into(), slots: vec![slot.clone(), slot.clone(), slot], steps };
        let seen = churn(&trace);
        assert_eq!((seen.moves(), seen.steps()), (&[Moves(0b1111), Moves(0), Moves(0b0100)][..], 4));
        let one = Trace { steps: trace.steps[..1].to_vec(), ..trace };
        assert_eq!((churn(&one).moves(), churn(&one).steps()), (&[Moves(0); 3][..], 0));
    }

    #[test]
    fn the_smallest_slots_are_copied_until_the_budget_is_spent() {
        let device =
            open_device(Some(DriverKind::HOST), CostChoice::None, 0, Joint::On).expect("the host driver");
        rebind::set_shadow_budget(&device, ByteSize(100));
        let slots: Vec<Slot> = [60, 50, 40, 200].map(|bytes| Slot::new(ByteSize(bytes))).to_vec();
        let expected = [Action::MAP, Action::COPY, Action::COPY, Action::MAP];
        assert_eq!(copied(&device, &slots), expected);
    }
}
