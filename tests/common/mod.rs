//! A device with blocks whose contents can be told apart: on the host driver, or on the one that `GVMM_TEST_DRIVER`
//! names (see `drivers.rs`).

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub mod drivers;

use gvmm::config::HostConfig;
use gvmm::driver::testing::{Fault, Trace};
use gvmm::driver::{Access, CopySlice, CreateOptions, Driver, Ordinal, Stream};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Block, BlockId, Device, MappingInfo, MappingState, Owner, RemapEntry, Reservation};
use std::any::Any;
use std::sync::{Arc, Mutex, mpsc};

/// Words that the staging memory holds.
const STAGED: usize = 512;

/// A mapping as the books say, with its block's place in the world instead of its id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    pub info: MappingInfo,
}

impl Line {
    pub fn is_lost_form_of(&self, other: &Self) -> bool {
        let (a, b) = (&self.info, &other.info);
        a.state == MappingState::Lost
            && (a.offset, a.size, a.block, a.overridden) == (b.offset, b.size, b.block, b.overridden)
    }
}

/// What the books of all reservations say; retired mappings are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Books {
    pub mappings: Vec<Vec<Line>>,
    pub access: Vec<Vec<Access>>,
    pub kept: usize,
}

/// Everything a test plays with.
pub struct World {
    pub driver: Arc<dyn Driver>,
    pub trace: Arc<Trace>,
    pub fault: Arc<Fault>,
    pub device: Arc<Device>,
    pub stream: Stream,
    /// None once dropped.
    pub blocks: Vec<Option<Arc<Block>>>,
    pub ids: Vec<BlockId>,
    /// None once dropped.
    pub reservations: Vec<Option<Arc<Reservation>>>,
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    staging: DevicePtr,
}

/// What is written at both ends of block `i`.
fn pattern(i: usize) -> u64 {
    0x5eed_0000_0000_0000 | i as u64
}

impl World {
    /// A device without blocks and reservations.
    pub fn bare(off: &[&str]) -> Self {
        Self::with_memory(off, 0)
    }

    /// The same, with so many bytes of memory (0: the machine's).
    pub fn with_memory(off: &[&str], memory: u64) -> Self {
        let caps_off = off.iter().map(|name| (*name).to_owned()).collect();
        let config = HostConfig { devices: 2, caps_off, memory, ..HostConfig::default() };
        let driver = drivers::driver(config);
        let trace = Arc::new(Trace::new(driver.clone()));
        let fault = Arc::new(Fault::new(Arc::<Trace>::clone(&trace)));
        let device = Device::open(Arc::<Fault>::clone(&fault), Ordinal(0)).expect("a device");
        let stream = driver.streams().create(Ordinal(0)).expect("a stream");
        let staging = driver.allocate(Ordinal(0), ByteSize(8 * STAGED as u64)).expect("staging memory");
        let (blocks, ids, reservations, kept) = (Vec::new(), Vec::new(), Vec::new(), Mutex::default());
        Self { driver, trace, fault, device, stream, blocks, ids, reservations, kept, staging }
    }

    /// Blocks 0..=9 of one granule, 10 and 11 of two, all with contents; reservations 0 and 1 of 16 granules.
    pub fn new(off: &[&str]) -> Self {
        let mut world = Self::bare(off);
        for i in 0..12 {
            world.add_block(if i < 10 { 1 } else { 2 });
        }
        for _ in 0..2 {
            world.add_reservation(16);
        }
        world
    }

    pub fn add_reservation(&mut self, granules: u64) {
        let size = self.granules(granules);
        let reservation = self.device.reserve(size, None, &[], Owner::Caller).expect("addresses");
        self.reservations.push(Some(reservation));
    }

    pub fn add_block(&mut self, granules: u64) {
        let block =
            self.device.create_block(self.granules(granules), CreateOptions::default()).expect("memory");
        let view = self.device.reserve(block.size(), None, &[], Owner::Library).expect("addresses");
        let entry = RemapEntry {
            reservation: Arc::clone(&view),
            offset: ByteSize::ZERO,
            block: Some(Arc::clone(&block)),
        };
        self.device.remap(&[entry], &[]).expect("mapped");
        let start = view.range().start();
        self.ids.push(block.id());
        self.poke(&[
            (start, pattern(self.blocks.len())),
            (last_word(start, block.size()), pattern(self.blocks.len())),
        ]);
        self.blocks.push(Some(block));
    }

    /// The lines of a list whose devices there are: on one device, peers are left out.
    pub fn list(&self, lines: &[Access]) -> Vec<Access> {
        drivers::only_there(lines, self.driver.device_count())
    }

    pub fn granules(&self, count: u64) -> ByteSize {
        ByteSize(self.device.granularity().size().get() * count)
    }

    pub fn reservation(&self, i: usize) -> Arc<Reservation> {
        self.reservations[i].clone().expect("not dropped")
    }

    pub fn block(&self, i: usize) -> Arc<Block> {
        self.blocks[i].clone().expect("not dropped")
    }

    pub fn entry(&self, reservation: usize, granule: u64, block: Option<usize>) -> RemapEntry {
        RemapEntry {
            reservation: self.reservation(reservation),
            offset: self.granules(granule),
            block: block.map(|i| self.block(i)),
        }
    }

    /// Keeps something until the end.
    pub fn keep(&self, value: impl Any + Send) {
        self.kept.lock().expect("not poisoned").push(Box::new(value));
    }

    fn state(&self, reservation: usize, granule: u64) -> Option<MappingState> {
        let offset = self.granules(granule);
        self.reservation(reservation).mappings().iter().find(|m| m.offset == offset).map(|m| m.state)
    }

    pub fn is_live(&self, reservation: usize, granule: u64) -> bool {
        self.state(reservation, granule) == Some(MappingState::Live)
    }

    pub fn is_there(&self, reservation: usize, granule: u64) -> bool {
        self.state(reservation, granule).is_some_and(|state| state != MappingState::Retired)
    }

    /// How many mappings the driver should hold in the reservations.
    pub fn mapped(&self) -> i64 {
        let held = |r: &Arc<Reservation>| {
            r.mappings().iter().filter(|info| info.state != MappingState::Lost).count() as i64
        };
        self.reservations.iter().flatten().map(held).sum()
    }

    pub fn index_of(&self, info: &MappingInfo) -> usize {
        self.ids.iter().position(|id| *id == info.block).expect("one of ours")
    }

    pub fn books(&self) -> Books {
        let lines = |r: &Arc<Reservation>| {
            let shown = r.mappings().into_iter().filter(|m| m.state != MappingState::Retired);
            let line = |mut info: MappingInfo| {
                info.block.0 = self.index_of(&info) as u64;
                Line { info }
            };
            shown.map(line).collect()
        };
        Books {
            mappings: self.reservations.iter().flatten().map(lines).collect(),
            access: self.reservations.iter().flatten().map(|r| r.access().to_vec()).collect(),
            kept: self.kept.lock().expect("not poisoned").len(),
        }
    }

    /// Where the `i`-th word is staged.
    fn staged(&self, i: usize) -> DevicePtr {
        DevicePtr(self.staging.get() + 8 * i as u64)
    }

    /// Writes words by a copy on the stream.
    fn poke(&self, words: &[(DevicePtr, u64)]) {
        let bytes: Vec<u8> = words.iter().flat_map(|(_, word)| word.to_ne_bytes()).collect();
        self.driver.write(Ordinal(0), self.staging, &bytes).expect("written");
        let slice = |(i, (dst, _)): (usize, &(DevicePtr, u64))| CopySlice {
            dst: *dst,
            src: self.staged(i),
            bytes: 8,
        };
        self.copy(&words.iter().enumerate().map(slice).collect::<Vec<_>>());
    }

    /// Reads words by a copy on the stream.
    pub fn peek(&self, at: &[DevicePtr]) -> Vec<u64> {
        let mut words = Vec::new();
        for at in at.chunks(STAGED) {
            let slice =
                |(i, src): (usize, &DevicePtr)| CopySlice { dst: self.staged(i), src: *src, bytes: 8 };
            self.copy(&at.iter().enumerate().map(slice).collect::<Vec<_>>());
            let mut bytes = vec![0; 8 * at.len()];
            self.driver.read(Ordinal(0), self.staging, &mut bytes).expect("read");
            words.extend(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)));
        }
        words
    }

    fn copy(&self, slices: &[CopySlice]) {
        self.driver.copy(Ordinal(0), self.stream, slices).expect("enqueued");
        self.driver.streams().synchronize(self.stream).expect("copied");
    }

    /// Checks that each address that the books call live leads to its block, and that the table of addresses
    /// agrees.
    pub fn check_contents(&self, what: &str) {
        let (mut at, mut expected) = (Vec::new(), Vec::new());
        for reservation in self.reservations.iter().flatten() {
            for info in reservation.mappings() {
                let start = reservation.range().start().checked_add(info.offset).expect("inside");
                let found = self.device.find(start);
                if info.state != MappingState::Live {
                    assert_eq!(found, None, "{what}: {info:?}");
                    continue;
                }
                assert_eq!(
                    found.map(|f| (f.block, f.start, f.size)),
                    Some((info.block, start, info.size)),
                    "{what}"
                );
                if info.access.iter().any(|a| a.device == Ordinal(0)) {
                    at.extend([start, last_word(start, info.size)]);
                    expected.extend([pattern(self.index_of(&info)); 2]);
                }
            }
        }
        assert_eq!(self.peek(&at), expected, "{what}: contents");
    }

    /// Stops the stream until what it gives is dropped.
    pub fn gate(&self) -> mpsc::Sender<()> {
        let (sender, receiver) = mpsc::channel::<()>();
        let receiver = Mutex::new(receiver);
        let wait = move || {
            let _ = receiver.lock().map(|receiver| receiver.recv());
        };
        self.driver.streams().enqueue(self.stream, Arc::new(wait)).expect("enqueued");
        sender
    }

    /// True where device 0 can read there, tried on a stream of its own.
    pub fn can_read(&self, at: DevicePtr) -> bool {
        let streams = self.driver.streams();
        let stream = streams.create(Ordinal(0)).expect("a stream");
        let slice = CopySlice { dst: self.staging, src: at, bytes: 8 };
        let copied = self.driver.copy(Ordinal(0), stream, &[slice]).and_then(|_| streams.synchronize(stream));
        let _ = streams.destroy(stream);
        copied.is_ok()
    }

    /// Gives everything back and checks that nothing lives.
    pub fn end(mut self, what: &str) {
        self.blocks.clear();
        self.reservations.clear();
        self.kept = Mutex::default();
        self.device.drain().unwrap_or_else(|e| panic!("{what}: draining: {e}"));
        self.end_undrained(what);
    }

    /// The same, leaving it to the device to drain.
    pub fn end_undrained(self, what: &str) {
        drop((self.kept, self.blocks, self.reservations));
        drop(self.device);
        assert_eq!(self.trace.live(), gvmm::driver::testing::Live::default(), "{what}: what lives");
        self.driver.deallocate(Ordinal(0), self.staging).expect("given back");
        self.driver.streams().destroy(self.stream).expect("ended");
    }
}

fn last_word(start: DevicePtr, size: ByteSize) -> DevicePtr {
    DevicePtr(start.get() + size.get() - 8)
}
