//! Streams: what is used again when, capture, pools of their own, streams that end.

mod pool_support;

use gvmm::driver::testing::Call;
use gvmm::driver::{CopySlice, Driver, Ordinal, Stream};
use gvmm::error::Kind;
use gvmm::pool::{Pool, PoolId, Settings};
use gvmm::units::{ByteSize, DevicePtr};
use pool_support::{World, gate};
use std::sync::Arc;

const MIB4: ByteSize = ByteSize::mib(4);

fn world(limit: Option<u64>) -> World {
    let limit = limit.map(ByteSize::mib);
    World::new(3, ByteSize::gib(1), &[], &Settings { limit, ..Settings::default() })
}

fn take(pool: &Pool, stream: Stream, mib: u64) -> DevicePtr {
    pool.alloc(ByteSize::mib(mib), stream).expect("memory")
}

#[test]
fn the_same_stream_uses_a_block_again_at_once_and_others_have_their_own() {
    let world = world(None);
    let (pool, [a, b, _]) =
        (&world.pool, world.streams[..].try_into().map(|s: [Stream; 3]| s).expect("three"));
    let first = take(pool, a, 4);
    pool.free(first).expect("in use");
    let made = pool.stats().calls.create;
    assert_ne!(take(pool, b, 4), first);
    let made_for_b = pool.stats().calls.create;
    assert!(made_for_b > made, "another stream's memory is not taken while there is other");
    assert_eq!(take(pool, a, 4), first);
    assert_eq!(pool.stats().calls.create, made_for_b);
    drop(gate(&world.host, a));
    world.end("same stream");
}

#[test]
fn a_block_that_another_stream_uses_waits_for_its_event_and_is_polled() {
    let world = world(None);
    let (pool, a, b) = (&world.pool, world.streams[0], world.streams[1]);
    let block = take(pool, a, 4);
    pool.record_stream(block, b).expect("in use");
    pool.record_stream(block, b).expect("twice is once");
    let open = gate(&world.host, b);
    pool.free(block).expect("in use");
    assert_eq!(pool.stats().bytes.active.current, MIB4.get(), "still active");
    assert_eq!(pool.stats().bytes.allocated.current, 0);
    pool.poll();
    assert_ne!(take(pool, a, 4), block, "not before its event");
    drop(open);
    world.host.streams().synchronize(b).expect("run");
    pool.poll();
    assert_eq!(take(pool, a, 4), block);
    assert_eq!(pool.stats().calls.timeline_writes, 1, "one event for one stream");
    world.end("event");
}

#[test]
fn freed_on_another_stream_counts_as_used_there() {
    let world = world(None);
    let (pool, a, b) = (&world.pool, world.streams[0], world.streams[1]);
    let block = take(pool, a, 4);
    let open = gate(&world.host, b);
    pool.free_on(block, b).expect("in use");
    assert_ne!(take(pool, a, 4), block);
    assert_eq!(pool.free_on(block, b).map_err(|e| e.kind), Err(Kind::InvalidArgument));
    drop(open);
    world.end("freed on another stream");
}

#[test]
fn under_pressure_a_pending_block_is_used_behind_a_wait_on_the_device() {
    let world = world(Some(64));
    let (pool, a, b) = (&world.pool, world.streams[0], world.streams[1]);
    let block = take(pool, a, 40);
    pool.record_stream(block, b).expect("in use");
    let open = gate(&world.host, b);
    pool.free(block).expect("in use");
    assert_eq!(take(pool, a, 40), block, "the stream waits, and nobody on the host does");
    assert_eq!((pool.stats().stream_waits, pool.stats().host_waits), (1, 0));
    drop(open);
    world.end("folded");
}

#[test]
fn a_side_stream_does_not_keep_its_cache() {
    let world = world(Some(64));
    let (pool, a, b) = (&world.pool, world.streams[0], world.streams[1]);
    let open = gate(&world.host, b);
    let side = take(pool, b, 40);
    pool.free(side).expect("in use");
    let before = world.trace.counts();
    let block = take(pool, a, 56);
    let stats = pool.stats();
    assert!(stats.lent_chunks >= 8 && stats.stream_waits == 1, "{stats:?}");
    // As many calls as chunks are missing, one of each else, and a question a stream before each step.
    let made = world.trace.counts().since(&before);
    let of = |call| made.of(call);
    assert_eq!((of(Call::MAP), of(Call::CREATE)), (14, 14 - stats.lent_chunks));
    assert_eq!((of(Call::SET_ACCESS), of(Call::TIMELINE_WRITE), of(Call::STREAM_WAIT)), (1, 1, 1));
    assert_eq!((of(Call::UNMAP), of(Call::RELEASE), of(Call::TIMELINE_WAIT)), (0, 0, 0));
    assert!(of(Call::IS_CAPTURING) <= 2 * 2 && of(Call::TIMELINE_READ) <= 4, "{made:?}");
    assert_eq!((stats.host_waits, stats.forced_trims), (0, 0));
    // The old view is there until its stream has passed.
    assert_eq!(world.trace.live().mappings as u64, 16 + stats.lent_chunks);
    drop(open);
    world.host.streams().synchronize(b).expect("run");
    pool.poll();
    assert_eq!(world.trace.live().mappings, 16);
    pool.free(block).expect("in use");
    world.end("side stream");
}

#[test]
fn while_a_stream_captures_nothing_is_unmapped_lent_or_waited_for() {
    let world = world(Some(64));
    let (pool, a, b) = (&world.pool, world.streams[0], world.streams[1]);
    pool.free(take(pool, b, 40)).expect("in use");
    world.host.streams().capture_begin(a).expect("captured");
    let before = world.trace.counts();
    let kind = |e: gvmm::error::Error| e.kind;
    assert_eq!(pool.alloc(ByteSize::mib(56), a).map_err(kind), Err(Kind::OutOfDeviceMemory));
    assert_eq!(pool.shortage().map(|s| s.captures), Some(1));
    assert_eq!(pool.trim().map_err(kind), Err(Kind::StreamCapturing));
    let small = take(pool, a, 8);
    let made = world.trace.counts().since(&before);
    let of = |call| made.of(call);
    assert_eq!((of(Call::UNMAP), of(Call::STREAM_WAIT), of(Call::TIMELINE_WAIT)), (0, 0, 0));
    // A use that is recorded on a capturing stream waits until it can be.
    let other = take(pool, b, 4);
    pool.record_stream(other, a).expect("in use");
    pool.free(other).expect("in use");
    pool.poll();
    assert!(pool.stats().bytes.active.current >= MIB4.get() + ByteSize::mib(8).get());
    let graph = world.host.streams().capture_end(a).expect("captured");
    pool.poll();
    world.host.streams().synchronize(a).expect("run");
    pool.poll();
    assert_eq!(pool.stats().bytes.active.current, ByteSize::mib(8).get());
    pool.free(small).expect("in use");
    take(pool, a, 56);
    world.host.streams().destroy_graph(graph).expect("given up");
    world.end("capture");
}

#[test]
fn where_a_stream_cannot_say_whether_it_captures_the_failure_is_the_drivers() {
    let world = world(Some(64));
    let (pool, a, b) = (&world.pool, world.streams[0], world.streams[1]);
    pool.free(take(pool, b, 40)).expect("in use");
    let lost = |times| {
        let error = gvmm::error::Error::new(Kind::DeviceLost, gvmm::error::Operation::Query, "made up");
        world.fault.fail(Some(Call::IS_CAPTURING), 1, times, error);
    };
    let failed = |e: gvmm::error::Error| e.kind;
    let before = (pool.stats().bytes.reserved.current, world.trace.live());
    lost(u64::MAX);
    assert_eq!(pool.trim().map_err(failed), Err(Kind::DeviceLost));
    assert_eq!(pool.set_limit(Some(ByteSize::mib(8))).map_err(failed), Err(Kind::DeviceLost));
    assert_eq!(pool.stats().limit, ByteSize::mib(64), "as before");
    assert_eq!(pool.alloc(ByteSize::mib(56), a).map_err(failed), Err(Kind::DeviceLost));
    assert_eq!((pool.stats().out_of_memory, pool.shortage()), (0, None));
    assert_eq!((pool.stats().bytes.reserved.current, world.trace.live().blocks), (before.0, before.1.blocks));
    // One that captures decides, whatever another says.
    world.fault.clear();
    world.host.streams().capture_begin(a).expect("captured");
    // It is b that is asked first.
    lost(1);
    assert_eq!(pool.trim().map_err(failed), Err(Kind::StreamCapturing));
    world.fault.clear();
    let graph = world.host.streams().capture_end(a).expect("captured");
    world.host.streams().destroy_graph(graph).expect("given up");
    // A retry works.
    pool.free(take(pool, a, 56)).expect("in use");
    assert!(pool.trim().is_ok());
    world.end("cannot say");
}

#[test]
fn a_private_pool_lends_nothing_before_its_last_graph_is_released() {
    let world = world(Some(64));
    let (pool, a, b) = (&world.pool, world.streams[0], world.streams[1]);
    let (id, kind) = (PoolId(7, 0), |e: gvmm::error::Error| e.kind);
    let mine = Arc::new(move |stream: Stream| stream == a);
    pool.begin_capture(id, mine.clone()).expect("begun");
    assert_eq!(pool.begin_capture(id, mine.clone()).map_err(kind), Err(Kind::WrongState));
    let block = take(pool, a, 40);
    let outside = take(pool, b, 4);
    assert_eq!(pool.find(block).map(|place| place.pool), Some(id));
    assert_eq!(pool.find(outside).map(|place| place.pool), Some(PoolId::DEFAULT));
    pool.end_capture(id).expect("begun");
    assert_eq!(pool.end_capture(id).map_err(kind), Err(Kind::WrongState));
    // A second graph in the same pool.
    pool.begin_capture(id, mine).expect("begun");
    pool.free(block).expect("in use");
    assert_eq!(take(pool, a, 40), block, "its own blocks it uses again");
    pool.free(block).expect("in use");
    pool.end_capture(id).expect("begun");
    assert_ne!(take(pool, a, 8), block, "outside, the stream has other memory");
    for left in [1, 0] {
        assert_eq!(pool.alloc(ByteSize::mib(40), b).map_err(kind), Err(Kind::OutOfDeviceMemory));
        assert_eq!(pool.stats().lent_chunks, 0);
        pool.release_pool(id).expect("there is one more");
        let _ = left;
    }
    take(pool, b, 40);
    assert!(pool.stats().lent_chunks > 0);
    assert_eq!(pool.release_pool(id).map_err(kind), Err(Kind::InvalidArgument));
    assert_eq!(pool.release_pool(PoolId::DEFAULT).map_err(kind), Err(Kind::InvalidArgument));
    let never = Arc::new(|_: Stream| false);
    assert_eq!(pool.begin_capture(PoolId::DEFAULT, never).map_err(kind), Err(Kind::InvalidArgument));
    world.end("private pool");
}

#[test]
fn a_stream_that_ends_leaves_its_memory_to_others() {
    let world = world(Some(64));
    let (pool, a) = (&world.pool, world.streams[0]);
    let streams = world.host.streams();
    let ending = streams.create(Ordinal(0)).expect("a stream");
    let (kept, freed) = (take(pool, ending, 8), take(pool, ending, 40));
    pool.free(freed).expect("in use");
    pool.forget_stream(ending).expect("known");
    streams.destroy(ending).expect("ended");
    let large = take(pool, a, 48);
    assert_eq!(pool.find(kept).map(|place| place.address), Some(kept), "what is in use stays");
    pool.free(kept).expect("in use");
    pool.free(large).expect("in use");
    take(pool, a, 60);
    let stats = pool.stream_stats();
    assert!(stats.iter().any(|s| s.stream.is_none() && s.bytes.allocated.current == 0));
    world.end("ended stream");
}

#[test]
fn a_stream_destroyed_without_a_word_harms_nobody() {
    let world = world(Some(64));
    let (pool, a) = (&world.pool, world.streams[0]);
    let streams = world.host.streams();
    let gone = streams.create(Ordinal(0)).expect("a stream");
    let (kept, freed, shared) = (take(pool, gone, 8), take(pool, gone, 16), take(pool, a, 8));
    pool.record_stream(shared, gone).expect("in use");
    pool.free(freed).expect("in use");
    streams.destroy(gone).expect("ended");
    pool.free(shared).expect("in use");
    take(pool, a, 56);
    pool.free(kept).expect("in use");
    take(pool, a, 8);
    world.end("gone stream");
}

#[test]
fn addresses_are_counted_bounded_and_used_again() {
    let settings =
        Settings { segment: ByteSize::gib(1), address_limit: ByteSize::gib(4), ..Settings::default() };
    let world = World::new(3, ByteSize::gib(1), &[], &settings);
    let (pool, streams) = (&world.pool, world.host.streams());
    take(pool, world.streams[0], 2);
    for _ in 0..5 {
        let stream = streams.create(Ordinal(0)).expect("a stream");
        let block = take(pool, stream, 2);
        pool.free(block).expect("in use");
        pool.forget_stream(stream).expect("known");
        streams.destroy(stream).expect("ended");
    }
    assert_eq!(pool.stats().address_space.current, ByteSize::gib(4).get());
    assert_eq!(pool.stats().bytes.reserved.current, ByteSize::mib(32).get(), "and so is their memory");
    take(pool, world.streams[1], 2);
    let full = pool.alloc(MIB4, world.streams[2]).map_err(|e| e.kind);
    assert_eq!(full, Err(Kind::OutOfAddressSpace));
    let shortage = pool.shortage().expect("a reason");
    let gib = ByteSize::gib;
    assert_eq!((shortage.asked, shortage.stream), (MIB4, world.streams[2]));
    assert_eq!(
        (shortage.addresses, shortage.address_limit, shortage.addresses_of_stream),
        (gib(4), gib(4), gib(2))
    );
    let held: Vec<_> = shortage.holders.iter().map(|holder| (holder.stream, holder.allocated)).collect();
    assert_eq!(held, [0, 1].map(|i: usize| (Some(world.streams[i]), ByteSize::mib(2))));
    let said = shortage.to_string();
    assert!(said.contains("4 GiB of 4 GiB of addresses reserved, 2 GiB for a stream"), "{said}");
    assert!(said.contains(&format!("; stream {:#x}: 2 MiB in use", world.streams[0].0)), "{said}");
    world.end("addresses");
}

#[test]
fn graphs_are_right_each_time_while_chunks_move_between_their_runs() {
    let world = world(Some(64));
    let (pool, host, a, b) = (&world.pool, &world.host, world.streams[0], world.streams[1]);
    let words = host.allocate(Ordinal(0), ByteSize(24)).expect("memory");
    let (value, out) = (words, DevicePtr(words.get() + 8));
    let copy = |dst, src| host.copy(Ordinal(0), a, &[CopySlice { dst, src, bytes: 8 }]).expect("copied");
    host.streams().capture_begin(a).expect("captured");
    pool.begin_capture(PoolId(1, 1), Arc::new(move |stream| stream == a)).expect("begun");
    let inner = take(pool, a, 8);
    copy(inner, value);
    copy(out, inner);
    // Free in the books from here on, yet each run writes there.
    pool.free(inner).expect("in use");
    pool.end_capture(PoolId(1, 1)).expect("begun");
    let graph = host.streams().capture_end(a).expect("captured");
    for run in 0..1000_u64 {
        let (stream, other) = if run % 2 == 0 { (a, b) } else { (b, a) };
        let block = take(pool, stream, 40);
        host.write(Ordinal(0), value, &run.to_le_bytes()).expect("written");
        host.streams().launch(graph, a).expect("launched");
        let own = CopySlice { dst: block, src: value, bytes: 8 };
        host.copy(Ordinal(0), stream, &[own]).expect("copied");
        pool.free(block).expect("in use");
        pool.free(take(pool, other, 36)).expect("in use");
        host.streams().synchronize(a).expect("right addresses");
        let mut bytes = [0; 8];
        host.read(Ordinal(0), out, &mut bytes).expect("read");
        assert_eq!(u64::from_le_bytes(bytes), run);
    }
    assert!(pool.stats().lent_chunks > 1000, "chunks moved");
    let own = pool.stream_stats().into_iter().find(|s| s.pool == PoolId(1, 1)).expect("its pool");
    assert_eq!((own.lent.0, own.bytes.reserved.current), (0, ByteSize::mib(8).get()), "none of the graph's");
    host.streams().destroy_graph(graph).expect("given up");
    pool.release_pool(PoolId(1, 1)).expect("one");
    host.deallocate(Ordinal(0), words).expect("given back");
    world.end("graphs");
}
