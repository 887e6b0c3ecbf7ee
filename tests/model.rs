//! Random operations against a plain model, with the invariants walked and the memory read after each; and eight
//! threads on one device.

mod common;

use common::World;
use gvmm::driver::{Access, AccessMode, Ordinal};
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Device, MappingState, Owner, RemapEntry, RetireEntry};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Granules of a reservation.
const ROOM: u64 = 8;

/// What a test may do. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Op {
    Reserve,
    Destroy(usize),
    CreateBlock(u64),
    DropBlock(usize),
    Map(usize, u64, usize),
    Unmap(usize, u64, u64),
    Remap(Vec<(usize, u64, Option<usize>)>),
    Retire(Vec<(usize, u64)>),
    SetAccess(usize, u64, u64, usize),
    Collect,
    Drain,
}

fn op() -> impl Strategy<Value = Op> {
    let at = 0..ROOM + 1;
    let place = (any::<prop::sample::Index>(), at.clone(), prop::option::weighted(0.75, 0..100_usize));
    let place = place.prop_map(|(r, at, block)| (r.index(1000), at, block));
    prop_oneof![
        1 => Just(Op::Reserve),
        1 => (0..100_usize).prop_map(Op::Destroy),
        2 => (1..4_u64).prop_map(Op::CreateBlock),
        1 => (0..100_usize).prop_map(Op::DropBlock),
        4 => (0..100_usize, at.clone(), 0..100_usize).prop_map(|(r, at, b)| Op::Map(r, at, b)),
        2 => (0..100_usize, at.clone(), 1..5_u64).prop_map(|(r, at, n)| Op::Unmap(r, at, n)),
        10 => prop::collection::vec(place, 1..7).prop_map(Op::Remap),
        4 => prop::collection::vec((0..100_usize, at.clone()), 1..3).prop_map(Op::Retire),
        3 => (0..100_usize, at, prop_oneof![Just(ROOM), 1..4_u64], 0..4_usize)
            .prop_map(|(r, at, n, list)| Op::SetAccess(r, if n == ROOM { 0 } else { at }, n, list)),
        1 => Just(Op::Collect),
        1 => Just(Op::Drain),
    ]
}

fn lists() -> [Vec<Access>; 4] {
    let own = Access { device: Ordinal(0), mode: AccessMode::READ_WRITE };
    let peer = Access { device: Ordinal(1), mode: AccessMode::READ };
    let read = Access { device: Ordinal(0), mode: AccessMode::READ };
    [vec![own], vec![own, peer], vec![read], vec![peer]]
}

#[derive(Clone, Debug, PartialEq)]
struct Mapped {
    block: usize,
    size: u64,
    /// What the driver may hold: usually one answer; two where a retired mapping may or may not have come back.
    access: Vec<Vec<Access>>,
    custom: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Range {
    list: Vec<Access>,
    maps: BTreeMap<u64, Mapped>,
}

/// The plain model.
#[derive(Clone, Debug, Default)]
struct Model {
    ranges: BTreeMap<usize, Range>,
    sizes: Vec<u64>,
    ranged: bool,
    aliasing: bool,
}

impl Model {
    fn overlaps(&self, r: usize, at: u64, size: u64) -> bool {
        self.ranges[&r].maps.iter().any(|(o, m)| *o < at + size && at < *o + m.size)
    }

    fn places(&self, block: usize) -> usize {
        self.ranges.values().flat_map(|r| r.maps.values()).filter(|m| m.block == block).count()
    }

    fn map(&mut self, r: usize, at: u64, block: usize) -> std::result::Result<(), Kind> {
        let size = self.sizes[block];
        if at + size > ROOM {
            return Err(Kind::OutOfRange);
        }
        if self.overlaps(r, at, size) {
            return Err(Kind::AlreadyMapped);
        }
        if !self.aliasing && self.places(block) > 0 {
            return Err(Kind::Unsupported);
        }
        let range = self.ranges.get_mut(&r).expect("there");
        let access = vec![Vec::new(), range.list.clone()];
        range.maps.insert(at, Mapped { block, size, access, custom: false });
        Ok(())
    }

    /// Where only the whole can be set, what was set on the way of a failed call cannot be taken from one mapping.
    fn may_have_been_given(&mut self) {
        for range in self.ranges.values_mut().filter(|_| !self.ranged) {
            range.maps.values_mut().for_each(|m| m.access.push(range.list.clone()));
        }
    }

    /// Whether a range is made up of whole mappings.
    fn exact(&self, r: usize, at: u64, size: u64) -> std::result::Result<(), Kind> {
        if at + size > ROOM {
            return Err(Kind::OutOfRange);
        }
        let mut next = at;
        for (o, m) in &self.ranges[&r].maps {
            if *o + m.size <= at || *o >= at + size {
                continue;
            }
            if *o < at || *o + m.size > at + size {
                return Err(Kind::PartialMapping);
            }
            if *o != next {
                return Err(Kind::NotMapped);
            }
            next = *o + m.size;
        }
        if next == at + size { Ok(()) } else { Err(Kind::NotMapped) }
    }

    fn remap(&mut self, places: &[(usize, u64, Option<usize>)]) -> std::result::Result<(u64, u64), Kind> {
        let mut names = BTreeSet::new();
        if places.iter().any(|(r, at, _)| !names.insert((*r, *at))) {
            return Err(Kind::InvalidArgument);
        }
        if places.iter().any(|(_, at, b)| at + b.map_or(1, |b| self.sizes[b]) > ROOM) {
            return Err(Kind::OutOfRange);
        }
        let mut next = self.clone();
        let (mut unmapped, mut fresh, mut changed) = (0, Vec::new(), BTreeSet::new());
        for (r, at, block) in places {
            let range = next.ranges.get_mut(r).expect("there");
            let same = range.maps.get(at).is_some_and(|m| Some(m.block) == *block);
            if !same && range.maps.remove(at).is_some() {
                unmapped += 1;
            }
        }
        for (r, at, block) in places {
            match block {
                None => {
                    let inside = |(o, m): (&u64, &Mapped)| *o < *at && *at < *o + m.size;
                    if self.ranges[r].maps.iter().any(inside) {
                        return Err(Kind::PartialMapping);
                    }
                }
                Some(block) => {
                    let range = next.ranges.get_mut(r).expect("there");
                    if let Some(there) = range.maps.get_mut(at).filter(|m| m.block == *block) {
                        if !there.custom && there.access != [range.list.clone()] {
                            there.access = vec![range.list.clone()];
                            changed.insert(*r);
                        }
                    } else {
                        fresh.push((*r, *at, *block));
                    }
                }
            }
        }
        for (r, at, block) in &fresh {
            let size = next.sizes[*block];
            if next.overlaps(*r, *at, size) {
                return Err(Kind::AlreadyMapped);
            }
            let range = next.ranges.get_mut(r).expect("there");
            let access = vec![range.list.clone()];
            range.maps.insert(*at, Mapped { block: *block, size, access, custom: false });
            changed.insert(*r);
        }
        if !next.aliasing && fresh.iter().any(|(_, _, block)| next.places(*block) > 1) {
            return Err(Kind::Unsupported);
        }
        if !next.ranged {
            // The whole was set, or a retired mapping came back and nothing was.
            for r in changed {
                let range = next.ranges.get_mut(&r).expect("there");
                for m in range.maps.values_mut().filter(|m| !m.access.contains(&range.list)) {
                    m.access.push(range.list.clone());
                }
            }
        }
        *self = next;
        Ok((unmapped, fresh.len() as u64))
    }

    fn set_access(&mut self, r: usize, at: u64, size: u64, list: &[Access]) -> std::result::Result<(), Kind> {
        let whole = at == 0 && size == ROOM;
        if at + size > ROOM {
            return Err(Kind::OutOfRange);
        }
        if !whole && !self.ranged {
            return Err(Kind::Unsupported);
        }
        if !whole {
            self.exact(r, at, size)?;
        }
        let range = self.ranges.get_mut(&r).expect("there");
        for (_, m) in range.maps.range_mut(at..at + size) {
            (m.access, m.custom) = (vec![list.to_vec()], !whole);
        }
        if whole {
            range.list = list.to_vec();
        }
        Ok(())
    }
}

struct Game {
    world: World,
    model: Model,
}

impl Game {
    fn new(off: &[&str]) -> Self {
        let mut world = World::bare(off);
        let mut model = Model {
            ranged: !off.contains(&"range_access"),
            aliasing: !off.contains(&"aliasing"),
            ..Model::default()
        };
        for i in 0..2 {
            world.add_reservation(ROOM);
            model.ranges.insert(i, Range { list: lists()[0].clone(), maps: BTreeMap::new() });
        }
        for size in [1, 1, 1, 2, 2, 3] {
            world.add_block(size);
            model.sizes.push(size);
        }
        Self { world, model }
    }

    fn pick_range(&self, i: usize) -> Option<usize> {
        self.model.ranges.keys().copied().nth(i % self.model.ranges.len().max(1))
    }

    fn pick_block(&self, i: usize) -> Option<usize> {
        let there: Vec<usize> =
            (0..self.world.blocks.len()).filter(|b| self.world.blocks[*b].is_some()).collect();
        there.get(i % there.len().max(1)).copied()
    }

    /// Plays one move, with its n-th driver call failing or none, and checks the outcome.
    fn play(&mut self, op: &Op, fail: Option<u64>) {
        let before = self.model.clone();
        let what = format!("{op:?} failing {fail:?}");
        if let Some(nth) = fail {
            self.world.fault.fail(
                None,
                nth,
                1,
                Error::new(Kind::DriverError, Operation::None, "made to fail"),
            );
        }
        let outcome = self.act(op, fail.is_some());
        self.world.fault.clear();
        match outcome {
            None => {}
            Some((Err(error), _)) if error.kind == Kind::DriverError && fail.is_some() => {
                self.model = before;
                self.model.may_have_been_given();
            }
            Some((Ok(()), Ok(()))) => {}
            Some((Err(error), Err(kind))) if error.kind == kind => self.model = before,
            Some((real, model)) => panic!("{what}: {real:?}, but the model says {model:?}"),
        }
        self.check(&what);
    }

    fn act(&mut self, op: &Op, failing: bool) -> Option<(Result<()>, std::result::Result<(), Kind>)> {
        let (world, model) = (&mut self.world, &mut self.model);
        match op {
            Op::Reserve | Op::CreateBlock(_) | Op::Destroy(_) if failing => None,
            Op::Reserve => {
                if model.ranges.len() < 4 {
                    model.ranges.insert(
                        world.reservations.len(),
                        Range { list: lists()[0].clone(), maps: BTreeMap::new() },
                    );
                    world.add_reservation(ROOM);
                }
                None
            }
            Op::CreateBlock(size) => {
                if model.sizes.len() < 16 {
                    world.add_block(*size);
                    model.sizes.push(*size);
                }
                None
            }
            Op::Destroy(r) => {
                let r = self.pick_range(*r)?;
                // What is retired there keeps it until it is collected.
                self.world.device.drain().expect("drained");
                self.model.ranges.remove(&r);
                self.world.reservations[r] = None;
                None
            }
            Op::DropBlock(b) => {
                let b = self.pick_block(*b)?;
                self.world.blocks[b] = None;
                None
            }
            Op::Collect => {
                world.device.collect();
                None
            }
            Op::Drain => Some((world.device.drain(), Ok(()))),
            _ => self.act_on_maps(op),
        }
    }

    fn act_on_maps(&mut self, op: &Op) -> Option<(Result<()>, std::result::Result<(), Kind>)> {
        match op {
            Op::Map(r, at, b) => {
                let (r, b) = (self.pick_range(*r)?, self.pick_block(*b)?);
                let (world, model) = (&self.world, &mut self.model);
                let result = world.reservation(r).map(world.granules(*at), &world.block(b));
                Some((result, model.map(r, *at, b)))
            }
            Op::Unmap(r, at, size) => {
                let r = self.pick_range(*r)?;
                let (world, model) = (&self.world, &mut self.model);
                let result = world.reservation(r).unmap(world.granules(*at), world.granules(*size));
                let exact = model.exact(r, *at, *size);
                if exact.is_ok() {
                    model.ranges.get_mut(&r)?.maps.retain(|o, _| *o < *at || *o >= *at + *size);
                }
                Some((result, exact))
            }
            Op::SetAccess(r, at, size, list) => {
                let r = self.pick_range(*r)?;
                let (world, model, list) = (&self.world, &mut self.model, &lists()[*list]);
                let result =
                    world.reservation(r).set_access(world.granules(*at), world.granules(*size), list);
                Some((result, model.set_access(r, *at, *size, list)))
            }
            Op::Remap(places) => {
                let pick = |(r, at, b): &(usize, u64, Option<usize>)| {
                    Some((self.pick_range(*r)?, *at, b.and_then(|b| self.pick_block(b))))
                };
                let places: Vec<_> = places.iter().filter_map(pick).collect();
                self.remap(&places)
            }
            Op::Retire(places) => {
                let mut named = BTreeSet::new();
                let pick = |(r, at): &(usize, u64)| Some((self.pick_range(*r)?, *at));
                let places: Vec<_> = places.iter().filter_map(pick).filter(|p| named.insert(*p)).collect();
                let (world, model) = (&self.world, &mut self.model);
                let entry = |&(r, at): &(usize, u64)| RetireEntry {
                    reservation: world.reservation(r),
                    offset: world.granules(at),
                };
                let entries: Vec<_> = places.iter().map(entry).collect();
                let result = world.device.retire(&entries, &[world.stream]);
                let missing = |(r, at): &(usize, u64)| !model.ranges[r].maps.contains_key(at);
                if places.iter().any(missing) {
                    return Some((result, Err(Kind::NotMapped)));
                }
                for (r, at) in &places {
                    model.ranges.get_mut(r)?.maps.remove(at);
                }
                Some((result, Ok(())))
            }
            _ => None,
        }
    }

    fn remap(
        &mut self,
        places: &[(usize, u64, Option<usize>)],
    ) -> Option<(Result<()>, std::result::Result<(), Kind>)> {
        let (world, model) = (&self.world, &mut self.model);
        let retired =
            |r: &Arc<gvmm::vm::Reservation>| r.mappings().iter().any(|m| m.state == MappingState::Retired);
        let any_retired = world.reservations.iter().flatten().any(retired);
        let entries: Vec<RemapEntry> = places.iter().map(|&(r, at, b)| world.entry(r, at, b)).collect();
        let result = world.device.remap(&entries, &[world.stream]);
        let expected = model.remap(places);
        if let (Ok(report), Ok((unmapped, mapped)), false) = (&result, &expected, any_retired) {
            assert_eq!((report.calls.unmap, report.calls.map), (*unmapped, *mapped), "{places:?}");
            assert!(report.calls.set_access <= places.len() as u64, "{places:?}");
            assert_eq!(report.waited.is_zero(), *unmapped == 0, "waits for what is unmapped only");
        }
        Some((result.map(|_| ()), expected.map(|_| ())))
    }

    /// Walks the books.
    fn check(&mut self, what: &str) {
        let mut callers = vec![0; self.model.sizes.len()];
        let mut held = 0;
        for (r, range) in &mut self.model.ranges {
            let reservation = self.world.reservation(*r);
            assert_eq!(reservation.access().to_vec(), range.list, "{what}");
            let infos = reservation.mappings();
            held += infos.len();
            let live: Vec<_> = infos.iter().filter(|m| m.state == MappingState::Live).collect();
            assert_eq!(live.len(), range.maps.len(), "{what}: {infos:?}\nmodel {range:?}");
            assert_eq!(reservation.is_empty(), live.is_empty(), "{what}");
            for (info, (at, m)) in live.into_iter().zip(&mut range.maps) {
                assert_eq!(info.offset, self.world.granules(*at), "{what}");
                assert_eq!(self.world.index_of(info), m.block, "{what}");
                assert!(m.access.contains(&info.access), "{what}: {info:?} {m:?}");
                assert_eq!(info.overridden, m.custom, "{what}");
                m.access = vec![info.access.clone()];
                callers[m.block] += 1;
            }
            let holes = (0..ROOM).filter(|at| !range.maps.iter().any(|(o, m)| *o <= *at && *at < o + m.size));
            for at in holes {
                let address = reservation.range().start().get() + self.world.granules(at).get();
                assert_eq!(self.world.device.find(DevicePtr(address)), None, "{what}");
            }
        }
        for (block, count) in self.world.blocks.iter().zip(callers) {
            if let Some(block) = block {
                assert_eq!(block.caller_mappings(), count, "{what}");
            }
        }
        assert!(self.world.trace.live().mappings >= i64::try_from(held).expect("few"), "{what}");
        self.world.check_contents(what);
    }

    /// What no device of the list may touch cannot be read.
    fn check_denied(&self) {
        for reservation in self.world.reservations.iter().flatten() {
            for info in reservation.mappings() {
                let readable = info.access.iter().any(|a| a.device == Ordinal(0));
                if info.state == MappingState::Live && !readable {
                    let start = reservation.range().start().get() + info.offset.get();
                    assert!(!self.world.can_read(DevicePtr(start)), "{info:?}");
                }
            }
        }
    }
}

fn play(off: &[&str], moves: &[(Op, Option<u64>)]) {
    let mut game = Game::new(off);
    for (op, fail) in moves {
        game.play(op, *fail);
    }
    if !off.contains(&"device_access") {
        game.check_denied();
    }
    game.world.end("the end");
}

fn moves() -> impl Strategy<Value = Vec<(Op, Option<u64>)>> {
    prop::collection::vec((op(), prop::option::weighted(0.15, 1..12_u64)), 1..50)
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn with_every_capability(moves in moves()) {
        play(&[], &moves);
    }

    #[test]
    fn without_aliasing(moves in moves()) {
        play(&["aliasing"], &moves);
    }

    #[test]
    fn without_joined_access(moves in moves()) {
        play(&["joined_access", "device_access"], &moves);
    }

    #[test]
    fn with_access_for_the_whole_only(moves in moves()) {
        play(&["range_access", "aliasing"], &moves);
    }
}

/// A small generator, so that each thread has its own moves.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick(&mut self, sides: usize) -> usize {
        usize::try_from(self.roll(sides as u64)).expect("small")
    }
}

/// Failures that another thread's moves may cause.
fn in_the_way(kind: Kind) -> bool {
    use Kind::{AlreadyMapped, InvalidArgument, NotMapped, OutOfRange, PartialMapping, Unsupported};
    matches!(kind, AlreadyMapped | InvalidArgument | NotMapped | OutOfRange | PartialMapping | Unsupported)
}

fn hammer(world: &World, seed: u64, turns: u64) {
    let mut dice = Dice(seed);
    let device = &world.device;
    for _ in 0..turns {
        let (r, b) = (dice.pick(2), dice.pick(world.blocks.len()));
        let (reservation, at) = (world.reservation(r), world.granules(dice.roll(16)));
        let result = match dice.roll(8) {
            0 => reservation.map(at, &world.block(b)),
            1 => reservation.unmap(at, world.granules(1)),
            2 => device.retire(&[RetireEntry { reservation, offset: at }], &[world.stream]),
            3 => reservation.set_access(at, world.granules(1), &[]),
            4 => device.allocate(ByteSize(1), &[], Owner::Library).map(drop),
            5 => {
                device.collect();
                Ok(())
            }
            _ => {
                let entry = |dice: &mut Dice| {
                    let (r, at, b) = (dice.pick(2), dice.roll(16), dice.pick(world.blocks.len() + 2));
                    world.entry(r, at, (b < world.blocks.len()).then_some(b))
                };
                let entries: Vec<_> = (0..4).map(|_| entry(&mut dice)).collect();
                device.remap(&entries, &[world.stream]).map(|_| ())
            }
        };
        if let Err(error) = result {
            assert!(in_the_way(error.kind), "{error}");
        }
    }
}

/// Reads the table of addresses while others write it.
fn search(device: &Device, world: &World, stop: &AtomicBool) {
    let ranges: Vec<_> = world.reservations.iter().flatten().map(|r| r.range()).collect();
    let mut dice = Dice(77);
    while !stop.load(Ordering::Relaxed) {
        let range = ranges[dice.pick(ranges.len())];
        let address = DevicePtr(range.start().get() + dice.roll(range.size().get()));
        if let Some(found) = device.find(address) {
            let block = world.ids.iter().position(|id| *id == found.block).expect("one of ours");
            assert_eq!(found.tag, block as u64 + 1);
            assert_eq!(found.size, world.block(block).size());
            assert_eq!(found.start.checked_add(found.offset), Some(address));
        }
    }
}

#[test]
fn eight_threads_on_one_device() {
    for off in [&[][..], &["aliasing"], &["range_access", "joined_access"]] {
        let world = World::new(off);
        for (i, block) in world.blocks.iter().flatten().enumerate() {
            block.set_tag(i as u64 + 1);
        }
        let stop = AtomicBool::new(false);
        let world_ref = &world;
        std::thread::scope(|scope| {
            let searcher = scope.spawn(|| search(&world_ref.device, world_ref, &stop));
            let workers: Vec<_> = (1..=8_u64)
                .map(|seed| scope.spawn(move || hammer(world_ref, seed * 0x9e37_79b9, 300)))
                .collect();
            let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            stop.store(true, Ordering::Relaxed);
            searcher.join().expect("the searcher");
            results.into_iter().for_each(|result| result.expect("a worker"));
        });
        // Access may be missing after a plain map, so contents are read where it is not.
        world.check_contents("after eight threads");
        world.device.drain().expect("drained");
        world.check_contents("after draining");
        world.end("eight threads");
    }
}
