//! The few functions of `libcuda` that an executor uses beside gvmm, found as gvmm finds them.
#![allow(unsafe_code, reason = "calls through the addresses that dlsym gave")]

use gvmm::config;
use gvmm::driver::library::{Library, Places};
use gvmm::error::{Error, Kind, Operation, Result};
use std::ffi::{CStr, c_char, c_void};

/// `CUDA_KERNEL_NODE_PARAMS_v1` of `cuda.h`.
#[repr(C)]
pub(super) struct KernelNode {
    pub(super) function: u64,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) parameters: *const *const c_void,
    pub(super) extra: *const *const c_void,
}

/// Writes the table: a field for each symbol, and a method of the same name that calls it and tells a failure.
macro_rules! table {
    (required { $($name:ident = $symbol:literal ($($arg:ident: $type:ty),*);)* }
     optional { $($later:ident = $late_symbol:literal ($($late_arg:ident: $late_type:ty),*);)* }) => {
        /// The table of functions, with the names and signatures of `cuda.h`.
        pub(super) struct Api {
            $($name: unsafe extern "C" fn($($type),*) -> i32,)*
            $($later: Option<unsafe extern "C" fn($($late_type),*) -> i32>,)*
        }

        impl Api {
            fn load(library: &Library) -> Result<Self> {
                Ok(Self {
                    $($name: {
                        let address = library.symbol($symbol).ok_or_else(|| missing($symbol))?;
                        // SAFETY: the symbol has the signature that cuda.h gives it, which the table repeats.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> i32>(address.as_ptr()) }
                    },)*
                    $($later: library.symbol($late_symbol).map(|address| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($late_type),*) -> i32>(address.as_ptr()) }
                    }),)*
                })
            }

            $(
                #[expect(clippy::too_many_arguments, clippy::allow_attributes, reason = "the driver's signature")]
                #[allow(unfulfilled_lint_expectations, reason = "most have few")]
                pub(super) fn $name(&self, $($arg: $type),*) -> Result<()> {
                    // SAFETY: references are valid for the call, and handles are those that the driver gave.
                    match unsafe { (self.$name)($($arg),*) } {
                        0 => Ok(()),
                        code => Err(failed($symbol, code)),
                    }
                }
            )*

            $(
                pub(super) fn $later(&self, $($late_arg: $late_type),*) -> Result<()> {
                    let call = self.$later.ok_or_else(|| missing($late_symbol))?;
                    // SAFETY: as above.
                    match unsafe { call($($late_arg),*) } {
                        0 => Ok(()),
                        code => Err(failed($late_symbol, code)),
                    }
                }
            )*
        }
    };
}

table! {
    required {
        primary_retain = c"cuDevicePrimaryCtxRetain" (context: &mut u64, device: i32);
        primary_release = c"cuDevicePrimaryCtxRelease_v2" (device: i32);
        context_push = c"cuCtxPushCurrent_v2" (context: u64);
        context_pop = c"cuCtxPopCurrent_v2" (context: &mut u64);
        memory_alloc = c"cuMemAlloc_v2" (address: &mut u64, bytes: u64);
        memory_free = c"cuMemFree_v2" (address: u64);
        copy_in = c"cuMemcpyHtoD_v2" (dst: u64, src: *const c_void, bytes: u64);
        copy_out = c"cuMemcpyDtoH_v2" (dst: *mut c_void, src: u64, bytes: u64);
        copy_async = c"cuMemcpyDtoDAsync_v2" (dst: u64, src: u64, bytes: u64, stream: u64);
        stream_synchronize = c"cuStreamSynchronize" (stream: u64);
        event_create = c"cuEventCreate" (event: &mut u64, flags: u32);
        event_record = c"cuEventRecord" (event: u64, stream: u64);
        event_elapsed = c"cuEventElapsedTime" (milliseconds: &mut f32, from: u64, to: u64);
        event_destroy = c"cuEventDestroy_v2" (event: u64);
        module_load = c"cuModuleLoadData" (module: &mut u64, image: *const c_char);
        module_function = c"cuModuleGetFunction" (function: &mut u64, module: u64, name: *const c_char);
        module_unload = c"cuModuleUnload" (module: u64);
        launch_kernel = c"cuLaunchKernel" (function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32,
            shared: u32, stream: u64, parameters: *const *const c_void, extra: *const *const c_void);
    }
    // Of CUDA 11.3; with an older driver, what needs it is refused.
    optional {
        capture_info = c"cuStreamGetCaptureInfo_v2" (stream: u64, status: &mut i32, id: &mut u64, graph: &mut u64,
            nodes: &mut *const u64, count: &mut u64);
        patch_kernel = c"cuGraphExecKernelNodeSetParams" (exec: u64, node: u64, to: *const KernelNode);
    }
}

impl Api {
    /// The library that the CUDA driver has opened.
    pub(super) fn open() -> Result<Self> {
        Self::load(&library()?)
    }

    /// True where what tells and changes the nodes of graphs is there.
    pub(super) fn can_patch(&self) -> bool {
        self.capture_info.is_some() && self.patch_kernel.is_some()
    }
}

/// The library that the CUDA driver has opened.
pub(super) fn library() -> Result<Library> {
    let places = Places { base: "libcuda.so", sonames: &["libcuda.so.1"] };
    Library::open(places, config::get().libraries.cuda.as_deref())
}

fn missing(symbol: &'static CStr) -> Error {
    Error::new(Kind::DriverTooOld, Operation::Open, symbol.to_str().unwrap_or_default())
}

fn failed(symbol: &'static CStr, code: i32) -> Error {
    let name = symbol.to_str().unwrap_or_default();
    Error::new(Kind::DriverError, Operation::Launch, name).native(code.into(), "")
}
