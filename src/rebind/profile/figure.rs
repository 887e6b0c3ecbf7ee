//! The numbers of a profile.

use std::fmt;

/// A time in picoseconds, so that a few ns a slice are a whole number. Sums stop at 2^64 - 1 (213 days).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Picos(pub u64);

impl Picos {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The longest that a single figure may be: 10 s.
    pub const LONGEST: Self = Self(10_000_000_000_000);

    /// `ns` nanoseconds.
    pub const fn ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1000))
    }

    /// A measured time in µs; none where it is negative, not a number, or longer than [`LONGEST`](Self::LONGEST).
    pub fn from_us(us: f64) -> Option<Self> {
        let ps = us * 1e6;
        (ps >= 0.0 && ps <= Self::LONGEST.0 as f64).then(|| Self(ps.round() as u64))
    }

    /// The sum.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, not below 0.
    pub(in crate::rebind) const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `count` times this.
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// The µs that `text` says, such as `1.15`; exact, and none where it is not that, finer than a picosecond or
    /// longer than [`LONGEST`](Self::LONGEST).
    pub(super) fn parse_us(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || whole.len() > 8 || part.len() > 6 || !digits(whole) || !digits(part) {
            return None;
        }
        let (whole, part): (u64, u64) = (whole.parse().ok()?, format!("{part:0<6}").parse().ok()?);
        Some(Self(whole * 1_000_000 + part)).filter(|&time| time <= Self::LONGEST)
    }
}

impl fmt::Display for Picos {
    /// In µs, exact: `1.15`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = format!("{:06}", self.0 % 1_000_000);
        let part = part.trim_end_matches('0');
        let point = if part.is_empty() { "" } else { "." };
        f.pad(&format!("{}{point}{part}", self.0 / 1_000_000))
    }
}

/// A measured time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figure {
    /// The median, which is what is reckoned with.
    pub median: Picos,
    /// How far the middle half of the measurements lies from it at most; 0 where that was not measured.
    pub spread: Picos,
}

impl Figure {
    /// A time of `ns` nanoseconds, its spread unknown.
    pub const fn ns(ns: u64) -> Self {
        Self { median: Picos::ns(ns), spread: Picos::ZERO }
    }

    /// The same with a spread of `ns` nanoseconds.
    pub(super) const fn spread_ns(mut self, ns: u64) -> Self {
        self.spread = Picos::ns(ns);
        self
    }
}

/// What something costs on either side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Charge {
    /// The calling thread's time.
    pub host: Figure,
    /// The time that the stream takes longer.
    pub gpu: Figure,
}

/// Joint copies in one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JointCopy {
    /// The launch, whatever it copies.
    pub launch: Charge,
    /// Each slice: the calling thread's time.
    pub slice_host: Figure,
    /// Each slice, by its bytes, besides the time that the memory takes to move these: the time that the stream takes
    /// longer, what reads them afterwards included.
    pub slice_gpu: Curve,
}

/// One measured point of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// At which size, in bytes; or at how many slots, where the curve is by these.
    pub bytes: u64,
    /// How long it takes there.
    pub time: Figure,
}

/// A time by bytes, or by how many slots there are where that is said. Between points it is a straight line; below the first it is the first's, and beyond
/// the last the last line goes on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Curve {
    points: Vec<Point>,
}

impl Curve {
    /// How many points a curve may have.
    pub const MOST: usize = 64;

    /// A curve through `points`; none where there is no point or more than [`MOST`](Self::MOST), or where the sizes
    /// do not grow.
    pub fn new(points: Vec<Point>) -> Option<Self> {
        let grows = points.windows(2).all(|pair| pair[0].bytes < pair[1].bytes);
        (grows && (1..=Self::MOST).contains(&points.len())).then_some(Self { points })
    }

    /// Its points, by size.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// How long it takes for `bytes`.
    pub fn at(&self, bytes: u64) -> Picos {
        let above = self.points.partition_point(|point| point.bytes < bytes);
        let Some(first) = self.points.first() else { return Picos::ZERO };
        if above == 0 || self.points.len() == 1 {
            return first.time.median;
        }
        let right = above.min(self.points.len() - 1);
        line(&self.points[right - 1], &self.points[right], bytes)
    }
}

/// The value at `bytes` of the line through two points, not below 0; `bytes` is beyond the left one.
fn line(left: &Point, right: &Point, bytes: u64) -> Picos {
    let (from, to) = (left.time.median.0, right.time.median.0);
    let (run, at) = (right.bytes - left.bytes, bytes - left.bytes);
    // Nearly always, and many times as fast.
    let change = to.abs_diff(from).checked_mul(at).map(|product| product / run);
    let change = change.unwrap_or_else(|| {
        let product = u128::from(to.abs_diff(from)) * u128::from(at);
        u64::try_from(product / u128::from(run)).unwrap_or(u64::MAX)
    });
    Picos(if to < from { from.saturating_sub(change) } else { from.saturating_add(change) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read_exactly() {
        for (ps, text) in [(0, "0"), (1, "0.000001"), (1_150_000, "1.15"), (10_000_000_000_000, "10000000")] {
            assert_eq!(Picos(ps).to_string(), text);
            assert_eq!(Picos::parse_us(text), Some(Picos(ps)));
        }
        for wrong in
            ["", ".", ".5", "-1", "+1", "1e3", "NaN", "inf", "1.0000001", "10000000.1", "99999999999", "1 "]
        {
            assert_eq!(Picos::parse_us(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_measured_time_is_checked() {
        assert_eq!(Picos::from_us(1.15), Some(Picos(1_150_000)));
        for wrong in [f64::NAN, f64::INFINITY, -0.1, 1e8] {
            assert_eq!(Picos::from_us(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_curve_is_straight_between_its_points() {
        let point = |bytes, ns| Point { bytes, time: Figure::ns(ns) };
        let curve = Curve::new(vec![point(10, 100), point(20, 200), point(40, 100)]).expect("sizes grow");
        let at = |bytes| curve.at(bytes).0 / 1000;
        assert_eq!([at(0), at(10), at(15), at(20), at(30), at(40)], [100, 100, 150, 200, 150, 100]);
        assert_eq!([at(50), at(1000)], [50, 0]);
        assert_eq!(Curve::new(vec![point(7, 3)]).expect("one is enough").at(u64::MAX), Picos::ns(3));
        let steep = Curve::new(vec![point(0, 0), point(1, 10_000_000_000)]).expect("sizes grow");
        assert_eq!(steep.at(u64::MAX), Picos(u64::MAX));
    }

    #[test]
    fn a_curve_needs_growing_sizes() {
        let point = |bytes| Point { bytes, time: Figure::ns(1) };
        for wrong in [vec![], vec![point(1), point(1)], (0..65).map(point).collect()] {
            assert_eq!(Curve::new(wrong), None);
        }
    }
}
