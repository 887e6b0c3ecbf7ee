//! `include/gvmm.h` is what cbindgen makes of `src/capi`. `GVMM_BLESS=1` writes it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The files of `src/capi`, each a section of the header, in order: a type comes before its uses.
const FILES: [&str; 33] = [
    "version",
    "status",
    "types",
    "last_error",
    "log",
    "device",
    "stream",
    "attach",
    "timeline",
    "block",
    "access",
    "reservation",
    "remap",
    "allocation",
    "copy",
    "slot",
    "plan",
    "binding",
    "step",
    "record",
    "permanent",
    "peer",
    "segment",
    "pool",
    "pool_limits",
    "pool_capture",
    "pool_stats",
    "pool_snapshot",
    "testing",
    "shims/torch",
    "shims/xpu",
    "options",
    "api",
];

fn source(file: &str) -> PathBuf {
    root().join("src/capi").join(file).with_extension("rs")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The introduction, the sections, and what makes it a header for C and C++.
fn generate() -> String {
    let mut header = String::from(include_str!("../src/capi/introduction.h"));
    let version = gvmm::capi::version::VERSION;
    let _ = write!(
        header,
        "\n#ifndef GVMM_H\n#define GVMM_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n\
         /** The header's version: major * 1,000,000 + minor * 1,000 + patch. */\n\
         #define GVMM_VERSION_NUMBER {version}\n\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n"
    );
    for file in FILES {
        let text = section(file);
        let table = (file == "api").then(|| table(&header));
        header.push_str(&table.map_or(text.clone(), |table| text.replace(OPAQUE, &table)));
    }
    assert!(header.is_ascii(), "a comment has a character that an old compiler may not read");
    header.push_str("\n#ifdef __cplusplus\n}\n#endif\n\n#endif /* GVMM_H */\n");
    header
}

fn section(file: &str) -> String {
    let text = std::fs::read_to_string(source(file)).expect("a source file");
    let title = text.lines().next().and_then(|line| line.strip_prefix("//! ")).expect("a title");
    let mut config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("cbindgen.toml");
    // Else a type that no function of its own file uses would be left out.
    let structs = text.lines().filter_map(|line| line.strip_prefix("pub struct "));
    config.export.include =
        structs.map(|rest| rest.split([' ', '(']).next().unwrap_or(rest).into()).collect();
    let builder = cbindgen::Builder::new().with_config(config).with_src(source(file));
    let mut bytes = Vec::new();
    builder.generate().expect("cbindgen reads src/capi").write(&mut bytes);
    let made = String::from_utf8(bytes).expect("UTF-8");
    format!("\n/* ---- {title} ---- */\n\n{}", tidy(&made))
}

/// What cbindgen makes of the table, whose fields it cannot know.
const OPAQUE: &str = "typedef struct gvmm_api gvmm_api;\n";

/// The table's declaration: a pointer for each function, by the prototypes of the header so far.
fn table(header: &str) -> String {
    let prototypes = prototypes(header);
    let mut text = String::from(
        "typedef struct gvmm_api {\n    size_t struct_size;\n    uint32_t version;\n    uint32_t reserved;\n",
    );
    for name in gvmm::capi::api::NAMES {
        let prototype = prototypes.iter().find_map(|p| {
            let (before, parameters) = p.split_once('(')?;
            before.ends_with(name).then(|| (before.trim_end_matches(name), parameters))
        });
        let (gives, parameters) = prototype.unwrap_or_else(|| panic!("{name} is not in the header"));
        let field = name.trim_start_matches("gvmm_");
        text.push_str(&wrap(&format!("    {gives}(*{field})({parameters};")));
    }
    text + "} gvmm_api;\n"
}

/// A line broken after commas where it is too long.
fn wrap(line: &str) -> String {
    let (mut out, mut length) = (String::new(), 0);
    for part in line.split_inclusive(", ") {
        if length + part.len() > 100 {
            out.truncate(out.trim_end().len());
            out.push_str("\n        ");
            length = 8;
        }
        out.push_str(part);
        length += part.len();
    }
    out + "\n"
}

/// The prototypes of a header, each on one line without its semicolon.
fn prototypes(header: &str) -> Vec<String> {
    let (mut code, mut comment) = (String::new(), false);
    for line in header.lines().filter(|line| !line.starts_with('#')) {
        comment |= line.trim_start().starts_with("/*");
        if !comment {
            code.push_str(line.trim());
            code.push(' ');
        }
        comment &= !line.trim_end().ends_with("*/");
    }
    let parts = code.split(';').map(|part| part.rsplit('{').next().unwrap_or_default().trim());
    let calls = parts.filter(|s| s.ends_with(')') && !s.contains("(*"));
    calls.filter(|s| !s.contains("typedef") && !s.contains('}')).map(str::to_string).collect()
}

/// What frameworks look up by name, and the table has not.
const SHIMS: [&str; 2] = ["gvmm_torch_", "gvmm_xpu_"];

/// Compares with the committed table; also before it is written anew.
fn check_appended() {
    let names = gvmm::capi::api::NAMES;
    let committed = std::fs::read_to_string(root().join("include/gvmm.h")).unwrap_or_default();
    let fields = committed.lines().skip_while(|line| *line != "typedef struct gvmm_api {");
    let fields = fields.take_while(|line| !line.starts_with('}')).filter_map(|line| line.split_once("(*"));
    for (i, (_, rest)) in fields.enumerate() {
        let was = rest.split(')').next().unwrap_or_default();
        let is = names.get(i).map(|name| name.trim_start_matches("gvmm_"));
        assert_eq!(
            is,
            Some(was),
            "place {i} of `table!` in src/capi/api.rs has moved: append at the end only"
        );
    }
}

/// A program finds a function by its place in the table: what was there stays, and everything is there but what
/// frameworks look up by name.
#[test]
fn the_table_has_every_function_and_is_only_appended_to() {
    let names = gvmm::capi::api::NAMES;
    check_appended();
    for prototype in prototypes(&generate()) {
        let name =
            prototype.split('(').next().unwrap_or_default().rsplit([' ', '*']).next().unwrap_or_default();
        let by_name = name == "gvmm_get_api" || SHIMS.iter().any(|shim| name.starts_with(shim));
        assert!(
            names.contains(&name) || by_name,
            "{name} is missing: append it at the end of `table!` in src/capi/api.rs, then `make bless`"
        );
    }
}

/// One-line comments on one line, and types by their plain names.
fn tidy(made: &str) -> String {
    let lines: Vec<&str> = made.lines().collect();
    let (mut out, mut i) = (String::new(), 0);
    while i < lines.len() {
        if let [open, text, close, ..] = lines[i..]
            && open.trim() == "/**"
            && close.trim() == "*/"
        {
            let indent = &open[..open.len() - 3];
            let _ = writeln!(out, "{indent}/** {} */", text.trim().trim_start_matches('*').trim());
            i += 3;
        } else {
            let plain = !lines[i].starts_with("typedef struct");
            let line = if plain { lines[i].replace("struct gvmm_", "gvmm_") } else { lines[i].to_string() };
            let _ = writeln!(out, "{line}");
            i += 1;
        }
    }
    out
}

#[test]
fn the_header_is_what_the_source_says() {
    let path = root().join("include/gvmm.h");
    let made = generate();
    if std::env::var_os("GVMM_BLESS").is_some() {
        check_appended();
        std::fs::write(&path, &made).expect("writes the header");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(made == committed, "include/gvmm.h is stale: GVMM_BLESS=1 cargo test --test header");
}

/// A file with an exported function that the list above lacks would be missing from the header.
#[test]
fn every_file_that_exports_is_in_the_header() {
    for entry in std::fs::read_dir(root().join("src/capi")).expect("src/capi") {
        let path: PathBuf = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let listed = FILES.iter().any(|file| Path::new(file).file_stem() == path.file_stem());
        assert!(!text.contains("no_mangle") || listed, "{} is not listed", path.display());
    }
}

/// What a C programmer must know of every function.
#[test]
fn every_function_says_what_its_comment_must() {
    let header = generate();
    let mut functions = 0;
    for (at, _) in header.match_indices(");\n") {
        let before = &header[..at];
        let Some(comment) = before.rfind("/**").map(|start| &before[start..]) else { continue };
        let name = comment.rsplit_once("*/").map_or("", |(_, code)| code).trim();
        if !name.contains("gvmm_") || name.starts_with("typedef") {
            continue;
        }
        functions += 1;
        let says = |words: &[&str]| words.iter().any(|word| comment.contains(word));
        assert!(says(&[" * State: "]), "{name}: no state");
        assert!(says(&[" * Parameters: "]) || name.ends_with("(void"), "{name}: no parameters");
        assert!(says(&[" * Statuses: ", " * Returns: "]), "{name}: no statuses");
        let threads = ["thread-safe.", "externally synchronized;", "this thread."];
        let threads = threads.map(|words| format!(" * Threads: {words}"));
        assert!(threads.iter().any(|words| comment.contains(words)), "{name}: no thread safety");
    }
    assert!(functions > 50, "the functions are not found");
}
