//! Finds and opens a vendor's library at run time, so that nothing of a vendor is linked.
//!
//! In this order: a path that the user gave; a copy that the process has already (a framework may carry its own,
//! and a second copy would be a second driver); the sonames; well-known folders.
#![allow(unsafe_code, reason = "dlopen, dlsym and dl_iterate_phdr are C")]

use crate::error::{Error, Kind, Operation};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What a library that stands in front of a driver for us exports; such a library is not the driver.
const MARKER: &CStr = c"gvmm_preload_marker";

/// What a library that answers `dlsym` for us exports: the loader's own answer, for those who must have the driver.
const BEHIND: &CStr = c"gvmm_preload_symbol";

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The `dlsym` that gives a driver's own functions: a library preloaded for the program must not answer our calls.
fn dlsym() -> Dlsym {
    static FOUND: OnceLock<Dlsym> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the name ends in a zero byte; what all libraries see is asked.
        let behind = unsafe { libc::dlsym(libc::RTLD_DEFAULT, BEHIND.as_ptr()) };
        if behind.is_null() {
            return libc::dlsym;
        }
        // SAFETY: a library that exports this name gives it this signature.
        unsafe { std::mem::transmute::<*mut c_void, Dlsym>(behind) }
    })
}

/// Where a vendor's library may be.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// What the library's file name starts with, up to `.so`: `libcuda.so`.
    pub base: &'static str,
    /// Names to ask the loader for, best first.
    pub sonames: &'static [&'static str],
}

/// An open library. It is never closed: a driver's threads may outlive every use of it.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<c_void>,
    path: PathBuf,
}

// SAFETY: the handle is only passed to dlsym, which may be called from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens the first library of `places` that is there, or the one at `path` alone where the user gave one.
    ///
    /// # Errors
    ///
    /// `DriverNotFound` with the loader's reason.
    pub fn open(places: Places, path: Option<&Path>) -> Result<Self, Error> {
        let mut reasons = Vec::new();
        for candidate in candidates(places, path) {
            match Self::open_one(&candidate) {
                Ok(library) => return Ok(library),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(absent(&reasons.join("; ")))
    }

    fn open_one(path: &Path) -> Result<Self, String> {
        let name =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path with a zero byte".to_owned())?;
        // SAFETY: the name ends in a zero byte; a driver's initialisers are as sound as the driver.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let Some(handle) = NonNull::new(handle) else { return Err(loader_error(path)) };
        let library = Self { handle, path: path.to_owned() };
        if library.symbol(MARKER).is_some() {
            return Err(format!("{} stands in front of the driver", path.display()));
        }
        Ok(library)
    }

    /// The address of a symbol, or none.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        let dlsym = dlsym();
        // SAFETY: the handle came from dlopen and is never closed; the name ends in a zero byte.
        NonNull::new(unsafe { dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// What was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The failure of a driver that is not there, for `reason`.
pub fn absent(reason: &str) -> Error {
    Error::new(Kind::DriverNotFound, Operation::Open, intern(reason))
}

/// A text that stays, for the hints of errors. Each distinct text is kept once; they are few.
pub fn intern(text: &str) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text) {
        return known;
    }
    let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
    texts.insert(kept);
    kept
}

fn candidates(places: Places, path: Option<&Path>) -> Vec<PathBuf> {
    match path {
        Some(path) => vec![path.to_owned()],
        None => {
            let loaded = loaded_copies(places.base);
            loaded.into_iter().chain(places.sonames.iter().map(PathBuf::from)).collect()
        }
    }
}

/// True for `libcuda.so` and `libcuda.so.580`, not for `libcudart.so`.
fn has_base(path: &OsStr, base: &str) -> bool {
    let Some(name) = Path::new(path).file_name() else { return false };
    match name.as_bytes().strip_prefix(base.as_bytes()) {
        Some(rest) => rest.is_empty() || rest.starts_with(b"."),
        None => false,
    }
}

/// True where the process has a library of that base name.
pub fn is_loaded(base: &'static str) -> bool {
    !loaded_copies(base).is_empty()
}

struct Search {
    base: &'static str,
    found: Vec<PathBuf>,
}

/// The paths of the libraries of that base name that the process has already.
fn loaded_copies(base: &'static str) -> Vec<PathBuf> {
    let mut search = Search { base, found: Vec::new() };
    // SAFETY: `visit` has the signature asked for, and `search` outlives the call, which is over on return.
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
    let name = OsString::from_vec(unsafe { CStr::from_ptr(name) }.to_bytes().to_vec());
    // SAFETY: `data` is the `Search` of `loaded_copies`, which nobody else uses meanwhile.
    let search: &mut Search = unsafe { &mut *data.cast::<Search>() };
    if has_base(&name, search.base) {
        search.found.push(PathBuf::from(name));
    }
    0
}

fn loader_error(path: &Path) -> String {
    // SAFETY: dlerror gives this thread's last message, or NULL.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return format!("{}: cannot be opened", path.display());
    }
    // SAFETY: a message that is not NULL ends in a zero byte and stays until the next dl call of this thread.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_names_end_at_the_suffix() {
        let is = |p: &str| has_base(OsStr::new(p), "libcuda.so");
        assert!(is("/usr/lib/libcuda.so.1") && is("libcuda.so") && is("/x/libcuda.so.580.65"));
        assert!(!is("/usr/lib/libcudart.so.12") && !is("/usr/lib/libcuda.sock") && !is(""));
    }

    #[test]
    fn a_missing_library_is_absent_with_the_loaders_reason() {
        let places = Places { base: "libgvmm_none.so", sonames: &["libgvmm_none.so.1"] };
        let error = Library::open(places, None).expect_err("no such library");
        assert_eq!(error.kind, Kind::DriverNotFound);
        assert!(error.hint.contains("libgvmm_none.so.1"), "{}", error.hint);
        let error = Library::open(places, Some(Path::new("/nowhere/x.so"))).expect_err("no such path");
        assert!(error.hint.contains("/nowhere/x.so"), "{}", error.hint);
    }

    #[test]
    fn a_copy_in_the_process_is_found_first() {
        let copies = loaded_copies("libc.so");
        assert!(!copies.is_empty(), "this process has a libc");
        assert_eq!(intern("one"), intern("one"));
    }
}
