//! `gvmm.hpp` and the code of docs/xla.md: C++17 and C++20, with exceptions and without, answering and throwing.

use super::toolbox::{Mode, build, check_with, root, temporary};
use std::fmt::Write;

const STRICT: &str = "-Wpedantic";
const OLD: &str = "-std=c++17";
const NEW: &str = "-std=c++20";

/// The same program built in several ways, one after the other: they share a name.
fn check_all(file: &str, mode: Mode, ways: &[&[&str]]) {
    for way in ways {
        check_with(file, mode, way);
    }
}

fn classes(mode: Mode) {
    let ways: &[&[&str]] = &[
        &[STRICT, OLD],
        &[STRICT, NEW, "-fno-exceptions", "-fno-rtti"],
        &[STRICT, OLD, "-DGVMM_HPP_THROW"],
        &[STRICT, NEW, "-DGVMM_HPP_THROW"],
    ];
    check_all("hpp.cc", mode, if mode == Mode::Valgrind { &ways[..1] } else { ways });
}

#[test]
fn classes_plain() {
    classes(Mode::Plain);
}

#[test]
fn classes_sanitized() {
    classes(Mode::Sanitized);
}

#[test]
fn classes_valgrind() {
    classes(Mode::Valgrind);
}

/// Writes the page's code where the program looks for it, and gives the compiler's flag.
fn page() -> String {
    let text = std::fs::read_to_string(root().join("docs/xla.md")).expect("the page");
    let (mut code, mut inside) = (String::new(), false);
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            // A block that no test compiles would be a promise that nobody keeps.
            assert!(inside == (line == "```") && (inside || line == "```cpp"), "line {}: {line}", number + 1);
            inside = !inside;
            // The compiler names the page's lines.
            let _ = writeln!(code, "#line {} \"docs/xla.md\"", number + 2);
        } else if inside {
            let _ = writeln!(code, "{line}");
        }
    }
    assert!(code.contains("class GvmmRun"), "the page's code is not found");
    let folder = temporary().join("page");
    std::fs::create_dir_all(&folder).expect("a folder");
    let own = folder.join(format!("xla_page.{:?}", std::thread::current().id()));
    std::fs::write(&own, code).expect("writes");
    std::fs::rename(own, folder.join("xla_page.inc")).expect("moves");
    format!("-I{}", folder.display())
}

fn the_page(mode: Mode) {
    let (page, xla) = (page(), format!("-I{}", root().join("ffi_tests/xla").display()));
    let old: &[&str] = &[STRICT, OLD, &page, &xla, "-fno-exceptions"];
    let new: &[&str] = &[STRICT, NEW, &page, &xla];
    let ways = [old, new];
    check_all("xla_page.cc", mode, if mode == Mode::Valgrind { &ways[..1] } else { &ways });
}

#[test]
fn the_page_of_xla_plain() {
    the_page(Mode::Plain);
}

#[test]
fn the_page_of_xla_sanitized() {
    the_page(Mode::Sanitized);
}

#[test]
fn the_page_of_xla_valgrind() {
    the_page(Mode::Valgrind);
}

/// The example of a step of XLA's counts what is wrong itself; on the host it runs the same ways.
#[test]
fn a_step_of_xla_runs_on_the_host() {
    let program = build("../c_examples/xla_step.cc", Mode::Plain, &[STRICT]);
    let output =
        std::process::Command::new(program).args(["--host", "--steps", "2"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let row =
        |way: &str| said.lines().find(|line| line.starts_with(&format!("| {way} |"))).unwrap_or_default();
    assert!(row("patched, as XLA").starts_with("| patched, as XLA | 1 | 344 | 0 | 0 | 0 | 0 |"), "{said}");
    assert!(row("binding").starts_with("| binding | 1 | 0 | 0 | 100 | 2 | 0 |"), "{said}");
    let recorded = "binding, copies in the graph";
    assert!(row(recorded).starts_with(&format!("| {recorded} | 1 | 0 | 0 | 100 | 0 | 0 |")), "{said}");
}

/// A noun without a class would be destroyed by hand, and each part of the header compiles alone.
#[test]
fn every_handle_has_a_class() {
    let mut text = String::new();
    for entry in std::fs::read_dir(root().join("include/gvmm")).expect("include/gvmm") {
        text += &std::fs::read_to_string(entry.expect("an entry").path()).expect("a header");
    }
    let ends = gvmm::capi::api::NAMES.iter().filter(|n| n.ends_with("_destroy") || n.ends_with("_close"));
    for name in ends {
        let field = name.trim_start_matches("gvmm_");
        assert!(
            text.contains(&format!("&gvmm_api::{field}>")),
            "{name}: add a class to include/gvmm, such as `class X : public Owned<gvmm_x, &gvmm_api::{field}>`"
        );
    }
}

#[test]
fn each_header_compiles_alone() {
    let mut headers = vec![root().join("include/gvmm.hpp")];
    let parts = std::fs::read_dir(root().join("include/gvmm")).expect("include/gvmm");
    headers.extend(parts.map(|entry| entry.expect("an entry").path()));
    for header in headers {
        for standard in [OLD, NEW] {
            let mut command = std::process::Command::new("c++");
            command.args([standard, STRICT, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"]);
            let output = command.arg(&header).output().expect("the compiler runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let wrong: Vec<&str> = said.lines().filter(|line| line.contains("error")).collect();
            assert!(output.status.success(), "{}: {wrong:?}", header.display());
        }
    }
}
