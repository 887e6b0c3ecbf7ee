//! Checks of the CUDA driver beyond the conformance suite, for a real library and for the fake one alike.
#![allow(unsafe_code, reason = "calls the driver library as a framework in the same process would")]
#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod contexts;
pub(crate) mod copies;
pub(crate) mod fake;
pub(crate) mod memory;
pub(crate) mod steps;
pub(crate) mod timelines;

use gvmm::driver::cuda::CudaDriver;
use gvmm::driver::testing::conformance::{self, Outcome, Staged};
use gvmm::driver::{Access, AccessMode, Capabilities, CreateOptions, Driver, NativeBlock, Ordinal, Stream};
use gvmm::units::{ByteSize, DevicePtr, DeviceRange};
use std::ffi::{CString, c_void};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub(crate) const RW: AccessMode = AccessMode::READ_WRITE;

/// The driver library as somebody else in this process uses it.
pub(crate) struct Native(*mut c_void);

// SAFETY: the handle is only given to dlsym.
unsafe impl Send for Native {}
// SAFETY: as above.
unsafe impl Sync for Native {}

impl Native {
    pub(crate) fn open(path: &Path) -> Self {
        let path = CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
        // SAFETY: a path that ends in a zero byte.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?} opens");
        Self(handle)
    }

    pub(crate) fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("no zero byte");
        // SAFETY: the handle is open for ever.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is there");
        address
    }

    /// Calls a function of up to three words; those that are too many are ignored by the C convention.
    pub(crate) fn call(&self, name: &str, a: u64, b: u64, c: u64) -> i32 {
        type Function = unsafe extern "C" fn(u64, u64, u64) -> i32;
        // SAFETY: every function called by this takes integers and pointers only.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.symbol(name)) };
        // SAFETY: the callers below pass what cuda.h asks for.
        unsafe { function(a, b, c) }
    }

    /// Calls a function of up to nine words, or gives none where the library lacks it.
    pub(crate) fn call_long(&self, name: &str, a: [u64; 9]) -> Option<i32> {
        type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;
        let symbol = CString::new(name).expect("no zero byte");
        // SAFETY: the handle is open for ever.
        let address = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        if address.is_null() {
            return None;
        }
        // SAFETY: as for `call`.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
        // SAFETY: as for `call`.
        Some(unsafe { function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]) })
    }

    /// Nanoseconds of such a call, as a mean.
    pub(crate) fn nanoseconds(&self, name: &str, a: u64, b: u64) -> f64 {
        const ROUNDS: u32 = 20_000;
        type Function = unsafe extern "C" fn(u64, u64) -> i32;
        // SAFETY: every function called by this takes two integers or pointers at most.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.symbol(name)) };
        let start = Instant::now();
        for _ in 0..ROUNDS {
            // SAFETY: the callers pass what cuda.h asks for.
            assert_eq!(unsafe { function(a, b) }, 0, "{name}");
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
    }

    pub(crate) fn must(&self, name: &str, a: u64, b: u64, c: u64) {
        assert_eq!(self.call(name, a, b, c), 0, "{name}");
    }

    pub(crate) fn current(&self) -> u64 {
        let mut context = 0_u64;
        self.must("cuCtxGetCurrent", &raw mut context as u64, 0, 0);
        context
    }

    /// Makes the primary context of a device current on this thread.
    pub(crate) fn enter(&self, device: u32) -> u64 {
        let mut context = 0_u64;
        self.must("cuDevicePrimaryCtxRetain", &raw mut context as u64, u64::from(device), 0);
        self.must("cuCtxPushCurrent_v2", context, 0, 0);
        context
    }

    pub(crate) fn leave(&self) {
        let mut context = 0_u64;
        self.must("cuCtxPopCurrent_v2", &raw mut context as u64, 0, 0);
    }

    /// A context of a framework's own, current on this thread.
    pub(crate) fn own_context(&self, device: u32) -> u64 {
        let mut context = 0_u64;
        self.must("cuCtxCreate_v2", &raw mut context as u64, 0, u64::from(device));
        context
    }

    pub(crate) fn stream(&self) -> Stream {
        let mut stream = 0_u64;
        self.must("cuStreamCreate", &raw mut stream as u64, 1, 0);
        Stream(stream)
    }

    pub(crate) fn write(&self, device: u32, to: DevicePtr, bytes: &[u8]) {
        self.enter(device);
        self.must("cuMemcpyHtoD_v2", to.get(), bytes.as_ptr() as u64, bytes.len() as u64);
        // From pageable memory it may return before the last bytes are there.
        self.must("cuStreamSynchronize", 0, 0, 0);
        self.leave();
    }

    pub(crate) fn read(&self, device: u32, from: DevicePtr, size: usize) -> Vec<u8> {
        let mut bytes = vec![0_u8; size];
        self.enter(device);
        self.must("cuMemcpyDtoH_v2", bytes.as_mut_ptr() as u64, from.get(), size as u64);
        self.leave();
        bytes
    }
}

/// The number at a host address that a counter gave, which lives.
pub(crate) fn counted(address: u64) -> u64 {
    // SAFETY: it stands there until the counter is destroyed, and is written whole.
    let value = unsafe { std::sync::atomic::AtomicU64::from_ptr(address as *mut u64) };
    value.load(std::sync::atomic::Ordering::Acquire)
}

/// What every check gets.
pub(crate) struct Bench {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) native: Native,
    pub(crate) device: Ordinal,
}

impl Bench {
    pub(crate) fn new(driver: CudaDriver) -> Self {
        let native = Native::open(driver.library());
        Self { driver: Arc::new(driver), native, device: Ordinal(0) }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.driver.device_info(self.device).expect("a device").capabilities
    }

    pub(crate) fn granule(&self) -> u64 {
        self.driver.granularity(self.device, ByteSize(1)).expect("a granule").size().get()
    }

    pub(crate) fn stream(&self) -> Stream {
        self.driver.streams().create(self.device).expect("a stream")
    }

    pub(crate) fn wait(&self, stream: Stream) {
        self.driver.streams().synchronize(stream).expect("the stream works");
    }

    pub(crate) fn buffer(&self, bytes: &[u8]) -> DevicePtr {
        let at = self.driver.allocate(self.device, ByteSize(bytes.len() as u64)).expect("memory");
        self.native.write(self.device.0, at, bytes);
        at
    }

    pub(crate) fn give_back(&self, buffers: &[DevicePtr]) {
        for at in buffers {
            self.driver.deallocate(self.device, *at).expect("freed");
        }
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

/// Bytes by the vendor's own copies, and access as the vendor's driver knows it.
fn staged(library: &Path) -> Staged {
    let native = Arc::new(Native::open(library));
    let (reader, asker) = (native.clone(), native.clone());
    let write = move |device: Ordinal, to: DevicePtr, bytes: &[u8]| {
        native.write(device.0, to, bytes);
        true
    };
    let read = move |device: Ordinal, from: DevicePtr, bytes: &mut [u8]| {
        bytes.copy_from_slice(&reader.read(device.0, from, bytes.len()));
        true
    };
    let access = move |device: Ordinal, at: DevicePtr| {
        // CUmemLocation: on a device (1), its number.
        let (mut flags, location) = (0_u64, [1_u32, device.0]);
        let status = asker.call("cuMemGetAccess", &raw mut flags as u64, location.as_ptr() as u64, at.get());
        (status == 0 && flags & 1 != 0, status == 0 && flags & 2 != 0)
    };
    Staged { write: Arc::new(write), read: Arc::new(read), access: Arc::new(access) }
}

/// Makes every conformance check on every device. Those in `lacking` must fail for the reason given.
pub(crate) fn conforms(driver: CudaDriver, lacking: (&[&str], &str)) {
    let staged = staged(driver.library());
    let driver: &Arc<dyn Driver> = &(Arc::new(driver) as Arc<dyn Driver>);
    let mut failed = Vec::new();
    for device in (0..driver.device_count()).map(Ordinal) {
        let mut passed = 0;
        for check in conformance::checks() {
            // Named before it is made: a driver that crashes tells no more.
            let name = check.name;
            print!("device {}: {name} ", device.0);
            std::io::stdout().flush().expect("standard output");
            let start = Instant::now();
            let outcome = check.run_staged(driver, device, Some(&staged));
            println!("({} ms)", start.elapsed().as_millis());
            match outcome {
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

/// A block of some granules, mapped in a range of its own for its device.
pub(crate) fn mapped(bench: &Bench, granules: u64) -> (DeviceRange, NativeBlock) {
    let driver = &bench.driver;
    let granule = driver.granularity(bench.device, ByteSize(1)).expect("a granule");
    let size = ByteSize(granule.size().get() * granules);
    let range = driver.reserve(bench.device, size, granule).expect("a range");
    let block = driver.create(bench.device, size, CreateOptions::default()).expect("a block");
    driver.map(range, block).expect("mapped");
    driver.set_access(range, &[Access { device: bench.device, mode: RW }]).expect("accessible");
    (range, block)
}
