//! What a step costs by what happens in it: made-up recordings that differ in one thing, run as `gvmm bench steps` runs
//! and times them.

use super::figures::{figure, line};
use super::options::ProfileOptions;
use super::profile::{Missing, joint_copy};
use super::spread::median;
use super::steps::start;
use crate::copies::Copies;
use crate::cuda;
use crate::executor::{StepCost, in_step, time};
use crate::failure::{Context, Failure};
use crate::service::{PlanChoice, Serving};
use crate::setup::{self, CostChoice, Joint};
use crate::trace::{Slot, Trace};
use gvmm::driver::{Capabilities, DriverKind};
use gvmm::rebind::Threshold;
use gvmm::rebind::profile::{Charge, Figure, JointCopy, Profile};
use gvmm::vm::Device;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
/// Steps whose data is checked, and steps of each round that is timed.
const CHECKED: usize = 6;
const STEPS: usize = 24;
const SMALL: u64 = 4096;
/// Slices of joint copies.
const SLICES: [usize; 3] = [1, 128, 480];
/// Slots that are mapped, of which one moves, or all.
const MAPPED: usize = 8;

/// A recording, and how its slots are served.
#[derive(Clone, Copy)]
struct Kind {
    /// Slots of 4 KiB, and how many of them have another buffer in every step.
    small: (usize, usize),
    /// The same of 2 MiB.
    large: (usize, usize),
    /// They are read; else they are written.
    is_in: bool,
    plan: PlanChoice,
    /// Up to which size slots are copied where the plan goes by that.
    threshold: Threshold,
    copies: Copies,
    per_command: usize,
}

/// Slots of 4 KiB that are copied by each step.
const COPIED: Kind = Kind {
    small: (256, 0),
    large: (0, 0),
    is_in: true,
    plan: PlanChoice::Threshold,
    threshold: Threshold(SMALL),
    copies: Copies::Around,
    per_command: 2,
};

impl Kind {
    fn trace(&self) -> Trace {
        let (small, large) = (self.small, self.large);
        let all = small.0 + large.0;
        let bytes = |i: usize| if i < small.0 { SMALL } else { 2 * MIB };
        let slot =
            |i: usize| Slot { name: i.to_string(), bytes: bytes(i), is_in: self.is_in, is_out: !self.is_in };
        let moves = |i: usize| i < small.1 || (small.0..small.0 + large.1).contains(&i);
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
struct Step {
    /// Of begin, patches and end.
    host: f64,
    /// Of that in driver calls.
    driver: f64,
    /// What they add on the GPU; none on the host driver.
    gpu: Option<f64>,
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

/// Runs and times one kind of steps.
fn run(device: &Arc<Device>, kind: &Kind, rounds: u32) -> Result<Step, Failure> {
    let trace = kind.trace();
    let mut run = start(device, &trace, &kind.serving())?;
    let mut checked = Vec::new();
    for step in 0..CHECKED {
        checked.push(run.run_step(step).map_err(|error| in_step(&trace, step, error))?);
    }
    run.start_timing().during("timed pass")?;
    let mut timed = Vec::new();
    for _ in 0..rounds {
        timed.append(&mut time(run.as_mut(), &trace, 0..STEPS)?);
    }
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

/// What is measured before what builds on it, in µs.
struct Lab {
    device: Arc<Device>,
    rounds: u32,
    step: f64,
    slot: f64,
    changed: f64,
}

pub(super) fn measure(
    profile: &mut Profile,
    options: &ProfileOptions,
    missing: &mut Missing,
) -> Result<(), Failure> {
    let costs = CostChoice::read(options.costs.as_deref())?;
    let Ok(device) = setup::open_device(options.driver.kind(), costs, 0, Joint::On) else {
        missing.extend(["step", "slot", "changed_slot", "remap", "remap_slot", "remap_wait"]);
        return on_gpu_missing(missing);
    };
    let rounds = (options.repeat / 5).clamp(1, 8);
    let mut lab = Lab { device, rounds, step: 0.0, slot: 0.0, changed: 0.0 };
    lab.any_step(profile)?;
    lab.remaps(profile, missing)?;
    if lab.device.driver().kind() != DriverKind::CUDA {
        return on_gpu_missing(missing);
    }
    (profile.copy_in, profile.copy_out) = lab.copies(profile.bandwidth, Copies::Around)?;
    if lab.device.capabilities().has(Capabilities::ROUTES) {
        (profile.plan_in, profile.plan_out) = lab.copies(profile.bandwidth, Copies::Graph)?;
    } else {
        missing.extend(["plan_in", "plan_out"]);
    }
    if cuda::can_patch().during("kernels")? {
        return lab.patches(profile);
    }
    missing.extend(["patch", "patch_slot", "patch_command"]);
    Ok(())
}

fn on_gpu_missing(missing: &mut Missing) -> Result<(), Failure> {
    missing.extend(["plan_in", "plan_out", "patch", "patch_slot", "patch_command"]);
    Ok(())
}

impl Lab {
    fn run(&self, kind: Kind) -> Result<Step, Failure> {
        run(&self.device, &kind, self.rounds)
    }

    /// What a step takes in which so many slots are looked at and so many of them changed.
    fn looked_at(&self, slots: usize, changed: usize) -> f64 {
        self.step + self.slot * slots as f64 + self.changed * changed as f64
    }

    /// Steps in which nothing is to be done, and in which buffers change.
    fn any_step(&mut self, profile: &mut Profile) -> Result<(), Failure> {
        let still = |slots| Kind { small: (slots, 0), threshold: Threshold::OFF, ..COPIED };
        let (few, many) = (self.run(still(16))?.host, self.run(still(528))?.host);
        self.slot = ((many - few) / 512.0).max(0.0);
        self.step = 16.0f64.mul_add(-self.slot, few).max(0.0);
        let (rest, moved) = (self.run(COPIED)?, self.run(Kind { small: (256, 256), ..COPIED })?);
        self.changed = ((moved.host - rest.host) / 256.0).max(0.0);
        let all = [&mut profile.step, &mut profile.slot, &mut profile.changed_slot];
        for (place, us) in all.into_iter().zip([self.step, self.slot, self.changed]) {
            *place = figure(us, 0.0);
        }
        Ok(())
    }

    /// One window of eight that moves, and all; by themselves, and beside copies, after which calls are slower.
    fn remaps(&self, profile: &mut Profile, missing: &mut Missing) -> Result<(), Failure> {
        if !self.device.capabilities().has(Capabilities::VIRTUAL_MEMORY) {
            missing.extend(["remap", "remap_slot", "remap_wait"]);
            return Ok(());
        }
        let mapped = |small, moving| Kind { small: (small, small), large: (MAPPED, moving), ..COPIED };
        let [none, one, all] = [0, 1, MAPPED].map(|moving| self.run(mapped(0, moving)));
        let (none, one, all) = (none?, one?, all?);
        let [rest, beside] = [0, 1].map(|moving| self.run(mapped(256, moving)));
        let outside = |step: &Step| step.host - step.driver;
        let each = (outside(&all) - outside(&one)) / (MAPPED - 1) as f64;
        profile.remap_slot = figure(each - self.changed, 0.0);
        profile.remap_wait = figure(outside(&one) - outside(&none) - each, 0.0);
        let at = 2 * MIB;
        let calls = profile.unmap.at(at).plus(profile.map.at(at)).plus(profile.set_access.at(at));
        let calls = calls.0 as f64 / 1e6;
        let (alone, beside) = (one.driver - none.driver - calls, beside?.driver - rest?.driver - calls);
        // In between, and as far away from either.
        let middle = f64::midpoint(alone, beside);
        profile.remap = figure(middle, (middle - alone).abs());
        Ok(())
    }

    /// The joint copies in and out: those of a graph are pointed at other buffers in each step.
    fn copies(&self, bandwidth: u64, copies: Copies) -> Result<(JointCopy, JointCopy), Failure> {
        let bytes_per_us = bandwidth as f64 / 1e6;
        let way = |is_in| {
            let (mut host, mut gpu) = (Vec::new(), Vec::new());
            for slots in SLICES {
                let moving = if copies == Copies::Graph { slots } else { 0 };
                let step = self.run(Kind { small: (slots, moving), is_in, copies, ..COPIED })?;
                let moved = 2.0 * (slots as u64 * SMALL) as f64 / bytes_per_us;
                host.push((slots as f64, (step.host - self.looked_at(slots, moving)).max(0.0)));
                gpu.push((slots as f64, (step.gpu.unwrap_or_default() - moved).max(0.0)));
            }
            Ok::<JointCopy, Failure>(joint_copy(line(host.into_iter()), line(gpu.into_iter())))
        };
        Ok((way(true)?, way(false)?))
    }

    /// So many patched slots and commands.
    fn patches(&self, profile: &mut Profile) -> Result<(), Failure> {
        let (few, many, shared) = (16, 256, 16);
        let patched = |slots: usize, per_command| {
            let plan = PlanChoice::Patch;
            let step = self.run(Kind { small: (slots, slots), plan, per_command, ..COPIED })?;
            let host = step.host - self.looked_at(slots, slots);
            Ok::<_, Failure>((host, step.gpu.unwrap_or_default()))
        };
        let (some, all, joined) = (patched(few, 1)?, patched(many, 1)?, patched(many, shared)?);
        let commands = (many - many / shared) as f64;
        let more = (many - few) as f64;
        let solved = |some: f64, all: f64, joined: f64| {
            let command = ((all - joined) / commands).max(0.0);
            let slot = ((all - some) / more - command).max(0.0);
            [(command + slot).mul_add(-(few as f64), some), slot, command].map(|us| figure(us, 0.0))
        };
        let host: [Figure; 3] = solved(some.0, all.0, joined.0);
        let gpu = solved(some.1, all.1, joined.1);
        profile.patch = Charge { host: host[0], gpu: gpu[0] };
        profile.patch_slot = host[1];
        profile.patch_command = Charge { host: host[2], gpu: gpu[2] };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_made_up_recordings_so_many_buffers_change() {
        let trace = Kind { small: (3, 1), large: (2, 1), ..COPIED }.trace();
        let changed =
            trace.steps.windows(2).map(|pair| pair[0].iter().zip(&pair[1]).filter(|(a, b)| a != b).count());
        assert!(trace.steps.len() == STEPS && changed.min() == Some(2));
        let mut buffers = trace.steps[1].clone();
        buffers.dedup();
        assert_eq!(buffers.len(), 5, "no buffer is shared");
    }
}
