//! From options to an open device.

use crate::costs;
use crate::failure::{Context, Failure};
use crate::small;
use clap::ValueEnum;
use gvmm::config::{self, Config};
use gvmm::driver::host::{Costs, HostDriver};
use gvmm::driver::{self, Access, AccessMode, Capabilities, Driver, DriverKind, Ordinal};
use gvmm::rebind::profile::{Profile, Subject};
use gvmm::vm::Device;
use std::sync::Arc;

/// The names of capabilities; `GVMM_HOST_CAPS` takes the first eight, and patches.
pub(crate) const CAPABILITIES: [(Capabilities, &str); 14] = [
    (Capabilities::VIRTUAL_MEMORY, "virtual_memory"),
    (Capabilities::ALIASING, "aliasing"),
    (Capabilities::DEVICE_ACCESS, "device_access"),
    (Capabilities::RANGE_ACCESS, "range_access"),
    (Capabilities::JOINED_ACCESS, "joined_access"),
    (Capabilities::JOINT_COPIES, "joint_copies"),
    (Capabilities::SHARING, "sharing"),
    (Capabilities::ROUTES, "routes"),
    (Capabilities::HOST_TOUCH, "host_touch"),
    (Capabilities::HOST_FUNCTIONS, "host_functions"),
    (Capabilities::HUGE_PAGES, "huge_pages"),
    (Capabilities::NULL_STREAM, "null_stream"),
    (Capabilities::EARLY_WAITS, "early_waits"),
    (Capabilities::PATCHES, "patches"),
];

/// What costs the host driver shall simulate.
pub(crate) enum CostChoice {
    /// What `GVMM_HOST_COSTS` says.
    Environment,
    None,
    Table(Box<Costs>),
}

impl CostChoice {
    /// `none`, a built-in table's name, or a file's.
    pub(crate) fn read(text: Option<&str>) -> Result<Self, Failure> {
        let Some(text) = text else { return Ok(Self::Environment) };
        if text == "none" {
            return Ok(Self::None);
        }
        let costs = match Costs::builtin(text) {
            Some(costs) => costs,
            None => costs::read(text).map_err(Failure::new)?,
        };
        Ok(Self::Table(Box::new(costs)))
    }
}

/// How many further devices are in every access list: `h200-peer` is about one.
pub(crate) fn peers(costs: Option<&str>, asked: u32) -> u32 {
    if costs == Some("h200-peer") { asked.max(1) } else { asked }
}

/// Whether many slices are copied together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Joint {
    /// In one launch, where the device can
    On,
    /// Each by a copy of its own
    Off,
}

/// Opens the first device; `peers` further ones must be there, and the host driver is given as many.
pub(crate) fn open_device(
    kind: Option<DriverKind>,
    costs: CostChoice,
    peers: u32,
    joint: Joint,
) -> Result<Arc<Device>, Failure> {
    let kind = kind.or(config::get().driver.map(DriverKind));
    let mut config = config::get().clone();
    config.host.devices = config.host.devices.max(peers.saturating_add(1));
    if joint == Joint::Off {
        config.host.caps_off.push("joint_copies".into());
        config.quirks.push(("cuda-no-kernels".into(), true));
    }
    let driver = open_driver(kind, costs, config)?;
    let device = Device::open(driver, Ordinal(0)).during("device 0")?;
    if joint == Joint::Off && device.capabilities().has(Capabilities::JOINT_COPIES) {
        return Err(Failure::new(
            "--joint off: this driver always joins copies; cuda and host do not have to",
        ));
    }
    let needed = Capabilities::HOST_TOUCH.with(Capabilities::HOST_FUNCTIONS);
    if device.driver().kind() == DriverKind::CUDA || device.capabilities().has(needed) {
        return Ok(device);
    }
    Err(Failure::new(
        "the host cannot touch this device's memory, so nothing could be checked: use --driver host",
    ))
}

pub(crate) fn open_driver(
    kind: Option<DriverKind>,
    costs: CostChoice,
    mut config: Config,
) -> Result<Arc<dyn Driver>, Failure> {
    let is_host = kind.is_none_or(|kind| kind == DriverKind::HOST);
    match costs {
        CostChoice::Environment => driver::open(kind, &config).during("driver"),
        CostChoice::None => {
            config.host.costs = None;
            driver::open(kind, &config).during("driver")
        }
        CostChoice::Table(_) if !is_host => {
            Err(Failure::new("costs are simulated on the host driver only: use --driver host"))
        }
        CostChoice::Table(costs) => {
            Ok(Arc::new(HostDriver::new(config.host, Some(*costs)).during("driver")?))
        }
    }
}

/// The profile of `device` in a file.
pub(crate) fn profile(path: &str, device: &Device) -> Result<Profile, Failure> {
    let read = small::read(path).and_then(|text| {
        let profile = Profile::parse(&text)?;
        let (driver, name) = (device.driver().kind(), device.info().name.as_str());
        let version = device.driver().version_in_words();
        let subject = Subject { device: name, driver, driver_version: version.as_deref() };
        profile.check(&subject).map(|()| profile)
    });
    read.map_err(|fault| Failure::new(format!("{path}: {fault}")))
}

/// The access list: the device itself and `peers` further ones.
pub(crate) fn access_list(peers: u32) -> Vec<Access> {
    (0..=peers).map(|device| Access { device: Ordinal(device), mode: AccessMode::READ_WRITE }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_a_peer_imply_one() {
        assert_eq!([0, 1, 3].map(|asked| peers(Some("h200-peer"), asked)), [1, 1, 3]);
        assert_eq!([Some("h200"), Some("none"), None].map(|costs| peers(costs, 0)), [0; 3]);
    }

    #[test]
    fn the_peers_are_there_and_in_the_list() {
        let device =
            open_device(Some(DriverKind::HOST), CostChoice::None, 2, Joint::On).expect("the host driver");
        assert_eq!(device.driver().device_count(), 3);
        assert_eq!(access_list(2).iter().map(|access| access.device.0).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
