//! `gvmm bench steps`: the ways to serve slots side by side, in one process, step by step in turn.

use super::header::Header;
use super::options::StepsOptions;
use super::spread::{Spread, round};
use super::{loads, progress_bar, save, table};
use crate::copies::Copies;
use crate::executor::{Executor, Measured, Run, StepCost, in_step, time};
use crate::failure::{Context, Failure};
use crate::report::Report;
use crate::service::{PlanChoice, Serving};
use crate::setup::{self, CostChoice, Joint};
use crate::trace::{self, Trace};
use crate::{MISMATCH, cuda};
use gvmm::driver::{Capabilities, DriverKind};
use gvmm::rebind::profile::Profile;
use gvmm::rebind::{DEFAULT_WATCHED_STEPS, Threshold};
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
    /// True for those that the planner is measured by.
    pure: bool,
}

const fn strategy(name: &'static str, plan: PlanChoice, pure: bool) -> Strategy {
    Strategy { name, plan, joint: Joint::On, copies: Copies::Step, pure }
}

/// The strategy that the others are there for.
pub(super) const PLANNER: &str = "planner";

/// Every strategy that is compared. A new one is a line here, and in the table a row.
const STRATEGIES: [Strategy; 7] = [
    strategy("map all", PlanChoice::Map, true),
    strategy("copy all", PlanChoice::Copy, true),
    strategy("patch all", PlanChoice::Patch, true),
    strategy("XLA's rule", PlanChoice::Threshold, true),
    Strategy { joint: Joint::Off, ..strategy("XLA's rule, slot by slot", PlanChoice::Threshold, false) },
    strategy(PLANNER, PlanChoice::Auto, false),
    Strategy { copies: Copies::Graph, ..strategy("planner, copies in the graph", PlanChoice::Auto, false) },
];

#[derive(Serialize)]
pub(super) struct Comparison {
    #[serde(flatten)]
    pub(super) header: Header,
    pub(super) rounds: u32,
    pub(super) slots_per_command: u8,
    pub(super) recordings: Vec<Recording>,
}

#[derive(Serialize)]
pub(super) struct Recording {
    pub(super) trace: String,
    pub(super) slots: usize,
    pub(super) bytes: u64,
    /// Slots that move in a step, as a mean.
    pub(super) moving: f64,
    pub(super) strategies: Vec<Outcome>,
}

/// One strategy's run of a recording.
struct Running<'a> {
    strategy: &'static Strategy,
    device: Arc<Device>,
    run: Box<dyn Run + 'a>,
    /// Of the steps whose data was checked.
    costs: Vec<StepCost>,
    timed: Vec<StepCost>,
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
    /// Host and GPU together, and how often that of the best pure strategy.
    pub(super) cost_us: Spread,
    pub(super) ratio: f64,
    /// True for those that the planner is measured by: all slots one way, or by size.
    pub(super) pure: bool,
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
    let traces = options.traces.iter().map(|path| repeated(path, options.rounds));
    let traces = traces.chain(loads::chosen(&options.loads).map(|load| Ok(load.trace(options.most))));
    let traces = traces.collect::<Result<Vec<Trace>, Failure>>()?;
    if traces.is_empty() {
        return Err(Failure::new("nothing to run: name a recording, or --loads"));
    }
    let steps: usize = traces.iter().map(|trace| trace.steps.len()).sum();
    let bar = progress_bar((steps * STRATEGIES.len()) as u64, options.json);
    let device = open(options, Joint::On)?;
    let mut header =
        Header::new("gvmm bench steps", device.driver().as_ref(), device.ordinal()).during("device")?;
    let profile = options.profile.as_deref().map(|path| setup::profile(path, &device)).transpose()?;
    let peers = setup::peers(options.costs.as_deref(), options.peers);
    header.peers = (1..=peers).collect();
    drop(device);
    let mut recordings = Vec::new();
    for trace in &traces {
        bar.set_message(trace.name.clone());
        recordings.push(in_turn(options, trace, profile.as_ref(), || bar.inc(1))?);
    }
    bar.finish_and_clear();
    let (rounds, slots_per_command) = (options.rounds, options.slots_per_command);
    Ok(Comparison { header, rounds, slots_per_command, recordings })
}

/// A recording as often as there are rounds.
fn repeated(path: &str, rounds: u32) -> Result<Trace, Failure> {
    let mut trace = trace::read(path)?;
    let once = std::mem::take(&mut trace.steps);
    trace.steps = std::iter::repeat_n(once, rounds as usize).flatten().collect();
    Ok(trace)
}

/// Every step by every strategy before the next step, and each time another strategy first: what drifts hits all.
fn in_turn(
    options: &StepsOptions,
    trace: &Trace,
    profile: Option<&Profile>,
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
    let (last, once) = (trace.steps.len(), trace.steps.len().div_ceil(options.rounds as usize));
    for (round, from) in (FIRST.min(last - 1)..last).step_by(once).enumerate() {
        for turn in 0..count {
            let Running { run, timed, .. } = &mut running[(round + turn) % count];
            timed.append(&mut time(run.as_mut(), trace, from..last.min(from + once))?);
        }
    }
    let outcomes = running.into_iter().map(|running| outcome(trace, running));
    let outcomes = outcomes.collect::<Result<Vec<Outcome>, Failure>>()?;
    Ok(Recording {
        trace: trace.name.clone(),
        slots: trace.slots.len(),
        bytes: trace.slots.iter().map(|slot| slot.bytes).sum(),
        moving: round(moving(trace)),
        strategies: with_ratios(outcomes),
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

fn outcome(trace: &Trace, running: Running<'_>) -> Result<Outcome, Failure> {
    let Running { strategy, device, run, costs, timed } = running;
    let (host_us, gpu_us, cost_us) = spreads(&timed);
    let (host_us_cold, gpu_us_cold, _) = spreads(costs.get(FIRST..).unwrap_or(&costs));
    let measured = run.finish(costs, timed).during("binding")?;
    // The same steps for all.
    let measured = Measured { first_counted: FIRST, ..measured };
    let report = Report::new(trace, device.driver().kind().name(), device.info(), &measured);
    let (strategy, pure) = (strategy.name, strategy.pure);
    Ok(Outcome { strategy, host_us, gpu_us, cost_us, host_us_cold, gpu_us_cold, ratio: 0.0, pure, report })
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

/// Host, GPU and both together.
fn spreads(costs: &[StepCost]) -> (Spread, Option<Spread>, Spread) {
    let host = |cost: &StepCost| cost.time.as_secs_f64() * 1e6;
    let gpu = |cost: &StepCost| cost.gpu.map(|time| time.whole_us - time.graph_us);
    let both = |cost: &StepCost| host(cost) + gpu(cost).unwrap_or(0.0);
    let all = |of: &dyn Fn(&StepCost) -> f64| Spread::of(costs.iter().map(of).collect()).unwrap_or_default();
    (all(&host), Spread::of(costs.iter().filter_map(gpu).collect()), all(&both))
}

fn with_ratios(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    let pure = outcomes.iter().filter(|outcome| outcome.pure);
    let least = pure.map(|outcome| outcome.cost_us.median).fold(f64::INFINITY, f64::min);
    for outcome in &mut outcomes {
        outcome.ratio = round(outcome.cost_us.median / least.max(1e-3));
    }
    outcomes
}
