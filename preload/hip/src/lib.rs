//! `libgvmm_preload_hip.so`: stands in front of HIP's virtual-memory calls in programs that link `libamdhip64`.
//!
//! The names carry no version, which the loader takes for every version that a program asks for.
#![allow(unsafe_code, non_upper_case_globals, non_snake_case, reason = "exports the vendor's names")]

gvmm_preload_core::exports! {
    gvmm_preload_core::call::HIP;
    calls {
        hipMemCreate = Create;
        hipMemRelease = Release;
        hipMemAddressReserve = Reserve;
        hipMemAddressFree = Free;
        hipMemMap = Map;
        hipMemUnmap = Unmap;
        hipMemSetAccess = SetAccess;
        hipMemGetAccess = GetAccess;
        hipMemRetainAllocationHandle = Retain;
        hipMemExportToShareableHandle = Export;
        hipMemImportFromShareableHandle = Import;
        hipMemGetAllocationGranularity = Granularity;
        hipGraphLaunch = GraphLaunch;
        hipGraphLaunch_spt = GraphLaunchThread;
    }
    lookups {
        hipGetProcAddress = Lookup;
    }
}
