//! Access that a failed remap cannot take back from a mapping that was to stay: the mapping is lost, and unmapped as
//! soon as nothing can be using it.

mod common;
mod rollback_support;

use common::World;
use gvmm::driver::testing::Call;
use gvmm::error::{Error, Kind, Operation};
use gvmm::units::ByteSize;
use rollback_support::remap;

#[test]
fn what_stays_is_unmapped_once_its_streams_have_passed_where_its_access_cannot_be_taken_back() {
    let error = Error::new(Kind::DriverError, Operation::None, "made to fail");
    // Without a failure, then with one, then with one while undoing: only then something in use is unmapped.
    for (failures, kept) in [(0, true), (1, true), (2, false)] {
        let world = World::new(&[]);
        world.reservation(0).map(ByteSize::ZERO, &world.block(0)).expect("mapped, without access");
        let before = world.device.counters();
        world.fault.fail(Some(Call::SET_ACCESS), 2, failures, error);
        // Two calls, since the places are no neighbours.
        let result = remap(&world, &[(0, 0, Some(0)), (0, 4, Some(1))]);
        world.fault.clear();
        assert_eq!(
            result.map_err(|e| e.kind).err(),
            [None, Some(Kind::DriverError), Some(Kind::RangeLost)][failures as usize]
        );
        let made = world.device.counters().minus(before);
        assert_eq!(made.timeline_writes, u64::from(!kept), "{failures}: a wait for the stream");
        assert_eq!(made.unmap, failures, "{failures}");
        assert_eq!(world.is_live(0, 0), kept, "{failures}");
        remap(&world, &[(0, 0, Some(0)), (0, 4, Some(1))]).expect("again");
        world.check_contents("again");
        world.end("what stays");
    }
}

#[test]
fn what_no_stream_can_be_waited_for_stays_until_the_next_remap() {
    let world = World::new(&[]);
    world.reservation(0).map(ByteSize::ZERO, &world.block(0)).expect("mapped, without access");
    let error = Error::new(Kind::DriverError, Operation::None, "made to fail");
    world.fault.fail(Some(Call::SET_ACCESS), 2, 2, error);
    world.fault.fail(Some(Call::TIMELINE_WRITE), 1, 1, error);
    let mapped = world.trace.live().mappings;
    let result = remap(&world, &[(0, 0, Some(0)), (0, 4, Some(1))]);
    world.fault.clear();
    assert_eq!(result.map_err(|e| e.kind), Err(Kind::RangeLost));
    assert_eq!(world.trace.live().mappings, mapped, "work may be using it");
    assert!(!world.is_live(0, 0));
    remap(&world, &[(0, 4, Some(1))]).expect("rebuilt");
    assert!(world.is_live(0, 0));
    world.check_contents("rebuilt");
    world.end("what stays");
}
