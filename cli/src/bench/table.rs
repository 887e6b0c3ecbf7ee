//! Tables for people, in Markdown, so that they can go into a document.

use super::copies::CopyRow;
use super::quiet::Calm;
use super::row::Row;
use super::spread::{Spread, short};
use super::steps::{Comparison, Outcome, PLANNER, Recording};
use super::vmm::Report;
use comfy_table::{Table, presets};

/// Bytes in the unit that suits them.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.into_iter().find(|(shift, _)| bytes >> shift > 0);
    let Some((shift, unit)) = unit else { return format!("{bytes} B") };
    let whole = bytes >> shift << shift == bytes;
    let number = bytes as f64 / f64::from(1_u32 << shift);
    if whole { format!("{number:.0} {unit}") } else { format!("{number:.1} {unit}") }
}

fn markdown<const N: usize>(header: [String; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    table
}

pub(super) fn vmm(report: &Report) -> String {
    let unit = report.header.unit();
    let mut parts = vec![report.header.text()];
    parts.extend([blocks(report, unit), accesses(report, unit), copies(report, unit)].into_iter().flatten());
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    parts.extend(report.fits.iter().map(|fit| {
        let (median, worst) = (percent(fit.median_error), percent(fit.worst_error));
        format!(
            "costs tell {}: off by {median} in the middle, {worst} at worst, of {} points",
            fit.of, fit.points
        )
    }));
    parts.extend(
        report.skipped.iter().map(|skipped| format!("not measured: {}: {}", skipped.what, skipped.why)),
    );
    parts.push(report.quiet.clone());
    parts.join("\n")
}

/// The sizes and numbers of blocks, in the order in which they were measured.
fn cells(rows: &[Row]) -> Vec<(u64, u64)> {
    let mut cells: Vec<(u64, u64)> = Vec::new();
    for row in rows.iter().filter(|row| row.what == "create") {
        if !cells.contains(&(row.block_bytes, row.blocks)) {
            cells.push((row.block_bytes, row.blocks));
        }
    }
    cells
}

fn find<'a>(rows: &'a [Row], cell: (u64, u64), what: &str, access: Option<&str>) -> Option<&'a Row> {
    rows.iter().find(|row| {
        (row.block_bytes, row.blocks) == cell
            && row.what == what
            && access.is_none_or(|a| row.access.as_deref() == Some(a))
    })
}

fn time(row: Option<&Row>) -> String {
    row.map_or_else(|| "–".into(), |row| row.us.text())
}

/// The calls that are about blocks and addresses alone.
fn blocks(report: &Report, unit: &str) -> Option<String> {
    let cells = cells(&report.rows);
    const CALLS: [&str; 5] = ["create", "release", "reserve", "free", "map"];
    let names = CALLS.map(|call| format!("{call}, {unit}"));
    let [a, b, c, d, e] = names;
    let mut table = markdown(["blocks".to_owned(), a, b, c, d, e]);
    for cell in &cells {
        let times = CALLS.map(|call| time(find(&report.rows, *cell, call, None)));
        table.add_row(std::iter::once(format!("{} × {}", cell.1, size(cell.0))).chain(times));
    }
    (!cells.is_empty()).then(|| format!("\none call\n\n{table}\n"))
}

/// What depends on who has access.
fn accesses(report: &Report, unit: &str) -> Option<String> {
    let header = [
        "blocks",
        "access",
        "set access of all",
        "calls (naming peers)",
        "of one",
        "unmap",
        "remap of all",
        "of one",
    ];
    let header = header.map(|name| {
        if matches!(name, "blocks" | "access" | "calls (naming peers)") {
            name.into()
        } else {
            format!("{name}, {unit}")
        }
    });
    let mut table = markdown(header);
    for cell in cells(&report.rows) {
        let all = report
            .rows
            .iter()
            .filter(|row| row.what == "set_access" && (row.block_bytes, row.blocks) == cell);
        for row in all {
            let access = row.access.as_deref();
            let at = |what| time(find(&report.rows, cell, what, access));
            table.add_row([
                format!("{} × {}", cell.1, size(cell.0)),
                access.unwrap_or_default().to_owned(),
                row.us.text(),
                format!("{} ({})", row.calls.set_access, row.calls.set_access_naming_peers),
                at("set_access_each"),
                at("unmap"),
                at("remap_all"),
                at("remap_one"),
            ]);
        }
    }
    (!table.is_empty()).then(|| format!("access, and whole remaps\n\n{table}\n"))
}

fn copies(report: &Report, unit: &str) -> Option<String> {
    let mut table = markdown([
        "copy".into(),
        "by".into(),
        "calls".into(),
        "launches".into(),
        format!("host, {unit}"),
        format!("GPU, {unit}"),
        "GB/s read and written".to_owned(),
    ]);
    for row in &report.copies {
        table.add_row([
            format!("{}: {} × {}", row.what, row.slices, size(row.slice_bytes)),
            row.by.into(),
            row.calls.to_string(),
            row.launches.to_string(),
            row.host_us.text(),
            row.gpu_us.text(),
            short(rate(row)),
        ]);
    }
    (!table.is_empty()).then(|| format!("copies; the GPU's time is that {}\n\n{table}\n", report.copy_clock))
}

/// A table for each recording.
pub(super) fn steps(comparison: &Comparison) -> String {
    let unit = comparison.header.unit();
    let parts = comparison.recordings.iter().map(|recording| {
        format!(
            "{}: {} slots, {}, {:.1} moving a step{}; means of counts a step; the graph alone lies {} {unit} apart; {}\n\n{}\n",
            recording.trace,
            recording.slots,
            size(recording.bytes),
            recording.moving,
            if recording.mixed { ", mixed" } else { "" },
            short(recording.noise_us),
            calm(recording, comparison.reference_us),
            strategies(recording, unit)
        )
    });
    let told = comparison.header.text() + "\n" + MEANS;
    std::iter::once(told).chain(parts).collect::<Vec<_>>().join("\n")
}

/// Whether the machine was quiet.
fn calm(recording: &Recording, least: f64) -> String {
    let Calm { kept_us, repeated_us } = &recording.reference;
    let most = kept_us.iter().copied().fold(0.0, f64::max);
    let times = most / least.max(1e-3);
    let disturbed = recording.reference.disturbed(least);
    let kept = kept_us.len();
    let repeated = repeated_us.len();
    format!(
        "rounds repeated: {repeated}, disturbed among the {kept} that count: {disturbed} (reference at most {times:.2} of its least)"
    )
}

/// How the table's numbers come about.
const MEANS: &str = "\
a time is the mean over the steps of the timed pass, each kind of step (in which the same slots move) by its median; in
brackets the quartiles of all steps. Ratios are of host and GPU time together; costs that differ by less than the graph alone lies
apart (its quartiles, launch and run) count as the same: that is noise. A plan that serves every slot that moves or is copied as a
pure strategy does makes the same calls: the lower of both costs counts. The last column has XLA's rule as XLA has it among the pure
strategies, slot by slot, in the place of that with joint copies. A reference (a fixed loop and a small load that is always the
same) is timed before, between and after all strategies, on a core that nobody disturbs if there is one; a round in which its
median is more than 1.15 times its least of all rounds is disturbed and made once more.
";

fn strategies(recording: &Recording, unit: &str) -> Table {
    let mut table = markdown([
        "strategy".into(),
        "slots copied / mapped / baked / patched".into(),
        "map / unmap / set access".into(),
        "copy launches".into(),
        "slots copied".into(),
        "commands patched".into(),
        "wrong".into(),
        format!("begin to end: host, {unit}"),
        format!("GPU, {unit}"),
        format!("data checked between: host, {unit}"),
        format!("GPU, {unit}"),
        format!("predicted: host + GPU, {unit}"),
        "both, of the best pure".into(),
        "with XLA's rule slot by slot".into(),
    ]);
    for outcome in &recording.strategies {
        let (report, plan, step) = (&outcome.report, &outcome.report.plan, &outcome.report.per_step);
        let predicted = report.predicted_host_us.zip(report.predicted_gpu_us);
        table.add_row([
            outcome.strategy.into(),
            format!("{} / {} / {} / {}", plan.copy, plan.map, plan.bake, plan.patch),
            format!("{:.1} / {:.1} / {:.1}", step.map, step.unmap, step.set_access),
            format!("{:.1}", step.copy_launches),
            format!("{:.1}", step.copied_slots),
            format!("{:.1}", step.patches),
            report.mismatches.to_string(),
            mean(outcome.host_mean_us, &outcome.host_us),
            outcome.gpu_mean_us.zip(outcome.gpu_us).map_or_else(|| "–".into(), |(us, all)| mean(us, &all)),
            outcome.host_us_cold.text(),
            outcome.gpu_us_cold.map_or_else(|| "–".into(), |us| us.text()),
            predicted.map_or_else(|| "–".into(), |(host, gpu)| format!("{} + {}", short(host), short(gpu))),
            format!("{:.2}", outcome.ratio),
            format!("{:.2}", outcome.ratio_slot_by_slot),
        ]);
    }
    table
}

fn mean(us: f64, all: &Spread) -> String {
    format!("{} ({}–{})", short(us), short(all.q1), short(all.q3))
}

/// How often the planner and its predictions were as good as they should be.
pub(super) fn verdict(comparison: &Comparison) -> String {
    let pure = "the best pure strategy";
    let mut text = format!("\n{PLANNER}: {}", ratios(comparison, pure, |outcome| outcome.ratio));
    let apart = "that, were XLA's rule the one that copies slot by slot,";
    text += &ratios(comparison, apart, |outcome| outcome.ratio_slot_by_slot);
    text += &quiet(comparison);
    // Without a GPU half of what is predicted is not measured.
    let near = |host: &dyn Fn(&Recording) -> f64| {
        let cases = comparison.recordings.iter().flat_map(|recording| predicted(recording, host(recording)));
        let (near, far): (Vec<bool>, Vec<bool>) = cases.partition(|near| *near);
        (near.len(), near.len() + far.len())
    };
    let (as_told, cases) = near(&|_| 1.0);
    if cases > 0 {
        text += &format!("predicted and measured differ by less than 30 % in {as_told} of {cases} cases\n");
    }
    if let Some(then) = comparison.profile_reference_us.filter(|_| cases > 0) {
        let (scaled, _) = near(&|recording| recording.reference.middle() / then);
        text += &format!(
            "with host times times the reference beside them, by the {} µs that it took when the profile was measured: in {scaled}\n",
            short(then)
        );
    }
    text
}

/// How often the planner costs little of what is best without it.
fn ratios(comparison: &Comparison, best: &str, ratio: impl Fn(&Outcome) -> f64) -> String {
    let planner = |mixed: bool| {
        let recordings = comparison.recordings.iter().filter(move |recording| recording.mixed || !mixed);
        let outcomes = recordings.flat_map(|recording| &recording.strategies);
        outcomes.filter(|outcome| outcome.strategy == PLANNER).map(&ratio)
    };
    let within = |mixed, most: f64| planner(mixed).filter(|ratio| *ratio <= most).count();
    format!(
        "at most 1.05 times {best} in {} of {} cases, {:.2} at worst; at most 0.8 times in {} of {} mixed loads, and in {} of all\n",
        within(false, 1.05),
        planner(false).count(),
        planner(false).fold(0.0, f64::max),
        within(true, 0.8),
        planner(true).count(),
        within(false, 0.8),
    )
}

/// How quiet the machine was.
fn quiet(comparison: &Comparison) -> String {
    let least = comparison.reference_us;
    let all = || comparison.recordings.iter();
    let repeated: usize = all().map(|recording| recording.reference.repeated_us.len()).sum();
    let kept: usize = all().map(|recording| recording.reference.kept_us.len()).sum();
    let disturbed = |recording: &&Recording| recording.reference.disturbed(least) > 0;
    let loads: Vec<&str> = all().filter(disturbed).map(|recording| recording.trace.as_str()).collect();
    let rounds: usize = all().map(|recording| recording.reference.disturbed(least)).sum();
    let verdict = match loads.is_empty() {
        true => "none of those that count was disturbed: the machine was quiet".to_owned(),
        false => format!("{rounds} of those that count were disturbed: {}", loads.join(", ")),
    };
    format!(
        "the reference takes {} µs; {kept} rounds count, {repeated} were repeated; {verdict}\n",
        short(least)
    )
}

/// For each strategy of which that can be said, whether it cost what was predicted, the host's times taken `host` times.
fn predicted(recording: &Recording, host: f64) -> impl Iterator<Item = bool> {
    let outcomes = recording.strategies.iter().filter(|outcome| outcome.gpu_us.is_some());
    outcomes.filter_map(move |outcome| {
        let (report, measured) = (&outcome.report, outcome.cost_us);
        let by_host = report.predicted_host_us? + report.predicted_still_us?;
        let predicted = (host - 1.0).mul_add(by_host, report.predicted_us?);
        let apart = (predicted - measured).abs();
        Some(apart <= 0.3 * measured || apart <= recording.noise_us)
    })
}

/// Bytes read and written a second, in GB.
fn rate(row: &CopyRow) -> f64 {
    2.0 * (row.slices * row.slice_bytes) as f64 / row.gpu_us.median.max(1e-3) / 1e3
}
