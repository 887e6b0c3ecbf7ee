//! The Python package, and the C++ types of the PyTorch that this machine has.

use super::toolbox::{Mode, has, library, root, run, skip, temporary, text};
use std::path::PathBuf;
use std::process::Command;

/// What `python3 -c CODE` prints, or none where it fails.
fn python(code: &str) -> Option<String> {
    let output = Command::new("python3").args(["-c", code]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The package's own tests, without a GPU and without PyTorch, on the host driver.
#[test]
fn the_python_package() {
    if !has("python3") {
        return;
    }
    let program = root().join("python/tests/run.py");
    let output = run(&program, Mode::Plain, true);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let count =
        said.lines().rev().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok());
    assert!(count.is_some_and(|count| count >= 10), "too few tests ran: {said}");
}

/// The binder of a captured graph, from Python by ctypes, over fakes of CUDA's driver and of PyTorch.
#[test]
fn a_captured_graph_is_bound_from_python() {
    if !has("python3") {
        return;
    }
    let fake = temporary().join("libcuda-python.so");
    std::fs::create_dir_all(temporary()).expect("a folder");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-pthread", "-o"]).arg(&fake);
    let built = cc.arg(root().join("ffi_tests/fakes/fake_cuda.c")).status().expect("a C compiler");
    assert!(built.success(), "the fake compiles");
    let mut script = Command::new("python3");
    script.arg("-B").arg(root().join("ffi_tests/torch_graph.py")).arg(library().join("libgvmm.so"));
    let output = script.env("GVMM_CUDA_LIBRARY", &fake).output().expect("python3 runs");
    let said = text(&output);
    assert!(output.status.success() && said.contains("all results arrived"), "{said}");
}

/// The folders of PyTorch's headers and of CUDA's that go with it, or none.
fn torch_headers() -> Option<[PathBuf; 2]> {
    let find = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
    let torch = PathBuf::from(python(find)?);
    let beside = torch.parent()?.join("nvidia/cu13/include");
    let cuda = [beside, "/usr/local/cuda/include".into()];
    let complete = |folder: &PathBuf| folder.join("crt/host_defines.h").exists();
    Some([torch.join("include"), cuda.into_iter().find(complete)?])
}

/// `torch_hooks.cc` writes PyTorch's types down; where its headers are there, they say the same.
#[test]
fn our_hooks_have_the_types_of_pytorchs_headers() {
    let Some(headers) = torch_headers() else { return skip("PyTorch's headers, or CUDA's, are not here") };
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-fsyntax-only", "-DGVMM_TORCH_HEADERS", "-I"]).arg(root().join("include"));
    for folder in &headers {
        compiler.arg("-isystem").arg(folder);
    }
    let output = compiler.arg(root().join("ffi_tests/torch_hooks.cc")).output().expect("c++ runs");
    assert!(output.status.success(), "{}", text(&output));
}

/// The shim inside a real PyTorch, where this machine's Python has one: linked, current, and called by PyTorch.
#[test]
fn pytorchs_calls_reach_our_pool() {
    if !has("python3") {
        return;
    }
    let mut script = Command::new("python3");
    script.arg(root().join("scripts/torch_shim_check.py"));
    let output = script.env("GVMM_LIBRARY", library().join("libgvmm.so")).output().expect("python3 runs");
    let said = text(&output);
    match output.status.code() {
        Some(77) => skip(said.trim().trim_start_matches("skipped: ")),
        code => assert!(code == Some(0) && said.contains("names reach our pool"), "{said}"),
    }
}

/// Beside the real SYCL runtime, where this machine's Python has it.
#[test]
fn our_calls_are_those_of_the_real_sycl_runtime() {
    let mut script = Command::new("bash");
    script.arg("scripts/sycl_check.sh").current_dir(root()).env("GVMM_LIBRARY_DIR", library());
    let output = script.output().expect("bash runs");
    let said = text(&output);
    match output.status.code() {
        Some(77) => skip(&format!("the SYCL runtime is not here: {}", said.trim())),
        code => assert!(code == Some(0) && said.contains("all 7 functions are there"), "{said}"),
    }
}
