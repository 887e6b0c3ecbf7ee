//! The preloaded libraries in processes that go wrong, fork, end, or write traces: the program runs as if they were not
//! there. Counts only, never times.

#[path = "preload/rig.rs"]
mod rig;

use rig::{BOTH, Scene, Vendor, library, own};
use std::process::Command;

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
fn children_of_a_busy_program_do_not_wait_for_its_threads() {
    for vendor in BOTH {
        for mode in ["observe", "on"] {
            let trace = own(&format!("busy_{}_{mode}", vendor.name())).join("trace");
            let scene = Scene::with(vendor, "forks_busy", mode).set("GVMM_PRELOAD_TRACE_LINES", "1000");
            let seen = scene.set("GVMM_PRELOAD_TRACE", trace.to_str().expect("UTF-8")).run();
            assert!(seen.has("children 200 of 200"), "{vendor:?} {mode}: {}", seen.out);
            let said = seen.log.matches("called in a child after a fork").count();
            assert_eq!(said, 200, "each says it once: {}", seen.log);
            seen.clean();
        }
    }
}

#[test]
fn a_call_leaves_errno_alone() {
    for vendor in BOTH {
        let bare = Scene::bare(vendor, "keeps_errno").run();
        assert_eq!(bare.out.matches("errno 42\n").count(), 3, "{bare:?}");
        let trace = own(&format!("errno_{}", vendor.name())).join("trace");
        for (mode, path) in [("observe", trace.to_str().expect("UTF-8")), ("on", "/nowhere/trace")] {
            let seen = Scene::with(vendor, "keeps_errno", mode).set("GVMM_PRELOAD_TRACE", path).run();
            assert_eq!(seen.saw(), bare.saw(), "{vendor:?} {mode}");
        }
    }
}

#[test]
fn a_trace_that_another_process_writes_is_left_to_it() {
    let trace = own("locked").join("trace");
    let held = std::fs::File::create(&trace).expect("created");
    held.lock().expect("locked");
    std::fs::write(&trace, "another's\n").expect("written");
    let scene = Scene::with(Vendor::Cuda, "nccl", "observe");
    scene.set("GVMM_PRELOAD_TRACE", trace.to_str().expect("UTF-8")).run().clean();
    assert_eq!(std::fs::read_to_string(&trace).expect("read"), "another's\n");
    let folder = trace.parent().expect("a folder");
    let own: Vec<_> =
        std::fs::read_dir(folder).expect("read").map(|file| file.expect("a file").path()).collect();
    let numbered = own.iter().find(|path| **path != trace).expect("a file of the process's own");
    assert!(std::fs::read_to_string(numbered).expect("read").contains(",map,"), "{numbered:?}");
    drop(held);
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
fn an_unknown_mode_is_off_and_says_so() {
    let bare = Scene::bare(Vendor::Cuda, "buffers").run();
    let seen = Scene::with(Vendor::Cuda, "buffers", "sometimes").run();
    assert_eq!(seen.out, bare.out);
    assert!(seen.log.contains("GVMM_PRELOAD=sometimes") && seen.log.lines().count() == 1, "{seen:?}");
    Scene::with(Vendor::Cuda, "buffers", "sometimes").set("GVMM_LOG", "off").shows(&bare);
}
