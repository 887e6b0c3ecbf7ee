//! Plays moves on a device and on the model, and compares the two after each.

use crate::common::World;
use crate::moves::{Op, ROOM, lists};
use crate::plain::{Model, Range};
use gvmm::driver::Ordinal;
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::units::DevicePtr;
use gvmm::vm::{MappingState, PlaceEntry, RemapEntry, RetireEntry};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) struct Game {
    pub(crate) world: World,
    pub(crate) model: Model,
}

impl Game {
    pub(crate) fn new(off: &[&str]) -> Self {
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
    pub(crate) fn play(&mut self, op: &Op, fail: Option<u64>) {
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
                let (world, model, list) = (&self.world, &mut self.model, &self.world.list(&lists()[*list]));
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
            Op::Swap(r, picks) => self.swap(self.pick_range(*r)?, picks),
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

    /// Retired mappings that are in the way are unmapped too.
    fn any_retired(&self) -> bool {
        let retired =
            |r: &Arc<gvmm::vm::Reservation>| r.mappings().iter().any(|m| m.state == MappingState::Retired);
        self.world.reservations.iter().flatten().any(retired)
    }

    /// Remaps in one reservation, without waiting.
    fn swap(
        &mut self,
        r: usize,
        picks: &[(usize, usize)],
    ) -> Option<(Result<()>, std::result::Result<(), Kind>)> {
        let there: Vec<(u64, u64)> = self.model.ranges[&r].maps.iter().map(|(at, m)| (*at, m.size)).collect();
        let mut places = BTreeMap::new();
        for (nth, block) in picks {
            let (at, size) = *there.get(nth % there.len().max(1))?;
            let fits = |b: &usize| self.world.blocks[*b].is_some() && self.model.sizes[*b] == size;
            let fitting: Vec<usize> = (0..self.world.blocks.len()).filter(fits).collect();
            let fitting = fitting.get(block % fitting.len().max(1)).copied();
            places.insert(at, fitting.or_else(|| self.pick_block(*block)));
        }
        let places: Vec<_> = places.into_iter().map(|(at, block)| (r, at, block)).collect();
        let (world, any_retired) = (&self.world, self.any_retired());
        let before = world.reservation(r).mappings();
        let entry = |&(_, at, b): &(usize, u64, Option<usize>)| PlaceEntry {
            offset: world.granules(at),
            block: b.map(|b| world.block(b)),
        };
        let mut entries: Vec<PlaceEntry> = places.iter().map(entry).collect();
        let result = world.device.remap_in(&world.reservation(r), &mut entries, &[]);
        let expected = self.model.remap(&places);
        if let (Ok(report), Ok(calls)) = (&result, &expected) {
            assert!(
                any_retired || (report.calls.unmap, report.calls.map) == *calls,
                "{places:?}: {report:?}"
            );
            for (entry, (_, _, block)) in entries.iter().zip(&places) {
                let was = before.iter().find(|m| m.offset == entry.offset).map(|m| m.block);
                let same = block.is_some_and(|b| Some(world.block(b).id()) == was);
                assert!(same || entry.block.as_ref().map(|b| b.id()) == was, "{places:?}");
            }
        }
        Some((result.map(|_| ()), expected.map(|_| ())))
    }

    pub(crate) fn remap(
        &mut self,
        places: &[(usize, u64, Option<usize>)],
    ) -> Option<(Result<()>, std::result::Result<(), Kind>)> {
        let any_retired = self.any_retired();
        let (world, model) = (&self.world, &mut self.model);
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
    pub(crate) fn check_denied(&self) {
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
