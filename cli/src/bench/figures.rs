//! From measured times to a profile's figures.

use super::least_squares::solve;
use super::row::Row;
use super::spread::Spread;
use gvmm::rebind::profile::{Curve, Figure, Picos, Point};

/// Times in µs; what is below 0 is 0.
pub(super) fn figure(median: f64, spread: f64) -> Figure {
    let picos = |us: f64| Picos::from_us(us.max(0.0)).unwrap_or(Picos::LONGEST);
    Figure { median: picos(median), spread: picos(spread) }
}

/// With how far the middle half of the times lies from the median at most.
pub(super) fn figure_of(spread: &Spread) -> Figure {
    figure(spread.median, (spread.q3 - spread.median).max(spread.median - spread.q1))
}

/// A time by a block's bytes: of each size the row with the most blocks.
pub(super) fn curve(rows: &[Row], of: impl Fn(&Row) -> bool) -> Option<Curve> {
    let mut best: Vec<&Row> = Vec::new();
    for row in rows.iter().filter(|row| of(row)) {
        match best.iter_mut().find(|other| other.block_bytes == row.block_bytes) {
            Some(other) if other.blocks < row.blocks => *other = row,
            Some(_) => {}
            None => best.push(row),
        }
    }
    best.sort_by_key(|row| row.block_bytes);
    Curve::new(best.iter().map(|row| Point { bytes: row.block_bytes, time: figure_of(&row.us) }).collect())
}

/// What is taken once and what by each, from points of how many and µs.
pub(super) fn line(points: impl Iterator<Item = (f64, f64)>) -> [Figure; 2] {
    let (columns, times): (Vec<Vec<f64>>, Vec<f64>) = points.map(|(n, us)| (vec![1.0, n], us)).unzip();
    match solve(&columns, &times) {
        // A line that would begin below 0 goes through 0.
        Some(found) if found[0] < 0.0 => {
            let each: Vec<Vec<f64>> = columns.iter().map(|column| vec![column[1]]).collect();
            [figure(0.0, 0.0), figure(solve(&each, &times).map_or(0.0, |found| found[0]), 0.0)]
        }
        Some(found) => [figure(found[0], 0.0), figure(found[1], 0.0)],
        None => [figure(times.first().copied().unwrap_or(0.0), 0.0), figure(0.0, 0.0)],
    }
}

/// By how much each count is to be multiplied so that the sums come closest to the times; none is below 0: what would be
/// is left out.
pub(super) fn least<const N: usize>(counts: &[Vec<f64>], times: &[f64]) -> [Figure; N] {
    let mut kept: Vec<usize> = (0..N).collect();
    loop {
        let columns: Vec<Vec<f64>> =
            counts.iter().map(|row| kept.iter().map(|&i| row[i]).collect()).collect();
        let found = solve(&columns, times).unwrap_or_else(|| vec![0.0; kept.len()]);
        let below =
            (0..kept.len()).filter(|&n| found[n] < 0.0).min_by(|&a, &b| found[a].total_cmp(&found[b]));
        let Some(below) = below else {
            let mut figures = [Figure::default(); N];
            kept.iter().zip(found).for_each(|(&i, us)| figures[i] = figure(us, 0.0));
            return figures;
        };
        kept.remove(below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_below_0() {
        let us = |figure: Figure| figure.median.0 as f64 / 1e6;
        let [once, each] = line([(1.0, 5.5), (100.0, 55.0)].into_iter());
        assert!((us(once) - 5.0).abs() < 0.01 && (us(each) - 0.5).abs() < 0.001);
        let [once, each] = line([(1.0, 0.1), (2.0, 2.0), (4.0, 4.0)].into_iter());
        assert!(once.median == Picos::ZERO && us(each) > 0.0);
        assert_eq!(line([(3.0, 7.0)].into_iter()), [figure(7.0, 0.0), figure(0.0, 0.0)]);
        assert_eq!(line(std::iter::empty()), [Figure::default(); 2]);
    }

    #[test]
    fn what_would_be_below_0_is_left_out() {
        let counts = [vec![1.0, 10.0, 1.0], vec![1.0, 10.0, 5.0], vec![1.0, 40.0, 40.0]];
        let us = |figure: Figure| figure.median.0 as f64 / 1e6;
        let [once, slot, command] = least(&counts, &[1.0 + 0.5, 1.0 + 2.5, 1.0 + 20.0]).map(us);
        assert!((once - 1.0).abs() < 1e-6 && slot.abs() < 1e-6 && (command - 0.5).abs() < 1e-6);
        let [once, each] = least(&[vec![1.0, 1.0], vec![1.0, 100.0]], &[0.1, 20.0]).map(us);
        assert!(once.abs() < 1e-9 && each > 0.1 && each < 0.2);
    }

    #[test]
    fn of_each_size_the_row_with_the_most_blocks_counts() {
        let row = |block_bytes, blocks, us: f64| Row {
            what: "map",
            block_bytes,
            blocks,
            access: None,
            peers: 0,
            call_each: false,
            beside: false,
            calls: Default::default(),
            us: Spread::of(vec![us - 1.0, us, us + 1.0]).expect("times"),
        };
        let rows = [row(64, 1, 9.0), row(2, 16, 3.0), row(2, 1, 8.0), row(64, 16, 4.0)];
        let curve = curve(&rows, |_| true).expect("two points");
        let expected = [(2, figure(3.0, 0.5)), (64, figure(4.0, 0.5))];
        assert_eq!(
            curve.points().iter().map(|point| (point.bytes, point.time)).collect::<Vec<_>>(),
            expected
        );
    }
}
