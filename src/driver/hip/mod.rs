//! AMD's driver, by HIP's runtime library, found when the program runs. HIP's known faults stand in `quirks.rs`; each
//! care that a quirk asks for is taken in one place of this folder.

mod access;
mod alone;
mod api;
mod context;
mod copy;
mod device;
mod error;
mod holds;
mod limits;
mod memory;
#[cfg(any(test, feature = "hip-runtime-sys"))]
mod oracle;
mod rtc;
mod selftest;
mod share;
mod stream;
mod timeline;
mod touch;

pub use selftest::{SelfTest, Verdict};

use crate::driver::books::Books;
use crate::driver::delegate::{check_range, driver_calls, stream_calls};
use crate::driver::lines::Lines;
use crate::driver::quirks::{Care, Quirk};
use crate::driver::timelines::Timelines;
use crate::driver::{
    Access, AccessMode, Capabilities, CopySlice, CreateOptions, DeviceInfo, Driver, DriverKind, Graph,
    HostFunction, MemoryInfo, NativeBlock, Ordinal, Stream, Streams, TimelineId,
};
use crate::error::{Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use context::Core;
use device::Device;
use selftest::Before;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// What follows where the host has no access.
const NOT_FOR_HOST: &str =
    "give no mapped memory of it to PyTorch, which reads scalars of a device from the host and would fault";

/// AMD's driver. Calls leave the caller's current device as it was.
#[derive(Debug)]
pub struct HipDriver {
    core: Core,
    books: Books,
    timelines: Timelines<Ordinal>,
    lines: Lines,
}

impl HipDriver {
    /// Opens the driver: the library at `path` alone where one is given, else the one that is found. Quirks (of
    /// `quirks.rs`) in `forced` are switched on or off by name.
    ///
    /// # Errors
    ///
    /// `DriverNotFound` (no library), `DriverTooOld` (before ROCm 6.0, or a function is missing), `NoDevice`. The
    /// hint says what to do.
    pub fn open(path: Option<&Path>, forced: &[(&str, bool)]) -> Result<Self> {
        let core = Core::new(path, forced)?;
        let (library, count) = (core.api.library().path().display().to_string(), core.devices.len());
        log::debug!("{library}: HIP {}, {count} devices", api::in_words(core.version));
        Ok(Self { core, books: Books::default(), timelines: Timelines::default(), lines: Lines::default() })
    }

    /// The same without virtual memory on a device, for a framework that would fault on it
    /// ([`faults_hosts`](Driver::faults_hosts)).
    pub fn plain_only(mut self, device: Ordinal) -> Self {
        if let Some(found) = self.core.devices.get_mut(device.0 as usize) {
            found.plain_only();
        }
        self
    }

    /// The runtime's version: 70251831 for 7.2.51831.
    pub fn version(&self) -> u32 {
        self.core.version
    }

    /// The library that was opened.
    pub fn library(&self) -> &Path {
        self.core.api.library().path()
    }

    /// A device's architecture, such as `gfx942`.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn architecture(&self, device: Ordinal) -> Result<&str> {
        self.core.device(device, Operation::Query).map(|found| found.arch.as_str())
    }

    /// The quirks in force for a device.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn quirks(&self, device: Ordinal) -> Result<&[&'static Quirk]> {
        self.core.device(device, Operation::Query).map(|found| found.quirks.as_slice())
    }

    /// The self-tests that the quirks ask for, which run once, and how they ended.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn self_tests(&self, device: Ordinal) -> Result<&[SelfTest]> {
        self.core.examine(device).map(|findings| findings.tests.as_slice())
    }

    /// What people should know about this driver and a device of it.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn notes(&self, device: Ordinal) -> Result<Vec<&'static str>> {
        let found = self.core.device(device, Operation::Query)?;
        let mut notes = self.core.notes();
        if found.virtual_memory && !self.core.host_reaches(found) {
            notes.push(NOT_FOR_HOST);
        }
        Ok(notes)
    }

    /// True where the host is granted what the block's device is granted; false where its memory is not in the
    /// host's reach, HIP is too old, or HIP has refused.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn host_reaches(&self, device: Ordinal) -> Result<bool> {
        self.core.device(device, Operation::Query).map(|found| self.core.host_reaches(found))
    }

    /// True where a copy on a stream is seen by a graph launched there afterwards. Where it is not, copies are
    /// waited for on the host, or refused.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn copies_before_graphs(&self, device: Ordinal) -> Result<bool> {
        self.core.examine(device).map(|findings| findings.before == Before::Seen)
    }

    /// True where the parameters of a graph that is there may be changed.
    ///
    /// # Errors
    ///
    /// `NoDevice`.
    pub fn may_patch(&self, device: Ordinal) -> Result<bool> {
        self.core.device(device, Operation::Query).map(|found| !found.care.has(Care::NO_PATCH))
    }

    fn capabilities(&self, device: &Device) -> Result<Capabilities> {
        let mut all = Capabilities::HOST_FUNCTIONS.with(Capabilities::NULL_STREAM);
        if device.stream_values {
            all = all.with(Capabilities::EARLY_WAITS);
        }
        if self.may_patch(device.ordinal)? {
            all = all.with(Capabilities::PATCHES);
        }
        let fresh = self.core.examine(device.ordinal)?.fresh;
        if device.virtual_memory && fresh {
            let access = Capabilities::DEVICE_ACCESS.with(Capabilities::RANGE_ACCESS);
            let access = access.with(Capabilities::JOINED_ACCESS).with(Capabilities::SHARING);
            all = all.with(Capabilities::VIRTUAL_MEMORY).with(Capabilities::ALIASING).with(access);
        }
        if self.core.kit(device.ordinal, Operation::Query)?.kernels.is_some() {
            all = all.with(Capabilities::JOINT_COPIES);
        }
        Ok(all)
    }
}

impl Drop for HipDriver {
    fn drop(&mut self) {
        self.lines.close(&self.core);
        self.timelines.close(&self.core);
    }
}

impl Driver for HipDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::HIP
    }

    fn version_in_words(&self) -> Option<String> {
        Some(format!("HIP {}", api::in_words(self.version())))
    }

    driver_calls!();

    fn faults_hosts(&self, device: Ordinal) -> Result<bool> {
        self.core.faults_hosts(device)
    }

    fn copy(&self, device: Ordinal, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        self.core.copy(device, stream, slices)
    }
}

impl Streams for HipDriver {
    stream_calls!();
}
