//! Random operations on several streams against a plain model. Every block gets a word of its own at both ends, in
//! stream order, which is read back before the block is freed, in stream order too; streams lag behind.

mod pool_support;

use gvmm::driver::{CopySlice, Driver, Ordinal, Stream};
use gvmm::error::Kind;
use gvmm::pool::{Settings, Snapshot};
use gvmm::units::{ByteSize, DevicePtr};
use pool_support::World;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const STREAMS: usize = 4;
const WORDS: usize = 1 << 14;

struct Rng(u64);

impl Rng {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

struct Block {
    bytes: u64,
    stream: usize,
    word: usize,
}

struct Game {
    world: Arc<World>,
    /// No other game plays on the same pool.
    alone: bool,
    rng: Rng,
    blocks: BTreeMap<u64, Block>,
    /// Words that identify blocks, and where they come back to.
    words: DevicePtr,
    back: DevicePtr,
    next: usize,
    /// Which words came back, and whose.
    checks: Vec<usize>,
    short: u32,
}

fn at(start: DevicePtr, word: usize) -> DevicePtr {
    DevicePtr(start.get() + 8 * word as u64)
}

impl Game {
    fn new(seed: u64, off: &[&str], settings: &Settings) -> Self {
        Self::on(ByteSize::gib(2), seed, off, settings)
    }

    fn on(memory: ByteSize, seed: u64, off: &[&str], settings: &Settings) -> Self {
        Self::join(Arc::new(World::new(STREAMS, memory, off, settings)), true, seed)
    }

    fn join(world: Arc<World>, alone: bool, seed: u64) -> Self {
        let size = ByteSize(8 * 2 * WORDS as u64);
        let words = world.host.allocate(Ordinal(0), size).expect("memory");
        let back = world.host.allocate(Ordinal(0), size).expect("memory");
        let bytes: Vec<u8> = (0..2 * WORDS as u64).flat_map(|i| (0x5eed << 40 | i).to_le_bytes()).collect();
        world.host.write(Ordinal(0), words, &bytes).expect("written");
        let blocks = BTreeMap::new();
        Self { world, alone, rng: Rng(seed), blocks, words, back, next: 0, checks: Vec::new(), short: 0 }
    }

    fn stream(&self, i: usize) -> Stream {
        self.world.streams[i]
    }

    fn copy(&self, stream: usize, slices: &[CopySlice]) {
        self.world.host.copy(Ordinal(0), self.stream(stream), slices).expect("copied");
    }

    /// The two ends of a block.
    fn ends(address: u64, bytes: u64) -> [DevicePtr; 2] {
        [DevicePtr(address), DevicePtr(address + bytes - 8)]
    }

    fn alloc(&mut self) {
        let bytes = match self.rng.next(10) {
            0..5 => 16 + self.rng.next(40_000),
            5..8 => 16 + self.rng.next(1 << 20),
            _ => (1 << 20) + self.rng.next(12 << 20),
        };
        let stream = self.rng.next(STREAMS as u64) as usize;
        match self.world.pool.alloc(ByteSize(bytes), self.stream(stream)) {
            Ok(address) => self.enter(address.get(), bytes, stream),
            Err(e) => {
                assert_eq!(e.kind, Kind::OutOfDeviceMemory, "{e}");
                let shortage = self.world.pool.shortage().expect("a reason");
                assert!(!self.alone || shortage.asked == ByteSize(bytes));
                self.short += 1;
                (0..8).for_each(|_| self.free());
            }
        }
    }

    fn enter(&mut self, address: u64, bytes: u64, stream: usize) {
        assert!(address.is_multiple_of(512));
        let before = self.blocks.range(..=address).next_back().map_or(0, |(at, block)| at + block.bytes);
        let after = self.blocks.range(address..).next().map_or(u64::MAX, |(at, _)| *at);
        assert!(before <= address && address + bytes <= after, "blocks do not overlap");
        let (word, ends) = (self.next % WORDS, Self::ends(address, bytes));
        self.next += 1;
        let slice = |i: usize| CopySlice { dst: ends[i], src: at(self.words, 2 * word + i), bytes: 8 };
        self.copy(stream, &[slice(0), slice(1)]);
        self.blocks.insert(address, Block { bytes, stream, word });
    }

    fn pick(&mut self) -> Option<u64> {
        let n = self.blocks.len() as u64;
        let i = if n == 0 { return None } else { self.rng.next(n) };
        self.blocks.keys().nth(i as usize).copied()
    }

    /// Reads the words back on a stream.
    fn read(&mut self, address: u64, stream: usize) {
        let Some(Block { bytes, word, .. }) = self.blocks.get(&address) else { return };
        let (word, ends) = (*word, Self::ends(address, *bytes));
        let slice = |i: usize| CopySlice { dst: at(self.back, 2 * word + i), src: ends[i], bytes: 8 };
        self.copy(stream, &[slice(0), slice(1)]);
        self.checks.push(word);
    }

    fn free(&mut self) {
        let Some(address) = self.pick() else { return };
        let own = self.blocks[&address].stream;
        let other = self.rng.next(STREAMS as u64) as usize;
        if other != own && self.rng.next(4) == 0 {
            // The other stream reads it last, and what the own one wrote.
            self.world.device.mark(self.stream(own)).wait_on(self.stream(other)).expect("enqueued");
            self.read(address, other);
            let inside = DevicePtr(address + self.blocks[&address].bytes / 2);
            self.world.pool.record_stream(inside, self.stream(other)).expect("in use");
        } else {
            self.read(address, own);
        }
        self.blocks.remove(&address);
        self.world.pool.free(DevicePtr(address)).expect("in use");
        if self.alone {
            let again = self.world.pool.free(DevicePtr(address)).map_err(|e| e.kind);
            assert_eq!(again, Err(Kind::InvalidArgument), "it was freed");
        }
    }

    fn lag(&mut self) {
        let stream = self.rng.next(STREAMS as u64) as usize;
        let pause = Duration::from_micros(self.rng.next(300));
        let wait = Arc::new(move || std::thread::sleep(pause));
        self.world.host.streams().enqueue(self.stream(stream), wait).expect("enqueued");
    }

    fn step(&mut self) {
        match self.rng.next(100) {
            0..50 => self.alloc(),
            50..92 => self.free(),
            92..97 => self.lag(),
            97 => self.world.pool.poll(),
            98 if self.rng.next(8) == 0 => {
                self.world.pool.trim().expect("nothing is captured");
            }
            _ => self.check(),
        }
        if self.checks.len() >= WORDS / 2 {
            self.verify();
        }
    }

    fn check(&self) {
        let (pool, stats) = (&self.world.pool, self.world.pool.stats());
        let requested: u64 = self.blocks.values().map(|block| block.bytes).sum();
        assert!(stats.bytes.requested.current >= requested);
        assert!(!self.alone || stats.bytes.requested.current == requested);
        if !self.alone {
            // What others do meanwhile shows between two figures.
            return self.check_blocks();
        }
        assert!(stats.bytes.allocated.current <= stats.bytes.active.current);
        assert!(stats.bytes.active.current <= stats.bytes.reserved.current);
        assert!(stats.bytes.reserved.current <= stats.limit.get());
        self.check_blocks();
        self.check_snapshot(&pool.snapshot());
    }

    fn check_blocks(&self) {
        for (address, block) in self.blocks.iter().take(8) {
            let place = self.world.pool.find(DevicePtr(address + block.bytes - 1)).expect("in use");
            assert_eq!((place.address, place.stream), (DevicePtr(*address), self.stream(block.stream)));
        }
    }

    fn check_snapshot(&self, snapshot: &Snapshot) {
        let (mut live, mut end) = (0, 0);
        for segment in &snapshot.segments {
            assert!(segment.address.get() >= end, "segments lie side by side");
            end = segment.address.get() + segment.size.get();
            live += segment.size.get();
            let mut at = segment.address.get();
            for block in &segment.blocks {
                assert_eq!(block.address.get(), at, "blocks fill their segment");
                at += block.size.get();
                let known = self.blocks.get(&block.address.get()).map_or(0, |known| known.bytes);
                if block.state == gvmm::pool::BlockState::Allocated {
                    assert_eq!(block.requested.get(), known);
                }
            }
            assert_eq!(at, end);
        }
        let stats = self.world.pool.stats();
        assert_eq!(live + stats.spare.get(), stats.bytes.reserved.current, "every chunk is somewhere");
    }

    /// Waits for all streams and compares what came back.
    fn verify(&mut self) {
        for stream in &self.world.streams {
            self.world.host.streams().synchronize(*stream).expect("no stream has failed");
        }
        let mut bytes = vec![0; 8 * 2 * WORDS];
        self.world.host.read(Ordinal(0), self.back, &mut bytes).expect("read");
        for word in std::mem::take(&mut self.checks) {
            for i in 2 * word..2 * word + 2 {
                let got: [u8; 8] = bytes[8 * i..8 * i + 8].try_into().expect("eight");
                assert_eq!(u64::from_le_bytes(got), 0x5eed << 40 | i as u64, "a canary");
            }
        }
    }

    /// Plays, frees everything and gives how often memory was short.
    fn act(mut self, steps: u32) -> u32 {
        (0..steps).for_each(|_| self.step());
        while !self.blocks.is_empty() {
            self.free();
        }
        self.verify();
        self.check();
        self.world.host.deallocate(Ordinal(0), self.words).expect("given back");
        self.world.host.deallocate(Ordinal(0), self.back).expect("given back");
        self.short
    }

    fn play(self, steps: u32, what: &str) -> (u32, gvmm::pool::Stats) {
        let world = Arc::clone(&self.world);
        let short = self.act(steps);
        (short, end(world, what))
    }
}

/// Nothing is in use: everything can be given back.
fn end(world: Arc<World>, what: &str) -> gvmm::pool::Stats {
    world.pool.poll();
    let stats = world.pool.stats();
    assert_eq!((stats.bytes.requested.current, stats.bytes.active.current), (0, 0), "{what}");
    let trimmed = world.pool.trim().expect("nothing is captured");
    assert_eq!(trimmed.get(), stats.bytes.reserved.current, "{what}: nothing is in use, so all goes");
    assert_eq!(world.pool.stats().bytes.reserved.current, 0, "{what}");
    Arc::into_inner(world).expect("all games are over").end(what);
    stats
}

#[test]
fn without_a_limit() {
    for seed in 1..4 {
        let (short, stats) = Game::new(seed, &[], &Settings::default()).play(2500, "no limit");
        assert_eq!(short, 0);
        assert!(stats.allocations() > 1000);
    }
}

#[test]
fn within_a_limit_chunks_are_lent_between_streams() {
    let limit = Some(ByteSize::mib(160));
    for seed in 1..4 {
        let settings = Settings { limit, ..Settings::default() };
        let (_, stats) = Game::new(seed, &[], &settings).play(2500, "limit");
        assert!(stats.lent_chunks > 0 && stats.stream_waits > 0, "{stats:?}");
        let (two, sixteen) = (ByteSize::mib(2), ByteSize::mib(16));
        let settings = Settings { small_chunk: two, large_chunk: sixteen, limit, ..Settings::default() };
        let (_, stats) = Game::new(seed, &[], &settings).play(2500, "two sizes of chunks");
        assert!(stats.lent_chunks > 0, "{stats:?}");
    }
}

#[test]
fn without_aliasing_old_views_go_first() {
    let settings = Settings { limit: Some(ByteSize::mib(160)), ..Settings::default() };
    let (_, stats) = Game::new(5, &["aliasing"], &settings).play(2500, "no aliasing");
    assert!(stats.lent_chunks > 0, "{stats:?}");
}

#[test]
fn the_device_s_own_memory_is_a_limit_too() {
    let (_, stats) = Game::on(ByteSize::mib(160), 6, &[], &Settings::default()).play(2500, "full device");
    assert!(stats.lent_chunks > 0, "{stats:?}");
}

#[test]
fn short_segments_are_used_again_once_their_old_views_are_gone() {
    let settings =
        Settings { limit: Some(ByteSize::mib(128)), segment: ByteSize::mib(160), ..Settings::default() };
    let (_, stats) = Game::new(7, &[], &settings).play(2500, "short segments");
    assert!(stats.lent_chunks > 0, "{stats:?}");
}

#[test]
fn eight_threads_play_on_one_pool_and_its_streams() {
    for limit in [None, Some(ByteSize::mib(640))] {
        let settings = Settings { limit, ..Settings::default() };
        let world = Arc::new(World::new(STREAMS, ByteSize::gib(4), &[], &settings));
        std::thread::scope(|scope| {
            for seed in 11..19 {
                let game = Game::join(Arc::clone(&world), false, seed);
                scope.spawn(move || game.act(1200));
            }
        });
        let stats = end(world, "eight threads");
        assert!(stats.allocations() > 8 * 300 && (limit.is_none() || stats.lent_chunks > 0), "{stats:?}");
    }
}
