//! Access that a failed remap cannot take back from a mapping that was to stay: the mapping is lost, and unmapped as
//! soon as nothing can be using it.

mod common;
mod rollback_support;

use common::World;
use gvmm::driver::testing::Call;
use gvmm::driver::{Access, AccessMode, Ordinal};
use gvmm::error::{Error, Kind, Operation};
use gvmm::units::ByteSize;
use gvmm::vm::RetireEntry;
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

#[test]
fn what_could_not_come_back_from_retirement_is_given_its_access_when_it_does() {
    let world = World::new(&[]);
    let own = Access { device: Ordinal(0), mode: AccessMode::READ_WRITE };
    let both = [own, Access { device: Ordinal(1), mode: AccessMode::READ }];
    let whole = |list: &[Access]| {
        world.reservation(0).set_access(ByteSize::ZERO, world.granules(16), list).expect("set");
    };
    whole(&both);
    remap(&world, &[(0, 0, Some(0))]).expect("mapped");
    let gate = world.gate();
    let entry = RetireEntry { reservation: world.reservation(0), offset: ByteSize::ZERO };
    world.device.retire(&[entry], &[world.stream]).expect("retired");
    whole(&[own]);
    let error = Error::new(Kind::DriverError, Operation::None, "made to fail");
    // The first call takes the peer's access, the second fails, and so does what gives it back.
    world.fault.fail(Some(Call::SET_ACCESS), 2, 2, error);
    remap(&world, &[(0, 0, Some(0)), (0, 4, Some(1))]).expect_err("made to fail");
    world.fault.clear();
    whole(&both);
    let before = world.device.counters();
    remap(&world, &[(0, 0, Some(0))]).expect("it comes back");
    let made = world.device.counters().minus(before);
    assert_eq!((made.map, made.set_access), (0, 1), "nobody knows what the peer may do");
    drop(gate);
    world.check_contents("back");
    world.end("retired");
}
