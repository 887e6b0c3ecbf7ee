//! `gvmm info`: which drivers and devices there are, and why others are not.

use crate::report::costs;
use crate::setup::CAPABILITIES;
use comfy_table::{ContentArrangement, Table, presets};
use gvmm::config;
use gvmm::driver::{self, DeviceSummary, DriverKind, QuirkInForce, Summary};
use gvmm::error::Result;
use gvmm::units::ByteSize;
use serde::Serialize;

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
    /// The vendor's library and its version; the host driver has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    library: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    architecture: Option<String>,
    quirks: Vec<QuirkReport>,
    /// What was tried when the device opened, and how that ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    self_tests: Vec<SelfTestReport>,
    /// What people should know about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<&'static str>,
}

#[derive(Serialize, Debug)]
struct SelfTestReport {
    name: &'static str,
    verdict: String,
}

/// Care for a known fault or limit that is taken.
#[derive(Serialize, Debug)]
struct QuirkReport {
    name: &'static str,
    why: String,
    reference: &'static str,
}

impl Info {
    /// Asks every driver.
    pub(crate) fn gather() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            drivers: driver::survey(config::get()).into_iter().map(report).collect(),
        }
    }

    /// Every device: its driver's name and its number.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        self.drivers
            .iter()
            .flat_map(|driver| driver.devices.iter().map(|device| (driver.driver, device.ordinal)))
    }

    /// What was tried when each device opened, and what people should know, a line each.
    pub(crate) fn tried(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for driver in &self.drivers {
            for device in &driver.devices {
                let name = format!("{} {}", driver.driver, device.ordinal);
                lines.extend(device.self_tests.iter().map(|t| format!("{name}: {}: {}", t.name, t.verdict)));
                lines.extend(device.notes.iter().map(|note| format!("{name}: {note}")));
            }
        }
        lines
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
                table.add_row(device.row(&driver.title()));
            }
        }
        format!("gvmm {}\n{table}", self.version)
    }
}

impl DriverReport {
    /// Its name with the version that was found, if it has one.
    fn title(&self) -> String {
        match &self.version {
            Some(version) => format!("{} ({version})", self.driver),
            None => self.driver.into(),
        }
    }
}

impl DeviceReport {
    fn row(&self, driver: &str) -> [String; 5] {
        let memory = self.total_bytes.map_or("unknown".into(), |bytes| format!("{} MiB", bytes >> 20));
        let mut can = self.capabilities.join(", ");
        if self.costs != "none" {
            can = format!("{can}; times are {}", self.costs);
        }
        for quirk in &self.quirks {
            can = format!("{can}; quirk {} ({})", quirk.name, quirk.why);
        }
        let granule = ByteSize(self.granularity_bytes).to_string();
        [driver.into(), format!("{}: {}", self.ordinal, self.name), memory, granule, can]
    }
}

fn report((kind, asked): (DriverKind, Result<Summary>)) -> DriverReport {
    let driver = kind.name();
    match asked {
        Ok(Summary { library, version, devices }) => DriverReport {
            driver,
            library: library.map(|path| path.display().to_string()),
            version,
            devices: (0..).zip(devices).map(device).collect(),
            absent: None,
        },
        Err(error) => {
            let absent = Some(error.to_string());
            DriverReport { driver, library: None, version: None, devices: Vec::new(), absent }
        }
    }
}

fn device((ordinal, summary): (u32, DeviceSummary)) -> DeviceReport {
    let DeviceSummary { info, memory, architecture, quirks, self_tests, notes } = summary;
    let (known, costs) = (|n: u64| (n != 0).then_some(n), costs(&info));
    DeviceReport {
        ordinal,
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
        costs,
        architecture,
        quirks: quirks.into_iter().map(quirk).collect(),
        self_tests: self_tests.into_iter().map(|(name, verdict)| SelfTestReport { name, verdict }).collect(),
        notes,
    }
}

fn quirk(QuirkInForce { name, reference, why }: QuirkInForce) -> QuirkReport {
    QuirkReport { name, why, reference }
}
