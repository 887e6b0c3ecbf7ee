//! A fake CUDA library of a test's own.

use super::{Bench, Native};
use gvmm::driver::cuda::CudaDriver;
use gvmm::error::Error;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

/// A fake library of a test's own, with its own state.
pub(crate) struct Fake {
    pub(crate) path: PathBuf,
    pub(crate) native: Native,
}

impl Fake {
    /// Builds it under `name`; `options` are the compiler's.
    pub(crate) fn build(name: &str, options: &[&str]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let this = std::env::current_exe().expect("this program");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(this.file_stem().expect("a name"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(format!("libcuda-{name}.so"));
        let compile = |to: &Path| {
            let status = Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-g", "-Wall", "-pthread", "-o"])
                .arg(to)
                .args(options)
                .arg(root.join("ffi_tests/fakes/fake_cuda.c"))
                .status()
                .expect("a C compiler");
            assert!(status.success(), "the fake compiles");
        };
        if options.is_empty() {
            // A copy is a library of its own, with its own state.
            static BASE: Once = Once::new();
            let base = folder.join("libcuda.so");
            BASE.call_once(|| compile(&base));
            std::fs::copy(base, &path).expect("copied");
        } else {
            compile(&path);
        }
        Self { native: Native::open(&path), path }
    }

    pub(crate) fn set(self, setting: &str, value: u64) -> Self {
        let name = CString::new(setting).expect("no zero byte");
        self.native.call("fake_cuda_set", name.as_ptr() as u64, value, 0);
        self
    }

    pub(crate) fn open(&self) -> Result<CudaDriver, Error> {
        CudaDriver::open(Some(&self.path))
    }

    pub(crate) fn bench(&self) -> Bench {
        Bench::new(self.open().expect("the fake opens"))
    }

    pub(crate) fn number(&self, function: &str) -> u64 {
        type Function = unsafe extern "C" fn() -> u64;
        // SAFETY: the fake's functions that are asked for take nothing and give a number.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.native.symbol(function)) };
        // SAFETY: as above.
        unsafe { function() }
    }

    pub(crate) fn last_breach(&self) -> String {
        let text = self.number("fake_cuda_last_breach") as *const c_char;
        // SAFETY: a text of the fake's that ends in a zero byte.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    pub(crate) fn fail(&self, function: &str, nth: u64, status: i32) {
        let name = CString::new(function).expect("no zero byte");
        self.native.call("fake_cuda_fail", name.as_ptr() as u64, nth, u64::from(status.unsigned_abs()));
    }

    /// How often a function was called.
    pub(crate) fn calls(&self, function: &str) -> u64 {
        let name = CString::new(function).expect("no zero byte");
        u64::from(self.native.call("fake_cuda_calls", name.as_ptr() as u64, 0, 0).unsigned_abs())
    }

    /// Lets all streams lag, or go on.
    pub(crate) fn hold(&self, on: bool) {
        self.native.call("fake_cuda_hold", u64::from(on), 0, 0);
    }

    /// Nothing was done that the real driver would refuse or let rot, and nothing lives.
    pub(crate) fn clean(&self) {
        assert_eq!(self.number("fake_cuda_breaches"), 0, "{}", self.last_breach());
        assert_eq!(self.number("fake_cuda_live"), 0, "something still lives");
    }
}
