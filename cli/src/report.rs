//! What `gvmm steps` found, as JSON for programs and as a table for people.

use crate::copies::Copies;
use crate::executor::{GpuTime, Measured, StepCost};
use crate::trace::Trace;
use comfy_table::{Cell, CellAlignment, Table, presets};
use gvmm::driver::DeviceInfo;
use gvmm::rebind::profile::Picos;
use gvmm::rebind::{Action, Explanation, StepReport, Threshold};
use serde::Serialize;
use std::time::Duration;

/// Means and medians are taken from this step on, the fifth: by then everything has settled. Where steps are watched
/// for a plan, from the first on after its layout.
pub(crate) const FIRST_COUNTED_STEP: usize = 4;

/// The keys and their order are those of the JSON.
#[derive(Serialize, Debug)]
pub(crate) struct Report {
    pub(crate) trace: String,
    pub(crate) driver: &'static str,
    pub(crate) steps: usize,
    pub(crate) slots: u64,
    /// None is off.
    pub(crate) threshold_bytes: Option<u64>,
    pub(crate) plan: Plan,
    /// Who makes the copies of a step: "graph" or "around" it.
    pub(crate) copies: Copies,
    /// 16 hexadecimal digits; None where no planner is asked.
    pub(crate) plan_digest: Option<String>,
    /// What a step is said to cost, host and GPU together; None where copies are made one by one.
    pub(crate) predicted_us: Option<f64>,
    pub(crate) predicted_host_us: Option<f64>,
    pub(crate) predicted_gpu_us: Option<f64>,
    /// Of the GPU's, how long it stands still while the host remaps.
    pub(crate) predicted_still_us: Option<f64>,
    pub(crate) setup: Setup,
    pub(crate) per_step: PerStep,
    /// How often the plan was made anew.
    pub(crate) replans: u64,
    pub(crate) verified_slots: u64,
    pub(crate) mismatches: u64,
    /// Of begin and end together; the same as `host_us_median`.
    pub(crate) us_per_step_median: f64,
    /// What begin, patches and end take on the host, in the timed pass: step after step, as in a training loop.
    pub(crate) host_us_median: f64,
    /// What they add on the GPU there; None on the host driver.
    pub(crate) gpu_us_median: Option<f64>,
    /// The same where all data is written and checked between two steps, which leaves nothing of ours in the caches.
    pub(crate) host_us_median_cold: f64,
    pub(crate) gpu_us_median_cold: Option<f64>,
    #[serde(flatten)]
    pub(crate) gpu: Option<GpuReport>,
    /// "none" or "simulated: NAME".
    pub(crate) costs: String,
    /// For each slot why it is served as it is, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    explained: Option<Vec<Explained>>,
}

/// Why a slot is served as it is.
#[derive(Serialize, Debug)]
struct Explained {
    slot: String,
    bytes: u64,
    /// In how many of the watched steps it moved.
    moved: u32,
    action: &'static str,
    /// What a step would cost less without the slot.
    cost_us: f64,
    /// The next best action, and what a step would cost more with it than without the slot.
    next: Option<&'static str>,
    next_us: Option<f64>,
}

/// Medians over the timed steps on a GPU.
#[derive(Serialize, Debug)]
pub(crate) struct GpuReport {
    /// Of what begin and end take on the host, what the driver's calls take.
    driver_us_median: f64,
    /// The same where data is checked between two steps.
    driver_us_median_cold: f64,
    /// The command buffer alone: its launch on the host, and its run on the GPU.
    graph_host_us_median: f64,
    graph_gpu_us_median: f64,
}

/// How many slots are served which way.
#[derive(Serialize, Debug)]
pub(crate) struct Plan {
    pub(crate) bake: u64,
    pub(crate) map: u64,
    pub(crate) copy: u64,
    pub(crate) patch: u64,
}

/// The binding's driver calls up to and including the begin of its first step.
#[derive(Serialize, Debug)]
pub(crate) struct Setup {
    reserve: u64,
    create: u64,
    map: u64,
    unmap: u64,
    set_access: u64,
    release: u64,
}

/// The binding's driver calls and copies, as means over the counted steps.
#[derive(Serialize, Debug, Default, PartialEq)]
pub(crate) struct PerStep {
    pub(crate) map: f64,
    pub(crate) unmap: f64,
    pub(crate) set_access: f64,
    pub(crate) copy_launches: f64,
    pub(crate) copied_slots: f64,
    pub(crate) copied_bytes: f64,
    /// Commands.
    pub(crate) patches: f64,
}

impl Report {
    pub(crate) fn new(trace: &Trace, driver: &'static str, device: &DeviceInfo, measured: &Measured) -> Self {
        let info = &measured.info;
        let counted = measured.steps.get(measured.first_counted..).filter(|counted| !counted.is_empty());
        let counted = counted.unwrap_or(&measured.steps);
        let timed = if measured.timed.is_empty() { counted } else { &measured.timed };
        let (gpu, predicted) = (GpuReport::of(timed, counted), measured.told.predicted);
        let host = |steps: &[StepCost]| median_us(steps.iter().map(|step| step.time));
        let us_per_step_median = host(timed);
        let calls = info.setup;
        Self {
            trace: trace.name.clone(),
            driver,
            steps: trace.steps.len(),
            slots: info.slots,
            threshold_bytes: (info.threshold != Threshold::OFF).then_some(info.threshold.0),
            plan: Plan { bake: info.baked, map: info.mapped, copy: info.copied, patch: info.patched },
            copies: measured.copies,
            plan_digest: measured.told.digest.map(|digest| format!("{digest:016x}")),
            predicted_us: predicted.map(|price| us(price.step.host.plus(price.step.gpu))),
            predicted_host_us: predicted.map(|price| us(price.step.host)),
            predicted_gpu_us: predicted.map(|price| us(price.step.gpu)),
            predicted_still_us: predicted.map(|price| us(price.still)),
            setup: Setup {
                reserve: calls.reserve,
                create: calls.create,
                map: calls.map,
                unmap: calls.unmap,
                set_access: calls.set_access,
                release: calls.release,
            },
            per_step: PerStep::mean(counted),
            replans: measured.told.replans,
            verified_slots: measured.tally.verified_slots,
            mismatches: measured.tally.mismatches,
            us_per_step_median,
            host_us_median: us_per_step_median,
            gpu_us_median: gpu.as_ref().map(|(_, added)| *added),
            host_us_median_cold: host(counted),
            gpu_us_median_cold: GpuReport::of(counted, counted).map(|(_, added)| added),
            gpu: gpu.map(|(gpu, _)| gpu),
            costs: costs(device),
            explained: None,
        }
    }

    /// The same, with why each slot is served as it is.
    pub(crate) fn explaining(self, trace: &Trace, told: &[Explanation]) -> Self {
        let explain = |(slot, told): (&crate::trace::Slot, &Explanation)| Explained {
            slot: slot.name.clone(),
            bytes: slot.bytes,
            moved: told.moved,
            action: name(told.action),
            cost_us: us(told.cost),
            next: told.next.map(|(action, _)| name(action)),
            next_us: told.next.map(|(_, cost)| us(cost)),
        };
        Self { explained: Some(trace.slots.iter().zip(told).map(explain).collect()), ..self }
    }

    /// The table for people.
    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        for (name, value) in self.rows() {
            table.add_row([Cell::new(name), Cell::new(value).set_alignment(CellAlignment::Right)]);
        }
        let explained = self.explained.as_ref().map(|slots| format!("\n{}", reasons(slots)));
        table.to_string() + &explained.unwrap_or_default()
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let threshold = self.threshold_bytes.map_or("off".into(), |bytes| format!("{bytes} B"));
        let (setup, per_step) = (&self.setup, &self.per_step);
        let mut rows = vec![
            ("recording", self.trace.clone()),
            ("driver", self.driver.into()),
            ("steps", self.steps.to_string()),
            ("slots", self.slots.to_string()),
            ("threshold", threshold),
            (
                "slots copied / mapped / baked / patched",
                format!("{} / {} / {} / {}", self.plan.copy, self.plan.map, self.plan.bake, self.plan.patch),
            ),
            (
                "set-up: reserve / create / map",
                format!("{} / {} / {}", setup.reserve, setup.create, setup.map),
            ),
            (
                "set-up: unmap / set access / release",
                format!("{} / {} / {}", setup.unmap, setup.set_access, setup.release),
            ),
            (
                "a step: map / unmap / set access",
                format!("{:.1} / {:.1} / {:.1}", per_step.map, per_step.unmap, per_step.set_access),
            ),
            (
                "a step: copy launches / slots / bytes",
                format!(
                    "{:.1} / {:.1} / {:.1}",
                    per_step.copy_launches, per_step.copied_slots, per_step.copied_bytes
                ),
            ),
            ("a step: commands patched", format!("{:.1}", per_step.patches)),
            ("a step: begin and end, timed pass, median", format!("{:.1} µs", self.host_us_median)),
            ("... with all data checked between steps", format!("{:.1} µs", self.host_us_median_cold)),
            ("costs", self.costs.clone()),
            ("slots verified, over all steps", self.verified_slots.to_string()),
            ("slots that were wrong", self.mismatches.to_string()),
        ];
        if let Some(gpu) = &self.gpu {
            let both = |host: f64, gpu: f64| format!("{host:.1} / {gpu:.1} µs");
            let graph = both(gpu.graph_host_us_median, gpu.graph_gpu_us_median);
            rows.push(("the graph alone, median: host / GPU", graph));
            let added = both(self.host_us_median, self.gpu_us_median.unwrap_or_default());
            rows.push(("begin and end add, timed pass, median: host / GPU", added));
            rows.push(("... of that in driver calls", format!("{:.1} µs", gpu.driver_us_median)));
            let cold = both(self.host_us_median_cold, self.gpu_us_median_cold.unwrap_or_default());
            rows.push(("... with all data checked between steps", cold));
            rows.push(("... of that in driver calls", format!("{:.1} µs", gpu.driver_us_median_cold)));
        }
        if let (Some(host), Some(gpu)) = (self.predicted_host_us, self.predicted_gpu_us) {
            rows.push(("... as predicted: host / GPU", format!("{host:.1} / {gpu:.1} µs")));
        }
        if let Some(digest) = &self.plan_digest {
            rows.push(("plan's digest / made anew", format!("{digest} / {}", self.replans)));
        }
        rows
    }
}

/// What times are made of: "none" (they are real), or "simulated: NAME".
pub(crate) fn costs(device: &DeviceInfo) -> String {
    device.simulated_costs.as_ref().map_or_else(|| "none".into(), |name| format!("simulated: {name}"))
}

/// The slots for people.
fn reasons(slots: &[Explained]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["slot", "bytes", "moved", "action", "its cost, µs", "next best", "its cost, µs"]);
    for slot in slots {
        table.add_row([
            slot.slot.clone(),
            slot.bytes.to_string(),
            slot.moved.to_string(),
            slot.action.into(),
            format!("{:.3}", slot.cost_us),
            slot.next.unwrap_or("–").into(),
            slot.next_us.map_or_else(|| "–".into(), |us| format!("{us:.3}")),
        ]);
    }
    table
}

pub(crate) fn us(time: Picos) -> f64 {
    time.0 as f64 / 1e6
}

fn name(action: Action) -> &'static str {
    match action {
        Action::BAKE => "bake",
        Action::MAP => "map",
        Action::COPY => "copy",
        Action::PATCH => "patch",
        _ => "unknown",
    }
}

impl GpuReport {
    /// With what begin and end add on the GPU; None without one.
    fn of(steps: &[StepCost], cold: &[StepCost]) -> Option<(Self, f64)> {
        let gpu: Vec<GpuTime> = steps.iter().filter_map(|step| step.gpu).collect();
        if gpu.is_empty() {
            return None;
        }
        let graph_gpu_us_median = median(gpu.iter().map(|time| time.graph_us));
        let added = median(gpu.iter().map(|time| time.whole_us)) - graph_gpu_us_median;
        let driver =
            |steps: &[StepCost]| median_us(steps.iter().map(|s| s.begun.driver_time + s.ended.driver_time));
        let report = Self {
            driver_us_median: driver(steps),
            driver_us_median_cold: driver(cold),
            graph_host_us_median: median_us(gpu.iter().map(|time| time.graph_host)),
            graph_gpu_us_median,
        };
        Some((report, added))
    }
}

impl PerStep {
    fn mean(steps: &[StepCost]) -> Self {
        let count = steps.len().max(1) as f64;
        let mean = |of: fn(&StepReport) -> u64| {
            steps.iter().map(|step| of(&step.begun) + of(&step.ended)).sum::<u64>() as f64 / count
        };
        Self {
            map: mean(|report| report.calls.map),
            unmap: mean(|report| report.calls.unmap),
            set_access: mean(|report| report.calls.set_access),
            copy_launches: mean(|report| report.calls.copy_launches),
            copied_slots: mean(|report| report.copied_slots),
            copied_bytes: mean(|report| report.copied_bytes),
            patches: steps.iter().map(|step| step.patched).sum::<u64>() as f64 / count,
        }
    }
}

/// The median; 0 of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The median, in µs; 0 of none.
fn median_us(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let nanoseconds = times.get(times.len() / 2).map_or(0, Duration::as_nanos);
    nanoseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(map: u64, copied_bytes: u64) -> StepCost {
        let mut begun = StepReport { copied_bytes, ..StepReport::default() };
        begun.calls.map = map;
        let ended = StepReport { copied_bytes, ..StepReport::default() };
        StepCost { begun, ended, time: Duration::from_micros(map), patched: map, gpu: None }
    }

    #[test]
    fn means_add_begin_and_end() {
        let mean = PerStep::mean(&[step(1, 10), step(4, 20)]);
        assert_eq!(mean, PerStep { map: 2.5, copied_bytes: 30.0, patches: 2.5, ..PerStep::default() });
        assert_eq!(PerStep::mean(&[]), PerStep::default());
    }

    #[test]
    fn a_median_is_the_middle_one() {
        assert!((median_us([9, 1, 5].into_iter().map(Duration::from_micros)) - 5.0).abs() < 1e-9);
        assert!(median_us(std::iter::empty()).abs() < 1e-9);
    }
}
