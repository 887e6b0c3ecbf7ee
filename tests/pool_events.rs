//! The events that a pool keeps tell how it came to be what its snapshot shows: whoever plays them, forwards or back, as
//! PyTorch's memory viewer does, finds memory under each block and each block once.

mod pool_support;

use gvmm::driver::{Driver, Stream};
use gvmm::error::Kind;
use gvmm::pool::{BlockState, Event, EventKind, Pool, Settings, Snapshot};
use gvmm::units::{ByteSize, DevicePtr};
use pool_support::{World, gate};
use std::collections::{BTreeMap, BTreeSet};

/// Chunks are multiples of it.
const PAGE: u64 = 2 << 20;

/// What is there, by the events alone.
#[derive(Default)]
struct Played {
    pages: BTreeSet<u64>,
    /// Bytes asked for, and whether their free was requested.
    blocks: BTreeMap<u64, (u64, bool)>,
}

fn pages(start: u64, size: u64) -> impl Iterator<Item = u64> {
    start / PAGE..(start + size).div_ceil(PAGE)
}

impl Played {
    fn play(&mut self, event: &Event) {
        let (at, size) = (event.address.get(), event.size.get());
        match event.kind {
            EventKind::SegmentMap => {
                pages(at, size).for_each(|page| assert!(self.pages.insert(page), "mapped twice: {event:?}"));
            }
            EventKind::SegmentUnmap => {
                pages(at, size).for_each(|page| assert!(self.pages.remove(&page), "not there: {event:?}"));
            }
            EventKind::Alloc => {
                assert!(pages(at, size).all(|page| self.pages.contains(&page)), "no memory: {event:?}");
                let before = self.blocks.range(..at + size).next_back();
                assert!(before.is_none_or(|(start, (size, _))| start + size <= at), "two at once: {event:?}");
                self.blocks.insert(at, (size, false));
            }
            EventKind::FreeRequested => {
                assert_eq!(self.blocks.insert(at, (size, true)), Some((size, false)), "{event:?}");
            }
            EventKind::FreeCompleted => {
                assert_eq!(self.blocks.remove(&at).map(|(size, _)| size), Some(size), "{event:?}");
            }
            EventKind::OutOfMemory => {}
        }
    }

    fn check(&self, snapshot: &Snapshot) {
        let live = snapshot.segments.iter().flat_map(|s| pages(s.address.get(), s.size.get()));
        assert_eq!(live.collect::<BTreeSet<_>>(), self.pages);
        for segment in &snapshot.segments {
            let active = segment.blocks.iter().filter(|block| block.state != BlockState::Free);
            active.for_each(|block| assert_eq!(block.requested.get() > 1 << 20, segment.large, "{block:?}"));
        }
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let active = blocks.filter(|block| block.state != BlockState::Free);
        let active = active.map(|b| (b.address.get(), (b.requested.get(), b.state == BlockState::Pending)));
        assert_eq!(active.collect::<BTreeMap<_, _>>(), self.blocks);
    }
}

struct Game<'a> {
    pool: &'a Pool,
    streams: &'a [Stream],
    seed: u64,
    held: Vec<DevicePtr>,
}

impl Game<'_> {
    fn next(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn stream(&mut self) -> Stream {
        self.streams[self.next(self.streams.len() as u64) as usize]
    }

    /// With `trim` nothing may stand in the way of the streams.
    fn step(&mut self, trim: bool) {
        let large = self.next(3) == 0;
        let (size, stream) = (1 + self.next(if large { 24 << 20 } else { 60_000 }), self.stream());
        match self.pool.alloc(ByteSize(size), stream) {
            Ok(address) => self.held.push(address),
            Err(error) => assert_eq!(error.kind, Kind::OutOfDeviceMemory),
        }
        while self.held.len() > 12 || self.next(3) == 0 && !self.held.is_empty() {
            let (i, other) = (self.next(self.held.len() as u64) as usize, self.stream());
            let address = self.held.swap_remove(i);
            if self.next(3) == 0 {
                self.pool.record_stream(address, other).expect("in use");
            }
            self.pool.free(address).expect("in use");
        }
        if trim && self.next(40) == 0 {
            self.pool.trim().expect("nothing is captured");
        }
    }
}

#[test]
fn played_from_the_start_they_lead_to_the_snapshot() {
    for limit in [None, Some(ByteSize::mib(96))] {
        let settings = Settings { limit, history: 1 << 20, ..Settings::default() };
        let world = World::new(3, ByteSize::gib(1), &[], &settings);
        let mut game = Game { pool: &world.pool, streams: &world.streams, seed: 5, held: Vec::new() };
        let (mut played, mut seen) = (Played::default(), 0);
        for round in 0..20 {
            // A stream that stands keeps blocks pending.
            let open = (round % 3 == 0).then(|| gate(&world.host, world.streams[1]));
            (0..if open.is_some() { 8 } else { 60 }).for_each(|_| game.step(open.is_none()));
            let snapshot = world.pool.snapshot();
            snapshot.events[seen..].iter().for_each(|event| played.play(event));
            seen = snapshot.events.len();
            played.check(&snapshot);
        }
        let moved = world.pool.stats().lent_chunks;
        assert!(limit.is_none() || moved > 20, "{moved} chunks moved");
        game.held.drain(..).for_each(|address| world.pool.free(address).expect("in use"));
        for stream in &world.streams {
            world.host.streams().synchronize(*stream).expect("no stream has failed");
        }
        world.end("events");
    }
}
