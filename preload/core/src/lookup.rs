//! Answers a program that looks functions up: by the vendor's own lookup, whose flags and status are the vendor's, and with
//! our address only where the vendor's own answer is the function that we stand in front of.
#![allow(unsafe_code, reason = "names from C")]

use crate::call::{Args, Call, TABLE, Vendor};
use crate::life::{self, Part};
use crate::{door, memory, real, trace};
use std::ffi::{CStr, CString, c_char, c_void};

/// Gives the address of our function for a call.
pub type Ours = fn(Call) -> *mut c_void;

/// The version from which CUDA's lookup of itself gives the one with a status.
const WITH_STATUS: u64 = 12_000;

/// `cuGetProcAddress`, `hipGetProcAddress`.
pub fn proc_address(vendor: &'static Vendor, ours: Ours, call: Call, args: Args) -> i32 {
    let status = door::pass(vendor, call, args);
    let [name, out, version, ..] = args;
    if status != 0 || name == 0 || life::part(vendor) == Part::Out {
        return status;
    }
    // SAFETY: a name that the vendor's lookup has just read.
    let name = unsafe { CStr::from_ptr(name as *const c_char) };
    let found = memory::word(out).unwrap_or(0) as *mut c_void;
    if let Some(call) = stands_for(vendor, name, found, version) {
        memory::set_word(out, ours(call) as u64);
    }
    status
}

/// What a lookup of ours by the loader finds: our function in place of the vendor's, or none.
pub fn by_loader(
    vendor: &'static Vendor,
    ours: Ours,
    name: &CStr,
    found: *mut c_void,
) -> Option<*mut c_void> {
    let call = real::call_named(vendor, name)?;
    let answered = life::part(vendor) != Part::Out
        && (!call.is_launch() || trace::wanted())
        && real::is_vendors(vendor, found)
        && real::learn(call, found);
    answered.then(|| ours(call))
}

/// The call for which the vendor's lookup gave an address.
fn stands_for(vendor: &'static Vendor, name: &CStr, found: *mut c_void, version: u64) -> Option<Call> {
    let is_hip = vendor.kind == crate::driver::DriverKind::HIP;
    let base = |call: Call| if is_hip { call.entry().hip } else { call.entry().base };
    let calls: Vec<Call> = TABLE.iter().map(|line| line.call).filter(|&call| base(call) == name).collect();
    if calls.is_empty() || found.is_null() || !real::is_vendors(vendor, found) {
        return None;
    }
    let exported = |call: &Call| real::named(vendor, vendor.symbol(*call));
    let same = calls.iter().copied().find(|call| exported(call) == found);
    let call = same.or_else(|| unlike(vendor, &calls, name, version))?;
    let known = real::learn(call, exported(&call)) && (!call.is_launch() || trace::wanted());
    known.then_some(call)
}

/// Where the lookup's address is not the exported one. A function of which there is a second version may be that: it is the
/// vendor's matter.
fn unlike(vendor: &Vendor, calls: &[Call], name: &CStr, version: u64) -> Option<Call> {
    if calls.contains(&Call::LookupStatus) {
        let with_status = version & u64::from(u32::MAX) >= WITH_STATUS;
        return Some(if with_status { Call::LookupStatus } else { Call::Lookup });
    }
    let second = CString::new([name.to_bytes(), b"_v2"].concat()).ok()?;
    match calls {
        [one] if real::named(vendor, &second).is_null() => Some(*one),
        _ => None,
    }
}

/// Puts the same table of exported functions into a vendor's library, with its start and its end.
///
/// The functions take all registers that integers are passed in, whatever the vendor's own take.
#[macro_export]
macro_rules! exports {
    ($vendor:path; calls { $($name:ident = $call:ident;)+ } lookups { $($lookup:ident = $how:ident;)+ }) => {
        $(
            #[doc = concat!("Stands in front of the vendor's `", stringify!($name), "`.")]
            // SAFETY: the vendor's name on purpose; it is what a preloaded library is for.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i32 {
                $crate::door::call(&$vendor, $crate::call::Call::$call, [a, b, c, d, e, f])
            }
        )+
        $(
            #[doc = concat!("Stands in front of the vendor's `", stringify!($lookup), "`.")]
            // SAFETY: as above.
            #[unsafe(no_mangle)]
            pub extern "C" fn $lookup(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i32 {
                $crate::lookup::proc_address(&$vendor, ours, $crate::call::Call::$how, [a, b, c, d, e, f])
            }
        )+

        /// Our function for a call; NULL where there is none.
        fn ours(call: $crate::call::Call) -> *mut std::ffi::c_void {
            match call {
                $($crate::call::Call::$call => $name as *mut std::ffi::c_void,)+
                $($crate::call::Call::$how => $lookup as *mut std::ffi::c_void,)+
                #[allow(unreachable_patterns, reason = "not every vendor has every call")]
                _ => std::ptr::null_mut(),
            }
        }

        /// By this the core knows a library of ours, and never takes it for the driver.
        // SAFETY: a name of ours.
        #[unsafe(no_mangle)]
        pub static gvmm_preload_marker: u32 = 1;

        /// Writes what was counted as JSON into `out`, as much as fits with a zero byte; gives its whole length.
        ///
        /// # Safety
        ///
        /// `out` has room for `capacity` bytes, or is NULL with a capacity of 0.
        // SAFETY: a name of ours.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn gvmm_preload_report(out: *mut u8, capacity: usize) -> usize {
            let text = $crate::report::json(&$vendor);
            let fits = text.len().min(capacity.saturating_sub(1));
            if capacity != 0 && !out.is_null() {
                // SAFETY: the caller's promise; `fits` is less than the capacity.
                unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), out, fits) };
                // SAFETY: as above.
                unsafe { out.add(fits).write(0) };
            }
            text.len()
        }

        extern "C" fn begins() {
            $crate::life::loaded(&$vendor);
        }

        extern "C" fn ends() {
            $crate::life::ends(&$vendor);
        }

        #[used]
        // SAFETY: the loader calls what stands there once, when the library is loaded.
        #[unsafe(link_section = ".init_array")]
        static BEGINS: extern "C" fn() = begins;

        #[used]
        // SAFETY: the loader calls what stands there once, when the process ends.
        #[unsafe(link_section = ".fini_array")]
        static ENDS: extern "C" fn() = ends;
    };
}
