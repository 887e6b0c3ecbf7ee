//! Finds the vendor's own functions: behind our exports, and behind whoever else answers `dlsym`.
#![allow(unsafe_code, reason = "dlopen, dlsym and dladdr are C")]

use crate::call::{Args, CALLS, Call, TABLE, Vendor};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A vendor's function, called with all registers that integers are passed in.
pub type Function = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> i32;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The vendor's functions, by the number of the call.
static REAL: [AtomicPtr<c_void>; CALLS] = [const { AtomicPtr::new(ptr::null_mut()) }; CALLS];

/// One of the vendor's functions.
#[derive(Clone, Copy, Debug)]
pub struct Real(*mut c_void);

impl Real {
    /// The function at an address that dlsym gave; none at NULL.
    pub fn at(address: *mut c_void) -> Option<Self> {
        (!address.is_null()).then_some(Self(address))
    }

    /// Calls it.
    pub fn call(self, args: Args) -> i32 {
        // SAFETY: the address was given by dlsym for a function of this table, all of which take integers and pointers
        // and give a status; words beyond its own are ignored by the C convention.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.0) };
        let [a, b, c, d, e, f] = args;
        // SAFETY: the words are those that the program called with.
        unsafe { function(a, b, c, d, e, f) }
    }
}

/// The C library's own `dlsym`, whoever stands in front of it.
fn libc_dlsym() -> Option<Dlsym> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut found = FOUND.load(Ordering::Acquire);
    for version in [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"] {
        if found.is_null() {
            // SAFETY: both names end in a zero byte. Names with a version are the C library's only.
            found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        }
    }
    FOUND.store(found, Ordering::Release);
    // SAFETY: what the C library exports under that name has this signature.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Dlsym>(found) })
}

/// The address of a symbol by the C library's own rules, as seen from here.
#[expect(clippy::not_unsafe_ptr_arg_deref, reason = "a handle is the loader's, who knows what it gave")]
pub fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    match libc_dlsym() {
        // SAFETY: a handle of a program's or of ours, and a name that ends in a zero byte.
        Some(dlsym) => unsafe { dlsym(handle, name.as_ptr()) },
        None => ptr::null_mut(),
    }
}

/// The vendor's library, where the process has it: it is not loaded by this, but stays from then on, as do the addresses that
/// are kept.
fn loaded(vendor: &Vendor) -> *mut c_void {
    let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
    for soname in vendor.sonames {
        // SAFETY: the name ends in a zero byte; nothing is loaded.
        let handle = unsafe { libc::dlopen(soname.as_ptr(), flags) };
        if !handle.is_null() {
            return handle;
        }
    }
    let Some(path) = renamed(vendor) else { return ptr::null_mut() };
    // SAFETY: as above.
    unsafe { libc::dlopen(path.as_ptr(), flags) }
}

struct Search {
    base: &'static str,
    found: Option<std::ffi::CString>,
}

/// The path of a copy whose soname is another (wheels carry such).
fn renamed(vendor: &Vendor) -> Option<std::ffi::CString> {
    let mut search = Search { base: vendor.base, found: None };
    // SAFETY: `visit` has the signature asked for, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: libc::size_t, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record for the length of this call.
    let name: *const c_char = unsafe { (*info).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: a name that is not NULL ends in a zero byte.
    let name = unsafe { CStr::from_ptr(name) };
    // SAFETY: `data` is the `Search` of `renamed`, which nobody else uses meanwhile.
    let search: &mut Search = unsafe { &mut *data.cast::<Search>() };
    let wanted = search.found.is_none() && has_base(name, search.base);
    if wanted {
        search.found = Some(name.to_owned());
    }
    c_int::from(wanted)
}

/// True for `libcuda.so` and `libcuda.so.580`, not for `libcudart.so`.
fn has_base(path: &CStr, base: &str) -> bool {
    let path = path.to_string_lossy();
    let name = Path::new(&*path).file_name().map(|name| name.to_string_lossy().into_owned());
    let rest = name.as_deref().and_then(|name| name.strip_prefix(base));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// What the loader knows about an address.
#[expect(clippy::not_unsafe_ptr_arg_deref, reason = "dladdr takes any address")]
pub fn info(address: *mut c_void) -> Option<libc::Dl_info> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: any address may be asked about, and the record is ours.
    (unsafe { libc::dladdr(address, &raw mut info) } != 0).then_some(info)
}

/// True where an address lies in the vendor's library.
pub fn is_vendors(vendor: &Vendor, address: *mut c_void) -> bool {
    let Some(info) = info(address).filter(|info| !info.dli_fname.is_null()) else { return false };
    // SAFETY: a name that is not NULL ends in a zero byte and stays while the library does.
    has_base(unsafe { CStr::from_ptr(info.dli_fname) }, vendor.base)
}

/// A function of the vendor's library by name; NULL where the library is not there or lacks it.
pub fn named(vendor: &Vendor, name: &CStr) -> *mut c_void {
    let handle = loaded(vendor);
    if handle.is_null() || name.is_empty() { ptr::null_mut() } else { symbol(handle, name) }
}

/// The vendor's function for a call; none where its library is not there or lacks it.
pub fn of(vendor: &Vendor, call: Call) -> Option<Real> {
    let place = &REAL[call as usize];
    let mut found = place.load(Ordering::Acquire);
    if found.is_null() {
        found = named(vendor, vendor.symbol(call));
        place.store(found, Ordering::Release);
    }
    Real::at(found)
}

/// Takes an address for the vendor's function of a call, whose library stays from then on. False where another is known
/// already: that is some other library's, and not ours to answer for.
pub fn learn(call: Call, address: *mut c_void) -> bool {
    let place = &REAL[call as usize];
    if place.load(Ordering::Acquire).is_null() {
        keep(address);
    }
    let known = place.compare_exchange(ptr::null_mut(), address, Ordering::AcqRel, Ordering::Acquire);
    known.is_ok() || known == Err(address)
}

/// Keeps the library of an address loaded: the program may look a function up and close the library again.
fn keep(address: *mut c_void) {
    let Some(info) = info(address).filter(|info| !info.dli_fname.is_null()) else { return };
    let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
    // SAFETY: the name of a library that is there; nothing is loaded. The handle is kept for good.
    if unsafe { libc::dlopen(info.dli_fname, flags) }.is_null() {
        // The program asks for the error of its own lookup, which has none.
        // SAFETY: takes this thread's last error.
        unsafe { libc::dlerror() };
    }
}

/// The call that a name exported by the vendor stands for.
pub fn call_named(vendor: &Vendor, name: &CStr) -> Option<Call> {
    TABLE.iter().map(|line| line.call).find(|&call| !name.is_empty() && vendor.symbol(call) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{CUDA, HIP};

    #[test]
    fn names_are_told_apart() {
        assert_eq!(call_named(&CUDA, c"cuMemMap"), Some(Call::Map));
        assert_eq!(call_named(&HIP, c"hipMemMap"), Some(Call::Map));
        assert_eq!(call_named(&HIP, c"cuMemMap"), None);
        assert_eq!(call_named(&HIP, c""), None);
        assert!(has_base(c"/usr/lib/libcuda.so.1", "libcuda.so") && !has_base(c"libcudart.so", "libcuda.so"));
    }

    #[test]
    fn a_library_that_is_not_there_has_no_functions() {
        assert!(of(&HIP, Call::Map).is_none());
        assert!(!symbol(ptr::null_mut(), c"getpid").is_null());
    }
}
