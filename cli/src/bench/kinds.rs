//! Means of steps that are not all alike: steps in which the same slots move are of one kind.

use super::spread::{Spread, median, round};
use crate::executor::StepCost;
use crate::trace::Trace;
use std::ops::Range;

/// The kind of each timed step, by number; the steps are run over and over.
pub(super) struct Kinds(Vec<usize>);

impl Kinds {
    pub(super) fn new(trace: &Trace, timed: Range<usize>) -> Self {
        let before = |step: usize| if step == timed.start { timed.end - 1 } else { step - 1 };
        let moved = |step: usize| -> Vec<bool> {
            trace.steps[step].iter().zip(&trace.steps[before(step)]).map(|(a, b)| a != b).collect()
        };
        let mut known: Vec<Vec<bool>> = Vec::new();
        let number = |moved: Vec<bool>| {
            known.iter().position(|other| *other == moved).unwrap_or_else(|| {
                known.push(moved);
                known.len() - 1
            })
        };
        Self(timed.clone().map(moved).map(number).collect())
    }

    /// The mean over all steps, of each kind its median: a few steps that something disturbed do not count.
    fn mean(&self, us: &[f64]) -> f64 {
        let kinds = self.0.iter().copied().max().map_or(0, |most| most + 1);
        let mut of_kind = vec![Vec::new(); kinds];
        for (us, kind) in us.iter().zip(self.0.iter().cycle()) {
            of_kind[*kind].push(*us);
        }
        let sum: f64 = of_kind
            .into_iter()
            .filter_map(|us| {
                let count = us.len() as f64;
                median(us).map(|us| us * count)
            })
            .sum();
        round(sum / us.len().max(1) as f64)
    }
}

/// Host and GPU time of a strategy's timed steps, in µs.
pub(super) struct Timed {
    pub(super) host: Spread,
    pub(super) gpu: Option<Spread>,
    pub(super) host_mean: f64,
    pub(super) gpu_mean: Option<f64>,
    /// Both together.
    pub(super) mean: f64,
    /// How far the graph alone, its launch and its run, lies apart: from the first quartile to the third. Without a graph how
    /// sure the median of host times is.
    pub(super) noise: f64,
}

impl Timed {
    pub(super) fn of(steps: &[StepCost], kinds: &Kinds) -> Self {
        let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
        let host: Vec<f64> = steps.iter().map(|step| us(step.time)).collect();
        let gpu = steps.iter().filter_map(|step| step.gpu);
        let alone = gpu.clone().map(|gpu| gpu.graph_us + us(gpu.graph_host));
        let apart = |us: Vec<f64>| Spread::of(us).map_or(0.0, |us| round(us.q3 - us.q1));
        // Without a graph: medians are as sure as a box plot's notch is wide.
        let noise = match gpu.clone().next() {
            Some(_) => apart(alone.collect()),
            None => round(1.57 * apart(host.clone()) / (host.len().max(1) as f64).sqrt()),
        };
        let gpu: Vec<f64> = gpu.map(|gpu| gpu.whole_us - gpu.graph_us).collect();
        let gpu_mean = (!gpu.is_empty()).then(|| kinds.mean(&gpu));
        let host_mean = kinds.mean(&host);
        Self {
            host: Spread::of(host).unwrap_or_default(),
            gpu: Spread::of(gpu),
            host_mean,
            gpu_mean,
            mean: round(host_mean + gpu_mean.unwrap_or(0.0)),
            noise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Slot;

    #[test]
    fn a_mean_is_of_the_medians_of_steps_that_are_alike() {
        let slot = Slot { name: "s".into(), bytes: 8, is_in: true, is_out: false };
        // Watched steps, and then: all move, one moves, all move, one moves.
        let steps = [[0, 0], [1, 0], [0, 1], [1, 1], [0, 0], [1, 0]].map(Vec::from).to_vec();
        let trace = Trace { name: "t".into(), slots: vec![slot.clone(), slot], steps };
        let kinds = Kinds::new(&trace, 2..6);
        assert_eq!(kinds.0, [0, 1, 0, 1]);
        // Two rounds; one step was disturbed.
        let us = [10.0, 2.0, 10.0, 2.0, 999.0, 2.0, 10.0, 2.0];
        assert!((kinds.mean(&us) - 6.0).abs() < 1e-9);
        assert!(Kinds(Vec::new()).mean(&[]).abs() < 1e-9);
    }
}
