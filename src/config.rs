//! Every environment variable, read once, each with its default and its warning.

/// How the host driver shall behave; plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Number of devices (`GVMM_HOST_DEVICES`), at least 1.
    pub devices: u32,
    /// Bytes of memory of each device (`GVMM_HOST_MEMORY`); 0 is the machine's own memory.
    pub memory: u64,
    /// Back blocks by huge pages (`GVMM_HOST_HUGEPAGES`).
    pub huge_pages: bool,
    /// Names of capabilities to switch off (`GVMM_HOST_CAPS`, `-aliasing,-joint_copies`), without the dash.
    pub caps_off: Vec<String>,
    /// Name of a built-in table of simulated costs (`GVMM_HOST_COSTS`), or none.
    pub costs: Option<String>,
    /// How many mappings the driver may hold (`GVMM_HOST_MAX_MAPS`); 0 is what the system leaves.
    pub max_maps: u64,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self { devices: 1, memory: 0, huge_pages: false, caps_off: Vec::new(), costs: None, max_maps: 0 }
    }
}
