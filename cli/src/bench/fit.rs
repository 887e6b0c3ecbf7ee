//! From what was measured to a table of costs.

use super::copies::CopyRow;
use super::header::Header;
use super::peers;
use super::row::Row;
use super::spread::{median, quantile, round};
use crate::costs::File;
use gvmm::driver::host::{Costs, Point};
use serde::Serialize;

/// How far what a part of the costs says is from what was measured, in parts of the latter.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct Fit {
    pub(super) of: &'static str,
    pub(super) points: usize,
    pub(super) median_error: f64,
    pub(super) worst_error: f64,
}

/// What each call costs, and how well that tells the calls over many blocks.
pub(super) fn costs(header: &Header, rows: &[Row], copies: &[CopyRow]) -> (File, Vec<Fit>) {
    let copied = Copied::of(copies);
    let local = |what: &'static str| {
        by_size(rows, move |row| row.what == what && row.peers == 0, |row| row.us.median)
    };
    let costs = Costs {
        name: header.costs_name(),
        reserve_us: middle(rows, "reserve"),
        free_us: middle(rows, "free"),
        create: local("create"),
        release: local("release"),
        map_us: middle(rows, "map"),
        unmap: local("unmap"),
        set_access: by_size(rows, |row| is_access(row) && row.peers == 0, per_block),
        allocate_us: middle(rows, "allocate"),
        deallocate_us: middle(rows, "deallocate"),
        copy_joint_host: copied.joint_host,
        copy_joint_device: copied.joint_device,
        copy_single_host_us: copied.single_host,
        copy_single_device_us: copied.single_device,
        bandwidth: copied.bandwidth,
        ..peers::of(rows)
    };
    let fits = fits(rows, &costs);
    (costs.into(), fits)
}

/// Access for all blocks together, or for one.
fn is_access(row: &Row) -> bool {
    matches!(row.what, "set_access" | "set_access_each") && !row.call_each
}

/// Access by a single driver call.
pub(super) fn in_one_call(row: &Row) -> bool {
    is_access(row) && row.calls.set_access == 1
}

/// Over how many blocks the calls of an access row went.
pub(super) fn blocks_of(row: &Row) -> f64 {
    if row.what == "set_access_each" { 1.0 } else { row.blocks as f64 }
}

fn per_block(row: &Row) -> f64 {
    row.us.median / blocks_of(row)
}

/// The middle of the rows of that name; 0 of none.
fn middle(rows: &[Row], what: &str) -> f64 {
    let named = rows.iter().filter(|row| row.what == what);
    median(named.map(|row| row.us.median).collect()).map_or(0.0, round)
}

/// Sizes of blocks, each once.
pub(super) fn sizes<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<u64> {
    let mut sizes: Vec<u64> = rows.map(|row| row.block_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// For each block size what is told by the rows with the most blocks: calls that are made while there are others.
pub(super) fn by_size(
    rows: &[Row],
    of: impl Fn(&Row) -> bool + Copy,
    us: impl Fn(&Row) -> f64 + Copy,
) -> Vec<Point> {
    let point = |at: u64| {
        let all = || rows.iter().filter(|row| of(row) && row.block_bytes == at);
        let most = all().map(|row| row.blocks).max();
        let values = all().filter(|row| Some(row.blocks) == most).map(us);
        median(values.collect()).map(|us| Point { at, us: round(us) })
    };
    sizes(rows.iter().filter(|row| of(row))).into_iter().filter_map(point).collect()
}

#[derive(Default)]
struct Copied {
    joint_host: Vec<Point>,
    joint_device: Vec<Point>,
    single_host: f64,
    single_device: f64,
    bandwidth: u64,
}

impl Copied {
    fn of(copies: &[CopyRow]) -> Self {
        let small = |what: &'static str| {
            let least = copies.iter().map(|row| row.slice_bytes).min();
            copies.iter().filter(move |row| row.what == what && Some(row.slice_bytes) == least)
        };
        let fixed = small("joint").next().map_or(0.0, |row| row.gpu_us.median);
        let large = copies.iter().max_by_key(|row| row.slice_bytes);
        let rate = large.map_or(0.0, |row| {
            let alone = row.gpu_us.median - fixed;
            2.0 * row.slice_bytes as f64 / if alone > 0.0 { alone } else { row.gpu_us.median }
        });
        let moving =
            |row: &CopyRow| if rate > 0.0 { 2.0 * (row.slices * row.slice_bytes) as f64 / rate } else { 0.0 };
        let besides = |row: &CopyRow| (row.gpu_us.median - moving(row)).max(0.0);
        let points = |us: &dyn Fn(&CopyRow) -> f64| {
            small("joint").map(|row| Point { at: row.slices, us: round(us(row)) }).collect()
        };
        let most = small("single").max_by_key(|row| row.slices);
        let each = |us: &dyn Fn(&CopyRow) -> f64| most.map_or(0.0, |row| round(us(row) / row.slices as f64));
        Self {
            joint_host: points(&|row| row.host_us.median),
            joint_device: points(&besides),
            single_host: each(&|row| row.host_us.median),
            single_device: each(&besides),
            bandwidth: (rate * 1e6) as u64,
        }
    }
}

fn fits(rows: &[Row], costs: &Costs) -> Vec<Fit> {
    let local = |row: &Row| blocks_of(row) * at(&costs.set_access, row.block_bytes);
    let named = |what: &'static str| rows.iter().filter(move |row| row.what == what && row.peers > 0);
    let all = [
        fit("set_access, local", rows.iter().filter(|row| is_access(row) && row.peers == 0), local),
        fit("set_access that names peers", rows.iter().filter(|row| peers::is_told(row)), |row| {
            peers::set_access(costs, row)
        }),
        fit("unmap that peers could reach", named("unmap"), |row| peers::unmap(costs, row)),
    ];
    all.into_iter().flatten().collect()
}

/// The cost at a size that was measured.
pub(super) fn at(points: &[Point], size: u64) -> f64 {
    points.iter().find(|point| point.at == size).map_or(0.0, |point| point.us)
}

fn fit<'a>(of: &'static str, rows: impl Iterator<Item = &'a Row>, says: impl Fn(&Row) -> f64) -> Option<Fit> {
    let error = |row: &Row| (says(row) - row.us.median).abs() / row.us.median.max(1e-3);
    let mut errors: Vec<f64> = rows.map(error).collect();
    errors.sort_by(f64::total_cmp);
    let worst = *errors.last()?;
    Some(Fit {
        of,
        points: errors.len(),
        median_error: round(quantile(&errors, 0.5)),
        worst_error: round(worst),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::calls::Counts;
    use crate::bench::spread::Spread;

    fn row(blocks: u64, us: f64) -> Row {
        let us = Spread::of(vec![us]).expect("a time");
        let (what, calls) = ("unmap", Counts::default());
        Row {
            what,
            block_bytes: 2,
            blocks,
            access: None,
            peers: 1,
            call_each: false,
            beside: false,
            calls,
            us,
        }
    }

    #[test]
    fn an_error_is_told_in_parts_of_what_was_measured() {
        let rows = [row(1, 100.0), row(1, 50.0)];
        let fit = fit("x", rows.iter(), |_| 75.0).expect("points");
        assert_eq!(fit, Fit { of: "x", points: 2, median_error: 0.375, worst_error: 0.5 });
    }

    #[test]
    fn the_rows_with_the_most_blocks_are_asked() {
        let rows = [row(1, 100.0), row(16, 20.0), row(16, 22.0)];
        assert_eq!(by_size(&rows, |_| true, |row| row.us.median), [Point { at: 2, us: 21.0 }]);
    }
}
