//! `gvmm info`: which drivers and devices there are, and why others are not.

use crate::setup::{self, CAPABILITIES};
use comfy_table::{ContentArrangement, Table, presets};
use gvmm::driver::{Driver, DriverKind, Ordinal};
use gvmm::units::ByteSize;
use serde::Serialize;

/// All drivers that this version knows of, in the order in which `auto` tries them.
const KINDS: [DriverKind; 4] = [DriverKind::CUDA, DriverKind::HIP, DriverKind::LEVEL_ZERO, DriverKind::HOST];

/// How wide the table may be.
const TABLE_COLUMNS: u16 = 100;

#[derive(Serialize, Debug)]
pub(crate) struct Info {
    version: &'static str,
    drivers: Vec<DriverReport>,
}

#[derive(Serialize, Debug)]
struct DriverReport {
    driver: &'static str,
    devices: Vec<DeviceReport>,
    /// Why it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<String>,
}

#[derive(Serialize, Debug)]
struct DeviceReport {
    ordinal: u32,
    name: String,
    capabilities: Vec<&'static str>,
    granularity_bytes: u64,
    /// None is unknown.
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    bandwidth_bytes_per_s: Option<u64>,
    costs: String,
}

impl Info {
    /// Asks every driver.
    pub(crate) fn gather() -> Self {
        Self { version: env!("CARGO_PKG_VERSION"), drivers: KINDS.into_iter().map(ask).collect() }
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(TABLE_COLUMNS);
        table.set_header(["driver", "device", "memory", "granule", "capabilities or why not"]);
        for driver in &self.drivers {
            if let Some(reason) = &driver.absent {
                table.add_row([driver.driver, "", "", "", reason]);
            }
            for device in &driver.devices {
                table.add_row(device.row(driver.driver));
            }
        }
        format!("gvmm {}\n{table}", self.version)
    }
}

impl DeviceReport {
    fn row(&self, driver: &str) -> [String; 5] {
        let memory = self.total_bytes.map_or("unknown".into(), |bytes| format!("{} MiB", bytes >> 20));
        let mut can = self.capabilities.join(", ");
        if self.costs != "none" {
            can = format!("{can}; times are {}", self.costs);
        }
        let granule = ByteSize(self.granularity_bytes).to_string();
        [driver.into(), format!("{}: {}", self.ordinal, self.name), memory, granule, can]
    }
}

fn ask(kind: DriverKind) -> DriverReport {
    match setup::open_kind(kind).and_then(|driver| devices(&*driver)) {
        Ok(devices) => DriverReport { driver: kind.name(), devices, absent: None },
        Err(error) => {
            DriverReport { driver: kind.name(), devices: Vec::new(), absent: Some(error.to_string()) }
        }
    }
}

fn devices(driver: &dyn Driver) -> gvmm::error::Result<Vec<DeviceReport>> {
    (0..driver.device_count()).map(|ordinal| device(driver, Ordinal(ordinal))).collect()
}

fn device(driver: &dyn Driver, ordinal: Ordinal) -> gvmm::error::Result<DeviceReport> {
    let info = driver.device_info(ordinal)?;
    let memory = driver.memory(ordinal)?;
    let known = |n: u64| (n != 0).then_some(n);
    Ok(DeviceReport {
        ordinal: ordinal.0,
        name: info.name,
        capabilities: CAPABILITIES
            .iter()
            .filter(|(bit, _)| info.capabilities.has(*bit))
            .map(|c| c.1)
            .collect(),
        granularity_bytes: info.granularity.size().get(),
        total_bytes: known(info.total.get()),
        free_bytes: memory.free.map(ByteSize::get),
        bandwidth_bytes_per_s: known(info.bandwidth),
        costs: info.simulated_costs.map_or("none".into(), |name| format!("simulated: {name}")),
    })
}
