//! What begin and end cost beside driver calls and waits, with the driver calls.

use criterion::{Criterion, Throughput};
use gvmm::rebind::StepReport;
use std::hint::black_box;
use std::time::Duration;

/// What a begin or an end cost.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    /// Without driver calls and waits.
    pub(crate) own: Duration,
    pub(crate) changed: u64,
    pub(crate) copied: u64,
    /// Map, unmap, set-access, launches of copies.
    pub(crate) calls: [u64; 4],
}

impl Cost {
    pub(crate) fn of(report: &StepReport, took: Duration) -> Self {
        let calls = report.calls;
        Self {
            own: took.saturating_sub(report.driver_time).saturating_sub(report.wait_time),
            changed: report.changed_slots,
            copied: report.copied_slots,
            calls: [calls.map, calls.unmap, calls.set_access, calls.copy_launches],
        }
    }
}

const RUNS: usize = 400;

/// Prints the medians, and the counts of the last step.
fn tell(name: &str, how: &str, run: &mut impl FnMut() -> [Cost; 2], mut between: impl FnMut()) {
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let mut last = [Cost::default(); 2];
    for _ in 0..RUNS {
        between();
        last = run();
        let [begun, ended] = last.map(|cost| cost.own);
        times.iter_mut().zip([begun, ended, begun + ended]).for_each(|(times, own)| times.push(own));
    }
    let [begin, end, both] = times.map(|mut times| {
        times.sort_unstable();
        times[RUNS / 2]
    });
    println!("{name}, {how}: own time, median: begin {begin:?}, end {end:?}, both {both:?}");
    for (what, cost) in ["begin", "end"].iter().zip(last) {
        let Cost { changed, copied, calls: [map, unmap, access, launches], .. } = cost;
        println!(
            "  {what}: {changed} changed, {copied} copied; calls: {map} map, {unmap} unmap, {access} set-access, {launches} launches"
        );
    }
}

/// Prints what a step costs with warm caches and after other work, and times it.
pub(crate) fn measure(c: &mut Criterion, name: &str, slots: usize, mut run: impl FnMut() -> [Cost; 2]) {
    // More than the first two levels of a core's caches.
    let mut other = vec![0_u8; 8 << 20];
    let mut told = false;
    let mut group = c.benchmark_group("begin_end");
    group.throughput(Throughput::Elements(slots as u64));
    group.bench_function(name, |b| {
        // Here, so that only what was asked for on the command line runs.
        if !std::mem::replace(&mut told, true) {
            tell(name, "warm", &mut run, || ());
            tell(name, "cold", &mut run, || {
                black_box(&mut other).iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            });
        }
        b.iter(&mut run);
    });
    group.finish();
}
