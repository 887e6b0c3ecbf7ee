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
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
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
    /// The most bytes that the program held.
    pub peak: u64,
}

pub fn recording(name: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/alloc/{name}.csv.gz"));
    let file = std::fs::File::open(path).expect("the recording is there");
    let (mut ops, mut sizes, mut streams) = (Vec::new(), Vec::new(), 1);
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        let line = line.expect("text");
        let fields: Vec<&str> = line.split(',').collect();
        let number = |i: usize| fields[i].trim().parse::<u64>().expect("a number");
        match fields[0] {
            "a" => {
                let (id, stream) = (number(1) as usize, number(3) as usize);
                sizes.resize(sizes.len().max(id + 1), 0);
                sizes[id] = number(2);
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
    Recording { ops, blocks: sizes.len(), streams, peak }
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

impl Recording {
    /// Runs it once, the streams `lag` operations behind the host (0: not); blocks that it leaves are freed at the
    /// end.
    pub fn run(&self, pool: &Pool, streams: &[Stream]) -> Result<(), gvmm::error::Error> {
        self.run_each(pool, streams, |_| {})
    }

    pub fn run_lagging(&self, world: &World, behind: u64) -> Result<(), gvmm::error::Error> {
        let (lag, mut now) = (Lag::new(behind), 0);
        let run = self.run_each(&world.pool, &world.streams, |streams| {
            lag.step(&world.host, streams, now);
            now += 1;
        });
        lag.open(u64::MAX);
        run
    }

    fn run_each(
        &self,
        pool: &Pool,
        streams: &[Stream],
        mut each: impl FnMut(&[Stream]),
    ) -> Result<(), gvmm::error::Error> {
        let mut at = vec![(DevicePtr::NULL, 0); self.blocks];
        for op in &self.ops {
            match *op {
                Op::Alloc { id, bytes, stream } => {
                    at[id] = (pool.alloc(ByteSize(bytes), streams[stream])?, stream);
                }
                Op::Free { id, later } => {
                    let (address, stream) = std::mem::take(&mut at[id]);
                    if later && streams.len() > 1 {
                        pool.record_stream(address, streams[(stream + 1) % streams.len()])?;
                    }
                    pool.free(address)?;
                }
                Op::Completed { .. } => continue,
            }
            each(streams);
        }
        at.into_iter().filter(|(at, _)| !at.is_null()).try_for_each(|(at, _)| pool.free(at))
    }
}
