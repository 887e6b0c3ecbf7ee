//! Keeps the documents true: the files they name exist, and every environment variable is documented.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].iter().map(|n| root().join(n)).collect();
    for dir in ["docs", "docs/adr"] {
        let entries = fs::read_dir(root().join(dir)).expect("docs is readable");
        found.extend(
            entries.map(|e| e.expect("an entry").path()).filter(|p| p.extension().is_some_and(|e| e == "md")),
        );
    }
    found
}

/// Words in backquotes and link targets that look like files of this repository.
fn named_files(text: &str) -> Vec<String> {
    const TOP: [&str; 11] = [
        "src/",
        "docs/",
        "tests/",
        "ffi_tests/",
        "c_examples/",
        "cli/",
        "include/",
        "python/",
        "scripts/",
        "benches/",
        ".ci/",
    ];
    let quoted = text.split('`').skip(1).step_by(2);
    let is_file = |w: &&str| TOP.iter().any(|t| w.starts_with(t)) && !w.contains([' ', '*', '<', '\n']);
    quoted.filter(is_file).map(str::to_owned).collect()
}

/// Relative targets of Markdown links.
fn links(text: &str) -> Vec<String> {
    let targets = text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split(')').next());
    targets.filter(|t| !t.contains("://") && !t.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn every_file_that_a_document_names_exists() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a document is readable");
        let beside = document.parent().expect("a folder");
        let named = named_files(&text).into_iter().map(|f| root().join(f));
        for file in named.chain(links(&text).into_iter().map(|l| beside.join(l))) {
            if !file.exists() {
                missing.push(format!("{} names {}", document.display(), file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn the_readme_has_every_environment_variable() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README is readable");
    for variable in gvmm::config::variables() {
        let row = format!("| `{}` | {} | {} |\n", variable.name, variable.default, variable.meaning);
        assert!(readme.contains(&row), "README.md lacks the row\n{row}");
    }
}

#[test]
fn the_version_stands_in_one_place() {
    let readme = fs::read_to_string(root().join("CHANGELOG.md")).expect("the changelog is readable");
    assert!(readme.contains(&format!("## {}", env!("CARGO_PKG_VERSION"))), "CHANGELOG.md lacks this version");
}
