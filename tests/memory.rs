//! What callers of the memory layer are promised, one promise a test.

mod common;

use common::World;
use gvmm::driver::{Access, AccessMode, CopySlice, CreateOptions, Ordinal};
use gvmm::error::Kind;
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Owner, PlaceEntry, RemapEntry, RetireEntry};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Access for the device itself, and with a peer.
fn lists() -> [Vec<Access>; 2] {
    let own = Access { device: Ordinal(0), mode: AccessMode::READ_WRITE };
    let peer = Access { device: Ordinal(1), mode: AccessMode::READ };
    [vec![own], vec![own, peer]]
}

#[test]
fn running_out_of_memory_waits_for_what_is_retired() {
    let mut world = World::with_memory(&[], (8 << 21) + (1 << 20));
    world.add_reservation(8);
    for i in 0..8 {
        world.add_block(1);
        world.device.remap(&[world.entry(0, i, Some(world.blocks.len() - 1))], &[]).expect("mapped");
    }
    let more = |world: &World| world.device.create_block(world.granules(1), CreateOptions::default());
    assert_eq!(more(&world).map_err(|e| e.kind).err(), Some(Kind::OutOfDeviceMemory));
    let gate = world.gate();
    let entry = RetireEntry { reservation: world.reservation(0), offset: ByteSize::ZERO };
    world.device.retire(&[entry], &[world.stream]).expect("retired");
    world.blocks[0] = None;
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(gate);
    });
    let block = more(&world).expect("after a wait");
    opener.join().expect("opened");
    drop(block);
    world.end("out of memory");
}

#[test]
fn without_aliasing_a_block_moves_on_while_another_thread_collects_its_old_place() {
    let mut world = World::with_memory(&["aliasing"], 64 << 21);
    world.add_reservation(16);
    (0..8).for_each(|_| world.add_block(1));
    let (first, stop) = (world.blocks.len() - 8, AtomicBool::new(false));
    let (world, stop) = (&world, &stop);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                world.device.collect();
            }
        });
        let moved = (0..3000).try_for_each(|round| {
            let at = |i: usize| (i + 8 * (round % 2)) as u64;
            let entries: Vec<_> = (0..8).map(|i| world.entry(0, at(i), Some(first + i))).collect();
            world.device.remap(&entries, &[])?;
            let place = |e: &RemapEntry| RetireEntry { reservation: e.reservation.clone(), offset: e.offset };
            world.device.retire(&entries.iter().map(place).collect::<Vec<_>>(), &[world.stream])
        });
        stop.store(true, Ordering::Relaxed);
        moved.expect("the old places are on their way out");
    });
    world.device.drain().expect("drained");
}

#[test]
fn a_retired_mapping_is_there_until_its_stream_has_passed_and_comes_back_for_nothing() {
    let world = World::new(&[]);
    let places = [world.entry(0, 0, Some(0)), world.entry(0, 1, Some(1))];
    world.device.remap(&places, &[]).expect("mapped");
    let gate = world.gate();
    let entry = |at| RetireEntry { reservation: world.reservation(0), offset: world.granules(at) };
    let writes = world.device.counters().timeline_writes;
    world.device.retire(&[entry(0), entry(1)], &[world.stream]).expect("retired");
    assert_eq!(world.device.counters().timeline_writes - writes, 1, "one write for many");
    assert_eq!(world.device.collect(), 0);
    assert_eq!(world.trace.live().mappings, 2);
    assert_eq!(world.device.find(world.reservation(0).range().start()), None);
    assert_eq!(world.block(0).caller_mappings(), 0);
    let again = world.device.retire(&[entry(0)], &[world.stream]).map_err(|e| (e.kind, e.entry));
    assert_eq!(again, Err((Kind::NotMapped, Some(0))));
    let report = world.device.remap(&places, &[world.stream]).expect("back");
    assert_eq!((report.calls, report.skipped), (gvmm::vm::CallCounts::default(), 2));
    world.reservation(0).unmap(world.granules(1), world.granules(1)).expect("unmapped");
    world.device.retire(&[entry(0)], &[world.stream]).expect("retired");
    world.reservation(0).map(ByteSize::ZERO, &world.block(0)).expect("back by a plain map");
    drop(gate);
    world.device.drain().expect("drained");
    assert!(world.is_live(0, 0), "what came back is not collected");
    world.check_contents("back");
    drop(places);
    world.end("retired");
}

#[test]
fn another_devices_things_and_bad_places_are_refused_with_the_entry() {
    let (world, other) = (World::new(&[]), World::new(&[]));
    let kind = |entries: &[RemapEntry]| world.device.remap(entries, &[]).map_err(|e| (e.kind, e.entry)).err();
    let good = || world.entry(0, 0, Some(0));
    let foreign = RemapEntry { block: Some(other.block(0)), ..world.entry(0, 1, None) };
    assert_eq!(kind(&[good(), foreign]), Some((Kind::InvalidArgument, Some(1))));
    assert_eq!(kind(&[good(), other.entry(0, 0, None)]), Some((Kind::InvalidArgument, Some(1))));
    assert_eq!(kind(&[good(), good()]), Some((Kind::InvalidArgument, Some(1))));
    assert_eq!(kind(&[good(), world.entry(0, 16, Some(1))]), Some((Kind::OutOfRange, Some(1))));
    assert_eq!(kind(&[good(), world.entry(0, 15, Some(10))]), Some((Kind::OutOfRange, Some(1))));
    let skew = RemapEntry { offset: ByteSize(4096), ..good() };
    assert_eq!(kind(&[world.entry(0, 3, Some(1)), skew]), Some((Kind::Misaligned, Some(1))));
    let far = RemapEntry { offset: ByteSize(u64::MAX - 4095), ..good() };
    assert_eq!(kind(&[far]), Some((Kind::OutOfRange, Some(0))));
    let map = world.reservation(0).map(ByteSize::ZERO, &other.block(0)).map_err(|e| e.kind);
    assert_eq!(map, Err(Kind::InvalidArgument));
    assert!(world.reservation(0).is_empty());
    world.end("refused");
    other.end("refused");
}

#[test]
fn a_remap_waits_for_its_streams_only_where_something_is_unmapped() {
    let world = World::new(&[]);
    let gate = world.gate();
    // The stream stands still: a wait would never end.
    let report = world.device.remap(&[world.entry(0, 0, Some(0))], &[world.stream]).expect("mapped");
    assert_eq!((report.waited.is_zero(), report.calls.timeline_writes), (true, 0));
    world.driver.streams().capture_begin(world.stream).expect("captured");
    let refused =
        world.device.remap(&[world.entry(0, 0, Some(1))], &[world.stream]).map_err(|e| e.kind).err();
    assert_eq!(refused, Some(Kind::StreamCapturing));
    world.driver.streams().capture_end(world.stream).expect("a graph");
    drop(gate);
    world.check_contents("as before");
    let report = world.device.remap(&[world.entry(0, 0, Some(1))], &[world.stream]).expect("remapped");
    assert_eq!((report.calls.unmap, report.calls.map, report.calls.set_access), (1, 1, 1));
    assert_eq!((report.mapped_bytes, report.unmapped_bytes), (world.granules(1), world.granules(1)));
    assert!(!report.waited.is_zero());
    world.end("waits");
}

#[test]
fn two_hundred_entries_take_one_set_access_for_each_changed_range() {
    let mut world = World::bare(&[]);
    world.add_reservation(200);
    for _ in 0..4 {
        world.add_block(1);
    }
    let entries = |shift: usize| -> Vec<_> {
        (0..200_usize).map(|i| world.entry(0, i as u64, Some((i / 2 + shift * (i % 3)) % 4))).collect()
    };
    let first = world.device.remap(&entries(0), &[]).expect("mapped");
    assert_eq!((first.calls.map, first.calls.set_access), (200, 1));
    let second = world.device.remap(&entries(1), &[]).expect("remapped");
    // Every third place keeps its block, so two of three are changed, in runs of two.
    assert_eq!((second.calls.unmap, second.calls.map), (133, 133));
    assert_eq!((second.calls.set_access, second.skipped), (67, 67));
    world.check_contents("two hundred");
    world.end("two hundred");
}

#[test]
fn values_are_dropped_when_their_marks_have_passed() {
    let world = World::new(&[]);
    let value = Arc::new(());
    world.device.retire_value(Box::new(Arc::clone(&value)), Vec::new());
    assert_eq!(Arc::strong_count(&value), 1, "nothing to wait for");
    let gate = world.gate();
    let mark = world.device.mark(world.stream);
    world.device.retire_value(Box::new(Arc::clone(&value)), vec![Arc::clone(&mark)]);
    mark.record().expect("recorded");
    assert_eq!((world.device.collect(), Arc::strong_count(&value)), (0, 2));
    drop(gate);
    mark.wait().expect("passed");
    assert_eq!((world.device.collect(), Arc::strong_count(&value)), (1, 1));
    // A whole reservation with what is mapped in it, left to the closing device.
    let reservation = world.device.reserve(world.granules(1), None, &[], Owner::Library).expect("addresses");
    reservation.map(ByteSize::ZERO, &world.block(0)).expect("mapped");
    world.device.retire_value(Box::new(reservation), vec![world.device.mark(world.stream)]);
    world.end_undrained("values");
}

#[test]
fn an_override_does_not_outlive_the_retirement_of_its_mapping() {
    let world = World::new(&[]);
    world.device.remap(&[world.entry(0, 0, Some(0))], &[]).expect("mapped");
    world.reservation(0).set_access(ByteSize::ZERO, world.granules(1), &lists()[1]).expect("overridden");
    let gate = world.gate();
    let entry = RetireEntry { reservation: world.reservation(0), offset: ByteSize::ZERO };
    world.device.retire(&[entry], &[world.stream]).expect("retired");
    let report = world.device.remap(&[world.entry(0, 0, Some(0))], &[world.stream]).expect("back");
    let calls = (report.calls.unmap, report.calls.map, report.calls.set_access);
    assert_eq!((calls, report.skipped), ((0, 0, 1), 0), "the peer's access is taken back");
    let info = world.reservation(0).mappings().remove(0);
    assert_eq!((info.access, info.overridden), (lists()[0].clone(), false));
    drop(gate);
    world.end("an override");
}

#[test]
fn one_mark_serves_two_streams_and_a_stream_is_forgotten_before_it_ends() {
    let world = World::new(&[]);
    let other = world.driver.streams().create(Ordinal(0)).expect("a stream");
    let gate = world.gate();
    let mark = world.device.mark(world.stream);
    mark.wait_on(other).expect("enqueued");
    let behind = world.device.mark(other);
    let entry = RetireEntry { reservation: world.reservation(0), offset: ByteSize::ZERO };
    world.device.remap(&[world.entry(0, 0, Some(0))], &[]).expect("mapped");
    world.device.retire(&[entry], &[world.stream, other]).expect("retired");
    world.device.forget_stream(other).expect("forgotten");
    assert_eq!((behind.passed(), world.device.collect()), (Ok(false), 0));
    drop(gate);
    world.driver.streams().destroy(other).expect("ended");
    mark.wait().expect("passed");
    assert_eq!((behind.passed(), world.device.collect()), (Ok(true), 1));
    drop((mark, behind));
    world.end("two streams");
}

#[test]
fn what_waits_for_a_failed_stream_goes_once_that_is_forgotten() {
    let world = World::new(&[]);
    let streams = world.driver.streams();
    let broken = streams.create(Ordinal(0)).expect("a stream");
    let (value, mark) = (Arc::new(()), world.device.mark(broken));
    world.device.retire_value(Box::new(Arc::clone(&value)), vec![mark]);
    let slice = CopySlice { dst: DevicePtr(4096), src: DevicePtr(8192), bytes: 8 };
    world.driver.copy(Ordinal(0), broken, &[slice]).expect("enqueued");
    streams.synchronize(broken).expect_err("it failed");
    world.device.drain().expect_err("nobody knows whether it will be mended");
    world.device.forget_stream(broken).expect("forgotten");
    streams.destroy(broken).expect("destroyed");
    assert_eq!(world.device.collect(), 1);
    assert_eq!(Arc::strong_count(&value), 1);
    world.device.drain().expect("nothing is left to wait for");
    world.end("a failed stream");
}

#[test]
fn entries_of_one_reservation_exchange_their_blocks() {
    let world = World::new(&[]);
    let place = |at, block: Option<usize>| PlaceEntry {
        offset: world.granules(at),
        block: block.map(|i| world.block(i)),
    };
    let named = |entries: &[PlaceEntry]| -> Vec<Option<usize>> {
        let index =
            |e: &PlaceEntry| world.ids.iter().position(|id| Some(*id) == e.block.as_ref().map(|b| b.id()));
        entries.iter().map(index).collect()
    };
    let reservation = world.reservation(0);
    // Block 10 has two granules, and one that is retired lies under its second.
    world
        .device
        .remap(&[world.entry(0, 1, Some(4)), world.entry(0, 3, Some(1)), world.entry(0, 4, Some(2))], &[])
        .expect("mapped");
    let retired = RetireEntry { reservation: world.reservation(0), offset: world.granules(1) };
    world.device.retire(&[retired], &[world.stream]).expect("retired");
    let mut entries = [place(4, None), place(3, Some(5)), place(0, Some(10)), place(6, Some(2))];
    world.device.remap_in(&reservation, &mut entries, &[]).expect("remapped");
    assert_eq!(named(&entries), [Some(2), Some(1), None, None]);
    world.check_contents("there");
    assert!(world.is_live(0, 0) && !world.is_there(0, 4));
    let report = world.device.remap_in(&reservation, &mut entries, &[]).expect("taken back");
    assert_eq!((report.calls.map, report.calls.unmap), (2, 3));
    assert_eq!(named(&entries), [None, Some(5), Some(10), Some(2)]);
    world.check_contents("and back");
    drop((entries, reservation));
    world.end("exchanged");
}

#[test]
fn a_native_handle_that_is_released_already_is_not_owned_twice() {
    let mut world = World::bare(&[]);
    world.add_block(1);
    let (native, size) = (world.block(0).native(), world.granules(1));
    let adopt = |owned| world.device.adopt_block(native, size, owned);
    let refused = adopt(true).map_err(|e| e.kind);
    assert_eq!(refused.err(), Some(Kind::InvalidArgument));
    drop(adopt(false).expect("borrowed as often as one likes"));
    // Made past the library, it is nobody's yet; given up, it may be owned again.
    let own = world.device.driver().create(Ordinal(0), size, CreateOptions::default()).expect("a handle");
    let owner = world.device.adopt_block(own, size, true).expect("owned");
    assert!(world.device.adopt_block(own, size, true).is_err());
    drop(owner);
    let again = world.device.driver().create(Ordinal(0), size, CreateOptions::default()).expect("a handle");
    drop(world.device.adopt_block(again, size, true).expect("owned"));
    world.end("adopted");
}

#[test]
fn a_drain_behind_a_host_function_that_panicked_says_device_fault_until_the_stream_is_forgotten() {
    for recorded in [false, true] {
        let world = World::new(&[]);
        let gate = world.gate();
        world.driver.streams().enqueue(world.stream, Arc::new(|| panic!("on purpose"))).expect("enqueued");
        let mark = world.device.mark(world.stream);
        if recorded {
            mark.record().expect("recorded");
        }
        world.device.retire_value(Box::new(()), vec![mark]);
        drop(gate);
        for _ in 0..2 {
            assert_eq!(world.device.drain().map_err(|e| e.kind), Err(Kind::DeviceFault), "{recorded}");
        }
        world.device.forget_stream(world.stream).expect("forgotten");
        assert_eq!((world.device.drain(), world.device.collect()), (Ok(()), 0), "{recorded}");
    }
}
