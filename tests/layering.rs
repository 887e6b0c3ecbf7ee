//! Reads the `use` lines and the paths of `src/` and keeps the picture of `src/lib.rs`: an import goes down,
//! never up or sideways.

use std::fs;
use std::path::{Path, PathBuf};

/// Each layer with the layers below it that it may name. Leaf modules may name only each other's data.
const MAY_USE: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("error", &["units"]),
    ("config", &["units", "error"]),
    ("logging", &["units", "error", "config"]),
    ("driver", &["units", "error", "config", "logging"]),
    ("vm", &["units", "error", "config", "logging", "driver"]),
    ("rebind", &["units", "error", "config", "logging", "driver", "vm"]),
    ("pool", &["units", "error", "config", "logging", "driver", "vm"]),
    ("capi", &["units", "error", "config", "logging", "driver", "vm", "rebind", "pool"]),
];

/// The deciding parts of policy: no driver call, no clock, no lock, no unsafe code.
const PURE: &[&str] = &[
    "rebind/threshold.rs",
    "rebind/plan.rs",
    "rebind/slot.rs",
    "rebind/ids.rs",
    "rebind/free_list.rs",
    "rebind/overlap.rs",
    "rebind/table.rs",
    "rebind/choice.rs",
    "rebind/choice/flow.rs",
    "rebind/choice/greedy.rs",
    "rebind/choice/ledger.rs",
    "rebind/choice/patching.rs",
    "rebind/choice/relaxed.rs",
    "rebind/choice/small.rs",
    "rebind/churn.rs",
    "rebind/cost.rs",
    "rebind/exchange.rs",
    "rebind/planner.rs",
    "rebind/profile.rs",
    "rebind/profile/builtin.rs",
    "rebind/profile/figure.rs",
    "rebind/profile/text.rs",
    "pool/free_index.rs",
    "pool/heap.rs",
    "pool/ledger.rs",
    "pool/nodes.rs",
    "pool/reclaim.rs",
    "pool/size_class.rs",
    "pool/starts.rs",
    "pool/window.rs",
    "vm/remap.rs",
    "vm/plan.rs",
];

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("src is readable") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The file's code without its comments and without its unit tests (which may reach for a driver).
fn code(path: &Path) -> String {
    let is_tests = |stem: &str| stem == "tests" || stem.ends_with("_tests");
    if path.file_stem().is_some_and(|stem| is_tests(&stem.to_string_lossy())) {
        return String::new();
    }
    code_of(&fs::read_to_string(path).expect("a source file is readable"))
}

/// A module of unit tests is the last thing in its file; whatever else is for tests only is code like any other.
fn code_of(text: &str) -> String {
    let own = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    own.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The top-level modules that `code` names as `crate::NAME` or `crate::{NAME, ...}`.
fn named(code: &str) -> Vec<String> {
    let word = |s: &str| s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut names = Vec::new();
    for (at, found) in code.match_indices("crate::") {
        let rest = &code[at + found.len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = &list[..list.find("};").unwrap_or(list.len())];
                let mut depth = 0;
                for part in list.split_inclusive(['{', '}', ',']) {
                    if depth == 0 {
                        names.push(word(part.trim_start()));
                    }
                    depth += part.matches('{').count();
                    depth -= part.matches('}').count().min(depth);
                }
            }
            None => names.push(word(rest)),
        }
    }
    names.retain(|n| !n.is_empty());
    names
}

fn layer_of(path: &Path) -> Option<String> {
    let first = path.strip_prefix(src()).ok()?.components().next()?;
    let name = first.as_os_str().to_str()?.trim_end_matches(".rs").to_owned();
    (name != "lib").then_some(name)
}

#[test]
fn imports_go_down_the_picture() {
    let mut breaches = Vec::new();
    for path in sources(&src()) {
        let Some(layer) = layer_of(&path) else { continue };
        let Some((_, below)) = MAY_USE.iter().find(|(name, _)| *name == layer) else {
            breaches.push(format!("{}: layer `{layer}` is not in the picture", path.display()));
            continue;
        };
        let known = |n: &String| MAY_USE.iter().any(|(name, _)| name == n);
        for name in named(&code(&path)).into_iter().filter(known) {
            if name != layer && !below.contains(&name.as_str()) {
                breaches.push(format!("{}: `{layer}` names `{name}`", path.display()));
            }
        }
    }
    assert!(breaches.is_empty(), "imports against the picture:\n{}", breaches.join("\n"));
}

#[test]
fn mechanism_and_policy_know_no_vendor() {
    let vendors = ["driver::host", "driver::cuda", "driver::hip", "driver::level_zero", "driver::testing"];
    for path in sources(&src()) {
        if !matches!(layer_of(&path).as_deref(), Some("vm" | "rebind" | "pool")) {
            continue;
        }
        let code = code(&path);
        for vendor in vendors {
            assert!(!code.contains(vendor), "{} names {vendor}", path.display());
        }
    }
}

#[test]
fn deciding_parts_are_pure() {
    for name in PURE {
        let path = src().join(name);
        let code = code(&path);
        for word in ["unsafe", "Mutex", "RwLock", "Atomic", "Instant", "SystemTime", "dyn Driver"] {
            assert!(!code.contains(word), "{name} is a pure function of its input, but names {word}");
        }
    }
}

#[test]
fn unsafe_code_stays_in_driver_vm_and_capi() {
    for path in sources(&src()) {
        let layer = layer_of(&path).unwrap_or_default();
        if code(&path).contains("allow(unsafe_code") {
            assert!(
                matches!(layer.as_str(), "driver" | "vm" | "capi"),
                "{} opens unsafe code",
                path.display()
            );
        }
    }
}

#[test]
fn the_reader_leaves_out_unit_tests_and_comments_only() {
    let text = "#[cfg(test)]\nmod tests;\nuse crate::vm;\n// crate::capi\n#[cfg(test)]\nfn f() {}\n\
                use crate::driver;\n#[cfg(test)]\nmod tests {\n    use crate::capi;\n}\n";
    assert_eq!(named(&code_of(text)), ["vm", "driver"]);
}

#[test]
fn the_reader_sees_every_form_of_import() {
    let names =
        named("use crate::vm;\nuse crate::{units::{A, B}, driver, error::C};\nlet x = crate::capi::f();");
    assert_eq!(names, ["vm", "units", "driver", "error", "capi"]);
}
