//! Runs the program over the recordings with plans by cost.

mod steps_support;

use gvmm::rebind::profile::Profile;
use serde_json::Value;
use steps_support::{gvmm, moves, per_step, recording, run, stderr, steps, write};

/// bake, map, copy, patch.
fn actions(report: &Value) -> [u64; 4] {
    ["bake", "map", "copy", "patch"].map(|key| report["plan"][key].as_u64().expect("a count"))
}

#[test]
fn the_planner_copies_what_moves_and_leaves_the_rest_alone() {
    let h200 = ["--plan", "auto", "--costs", "h200"];
    let report = steps("llama_donate", &h200);
    assert_eq!(actions(&report), [394, 0, 196, 0]);
    assert_eq!((moves(&report), per_step(&report, "patches")), ([0.0; 3], 0.0));
    assert_eq!((per_step(&report, "copy_launches"), per_step(&report, "copied_slots")), (2.0, 196.0));
    assert_eq!((&report["replans"], report["plan_digest"].as_str().map(str::len)), (&0.into(), Some(16)));
    let recorded = steps("llama_donate", &[&h200[..], &["--copies", "graph"]].concat());
    assert_eq!((actions(&recorded), moves(&recorded)), (actions(&report), [0.0; 3]));
    assert_eq!((per_step(&recorded, "copy_launches"), per_step(&recorded, "copied_slots")), (0.0, 196.0));
    assert!(recorded["predicted_us"].as_f64() < report["predicted_us"].as_f64());
}

#[test]
fn all_slots_can_be_served_one_way() {
    let report = steps("llama_donate", &["--plan", "map"]);
    assert_eq!((actions(&report), &moves(&report)[..2]), ([0, 590, 0, 0], &[196.0; 2][..]));
    let report = steps("llama_donate", &["--plan", "patch"]);
    assert_eq!((actions(&report), moves(&report)), ([0, 0, 0, 590], [0.0; 3]));
    assert_eq!((per_step(&report, "patches"), per_step(&report, "copy_launches")), (196.0, 0.0));
    let report = steps("llama_donate_all", &["--plan", "copy"]);
    let [baked, mapped, copied, patched] = actions(&report);
    assert!(baked + patched == 0 && copied >= 216 && mapped + copied == 510, "{report}");
    assert_eq!((moves(&report), per_step(&report, "copy_launches")), ([0.0; 3], 2.0));
    let report = steps("llama_donate_all", &["--plan", "threshold", "--threshold", "65536"]);
    assert_eq!((actions(&report), &report["plan_digest"]), ([0, 294, 216, 0], &Value::Null));
}

#[test]
fn the_environment_asks_for_the_planner_where_no_option_does() {
    let digest = |arguments: &[&str]| {
        let path = recording("llama_donate_all");
        let output = run(gvmm(&["steps", &path, "--json"]).args(arguments).env("GVMM_PLAN", "auto"));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["plan_digest"].is_string()
    };
    assert!(digest(&[]));
    assert!(!digest(&["--threshold", "4096"]) && !digest(&["--plan", "threshold"]));
}

#[test]
fn a_plan_is_explained_slot_by_slot() {
    let report = steps("llama_donate", &["--plan", "auto", "--costs", "h200", "--explain"]);
    let slots = report["explained"].as_array().expect("a list");
    assert_eq!(slots.len(), 590);
    for slot in slots {
        let (moved, action) = (slot["moved"].as_u64().expect("a count"), slot["action"].as_str());
        assert_eq!(action, Some(if moved == 0 { "bake" } else { "copy" }), "{slot}");
        assert!(
            slot["next"].is_string()
                && slot["next"] != slot["action"]
                && slot["cost_us"].as_f64() <= slot["next_us"].as_f64(),
            "{slot}"
        );
    }
    let by_size = steps("llama_donate", &["--threshold", "65536", "--explain"]);
    let mapped =
        by_size["explained"].as_array().expect("a list").iter().filter(|slot| slot["action"] == "map");
    assert_eq!(mapped.count(), 294);
    let path = recording("llama_donate");
    let output = run(&mut gvmm(&["steps", &path, "--plan", "auto", "--explain"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("| next best |") && text.lines().count() > 590, "{text}");
}

/// Three slots that stay for the watched steps, and then move in each.
#[test]
fn a_plan_is_made_anew_once_where_what_was_to_stay_moves() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = |step: u32, slot: u32| {
        let buffer = if step < 7 { slot } else { 10 + 10 * (step % 3) + slot };
        format!("{step},s{slot},in,65536,{buffer}\n")
    };
    let text: String = (0..24).flat_map(|step| (1..4).map(move |slot| line(step, slot))).collect();
    let file = write(folder.path(), "t.csv", text.as_bytes());
    let output = run(&mut gvmm(&["steps", &file, "--json", "--plan", "auto", "--explain"]));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["replans"], &report["mismatches"]), (&1.into(), &0.into()), "{report}");
    assert_eq!(actions(&report), [0, 0, 3, 0]);
    for slot in report["explained"].as_array().expect("a list") {
        assert!(slot["moved"] == 4 && slot["next"].is_string() && slot["next_us"].is_number(), "{slot}");
    }
}

#[test]
fn a_profile_decides_and_another_devices_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut profile = Profile::builtin("h200").expect("built in");
    profile.origin.device = "host 0".into();
    profile.origin.driver = "host".into();
    // Patches cost nothing.
    (profile.patch, profile.patch_slot, profile.patch_command) = Default::default();
    let mine = write(folder.path(), "mine", profile.to_text().as_bytes());
    let report = steps("llama_donate", &["--plan", "auto", "--profile", &mine]);
    assert_eq!(actions(&report), [394, 0, 0, 196]);
    assert_eq!((per_step(&report, "patches"), moves(&report)), (196.0, [0.0; 3]));
    let by_variable = |file: &str| {
        let path = recording("llama_donate");
        let output = run(gvmm(&["steps", &path, "--json", "--plan", "auto"]).env("GVMM_PROFILE", file));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&report["mismatches"], output.status.code()), (&0.into(), Some(0)));
        (actions(&report), stderr(&output))
    };
    assert_eq!(by_variable(&mine), ([394, 0, 0, 196], String::new()));
    profile.origin.device = "another".into();
    let another = write(folder.path(), "another", profile.to_text().as_bytes());
    let wrong = write(folder.path(), "wrong", b"format = 6\n");
    for (file, message) in [
        (another.as_str(), "it was measured with device `another`"),
        (wrong.as_str(), "the key `device` is missing"),
        ("/nowhere", "No such file"),
    ] {
        let output =
            run(gvmm(&["steps", &recording("llama_donate"), "--profile", file]).env("GVMM_LOG", "off"));
        assert_eq!(output.status.code(), Some(2), "{file}");
        assert!(stderr(&output).contains(&format!("{file}: {message}")), "{}", stderr(&output));
    }
    // The variable's only warns, and the built-in figures are used.
    let own = actions(&steps("llama_donate", &["--plan", "auto"]));
    assert_eq!(by_variable(&another).0, own);
    assert_ne!(own, [394, 0, 0, 196]);
}
