//! What is waited for before memory is used by others, and when nobody may be made to wait.

mod pool_support;

use gvmm::driver::testing::Call;
use gvmm::driver::{CopySlice, Driver, Ordinal, Stream};
use gvmm::error::Kind;
use gvmm::pool::{Pool, PoolId, Settings};
use gvmm::units::{ByteSize, DevicePtr};
use pool_support::{World, gate, opens_soon};
use std::sync::{Arc, Mutex};

const MIB: fn(u64) -> ByteSize = ByteSize::mib;

fn world(limit: u64) -> (World, [Stream; 3]) {
    let settings = Settings { limit: Some(MIB(limit)), ..Settings::default() };
    let world = World::new(3, ByteSize::gib(1), &[], &settings);
    let streams = world.streams[..].try_into().expect("three");
    (world, streams)
}

/// A block of `stream` that was freed while `user` still uses it.
fn pending(pool: &Pool, stream: Stream, user: Stream, size: ByteSize) -> DevicePtr {
    let block = pool.alloc(size, stream).expect("memory");
    pool.record_stream(block, user).expect("in use");
    pool.free(block).expect("in use");
    block
}

fn free<const N: usize>(pool: &Pool, blocks: [DevicePtr; N]) {
    for block in blocks {
        pool.free(block).expect("in use");
    }
}

fn active(pool: &Pool) -> u64 {
    pool.stats().bytes.active.current
}

#[test]
fn no_stream_is_made_to_wait_while_another_captures() {
    let (world, [a, b, c]) = world(64);
    let pool = &world.pool;
    let open = gate(&world.host, b);
    let block = pending(pool, a, b, MIB(40));
    pool.free(pool.alloc(MIB(4), c).expect("memory")).expect("in use");
    world.host.streams().capture_begin(c).expect("captured");
    let before = world.trace.counts();
    assert_eq!(pool.alloc(MIB(40), a).map_err(|e| e.kind), Err(Kind::OutOfDeviceMemory));
    assert_eq!(world.trace.counts().since(&before).of(Call::STREAM_WAIT), 0);
    assert_eq!(active(pool), MIB(40).get());
    let graph = world.host.streams().capture_end(c).expect("captured");
    assert_eq!(pool.alloc(MIB(40), a), Ok(block), "afterwards the stream waits");
    world.host.streams().destroy_graph(graph).expect("given up");
    drop(open);
    world.end("capture");
}

#[test]
fn without_a_limit_nothing_moves_while_a_stream_captures() {
    for captured in [false, true] {
        let world = World::new(3, ByteSize::gib(1), &[], &Settings::default());
        let (pool, a, c) = (&world.pool, world.streams[0], world.streams[2]);
        pool.free(pool.alloc(MIB(4), c).expect("memory")).expect("in use");
        let [first, kept, last] = [64, 16, 64].map(|size| pool.alloc(MIB(size), a).expect("memory"));
        free(pool, [first, last]);
        if captured {
            world.host.streams().capture_begin(c).expect("captured");
        }
        // No run of what is there is as long, and a chunk more is more than was ever in use.
        pool.alloc(MIB(80), a).expect("memory");
        assert_eq!(pool.stats().lent_chunks, u64::from(!captured));
        if captured {
            let graph = world.host.streams().capture_end(c).expect("captured");
            world.host.streams().destroy_graph(graph).expect("given up");
        }
        pool.free(kept).expect("in use");
        world.end("shifted");
    }
}

#[test]
fn what_an_ended_stream_still_uses_is_lent_once_it_has_passed() {
    let (world, [a, b, _]) = world(64);
    let (pool, host) = (&world.pool, &world.host);
    let words = host.allocate(Ordinal(0), ByteSize(8)).expect("memory");
    // With addresses of its own, it is not given the other's.
    pool.alloc(MIB(4), b).expect("memory");
    let block = pool.alloc(MIB(40), a).expect("memory");
    let open = gate(host, a);
    host.copy(Ordinal(0), a, &[CopySlice { dst: block, src: words, bytes: 8 }]).expect("copied");
    pool.free(block).expect("in use");
    pool.forget_stream(a).expect("known");
    opens_soon(open);
    pool.alloc(MIB(40), b).expect("once it has passed");
    assert_eq!((pool.stats().stream_waits, pool.stats().host_waits), (0, 1));
    host.streams().synchronize(a).expect("what it wrote to was there");
    host.deallocate(Ordinal(0), words).expect("given back");
    world.end("ended");
}

#[test]
fn a_graph_s_stream_that_has_ended_is_not_waited_for_and_its_memory_is_nobody_else_s() {
    let (world, [a, b, _]) = world(64);
    let pool = &world.pool;
    pool.begin_capture(PoolId(1, 0), Arc::new(move |stream| stream == a)).expect("begun");
    pool.free(pool.alloc(MIB(40), a).expect("memory")).expect("in use");
    pool.end_capture(PoolId(1, 0)).expect("begun");
    let open = gate(&world.host, a);
    pool.forget_stream(a).expect("known");
    opens_soon(open);
    assert_eq!(pool.alloc(MIB(40), b).map_err(|e| e.kind), Err(Kind::OutOfDeviceMemory));
    assert_eq!(pool.stats().host_waits, 0, "its chunks would not be lent");
    pool.release_pool(PoolId(1, 0)).expect("one");
    pool.alloc(MIB(40), b).expect("without graphs they are");
    world.end("a graph's stream");
}

#[test]
fn what_a_callback_frees_is_used_behind_a_wait_and_one_that_allocates_is_not_asked_again() {
    let (world, [a, b, c]) = world(64);
    let pool = &world.pool;
    let block = pool.alloc(MIB(40), c).expect("memory");
    pool.record_stream(block, b).expect("in use");
    let open = gate(&world.host, b);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (inner, told) = (Arc::downgrade(pool), Arc::clone(&asked));
    pool.on_pressure(Arc::new(move |size| {
        let Some(pool) = inner.upgrade() else { return };
        let more = pool.alloc(MIB(48), a).map_err(|e| e.kind);
        told.lock().expect("no thread has failed").push((size, more));
        pool.free(block).expect("in use");
    }));
    pool.alloc(MIB(40), a).expect("what the other stream had");
    assert_eq!(*asked.lock().expect("no thread has failed"), [(MIB(40), Err(Kind::OutOfDeviceMemory))]);
    // The block's stream for its user, and then the new one's for the block's.
    assert_eq!((pool.stats().stream_waits, pool.stats().host_waits), (2, 0));
    drop(open);
    world.end("callback");
}

#[test]
fn a_stream_waits_for_no_more_than_it_must() {
    let (world, [a, b, c]) = world(64);
    let pool = &world.pool;
    let open = [b, c].map(|stream| gate(&world.host, stream));
    let [first, _] = [b, c].map(|user| pending(pool, a, user, MIB(24)));
    assert_eq!(pool.alloc(MIB(20), a), Ok(first));
    assert_eq!((pool.stats().stream_waits, pool.stats().host_waits), (1, 0), "not for the other's user");
    drop(open);
    world.end("oldest");
}

#[test]
fn all_who_use_a_block_are_waited_for() {
    let (world, [a, b, c]) = world(64);
    let (pool, host) = (&world.pool, &world.host);
    let open = [b, c].map(|stream| gate(host, stream));
    let block = pool.alloc(MIB(40), a).expect("memory");
    let words = host.allocate(Ordinal(0), ByteSize(16)).expect("memory");
    host.write(Ordinal(0), words, &[1; 16]).expect("written");
    let copy = |stream, dst, src| {
        host.copy(Ordinal(0), stream, &[CopySlice { dst, src, bytes: 8 }]).expect("copied")
    };
    // Both write late into the old block; what is written behind the wait must win.
    for (at, user) in [(0, b), (8, c)] {
        pool.record_stream(block, user).expect("in use");
        copy(user, DevicePtr(block.get() + at), words);
    }
    pool.free(block).expect("in use");
    assert_eq!(pool.alloc(MIB(40), a), Ok(block));
    assert_eq!(pool.stats().stream_waits, 2);
    let zero = host.allocate(Ordinal(0), ByteSize(16)).expect("memory");
    host.write(Ordinal(0), zero, &[0; 16]).expect("written");
    for at in [0, 8] {
        copy(a, DevicePtr(block.get() + at), zero);
    }
    let [first, second] = open;
    drop(first);
    host.streams().synchronize(b).expect("run");
    drop(second);
    for stream in [b, c, a] {
        host.streams().synchronize(stream).expect("run");
    }
    let mut bytes = [7; 16];
    host.read(Ordinal(0), block, &mut bytes).expect("read");
    assert_eq!(bytes, [0; 16]);
    for at in [words, zero] {
        host.deallocate(Ordinal(0), at).expect("given back");
    }
    world.end("all users");
}

#[test]
fn a_use_after_its_own_stream_was_forgotten_counts_too() {
    let (world, [a, b, _]) = world(64);
    let pool = &world.pool;
    let block = pool.alloc(MIB(40), a).expect("memory");
    pool.forget_stream(a).expect("known");
    // As a new stream would that the driver gives the old one's handle.
    let open = gate(&world.host, a);
    pool.free_on(block, a).expect("in use");
    pool.poll();
    assert_eq!(active(pool), MIB(40).get());
    drop(open);
    world.host.streams().synchronize(a).expect("run");
    pool.poll();
    assert_eq!(active(pool), 0);
    pool.alloc(MIB(56), b).expect("it goes to others");
    world.end("forgotten");
}

/// A pool within 64 MiB that has used 128 MiB before, so that free chunks of a stream's own are not moved early.
fn after_better_days() -> (World, [Stream; 3]) {
    let (world, streams) = world(128);
    world.pool.free(world.pool.alloc(MIB(128), streams[0]).expect("memory")).expect("in use");
    world.pool.trim().expect("trimmed");
    world.pool.set_limit(Some(MIB(64))).expect("nothing is in use");
    (world, streams)
}

#[test]
fn a_stream_s_own_free_chunks_are_taken_first_and_nobody_waits() {
    let (world, [a, b, _]) = after_better_days();
    let pool = &world.pool;
    let [first, kept, theirs] =
        [(20, a), (4, a), (20, b)].map(|(size, of)| pool.alloc(MIB(size), of).expect("memory"));
    let open = gate(&world.host, b);
    free(pool, [first, theirs]);
    let large = pool.alloc(MIB(40), a).expect("memory");
    assert_eq!((pool.stats().lent_chunks, pool.stats().stream_waits), (5, 0));
    free(pool, [kept, large]);
    drop(open);
    world.end("own first");
}

#[test]
fn then_those_of_streams_that_have_ended() {
    let (world, [a, b, c]) = after_better_days();
    let pool = &world.pool;
    pool.alloc(MIB(4), a).expect("memory");
    let [theirs, ended] = [b, c].map(|of| pool.alloc(MIB(20), of).expect("memory"));
    let kept = pool.alloc(MIB(4), c).expect("memory");
    let open = gate(&world.host, b);
    free(pool, [theirs, ended]);
    pool.forget_stream(c).expect("known");
    world.host.streams().synchronize(c).expect("run");
    pool.alloc(MIB(32), a).expect("memory");
    assert_eq!((pool.stats().lent_chunks, pool.stats().stream_waits), (4, 0));
    pool.free(kept).expect("in use");
    drop(open);
    world.end("ended first");
}

#[test]
fn addresses_of_a_stream_that_has_ended_go_on_behind_what_it_has_enqueued() {
    let (world, [a, b, _]) = world(64);
    let (pool, host) = (&world.pool, &world.host);
    let words = host.allocate(Ordinal(0), ByteSize(16)).expect("memory");
    host.write(Ordinal(0), words, &[[1; 8], [2; 8]].concat()).expect("written");
    let block = pool.alloc(MIB(40), a).expect("memory");
    let copy = |stream, at| {
        let slice = CopySlice { dst: block, src: DevicePtr(words.get() + at), bytes: 8 };
        host.copy(Ordinal(0), stream, &[slice]).expect("copied");
    };
    let open = gate(host, a);
    copy(a, 0);
    pool.free(block).expect("in use");
    pool.forget_stream(a).expect("known");
    assert_eq!(pool.alloc(MIB(40), b), Ok(block));
    copy(b, 8);
    drop(open);
    for stream in [a, b] {
        host.streams().synchronize(stream).expect("run");
    }
    let mut bytes = [0; 8];
    host.read(Ordinal(0), block, &mut bytes).expect("read");
    assert_eq!(bytes, [2; 8]);
    assert_eq!(world.trace.counts().of(Call::STREAM_WAIT), 1);
    host.deallocate(Ordinal(0), words).expect("given back");
    world.end("handed on");
}

#[test]
fn a_program_that_never_does_the_same_again_gets_a_chunk_more_now_and_then() {
    let world = World::new(1, ByteSize::gib(64), &[], &Settings::default());
    let (pool, stream) = (&world.pool, world.streams[0]);
    let (mut held, mut total, mut random) = (Vec::new(), 0, 1_u64);
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let (mut made, mut moved_then, mut most) = (0, 0, 0);
    for _ in 0..4000 {
        let size = MIB(2 + draw(300) as u64);
        while total + size.get() > ByteSize::gib(5).get() {
            let (block, size) = held.swap_remove(draw(held.len()));
            pool.free(block).expect("in use");
            total -= ByteSize::get(size);
        }
        held.push((pool.alloc(size, stream).expect("memory"), size));
        total += size.get();
        let stats = pool.stats();
        if stats.calls.create != made {
            (made, moved_then) = (stats.calls.create, stats.lent_chunks);
        }
        most = most.max(stats.lent_chunks - moved_then);
    }
    let moved = pool.stats().lent_chunks;
    assert!(moved > 256, "{moved} chunks moved");
    // The last move of a run may be of as many chunks as the largest block has.
    assert!(most <= 128 + 20, "{most} chunks moved and none was made");
    world.end("restless");
}
