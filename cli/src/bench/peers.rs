//! What it costs that peers are given access, as far as what was measured tells it.

use super::fit::{at, blocks_of, by_size, in_one_call, sizes};
use super::least_squares::solve;
use super::row::Row;
use super::spread::{median, round};
use gvmm::driver::host::{Costs, Point};

/// The fields of a table of costs that are about peers; all others cost nothing.
pub(super) fn of(rows: &[Row]) -> Costs {
    let told: Vec<&Row> = rows.iter().filter(|row| is_told(row)).collect();
    let mut costs = set_accesses(&told);
    costs.peer_unmap = by_size(rows, |row| is_unmap(row) && row.peers == 1, |row| row.us.median);
    costs.further_peer_unmap_us = further(&many(rows), |_| 0.0);
    let steady = |row: &Row| {
        let others = many(rows);
        let same = |other: &&&Row| other.block_bytes == row.block_bytes && other.peers == row.peers;
        others.iter().find(same).map_or(0.0, |other| other.us.median)
    };
    let lone: Vec<&Row> = rows.iter().filter(|row| is_unmap(row) && row.peers > 0 && is_lone(row)).collect();
    let above = |row: &Row| (row.us.median - steady(row)).max(0.0);
    let last = lone.iter().filter(|row| row.peers == 1);
    costs.last_peer_unmap = last.map(|row| Point { at: row.block_bytes, us: round(above(row)) }).collect();
    costs.further_last_peer_unmap_us = further(&lone, steady);
    costs
}

/// Access in one call that names peers. Where two blocks get access one by one, one of them is the first.
pub(super) fn is_told(row: &Row) -> bool {
    in_one_call(row) && row.peers > 0 && (row.what == "set_access" || row.blocks != 2)
}

fn is_unmap(row: &Row) -> bool {
    row.what == "unmap" && !row.call_each
}

/// True where no peer could reach anything else.
fn is_lone(row: &Row) -> bool {
    row.blocks == 1 && !row.beside
}

/// True where no peer could reach anything when the call was made.
fn is_first(row: &Row) -> bool {
    !row.beside && (row.what == "set_access" || row.blocks == 1)
}

/// The unmaps with the most blocks, of each size and number of peers.
fn many(rows: &[Row]) -> Vec<&Row> {
    let all = || rows.iter().filter(|row| is_unmap(row) && row.peers > 0 && !is_lone(row));
    let most = all().map(|row| row.blocks).max();
    all().filter(|row| Some(row.blocks) == most).collect()
}

/// What each peer after the first adds to rows of the same blocks, beside what `less` says.
fn further(rows: &[&Row], less: impl Fn(&Row) -> f64) -> f64 {
    let same = |a: &Row, b: &Row| (a.block_bytes, a.blocks, a.beside) == (b.block_bytes, b.blocks, b.beside);
    let us = |row: &Row| row.us.median - less(row);
    let added = rows.iter().filter(|row| row.peers > 1).filter_map(|row| {
        let one = rows.iter().find(|other| other.peers == 1 && same(row, other))?;
        Some((us(row) - us(one)) / f64::from(row.peers - 1))
    });
    median(added.collect()).map_or(0.0, |us| round(us.max(0.0)))
}

/// The columns of what a call with `n` blocks and `k` peers costs.
struct Columns {
    sizes: Vec<u64>,
    /// There are rows with other numbers of peers.
    several: bool,
    /// The call costs something beside its blocks.
    call: bool,
}

impl Columns {
    /// call + n × block of that size + first of that size, and what each peer after the first adds to each.
    fn of(&self, row: &Row) -> Vec<f64> {
        let (n, k) = (blocks_of(row), f64::from(row.peers - 1));
        let first = if is_first(row) { 1.0 } else { 0.0 };
        let of_size = |value: f64| {
            self.sizes.iter().map(move |size| if *size == row.block_bytes { value } else { 0.0 })
        };
        let call = self.call.then_some(1.0);
        let further = if self.several { vec![n * k, first * k] } else { Vec::new() };
        let further_call = (self.several && self.call).then_some(k);
        of_size(n).chain(of_size(first)).chain(further).chain(call).chain(further_call).collect()
    }

    /// None where the rows do not tell the columns apart.
    fn solve(&self, rows: &[&Row]) -> Option<Costs> {
        let lines: Vec<Vec<f64>> = rows.iter().map(|row| self.of(row)).collect();
        // What no row has costs nothing.
        let width = lines.first()?.len();
        let used: Vec<usize> = (0..width).filter(|i| lines.iter().any(|line| line[*i] != 0.0)).collect();
        let kept: Vec<Vec<f64>> = lines.iter().map(|line| used.iter().map(|i| line[*i]).collect()).collect();
        let times: Vec<f64> = rows.iter().map(|row| row.us.median).collect();
        let found = solve(&kept, &times)?;
        let mut all = vec![0.0; width];
        used.iter().zip(found).for_each(|(i, us)| all[*i] = round(us.max(0.0)));
        Some(self.costs(&all))
    }

    fn costs(&self, us: &[f64]) -> Costs {
        let count = self.sizes.len();
        let points =
            |from: usize| self.sizes.iter().zip(&us[from..]).map(|(at, us)| Point { at: *at, us: *us });
        let rest = &us[2 * count..];
        let (further, calls) = rest.split_at(if self.several { 2 } else { 0 });
        let get = |list: &[f64], i: usize| list.get(i).copied().unwrap_or(0.0);
        Costs {
            peer_set_access_mapping: points(0).collect(),
            first_peer_set_access: points(count).collect(),
            further_peer_set_access_mapping_us: get(further, 0),
            further_first_peer_set_access_us: get(further, 1),
            peer_set_access_us: get(calls, 0),
            further_peer_set_access_us: get(calls, 1),
            ..Costs::default()
        }
    }
}

fn set_accesses(rows: &[&Row]) -> Costs {
    let Some(one) = rows.first() else { return Costs::default() };
    let several = rows.iter().any(|row| row.peers != one.peers);
    let columns = |call| Columns { sizes: sizes(rows.iter().copied()), several, call };
    columns(true).solve(rows).or_else(|| columns(false).solve(rows)).unwrap_or_else(|| {
        // One number of blocks only, and nothing beside them: all of it is the call's.
        let times = rows.iter().map(|row| row.us.median).collect();
        Costs { peer_set_access_us: median(times).map_or(0.0, round), ..Costs::default() }
    })
}

/// What the costs say a row takes.
pub(super) fn set_access(costs: &Costs, row: &Row) -> f64 {
    let (n, k) = (blocks_of(row), f64::from(row.peers - 1));
    let mapping =
        at(&costs.peer_set_access_mapping, row.block_bytes) + k * costs.further_peer_set_access_mapping_us;
    let first =
        at(&costs.first_peer_set_access, row.block_bytes) + k * costs.further_first_peer_set_access_us;
    let call = costs.peer_set_access_us + k * costs.further_peer_set_access_us;
    call + n * mapping + if is_first(row) { first } else { 0.0 }
}

/// What the costs say a row takes.
pub(super) fn unmap(costs: &Costs, row: &Row) -> f64 {
    let k = f64::from(row.peers - 1);
    let last = at(&costs.last_peer_unmap, row.block_bytes) + k * costs.further_last_peer_unmap_us;
    let steady = at(&costs.peer_unmap, row.block_bytes).max(at(&costs.unmap, row.block_bytes));
    steady + k * costs.further_peer_unmap_us + if is_lone(row) { last } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::calls::Counts;
    use crate::bench::spread::Spread;

    fn row(what: &'static str, at: (u64, u64), peers: u32, beside: bool, us: f64) -> Row {
        let calls = Counts { set_access: 1, ..Counts::default() };
        let us = Spread::of(vec![us]).expect("a time");
        Row {
            what,
            block_bytes: at.0,
            blocks: at.1,
            access: None,
            peers,
            call_each: false,
            beside,
            calls,
            us,
        }
    }

    fn wanted() -> Costs {
        let points = |us: [f64; 2]| vec![Point { at: 2, us: us[0] }, Point { at: 64, us: us[1] }];
        Costs {
            peer_set_access_us: 20.0,
            further_peer_set_access_us: 5.0,
            first_peer_set_access: points([1400.0, 2200.0]),
            further_first_peer_set_access_us: 300.0,
            peer_set_access_mapping: points([48.0, 60.0]),
            further_peer_set_access_mapping_us: 7.0,
            peer_unmap: points([36.0, 43.0]),
            further_peer_unmap_us: 4.0,
            last_peer_unmap: points([440.0, 730.0]),
            further_last_peer_unmap_us: 9.0,
            ..Costs::default()
        }
    }

    /// What a driver with the wanted costs would have been measured at.
    fn measured(numbers: &[u64], peers: &[u32], besides: &[bool]) -> Vec<Row> {
        let costs = wanted();
        let mut rows = Vec::new();
        for (size, &blocks) in [2, 64].into_iter().flat_map(|size| numbers.iter().map(move |n| (size, n))) {
            for (&k, &beside) in peers.iter().flat_map(|k| besides.iter().map(move |beside| (k, beside))) {
                for what in ["set_access", "set_access_each"] {
                    let made = row(what, (size, blocks), k, beside, 1.0);
                    let us = set_access(&costs, &made);
                    rows.push(row(what, (size, blocks), k, beside, us));
                }
                let us = unmap(&costs, &row("unmap", (size, blocks), k, beside, 1.0));
                rows.push(row("unmap", (size, blocks), k, beside, us));
            }
        }
        rows
    }

    fn close(found: &Costs, wanted: &Costs) {
        let numbers = |costs: &Costs| {
            let all = [
                &costs.first_peer_set_access,
                &costs.peer_set_access_mapping,
                &costs.peer_unmap,
                &costs.last_peer_unmap,
            ];
            let points = all.into_iter().flatten().map(|point| point.us);
            let single = [
                costs.peer_set_access_us,
                costs.further_peer_set_access_us,
                costs.further_first_peer_set_access_us,
                costs.further_peer_set_access_mapping_us,
                costs.further_peer_unmap_us,
                costs.further_last_peer_unmap_us,
            ];
            points.chain(single).collect::<Vec<f64>>()
        };
        let (found, wanted) = (numbers(found), numbers(wanted));
        let all = found.len() == wanted.len() && found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 0.02);
        assert!(all, "{found:?}\n{wanted:?}");
    }

    #[test]
    fn every_term_for_peers_is_found_again() {
        close(&of(&measured(&[1, 16, 64], &[1, 3, 7], &[false, true])), &wanted());
        close(&of(&measured(&[1, 16, 64], &[1, 3], &[false])), &wanted());
    }

    #[test]
    fn one_peer_tells_nothing_of_further_ones() {
        let one = Costs {
            further_peer_set_access_us: 0.0,
            further_first_peer_set_access_us: 0.0,
            further_peer_set_access_mapping_us: 0.0,
            further_peer_unmap_us: 0.0,
            further_last_peer_unmap_us: 0.0,
            ..wanted()
        };
        close(&of(&measured(&[1, 16, 64], &[1], &[false, true])), &one);
    }

    #[test]
    fn with_one_number_of_blocks_what_can_be_told_is() {
        let lone = of(&measured(&[1], &[1], &[false, true]));
        assert!(lone.peer_set_access_us.abs() < 1e-9);
        assert!((lone.peer_set_access_mapping[0].us - 68.0).abs() < 0.02, "the call's and the block's");
        assert!((lone.first_peer_set_access[1].us - 2200.0).abs() < 0.02);
        let least = of(&measured(&[1], &[1], &[false]));
        assert!(least.peer_set_access_us > 1400.0 && least.peer_set_access_mapping.is_empty());
        assert_eq!(of(&[]), Costs::default());
    }
}
