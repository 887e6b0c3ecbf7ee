//! A C++ function object that is valid during a call only, kept for longer.
#![allow(unsafe_code, reason = "copies and calls a C++ object")]

use crate::driver::Stream;
use crate::error::{Error, Kind, Operation, Result};
use crate::pool::Filter;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

type Functor = [*mut c_void; 2];
type Manager = unsafe extern "C" fn(to: *mut Functor, from: *const Functor, operation: c_int) -> bool;
// The object is called with a reference to its argument. What it throws ends the process.
type Invoker = unsafe extern "C-unwind" fn(functor: *const Functor, stream: *mut *mut c_void) -> bool;

/// The manager's operations.
const CLONE: c_int = 2;
const DESTROY: c_int = 3;

/// A `std::function<bool(cudaStream_t)>` as libstdc++ lays it out (`bits/std_function.h`; its ABI since GCC 4.5), which is
/// the C++ library of every PyTorch for Linux.
#[repr(C)]
#[derive(Clone, Copy)]
struct Words {
    functor: Functor,
    manager: Option<Manager>,
    invoker: Option<Invoker>,
}

/// A copy of ours.
struct Function {
    functor: Functor,
    manager: Manager,
    invoker: Invoker,
}

// SAFETY: the framework calls its filters from whichever thread allocates, so they are good for that.
unsafe impl Send for Function {}
// SAFETY: calling a `const std::function` changes nothing of it.
unsafe impl Sync for Function {}

impl Function {
    fn takes(&self, stream: Stream) -> bool {
        let mut stream = stream.0 as *mut c_void;
        // SAFETY: the invoker came with this functor, which lives until `self` is dropped.
        unsafe { (self.invoker)(&raw const self.functor, &raw mut stream) }
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: the functor was made by this manager in `filter`, and is not used again.
        unsafe { (self.manager)(&raw mut self.functor, std::ptr::null(), DESTROY) };
    }
}

/// A filter that asks a copy of the C++ object at `function`.
///
/// # Errors
/// `NullPointer`; `InvalidArgument` for an empty object.
///
/// # Safety
/// `function` is NULL or a live `std::function<bool(cudaStream_t)>` of libstdc++.
pub(super) unsafe fn filter(function: *const c_void) -> Result<Filter> {
    if function.is_null() {
        return Err(Error::new(Kind::NullPointer, Operation::Capture, "the filter is NULL"));
    }
    // SAFETY: it is a live object of this layout, as the caller says.
    let words: Words = unsafe { function.cast::<Words>().read_unaligned() };
    let (Some(manager), Some(invoker)) = (words.manager, words.invoker) else {
        return Err(Error::new(Kind::InvalidArgument, Operation::Capture, "the filter is an empty function"));
    };
    let mut functor: Functor = [std::ptr::null_mut(); 2];
    // The object starts with its functor.
    // SAFETY: the manager came with the functor that it copies, which lives during this call.
    unsafe { manager(&raw mut functor, function.cast(), CLONE) };
    let copy = Function { functor, manager, invoker };
    Ok(Arc::new(move |stream| copy.takes(stream)))
}

const _: () = assert!(size_of::<Words>() == 4 * size_of::<usize>());
