//! Each driver call of a scenario fails in turn: nothing is lost, the books are whole, and trying again works.

mod pool_support;

use gvmm::driver::{Access, AccessMode, Driver, Ordinal};
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::pool::Settings;
use gvmm::units::{ByteSize, DevicePtr};
use pool_support::World;

const KEPT: u64 = 12;

struct Scene {
    world: World,
    /// Held throughout.
    kept: DevicePtr,
}

impl Scene {
    fn new(off: &[&str], chunks: Option<(u64, u64)>) -> Self {
        let (small, large) = chunks.unwrap_or((4, 4));
        let settings = Settings {
            small_chunk: ByteSize::mib(small),
            large_chunk: ByteSize::mib(large),
            limit: Some(ByteSize::mib(64)),
            ..Settings::default()
        };
        let world = World::new(2, ByteSize::gib(1), off, &settings);
        let kept = world.pool.alloc(ByteSize::mib(KEPT), world.streams[0]).expect("memory");
        Self { world, kept }
    }

    /// Blocks that were taken when something failed are freed.
    fn play(&self) -> Result<()> {
        let mut held = Vec::new();
        let result = self.acts(&mut held);
        held.into_iter().for_each(|address| self.world.pool.free(address).expect("in use"));
        result
    }

    fn acts(&self, held: &mut Vec<DevicePtr>) -> Result<()> {
        let (pool, a, b) = (&self.world.pool, self.world.streams[0], self.world.streams[1]);
        let both = [0, 1].map(|i| Access { device: Ordinal(i), mode: AccessMode::READ_WRITE });
        for _ in 0..3 {
            held.push(pool.alloc(ByteSize(1000), b)?);
        }
        held.push(pool.alloc(ByteSize::mib(20), b)?);
        held.push(pool.alloc(ByteSize::mib(12), b)?);
        let shared = held[4];
        pool.record_stream(shared, a)?;
        held.drain(..).try_for_each(|address| pool.free(address))?;
        // Lends from the other stream and from its own.
        held.push(pool.alloc(ByteSize::mib(30), a)?);
        pool.set_access(&both)?;
        held.drain(..).try_for_each(|address| pool.free(address))?;
        held.push(pool.alloc(ByteSize::mib(40), a)?);
        held.drain(..).try_for_each(|address| pool.free(address))?;
        pool.set_access(&[])?;
        pool.trim()?;
        held.push(pool.alloc(ByteSize::mib(8), b)?);
        Ok(())
    }

    fn check(&self, what: &str) {
        let (pool, stats) = (&self.world.pool, self.world.pool.stats());
        assert_eq!(stats.bytes.requested.current, KEPT << 20, "{what}");
        assert!(pool.find(self.kept).is_some(), "{what}");
        let live: u64 = pool.snapshot().segments.iter().map(|segment| segment.size.get()).sum();
        assert_eq!(
            live + stats.spare.get(),
            stats.bytes.reserved.current,
            "{what}: every chunk is somewhere"
        );
        assert!(stats.bytes.reserved.current <= stats.limit.get(), "{what}");
    }
}

/// Fails the first, the second ... call of the scenario, until none is left; says how many there were.
fn fail_each(off: &[&str], chunks: Option<(u64, u64)>, kind: Kind) -> u64 {
    for nth in 1.. {
        let what = format!("{off:?} {kind:?} at call {nth}");
        let scene = Scene::new(off, chunks);
        let before = scene.world.fault.calls();
        scene.world.fault.fail(None, nth, 1, Error::new(kind, Operation::None, "on purpose"));
        let first = scene.play();
        let made = scene.world.fault.calls() - before;
        scene.world.fault.clear();
        scene.check(&what);
        scene.play().unwrap_or_else(|e| panic!("{what}: trying again: {e}"));
        scene.check(&what);
        scene.world.pool.free(scene.kept).expect("in use");
        for stream in &scene.world.streams {
            scene.world.host.streams().synchronize(*stream).expect("no stream has failed");
        }
        scene.world.end(&what);
        if made < nth {
            assert_eq!(first, Ok(()), "{what}");
            return nth - 1;
        }
    }
    unreachable!()
}

#[test]
fn any_call_may_fail() {
    assert!(fail_each(&[], None, Kind::DriverError) > 60);
    assert!(fail_each(&[], None, Kind::OutOfDeviceMemory) > 60);
}

#[test]
fn with_two_sizes_of_chunks_and_without_aliasing() {
    assert!(fail_each(&[], Some((2, 8)), Kind::DriverError) > 40);
    assert!(fail_each(&["aliasing"], None, Kind::DriverError) > 60);
    assert!(fail_each(&["range_access", "joined_access"], None, Kind::DriverError) > 60);
}
