//! Medians and spread.

use serde::Serialize;

/// Of many times, in µs.
#[derive(Serialize, Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Spread {
    pub(super) median: f64,
    /// A quarter of the times are shorter.
    pub(super) q1: f64,
    /// A quarter of the times are longer.
    pub(super) q3: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) samples: usize,
}

impl Spread {
    /// None of no times.
    pub(super) fn of(mut us: Vec<f64>) -> Option<Self> {
        us.sort_by(f64::total_cmp);
        let (min, max) = (*us.first()?, *us.last()?);
        Some(Self {
            median: round(quantile(&us, 0.5)),
            q1: round(quantile(&us, 0.25)),
            q3: round(quantile(&us, 0.75)),
            min: round(min),
            max: round(max),
            samples: us.len(),
        })
    }

    /// For people: the median, and the quartiles behind it.
    pub(super) fn text(&self) -> String {
        format!("{} ({}–{})", short(self.median), short(self.q1), short(self.q3))
    }
}

/// Between the two nearest of sorted `values`, which are not empty.
pub(super) fn quantile(values: &[f64], part: f64) -> f64 {
    let place = part * (values.len() - 1) as f64;
    let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
    (high - low).mul_add(place.fract(), low)
}

/// The middle one; none of none.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| quantile(&values, 0.5))
}

/// Nanoseconds are what a clock can tell.
pub(super) fn round(us: f64) -> f64 {
    (us * 1e3).round() / 1e3
}

/// Three or so digits.
pub(super) fn short(us: f64) -> String {
    match us.abs() {
        size if size >= 99.95 => format!("{us:.0}"),
        size if size >= 9.995 => format!("{us:.1}"),
        _ => format!("{us:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_nearest() {
        let spread = Spread::of(vec![5.0, 1.0, 2.0, 4.0, 3.0]).expect("times");
        let expected = Spread { median: 3.0, q1: 2.0, q3: 4.0, min: 1.0, max: 5.0, samples: 5 };
        assert_eq!(spread, expected);
        assert_eq!(Spread::of(vec![1.0, 2.0]).map(|s| (s.q1, s.median, s.q3)), Some((1.25, 1.5, 1.75)));
        assert_eq!(Spread::of(Vec::new()), None);
        assert_eq!(spread.text(), "3.00 (2.00–4.00)");
        assert_eq!([1234.4, 99.96, 12.34, 0.123].map(short), ["1234", "100", "12.3", "0.12"]);
    }
}
