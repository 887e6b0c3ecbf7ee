//! Runs the self-test over the host's devices and over stand-ins for the vendors' libraries.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program, with no variable of ours set and no vendor's library to be found.
fn selftest(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gvmm"));
    command.arg("selftest").args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GVMM_") {
            command.env_remove(&name);
        }
    }
    for vendor in ["CUDA", "HIP", "ZE"] {
        command.env(format!("GVMM_{vendor}_LIBRARY"), "/nowhere/lib.so");
    }
    command
}

/// A stand-in for a vendor's library.
fn fake(name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../ffi_tests/fakes/{name}.c"));
    let library =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("selftest_{name}_{}.so", options.len()));
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-pthread", "-o"]).arg(&library).args(options).arg(source);
    assert!(cc.status().expect("a C compiler").success(), "{name} compiles");
    library
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {} {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// Every device passes, and this many checks at least are made on each.
fn all_pass(command: &mut Command, least: u64) -> Value {
    let output = run(command.arg("--json"));
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    for device in report["devices"].as_array().expect("devices") {
        assert!(device["passed"].as_u64().expect("a count") >= least, "{device:#}");
        assert_eq!(device["failed"].as_array().map(Vec::len), Some(0));
    }
    report
}

#[test]
fn the_hosts_devices_pass() {
    let report = all_pass(selftest(&[]).env("GVMM_HOST_DEVICES", "2"), 60);
    assert_eq!(report["devices"].as_array().map(Vec::len), Some(2));
    assert!(report["system"].as_str().is_some_and(|system| system.starts_with("Linux ")));
    let one = all_pass(selftest(&["--device", "1"]).env("GVMM_HOST_DEVICES", "2"), 60);
    assert_eq!(one["devices"][0]["ordinal"], 1);
}

/// Bytes and access are looked at through each driver itself.
#[test]
fn stand_ins_for_cuda_and_level_zero_pass() {
    all_pass(selftest(&["--driver", "cuda"]).env("GVMM_CUDA_LIBRARY", fake("fake_cuda", &[])), 80);
    all_pass(selftest(&["--driver", "level_zero"]).env("GVMM_ZE_LIBRARY", fake("fake_ze", &[])), 40);
}

#[test]
fn a_stand_in_for_hip_passes_and_shows_what_was_tried() {
    let library = fake("fake_hip", &[]);
    let report = all_pass(
        selftest(&["--driver", "hip"])
            .env("GVMM_HIP_LIBRARY", library)
            .env("GVMM_QUIRKS", "+hip-stale-graph"),
        80,
    );
    let hip = report["info"]["drivers"].as_array().and_then(|all| all.iter().find(|d| d["driver"] == "hip"));
    let tried = hip.and_then(|hip| hip["devices"][0]["self_tests"].as_array().cloned()).unwrap_or_default();
    assert!(tried.iter().any(|test| test["verdict"] == "passed"), "{hip:#?}");
}

/// The report survives what the device's process does not.
#[test]
fn a_driver_that_crashes_is_named_with_its_check() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, library) = (folder.path().join("crash.c"), folder.path().join("crash.so"));
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ffi_tests/fakes/fake_cuda.c");
    let text = format!(
        "#define cuMemUnmap cuMemUnmap_kept\n#include \"{}\"\n#undef cuMemUnmap\n\
         API R cuMemUnmap(U at, size_t size) {{ (void)at; (void)size; __builtin_trap(); }}\n",
        fake.display()
    );
    std::fs::write(&source, text).expect("written");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-pthread", "-o"]).arg(&library).arg(&source);
    assert!(cc.status().expect("a C compiler").success());
    let output = run(selftest(&["--driver", "cuda", "--device", "0"]).env("GVMM_CUDA_LIBRARY", library));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("the process ended (signal") && text.contains("during: "), "{text}");
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    for arguments in [["--driver", "cuda"], ["--device", "7"]] {
        let output = run(&mut selftest(&arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("gvmm info"));
    }
}
