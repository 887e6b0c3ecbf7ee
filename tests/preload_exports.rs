//! What the preloaded libraries export, and who else looks functions up in the same process.

#[path = "preload/rig.rs"]
mod rig;

use rig::{BOTH, Vendor, cc, library, own, program};
use std::path::Path;
use std::process::Command;

/// Other libraries that stand in front of something find what is behind them, and a driver that is not there is not
/// promised.
#[test]
fn other_lookups_go_on_as_they_were() {
    let folder = own("next");
    let before = folder.join("libbefore.so");
    cc(&["-shared", "-fPIC", "-DBEFORE"], "next.c", &before);
    let program = folder.join("next");
    cc(&[], "next.c", &program);
    let run = |preload: String| {
        let output = Command::new(&program)
            .env("LD_PRELOAD", preload)
            .env("GVMM_PRELOAD", "on")
            .output()
            .expect("it runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let ours = library(Vendor::Cuda);
    let expected = run(before.display().to_string());
    assert!(expected.contains("4711 then "), "{expected}");
    assert_eq!(run(format!("{}:{}", ours.display(), before.display())), expected);
    assert_eq!(run(format!("{}:{}", before.display(), ours.display())), expected);
}

/// What is called although no library of the vendor's is there.
#[test]
fn a_vendors_library_that_is_missing_is_an_error_and_a_line() {
    let folder = own("missing");
    let program = folder.join("missing");
    cc(&["-DMISSING"], "next.c", &program);
    let run = |vendor: Vendor| {
        Command::new(&program)
            .env("LD_PRELOAD", library(vendor))
            .env("GVMM_PRELOAD", "observe")
            .output()
            .expect("it runs")
    };
    for output in BOTH.map(run) {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "500 500\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{output:?}");
    }
}

fn exported(library: &Path) -> Vec<String> {
    let output = Command::new("readelf").args(["--dyn-syms", "-W"]).arg(library).output().expect("readelf");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let name = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, _, "GLOBAL" | "WEAK", _, section, name] = words.as_slice() else { return None };
        (*section != "UND").then(|| (*name).to_owned())
    };
    let mut names: Vec<String> = text.lines().filter_map(name).collect();
    names.sort();
    names
}

#[test]
fn each_library_exports_what_it_should_and_the_core_no_vendors_name() {
    let calls = [
        "MemAddressFree",
        "MemAddressReserve",
        "MemCreate",
        "MemExportToShareableHandle",
        "MemGetAccess",
        "MemGetAllocationGranularity",
        "MemImportFromShareableHandle",
        "MemMap",
        "MemRelease",
        "MemRetainAllocationHandle",
        "MemSetAccess",
        "MemUnmap",
        "GraphLaunch",
        "GetProcAddress",
    ];
    for (vendor, more) in [
        (Vendor::Cuda, &["cuGetProcAddress_v2", "cuGraphLaunch_ptsz", "dlsym", "gvmm_preload_symbol"][..]),
        (Vendor::Hip, &["hipGraphLaunch_spt"][..]),
    ] {
        let mut expected: Vec<String> =
            calls.iter().map(|call| format!("{}{call}", vendor.prefix())).collect();
        expected.extend(
            more.iter().chain(&["gvmm_preload_marker", "gvmm_preload_report"]).map(|name| (*name).to_owned()),
        );
        expected.sort();
        assert_eq!(exported(&library(vendor)), expected, "{vendor:?}");
    }
    let core = exported(&rig::libraries().join("libgvmm.so"));
    let strange: Vec<_> = core.iter().filter(|name| !name.starts_with("gvmm_")).collect();
    assert!(core.len() > 50 && strange.is_empty(), "{strange:?}");
    assert!(core.iter().all(|name| !name.starts_with("gvmm_preload")));
}

#[test]
fn the_core_takes_neither_library_for_the_driver_and_reaches_the_one_behind() {
    let folder = program(Vendor::Cuda).parent().expect("a folder").to_owned();
    let core = own("core");
    std::os::unix::fs::symlink(rig::libraries().join("libgvmm.so"), core.join("libgvmm.so.0"))
        .expect("a link");
    let user = core.join("core");
    let include = format!("-I{}", rig::root().join("include").display());
    let library_path = core.join("libgvmm.so.0");
    cc(&[&include, "-DCORE", library_path.to_str().expect("UTF-8")], "next.c", &user);
    let trace = core.join("trace");
    let run = |preload: &Path, cuda: Option<&Path>| {
        let mut command = Command::new(&user);
        command.env("LD_PRELOAD", preload).env("GVMM_PRELOAD", "on").env("GVMM_DRIVER", "cuda");
        command
            .env("GVMM_PRELOAD_TRACE", &trace)
            .env("LD_LIBRARY_PATH", format!("{}:{}", folder.display(), core.display()));
        if let Some(cuda) = cuda {
            command.env("GVMM_CUDA_LIBRARY", cuda);
        }
        String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8")
    };
    let ours = library(Vendor::Cuda);
    assert_eq!(run(&ours, None), "open 0, allocate 0\n");
    assert!(!trace.exists(), "the core's own calls are not the program's");
    assert!(run(&ours, Some(&ours)).starts_with("open 3"), "the library itself is no driver");
}
