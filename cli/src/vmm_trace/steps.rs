//! Steps, where a stream tells: the graph that is launched most begins one at each launch.

use super::line::Line;
use serde::Serialize;
use std::collections::HashMap;

/// Calls in front of each launch so far: by graph and stream.
#[derive(Debug, Default)]
pub(super) struct Watch {
    calls: u64,
    ns: u64,
    /// At each launch, the calls and nanoseconds until then.
    launches: HashMap<(u64, u64), Vec<(u64, u64)>>,
}

/// What lies between two launches of the graph that is launched most.
#[derive(Debug, Serialize)]
pub(super) struct Steps {
    /// How many.
    pub(super) count: u64,
    /// Steps without a call.
    quiet: u64,
    /// Calls a step.
    calls_mean: f64,
    /// The most of a step.
    calls_max: u64,
    /// Microseconds of calls a step.
    us_mean: f64,
}

impl Watch {
    pub(super) fn add(&mut self, line: &Line<'_>) {
        if line.call == "launch" {
            self.launches.entry((line.handle, line.address)).or_default().push((self.calls, self.ns));
        } else {
            self.calls += 1;
            self.ns = self.ns.saturating_add(line.took_ns);
        }
    }

    pub(super) fn finish(self) -> Option<Steps> {
        let marks = self.launches.into_values().max_by_key(Vec::len)?;
        let (first, last) = (*marks.first()?, *marks.last()?);
        let of_steps: Vec<u64> = marks.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        let count = of_steps.len() as u64;
        if count == 0 {
            return None;
        }
        Some(Steps {
            count,
            quiet: of_steps.iter().filter(|&&calls| calls == 0).count() as u64,
            calls_mean: (last.0 - first.0) as f64 / count as f64,
            calls_max: of_steps.into_iter().max().unwrap_or(0),
            us_mean: (last.1 - first.1) as f64 / 1e3 / count as f64,
        })
    }
}

impl Steps {
    pub(super) fn text(&self) -> String {
        format!(
            "{} steps, by the graph that is launched most: {:.2} calls and {:.1} µs a step, {} at most; {} steps had none",
            self.count, self.calls_mean, self.us_mean, self.calls_max, self.quiet
        )
    }
}
