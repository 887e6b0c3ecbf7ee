//! The process that checks one device, and the pipe over which it tells.

use crate::failure::{Context, Failure};
use gvmm::config;
use gvmm::driver::testing::conformance::{self, Outcome};
use gvmm::driver::{self, DriverKind, Ordinal};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long one check may take. Checks wait for 20 s at most where something must happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the process tells, one a line.
#[derive(Serialize, Deserialize, Debug)]
pub(super) enum Line {
    Begun(String),
    Passed(String),
    Skipped(String, String),
    Failed(String, String),
    Over,
}

/// Checks a device and tells so on the standard output. This is the child's whole life.
pub(crate) fn serve(kind: DriverKind, ordinal: u32) -> Result<(), Failure> {
    let driver = driver::open(Some(kind), config::get()).during("opening the driver")?;
    for check in conformance::checks() {
        let name = check.name.to_owned();
        // Told before it is made: a driver that crashes tells no more.
        tell(&Line::Begun(name.clone()))?;
        tell(&match check.run(&driver, Ordinal(ordinal)) {
            Outcome::Passed => Line::Passed(name),
            Outcome::Skipped(why) => Line::Skipped(name, why.to_owned()),
            Outcome::Failed(mismatch) => Line::Failed(name, mismatch.to_string()),
        })?;
    }
    tell(&Line::Over)
}

fn tell(line: &Line) -> Result<(), Failure> {
    let text = serde_json::to_string(line).map_err(|error| Failure::new(error.to_string()))?;
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| Failure::new(format!("standard output: {error}")))
}

/// The child, as its parent sees it.
pub(super) struct Watched {
    child: Child,
    lines: Receiver<Line>,
    /// The check under way.
    current: Option<String>,
    over: bool,
    stuck: bool,
}

impl Watched {
    pub(super) fn start(driver: &str, ordinal: u32) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("starting a process for the checks: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["selftest", "--serve", "--driver", driver, "--device", &ordinal.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (sender, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                let told = BufReader::new(out).lines().map_while(Result::ok);
                // What a vendor's library prints there is no line of ours.
                let told = told.filter_map(|text| serde_json::from_str(&text).ok());
                for line in told {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { child, lines, current: None, over: false, stuck: false })
    }

    /// The next line, or none at the end.
    pub(super) fn next(&mut self) -> Option<Line> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                match &line {
                    Line::Begun(check) => self.current = Some(check.clone()),
                    Line::Over => self.over = true,
                    _ => self.current = None,
                }
                Some(line)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.stuck = true;
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Ends the child, and says what was wrong with its end.
    pub(super) fn end(mut self) -> Option<String> {
        if self.stuck {
            // It may have ended just now; then there is nothing to kill.
            let _ = self.child.kill();
        }
        let status = self.child.wait();
        let place = self.current.map_or_else(String::new, |check| format!(" during: {check}"));
        match status {
            _ if self.stuck => Some(format!("nothing happened for {} s{place}", PATIENCE.as_secs())),
            Ok(status) if status.success() && self.over => None,
            Ok(status) => Some(format!("the process ended ({status}){place}")),
            Err(error) => Some(format!("the process was lost ({error}){place}")),
        }
    }
}
