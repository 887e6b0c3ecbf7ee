//! The real Level Zero loader, where it is installed (Debian: `libze1`), and the vendor's headers (`libze-dev`).
//! Without them their checks are skipped visibly; with `GVMM_NO_SKIP=1` that is a failure.

use gvmm::driver::Driver;
use gvmm::driver::level_zero::LevelZeroDriver;
use gvmm::error::Kind;
use std::path::Path;
use std::process::Command;

/// Says that a check was not made, and why.
fn skipped(reason: &str) {
    let forbidden = std::env::var_os("GVMM_NO_SKIP").is_some_and(|v| v == "1");
    assert!(!forbidden, "GVMM_NO_SKIP=1 and skipped: {reason}");
    println!("skipped: {reason}");
}

/// With a GPU it opens; without one it says that there is none, and what to install.
#[test]
fn a_real_loader_without_a_device_is_absent_with_the_reason() {
    match LevelZeroDriver::open(None) {
        Ok(driver) => {
            println!("{}: {} devices", driver.library().display(), driver.device_count());
            assert!(driver.device_count() > 0);
        }
        Err(error) if error.kind == Kind::DriverNotFound && error.native.is_none() => {
            assert!(error.hint.contains("libze_loader.so.1"), "{error}");
            skipped(&format!("no Level Zero loader here: {error}"));
        }
        Err(error) => {
            println!("{error}");
            assert_eq!(
                (error.kind, error.native.map(|n| n.code)),
                (Kind::DriverNotFound, Some(0x7800_0001)),
                "{error}"
            );
            assert!(
                error.hint.contains("libze_loader.so") && error.hint.contains("libze_intel_gpu"),
                "{error}"
            );
        }
    }
}

/// The layouts that the fake and the driver go by are those of the vendor's headers.
#[test]
fn layouts_are_those_of_the_headers() {
    let found = ["/usr/include", "/usr/local/include"]
        .into_iter()
        .find(|folder| Path::new(folder).join("level_zero/ze_api.h").exists());
    let Some(folder) = found else { return skipped("the vendor's headers are not installed") };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("ffi_tests/fakes/fake_ze.c");
    let mut cc = Command::new("cc");
    cc.args(["-fsyntax-only", "-DLAYOUT_ONLY", "-I", folder]).arg(source);
    assert!(cc.status().expect("a C compiler").success());
}

#[test]
fn an_explicit_path_is_the_only_one() {
    let error = LevelZeroDriver::open(Some(Path::new("/nowhere/libze.so"))).expect_err("no such file");
    assert_eq!(error.kind, Kind::DriverNotFound);
    assert!(error.hint.contains("/nowhere/libze.so"), "{error}");
}
