//! Builds the libraries, a vendor's stand-in and a program, and runs the program with and without a library in front.
#![allow(dead_code, reason = "each test program uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Whose driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Vendor {
    Cuda,
    Hip,
}

pub(crate) const BOTH: [Vendor; 2] = [Vendor::Cuda, Vendor::Hip];

/// The vendor's word for a call.
impl Vendor {
    pub(crate) fn name(self) -> &'static str {
        if self == Self::Cuda { "cuda" } else { "hip" }
    }

    pub(crate) fn prefix(self) -> &'static str {
        if self == Self::Cuda { "cu" } else { "hip" }
    }
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("preload");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A folder of a test's own.
pub(crate) fn own(name: &str) -> PathBuf {
    let folder = folder().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The folder where cargo puts libraries, once they are built.
pub(crate) fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // This test is in TARGET/PROFILE/deps.
        let this = std::env::current_exe().expect("the test's own path");
        let profile = this.parent().and_then(Path::parent).expect("the profile's folder").to_path_buf();
        let name = match profile.file_name().and_then(|n| n.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--quiet",
            "--profile",
            name,
            "-p",
            "gvmm-preload-cuda",
            "-p",
            "gvmm-preload-hip",
        ]);
        cargo.args(["-p", "gvmm", "--lib"]).current_dir(root());
        cargo.env("CARGO_TARGET_DIR", profile.parent().expect("the target folder"));
        assert!(cargo.status().expect("cargo runs").success(), "cargo build failed");
        profile
    })
}

pub(crate) fn library(vendor: Vendor) -> PathBuf {
    libraries().join(format!("libgvmm_preload_{}.so", vendor.name()))
}

pub(crate) fn cc(arguments: &[&str], source: &str, to: &Path) {
    let mut command = Command::new("cc");
    command
        .args(["-O1", "-g", "-w", "-pthread", "-o"])
        .arg(to)
        .arg(root().join("preload/tests").join(source));
    let output = command.args(arguments).arg("-ldl").output().expect("a C compiler");
    assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The vendor's library, into a folder, under its own name.
pub(crate) fn vendors_library(vendor: Vendor, folder: &Path, options: &[&str]) {
    let map = format!("-Wl,--version-script,{}", root().join("preload/tests/hip.map").display());
    let (soname, mut arguments) = match vendor {
        Vendor::Cuda => ("libcuda.so.1", vec![]),
        Vendor::Hip => ("libamdhip64.so.7", vec![map.as_str()]),
    };
    let name = format!("-Wl,-soname,{soname}");
    arguments.extend(["-shared", "-fPIC", name.as_str()]);
    arguments.extend(options);
    cc(&arguments, &format!("vendor_{}.c", vendor.name()), &folder.join(soname));
}

/// The program and its vendor's library.
pub(crate) fn program(vendor: Vendor) -> &'static Path {
    static BUILT: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    BUILT[vendor as usize].get_or_init(|| {
        let folder = own(vendor.name());
        vendors_library(vendor, &folder, &[]);
        let program = folder.join("play");
        match vendor {
            Vendor::Cuda => cc(&[], "play.c", &program),
            Vendor::Hip => {
                let library = folder.join("libamdhip64.so.7");
                cc(&["-DHIP", library.to_str().expect("UTF-8")], "play.c", &program);
            }
        }
        program
    })
}

/// A scene, and what is around it.
pub(crate) struct Scene {
    vendor: Vendor,
    command: Command,
}

/// What a scene printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) out: String,
    pub(crate) log: String,
}

impl Scene {
    /// Without a library in front.
    pub(crate) fn bare(vendor: Vendor, name: &str) -> Self {
        let program = program(vendor);
        Self { vendor, command: Command::new(program) }
            .env_clear(program.parent().expect("a folder"))
            .arg(name)
    }

    /// With one, told to do this.
    pub(crate) fn with(vendor: Vendor, name: &str, mode: &str) -> Self {
        let library = library(vendor);
        Self::bare(vendor, name).set("LD_PRELOAD", library.to_str().expect("UTF-8")).set("GVMM_PRELOAD", mode)
    }

    fn env_clear(mut self, folder: &Path) -> Self {
        self.command
            .env_clear()
            .env("LD_LIBRARY_PATH", folder)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        self
    }

    fn arg(mut self, name: &str) -> Self {
        self.command.arg(name);
        self
    }

    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// The program started by these words of bash: `"$0" "$@"`.
    pub(crate) fn by_shell(mut self, words: &str) -> Self {
        let mut shell = Command::new("bash");
        shell.args(["-c", words]).arg(self.command.get_program()).args(self.command.get_args()).env_clear();
        shell.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.command = shell;
        self
    }

    pub(crate) fn fault(self, name: &str) -> Self {
        self.set("FAKE_HIP_FAULTS", name)
    }

    pub(crate) fn run(mut self) -> Seen {
        let Output { status, stdout, stderr } = self.command.output().expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let seen = Seen { out: text(stdout), log: text(stderr) };
        assert!(status.success(), "{:?}: {status} {seen:?}", self.command);
        seen
    }

    /// Runs it, and expects what the bare program prints, with nothing in the log.
    pub(crate) fn shows(self, bare: &Seen) {
        let name = format!("{:?} {:?}", self.vendor, self.command);
        let seen = self.run();
        assert_eq!(seen.out, bare.out, "{name}");
        assert_eq!(seen.log, "", "{name}");
    }
}

impl Seen {
    /// How often the vendor's function was called.
    pub(crate) fn calls(&self, vendor: Vendor, call: &str) -> u64 {
        self.number(&format!("vendor {}{call} ", vendor.prefix()))
    }

    pub(crate) fn number(&self, head: &str) -> u64 {
        let line = self.out.lines().find_map(|line| line.strip_prefix(head));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{head}: {self:?}"))
    }

    /// Nothing that a real driver refuses or lets rot, and nothing lives.
    pub(crate) fn clean(&self) {
        assert!(self.number("breaches ") == 0 && self.number("live ") == 0, "{self:?}");
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.out.lines().any(|known| known == line)
    }

    /// The lines about what the program saw, without the vendor's counts.
    pub(crate) fn saw(&self) -> Vec<&str> {
        self.out
            .lines()
            .filter(|line| !line.starts_with("vendor ") && !line.starts_with("breaches "))
            .collect()
    }
}
