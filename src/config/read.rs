//! From a variable's text to its value.

use super::HostConfig;
use super::variables::*;
use std::path::PathBuf;

/// Reads variables and keeps the warnings.
pub(super) struct Reader<'a> {
    pub(super) lookup: &'a dyn Fn(&str) -> Option<String>,
    pub(super) warnings: Vec<String>,
}

impl Reader<'_> {
    /// The value of `name`, or none where it is not set or not what is `wanted`.
    pub(super) fn get<T>(&mut self, name: &str, wanted: &str, parse: fn(&str) -> Option<T>) -> Option<T> {
        let text = (self.lookup)(name)?;
        let value = parse(text.trim());
        if value.is_none() {
            self.warnings.push(format!("{name}={text}: expected {wanted}; the default is used"));
        }
        value
    }

    pub(super) fn host(&mut self) -> HostConfig {
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
pub(super) fn filter(text: &str) -> Option<Option<String>> {
    env_filter::Builder::new().try_parse(text).ok()?;
    Some((!text.is_empty()).then(|| text.to_string()))
}

/// The numbers are those of the C ABI; a test of the layer above compares them.
pub(super) fn driver(text: &str) -> Option<Option<u32>> {
    const NAMES: [&str; 5] = ["auto", "cuda", "hip", "level_zero", "host"];
    let index = NAMES.iter().position(|name| text.eq_ignore_ascii_case(name))?;
    Some(u32::try_from(index).ok().filter(|&number| number > 0))
}

/// An empty one is as one that is not set.
pub(super) fn path(text: String) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

pub(super) fn quirks(text: &str) -> Option<Vec<(String, bool)>> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items
        .map(|item| {
            let on = item.starts_with('+');
            let name = item.strip_prefix(['+', '-']).filter(|name| !name.is_empty())?;
            Some((name.to_string(), on))
        })
        .collect()
}

pub(super) fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

pub(super) fn devices(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| (1..=64).contains(n))
}

/// `65536`, `64K`, `8G`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_uppercase() {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => return number(text),
    };
    number(&text[..text.len() - 1])?.checked_mul(1 << shift)
}

/// The same where 0 would leave nothing.
pub(super) fn some_bytes(text: &str) -> Option<u64> {
    bytes(text).filter(|n| *n > 0)
}

/// A bit for each device.
pub(super) fn peers(text: &str) -> Option<u64> {
    match text {
        "all" => Some(u64::MAX),
        "none" => Some(0),
        list => list.split(',').try_fold(0, |bits, item| {
            let device: u32 = item.trim().parse().ok().filter(|device| *device < 64)?;
            Some(bits | 1 << device)
        }),
    }
}

pub(super) fn history(text: &str) -> Option<u32> {
    text.parse().ok()
}

pub(super) fn plan(text: &str) -> Option<bool> {
    match text {
        "auto" => Some(true),
        "threshold" => Some(false),
        _ => None,
    }
}

/// Whether any stream may allocate.
pub(super) fn streams(text: &str) -> Option<bool> {
    match text {
        "any" => Some(true),
        "one" => Some(false),
        _ => None,
    }
}

pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "1" => Some(true),
        "off" | "0" => Some(false),
        _ => None,
    }
}

pub(super) fn caps(text: &str) -> Option<Vec<String>> {
    const NAMES: [&str; 9] = [
        "virtual_memory",
        "aliasing",
        "device_access",
        "range_access",
        "joined_access",
        "joint_copies",
        "sharing",
        "routes",
        "patches",
    ];
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(|item| item.strip_prefix('-').filter(|name| NAMES.contains(name)).map(str::to_string)).collect()
}

pub(super) fn costs(text: &str) -> Option<Option<String>> {
    match text {
        "none" => Some(None),
        "h200" | "h200-peer" => Some(Some(text.to_string())),
        _ => None,
    }
}
