//! What a step with a remap, and a slot that changed, cost beside the driver's own calls: made-up recordings, run in
//! turn with ones in which nothing moves.

use super::figures::figure;
use super::options::ProfileOptions;
use super::profile::Missing;
use super::spread::median;
use super::steps::start;
use crate::executor::{Run, StepCost, in_step, time};
use crate::failure::{Context, Failure};
use crate::report::FIRST_COUNTED_STEP;
use crate::service::Serving;
use crate::setup::{self, CostChoice, Joint};
use crate::trace::{Slot, Trace};
use gvmm::driver::Capabilities;
use gvmm::rebind::Threshold;
use gvmm::rebind::profile::Profile;
use gvmm::vm::Device;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const STEPS: usize = 40;
/// Slots that are mapped, of which one moves.
const MAPPED: usize = 8;
/// Slots that are copied, all of which move.
const COPIED: usize = 256;
const COPIED_BYTES: u64 = 4096;

/// Inputs of 4 KiB, and behind them as many of 2 MiB, of each the first so many with another buffer in every step.
fn recording(name: &str, small: (usize, usize), large: (usize, usize)) -> Trace {
    let all = small.0 + large.0;
    let bytes = |i: usize| if i < small.0 { COPIED_BYTES } else { 2 * MIB };
    let slot = |i: usize| Slot { name: i.to_string(), bytes: bytes(i), is_in: true, is_out: false };
    let moves = |i: usize| i < small.1 || (small.0..small.0 + large.1).contains(&i);
    let buffer = |step: usize, i: usize| (2 * i + if moves(i) { step % 2 } else { 0 }) as u64;
    Trace {
        name: name.into(),
        slots: (0..all).map(slot).collect(),
        steps: (0..STEPS).map(|step| (0..all).map(|i| buffer(step, i)).collect()).collect(),
    }
}

/// Medians of a recording's steps, in µs.
#[derive(Clone, Copy)]
struct Step {
    /// In driver calls.
    driver: f64,
    /// Of begin and end, outside of them.
    outside: f64,
}

impl Step {
    fn of(costs: &[StepCost]) -> Self {
        let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
        let driver = |cost: &StepCost| us(cost.begun.driver_time + cost.ended.driver_time);
        let counted = costs.get(FIRST_COUNTED_STEP..).unwrap_or_default();
        let middle = |of: &dyn Fn(&StepCost) -> f64| median(counted.iter().map(of).collect()).unwrap_or(0.0);
        Self { driver: middle(&driver), outside: middle(&|cost| us(cost.time) - driver(cost)) }
    }
}

pub(super) fn measure(
    profile: &mut Profile,
    options: &ProfileOptions,
    missing: &mut Missing,
) -> Result<(), Failure> {
    const NAMES: [&str; 3] = ["remap", "remap_wait", "changed_slot"];
    let costs = CostChoice::read(options.costs.as_deref())?;
    let Ok(device) = setup::open_device(options.driver.kind(), costs, 0, Joint::On) else {
        missing.extend(NAMES);
        return Ok(());
    };
    let threshold = Threshold(COPIED_BYTES);
    let copied = |moving| (recording("copied", (COPIED, moving), (0, 0)), threshold);
    let [rest, moved] = in_turn(&device, [copied(0), copied(COPIED)], true)?;
    profile.changed_slot = figure((moved.outside - rest.outside) / COPIED as f64, 0.0);
    if !device.capabilities().has(Capabilities::VIRTUAL_MEMORY) {
        missing.extend(&NAMES[..2]);
        return Ok(());
    }
    // Beside copies, which are slower after a remap; one by one, since in a timed pass each waits for the step before.
    let mapped = |moving| (recording("mapped", (COPIED, COPIED), (MAPPED, moving)), threshold);
    let [rest, moved] = in_turn(&device, [mapped(0), mapped(1)], false)?;
    let calls = [profile.unmap.at(2 * MIB), profile.map.at(2 * MIB), profile.set_access.at(2 * MIB)];
    let own: f64 = calls.iter().map(|time| time.0 as f64 / 1e6).sum();
    profile.remap = figure(moved.driver - rest.driver - own, 0.0);
    profile.remap_wait = figure(moved.outside - rest.outside, 0.0);
    Ok(())
}

/// Both, step by step in turn, and then each in a timed pass where that is what counts.
fn in_turn(device: &Arc<Device>, pair: [(Trace, Threshold); 2], timed: bool) -> Result<[Step; 2], Failure> {
    let [(first, first_threshold), (second, second_threshold)] = &pair;
    let mut runs: [(&Trace, Box<dyn Run + '_>, Vec<StepCost>); 2] = [
        (first, start(device, first, &Serving::by_threshold(*first_threshold, &[]))?, Vec::new()),
        (second, start(device, second, &Serving::by_threshold(*second_threshold, &[]))?, Vec::new()),
    ];
    for step in 0..STEPS {
        for (trace, run, costs) in &mut runs {
            costs.push(run.run_step(step).map_err(|error| in_step(trace, step, error))?);
        }
    }
    let mut steps = runs.each_ref().map(|(_, _, costs)| Step::of(costs));
    if timed {
        for ((trace, run, _), step) in runs.iter_mut().zip(&mut steps) {
            run.start_timing().during("timed pass")?;
            *step = Step::of(&time(run.as_mut(), trace, 0..STEPS)?);
        }
    }
    for (trace, run, costs) in runs {
        let tally = run.finish(costs, Vec::new()).during("binding")?.tally;
        if let Some(first) = tally.first_mismatch {
            return Err(Failure::new(format!(
                "{}: {} slots were wrong, the first in {first}",
                trace.name, tally.mismatches
            )));
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_made_up_recordings_so_many_buffers_change() {
        let trace = recording("r", (3, 1), (2, 1));
        let changed =
            trace.steps.windows(2).map(|pair| pair[0].iter().zip(&pair[1]).filter(|(a, b)| a != b).count());
        assert!(trace.steps.len() == STEPS && changed.min() == Some(2));
        let mut buffers = trace.steps[1].clone();
        buffers.dedup();
        assert_eq!(buffers.len(), 5, "no buffer is shared");
    }
}
