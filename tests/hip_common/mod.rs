//! The fake HIP library, and a driver over it, for the tests of the HIP driver.
#![allow(
    unsafe_code,
    reason = "calls the library as a framework in the same process would, and the fake's own"
)]
#![allow(dead_code, reason = "each test program uses its part")]

use gvmm::driver::hip::HipDriver;
use gvmm::driver::testing::conformance::{self, Outcome, Staged};
use gvmm::driver::{Access, AccessMode, CopySlice, CreateOptions, Driver, NativeBlock, Ordinal, Stream};
use gvmm::error::{Error, Kind};
use gvmm::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Once};

pub(crate) const FIRST: Ordinal = Ordinal(0);
pub(crate) const SECOND: Ordinal = Ordinal(1);
pub(crate) const RW: AccessMode = AccessMode::READ_WRITE;

/// What timelines of events cannot do.
pub(crate) const EVENTS: (&[&str], &str) = (
    &[
        "a stream waits for another one's value",
        "a stream that waits holds up no other",
        "one value lets several streams go",
        "a timeline with a pending write is in use",
    ],
    "a stream can wait only for a value whose write is enqueued already",
);

/// A fake library of a test's own, with its own state.
pub(crate) struct Fake {
    pub(crate) path: PathBuf,
    handle: *mut c_void,
}

// SAFETY: the handle is only given to dlsym.
unsafe impl Send for Fake {}
// SAFETY: as above.
unsafe impl Sync for Fake {}

fn open(path: &Path) -> *mut c_void {
    let path = CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
    // SAFETY: a path that ends in a zero byte.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{path:?} opens");
    handle
}

impl Fake {
    /// Builds it under `name`; `options` are the compiler's.
    pub(crate) fn build(name: &str, options: &[&str]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let this = std::env::current_exe().expect("this program");
        let program = this.file_stem().expect("a name").to_string_lossy().into_owned();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(format!("libamdhip64-{name}.so"));
        let compile = |to: &Path| {
            let status = Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-g", "-Wall", "-pthread", "-o"])
                .arg(to)
                .args(options)
                .arg(root.join("ffi_tests/fakes/fake_hip.c"))
                .status()
                .expect("a C compiler");
            assert!(status.success(), "the fake compiles");
        };
        if options.is_empty() {
            // A copy is a library of its own, with its own state.
            static BASE: Once = Once::new();
            let base = folder.join("base.so");
            BASE.call_once(|| compile(&base));
            std::fs::copy(base, &path).expect("copied");
        } else {
            compile(&path);
        }
        Self::over(path)
    }

    /// A library that is there.
    pub(crate) fn over(path: PathBuf) -> Self {
        Self { handle: open(&path), path }
    }

    pub(crate) fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("no zero byte");
        // SAFETY: the handle is open for ever.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is there");
        address
    }

    /// Calls a function of up to four words; those that are too many are ignored by the C convention.
    pub(crate) fn call(&self, name: &str, words: [u64; 4]) -> i32 {
        type Function = unsafe extern "C" fn(u64, u64, u64, u64) -> i32;
        // SAFETY: every function called by this takes integers and pointers only.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.symbol(name)) };
        // SAFETY: the callers pass what the function asks for.
        unsafe { function(words[0], words[1], words[2], words[3]) }
    }

    pub(crate) fn number(&self, name: &str, word: u64) -> u64 {
        type Function = unsafe extern "C" fn(u64) -> u64;
        // SAFETY: the fake's functions that are asked for take a word or nothing and give a number.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.symbol(name)) };
        // SAFETY: as above.
        unsafe { function(word) }
    }

    pub(crate) fn named(&self, function: &str, name: &str, a: u64, b: u64) -> u64 {
        let name = CString::new(name).expect("no zero byte");
        self.call(function, [name.as_ptr() as u64, a, b, 0]) as u64
    }

    pub(crate) fn set(self, setting: &str, value: u64) -> Self {
        self.named("fake_hip_set", setting, value, 0);
        self
    }

    /// HIP of a version, such as 7.2.
    pub(crate) fn version(self, major: u64, minor: u64) -> Self {
        self.set("FAKE_HIP_VERSION", major * 10_000_000 + minor * 100_000 + 43_482)
    }

    pub(crate) fn arch(self, name: &str) -> Self {
        self.named("fake_hip_arch", name, 0, 0);
        self
    }

    pub(crate) fn with(self, fault: &str) -> Self {
        self.show(fault, true);
        self
    }

    pub(crate) fn show(&self, fault: &str, on: bool) {
        assert_eq!(self.named("fake_hip_fault", fault, u64::from(on), 0), 0, "{fault} is known");
    }

    pub(crate) fn fail(&self, function: &str, nth: u64, status: i32) {
        self.named("fake_hip_fail", function, nth, u64::from(status.unsigned_abs()));
    }

    pub(crate) fn calls(&self, function: &str) -> u64 {
        let name = CString::new(function).expect("no zero byte");
        self.number("fake_hip_calls", name.as_ptr() as u64)
    }

    pub(crate) fn open(&self, forced: &[(&str, bool)]) -> Result<HipDriver, Error> {
        HipDriver::open(Some(&self.path), forced)
    }

    pub(crate) fn driver(&self) -> HipDriver {
        self.open(&[]).expect("the fake opens")
    }

    /// The driver without one quirk.
    pub(crate) fn without(&self, quirk: &str) -> HipDriver {
        self.open(&[(quirk, false)]).expect("the fake opens")
    }

    /// What one of the library's own functions says.
    pub(crate) fn text(&self, function: &str) -> String {
        let text = self.number(function, 0) as *const c_char;
        // SAFETY: a text of the library's that ends in a zero byte.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    pub(crate) fn last_breach(&self) -> String {
        self.text("fake_hip_last_breach")
    }

    pub(crate) fn breaches(&self) -> u64 {
        self.number("fake_hip_breaches", 0)
    }

    /// Nothing was done that the real runtime would refuse, crash on or let rot, and nothing lives.
    pub(crate) fn clean(&self) {
        assert_eq!(self.breaches(), 0, "{}", self.last_breach());
        assert_eq!(self.number("fake_hip_live", 0), 0, "something still lives");
    }

    pub(crate) fn write(&self, device: Ordinal, to: DevicePtr, bytes: &[u8]) {
        self.call("hipSetDevice", [u64::from(device.0), 0, 0, 0]);
        let copied = self.call("hipMemcpy", [to.get(), bytes.as_ptr() as u64, bytes.len() as u64, 4]);
        assert_eq!(copied, 0, "the device writes there");
        self.call("hipSetDevice", [0; 4]);
    }

    pub(crate) fn read(&self, device: Ordinal, from: DevicePtr, size: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; size];
        self.call("hipSetDevice", [u64::from(device.0), 0, 0, 0]);
        let copied = self.call("hipMemcpy", [bytes.as_mut_ptr() as u64, from.get(), size as u64, 4]);
        assert_eq!(copied, 0, "the device reads there");
        self.call("hipSetDevice", [0; 4]);
        bytes
    }

    /// A stream of a framework's own.
    pub(crate) fn stream(&self, device: Ordinal) -> Stream {
        let mut stream = 0_u64;
        self.call("hipSetDevice", [u64::from(device.0), 0, 0, 0]);
        assert_eq!(self.call("hipStreamCreateWithFlags", [&raw mut stream as u64, 1, 0, 0]), 0);
        self.call("hipSetDevice", [0; 4]);
        Stream(stream)
    }
}

/// The number at a host address that a counter gave, which lives.
pub(crate) fn counted(address: u64) -> u64 {
    // SAFETY: it stands there until the counter is destroyed, and is written whole.
    let value = unsafe { std::sync::atomic::AtomicU64::from_ptr(address as *mut u64) };
    value.load(std::sync::atomic::Ordering::Acquire)
}

pub(crate) fn granule(driver: &dyn Driver) -> Granularity {
    driver.granularity(FIRST, ByteSize(1)).expect("a granule")
}

pub(crate) fn line(device: Ordinal) -> Access {
    Access { device, mode: RW }
}

/// A range of some granules, with as many blocks to map there.
pub(crate) struct Parts {
    pub(crate) range: DeviceRange,
    pub(crate) parts: Vec<DeviceRange>,
    pub(crate) blocks: Vec<NativeBlock>,
}

impl Parts {
    pub(crate) fn new(driver: &dyn Driver, count: u64) -> Self {
        let granule = granule(driver);
        let size = granule.size();
        let range = driver.reserve(FIRST, ByteSize(size.get() * count), granule).expect("a range");
        let part = |i| range.slice(ByteSize(i * size.get()), size).expect("a part");
        let block = |_| driver.create(FIRST, size, CreateOptions::default()).expect("a block");
        Self { range, parts: (0..count).map(part).collect(), blocks: (0..count).map(block).collect() }
    }

    pub(crate) fn map(self, driver: &dyn Driver) -> Self {
        for (part, block) in self.parts.iter().zip(&self.blocks) {
            driver.map(*part, *block).expect("mapped");
        }
        self
    }

    pub(crate) fn unmap(self, driver: &dyn Driver) -> Self {
        self.parts.iter().for_each(|part| driver.unmap(*part).expect("unmapped"));
        self
    }

    pub(crate) fn release(self, driver: &dyn Driver) -> DeviceRange {
        self.blocks.iter().for_each(|block| driver.release(*block).expect("released"));
        self.range
    }

    /// All of it is given back.
    pub(crate) fn end(self, driver: &dyn Driver) {
        let range = self.unmap(driver).release(driver);
        driver.free(range).expect("freed");
    }
}

/// One slice copied on a stream of ours, and waited for.
pub(crate) fn copy(driver: &dyn Driver, device: Ordinal, dst: DevicePtr, src: DevicePtr, bytes: u64) {
    let stream = driver.streams().create(device).expect("a stream");
    driver.copy(device, stream, &[CopySlice { dst, src, bytes }]).expect("enqueued");
    driver.streams().synchronize(stream).expect("copied");
    driver.streams().destroy(stream).expect("destroyed");
}

/// Bytes by the vendor's own copies, and access as the vendor's library knows it.
fn staged(library: &Path) -> Staged {
    let fake = Arc::new(Fake { handle: open(library), path: library.to_owned() });
    let (reader, asker) = (fake.clone(), fake.clone());
    let write = move |device: Ordinal, to: DevicePtr, bytes: &[u8]| {
        fake.write(device, to, bytes);
        true
    };
    let read = move |device: Ordinal, from: DevicePtr, bytes: &mut [u8]| {
        bytes.copy_from_slice(&reader.read(device, from, bytes.len()));
        true
    };
    let access = move |device: Ordinal, at: DevicePtr| {
        // hipMemLocation: on a device (1), its number.
        let (mut flags, location) = (0_u64, [1_u32, device.0]);
        let words = [&raw mut flags as u64, location.as_ptr() as u64, at.get(), 0];
        let status = asker.call("hipMemGetAccess", words);
        (status == 0 && flags & 1 != 0, status == 0 && flags & 2 != 0)
    };
    Staged { write: Arc::new(write), read: Arc::new(read), access: Arc::new(access) }
}

/// Makes every conformance check on every device. Those in `lacking` must fail for the reason given.
pub(crate) fn conforms(driver: HipDriver, lacking: (&[&str], &str)) {
    let staged = staged(driver.library());
    let driver: Arc<dyn Driver> = Arc::new(driver);
    let mut failed = Vec::new();
    for device in (0..driver.device_count()).map(Ordinal) {
        let mut passed = 0;
        for check in conformance::checks() {
            let name = check.name;
            match check.run_staged(&driver, device, Some(&staged)) {
                Outcome::Passed => passed += 1,
                Outcome::Skipped(reason) => println!("skipped: {name}: {reason}"),
                Outcome::Failed(mismatch) if lacking.0.contains(&name) => {
                    assert!(mismatch.seen.contains(lacking.1), "{name}: {mismatch}");
                    println!("not here: {name}: {}", lacking.1);
                }
                Outcome::Failed(mismatch) => failed.push(format!("device {}: {name}: {mismatch}", device.0)),
            }
        }
        println!("device {}: {passed} conformance checks passed", device.0);
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

pub(crate) fn kind<T>(result: Result<T, Error>) -> Option<Kind> {
    result.err().map(|e| e.kind)
}
