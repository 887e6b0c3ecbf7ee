//! Builds and runs C programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How a program is built and run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Plain,
    /// Under the address and undefined-behaviour sanitizers.
    Sanitized,
    Valgrind,
}

impl Mode {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Valgrind => &["-O1", "-g"],
            Self::Sanitized => &[
                "-O1",
                "-g",
                "-fsanitize=address,undefined",
                "-fno-sanitize-recover=all",
                "-fno-omit-frame-pointer",
            ],
        }
    }
}

/// No program of ours runs longer; one that does hangs.
const PATIENCE: Duration = Duration::from_secs(1200);

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where built things go.
pub(crate) fn temporary() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ffi")
}

/// The library's folder: `libgvmm.so`, and a link by its soname for the loader. It is built first where it is stale.
pub(crate) fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // This test is in TARGET/PROFILE/deps.
        let this = std::env::current_exe().expect("the test's own path");
        let profile = this.parent().and_then(Path::parent).expect("the profile's folder").to_path_buf();
        let target = profile.parent().expect("the target folder");
        let name = match profile.file_name().and_then(|n| n.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--lib", "--profile", name]).current_dir(root());
        let status = cargo.env("CARGO_TARGET_DIR", target).status().expect("cargo runs");
        assert!(status.success(), "cargo build failed");
        let folder = temporary().join("lib");
        std::fs::create_dir_all(&folder).expect("a folder");
        for link in ["libgvmm.so", "libgvmm.so.0"] {
            let link = folder.join(link);
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(profile.join("libgvmm.so"), link).expect("a link");
        }
        folder
    })
}

/// Skips visibly, or fails where skipping is not wanted.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("GVMM_NO_SKIP").is_none(), "GVMM_NO_SKIP is set, and {why}");
    eprintln!("skipped: {why}");
}

/// True where `tool` can be run.
pub(crate) fn has(tool: &str) -> bool {
    let run = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = run.is_ok_and(|status| status.success());
    if !found {
        skip(&format!("{tool} is missing"));
    }
    found
}

/// Builds a program of `ffi_tests` (or of a path of its own) and gives where it is.
pub(crate) fn build(file: &str, mode: Mode, extra: &[&str]) -> PathBuf {
    let source = root().join("ffi_tests").join(file);
    let folder = temporary();
    std::fs::create_dir_all(&folder).expect("a folder");
    let stem = Path::new(file).file_stem().and_then(|s| s.to_str()).expect("a name");
    let program = folder.join(format!("{stem}_{mode:?}"));
    let (compiler, standard) = if file.ends_with(".cc") { ("c++", "-std=c++17") } else { ("cc", "-std=c11") };
    let library = library();
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread"]).args(mode.flags());
    command.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("ffi_tests")).args(extra);
    command.arg(&source).arg("-o").arg(&program);
    command.arg("-L").arg(library).arg("-lgvmm").arg(format!("-Wl,-rpath,{}", library.display())).arg("-ldl");
    let output = command.output().expect("the compiler runs");
    assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Runs a built program.
pub(crate) fn run(program: &Path, mode: Mode, leaks: bool) -> Output {
    let mut command = match mode {
        Mode::Plain | Mode::Sanitized => Command::new(program),
        Mode::Valgrind => {
            let mut command = Command::new("valgrind");
            command.args([
                "--quiet",
                "--error-exitcode=99",
                // A child made by fork has lost the threads that what they held is found by.
                if leaks { "--leak-check=full" } else { "--leak-check=no" },
                "--show-leak-kinds=definite",
                "--errors-for-leak-kinds=definite",
            ]);
            command.args(["--trace-children=yes", "--max-stackframe=16777216"]);
            command.arg(format!("--suppressions={}", root().join("ffi_tests/valgrind.supp").display()));
            command.arg(program);
            command
        }
    };
    command.env("GVMM_TEST_LIBRARY", library().join("libgvmm.so")).env("GVMM_TEST_FOLDER", temporary());
    command.env("GVMM_TEST_MODE", format!("{mode:?}"));
    command.env("ASAN_OPTIONS", format!("detect_leaks={}", u8::from(leaks)));
    // The programs say themselves what they want.
    let ours = |name: &str| {
        (name.starts_with("GVMM_") && !name.starts_with("GVMM_TEST_")) || name.starts_with("XLA_")
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
        command.env_remove(name);
    }
    // What they check is the host driver's, also where there is a GPU.
    command.env("GVMM_DRIVER", "host").env("GVMM_ZE_LIBRARY", "/nowhere/libze_loader.so.1");
    patiently(command)
}

/// Runs to the end, or kills what hangs.
fn patiently(mut command: Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let stdout = std::thread::spawn(move || read(stdout));
    let stderr = std::thread::spawn(move || read(stderr));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("waits") {
            break status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Output { status, stdout: stdout.join().expect("reads"), stderr: stderr.join().expect("reads") }
}

fn read(from: Option<impl std::io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = from.read_to_end(&mut bytes);
    }
    bytes
}

/// Both streams of a program as text.
pub(crate) fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Builds and runs a program, which must end well.
pub(crate) fn check(file: &str, mode: Mode) {
    check_with(file, mode, &[]);
}

/// The same with more for the compiler; gives what the program said.
pub(crate) fn check_with(file: &str, mode: Mode, extra: &[&str]) -> String {
    if mode == Mode::Valgrind && !has("valgrind") {
        return String::new();
    }
    let source = std::fs::read_to_string(root().join("ffi_tests").join(file)).expect("the program");
    let output = run(&build(file, mode, extra), mode, !source.contains("fork()"));
    let said = text(&output);
    assert!(output.status.success(), "{file} ({mode:?}) ended with {}:\n{said}", output.status);
    said
}
