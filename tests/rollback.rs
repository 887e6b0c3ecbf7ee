//! Every driver call of a scenario fails once, twice, or from there on; after each, the books are as before (or
//! say what was lost), the memory behind the addresses is what the books say, trying again works, and in the end
//! nothing is left behind.

mod common;
mod rollback_support;

use common::{World, drivers};
use gvmm::driver::testing::Call;
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::units::ByteSize;
use gvmm::vm::{MappingState, Owner};
use rollback_support::{SCENARIOS, Scenario, remap};

/// Capabilities that are switched off.
const SHAPES: [&[&str]; 6] = [
    &[],
    &["joined_access"],
    &["range_access"],
    &["aliasing"],
    &["device_access"],
    &["joined_access", "range_access", "aliasing", "device_access"],
];

/// Which calls fail: each (n-th, how many).
type Faults<'a> = &'a [(u64, u64)];

struct Run<'a> {
    scenario: &'a Scenario,
    off: &'a [&'a str],
    /// The books after a run without failures.
    after: common::Books,
}

impl Run<'_> {
    /// Runs with failures; gives whether the last of them came to pass.
    fn with(&self, faults: Faults<'_>) -> bool {
        let what = format!("{} without {:?}, failing {faults:?}", self.scenario.name, self.off);
        let world = World::new(self.off);
        (self.scenario.setup)(&world).unwrap_or_else(|e| panic!("{what}: setup: {e}"));
        let before = world.books();
        let others = world.trace.live().mappings - world.mapped();
        let start = world.fault.calls();
        for &(nth, count) in faults {
            world.fault.fail(
                None,
                nth,
                count,
                Error::new(Kind::DriverError, Operation::None, "made to fail"),
            );
        }
        let result = (self.scenario.act)(&world);
        let made = world.fault.calls() - start;
        world.fault.clear();
        self.check(&what, &world, &before, &result);
        world.check_contents(&what);
        let lost = result.as_ref().is_err_and(|e| e.kind == Kind::RangeLost);
        if lost && self.scenario.vouched && faults.iter().all(|(_, count)| *count == 1) {
            assert_eq!(world.trace.live().mappings - others, world.mapped(), "{what}: the lost are unmapped");
        }

        if result.is_err() {
            (self.scenario.act)(&world).unwrap_or_else(|e| panic!("{what}: again: {e}"));
            // Whatever names a reservation rebuilds what is lost there, an entry that changes nothing too.
            remap(&world, &[(0, 15, None), (1, 15, None)])
                .unwrap_or_else(|e| panic!("{what}: rebuilding: {e}"));
        }
        assert_eq!(world.books(), self.after, "{what}: again");
        world.check_contents(&what);
        world.end(&what);
        faults.iter().all(|(nth, _)| made >= *nth)
    }

    fn check(&self, what: &str, world: &World, before: &common::Books, result: &Result<()>) {
        let now = world.books();
        let Err(error) = result else {
            assert_eq!(now, self.after, "{what}: done");
            return;
        };
        let lost = now.mappings.iter().flatten().any(|m| m.info.state == MappingState::Lost);
        assert_eq!(error.kind == Kind::RangeLost, lost, "{what}: {error}\n{now:?}");
        if lost {
            assert_eq!(now.access, before.access, "{what}");
            for (now, before) in now.mappings.iter().flatten().zip(before.mappings.iter().flatten()) {
                assert!(now == before || now.is_lost_form_of(before), "{what}: {now:?} was {before:?}");
            }
            let count = |books: &common::Books| books.mappings.iter().map(Vec::len).collect::<Vec<_>>();
            assert_eq!(count(&now), count(before), "{what}");
        } else {
            let may = now == *before || (self.scenario.or_after && now == self.after);
            assert!(may, "{what}: {error}\n{now:?}\nbefore {before:?}");
        }
    }
}

fn each(run: impl Fn(&Run<'_>)) {
    for off in drivers::shapes(&SHAPES) {
        for scenario in SCENARIOS.iter().filter(|s| !s.ranged || !off.contains(&"range_access")) {
            let world = World::new(off);
            (scenario.setup)(&world).expect("setup");
            (scenario.act)(&world).expect("without failures");
            let after = world.books();
            world.check_contents(scenario.name);
            world.end(scenario.name);
            run(&Run { scenario, off, after });
        }
    }
}

/// The first n, from `first` on, for which `run` says that n was not reached.
fn until(first: u64, run: impl Fn(u64) -> bool) -> u64 {
    let end = (first..).find(|n| !run(*n)).unwrap_or(first);
    assert!(end < first + 500, "it never ends");
    end
}

#[test]
fn every_call_fails_once() {
    each(|run| {
        let end = until(1, |k| run.with(&[(k, 1)]));
        assert!(end > 1, "{} makes driver calls", run.scenario.name);
    });
}

#[test]
fn every_call_fails_and_a_later_one_too() {
    each(|run| {
        until(1, |k| {
            until(k + 1, |j| run.with(&[(k, 1), (j, 1)]));
            run.with(&[(k, 1)])
        });
    });
}

#[test]
fn every_call_fails_from_some_point_on() {
    each(|run| {
        until(1, |k| run.with(&[(k, u64::MAX)]));
    });
}

#[test]
fn plain_memory_is_given_back_when_calls_fail() {
    if !drivers::is_host() {
        return println!("skipped: this driver has virtual memory");
    }
    let off = ["virtual_memory"];
    for k in 1..4 {
        let world = World::bare(&off);
        world.fault.fail(None, k, 2, Error::new(Kind::DriverError, Operation::None, "made to fail"));
        let allocation = world.device.allocate(ByteSize(4096), &[], Owner::Library);
        drop(allocation);
        world.fault.clear();
        world.end("plain memory");
    }
}

#[test]
fn a_failed_clean_up_is_tried_again() {
    let world = World::bare(&[]);
    let error = Error::new(Kind::DriverError, Operation::None, "made to fail");
    for call in [Call::RELEASE, Call::FREE, Call::UNMAP] {
        let allocation = world.device.allocate(ByteSize(1), &[], Owner::Library).expect("memory");
        world.fault.fail(Some(call), 1, 1, error);
        drop(allocation);
        world.fault.clear();
        let live = world.trace.live();
        assert_ne!((live.blocks, live.ranges, live.mappings), (0, 0, 0), "{call:?}");
        assert_eq!(world.device.collect(), 1, "{call:?}");
        let live = world.trace.live();
        assert_eq!((live.blocks, live.ranges, live.mappings), (0, 0, 0), "{call:?}");
    }
    world.end("clean-up");
}

#[test]
fn a_new_mapping_that_an_undo_could_not_unmap_goes_with_the_next_collect() {
    let world = World::new(&[]);
    let error = Error::new(Kind::DriverError, Operation::None, "made to fail");
    // Two maps, a set-access that fails, and the first unmap of the undo.
    world.fault.fail(Some(Call::SET_ACCESS), 1, 1, error);
    // Which is tried once more at the end of the call.
    world.fault.fail(Some(Call::UNMAP), 1, 3, error);
    let grown = remap(&world, &[(0, 0, Some(0)), (0, 1, Some(1))]).map_err(|e| e.kind);
    world.fault.clear();
    assert_eq!(grown, Err(Kind::DriverError), "nothing of the caller's is lost");
    assert!(world.reservation(0).is_empty());
    assert_eq!(world.device.find(world.reservation(0).range().start()), None);
    assert_eq!((world.device.collect(), world.trace.live().mappings), (1, 0));
    world.end("a stray");
}

/// All of the above on the drivers of CUDA and HIP, whose memory is not the host's.
#[test]
fn on_the_fakes_it_is_the_same() {
    drivers::again_on_fakes();
}
