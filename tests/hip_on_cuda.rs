//! The HIP driver's code against NVIDIA's memory, through a library that offers HIP's functions on top of CUDA's: on a
//! real GPU where there is one, and over the fake CUDA library everywhere. It shows that our calls are right and in
//! the right order, and nothing about AMD's runtime.

mod hip_common;

use gvmm::driver::hip::HipDriver;
use gvmm::driver::{Capabilities, CopySlice, Driver};
use gvmm::error::Kind;
use gvmm::units::DevicePtr;
use hip_common::{EVENTS, FIRST, Fake, Parts, conforms, copy, granule, kind, line};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The driver may free a range and reserve it again: no other test of this process may take its addresses meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn compile(source: &str, to: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = root.join("src/driver/cuda/copy_old.ptx");
    let status = Command::new("cc")
        .args([
            "-std=gnu11",
            "-shared",
            "-fPIC",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-o",
        ])
        .arg(to)
        .arg(format!("-DPTX=\"{}\"", text.display()))
        .arg(root.join("ffi_tests/fakes").join(source))
        .arg("-ldl")
        .status()
        .expect("a C compiler");
    assert!(status.success(), "{source} compiles");
}

/// HIP on CUDA, and the fake below it where that is what it stands on.
struct Stand {
    hip: Fake,
    fake_cuda: Option<Fake>,
}

impl Stand {
    /// A copy of a test's own, over a fake of its own.
    fn on_the_fake(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hip_on_cuda");
        std::fs::create_dir_all(&folder).expect("a folder");
        let [hip, cuda] = ["amdhip64", "cuda"].map(|base| folder.join(format!("lib{base}-{name}.so")));
        compile("hip_on_cuda.c", &hip);
        compile("fake_cuda.c", &cuda);
        let stand = Self { hip: Fake::over(hip), fake_cuda: Some(Fake::over(cuda.clone())) };
        let path = std::ffi::CString::new(cuda.to_str().expect("UTF-8")).expect("no zero byte");
        stand.set("library", path.as_ptr() as u64)
    }

    /// Over the driver of this machine: the library that lies beside this program, else one that is built.
    fn on_the_gpu() -> Self {
        let beside = std::env::current_exe().expect("this program").with_file_name("libhip_on_cuda.so");
        let path = if beside.exists() {
            beside
        } else {
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libhip_on_cuda.so");
            compile("hip_on_cuda.c", &path);
            path
        };
        Self { hip: Fake::over(path), fake_cuda: None }
    }

    fn set(self, name: &str, value: u64) -> Self {
        assert_eq!(self.hip.named("hip_on_cuda_set", name, value, 0), 0, "{name} is known");
        self
    }

    fn version(self, major: u64, minor: u64) -> Self {
        self.set("version", major * 10_000_000 + minor * 100_000 + 43_482)
    }

    /// Nothing was done that the real driver would refuse or let rot, and nothing lives.
    fn clean(&self) {
        let Some(cuda) = &self.fake_cuda else { return };
        let breach = cuda.text("fake_cuda_last_breach");
        assert_eq!(cuda.number("fake_cuda_breaches", 0), 0, "{breach}");
        assert_eq!(cuda.number("fake_cuda_live", 0), 0, "something still lives");
    }
}

/// The driver is what it is said to be, and conforms with and without its kernels, as old and new releases of HIP.
fn conforms_in_every_form(stand: &dyn Fn() -> Stand) {
    for (major, minor, rtc) in [(7, 14, 1), (7, 14, 0), (6, 4, 1)] {
        let stand = stand().version(major, minor).set("rtc", rtc);
        let driver = stand.hip.driver();
        let info = driver.device_info(FIRST).expect("a device");
        println!("{}: HIP {} {}", info.name, driver.version(), driver.architecture(FIRST).expect("a device"));
        assert!(info.name.contains("HIP on CUDA") && info.bandwidth > 0, "{info:?}");
        assert!(info.capabilities.has(Capabilities::VIRTUAL_MEMORY.with(Capabilities::SHARING)));
        assert_eq!(info.capabilities.has(Capabilities::JOINT_COPIES), rtc == 1);
        assert!(!driver.host_reaches(FIRST).expect("a device"));
        conforms(driver, EVENTS);
        stand.clean();
    }
}

/// Streams that write and wait for values are switched off for HIP, and work where they are switched on.
fn conforms_with_values_in_memory(stand: &Stand) {
    conforms(stand.hip.without("hip-stream-values"), (&[], ""));
    stand.clean();
}

/// A slice goes from one mapping into the next: by one launch, or cut where the mapping ends.
fn slices_go_across_mappings(stand: &Stand, launches: u32) {
    let driver = stand.hip.driver();
    let parts = Parts::new(&driver, 3).map(&driver);
    driver.set_access(parts.range, &[line(FIRST)]).expect("accessible");
    let size = granule(&driver).size().get();
    let at = |offset: u64| DevicePtr(parts.range.start().get() + offset);
    let (src, dst) = (at(size - 512), at(2 * size + 64));
    let bytes: Vec<u8> = (0..1024_u32).map(|i| (i * 7 + 1) as u8).collect();
    stand.hip.write(FIRST, src, &bytes[..512]);
    stand.hip.write(FIRST, at(size), &bytes[512..]);
    let stream = driver.streams().create(FIRST).expect("a stream");
    let slices = [CopySlice { dst, src, bytes: 1024 }, CopySlice { dst: at(64), src: at(size), bytes: 8 }];
    assert_eq!(driver.copy(FIRST, stream, &slices).expect("enqueued"), launches);
    driver.streams().synchronize(stream).expect("copied");
    assert_eq!(stand.hip.read(FIRST, dst, 1024), bytes);
    driver.streams().destroy(stream).expect("destroyed");
    // A block moves behind an address, and its bytes with it.
    driver.unmap(parts.parts[0]).expect("unmapped");
    driver.unmap(parts.parts[2]).expect("unmapped");
    driver.map(parts.parts[0], parts.blocks[2]).expect("mapped");
    driver.map(parts.parts[2], parts.blocks[0]).expect("mapped");
    driver.set_access(parts.range, &[line(FIRST)]).expect("accessible");
    assert_eq!(stand.hip.read(FIRST, at(64), 1024), bytes);
    copy(&driver, FIRST, at(2 * size), at(64), 1024);
    assert_eq!(stand.hip.read(FIRST, at(2 * size), 1024), bytes);
    parts.end(&driver);
    drop(driver);
    stand.clean();
}

/// A device that is not there is told, and by NVIDIA's number, which is AMD's.
fn absent(stand: &Stand, code: i64) {
    let error = stand.hip.open(&[]).expect_err("absent");
    assert_eq!((error.kind, error.native.map(|n| n.code)), (Kind::NoDevice, Some(code)), "{error}");
}

#[test]
fn on_the_fake_the_driver_conforms() {
    let _alone = alone();
    conforms_in_every_form(&|| Stand::on_the_fake("conforms"));
    conforms_with_values_in_memory(&Stand::on_the_fake("values"));
}

#[test]
fn on_the_fake_slices_go_across_mappings() {
    let _alone = alone();
    slices_go_across_mappings(&Stand::on_the_fake("across"), 1);
    slices_go_across_mappings(&Stand::on_the_fake("across-plain").set("rtc", 0), 3);
}

#[test]
fn without_a_driver_below_there_is_no_device() {
    let path = c"/nowhere/libcuda.so.1";
    absent(&Stand::on_the_fake("nowhere").set("library", path.as_ptr() as u64), 100);
    let stand = Stand::on_the_fake("init");
    stand.fake_cuda.as_ref().expect("a fake").named("fake_cuda_set", "FAKE_CUDA_INIT", 101, 0);
    absent(&stand, 101);
}

/// The same on this machine's GPU; skipped visibly where there is none.
#[test]
fn on_the_gpu_the_driver_conforms() {
    let _alone = alone();
    let stand = Stand::on_the_gpu();
    if let Err(error) = HipDriver::open(Some(&stand.hip.path), &[]) {
        println!("skipped: {error}");
        assert!(
            std::env::var_os("GVMM_NO_SKIP").is_none_or(|v| v != "1"),
            "GVMM_NO_SKIP=1 and skipped: {error}"
        );
        assert!(matches!(kind(Err::<(), _>(error)), Some(Kind::NoDevice | Kind::DriverTooOld)), "{error}");
        return;
    }
    conforms_in_every_form(&Stand::on_the_gpu);
    conforms_with_values_in_memory(&Stand::on_the_gpu().set("rtc", 1).version(7, 14));
    slices_go_across_mappings(&Stand::on_the_gpu(), 1);
    slices_go_across_mappings(&Stand::on_the_gpu().set("rtc", 0), 3);
}
