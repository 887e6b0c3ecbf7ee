//! `gvmm bench`: what driver calls, copies and steps cost on this machine.

mod anchor;
mod anew;
mod calls;
mod cell;
mod copies;
mod cores;
mod figures;
mod fit;
mod grant;
mod header;
mod in_cache;
mod in_steps;
mod kinds;
mod least_squares;
mod loads;
mod made_up;
mod options;
mod peers;
mod profile;
mod quiet;
mod rivals;
mod row;
mod spread;
mod steps;
mod table;
mod vmm;

use crate::failure::Failure;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
pub(crate) use options::parse_size;
use std::process::ExitCode;

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Command {
    Vmm(options::Vmm),
    Steps(options::StepsOptions),
    Profile(options::ProfileOptions),
}

/// Runs one of the benchmarks.
pub(crate) fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Vmm(options) => vmm::run(options),
        Command::Steps(options) => steps::run(options),
        Command::Profile(options) => profile::run(options),
    }
}

/// Shows itself only where the standard error is a terminal.
fn progress_bar(parts: u64, hidden: bool) -> ProgressBar {
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(parts) };
    match ProgressStyle::with_template("{wide_bar} {msg}: part {pos} of {len}, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Writes the JSON of `value` into a file.
fn save<T: serde::Serialize>(path: &str, value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(error.to_string()))?;
    std::fs::write(path, text + "\n")
        .map_err(|error| Failure::new(format!("{path}: expected a file that can be written, found {error}")))
}
