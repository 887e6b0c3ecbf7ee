//! What begin and end cost without the driver: every call of this driver succeeds at once. The driver calls of a
//! step are printed beside its times.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gvmm::driver::{
    Access, Capabilities, CopySlice, CreateOptions, DeviceInfo, Driver, DriverKind, Graph, HostFunction,
    MemoryInfo, NativeBlock, Ordinal, Stream, Streams, TimelineId, unsupported,
};
use gvmm::error::{Operation, Result};
use gvmm::rebind::{Binding, Buffer, Buffers, Options, Outcome, Slot, StepReport, Threshold};
use gvmm::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use gvmm::vm::{Block, Device};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MIB2: u64 = 2 << 20;
const STREAM: Stream = Stream(1);

/// A driver that does nothing, and does it at once.
#[derive(Debug, Default)]
struct Null {
    next: AtomicU64,
    timeline: AtomicU64,
}

impl Null {
    fn next(&self, step: u64) -> u64 {
        (1 << 40) + self.next.fetch_add(step, Ordering::Relaxed)
    }
}

impl Driver for Null {
    fn kind(&self) -> DriverKind {
        DriverKind::HOST
    }
    fn device_count(&self) -> u32 {
        1
    }
    fn device_info(&self, _: Ordinal) -> Result<DeviceInfo> {
        Ok(DeviceInfo {
            name: "null".to_owned(),
            capabilities: Capabilities(u64::MAX),
            granularity: Granularity::new(MIB2).expect("a power of two"),
            total: ByteSize::gib(1024),
            bandwidth: 0,
            simulated_costs: None,
        })
    }
    fn memory(&self, _: Ordinal) -> Result<MemoryInfo> {
        Ok(MemoryInfo { free: None, total: ByteSize::gib(1024) })
    }
    fn granularity(&self, _: Ordinal, _: ByteSize) -> Result<Granularity> {
        Ok(Granularity::new(MIB2).expect("a power of two"))
    }
    fn reserve(&self, _: Ordinal, size: ByteSize, _: Granularity) -> Result<DeviceRange> {
        Ok(DeviceRange::new(DevicePtr(self.next(size.get())), size).expect("a range"))
    }
    fn free(&self, _: DeviceRange) -> Result<()> {
        Ok(())
    }
    fn create(&self, _: Ordinal, _: ByteSize, _: CreateOptions) -> Result<NativeBlock> {
        Ok(NativeBlock(self.next(MIB2)))
    }
    fn release(&self, _: NativeBlock) -> Result<()> {
        Ok(())
    }
    fn map(&self, _: DeviceRange, _: NativeBlock) -> Result<()> {
        Ok(())
    }
    fn unmap(&self, _: DeviceRange) -> Result<()> {
        Ok(())
    }
    fn set_access(&self, _: DeviceRange, _: &[Access]) -> Result<()> {
        Ok(())
    }
    fn allocate(&self, _: Ordinal, size: ByteSize) -> Result<DevicePtr> {
        Ok(DevicePtr(self.next(size.get())))
    }
    fn deallocate(&self, _: Ordinal, _: DevicePtr) -> Result<()> {
        Ok(())
    }
    fn copy(&self, _: Ordinal, _: Stream, _: &[CopySlice]) -> Result<u32> {
        Ok(1)
    }
    fn timeline_create(&self, _: Ordinal) -> Result<TimelineId> {
        Ok(TimelineId(1))
    }
    fn timeline_destroy(&self, _: TimelineId) -> Result<()> {
        Ok(())
    }
    fn timeline_write(&self, _: Stream, _: TimelineId, value: u64) -> Result<()> {
        self.timeline.store(value, Ordering::Relaxed);
        Ok(())
    }
    fn timeline_read(&self, _: TimelineId) -> Result<u64> {
        Ok(self.timeline.load(Ordering::Relaxed))
    }
    fn timeline_wait(&self, _: TimelineId, _: u64) -> Result<()> {
        Ok(())
    }
    fn stream_wait(&self, _: Stream, _: TimelineId, _: u64) -> Result<()> {
        Ok(())
    }
    fn is_capturing(&self, _: Ordinal, _: Stream) -> Result<bool> {
        Ok(false)
    }
    fn export(&self, _: NativeBlock) -> Result<OwnedFd> {
        Err(unsupported(Operation::Share, ""))
    }
    fn import(&self, _: Ordinal, _: BorrowedFd<'_>, _: ByteSize) -> Result<NativeBlock> {
        Err(unsupported(Operation::Share, ""))
    }
    fn check_native(&self, _: Ordinal, _: NativeBlock, _: ByteSize) -> Result<()> {
        Ok(())
    }
    fn streams(&self) -> &dyn Streams {
        self
    }
}

impl Streams for Null {
    fn create(&self, _: Ordinal) -> Result<Stream> {
        Ok(STREAM)
    }
    fn destroy(&self, _: Stream) -> Result<()> {
        Ok(())
    }
    fn synchronize(&self, _: Stream) -> Result<()> {
        Ok(())
    }
    fn enqueue(&self, _: Stream, _: HostFunction) -> Result<()> {
        Ok(())
    }
    fn capture_begin(&self, _: Stream) -> Result<()> {
        Ok(())
    }
    fn capture_end(&self, _: Stream) -> Result<Graph> {
        Ok(Graph(1))
    }
    fn launch(&self, _: Graph, _: Stream) -> Result<()> {
        Ok(())
    }
    fn destroy_graph(&self, _: Graph) -> Result<()> {
        Ok(())
    }
}

/// One step's buffers.
#[derive(Clone)]
struct Step {
    buffers: Vec<Buffer>,
    blocks: Vec<Arc<Block>>,
}

impl Buffers for Step {
    fn len(&self) -> usize {
        self.buffers.len()
    }
    fn get(&self, i: usize) -> Buffer {
        self.buffers[i]
    }
    fn block(&self, i: usize) -> Result<Arc<Block>> {
        Ok(Arc::clone(&self.blocks[i]))
    }
    fn epoch(&self) -> u64 {
        0
    }
}

fn step(device: &Device, slots: usize) -> Step {
    let blocks: Vec<Arc<Block>> = (0..slots)
        .map(|_| device.create_block(ByteSize(MIB2), CreateOptions::default()).expect("a block"))
        .collect();
    let buffer = |(i, block): (usize, &Arc<Block>)| Buffer {
        // Nobody knows these addresses, so they are taken to be where the blocks begin.
        address: DevicePtr((1 << 50) + i as u64 * MIB2),
        bytes: ByteSize(MIB2),
        id: block.id().0,
        has_block: true,
    };
    Step { buffers: blocks.iter().enumerate().map(buffer).collect(), blocks }
}

/// The same with every fifth slot in another block.
fn fifth_moved(device: &Device, first: &Step) -> Step {
    let (mut moved, other) = (first.clone(), step(device, first.buffers.len()));
    for i in (0..first.buffers.len()).step_by(5) {
        moved.buffers[i] =
            Buffer { address: DevicePtr(other.buffers[i].address.0 + (1 << 50)), ..other.buffers[i] };
        moved.blocks[i] = Arc::clone(&other.blocks[i]);
    }
    moved
}

fn binding(device: &Arc<Device>, slots: usize, bytes: u64, threshold: Threshold, first: &Step) -> Binding {
    let options = Options { threshold, ..Options::default() };
    let binding = Binding::new(device, vec![Slot::new(ByteSize(bytes)); slots], options).expect("a binding");
    binding.begin(STREAM, first, 0).expect("a layout");
    binding
}

/// Prints the medians of what begin and end took beside driver calls and waits; gives the last reports.
fn own_times(name: &str, run: &mut impl FnMut() -> [(StepReport, Duration); 2]) -> [StepReport; 2] {
    let mut times = [Vec::new(), Vec::new()];
    let mut last = [StepReport::default(); 2];
    for _ in 0..200 {
        for (i, (report, took)) in run().into_iter().enumerate() {
            times[i].push(took.saturating_sub(report.driver_time).saturating_sub(report.wait_time));
            last[i] = report;
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    println!("{name}: own time, median: begin {:?}, end {:?}", times[0][100], times[1][100]);
    last
}

/// Times begin and end over `steps` in turn, and prints their driver calls.
fn measure(c: &mut Criterion, name: &str, binding: &Binding, steps: &[Step]) {
    let mut turn = 0;
    let mut run = || {
        turn = (turn + 1) % steps.len();
        let start = Instant::now();
        let (outcome, begun) = binding.begin(STREAM, &steps[turn], 1).expect("begin");
        assert_eq!(outcome, Outcome::Started);
        let middle = Instant::now();
        let ended = binding.end().expect("end");
        [(begun, middle - start), (ended, middle.elapsed())]
    };
    let mut told = false;
    let mut group = c.benchmark_group("begin_end");
    group.throughput(Throughput::Elements(steps[0].buffers.len() as u64));
    group.bench_function(name, |b| {
        // Here, so that only what was asked for on the command line runs.
        if !std::mem::replace(&mut told, true) {
            let [begun, ended] = own_times(name, &mut run);
            println!("{name}: {} changed; begin {:?}", begun.changed_slots, begun.calls);
            println!("{name}: end {:?}", ended.calls);
        }
        b.iter(&mut run);
    });
    group.finish();
}

fn begin_end(c: &mut Criterion) {
    let device = Device::open(Arc::new(Null::default()), Ordinal(0)).expect("a device");
    let first = step(&device, 1000);
    let moved = fifth_moved(&device, &first);
    let mapped = binding(&device, 1000, MIB2, Threshold::OFF, &first);
    measure(c, "1000 mapped, unchanged", &mapped, std::slice::from_ref(&first));
    let mapped = binding(&device, 1000, MIB2, Threshold::OFF, &first);
    measure(c, "1000 mapped, 200 changed", &mapped, &[first.clone(), moved.clone()]);
    let copied = binding(&device, 1000, 64, Threshold(64), &first);
    measure(c, "1000 copied, 200 changed", &copied, &[first, moved]);
    let many = step(&device, 100_000);
    let copied = binding(&device, 100_000, 64, Threshold(64), &many);
    measure(c, "100000 copied, unchanged", &copied, &[many]);
}

criterion_group!(benches, begin_end);
criterion_main!(benches);
