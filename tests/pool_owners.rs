//! Who has what when streams, graphs and pools end, and what is done when memory is short: nothing before the work that
//! still uses it, nothing lost.

mod pool_support;

use gvmm::driver::testing::Call;
use gvmm::driver::{Access, AccessMode, Driver, Ordinal, Stream};
use gvmm::error::{Error, Kind, Operation};
use gvmm::pool::{Pool, PoolId, Settings};
use gvmm::units::{ByteSize, DevicePtr};
use pool_support::{World, gate};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GRAPH: PoolId = PoolId(3, 4);
/// With virtual memory, and without.
const BOTH: [&[&str]; 2] = [&[], &["virtual_memory"]];

fn world(limit: Option<u64>, off: &[&str]) -> World {
    World::new(3, ByteSize::gib(1), off, &Settings { limit: limit.map(ByteSize::mib), ..Settings::default() })
}

fn take(pool: &Pool, stream: Stream, mib: u64) -> DevicePtr {
    pool.alloc(ByteSize::mib(mib), stream).expect("memory")
}

fn give(pool: &Pool, address: DevicePtr) {
    pool.free(address).expect("in use");
}

const fn kind(e: Error) -> Kind {
    e.kind
}

#[test]
fn an_arena_that_a_graph_takes_over_is_its_own_until_it_is_released() {
    let world = world(Some(64), &[]);
    let (pool, [a, b, c]) = (&world.pool, [0, 1, 2].map(|i: usize| world.streams[i]));
    give(pool, take(pool, c, 40));
    pool.forget_stream(c).expect("known");
    let addresses = pool.stats().address_space.current;
    pool.begin_capture(GRAPH, Arc::new(move |stream| stream == a)).expect("begun");
    assert_eq!(pool.release_pool(GRAPH).map_err(kind), Err(Kind::WrongState), "it is open");
    let block = take(pool, a, 40);
    assert_eq!(pool.stats().address_space.current, addresses, "taken over");
    give(pool, block);
    pool.end_capture(GRAPH).expect("begun");
    assert_eq!(pool.alloc(ByteSize::mib(40), b).map_err(kind), Err(Kind::OutOfDeviceMemory));
    assert_eq!(pool.stats().lent_chunks, 0);
    pool.release_pool(GRAPH).expect("there is one");
    // And others take it over again.
    let addresses = pool.stats().address_space.current;
    pool.forget_stream(b).expect("known");
    let _ = (take(pool, world.streams[2], 4), take(pool, a, 4));
    assert_eq!(pool.stats().address_space.current, addresses);
    world.end("a graph's arena");
}

#[test]
fn a_released_pool_with_blocks_in_use_keeps_its_number() {
    let world = world(None, &[]);
    let (pool, a) = (&world.pool, world.streams[0]);
    pool.begin_capture(GRAPH, Arc::new(|_| true)).expect("begun");
    let block = take(pool, a, 4);
    pool.end_capture(GRAPH).and(pool.release_pool(GRAPH)).expect("its only user");
    let other = PoolId(9, 9);
    pool.begin_capture(other, Arc::new(|_| true)).expect("begun");
    let next = take(pool, a, 4);
    assert_eq!([block, next].map(|at| pool.find(at).map(|place| place.pool)), [Some(GRAPH), Some(other)]);
    pool.end_capture(other).and(pool.release_pool(other)).expect("its only user");
    world.end("numbers");
}

#[test]
fn what_a_filter_allocates_itself_is_not_asked_about() {
    let world = world(None, &[]);
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let (weak, inner) = (Arc::downgrade(pool), Arc::new(AtomicU64::new(0)));
    let kept = Arc::clone(&inner);
    let filter = move |_: Stream| {
        let pool = weak.upgrade().expect("it is being used");
        kept.store(take(&pool, b, 2).get(), Ordering::Relaxed);
        true
    };
    pool.begin_capture(GRAPH, Arc::new(filter)).expect("begun");
    let outer = take(pool, a, 4);
    pool.end_capture(GRAPH).expect("begun");
    let inner = DevicePtr(inner.load(Ordering::Relaxed));
    let pools = [outer, inner].map(|at| pool.find(at).map(|place| place.pool));
    assert_eq!(pools, [Some(GRAPH), Some(PoolId::DEFAULT)]);
    pool.release_pool(GRAPH).expect("its only user");
    world.end("filters");
}

#[test]
fn a_pool_that_ends_leaves_its_memory_until_all_streams_have_passed() {
    for off in BOTH {
        for pending in [false, true] {
            let world = world(None, off);
            let pool = Pool::new(&world.device, &Settings::default()).expect("a pool");
            let [a, b] = [world.streams[0], world.streams[1]];
            let block = take(&pool, a, 8);
            let open = gate(&world.host, if pending { b } else { a });
            if pending {
                pool.record_stream(block, b).expect("in use");
            }
            give(&pool, block);
            drop(pool);
            world.host.streams().synchronize(if pending { a } else { b }).expect("it has nothing to do");
            world.device.collect();
            let live = world.trace.live();
            assert!(live.mappings + live.allocations > 0, "{off:?} {pending}: still used");
            drop(open);
            world.device.drain().expect("no stream has failed");
            let live = world.trace.live();
            assert_eq!((live.mappings, live.allocations), (0, 0), "{off:?} {pending}");
            world.end("a pool's end");
        }
    }
}

#[test]
fn addresses_of_lent_chunks_are_not_used_while_their_old_view_is() {
    let world = world(Some(64), &[]);
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let open = gate(&world.host, b);
    let side = take(pool, b, 40);
    give(pool, side);
    let block = take(pool, a, 56);
    give(pool, block);
    let live: Vec<_> = pool.snapshot().segments.iter().map(|s| (s.address.get(), s.size.get())).collect();
    let again = take(pool, b, 40);
    for at in (again.get()..again.get() + (40 << 20)).step_by(1 << 20) {
        let was_live = live.iter().any(|(start, size)| (*start..start + size).contains(&at));
        let was_lent = (side.get()..side.get() + (40 << 20)).contains(&at) && !was_live;
        assert!(!was_lent, "{at:#x} is still used by the stream's old work");
    }
    let stats = pool.stream_stats();
    let lent = |stream| stats.iter().find(|s| s.stream == Some(stream)).map(|s| s.lent);
    let (of_a, of_b, all) = (lent(a).expect("known"), lent(b).expect("known"), pool.stats().lent_chunks);
    assert!(of_a.0 > 0 && of_a.1 > 0, "each lent to the other: {of_a:?} {of_b:?}");
    assert_eq!((of_a.0 + of_b.0, of_a.1 + of_b.1), (all, all));
    drop(open);
    world.end("old views");
}

#[test]
fn plain_blocks_go_to_others_behind_a_wait_and_never_while_a_stream_is_captured() {
    let world = world(Some(64), &["virtual_memory"]);
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let (open, block, small) = (gate(&world.host, b), take(pool, b, 40), take(pool, a, 4));
    give(pool, block);
    world.host.streams().capture_begin(a).expect("captured");
    let before = world.trace.counts();
    assert_eq!(pool.alloc(ByteSize::mib(36), a).map_err(kind), Err(Kind::OutOfDeviceMemory));
    assert_eq!(world.trace.counts().since(&before).of(Call::STREAM_WAIT), 0);
    let graph = world.host.streams().capture_end(a).expect("captured");
    assert_eq!(take(pool, a, 36), block);
    assert_eq!(world.trace.counts().since(&before).of(Call::STREAM_WAIT), 1);
    give(pool, small);
    drop(open);
    world.host.streams().destroy_graph(graph).expect("given up");
    world.end("plain");
}

#[test]
fn a_graphs_stream_is_told_to_wait_for_nobody() {
    for off in BOTH {
        let world = world(Some(64), off);
        let (pool, [a, b, c]) = (&world.pool, [0, 1, 2].map(|i: usize| world.streams[i]));
        pool.begin_capture(GRAPH, Arc::new(move |stream| stream == a)).expect("begun");
        let block = take(pool, a, 8);
        pool.end_capture(GRAPH).expect("begun");
        let open = gate(&world.host, b);
        pool.record_stream(block, b).expect("in use");
        give(pool, block);
        let before = world.trace.counts();
        assert_eq!(pool.alloc(ByteSize::mib(60), c).map_err(kind), Err(Kind::OutOfDeviceMemory));
        assert_eq!(world.trace.counts().since(&before).of(Call::STREAM_WAIT), 0, "{off:?}");
        assert_eq!(pool.stats().bytes.active.current, 8 << 20, "{off:?}");
        drop(open);
        pool.release_pool(GRAPH).expect("its only user");
        world.end("a graph's stream");
    }
}

#[test]
fn access_that_fails_half_way_is_as_before_and_so_for_what_comes() {
    let world = world(None, &[]);
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let both = [0, 1].map(|i| Access { device: Ordinal(i), mode: AccessMode::READ_WRITE });
    let blocks = [take(pool, a, 1), take(pool, a, 20)];
    let failure = Error::new(Kind::DriverError, Operation::None, "on purpose");
    world.fault.fail(Some(Call::SET_ACCESS), 2, 1, failure);
    assert_eq!(pool.set_access(&both).map_err(kind), Err(Kind::DriverError));
    world.fault.clear();
    for block in [blocks[0], blocks[1], take(pool, b, 4)] {
        assert_eq!(world.host.access_at(Ordinal(1), block), Ok(AccessMode::NONE));
    }
    pool.set_access(&both).expect("a retry works");
    assert_eq!(world.host.access_at(Ordinal(1), blocks[1]), Ok(AccessMode::READ_WRITE));
    world.end("access");
}

#[test]
fn when_memory_is_short_chunks_of_the_other_size_are_given_back_and_a_failure_says_all() {
    let settings = Settings {
        small_chunk: ByteSize::mib(2),
        large_chunk: ByteSize::mib(16),
        limit: Some(ByteSize::mib(64)),
        ..Settings::default()
    };
    let world = World::new(2, ByteSize::gib(1), &[], &settings);
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let small: Vec<_> = (0..20).map(|_| take(pool, a, 1)).collect();
    small.into_iter().for_each(|block| give(pool, block));
    let large = take(pool, a, 48);
    assert_eq!((pool.stats().forced_trims, pool.stats().out_of_memory), (1, 0));
    give(pool, large);
    take(pool, b, 32);
    assert_eq!(pool.alloc(ByteSize::mib(64), b).map_err(kind), Err(Kind::OutOfDeviceMemory));
    let (said, stats) = (pool.shortage().expect("a reason"), pool.stats());
    assert!(said.lent_chunks > 0 && said.lent_chunks == stats.lent_chunks, "{said}");
    let free = said.reserved.get() - stats.bytes.allocated.current - stats.spare.get();
    assert_eq!((said.free.get(), said.holders.iter().map(|h| h.free.get()).sum()), (free, free), "{said}");
    world.end("two sizes");
}

#[test]
fn where_no_more_can_be_made_for_any_reason_chunks_are_lent() {
    for kind in [Kind::OutOfDeviceMemory, Kind::OutOfHostMemory, Kind::OutOfFileDescriptors, Kind::MapLimit] {
        let world = world(None, &[]);
        let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
        give(pool, take(pool, b, 48));
        world.fault.fail(Some(Call::CREATE), 1, u64::MAX, Error::new(kind, Operation::None, "no more"));
        take(pool, a, 40);
        assert!(pool.stats().lent_chunks > 0, "{kind:?}");
        world.fault.clear();
        world.end("lent");
    }
}

#[test]
fn addresses_that_were_not_to_be_had_are_not_counted() {
    for nth in [1, 2] {
        let world = world(None, &[]);
        let (pool, a) = (&world.pool, world.streams[0]);
        let failure = Error::new(Kind::OutOfAddressSpace, Operation::None, "on purpose");
        world.fault.fail(Some(Call::RESERVE), nth, 2, failure);
        assert_eq!(pool.alloc(ByteSize(1), a).map_err(kind), Err(Kind::OutOfAddressSpace));
        world.fault.clear();
        assert_eq!((pool.stats().address_space.current, world.trace.live().ranges), (0, 0));
        give(pool, take(pool, a, 1));
        pool.trim().expect("nothing is captured");
        pool.reset_peaks();
        assert_eq!(pool.stats().bytes.reserved.peak, 0);
        world.end("addresses");
    }
}

#[test]
fn a_pin_counts() {
    let world = world(None, &[]);
    let (pool, a) = (&world.pool, world.streams[0]);
    let (block, size) = (take(pool, a, 16), ByteSize::mib(16));
    pool.pin(block, size).and(pool.pin(block, size)).expect("ours");
    give(pool, block);
    pool.unpin(block, size).expect("pinned");
    assert_eq!(pool.trim(), Ok(ByteSize::ZERO), "pinned once more");
    pool.unpin(block, size).expect("pinned");
    assert_eq!(pool.trim(), Ok(size));
    world.end("pins");
}

#[test]
fn pending_blocks_come_back_although_nobody_polls() {
    let world = world(None, &[]);
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let blocks = [0, 1].map(|_| take(pool, a, 4));
    pool.record_stream(blocks[0], b).expect("in use");
    blocks.iter().for_each(|block| give(pool, *block));
    assert_eq!(pool.stats().bytes.active.current, 4 << 20);
    world.host.streams().synchronize(b).expect("run");
    let made = pool.stats().calls.create;
    (0..20).for_each(|_| give(pool, take(pool, a, 4)));
    assert_eq!((pool.stats().bytes.active.current, pool.stats().calls.create), (0, made));
    world.end("pending");
}

#[test]
fn waits_of_the_host_and_peaks_of_all_streams_together_are_counted() {
    let world = world(None, &[]);
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let blocks = [take(pool, a, 40), take(pool, b, 40)];
    blocks.iter().for_each(|block| give(pool, *block));
    give(pool, take(pool, a, 40));
    let peak = pool.stats().bytes.allocated.peak;
    assert!((76 << 20..=80 << 20).contains(&peak), "{peak}");
    for _ in 0..50 {
        let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
        world.host.streams().enqueue(a, Arc::new(pause)).expect("enqueued");
        give(pool, take(pool, a, 40));
        pool.trim().expect("nothing is captured");
        // A busy machine may be so slow that the stream was there first.
        if pool.stats().host_waits > 0 {
            return world.end("waits");
        }
    }
    panic!("no wait was counted");
}
