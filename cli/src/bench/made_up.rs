//! Made-up steps that differ in one thing: how slots are served, how many, how large. Each kind is run and timed as
//! `gvmm bench steps` runs and times recordings, in quiet moments as far as those can be had.

use super::quiet::{Calm, Quiet, Reference};
use super::spread::median;
use super::steps::start;
use crate::copies::Copies;
use crate::executor::{StepCost, in_step, time};
use crate::failure::{Context, Failure};
use crate::service::{PlanChoice, Serving};
use crate::trace::{Slot, Trace};
use gvmm::rebind::Threshold;
use gvmm::vm::Device;
use std::sync::Arc;

pub(super) const MIB: u64 = 1 << 20;
/// Steps whose data is checked, and steps of each round that is timed.
const CHECKED: usize = 6;
const STEPS: usize = 24;
/// How many times as many rounds as count may be made.
const MOST_ROUNDS: usize = 8;
pub(super) const SMALL: u64 = 4096;

/// A recording, and how its slots are served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// So many slots, of 4 KiB as a rule, and how many of them have another buffer in every step.
    pub(super) small: (usize, usize),
    /// The same of slots of 2 MiB as a rule, behind them.
    pub(super) large: (usize, usize),
    /// Their sizes.
    pub(super) bytes: [u64; 2],
    /// They are read; else they are written.
    pub(super) is_in: bool,
    pub(super) plan: PlanChoice,
    /// Up to which size slots are copied where the plan goes by that.
    pub(super) threshold: Threshold,
    pub(super) copies: Copies,
    pub(super) per_command: usize,
}

/// Slots of 4 KiB that are copied by each step.
pub(super) const COPIED: Kind = Kind {
    small: (256, 0),
    large: (0, 0),
    bytes: [SMALL, 2 * MIB],
    is_in: true,
    plan: PlanChoice::Threshold,
    threshold: Threshold(SMALL),
    copies: Copies::Around,
    per_command: 2,
};

impl Kind {
    /// Those of 4 KiB lie far apart, those of 2 MiB are the first.
    fn moves(&self, i: usize) -> bool {
        let (small, large) = (self.small, self.large);
        if i < small.0 { i * small.1 % small.0 < small.1 } else { i < small.0 + large.1 }
    }

    /// How many commands have one slot that moves, and how many have more.
    pub(super) fn commands(&self) -> [usize; 2] {
        let moves: Vec<bool> = (0..self.small.0).map(|i| self.moves(i)).collect();
        let moving = moves.chunks(self.per_command).map(|slots| slots.iter().filter(|&&moves| moves).count());
        let moving: Vec<usize> = moving.collect();
        let count = |of: fn(&usize) -> bool| moving.iter().filter(|slots| of(slots)).count();
        [count(|&slots| slots == 1), count(|&slots| slots > 1)]
    }

    fn trace(&self) -> Trace {
        let (small, large) = (self.small, self.large);
        let all = small.0 + large.0;
        let bytes = |i: usize| self.bytes[usize::from(i >= small.0)];
        let slot =
            |i: usize| Slot { name: i.to_string(), bytes: bytes(i), is_in: self.is_in, is_out: !self.is_in };
        let moves = |i: usize| self.moves(i);
        let buffer = |step: usize, i: usize| (2 * i + if moves(i) { step % 2 } else { 0 }) as u64;
        Trace {
            name: format!("{} and {} slots", small.0, large.0),
            slots: (0..all).map(slot).collect(),
            steps: (0..STEPS).map(|step| (0..all).map(|i| buffer(step, i)).collect()).collect(),
        }
    }

    fn serving(&self) -> Serving {
        let Self { plan, copies, per_command, threshold, .. } = *self;
        Serving { plan, copies, per_command, ..Serving::by_threshold(threshold, &[]) }
    }
}

/// Medians of a recording's timed steps, in µs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    /// Of begin, patches and end.
    pub(super) host: f64,
    /// Of that in driver calls.
    pub(super) driver: f64,
    /// What they add on the GPU; none on the host driver.
    pub(super) gpu: Option<f64>,
}

impl Step {
    fn of(costs: &[StepCost]) -> Self {
        let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
        let driver = |cost: &StepCost| us(cost.begun.driver_time + cost.ended.driver_time);
        let middle = |of: &dyn Fn(&StepCost) -> f64| median(costs.iter().map(of).collect()).unwrap_or(0.0);
        let gpu = costs.iter().filter_map(|cost| cost.gpu.map(|gpu| gpu.whole_us - gpu.graph_us));
        Self { host: middle(&|cost| us(cost.time)), driver: middle(&driver), gpu: median(gpu.collect()) }
    }
}

/// Runs and times one kind of steps, in quiet rounds as far as that can be had.
pub(super) fn run(
    device: &Arc<Device>,
    kind: &Kind,
    rounds: u32,
    calm: &mut Calmly<'_>,
) -> Result<Step, Failure> {
    let trace = kind.trace();
    let mut run = start(device, &trace, &kind.serving())?;
    let mut checked = Vec::new();
    for step in 0..CHECKED {
        checked.push(run.run_step(step).map_err(|error| in_step(&trace, step, error))?);
    }
    run.start_timing().during("timed pass")?;
    let mut rounds_of_steps = Vec::new();
    let wanted = rounds as usize;
    let (kept, Calm { kept_us, .. }) = calm.quiet.rounds((wanted, MOST_ROUNDS * wanted), |_| {
        calm.reference.sample()?;
        rounds_of_steps.push(time(run.as_mut(), &trace, 0..STEPS)?);
        calm.reference.sample()?;
        Ok::<f64, Failure>(calm.reference.taken())
    })?;
    calm.kept_us.extend(kept_us);
    let timed: Vec<StepCost> =
        kept.into_iter().flat_map(|round| std::mem::take(&mut rounds_of_steps[round])).collect();
    let step = Step::of(&timed);
    let tally = run.finish(checked, Vec::new()).during("binding")?.tally;
    match tally.first_mismatch {
        Some(first) => {
            let wrong = tally.mismatches;
            Err(Failure::new(format!("{}: {wrong} slots were wrong, the first in {first}", trace.name)))
        }
        None => Ok(step),
    }
}

/// The reference beside what is measured.
pub(super) struct Calmly<'a> {
    pub(super) reference: Reference<'a>,
    pub(super) quiet: Quiet,
    /// In the rounds that count.
    pub(super) kept_us: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_made_up_recordings_so_many_buffers_change() {
        let kind = Kind { small: (512, 20), ..COPIED };
        assert_eq!((kind.commands(), (0..512).filter(|&i| kind.moves(i)).count()), ([20, 0], 20));
        assert_eq!(Kind { small: (512, 512), ..COPIED }.commands(), [0, 256]);
        let trace = Kind { small: (3, 1), large: (2, 1), ..COPIED }.trace();
        let changed =
            trace.steps.windows(2).map(|pair| pair[0].iter().zip(&pair[1]).filter(|(a, b)| a != b).count());
        assert!(trace.steps.len() == STEPS && changed.min() == Some(2));
        let mut buffers = trace.steps[1].clone();
        buffers.dedup();
        assert_eq!(buffers.len(), 5, "no buffer is shared");
    }
}
