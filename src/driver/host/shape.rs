//! What the devices of a driver are like.

use super::access::MAX_DEVICES;
use super::costs::Costs;
use super::huge::Huge;
use super::sys;
use crate::config::HostConfig;
use crate::driver::Capabilities;
use crate::error::{Error, Kind, Operation, Result};

/// What a driver's devices are like, all of them alike.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) capabilities: Capabilities,
    pub(super) devices: u32,
    pub(super) total: u64,
    pub(super) huge: Huge,
    pub(super) costs: Option<Costs>,
}

impl Shape {
    /// What a configuration asks for. A name in it that does not exist is ignored with a warning.
    pub(super) fn new(config: &HostConfig, costs: Option<Costs>) -> Result<Self> {
        let devices = config.devices.max(1);
        if devices > MAX_DEVICES {
            return Err(Error::new(
                Kind::InvalidArgument,
                Operation::Open,
                "the host has 64 devices at most",
            ));
        }
        let total = if config.memory == 0 { sys::machine_memory() } else { config.memory };
        let huge = Huge::probe(config.huge_pages);
        let capabilities = capabilities(&config.caps_off, huge);
        let costs = costs.or_else(|| named_costs(config.costs.as_deref()));
        Ok(Self { capabilities, devices, total, huge, costs })
    }
}

/// The capabilities and their names.
const CAPABILITIES: [(&str, Capabilities); 13] = [
    ("virtual_memory", Capabilities::VIRTUAL_MEMORY),
    ("aliasing", Capabilities::ALIASING),
    ("device_access", Capabilities::DEVICE_ACCESS),
    ("range_access", Capabilities::RANGE_ACCESS),
    ("joined_access", Capabilities::JOINED_ACCESS),
    ("joint_copies", Capabilities::JOINT_COPIES),
    ("sharing", Capabilities::SHARING),
    ("host_touch", Capabilities::HOST_TOUCH),
    ("host_functions", Capabilities::HOST_FUNCTIONS),
    ("huge_pages", Capabilities::HUGE_PAGES),
    ("routes", Capabilities::ROUTES),
    ("early_waits", Capabilities::EARLY_WAITS),
    ("patches", Capabilities::PATCHES),
];

/// All capabilities but those switched off, and those that need one switched off.
fn capabilities(off: &[String], huge: Huge) -> Capabilities {
    let mut left = CAPABILITIES.iter().fold(Capabilities::default(), |all, (_, bit)| all.with(*bit));
    if huge == Huge::Off {
        left = left.without(Capabilities::HUGE_PAGES);
    }
    for name in off {
        match CAPABILITIES.iter().find(|(known, _)| known == name) {
            Some((_, bit)) => left = left.without(*bit),
            None => log::warn!("GVMM_HOST_CAPS: there is no capability {name:?}; ignored"),
        }
    }
    if !left.has(Capabilities::VIRTUAL_MEMORY) {
        let ranges = Capabilities::RANGE_ACCESS.with(Capabilities::JOINED_ACCESS);
        left = left.without(Capabilities::ALIASING.with(Capabilities::SHARING).with(ranges));
    }
    left
}

fn named_costs(name: Option<&str>) -> Option<Costs> {
    let name = name.filter(|name| *name != "none")?;
    let costs = Costs::builtin(name);
    if costs.is_none() {
        log::warn!("GVMM_HOST_COSTS: there is no table {name:?}; no costs are simulated");
    }
    costs
}
