//! What every check stands on: a device, things made on it and given back afterwards, and comparisons.

use super::super::touch;
use super::{Checked, Mismatch, Staged, Stop, Verdict};
use crate::driver::{
    Access, AccessMode, Capabilities, CopySlice, CreateOptions, Driver, DriverKind, Graph, NativeBlock,
    Ordinal, RouteId, RouteSlice, Stream, Streams, TimelineId, Way,
};
use crate::error::{Kind, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a check waits for what must happen at some time.
const PATIENCE: Duration = Duration::from_secs(20);

/// A device under test, and what lives on it.
pub(super) struct Rig {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) device: Ordinal,
    pub(super) capabilities: Capabilities,
    pub(super) granule: Granularity,
    /// For devices whose memory the host cannot touch.
    staged: Option<Staged>,
    ranges: Vec<DeviceRange>,
    blocks: Vec<NativeBlock>,
    mappings: Vec<DeviceRange>,
    plain: Vec<DevicePtr>,
    streams: Vec<Stream>,
    timelines: Vec<TimelineId>,
    graphs: Vec<Graph>,
    routes: Vec<RouteId>,
}

fn forget<T: PartialEq>(list: &mut Vec<T>, item: &T) {
    list.retain(|other| other != item);
}

impl Rig {
    pub(super) fn new(
        driver: Arc<dyn Driver>,
        device: Ordinal,
        capabilities: Capabilities,
        staged: Option<Staged>,
    ) -> Result<Self> {
        let granule = driver.granularity(device, ByteSize::mib(2))?;
        Ok(Self {
            driver,
            device,
            capabilities,
            granule,
            staged: staged.filter(|_| !capabilities.has(Capabilities::HOST_TOUCH)),
            ranges: Vec::new(),
            blocks: Vec::new(),
            mappings: Vec::new(),
            plain: Vec::new(),
            streams: Vec::new(),
            timelines: Vec::new(),
            graphs: Vec::new(),
            routes: Vec::new(),
        })
    }

    pub(super) fn streams(&self) -> &dyn Streams {
        self.driver.streams()
    }

    pub(super) fn has(&self, wanted: Capabilities) -> bool {
        self.capabilities.has(wanted)
    }

    /// `n` granules in bytes.
    pub(super) fn granules(&self, n: u64) -> ByteSize {
        ByteSize(self.granule.size().0.saturating_mul(n))
    }

    /// `count` granules from granule `first` of a range on.
    pub(super) fn part(&self, range: DeviceRange, first: u64, count: u64) -> Checked<DeviceRange> {
        let part = range.slice(self.granules(first), self.granules(count));
        part.ok_or_else(|| mismatch("a part inside of the range", &range))
    }

    /// Another device than the one under test.
    pub(super) fn other(&self) -> Ordinal {
        if self.device.0 == 0 { Ordinal(1) } else { Ordinal(0) }
    }

    /// Ends the check unless faults leave the process usable, which no GPU's do.
    pub(super) fn survives_faults(&self) -> Verdict {
        if self.driver.kind() == DriverKind::HOST {
            return Ok(());
        }
        Err(Stop::Skip("a fault would end this process's use of the device"))
    }

    // Things made.

    pub(super) fn reserve(&mut self, n: u64) -> Result<DeviceRange> {
        let range = self.driver.reserve(self.device, self.granules(n), self.granule)?;
        self.ranges.push(range);
        Ok(range)
    }

    pub(super) fn free(&mut self, range: DeviceRange) -> Result<()> {
        self.driver.free(range)?;
        forget(&mut self.ranges, &range);
        Ok(())
    }

    pub(super) fn block(&mut self, n: u64) -> Result<NativeBlock> {
        self.block_with(n, CreateOptions::default())
    }

    pub(super) fn block_with(&mut self, n: u64, options: CreateOptions) -> Result<NativeBlock> {
        let block = self.driver.create(self.device, self.granules(n), options)?;
        self.blocks.push(block);
        Ok(block)
    }

    /// Takes care of a block that was made otherwise.
    pub(super) fn keep(&mut self, block: NativeBlock) -> NativeBlock {
        self.blocks.push(block);
        block
    }

    pub(super) fn release(&mut self, block: NativeBlock) -> Result<()> {
        self.driver.release(block)?;
        forget(&mut self.blocks, &block);
        Ok(())
    }

    pub(super) fn map(&mut self, range: DeviceRange, block: NativeBlock) -> Result<()> {
        self.driver.map(range, block)?;
        self.mappings.push(range);
        Ok(())
    }

    pub(super) fn unmap(&mut self, range: DeviceRange) -> Result<()> {
        self.driver.unmap(range)?;
        forget(&mut self.mappings, &range);
        Ok(())
    }

    pub(super) fn plain(&mut self, size: ByteSize) -> Result<DevicePtr> {
        let address = self.driver.allocate(self.device, size)?;
        self.plain.push(address);
        Ok(address)
    }

    pub(super) fn give_back(&mut self, address: DevicePtr) -> Result<()> {
        self.driver.deallocate(self.device, address)?;
        forget(&mut self.plain, &address);
        Ok(())
    }

    pub(super) fn stream(&mut self) -> Result<Stream> {
        self.stream_of(self.device)
    }

    pub(super) fn stream_of(&mut self, device: Ordinal) -> Result<Stream> {
        let stream = self.streams().create(device)?;
        self.streams.push(stream);
        Ok(stream)
    }

    pub(super) fn destroy(&mut self, stream: Stream) -> Result<()> {
        self.streams().destroy(stream)?;
        forget(&mut self.streams, &stream);
        Ok(())
    }

    pub(super) fn timeline(&mut self) -> Result<TimelineId> {
        let timeline = self.driver.timeline_create(self.device)?;
        self.timelines.push(timeline);
        Ok(timeline)
    }

    pub(super) fn destroy_timeline(&mut self, timeline: TimelineId) -> Result<()> {
        self.driver.timeline_destroy(timeline)?;
        forget(&mut self.timelines, &timeline);
        Ok(())
    }

    pub(super) fn route(&mut self, way: Way, slices: &[RouteSlice]) -> Result<RouteId> {
        let route = self.driver.route_create(self.device, way, slices)?;
        self.routes.push(route);
        Ok(route)
    }

    pub(super) fn destroy_route(&mut self, route: RouteId) -> Result<()> {
        self.driver.route_destroy(route)?;
        forget(&mut self.routes, &route);
        Ok(())
    }

    pub(super) fn capture_end(&mut self, stream: Stream) -> Result<Graph> {
        let graph = self.streams().capture_end(stream)?;
        self.graphs.push(graph);
        Ok(graph)
    }

    pub(super) fn destroy_graph(&mut self, graph: Graph) -> Result<()> {
        self.streams().destroy_graph(graph)?;
        forget(&mut self.graphs, &graph);
        Ok(())
    }

    /// A block of `n` granules, mapped in a range of its own, for the device to read and write.
    pub(super) fn memory(&mut self, n: u64) -> Result<DeviceRange> {
        let (range, block) = (self.reserve(n)?, self.block(n)?);
        self.map(range, block)?;
        self.open(range, AccessMode::READ_WRITE)?;
        Ok(range)
    }

    /// Sets what the device may do in `range`, which is all that is mapped in its reservation or, where the
    /// device can tell parts apart, one mapping.
    pub(super) fn open(&self, range: DeviceRange, mode: AccessMode) -> Result<()> {
        let whole = self.ranges.iter().find(|all| all.contains_range(range)).copied().unwrap_or(range);
        let range = if self.has(Capabilities::RANGE_ACCESS) { range } else { whole };
        self.driver.set_access(range, &[self.line(mode)])
    }

    /// A line of an access list, for the device under test.
    pub(super) const fn line(&self, mode: AccessMode) -> Access {
        Access { device: self.device, mode }
    }

    // What the host does.

    /// Writes `bytes` to a device address.
    pub(super) fn write(&self, to: DevicePtr, bytes: &[u8]) -> Verdict {
        let written = match &self.staged {
            Some(staged) => (staged.write)(self.device, to, bytes),
            None if self.has(Capabilities::HOST_TOUCH) => touch::write(to, bytes),
            None => self.driver.write(self.device, to, bytes).is_ok(),
        };
        same("the host writes what the device can write", true, written)
    }

    /// Reads from a device address.
    pub(super) fn read(&self, from: DevicePtr, size: usize) -> Checked<Vec<u8>> {
        let mut bytes = vec![0; size];
        let read = match &self.staged {
            Some(staged) => (staged.read)(self.device, from, &mut bytes),
            None if self.has(Capabilities::HOST_TOUCH) => touch::read(from, &mut bytes),
            None => self.driver.read(self.device, from, &mut bytes).is_ok(),
        };
        same("the host reads what the device can read", true, read)?;
        Ok(bytes)
    }

    /// Whether the host, or the device where the host cannot touch its memory, can read and can write the first
    /// byte of a range.
    pub(super) fn touch(&self, range: DeviceRange) -> Checked<(bool, bool)> {
        if let Some(staged) = &self.staged {
            return Ok((staged.access)(self.device, range.start()));
        }
        if !self.has(Capabilities::HOST_TOUCH) {
            let mode = self.driver.access_at(self.device, range.start()).unwrap_or(AccessMode::NONE);
            return Ok((mode.0 & 1 != 0, mode.0 & 2 != 0));
        }
        let mut byte = [0];
        let readable = touch::read(range.start(), &mut byte);
        Ok((readable, touch::write(range.start(), &byte)))
    }

    /// Checks the first bytes of a range.
    pub(super) fn holds(&self, range: DeviceRange, bytes: &[u8], what: &str) -> Verdict {
        same(what, bytes, self.read(range.start(), bytes.len())?.as_slice())
    }

    /// Copies one slice and waits.
    pub(super) fn copy(&self, stream: Stream, dst: DevicePtr, src: DevicePtr, bytes: u64) -> Result<()> {
        self.driver.copy(self.device, stream, &[CopySlice { dst, src, bytes }])?;
        self.streams().synchronize(stream)
    }

    /// Waits until `done` says so.
    pub(super) fn eventually(&self, what: &str, done: impl Fn() -> bool) -> Verdict {
        let start = Instant::now();
        while !done() {
            if start.elapsed() > PATIENCE {
                return Err(mismatch(what, &"nothing for 20 s"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Makes a call that must end, on a thread of its own, so that a driver whose call never does fails the check
    /// instead of stopping all of them.
    pub(super) fn ends(
        &self,
        call: impl FnOnce(&dyn Driver) -> Result<()> + Send + 'static,
    ) -> Checked<Result<()>> {
        let (driver, (done, ended)) = (Arc::clone(&self.driver), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            // Where the call ends too late, nobody listens any more.
            let _ = done.send(call(&*driver));
        });
        ended.recv_timeout(PATIENCE).map_err(|_| mismatch("the call ends", &"not within 20 s"))
    }

    /// Gives back everything. After a check that passed, all of it must work.
    pub(super) fn finish(mut self, passed: bool) -> Verdict {
        if !passed {
            self.release_waiters();
        }
        let mut verdict = Ok(());
        let mut note = |result: Result<()>| {
            if verdict.is_ok() {
                verdict = result;
            }
        };
        let d = &self.driver;
        self.streams.drain(..).for_each(|s| note(d.streams().destroy(s)));
        self.graphs.drain(..).for_each(|g| note(d.streams().destroy_graph(g)));
        self.routes.drain(..).for_each(|r| note(d.route_destroy(r)));
        self.timelines.drain(..).for_each(|t| note(d.timeline_destroy(t)));
        self.mappings.drain(..).for_each(|m| note(d.unmap(m)));
        self.ranges.drain(..).for_each(|r| note(d.free(r)));
        self.blocks.drain(..).for_each(|b| note(d.release(b)));
        self.plain.drain(..).for_each(|p| note(d.deallocate(self.device, p)));
        if passed { verdict.map_err(Stop::from) } else { Ok(()) }
    }

    /// Lets go every stream that a failed check left waiting, so that it can be destroyed.
    fn release_waiters(&mut self) {
        let Ok(stream) = self.stream() else { return };
        for timeline in &self.timelines {
            // After a failure, what does not work any more is no news.
            let _ = self.driver.timeline_write(stream, *timeline, u64::MAX);
        }
    }
}

/// A failure that shows what was seen.
pub(super) fn mismatch(expected: &str, seen: &impl Debug) -> Stop {
    Stop::Fail(Mismatch { expected: expected.to_owned(), seen: format!("{seen:?}") })
}

/// Compares two values; of long ones the beginning is shown.
pub(super) fn same<T: PartialEq + Debug>(what: &str, expected: T, seen: T) -> Verdict {
    if expected == seen {
        return Ok(());
    }
    let show = |value: &T| format!("{value:?}").chars().take(200).collect::<String>();
    Err(Stop::Fail(Mismatch { expected: format!("{what}: {}", show(&expected)), seen: show(&seen) }))
}

/// Expects a call to be refused as `kind`.
pub(super) fn refused<T: Debug>(kind: Kind, what: &str, result: Result<T>) -> Verdict {
    match result {
        Err(error) if error.kind == kind => Ok(()),
        Err(error) => Err(mismatch(&format!("{what}: {kind:?}"), &error)),
        Ok(value) => Err(mismatch(&format!("{what}: {kind:?}"), &value)),
    }
}
