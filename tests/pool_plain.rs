//! The pool where a device has no virtual memory: plain device memory, cached by size.

mod pool_support;

use gvmm::driver::{Access, AccessMode, Driver, Ordinal};
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::pool::{BlockState, PoolId, Settings};
use gvmm::units::{ByteSize, DevicePtr};
use pool_support::{World, gate};
use std::sync::Arc;

fn world(limit: Option<ByteSize>) -> World {
    World::new(2, ByteSize::gib(1), &["virtual_memory"], &Settings { limit, ..Settings::default() })
}

const fn kind(e: Error) -> Kind {
    e.kind
}

#[test]
fn a_size_is_used_again_at_once_by_its_stream_and_by_no_other() {
    let world = world(None);
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let block = pool.alloc(ByteSize(1000), a).expect("memory");
    assert_eq!(pool.find(DevicePtr(block.get() + 999)).map(|place| place.address), Some(block));
    pool.free(block).expect("in use");
    assert_eq!(pool.free(block).map_err(kind), Err(Kind::InvalidArgument), "freed already");
    let other = pool.alloc(ByteSize(1000), b).expect("memory");
    assert_ne!(other, block);
    assert_eq!(pool.alloc(ByteSize(900), a), Ok(block), "of the same rounded size");
    let large = pool.alloc(ByteSize::mib(30), a).expect("memory");
    let stats = pool.stats();
    assert_eq!(stats.bytes.requested.current, 1000 + 900 + (30 << 20));
    assert_eq!((stats.parts[0].blocks.current, stats.parts[1].blocks.current), (2, 1));
    assert_eq!((stats.calls.map, stats.address_space.current), (0, 0), "no virtual memory");
    assert_eq!(pool.snapshot().segments.len(), 3);
    [block, other, large].iter().for_each(|address| pool.free(*address).expect("in use"));
    assert_eq!(pool.trim().map(ByteSize::get), Ok(stats.bytes.reserved.current));
    assert_eq!(pool.stats().bytes.reserved.current, 0);
    world.end("sizes");
}

#[test]
fn a_block_that_another_stream_uses_waits_for_it() {
    let world = world(None);
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let [first, second] = [0, 1].map(|_| pool.alloc(ByteSize::mib(4), a).expect("memory"));
    let opens = gate(&world.host, b);
    pool.record_stream(first, b).expect("in use");
    pool.free(first).and(pool.free_on(second, b)).expect("in use");
    let stats = pool.stats();
    assert_eq!((stats.bytes.allocated.current, stats.bytes.active.current), (0, 8 << 20));
    let third = pool.alloc(ByteSize::mib(4), a).expect("memory");
    assert!(third != first && third != second);
    assert!(pool.snapshot().segments.iter().any(|s| s.blocks[0].state == BlockState::Pending));
    drop(opens);
    world.host.streams().synchronize(b).expect("no stream has failed");
    pool.poll();
    assert_eq!(pool.stats().bytes.active.current, 4 << 20);
    let again = pool.alloc(ByteSize::mib(4), a).expect("memory");
    assert!(again == first || again == second);
    pool.free(again).and(pool.free(third)).expect("in use");
    world.end("pending");
}

#[test]
fn within_a_limit_blocks_go_from_stream_to_stream_and_back_to_the_driver() {
    let world = world(Some(ByteSize::mib(64)));
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let block = pool.alloc(ByteSize::mib(40), a).expect("memory");
    assert_eq!(pool.alloc(ByteSize::mib(40), b).map_err(kind), Err(Kind::OutOfDeviceMemory));
    let shortage = pool.shortage().expect("a reason");
    assert_eq!((shortage.asked, shortage.holders[0].allocated), (ByteSize::mib(40), ByteSize::mib(40)));
    pool.free(block).expect("in use");
    assert_eq!(pool.alloc(ByteSize::mib(36), b), Ok(block), "the other stream's, behind a wait");
    assert_eq!(pool.stats().lent_chunks, 1);
    pool.free(block).expect("in use");
    let larger = pool.alloc(ByteSize::mib(60), a).expect("what is too small is given back");
    assert_eq!(pool.stats().forced_trims, 1);
    let peers = [0, 1].map(|i| Access { device: Ordinal(i), mode: AccessMode::READ_WRITE });
    assert_eq!(pool.set_access(&peers).map_err(kind), Err(Kind::Unsupported));
    pool.pin(larger, ByteSize(1)).and(pool.free(larger)).expect("in use");
    assert_eq!(pool.trim(), Ok(ByteSize::ZERO), "pinned");
    pool.unpin(larger, ByteSize(1)).expect("pinned");
    assert_eq!(pool.unpin(larger, ByteSize(1)).map_err(kind), Err(Kind::WrongState));
    pool.forget_stream(a).expect("known");
    assert_eq!(pool.alloc(ByteSize::mib(60), b), Ok(larger), "of a stream that has ended");
    pool.free(larger).expect("in use");
    world.end("limit");
}

#[test]
fn a_graphs_pool_keeps_its_memory_until_it_is_released() {
    let world = world(Some(ByteSize::mib(64)));
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let id = PoolId(0, 7);
    pool.begin_capture(id, Arc::new(move |stream| stream == a)).expect("new");
    let block = pool.alloc(ByteSize::mib(40), a).expect("memory");
    assert_eq!(pool.find(block).map(|place| place.pool), Some(id));
    assert_eq!(pool.trim().map_err(kind), Err(Kind::StreamCapturing));
    pool.free(block).expect("in use");
    pool.end_capture(id).expect("begun");
    assert_eq!(pool.alloc(ByteSize::mib(40), b).map_err(kind), Err(Kind::OutOfDeviceMemory));
    pool.release_pool(id).expect("the last user");
    assert_eq!(pool.alloc(ByteSize::mib(40), b), Ok(block));
    pool.free(block).expect("in use");
    world.end("private");
}

fn play(world: &World) -> Result<()> {
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let mut held: Vec<DevicePtr> = Vec::new();
    let mut acts = || {
        held.push(pool.alloc(ByteSize::mib(20), a)?);
        held.push(pool.alloc(ByteSize::mib(30), b)?);
        pool.record_stream(held[1], a)?;
        held.drain(..).try_for_each(|address| pool.free(address))?;
        held.push(pool.alloc(ByteSize::mib(28), a)?);
        held.drain(..).try_for_each(|address| pool.free(address))?;
        held.push(pool.alloc(ByteSize::mib(60), b)?);
        held.drain(..).try_for_each(|address| pool.free(address))?;
        pool.trim().map(|_| ())
    };
    let result = acts();
    held.into_iter().for_each(|address| pool.free(address).expect("in use"));
    result
}

#[test]
fn any_call_may_fail() {
    for nth in 1.. {
        let (what, world) = (format!("call {nth}"), world(Some(ByteSize::mib(64))));
        let before = world.fault.calls();
        world.fault.fail(None, nth, 1, Error::new(Kind::DriverError, Operation::None, "on purpose"));
        let first = play(&world);
        let made = world.fault.calls() - before;
        world.fault.clear();
        assert_eq!(world.pool.stats().bytes.requested.current, 0, "{what}");
        play(&world).unwrap_or_else(|e| panic!("{what}: trying again: {e}"));
        for stream in &world.streams {
            world.host.streams().synchronize(*stream).expect("no stream has failed");
        }
        world.end(&what);
        if made < nth {
            assert_eq!(first, Ok(()));
            assert!(nth > 8, "only {nth} calls");
            return;
        }
    }
}
