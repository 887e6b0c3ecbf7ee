//! `gvmm bench vmm`.

use super::calls::Calls;
use super::cell::{self, Cell};
use super::copies::{self, CopyRow};
use super::fit::{self, Fit};
use super::grant::{Grant, find_peers, grants};
use super::header::Header;
use super::options::{Peers, Vmm};
use super::quiet::Watch;
use super::row::{Rounds, Row};
use super::{progress_bar, save, table};
use crate::costs;
use crate::failure::{Context, Failure};
use crate::setup::{CostChoice, open_driver};
use gvmm::config;
use gvmm::driver::{Capabilities, DriverKind, Ordinal};
use gvmm::error::{Error, Kind};
use gvmm::units::ByteSize;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// What was measured. `gvmm steps --costs` reads the field `costs`.
#[derive(Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) header: Header,
    pub(super) costs: costs::File,
    /// How well `costs` tells what was measured.
    pub(super) fits: Vec<Fit>,
    pub(super) rows: Vec<Row>,
    pub(super) copies: Vec<CopyRow>,
    /// What the GPU's times of the copies are.
    pub(super) copy_clock: &'static str,
    pub(super) skipped: Vec<Skipped>,
    /// Whether the host was.
    pub(super) quiet: String,
}

/// What was not measured, and why.
#[derive(Serialize, Debug, PartialEq, Eq)]
pub(super) struct Skipped {
    pub(super) what: String,
    pub(super) why: String,
}

/// How long one thing is repeated.
const LIMIT: Duration = Duration::from_millis(300);

pub(super) fn run(options: &Vmm) -> Result<ExitCode, Failure> {
    let report = measure(options)?;
    if let Some(path) = &options.save {
        save(path, &report)?;
    }
    crate::print(options.json, &report, table::vmm)?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the device with as many others as are asked for.
pub(super) fn open(options: &Vmm) -> Result<Calls, Failure> {
    let mut config = config::get().clone();
    let wanted = if let Peers::Number(peers) = options.peers { peers } else { 0 };
    config.host.devices = config.host.devices.max(wanted + 1).max(options.device.saturating_add(1).min(64));
    let kind = options.driver.kind().or(config.driver.map(DriverKind));
    let driver = open_driver(kind, CostChoice::read(options.costs.as_deref())?, config)?;
    if options.device >= driver.device_count() {
        let count = driver.device_count();
        return Err(Failure::new(format!("--device {}: there are {count} devices", options.device)));
    }
    Ok(Calls::new(driver, Ordinal(options.device)))
}

pub(super) fn measure(options: &Vmm) -> Result<Report, Failure> {
    let mut calls = open(options)?;
    let mut header = Header::new("gvmm bench vmm", &*calls.driver, calls.device).during("device")?;
    let (peers, unreachable) = find_peers(&mut calls, options.peers)?;
    let numbers = |list: &[Ordinal]| list.iter().map(|device| device.0).collect();
    (header.peers, header.unreachable) = (numbers(&peers), numbers(&unreachable));
    let watch = Watch::new(calls.driver.kind() != DriverKind::HOST);
    let rounds = Rounds { most: options.repeat, limit: LIMIT, watch: &watch };
    let grants = grants(calls.device, &peers);
    let parts = options.sizes.len() * options.counts.len() * (1 + grants.len()) + 1;
    let bar = progress_bar(parts as u64, options.json);
    let (mut rows, mut skipped) = (cell::plain(&mut calls, rounds).during("plain memory")?, Vec::new());
    for &size in &options.sizes {
        for &count in &options.counts {
            bar.set_message(format!("{count} × {size}"));
            let measured = match obstacle(&calls, size, count).during("memory")? {
                Some(why) => Err(why),
                None => {
                    sweep(&mut calls, size, count, &grants, rounds, || bar.inc(1)).or_else(without_memory)?
                }
            };
            match measured {
                Ok(found) => rows.extend(found),
                Err(why) => skipped.push(Skipped { what: format!("{count} × {size}"), why }),
            }
        }
    }
    bar.set_message("copies");
    let (copies, copy_clock) = copies::measure(&calls, options, rounds, &mut skipped)?;
    bar.finish_and_clear();
    let (costs, fits) = fit::costs(&header, &rows, &copies);
    Ok(Report { header, costs, fits, rows, copies, copy_clock, skipped, quiet: watch.text() })
}

/// Why it cannot be measured.
fn obstacle(calls: &Calls, size: ByteSize, count: u64) -> gvmm::error::Result<Option<String>> {
    let info = calls.driver.device_info(calls.device)?;
    if !info.capabilities.has(Capabilities::VIRTUAL_MEMORY) {
        return Ok(Some("the device has no virtual memory".into()));
    }
    let granularity = calls.granularity(size)?;
    if !granularity.divides(size) {
        return Ok(Some(format!("no multiple of the granule, {}", granularity.size())));
    }
    // The spare block too, and a little for the driver.
    let needed = size.get().saturating_mul(count + 1);
    let free = calls.driver.memory(calls.device)?.free;
    Ok(free
        .filter(|free| needed > free.get() / 16 * 15)
        .map(|free| format!("needs {}, {} are free", table::size(needed), table::size(free.get()))))
}

/// Memory that others took in the meantime is no failure.
fn without_memory(error: Error) -> Result<Result<Vec<Row>, String>, Failure> {
    match error.kind {
        Kind::OutOfDeviceMemory | Kind::OutOfHostMemory | Kind::OutOfAddressSpace | Kind::MapLimit => {
            Ok(Err(error.to_string()))
        }
        _ => Err(Failure::of_call("measuring", &error)),
    }
}

fn sweep(
    calls: &mut Calls,
    size: ByteSize,
    count: u64,
    grants: &[Grant],
    rounds: Rounds<'_>,
    progress: impl Fn(),
) -> gvmm::error::Result<Result<Vec<Row>, String>> {
    let mut rows = cell::blocks(calls, size, count, rounds)?;
    progress();
    let mut cell = Cell::new(calls, size, count)?;
    for grant in grants {
        rows.extend(cell.measure(grant, rounds)?);
        if grant.is_joint() {
            rows.extend(cell.measure_beside(grant, rounds)?);
        }
        progress();
    }
    Ok(Ok(rows))
}
