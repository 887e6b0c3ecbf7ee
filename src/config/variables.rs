//! The variables: names, defaults and what they mean.

/// A variable, for the documents and for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What holds where it is not set.
    pub default: &'static str,
    /// What it says and which values it takes.
    pub meaning: &'static str,
}

pub(super) const LOG: &str = "GVMM_LOG";
pub(super) const DRIVER: &str = "GVMM_DRIVER";
pub(super) const CUDA_LIBRARY: &str = "GVMM_CUDA_LIBRARY";
pub(super) const HIP_LIBRARY: &str = "GVMM_HIP_LIBRARY";
pub(super) const ZE_LIBRARY: &str = "GVMM_ZE_LIBRARY";
pub(super) const QUIRKS: &str = "GVMM_QUIRKS";
pub(super) const HOST_DEVICES: &str = "GVMM_HOST_DEVICES";
pub(super) const HOST_MEMORY: &str = "GVMM_HOST_MEMORY";
pub(super) const HOST_HUGEPAGES: &str = "GVMM_HOST_HUGEPAGES";
pub(super) const HOST_CAPS: &str = "GVMM_HOST_CAPS";
pub(super) const HOST_COSTS: &str = "GVMM_HOST_COSTS";
pub(super) const HOST_MAX_MAPS: &str = "GVMM_HOST_MAX_MAPS";
pub(super) const SHADOW_BUDGET: &str = "GVMM_SHADOW_BUDGET";
pub(super) const POOL_CHUNK: &str = "GVMM_POOL_CHUNK";
pub(super) const POOL_SMALL_CHUNK: &str = "GVMM_POOL_SMALL_CHUNK";
pub(super) const POOL_LIMIT: &str = "GVMM_POOL_LIMIT";
pub(super) const POOL_PEERS: &str = "GVMM_POOL_PEERS";
pub(super) const POOL_HISTORY: &str = "GVMM_POOL_HISTORY";
pub(super) const XPU_STREAMS: &str = "GVMM_XPU_STREAMS";
pub(super) const PLAN: &str = "GVMM_PLAN";
pub(super) const PROFILE: &str = "GVMM_PROFILE";
pub(super) const TMP_COPY_THRESHOLD: &str = "XLA_VMM_TMP_COPY_THRESHOLD";

const VARIABLES: &[Variable] = &[
    variable(
        LOG,
        "unset: silence",
        "What to log to standard error: off, error, warn, info, debug, trace, or module=level,...",
    ),
    variable(
        DRIVER,
        "auto",
        "Which driver `auto` is: auto (the first that the machine has), cuda, hip, level_zero or host",
    ),
    variable(
        CUDA_LIBRARY,
        "unset: searched for",
        "Path of NVIDIA's driver library (libcuda.so.1); no other is tried",
    ),
    variable(
        HIP_LIBRARY,
        "unset: searched for",
        "Path of AMD's HIP library (libamdhip64.so.7 or .6); no other is tried",
    ),
    variable(
        ZE_LIBRARY,
        "unset: searched for",
        "Path of the Level Zero loader (libze_loader.so.1); no other is tried",
    ),
    variable(
        QUIRKS,
        "unset: as driver and device say",
        "Care for known driver faults to force on or off by name, as `+name,-name`; `gvmm info --json` lists those in force",
    ),
    variable(HOST_DEVICES, "1", "How many devices the host driver has, 1 to 64"),
    variable(
        HOST_MEMORY,
        "0",
        "Memory of each host device in bytes, or with K, M, G or T behind (of 1024); 0: the machine's own",
    ),
    variable(HOST_HUGEPAGES, "off", "Back the host driver's blocks by huge pages: on or off"),
    variable(
        HOST_CAPS,
        "unset: all",
        "Capabilities to take from the host driver, as `-aliasing,-joint_copies`; also -virtual_memory, -joined_access, -range_access, -device_access, -sharing, -routes, -patches",
    ),
    variable(
        HOST_COSTS,
        "none",
        "Which table of simulated costs the host driver's calls take: none, h200 or h200-peer",
    ),
    variable(
        HOST_MAX_MAPS,
        "0",
        "How many mappings the host driver may hold; 0: 90 % of what vm.max_map_count leaves",
    ),
    variable(
        SHADOW_BUDGET,
        "1 % of the device's memory, or 64M",
        "Bytes of shadows for all bindings of a device, or with K, M, G or T behind",
    ),
    variable(
        POOL_CHUNK,
        "16M, or 4M with a limit; 64M on HIP",
        "Bytes of a pool's chunks for requests of more than 1 MiB: a multiple of the granule",
    ),
    variable(
        POOL_SMALL_CHUNK,
        "2M, or 4M with a limit",
        "Bytes of a pool's chunks for smaller requests: a multiple of the granule",
    ),
    variable(
        POOL_LIMIT,
        "unset: all that there is",
        "The most of a device's memory that a pool reserves, in bytes, or with K, M, G or T behind",
    ),
    variable(
        POOL_PEERS,
        "none",
        "Which devices may use the memory of a framework's pools on other devices: none, all, or numbers such as 0,1",
    ),
    variable(POOL_HISTORY, "0", "How many events a pool keeps for snapshots, for each stream"),
    variable(
        XPU_STREAMS,
        "one",
        "What PyTorch allocates for on an Intel GPU: one (a second stream of a device is an error) or any (somebody tells which streams use a block: torch.xpu.MemPool does, and so does the hook)",
    ),
    variable(
        PLAN,
        "threshold",
        "How bindings that ask for nothing else decide: threshold (by size, as XLA does) or auto (by what each action costs, once the first 5 steps were watched)",
    ),
    variable(
        PROFILE,
        "unset: built in",
        "File with what remaps, copies and patches cost on this device; one that is wrong or another device's gives way to the built-in figures, with a warning",
    ),
    variable(
        TMP_COPY_THRESHOLD,
        "1",
        "Threshold of bindings that ask for the default: 0 off (nothing is copied), 1 automatic, above 1 that many bytes",
    ),
];

const fn variable(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable { name, default, meaning }
}

/// Every variable that the library reads.
pub const fn variables() -> &'static [Variable] {
    VARIABLES
}
