//! The program over the recordings of steps.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program, with no variable of ours set.
pub fn gvmm(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gvmm"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("GVMM_") || text.starts_with("XLA_") {
            command.env_remove(&name);
        }
    }
    // What is compared is the host driver's, also where there is a GPU.
    command.env("GVMM_DRIVER", "host");
    command
}

pub fn recording(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/steps");
    folder.join(format!("{name}.csv.gz")).to_string_lossy().into_owned()
}

pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The JSON of a run that was right throughout.
pub fn steps(name: &str, options: &[&str]) -> Value {
    let path = recording(name);
    let output = run(gvmm(&["steps", &path, "--driver", "host", "--json"]).args(options));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["trace"], path.as_str());
    assert_eq!(report["driver"], "host");
    assert_eq!(report["steps"], 24);
    assert_eq!(report["mismatches"], 0);
    assert_eq!(report["verified_slots"], 24 * report["slots"].as_u64().expect("a count"));
    report
}

pub fn per_step(report: &Value, key: &str) -> f64 {
    report["per_step"][key].as_f64().expect("a number")
}

/// map, unmap, set_access of a step.
pub fn moves(report: &Value) -> [f64; 3] {
    ["map", "unmap", "set_access"].map(|key| report["per_step"][key].as_f64().expect("a number"))
}

pub fn write(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let file: PathBuf = folder.join(name);
    std::fs::write(&file, bytes).expect("a folder of ours");
    file.to_string_lossy().into_owned()
}
