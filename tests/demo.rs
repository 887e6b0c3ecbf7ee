//! Builds and runs the C examples as a reader would, and checks what they print.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The recording's steps times its slots.
const ALL_VERIFIED: &str = "14160";

/// One build at a time: they write the same files.
fn build_lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo puts what it builds without optimisation.
fn library_folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    root().join(target).join("debug")
}

/// A command in the top folder that no variable of ours reaches.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("GVMM_") || text.starts_with("XLA_") || text.starts_with("MAKE") {
            command.env_remove(&name);
        }
    }
    // What is compared is the host driver's, also where there is a GPU.
    command.env("GVMM_DRIVER", "host");
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `make` with the library that the tests were built with.
fn make(arguments: &[&str]) -> Output {
    let _lock = build_lock();
    let output = run(command("make").arg("PROFILE=dev").args(arguments));
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

/// The table's rows: what stands before the first bar, and all fields.
fn rows(stdout: &str) -> Vec<Vec<String>> {
    let is_row = |line: &&str| line.contains('|') && line.chars().any(|c| c.is_ascii_digit());
    stdout.lines().filter(is_row).map(|line| line.replace('|', " ")).map(|line| fields(&line)).collect()
}

fn fields(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_string).collect()
}

#[test]
fn the_demo_counts_what_each_threshold_costs() {
    let stdout = text(&make(&["demo"]).stdout);
    assert!(stdout.contains("24 steps, 590 slots, 616 buffers"), "{stdout}");
    assert!(stdout.contains("host driver"), "{stdout}");
    let rows = rows(&stdout);
    let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["off", "4096", "65536", "auto=65536"], "{stdout}");
    // copied, mapped, map, unmap; then the launches
    let expected = [
        (["0", "590", "196.0", "196.0"], "0.0"),
        (["295", "295", "1.0", "1.0"], "2.0"),
        (["296", "294", "0.0", "0.0"], "2.0"),
        (["296", "294", "0.0", "0.0"], "2.0"),
    ];
    for (row, (counts, launches)) in rows.iter().zip(expected) {
        assert_eq!(row[1..5], counts, "{stdout}");
        assert_eq!(row[6], launches, "{stdout}");
        assert_eq!(row[10..], ["1", ALL_VERIFIED], "recorded once, and all was right: {stdout}");
    }
    // Never more set-access calls than contiguous changed ranges.
    let set_access: Vec<f64> = rows.iter().map(|row| row[5].parse().expect("a number")).collect();
    assert!((1.0..=196.0).contains(&set_access[0]), "{stdout}");
    assert_eq!(set_access[1..], [1.0, 0.0, 0.0], "{stdout}");
}

#[test]
fn simulated_costs_are_called_so() {
    make(&["examples", "recording"]);
    let folder = library_folder();
    let mut program = command(&folder.join("step_loop").to_string_lossy());
    let output = run(program.arg(folder.join("../llama_donate.csv")).env("GVMM_HOST_COSTS", "h200"));
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("simulated: h200"), "{stdout}");
    assert!(rows(&stdout)[3][0].starts_with("auto="), "{stdout}");
}

#[test]
fn the_demo_finds_results_that_were_not_copied_out() {
    make(&["recording"]);
    let (folder, tmp) = (library_folder(), Path::new(env!("CARGO_TARGET_TMPDIR")));
    let program = tmp.join("step_loop_skip_end");
    let mut cc = command("cc");
    cc.args(["-std=c11", "-O1", "-DSTEP_LOOP_SKIP_END", "-Iinclude"]);
    cc.args(["step_loop.c", "trace.c", "pattern.c", "cost.c"].map(|file| format!("c_examples/{file}")));
    cc.arg("-L")
        .arg(&folder)
        .args(["-lgvmm", &format!("-Wl,-rpath,{}", folder.display()), "-o"])
        .arg(&program);
    let built = run(&mut cc);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let output = run(command(&program.to_string_lossy()).arg(folder.join("../llama_donate.csv")));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("the caller's buffer does not hold what it should"), "{stderr}");
    // Mapped results need no copy; each of the 199 copied ones is missed in each of 24 steps, or all but those.
    let rows = rows(&text(&output.stdout));
    assert_eq!(rows[0].last().map(String::as_str), Some(ALL_VERIFIED));
    assert_eq!(rows[2].last().map(String::as_str), Some((24 * (590 - 199)).to_string().as_str()));
}

#[test]
fn a_broken_recording_is_refused_with_file_and_line() {
    make(&["examples"]);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken.csv");
    let cases = [
        ("", "broken.csv:1: expected step,slot,role,bytes,buffer, found 'the end of the file'"),
        ("# c\n0,a,on,4,1\n", "broken.csv:2: expected the role in or out, found 'on'"),
        ("0,a,in,0,1\n", "broken.csv:1: expected 1 to 2^46 bytes, found '0'"),
        ("0,a,in,4,1\n2,a,in,4,1\n", "broken.csv:2: expected this step or the next"),
        (
            "0,a,in,4,1\n0,b,in,4,2\n1,a,in,4,1\n",
            "broken.csv:3: expected slot b in step 1, found 'the end of the step'",
        ),
    ];
    for (recording, message) in cases {
        std::fs::write(&file, recording).expect("a folder of ours");
        let output = run(command(&library_folder().join("step_loop").to_string_lossy()).arg(&file));
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(message), "{recording:?}: {stderr}");
    }
}

#[test]
fn a_result_larger_than_the_argument_of_its_name_is_a_slot_of_its_own() {
    make(&["examples"]);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("larger.csv");
    let run = |recording: &str| {
        std::fs::write(&file, recording).expect("a folder of ours");
        run(command(&library_folder().join("step_loop").to_string_lossy()).arg(&file))
    };
    let donated = run("0,a,in,100,1\n0,a,out,100,1\n");
    assert!(text(&donated.stdout).contains("1 steps, 1 slots, 1 buffers"), "{}", text(&donated.stdout));
    let larger = run("0,a,in,100,1\n0,a,out,200,1\n");
    let stderr = text(&larger.stderr);
    assert!(larger.status.code() == Some(1) && stderr.contains("GVMM_ERROR_ALIASED"), "{stderr}");
}

/// The commands in an example's first comment, changed only in where they build.
fn commands(example: &str) -> String {
    let source = std::fs::read_to_string(root().join(example)).expect("an example");
    let comment = source.split("*/").next().expect("a first comment");
    let commands = comment.lines().filter_map(|line| line.strip_prefix(" *   "));
    // That is tested by itself, above.
    let commands: Vec<&str> = commands.filter(|command| *command != "make demo").collect();
    let folder = library_folder();
    let library = "\0";
    commands
        .join("\n")
        .replace("cargo build --release", "cargo build")
        .replace("$PWD/target/release", library)
        .replace("target/release", library)
        .replace("target/", &format!("{}/", env!("CARGO_TARGET_TMPDIR")))
        .replace(library, &folder.to_string_lossy())
}

fn run_commands_of(example: &str) -> String {
    let _lock = build_lock();
    let script = format!("set -e\n{}", commands(example));
    let output = run(command("sh").args(["-c", &script]));
    assert!(output.status.success(), "{script}\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_first_program_shows_both_blocks_at_one_address() {
    let stdout = run_commands_of("c_examples/first.c");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "remapped: 0 unmap, 1 map, 1 set access",
            "remapped: 1 unmap, 1 map, 1 set access",
            "the address shows blue",
            "remapped: 1 unmap, 1 map, 1 set access",
            "the same address shows red",
            "remapped: 1 unmap, 0 map, 0 set access",
        ]
    );
}

/// The first C program of the README, with what it takes for granted around it.
fn first_program_of_the_readme() -> String {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let program = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a program");
    let example = std::fs::read_to_string(root().join("c_examples/first.c")).expect("an example");
    let start = example.find("static void check(").expect("the error check");
    let check = example[start..].split_inclusive("\n}\n").next().expect("its end");
    format!(
        "#include <gvmm.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         {check}int main(void) {{\n{program}return 0;\n}}\n"
    )
}

#[test]
fn the_first_program_of_the_readme_runs() {
    make(&["library"]);
    let (folder, tmp) = (library_folder(), Path::new(env!("CARGO_TARGET_TMPDIR")));
    let (source, program) = (tmp.join("readme.c"), tmp.join("readme"));
    std::fs::write(&source, first_program_of_the_readme()).expect("a folder of ours");
    let mut cc = command("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-Iinclude"]).arg(&source).arg("-L").arg(&folder);
    cc.args(["-lgvmm", &format!("-Wl,-rpath,{}", folder.display()), "-o"]).arg(&program);
    let built = run(&mut cc);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let output = run(&mut command(&program.to_string_lossy()));
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("red\n", Some(0)));
}

#[test]
fn the_tutorial_builds_by_hand_as_it_says() {
    let stdout = run_commands_of("c_examples/step_loop.c");
    let last = rows(&stdout).pop().expect("a row");
    assert_eq!((last[0].as_str(), last.last().map(String::as_str)), ("auto=65536", Some(ALL_VERIFIED)));
}

#[test]
fn many_small_copies_are_one_launch() {
    let stdout = run_commands_of("c_examples/shadow_copy.c");
    assert_eq!(stdout.trim(), "200 slices: 1 launch in, 1 out, 0 wrong");
}

#[test]
fn a_pool_lends_and_says_who_holds_what() {
    let stdout = run_commands_of("c_examples/pool.c");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..2], ["used again: yes", "held: 64 MiB, lent: yes"], "{stdout}");
    assert!(
        lines[2].starts_with("gvmm_pool_alloc: GVMM_ERROR_OUT_OF_DEVICE_MEMORY: allocate 8 MiB"),
        "{stdout}"
    );
    assert!(lines[2].contains("64 MiB held of 64 MiB") && lines[2].contains("60 MiB in use"), "{stdout}");
}

#[test]
fn a_graph_of_somebody_elses_has_two_copy_launches_a_step() {
    let stdout = run_commands_of("c_examples/captured_graph.c");
    let expected = "64 inputs and 32 results a step: 20 copy launches in 10 steps, 0 words were wrong";
    assert_eq!(stdout.trim(), expected);
}
