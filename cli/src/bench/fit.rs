//! From what was measured to a table of costs.

use super::cell::Row;
use super::copies::CopyRow;
use super::header::Header;
use super::least_squares::solve;
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
    let peers = PeerFit::of(rows);
    let copied = Copied::of(copies);
    let costs = Costs {
        name: header.costs_name(),
        reserve_us: middle(rows, "reserve"),
        free_us: middle(rows, "free"),
        create: by_size(rows, |row| row.what == "create", |row| row.us.median),
        release: by_size(rows, |row| row.what == "release", |row| row.us.median),
        map_us: middle(rows, "map"),
        unmap: by_size(rows, |row| row.what == "unmap" && row.peers == 0, |row| row.us.median),
        set_access: by_size(rows, |row| is_access(row) && row.peers == 0, per_block),
        peer_set_access_us: peers.call,
        further_peer_set_access_us: peers.call_further,
        peer_set_access_mapping: peers.mapping.clone(),
        further_peer_set_access_mapping_us: peers.mapping_further,
        peer_unmap: by_size(rows, |row| row.what == "unmap" && row.peers == 1, |row| row.us.median),
        further_peer_unmap_us: further_unmap(rows),
        allocate_us: middle(rows, "allocate"),
        deallocate_us: middle(rows, "deallocate"),
        copy_joint_host: copied.joint_host,
        copy_joint_device: copied.joint_device,
        copy_single_host_us: copied.single_host,
        copy_single_device_us: copied.single_device,
        bandwidth: copied.bandwidth,
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

fn sizes(rows: &[Row], of: impl Fn(&Row) -> bool) -> Vec<u64> {
    let mut sizes: Vec<u64> = rows.iter().filter(|row| of(row)).map(|row| row.block_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// For each block size the middle one.
fn by_size(rows: &[Row], of: impl Fn(&Row) -> bool + Copy, us: impl Fn(&Row) -> f64 + Copy) -> Vec<Point> {
    let point = |at: u64| {
        let values = rows.iter().filter(|row| of(row) && row.block_bytes == at).map(us);
        median(values.collect()).map(|us| Point { at, us: round(us) })
    };
    sizes(rows, of).into_iter().filter_map(point).collect()
}

/// What `set_access` costs that names peers.
#[derive(Default)]
struct PeerFit {
    call: f64,
    call_further: f64,
    mapping: Vec<Point>,
    mapping_further: f64,
}

fn names_peers(row: &Row) -> bool {
    in_one_call(row) && row.peers > 0
}

impl PeerFit {
    /// A call with `n` blocks and `k` peers costs a + b(k - 1) + n(c + d(k - 1)), where c depends on the blocks' size.
    fn of(rows: &[Row]) -> Self {
        let rows: Vec<&Row> = rows.iter().filter(|row| names_peers(row)).collect();
        let owned: Vec<Row> = rows.iter().map(|row| (*row).clone()).collect();
        let sizes = sizes(&owned, names_peers);
        let several = rows.iter().any(|row| row.peers != rows[0].peers);
        let columns = |row: &&Row| {
            let (n, further) = (blocks_of(row), f64::from(row.peers - 1));
            let of_size = sizes.iter().map(|size| if *size == row.block_bytes { n } else { 0.0 });
            let of_peers = several.then_some([further, n * further]);
            std::iter::once(1.0).chain(of_size).chain(of_peers.into_iter().flatten()).collect::<Vec<f64>>()
        };
        let lines: Vec<Vec<f64>> = rows.iter().map(columns).collect();
        let times: Vec<f64> = rows.iter().map(|row| row.us.median).collect();
        let Some(found) = solve(&lines, &times) else {
            // One number of blocks only: all of it is the call's.
            return Self { call: median(times).map_or(0.0, round), ..Self::default() };
        };
        let at = |i: usize| found.get(i).map_or(0.0, |us| round(us.max(0.0)));
        let mapping = sizes.iter().enumerate().map(|(i, size)| Point { at: *size, us: at(1 + i) }).collect();
        let last = 1 + sizes.len();
        Self { call: at(0), call_further: at(last), mapping, mapping_further: at(last + 1) }
    }
}

/// What each peer after the first adds to an unmap.
fn further_unmap(rows: &[Row]) -> f64 {
    let unmaps = || rows.iter().filter(|row| row.what == "unmap" && !row.call_each);
    let same = |a: &Row, b: &Row| (a.block_bytes, a.blocks) == (b.block_bytes, b.blocks);
    let added = unmaps().filter(|row| row.peers > 1).filter_map(|row| {
        let one = unmaps().find(|other| other.peers == 1 && same(row, other))?;
        Some((row.us.median - one.us.median) / f64::from(row.peers - 1))
    });
    median(added.collect()).map_or(0.0, |us| round(us.max(0.0)))
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
    let at =
        |points: &[Point], size| points.iter().find(|point| point.at == size).map_or(0.0, |point| point.us);
    let local = |row: &Row| blocks_of(row) * at(&costs.set_access, row.block_bytes);
    let peers = |row: &Row| {
        let (n, further) = (blocks_of(row), f64::from(row.peers - 1));
        let mapping = at(&costs.peer_set_access_mapping, row.block_bytes)
            + further * costs.further_peer_set_access_mapping_us;
        costs.peer_set_access_us + further * costs.further_peer_set_access_us + n * mapping
    };
    let unmap = |row: &Row| {
        let further = f64::from(row.peers - 1) * costs.further_peer_unmap_us;
        at(&costs.peer_unmap, row.block_bytes).max(at(&costs.unmap, row.block_bytes)) + further
    };
    let all = [
        fit("set_access, local", rows.iter().filter(|row| is_access(row) && row.peers == 0), local),
        fit("set_access that names peers", rows.iter().filter(|row| names_peers(row)), peers),
        fit(
            "unmap that peers could reach",
            rows.iter().filter(|row| row.what == "unmap" && row.peers > 0),
            unmap,
        ),
    ];
    all.into_iter().flatten().collect()
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

    fn row(what: &'static str, block_bytes: u64, blocks: u64, peers: u32, us: f64) -> Row {
        let calls = Counts { set_access: 1, ..Counts::default() };
        let us = Spread::of(vec![us]).expect("a time");
        Row { what, block_bytes, blocks, access: None, peers, call_each: false, calls, us }
    }

    /// What a driver with these costs would have been measured at.
    fn measured(numbers: &[u64], peers: &[u32]) -> Vec<Row> {
        let mut rows = Vec::new();
        for (size, mapping) in [(2, 48.0), (64, 60.0)] {
            for &n in numbers {
                rows.push(row("set_access", size, n, 0, 28.0 * n as f64));
                rows.push(row("unmap", size, n, 0, 19.0));
                for &k in peers {
                    let further = f64::from(k - 1);
                    let us = 1000.0 + 250.0 * further + n as f64 * (mapping + 7.0 * further);
                    rows.push(row("set_access", size, n, k, us));
                    rows.push(row("unmap", size, n, k, 50.0 + 4.0 * further));
                }
            }
        }
        rows
    }

    fn costs_of(rows: &[Row]) -> Costs {
        let peers = PeerFit::of(rows);
        Costs {
            peer_set_access_us: peers.call,
            further_peer_set_access_us: peers.call_further,
            peer_set_access_mapping: peers.mapping,
            further_peer_set_access_mapping_us: peers.mapping_further,
            set_access: by_size(rows, |row| is_access(row) && row.peers == 0, per_block),
            unmap: by_size(rows, |row| row.what == "unmap" && row.peers == 0, |row| row.us.median),
            peer_unmap: by_size(rows, |row| row.what == "unmap" && row.peers == 1, |row| row.us.median),
            further_peer_unmap_us: further_unmap(rows),
            ..Costs::builtin("h200").expect("built in")
        }
    }

    #[test]
    fn the_terms_for_peers_are_found_again() {
        let rows = measured(&[1, 16, 64], &[1, 3, 7]);
        let costs = costs_of(&rows);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 0.01, "{a} {b}");
        close(costs.peer_set_access_us, 1000.0);
        close(costs.further_peer_set_access_us, 250.0);
        close(costs.further_peer_set_access_mapping_us, 7.0);
        close(costs.further_peer_unmap_us, 4.0);
        let at =
            |points: &[Point]| points.iter().map(|point| (point.at, point.us.round())).collect::<Vec<_>>();
        assert_eq!(at(&costs.peer_set_access_mapping), [(2, 48.0), (64, 60.0)]);
        assert_eq!(
            (at(&costs.set_access), at(&costs.peer_unmap)),
            (vec![(2, 28.0), (64, 28.0)], vec![(2, 50.0), (64, 50.0)])
        );
        for fit in fits(&rows, &costs) {
            assert!(fit.points > 0 && fit.worst_error < 0.001, "{fit:?}");
        }
    }

    #[test]
    fn one_peer_or_one_number_of_blocks_gives_what_can_be_told() {
        let costs = costs_of(&measured(&[1, 64], &[1]));
        assert!((costs.peer_set_access_us - 1000.0).abs() < 0.01);
        assert!(costs.further_peer_set_access_us.abs() < 1e-9 && costs.further_peer_unmap_us.abs() < 1e-9);
        let lone = costs_of(&measured(&[1], &[1]));
        assert!((lone.peer_set_access_us - 1054.0).abs() < 0.01 && lone.peer_set_access_mapping.is_empty());
        assert!(costs_of(&measured(&[1, 64], &[])).peer_set_access_us.abs() < 1e-9);
    }

    #[test]
    fn an_error_is_told_in_parts_of_what_was_measured() {
        let rows = [row("unmap", 2, 1, 1, 100.0), row("unmap", 2, 1, 1, 50.0)];
        let fit = fit("x", rows.iter(), |_| 75.0).expect("points");
        assert_eq!(fit, Fit { of: "x", points: 2, median_error: 0.375, worst_error: 0.5 });
    }
}
