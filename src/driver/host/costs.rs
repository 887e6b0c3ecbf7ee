//! What driver calls cost on real hardware, so that the host driver can take as long.
//!
//! The built-in tables were measured on H200 GPUs (driver 580, CUDA 13.0), what is about peers on two (docs/H200.md).

use crate::driver::h200;
use crate::units::ByteSize;
use std::time::{Duration, Instant};

/// One measured point of a table. Between points the cost is a straight line; below the first it is the
/// first's, and beyond the last the last line goes on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// At which size: bytes of a block, or slices of a copy.
    pub at: u64,
    /// How long it takes there, in µs.
    pub us: f64,
}

/// How long each driver call takes, in µs. A cost of 0 and an empty table add no waiting; what is not listed
/// (timelines, queries) takes what it takes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Costs {
    /// The table's name, which whatever prints a time shows after "simulated".
    pub name: String,
    /// One `reserve`.
    pub reserve_us: f64,
    /// One `free`.
    pub free_us: f64,
    /// One `create`, by the block's bytes.
    pub create: Vec<Point>,
    /// One `release`, by the block's bytes.
    pub release: Vec<Point>,
    /// One `map`, whatever the size.
    pub map_us: f64,
    /// One `unmap`, by the block's bytes.
    pub unmap: Vec<Point>,
    /// `set_access` for each mapping in the range, by the block's bytes.
    pub set_access: Vec<Point>,
    /// What a `set_access` takes once more when it names a peer: another device than a block's own.
    pub peer_set_access_us: f64,
    /// What it takes once more for each further peer that it names.
    pub further_peer_set_access_us: f64,
    /// What it takes once more where a peer could reach no mapping of the device before, by the bytes of the largest
    /// block in the call.
    pub first_peer_set_access: Vec<Point>,
    /// What it takes once more then for each further peer that it names.
    pub further_first_peer_set_access_us: f64,
    /// What each mapping takes in a call that names a peer, by the block's bytes, instead of what `set_access` says.
    pub peer_set_access_mapping: Vec<Point>,
    /// What each mapping takes once more there for each further peer.
    pub further_peer_set_access_mapping_us: f64,
    /// The least that an `unmap` takes where a peer has access, by the block's bytes.
    pub peer_unmap: Vec<Point>,
    /// What it takes once more for each further peer that has access.
    pub further_peer_unmap_us: f64,
    /// What it takes once more where a peer can reach no other mapping of the device, by the block's bytes.
    pub last_peer_unmap: Vec<Point>,
    /// What it takes once more then for each further peer that has access.
    pub further_last_peer_unmap_us: f64,
    /// One `allocate`.
    pub allocate_us: f64,
    /// One `deallocate`.
    pub deallocate_us: f64,
    /// What the caller of a joint copy pays, by the number of slices.
    pub copy_joint_host: Vec<Point>,
    /// What the stream takes for a joint copy besides moving the bytes, by the number of slices.
    pub copy_joint_device: Vec<Point>,
    /// What the caller pays for each slice where copies are not joined.
    pub copy_single_host_us: f64,
    /// What the stream takes for each such slice besides moving the bytes.
    pub copy_single_device_us: f64,
    /// Bytes a second that the device's memory moves, reads and writes both counted; 0 is unknown, and moving
    /// bytes then adds no waiting.
    pub bandwidth: u64,
}

const MIB: u64 = 1 << 20;

impl Costs {
    /// The built-in table of that name, or none. `h200` is one H200 GPU; `h200-peer` has the same times and
    /// tells programs to put a second device into every access list.
    pub fn builtin(name: &str) -> Option<Self> {
        matches!(name, "h200" | "h200-peer").then(|| Self::h200(name))
    }

    fn h200(name: &str) -> Self {
        let by_bytes = |table: h200::Table| {
            table.iter().map(|&(mib, ns, _)| Point { at: mib * MIB, us: ns as f64 / 1e3 }).collect()
        };
        let by_slices = |[launch, slice]: [u64; 2]| {
            [1, 1024].map(|at| Point { at, us: (launch + slice * at) as f64 / 1e3 }).into()
        };
        Self {
            name: name.to_owned(),
            reserve_us: 17.0,
            create: by_bytes(h200::CREATE),
            release: by_bytes(h200::RELEASE),
            map_us: h200::MAP[0].1 as f64 / 1e3,
            unmap: by_bytes(h200::UNMAP),
            set_access: by_bytes(h200::SET_ACCESS),
            first_peer_set_access: by_bytes(h200::FIRST_PEER_SET_ACCESS),
            peer_set_access_mapping: by_bytes(h200::PEER_SET_ACCESS),
            peer_unmap: by_bytes(h200::PEER_UNMAP),
            last_peer_unmap: by_bytes(h200::LAST_PEER_UNMAP),
            allocate_us: 46.0,
            deallocate_us: 38.0,
            copy_joint_host: by_slices(h200::COPY_HOST),
            copy_joint_device: by_slices(h200::COPY_GPU),
            copy_single_host_us: 5.4,
            copy_single_device_us: 5.4,
            bandwidth: h200::BANDWIDTH,
            ..Self::default()
        }
    }

    /// One `create`.
    pub(super) fn create_us(&self, size: ByteSize) -> f64 {
        interpolate(&self.create, size.0)
    }

    /// One `release`.
    pub(super) fn release_us(&self, size: ByteSize) -> f64 {
        interpolate(&self.release, size.0)
    }

    /// True where it matters whether a peer reaches anything else of the device.
    pub(super) const fn tells_first_and_last(&self) -> bool {
        !self.first_peer_set_access.is_empty() || !self.last_peer_unmap.is_empty()
    }

    /// One `unmap` of a mapping that `peers` peers can reach; `last` where they reach no other.
    pub(super) fn unmap_us(&self, size: ByteSize, peers: u32, last: bool) -> f64 {
        let local = interpolate(&self.unmap, size.0);
        if peers == 0 {
            return local;
        }
        let once = if last {
            interpolate(&self.last_peer_unmap, size.0) + further(peers, self.further_last_peer_unmap_us)
        } else {
            0.0
        };
        once + local.max(interpolate(&self.peer_unmap, size.0)) + further(peers, self.further_peer_unmap_us)
    }

    /// One `set_access` over mappings of these sizes, each with the number of its peers that the call names; `first`
    /// where peers reached none before.
    pub(super) fn set_access_us(&self, mappings: impl Iterator<Item = (ByteSize, u32)>, first: bool) -> f64 {
        let (mut us, mut most, mut largest) = (0.0, 0, 0);
        for (size, peers) in mappings {
            most = most.max(peers);
            largest = size.0.max(largest);
            us += if peers == 0 {
                interpolate(&self.set_access, size.0)
            } else {
                let each = further(peers, self.further_peer_set_access_mapping_us);
                interpolate(&self.peer_set_access_mapping, size.0) + each
            };
        }
        if most == 0 {
            return us;
        }
        if first {
            us += interpolate(&self.first_peer_set_access, largest)
                + further(most, self.further_first_peer_set_access_us);
        }
        us + self.peer_set_access_us + further(most, self.further_peer_set_access_us)
    }

    /// What `slices` slices of `bytes` bytes together take: the caller, and the stream.
    pub(super) fn copy_us(&self, joint: bool, slices: u64, bytes: u64) -> (f64, f64) {
        // Each byte is read and written.
        let moving = if self.bandwidth == 0 { 0.0 } else { bytes as f64 * 2e6 / self.bandwidth as f64 };
        let (host, device) = if joint {
            (interpolate(&self.copy_joint_host, slices), interpolate(&self.copy_joint_device, slices))
        } else {
            let slices = slices as f64;
            (slices * self.copy_single_host_us, slices * self.copy_single_device_us)
        };
        (host, device + moving)
    }
}

#[cfg(test)]
fn points<const N: usize>(at: [u64; N], us: [f64; N]) -> Vec<Point> {
    at.into_iter().zip(us).map(|(at, us)| Point { at, us }).collect()
}

/// What all peers after the first take.
fn further(peers: u32, us: f64) -> f64 {
    f64::from(peers.saturating_sub(1)) * us
}

/// The cost at `at`, never below 0. The points are in ascending order; where they are not, some are ignored.
fn interpolate(points: &[Point], at: u64) -> f64 {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return 0.0 };
    if at <= first.at {
        return first.us.max(0.0);
    }
    let line = points.windows(2).find(|pair| at <= pair[1].at).or_else(|| points.windows(2).last());
    let Some([a, b]) = line else { return last.us.max(0.0) };
    if b.at <= a.at {
        return b.us.max(0.0);
    }
    let slope = (b.us - a.us) / (b.at - a.at) as f64;
    (at as f64 - a.at as f64).mul_add(slope, a.us).max(0.0)
}

/// A call under way that shall take a certain time. Without costs, no clock is read.
#[derive(Debug)]
pub(super) struct Delay(Option<Instant>);

/// Below this, sleeping is too coarse.
const SPIN: Duration = Duration::from_micros(100);

impl Delay {
    /// Starts the clock where times are simulated.
    pub(super) fn start(simulated: bool) -> Self {
        Self(simulated.then(Instant::now))
    }

    /// Waits until `us` µs have passed since the start. What the call took by itself is part of it.
    pub(super) fn until(&self, us: f64) {
        while let Some(left) = self.left(us, Instant::now) {
            if left > SPIN {
                std::thread::sleep(left.saturating_sub(SPIN));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// How much of `us` µs is left, or none where nothing is.
    fn left(&self, us: f64, now: impl FnOnce() -> Instant) -> Option<Duration> {
        let start = self.0?;
        let whole = Duration::try_from_secs_f64(us.max(0.0) / 1e6).ok()?;
        let left = whole.saturating_sub(now().saturating_duration_since(start));
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> Costs {
        Costs::builtin("h200").expect("a built-in table")
    }

    #[test]
    fn tables_are_lines_between_points_and_go_on_beyond() {
        let table = points([10, 20, 40], [1.0, 2.0, 6.0]);
        let close = |at: u64, us: f64| (interpolate(&table, at) - us).abs() < 1e-9;
        assert!(close(0, 1.0) && close(10, 1.0) && close(15, 1.5) && close(20, 2.0));
        assert!(close(30, 4.0) && close(40, 6.0) && close(50, 8.0));
        assert!(interpolate(&[], 5).abs() < 1e-9);
        assert!((interpolate(&table[..1], 50) - 1.0).abs() < 1e-9);
        assert!(interpolate(&points([1, 2], [5.0, 0.0]), 100).abs() < 1e-9, "never below 0");
        assert!((interpolate(&points([5, 5], [1.0, 3.0]), 9) - 3.0).abs() < 1e-9, "doubled points");
    }

    #[test]
    fn measured_points_come_out_as_measured() {
        let costs = h200();
        for &(mib, ns, _) in h200::CREATE {
            assert!((costs.create_us(ByteSize::mib(mib)) - ns as f64 / 1e3).abs() < 1e-9);
        }
        for (table, peers) in [(h200::UNMAP, 0), (h200::PEER_UNMAP, 1)] {
            let (mib, ns, _) = table[1];
            assert!((costs.unmap_us(ByteSize::mib(mib), peers, false) - ns as f64 / 1e3).abs() < 1e-9);
        }
        let remap = costs.unmap_us(ByteSize::mib(2), 0, false)
            + costs.map_us
            + costs.set_access_us([(ByteSize::mib(2), 0)].into_iter(), false);
        assert!((remap - 47.0).abs() < 5.0, "one remap takes about 47 µs, here {remap}");
        let (_, device) = costs.copy_us(true, 1, 1 << 30);
        assert!((device - 512.0).abs() < 20.0, "1 GiB takes about 512 µs, here {device}");
    }

    fn us(table: h200::Table) -> f64 {
        table[0].1 as f64 / 1e3
    }

    #[test]
    fn a_peer_costs_by_the_mapping_and_once_where_it_reached_none() {
        let costs = h200();
        let many = costs.set_access_us((0..64).map(|_| (ByteSize::mib(2), 1)), false);
        assert!((many - 64.0 * us(h200::PEER_SET_ACCESS)).abs() < 1e-9);
        let first = costs.set_access_us([(ByteSize::mib(2), 1)].into_iter(), true);
        assert!((first - us(h200::FIRST_PEER_SET_ACCESS) - us(h200::PEER_SET_ACCESS)).abs() < 1e-9);
        let none = costs.set_access_us((0..64).map(|_| (ByteSize::mib(2), 0)), false);
        assert!((none - 64.0 * us(h200::SET_ACCESS)).abs() < 1e-9);
    }

    #[test]
    fn further_peers_cost_what_the_table_says() {
        let costs = Costs {
            further_peer_set_access_us: 100.0,
            further_peer_set_access_mapping_us: 10.0,
            further_peer_unmap_us: 5.0,
            ..h200()
        };
        let call = |peers| costs.set_access_us((0..2).map(|_| (ByteSize::mib(2), peers)), false);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        let [own, peer] = [h200::SET_ACCESS, h200::PEER_SET_ACCESS].map(us);
        close(call(0), 2.0 * own);
        close(call(1), 2.0 * peer);
        close(call(3), 200.0 + 2.0 * (peer + 20.0));
        close(costs.unmap_us(ByteSize::mib(2), 3, false), us(h200::PEER_UNMAP) + 10.0);
        let mixed = [(ByteSize::mib(2), 0), (ByteSize::mib(2), 2)];
        close(costs.set_access_us(mixed.into_iter(), false), own + 100.0 + peer + 10.0);
    }

    #[test]
    fn the_first_and_the_last_mapping_of_a_peer_cost_more() {
        let costs = Costs {
            first_peer_set_access: points([2 << 20, 1 << 30], [1400.0, 18_000.0]),
            last_peer_unmap: points([0], [440.0]),
            further_first_peer_set_access_us: 300.0,
            further_last_peer_unmap_us: 30.0,
            ..h200()
        };
        let call = |peers, first| costs.set_access_us([(ByteSize::gib(1), peers)].into_iter(), first);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        close(call(1, true), 18_000.0 + call(1, false));
        close(call(3, true), 18_600.0 + call(3, false));
        close(call(0, true), call(0, false));
        close(costs.unmap_us(ByteSize::mib(2), 1, true), 440.0 + us(h200::PEER_UNMAP));
        close(costs.unmap_us(ByteSize::mib(2), 2, true), 470.0 + us(h200::PEER_UNMAP));
        close(costs.unmap_us(ByteSize::mib(2), 0, true), us(h200::UNMAP));
        assert!(costs.tells_first_and_last() && !Costs::default().tells_first_and_last());
    }

    #[test]
    fn a_delay_goes_on_until_its_time_is_over() {
        let start = Instant::now();
        let after = |us| move || start + Duration::from_micros(us);
        let delay = Delay(Some(start));
        assert_eq!(delay.left(300.0, after(0)), Some(Duration::from_micros(300)));
        assert_eq!(delay.left(300.0, after(100)), Some(Duration::from_micros(200)));
        assert_eq!([300, 1000].map(|us| delay.left(300.0, after(us))), [None; 2]);
        assert_eq!([f64::NAN, -1.0, 1e300].map(|us| delay.left(us, after(0))), [None; 3]);
        assert_eq!(Delay::start(false).left(1e12, after(0)), None, "nothing is simulated");
        delay.until(0.0);
    }

    #[test]
    fn there_are_two_tables() {
        assert_eq!(Costs::builtin("h200-peer").map(|c| c.name), Some("h200-peer".to_owned()));
        assert_eq!(Costs::builtin("none"), None);
    }
}
