//! What was measured, on what, when.

use super::table::size;
use gvmm::config;
use gvmm::driver::{self, Driver, Ordinal};
use gvmm::error::Result;
use gvmm::rebind::profile::Origin;
use gvmm::units::ByteSize;
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Serialize, Debug)]
pub(super) struct Header {
    pub(super) benchmark: &'static str,
    gvmm: &'static str,
    /// UTC.
    date: String,
    driver: &'static str,
    /// The vendor's words; the host driver has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_version: Option<String>,
    /// NVIDIA's kernel module.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_module: Option<String>,
    ordinal: u32,
    pub(super) device: String,
    granularity_bytes: u64,
    /// 0 is unknown.
    total_bytes: u64,
    free_bytes: Option<u64>,
    /// "measured", or "simulated: NAME".
    pub(super) times: String,
    /// The devices that got access too, and those that cannot.
    pub(super) peers: Vec<u32>,
    pub(super) unreachable: Vec<u32>,
}

impl Header {
    pub(super) fn new(benchmark: &'static str, driver: &dyn Driver, device: Ordinal) -> Result<Self> {
        let (info, memory) = (driver.device_info(device)?, driver.memory(device)?);
        let survey = driver::survey(config::get());
        let summary = survey.into_iter().find(|(kind, _)| *kind == driver.kind());
        let driver_version = summary.and_then(|(_, summary)| summary.ok()?.version);
        let kernel_module = driver_version.is_some().then(kernel_module).flatten();
        Ok(Self {
            benchmark,
            gvmm: env!("CARGO_PKG_VERSION"),
            date: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            driver: driver.kind().name(),
            driver_version,
            kernel_module,
            ordinal: device.0,
            device: info.name,
            granularity_bytes: info.granularity.size().get(),
            total_bytes: info.total.get(),
            free_bytes: memory.free.map(ByteSize::get),
            times: info
                .simulated_costs
                .map_or_else(|| "measured".into(), |name| format!("simulated: {name}")),
            peers: Vec::new(),
            unreachable: Vec::new(),
        })
    }

    /// The name of a table of costs made from this.
    pub(super) fn costs_name(&self) -> String {
        self.times.strip_prefix("simulated: ").unwrap_or(&self.device).to_owned()
    }

    /// Says in a profile on what it was measured.
    pub(super) fn name_origin(&self, origin: &mut Origin) {
        self.device.clone_into(&mut origin.device);
        self.driver.clone_into(&mut origin.driver);
        origin.driver_version = self.driver_version.clone().unwrap_or_default();
        origin.date = self.date.split(' ').next().unwrap_or_default().to_owned();
    }

    /// What stands over a table: "µs", or that they are simulated.
    pub(super) fn unit(&self) -> &'static str {
        if self.times == "measured" { "µs" } else { "simulated µs" }
    }

    /// Two lines for people.
    pub(super) fn text(&self) -> String {
        let version = self.driver_version.as_ref().map_or(String::new(), |version| format!(" ({version})"));
        let module = self.kernel_module.as_ref().map_or(String::new(), |module| format!(", driver {module}"));
        let free = self.free_bytes.map_or("unknown".into(), size);
        let others = |names: &[u32]| names.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let mut text = format!(
            "{}, {}: {} device {}, {}{version}{module}, granule {}, {free} free; gvmm {}\ntimes are {}: medians and quartiles",
            self.benchmark,
            self.date,
            self.driver,
            self.ordinal,
            self.device,
            size(self.granularity_bytes),
            self.gvmm,
            self.times
        );
        if !self.peers.is_empty() {
            text += &format!("; peers: devices {}", others(&self.peers));
        }
        if !self.unreachable.is_empty() {
            text += &format!("; cannot be given access: devices {}", others(&self.unreachable));
        }
        text
    }
}

fn kernel_module() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_version = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// Seconds since 1970 as date and time.
fn utc(seconds: u64) -> String {
    let (mut days, of_day) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02} {:02}:{:02} UTC", month + 1, days + 1, of_day / 3600, of_day % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_a_date() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_798_761_599), "2026-12-31 23:59 UTC");
    }
}
