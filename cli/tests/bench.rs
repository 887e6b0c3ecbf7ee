//! Runs the benchmarks on the host driver and over a stand-in for NVIDIA's library: what they count, never how long
//! it takes.

use gvmm::rebind::profile::Profile;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The program, with no variable of ours set but the driver's.
fn gvmm(driver: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gvmm"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("GVMM_") || text.starts_with("XLA_") {
            command.env_remove(&name);
        }
    }
    command.env("GVMM_DRIVER", driver);
    if driver == "cuda" {
        command.env("GVMM_CUDA_LIBRARY", fake()).env("FAKE_CUDA_TRACE", "1");
    }
    command
}

/// The fake library.
fn fake() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ffi_tests/fakes/fake_cuda.c");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcuda-bench.so");
        let options = ["-shared", "-fPIC", "-O1", "-g", "-pthread", "-o"];
        let status = Command::new("cc").args(options).arg(&path).arg(source).status().expect("a C compiler");
        assert!(status.success(), "the fake compiles");
        path
    })
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The JSON of a run without failure, warning or breach.
fn json(command: &mut Command) -> Value {
    let output = run(command.arg("--json"));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

const SMALL: [&str; 8] = ["bench", "vmm", "--sizes", "2M,4M", "--counts", "1,4", "--repeat", "2"];

fn rows<'a>(report: &'a Value, what: &str) -> Vec<&'a Value> {
    report["rows"].as_array().expect("rows").iter().filter(|row| row["what"] == what).collect()
}

/// Of the calls of a row: map, unmap, set_access, those that name peers.
fn calls(row: &Value) -> [u64; 4] {
    ["map", "unmap", "set_access", "set_access_naming_peers"]
        .map(|key| row["calls"][key].as_u64().unwrap_or(0))
}

fn with_access<'a>(report: &'a Value, what: &str, access: &str) -> Vec<&'a Value> {
    let rows: Vec<_> = rows(report, what).into_iter().filter(|row| row["access"] == access).collect();
    assert!(!rows.is_empty(), "{what}, {access}");
    rows
}

/// Checks how many calls each way to give access to `peers` peers takes.
fn check_peers(report: &Value, peers: u64) {
    let joint = |n: u64| if n == 1 { "1 peer, one call".into() } else { format!("{n} peers, one call") };
    let mut ways = vec![("local".to_owned(), 1, 0)];
    let several = [1, 3, 7].into_iter().filter(|n| *n < peers).chain([peers]);
    ways.extend(several.map(|n| (joint(n), 1, 1)));
    ways.push((joint(peers).replace("one call", "a call each"), peers + 1, peers));
    // All but the last also beside a block elsewhere.
    let last = ways.len() - 1;
    let beside = |(i, way): (usize, &(String, u64, u64))| {
        let other = (i < last).then(|| (format!("{}, beside another", way.0), way.1, way.2));
        std::iter::once(way.clone()).chain(other).collect::<Vec<_>>()
    };
    let ways: Vec<_> = ways.iter().enumerate().flat_map(beside).collect();
    let found: Vec<_> = rows(report, "set_access").iter().map(|row| row["access"].clone()).collect();
    let names: Vec<_> = ways.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(found[..names.len()], names);
    assert_eq!(found.len(), 4 * names.len(), "for two sizes and two numbers of blocks");
    for (name, set_access, naming) in ways {
        for row in with_access(report, "set_access", &name) {
            assert_eq!(calls(row), [0, 0, set_access, naming], "{row}");
        }
        for row in with_access(report, "remap_all", &name) {
            let blocks = row["blocks"].as_u64().expect("a count");
            assert_eq!(calls(row), [blocks, blocks, set_access, naming], "{row}");
        }
        for row in with_access(report, "remap_one", &name) {
            assert_eq!(calls(row), [1, 1, set_access, naming], "{row}");
        }
    }
}

#[test]
fn calls_that_name_peers_are_as_few_as_they_are_said_to_be() {
    for devices in [4_u64, 8] {
        let report = json(gvmm("host", &SMALL).env("GVMM_HOST_DEVICES", devices.to_string()));
        assert_eq!(report["peers"].as_array().map(Vec::len), Some(devices as usize - 1));
        check_peers(&report, devices - 1);
    }
    // The host has as many devices as are asked for.
    check_peers(&json(gvmm("host", &SMALL).args(["--peers", "2", "--device", "1"])), 2);
}

#[test]
fn nvidias_calls_are_as_few_and_break_no_rule() {
    let mut command = gvmm("cuda", &SMALL);
    let report = json(command.env("FAKE_CUDA_DEVICES", "4").env("FAKE_CUDA_MEMORY", "100000000000"));
    assert_eq!((&report["driver"], &report["times"]), (&"cuda".into(), &"measured".into()));
    assert_eq!(report["driver_version"], "CUDA 13.0");
    check_peers(&report, 3);
    let copies = report["copies"].as_array().expect("copies");
    let kinds = |n: u64| {
        let rows = copies.iter().filter(|row| row["slices"] == n && row["slice_bytes"] == 4096);
        rows.map(|row| [&row["what"], &row["by"], &row["calls"]].map(ToString::to_string).join(" "))
            .collect::<Vec<_>>()
    };
    let batch = "\"batch\" \"cuMemcpyBatchAsync\" 1";
    let expected = ["\"joint\" \"one call of gvmm\" 1", "\"single\" \"cuMemcpyDtoDAsync\" 64", batch];
    assert_eq!(kinds(64), expected);
    assert_eq!([1, 8, 256, 1024].map(|n| kinds(n).len()), [3; 4]);
}

#[test]
fn the_file_says_what_on_what_and_when_and_steps_can_simulate_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("costs.json").to_string_lossy().into_owned();
    let mut command = gvmm("host", &SMALL);
    let printed = json(command.args(["--save", &file, "--peers", "3"]).env("GVMM_HOST_COSTS", "h200"));
    let saved: Value = serde_json::from_slice(&std::fs::read(&file).expect("the file")).expect("JSON");
    assert_eq!(saved, printed);
    let top = "benchmark copies copy_clock costs date device driver fits free_bytes granularity_bytes gvmm ordinal \
               peers quiet rows skipped times total_bytes unreachable";
    let keys =
        |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&saved), top);
    assert_eq!(keys(&saved["rows"][0]), "beside block_bytes blocks call_each calls peers us what");
    assert_eq!(keys(&saved["rows"][0]["us"]), "max median min q1 q3 samples");
    assert_eq!(keys(&saved["copies"][0]), "by calls gpu_us host_us launches slice_bytes slices what");
    assert_eq!((&saved["times"], &saved["costs"]["name"]), (&"simulated: h200".into(), &"h200".into()));
    for (field, sizes) in [
        ("create", 2),
        ("release", 2),
        ("unmap", 2),
        ("set_access", 2),
        ("peer_unmap", 2),
        ("copy_joint_host", 5),
    ] {
        assert_eq!(saved["costs"][field].as_array().map(Vec::len), Some(sizes), "{field}");
    }
    let recording = folder.path().join("r.csv");
    std::fs::write(&recording, "0,a,in,100000,1\n1,a,in,100000,2\n2,a,in,100000,1\n").expect("written");
    let steps = ["steps", &recording.to_string_lossy(), "--threshold", "off", "--costs", &file];
    let report = json(&mut gvmm("host", &steps));
    assert_eq!((&report["costs"], &report["mismatches"]), (&"simulated: h200".into(), &0.into()));
    let again = json(gvmm("host", &SMALL).args(["--costs", &file]));
    assert_eq!(again["times"], "simulated: h200");
}

#[test]
fn people_see_that_times_are_simulated_and_what_was_left_out() {
    let arguments = ["bench", "vmm", "--sizes", "2M,3M", "--counts", "1,64", "--repeat", "1"];
    let mut command = gvmm("host", &arguments);
    let output = run(command.env("GVMM_HOST_COSTS", "h200").env("GVMM_HOST_MEMORY", "64M"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    assert!(text.contains("times are simulated: h200") && text.contains("create, simulated µs"), "{text}");
    assert!(!text.contains(", µs"), "a time that is not called simulated: {text}");
    assert!(text.contains("not measured: 64 × 2 MiB: needs 130 MiB, 64 MiB are free"), "{text}");
    assert!(text.contains("not measured: 1 × 3 MiB: no multiple of the granule, 2 MiB"), "{text}");
    assert!(text.contains("| 1 × 2 MiB "), "{text}");
}

#[test]
fn what_a_driver_lacks_shows_in_the_counts() {
    let report = |off: &str| json(gvmm("host", &SMALL).args(["--peers", "1"]).env("GVMM_HOST_CAPS", off));
    let apart = report("-joined_access");
    for row in with_access(&apart, "set_access", "1 peer, one call") {
        let blocks = row["blocks"].as_u64().expect("a count");
        assert_eq!(calls(row), [0, 0, blocks, blocks], "a call for each block: {row}");
    }
    let whole = report("-range_access");
    assert!(rows(&whole, "set_access_each").is_empty() && !rows(&whole, "remap_one").is_empty());
    let none = json(gvmm("host", &SMALL).env("GVMM_HOST_CAPS", "-virtual_memory"));
    assert_eq!((rows(&none, "map").len(), rows(&none, "allocate").len()), (0, 1));
    assert!(
        none["skipped"][0]["why"].as_str().is_some_and(|why| why.contains("no virtual memory")),
        "{none}"
    );
    assert_eq!(
        none["copies"].as_array().map(Vec::len),
        Some(11),
        "five numbers, joint and single, and a large one"
    );
}

#[test]
fn bad_input_exits_with_2_and_says_what_to_do() {
    let cases = [
        ("cuda", vec!["bench", "vmm", "--peers", "3"], "--peers 3: 1 further devices"),
        ("cuda", vec!["bench", "vmm", "--device", "9"], "--device 9: there are 2 devices"),
        ("host", vec!["bench", "vmm", "--sizes", "0"], "--sizes"),
        ("host", vec!["bench", "vmm", "--counts", "0"], "--counts"),
        (
            "host",
            vec!["bench", "vmm", "--save", "/nowhere/x", "--sizes", "2M", "--counts", "1"],
            "/nowhere/x: expected",
        ),
        ("host", vec!["bench", "steps", "/nowhere.csv"], "/nowhere.csv: expected a file"),
        ("host", vec!["bench"], "Usage"),
    ];
    for (driver, arguments, message) in cases {
        let output = run(&mut gvmm(driver, &arguments));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(message), "{arguments:?}: {text}");
    }
}

/// Three slots of which two move in every step, and a large one that stays.
fn recording(folder: &Path) -> String {
    let path = folder.join("three.csv");
    let lines = (0..6).map(|step| {
        let (a, b) = (1 + step % 2, 3 + step % 2);
        format!("{step},a,in,4096,{a}\n{step},b,in,4096,{b}\n{step},c,out,50331648,9\n")
    });
    std::fs::write(&path, lines.collect::<String>()).expect("written");
    path.to_string_lossy().into_owned()
}

/// The strategies of a recording, by name.
fn strategies(recording: &Value) -> Vec<(&str, &Value)> {
    let all = recording["strategies"].as_array().expect("a list").iter();
    all.map(|outcome| (outcome["strategy"].as_str().expect("a name"), outcome)).collect()
}

#[test]
fn strategies_run_in_turn_and_differ_in_their_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = recording(folder.path());
    for driver in ["host", "cuda"] {
        let mut command = gvmm(driver, &["bench", "steps", &path, &path, "--rounds", "2", "--peers", "1"]);
        let report = json(command.env("FAKE_CUDA_MEMORY", "100000000000").env("GVMM_SHADOW_BUDGET", "128M"));
        let recordings = report["recordings"].as_array().expect("a list");
        assert_eq!((recordings.len(), &report["rounds"]), (2, &2.into()));
        let seen = strategies(&recordings[0]).into_iter().map(|(name, outcome)| {
            let (report, step) = (&outcome["report"], &outcome["report"]["per_step"]);
            assert_eq!(
                (&report["mismatches"], &report["verified_slots"]),
                (&0.into(), &36.into()),
                "{report}"
            );
            assert_eq!(outcome["gpu_us"].is_null(), driver == "host");
            assert_eq!(report["predicted_us"].is_null(), name == "XLA's rule, slot by slot", "{name}");
            let counts = ["map", "unmap", "set_access", "copy_launches", "patches"]
                .map(|key| step[key].as_f64().expect("a mean"));
            (name, counts)
        });
        let seen: Vec<_> = seen.collect();
        // A kernel of the graph has all three slots, a function of the host one.
        let patches = if driver == "cuda" { 1.0 } else { 2.0 };
        let expected = [
            ("map all", [2.0, 2.0, 1.0, 0.0, 0.0]),
            ("copy all", [0.0, 0.0, 0.0, 2.0, 0.0]),
            ("patch all", [0.0, 0.0, 0.0, 0.0, patches]),
            ("XLA's rule", [0.0, 0.0, 0.0, 1.0, 0.0]),
            ("XLA's rule, slot by slot", [0.0, 0.0, 0.0, 2.0, 0.0]),
            ("planner", [0.0, 0.0, 0.0, 1.0, 0.0]),
            ("planner, copies in the graph", [0.0, 0.0, 0.0, 0.0, 0.0]),
        ];
        assert_eq!(seen, expected, "{driver}");
        let pure = strategies(&recordings[0]).into_iter().filter(|(_, outcome)| outcome["pure"] == true);
        assert!(pure.filter(|(_, outcome)| outcome["ratio"] == 1.0).count() >= 1);
    }
}

#[test]
fn what_a_driver_cannot_do_is_no_strategy_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = recording(folder.path());
    for (off, missing) in [("-virtual_memory", "map all"), ("-routes", "planner, copies in the graph")] {
        let report = json(gvmm("host", &["bench", "steps", &path]).env("GVMM_HOST_CAPS", off));
        let names: Vec<_> = strategies(&report["recordings"][0]).into_iter().map(|(name, _)| name).collect();
        assert!(names.len() == 6 && !names.contains(&missing), "{names:?}");
    }
}

/// What is said of recordings and loads, with simulated costs: counts and predictions, no time.
#[test]
fn the_simulated_plan_is_never_dearer_than_the_best_pure_strategy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/steps");
    let file = folder.join("llama_donate.csv.gz");
    let mut command = gvmm("host", &["bench", "steps", "--costs", "h200", "--rounds", "1"]);
    let loads = "one-4B,hundred-2M,hundred-64K-half,random-10-100,random-30-50,random-100-25";
    command.arg(file).args(["--loads", loads, "--most", "2M"]);
    let report = json(command.env("GVMM_SHADOW_BUDGET", "8M"));
    assert_eq!(report["times"], "simulated: h200");
    let recordings = report["recordings"].as_array().expect("a list");
    assert_eq!(recordings.len(), 7);
    for recording in recordings {
        let predicted = |outcome: &Value| outcome["report"]["predicted_us"].as_f64();
        let all = strategies(recording);
        let pure = all.iter().filter(|(_, outcome)| outcome["pure"] == true);
        let best = pure.filter_map(|(_, outcome)| predicted(outcome)).fold(f64::INFINITY, f64::min);
        for (name, outcome) in &all {
            assert_eq!(outcome["report"]["mismatches"], 0, "{name}: {outcome}");
            // Times are whole picoseconds, and means of them are rounded.
            let dear = name.starts_with("planner") && predicted(outcome).is_none_or(|us| us > best + 1e-4);
            assert!(!dear, "{}: {name} costs {:?}, not {best}", recording["trace"], predicted(outcome));
        }
    }
    let (_, planned) = strategies(&recordings[0])[5];
    let step = &planned["report"]["per_step"];
    assert_eq!([&step["map"], &step["unmap"], &step["set_access"]], [&Value::from(0.0); 3], "{planned}");
    assert!(step["copy_launches"].as_f64() <= Some(2.0), "{planned}");
}

#[test]
fn loads_are_made_up_on_demand_and_named() {
    let report =
        json(&mut gvmm("host", &["bench", "steps", "--loads", "one-4B,random-10-0", "--most", "1M"]));
    let names = report["recordings"].as_array().expect("a list").iter().map(|load| load["trace"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["one-4B", "random-10-0"]);
    for (arguments, message) in [
        (&["bench", "steps", "--loads", "many"][..], "mixed-rhythms"),
        (&["bench", "steps"][..], "name a recording, or --loads"),
    ] {
        let output = run(&mut gvmm("host", arguments));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(message), "{text}");
    }
}

#[test]
fn copies_can_be_made_slot_by_slot() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = recording(folder.path());
    for driver in ["host", "cuda"] {
        let launches = |joint: &str| {
            let arguments = ["steps", &path, "--threshold", "4096", "--copies", "around", "--joint", joint];
            let report = json(&mut gvmm(driver, &arguments));
            assert_eq!(report["mismatches"], 0);
            report["per_step"]["copy_launches"].clone()
        };
        assert_eq!((launches("on"), launches("off")), (1.0.into(), 2.0.into()), "{driver}");
    }
}

#[test]
fn a_profile_can_be_read_and_says_what_it_does_not_know() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("profile").to_string_lossy().into_owned();
    for driver in ["host", "cuda"] {
        let mut command =
            gvmm(driver, &["bench", "profile", "--repeat", "2", "--peers", "1", "--save", &file]);
        // Room for two of the largest blocks, and for little to be copied really.
        let output = run(command.env("FAKE_CUDA_MEMORY", "2400000000").env("GVMM_HOST_MEMORY", "2300M"));
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
        let text = std::fs::read_to_string(&file).expect("the file");
        assert_eq!(text, String::from_utf8_lossy(&output.stdout));
        let profile = Profile::parse(&text).expect("a profile");
        assert_eq!((profile.origin.driver.as_str(), profile.create.points().len()), (driver, 3));
        let version = if driver == "cuda" { "CUDA 13.0" } else { "" };
        assert_eq!(profile.origin.driver_version, version);
        let date: Vec<Option<u32>> = profile.origin.date.split('-').map(|part| part.parse().ok()).collect();
        assert!(matches!(date[..], [Some(1970..), Some(1..=12), Some(1..=31)]), "{}", profile.origin.date);
        assert!(profile.origin.device.contains(if driver == "host" { "host" } else { "fake" }));
        assert!(text.contains(" +- "), "medians with their spread: {text}");
        let left = text.lines().find(|line| line.contains("taken from the built-in profile"));
        let expected = "# not measured here, but taken from the built-in profile: plan_in, plan_out, cache_bytes, cold_slot, anew_slot, \
                        anew_in, anew_out, patch, patch_slot, patch_command, patch_single";
        // Too little memory to fill a cache with copies.
        let little = "# not measured here, but taken from the built-in profile: cache_bytes, cold_slot, anew_slot, anew_in, anew_out";
        assert_eq!(left, Some(if driver == "host" { expected } else { little }));
        let curve = profile.copy_in.slice_gpu.points().iter().map(|point| point.bytes).collect::<Vec<u64>>();
        assert_eq!(curve, if driver == "host" { vec![4096] } else { vec![4, 4096, 16 << 10, 64 << 10] });
        assert!(text.lines().any(|line| line.starts_with("# steps, slots (moving) 256 (256) of 4096 B")));
        // What it is about is checked when it is used.
        let mut used = gvmm(driver, &["steps", &recording(folder.path()), "--threshold", "auto"]);
        assert_eq!(String::from_utf8_lossy(&run(used.env("GVMM_PROFILE", &file)).stderr), "");
    }
}
