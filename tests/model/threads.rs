//! Eight threads on one device.

use crate::common::{World, drivers};
use gvmm::error::Kind;
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Device, Owner, RetireEntry};
use std::sync::atomic::{AtomicBool, Ordering};

/// A small generator, so that each thread has its own moves.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick(&mut self, sides: usize) -> usize {
        usize::try_from(self.roll(sides as u64)).expect("small")
    }
}

/// Failures that another thread's moves may cause.
fn in_the_way(kind: Kind) -> bool {
    use Kind::{AlreadyMapped, InvalidArgument, NotMapped, OutOfRange, PartialMapping, Unsupported};
    matches!(kind, AlreadyMapped | InvalidArgument | NotMapped | OutOfRange | PartialMapping | Unsupported)
}

fn hammer(world: &World, seed: u64, turns: u64) {
    let mut dice = Dice(seed);
    let device = &world.device;
    for _ in 0..turns {
        let (r, b) = (dice.pick(2), dice.pick(world.blocks.len()));
        let (reservation, at) = (world.reservation(r), world.granules(dice.roll(16)));
        let result = match dice.roll(8) {
            0 => reservation.map(at, &world.block(b)),
            1 => reservation.unmap(at, world.granules(1)),
            2 => device.retire(&[RetireEntry { reservation, offset: at }], &[world.stream]),
            3 => reservation.set_access(at, world.granules(1), &[]),
            4 => device.allocate(ByteSize(1), &[], Owner::Library).map(drop),
            5 => {
                device.collect();
                Ok(())
            }
            _ => {
                let entry = |dice: &mut Dice| {
                    let (r, at, b) = (dice.pick(2), dice.roll(16), dice.pick(world.blocks.len() + 2));
                    world.entry(r, at, (b < world.blocks.len()).then_some(b))
                };
                let entries: Vec<_> = (0..4).map(|_| entry(&mut dice)).collect();
                device.remap(&entries, &[world.stream]).map(|_| ())
            }
        };
        if let Err(error) = result {
            assert!(in_the_way(error.kind), "{error}");
        }
    }
}

/// Reads the table of addresses while others write it.
fn search(device: &Device, world: &World, stop: &AtomicBool) {
    let ranges: Vec<_> = world.reservations.iter().flatten().map(|r| r.range()).collect();
    let mut dice = Dice(77);
    while !stop.load(Ordering::Relaxed) {
        let range = ranges[dice.pick(ranges.len())];
        let address = DevicePtr(range.start().get() + dice.roll(range.size().get()));
        if let Some(found) = device.find(address) {
            let block = world.ids.iter().position(|id| *id == found.block).expect("one of ours");
            assert_eq!(found.tag, block as u64 + 1);
            assert_eq!(found.size, world.block(block).size());
            assert_eq!(found.start.checked_add(found.offset), Some(address));
        }
    }
}

#[test]
fn eight_threads_on_one_device() {
    for off in drivers::shapes(&[&[], &["aliasing"], &["range_access", "joined_access"]]) {
        let world = World::new(off);
        for (i, block) in world.blocks.iter().flatten().enumerate() {
            block.set_tag(i as u64 + 1);
        }
        let stop = AtomicBool::new(false);
        let world_ref = &world;
        std::thread::scope(|scope| {
            let searcher = scope.spawn(|| search(&world_ref.device, world_ref, &stop));
            let workers: Vec<_> = (1..=8_u64)
                .map(|seed| scope.spawn(move || hammer(world_ref, seed * 0x9e37_79b9, 300)))
                .collect();
            let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            stop.store(true, Ordering::Relaxed);
            searcher.join().expect("the searcher");
            results.into_iter().for_each(|result| result.expect("a worker"));
        });
        // Access may be missing after a plain map, so contents are read where it is not.
        world.check_contents("after eight threads");
        world.device.drain().expect("drained");
        world.check_contents("after draining");
        world.end("eight threads");
    }
}
