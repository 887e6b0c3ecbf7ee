//! Runs a program with our libraries in front of its driver.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs a program with a library of ours in front of its driver's virtual-memory calls.
///
/// What is set is said on standard error: LD_PRELOAD, GVMM_PRELOAD and, with --trace, GVMM_PRELOAD_TRACE. The libraries are
/// looked for in GVMM_PRELOAD_DIR, beside this program, and in ../lib. A Python is asked which plugins it has; for other
/// programs both libraries are set, since each answers only its own vendor's calls.
#[derive(Args)]
pub(crate) struct Run {
    /// What the libraries do
    #[arg(long, value_enum, default_value_t = Mode::Observe)]
    mode: Mode,

    /// Whose calls [default: those of the plugins that are found]
    #[arg(long, value_enum)]
    vendor: Option<Vendor>,

    /// Writes every call to this file, for `gvmm vmm-trace`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Nothing: nothing is preloaded
    Off,
    /// Count and time, with the driver's behaviour as it is
    Observe,
    /// Take care for known faults and join calls; docs/preload.md lists what differs
    On,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Vendor {
    /// NVIDIA's
    Cuda,
    /// AMD's
    Hip,
    /// Both
    Both,
}

impl Vendor {
    fn libraries(self) -> &'static [&'static str] {
        match self {
            Self::Cuda => &["libgvmm_preload_cuda.so"],
            Self::Hip => &["libgvmm_preload_hip.so"],
            Self::Both => &["libgvmm_preload_cuda.so", "libgvmm_preload_hip.so"],
        }
    }
}

/// Prints the names and versions of what a Python has installed. PyTorch's own file says for whose driver it was built, which
/// the version of its wheel may leave out.
const ASK: &str = r#"
import importlib.metadata, re
for found in importlib.metadata.distributions():
    name, version = found.metadata["Name"], found.version
    if name == "torch":
        try:
            text = found.locate_file("torch/version.py").read_text()
            version = re.search(r"""__version__ = ['"](.*?)['"]""", text)[1]
        except (OSError, TypeError):
            pass
    print(name, version)
"#;

/// Becomes the program; comes back only with a failure.
pub(crate) fn run(options: &Run) -> Result<ExitCode, Failure> {
    let [name, arguments @ ..] = options.program.as_slice() else {
        return Err(Failure::new("no program is given"));
    };
    let mut command = Command::new(name);
    command.args(arguments);
    if options.mode == Mode::Off {
        eprintln!("gvmm: off: nothing is preloaded");
    } else {
        let (vendor, why) = choose(options, name);
        let libraries = vendor.libraries().iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?;
        let list = preload_list(&libraries, std::env::var_os("LD_PRELOAD"));
        let mode = if options.mode == Mode::On { "on" } else { "observe" };
        eprintln!("gvmm: {why}: LD_PRELOAD={} GVMM_PRELOAD={mode}", list.to_string_lossy());
        command.env("LD_PRELOAD", list).env("GVMM_PRELOAD", mode);
        if let Some(trace) = &options.trace {
            let trace = std::path::absolute(trace).unwrap_or_else(|_| trace.clone());
            eprintln!("gvmm: GVMM_PRELOAD_TRACE={}; read it with gvmm vmm-trace", trace.display());
            command.env("GVMM_PRELOAD_TRACE", trace);
        }
        if why.contains("jax")
            && std::env::var_os("XLA_PYTHON_CLIENT_ALLOCATOR").is_none_or(|kind| kind != "vmm")
        {
            eprintln!("gvmm: JAX makes such calls with XLA_PYTHON_CLIENT_ALLOCATOR=vmm, which is not set");
        }
    }
    let error = command.exec();
    Err(Failure::new(format!("{}: {error}", name.to_string_lossy())))
}

fn choose(options: &Run, program: &OsStr) -> (Vendor, String) {
    if let Some(vendor) = options.vendor {
        return (vendor, "as asked".to_owned());
    }
    let base = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
    if !base.starts_with("python") {
        return (Vendor::Both, "for either driver".to_owned());
    }
    // Without what is preloaded already: it is asked, not watched.
    let asked = Command::new(program).args(["-c", ASK]).env_remove("LD_PRELOAD").output();
    let found = asked.map(|output| plugins(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default();
    let has = |vendor| found.iter().any(|(_, whose)| *whose == vendor);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let vendor = match (has(Vendor::Cuda), has(Vendor::Hip)) {
        (true, false) => Vendor::Cuda,
        (false, true) => Vendor::Hip,
        _ => Vendor::Both,
    };
    let why = if names.is_empty() {
        "no plugin found, for either driver".to_owned()
    } else {
        format!("found {}", names.join(", "))
    };
    (vendor, why)
}

/// The distributions that bring a driver's user, and whose.
fn plugins(listing: &str) -> Vec<(String, Vendor)> {
    let of = |line: &str| {
        let (name, version) = line.split_once(' ')?;
        let name = name.to_ascii_lowercase().replace('_', "-");
        let vendor = match name.as_str() {
            "torch" if version.contains("+rocm") => Vendor::Hip,
            "torch" if version.contains("+cu") => Vendor::Cuda,
            _ if name.starts_with("jax-cuda") && name.ends_with("-pjrt") => Vendor::Cuda,
            _ if name.starts_with("jax-rocm") && name.ends_with("-pjrt") => Vendor::Hip,
            _ => return None,
        };
        Some((format!("{name} {version}"), vendor))
    };
    listing.lines().filter_map(of).collect()
}

fn find(name: &str) -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let mut folders: Vec<PathBuf> =
        std::env::var_os("GVMM_PRELOAD_DIR").map(PathBuf::from).into_iter().collect();
    if let Some(beside) = beside {
        folders.extend([beside.clone(), beside.join("../lib")]);
    }
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    let found = found.and_then(|path| path.canonicalize().ok());
    let looked: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    found.ok_or_else(|| {
        let package = name.trim_start_matches("lib").trim_end_matches(".so").replace('_', "-");
        let places = looked.join(", ");
        Failure::new(format!("{name} is not in {places}: build it by cargo build --release -p {package}, or set GVMM_PRELOAD_DIR"))
    })
}

/// Ours first, then what was there.
fn preload_list(libraries: &[PathBuf], before: Option<OsString>) -> OsString {
    let mut list = OsString::new();
    let before = before.filter(|text| !text.is_empty());
    for part in libraries.iter().map(|path| path.as_os_str().to_owned()).chain(before) {
        if !list.is_empty() {
            list.push(":");
        }
        list.push(part);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_told_by_their_names() {
        let listing = "numpy 2.1\njax_cuda13_pjrt 0.11.1\njax 0.11.1\ntorch 2.9.0+rocm7.0\ntorch 2.9.0+cu130\njax-rocm7-plugin 1\n";
        let found: Vec<_> = plugins(listing).into_iter().map(|(_, vendor)| vendor).collect();
        assert_eq!(found, [Vendor::Cuda, Vendor::Hip, Vendor::Cuda]);
    }

    #[test]
    fn ours_come_first() {
        let ours = [PathBuf::from("/a.so"), PathBuf::from("/b.so")];
        assert_eq!(preload_list(&ours, Some("c.so".into())), "/a.so:/b.so:c.so");
        assert_eq!(preload_list(&ours[..1], Some(String::new().into())), "/a.so");
    }
}
