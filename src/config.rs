//! Every environment variable, read once, each with its default and its warning.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

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

const LOG: &str = "GVMM_LOG";
const DRIVER: &str = "GVMM_DRIVER";
const CUDA_LIBRARY: &str = "GVMM_CUDA_LIBRARY";
const HIP_LIBRARY: &str = "GVMM_HIP_LIBRARY";
const ZE_LIBRARY: &str = "GVMM_ZE_LIBRARY";
const QUIRKS: &str = "GVMM_QUIRKS";
const HOST_DEVICES: &str = "GVMM_HOST_DEVICES";
const HOST_MEMORY: &str = "GVMM_HOST_MEMORY";
const HOST_HUGEPAGES: &str = "GVMM_HOST_HUGEPAGES";
const HOST_CAPS: &str = "GVMM_HOST_CAPS";
const HOST_COSTS: &str = "GVMM_HOST_COSTS";
const HOST_MAX_MAPS: &str = "GVMM_HOST_MAX_MAPS";
const SHADOW_BUDGET: &str = "GVMM_SHADOW_BUDGET";
const TMP_COPY_THRESHOLD: &str = "XLA_VMM_TMP_COPY_THRESHOLD";

/// Every variable that the library reads.
pub const fn variables() -> &'static [Variable] {
    const fn variable(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
        Variable { name, default, meaning }
    }
    const {
        &[
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
                "Capabilities to take from the host driver, as `-aliasing,-joint_copies`; also -virtual_memory, -joined_access, -range_access, -device_access, -sharing, -routes",
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
                TMP_COPY_THRESHOLD,
                "1",
                "Threshold of bindings that ask for the default: 0 off (nothing is copied), 1 automatic, above 1 that many bytes",
            ),
        ]
    }
}

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
pub(crate) fn log_filter() -> Option<&'static str> {
    read_once().0.log.as_deref()
}

fn read_once() -> &'static (Config, Vec<String>) {
    static READ: OnceLock<(Config, Vec<String>)> = OnceLock::new();
    READ.get_or_init(|| Config::read(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned())))
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
        };
        (config, reader.warnings)
    }
}

/// Reads variables and keeps the warnings.
struct Reader<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    /// The value of `name`, or none where it is not set or not what is `wanted`.
    fn get<T>(&mut self, name: &str, wanted: &str, parse: fn(&str) -> Option<T>) -> Option<T> {
        let text = (self.lookup)(name)?;
        let value = parse(text.trim());
        if value.is_none() {
            self.warnings.push(format!("{name}={text}: expected {wanted}; the default is used"));
        }
        value
    }

    fn host(&mut self) -> HostConfig {
        let default = HostConfig::default();
        HostConfig {
            devices: self.get(HOST_DEVICES, "a number from 1 to 64", devices).unwrap_or(default.devices),
            memory: self.get(HOST_MEMORY, "a number of bytes such as 8G", bytes).unwrap_or(default.memory),
            huge_pages: self.get(HOST_HUGEPAGES, "on or off", switch).unwrap_or(default.huge_pages),
            caps_off: self.get(HOST_CAPS, "names such as -aliasing,-joint_copies", caps).unwrap_or_default(),
            costs: self.get(HOST_COSTS, "none, h200 or h200-peer", costs).flatten(),
            max_maps: self.get(HOST_MAX_MAPS, "a number of mappings", number).unwrap_or(default.max_maps),
        }
    }
}

/// What `env_logger` takes; it would print what is wrong itself.
fn filter(text: &str) -> Option<Option<String>> {
    env_filter::Builder::new().try_parse(text).ok()?;
    Some((!text.is_empty()).then(|| text.to_string()))
}

/// The numbers are those of the C ABI; a test of the layer above compares them.
fn driver(text: &str) -> Option<Option<u32>> {
    const NAMES: [&str; 5] = ["auto", "cuda", "hip", "level_zero", "host"];
    let index = NAMES.iter().position(|name| text.eq_ignore_ascii_case(name))?;
    Some(u32::try_from(index).ok().filter(|&number| number > 0))
}

/// An empty one is as one that is not set.
fn path(text: String) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn quirks(text: &str) -> Option<Vec<(String, bool)>> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items
        .map(|item| {
            let on = item.starts_with('+');
            let name = item.strip_prefix(['+', '-']).filter(|name| !name.is_empty())?;
            Some((name.to_string(), on))
        })
        .collect()
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

fn devices(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| (1..=64).contains(n))
}

/// `65536`, `64K`, `8G`.
fn bytes(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_uppercase() {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => return number(text),
    };
    number(&text[..text.len() - 1])?.checked_mul(1 << shift)
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "1" => Some(true),
        "off" | "0" => Some(false),
        _ => None,
    }
}

fn caps(text: &str) -> Option<Vec<String>> {
    const NAMES: [&str; 8] = [
        "virtual_memory",
        "aliasing",
        "device_access",
        "range_access",
        "joined_access",
        "joint_copies",
        "sharing",
        "routes",
    ];
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(|item| item.strip_prefix('-').filter(|name| NAMES.contains(name)).map(str::to_string)).collect()
}

fn costs(text: &str) -> Option<Option<String>> {
    match text {
        "none" => Some(None),
        "h200" | "h200-peer" => Some(Some(text.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> (Config, Vec<String>) {
        Config::read(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn nothing_set_is_the_default_without_a_warning() {
        assert_eq!(read(&[]), (Config::default(), vec![]));
    }

    #[test]
    fn right_values_are_taken() {
        let (config, warnings) = read(&[
            (LOG, "debug"),
            (DRIVER, "host"),
            (CUDA_LIBRARY, "/opt/libcuda.so.1"),
            (ZE_LIBRARY, ""),
            (QUIRKS, "+cuda-small-parameters, -some-other"),
            (HOST_DEVICES, "4"),
            (HOST_MEMORY, "8G"),
            (HOST_HUGEPAGES, "on"),
            (HOST_CAPS, "-aliasing, -joint_copies"),
            (HOST_COSTS, "h200-peer"),
            (HOST_MAX_MAPS, "1000"),
            (SHADOW_BUDGET, "64m"),
            (TMP_COPY_THRESHOLD, "4096"),
        ]);
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(config.log.as_deref(), Some("debug"));
        assert_eq!(config.driver, Some(4));
        let libraries = Libraries { cuda: Some("/opt/libcuda.so.1".into()), ..Libraries::default() };
        assert_eq!(config.libraries, libraries);
        assert_eq!(config.quirks, [("cuda-small-parameters".into(), true), ("some-other".into(), false)]);
        assert_eq!(config.host.devices, 4);
        assert_eq!(config.host.memory, 8 << 30);
        assert!(config.host.huge_pages);
        assert_eq!(config.host.caps_off, ["aliasing", "joint_copies"]);
        assert_eq!(config.host.costs.as_deref(), Some("h200-peer"));
        assert_eq!(config.host.max_maps, 1000);
        assert_eq!(config.shadow_budget, Some(64 << 20));
        assert_eq!(config.tmp_copy_threshold, Some(4096));
    }

    #[test]
    fn a_wrong_value_is_one_warning_and_the_default() {
        for (name, value) in [
            (LOG, "a=b=c"),
            (LOG, "gvmm=loud"),
            (DRIVER, "metal"),
            (QUIRKS, "cuda-small-parameters"),
            (QUIRKS, "+"),
            (HOST_DEVICES, "0"),
            (HOST_DEVICES, "many"),
            (HOST_MEMORY, "8 Gigs"),
            (HOST_MEMORY, "99999999999999T"),
            (HOST_MEMORY, ""),
            (HOST_HUGEPAGES, "perhaps"),
            (HOST_CAPS, "aliasing"),
            (HOST_CAPS, "-flying"),
            (HOST_COSTS, "h100"),
            (HOST_MAX_MAPS, "-1"),
            (SHADOW_BUDGET, "1%"),
            (TMP_COPY_THRESHOLD, "-1"),
            (TMP_COPY_THRESHOLD, "big"),
        ] {
            let (config, warnings) = read(&[(name, value)]);
            assert_eq!(config, Config::default(), "{name}={value}");
            assert_eq!(warnings.len(), 1, "{name}={value}");
            assert!(warnings[0].starts_with(&format!("{name}={value}: expected ")), "{}", warnings[0]);
        }
    }

    #[test]
    fn the_automatic_choices_can_be_named() {
        let (config, warnings) = read(&[(DRIVER, "AUTO"), (HOST_COSTS, "none"), (LOG, " ")]);
        assert_eq!((config, warnings), (Config::default(), vec![]));
    }

    /// A variable that is read but not listed would be missing from the documents.
    #[test]
    fn every_variable_that_is_read_is_listed() {
        let asked = std::cell::RefCell::new(Vec::new());
        let _ = Config::read(|name| {
            asked.borrow_mut().push(name.to_string());
            None
        });
        let (mut asked, mut listed) = (asked.into_inner(), Vec::new());
        listed.extend(variables().iter().map(|v| v.name.to_string()));
        asked.sort();
        listed.sort();
        assert_eq!(asked, listed);
    }
}
