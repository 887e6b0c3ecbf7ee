//! Named checks for any driver. Each says what it expected and what it saw, so that tests can run them now and
//! a self-test can show them to people later. A driver joins by being given to [`run`].

mod access;
mod blocks;
mod capture;
mod copies;
mod devices;
mod maps;
mod pairs;
mod plain;
mod ranges;
mod rig;
mod routes;
mod sharing;
mod timelines;

use crate::driver::{Capabilities, Driver, Ordinal};
use crate::error::Error;
use crate::units::DevicePtr;
use rig::Rig;
use std::fmt;
use std::sync::Arc;

/// What a check expected, and what it saw instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// What should have happened.
    pub expected: String,
    /// What happened.
    pub seen: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, seen {}", self.expected, self.seen)
    }
}

/// How a check ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// It could not be made on this device, for this reason.
    Skipped(&'static str),
    /// Otherwise.
    Failed(Mismatch),
}

/// Why a check stopped before its end.
enum Stop {
    Skip(&'static str),
    Fail(Mismatch),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fail(Mismatch { expected: "success".to_owned(), seen: error.to_string() })
    }
}

/// Writes bytes to an address of a device, and waits until they are there; false where it fails.
pub type Write = dyn Fn(Ordinal, DevicePtr, &[u8]) -> bool + Send + Sync;
/// Fills bytes from an address of a device; false where it fails.
pub type Read = dyn Fn(Ordinal, DevicePtr, &mut [u8]) -> bool + Send + Sync;
/// Whether a device may read, and whether it may write, at an address.
pub type Allowed = dyn Fn(Ordinal, DevicePtr) -> (bool, bool) + Send + Sync;

/// How bytes get to and from a device's memory, and what the device may do there, where the host cannot touch it
/// itself: through the vendor's own calls, as another user of the driver makes them.
#[derive(Clone)]
pub struct Staged {
    /// Writes bytes.
    pub write: Arc<Write>,
    /// Reads bytes.
    pub read: Arc<Read>,
    /// Asks for access.
    pub access: Arc<Allowed>,
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Staged")
    }
}

type Checked<T> = Result<T, Stop>;
type Verdict = Checked<()>;

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name, which no other check has.
    pub name: &'static str,
    /// What a device must be able to do for it.
    needs: Capabilities,
    /// What a device must not be able to do.
    lacks: Capabilities,
    /// How many devices there must be.
    devices: u32,
    body: fn(&mut Rig) -> Verdict,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Check {
    const fn new(name: &'static str, body: fn(&mut Rig) -> Verdict) -> Self {
        Self { name, needs: Capabilities(0), lacks: Capabilities(0), devices: 1, body }
    }

    const fn needs(mut self, wanted: Capabilities) -> Self {
        self.needs = self.needs.with(wanted);
        self
    }

    const fn lacks(mut self, unwanted: Capabilities) -> Self {
        self.lacks = self.lacks.with(unwanted);
        self
    }

    const fn devices(mut self, count: u32) -> Self {
        self.devices = count;
        self
    }

    /// Makes the check on a device. It gives back everything that it made.
    pub fn run(&self, driver: &Arc<dyn Driver>, device: Ordinal) -> Outcome {
        self.run_staged(driver, device, None)
    }

    /// The same; where the host cannot touch the device's memory, bytes and access are looked at through `staged`,
    /// without one through the driver itself.
    pub fn run_staged(&self, driver: &Arc<dyn Driver>, device: Ordinal, staged: Option<&Staged>) -> Outcome {
        let capabilities = match driver.device_info(device) {
            Ok(info) => info.capabilities,
            Err(error) => return outcome(Err(error.into())),
        };
        if !capabilities.has(self.needs) {
            return Outcome::Skipped("the device lacks a capability that this is about");
        }
        if capabilities.0 & self.lacks.0 != 0 {
            return Outcome::Skipped("it is about devices without a capability that this one has");
        }
        if driver.device_count() < self.devices {
            return Outcome::Skipped("there are not enough devices");
        }
        let mut rig = match Rig::new(Arc::clone(driver), device, capabilities, staged.cloned()) {
            Ok(rig) => rig,
            Err(error) => return outcome(Err(error.into())),
        };
        let verdict = (self.body)(&mut rig);
        let finished = rig.finish(verdict.is_ok());
        outcome(verdict.and(finished))
    }
}

fn outcome(verdict: Verdict) -> Outcome {
    match verdict {
        Ok(()) => Outcome::Passed,
        Err(Stop::Skip(reason)) => Outcome::Skipped(reason),
        Err(Stop::Fail(mismatch)) => Outcome::Failed(mismatch),
    }
}

/// All checks.
pub fn checks() -> Vec<Check> {
    let parts: [&[Check]; 12] = [
        devices::CHECKS,
        ranges::CHECKS,
        blocks::CHECKS,
        maps::CHECKS,
        access::CHECKS,
        plain::CHECKS,
        copies::CHECKS,
        routes::CHECKS,
        pairs::CHECKS,
        timelines::CHECKS,
        capture::CHECKS,
        sharing::CHECKS,
    ];
    parts.concat()
}

/// Makes every check on a device, and gives each one's name and outcome.
pub fn run(driver: &Arc<dyn Driver>, device: Ordinal) -> Vec<(&'static str, Outcome)> {
    checks().iter().map(|check| (check.name, check.run(driver, device))).collect()
}
