//! What a trace says, as tables and as JSON.

use super::line::Line;
use super::saved::Saved;
use super::steps::{Steps, Watch};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::collections::BTreeMap;

/// What the first line of a trace begins with.
const HEAD: &str = "# gvmm vmm-trace ";
/// The version of the format that is read.
const VERSION: &str = "1";
/// How many sizes a call is shown with.
const SIZES: usize = 12;

/// Calls of one kind, or of one kind and size.
#[derive(Debug, Default)]
struct Group {
    times: Vec<u64>,
    errors: u64,
    spared: u64,
    added: u64,
}

#[derive(Debug, Serialize)]
struct Row {
    call: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    count: usize,
    errors: u64,
    /// Answered without a call of the driver's.
    spared: u64,
    /// Calls of the driver's beyond one each.
    added: u64,
    us_total: f64,
    us_median: f64,
    us_max: f64,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    driver: String,
    process: u64,
    /// Lines that could not be read.
    pub(super) unread: u64,
    launches: usize,
    calls: Vec<Row>,
    sizes: Vec<Row>,
    steps: Option<Steps>,
    binding: Saved,
    #[serde(skip)]
    groups: BTreeMap<(String, Option<u64>), Group>,
    #[serde(skip)]
    order: Vec<String>,
    #[serde(skip)]
    watch: Watch,
}

impl Report {
    /// Reads the first line.
    pub(super) fn begin(head: &str) -> Result<Self, String> {
        let rest = head.strip_prefix(HEAD).ok_or("not a trace: write one with gvmm run --trace FILE")?;
        let words: Vec<&str> = rest.split(' ').collect();
        let [VERSION, driver, process] = words.as_slice() else {
            return Err(format!("a trace of a format that is not known: {rest}"));
        };
        Ok(Self {
            driver: (*driver).to_owned(),
            process: process.parse().unwrap_or(0),
            unread: 0,
            launches: 0,
            calls: Vec::new(),
            sizes: Vec::new(),
            steps: None,
            binding: Saved::default(),
            groups: BTreeMap::new(),
            order: Vec::new(),
            watch: Watch::default(),
        })
    }

    pub(super) fn add(&mut self, line: &Line<'_>) {
        self.watch.add(line);
        if line.call == "launch" {
            self.launches += 1;
            return;
        }
        self.binding.add(line);
        if !self.order.iter().any(|known| known == line.call) {
            self.order.push(line.call.to_owned());
        }
        let sized = (line.bytes != 0).then_some(Some(line.bytes));
        for size in [None].into_iter().chain(sized) {
            let group = self.groups.entry((line.call.to_owned(), size)).or_default();
            group.times.push(line.took_ns);
            group.errors += u64::from(line.status != 0);
            group.spared += u64::from(line.vendor_calls == 0);
            group.added = group.added.saturating_add(line.vendor_calls.saturating_sub(1));
        }
    }

    pub(super) fn finish(mut self) -> Self {
        let groups = std::mem::take(&mut self.groups);
        let mut rows: Vec<Row> =
            groups.into_iter().map(|((call, bytes), group)| group.row(call, bytes)).collect();
        let place = |order: &[String], call: &str| order.iter().position(|known| known == call);
        rows.sort_by_key(|row| (place(&self.order, &row.call), std::cmp::Reverse(row.count)));
        (self.sizes, self.calls) = rows.into_iter().partition(|row| row.bytes.is_some());
        let mut shown: BTreeMap<String, usize> = BTreeMap::new();
        self.sizes.retain(|row| {
            let count = shown.entry(row.call.clone()).or_default();
            *count += 1;
            *count <= SIZES
        });
        self.steps = std::mem::take(&mut self.watch).finish();
        self
    }

    pub(super) fn table(&self) -> String {
        let mut parts = vec![format!("driver {}, process {}", self.driver, self.process)];
        parts.push(table("call", &self.calls));
        if !self.sizes.is_empty() {
            parts.push(table("call and size", &self.sizes));
        }
        parts.push(match &self.steps {
            Some(steps) => steps.text(),
            None => "no stream told a step: no graph was launched twice".to_owned(),
        });
        parts.push(self.binding.text());
        if self.unread != 0 {
            parts.push(format!("{} lines could not be read", self.unread));
        }
        parts.join("\n\n")
    }
}

impl Group {
    fn row(mut self, call: String, bytes: Option<u64>) -> Row {
        self.times.sort_unstable();
        let us = |ns: u64| ns as f64 / 1e3;
        Row {
            call,
            bytes,
            count: self.times.len(),
            errors: self.errors,
            spared: self.spared,
            added: self.added,
            us_total: us(self.times.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns))),
            us_median: us(self.times.get(self.times.len() / 2).copied().unwrap_or(0)),
            us_max: us(self.times.last().copied().unwrap_or(0)),
        }
    }
}

fn table(first: &str, rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        first,
        "count",
        "errors",
        "without the driver",
        "driver calls more",
        "µs in all",
        "median",
        "most",
    ]);
    for row in rows {
        let name = row.bytes.map_or_else(|| row.call.clone(), |bytes| format!("{} {bytes} B", row.call));
        let times = [row.us_total, row.us_median, row.us_max].map(|us| format!("{us:.1}"));
        let counts = [row.count as u64, row.errors, row.spared, row.added].map(|count| count.to_string());
        table.add_row([name].into_iter().chain(counts).chain(times));
    }
    table.to_string()
}
