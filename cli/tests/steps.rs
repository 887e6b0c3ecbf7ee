//! Runs the program over the recordings and over broken input.

mod steps_support;

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use steps_support::{gvmm, moves, per_step, recording, run, stderr, steps, write};

fn plan(report: &Value) -> [u64; 2] {
    ["copy", "map"].map(|key| report["plan"][key].as_u64().expect("a count"))
}

#[test]
fn a_donating_run_at_65536_only_copies() {
    let report = steps("llama_donate", &["--threshold", "65536"]);
    assert_eq!(report["slots"], 590);
    assert_eq!(report["threshold_bytes"], 65_536);
    assert_eq!(plan(&report), [296, 294]);
    assert_eq!(moves(&report), [0.0; 3]);
    assert_eq!((per_step(&report, "copy_launches"), per_step(&report, "copied_slots")), (2.0, 396.0));
    assert_eq!(report["costs"], "none");
}

#[test]
fn the_keys_of_the_report_are_these() {
    let report = steps("llama_donate", &["--threshold", "65536"]);
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let top = "copies costs driver gpu_us_median gpu_us_median_cold host_us_median host_us_median_cold mismatches per_step plan \
               plan_digest predicted_gpu_us predicted_host_us predicted_still_us predicted_us replans setup slots steps threshold_bytes trace us_per_step_median \
               verified_slots";
    assert_eq!(keys(&report).join(" "), top);
    assert_eq!(keys(&report["plan"]).join(" "), "bake copy map patch");
    assert_eq!(keys(&report["setup"]).join(" "), "create map release reserve set_access unmap");
    let per_step = "copied_bytes copied_slots copy_launches map patches set_access unmap";
    assert_eq!(keys(&report["per_step"]).join(" "), per_step);
    assert_eq!(report["setup"]["map"].as_u64().map(|maps| maps >= 294), Some(true), "{report}");
    assert_eq!(report["copies"], "around", "the default on the host");
    assert!(report["plan_digest"].is_null() && report["host_us_median"].as_f64() > Some(0.0));
    assert_eq!(report["host_us_median"], report["us_per_step_median"]);
    let us = |key: &str| report[key].as_f64().expect("a time");
    let apart = us("predicted_host_us") + us("predicted_gpu_us");
    assert!((us("predicted_us") - apart).abs() < 1e-6 && us("predicted_gpu_us") > 0.0, "{report}");
    assert!(report["plan_digest"].is_null() && report["gpu_us_median"].is_null() && report["replans"] == 0);
}

#[test]
fn a_donating_run_at_4096_leaves_one_slot_that_moves() {
    let report = steps("llama_donate", &["--threshold", "4096"]);
    assert_eq!(plan(&report), [295, 295]);
    assert_eq!(moves(&report), [1.0; 3]);
    assert_eq!(per_step(&report, "copy_launches"), 2.0);
}

#[test]
fn a_donating_run_without_copies_remaps_what_moves() {
    let report = steps("llama_donate", &["--threshold", "off"]);
    assert_eq!(report["threshold_bytes"], Value::Null);
    assert_eq!(plan(&report), [0, 590]);
    let [map, unmap, set_access] = moves(&report);
    assert_eq!([map, unmap], [196.0; 2]);
    assert!((1.0..=196.0).contains(&set_access), "{set_access}");
    assert_eq!((per_step(&report, "copy_launches"), per_step(&report, "copied_bytes")), (0.0, 0.0));
}

#[test]
fn the_automatic_threshold_copies_all_that_moves_on_an_h200() {
    let report = steps("llama_donate", &["--threshold", "auto", "--costs", "h200"]);
    assert_eq!(moves(&report), [0.0; 3]);
    assert_eq!(per_step(&report, "copy_launches"), 2.0);
    assert_eq!(report["costs"], "simulated: h200");
}

#[test]
fn donating_all_leaves_little_to_copy() {
    let report = steps("llama_donate_all", &["--threshold", "off"]);
    assert_eq!(report["slots"], 510);
    assert_eq!(moves(&report)[..2], [20.0; 2]);
    assert_eq!(moves(&steps("llama_donate_all", &["--threshold", "65536"])), [0.0; 3]);
}

#[test]
fn donating_nothing_moves_everything() {
    let report = steps("llama_nodonate", &["--threshold", "off"]);
    assert_eq!(report["slots"], 504);
    let [map, unmap, set_access] = moves(&report);
    assert_eq!([map, unmap], [504.0; 2]);
    assert!((1.0..=504.0).contains(&set_access), "{set_access}");
    assert_eq!(plan(&steps("llama_nodonate", &["--threshold", "65536"])), [204, 300]);
}

#[test]
fn peers_see_the_same_counts() {
    let alone = steps("llama_donate", &["--threshold", "4096"]);
    let shared = steps("llama_donate", &["--threshold", "4096", "--peers", "1"]);
    assert_eq!(alone["per_step"], shared["per_step"]);
    assert_eq!(alone["setup"], shared["setup"]);
    let peer = steps("llama_donate", &["--threshold", "65536", "--costs", "h200-peer"]);
    assert_eq!((moves(&peer), peer["costs"].as_str()), ([0.0; 3], Some("simulated: h200-peer")));
}

#[test]
fn copies_in_the_command_buffer_leave_nothing_to_launch() {
    for name in ["llama_donate", "llama_donate_all"] {
        let launched = steps(name, &["--threshold", "65536"]);
        let recorded = steps(name, &["--threshold", "65536", "--copies", "graph"]);
        assert_eq!((per_step(&launched, "copy_launches"), per_step(&recorded, "copy_launches")), (2.0, 0.0));
        for key in ["copied_slots", "copied_bytes"] {
            assert!((per_step(&launched, key) - per_step(&recorded, key)).abs() < 1e-9, "{name}: {key}");
        }
        assert_eq!(moves(&launched), moves(&recorded));
    }
}

#[test]
fn the_environment_gives_the_threshold_where_no_option_does() {
    let run_with = |value: &str| {
        let path = recording("llama_donate_all");
        let output = run(gvmm(&["steps", &path, "--json"]).env("XLA_VMM_TMP_COPY_THRESHOLD", value));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["threshold_bytes"].clone()
    };
    assert_eq!(run_with("4096"), 4096);
    assert_eq!(run_with("0"), Value::Null);
}

#[test]
fn people_get_a_table_and_no_progress_bar_in_a_file() {
    let output = run(&mut gvmm(&["steps", &recording("llama_donate_all"), "--threshold", "65536"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("216 / 294 / 0 / 0"), "{text}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn people_at_a_terminal_see_a_progress_bar() {
    let command = format!("'{}' steps '{}'", env!("CARGO_BIN_EXE_gvmm"), recording("llama_donate_all"));
    // `script` gives the program a terminal.
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output();
    let Ok(output) = output else {
        assert!(std::env::var_os("GVMM_NO_SKIP").is_none(), "GVMM_NO_SKIP is set, and `script` is missing");
        return eprintln!("skipped: `script` is missing");
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(" of 24, ") && text.contains("216 / 294 / 0 / 0"), "{text}");
}

#[test]
fn a_recording_may_come_from_the_standard_input() {
    let mut child = gvmm(&["steps", "-", "--json", "--threshold", "off"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let text = b"0,a,in,4,1\n0,b,out,100000,2\n1,a,in,4,2\n1,b,out,100000,1\n";
    child.stdin.take().expect("a pipe").write_all(text).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["trace"], &report["verified_slots"]), (&"<stdin>".into(), &4.into()));
}

#[test]
fn inputs_may_share_a_buffer_but_a_result_may_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let file =
        write(folder.path(), "in.csv", b"0,a,in,100,1\n0,b,in,70000,1\n1,a,in,100,2\n1,b,in,70000,3\n");
    for threshold in ["off", "4096", "65536"] {
        let output = run(&mut gvmm(&["steps", &file, "--json", "--threshold", threshold]));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["verified_slots"], 4, "{report}");
    }
    let file = write(folder.path(), "out.csv", b"0,a,in,100000,1\n0,b,out,100000,1\n");
    let output = run(&mut gvmm(&["steps", &file, "--threshold", "off"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("step 0, slot b: begin"), "{}", stderr(&output));
}

#[test]
fn bad_input_exits_with_2_and_says_where() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(recording("llama_donate")).expect("a recording");
    let broken = write(folder.path(), "broken.csv", b"# c\n0,a,in,4,1\n0,b,on,4,1\n");
    let costs = write(folder.path(), "costs.json", b"{\n\"map_us\": 1,\n\"mapp_us\": 2}");
    let cases = [
        (vec!["steps", &broken], format!("{broken}:3: expected the role in or out, found \"on\"")),
        (
            vec!["steps", "/nowhere.csv"],
            "/nowhere.csv: expected a file that can be read, found No such file".into(),
        ),
        (
            vec!["steps", &broken, "--threshold", "1"],
            "expected off, auto or a number of bytes from 2 up".into(),
        ),
        (vec!["steps", &broken, "--peers=-1"], "--peers".into()),
        (vec!["steps"], "<TRACE>".into()),
    ];
    for (arguments, message) in cases {
        let output = run(&mut gvmm(&arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(&message), "{arguments:?}: {}", stderr(&output));
    }
    let cut = write(folder.path(), "cut", &whole[..whole.len() / 2]);
    let output = run(&mut gvmm(&["steps", &cut]));
    assert!(stderr(&output).contains("expected the rest of the gzip data, found the end of the file"));
    let good = recording("llama_donate");
    let output = run(&mut gvmm(&["steps", &good, "--costs", &costs]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("costs.json:3: unknown field `mapp_us`"), "{}", stderr(&output));
}

#[test]
fn costs_may_come_from_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let costs = write(folder.path(), "mine.json", br#"{"map_us": 1, "bandwidth": 4200000000000}"#);
    let report = steps("llama_donate_all", &["--costs", &costs, "--threshold", "auto"]);
    assert_eq!(report["costs"], "simulated: mine");
}

#[test]
fn too_little_memory_is_a_failure_with_words() {
    let output = run(gvmm(&["steps", &recording("llama_donate")]).env("GVMM_HOST_MEMORY", "64M"));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("OutOfDeviceMemory"), "{}", stderr(&output));
}

#[test]
fn every_shape_of_driver_gives_right_data() {
    let refused =
        run(gvmm(&["steps", &recording("llama_donate_all"), "--plan", "patch"])
            .env("GVMM_HOST_CAPS", "-patches"));
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("cannot patch a command buffer"), "{}", stderr(&refused));
    for off in ["-joint_copies", "-aliasing", "-range_access", "-joined_access", "-virtual_memory"] {
        let path = recording("llama_donate_all");
        let output = run(gvmm(&["steps", &path, "--json", "--threshold", "4096"]).env("GVMM_HOST_CAPS", off));
        assert_eq!(output.status.code(), Some(0), "{off}: {}", stderr(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["verified_slots"], 24 * 510, "{off}: {report}");
    }
}

#[test]
fn info_lists_the_host_and_says_why_others_are_absent() {
    let output = run(&mut gvmm(&["info", "--json"]));
    let info: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let drivers = info["drivers"].as_array().expect("a list");
    let names: Vec<_> = drivers.iter().filter_map(|driver| driver["driver"].as_str()).collect();
    assert_eq!(names, ["cuda", "hip", "level_zero", "host"]);
    for driver in drivers {
        let devices = driver["devices"].as_array().expect("a list");
        assert_eq!(devices.is_empty(), driver["absent"].is_string(), "{driver}");
    }
    let host = &drivers[3]["devices"][0];
    assert!(host["granularity_bytes"].as_u64() >= Some(4096), "{host}");
    let text = run(&mut gvmm(&["info"]));
    assert!(String::from_utf8_lossy(&text.stdout).contains("host_functions"));
}
