//! The line through measured points.

/// The factors by which columns are to be multiplied so that their sums come closest to `values`, in parts of each
/// value. None where the points do not tell the factors apart.
pub(super) fn solve(rows: &[Vec<f64>], values: &[f64]) -> Option<Vec<f64>> {
    let width = rows.first()?.len();
    let mut system = vec![vec![0.0; width + 1]; width];
    for (row, value) in rows.iter().zip(values).filter(|(_, value)| **value > 0.0) {
        let weighted: Vec<f64> = row.iter().map(|x| x / value).collect();
        for (i, line) in system.iter_mut().enumerate() {
            for (j, x) in weighted.iter().enumerate() {
                line[j] += weighted[i] * x;
            }
            line[width] += weighted[i];
        }
    }
    eliminate(system)
}

/// Gauss and Jordan's way, with the largest pivot of each column.
fn eliminate(mut system: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    const TOLERANCE: f64 = 1e-9;
    let width = system.len();
    let scales: Vec<f64> = (0..width).map(|i| system[i][i]).collect();
    for (column, scale) in scales.iter().enumerate() {
        let size = |line: &usize| system[*line][column].abs();
        let largest = (column..width).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        system.swap(column, largest);
        let pivot = system[column].clone();
        if pivot[column].abs() <= TOLERANCE * scale {
            return None;
        }
        for (_, line) in system.iter_mut().enumerate().filter(|(i, _)| *i != column) {
            let factor = line[column] / pivot[column];
            line.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= factor * p);
        }
    }
    Some((0..width).map(|i| system[i][width] / system[i][i]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_found_again() {
        let rows: Vec<Vec<f64>> = [(1.0, 1.0), (16.0, 1.0), (64.0, 1.0), (1.0, 3.0), (64.0, 3.0)]
            .map(|(n, k): (f64, f64)| vec![1.0, k - 1.0, n, n * (k - 1.0)])
            .into();
        let factors = [1000.0, 250.0, 48.0, 7.0];
        let values: Vec<f64> =
            rows.iter().map(|row| row.iter().zip(factors).map(|(x, f)| x * f).sum()).collect();
        let found = solve(&rows, &values).expect("a solution");
        for (found, factor) in found.iter().zip(factors) {
            assert!((found - factor).abs() < 1e-6 * factor, "{found} {factor}");
        }
    }

    #[test]
    fn points_that_say_too_little_have_no_answer() {
        assert_eq!(solve(&[vec![1.0, 2.0], vec![2.0, 4.0]], &[1.0, 2.0]), None);
        assert_eq!(solve(&[], &[]), None);
    }
}
