//! What a step costs by what happens in it: made-up recordings that differ in one thing, run as `gvmm bench steps` runs
//! and times them.

use super::figures::{figure, least, line};
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
use gvmm::rebind::profile::{Charge, Curve, Figure, JointCopy, Point, Profile};
use gvmm::rebind::{self, Threshold};
use gvmm::units::ByteSize;
use gvmm::vm::Device;
use std::sync::Arc;

pub(super) const MIB: u64 = 1 << 20;
/// Steps whose data is checked, and steps of each round that is timed.
const CHECKED: usize = 6;
const STEPS: usize = 24;
pub(super) const SMALL: u64 = 4096;
/// Slices of joint copies.
const SLICES: [usize; 3] = [1, 128, 480];
/// So many of other sizes, which by themselves leave the cache to the commands where that may be.
const OTHER_SLICES: [(usize, u64); 4] = [(480, 4), (128, 64 << 10), (64, 2 * MIB), (8, 32 * MIB)];

/// Slots that are mapped, of which one moves, or all.
const MAPPED: usize = 8;

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
    fn commands(&self) -> [usize; 2] {
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
    driver: f64,
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
pub(super) struct Lab {
    device: Arc<Device>,
    rounds: u32,
    step: f64,
    slot: f64,
    changed: f64,
    /// Every kind of steps that was run, with its times: comments for the file.
    points: String,
}

/// Fills `profile`; gives the steps that were timed, as comments.
pub(super) fn measure(
    profile: &mut Profile,
    options: &ProfileOptions,
    missing: &mut Missing,
) -> Result<String, Failure> {
    let costs = CostChoice::read(options.costs.as_deref())?;
    let Ok(device) = setup::open_device(options.driver.kind(), costs, 0, Joint::On) else {
        missing.extend(["step", "slot", "changed_slot", "remap", "remap_slot", "remap_wait"]);
        missing.extend(ON_A_GPU);
        return Ok(String::new());
    };
    // No other binding needs it.
    let total = device.info().total.get();
    rebind::set_shadow_budget(&device, ByteSize(total / 2));
    let rounds = (options.repeat / 5).clamp(1, 4);
    let mut lab = Lab { device, rounds, step: 0.0, slot: 0.0, changed: 0.0, points: String::new() };
    lab.any_step(profile)?;
    lab.remaps(profile, missing)?;
    if lab.device.driver().kind() == DriverKind::CUDA {
        lab.on_a_gpu(profile, missing)?;
    } else {
        missing.extend(ON_A_GPU);
    }
    Ok(lab.points)
}

const ON_A_GPU: [&str; 8] = [
    "plan_in",
    "plan_out",
    "cache_bytes",
    "cold_slot",
    "patch",
    "patch_slot",
    "patch_command",
    "patch_single",
];

impl Lab {
    pub(super) fn run(&mut self, kind: Kind) -> Result<Step, Failure> {
        let step = run(&self.device, &kind, self.rounds)?;
        let Kind { small, large, bytes, is_in, plan, copies, per_command, .. } = kind;
        let way = if is_in { "read" } else { "written" };
        let slots = format!(
            "{} ({}) of {} B, {} ({}) of {} B",
            small.0, small.1, bytes[0], large.0, large.1, bytes[1]
        );
        let by = format!("{plan:?}, copies {copies:?}, {per_command} a command");
        let times = format!(
            "host {:.3}, in calls {:.3}, gpu {:.3}",
            step.host,
            step.driver,
            step.gpu.unwrap_or(f64::NAN)
        );
        self.points += &format!("# steps, slots (moving) {slots}, {way}; {by}: {times}\n");
        Ok(step)
    }

    /// True where that much is little of the device's memory.
    pub(super) fn has_room(&self, slots: usize, bytes: u64) -> bool {
        (slots as u64).saturating_mul(bytes) <= self.device.info().total.get() / 64
    }

    fn on_a_gpu(&mut self, profile: &mut Profile, missing: &mut Missing) -> Result<(), Failure> {
        (profile.copy_in, profile.copy_out) = self.copies(profile.bandwidth, Copies::Around)?;
        if self.device.capabilities().has(Capabilities::ROUTES) {
            (profile.plan_in, profile.plan_out) = self.copies(profile.bandwidth, Copies::Graph)?;
        } else {
            missing.extend(["plan_in", "plan_out"]);
        }
        self.cache(profile, missing)?;
        if cuda::can_patch().during("kernels")? {
            return self.patches(profile);
        }
        missing.extend(["patch", "patch_slot", "patch_command", "patch_single"]);
        Ok(())
    }

    /// What a step takes in which so many slots are looked at and so many of them changed.
    fn looked_at(&self, slots: usize, changed: usize) -> f64 {
        self.step + self.slot * slots as f64 + self.changed * changed as f64
    }

    /// Steps in which nothing is to be done, and in which buffers change.
    fn any_step(&mut self, profile: &mut Profile) -> Result<(), Failure> {
        let still = |slots| Kind { small: (slots, 0), threshold: Threshold::OFF, ..COPIED };
        let few = self.run(still(16))?.host;
        let many = self.run(still(528))?.host;
        self.slot = ((many - few) / 512.0).max(0.0);
        self.step = 16.0f64.mul_add(-self.slot, few).max(0.0);
        let rest = self.run(COPIED)?;
        let moved = self.run(Kind { small: (256, 256), ..COPIED })?;
        self.changed = ((moved.host - rest.host) / 256.0).max(0.0);
        let all = [&mut profile.step, &mut profile.slot, &mut profile.changed_slot];
        for (place, us) in all.into_iter().zip([self.step, self.slot, self.changed]) {
            *place = figure(us, 0.0);
        }
        Ok(())
    }

    /// One window of eight that moves, and all; by themselves, and beside copies, after which calls are slower.
    fn remaps(&mut self, profile: &mut Profile, missing: &mut Missing) -> Result<(), Failure> {
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
    fn copies(&mut self, bandwidth: u64, copies: Copies) -> Result<(JointCopy, JointCopy), Failure> {
        Ok((self.copies_one_way(bandwidth, copies, true)?, self.copies_one_way(bandwidth, copies, false)?))
    }

    fn copies_one_way(&mut self, bandwidth: u64, copies: Copies, is_in: bool) -> Result<JointCopy, Failure> {
        let (mut host, mut gpu) = (Vec::new(), Vec::new());
        for slots in SLICES {
            let moving = if copies == Copies::Graph { slots } else { 0 };
            let step = self.run(Kind { small: (slots, moving), is_in, copies, ..COPIED })?;
            host.push((slots as f64, (step.host - self.looked_at(slots, moving)).max(0.0)));
            let moved = moving_us(bandwidth, slots, SMALL);
            gpu.push((slots as f64, (step.gpu.unwrap_or_default() - moved).max(0.0)));
        }
        let mut copy = joint_copy(line(host.into_iter()), line(gpu.into_iter()));
        let launch = copy.launch.gpu.median.0 as f64 / 1e6;
        let mut points = copy.slice_gpu.points().to_vec();
        for (slots, bytes) in OTHER_SLICES {
            if !self.has_room(slots, bytes) {
                continue;
            }
            let plan = PlanChoice::CopyFrom(0);
            let step =
                self.run(Kind { small: (slots, 0), bytes: [bytes, 0], is_in, copies, plan, ..COPIED })?;
            let each =
                (step.gpu.unwrap_or_default() - launch - moving_us(bandwidth, slots, bytes)) / slots as f64;
            points.push(Point { bytes, time: figure(each, 0.0) });
        }
        points.sort_by_key(|point| point.bytes);
        copy.slice_gpu = Curve::new(points).unwrap_or_default();
        Ok(copy)
    }

    /// What patched slots and commands take: by few and many, which some share.
    fn patches(&mut self, profile: &mut Profile) -> Result<(), Failure> {
        let (mut counts, mut host, mut gpu) = (Vec::new(), Vec::new(), Vec::new());
        for (slots, moving, per_command) in PATCHED {
            let plan = PlanChoice::Patch;
            let kind = Kind { small: (slots, moving), plan, per_command, ..COPIED };
            let step = self.run(kind)?;
            let [single, more] = kind.commands();
            counts.push(vec![1.0, moving as f64, single as f64, more as f64]);
            host.push((step.host - self.looked_at(slots, moving)).max(0.0));
            gpu.push(step.gpu.unwrap_or_default().max(0.0));
        }
        let host: [Figure; 4] = least(&counts, &host);
        profile.patch_slot = host[1];
        // On the GPU a step is what it is, whatever its commands.
        let gpu = median(gpu).unwrap_or(0.0);
        profile.patch = Charge { host: host[0], gpu: figure(gpu, 0.0) };
        let charge = |host| Charge { host, gpu: Figure::default() };
        profile.patch_single = charge(host[2]);
        let more = if host[3].median > host[2].median { host[3] } else { host[2] };
        profile.patch_command = charge(more);
        Ok(())
    }
}

/// Slots, how many of them are patched, and how many share a command: of small graphs and large, in part and whole.
const PATCHED: [(usize, usize, usize); 9] = [
    (1, 1, 1),
    (16, 16, 1),
    (16, 16, 2),
    (128, 64, 2),
    (128, 128, 2),
    (256, 256, 16),
    (512, 20, 2),
    (512, 200, 2),
    (512, 512, 2),
];

/// How long so many slots of so many bytes are read and written, in µs.
fn moving_us(bandwidth: u64, slots: usize, bytes: u64) -> f64 {
    2.0 * (slots as u64 * bytes) as f64 / (bandwidth as f64 / 1e6)
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
