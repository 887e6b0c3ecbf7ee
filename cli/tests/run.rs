//! Programs run with a library in front of their driver, and the traces that come of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn gvmm(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gvmm"));
    command.args(arguments).env_remove("LD_PRELOAD");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GVMM_")) {
        command.env_remove(name);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(command: &mut Command) -> Output {
    command.output().expect("it runs")
}

/// A folder with stand-ins for the two libraries: what matters here is that they are set.
fn libraries(folder: &Path) -> PathBuf {
    for vendor in ["cuda", "hip"] {
        let library = folder.join(format!("libgvmm_preload_{vendor}.so"));
        let source = folder.join("empty.c");
        std::fs::write(&source, "").expect("written");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(built.expect("a C compiler").success());
    }
    folder.to_owned()
}

#[test]
fn the_environment_is_set_and_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let libraries = libraries(folder.path());
    let env = |options: &[&str]| {
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.extend(["--", "env"]);
        let output = run(gvmm(&arguments).env("GVMM_PRELOAD_DIR", &libraries));
        assert!(output.status.success(), "{output:?}");
        (text(&output.stdout), text(&output.stderr))
    };
    let (out, said) = env(&["--mode", "on", "--vendor", "hip", "--trace", "calls.csv"]);
    assert!(out.contains("GVMM_PRELOAD=on\n") && out.contains("/libgvmm_preload_hip.so\n"), "{out}");
    assert!(!out.contains("libgvmm_preload_cuda") && out.contains("/calls.csv\n"), "{out}");
    assert!(said.contains("libgvmm_preload_hip.so GVMM_PRELOAD=on") && said.contains("calls.csv"), "{said}");
    let (out, _) = env(&[]);
    assert!(out.contains("GVMM_PRELOAD=observe\n"), "{out}");
    assert!(out.contains("libgvmm_preload_cuda.so:") && out.contains("libgvmm_preload_hip.so\n"), "{out}");
    let before = libraries.join("before.so");
    std::fs::copy(libraries.join("libgvmm_preload_hip.so"), &before).expect("copied");
    let mut command = gvmm(&["run", "--vendor", "cuda", "--", "env"]);
    let output = run(command.env("GVMM_PRELOAD_DIR", &libraries).env("LD_PRELOAD", &before));
    let kept = format!("/libgvmm_preload_cuda.so:{}\n", before.display());
    assert!(text(&output.stdout).contains(&kept), "what was there is kept, behind ours: {output:?}");
    let (out, said) = env(&["--mode", "off"]);
    assert!(!out.contains("LD_PRELOAD") && said.contains("nothing is preloaded"), "{out} {said}");
}

#[test]
fn a_python_is_asked_for_its_plugins() {
    let folder = tempfile::tempdir().expect("a folder");
    let libraries = libraries(folder.path());
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    };
    let run = |allocator: &str| {
        let program = ["run", "--", "python3", "-S", "-c", "import os; print(os.environ['LD_PRELOAD'])"];
        let output = run(gvmm(&program)
            .env("GVMM_PRELOAD_DIR", &libraries)
            .env("PYTHONPATH", folder.path())
            .env("XLA_PYTHON_CLIENT_ALLOCATOR", allocator)
            .env("PYTHONNOUSERSITE", "1"));
        assert!(output.status.success(), "{output:?}");
        (text(&output.stdout), text(&output.stderr))
    };
    write(
        "jax_rocm7_pjrt-0.11.dist-info/METADATA",
        "Metadata-Version: 2.1\nName: jax-rocm7-pjrt\nVersion: 0.11\n",
    );
    let (out, said) = run("default");
    assert!(said.contains("XLA_PYTHON_CLIENT_ALLOCATOR=vmm, which is not set"), "{said}");
    assert!(!run("vmm").1.contains("which is not set"));
    assert!(said.contains("found ") && said.contains("jax-rocm7-pjrt 0.11"), "{said}");
    assert!(out.contains("libgvmm_preload_hip.so"), "{out}");
    std::fs::remove_dir_all(folder.path().join("jax_rocm7_pjrt-0.11.dist-info")).expect("removed");
    // A wheel from PyPI says nothing in its version.
    write("torch-2.11.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n");
    write("torch/version.py", "__version__ = '2.11.0+rocm7.0'\n");
    let (out, said) = run("");
    assert!(said.contains("torch 2.11.0+rocm7.0") && out.contains("libgvmm_preload_hip.so"), "{out} {said}");
}

#[test]
fn what_is_missing_is_said_and_nothing_runs() {
    let nowhere = tempfile::tempdir().expect("a folder");
    // In a folder of its own: beside it cargo may have put the libraries.
    let alone = Path::new(env!("CARGO_TARGET_TMPDIR")).join("alone");
    std::fs::create_dir_all(&alone).expect("a folder");
    let program = alone.join("gvmm");
    let _ = std::fs::remove_file(&program);
    std::fs::hard_link(env!("CARGO_BIN_EXE_gvmm"), &program).expect("a link");
    let mut command = Command::new(&program);
    command.args(["run", "--vendor", "hip", "--", "echo", "ran"]).env("GVMM_PRELOAD_DIR", nowhere.path());
    let output = run(&mut command);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("cargo build --release -p gvmm-preload-hip"), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    let output = run(&mut gvmm(&["run", "--mode", "off", "--", "/no/such/program"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/no/such/program"), "{output:?}");
    assert_eq!(run(&mut gvmm(&["run"])).status.code(), Some(2));
    assert_eq!(run(&mut gvmm(&["run", "--mode", "off", "--", "sh", "-c", "exit 7"])).status.code(), Some(7));
}

#[test]
fn a_trace_is_read_from_a_file_and_from_the_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("calls.csv");
    let lines = "# gvmm vmm-trace 1 hip 9\ntime_ns,thread\n1,5,map,0,1500,7f00,4096,a,,1\n2,5,map,1,500,7f00,4096,a,,3\nodd\n";
    std::fs::write(&path, lines).expect("written");
    let json = run(&mut gvmm(&["vmm-trace", "--json", path.to_str().expect("UTF-8")]));
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&report["driver"], &report["unread"]), (&"hip".into(), &1.into()));
    assert_eq!((&report["calls"][0]["added"], &report["calls"][0]["errors"]), (&2.into(), &1.into()));
    let table = run(gvmm(&["vmm-trace", "-"]).stdin(std::fs::File::open(&path).expect("opened")));
    assert!(text(&table.stdout).contains("| map "), "{table:?}");
    for bad in ["/nowhere", "/dev/null", "/proc/self/cmdline"] {
        assert_eq!(run(&mut gvmm(&["vmm-trace", bad])).status.code(), Some(2), "{bad}");
    }
}
