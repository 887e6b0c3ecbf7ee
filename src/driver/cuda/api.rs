//! The few functions of `libcuda` that are used, by the names and signatures of `cuda.h`.
//!
//! Handles (contexts, streams, events ...) are 64-bit numbers here: pointers that only the driver looks behind.
//! Outputs are references, so a call is a plain Rust call; only this file knows that it is C.
#![allow(unsafe_code, reason = "calls through the addresses that dlsym gave")]

use crate::driver::library::{Library, Places, intern};
use crate::driver::lines::HostFn;
use crate::driver::structs::{AccessDesc, AllocationProp, Location};
use crate::driver::table::table;
use crate::error::{Error, Kind, Operation};
use std::ffi::{c_char, c_void};

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "handles are 64-bit pointers");

/// A `CUresult`.
pub(super) type Status = i32;

/// `CUDA_SUCCESS`.
pub(super) const SUCCESS: Status = 0;
/// `CUDA_ERROR_NOT_FOUND`: also what a call of a symbol that the library lacks gives.
pub(super) const NOT_FOUND: Status = 500;

/// `CUDA_ERROR_NOT_READY`: what was asked about is not done yet.
pub(super) const NOT_READY: Status = 600;
/// `CU_EVENT_DISABLE_TIMING`.
pub(super) const NO_TIMING: u32 = 2;

/// Where the library may be.
pub(super) const PLACES: Places = Places { base: "libcuda.so", sonames: &["libcuda.so.1"] };

/// `CUdevice_attribute`.
#[expect(non_snake_case, reason = "a group of constants")]
pub(super) mod Attribute {
    pub(in super::super) const MEMORY_CLOCK_KHZ: i32 = 36;
    pub(in super::super) const MEMORY_BUS_BITS: i32 = 37;
    pub(in super::super) const COMPUTE_MAJOR: i32 = 75;
    pub(in super::super) const COMPUTE_MINOR: i32 = 76;
    pub(in super::super) const VIRTUAL_MEMORY: i32 = 102;
    pub(in super::super) const POSIX_FD: i32 = 103;
    pub(in super::super) const RDMA_WITH_VIRTUAL_MEMORY: i32 = 110;
    pub(in super::super) const STREAM_VALUES_64: i32 = 122;
}

/// `CUDA_KERNEL_NODE_PARAMS`, the first version.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct KernelNode {
    pub(super) function: u64,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) parameters: *const *const c_void,
    pub(super) extra: *const *const c_void,
}

const _: () = assert!(size_of::<KernelNode>() == 56 && std::mem::offset_of!(KernelNode, parameters) == 40);

table! {
    answers Status; missing NOT_FOUND;
    required {
        init = c"cuInit" (flags: u32);
        driver_version = c"cuDriverGetVersion" (version: &mut i32);
        device_count = c"cuDeviceGetCount" (count: &mut i32);
        device_get = c"cuDeviceGet" (device: &mut i32, ordinal: i32);
        device_name = c"cuDeviceGetName" (name: *mut u8, capacity: i32, device: i32);
        device_attribute = c"cuDeviceGetAttribute" (value: &mut i32, attribute: i32, device: i32);
        device_total = c"cuDeviceTotalMem_v2" (bytes: &mut u64, device: i32);
        can_access_peer = c"cuDeviceCanAccessPeer" (can: &mut i32, device: i32, peer: i32);
        primary_retain = c"cuDevicePrimaryCtxRetain" (context: &mut u64, device: i32);
        primary_release = c"cuDevicePrimaryCtxRelease_v2" (device: i32);
        context_current = c"cuCtxGetCurrent" (context: &mut u64);
        context_push = c"cuCtxPushCurrent_v2" (context: u64);
        context_pop = c"cuCtxPopCurrent_v2" (context: &mut u64);
        context_device = c"cuCtxGetDevice" (device: &mut i32);
        memory_info = c"cuMemGetInfo_v2" (free: &mut u64, total: &mut u64);
        memory_alloc = c"cuMemAlloc_v2" (address: &mut u64, bytes: u64);
        memory_free = c"cuMemFree_v2" (address: u64);
        host_alloc = c"cuMemHostAlloc" (address: &mut u64, bytes: u64, flags: u32);
        host_free = c"cuMemFreeHost" (address: u64);
        host_device_pointer = c"cuMemHostGetDevicePointer_v2" (address: &mut u64, host: u64, flags: u32);
        granularity = c"cuMemGetAllocationGranularity" (bytes: &mut u64, prop: &AllocationProp, option: i32);
        address_reserve = c"cuMemAddressReserve" (address: &mut u64, bytes: u64, alignment: u64, hint: u64, flags: u64);
        address_free = c"cuMemAddressFree" (address: u64, bytes: u64);
        create = c"cuMemCreate" (handle: &mut u64, bytes: u64, prop: &AllocationProp, flags: u64);
        release = c"cuMemRelease" (handle: u64);
        map = c"cuMemMap" (address: u64, bytes: u64, offset: u64, handle: u64, flags: u64);
        unmap = c"cuMemUnmap" (address: u64, bytes: u64);
        set_access = c"cuMemSetAccess" (address: u64, bytes: u64, list: *const AccessDesc, count: u64);
        export_handle = c"cuMemExportToShareableHandle" (out: &mut i32, handle: u64, kind: i32, flags: u64);
        import_handle = c"cuMemImportFromShareableHandle" (handle: &mut u64, descriptor: u64, kind: i32);
        handle_properties = c"cuMemGetAllocationPropertiesFromHandle" (prop: &mut AllocationProp, handle: u64);
        copy_to_host = c"cuMemcpyDtoH_v2" (dst: *mut u8, src: u64, bytes: u64);
        copy_from_host = c"cuMemcpyHtoD_v2" (dst: u64, src: *const u8, bytes: u64);
        copy_async = c"cuMemcpyAsync" (dst: u64, src: u64, bytes: u64, stream: u64);
        upload_async = c"cuMemcpyHtoDAsync_v2" (dst: u64, src: *const u64, bytes: u64, stream: u64);
        stream_create = c"cuStreamCreate" (stream: &mut u64, flags: u32);
        stream_destroy = c"cuStreamDestroy_v2" (stream: u64);
        stream_synchronize = c"cuStreamSynchronize" (stream: u64);
        stream_query = c"cuStreamQuery" (stream: u64);
        stream_context = c"cuStreamGetCtx" (stream: u64, context: &mut u64);
        stream_wait_event = c"cuStreamWaitEvent" (stream: u64, event: u64, flags: u32);
        stream_is_capturing = c"cuStreamIsCapturing" (stream: u64, status: &mut i32);
        capture_begin = c"cuStreamBeginCapture_v2" (stream: u64, mode: i32);
        capture_end = c"cuStreamEndCapture" (stream: u64, graph: &mut u64);
        exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode" (mode: &mut i32);
        event_create = c"cuEventCreate" (event: &mut u64, flags: u32);
        event_record = c"cuEventRecord" (event: u64, stream: u64);
        event_query = c"cuEventQuery" (event: u64);
        event_destroy = c"cuEventDestroy_v2" (event: u64);
        module_load = c"cuModuleLoadData" (module: &mut u64, image: *const u8);
        module_function = c"cuModuleGetFunction" (function: &mut u64, module: u64, name: *const c_char);
        module_unload = c"cuModuleUnload" (module: u64);
        launch_kernel = c"cuLaunchKernel" (function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32,
            shared: u32, stream: u64, parameters: *const *const c_void, extra: *const *const c_void);
        launch_host = c"cuLaunchHostFunc" (stream: u64, function: HostFn, data: u64);
        graph_launch = c"cuGraphLaunch" (exec: u64, stream: u64);
        graph_exec_destroy = c"cuGraphExecDestroy" (exec: u64);
        graph_destroy = c"cuGraphDestroy" (graph: u64);
    }
    optional {
        error_name = c"cuGetErrorName" (status: Status, name: &mut *const c_char);
        primary_state = c"cuDevicePrimaryCtxGetState" (device: i32, flags: &mut u32, active: &mut i32);
        access_get = c"cuMemGetAccess" (flags: &mut u64, location: &Location, address: u64);
        context_id = c"cuCtxGetId" (context: u64, id: &mut u64);
        stream_write_value = c"cuStreamWriteValue64_v2" (stream: u64, address: u64, value: u64, flags: u32);
        stream_wait_value = c"cuStreamWaitValue64_v2" (stream: u64, address: u64, value: u64, flags: u32);
        capture_info = c"cuStreamGetCaptureInfo_v2" (stream: u64, status: &mut i32, id: &mut u64, graph: &mut u64,
            nodes: &mut *const u64, count: &mut u64);
        graph_exec_kernel = c"cuGraphExecKernelNodeSetParams" (exec: u64, node: u64, params: &KernelNode);
        graph_instantiate_flags = c"cuGraphInstantiateWithFlags" (exec: &mut u64, graph: u64, flags: u64);
        graph_instantiate_old = c"cuGraphInstantiate_v2" (exec: &mut u64, graph: u64, node: *mut u64, log: *mut u8, capacity: u64);
    }
}

impl Api {
    /// Opens the library, fills the table and initialises the driver.
    ///
    /// # Errors
    ///
    /// `DriverNotFound` (no library, or a toolkit's stub), `DriverTooOld` (a required symbol is missing, or the
    /// driver cannot serve this device's kernel module), `NoDevice`.
    pub(super) fn open(path: Option<&std::path::Path>) -> Result<Self, Error> {
        let library = Library::open(PLACES, path)?;
        let place = library.path().display().to_string();
        let api = Self::load(library).map_err(|symbol| {
            let symbol = symbol.to_string_lossy();
            let hint = intern(&format!("{place} lacks {symbol}: install a driver for CUDA 11.0 or later"));
            Error::new(Kind::DriverTooOld, Operation::Open, hint)
        })?;
        match api.init(0) {
            SUCCESS => Ok(api),
            34 => Err(stub(&place)),
            status => Err(api.error(status, Operation::Open)),
        }
    }

    /// True where streams can write and wait for 64-bit values.
    pub(super) fn has_stream_values(&self) -> bool {
        self.stream_write_value.is_some() && self.stream_wait_value.is_some()
    }

    /// True where contexts have ids that are never used again.
    pub(super) fn has_context_ids(&self) -> bool {
        self.context_id.is_some()
    }

    /// True where a kernel of a graph can be given other parameters.
    pub(super) fn has_graph_updates(&self) -> bool {
        self.capture_info.is_some() && self.graph_exec_kernel.is_some()
    }

    /// The file that was opened.
    pub(super) fn path(&self) -> &std::path::Path {
        self.library.path()
    }
}

fn stub(place: &str) -> Error {
    let hint =
        intern(&format!("{place} is a toolkit's stub, not a driver: take its folder off the library path"));
    Error::new(Kind::DriverNotFound, Operation::Open, hint).native(34, "CUDA_ERROR_STUB_LIBRARY")
}
