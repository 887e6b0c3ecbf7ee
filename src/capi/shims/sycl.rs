//! What a `sycl::queue` stands for, asked of the SYCL library that the process has.
//!
//! Its functions are found by their C++ names, which are the same in `libsycl.so.8` and `.9`; nothing of it is linked. An
//! object is given back where a hidden first argument points: a `sycl::context` is a `std::shared_ptr`, a `sycl::device` one
//! too (8) or a plain pointer (9). Neither is destroyed by us: that keeps the context, as long as memory is made in it.
#![allow(unsafe_code, reason = "calls C++ through the addresses that dlsym gave")]

use crate::driver::library::{Library, Places};
use crate::error::{Error, Kind, Operation, Result};
use once_cell::sync::OnceCell;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// Only what is loaded already counts: a second copy would know none of the first one's queues.
const PLACES: Places = Places { base: "libsycl.so", sonames: &[] };

/// `sycl::backend::ext_oneapi_level_zero`.
const LEVEL_ZERO: u8 = 2;

/// Room for a `sycl::context` or a `sycl::device`.
type Object = [*mut c_void; 2];

// What these throw ends the process. They do so for a queue that is none, which nobody can check.
type Byte = unsafe extern "C-unwind" fn(queue: *const c_void) -> u8;
type Part = unsafe extern "C-unwind" fn(part: *mut Object, queue: *const c_void) -> *mut Object;
type Handle = unsafe extern "C-unwind" fn(part: *const Object) -> u64;
type List = unsafe extern "C-unwind" fn(queue: *const c_void, is_list: *mut i32) -> u64;

/// The library's functions.
struct Sycl {
    backend: Byte,
    in_order: Byte,
    context: Part,
    context_handle: Handle,
    device: Part,
    device_handle: Handle,
    list: List,
}

/// What Level Zero calls the parts of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parts {
    /// A `ze_context_handle_t`.
    pub(super) context: u64,
    /// A `ze_device_handle_t`.
    pub(super) device: u64,
    /// An immediate `ze_command_list_handle_t`.
    pub(super) list: u64,
}

fn invalid(hint: &'static str) -> Error {
    Error::new(Kind::InvalidStream, Operation::Stream, hint)
}

impl Sycl {
    fn find() -> Result<&'static Self> {
        static FOUND: OnceCell<Sycl> = OnceCell::new();
        FOUND.get_or_try_init(|| {
            if !cfg!(target_arch = "x86_64") {
                let hint = "SYCL's queues are understood on x86-64 only: use gvmm_device_attach";
                return Err(Error::new(Kind::Unsupported, Operation::Open, hint));
            }
            let hint = "this process has no SYCL library (libsycl.so) loaded, so that no sycl::queue can be";
            let library = Library::open(PLACES, None).map_err(|e| Error { hint, ..e })?;
            log::debug!("{}: SYCL", library.path().display());
            Self::of(&library)
        })
    }

    fn of(library: &Library) -> Result<Self> {
        let find = |name: &CStr| {
            let hint = "this SYCL library lacks a function that tells of queues: use gvmm_device_attach";
            let missing = || Error::new(Kind::DriverTooOld, Operation::Open, hint);
            library.symbol(name).map(NonNull::as_ptr).ok_or_else(missing)
        };
        let backend = find(c"_ZNK4sycl3_V15queue11get_backendEv")?;
        let in_order = find(c"_ZNK4sycl3_V15queue11is_in_orderEv")?;
        let context = find(c"_ZNK4sycl3_V15queue11get_contextEv")?;
        let context_handle = find(c"_ZNK4sycl3_V17context9getNativeEv")?;
        let device = find(c"_ZNK4sycl3_V15queue10get_deviceEv")?;
        let device_handle = find(c"_ZNK4sycl3_V16device9getNativeEv")?;
        let list = find(c"_ZNK4sycl3_V15queue9getNativeERi")?;
        Ok(Self {
            // SAFETY: `backend sycl::queue::get_backend() const`, an enumeration over char.
            backend: unsafe { std::mem::transmute::<*mut c_void, Byte>(backend) },
            // SAFETY: `bool sycl::queue::is_in_order() const`.
            in_order: unsafe { std::mem::transmute::<*mut c_void, Byte>(in_order) },
            // SAFETY: `context sycl::queue::get_context() const`: not trivial to copy, so given where a first pointer says.
            context: unsafe { std::mem::transmute::<*mut c_void, Part>(context) },
            // SAFETY: `ur_native_handle_t sycl::context::getNative() const`, a 64-bit number.
            context_handle: unsafe { std::mem::transmute::<*mut c_void, Handle>(context_handle) },
            // SAFETY: `device sycl::queue::get_device() const`, given like the context.
            device: unsafe { std::mem::transmute::<*mut c_void, Part>(device) },
            // SAFETY: `ur_native_handle_t sycl::device::getNative() const`.
            device_handle: unsafe { std::mem::transmute::<*mut c_void, Handle>(device_handle) },
            // SAFETY: `ur_native_handle_t sycl::queue::getNative(int32_t &) const`.
            list: unsafe { std::mem::transmute::<*mut c_void, List>(list) },
        })
    }

    /// The native handle of a part of a queue. The part is kept: one reference for each queue that was asked.
    ///
    /// # Safety
    /// `queue` is a live `sycl::queue`, and both functions are for the same part.
    unsafe fn part(queue: *const c_void, give: Part, handle: Handle) -> u64 {
        let mut object: Object = [std::ptr::null_mut(); 2];
        // SAFETY: the queue is live, as the caller says, and there is room for either version's object.
        unsafe { give(&raw mut object, queue) };
        // SAFETY: `give` has made the object, which lives where it is.
        unsafe { handle(&raw const object) }
    }
}

/// The parts of a queue, as Level Zero has them.
///
/// # Errors
/// `DriverNotFound` (no SYCL library in the process), `DriverTooOld` (it is another one than is known), `InvalidStream` (NULL,
/// of another backend, out of order, or batched).
///
/// # Safety
/// `queue` is NULL or a live `sycl::queue` of the SYCL library that the process has.
pub(super) unsafe fn parts(queue: *const c_void) -> Result<Parts> {
    let sycl = Sycl::find()?;
    if queue.is_null() {
        return Err(invalid("NULL is no sycl::queue"));
    }
    // SAFETY: the queue is live, as the caller says.
    if unsafe { (sycl.backend)(queue) } != LEVEL_ZERO {
        return Err(invalid(
            "the sycl::queue is not one of Level Zero: set ONEAPI_DEVICE_SELECTOR=level_zero:gpu",
        ));
    }
    // SAFETY: as above.
    if unsafe { (sycl.in_order)(queue) } == 0 {
        return Err(invalid("the sycl::queue is out of order, and a stream is in order"));
    }
    let mut is_list = 0;
    // SAFETY: as above; the number is there to be written.
    let list = unsafe { (sycl.list)(queue, &raw mut is_list) };
    if is_list == 0 || list == 0 {
        let hint = "the sycl::queue keeps work back in batches: set UR_L0_USE_IMMEDIATE_COMMANDLISTS=1";
        return Err(invalid(hint));
    }
    // SAFETY: the queue is live, and the functions are a context's.
    let context = unsafe { Sycl::part(queue, sycl.context, sycl.context_handle) };
    // SAFETY: the queue is live, and the functions are a device's.
    let device = unsafe { Sycl::part(queue, sycl.device, sycl.device_handle) };
    Ok(Parts { context, device, list })
}
