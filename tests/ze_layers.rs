//! The layers above over Level Zero's shape: pages by size, one access for a whole reservation, blocks at one
//! address only, no waits that come before their writes.

mod ze_common;

use gvmm::driver::{CopySlice, CreateOptions, Driver, Stream};
use gvmm::error::{Kind, Result};
use gvmm::rebind::{
    Action, Binding, Buffer, Buffers, Direction, Options, Outcome, Slot, StepReport, Threshold,
};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Allocation, Block, Device, Owner, RemapEntry, Reservation, RetireEntry};
use std::sync::Arc;
use ze_common::{Fake, LARGE, SMALL, ZERO, noise, stream};

struct World {
    fake: Fake,
    driver: Arc<dyn Driver>,
    device: Arc<Device>,
    stream: Stream,
    native: (u64, u64),
}

impl World {
    fn new(name: &str, pages: u64) -> Self {
        let fake = Fake::build(name, &[]).set("FAKE_ZE_PAGES", pages).set("FAKE_ZE_DEVICES", 1);
        let driver = Arc::new(fake.driver());
        let native = driver.native(ZERO).expect("a device");
        let driver: Arc<dyn Driver> = driver;
        let device = Device::open(Arc::clone(&driver), ZERO).expect("a device");
        let stream = stream(&*driver);
        Self { fake, driver, device, stream, native }
    }

    fn block(&self, bytes: u64) -> Arc<Block> {
        self.device.create_block(ByteSize(bytes), CreateOptions::default()).expect("a block")
    }

    fn allocation(&self, bytes: u64) -> Arc<Allocation> {
        self.device.allocate(ByteSize(bytes), &[], Owner::Caller).expect("memory")
    }

    fn put(&self, to: DevicePtr, seed: u64) {
        assert!(self.fake.poke(self.native, to, &noise(64, seed)), "{to} can be written");
    }

    fn holds(&self, at: DevicePtr, seed: u64) -> bool {
        self.fake.peek(self.native, at, 64) == Some(noise(64, seed))
    }

    fn idle(&self) {
        self.driver.streams().synchronize(self.stream).expect("the stream works");
    }

    fn end(self) {
        self.device.forget_stream(self.stream).expect("forgotten");
        self.device.drain().expect("drained");
        drop(self.device);
        drop(self.driver);
        self.fake.clean();
    }
}

fn at(range: &Reservation, offset: u64) -> DevicePtr {
    DevicePtr(range.range().start().get() + offset)
}

fn entry(range: &Arc<Reservation>, offset: u64, block: Option<&Arc<Block>>) -> RemapEntry {
    RemapEntry { reservation: Arc::clone(range), offset: ByteSize(offset), block: block.map(Arc::clone) }
}

#[test]
fn remaps_shuffle_blocks_that_are_at_one_address() {
    for (name, pages, size) in [("shuffle", 1, SMALL), ("shuffle2", 1, LARGE), ("shuffle3", 2, LARGE)] {
        let world = World::new(name, pages);
        let range = world.device.reserve(ByteSize(32 * size), None, &[], Owner::Caller).expect("a range");
        let blocks: Vec<_> = (0..16).map(|_| world.block(size)).collect();
        let remap = |shift: usize| {
            let all: Vec<_> =
                (0..16).map(|i| entry(&range, i as u64 * size, Some(&blocks[(i + shift) % 16]))).collect();
            world.device.remap(&all, &[world.stream]).expect("remapped")
        };
        let report = remap(0);
        assert_eq!((report.calls.map, report.calls.set_access), (16, 1));
        (0..16).for_each(|i| world.put(at(&range, i * size), i + 1));
        let report = remap(5);
        assert_eq!((report.calls.unmap, report.calls.map, report.calls.set_access), (16, 16, 1));
        (0..16).for_each(|i| assert!(world.holds(at(&range, i * size), (i + 5) % 16 + 1), "place {i}"));
        assert_eq!(remap(5).calls.map, 0, "nothing changed");
        let slices: Vec<CopySlice> = (0..8)
            .map(|i| CopySlice {
                dst: at(&range, i * size + 4096),
                src: at(&range, (i + 8) * size),
                bytes: 64,
            })
            .collect();
        assert_eq!(world.device.shadow_copy(world.stream, &slices).expect("copied"), 1);
        world.idle();
        assert!(world.holds(at(&range, 4096), 14), "from the place of block 8 + 5");
        drop((range, blocks));
        world.end();
    }
}

#[test]
fn one_moved_slot_costs_one_map_of_the_driver() {
    let world = World::new("moved", 1);
    let range = world.device.reserve(ByteSize(8 * LARGE), None, &[], Owner::Caller).expect("a range");
    let blocks: Vec<_> = (0..9).map(|_| world.block(LARGE)).collect();
    let all: Vec<_> = (0..8).map(|i| entry(&range, i as u64 * LARGE, Some(&blocks[i]))).collect();
    world.device.remap(&all, &[]).expect("remapped");
    let (maps, unmaps) = (world.fake.calls("zeVirtualMemMap"), world.fake.calls("zeVirtualMemUnmap"));
    world.device.remap(&[entry(&range, 3 * LARGE, Some(&blocks[8]))], &[]).expect("remapped");
    assert_eq!(world.fake.calls("zeVirtualMemMap") - maps, 1);
    assert_eq!(world.fake.calls("zeVirtualMemUnmap") - unmaps, 1);
    drop((all, range, blocks));
    world.end();
}

#[test]
fn a_failed_remap_leaves_what_was_there() {
    let world = World::new("undo", 1);
    let range = world.device.reserve(ByteSize(4 * LARGE), None, &[], Owner::Caller).expect("a range");
    let blocks: Vec<_> = (0..8).map(|_| world.block(LARGE)).collect();
    let all = |from: usize| -> Vec<_> {
        (0..4).map(|i| entry(&range, i as u64 * LARGE, Some(&blocks[from + i]))).collect()
    };
    world.device.remap(&all(0), &[]).expect("remapped");
    (0..4).for_each(|i| world.put(at(&range, i * LARGE), i + 1));
    for (function, calls) in [("zeVirtualMemMap", 4), ("zeVirtualMemUnmap", 4)] {
        for nth in 1..=calls {
            world.fake.fail(function, nth, 0x7fff_fffe);
            let error = world.device.remap(&all(4), &[]).expect_err("failed");
            assert_eq!(error.kind, Kind::DriverError, "{function}, call {nth}: {error}");
            (0..4).for_each(|i| assert!(world.holds(at(&range, i * LARGE), i + 1), "{function}, call {nth}"));
        }
    }
    world.device.remap(&all(4), &[]).expect("remapped");
    drop((range, blocks));
    world.end();
}

#[test]
fn retired_mappings_go_when_their_stream_has_passed() {
    let world = World::new("retire", 1);
    let range = world.device.reserve(ByteSize(2 * LARGE), None, &[], Owner::Caller).expect("a range");
    let (first, second) = (world.block(LARGE), world.block(LARGE));
    world.device.remap(&[entry(&range, 0, Some(&first))], &[]).expect("remapped");
    world.put(at(&range, 0), 1);
    world.fake.hold(true);
    let slice = CopySlice { dst: at(&range, 4096), src: at(&range, 0), bytes: 64 };
    world.device.shadow_copy(world.stream, &[slice]).expect("enqueued");
    let gone = [RetireEntry { reservation: Arc::clone(&range), offset: ByteSize(0) }];
    world.device.retire(&gone, &[world.stream]).expect("retired");
    world.device.collect();
    assert!(world.holds(at(&range, 0), 1), "the copy has not run: its memory is there");
    world.fake.hold(false);
    world.idle();
    world.device.drain().expect("drained");
    assert!(!world.holds(at(&range, 0), 1));
    world
        .device
        .remap(&[entry(&range, LARGE, Some(&first)), entry(&range, 0, Some(&second))], &[])
        .expect("free");
    assert!(world.holds(at(&range, LARGE + 4096), 1), "it did run");
    drop((gone, range, first, second));
    world.end();
}

/// What a step is given.
struct Given(Vec<(Buffer, Option<Arc<Block>>)>);

impl Buffers for Given {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, i: usize) -> Buffer {
        self.0[i].0
    }

    fn block(&self, i: usize) -> Result<Arc<Block>> {
        Ok(Arc::clone(self.0[i].1.as_ref().expect("asked for blocks only where there are some")))
    }

    fn epoch(&self) -> u64 {
        0
    }
}

fn bare(block: &Arc<Block>) -> (Buffer, Option<Arc<Block>>) {
    let (address, bytes) = (DevicePtr::NULL, block.size());
    (Buffer { address, bytes, id: block.id().0, has_block: true }, Some(Arc::clone(block)))
}

fn home(memory: &Allocation) -> (Buffer, Option<Arc<Block>>) {
    let (address, bytes, block) = (memory.address(), memory.size(), memory.block().cloned());
    let id = block.as_ref().map_or_else(|| address.get(), |block| block.id().0);
    (Buffer { address, bytes, id, has_block: block.is_some() }, block)
}

fn begin(binding: &Binding, stream: Stream, given: &Given) -> StepReport {
    let mut generation = binding.info().expect("info").generation;
    loop {
        let (outcome, report) = binding.begin(stream, given, generation).expect("begun");
        if outcome == Outcome::Started {
            return report;
        }
        generation = report.generation;
    }
}

/// A slot is mapped where its block has no address of its own, else baked; small ones are copied.
#[test]
fn bindings_copy_bake_and_map() {
    const SLOTS: [Slot; 4] = [
        Slot::new(ByteSize(LARGE)),
        Slot::new(ByteSize(3000)),
        Slot::new(ByteSize(LARGE)),
        Slot::new(ByteSize(2000)).direction(Direction::IN),
    ];
    for (name, pages) in [("bind", 1), ("bind2", 2)] {
        let world = World::new(name, pages);
        let blocks: Vec<_> = (0..3).map(|_| world.block(LARGE)).collect();
        let homes: Vec<_> = (0..5).map(|_| world.allocation(LARGE)).collect();
        let options = Options { threshold: Threshold(4096), ..Options::default() };
        let binding = Binding::new(&world.device, SLOTS.to_vec(), options).expect("a binding");
        // The third slot's buffer stays where it is; all others change with each step.
        for (round, [mapped, copied, read]) in
            [[0, 0, 1], [1, 1, 0], [2, 3, 4], [0, 4, 3]].into_iter().enumerate()
        {
            let given =
                Given(vec![bare(&blocks[mapped]), home(&homes[copied]), home(&homes[2]), home(&homes[read])]);
            let seed = 100 * (round as u64 + 1);
            world.put(homes[copied].address(), seed + 1);
            world.put(homes[read].address(), seed + 3);
            let report = begin(&binding, world.stream, &given);
            assert!(round == 0 || report.calls.map == 1 && report.calls.set_access == 1, "{report:?}");
            assert_eq!(report.copied_slots, 2, "{report:?}");
            let mut addresses = [DevicePtr::NULL; 4];
            binding.addresses(&mut addresses).expect("a layout");
            world.idle();
            assert!(world.holds(addresses[1], seed + 1) && world.holds(addresses[3], seed + 3));
            assert_eq!(addresses[2], homes[2].address());
            (0..3).for_each(|i| world.put(addresses[i], seed + 10 + i as u64));
            binding.end().expect("ended");
            world.idle();
            assert!(world.holds(homes[copied].address(), seed + 11), "copied back");
            assert!(world.holds(addresses[0], seed + 10), "mapped");
            let mut actions = [Action::default(); 4];
            binding.actions(&mut actions).expect("a layout");
            assert_eq!(actions, [Action::MAP, Action::COPY, Action::BAKE, Action::COPY]);
            assert_eq!(binding.info().expect("info").generation, 1, "recorded once");
        }
        drop((binding, blocks, homes));
        world.end();
    }
}

/// Each window begins where its own block's page does, and the range is made of whole pages of its size.
#[test]
fn windows_of_small_and_large_pages_lie_in_one_range() {
    let world = World::new("mixed", 1);
    let blocks = [world.block(SMALL), world.block(LARGE), world.block(SMALL)];
    let slots = blocks.iter().map(|block| Slot::new(block.size())).collect();
    let options = Options { threshold: Threshold::OFF, ..Options::default() };
    let binding = Binding::new(&world.device, slots, options).expect("a binding");
    begin(&binding, world.stream, &Given(blocks.iter().map(bare).collect()));
    let mut addresses = [DevicePtr::NULL; 3];
    binding.addresses(&mut addresses).expect("a layout");
    assert_eq!((addresses[0].get() % SMALL, addresses[1].get() % LARGE), (0, 0));
    addresses.iter().zip(1..).for_each(|(at, seed)| world.put(*at, seed));
    assert!(addresses.iter().zip(1..).all(|(at, seed)| world.holds(*at, seed)));
    binding.end().expect("ended");
    drop((binding, blocks));
    world.end();
}

/// A block with an address of its own cannot be mapped a second time: its slot is baked.
#[test]
fn a_block_with_an_address_of_its_own_is_baked() {
    let world = World::new("own", 1);
    let homes: Vec<_> = (0..2).map(|_| world.allocation(LARGE)).collect();
    let options = Options { threshold: Threshold::OFF, ..Options::default() };
    let binding = Binding::new(&world.device, vec![Slot::new(ByteSize(LARGE))], options).expect("a binding");
    for (round, memory) in homes.iter().enumerate() {
        begin(&binding, world.stream, &Given(vec![home(memory)]));
        let mut addresses = [DevicePtr::NULL];
        binding.addresses(&mut addresses).expect("a layout");
        assert_eq!(addresses[0], memory.address());
        binding.end().expect("ended");
        assert_eq!(binding.info().expect("info").generation, round as u64 + 1, "each move is recorded again");
    }
    drop((binding, homes));
    world.end();
}

/// Without virtual memory all is plain, and copied or baked.
#[test]
fn bindings_work_without_virtual_memory() {
    let fake = Fake::build("plain-bind", &[]).set("FAKE_ZE_VMM", 0).set("FAKE_ZE_DEVICES", 1);
    let driver: Arc<dyn Driver> = Arc::new(fake.driver());
    let device = Device::open(Arc::clone(&driver), ZERO).expect("a device");
    let own = stream(&*driver);
    let memory = device.allocate(ByteSize(LARGE), &[], Owner::Caller).expect("memory");
    assert!(memory.block().is_none());
    let options = Options { threshold: Threshold(4096), ..Options::default() };
    let slots = vec![Slot::new(ByteSize(LARGE)), Slot::new(ByteSize(64))];
    let binding = Binding::new(&device, slots, options).expect("a binding");
    let other = device.allocate(ByteSize(64), &[], Owner::Caller).expect("memory");
    begin(&binding, own, &Given(vec![home(&memory), home(&other)]));
    binding.end().expect("ended");
    let mut actions = [Action::default(); 2];
    binding.actions(&mut actions).expect("a layout");
    assert_eq!(actions, [Action::BAKE, Action::COPY]);
    driver.streams().synchronize(own).expect("works");
    drop((binding, memory, other));
    device.forget_stream(own).expect("forgotten");
    device.drain().expect("drained");
    drop(device);
    drop(driver);
    fake.clean();
}
