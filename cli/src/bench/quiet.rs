//! Whether the machine was quiet: something that never changes is timed again and again beside what is measured.

use super::cores::{Cores, fixed_us};
use super::spread::{median, round, short};
use super::steps::start;
use crate::copies::Copies;
use crate::executor::{Run, StepCost, in_step, time};
use crate::failure::{Context, Failure};
use crate::service::{PlanChoice, Serving};
use crate::trace::{Slot, Trace};
use gvmm::driver::DriverKind;
use gvmm::rebind::Threshold;
use gvmm::vm::Device;
use serde::Serialize;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// From how many times its least on the reference says that something disturbs.
pub(super) const QUIET: f64 = 1.15;
/// How long rounds are repeated, all loads together.
const MOST_REPEATED: Duration = Duration::from_secs(60);
/// How long a quiet moment is waited for, once and in all.
const WAITED_ONCE: Duration = Duration::from_millis(50);
const MOST_WAITED: Duration = Duration::from_secs(20);
/// Steps of the reference whose data is checked, and of each sample.
const CHECKED: usize = 3;
const STEPS: usize = 8;
/// Samples before the first load, for the reference's least.
const FIRST_SAMPLES: usize = 20;

/// Slots of which half move and all are copied around a small graph: launches, books and the driver's locks.
pub(super) fn reference_trace() -> Trace {
    let slot = |i: usize| Slot { name: i.to_string(), bytes: 4096, is_in: true, is_out: i.is_multiple_of(2) };
    let buffer = |step: usize, i: usize| (2 * i + if i.is_multiple_of(2) { step % 2 } else { 0 }) as u64;
    Trace {
        name: "the reference".into(),
        slots: (0..32).map(slot).collect(),
        steps: (0..STEPS).map(|step| (0..32).map(|i| buffer(step, i)).collect()).collect(),
    }
}

/// What is timed: a fixed loop, and the steps of a small load that is the same in every run.
pub(super) struct Reference<'a> {
    run: Box<dyn Run + 'a>,
    trace: &'a Trace,
    samples: Vec<f64>,
    cores: Cores,
}

impl<'a> Reference<'a> {
    pub(super) fn new(device: &Arc<Device>, trace: &'a Trace) -> Result<Self, Failure> {
        let serving = Serving {
            plan: PlanChoice::Threshold,
            copies: Copies::Around,
            per_command: 2,
            ..Serving::by_threshold(Threshold(4096), &[])
        };
        let driver = device.driver().kind();
        let mut run = start(device, trace, &serving)?;
        for step in 0..CHECKED {
            run.run_step(step).map_err(|error| in_step(trace, step, error))?;
        }
        run.start_timing().during("the reference")?;
        Ok(Self { run, trace, samples: Vec::new(), cores: Cores::new(driver != DriverKind::HOST) })
    }

    /// Times it once more, on a quiet core where there is one.
    pub(super) fn sample(&mut self) -> Result<(), Failure> {
        self.cores.settle();
        let fixed = fixed_us();
        let steps = time(self.run.as_mut(), self.trace, 0..STEPS)?;
        let each = |step: &StepCost| us(step.time + step.gpu.map_or(Duration::ZERO, |gpu| gpu.graph_host));
        self.samples.push(fixed + median(steps.iter().map(each).collect()).unwrap_or(0.0));
        Ok(())
    }

    /// The middle of the samples since the last call.
    pub(super) fn taken(&mut self) -> f64 {
        round(median(std::mem::take(&mut self.samples)).unwrap_or(0.0))
    }

    /// What it takes at least before anything is measured.
    pub(super) fn first(&mut self) -> Result<Quiet, Failure> {
        for _ in 0..FIRST_SAMPLES {
            self.sample()?;
        }
        Ok(Quiet { least: self.taken(), repeated: Duration::ZERO })
    }
}

/// Waits for moments in which nothing disturbs the calling thread's core.
pub(super) struct Watch {
    cores: Cores,
    /// How much longer may be waited.
    left: Cell<Duration>,
    moments: Cell<u32>,
    disturbed: Cell<u32>,
}

impl Watch {
    /// One that waits and goes to quiet cores, or one that does neither: for times that are simulated.
    pub(super) fn new(waits: bool) -> Self {
        let left = Cell::new(if waits { MOST_WAITED } else { Duration::ZERO });
        Self { cores: Cores::new(waits), left, moments: Cell::new(0), disturbed: Cell::new(0) }
    }

    /// Comes back in a quiet moment, or when it has waited long enough.
    pub(super) fn wait(&self) {
        let started = Instant::now();
        self.moments.set(self.moments.get() + 1);
        while !self.cores.settle() {
            if started.elapsed() >= self.left.get().min(WAITED_ONCE) {
                self.disturbed.set(self.disturbed.get() + 1);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.left.set(self.left.get().saturating_sub(started.elapsed()));
    }

    /// How quiet it was, in words.
    pub(super) fn text(&self) -> String {
        let (disturbed, moments) = (self.disturbed.get(), self.moments.get());
        let least = short(self.cores.least.get());
        format!(
            "{disturbed} of {moments} repetitions of driver calls began in a disturbed moment (a fixed loop takes {least} µs at least)"
        )
    }
}

pub(super) fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// What is known of the reference, and how much longer rounds may be repeated.
pub(super) struct Quiet {
    least: f64,
    repeated: Duration,
}

/// The reference in each round of a load, in µs.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
pub(super) struct Calm {
    /// In the rounds that count.
    pub(super) kept_us: Vec<f64>,
    /// In those that were disturbed, and made once more.
    pub(super) repeated_us: Vec<f64>,
}

impl Calm {
    /// The middle of the rounds that count.
    pub(super) fn middle(&self) -> f64 {
        median(self.kept_us.clone()).unwrap_or(0.0)
    }

    /// How many rounds count although they were disturbed, by the reference's least of the whole run.
    pub(super) fn disturbed(&self, least: f64) -> usize {
        self.kept_us.iter().filter(|&&us| us > least * QUIET).count()
    }
}

impl Quiet {
    pub(super) const fn least(&self) -> f64 {
        self.least
    }

    /// Makes rounds until `wanted` of them were quiet, at most `most`. Gives the numbers of those that count: the
    /// least disturbed where too few were quiet.
    pub(super) fn rounds<E>(
        &mut self,
        (wanted, most): (usize, usize),
        mut round: impl FnMut(usize) -> Result<f64, E>,
    ) -> Result<(Vec<usize>, Calm), E> {
        let mut taken: Vec<f64> = Vec::new();
        loop {
            let (started, made) = (Instant::now(), taken.len());
            taken.push(round(made)?);
            self.least = taken.iter().copied().fold(self.least, f64::min);
            if made >= wanted {
                self.repeated += started.elapsed();
            }
            let quiet = taken.iter().filter(|&&us| us <= self.least * QUIET).count();
            let over = taken.len() >= most || self.repeated >= MOST_REPEATED;
            if taken.len() >= wanted && (quiet >= wanted || over) {
                return Ok(kept(&taken, wanted));
            }
        }
    }
}

/// The `wanted` rounds with the lowest reference, in their order, and what it was in all.
fn kept(taken: &[f64], wanted: usize) -> (Vec<usize>, Calm) {
    let mut order: Vec<usize> = (0..taken.len()).collect();
    order.sort_by(|&a, &b| taken[a].total_cmp(&taken[b]));
    let (kept, repeated) = order.split_at(wanted.min(order.len()));
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let us = |rounds: &[usize]| rounds.iter().map(|&round| taken[round]).collect();
    let calm = Calm { kept_us: us(&kept), repeated_us: us(repeated) };
    (kept, calm)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds with these references; which count, and how often one was made.
    fn rounds(wanted: usize, us: &[f64]) -> (Vec<usize>, Calm, usize) {
        let (mut quiet, mut made) = (Quiet { least: 10.0, repeated: Duration::ZERO }, 0);
        let round = |n: usize| {
            made += 1;
            Ok::<f64, ()>(us[n])
        };
        let (kept, calm) = quiet.rounds((wanted, 2 * wanted), round).expect("no round fails");
        (kept, calm, made)
    }

    #[test]
    fn quiet_rounds_are_made_once() {
        let (kept, calm, made) = rounds(3, &[10.0, 11.3, 9.9]);
        assert_eq!((kept, made, calm.disturbed(9.8)), (vec![0, 1, 2], 3, 1));
        assert_eq!((calm.disturbed(10.0), calm.repeated_us.len()), (0, 0));
    }

    #[test]
    fn a_disturbed_round_is_made_again_and_does_not_count() {
        let (kept, calm, made) = rounds(2, &[10.0, 30.0, 12.0, 11.0]);
        assert_eq!((kept, made), (vec![0, 3], 4));
        assert_eq!(calm, Calm { kept_us: vec![10.0, 11.0], repeated_us: vec![12.0, 30.0] });
    }

    #[test]
    fn what_stays_disturbed_is_kept_and_said() {
        let (kept, calm, made) = rounds(2, &[40.0, 30.0, 20.0, 30.0]);
        assert_eq!((kept, made, calm.disturbed(10.0)), (vec![1, 2], 4, 2));
        // The least was not known before: the first rounds were disturbed after all.
        let (kept, calm, made) = rounds(2, &[10.0, 10.0, 5.0, 5.0]);
        assert_eq!((kept, made, calm.disturbed(5.0)), (vec![0, 1], 2, 2));
    }

    #[test]
    fn a_disturbed_moment_is_waited_for_as_long_as_that_is_worth() {
        let watch = Watch::new(true);
        watch.left.set(2 * WAITED_ONCE);
        // Nothing is as fast.
        watch.cores.least.set(0.0);
        (0..4).for_each(|_| watch.wait());
        assert_eq!((watch.left.get(), watch.disturbed.get()), (Duration::ZERO, 4));
        assert!(watch.text().starts_with("4 of 4 "));
        // Anything is.
        watch.cores.least.set(f64::MAX);
        watch.wait();
        assert!(watch.text().starts_with("4 of 5 "));
    }

    #[test]
    fn a_round_that_fails_is_told() {
        let mut quiet = Quiet { least: 10.0, repeated: Duration::ZERO };
        assert_eq!(quiet.rounds((2, 4), |n| if n == 1 { Err("told") } else { Ok(1.0) }), Err("told"));
    }

    #[test]
    fn in_the_reference_half_of_the_slots_move() {
        let trace = reference_trace();
        let moved = |pair: &[Vec<u64>]| pair[0].iter().zip(&pair[1]).filter(|(a, b)| a != b).count();
        assert!(trace.steps.len() == STEPS && trace.steps.windows(2).all(|pair| moved(pair) == 16));
    }
}
