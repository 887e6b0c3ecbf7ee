//! Every environment variable, read once, each with its default and its warning.

mod read;
#[cfg(test)]
mod tests;
mod variables;

pub use variables::{Variable, variables};

use crate::error::{Error, Kind, Operation, Result};
use read::{Reader, bytes, driver, filter, history, number, path, peers, plan, quirks, some_bytes, streams};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use variables::*;

/// What the variables say.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// What to log to standard error (`GVMM_LOG`), or nothing.
    pub log: Option<String>,
    /// The number of the driver (`GVMM_DRIVER`): 1 cuda, 2 hip, 3 level_zero, 4 host; none is the first
    /// found.
    pub driver: Option<u32>,
    /// Where the vendors' libraries are.
    pub libraries: Libraries,
    /// Quirks forced on (true) or off by name (`GVMM_QUIRKS`).
    pub quirks: Vec<(String, bool)>,
    /// How the host driver shall behave.
    pub host: HostConfig,
    /// `XLA_VMM_TMP_COPY_THRESHOLD` where it is set and a number: 0 is off, 1 automatic, above 1 bytes.
    pub tmp_copy_threshold: Option<u64>,
    /// Bytes of shadows a device (`GVMM_SHADOW_BUDGET`), or none for the default.
    pub shadow_budget: Option<u64>,
    /// What pools that say nothing else are made with.
    pub pool: PoolConfig,
    /// True where bindings that ask for nothing else are planned by cost (`GVMM_PLAN=auto`).
    pub plan_auto: bool,
    /// The file with the device's costs (`GVMM_PROFILE`), or none for the built-in ones.
    pub profile: Option<PathBuf>,
}

/// The paths of the vendors' libraries where the user gave them; without one it is searched for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Libraries {
    /// NVIDIA's (`GVMM_CUDA_LIBRARY`).
    pub cuda: Option<PathBuf>,
    /// AMD's (`GVMM_HIP_LIBRARY`).
    pub hip: Option<PathBuf>,
    /// Intel's (`GVMM_ZE_LIBRARY`).
    pub level_zero: Option<PathBuf>,
}

/// What pools are made with, in bytes; none for the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoolConfig {
    /// Chunks for requests of more than 1 MiB (`GVMM_POOL_CHUNK`).
    pub chunk: Option<u64>,
    /// Chunks for smaller ones (`GVMM_POOL_SMALL_CHUNK`).
    pub small_chunk: Option<u64>,
    /// The most that a pool reserves (`GVMM_POOL_LIMIT`).
    pub limit: Option<u64>,
    /// The devices that may use a framework's pools of others, a bit each (`GVMM_POOL_PEERS`); all bits: all devices.
    pub peers: u64,
    /// How many events a pool keeps for snapshots, for each stream (`GVMM_POOL_HISTORY`).
    pub history: u32,
    /// PyTorch may allocate for any number of streams of an Intel GPU (`GVMM_XPU_STREAMS=any`), not for one of each.
    pub xpu_any_stream: bool,
}

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

/// What the environment says; it is read once, and wrong values are warned of at the first call.
pub fn get() -> &'static Config {
    // No `Once`: a logger may call this again.
    static WARNED: AtomicBool = AtomicBool::new(false);
    let (config, warnings) = read_once();
    if !warnings.is_empty() && !WARNED.swap(true, Ordering::Relaxed) {
        warnings.iter().for_each(|warning| log::warn!("{warning}"));
    }
    config
}

/// What to log to standard error, or nothing; asked for before there is a logger that could be warned through.
pub(crate) fn log_filter() -> Option<String> {
    filter(&variable_of(LOG)?).flatten()
}

/// What takes the place of variables, as their texts; set before they are read, or never.
static OPTIONS: Mutex<Options> = Mutex::new(Options::Open);

enum Options {
    /// None were given, and the variables have not been read.
    Open,
    Given(Vec<(&'static str, String)>),
    /// The variables have been read.
    Closed,
}

fn options() -> MutexGuard<'static, Options> {
    OPTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets texts take the place of variables, by their names. That of `GVMM_LOG` is the caller's to hand to the log.
///
/// # Errors
/// `InvalidArgument` for a text that its variable could not have (the log says which), `WrongState` where the variables
/// have been read, or options given before.
pub fn give(texts: Vec<(&'static str, String)>) -> Result<()> {
    let (_, warnings) = Config::read(|name| text_of(&texts, name));
    warnings.iter().for_each(|warning| log::error!("{warning}"));
    if !warnings.is_empty() {
        let hint = "an option has a value that it cannot have: the log says which";
        return Err(Error::new(Kind::InvalidArgument, Operation::Open, hint));
    }
    let mut options = options();
    if !matches!(*options, Options::Open) {
        let hint = "options are given once, and before the first device is opened";
        return Err(Error::new(Kind::WrongState, Operation::Open, hint));
    }
    *options = Options::Given(texts);
    Ok(())
}

fn text_of(texts: &[(&'static str, String)], name: &str) -> Option<String> {
    texts.iter().find(|(known, _)| *known == name).map(|(_, text)| text.clone())
}

fn variable_of(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

fn read_once() -> &'static (Config, Vec<String>) {
    static READ: OnceLock<(Config, Vec<String>)> = OnceLock::new();
    READ.get_or_init(|| {
        let given = match std::mem::replace(&mut *options(), Options::Closed) {
            Options::Given(texts) => texts,
            Options::Open | Options::Closed => Vec::new(),
        };
        Config::read(|name| text_of(&given, name).or_else(|| variable_of(name)))
    })
}

impl Config {
    /// What `lookup` says, and one warning for each wrong value, which gives way to its default.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut reader = Reader { lookup: &lookup, warnings: Vec::new() };
        let config = Self {
            log: reader.get(LOG, "levels such as warn or gvmm::vm=debug,info", filter).flatten(),
            driver: reader.get(DRIVER, "auto, cuda, hip, level_zero or host", driver).flatten(),
            libraries: Libraries {
                cuda: lookup(CUDA_LIBRARY).and_then(path),
                hip: lookup(HIP_LIBRARY).and_then(path),
                level_zero: lookup(ZE_LIBRARY).and_then(path),
            },
            quirks: reader.get(QUIRKS, "names such as +name,-name", quirks).unwrap_or_default(),
            host: reader.host(),
            tmp_copy_threshold: reader.get(
                TMP_COPY_THRESHOLD,
                "a number of bytes, 0 (off) or 1 (automatic)",
                number,
            ),
            shadow_budget: reader.get(SHADOW_BUDGET, "a number of bytes such as 67108864 or 64M", bytes),
            pool: PoolConfig {
                chunk: reader.get(POOL_CHUNK, "a number of bytes such as 16M", bytes),
                small_chunk: reader.get(POOL_SMALL_CHUNK, "a number of bytes such as 2M", bytes),
                limit: reader.get(POOL_LIMIT, "a number of bytes such as 70G", some_bytes),
                peers: reader.get(POOL_PEERS, "none, all or devices such as 0,1", peers).unwrap_or_default(),
                history: reader.get(POOL_HISTORY, "a number of events", history).unwrap_or_default(),
                xpu_any_stream: reader.get(XPU_STREAMS, "one or any", streams).unwrap_or_default(),
            },
            plan_auto: reader.get(PLAN, "threshold or auto", plan).unwrap_or_default(),
            profile: lookup(PROFILE).and_then(path),
        };
        (config, reader.warnings)
    }
}
