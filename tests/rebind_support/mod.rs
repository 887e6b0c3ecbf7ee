//! What the tests of bindings share: a host device with its calls traced and failed on demand, buffers, and
//! touching device memory without unsafe code.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of what all share")]

pub mod planned;
pub mod recording;

use gvmm::config::HostConfig;
use gvmm::driver::host::HostDriver;
use gvmm::driver::testing::{Fault, Trace};
use gvmm::driver::{Access, CreateOptions, Driver, Ordinal, Stream};
use gvmm::error::Result;
use gvmm::rebind::{Action, Binding, Buffer, Buffers, Options, Outcome, Slot, StepReport, Threshold};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Allocation, Block, Device, Owner};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, LazyLock, Mutex};

/// A host device of its own.
pub struct World {
    pub fault: Arc<Fault>,
    pub trace: Arc<Trace>,
    pub device: Arc<Device>,
    pub stream: Stream,
}

impl World {
    pub fn new() -> Self {
        Self::with(HostConfig { memory: 1 << 40, ..HostConfig::default() })
    }

    /// One without the capabilities named.
    pub fn without(names: &[&str]) -> Self {
        let caps_off = names.iter().map(ToString::to_string).collect();
        Self::with(HostConfig { memory: 1 << 40, caps_off, ..HostConfig::default() })
    }

    pub fn with(config: HostConfig) -> Self {
        let host = Arc::new(HostDriver::new(config, None).expect("a host driver"));
        let trace = Arc::new(Trace::new(host));
        let fault = Arc::new(Fault::new(Arc::clone(&trace) as Arc<dyn Driver>));
        let device = Device::open(Arc::clone(&fault) as Arc<dyn Driver>, Ordinal(0)).expect("a device");
        let stream = fault.streams().create(Ordinal(0)).expect("a stream");
        Self { fault, trace, device, stream }
    }

    pub fn another_stream(&self) -> Stream {
        self.fault.streams().create(Ordinal(0)).expect("a stream")
    }

    pub fn synchronize(&self) {
        self.synchronize_stream(self.stream);
    }

    pub fn synchronize_stream(&self, stream: Stream) {
        self.fault.streams().synchronize(stream).expect("the stream runs");
    }

    pub fn enqueue(&self, stream: Stream, function: impl Fn() + Send + Sync + 'static) {
        self.fault.streams().enqueue(stream, Arc::new(function)).expect("a host function");
    }

    /// Memory with an address of its own.
    pub fn home(&self, bytes: u64) -> Home {
        let memory = self.device.allocate(ByteSize(bytes), &[], Owner::Caller).expect("memory");
        Home { memory, bytes: ByteSize(bytes) }
    }

    pub fn binding(&self, slots: Vec<Slot>, threshold: Threshold) -> Binding {
        let options = Options { threshold, ..Options::default() };
        Binding::new(&self.device, slots, options).expect("a binding")
    }

    pub fn binding_for(&self, slots: Vec<Slot>, threshold: Threshold, access: Vec<Access>) -> Binding {
        let options = Options { threshold, access, free: None };
        Binding::new(&self.device, slots, options).expect("a binding")
    }
}

/// A block with an address of its own, or plain device memory.
#[derive(Clone)]
pub struct Home {
    pub memory: Arc<Allocation>,
    pub bytes: ByteSize,
}

impl Home {
    pub fn address(&self) -> DevicePtr {
        self.memory.address()
    }

    /// The buffer that it is, with its block where it has one.
    pub fn buffer(&self) -> (Buffer, Option<Arc<Block>>) {
        let block = self.memory.block().cloned();
        let id = block.as_ref().map_or_else(|| self.address().get(), |block| block.id().0);
        (Buffer { address: self.address(), bytes: self.bytes, id, has_block: block.is_some() }, block)
    }
}

/// The buffers of a step.
#[derive(Clone, Default)]
pub struct Given {
    pub buffers: Vec<(Buffer, Option<Arc<Block>>)>,
    pub epoch: u64,
}

impl Given {
    pub fn of(homes: &[&Home]) -> Self {
        Self { buffers: homes.iter().map(|home| home.buffer()).collect(), epoch: 0 }
    }

    pub fn memory(buffers: &[Buffer]) -> Self {
        Self { buffers: buffers.iter().map(|buffer| (*buffer, None)).collect(), epoch: 0 }
    }
}

impl Buffers for Given {
    fn len(&self) -> usize {
        self.buffers.len()
    }

    fn get(&self, i: usize) -> Buffer {
        self.buffers[i].0
    }

    fn block(&self, i: usize) -> Result<Arc<Block>> {
        Ok(Arc::clone(self.buffers[i].1.as_ref().expect("asked for blocks only where there are some")))
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Begins until a step starts, recording again as told; gives the report of the begin that started.
pub fn begin(binding: &Binding, stream: Stream, given: &impl Buffers) -> Result<StepReport> {
    let mut generation = binding.info()?.generation;
    loop {
        let (outcome, report) = binding.begin(stream, given, generation)?;
        if outcome == Outcome::Started {
            return Ok(report);
        }
        generation = report.generation;
    }
}

pub fn addresses(binding: &Binding, count: usize) -> Vec<DevicePtr> {
    let mut addresses = vec![DevicePtr::NULL; count];
    binding.addresses(&mut addresses).expect("a layout");
    addresses
}

static MEMORY: LazyLock<Mutex<File>> = LazyLock::new(|| {
    let file = OpenOptions::new().read(true).write(true).open("/proc/self/mem");
    Mutex::new(file.expect("the process's memory as a file"))
});

/// Reads device memory, which is the process's.
pub fn read(address: DevicePtr, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    let memory = MEMORY.lock().expect("no test panics while it reads");
    memory.read_exact_at(&mut data, address.get()).expect("readable memory");
    data
}

/// Writes device memory.
pub fn write(address: DevicePtr, data: &[u8]) {
    let memory = MEMORY.lock().expect("no test panics while it writes");
    memory.write_all_at(data, address.get()).expect("writable memory");
}

/// Bytes that tell one writing from another.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// How much of each end of a buffer is written and compared.
const EDGE: u64 = 64;

/// What is written and compared of `bytes` at `address`: both ends, or all where they would meet.
fn parts(address: DevicePtr, bytes: ByteSize, seed: u64) -> Vec<(DevicePtr, Vec<u8>)> {
    if bytes.get() <= 2 * EDGE {
        return vec![(address, pattern(seed, bytes.get() as usize))];
    }
    let data = pattern(seed, 2 * EDGE as usize);
    let tail = DevicePtr(address.get() + bytes.get() - EDGE);
    vec![(address, data[..EDGE as usize].to_vec()), (tail, data[EDGE as usize..].to_vec())]
}

/// Writes both ends of `bytes` at `address`.
pub fn fill(address: DevicePtr, bytes: ByteSize, seed: u64) {
    parts(address, bytes, seed).iter().for_each(|(address, data)| write(*address, data));
}

/// True where [`fill`] with the same seed was the last to write there.
pub fn holds(address: DevicePtr, bytes: ByteSize, seed: u64) -> bool {
    parts(address, bytes, seed).iter().all(|(address, data)| read(*address, data.len()) == *data)
}

/// Holds a stream until it is opened; opens when dropped, so that a failing test ends.
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn close(world: &World, stream: Stream) -> Self {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let inside = Arc::clone(&gate);
        world.enqueue(stream, move || {
            let mut open = inside.0.lock().expect("the gate");
            while !*open {
                open = inside.1.wait(open).expect("the gate");
            }
        });
        Self(gate)
    }

    pub fn open(&self) {
        *self.0.0.lock().expect("the gate") = true;
        self.0.1.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// A block that is mapped nowhere.
pub fn block(world: &World) -> Arc<Block> {
    world.device.create_block(ByteSize(2 << 20), CreateOptions::default()).expect("a block")
}

/// How each slot is served.
pub fn actions(binding: &Binding, count: usize) -> Vec<Action> {
    let mut actions = vec![Action::default(); count];
    binding.actions(&mut actions).expect("a layout");
    actions
}

/// A step whose commands fill every written slot with `seed` at its recorded address; waits for it.
pub fn step(world: &World, binding: &Binding, given: &Given, slots: &[Slot], seed: u64) {
    begin(binding, world.stream, given).expect("begin");
    write_all(world, binding, slots, seed);
    binding.end().expect("end");
    world.synchronize();
}

pub fn write_all(world: &World, binding: &Binding, slots: &[Slot], seed: u64) {
    let (baked, slots) = (addresses(binding, slots.len()), slots.to_vec());
    world.enqueue(world.stream, move || {
        for (i, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.direction.writes()) {
            fill(baked[i], slot.bytes, seed + i as u64);
        }
    });
}
