//! What the library exports and how its structs lie in memory, against files that are kept; and programs that are
//! checked against the header itself. `GVMM_BLESS=1` writes the files.

use super::toolbox::{self, Mode, build, check_with, has, library, root, run, temporary, text};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

fn header() -> String {
    std::fs::read_to_string(root().join("include/gvmm.h")).expect("the header")
}

/// Compares with a kept file, or writes it where that is asked for.
fn compare(file: &str, made: &str) {
    let path = root().join("ffi_tests").join(file);
    if std::env::var_os("GVMM_BLESS").is_some() {
        std::fs::write(&path, made).expect("writes");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "ffi_tests/{file} differs; if that is wanted: GVMM_BLESS=1 cargo test --test ffi\n{made}"
    );
}

/// The prototypes of the header, each on one line.
fn prototypes() -> Vec<String> {
    let mut code = String::new();
    let mut comment = false;
    for line in header().lines().filter(|line| !line.starts_with('#')) {
        comment |= line.trim_start().starts_with("/*");
        if !comment {
            code.push_str(line.trim());
            code.push(' ');
        }
        comment &= !line.trim_end().ends_with("*/");
    }
    let calls = code.split(';').map(str::trim).filter(|s| s.contains("gvmm_") && s.ends_with(')'));
    calls.filter(|s| !["typedef", "}", "(*"].iter().any(|no| s.contains(no))).map(str::to_string).collect()
}

/// The name of a prototype's function.
fn name(prototype: &str) -> &str {
    let before = prototype.split('(').next().unwrap_or_default();
    before.rsplit([' ', '*']).next().unwrap_or_default()
}

#[test]
fn the_exports_are_the_headers_functions() {
    if !has("nm") {
        return;
    }
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library().join("libgvmm.so")).output();
    let output = output.expect("nm runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let exports: BTreeSet<&str> = said.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let made = exports.iter().fold(String::new(), |list, symbol| list + symbol + "\n");
    compare("exports.txt", &made);
    let prototypes = prototypes();
    let declared: BTreeSet<&str> = prototypes.iter().map(|prototype| name(prototype)).collect();
    assert_eq!(exports, declared, "the library and the header disagree");
}

#[test]
fn the_soname_is_that_of_an_unstable_version_and_the_library_stays_loaded() {
    if !has("readelf") {
        return;
    }
    let output =
        Command::new("readelf").arg("-d").arg(library().join("libgvmm.so")).output().expect("readelf runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("[libgvmm.so.0]"), "{said}");
    assert!(said.contains("NODELETE"), "{said}");
}

/// A struct's name and those of its fields.
type Struct = (String, Vec<String>);

/// The structs of the header with their fields.
fn structs() -> Vec<Struct> {
    let (mut structs, mut open): (Vec<Struct>, Option<Struct>) = (Vec::new(), None);
    for line in header().lines() {
        if let Some(rest) = line.strip_prefix("typedef struct ")
            && let Some(name) = rest.strip_suffix(" {")
        {
            open = Some((name.to_string(), Vec::new()));
        } else if line.starts_with('}') {
            structs.extend(open.take());
        } else if let (Some((_, fields)), Some((_, rest))) = (&mut open, line.split_once("(*")) {
            fields.extend(rest.split(')').next().map(str::to_string));
        } else if line.starts_with("        ") {
            // The rest of a function's parameters.
        } else if let (Some((_, fields)), Some(field)) = (&mut open, line.trim().strip_suffix(';')) {
            let field = field.split('[').next().unwrap_or_default();
            fields.push(field.rsplit([' ', '*']).next().unwrap_or_default().to_string());
        }
    }
    structs.sort();
    structs
}

#[test]
fn the_layouts_are_kept() {
    let mut program = String::from("#include \"common.h\"\nint main(void) {\n");
    for (name, fields) in structs() {
        let _ = writeln!(program, "    printf(\"{name} %zu\\n\", sizeof({name}));");
        for field in fields {
            let _ = writeln!(
                program,
                "    printf(\"  {field} %zu %zu\\n\", offsetof({name}, {field}), SIZEOF_MEMBER({name}, {field}));"
            );
        }
    }
    program.push_str("    return 0;\n}\n");
    let path = temporary().join("layouts.c");
    std::fs::create_dir_all(temporary()).expect("a folder");
    std::fs::write(&path, program).expect("writes");
    let output = run(&build(path.to_str().expect("a path"), Mode::Plain, &[]), Mode::Plain, true);
    assert!(output.status.success());
    compare("layouts.txt", &String::from_utf8_lossy(&output.stdout));
}

/// Writes the list of the header's statuses where `statuses.c` looks for it, and gives the compiler's flag.
fn statuses() -> String {
    let folder = temporary().join("generated");
    std::fs::create_dir_all(&folder).expect("a folder");
    let header = header();
    let names = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split(' ').next());
    let names: Vec<&str> =
        names.filter(|n| n.starts_with("GVMM_STATUS_") || n.starts_with("GVMM_ERROR_")).collect();
    assert!(names.len() > 30, "the header's statuses are not found");
    let list = names
        .iter()
        .fold(String::from("#define STATUSES(X)"), |list, name| list + " \\\n    X(" + name + ")");
    // Three tests write it at once: each its own, then moved into place.
    let own = folder.join(format!("statuses.{:?}", std::thread::current().id()));
    std::fs::write(&own, list + "\n").expect("writes");
    std::fs::rename(own, folder.join("statuses.inc")).expect("moves");
    format!("-I{}", folder.display())
}

#[test]
fn every_status_is_reached_plain() {
    check_with("statuses.c", Mode::Plain, &[&statuses()]);
}

#[test]
fn every_status_is_reached_sanitized() {
    check_with("statuses.c", Mode::Sanitized, &[&statuses()]);
}

#[test]
fn every_status_is_reached_valgrind() {
    check_with("statuses.c", Mode::Valgrind, &[&statuses()]);
}

/// What any function may answer, as the header says at its top.
const ANY: [&str; 9] = [
    "NULL_POINTER",
    "INVALID_HANDLE",
    "POISONED",
    "FORKED",
    "INTERNAL",
    "OUT_OF_HOST_MEMORY",
    "OUT_OF_RANGE",
    "DEVICE_LOST",
    "DRIVER_ERROR",
];

/// The comment of a function, and those that it refers to.
fn comment(header: &str, function: &str) -> String {
    let own = header.match_indices(&format!("{function}(")).find_map(|(at, _)| {
        let (before, comment) = header[..at].rsplit_once("*/")?;
        let is_its = comment.starts_with('\n') && !comment.contains([';', '#', '}']);
        is_its.then(|| before.rsplit("/**").next().unwrap_or_default().to_string())
    });
    let own = own.unwrap_or_default();
    if own.contains("as `gvmm_map`") { own + &comment(header, "gvmm_map") } else { own }
}

/// A caller who reads a function's comment must not be surprised.
#[test]
fn the_statuses_that_programs_expect_stand_in_the_comments() {
    let (header, mut seen) = (header(), 0);
    for entry in std::fs::read_dir(root().join("ffi_tests")).expect("ffi_tests") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let program = std::fs::read_to_string(&path).expect("a file");
        for part in program.split("(GVMM_ERROR_").skip(1) {
            let Some((status, call)) = part.split_once(',') else { continue };
            let function = call.trim_start().split('(').next().unwrap_or_default();
            if !function.starts_with("gvmm_") || ANY.contains(&status) {
                continue;
            }
            seen += 1;
            let comment = comment(&header, function);
            let said =
                comment.split(|c: char| !c.is_ascii_uppercase() && c != '_').any(|word| word == status);
            assert!(said, "{}: {function} answers {status}, which its comment lacks", path.display());
        }
    }
    assert!(seen > 80, "only {seen} calls were found");
}

/// The pointers that a prototype takes, by name.
fn pointers(prototype: &str) -> Vec<String> {
    let inside = prototype.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
    let parameters = inside.split(',').map(str::trim);
    let is_pointer =
        |p: &&str| p.contains('*') || p.starts_with("gvmm_log_callback") || p.contains("_function ");
    let name = |p: &str| p.rsplit([' ', '*']).next().unwrap_or_default().to_string();
    parameters.filter(is_pointer).map(name).collect()
}

#[test]
fn null_is_tried_in_every_pointer_position() {
    let said = check_with("nulls.c", Mode::Plain, &[]);
    let tried: BTreeSet<String> =
        said.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    for prototype in prototypes() {
        for parameter in pointers(&prototype) {
            let wanted = format!("{} {parameter}", name(&prototype));
            assert!(tried.contains(&wanted), "nulls.c does not try {wanted}");
        }
    }
    assert!(tried.len() > 100, "the prototypes are not found");
}

fn proof(file: &str, mode: Mode, wanted: &str) {
    if mode == Mode::Valgrind && !has("valgrind") {
        return;
    }
    let output = run(&build(file, mode, &[]), mode, true);
    assert!(!output.status.success(), "{file}: the deliberate fault went unseen: the tool was not on");
    assert!(text(&output).contains(wanted), "{file}: {}", text(&output));
    let plain = run(&build(file, Mode::Plain, &[]), Mode::Plain, true);
    assert!(plain.status.success(), "{file} ends well where nothing watches");
}

#[test]
fn the_address_sanitizer_was_on() {
    proof("proof_address.c", Mode::Sanitized, "AddressSanitizer: heap-buffer-overflow");
}

#[test]
fn the_undefined_behaviour_sanitizer_was_on() {
    proof("proof_undefined.c", Mode::Sanitized, "signed integer overflow");
}

#[test]
fn valgrind_was_on() {
    proof("proof_valgrind.c", Mode::Valgrind, "uninitialised");
}

#[test]
fn a_missing_tool_is_a_visible_skip() {
    if std::env::var_os("GVMM_NO_SKIP").is_none() {
        assert!(!toolbox::has("no-such-tool-of-gvmm"));
    }
}
