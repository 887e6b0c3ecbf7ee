//! Which driver a test plays on: the host's, or with `GVMM_TEST_DRIVER=cuda` or `hip` the one of `GVMM_CUDA_LIBRARY` or
//! `GVMM_HIP_LIBRARY`, or of this machine. What is written and read goes through the vendor's copies there: the host
//! cannot touch it.

#[path = "../cuda_common/mod.rs"]
mod cuda_common;
#[path = "../hip_common/mod.rs"]
mod hip_common;

use gvmm::config::HostConfig;
use gvmm::driver::cuda::CudaDriver;
use gvmm::driver::hip::HipDriver;
use gvmm::driver::host::HostDriver;
use gvmm::driver::{Access, Driver, Ordinal};
use gvmm::error::Error;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

fn wanted() -> String {
    std::env::var("GVMM_TEST_DRIVER").unwrap_or_else(|_| "host".to_owned())
}

/// True on the host driver.
pub fn is_host() -> bool {
    wanted() == "host"
}

/// The shapes that can be played: only the host driver can be told to lack something.
pub fn shapes<'a>(all: &[&'a [&'a str]]) -> Vec<&'a [&'a str]> {
    all.iter().copied().filter(|off| is_host() || off.is_empty()).collect()
}

/// The lines whose devices there are; where none is, the same for device 0.
pub fn only_there(lines: &[Access], devices: u32) -> Vec<Access> {
    let there: Vec<_> = lines.iter().copied().filter(|line| line.device.0 < devices).collect();
    if there.is_empty() { vec![Access { device: Ordinal(0), ..lines[0] }] } else { there }
}

/// One for the process: opening it is slow, and closing it ends its context.
fn vendor(name: &str) -> Arc<dyn Driver> {
    static OPENED: OnceLock<Arc<dyn Driver>> = OnceLock::new();
    let library = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let open = || -> Result<Arc<dyn Driver>, Error> {
        match name {
            "cuda" => Ok(Arc::new(CudaDriver::open(library("GVMM_CUDA_LIBRARY").as_deref())?)),
            "hip" => Ok(Arc::new(HipDriver::open(library("GVMM_HIP_LIBRARY").as_deref(), &[])?)),
            other => panic!("GVMM_TEST_DRIVER={other}: host, cuda or hip"),
        }
    };
    OPENED.get_or_init(|| open().expect("the driver that was asked for")).clone()
}

/// The driver to play on.
pub fn driver(config: HostConfig) -> Arc<dyn Driver> {
    if is_host() {
        return Arc::new(HostDriver::new(config, None).expect("a host driver"));
    }
    assert!(config.caps_off.is_empty() && config.memory == 0, "only the host driver can be shaped");
    vendor(&wanted())
}

/// Runs this test program again, on the fake libraries that count breaches of the vendors' rules.
pub fn again_on_fakes() {
    if !is_host() {
        return println!("skipped: this is the other run");
    }
    let cuda = cuda_common::fake::Fake::build("again", &[]).path;
    let hip = hip_common::Fake::build("again", &[]).path;
    for (name, variable, library) in [("cuda", "GVMM_CUDA_LIBRARY", cuda), ("hip", "GVMM_HIP_LIBRARY", hip)] {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        // Only the host driver can be told to lack something.
        command.args(["--skip", "on_the_fakes", "--skip", "without_", "--skip", "whole_only"]);
        command.env("GVMM_TEST_DRIVER", name).env(variable, library);
        command.env("FAKE_CUDA_TRACE", "1").env("FAKE_HIP_TRACE", "1");
        let output = command.output().expect("it runs");
        let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
        assert!(
            output.status.success() && !text.contains(" breach: ") && !text.contains(" 0 passed"),
            "{text}"
        );
        println!("{name}: {text}");
    }
}
