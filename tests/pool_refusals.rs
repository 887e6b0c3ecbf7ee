//! Bad input: a status, and nothing lost.

mod pool_support;

use gvmm::driver::{Access, AccessMode, Driver, Ordinal, Stream};
use gvmm::error::{Error, Kind};
use gvmm::pool::{ChunkIndex, EventKind, ExpandableSegment, Pool, Settings};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::Device;
use pool_support::{World, gate};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn world(settings: &Settings) -> World {
    World::new(2, ByteSize::gib(1), &[], settings)
}

const fn kind(e: Error) -> Kind {
    e.kind
}

#[test]
fn sizes_that_cannot_be() {
    let world = world(&Settings::default());
    let (pool, stream) = (&world.pool, world.streams[0]);
    for size in [0, u64::MAX, u64::MAX - 511, 1 << 63] {
        assert_eq!(pool.alloc(ByteSize(size), stream).map_err(kind), Err(Kind::InvalidSize), "{size}");
    }
    assert_eq!(pool.alloc(ByteSize::gib(2), stream).map_err(kind), Err(Kind::OutOfAddressSpace));
    assert_eq!(pool.alloc(ByteSize::gib(1), stream).map(|_| ()), Ok(()));
    assert_eq!(pool.stats().allocations(), 1);
    world.end("sizes");
}

#[test]
fn addresses_that_are_nobody_s() {
    let world = world(&Settings::default());
    let (pool, stream) = (&world.pool, world.streams[0]);
    let other = Pool::new(&world.device, &Settings::default()).expect("a pool");
    for size in [ByteSize(100), ByteSize::mib(3)] {
        let block = pool.alloc(size, stream).expect("memory");
        let inside = DevicePtr(block.get() + 1);
        for address in [DevicePtr::NULL, DevicePtr(u64::MAX), inside, DevicePtr(block.get() + 512)] {
            assert_eq!(pool.free(address).map_err(kind), Err(Kind::InvalidArgument));
        }
        assert_eq!(other.free(block).map_err(kind), Err(Kind::InvalidArgument), "another pool's");
        assert_eq!(pool.find(inside).map(|place| place.address), Some(block));
        assert_eq!(pool.free(block), Ok(()));
        assert_eq!(pool.free(block).map_err(kind), Err(Kind::InvalidArgument), "freed already");
        assert_eq!(pool.record_stream(block, stream).map_err(kind), Err(Kind::InvalidArgument));
        assert_eq!(pool.find(block), None);
    }
    assert_eq!(pool.stats().frees(), 2);
    drop(other);
    world.end("addresses");
}

#[test]
fn limits_and_fractions() {
    let world = world(&Settings::default());
    let (pool, stream) = (&world.pool, world.streams[0]);
    let block = pool.alloc(ByteSize::mib(100), stream).expect("memory");
    let free = pool.alloc(ByteSize::mib(50), stream).expect("memory");
    pool.free(free).expect("in use");
    for fraction in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
        assert_eq!(pool.set_fraction(fraction).map_err(kind), Err(Kind::InvalidArgument), "{fraction}");
    }
    assert_eq!(pool.set_fraction(0.05).map_err(kind), Err(Kind::InUse), "below what is in use");
    assert_eq!(pool.set_limit(Some(ByteSize::ZERO)).map_err(kind), Err(Kind::InvalidSize));
    assert_eq!(pool.stats().limit, ByteSize(u64::MAX), "nothing has changed");
    pool.set_fraction(0.125).expect("128 MiB");
    assert_eq!(pool.stats().limit, ByteSize::mib(128));
    assert!(pool.stats().bytes.reserved.current <= ByteSize::mib(128).get(), "what is beyond is given back");
    assert_eq!(pool.alloc(ByteSize::mib(50), stream).map_err(kind), Err(Kind::OutOfDeviceMemory));
    let shortage = pool.shortage().expect("a reason");
    assert_eq!((shortage.asked, shortage.limit), (ByteSize::mib(50), ByteSize::mib(128)));
    assert_eq!(shortage.holders[0].allocated, ByteSize::mib(100));
    pool.set_limit(None).expect("none");
    let again = pool.alloc(ByteSize::mib(50), stream).expect("memory");
    pool.free(again).and(pool.free(block)).expect("in use");
    world.end("limits");
}

#[test]
fn callbacks_are_asked_last() {
    let world = world(&Settings { limit: Some(ByteSize::mib(64)), ..Settings::default() });
    let (pool, stream) = (&world.pool, world.streams[0]);
    let held = Arc::new(AtomicU64::new(pool.alloc(ByteSize::mib(40), stream).expect("memory").get()));
    let asked = Arc::new(AtomicU64::new(0));
    let (weak, shared, count) = (Arc::downgrade(pool), Arc::clone(&held), Arc::clone(&asked));
    pool.on_pressure(Arc::new(move |size| {
        count.fetch_add(size.get(), Ordering::Relaxed);
        let block = DevicePtr(shared.swap(0, Ordering::Relaxed));
        if let Some(pool) = weak.upgrade().filter(|_| !block.is_null()) {
            pool.free(block).expect("in use");
        }
    }));
    let block = pool.alloc(ByteSize::mib(50), stream).expect("the callback freed some");
    assert_eq!(asked.load(Ordering::Relaxed), ByteSize::mib(50).get());
    assert_eq!(pool.alloc(ByteSize::mib(50), stream).map_err(kind), Err(Kind::OutOfDeviceMemory));
    assert_eq!(pool.stats().out_of_memory, 1);
    pool.free(block).expect("in use");
    world.end("callbacks");
}

#[test]
fn settings_that_do_not_fit_and_devices_that_cannot() {
    let plain = world(&Settings::default());
    for chunk in [1, 1 << 20, (2 << 20) + 4096] {
        let settings = Settings { large_chunk: ByteSize(chunk), ..Settings::default() };
        assert_eq!(Pool::new(&plain.device, &settings).map(|_| ()).map_err(kind), Err(Kind::InvalidSize));
    }
    let settings = Settings { small_chunk: ByteSize::gib(4096), ..Settings::default() };
    assert_eq!(Pool::new(&plain.device, &settings).map(|_| ()).map_err(kind), Err(Kind::InvalidSize));
    let config = gvmm::config::HostConfig {
        caps_off: vec!["virtual_memory".to_owned()],
        ..gvmm::config::HostConfig::default()
    };
    let host = Arc::new(gvmm::driver::host::HostDriver::new(config, None).expect("a driver"));
    let device = Device::open(host, Ordinal(0)).expect("a device");
    let access = [0, 1].map(|i| Access { device: Ordinal(i), mode: AccessMode::READ_WRITE }).to_vec();
    let refused = Pool::new(&device, &Settings { access, ..Settings::default() }).map(|_| ()).map_err(kind);
    assert!(matches!(refused, Err(Kind::Unsupported | Kind::NoDevice)), "plain memory is for its own device");
    plain.end("settings");
}

#[test]
fn pinned_chunks_stay() {
    let world = world(&Settings { limit: Some(ByteSize::mib(64)), ..Settings::default() });
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let block = pool.alloc(ByteSize::mib(48), a).expect("memory");
    pool.pin(block, ByteSize::mib(48)).expect("ours");
    pool.free(block).expect("in use");
    assert_eq!(pool.alloc(ByteSize::mib(40), b).map_err(kind), Err(Kind::OutOfDeviceMemory));
    assert_eq!((pool.trim(), pool.stats().lent_chunks), (Ok(ByteSize::ZERO), 0));
    pool.unpin(block, ByteSize::mib(48)).expect("pinned");
    assert_eq!(pool.unpin(block, ByteSize::mib(48)).map_err(kind), Err(Kind::WrongState));
    assert_eq!(pool.pin(DevicePtr(1), ByteSize(1)).map_err(kind), Err(Kind::InvalidArgument));
    assert_eq!(pool.pin(block, ByteSize(u64::MAX)).map_err(kind), Err(Kind::OutOfRange));
    pool.alloc(ByteSize::mib(40), b).expect("memory");
    world.end("pinned");
}

#[test]
fn peers_get_access_before_and_after_the_memory_exists() {
    let both = |mode| [0, 1].map(|i| Access { device: Ordinal(i), mode });
    let world = world(&Settings { access: both(AccessMode::READ_WRITE).to_vec(), ..Settings::default() });
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let may = |device: u32, address| world.host.access_at(Ordinal(device), address).expect("known");
    let block = pool.alloc(ByteSize::mib(2), a).expect("memory");
    assert_eq!(may(1, block), AccessMode::READ_WRITE);
    pool.set_access(&[]).expect("the own device only");
    assert_eq!((may(0, block), may(1, block)), (AccessMode::READ_WRITE, AccessMode::NONE));
    let later = pool.alloc(ByteSize::mib(2), b).expect("memory");
    assert_eq!(may(1, later), AccessMode::NONE);
    pool.set_access(&both(AccessMode::READ_WRITE)).expect("both");
    assert_eq!((may(1, block), may(1, later)), (AccessMode::READ_WRITE, AccessMode::READ_WRITE));
    let none = [Access { device: Ordinal(9), mode: AccessMode::READ_WRITE }];
    assert_eq!(pool.set_access(&none).map_err(kind), Err(Kind::NoDevice));
    assert_eq!(may(1, block), AccessMode::READ_WRITE, "as before");
    world.end("peers");
}

#[test]
fn events_are_kept_when_asked_for() {
    let world = world(&Settings { history: 4, ..Settings::default() });
    let (pool, a) = (&world.pool, world.streams[0]);
    let block = pool.alloc(ByteSize(1000), a).expect("memory");
    pool.free(block).expect("in use");
    let kinds =
        |pool: &Pool| pool.snapshot().events.iter().map(|e| (e.kind, e.size.get())).collect::<Vec<_>>();
    let mapped = (EventKind::SegmentMap, 2 << 20);
    assert_eq!(kinds(pool), [mapped, (EventKind::Alloc, 1000), (EventKind::FreeCompleted, 1000)]);
    for _ in 0..3 {
        let block = pool.alloc(ByteSize(1000), a).expect("memory");
        pool.free(block).expect("in use");
    }
    assert_eq!(kinds(pool).len(), 4, "the oldest go");
    assert_eq!(pool.alloc(ByteSize::gib(2), a).map_err(kind), Err(Kind::OutOfAddressSpace));
    assert_eq!(kinds(pool).last(), Some(&(EventKind::OutOfMemory, 2 << 30)));
    pool.set_limit(Some(ByteSize::mib(2))).expect("nothing is in use");
    assert_eq!(pool.alloc(ByteSize::mib(20), a).map_err(kind), Err(Kind::OutOfDeviceMemory));
    assert_eq!(kinds(pool).last(), Some(&(EventKind::OutOfMemory, 20 << 20)));
    world.end("events");
}

#[test]
fn a_block_that_another_stream_used_has_an_event_when_that_is_over() {
    let world = world(&Settings { history: 100, ..Settings::default() });
    let (pool, [a, b]) = (&world.pool, [world.streams[0], world.streams[1]]);
    let of = |kind| {
        let all = pool.snapshot().events;
        all.into_iter().filter(|e| e.kind == kind).map(|e| (e.address, e.size.get())).collect::<Vec<_>>()
    };
    for bytes in [1000, (3 << 20) + 7] {
        let open = gate(&world.host, b);
        let block = pool.alloc(ByteSize(bytes), a).expect("memory");
        let before = of(EventKind::FreeCompleted).len();
        pool.record_stream(block, b).and(pool.free(block)).expect("in use");
        assert_eq!(of(EventKind::FreeRequested).last(), Some(&(block, bytes)));
        assert_eq!(of(EventKind::FreeCompleted).len(), before, "not yet");
        drop(open);
        world.host.streams().synchronize(b).expect("run");
        pool.poll();
        assert_eq!(of(EventKind::FreeCompleted).last(), Some(&(block, bytes)));
    }
    world.end("events of shared blocks");
}

#[test]
fn a_segment_rounds_outwards_and_inwards_and_its_end_is_an_end() {
    let world = world(&Settings::default());
    let two = ByteSize::mib(2);
    let segment = ExpandableSegment::new(&world.device, ByteSize::mib(15), two, &[]).expect("addresses");
    let start = segment.range().start();
    let at = |mib: u64| DevicePtr(start.get() + (mib << 20));
    assert_eq!((segment.capacity(), segment.live()), (8, 0));
    assert_eq!(segment.map(at(3), ByteSize::mib(2)), Ok(at(2)..at(6)));
    assert_eq!(
        segment.map(at(2), ByteSize::mib(6)).map(|r| r.end),
        Ok(at(8)),
        "only what is missing is made"
    );
    assert_eq!(segment.map(at(14), two).map(|r| r.end), Ok(at(16)), "the end of the range is an end");
    assert_eq!(segment.map(at(16), ByteSize::ZERO), Ok(at(16)..at(16)));
    assert_eq!(segment.map(at(15), two).map_err(kind), Err(Kind::OutOfRange));
    assert_eq!(segment.map(DevicePtr(start.get() - 1), two).map_err(kind), Err(Kind::OutOfRange));
    assert_eq!(segment.live_runs(), [ChunkIndex(1)..ChunkIndex(4), ChunkIndex(7)..ChunkIndex(8)]);
    assert_eq!(segment.unmap(at(3), ByteSize::mib(4), &[]), Ok(1), "only what lies inside whole");
    assert_eq!(segment.live_runs().len(), 3);
    assert_eq!(segment.unmap(at(0), ByteSize::mib(16), &[world.streams[0]]), Ok(3));
    assert_eq!(segment.live(), 0);
    let odd = ExpandableSegment::new(&world.device, two, ByteSize(4096), &[]);
    assert_eq!(odd.map(|_| ()).map_err(kind), Err(Kind::InvalidSize));
    drop(segment);
    world.end("segment");
}

#[test]
fn eight_threads_keep_their_bytes_apart() {
    let world = World::new(
        4,
        ByteSize::gib(1),
        &[],
        &Settings { limit: Some(ByteSize::mib(256)), ..Settings::default() },
    );
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (pool, stream) = (&world.pool, world.streams[thread as usize % 4]);
            scope.spawn(move || work(pool, stream, thread));
        }
    });
    let stats = world.pool.stats();
    assert_eq!((stats.bytes.allocated.current, stats.bytes.requested.current), (0, 0));
    assert_eq!(stats.allocations(), stats.frees());
    assert!(stats.allocations() > 8 * 1000);
    world.end("threads");
}

fn work(pool: &Pool, stream: Stream, thread: u64) {
    let (mut held, mut seed) = (Vec::new(), thread + 1);
    for _ in 0..3000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = ByteSize(1 + (seed >> 33) % if seed >> 62 == 0 { 3 << 20 } else { 30_000 });
        match pool.alloc(size, stream) {
            Ok(address) => {
                let place = pool.find(address).expect("in use");
                assert_eq!((place.address, place.stream), (address, stream));
                held.push(address);
            }
            Err(e) => assert_eq!(e.kind, Kind::OutOfDeviceMemory),
        }
        if held.len() > 20 {
            pool.free(held.swap_remove((seed >> 40) as usize % 20)).expect("in use");
        }
    }
    held.into_iter().for_each(|address| pool.free(address).expect("in use"));
}
