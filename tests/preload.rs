//! The libraries that are preloaded in front of a driver: programs that link or look up the vendor's functions as real ones
//! do, run with and without, and the vendor's calls counted. Counts only, never times.

#[path = "preload/rig.rs"]
mod rig;

use rig::{BOTH, Scene, Vendor, library, own, vendors_library};
use std::process::Command;

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
    let off = Scene::with(Vendor::Cuda, "lookups", "off").set("SHOW_FILES", "1").run();
    assert!(!off.out.contains(" ours"), "{off:?}");
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
fn preloaded_twice_the_second_stays_out() {
    for vendor in BOTH {
        let copy = own(&format!("twice_{}", vendor.name())).join("copy.so");
        std::fs::copy(library(vendor), &copy).expect("copied");
        let both = format!("{}:{}", library(vendor).display(), copy.display());
        let seen = Scene::with(vendor, "buffers", "on").set("LD_PRELOAD", &both).run();
        assert_eq!(seen.calls(vendor, "MemSetAccess"), 12, "{seen:?}");
        assert_eq!(seen.log.lines().count(), 1, "{seen:?}");
        assert!(seen.log.contains("preloaded twice"), "{seen:?}");
        // The same file twice is one library.
        let same = format!("{}:{}", library(vendor).display(), library(vendor).display());
        let seen = Scene::with(vendor, "buffers", "on").set("LD_PRELOAD", &same).run();
        assert_eq!((seen.calls(vendor, "MemSetAccess"), seen.log.as_str()), (12, ""));
    }
}

#[test]
fn both_libraries_leave_each_other_alone() {
    for order in [[Vendor::Cuda, Vendor::Hip], [Vendor::Hip, Vendor::Cuda]] {
        let both = order.map(|vendor| library(vendor).display().to_string()).join(":");
        for vendor in BOTH {
            let seen = Scene::with(vendor, "buffers", "on").set("LD_PRELOAD", &both).run();
            assert_eq!((seen.calls(vendor, "MemSetAccess"), seen.log.as_str()), (12, ""), "{order:?}");
            seen.clean();
        }
    }
}

#[test]
fn loaded_too_late_it_says_so_and_stays_out() {
    for vendor in BOTH {
        let bare = Scene::bare(vendor, "buffers").run();
        let late = Scene::bare(vendor, "buffers").set("GVMM_PRELOAD", "on");
        let late = late.set("LOAD_LATE", library(vendor).to_str().expect("UTF-8")).run();
        assert_eq!(late.out, bare.out);
        assert_eq!(late.log.lines().count(), 1, "{late:?}");
        assert!(late.log.contains("too late"), "{late:?}");
    }
}

#[test]
fn without_a_driver_or_a_device_the_program_sees_what_it_would() {
    let nowhere = own("nowhere");
    let path = nowhere.to_str().expect("UTF-8");
    let bare = Scene::bare(Vendor::Cuda, "buffers").set("LD_LIBRARY_PATH", path).run();
    for mode in ["observe", "on"] {
        Scene::with(Vendor::Cuda, "buffers", mode).set("LD_LIBRARY_PATH", path).shows(&bare);
        for (vendor, setting) in [(Vendor::Cuda, "FAKE_CUDA_INIT"), (Vendor::Hip, "FAKE_HIP_INIT")] {
            let bare = Scene::bare(vendor, "buffers").set(setting, "100").run();
            assert!(bare.out.starts_with("init 100"), "{bare:?}");
            Scene::with(vendor, "buffers", mode).set(setting, "100").shows(&bare);
        }
    }
}

#[test]
fn a_child_after_a_fork_goes_to_the_vendor() {
    for vendor in BOTH {
        let bare = Scene::bare(vendor, "forks").run();
        let trace = own(&format!("fork_{}", vendor.name())).join("trace");
        let on = Scene::with(vendor, "forks", "on")
            .set("GVMM_PRELOAD_TRACE", trace.to_str().expect("UTF-8"))
            .run();
        assert_eq!(on.saw(), bare.saw());
        assert_eq!(on.log.lines().count(), 1, "{on:?}");
        let text = std::fs::read_to_string(&trace).expect("a trace");
        assert!(
            !text.contains(",granularity,") && text.contains(",set_access,"),
            "the child writes nothing: {text}"
        );
    }
}

#[test]
fn a_program_may_leave_with_everything_and_with_threads_that_call() {
    for vendor in BOTH {
        for mode in ["observe", "on"] {
            let trace = own(&format!("leaves_{}_{mode}", vendor.name())).join("trace");
            let scene = Scene::with(vendor, "leaves", mode).set("GVMM_PRELOAD_TRACE_LINES", "500");
            let seen = scene.set("GVMM_PRELOAD_TRACE", trace.to_str().expect("UTF-8")).run();
            assert_eq!(seen.out, "ends\n");
            let text = std::fs::read_to_string(&trace).expect("a trace");
            let lines = text.lines().filter(|line| !line.starts_with('#')).count();
            assert!(lines <= 501, "{lines} lines: the trace is bounded");
        }
    }
}

#[test]
fn a_trace_has_a_line_for_each_call_of_many_threads() {
    for vendor in BOTH {
        let trace = own(&format!("trace_{}", vendor.name())).join("trace");
        let path = trace.to_str().expect("UTF-8");
        let seen = Scene::with(vendor, "threads", "observe").set("GVMM_PRELOAD_TRACE", path).run();
        let text = std::fs::read_to_string(&trace).expect("a trace");
        for (word, call) in [("map", "MemMap"), ("set_access", "MemSetAccess"), ("free", "MemAddressFree")] {
            let lines = text.lines().filter(|line| line.split(',').nth(2) == Some(word)).count();
            assert_eq!(lines as u64, seen.calls(vendor, call), "{word}");
            assert_eq!(lines, 400);
        }
        assert!(
            text.lines().skip(2).all(|line| line.starts_with('#') || line.split(',').count() == 10),
            "{text}"
        );
        assert_eq!(text.matches("# totals {").count(), 1);
    }
    let nowhere =
        Scene::with(Vendor::Cuda, "nccl", "observe").set("GVMM_PRELOAD_TRACE", "/nowhere/trace").run();
    nowhere.clean();
    assert_eq!(nowhere.log.lines().count(), 1, "{nowhere:?}");
}

#[test]
fn what_no_trace_can_be_written_to_does_not_hold_the_program_up() {
    let folder = own("no_file");
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let bare = Scene::bare(Vendor::Cuda, "nccl").run();
    for path in [pipe.to_str().expect("UTF-8"), folder.to_str().expect("UTF-8"), "/dev/null"] {
        let seen = Scene::with(Vendor::Cuda, "nccl", "observe").set("GVMM_PRELOAD_TRACE", path).run();
        assert_eq!(seen.out, bare.out, "{path}");
        assert_eq!(seen.log.lines().count(), 1, "{seen:?}");
        assert!(seen.log.contains("no trace is written"), "{seen:?}");
    }
}

#[test]
fn a_trace_that_grows_too_long_does_not_end_the_program() {
    let trace = own("too_long").join("trace");
    let scene = Scene::with(Vendor::Cuda, "speed", "observe");
    let scene = scene.set("GVMM_PRELOAD_TRACE", trace.to_str().expect("UTF-8"));
    // As much as a block of the stand-in needs.
    let seen = scene.by_shell("ulimit -f 2048; exec \"$0\" \"$@\"").run();
    seen.clean();
    assert_eq!(seen.log.matches("calls go on unwritten").count(), 1, "{seen:?}");
    let length = std::fs::metadata(&trace).expect("a trace").len();
    assert!((2 << 20) - 256 < length && length <= 2 << 20, "{length}: as long as it may be");
}

#[test]
fn a_trace_whose_descriptor_the_program_took_is_not_written_on() {
    for vendor in BOTH {
        let trace = own(&format!("closed_{}", vendor.name())).join("trace");
        let scene = Scene::with(vendor, "closes_all", "observe");
        let seen = scene.set("GVMM_PRELOAD_TRACE", trace.to_str().expect("UTF-8")).run();
        assert!(seen.has("own 0"), "the program's own file got lines of ours: {seen:?}");
        assert_eq!(seen.log.matches("the program closed it; calls go on unwritten").count(), 1, "{seen:?}");
        assert_eq!(seen.log.lines().count(), 1, "{seen:?}");
        let text = std::fs::read_to_string(&trace).expect("a trace");
        let lines = |word: &str| text.lines().filter(|line| line.split(',').nth(2) == Some(word)).count();
        assert_eq!((lines("map"), lines("free")), (1, 1), "what came before is there: {text}");
        seen.clean();
    }
}

#[test]
fn a_log_that_nobody_reads_does_not_end_the_program() {
    let scene = Scene::with(Vendor::Cuda, "nccl", "observe").set("GVMM_LOG", "info");
    // The reader of standard error has gone before the program starts.
    let seen = scene.by_shell("exec 2> >(exec true); wait $!; \"$0\" \"$@\"").run();
    seen.clean();
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

#[test]
fn an_unknown_mode_is_off_and_says_so() {
    let bare = Scene::bare(Vendor::Cuda, "buffers").run();
    let seen = Scene::with(Vendor::Cuda, "buffers", "sometimes").run();
    assert_eq!(seen.out, bare.out);
    assert!(seen.log.contains("GVMM_PRELOAD=sometimes") && seen.log.lines().count() == 1, "{seen:?}");
    Scene::with(Vendor::Cuda, "buffers", "sometimes").set("GVMM_LOG", "off").shows(&bare);
}
