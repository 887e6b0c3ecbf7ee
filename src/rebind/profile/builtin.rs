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

/// NVIDIA H200, one and two with peer access (driver 580, CUDA 13.0, 2026-11-30), in the words of docs/H200.md: "profile"
/// is what `gvmm bench profile` measured on one, "call by call" and "steps" are its tables. A spread reaches to what other
/// runs of that day gave.
pub(super) fn h200() -> Profile {
    let [create, release, map, unmap, set_access] = h200_calls();
    Profile {
        origin: Origin {
            device: "NVIDIA H200".into(),
            driver: "cuda".into(),
            driver_version: "CUDA 13.0".into(),
            date: "2026-11-30".into(),
        },
        // Profile: 1 GiB in 504 µs.
        bandwidth: 4_260_000_000_000,
        create,
        release,
        map,
        unmap,
        set_access,
        // Call by call: one call over N blocks takes N times what one takes, with a peer and without.
        set_access_call: Figure::ns(0),
        peer_set_access_call: Figure::ns(0),
        // Call by call, two GPUs, 64 to 256 blocks: what the first peer adds to a block in the same run, put on top of the
        // figures above. What it takes once more when a peer reaches nothing yet, 1.4 ms and more, is not of a step.
        peer_set_access: curve([
            (2, 55_000, 6_000),
            (64, 67_000, 9_000),
            (256, 100_000, 20_000),
            (1024, 138_000, 10_000),
        ]),
        peer_unmap: curve([
            (2, 41_500, 4_800),
            (64, 47_200, 6_000),
            (256, 66_400, 10_000),
            (1024, 87_000, 5_000),
        ]),
        // Steps: one remap in llama_donate and llama_donate_all (4096 beside 65536) makes the driver's calls of a step 95
        // and 91 µs longer, of which that remap's own are 46: what follows it is slower too.
        remap: Figure::ns(47_000).spread_ns(4_000),
        // The same rows: 17 and 9 µs more outside of driver calls.
        remap_wait: Figure::ns(13_000).spread_ns(9_000),
        copy_in: h200_copy(3_500),
        copy_out: h200_copy(3_500),
        // What gives the graph's copy its far ends is one call for each, 0.6 µs and what begin writes for it; on the GPU
        // the kernels are those of launched copies.
        plan_in: h200_copy(700),
        plan_out: h200_copy(700),
        // Profile: 256 slots that changed.
        changed_slot: Figure::ns(52),
        // Profile: 1 to 256 nodes of a graph that is launched behind other work. On a stream with nothing to do the GPU
        // waits for the host as long.
        patch: Charge { host: Figure::ns(200), gpu: Figure::ns(250) },
        patch_command: Charge { host: Figure::ns(620), gpu: Figure::ns(0) },
        host_hidden: false,
    }
}

/// In this order: making blocks, giving them up, mapping, unmapping, setting access.
fn h200_calls() -> [Curve; 5] {
    [
        // Call by call, one GPU, 64 blocks.
        curve([(2, 7_700, 2_300), (64, 13_200, 6_000), (256, 27_200, 5_000), (1024, 50_700, 100_000)]),
        curve([(2, 11_000, 2_300), (64, 28_500, 15_000), (256, 142_500, 50_000), (1024, 302_500, 237_000)]),
        // Profile; 256 MiB call by call, 8 GiB from calls in a loop.
        curve([(2, 6_700, 1_400), (64, 6_600, 2_500), (256, 8_400, 3_300), (1024, 7_600, 5_300)]),
        curve([
            (2, 21_600, 2_900),
            (64, 21_600, 6_300),
            (256, 30_900, 6_300),
            (1024, 33_300, 11_100),
            (8192, 105_000, 0),
        ]),
        curve([
            (2, 25_000, 3_500),
            (64, 25_700, 6_200),
            (256, 49_000, 6_500),
            (1024, 62_800, 18_600),
            (8192, 324_000, 0),
        ]),
    ]
}

/// One launch takes `host_ns` on the host. By routes, with far ends by value: 3.1 to 3.9 µs for a launch, and 3 ns for each
/// slice; behind a step's other work 2 µs on the GPU, and 5 ns for each slice besides its bytes.
const fn h200_copy(host_ns: u64) -> JointCopy {
    JointCopy {
        launch: Charge { host: Figure::ns(host_ns).spread_ns(400), gpu: Figure::ns(2_000) },
        slice: Charge { host: Figure::ns(3), gpu: Figure::ns(5) },
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
        peer_set_access: by_bytes([80_000, 140_000, 220_000, 960_000]),
        peer_unmap: by_bytes([60_000, 80_000, 120_000, 320_000]),
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

/// Times in ns, with their spread, by MiB.
fn curve<const N: usize>(points: [(u64, u64, u64); N]) -> Curve {
    let point = |(mib, ns, spread)| Point { bytes: mib * MIB, time: Figure::ns(ns).spread_ns(spread) };
    Curve::new(points.into_iter().map(point).collect()).unwrap_or_default()
}

/// Times in ns at 2 MiB, 64 MiB, 1 GiB and 8 GiB.
fn by_bytes(ns: [u64; 4]) -> Curve {
    let sizes = [2 * MIB, 64 * MIB, GIB, 8 * GIB];
    let points = sizes.into_iter().zip(ns).map(|(bytes, ns)| Point { bytes, time: Figure::ns(ns) });
    Curve::new(points.collect()).unwrap_or_default()
}
