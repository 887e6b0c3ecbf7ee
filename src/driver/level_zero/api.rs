//! The few functions of the Level Zero loader that are used, by the names and signatures of `ze_api.h` and
//! `zes_api.h`.
//!
//! Handles (contexts, devices, lists, events ...) are 64-bit numbers here: pointers that only the driver looks
//! behind. Outputs are references, so a call is a plain Rust call; only this file knows that it is C. Every output
//! is zeroed before its call: this driver may leave one untouched and call that a success.
#![allow(unsafe_code, reason = "calls through the addresses that dlsym gave")]

use super::layout::{
    AllocationProperties, CommandListDesc, CommandQueueDesc, ContextDesc, DeviceAllocDesc, DeviceProperties,
    EventDesc, EventPoolDesc, ExtensionProperties, ExternalProperties, HostAllocDesc, InitDesc,
    MemoryProperties, MemoryState, ModuleProperties, PhysicalDesc, PhysicalProperties, QueueGroup,
    SysmanProperties, Uuid,
};
use crate::driver::library::{Library, Places, intern};
use crate::driver::table::table;
use crate::error::{Error, Kind, Operation};

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "handles are 64-bit pointers");

/// A `ze_result_t`.
pub(super) type Status = u32;

/// `ZE_RESULT_SUCCESS`.
pub(super) const SUCCESS: Status = 0;
/// `ZE_RESULT_NOT_READY`: what was asked about is not done yet.
pub(super) const NOT_READY: Status = 1;
/// `ZE_RESULT_ERROR_UNINITIALIZED`: what `zeInit` says where there is no device.
pub(super) const UNINITIALIZED: Status = 0x7800_0001;
/// `ZE_RESULT_ERROR_UNSUPPORTED_FEATURE`: also what a call of a symbol that the library lacks gives.
pub(super) const UNSUPPORTED: Status = 0x7800_0003;
/// `ZE_RESULT_QUERY_TRUE`.
pub(super) const QUERY_TRUE: Status = 0x7800_0022;

/// `ZE_INIT_FLAG_GPU_ONLY`.
const GPU_ONLY: u32 = 1;

/// Where the library may be.
pub(super) const PLACES: Places = Places { base: "libze_loader.so", sonames: &["libze_loader.so.1"] };

table! {
    answers Status; missing UNSUPPORTED;
    required {
        init = c"zeInit" (flags: u32);
        drivers = c"zeDriverGet" (count: &mut u32, drivers: *mut u64);
        driver_extensions = c"zeDriverGetExtensionProperties" (driver: u64, count: &mut u32, list: *mut ExtensionProperties);
        devices = c"zeDeviceGet" (driver: u64, count: &mut u32, devices: *mut u64);
        sub_devices = c"zeDeviceGetSubDevices" (device: u64, count: &mut u32, devices: *mut u64);
        device_properties = c"zeDeviceGetProperties" (device: u64, properties: &mut DeviceProperties);
        device_memory = c"zeDeviceGetMemoryProperties" (device: u64, count: &mut u32, list: *mut MemoryProperties);
        device_groups = c"zeDeviceGetCommandQueueGroupProperties" (device: u64, count: &mut u32, list: *mut QueueGroup);
        can_access_peer = c"zeDeviceCanAccessPeer" (device: u64, peer: u64, can: &mut u8);
        device_status = c"zeDeviceGetStatus" (device: u64);
        context_create = c"zeContextCreate" (driver: u64, desc: &ContextDesc, context: &mut u64);
        context_destroy = c"zeContextDestroy" (context: u64);
        context_status = c"zeContextGetStatus" (context: u64);
        page_size = c"zeVirtualMemQueryPageSize" (context: u64, device: u64, bytes: u64, page: &mut u64);
        reserve = c"zeVirtualMemReserve" (context: u64, hint: u64, bytes: u64, address: &mut u64);
        free = c"zeVirtualMemFree" (context: u64, address: u64, bytes: u64);
        map = c"zeVirtualMemMap" (context: u64, address: u64, bytes: u64, physical: u64, offset: u64, access: u32);
        unmap = c"zeVirtualMemUnmap" (context: u64, address: u64, bytes: u64);
        physical_create = c"zePhysicalMemCreate" (context: u64, device: u64, desc: &PhysicalDesc, physical: &mut u64);
        physical_destroy = c"zePhysicalMemDestroy" (context: u64, physical: u64);
        allocate = c"zeMemAllocDevice" (context: u64, desc: &DeviceAllocDesc, bytes: u64, alignment: u64, device: u64, address: &mut u64);
        allocate_host = c"zeMemAllocHost" (context: u64, desc: &HostAllocDesc, bytes: u64, alignment: u64, address: &mut u64);
        deallocate = c"zeMemFree" (context: u64, address: u64);
        allocation_properties = c"zeMemGetAllocProperties" (context: u64, address: u64, properties: &mut AllocationProperties, device: &mut u64);
        list_create = c"zeCommandListCreate" (context: u64, device: u64, desc: &CommandListDesc, list: &mut u64);
        list_create_immediate = c"zeCommandListCreateImmediate" (context: u64, device: u64, desc: &CommandQueueDesc, list: &mut u64);
        list_close = c"zeCommandListClose" (list: u64);
        list_reset = c"zeCommandListReset" (list: u64);
        list_destroy = c"zeCommandListDestroy" (list: u64);
        append_copy = c"zeCommandListAppendMemoryCopy" (list: u64, dst: u64, src: u64, bytes: u64, signal: u64, waits: u32, events: *const u64);
        append_barrier = c"zeCommandListAppendBarrier" (list: u64, signal: u64, waits: u32, events: *const u64);
        queue_execute = c"zeCommandQueueExecuteCommandLists" (queue: u64, count: u32, lists: *const u64, fence: u64);
        event_pool_create = c"zeEventPoolCreate" (context: u64, desc: &EventPoolDesc, count: u32, devices: *const u64, pool: &mut u64);
        event_pool_destroy = c"zeEventPoolDestroy" (pool: u64);
        event_create = c"zeEventCreate" (pool: u64, desc: &EventDesc, event: &mut u64);
        event_destroy = c"zeEventDestroy" (event: u64);
        event_query = c"zeEventQueryStatus" (event: u64);
        event_wait = c"zeEventHostSynchronize" (event: u64, timeout_ns: u64);
        event_reset = c"zeEventHostReset" (event: u64);
    }
    optional {
        init_drivers = c"zeInitDrivers" (count: &mut u32, drivers: *mut u64, desc: &InitDesc);
        external_properties = c"zeDeviceGetExternalMemoryProperties" (device: u64, properties: &mut ExternalProperties);
        physical_properties = c"zePhysicalMemGetProperties" (context: u64, physical: u64, properties: &mut PhysicalProperties);
        list_is_immediate = c"zeCommandListIsImmediate" (list: u64, is: &mut u8);
        list_device = c"zeCommandListGetDeviceHandle" (list: u64, device: &mut u64);
        list_context = c"zeCommandListGetContextHandle" (list: u64, context: &mut u64);
        list_group = c"zeCommandListGetOrdinal" (list: u64, group: &mut u32);
        list_is_captured = c"zeCommandListIsGraphCaptureEnabledExt" (list: u64);
        list_append_lists = c"zeCommandListImmediateAppendCommandListsExp" (list: u64, count: u32, lists: *const u64, signal: u64, waits: u32, events: *const u64);
        queue_group = c"zeCommandQueueGetOrdinal" (queue: u64, group: &mut u32);
        sysman_init = c"zesInit" (flags: u32);
        sysman_drivers = c"zesDriverGet" (count: &mut u32, drivers: *mut u64);
        sysman_devices = c"zesDeviceGet" (driver: u64, count: &mut u32, devices: *mut u64);
        sysman_by_uuid = c"zesDriverGetDeviceByUuidExp" (driver: u64, uuid: Uuid, device: &mut u64, on_part: &mut u8, part: &mut u32);
        sysman_properties = c"zesDeviceGetProperties" (device: u64, properties: &mut SysmanProperties);
        sysman_modules = c"zesDeviceEnumMemoryModules" (device: u64, count: &mut u32, modules: *mut u64);
        module_properties = c"zesMemoryGetProperties" (module: u64, properties: &mut ModuleProperties);
        module_state = c"zesMemoryGetState" (module: u64, state: &mut MemoryState);
    }
}

impl Api {
    /// Opens the library and fills the table.
    ///
    /// # Errors
    ///
    /// `DriverNotFound` (no library), `DriverTooOld` (a required symbol is missing).
    pub(super) fn open(path: Option<&std::path::Path>) -> Result<Self, Error> {
        let library = Library::open(PLACES, path)?;
        let place = library.path().display().to_string();
        Self::load(library).map_err(|symbol| {
            let symbol = symbol.to_string_lossy();
            let hint =
                intern(&format!("{place} lacks {symbol}: install a Level Zero loader of 1.0 or later"));
            Error::new(Kind::DriverTooOld, Operation::Open, hint)
        })
    }

    /// Initialises the drivers of GPUs and gives them.
    ///
    /// # Errors
    ///
    /// `DriverNotFound` where the loader has no driver, or none with a device; else what it says.
    pub(super) fn start(&self) -> Result<Vec<u64>, Error> {
        let desc = InitDesc::gpus();
        let newer = list(|count, drivers| self.init_drivers(count, drivers, &desc));
        let found = match newer {
            Ok(found) if !found.is_empty() => found,
            // An older loader, or an older driver below a newer loader.
            _ => {
                let status = self.init(GPU_ONLY);
                if status != SUCCESS {
                    return Err(self.no_device(status));
                }
                list(|count, drivers| self.drivers(count, drivers)).map_err(|s| self.no_device(s))?
            }
        };
        if found.is_empty() { Err(self.no_device(UNINITIALIZED)) } else { Ok(found) }
    }

    fn no_device(&self, status: Status) -> Error {
        if status != UNINITIALIZED {
            return self.error(status, Operation::Open);
        }
        let place = self.path().display();
        let hint = intern(&format!(
            "{place} found no Level Zero GPU: install Intel's GPU driver (libze_intel_gpu.so.1), and allow access to /dev/dri"
        ));
        // The loader alone is no driver, and it does not tell whether one is there that has no device.
        Error { kind: Kind::DriverNotFound, hint, ..self.error(status, Operation::Open) }
    }

    /// True where a closed list can be run by an immediate one.
    pub(super) fn has_append_lists(&self) -> bool {
        self.list_append_lists.is_some()
    }

    /// True where blocks can be asked for their size and their descriptor.
    pub(super) fn has_physical_properties(&self) -> bool {
        self.physical_properties.is_some()
    }

    /// The file that was opened.
    pub(super) fn path(&self) -> &std::path::Path {
        self.library.path()
    }
}

/// What a call gives that is asked first for how many, and then for all.
pub(super) fn list<T: Clone + Default>(call: impl Fn(&mut u32, *mut T) -> Status) -> Result<Vec<T>, Status> {
    list_of(T::default(), call)
}

/// The same, where each element must say what it is before the call.
pub(super) fn list_of<T: Clone>(
    blank: T,
    call: impl Fn(&mut u32, *mut T) -> Status,
) -> Result<Vec<T>, Status> {
    let mut count = 0;
    let mut status = call(&mut count, std::ptr::null_mut());
    let mut found = vec![blank; count as usize];
    if status == SUCCESS && count > 0 {
        status = call(&mut count, found.as_mut_ptr());
        found.truncate(count as usize);
    }
    if status == SUCCESS { Ok(found) } else { Err(status) }
}
