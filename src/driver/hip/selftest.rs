//! What is tried when a device opens, where the quirk table asks for it: known faults that depend on the hardware
//! and show only when it runs.

use super::api::BY_ADDRESS;
use super::context::Core;
use crate::driver::books::Books;
use crate::driver::lines::{Lines, Runtime};
use crate::driver::quirks::Care;
use crate::driver::{Access, AccessMode, CopySlice, CreateOptions, Ordinal, Stream};
use crate::error::{Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange};

/// Bytes that each test looks at, and how often it looks.
const BYTES: usize = 4096;
const ROUNDS: u8 = 8;

/// How a self-test ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The fault is not there.
    Passed,
    /// It is; what follows from it.
    Failed(&'static str),
    /// It could not be made, for this reason.
    Skipped(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(what) => write!(f, "failed: {what}"),
            Self::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}

/// A self-test and its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelfTest {
    /// Its name.
    pub name: &'static str,
    /// How it ended.
    pub verdict: Verdict,
}

/// Whether a graph sees what its stream wrote just before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    /// It does.
    Seen,
    /// Where the host waits in between.
    Waited,
    /// Not even then.
    Stale,
}

/// What the tests found.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) tests: Vec<SelfTest>,
    /// A fresh mapping shows its bytes.
    pub(super) fresh: bool,
    pub(super) before: Before,
}

impl Core {
    /// The findings for a device; the tests run once.
    pub(super) fn examine(&self, device: Ordinal) -> Result<&Findings> {
        let found = self.device(device, Operation::Open)?;
        Ok(found.findings.get_or_init(|| {
            let mut findings = Findings { tests: Vec::new(), fresh: true, before: Before::Seen };
            if found.care.has(Care::CHECK_FRESH) && found.virtual_memory {
                self.test_fresh(device, &mut findings);
            }
            if found.care.has(Care::CHECK_GRAPH) {
                self.test_graph(device, &mut findings);
            }
            findings.tests.iter().for_each(|test| log::info!("device {}: {test:?}", device.0));
            findings
        }))
    }

    fn test_fresh(&self, device: Ordinal, findings: &mut Findings) {
        let verdict = match self.sees_fresh(device) {
            Ok(true) => Verdict::Passed,
            Ok(false) => {
                findings.fresh = false;
                Verdict::Failed("virtual memory is refused on this device")
            }
            Err(error) => Verdict::Skipped(error.to_string()),
        };
        findings.tests.push(SelfTest { name: "a kernel sees a fresh mapping", verdict });
    }

    fn test_graph(&self, device: Ordinal, findings: &mut Findings) {
        let verdict = match (self.graph_sees(device, false), self.graph_sees(device, true)) {
            (Ok(true), _) => Verdict::Passed,
            (Ok(false), Ok(true)) => {
                findings.before = Before::Waited;
                Verdict::Failed("each copy is waited for on the host")
            }
            (Ok(false), _) => {
                findings.before = Before::Stale;
                Verdict::Failed("copies outside of graphs are refused")
            }
            (Err(error), _) => Verdict::Skipped(error.to_string()),
        };
        findings.tests.push(SelfTest { name: "a graph sees what its stream wrote before", verdict });
    }

    /// Maps a block that holds a pattern again and again, and reads it at once.
    fn sees_fresh(&self, device: Ordinal) -> Result<bool> {
        let (books, lines) = (Books::default(), Lines::default());
        let granule = self.granularity(device)?;
        let range = self.reserve(&books, device, granule.size(), granule)?;
        let block = self.create(&books, device, granule.size(), CreateOptions::default());
        let seen = block.and_then(|block| {
            let buffer = self.allocate(&books, device, ByteSize(BYTES as u64))?;
            let seen = lines.create(self, device).and_then(|stream| {
                let show = || {
                    self.map(&books, range, block)?;
                    let access = [Access { device, mode: AccessMode::READ_WRITE }];
                    self.set_access(&books, range, &access)
                };
                show()?;
                self.write_pattern(device, range.start(), 1)?;
                self.unmap(&books, range)?;
                self.rounds(|_| {
                    self.write_pattern(device, buffer, 0)?;
                    show()?;
                    self.copy_bytes(device, stream, buffer, range.start())?;
                    lines.synchronize(self, stream)?;
                    self.unmap(&books, range)?;
                    self.holds_pattern(device, buffer, 1)
                })
            });
            lines.close(self);
            self.log("free a self-test's memory", self.deallocate(&books, device, buffer));
            self.forget(&books, range);
            self.log("release a self-test's block", self.release(&books, block));
            seen
        });
        self.log("free a self-test's range", self.free(&books, range));
        seen
    }

    /// True where the host can reach all of the device's memory, so that frameworks read it there, and is granted no
    /// access to what is mapped. Found out by a mapping, where nothing was granted yet.
    pub(super) fn faults_hosts(&self, device: Ordinal) -> Result<bool> {
        let found = self.device(device, Operation::Query)?;
        if !found.virtual_memory || !found.large_bar {
            return Ok(false);
        }
        if self.host_reaches(found) {
            self.grant_once(device)?;
        }
        Ok(!self.host_reaches(found))
    }

    /// Maps a block and gives the device access, and with that the host where it can be.
    fn grant_once(&self, device: Ordinal) -> Result<()> {
        let books = Books::default();
        let granule = self.granularity(device)?;
        let range = self.reserve(&books, device, granule.size(), granule)?;
        let done = self.create(&books, device, granule.size(), CreateOptions::default()).and_then(|block| {
            let access = [Access { device, mode: AccessMode::READ_WRITE }];
            let granted =
                self.map(&books, range, block).and_then(|()| self.set_access(&books, range, &access));
            self.forget(&books, range);
            self.log("release a self-test's block", self.release(&books, block));
            granted
        });
        self.log("free a self-test's range", self.free(&books, range));
        done
    }

    /// What a test that stopped half way has left mapped.
    fn forget(&self, books: &Books, range: DeviceRange) {
        if self.holds.get(range).is_some() {
            self.log("unmap a self-test's range", self.unmap(books, range));
        }
    }

    /// Writes a buffer on a stream and launches a graph there that reads it.
    fn graph_sees(&self, device: Ordinal, wait: bool) -> Result<bool> {
        let (books, lines) = (Books::default(), Lines::default());
        let size = ByteSize(BYTES as u64);
        let at = self.allocate(&books, device, ByteSize(3 * size.get()))?;
        let [source, buffer, target] = [0, 1, 2].map(|i| DevicePtr(at.get() + i * size.get()));
        let seen = lines.create(self, device).and_then(|stream| {
            lines.capture_begin(self, stream)?;
            self.copy_bytes(device, stream, target, buffer)?;
            let graph = lines.capture_end(self, stream)?;
            self.rounds(|round| {
                self.write_pattern(device, source, round + 1)?;
                self.copy_bytes(device, stream, buffer, source)?;
                if wait {
                    lines.synchronize(self, stream)?;
                }
                lines.launch(self, graph, stream)?;
                lines.synchronize(self, stream)?;
                self.holds_pattern(device, target, round + 1)
            })
        });
        lines.close(self);
        self.log("free a self-test's memory", self.deallocate(&books, device, at));
        seen
    }

    /// True where every round is.
    fn rounds(&self, round: impl Fn(u8) -> Result<bool>) -> Result<bool> {
        (0..ROUNDS).try_fold(true, |all, i| round(i).map(|one| all && one))
    }

    fn copy_bytes(&self, device: Ordinal, stream: Stream, dst: DevicePtr, src: DevicePtr) -> Result<()> {
        let kit = self.kit(device, Operation::Copy)?;
        let _entered = self.enter_device(device, Operation::Copy)?;
        self.enqueue(kit, stream, &[CopySlice { dst, src, bytes: BYTES as u64 }]).map(|_| ())
    }

    fn write_pattern(&self, device: Ordinal, to: DevicePtr, seed: u8) -> Result<()> {
        let bytes = pattern(seed);
        let _entered = self.enter_device(device, Operation::Copy)?;
        let status = self.api.copy(to.get(), bytes.as_ptr() as u64, BYTES as u64, BY_ADDRESS);
        self.api.check(status, Operation::Copy)
    }

    fn holds_pattern(&self, device: Ordinal, at: DevicePtr, seed: u8) -> Result<bool> {
        let mut bytes = vec![0_u8; BYTES];
        let _entered = self.enter_device(device, Operation::Copy)?;
        let status = self.api.copy(bytes.as_mut_ptr() as u64, at.get(), BYTES as u64, BY_ADDRESS);
        self.api.check(status, Operation::Copy)?;
        Ok(bytes == pattern(seed))
    }
}

/// Bytes that no other seed gives; for 0 they are 0.
fn pattern(seed: u8) -> Vec<u8> {
    (0..BYTES).map(|i| (i as u8 | 1).wrapping_mul(seed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_everywhere() {
        assert!(pattern(0).iter().all(|b| *b == 0));
        for seed in 1..=ROUNDS {
            let differs = pattern(seed).iter().zip(pattern(seed - 1)).all(|(a, b)| *a != b);
            assert!(differs, "{seed}");
        }
    }
}
