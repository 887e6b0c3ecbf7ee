//! Profiles that need no file.

use super::{Charge, Curve, Figure, JointCopy, Origin, Picos, Point, Profile};
use crate::driver::{DeviceInfo, DriverKind, h200};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What a device of which nothing is known is taken to move, in bytes a second: less than any that maps memory.
const SLOWEST: u64 = 100_000_000_000;

pub(super) fn for_device(info: &DeviceInfo, driver: DriverKind) -> Profile {
    let simulated = info.simulated_costs.as_deref().is_some_and(|name| name.starts_with("h200"));
    let mut profile = match simulated || info.name.contains("H200") {
        true => h200(),
        false => cautious(driver, info.bandwidth),
    };
    profile.origin.device.clone_from(&info.name);
    driver.name().clone_into(&mut profile.origin.driver);
    profile
}

/// NVIDIA H200, one and two with peer access (driver 580, CUDA 13.0, 2026-11-30), in the words of docs/H200.md: the driver's
/// calls are what the host driver simulates; the others are what `gvmm bench profile` measured.
pub(super) fn h200() -> Profile {
    let further = |one: h200::Table, peer: h200::Table| {
        let pairs = peer.iter().zip(one).map(|(&(mib, peer, _), &(_, one, _))| (mib, peer - one, 0));
        by_mib(&pairs.collect::<Vec<_>>())
    };
    Profile {
        origin: Origin {
            device: "NVIDIA H200".into(),
            driver: "cuda".into(),
            driver_version: "CUDA 13.0".into(),
            date: "2026-11-30".into(),
            reference: Figure::default(),
        },
        bandwidth: h200::BANDWIDTH,
        create: by_mib(h200::CREATE),
        release: by_mib(h200::RELEASE),
        map: by_mib(h200::MAP),
        unmap: by_mib(h200::UNMAP),
        set_access: by_mib(h200::SET_ACCESS),
        // One call over N blocks takes N times what one takes, with a peer and without.
        set_access_call: Figure::ns(0),
        peer_set_access_call: Figure::ns(0),
        peer_set_access: by_mib(h200::PEER_SET_ACCESS),
        peer_unmap: by_mib(h200::PEER_UNMAP),
        // Not measured: what the first adds, once more.
        further_peer_set_access: further(h200::SET_ACCESS, h200::PEER_SET_ACCESS),
        further_peer_unmap: further(h200::UNMAP, h200::PEER_UNMAP),
        first_peer_set_access: by_mib(h200::FIRST_PEER_SET_ACCESS),
        // What follows is by steps, timed as a training loop runs them: `gvmm bench profile`, and where those that
        // `gvmm bench steps` made were dearer throughout (patched commands), nearer to these. By itself a remap slows no
        // other call; beside copies it is 4 µs dearer.
        remap: Figure::ns(1_000).spread_ns(3_400),
        remap_slot: by_size(h200::REMAP_SLOT),
        remap_wait: Figure::ns(1_300),
        copy_in: h200_copy(h200::COPY_HOST, h200::COPY_GPU[0], h200::SLICE_IN),
        copy_out: h200_copy(h200::COPY_HOST, h200::COPY_GPU[0], h200::SLICE_OUT),
        plan_in: h200_copy([1_200, 7], 1_800, h200::SLICE_IN),
        plan_out: h200_copy([1_200, 7], 1_800, h200::SLICE_OUT),
        cache_bytes: h200::CACHE_BYTES,
        cold_slot: by_size(h200::COLD_SLOT),
        anew_slot: by_size(h200::ANEW_SLOT),
        anew_in: by_size(h200::ANEW_IN),
        anew_out: by_size(h200::ANEW_OUT),
        step: Figure::ns(150),
        slot: Figure { median: Picos(2_300), spread: Picos::ZERO },
        changed_slot: by_size(h200::CHANGED_SLOT),
        patch: Charge { host: Figure::ns(400), gpu: Figure::ns(250) },
        patch_slot: Figure::ns(20),
        // A command of which one slot changes takes half as long as one with two or more.
        patch_command: Charge { host: Figure::ns(820).spread_ns(80), gpu: Figure::ns(0) },
        patch_single: Charge { host: Figure::ns(420).spread_ns(40), gpu: Figure::ns(0) },
        host_hidden: false,
    }
}

/// What a launch and each slice take in ns.
fn h200_copy(host: [u64; 2], launch: u64, slice: h200::Sizes) -> JointCopy {
    JointCopy {
        launch: Charge { host: Figure::ns(host[0]).spread_ns(400), gpu: Figure::ns(launch) },
        slice_host: Figure::ns(host[1]),
        slice_gpu: by_size(slice),
    }
}

/// For a device that was not measured. Remaps are taken to be dear, since where they are cheap a copy still serves
/// well, and where they are dear (milliseconds are reported of AMD's) nothing else does.
pub(super) fn cautious(driver: DriverKind, bandwidth: u64) -> Profile {
    // On HIP set-access is reported to take milliseconds, one peer after the other.
    let (remap, peer) = if driver == DriverKind::HIP { (2_000_000, 1_500_000) } else { (100_000, 0) };
    let copy = || JointCopy {
        launch: Charge { host: Figure::ns(10_000), gpu: Figure::ns(10_000) },
        slice_host: Figure::ns(20),
        slice_gpu: by_size(&[(4, 20), (4 << 10, 50), (64 << 10, 500)]),
    };
    Profile {
        origin: Origin { device: "unknown".into(), driver: driver.name().into(), ..Origin::default() },
        bandwidth: if bandwidth == 0 { SLOWEST } else { bandwidth },
        // An A100's 2 MiB take 193, 1.5, 36 and 26 µs; larger ones grow as an H200's do.
        create: by_bytes([193_000, 193_000, 240_000, 600_000]),
        release: by_bytes([0; 4]),
        map: by_bytes([2_000; 4]),
        unmap: by_bytes([30_000, 40_000, 60_000, 160_000]),
        set_access: by_bytes([40_000, 70_000, 110_000, 480_000]),
        set_access_call: Figure::ns(0),
        peer_set_access_call: Figure::ns(peer),
        peer_set_access: by_bytes([80_000, 140_000, 220_000, 960_000]),
        peer_unmap: by_bytes([60_000, 80_000, 120_000, 320_000]),
        further_peer_set_access: by_bytes([40_000, 70_000, 110_000, 480_000]),
        further_peer_unmap: by_bytes([30_000, 40_000, 60_000, 160_000]),
        first_peer_set_access: by_bytes([2_000_000, 3_000_000, 20_000_000, 20_000_000]),
        remap: Figure::ns(remap),
        remap_slot: by_size(&[(1, 500)]),
        remap_wait: Figure::ns(50_000),
        copy_in: copy(),
        copy_out: copy(),
        plan_in: copy(),
        plan_out: copy(),
        // Nothing is known of its cache.
        cache_bytes: 0,
        cold_slot: by_size(&[(4, 0)]),
        // Small beside its remaps.
        anew_slot: by_size(&[(4, 0)]),
        anew_in: by_size(&[(4, 0)]),
        anew_out: by_size(&[(4, 0)]),
        step: Figure::ns(500),
        slot: Figure::ns(10),
        changed_slot: by_size(&[(1, 100)]),
        // XLA's own patched launches take about 100 µs more than others, and 1.7 µs a node.
        patch: Charge { host: Figure::ns(100_000), gpu: Figure::ns(0) },
        patch_slot: Figure::ns(100),
        patch_command: Charge { host: Figure::ns(1_700), gpu: Figure::ns(1_700) },
        patch_single: Charge { host: Figure::ns(1_700), gpu: Figure::ns(1_700) },
        host_hidden: false,
    }
}

/// Times in ns, with their spread, by MiB.
fn by_mib(points: &[(u64, u64, u64)]) -> Curve {
    let point = |&(mib, ns, spread)| Point { bytes: mib * MIB, time: Figure::ns(ns).spread_ns(spread) };
    Curve::new(points.iter().map(point).collect()).unwrap_or_default()
}

/// Times in ns by bytes, or by how many slots there are.
fn by_size(points: h200::Sizes) -> Curve {
    let point = |&(bytes, ns)| Point { bytes, time: Figure::ns(ns) };
    Curve::new(points.iter().map(point).collect()).unwrap_or_default()
}

/// Times in ns at 2 MiB, 64 MiB, 1 GiB and 8 GiB.
fn by_bytes(ns: [u64; 4]) -> Curve {
    let sizes = [2 * MIB, 64 * MIB, GIB, 8 * GIB];
    let points = sizes.into_iter().zip(ns).map(|(bytes, ns)| Point { bytes, time: Figure::ns(ns) });
    Curve::new(points.collect()).unwrap_or_default()
}
