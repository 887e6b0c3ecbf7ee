//! Free memory, from Sysman: the figure of the core functions does not see what was unmapped.

use super::api::{Api, SUCCESS, list};
use super::layout::{MemoryState, ModuleProperties, SysmanProperties, Uuid};

/// `ZES_MEM_LOC_DEVICE`.
const ON_DEVICE: u32 = 1;

/// The memory modules of one device, in Sysman's handles.
#[derive(Debug)]
pub(super) struct Modules(Vec<u64>);

impl Modules {
    /// The modules of the device of that uuid, or none where there is no Sysman, or it does not know the device.
    pub(super) fn find(api: &Api, uuid: Uuid) -> Option<Self> {
        let drivers = list(|count, drivers| api.sysman_drivers(count, drivers)).ok()?;
        let (device, part) = drivers.iter().find_map(|driver| device_of(api, *driver, uuid))?;
        let all = list(|count, modules| api.sysman_modules(device, count, modules)).ok()?;
        let modules: Vec<u64> = all.into_iter().filter(|module| belongs(api, *module, part)).collect();
        let found = Self(modules);
        // A user who may not read the figure has none.
        found.free(api).map(|_| found)
    }

    /// Free bytes now.
    pub(super) fn free(&self, api: &Api) -> Option<u64> {
        let mut sum = None;
        for module in &self.0 {
            let mut state = MemoryState::blank();
            if api.module_state(*module, &mut state) != SUCCESS || state.total == 0 {
                return None;
            }
            sum = Some(sum.unwrap_or(0) + state.free);
        }
        sum
    }
}

/// Sysman's device of that uuid, and which part (tile) of it is meant, where it is one.
fn device_of(api: &Api, driver: u64, uuid: Uuid) -> Option<(u64, Option<u32>)> {
    let (mut device, mut on_part, mut part) = (0, 0, 0);
    if api.sysman_by_uuid(driver, uuid, &mut device, &mut on_part, &mut part) == SUCCESS && device != 0 {
        return Some((device, (on_part != 0).then_some(part)));
    }
    let devices = list(|count, devices| api.sysman_devices(driver, count, devices)).ok()?;
    let same = |device: &u64| {
        let mut properties = SysmanProperties::blank();
        api.sysman_properties(*device, &mut properties) == SUCCESS && properties.uuid() == uuid
    };
    devices.into_iter().find(same).map(|device| (device, None))
}

/// True for a module on the device (not the host's memory), of the part that is meant.
fn belongs(api: &Api, module: u64, part: Option<u32>) -> bool {
    let mut properties = ModuleProperties::blank();
    if api.module_properties(module, &mut properties) != SUCCESS || properties.location != ON_DEVICE {
        return false;
    }
    // A byte of its own, with padding behind it.
    let on_part = properties.on_part & 0xff != 0;
    part.is_none_or(|part| !on_part || properties.part == part)
}
