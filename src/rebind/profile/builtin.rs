//! Profiles that need no file.

use super::{Charge, Curve, Figure, JointCopy, Origin, Point, Profile};
use crate::driver::{DeviceInfo, DriverKind};

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

/// NVIDIA H200, one and two with peer access (driver 580, CUDA 13.0, 2026-11-30). Where a span was measured, the median
/// is a value inside it and the spread reaches its ends. "Table" is the one of recorded steps in docs/H200.md.
pub(super) fn h200() -> Profile {
    Profile {
        origin: Origin {
            device: "NVIDIA H200".into(),
            driver: "cuda".into(),
            driver_version: "CUDA 13.0".into(),
            date: "2026-11-30".into(),
        },
        // A plain copy of 1 GiB takes 512 µs.
        bandwidth: 4_200_000_000_000,
        create: by_bytes([26_000, 26_000, 36_000, 89_000]),
        // Not measured.
        release: by_bytes([0; 4]),
        // 1.0 to 1.3 µs in a loop of calls, 6.7 µs alone.
        map: by_bytes([1_150; 4]),
        unmap: by_bytes([19_000, 26_000, 36_000, 105_000]),
        set_access: by_bytes([28_000, 47_000, 77_000, 324_000]),
        // One call over N blocks takes N times what one takes.
        set_access_call: Figure::ns(0),
        // With one peer, 2 MiB, and other blocks in the peer's reach, as in a step that leaves some windows alone. The
        // first mapping of a device that a peer reaches takes 1.4 to 19 ms more, which no plan reckons with.
        peer_set_access_call: Figure::ns(0),
        peer_set_access: Figure::ns(55_000),
        peer_unmap: Figure::ns(50_000).spread_ns(8_000),
        // Table: a step with one remap spends 113 µs more in driver calls, of which that remap's own are 48.
        remap: Figure::ns(65_000),
        // Table: the same step spends 20 µs more outside of driver calls.
        remap_wait: Figure::ns(20_000),
        copy_in: h200_copy(3_600),
        copy_out: h200_copy(3_600),
        // 1.2 µs to update both nodes, which was measured before they carried the far ends by value; those are
        // reckoned by the slice, as in a launch.
        plan_in: h200_copy(600),
        plan_out: h200_copy(600),
        // Table: begin and end spend 19 µs outside of driver calls where 396 slots changed.
        changed_slot: Figure::ns(48),
        // 1, 16, 64 and 265 nodes: nothing but what each node takes.
        patch: Charge::default(),
        patch_command: Charge { host: Figure::ns(560), gpu: Figure::ns(500) },
        host_hidden: false,
    }
}

/// One launch takes `host_ns` on the host. By itself it takes 6.7 µs of GPU time, but behind a step's other work 2
/// (table: 7.6 µs for both of 396 slices); 1,024 slices take 6.8 µs of host and 10.4 of GPU time more than one.
const fn h200_copy(host_ns: u64) -> JointCopy {
    JointCopy {
        launch: Charge { host: Figure::ns(host_ns), gpu: Figure::ns(2_000) },
        slice: Charge { host: Figure::ns(7), gpu: Figure::ns(10) },
    }
}

/// For a device that was not measured. Remaps are taken to be dear, since where they are cheap a copy still serves
/// well, and where they are dear (milliseconds are reported of AMD's) nothing else does.
pub(super) fn cautious(driver: DriverKind, bandwidth: u64) -> Profile {
    // On HIP set-access is reported to take milliseconds, one peer after the other.
    let (remap, peer) = if driver == DriverKind::HIP { (2_000_000, 1_500_000) } else { (100_000, 0) };
    let copy = JointCopy {
        launch: Charge { host: Figure::ns(10_000), gpu: Figure::ns(10_000) },
        slice: Charge { host: Figure::ns(20), gpu: Figure::ns(20) },
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
        peer_set_access: Figure::ns(75_000),
        peer_unmap: Figure::ns(75_000),
        remap: Figure::ns(remap),
        remap_wait: Figure::ns(50_000),
        copy_in: copy,
        copy_out: copy,
        plan_in: copy,
        plan_out: copy,
        changed_slot: Figure::ns(100),
        // XLA's own patched launches take about 100 µs more than others, and 1.7 µs a node.
        patch: Charge { host: Figure::ns(100_000), gpu: Figure::ns(0) },
        patch_command: Charge { host: Figure::ns(1_700), gpu: Figure::ns(1_700) },
        host_hidden: false,
    }
}

/// Times in ns at 2 MiB, 64 MiB, 1 GiB and 8 GiB.
fn by_bytes(ns: [u64; 4]) -> Curve {
    let sizes = [2 * MIB, 64 * MIB, GIB, 8 * GIB];
    let points = sizes.into_iter().zip(ns).map(|(bytes, ns)| Point { bytes, time: Figure::ns(ns) });
    Curve::new(points.collect()).unwrap_or_default()
}
