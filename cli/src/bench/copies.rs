//! Copies of many small slices, in one call and one by one, and the bandwidth of a large one.

use super::calls::Calls;
use super::options::Vmm;
use super::row::Rounds;
use super::spread::Spread;
use super::vmm::Skipped;
use crate::cuda::{BatchList, Clock};
use crate::failure::{Context, Failure};
use crate::setup::{CostChoice, open_driver};
use gvmm::config;
use gvmm::driver::{Capabilities, CopySlice, Driver, DriverKind, Ordinal, Stream};
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::units::{ByteSize, DevicePtr};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// One kind of copy.
#[derive(Serialize, Clone, Debug)]
pub(super) struct CopyRow {
    /// `joint`: one call of ours; `single`: one copy a call; `batch`: the vendor's call for many.
    pub(super) what: &'static str,
    /// What was called.
    pub(super) by: &'static str,
    pub(super) slices: u64,
    pub(super) slice_bytes: u64,
    /// Calls, and how many launches the driver says they took.
    pub(super) calls: u64,
    pub(super) launches: u64,
    pub(super) host_us: Spread,
    pub(super) gpu_us: Spread,
}

const SLICES: [u64; 5] = [1, 8, 64, 256, 1024];
const SLICE: u64 = 4 << 10;

/// A stream, two buffers, and a clock.
struct Bench {
    driver: Arc<dyn Driver>,
    device: Ordinal,
    stream: Stream,
    buffers: [DevicePtr; 2],
    /// None: the host waits for the stream, and its clock is read.
    clock: Option<Clock>,
}

impl Bench {
    fn new(driver: &Arc<dyn Driver>, device: Ordinal, bytes: u64) -> Result<Self> {
        let clock = (driver.kind() == DriverKind::CUDA).then(|| Clock::new(device)).transpose()?;
        let stream = driver.streams().create(device)?;
        let mut bench =
            Self { driver: Arc::clone(driver), device, stream, buffers: [DevicePtr::NULL; 2], clock };
        for i in 0..2 {
            bench.buffers[i] = driver.allocate(device, ByteSize(bytes))?;
        }
        Ok(bench)
    }

    fn slices(&self, count: u64, bytes: u64) -> Result<Vec<CopySlice>> {
        let beyond = Error::new(Kind::InvalidSize, Operation::Copy, "the buffers wrap around");
        let at = |buffer: DevicePtr, i: u64| buffer.checked_add(ByteSize(i * bytes)).ok_or(beyond);
        let slice = |i| Ok(CopySlice { dst: at(self.buffers[1], i)?, src: at(self.buffers[0], i)?, bytes });
        (0..count).map(slice).collect()
    }

    /// µs of the calls and of the copies; `enqueue` says how many launches there were.
    fn time(
        &self,
        rounds: Rounds<'_>,
        mut enqueue: impl FnMut() -> Result<u64>,
    ) -> Result<(Spread, Spread, u64)> {
        let (mut host, mut gpu, mut launches) = (Vec::new(), Vec::new(), 0);
        rounds.repeat(|counts| {
            self.clock.as_ref().map_or(Ok(()), |clock| clock.start(self.stream))?;
            let start = Instant::now();
            launches = enqueue()?;
            let called = start.elapsed();
            let done = match &self.clock {
                Some(clock) => clock.stop(self.stream)?,
                None => {
                    self.driver.streams().synchronize(self.stream)?;
                    start.elapsed().as_secs_f64() * 1e6
                }
            };
            if counts {
                host.push(called.as_secs_f64() * 1e6);
                gpu.push(done);
            }
            Ok(())
        })?;
        Ok((Spread::of(host).unwrap_or_default(), Spread::of(gpu).unwrap_or_default(), launches))
    }

    fn copy(&self, slices: &[CopySlice]) -> Result<u64> {
        self.driver.copy(self.device, self.stream, slices).map(u64::from)
    }

    fn joint(&self, slices: &[CopySlice], rounds: Rounds<'_>) -> Result<CopyRow> {
        let (host_us, gpu_us, launches) = self.time(rounds, || self.copy(slices))?;
        Ok(row("joint", "one call of gvmm", slices, 1, launches, host_us, gpu_us))
    }

    fn single(&self, slices: &[CopySlice], rounds: Rounds<'_>) -> Result<CopyRow> {
        let count = slices.len() as u64;
        let (by, (host_us, gpu_us, launches)) = match &self.clock {
            Some(clock) => {
                let each = || clock.copy_each(self.stream, slices).map(|()| count);
                ("cuMemcpyDtoDAsync", self.time(rounds, each)?)
            }
            None => {
                let each = || slices.chunks(1).try_fold(0, |launches, one| Ok(launches + self.copy(one)?));
                ("a call of gvmm for each", self.time(rounds, each)?)
            }
        };
        Ok(row("single", by, slices, count, launches, host_us, gpu_us))
    }

    /// None where the vendor has no such call, or it fails.
    fn batch(&self, slices: &[CopySlice], rounds: Rounds<'_>) -> Result<Option<CopyRow>> {
        let Some(call) = self.clock.as_ref().and_then(Clock::batch) else { return Ok(None) };
        let list = BatchList::new(slices);
        if let Err(error) = call.enqueue(self.stream, &list) {
            log::warn!("the vendor's batch call is left out: {error}");
            return Ok(None);
        }
        let (host_us, gpu_us, launches) =
            self.time(rounds, || call.enqueue(self.stream, &list).map(|()| 1))?;
        Ok(Some(row("batch", "cuMemcpyBatchAsync", slices, 1, launches, host_us, gpu_us)))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let mut ended = vec![self.driver.streams().destroy(self.stream)];
        let buffers = self.buffers.iter().filter(|buffer| !buffer.is_null());
        ended.extend(buffers.map(|buffer| self.driver.deallocate(self.device, *buffer)));
        for error in ended.into_iter().filter_map(Result::err) {
            log::warn!("something was not given back: {error}");
        }
    }
}

fn row(
    what: &'static str,
    by: &'static str,
    slices: &[CopySlice],
    calls: u64,
    launches: u64,
    host_us: Spread,
    gpu_us: Spread,
) -> CopyRow {
    let slice_bytes = slices.first().map_or(0, |slice| slice.bytes);
    CopyRow { what, by, slices: slices.len() as u64, slice_bytes, calls, launches, host_us, gpu_us }
}

/// All copies, and which clock was read for the GPU's time.
pub(super) fn measure(
    calls: &Calls,
    options: &Vmm,
    rounds: Rounds<'_>,
    skipped: &mut Vec<Skipped>,
) -> std::result::Result<(Vec<CopyRow>, &'static str), Failure> {
    let small = Bench::new(&calls.driver, calls.device, 1024 * SLICE).during("copies")?;
    let single = apart(calls, options)?;
    let single = single.as_ref().unwrap_or(&small);
    let mut rows = Vec::new();
    let mut skip = |what: &str, why: String| skipped.push(Skipped { what: what.into(), why });
    for count in SLICES {
        let slices = small.slices(count, SLICE).during("copies")?;
        rows.push(small.joint(&slices, rounds).during("joint copy")?);
        let alone = single.slices(count, SLICE).during("copies")?;
        rows.push(single.single(&alone, rounds).during("single copies")?);
        rows.extend(small.batch(&slices, rounds).during("batch copy")?);
    }
    if !rows.iter().any(|row| row.what == "batch") {
        skip("batch copies", "there is no call of the vendor's for them that this program knows".into());
    }
    match large(calls, options, rounds) {
        Ok(row) => rows.push(row),
        Err(error) => skip("bandwidth", error.to_string()),
    }
    let clock = match small.clock {
        Some(_) => "between two events around the calls",
        None => "from the first call until the host has waited for the stream",
    };
    Ok((rows, clock))
}

/// The host driver once more, without joint copies: what single ones cost is simulated there only.
fn apart(calls: &Calls, options: &Vmm) -> std::result::Result<Option<Bench>, Failure> {
    let info = calls.driver.device_info(calls.device).during("device")?;
    if calls.driver.kind() != DriverKind::HOST || !info.capabilities.has(Capabilities::JOINT_COPIES) {
        return Ok(None);
    }
    let mut config = config::get().clone();
    config.host.devices = calls.driver.device_count();
    config.host.caps_off.push("joint_copies".into());
    let driver = open_driver(Some(DriverKind::HOST), CostChoice::read(options.costs.as_deref())?, config)?;
    Bench::new(&driver, calls.device, 1024 * SLICE).during("copies").map(Some)
}

/// One slice of the largest block's size, or of a tenth of the memory that is free.
fn large(calls: &Calls, options: &Vmm, rounds: Rounds<'_>) -> Result<CopyRow> {
    let largest = options.sizes.iter().max().map_or(SLICE, |size| size.get());
    let free = calls.driver.memory(calls.device)?.free.map_or(largest, |free| free.get() / 10);
    let bytes = largest.min(free) / SLICE * SLICE;
    if bytes == 0 {
        return Err(Error::new(Kind::OutOfDeviceMemory, Operation::Copy, "no room for a large copy"));
    }
    let bench = Bench::new(&calls.driver, calls.device, bytes)?;
    bench.joint(&bench.slices(1, bytes)?, rounds)
}
