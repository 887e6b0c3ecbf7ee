//! `libgvmm_preload_cuda.so`: stands in front of CUDA's virtual-memory calls. Programs link them seldom and look them up
//! mostly, so `dlsym` is answered too.
#![allow(unsafe_code, non_upper_case_globals, non_snake_case, reason = "exports the vendor's names")]

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod loader;

gvmm_preload_core::exports! {
    gvmm_preload_core::call::CUDA;
    calls {
        cuMemCreate = Create;
        cuMemRelease = Release;
        cuMemAddressReserve = Reserve;
        cuMemAddressFree = Free;
        cuMemMap = Map;
        cuMemUnmap = Unmap;
        cuMemSetAccess = SetAccess;
        cuMemGetAccess = GetAccess;
        cuMemRetainAllocationHandle = Retain;
        cuMemExportToShareableHandle = Export;
        cuMemImportFromShareableHandle = Import;
        cuMemGetAllocationGranularity = Granularity;
        cuGraphLaunch = GraphLaunch;
        cuGraphLaunch_ptsz = GraphLaunchThread;
    }
    lookups {
        cuGetProcAddress = Lookup;
        cuGetProcAddress_v2 = LookupStatus;
    }
}
