//! One door for every call that is answered.
#![allow(unsafe_code, reason = "errno, and the vendor's functions that are not in the table")]

use crate::call::{Args, Call, Vendor};
use crate::care::{self, Careful};
use crate::driver::DriverKind;
use crate::driver::quirks::{self, Subject};
use crate::life::{self, Part};
use crate::note::{self, Level};
use crate::real::{self, Real};
use crate::totals;
use crate::trace::{self, Answer};
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// `CUDA_ERROR_NOT_FOUND`, `hipErrorNotFound`.
const NOT_FOUND: i32 = 500;

/// Passes a call on, neither counted nor timed.
pub fn pass(vendor: &'static Vendor, call: Call, args: Args) -> i32 {
    real::of(vendor, call).map_or_else(|| missing(vendor), |real| real.call(args))
}

fn missing(vendor: &'static Vendor) -> i32 {
    static SAID: AtomicBool = AtomicBool::new(false);
    note::once(
        &SAID,
        vendor,
        "the vendor's library is not there, or lacks what was called: answered with 500",
    );
    NOT_FOUND
}

/// Answers a call of the program's.
pub fn call(vendor: &'static Vendor, call: Call, args: Args) -> i32 {
    let Some(real) = real::of(vendor, call) else { return missing(vendor) };
    let part = life::part(vendor);
    if part == Part::Out || (call.is_launch() && !trace::wanted()) {
        return real.call(args);
    }
    let mut behind = Behind { vendor, calls: 0, own: (call, real) };
    let began = Instant::now();
    let status = match careful(vendor, part) {
        Some(careful) => careful.answer(&mut behind, call, args),
        None => care::Vendor::call(&mut behind, call, args),
    };
    let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    totals::add(call, status, behind.calls, ns);
    if trace::wanted() {
        let answer = Answer { call, args, status, began, ns, vendor_calls: behind.calls };
        keeping_errno(|| trace::record(vendor, &answer));
    }
    status
}

fn keeping_errno(act: impl FnOnce()) {
    // SAFETY: this thread's own errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { place.read() };
    act();
    // SAFETY: as above.
    unsafe { place.write(before) };
}

/// The vendor behind the door, with a count of its calls.
struct Behind {
    vendor: &'static Vendor,
    calls: u64,
    own: (Call, Real),
}

/// A thread's last error, where the vendor keeps one: the function that looks at it, and the one that takes it.
fn last_error(vendor: &Vendor) -> Option<(Real, Real)> {
    static FOUND: OnceLock<[usize; 2]> = OnceLock::new();
    if vendor.kind != DriverKind::HIP {
        return None;
    }
    let find = || [c"hipPeekAtLastError", c"hipGetLastError"].map(|name| real::named(vendor, name) as usize);
    let [look, take] = *FOUND.get_or_init(find);
    Some((Real::at(look as *mut c_void)?, Real::at(take as *mut c_void)?))
}

impl care::Vendor for Behind {
    fn call(&mut self, call: Call, args: Args) -> i32 {
        let real = if call == self.own.0 { Some(self.own.1) } else { real::of(self.vendor, call) };
        self.calls += 1;
        real.map_or(NOT_FOUND, |real| real.call(args))
    }

    fn error_waits(&mut self) -> bool {
        last_error(self.vendor).is_some_and(|(look, _)| look.call([0; 6]) != 0)
    }

    fn take_error(&mut self) {
        if let Some((_, take)) = last_error(self.vendor) {
            take.call([0; 6]);
        }
    }

    fn rest(&mut self, tries: u32) {
        std::thread::sleep(Duration::from_micros(100) * tries);
    }
}

/// The books, where care is asked for and the driver is one that is known.
fn careful(vendor: &'static Vendor, part: Part) -> Option<&'static Careful> {
    static CAREFUL: OnceLock<Option<Careful>> = OnceLock::new();
    if part != Part::On {
        return None;
    }
    CAREFUL.get_or_init(|| begin(vendor)).as_ref()
}

fn begin(vendor: &'static Vendor) -> Option<Careful> {
    let mut version = 0_i32;
    let asked = real::Real::at(real::named(vendor, vendor.version));
    let status = asked.map_or(NOT_FOUND, |real| real.call([(&raw mut version) as u64, 0, 0, 0, 0, 0]));
    if status != 0 || !vendor.known.contains(&version) {
        let text = format!("driver version {version} is not one that is known: calls are observed only");
        note::say(vendor, Level::Warn, &text);
        return None;
    }
    let text = std::env::var("GVMM_QUIRKS").unwrap_or_default();
    let forced: Vec<(&str, bool)> = text.split(',').filter_map(switch).collect();
    let version = u32::try_from(version).unwrap_or(0);
    Some(Careful::new(quirks::care(&Subject { kind: vendor.kind, version, arch: "" }, &forced)))
}

fn switch(word: &str) -> Option<(&str, bool)> {
    let word = word.trim();
    word.strip_prefix('+').map(|name| (name, true)).or_else(|| Some((word.strip_prefix('-')?, false)))
}
