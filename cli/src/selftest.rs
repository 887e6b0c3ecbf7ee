//! `gvmm selftest`: what is known about each device, and every conformance check on it, as a report for people or to
//! attach to a bug.
//!
//! Each device is checked in a process of its own: a driver that crashes or hangs there costs the report one device,
//! and the report names the check.

mod child;

use crate::failure::Failure;
use crate::info::Info;
use child::{Line, Watched};
use comfy_table::{ContentArrangement, Table, presets};
use gvmm::driver::DriverKind;
use serde::Serialize;

pub(crate) use child::serve;

/// How wide the table may be.
const TABLE_COLUMNS: u16 = 110;

/// The report.
#[derive(Serialize, Debug)]
pub(crate) struct SelfTest {
    /// The machine's system, as `uname` tells it.
    system: String,
    /// The drivers and devices, with quirks and what was tried when each opened.
    info: Info,
    devices: Vec<Checked>,
}

/// The checks of one device.
#[derive(Serialize, Debug)]
struct Checked {
    driver: &'static str,
    ordinal: u32,
    passed: usize,
    skipped: Vec<Note>,
    failed: Vec<Note>,
    /// Where the process did not end as it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
}

/// A check that did not pass, and why.
#[derive(Serialize, Debug)]
struct Note {
    check: String,
    why: String,
}

impl SelfTest {
    /// Checks every device of `kind`, or of all drivers, or only that of a number; `tick` is called for each check.
    pub(crate) fn run(
        kind: Option<DriverKind>,
        only: Option<u32>,
        mut tick: impl FnMut(),
    ) -> Result<Self, Failure> {
        let info = Info::gather();
        let wanted: Vec<_> = info
            .devices()
            .filter(|(driver, ordinal)| {
                kind.is_none_or(|kind| kind.name() == *driver) && only.is_none_or(|only| only == *ordinal)
            })
            .collect();
        if wanted.is_empty() {
            return Err(Failure::new(
                "no such device here: gvmm info lists what there is, and why others are not",
            ));
        }
        let mut devices = Vec::with_capacity(wanted.len());
        for (driver, ordinal) in wanted {
            devices.push(check(driver, ordinal, &mut tick)?);
        }
        Ok(Self { system: system(), info, devices })
    }

    /// True where nothing failed.
    pub(crate) fn passed(&self) -> bool {
        self.devices.iter().all(|d| d.failed.is_empty() && d.ended.is_none())
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(TABLE_COLUMNS);
        table.set_header(["device", "passed", "skipped", "failed", "what failed"]);
        for device in &self.devices {
            let why = device.failed.iter().map(|note| format!("{}: {}", note.check, note.why));
            let why = why.chain(device.ended.clone()).collect::<Vec<_>>().join("\n");
            let counts = [device.passed, device.skipped.len(), device.failed.len()].map(|n| n.to_string());
            let [passed, skipped, failed] = counts;
            table.add_row([format!("{} {}", device.driver, device.ordinal), passed, skipped, failed, why]);
        }
        let tried = self.info.tried().join("\n");
        let tried = if tried.is_empty() { tried } else { format!("\n{tried}") };
        format!("{}\n{}{tried}\n{table}", self.system, self.info.table())
    }
}

fn check(driver: &'static str, ordinal: u32, tick: &mut impl FnMut()) -> Result<Checked, Failure> {
    let mut seen =
        Checked { driver, ordinal, passed: 0, skipped: Vec::new(), failed: Vec::new(), ended: None };
    let mut watched = Watched::start(driver, ordinal)?;
    while let Some(line) = watched.next() {
        match line {
            Line::Begun(_) => tick(),
            Line::Passed(_) => seen.passed += 1,
            Line::Skipped(check, why) => seen.skipped.push(Note { check, why }),
            Line::Failed(check, why) => seen.failed.push(Note { check, why }),
            Line::Over => {}
        }
    }
    seen.ended = watched.end();
    Ok(seen)
}

/// The kernel's name and version.
fn system() -> String {
    let read = |file| std::fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap_or_default();
    format!("{} {} {}", read("ostype").trim(), read("osrelease").trim(), std::env::consts::ARCH)
}
