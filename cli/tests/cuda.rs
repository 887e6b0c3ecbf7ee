//! Runs the program over a stand-in for NVIDIA's library, which counts breaches of the vendor's rules.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The fake library.
fn fake() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ffi_tests/fakes/fake_cuda.c");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcuda-cli.so");
        let options = ["-shared", "-fPIC", "-O1", "-g", "-pthread", "-o"];
        let status = Command::new("cc").args(options).arg(&path).arg(source).status().expect("a C compiler");
        assert!(status.success(), "the fake compiles");
        path
    })
}

/// The program with the fake library, and no other variable of ours set.
fn gvmm(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gvmm"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("GVMM_") || text.starts_with("XLA_") {
            command.env_remove(&name);
        }
    }
    command.env("GVMM_CUDA_LIBRARY", fake());
    command
}

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(command: &mut Command) -> Value {
    serde_json::from_slice(&output(command).stdout).expect("JSON")
}

#[test]
fn info_names_library_version_devices_and_quirks() {
    let mut command = gvmm(&["info", "--json"]);
    command.env("GVMM_QUIRKS", "+cuda-old-stream-values").env("FAKE_CUDA_VERSION", "12000");
    let cuda = &json(&mut command)["drivers"][0];
    assert_eq!(cuda["driver"], "cuda");
    assert_eq!(cuda["library"].as_str(), fake().to_str());
    assert_eq!(cuda["version"], "CUDA 12.0");
    let devices = cuda["devices"].as_array().expect("a list");
    assert_eq!(devices.len(), 2);
    assert_eq!((&devices[1]["ordinal"], &devices[1]["architecture"]), (&1.into(), &"sm_90".into()));
    let quirks = devices[0]["quirks"].as_array().expect("a list");
    let of = |key: &str| quirks.iter().map(|q| q[key].as_str().expect("a text")).collect::<Vec<_>>();
    assert_eq!(of("name"), ["cuda-small-parameters", "cuda-old-stream-values", "cuda-rdma-aliases"]);
    assert_eq!(of("why"), ["CUDA 12.0 on sm_90", "GVMM_QUIRKS says so", "CUDA 12.0 on sm_90"]);
    assert!(of("reference")[..2].iter().all(|text| text.contains("release notes")));
    assert!(of("reference")[2].contains("580.159"));
    let table = output(&mut gvmm(&["info"]));
    let table = String::from_utf8_lossy(&table.stdout);
    assert!(table.contains("cuda (CUDA 13.0)") && table.contains("fake CUDA device 1"), "{table}");
}

#[test]
fn info_says_which_version_or_answer_is_in_the_way() {
    let absent = |name: &str, value: &str| {
        let report = json(gvmm(&["info", "--json"]).env(name, value));
        report["drivers"][0]["absent"].as_str().expect("a reason").to_owned()
    };
    let old = absent("FAKE_CUDA_VERSION", "10020");
    assert!(old.contains("10020") && old.contains("11.0") && old.contains("libcuda-cli.so"), "{old}");
    assert!(absent("FAKE_CUDA_INIT", "34").contains("stub"));
    let none = absent("FAKE_CUDA_INIT", "100");
    assert!(none.contains("CUDA_VISIBLE_DEVICES"), "{none}");
    assert!(absent("GVMM_CUDA_LIBRARY", "/nowhere/libcuda.so.1").contains("/nowhere/libcuda.so.1"));
}

/// A run on the fake GPU that was right throughout and broke no rule of the vendor's.
fn steps(name: &str, options: &[&str]) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/steps");
    let path = folder.join(format!("{name}.csv.gz"));
    let mut command = gvmm(&["steps", "--driver", "cuda", "--json"]);
    command.arg(path).args(options).env("FAKE_CUDA_MEMORY", "100000000000").env("FAKE_CUDA_TRACE", "1");
    let output = output(&mut command);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "no breach, no warning");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["driver"], &report["mismatches"]), (&"cuda".into(), &0.into()));
    assert_eq!(report["verified_slots"], 24 * report["slots"].as_u64().expect("a count"));
    for key in ["host_us_median", "driver_us_median", "gpu_us_median"] {
        let cold = format!("{key}_cold");
        assert!(report[key].is_number() && report[&cold].is_number(), "{key}: {report}");
    }
    assert!(report["graph_host_us_median"].is_number() && report["graph_gpu_us_median"].is_number());
    report
}

/// map, unmap, set_access, copy_launches of a step.
fn calls(report: &Value) -> [f64; 4] {
    ["map", "unmap", "set_access", "copy_launches"]
        .map(|key| report["per_step"][key].as_f64().expect("a number"))
}

#[test]
fn steps_run_a_graph_of_kernels() {
    let around = ["--copies", "around"];
    let report = steps("llama_donate", &[&["--threshold", "65536"], &around[..]].concat());
    assert_eq!((calls(&report), &report["copies"]), ([0.0, 0.0, 0.0, 2.0], &"around".into()));
    let one_moves = [1.0, 1.0, 1.0, 2.0];
    let peer = ["--threshold", "4096", "--peers", "1"];
    assert_eq!(calls(&steps("llama_donate", &[&peer[..], &around].concat())), one_moves);
}

#[test]
fn steps_with_the_copies_in_the_graph_launch_none() {
    let report = steps("llama_donate", &["--threshold", "65536"]);
    assert_eq!((calls(&report), &report["copies"]), ([0.0; 4], &"graph".into()), "the default");
    let one_moves = calls(&steps("llama_donate", &["--threshold", "4096", "--copies", "graph"]));
    assert_eq!(one_moves, [1.0, 1.0, 1.0, 0.0]);
}

#[test]
fn the_graph_is_really_patched() {
    let patches = |report: &Value| report["per_step"]["patches"].as_f64().expect("a mean");
    // 590 slots, 16 a kernel: those that move are in 13 of them.
    let all = steps("llama_donate", &["--plan", "patch"]);
    assert_eq!((calls(&all), patches(&all)), ([0.0; 4], 13.0));
    let few = steps("llama_donate_all", &["--plan", "patch", "--slots-per-command", "2"]);
    assert_eq!((calls(&few), patches(&few)), ([0.0; 4], 10.0));
    let graph = steps("llama_donate_all", &["--plan", "patch", "--copies", "graph"]);
    assert_eq!((calls(&graph), patches(&graph)), ([0.0; 4], 2.0));
}

#[test]
fn the_planner_leaves_nothing_to_remap() {
    for copies in ["around", "graph"] {
        let report = steps("llama_donate", &["--plan", "auto", "--copies", copies]);
        let [map, unmap, set_access, launches] = calls(&report);
        assert_eq!([map, unmap, set_access], [0.0; 3]);
        assert!(launches <= 2.0 && report["predicted_us"].is_number(), "{report}");
    }
}

#[test]
fn steps_remap_in_one_set_access_where_all_moves() {
    let [map, unmap, set_access, launches] = calls(&steps("llama_donate_all", &["--threshold", "off"]));
    assert_eq!([map, unmap, launches], [20.0, 20.0, 0.0]);
    assert!((1.0..=20.0).contains(&set_access), "{set_access}");
}

#[test]
fn replay_checks_blocks_by_kernels_and_breaks_no_rule() {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/alloc/two_stream.csv.gz");
    for options in [&["--budget", "1.02", "--lag", "2000"][..], &["--threads", "2"]] {
        let mut command = gvmm(&["replay", "--driver", "cuda", "--json", "--canary", "--repeat", "1"]);
        command.arg(&recording).args(options);
        command.env("FAKE_CUDA_MEMORY", "100000000000").env("FAKE_CUDA_TRACE", "1");
        let output = output(&mut command);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "no breach, no warning");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&report["canary_errors"], &report["oom"]), (&0.into(), &0.into()), "{report}");
    }
}

#[test]
fn a_driver_that_is_named_and_absent_is_a_failure_with_the_reason() {
    for driver in ["cuda", "hip", "level_zero"] {
        let mut command = gvmm(&["steps", "-", "--driver", driver]);
        for name in ["GVMM_CUDA_LIBRARY", "GVMM_HIP_LIBRARY", "GVMM_ZE_LIBRARY"] {
            command.env(name, "/nowhere/lib.so");
        }
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("it runs");
        let mut input = child.stdin.take().expect("piped");
        input.write_all(b"0,a,in,64,1\n").expect("written");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("DriverNotFound"), "{text}");
    }
}
