//! What a step costs by what happens in it: made-up recordings that differ in one thing, run as `gvmm bench steps` runs
//! and times them.

use super::figures::{figure, least, line};
use super::made_up::{COPIED, Calmly, Kind, MIB, SMALL, Step, run};
use super::options::ProfileOptions;
use super::profile::{Missing, joint_copy};
use super::quiet::{Calm, Reference, reference_trace};
use super::spread::{median, short};
use crate::copies::Copies;
use crate::cuda;
use crate::failure::{Context, Failure};
use crate::service::PlanChoice;
use crate::setup::{self, CostChoice, Joint};
use gvmm::driver::{Capabilities, DriverKind};
use gvmm::rebind::profile::{Charge, Curve, Figure, JointCopy, Point, Profile};
use gvmm::rebind::{self, Threshold};
use gvmm::units::ByteSize;
use gvmm::vm::Device;
use std::sync::Arc;

/// Slices of joint copies.
const SLICES: [usize; 3] = [1, 128, 480];
/// So many of other sizes, which by themselves leave the cache to the commands where that may be.
const OTHER_SLICES: [(usize, u64); 5] =
    [(480, 4), (256, 16 << 10), (128, 64 << 10), (64, 2 * MIB), (8, 32 * MIB)];

/// Slots that are mapped, of which one moves, or all.
pub(super) const MAPPED: usize = 8;

/// So many slots of a binding are many, and so many that are mapped.
const MANY: usize = 1000;
const MANY_MAPPED: usize = 512;

/// What is measured before what builds on it, in µs.
pub(super) struct Lab<'a> {
    pub(super) device: Arc<Device>,
    calm: Calmly<'a>,
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
    let small = reference_trace();
    let mut reference = Reference::new(&device, &small)?;
    let quiet = reference.first()?;
    let calm = Calmly { reference, quiet, kept_us: Vec::new() };
    let mut lab = Lab { device, calm, rounds, step: 0.0, slot: 0.0, changed: 0.0, points: String::new() };
    lab.any_step(profile)?;
    lab.remaps(profile, missing)?;
    if lab.device.driver().kind() == DriverKind::CUDA {
        lab.on_a_gpu(profile, missing)?;
    } else {
        missing.extend(ON_A_GPU);
    }
    lab.origin(profile);
    Ok(lab.points)
}

const ON_A_GPU: [&str; 11] = [
    "plan_in",
    "plan_out",
    "cache_bytes",
    "cold_slot",
    "anew_slot",
    "anew_in",
    "anew_out",
    "patch",
    "patch_slot",
    "patch_command",
    "patch_single",
];

impl Lab<'_> {
    /// How fast the host was meanwhile.
    fn origin(&mut self, profile: &mut Profile) {
        let Calmly { kept_us, quiet, .. } = &self.calm;
        let calm = Calm { kept_us: kept_us.clone(), ..Calm::default() };
        let (disturbed, rounds) = (calm.disturbed(quiet.least()), kept_us.len());
        let least = short(quiet.least());
        self.points += &format!(
            "# {disturbed} of {rounds} rounds of steps that count were disturbed (the reference takes {least} µs at least)\n"
        );
        profile.origin.reference = figure(calm.middle(), 0.0);
    }

    pub(super) fn run(&mut self, kind: Kind) -> Result<Step, Failure> {
        let step = run(&self.device, &kind, self.rounds, &mut self.calm)?;
        let Kind { small, large, bytes, is_in, plan, copies, per_command, .. } = kind;
        let way = if is_in { "read" } else { "written" };
        let slots = format!(
            "{} ({}) of {} B, {} ({}) of {} B",
            small.0, small.1, bytes[0], large.0, large.1, bytes[1]
        );
        let by = format!("{plan:?}, copies {copies:?}, {per_command} a command");
        let gpu = step.gpu.map_or_else(String::new, |us| format!(", gpu {us:.3}"));
        let times = format!("host {:.3}, in calls {:.3}{gpu}", step.host, step.driver);
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
        self.anew(profile, missing)?;
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
        (profile.step, profile.slot) = (figure(self.step, 0.0), figure(self.slot, 0.0));
        let few = (256, self.changed);
        profile.changed_slot = by_count([few]);
        if self.has_room(MANY, 2 * MIB) {
            let [rest, moved] = [0, MANY].map(|moving| self.run(Kind { small: (MANY, moving), ..COPIED }));
            profile.changed_slot = by_count([few, (MANY, (moved?.host - rest?.host) / MANY as f64)]);
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
        let few = (MAPPED, each - self.changed);
        profile.remap_wait = figure(outside(&one) - outside(&none) - each, 0.0);
        let at = 2 * MIB;
        let calls = profile.unmap.at(at).plus(profile.map.at(at)).plus(profile.set_access.at(at));
        let calls = calls.0 as f64 / 1e6;
        let (alone, beside) = (one.driver - none.driver - calls, beside?.driver - rest?.driver - calls);
        // In between, and as far away from either.
        let middle = f64::midpoint(alone, beside);
        profile.remap = figure(middle, (middle - alone).abs());
        profile.remap_slot = by_count([few]);
        if self.has_room(MANY_MAPPED, 2 * MIB) {
            let [rest, moved] = [0, MANY_MAPPED]
                .map(|moving| self.run(Kind { small: (0, 0), large: (MANY_MAPPED, moving), ..COPIED }));
            let many = (moved?.host - rest?.host) / MANY_MAPPED as f64 - calls - self.changed;
            profile.remap_slot = by_count([few, (MANY_MAPPED, many)]);
        }
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

/// Times in µs by how many slots there are.
fn by_count<const N: usize>(times: [(usize, f64); N]) -> Curve {
    let point = |(slots, us)| Point { bytes: slots as u64, time: figure(us, 0.0) };
    Curve::new(times.map(point).to_vec()).unwrap_or_default()
}

/// How long so many slots of so many bytes are read and written, in µs.
fn moving_us(bandwidth: u64, slots: usize, bytes: u64) -> f64 {
    2.0 * (slots as u64 * bytes) as f64 / (bandwidth as f64 / 1e6)
}
