//! `gvmm bench steps`: the ways to serve slots side by side, in one process, step by step in turn.

use super::header::Header;
use super::options::StepsOptions;
use super::spread::{Spread, round};
use super::{progress_bar, save, table};
use crate::executor::{Executor, Run, StepCost, in_step};
use crate::failure::{Context, Failure};
use crate::report::{FIRST_COUNTED_STEP, Report};
use crate::setup::{self, CostChoice, Joint};
use crate::trace::{self, Trace};
use crate::{MISMATCH, cuda};
use gvmm::driver::{Access, DriverKind};
use gvmm::rebind::Threshold;
use gvmm::vm::Device;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Arc;

/// One way to serve slots.
struct Strategy {
    name: &'static str,
    threshold: Threshold,
    joint: Joint,
}

/// Copies whatever the budget of shadows allows.
const ALL: Threshold = Threshold(Threshold::OFF.0 - 1);

/// Every strategy that is compared. A new one is a line here, and in the table a row.
const STRATEGIES: [Strategy; 4] = [
    Strategy { name: "remap all", threshold: Threshold::OFF, joint: Joint::On },
    Strategy { name: "XLA's rule, slot by slot", threshold: Threshold::AUTO, joint: Joint::Off },
    Strategy { name: "XLA's rule", threshold: Threshold::AUTO, joint: Joint::On },
    Strategy { name: "copy all", threshold: ALL, joint: Joint::On },
];

#[derive(Serialize)]
pub(super) struct Comparison {
    #[serde(flatten)]
    pub(super) header: Header,
    pub(super) rounds: u32,
    pub(super) recordings: Vec<Recording>,
}

#[derive(Serialize)]
pub(super) struct Recording {
    pub(super) trace: String,
    pub(super) slots: usize,
    pub(super) strategies: Vec<Outcome>,
}

/// What one strategy did with a recording.
#[derive(Serialize)]
pub(super) struct Outcome {
    pub(super) strategy: &'static str,
    /// Of begin and end, a step.
    pub(super) host_us: Spread,
    /// What they add on the GPU; None on the host driver.
    pub(super) gpu_us: Option<Spread>,
    /// Host and GPU together, and how often the cheapest strategy's.
    pub(super) cost_us: Spread,
    pub(super) ratio: f64,
    pub(super) report: Report,
}

pub(super) fn run(options: &StepsOptions) -> Result<ExitCode, Failure> {
    let comparison = compare(options)?;
    if let Some(path) = &options.save {
        save(path, &comparison)?;
    }
    crate::print(options.json, &comparison, table::steps)?;
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
    let traces = traces.collect::<Result<Vec<Trace>, Failure>>()?;
    let steps: usize = traces.iter().map(|trace| trace.steps.len()).sum();
    let bar = progress_bar((steps * STRATEGIES.len()) as u64, options.json);
    let device = open(options, Joint::On)?;
    let mut header =
        Header::new("gvmm bench steps", device.driver().as_ref(), device.ordinal()).during("device")?;
    let peers = setup::peers(options.costs.as_deref(), options.peers);
    header.peers = (1..=peers).collect();
    drop(device);
    let mut recordings = Vec::new();
    for trace in &traces {
        bar.set_message(trace.name.clone());
        recordings.push(in_turn(options, trace, &setup::access_list(peers), || bar.inc(1))?);
    }
    bar.finish_and_clear();
    Ok(Comparison { header, rounds: options.rounds, recordings })
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
    access: &[Access],
    progress: impl Fn(),
) -> Result<Recording, Failure> {
    let start = |strategy: &Strategy| {
        let device = open(options, strategy.joint)?;
        let run = start(&device, trace, strategy.threshold, access)?;
        Ok((device, run, Vec::new()))
    };
    let mut running = STRATEGIES.iter().map(start).collect::<Result<Vec<_>, Failure>>()?;
    for step in 0..trace.steps.len() {
        let count = running.len();
        for turn in 0..count {
            let (_, run, costs) = &mut running[(step + turn) % count];
            costs.push(run.run_step(step).map_err(|error| in_step(trace, step, error))?);
            progress();
        }
    }
    let outcomes = STRATEGIES.iter().zip(running);
    let outcomes =
        outcomes.map(|(strategy, (device, run, costs))| outcome(strategy, trace, &device, run, costs));
    let outcomes = outcomes.collect::<Result<Vec<Outcome>, Failure>>()?;
    Ok(Recording { trace: trace.name.clone(), slots: trace.slots.len(), strategies: with_ratios(outcomes) })
}

fn outcome(
    strategy: &Strategy,
    trace: &Trace,
    device: &Device,
    run: Box<dyn Run + '_>,
    costs: Vec<StepCost>,
) -> Result<Outcome, Failure> {
    let (host_us, gpu_us, cost_us) = spreads(&costs);
    let measured = run.finish(costs).during("binding")?;
    let report = Report::new(trace, device.driver().kind().name(), device.info(), &measured);
    Ok(Outcome { strategy: strategy.name, host_us, gpu_us, cost_us, ratio: 0.0, report })
}

pub(super) fn start<'a>(
    device: &Arc<Device>,
    trace: &'a Trace,
    threshold: Threshold,
    access: &[Access],
) -> Result<Box<dyn Run + 'a>, Failure> {
    if device.driver().kind() == DriverKind::CUDA {
        return Ok(Box::new(cuda::Executor::new(device, trace, threshold, access)?));
    }
    Ok(Box::new(Executor::new(device, trace, threshold, access)?))
}

/// Host, GPU and both together, over the steps that count.
fn spreads(costs: &[StepCost]) -> (Spread, Option<Spread>, Spread) {
    let costs = costs.get(FIRST_COUNTED_STEP..).filter(|counted| !counted.is_empty()).unwrap_or(costs);
    let host = |cost: &StepCost| cost.time.as_secs_f64() * 1e6;
    let gpu = |cost: &StepCost| cost.gpu.map(|time| time.whole_us - time.graph_us);
    let both = |cost: &StepCost| host(cost) + gpu(cost).unwrap_or(0.0);
    let all = |of: &dyn Fn(&StepCost) -> f64| Spread::of(costs.iter().map(of).collect()).unwrap_or_default();
    (all(&host), Spread::of(costs.iter().filter_map(gpu).collect()), all(&both))
}

fn with_ratios(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    let least = outcomes.iter().map(|outcome| outcome.cost_us.median).fold(f64::INFINITY, f64::min);
    for outcome in &mut outcomes {
        outcome.ratio = round(outcome.cost_us.median / least.max(1e-3));
    }
    outcomes
}
