//! What an NVIDIA GPU takes longer for copies behind other work, for copies in a graph, and for nodes that are patched.

use super::calls::Calls;
use super::figures::line;
use super::profile::{Missing, joint_copy};
use super::spread::median;
use crate::cuda::{Both, GraphBench};
use gvmm::driver::{Capabilities, Way};
use gvmm::error::Result;
use gvmm::rebind::profile::{Charge, JointCopy, Profile};

const SLICES: [u64; 4] = [1, 64, 256, 1024];
const SLICE: u64 = 4 << 10;
const NODES: [usize; 4] = [1, 16, 64, 256];

pub(super) fn measure(
    profile: &mut Profile,
    calls: &Calls,
    repeat: u32,
    missing: &mut Missing,
) -> Result<()> {
    let bench = GraphBench::new(&calls.driver, calls.device)?;
    let rounds = repeat.max(5);
    let nothing = middle(rounds, |_| bench.nothing())?;
    let bytes_per_us = profile.bandwidth as f64 / 1e6;
    let copy = |way| {
        let mut points = Vec::new();
        for count in SLICES {
            // The first is not like the others.
            let times = bench.copied(way, count, rounds + 1)?;
            points.push((count, middle_of(&times[1..]), nothing));
        }
        Ok(fitted(&points, bytes_per_us))
    };
    (profile.copy_in, profile.copy_out) = (copy(Way::In)?, copy(Way::Out)?);
    let bare = middle(rounds, |round| bench.patched(0, round))?;
    patches(profile, &bench, rounds, bare)?;
    let can = calls.driver.device_info(calls.device)?.capabilities;
    if !can.has(Capabilities::ROUTES) {
        missing.extend(["plan_in", "plan_out"]);
        return Ok(());
    }
    let plan = |way| {
        let mut points = Vec::new();
        for count in SLICES {
            let times = bench.recorded(way, count, rounds + 1)?;
            points.push((count, middle_of(&times[1..]), bare));
        }
        Ok(fitted(&points, bytes_per_us))
    };
    (profile.plan_in, profile.plan_out) = (plan(Way::In)?, plan(Way::Out)?);
    Ok(())
}

fn middle(rounds: u32, mut time: impl FnMut(usize) -> Result<Both>) -> Result<Both> {
    // The first is not like the others.
    time(0)?;
    let times = (1..=rounds as usize).map(&mut time).collect::<Result<Vec<Both>>>()?;
    Ok(middle_of(&times))
}

fn middle_of(times: &[Both]) -> Both {
    let of = |us: fn(&Both) -> f64| median(times.iter().map(us).collect()).unwrap_or(0.0);
    Both { host: of(|both| both.host), gpu: of(|both| both.gpu) }
}

/// From numbers of slices, their times, and the times without them.
fn fitted(points: &[(u64, Both, Both)], bytes_per_us: f64) -> JointCopy {
    let moving = |count: u64| 2.0 * (count * SLICE) as f64 / bytes_per_us;
    let added = |us: f64, without: f64| (us - without).max(0.0);
    let host = points.iter().map(|(count, both, without)| (*count as f64, added(both.host, without.host)));
    let gpu = points
        .iter()
        .map(|(count, both, without)| (*count as f64, added(both.gpu, without.gpu + moving(*count))));
    joint_copy(line(host), line(gpu))
}

/// What a launch takes longer after patches.
fn patches(profile: &mut Profile, bench: &GraphBench, rounds: u32, bare: Both) -> Result<()> {
    let mut points = Vec::new();
    for count in NODES {
        points.push((count as f64, middle(rounds, |round| bench.patched(count, round))?));
    }
    let host = line(points.iter().map(|(count, both)| (*count, (both.host - bare.host).max(0.0))));
    let gpu = line(points.iter().map(|(count, both)| (*count, (both.gpu - bare.gpu).max(0.0))));
    profile.patch = Charge { host: host[0], gpu: gpu[0] };
    profile.patch_command = Charge { host: host[1], gpu: gpu[1] };
    Ok(())
}
