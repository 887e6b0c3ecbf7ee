//! `gvmm bench profile`: what the cost model reckons with, as the file that `GVMM_PROFILE` names.

use super::figures::{curve, figure, line};
use super::fit::{blocks_of, in_one_call};
use super::in_steps;
use super::options::{ProfileOptions, Vmm};
use super::row::Row;
use super::spread::median;
use super::vmm::{self, Report};
use crate::failure::{Context, Failure};
use gvmm::driver::host::Point as Cost;
use gvmm::rebind::profile::{Charge, Curve, Figure, JointCopy, Point, Profile};
use gvmm::units::ByteSize;
use std::io::Write;
use std::process::ExitCode;

/// The parts of a profile that are not measured everywhere: then they are the built-in one's.
pub(super) type Missing = Vec<&'static str>;

pub(super) fn run(options: &ProfileOptions) -> Result<ExitCode, Failure> {
    let text = measure(options)?;
    if let Some(path) = &options.save {
        std::fs::write(path, &text).map_err(|error| {
            Failure::new(format!("{path}: expected a file that can be written, found {error}"))
        })?;
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// As `gvmm bench vmm` would be asked for what is needed.
fn as_vmm(options: &ProfileOptions) -> Vmm {
    Vmm {
        driver: options.driver,
        device: options.device,
        peers: options.peers,
        sizes: [2, 64, 1024].map(ByteSize::mib).into(),
        counts: vec![1, 16, 64],
        repeat: options.repeat,
        costs: options.costs.clone(),
        json: true,
        save: None,
    }
}

fn measure(options: &ProfileOptions) -> Result<String, Failure> {
    let asked = as_vmm(options);
    let report = vmm::measure(&asked)?;
    let calls = vmm::open(&asked)?;
    let info = calls.driver.device_info(calls.device).during("device")?;
    let mut profile = Profile::for_device(&info, calls.driver.kind());
    let mut missing = Missing::new();
    report.header.name_origin(&mut profile.origin);
    profile.bandwidth = report.costs.bandwidth().clamp(1_000_000, 1_000_000_000_000_000);
    memory(&mut profile, &report.rows, &mut missing);
    copies(&mut profile, &report);
    drop(calls);
    let points = in_steps::measure(&mut profile, options, &mut missing)?;
    Ok(text(&profile, &report, &missing) + &points)
}

fn text(profile: &Profile, report: &Report, missing: &[&str]) -> String {
    let mut text = profile.to_text();
    text += &format!("# times are {}\n", report.header.times);
    if !missing.is_empty() {
        text +=
            &format!("# not measured here, but taken from the built-in profile: {}\n", missing.join(", "));
    }
    let peers = report.rows.iter().map(|row| row.peers).max();
    if peers == Some(1) {
        text += "# more than one peer was not measured: each is taken to add what the first adds\n";
    }
    text += &format!("# {}\n", report.quiet);
    for skipped in &report.skipped {
        text += &format!("# not measured: {}: {}\n", skipped.what, skipped.why);
    }
    text
}

/// What blocks, mappings and access cost.
fn memory(profile: &mut Profile, rows: &[Row], missing: &mut Missing) {
    let local = |what: &'static str| move |row: &Row| row.what == what && row.peers == 0;
    let each = local("set_access_each");
    let curves = [
        (&mut profile.create, curve(rows, local("create")), "create"),
        (&mut profile.release, curve(rows, local("release")), "release"),
        (&mut profile.map, curve(rows, local("map")), "map"),
        (&mut profile.unmap, curve(rows, local("unmap")), "unmap"),
        (&mut profile.set_access, curve(rows, each), "set_access"),
    ];
    for (place, measured, name) in curves {
        match measured {
            Some(measured) => *place = measured,
            None => missing.push(name),
        }
    }
    // Blocks beside the first in a call take what one takes by itself, less what the call takes.
    let own: Vec<&Row> = rows.iter().filter(|row| in_one_call(row) && row.peers == 0).collect();
    let call = own.iter().filter(|row| row.what == "set_access_each").map(|one| {
        let all = own.iter().filter(|row| row.block_bytes == one.block_bytes).max_by_key(|row| row.blocks);
        all.map_or(0.0, |all| (one.us.median - all.us.median / blocks_of(all)).max(0.0))
    });
    profile.set_access_call = figure(median(call.collect()).unwrap_or(0.0), 0.0);
    peers(profile, rows, missing);
}

/// As in a step: other blocks are in the peers' reach while some are remapped.
fn peers(profile: &mut Profile, rows: &[Row], missing: &mut Missing) {
    let costs = super::peers::of(rows);
    let (Some(access), Some(unmap)) = (by_bytes(&costs.peer_set_access_mapping), by_bytes(&costs.peer_unmap))
    else {
        missing.extend(["peer_set_access_call", "peer_set_access", "peer_unmap"]);
        missing.extend(["further_peer_set_access", "further_peer_unmap", "first_peer_set_access"]);
        return;
    };
    profile.peer_set_access_call = figure(costs.peer_set_access_us, 0.0);
    if let Some(first) = by_bytes(&costs.first_peer_set_access) {
        profile.first_peer_set_access = first;
    }
    if rows.iter().any(|row| row.peers > 1) {
        let flat = |us| Curve::new(vec![Point { bytes: 2 << 20, time: figure(us, 0.0) }]).unwrap_or_default();
        profile.further_peer_set_access = flat(costs.further_peer_set_access_mapping_us);
        profile.further_peer_unmap = flat(costs.further_peer_unmap_us);
    } else {
        // What the first adds, once more.
        profile.further_peer_set_access = more(&access, &profile.set_access);
        profile.further_peer_unmap = more(&unmap, &profile.unmap);
    }
    (profile.peer_set_access, profile.peer_unmap) = (access, unmap);
}

/// What the first peer adds.
fn more(peer: &Curve, own: &Curve) -> Curve {
    let added = |at: &Point| (at.time.median.0.saturating_sub(own.at(at.bytes).0)) as f64 / 1e6;
    let points = peer.points().iter().map(|at| Point { bytes: at.bytes, time: figure(added(at), 0.0) });
    Curve::new(points.collect()).unwrap_or_default()
}

fn by_bytes(points: &[Cost]) -> Option<Curve> {
    Curve::new(points.iter().map(|at| Point { bytes: at.at, time: figure(at.us, 0.0) }).collect())
}

/// Joint copies by themselves; on a GPU, what they add to a step is measured later.
fn copies(profile: &mut Profile, report: &Report) {
    let joint = report.copies.iter().filter(|row| row.what == "joint" && row.slice_bytes == 4096);
    let rate = profile.bandwidth as f64 / 1e6;
    let points: Vec<(f64, f64, f64)> = joint
        .map(|row| {
            let moving = 2.0 * (row.slices * row.slice_bytes) as f64 / rate;
            (row.slices as f64, row.host_us.median, (row.gpu_us.median - moving).max(0.0))
        })
        .collect();
    let of = |us: fn(&(f64, f64, f64)) -> f64| line(points.iter().map(|point| (point.0, us(point))));
    let (host, gpu) = (of(|point| point.1), of(|point| point.2));
    let copy = joint_copy(host, gpu);
    (profile.copy_in, profile.copy_out) = (copy.clone(), copy);
}

/// From what the launch and each slice of 4 KiB take on either side.
pub(super) fn joint_copy(host: [Figure; 2], gpu: [Figure; 2]) -> JointCopy {
    let launch = Charge { host: host[0], gpu: gpu[0] };
    let slice_gpu = Curve::new(vec![Point { bytes: 4096, time: gpu[1] }]).unwrap_or_default();
    JointCopy { launch, slice_host: host[1], slice_gpu }
}
