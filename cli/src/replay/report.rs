//! What `gvmm replay` found, as JSON for programs and as a table for people.

use super::player::Outcome;
use comfy_table::{Cell, CellAlignment, Table, presets};
use gvmm::driver::testing::{Call, Meter};
use gvmm::pool::Pool;
use serde::Serialize;
use std::time::Duration;

/// The last repetition, and the first.
#[derive(Serialize, Debug)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) last: Repetition,
    pub(super) first: Repetition,
    /// "none" or "simulated: NAME".
    pub(super) costs: String,
}

/// The keys and their order are those of the JSON.
#[derive(Serialize, Clone, Debug)]
pub(super) struct Repetition {
    /// Allocations and frees, of all threads.
    pub(super) ops: u64,
    pub(super) peak_requested_bytes: u64,
    pub(super) peak_reserved_bytes: u64,
    pub(super) reserved_over_requested: f64,
    /// Allocations that failed for lack of memory.
    pub(super) oom: u64,
    pub(super) lent_chunks: u64,
    /// How often the host waited for a stream.
    pub(super) device_syncs: u64,
    pub(super) address_space_bytes: u64,
    pub(super) driver_calls: DriverCalls,
    pub(super) driver_ms: f64,
    pub(super) ns_per_op: NsPerOp,
    pub(super) canary_errors: u64,
}

#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub(super) struct DriverCalls {
    create: u64,
    map: u64,
    unmap: u64,
    set_access: u64,
    release: u64,
}

#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub(super) struct NsPerOp {
    mean: f64,
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// The figures of a pool and a driver that only grow.
pub(super) struct Counted {
    lent_chunks: u64,
    host_waits: u64,
    calls: DriverCalls,
    time: Duration,
}

impl Counted {
    pub(super) fn now(pool: &Pool, meter: &Meter) -> Self {
        let (stats, count) = (pool.stats(), |call| meter.of(call).count);
        let waits = |call: &Call| *call == Call::TIMELINE_WAIT;
        Self {
            lent_chunks: stats.lent_chunks,
            host_waits: stats.host_waits,
            calls: DriverCalls {
                create: count(Call::CREATE),
                map: count(Call::MAP),
                unmap: count(Call::UNMAP),
                set_access: count(Call::SET_ACCESS),
                release: count(Call::RELEASE),
            },
            time: Call::all().filter(|call| !waits(call)).map(|call| meter.of(call).time).sum(),
        }
    }
}

impl Repetition {
    /// Of what all threads found, and of how the figures were before; the pool's peaks began then.
    pub(super) fn new(
        ops: u64,
        peak_requested_bytes: u64,
        pool: &Pool,
        [before, after]: [&Counted; 2],
        outcomes: &[Outcome],
    ) -> Self {
        let stats = pool.stats();
        let reserved = stats.bytes.reserved.peak;
        let calls = |of: fn(&DriverCalls) -> u64| of(&after.calls) - of(&before.calls);
        let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum();
        Self {
            ops,
            peak_requested_bytes,
            peak_reserved_bytes: reserved,
            reserved_over_requested: reserved as f64 / peak_requested_bytes.max(1) as f64,
            oom: sum(|outcome| outcome.oom),
            lent_chunks: after.lent_chunks - before.lent_chunks,
            device_syncs: after.host_waits - before.host_waits,
            address_space_bytes: stats.address_space.current,
            driver_calls: DriverCalls {
                create: calls(|calls| calls.create),
                map: calls(|calls| calls.map),
                unmap: calls(|calls| calls.unmap),
                set_access: calls(|calls| calls.set_access),
                release: calls(|calls| calls.release),
            },
            driver_ms: after.time.saturating_sub(before.time).as_secs_f64() * 1e3,
            ns_per_op: NsPerOp::new(
                outcomes.iter().flat_map(|outcome| &outcome.nanoseconds).copied().collect(),
                outcomes.iter().map(|outcome| outcome.grouped),
            ),
            canary_errors: sum(|outcome| outcome.canary_errors),
        }
    }
}

impl NsPerOp {
    /// Of calls that were timed each by itself, and for the mean of the numbers of others and their time together, too.
    fn new(mut all: Vec<f32>, grouped: impl Iterator<Item = (u64, f64)>) -> Self {
        all.sort_unstable_by(f32::total_cmp);
        let last = all.len().saturating_sub(1);
        let at = |part: f64| all.get((last as f64 * part) as usize).copied().map_or(0.0, f64::from);
        let alone = (all.len() as u64, all.iter().copied().map(f64::from).sum::<f64>());
        let (calls, sum) = grouped.fold(alone, |sum, more| (sum.0 + more.0, sum.1 + more.1));
        let mean = sum / calls.max(1) as f64;
        // More digits say nothing.
        let [mean, p50, p99, p999, max] =
            [mean, at(0.5), at(0.99), at(0.999), at(1.0)].map(|ns| (ns * 10.0).round() / 10.0);
        Self { mean, p50, p99, p999, max }
    }
}

impl Report {
    /// The table for people.
    pub(super) fn table(&self, canary: bool) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.set_header([Cell::new(""), right("first".into()), right("last".into())]);
        let (first, last) = (rows(&self.first, canary), rows(&self.last, canary));
        for ((name, first), (_, last)) in first.into_iter().zip(last) {
            table.add_row([Cell::new(name), right(first), right(last)]);
        }
        let costs = || right(self.costs.clone());
        table.add_row([Cell::new("costs"), costs(), costs()]);
        table.to_string()
    }
}

fn rows(of: &Repetition, canary: bool) -> Vec<(&'static str, String)> {
    let bytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let (calls, ns) = (&of.driver_calls, &of.ns_per_op);
    let per_op = format!("{:.0} / {:.0} / {:.0} / {:.0} / {:.0}", ns.mean, ns.p50, ns.p99, ns.p999, ns.max);
    let canaries = if canary { of.canary_errors.to_string() } else { "not looked at".into() };
    vec![
        ("operations", of.ops.to_string()),
        ("peak requested", bytes(of.peak_requested_bytes)),
        ("peak reserved", bytes(of.peak_reserved_bytes)),
        ("... over requested", format!("{:.4}", of.reserved_over_requested)),
        ("allocations out of memory", of.oom.to_string()),
        ("chunks lent", of.lent_chunks.to_string()),
        ("waits of the host for a stream", of.device_syncs.to_string()),
        ("address space", bytes(of.address_space_bytes)),
        ("create / map / unmap", format!("{} / {} / {}", calls.create, calls.map, calls.unmap)),
        ("set access / release", format!("{} / {}", calls.set_access, calls.release)),
        ("time in driver calls", format!("{:.2} ms", of.driver_ms)),
        ("ns an operation: mean / p50 / p99 / p99.9 / most", per_op),
        ("blocks that were wrong", canaries),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let all = (1..=1001).rev().map(|n| n as f32).collect();
        let expected = NsPerOp { mean: 501.0, p50: 501.0, p99: 991.0, p999: 1000.0, max: 1001.0 };
        assert_eq!(NsPerOp::new(all, std::iter::empty()), expected);
        let none = NsPerOp { mean: 0.0, p50: 0.0, p99: 0.0, p999: 0.0, max: 0.0 };
        assert_eq!(NsPerOp::new(Vec::new(), std::iter::empty()), none);
        let both = NsPerOp::new(vec![100.0; 2], [(2, 60.0), (4, 60.0)].into_iter());
        assert_eq!((both.mean, both.max), (40.0, 100.0));
    }
}
