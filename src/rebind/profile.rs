//! What each action costs on a device: plain numbers, each with its unit and its source.
//!
//! A profile is built in, or read from the file that `GVMM_PROFILE` names (see [`Profile::parse`]). Nothing is
//! measured here, and nothing depends on a stopwatch: times are whole picoseconds, so that every machine that
//! reads the same profile decides the same.

mod builtin;
mod figure;
mod text;

pub use figure::{Charge, Curve, Figure, JointCopy, Picos, Point};

use crate::driver::{DeviceInfo, DriverKind};

/// Of which device a profile tells, and when that was measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The device's name as its driver gives it, such as `NVIDIA H200`.
    pub device: String,
    /// The driver by its name for `GVMM_DRIVER`, such as `cuda`.
    pub driver: String,
    /// The driver's version in the vendor's words, such as `CUDA 13.0`; empty where it has none.
    pub driver_version: String,
    /// The day, such as `2026-11-30`.
    pub date: String,
    /// What the benchmarks' reference took meanwhile (a fixed loop and a small load), which tells how fast the host was; 0
    /// where that was not measured. Nothing is planned by it.
    pub reference: Figure,
}

/// What serving slots costs on a device.
///
/// Host time is what the calling thread spends, GPU time what the stream takes longer. Sizes are in bytes, times in
/// picoseconds; in a file they are µs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Of which device, and when measured.
    pub origin: Origin,
    /// Bytes a second that the device's memory moves, reads and writes both counted; never 0.
    pub bandwidth: u64,

    /// Making a block, by its bytes. Not part of a step; what a caller saves who keeps blocks.
    pub create: Curve,
    /// Giving a block up, by its bytes. Not part of a step.
    pub release: Curve,
    /// Mapping a block, by its bytes.
    pub map: Curve,
    /// Unmapping a block, by its bytes.
    pub unmap: Curve,
    /// Setting access: what each block in the call takes, by its bytes.
    pub set_access: Curve,
    /// What any set-access call takes besides.
    pub set_access_call: Figure,
    /// What a set-access call takes besides for each peer that it names, whatever it covers.
    pub peer_set_access_call: Figure,
    /// What each block in a call that names one peer takes, instead of [`set_access`](Self::set_access),
    /// by its bytes. It is of a peer that reaches other blocks of the device too, as it does in a step.
    pub peer_set_access: Curve,
    /// What unmapping a block takes that one peer can reach, instead of [`unmap`](Self::unmap), in the same way.
    pub peer_unmap: Curve,
    /// What each peer beside the first adds to a block whose access is set, by its bytes.
    pub further_peer_set_access: Curve,
    /// What each peer beside the first adds to a block that is unmapped, by its bytes.
    pub further_peer_unmap: Curve,
    /// What a set-access takes once more where a peer could reach nothing of the device before, by the first block's
    /// bytes. Not part of a step, since a binding's windows are not all that a peer reaches; the first layout pays it.
    pub first_peer_set_access: Curve,
    /// What a step takes besides in which anything is remapped: driver calls that are slower after others.
    pub remap: Figure,
    /// What each window that is remapped takes besides its driver calls, by how many slots there are: books that are kept,
    /// and calls that take longer where there are many.
    pub remap_slot: Curve,
    /// What it costs that a remap waits for the step before: how long the device stands still around the wait.
    pub remap_wait: Figure,

    /// The joint copy into shadows, launched by each step.
    pub copy_in: JointCopy,
    /// The joint copy out of shadows, the same way.
    pub copy_out: JointCopy,
    /// The joint copy in, recorded in the command buffer, which each step points at its buffers.
    pub plan_in: JointCopy,
    /// The joint copy out, the same way.
    pub plan_out: JointCopy,
    /// How many bytes the copies of a step may read and write before the device's cache no longer holds what the command
    /// buffer uses; 0 where that is not known, and then nothing is reckoned for it.
    pub cache_bytes: u64,
    /// What each slot that is not copied then costs, by its bytes: how much longer the command buffer takes. A plan is chosen
    /// as if those that are copied paid it too: it is on or off.
    pub cold_slot: Curve,
    /// What each slot that is not copied costs a step in which anything is remapped, by its bytes: how much longer the command
    /// buffer takes that looks up addresses and reads data anew, the time aside that the device stands still. A plan is
    /// chosen as if those that are copied paid this too, and not what follows.
    pub anew_slot: Curve,
    /// What each slot that is copied in takes longer on the GPU in such a step, by its bytes.
    pub anew_in: Curve,
    /// The same of one that is copied out.
    pub anew_out: Curve,

    /// What begin and end of any step take, whatever its slots: host time.
    pub step: Figure,
    /// What begin takes to look at each slot: host time.
    pub slot: Figure,
    /// What begin takes for each slot whose buffer changed, whatever its action, by how many slots there are: host time.
    pub changed_slot: Curve,

    /// What any step takes besides in which a command is patched.
    pub patch: Charge,
    /// What each patched slot that moved takes: it is listed, and its address put into its commands.
    pub patch_slot: Figure,
    /// What each patched command takes, for any number of slots.
    pub patch_command: Charge,
    /// What it takes for each slot instead, as long as that is less: for one slot.
    pub patch_single: Charge,

    /// True where the executor runs ahead of the device, so that host time is hidden behind the step before; the
    /// GPU's time alone counts then. A remap, which waits for that step, is never hidden.
    pub host_hidden: bool,
}

/// Which device asks for a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject<'a> {
    /// The device's name.
    pub device: &'a str,
    /// The driver's kind.
    pub driver: DriverKind,
    /// The driver's version in the vendor's words; none where the caller does not know it.
    pub driver_version: Option<&'a str>,
}

impl Profile {
    /// The version of the file's format that this library writes and reads. Another list of keys is another version.
    pub const FORMAT: u64 = 6;

    /// The built-in profile for a device: that of the H200 for one, also for a host device that simulates its times; else
    /// a cautious one with the device's own bandwidth, where that is known.
    pub fn for_device(info: &DeviceInfo, driver: DriverKind) -> Self {
        builtin::for_device(info, driver)
    }

    /// The built-in profile of that name (`h200`, `cautious`), or none.
    pub fn builtin(name: &str) -> Option<Self> {
        match name {
            "h200" => Some(builtin::h200()),
            "cautious" => Some(builtin::cautious(DriverKind::CUDA, 0)),
            _ => None,
        }
    }

    /// Reads what [`to_text`](Self::to_text) writes: a `key = value` a line, `#` begins a comment. Every key must be
    /// there once.
    ///
    /// # Errors
    /// What is wrong and where, in words: a key that is missing, doubled or unknown, a figure that is negative, not
    /// a number or absurd, another version of the format.
    pub fn parse(text: &str) -> Result<Self, String> {
        text::parse(text)
    }

    /// The profile as text for the file that `GVMM_PROFILE` names: `key = value` lines, times in µs.
    pub fn to_text(&self) -> String {
        text::write(self)
    }

    /// Checks that the profile is about the device of `subject`.
    ///
    /// # Errors
    /// What differs, in words.
    pub fn check(&self, subject: &Subject<'_>) -> Result<(), String> {
        let differs = |what: &str, ours: &str, theirs: &str| {
            Err(format!("it was measured with {what} `{ours}`, and this is `{theirs}`: measure again"))
        };
        let Origin { device, driver, driver_version, .. } = &self.origin;
        if device != subject.device {
            return differs("device", device, subject.device);
        }
        if driver != subject.driver.name() {
            return differs("driver", driver, subject.driver.name());
        }
        match subject.driver_version {
            Some(version) if version != driver_version => differs("driver version", driver_version, version),
            _ => Ok(()),
        }
    }
}
