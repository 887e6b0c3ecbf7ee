//! `gvmm bench steps`: the ways to serve slots side by side, in one process, step by step in turn.

use super::header::Header;
use super::kinds::{Kinds, Timed};
use super::options::StepsOptions;
use super::quiet::{Calm, Quiet, Reference, reference_trace};
use super::rivals::{Rival, with_ratios};
use super::spread::{Spread, median, round};
use super::{loads, progress_bar, save, table};
use crate::copies::Copies;
use crate::executor::{Executor, Measured, Run, StepCost, in_step, time};
use crate::failure::{Context, Failure};
use crate::report::{Report, us};
use crate::service::{PlanChoice, Serving};
use crate::setup::{self, CostChoice, Joint};
use crate::trace::{self, Trace};
use crate::{MISMATCH, cuda};
use gvmm::driver::{Capabilities, DriverKind};
use gvmm::rebind::profile::{Picos, Profile};
use gvmm::rebind::{Action, DEFAULT_WATCHED_STEPS, Explanation, Threshold, profile_of};
use gvmm::vm::Device;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Arc;

/// One way to serve slots.
struct Strategy {
    name: &'static str,
    plan: PlanChoice,
    joint: Joint,
    copies: Copies,
    rival: Rival,
}

const fn strategy(name: &'static str, plan: PlanChoice, rival: Rival) -> Strategy {
    Strategy { name, plan, joint: Joint::On, copies: Copies::Around, rival }
}

/// The strategy that the others are there for.
pub(super) const PLANNER: &str = "planner";

/// Every strategy that is compared. A new one is a line here, and in the table a row.
const STRATEGIES: [Strategy; 7] = [
    strategy("map all", PlanChoice::Map, Rival::Yes),
    strategy("copy all", PlanChoice::Copy, Rival::Yes),
    strategy("patch all", PlanChoice::Patch, Rival::Yes),
    strategy("XLA's rule", PlanChoice::Threshold, Rival::Joint),
    Strategy {
        joint: Joint::Off,
        ..strategy("XLA's rule, slot by slot", PlanChoice::Threshold, Rival::Apart)
    },
    strategy(PLANNER, PlanChoice::Auto, Rival::No),
    Strategy {
        copies: Copies::Graph,
        ..strategy("planner, copies in the graph", PlanChoice::Auto, Rival::No)
    },
];

#[derive(Serialize)]
pub(super) struct Comparison {
    #[serde(flatten)]
    pub(super) header: Header,
    pub(super) rounds: u32,
    pub(super) slots_per_command: u8,
    /// What the reference took at least, in µs: see [`Calm`].
    pub(super) reference_us: f64,
    /// What it took when the profile was measured; none where the profile does not say.
    pub(super) profile_reference_us: Option<f64>,
    pub(super) recordings: Vec<Recording>,
}

#[derive(Serialize)]
pub(super) struct Recording {
    pub(super) trace: String,
    pub(super) slots: usize,
    pub(super) bytes: u64,
    /// Slots that move in a step, as a mean.
    pub(super) moving: f64,
    /// Large slots that stay or rarely move, and many small ones.
    pub(super) mixed: bool,
    /// How far the graph alone lies apart, on the host driver how sure a median is; costs that differ by less are the same.
    pub(super) noise_us: f64,
    /// Whether the machine was quiet.
    pub(super) reference: Calm,
    pub(super) strategies: Vec<Outcome>,
}

/// One strategy's run of a recording.
struct Running<'a> {
    strategy: &'static Strategy,
    device: Arc<Device>,
    run: Box<dyn Run + 'a>,
    /// Of the steps whose data was checked.
    costs: Vec<StepCost>,
    /// By round.
    timed: Vec<Vec<StepCost>>,
}

/// What one strategy did with a recording.
#[derive(Serialize)]
pub(super) struct Outcome {
    pub(super) strategy: &'static str,
    /// Of begin and end, a step of the timed pass.
    pub(super) host_us: Spread,
    /// What they add on the GPU; None on the host driver.
    pub(super) gpu_us: Option<Spread>,
    /// The same where all data is written and checked, and the other strategies run, between two steps.
    pub(super) host_us_cold: Spread,
    pub(super) gpu_us_cold: Option<Spread>,
    /// The mean over the kinds of steps, of each the median.
    pub(super) host_mean_us: f64,
    pub(super) gpu_mean_us: Option<f64>,
    /// Host and GPU together.
    pub(super) cost_us: f64,
    /// How many times that of the best pure strategy.
    pub(super) ratio: f64,
    /// The same with XLA's rule as XLA has it among these: slot by slot, and not with joint copies.
    pub(super) ratio_slot_by_slot: f64,
    /// How far this strategy's graph alone lies apart.
    pub(super) noise_us: f64,
    /// True for those that `ratio` is to: all slots one way, or by size.
    pub(super) pure: bool,
    /// The same for either ratio.
    #[serde(skip)]
    pub(super) rival: Rival,
    /// True where the copies are in the command buffer.
    pub(super) recorded: bool,
    /// How each slot is served; baked where it never moves and costs nothing.
    #[serde(skip)]
    pub(super) served: Vec<Action>,
    pub(super) report: Report,
}

pub(super) fn run(options: &StepsOptions) -> Result<ExitCode, Failure> {
    let comparison = compare(options)?;
    if let Some(path) = &options.save {
        save(path, &comparison)?;
    }
    if options.json {
        crate::print(true, &comparison, table::steps)?;
    } else {
        crate::print(false, &comparison, |comparison| {
            table::steps(comparison) + &table::verdict(comparison)
        })?;
    }
    let outcomes = comparison.recordings.iter().flat_map(|recording| &recording.strategies);
    let wrong: u64 = outcomes.map(|outcome| outcome.report.mismatches).sum();
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::from(MISMATCH) })
}

/// A device with books and a budget of its own.
fn open(options: &StepsOptions, joint: Joint) -> Result<Arc<Device>, Failure> {
    let costs = CostChoice::read(options.costs.as_deref())?;
    let peers = setup::peers(options.costs.as_deref(), options.peers);
    setup::open_device(options.driver.kind(), costs, peers, joint)
}

fn compare(options: &StepsOptions) -> Result<Comparison, Failure> {
    let traces = options.traces.iter().map(|path| Ok((repeated(path)?, false)));
    let loads = loads::chosen(&options.loads).map(|load| Ok((load.trace(options.most), load.is_mixed())));
    let traces = traces.chain(loads).collect::<Result<Vec<(Trace, bool)>, Failure>>()?;
    if traces.is_empty() {
        return Err(Failure::new("nothing to run: name a recording, or --loads"));
    }
    let steps: usize = traces.iter().map(|(trace, _)| trace.steps.len()).sum();
    let bar = progress_bar((steps * STRATEGIES.len()) as u64, options.json);
    let device = open(options, Joint::On)?;
    let mut header =
        Header::new("gvmm bench steps", device.driver().as_ref(), device.ordinal()).during("device")?;
    let profile = options.profile.as_deref().map(|path| setup::profile(path, &device)).transpose()?;
    let peers = setup::peers(options.costs.as_deref(), options.peers);
    header.peers = (1..=peers).collect();
    let small = reference_trace();
    let mut reference = Reference::new(&device, &small)?;
    let mut quiet = reference.first()?;
    let mut recordings = Vec::new();
    for (trace, mixed) in &traces {
        bar.set_message(trace.name.clone());
        let recording =
            in_turn(options, trace, profile.as_ref(), (&mut reference, &mut quiet), || bar.inc(1))?;
        recordings.push(Recording { mixed: *mixed, ..recording });
    }
    bar.finish_and_clear();
    let (rounds, slots_per_command) = (options.rounds, options.slots_per_command);
    let in_force = profile.unwrap_or_else(|| (*profile_of(&device)).clone());
    let then = in_force.origin.reference.median;
    let profile_reference_us = (then > Picos::ZERO).then(|| us(then));
    let reference_us = quiet.least();
    Ok(Comparison { header, rounds, slots_per_command, reference_us, profile_reference_us, recordings })
}

/// A recording; a short one so often that it is there as a whole after the steps that are watched.
fn repeated(path: &str) -> Result<Trace, Failure> {
    let mut trace = trace::read(path)?;
    let once = std::mem::take(&mut trace.steps);
    let times = if once.len() < 2 * FIRST { FIRST.div_ceil(once.len().max(1)) + 1 } else { 1 };
    trace.steps = std::iter::repeat_n(once, times).flatten().collect();
    Ok(trace)
}

/// Every step by every strategy before the next step, and each time another strategy first: what drifts hits all. Then
/// the timed pass in rounds, each in turn in the same way, with the reference before, between and after.
fn in_turn(
    options: &StepsOptions,
    trace: &Trace,
    profile: Option<&Profile>,
    (reference, quiet): (&mut Reference<'_>, &mut Quiet),
    progress: impl Fn(),
) -> Result<Recording, Failure> {
    let access = setup::access_list(setup::peers(options.costs.as_deref(), options.peers));
    let mut running = Vec::new();
    for strategy in &STRATEGIES {
        let Some(device) = able(options, strategy)? else { continue };
        let serving = Serving {
            plan: strategy.plan,
            threshold: Threshold::AUTO,
            profile: profile.cloned(),
            copies: strategy.copies,
            per_command: options.slots_per_command.into(),
            access: access.clone(),
        };
        let run = start(&device, trace, &serving)?;
        running.push(Running { strategy, device, run, costs: Vec::new(), timed: Vec::new() });
    }
    let count = running.len();
    for step in 0..trace.steps.len() {
        for turn in 0..count {
            let Running { run, costs, .. } = &mut running[(step + turn) % count];
            costs.push(run.run_step(step).map_err(|error| in_step(trace, step, error))?);
            progress();
        }
    }
    running.iter_mut().try_for_each(|running| running.run.start_timing().during("timed pass"))?;
    let last = trace.steps.len();
    let counted = FIRST.min(last - 1)..last;
    let wanted = options.rounds as usize;
    let (kept, calm) = quiet.rounds((wanted, 2 * wanted), |round| {
        reference.sample()?;
        for turn in 0..count {
            let Running { run, timed, .. } = &mut running[(round + turn) % count];
            timed.push(time(run.as_mut(), trace, counted.clone())?);
            reference.sample()?;
        }
        Ok::<f64, Failure>(reference.taken())
    })?;
    let kinds = Kinds::new(trace, counted);
    let outcomes = running.into_iter().map(|running| outcome(trace, running, &kinds, &kept));
    let outcomes = outcomes.collect::<Result<Vec<Outcome>, Failure>>()?;
    let noise_us = median(outcomes.iter().map(|outcome| outcome.noise_us).collect()).unwrap_or(0.0);
    Ok(Recording {
        trace: trace.name.clone(),
        slots: trace.slots.len(),
        bytes: trace.slots.iter().map(|slot| slot.bytes).sum(),
        moving: round(moving(trace)),
        mixed: false,
        noise_us,
        reference: calm,
        strategies: with_ratios(outcomes, noise_us),
    })
}

/// A device for a strategy; none where it is not for this driver.
fn able(options: &StepsOptions, strategy: &Strategy) -> Result<Option<Arc<Device>>, Failure> {
    let device = open(options, strategy.joint)?;
    let lacks = |capability| !device.capabilities().has(capability);
    let recorded = strategy.copies == Copies::Graph;
    let unable = strategy.plan == PlanChoice::Map && lacks(Capabilities::VIRTUAL_MEMORY)
        || recorded && lacks(Capabilities::ROUTES)
        || strategy.plan == PlanChoice::Patch && !can_patch(&device)?;
    Ok((!unable).then_some(device))
}

fn can_patch(device: &Device) -> Result<bool, Failure> {
    if device.driver().kind() == DriverKind::CUDA { cuda::can_patch().during("kernels") } else { Ok(true) }
}

/// How many slots have another buffer than in the step before, as a mean.
fn moving(trace: &Trace) -> f64 {
    let pairs = trace.steps.windows(2);
    let moved = pairs.map(|pair| pair[0].iter().zip(&pair[1]).filter(|(a, b)| a != b).count());
    moved.sum::<usize>() as f64 / (trace.steps.len() - 1).max(1) as f64
}

/// By the rounds that are `kept`.
fn outcome(trace: &Trace, running: Running<'_>, kinds: &Kinds, kept: &[usize]) -> Result<Outcome, Failure> {
    let Running { strategy, device, run, costs, timed } = running;
    let rounds = timed.into_iter().enumerate().filter(|(round, _)| kept.contains(round));
    let timed: Vec<StepCost> = rounds.flat_map(|(_, steps)| steps).collect();
    let of = Timed::of(&timed, kinds);
    let cold = Timed::of(costs.get(FIRST..).unwrap_or(&costs), kinds);
    let measured = run.finish(costs, timed).during("binding")?;
    let served = served(trace, &measured.told.explained);
    // The same steps for all.
    let measured = Measured { first_counted: FIRST, ..measured };
    let report = Report::new(trace, device.driver().kind().name(), device.info(), &measured);
    Ok(Outcome {
        strategy: strategy.name,
        host_us: of.host,
        gpu_us: of.gpu,
        host_us_cold: cold.host,
        gpu_us_cold: cold.gpu,
        host_mean_us: of.host_mean,
        gpu_mean_us: of.gpu_mean,
        cost_us: of.mean,
        ratio: 0.0,
        ratio_slot_by_slot: 0.0,
        noise_us: of.noise,
        pure: matches!(strategy.rival, Rival::Yes | Rival::Joint),
        rival: strategy.rival,
        recorded: strategy.copies == Copies::Graph,
        served,
        report,
    })
}

/// Each slot's action; a slot that never moves and is not copied makes no work, whatever its action.
fn served(trace: &Trace, explained: &[Explanation]) -> Vec<Action> {
    let stays = |slot: usize| trace.steps.windows(2).all(|pair| pair[0][slot] == pair[1][slot]);
    let actions = explained.iter().map(|explanation| explanation.action).enumerate();
    actions
        .map(|(slot, action)| if action != Action::COPY && stays(slot) { Action::BAKE } else { action })
        .collect()
}

pub(super) fn start<'a>(
    device: &Arc<Device>,
    trace: &'a Trace,
    serving: &Serving,
) -> Result<Box<dyn Run + 'a>, Failure> {
    if device.driver().kind() == DriverKind::CUDA {
        return Ok(Box::new(cuda::Executor::new(device, trace, serving)?));
    }
    Ok(Box::new(Executor::new(device, trace, serving)?))
}

/// The first step that counts, by which the planner has laid out its plan.
const FIRST: usize = DEFAULT_WATCHED_STEPS as usize + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Slot;
    use gvmm::rebind::profile::Picos;

    #[test]
    fn a_slot_that_stays_is_served_alike_by_all_but_copies() {
        let slot = Slot { name: "s".into(), bytes: 8, is_in: true, is_out: false };
        let steps = [[0, 2, 4], [1, 2, 4], [0, 2, 4]].map(Vec::from).to_vec();
        let trace = Trace { name: "t".into(), slots: vec![slot; 3], steps };
        let explained = |actions: [Action; 3]| {
            actions.map(|action| Explanation { action, cost: Picos::ZERO, next: None, moved: 0 })
        };
        let of = |actions| served(&trace, &explained(actions));
        assert_eq!(of([Action::PATCH; 3]), of([Action::PATCH, Action::BAKE, Action::MAP]));
        assert_ne!(of([Action::PATCH; 3]), of([Action::BAKE; 3]));
        assert_ne!(of([Action::COPY; 3]), of([Action::COPY, Action::BAKE, Action::COPY]));
    }
}
