//! A fake Level Zero loader of a test's own, and checks that several tests make.
#![allow(unsafe_code, reason = "calls the fake's own functions")]
#![allow(dead_code, reason = "each test program uses its part")]

use gvmm::driver::level_zero::LevelZeroDriver;
use gvmm::driver::testing::conformance::{self, Outcome, Staged};
use gvmm::driver::{Access, AccessMode, CreateOptions, Driver, NativeBlock, Ordinal, Stream};
use gvmm::error::Error;
use gvmm::units::{ByteSize, DevicePtr, DeviceRange};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Once};

pub(crate) const RW: AccessMode = AccessMode::READ_WRITE;
pub(crate) const SMALL: u64 = 64 << 10;
pub(crate) const LARGE: u64 = 2 << 20;
pub(crate) const ZERO: Ordinal = Ordinal(0);

/// A fake library of a test's own, with its own state.
pub(crate) struct Fake {
    pub(crate) path: PathBuf,
    handle: *mut c_void,
}

// SAFETY: the handle is only given to dlsym.
unsafe impl Send for Fake {}
// SAFETY: as above.
unsafe impl Sync for Fake {}

fn compile(to: &Path, options: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("ffi_tests/fakes/fake_ze.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    let status = cc.arg(to).args(options).arg(source).status().expect("a C compiler");
    assert!(status.success(), "the fake compiles");
}

impl Fake {
    /// Builds it under `name`; `options` are the compiler's.
    pub(crate) fn build(name: &str, options: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("libze-{name}.so"));
        if options.is_empty() {
            // A copy is a library of its own, with its own state. Test programs may run at the same time.
            static BASE: Once = Once::new();
            let base = folder.join(format!("libze-base-{}.so", std::process::id()));
            BASE.call_once(|| compile(&base, &[]));
            std::fs::copy(base, &path).expect("copied");
        } else {
            compile(&path, options);
        }
        let text = CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
        // SAFETY: a path that ends in a zero byte.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} opens", path.display());
        Self { path, handle }
    }

    /// Calls a function of the fake's, or of the loader's as a framework would, with up to six words; those that
    /// are too many are ignored by the C convention.
    pub(crate) fn call(&self, name: &str, words: &[u64]) -> u64 {
        type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;
        let symbol = CString::new(name).expect("no zero byte");
        // SAFETY: the handle is open for ever.
        let address = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        assert!(!address.is_null(), "{name} is there");
        // SAFETY: every function called by this takes integers and pointers only, and gives a number.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
        let word = |i: usize| words.get(i).copied().unwrap_or(0);
        // SAFETY: the callers pass what the function asks for.
        unsafe { function(word(0), word(1), word(2), word(3), word(4), word(5)) }
    }

    /// The same for a `ze_result_t`, which must be success.
    pub(crate) fn must(&self, name: &str, words: &[u64]) {
        assert_eq!(self.call(name, words) as u32, 0, "{name}");
    }

    pub(crate) fn set(self, setting: &str, value: u64) -> Self {
        self.change(setting, value);
        self
    }

    pub(crate) fn change(&self, setting: &str, value: u64) {
        let name = CString::new(setting).expect("no zero byte");
        self.call("fake_ze_set", &[name.as_ptr() as u64, value]);
    }

    /// The n-th call from now answers `status`; 0: it says success and does nothing.
    pub(crate) fn fail(&self, function: &str, nth: u64, status: u32) {
        let name = CString::new(function).expect("no zero byte");
        self.call("fake_ze_fail", &[name.as_ptr() as u64, nth, u64::from(status)]);
    }

    pub(crate) fn calls(&self, function: &str) -> u64 {
        let name = CString::new(function).expect("no zero byte");
        self.call("fake_ze_calls", &[name.as_ptr() as u64])
    }

    pub(crate) fn hold(&self, on: bool) {
        self.call("fake_ze_hold", &[u64::from(on)]);
    }

    pub(crate) fn open(&self) -> Result<LevelZeroDriver, Error> {
        LevelZeroDriver::open(Some(&self.path))
    }

    pub(crate) fn driver(&self) -> LevelZeroDriver {
        self.open().expect("the fake opens")
    }

    pub(crate) fn no_breach(&self) {
        let text = self.call("fake_ze_last_breach", &[]) as *const c_char;
        // SAFETY: a text of the fake's that ends in a zero byte.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        assert_eq!(self.call("fake_ze_breaches", &[]), 0, "{text}");
    }

    /// The same, but for the breach named, made once.
    pub(crate) fn no_breach_but(&self, expected: &str) {
        let text = self.call("fake_ze_last_breach", &[]) as *const c_char;
        // SAFETY: a text of the fake's that ends in a zero byte.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        assert!(self.call("fake_ze_breaches", &[]) == 1 && text.contains(expected), "{text}");
    }

    /// Nothing was done that the real driver would refuse or let rot, and nothing lives.
    pub(crate) fn clean(&self) {
        self.no_breach();
        assert_eq!(self.call("fake_ze_live", &[]), 0, "something still lives");
    }

    /// Writes bytes that a device (its native context and handle) may write; false where it may not.
    pub(crate) fn poke(&self, native: (u64, u64), to: DevicePtr, bytes: &[u8]) -> bool {
        let words = [native.0, native.1, to.get(), bytes.as_ptr() as u64, bytes.len() as u64];
        self.call("fake_ze_poke", &words) as u32 == 1
    }

    /// Bytes that a device may read, or none where it may not.
    pub(crate) fn peek(&self, native: (u64, u64), from: DevicePtr, size: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0_u8; size];
        let words = [native.0, native.1, bytes.as_mut_ptr() as u64, from.get(), size as u64];
        (self.call("fake_ze_peek", &words) as u32 == 1).then_some(bytes)
    }

    /// What a device may do at an address: read, and write.
    fn allows(&self, native: (u64, u64), at: DevicePtr) -> (bool, bool) {
        match self.peek(native, at, 1) {
            Some(byte) => (true, self.poke(native, at, &byte)),
            None => (false, false),
        }
    }

    // As a framework would.

    pub(crate) fn device(&self) -> u64 {
        self.must("zeInit", &[1]);
        let (mut count, mut driver, mut device) = (1_u32, 0_u64, 0_u64);
        self.must("zeDriverGet", &[&raw mut count as u64, &raw mut driver as u64]);
        self.must("zeDeviceGet", &[driver, &raw mut count as u64, &raw mut device as u64]);
        device
    }

    pub(crate) fn context(&self) -> u64 {
        self.must("zeInit", &[1]);
        let (mut count, mut driver, mut context, desc) = (1_u32, 0_u64, 0_u64, [0xd_u64, 0, 0]);
        self.must("zeDriverGet", &[&raw mut count as u64, &raw mut driver as u64]);
        self.must("zeContextCreate", &[driver, desc.as_ptr() as u64, &raw mut context as u64]);
        context
    }

    /// An immediate list, in order, of the group that computes (1), or a queue.
    pub(crate) fn list(&self, function: &str, context: u64, device: u64) -> u64 {
        let (desc, mut list) = ([0xe_u32, 0, 0, 0, 1, 0, 2, 2, 0, 0], 0_u64);
        self.must(function, &[context, device, desc.as_ptr() as u64, &raw mut list as u64]);
        list
    }
}

/// Pseudo-random bytes.
pub(crate) fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..size).map(|_| step()).collect()
}

/// What this driver does not do, and why: waits that come before their writes, always.
pub(crate) const LATE: (&[&str], &str) = (
    &[
        "a stream waits for another one's value",
        "a stream that waits holds up no other",
        "one value lets several streams go",
        "a timeline with a pending write is in use",
    ],
    "a stream can wait only for a value whose write is enqueued already",
);

/// How the checks look at bytes: as the device would.
fn staged(fake: &Arc<Fake>, driver: &LevelZeroDriver) -> Staged {
    let natives: Vec<_> =
        (0..driver.device_count()).map(|i| driver.native(Ordinal(i)).expect("a device")).collect();
    let of = move |device: Ordinal| natives[device.0 as usize];
    let (writes, reads, asks) = (Arc::clone(fake), Arc::clone(fake), Arc::clone(fake));
    let (to, from) = (of.clone(), of.clone());
    Staged {
        write: Arc::new(move |device, at, bytes| writes.poke(to(device), at, bytes)),
        read: Arc::new(move |device, at, bytes| match reads.peek(from(device), at, bytes.len()) {
            Some(seen) => {
                bytes.copy_from_slice(&seen);
                true
            }
            None => false,
        }),
        access: Arc::new(move |device, at| asks.allows(of(device), at)),
    }
}

/// Makes every conformance check on every device, and gives how many passed. Those in `lacking` must fail for the
/// reason given beside them.
pub(crate) fn conforms(fake: &Arc<Fake>, lacking: &[(&[&str], &str)]) -> usize {
    let own = Arc::new(fake.driver());
    let staged = staged(fake, &own);
    let driver: Arc<dyn Driver> = own;
    let (mut failed, mut passed) = (Vec::new(), 0);
    for device in (0..driver.device_count()).map(Ordinal) {
        for check in conformance::checks() {
            let name = check.name;
            let reason = lacking.iter().find(|(names, _)| names.contains(&name)).map(|(_, reason)| *reason);
            match (check.run_staged(&driver, device, Some(&staged)), reason) {
                (Outcome::Passed, None) => passed += 1,
                (Outcome::Passed, Some(_)) => failed.push(format!("{name}: passes after all")),
                (Outcome::Skipped(reason), _) => println!("skipped: {name}: {reason}"),
                (Outcome::Failed(mismatch), Some(reason)) if mismatch.seen.contains(reason) => {
                    println!("not here: {name}: {reason}");
                }
                (Outcome::Failed(mismatch), _) => failed.push(format!("{name}: {mismatch}")),
            }
        }
    }
    println!("{passed} conformance checks passed");
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
    passed
}

/// A block of some bytes, mapped in a range of its own for its device.
pub(crate) fn mapped(driver: &dyn Driver, size: ByteSize) -> (DeviceRange, NativeBlock) {
    let granule = driver.granularity(ZERO, size).expect("a granule");
    let range = driver.reserve(ZERO, size, granule).expect("a range");
    let block = driver.create(ZERO, size, CreateOptions::default()).expect("a block");
    driver.map(range, block).expect("mapped");
    driver.set_access(range, &[Access { device: ZERO, mode: RW }]).expect("accessible");
    (range, block)
}

pub(crate) fn unmapped(driver: &dyn Driver, range: DeviceRange, block: NativeBlock) {
    driver.unmap(range).expect("unmapped");
    driver.release(block).expect("released");
    driver.free(range).expect("freed");
}

pub(crate) fn stream(driver: &dyn Driver) -> Stream {
    driver.streams().create(ZERO).expect("a stream")
}
