//! The few functions of `libamdhip64` that are used, by the names and signatures of `hip_runtime_api.h` from HIP 6.0
//! on.
//!
//! Handles (blocks, streams, events ...) are 64-bit numbers here: pointers that only the runtime looks behind.
//! Outputs are references, so a call is a plain Rust call; only this file knows that it is C. With no device at hand
//! HIP leaves outputs as they were: whoever calls sets them to 0 first.
//!
//! Not here on purpose: `hipGetDeviceProperties` and `hipPointerGetAttributes`, whose structs have two layouts.
#![allow(unsafe_code, reason = "calls through the addresses that dlsym gave")]

use crate::driver::library::{Library, Places, intern};
use crate::driver::lines::HostFn;
use crate::driver::quirks::{self, Care, Subject};
use crate::driver::structs::{AccessDesc, AllocationProp, Location};
use crate::driver::table::table;
use crate::driver::{DriverKind, Ordinal};
use crate::error::{Error, Kind, Operation};
use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "handles are 64-bit pointers");

/// A `hipError_t`.
pub(super) type Status = i32;

/// `hipSuccess`.
pub(super) const SUCCESS: Status = 0;
/// `hipErrorOutOfMemory`.
pub(super) const OUT_OF_MEMORY: Status = 2;
/// `hipErrorNotFound`: also what a call of a symbol that the library lacks gives.
pub(super) const NOT_FOUND: Status = 500;
/// `hipErrorNotReady`: what was asked about is not done yet.
pub(super) const NOT_READY: Status = 600;

/// `hipEventDisableTiming`.
pub(super) const NO_TIMING: u32 = 2;
/// `hipStreamNonBlocking`.
pub(super) const NON_BLOCKING: u32 = 1;
/// `hipStreamCaptureModeRelaxed`.
pub(super) const RELAXED: i32 = 2;
/// `hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent`.
pub(super) const PINNED_HOST: u32 = 0x4000_0003;
/// `hipStreamWaitValueGte`.
pub(super) const AT_LEAST: u32 = 0;
/// `hipMemcpyDefault`.
pub(super) const BY_ADDRESS: i32 = 4;

/// Where the library may be.
pub(super) const PLACES: Places =
    Places { base: "libamdhip64.so", sonames: &["libamdhip64.so.7", "libamdhip64.so.6"] };

/// `hipDeviceAttribute_t`, the same numbers from 6.0 on.
#[expect(non_snake_case, reason = "a group of constants")]
pub(super) mod Attribute {
    pub(in super::super) const COMPUTE_MAJOR: i32 = 23;
    pub(in super::super) const MEMORY_BUS_BITS: i32 = 59;
    pub(in super::super) const MEMORY_CLOCK_KHZ: i32 = 60;
    pub(in super::super) const COMPUTE_MINOR: i32 = 61;
    pub(in super::super) const VIRTUAL_MEMORY: i32 = 89;
    pub(in super::super) const LARGE_BAR: i32 = 10_011;
    pub(in super::super) const STREAM_VALUES: i32 = 10_013;
}

/// `hipMemcpyAttributes`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(super) struct BatchAttributes {
    /// 1: sources are read when the stream gets there.
    pub(super) order: i32,
    pub(super) source: Location,
    pub(super) target: Location,
    pub(super) flags: u32,
}

const _: () = assert!(size_of::<BatchAttributes>() == 24);

/// `hipDeviceProp_tR0600`, whose layout its name pins: only the architecture's name is read, at its known place, and
/// the rest is room. Larger than the struct (1,472 bytes), should a release write more.
#[repr(C, align(8))]
pub(super) struct Properties {
    before: [u8; ARCH_AT],
    arch: [u8; ARCH_BYTES],
    after: [u8; 8192 - ARCH_AT - ARCH_BYTES],
}

/// Where `gcnArchName` lies, and its size.
pub(super) const ARCH_AT: usize = 1160;
const ARCH_BYTES: usize = 256;

impl Properties {
    pub(super) fn zeroed() -> Box<Self> {
        let after = [0; 8192 - ARCH_AT - ARCH_BYTES];
        Box::new(Self { before: [0; ARCH_AT], arch: [0; ARCH_BYTES], after })
    }

    /// The architecture with its features, as `gfx90a:sramecc+:xnack-`; "" where it does not look like one.
    pub(super) fn arch(&self) -> &str {
        let _ = (&self.before, &self.after);
        let length = self.arch.iter().position(|b| *b == 0).unwrap_or(0);
        let text = str::from_utf8(&self.arch[..length]).unwrap_or("");
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b':' | b'+' | b'-'));
        if plain && text.starts_with("gfx") { text } else { "" }
    }
}

table! {
    answers Status; missing NOT_FOUND;
    required {
        init = c"hipInit" (flags: u32);
        device_count = c"hipGetDeviceCount" (count: &mut i32);
        device_name = c"hipDeviceGetName" (name: *mut u8, capacity: i32, device: i32);
        device_attribute = c"hipDeviceGetAttribute" (value: &mut i32, attribute: i32, device: i32);
        device_total = c"hipDeviceTotalMem" (bytes: &mut u64, device: i32);
        device_current = c"hipGetDevice" (device: &mut i32);
        device_set = c"hipSetDevice" (device: i32);
        can_access_peer = c"hipDeviceCanAccessPeer" (can: &mut i32, device: i32, peer: i32);
        memory_info = c"hipMemGetInfo" (free: &mut u64, total: &mut u64);
        memory_alloc = c"hipMalloc" (address: &mut u64, bytes: u64);
        memory_free = c"hipFree" (address: u64);
        host_alloc = c"hipHostMalloc" (address: &mut u64, bytes: u64, flags: u32);
        host_free = c"hipHostFree" (address: u64);
        host_device_pointer = c"hipHostGetDevicePointer" (address: &mut u64, host: u64, flags: u32);
        granularity = c"hipMemGetAllocationGranularity" (bytes: &mut u64, prop: &AllocationProp, option: i32);
        address_reserve = c"hipMemAddressReserve" (address: &mut u64, bytes: u64, alignment: u64, hint: u64, flags: u64);
        address_free = c"hipMemAddressFree" (address: u64, bytes: u64);
        create = c"hipMemCreate" (handle: &mut u64, bytes: u64, prop: &AllocationProp, flags: u64);
        release = c"hipMemRelease" (handle: u64);
        map = c"hipMemMap" (address: u64, bytes: u64, offset: u64, handle: u64, flags: u64);
        unmap = c"hipMemUnmap" (address: u64, bytes: u64);
        set_access = c"hipMemSetAccess" (address: u64, bytes: u64, list: *const AccessDesc, count: u64);
        export_handle = c"hipMemExportToShareableHandle" (out: &mut i32, handle: u64, kind: i32, flags: u64);
        import_handle = c"hipMemImportFromShareableHandle" (handle: &mut u64, descriptor: u64, kind: i32);
        handle_properties = c"hipMemGetAllocationPropertiesFromHandle" (prop: &mut AllocationProp, handle: u64);
        address_range = c"hipMemGetAddressRange" (base: &mut u64, bytes: &mut u64, address: u64);
        copy = c"hipMemcpy" (dst: u64, src: u64, bytes: u64, kind: i32);
        copy_async = c"hipMemcpyAsync" (dst: u64, src: u64, bytes: u64, kind: i32, stream: u64);
        stream_create = c"hipStreamCreateWithFlags" (stream: &mut u64, flags: u32);
        stream_destroy = c"hipStreamDestroy" (stream: u64);
        stream_synchronize = c"hipStreamSynchronize" (stream: u64);
        stream_query = c"hipStreamQuery" (stream: u64);
        stream_device = c"hipStreamGetDevice" (stream: u64, device: &mut i32);
        stream_wait_event = c"hipStreamWaitEvent" (stream: u64, event: u64, flags: u32);
        stream_is_capturing = c"hipStreamIsCapturing" (stream: u64, status: &mut i32);
        capture_begin = c"hipStreamBeginCapture" (stream: u64, mode: i32);
        capture_end = c"hipStreamEndCapture" (stream: u64, graph: &mut u64);
        exchange_capture_mode = c"hipThreadExchangeStreamCaptureMode" (mode: &mut i32);
        event_create = c"hipEventCreateWithFlags" (event: &mut u64, flags: u32);
        event_record = c"hipEventRecord" (event: u64, stream: u64);
        event_query = c"hipEventQuery" (event: u64);
        event_destroy = c"hipEventDestroy" (event: u64);
        launch_host = c"hipLaunchHostFunc" (stream: u64, function: HostFn, data: u64);
        graph_instantiate = c"hipGraphInstantiateWithFlags" (exec: &mut u64, graph: u64, flags: u64);
        graph_launch = c"hipGraphLaunch" (exec: u64, stream: u64);
        graph_exec_destroy = c"hipGraphExecDestroy" (exec: u64);
        graph_destroy = c"hipGraphDestroy" (graph: u64);
    }
    optional {
        properties = c"hipGetDevicePropertiesR0600" (properties: &mut Properties, device: i32);
        peek_error = c"hipPeekAtLastError" ();
        last_error = c"hipGetLastError" ();
        error_name = c"hipDrvGetErrorName" (status: i32, name: &mut *const c_char);
        module_load = c"hipModuleLoadData" (module: &mut u64, image: *const u8);
        module_function = c"hipModuleGetFunction" (function: &mut u64, module: u64, name: *const c_char);
        module_unload = c"hipModuleUnload" (module: u64);
        launch_kernel = c"hipModuleLaunchKernel" (function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32,
            shared: u32, stream: u64, parameters: *const *const c_void, extra: *const *const c_void);
        access_get = c"hipMemGetAccess" (flags: &mut u64, location: &Location, address: u64);
        copy_batch = c"hipMemcpyBatchAsync" (dsts: *const u64, srcs: *const u64, sizes: *const u64, count: u64,
            attributes: *const BatchAttributes, starts: *const u64, kinds: u64, failed: *mut u64, stream: u64);
        stream_write_value = c"hipStreamWriteValue64" (stream: u64, address: u64, value: u64, flags: u32);
        stream_wait_value = c"hipStreamWaitValue64" (stream: u64, address: u64, value: u64, flags: u32, mask: u64);
    }
}

/// A device's number as HIP takes it.
pub(super) fn number(device: Ordinal) -> i32 {
    i32::try_from(device.0).unwrap_or(i32::MAX)
}

impl Api {
    /// Opens the library, asks for its version, fills the table and initialises the runtime.
    ///
    /// # Errors
    ///
    /// `DriverNotFound`, `DriverTooOld` (before 6.0, or a required symbol is missing), `NoDevice`.
    pub(super) fn open(path: Option<&Path>, forced: &[(&str, bool)]) -> Result<(Self, u32), Error> {
        let library = find(path)?;
        let place = library.path().display().to_string();
        let version = version_of(&library);
        let subject = Subject { kind: DriverKind::HIP, version, arch: "" };
        if quirks::care(&subject, forced).has(Care::REFUSE) {
            let hint = format!("{place} is HIP {}: install ROCm 6.0 or later", in_words(version));
            let error = Error::new(Kind::DriverTooOld, Operation::Open, intern(&hint));
            return Err(error.native(i64::from(version), "version"));
        }
        let api = Self::load(library).map_err(|symbol| {
            let symbol = symbol.to_string_lossy();
            let hint = intern(&format!("{place} lacks {symbol}: install ROCm 6.0 or later"));
            Error::new(Kind::DriverTooOld, Operation::Open, hint)
        })?;
        match api.init(0) {
            SUCCESS => Ok((api, version)),
            status => Err(api.error(status, Operation::Open)),
        }
    }

    /// True where streams can write and wait for 64-bit values.
    pub(super) fn has_stream_values(&self) -> bool {
        self.stream_write_value.is_some() && self.stream_wait_value.is_some()
    }

    /// True where streams can write 64-bit values.
    pub(super) fn writes_values(&self) -> bool {
        self.stream_write_value.is_some()
    }

    /// True where many copies can be given in one call.
    pub(super) fn has_batches(&self) -> bool {
        self.copy_batch.is_some()
    }

    /// True where kernels can be loaded and launched.
    pub(super) fn has_modules(&self) -> bool {
        self.module_load.is_some() && self.module_function.is_some() && self.launch_kernel.is_some()
    }

    /// The library that was opened.
    pub(super) fn library(&self) -> &Library {
        &self.library
    }
}

/// Opens the library: as every vendor's, and then in ROCm's own folders.
fn find(path: Option<&Path>) -> Result<Library, Error> {
    let first = match Library::open(PLACES, path) {
        Err(error) if path.is_none() => error,
        opened => return opened,
    };
    let mut reasons = first.hint.to_owned();
    for candidate in folders().iter().flat_map(|f| PLACES.sonames.iter().map(|name| f.join(name))) {
        match Library::open(PLACES, Some(&candidate)) {
            Ok(library) => return Ok(library),
            Err(error) => reasons = format!("{reasons}; {}", error.hint),
        }
    }
    Err(crate::driver::library::absent(&reasons))
}

/// `$ROCM_PATH/lib`, and where ROCm is without it.
fn folders() -> Vec<PathBuf> {
    let named = std::env::var_os("ROCM_PATH").filter(|p| !p.is_empty()).map(|p| PathBuf::from(p).join("lib"));
    named.into_iter().chain([PathBuf::from("/opt/rocm/lib")]).collect()
}

/// The runtime's version, which it gives without a device too; 0 where it does not tell.
fn version_of(library: &Library) -> u32 {
    type Version = unsafe extern "C" fn(version: &mut i32) -> Status;
    let Some(address) = library.symbol(c"hipRuntimeGetVersion") else { return 0 };
    // SAFETY: the symbol has the signature that HIP's header gives it.
    let version = unsafe { std::mem::transmute::<*mut c_void, Version>(address.as_ptr()) };
    let mut number = 0;
    // SAFETY: the output is valid for the call.
    let status = unsafe { version(&mut number) };
    if status == SUCCESS { u32::try_from(number).unwrap_or(0) } else { 0 }
}

/// `7.2.51831` of 70251831.
pub(super) fn in_words(version: u32) -> String {
    format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_put_into_words() {
        assert_eq!(in_words(60_443_482), "6.4.43482");
        assert_eq!(in_words(71_460_850), "7.14.60850");
    }

    #[test]
    fn only_what_looks_like_an_architecture_is_taken() {
        let with = |text: &str| {
            let mut properties = Properties::zeroed();
            properties.arch[..text.len()].copy_from_slice(text.as_bytes());
            properties.arch().to_owned()
        };
        assert_eq!(with("gfx90a:sramecc+:xnack-"), "gfx90a:sramecc+:xnack-");
        assert_eq!(with("\u{1}garbage"), "");
        assert_eq!(with(""), "");
        assert_eq!((size_of::<Properties>(), std::mem::offset_of!(Properties, arch)), (8192, ARCH_AT));
    }
}
