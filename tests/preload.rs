//! The libraries that are preloaded in front of a driver: programs that link or look up the vendor's functions as real ones
//! do, run with and without, and the vendor's calls counted. Counts only, never times.

#[path = "preload/rig.rs"]
mod rig;

use rig::{BOTH, Scene, Vendor, own, vendors_library};

const SCENES: [&str; 10] = [
    "buffers",
    "changes_mind",
    "twice",
    "joint",
    "parts",
    "release_first",
    "nccl",
    "shares",
    "lookups",
    "threads",
];

#[test]
fn off_and_observe_change_nothing() {
    for vendor in BOTH {
        for name in SCENES {
            let bare = Scene::bare(vendor, name).run();
            Scene::with(vendor, name, "off").shows(&bare);
            Scene::with(vendor, name, "observe").shows(&bare);
            let looked_up = Scene::bare(vendor, name).set("BY_LOOKUP", "1").run();
            Scene::with(vendor, name, "observe").set("BY_LOOKUP", "1").shows(&looked_up);
        }
    }
}

#[test]
fn on_shows_the_program_the_same_and_leaves_nothing() {
    for vendor in BOTH {
        for name in
            ["buffers", "changes_mind", "joint", "parts", "release_first", "nccl", "shares", "threads"]
        {
            let bare = Scene::bare(vendor, name).run();
            let on = Scene::with(vendor, name, "on").run();
            assert_eq!(on.saw(), bare.saw(), "{vendor:?} {name}");
            assert_eq!(on.log, "");
            on.clean();
        }
    }
}

#[test]
fn calls_for_peers_are_joined_once_they_are_expected() {
    for vendor in BOTH {
        let bare = Scene::bare(vendor, "buffers").run();
        let on = Scene::with(vendor, "buffers", "on").run();
        // Two for each of the first two buffers, then one for each of eight.
        assert_eq!((bare.calls(vendor, "MemSetAccess"), on.calls(vendor, "MemSetAccess")), (20, 12));
        for call in ["MemCreate", "MemMap", "MemUnmap", "MemRelease", "MemAddressReserve", "MemAddressFree"] {
            assert_eq!(on.calls(vendor, call), bare.calls(vendor, call), "{call}");
        }
        // Calls over several mappings are never joined: five for the three before, and these two.
        let on = Scene::with(vendor, "wide", "on").run();
        assert_eq!(on.calls(vendor, "MemSetAccess"), 7, "{on:?}");
        assert!(on.has("peer 3 3"), "{on:?}");
        // A program that stops asking is found out by its next buffer.
        let on = Scene::with(vendor, "changes_mind", "on").run();
        assert_eq!(on.calls(vendor, "MemSetAccess"), 13);
        let saw = |at: usize, peer: u8| on.has(&format!("{at}: 3 {peer}"));
        assert!((0..4).all(|at| saw(at, 3)) && (4..8).all(|at| saw(at, 0)), "{on:?}");
    }
}

#[test]
fn a_join_that_fails_falls_back_to_what_was_asked() {
    let faults = [("FAKE_CUDA_PEERS", Vendor::Cuda), ("FAKE_HIP_PEERS", Vendor::Hip)];
    for (setting, vendor) in faults {
        let bare = Scene::bare(vendor, "buffers").set(setting, "0").run();
        let on = Scene::with(vendor, "buffers", "on").set(setting, "0").run();
        assert_eq!(
            on.saw(),
            bare.saw(),
            "{vendor:?}: the peer's calls fail as before, and the local ones work"
        );
    }
}

#[test]
fn known_faults_are_taken_care_of() {
    let hip = Vendor::Hip;
    let play = |scene: &str, fault: &str, mode: &str| {
        let version = if fault == "joint-unmap" { "60443482" } else { "71453211" };
        Scene::with(hip, scene, mode).fault(fault).set("FAKE_HIP_VERSION", version).run()
    };
    // Each fault shows where nothing is taken care of, and not where it is.
    for (scene, fault, good) in [
        ("joint", "joint-unmap", "free 0"),
        ("release_first", "release-mapped", "free 0"),
        ("parts", "access-part", "access 3: 0"),
        ("joint", "access-joined", "access 0"),
        ("nccl", "access-fails", "free 0"),
        ("peer_last", "peer-last", "read 1"),
        ("twice", "", "again 0"),
    ] {
        let (observed, on) = (play(scene, fault, "observe"), play(scene, fault, "on"));
        assert!(on.has(good), "{fault}: {on:?}");
        assert_eq!(on.number("live "), 0, "{fault}: {on:?}");
        assert!(fault == "access-fails" || !observed.has(good), "{fault} does not show: {observed:?}");
    }
    let (observed, on) = (play("parts", "access-fails", "observe"), play("parts", "access-fails", "on"));
    assert!(observed.has("access 0: 1") && on.has("access 0: 0"), "{observed:?} {on:?}");
}

#[test]
fn a_range_with_a_hole_is_unmapped_as_cuda_does() {
    let on = |vendor| Scene::with(vendor, "joint", "on").set("WITH_HOLE", "1").run();
    assert!(Scene::bare(Vendor::Hip, "joint").set("WITH_HOLE", "1").run().has("unmap 1"));
    for seen in BOTH.map(on) {
        assert!(seen.has("unmap 0") && seen.has("free 0"), "{seen:?}");
    }
}

#[test]
fn an_error_that_was_made_good_does_not_wait_for_the_program() {
    let on = Scene::with(Vendor::Hip, "last_error", "on").run();
    assert!(on.has("access 0") && on.has("last error 0"), "{on:?}");
    assert_eq!(on.calls(Vendor::Hip, "MemSetAccess"), 2);
    let waited = Scene::with(Vendor::Hip, "last_error", "on").set("WAITS", "1").run();
    assert!(
        waited.has("access 0") && !waited.has("last error 0"),
        "one that waited before stays: {waited:?}"
    );
    let observed = Scene::with(Vendor::Hip, "last_error", "observe").run();
    assert!(observed.has("access 1") && observed.has("last error 1"), "{observed:?}");
}

#[test]
fn before_hip_7_no_unknown_address_is_named() {
    let on = Scene::with(Vendor::Hip, "twice", "on").set("FAKE_HIP_VERSION", "60443482").run();
    on.clean();
    assert_eq!(on.calls(Vendor::Hip, "MemUnmap"), 1);
    let by_hand = Scene::with(Vendor::Hip, "twice", "on").set("GVMM_QUIRKS", "-hip-unmap-twice").run();
    assert!(by_hand.has("again 1"), "{by_hand:?}");
}

#[test]
fn addresses_that_nobody_reserved_are_not_named_before_hip_7() {
    let play =
        |version: &str| Scene::with(Vendor::Hip, "strangers", "on").set("FAKE_HIP_VERSION", version).run();
    let (old, new) = (play("60443482"), play("71453211"));
    let calls = |seen: &rig::Seen| ["MemUnmap", "MemAddressFree"].map(|call| seen.calls(Vendor::Hip, call));
    assert!(old.has("unmap 1") && old.has("free 1"), "{old:?}");
    assert_eq!((calls(&old), calls(&new)), ([0, 0], [1, 1]));
}

#[test]
fn a_release_that_failed_changed_nothing() {
    let play = |mode: &str| Scene::with(Vendor::Hip, "release_fails", mode).fault("release-mapped").run();
    let (observed, on) = (play("observe"), play("on"));
    assert!(on.has("release 1") && on.has("release 0") && on.has("free 0"), "{on:?}");
    on.clean();
    assert!(!observed.has("free 0"), "the fault does not show: {observed:?}");
}

#[test]
fn a_call_that_failed_may_be_made_again() {
    for (vendor, version) in [(Vendor::Cuda, "13000"), (Vendor::Hip, "60443482"), (Vendor::Hip, "71453211")] {
        let setting = if vendor == Vendor::Cuda { "FAKE_CUDA_VERSION" } else { "FAKE_HIP_VERSION" };
        let bare = Scene::bare(vendor, "retries").set(setting, version).run();
        let failed = bare.saw().iter().filter(|line| line.ends_with(" 1")).count();
        assert_eq!(failed, 6, "each fails once: {bare:?}");
        for mode in ["observe", "on"] {
            let seen = Scene::with(vendor, "retries", mode).set(setting, version).run();
            assert_eq!(seen.saw(), bare.saw(), "{vendor:?} {version} {mode}");
            seen.clean();
        }
    }
}

#[test]
fn lookups_give_ours_where_the_vendors_own_would_be_called() {
    for vendor in BOTH {
        let seen = Scene::with(vendor, "lookups", "observe").set("SHOW_FILES", "1").run();
        let prefix = vendor.prefix();
        assert!(seen.has(&format!("{prefix}MemMap 13000 0: 0 0 ours")), "{seen:?}");
        assert!(seen.has(&format!("{prefix}GetProcAddress 13000 0: 0 0 ours")), "{seen:?}");
        assert!(seen.has(&format!("{prefix}GetProcAddress 11000 0: 0 0 ours")), "{seen:?}");
        assert!(seen.has(&format!("{prefix}Init 13000 0: 0 0 vendor")), "{seen:?}");
        assert!(
            seen.has(&format!("{prefix}GraphLaunch 13000 2: 0 0 vendor")),
            "no trace is written: {seen:?}"
        );
        assert!(seen.has("noSuchName 13000 0: 500 1 none"), "{seen:?}");
        let trace = own("lookup_trace").join("trace");
        let traced = Scene::with(vendor, "lookups", "observe").set("SHOW_FILES", "1");
        let traced = traced.set("GVMM_PRELOAD_TRACE", trace.to_str().expect("UTF-8")).run();
        assert!(traced.has(&format!("{prefix}GraphLaunch 13000 2: 0 0 ours")), "{traced:?}");
    }
    // Refused for an old version, and by its own status.
    let seen = Scene::with(Vendor::Cuda, "lookups", "observe").set("SHOW_FILES", "1").run();
    assert!(seen.has("cuMemMap 10000 0: 0 2 none"), "{seen:?}");
}

/// What costs nothing cannot be told by a clock: with off, a program has the driver's own addresses in its hands.
#[test]
fn off_gives_the_drivers_own_functions() {
    let files = |mode: &str| {
        let seen = Scene::with(Vendor::Cuda, "by_name", mode).run();
        let of = |file: &str| seen.out.lines().filter(|line| line.ends_with(&format!(" is {file}"))).count();
        (of("vendor"), of("ours"))
    };
    assert_eq!(files("off"), (14, 0));
    assert_eq!(files("observe"), (1, 13), "all but cuInit");
    for vendor in BOTH {
        let off = Scene::with(vendor, "lookups", "off").set("SHOW_FILES", "1").run();
        assert!(off.out.contains(" vendor") && !off.out.contains(" ours"), "{vendor:?} {off:?}");
    }
}

#[test]
fn what_a_new_driver_gives_under_an_old_name_is_left_alone() {
    let folder = own("new_driver");
    vendors_library(Vendor::Cuda, &folder, &["-DNEW_MAP"]);
    let path = folder.to_str().expect("UTF-8").to_owned();
    let seen =
        Scene::with(Vendor::Cuda, "lookups", "on").set("SHOW_FILES", "1").set("LD_LIBRARY_PATH", &path).run();
    assert!(seen.has("cuMemMap 14000 0: 0 0 vendor") && seen.has("cuMemMap 13000 0: 0 0 ours"), "{seen:?}");
    // Where it is the same function at another address, ours is given, and calls the exported one.
    vendors_library(Vendor::Cuda, &folder, &["-DOTHER_ADDRESS"]);
    let seen =
        Scene::with(Vendor::Cuda, "lookups", "on").set("SHOW_FILES", "1").set("LD_LIBRARY_PATH", &path).run();
    assert!(seen.has("cuMemMap 13000 0: 0 0 ours"), "{seen:?}");
    let seen =
        Scene::with(Vendor::Cuda, "nccl", "on").set("BY_LOOKUP", "1").set("LD_LIBRARY_PATH", &path).run();
    seen.clean();
}

#[test]
fn a_second_driver_of_the_process_is_left_alone() {
    let folder = own("second_driver");
    vendors_library(Vendor::Cuda, &folder, &["-Wl,-soname,libcuda.so.2"]);
    let second = folder.join("libcuda.so.1");
    let seen = Scene::with(Vendor::Cuda, "second", "on").set("SECOND", second.to_str().expect("UTF-8")).run();
    assert!(seen.has("second vendor"), "{seen:?}");
    // The same where it is asked before the driver is there, and under a name of its own.
    let other = folder.join("libother.so");
    std::fs::rename(&second, &other).expect("renamed");
    let seen =
        Scene::with(Vendor::Cuda, "buffers", "on").set("FOREIGN", other.to_str().expect("UTF-8")).run();
    assert!(seen.has("foreign 1"), "{seen:?}");
    assert_eq!(seen.calls(Vendor::Cuda, "MemSetAccess"), 12, "the driver's calls are answered");
}

#[test]
fn an_unknown_version_is_observed_only() {
    for (vendor, setting) in [(Vendor::Cuda, "FAKE_CUDA_VERSION"), (Vendor::Hip, "FAKE_HIP_VERSION")] {
        let bare = Scene::bare(vendor, "twice").set(setting, "99000000").run();
        let on = Scene::with(vendor, "twice", "on").set(setting, "99000000").run();
        assert_eq!(on.out, bare.out);
        assert_eq!(on.log.lines().count(), 1, "{on:?}");
        assert!(on.log.contains("99000000"), "{on:?}");
    }
}

#[test]
fn a_driver_that_was_closed_before_is_answered_for_as_ever() {
    let bare = Scene::bare(Vendor::Cuda, "buffers").set("CLOSED_BEFORE", "1").run();
    for mode in ["observe", "on"] {
        let scene = || Scene::with(Vendor::Cuda, "buffers", mode).set("CLOSED_BEFORE", "1");
        let seen = scene().set("GVMM_LOG", "info").run();
        assert_eq!(seen.saw(), bare.saw());
        seen.clean();
        assert!(seen.log.contains(" map 10 ("), "{seen:?}");
    }
}
