//! Pools on the host driver, and recordings of what programs asked of their allocator.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use flate2::read::GzDecoder;
use gvmm::config::HostConfig;
use gvmm::driver::host::HostDriver;
use gvmm::driver::testing::{Fault, Live, Trace};
use gvmm::driver::{Driver, Ordinal, Stream};
use gvmm::pool::{Pool, Settings};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::Device;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

/// A pool and what stands below it.
pub struct World {
    pub host: Arc<HostDriver>,
    pub trace: Arc<Trace>,
    pub fault: Arc<Fault>,
    pub device: Arc<Device>,
    pub pool: Arc<Pool>,
    pub streams: Vec<Stream>,
}

impl World {
    pub fn new(streams: usize, memory: ByteSize, off: &[&str], settings: &Settings) -> Self {
        let caps_off = off.iter().map(|name| (*name).to_owned()).collect();
        let config = HostConfig { devices: 2, caps_off, memory: memory.get(), ..HostConfig::default() };
        let host = Arc::new(HostDriver::new(config, None).expect("a host driver"));
        let trace = Arc::new(Trace::new(Arc::<HostDriver>::clone(&host)));
        let fault = Arc::new(Fault::new(Arc::<Trace>::clone(&trace)));
        let device = Device::open(Arc::<Fault>::clone(&fault), Ordinal(0)).expect("a device");
        let pool = Pool::new(&device, settings).expect("a pool");
        let streams = (0..streams).map(|_| host.streams().create(Ordinal(0)).expect("a stream")).collect();
        Self { host, trace, fault, device, pool, streams }
    }

    /// Gives everything back and checks that nothing lives.
    pub fn end(self, what: &str) {
        drop(self.pool);
        self.device.drain().unwrap_or_else(|e| panic!("{what}: draining: {e}"));
        drop(self.device);
        assert_eq!(self.trace.live(), Live::default(), "{what}: what lives");
        for stream in self.streams {
            self.host.streams().destroy(stream).expect("ended");
        }
    }
}

/// One operation of a recording.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Alloc {
        id: usize,
        bytes: u64,
        stream: usize,
    },
    /// `later`: another stream still uses it.
    Free {
        id: usize,
        later: bool,
    },
    Completed {
        id: usize,
    },
}

/// A recording: its operations, blocks and streams.
pub struct Recording {
    pub ops: Vec<Op>,
    pub blocks: usize,
    pub streams: usize,
    /// The stream of each block.
    pub owners: Vec<usize>,
    /// The most bytes that the program held.
    pub peak: u64,
}

pub fn recording(name: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/alloc/{name}.csv.gz"));
    let file = std::fs::File::open(path).expect("the recording is there");
    let (mut ops, mut sizes, mut owners, mut streams) = (Vec::new(), Vec::new(), Vec::new(), 1);
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        let line = line.expect("text");
        let fields: Vec<&str> = line.split(',').collect();
        let number = |i: usize| fields[i].trim().parse::<u64>().expect("a number");
        match fields[0] {
            "a" => {
                let (id, stream) = (number(1) as usize, number(3) as usize);
                sizes.resize(sizes.len().max(id + 1), 0);
                owners.resize(sizes.len(), 0);
                (sizes[id], owners[id]) = (number(2), stream);
                streams = streams.max(stream + 1);
                ops.push(Op::Alloc { id, bytes: number(2), stream });
            }
            "f" => ops.push(Op::Free { id: number(1) as usize, later: true }),
            "c" => {
                let id = number(1) as usize;
                match ops.last_mut() {
                    Some(Op::Free { id: freed, later }) if *freed == id => *later = false,
                    _ => ops.push(Op::Completed { id }),
                }
            }
            _ => {}
        }
    }
    let (mut now, mut peak) = (0, 0);
    for op in &ops {
        match op {
            Op::Alloc { bytes, .. } => now += bytes,
            Op::Free { id, .. } => now -= sizes[*id],
            Op::Completed { .. } => {}
        }
        peak = peak.max(now);
    }
    Recording { ops, blocks: sizes.len(), streams, owners, peak }
}

/// Keeps streams some operations behind the host: each stands at gates that open when the host has gone on.
struct Lag {
    reached: Arc<(Mutex<u64>, Condvar)>,
    behind: u64,
}

impl Lag {
    fn new(behind: u64) -> Self {
        Self { reached: Arc::default(), behind }
    }

    fn step(&self, host: &HostDriver, streams: &[Stream], now: u64) {
        if now.is_multiple_of(256) {
            for stream in streams {
                let (reached, opens) = (Arc::clone(&self.reached), now + self.behind);
                let wait = move || {
                    let (mutex, change) = &*reached;
                    let guard = mutex.lock().expect("no thread has failed");
                    // A host that waits for the streams would wait for ever; after a while the gate gives way.
                    let waited = change.wait_timeout_while(guard, Duration::from_secs(20), |at| *at < opens);
                    assert!(!waited.expect("no thread has failed").1.timed_out(), "the host waited");
                };
                host.streams().enqueue(*stream, Arc::new(wait)).expect("enqueued");
            }
            self.open(now);
        }
    }

    fn open(&self, now: u64) {
        *self.reached.0.lock().expect("no thread has failed") = now;
        self.reached.1.notify_all();
    }
}

/// A stream that stands until it is opened.
pub fn gate(host: &HostDriver, stream: Stream) -> mpsc::Sender<()> {
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Mutex::new(receiver);
    let wait = move || {
        let _ = receiver.lock().map(|receiver| receiver.recv());
    };
    host.streams().enqueue(stream, Arc::new(wait)).expect("enqueued");
    sender
}

/// Opens a gate after a while, for a caller that waits meanwhile.
pub fn opens_soon(gate: mpsc::Sender<()>) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        drop(gate);
    });
}

impl Recording {
    /// Runs it once; blocks that it leaves are freed at the end. A stream that uses a freed block stands from the
    /// free until the recording says that it was done.
    pub fn run(&self, world: &World) -> Result<(), gvmm::error::Error> {
        let (mut gates, host, streams) = (HashMap::new(), &world.host, &world.streams);
        let finish = |stream: Stream| host.streams().synchronize(stream).expect("no stream has failed");
        let result = self.run_each(&world.pool, streams, |op| match *op {
            Op::Free { id, later: true } => {
                let other = streams[(self.owners[id] + 1) % streams.len()];
                gates.insert(id, (gate(host, other), other));
            }
            Op::Completed { id } => {
                let Some((opens, other)) = gates.remove(&id) else { return };
                drop(opens);
                if !gates.values().any(|(_, stream)| *stream == other) {
                    finish(other);
                }
            }
            _ => {}
        });
        gates.clear();
        streams.iter().for_each(|stream| finish(*stream));
        result
    }

    /// Runs it once, the streams `behind` operations behind the host.
    pub fn run_lagging(&self, world: &World, behind: u64) -> Result<(), gvmm::error::Error> {
        let (lag, mut now) = (Lag::new(behind), 0);
        let run = self.run_each(&world.pool, &world.streams, |_| {
            lag.step(&world.host, &world.streams, now);
            now += 1;
        });
        lag.open(u64::MAX);
        run
    }

    /// Runs it once and tells of each operation just before it is done.
    pub fn run_each(
        &self,
        pool: &Pool,
        streams: &[Stream],
        mut each: impl FnMut(&Op),
    ) -> Result<(), gvmm::error::Error> {
        let mut at = vec![DevicePtr::NULL; self.blocks];
        for op in &self.ops {
            each(op);
            match *op {
                Op::Alloc { id, bytes, stream } => at[id] = pool.alloc(ByteSize(bytes), streams[stream])?,
                Op::Free { id, later } => {
                    let address = std::mem::take(&mut at[id]);
                    if later && streams.len() > 1 {
                        pool.record_stream(address, streams[(self.owners[id] + 1) % streams.len()])?;
                    }
                    pool.free(address)?;
                }
                Op::Completed { .. } => {}
            }
        }
        at.into_iter().filter(|at| !at.is_null()).try_for_each(|at| pool.free(at))
    }
}
