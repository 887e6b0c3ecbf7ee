//! What a driver says about its devices.

use super::rig::{Rig, refused, same};
use super::{Check, Verdict};
use crate::driver::{Capabilities, CreateOptions, Ordinal};
use crate::error::Kind;
use crate::units::ByteSize;

const VM: Capabilities = Capabilities::VIRTUAL_MEMORY;

pub(super) const CHECKS: &[Check] = &[
    Check::new("device information agrees with the other queries", information),
    Check::new("a granule divides whatever it is asked for", granularity).needs(VM),
    Check::new("free memory is at most the total", memory),
    Check::new("a device that does not exist is refused", no_device),
    Check::new("a virtual memory that is not there is refused", no_virtual_memory).lacks(VM),
];

fn information(rig: &mut Rig) -> Verdict {
    let info = rig.driver.device_info(rig.device)?;
    same("the device has a name", false, info.name.is_empty())?;
    same("the capabilities stay", rig.capabilities, info.capabilities)?;
    same("the total is one figure", info.total, rig.driver.memory(rig.device)?.total)?;
    same("the device is counted", true, rig.device.0 < rig.driver.device_count())
}

fn granularity(rig: &mut Rig) -> Verdict {
    let least = rig.driver.device_info(rig.device)?.granularity;
    for size in [1, 1 << 20, 1 << 21, 1 << 30, 1 << 40] {
        let granule = rig.driver.granularity(rig.device, ByteSize(size))?;
        same("no granule is smaller than the smallest", true, granule >= least)?;
    }
    Ok(())
}

fn memory(rig: &mut Rig) -> Verdict {
    let memory = rig.driver.memory(rig.device)?;
    let fits = memory.free.is_none_or(|free| memory.total.is_zero() || free <= memory.total);
    same("free memory is at most the total", true, fits)
}

fn no_device(rig: &mut Rig) -> Verdict {
    for none in [Ordinal(rig.driver.device_count()), Ordinal(u32::MAX)] {
        let d = &rig.driver;
        refused(Kind::NoDevice, "information", d.device_info(none))?;
        refused(Kind::NoDevice, "memory", d.memory(none))?;
        refused(Kind::NoDevice, "granularity", d.granularity(none, rig.granules(1)))?;
        refused(Kind::NoDevice, "reserve", d.reserve(none, rig.granules(1), rig.granule))?;
        refused(Kind::NoDevice, "create", d.create(none, rig.granules(1), CreateOptions::default()))?;
        refused(Kind::NoDevice, "allocate", d.allocate(none, ByteSize(256)))?;
        refused(Kind::NoDevice, "a stream", d.streams().create(none))?;
        refused(Kind::NoDevice, "a timeline", d.timeline_create(none))?;
    }
    Ok(())
}

fn no_virtual_memory(rig: &mut Rig) -> Verdict {
    let d = &rig.driver;
    refused(Kind::Unsupported, "reserve", d.reserve(rig.device, rig.granules(1), rig.granule))?;
    let create = d.create(rig.device, rig.granules(1), CreateOptions::default());
    refused(Kind::Unsupported, "create", create)
}
