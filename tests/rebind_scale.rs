//! No slots, very many, and the budget that all bindings of a device share.

mod rebind_support;

use gvmm::config::HostConfig;
use gvmm::driver::testing::Call;
use gvmm::error::Kind;
use gvmm::rebind::{Binding, Buffer, Outcome, Slot, Threshold, set_shadow_budget, shadow_budget};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::Block;
use rebind_support::{Given, Home, World, addresses, begin, block, fill, holds};
use std::sync::Arc;

const MIB2: u64 = 2 << 20;
const SMALL: Slot = Slot::new(ByteSize(1000));

#[test]
fn bindings_share_one_budget_and_the_same_calls_give_the_same_plans() {
    let world = World::new();
    set_shadow_budget(&world.device, ByteSize(2600));
    let home: Vec<Home> = (0..3).map(|_| world.home(MIB2)).collect();
    let given = Given::of(&[&home[0], &home[1], &home[2]]);
    let slots = vec![SMALL, SMALL, Slot::new(ByteSize(500))];
    let plan = || {
        let binding = world.binding(slots.clone(), Threshold(4096));
        binding.begin(world.stream, &given, 0).expect("begin");
        binding
    };
    let copied = |binding: &Binding| {
        let info = binding.info().expect("info");
        (info.copied, info.shadow_bytes.get(), info.threshold)
    };
    let first = plan();
    assert_eq!(copied(&first), (3, 2500, Threshold(4096)));
    let second = plan();
    assert_eq!(copied(&second), (0, 0, Threshold::OFF), "nothing is left");
    drop(first);
    let third = plan();
    assert_eq!(copied(&third), (3, 2500, Threshold(4096)));
    set_shadow_budget(&world.device, ByteSize(4500));
    let fourth = plan();
    assert_eq!(copied(&fourth), (1, 500, Threshold(500)), "one size together or not at all");
    assert_eq!(shadow_budget(&world.device).booked, ByteSize(3000));
    let blocks = world.trace.live().blocks;
    assert_eq!(blocks, home.len() as i64 + 1, "small shadows share a chunk");
    drop((second, third, fourth));
    assert_eq!(world.trace.live().blocks, home.len() as i64, "and it goes with the last of them");
}

/// Without a bandwidth it asks for what has 64 KiB, with one for what is worth it: both ask for more than there is.
#[test]
fn the_automatic_threshold_never_asks_for_more_than_the_budget() {
    for (costs, whole) in [(None, 100_500), (Some("h200".to_string()), 200_500)] {
        let world = World::with(HostConfig { costs, memory: 1 << 40, ..HostConfig::default() });
        let homes: Vec<Home> = (0..4).map(|_| world.home(MIB2)).collect();
        let given = Given::of(&[&homes[0], &homes[1], &homes[2], &homes[3]]);
        let slots = [500, 50_000, 50_000, 100_000].map(|bytes| Slot::new(ByteSize(bytes))).to_vec();
        let asked = |limit: u64| {
            set_shadow_budget(&world.device, ByteSize(limit));
            let bindings = [(); 2].map(|()| world.binding(slots.clone(), Threshold::AUTO));
            let asks = bindings.each_ref().map(|binding| {
                binding.begin(world.stream, &given, 0).expect("begin");
                binding.info().expect("info").shadow_bytes.get()
            });
            assert_eq!(shadow_budget(&world.device).booked, ByteSize(asks[0] + asks[1]));
            asks
        };
        assert_eq!(asked(1 << 30), [whole; 2], "there is room for all that it wants");
        for limit in [0, 499, 500, 999, 1000, 100_499, 100_500, 100_999, 101_000, 200_499, 200_500, 300_000] {
            let asks = asked(limit);
            assert!(asks[0] + asks[1] <= limit, "{asks:?} of {limit}");
            let admitted = |left: u64| [0, 500, 100_500, whole].into_iter().filter(|sum| *sum <= left).max();
            assert_eq!(Some(asks[0]), admitted(limit), "all of one size or none, of {limit}");
            assert_eq!(Some(asks[1]), admitted(limit - asks[0]), "what is left of {limit}");
        }
    }
}

#[test]
fn no_slots_at_all_work() {
    let world = World::new();
    let binding = world.binding(Vec::new(), Threshold::DEFAULT);
    let given = Given::default();
    for _ in 0..3 {
        begin(&binding, world.stream, &given).expect("begin");
        binding.end().expect("end");
    }
    assert_eq!(binding.info().expect("info").generation, 1);
    assert_eq!(world.trace.counts().of(Call::RESERVE), 0);
}

#[test]
fn a_hundred_thousand_slots_are_copied() {
    const COUNT: u64 = 100_000;
    let world = World::new();
    let home = world.home(COUNT * 16);
    let at = |i: u64| DevicePtr(home.address().get() + i * 16);
    let buffers: Vec<Buffer> = (0..COUNT)
        .map(|i| Buffer { address: at(i), bytes: ByteSize(16), id: i + 1, has_block: false })
        .collect();
    let slots = vec![Slot::new(ByteSize(16)); COUNT as usize];
    let binding = world.binding(slots, Threshold(4096));
    fill(at(77_777), ByteSize(16), 3);
    let report = begin(&binding, world.stream, &Given::memory(&buffers)).expect("begin");
    assert_eq!((report.copied_slots, report.calls.copy_launches), (COUNT, 1));
    world.synchronize();
    let shadows = addresses(&binding, COUNT as usize);
    assert!(holds(shadows[77_777], ByteSize(16), 3));
    fill(shadows[99_999], ByteSize(16), 4);
    binding.end().expect("end");
    world.synchronize();
    assert!(holds(at(99_999), ByteSize(16), 4));
}

#[test]
fn a_hundred_thousand_mapped_slots_work_or_reach_the_limit() {
    const COUNT: usize = 100_000;
    let world = World::new();
    let given: Vec<(Buffer, Option<Arc<Block>>)> = (0..COUNT)
        .map(|_| {
            let block = block(&world);
            let buffer =
                Buffer { address: DevicePtr::NULL, bytes: ByteSize(8), id: block.id().0, has_block: true };
            (buffer, Some(block))
        })
        .collect();
    let given = Given { buffers: given, epoch: 0 };
    let binding = world.binding(vec![Slot::new(ByteSize(8)); COUNT], Threshold::OFF);
    match binding.begin(world.stream, &given, 0) {
        Ok((outcome, _)) => {
            assert_eq!((outcome, world.trace.live().mappings), (Outcome::RecordAgain, COUNT as i64));
        }
        Err(e) => {
            assert_eq!((e.kind, world.trace.live().mappings), (Kind::MapLimit, 0));
            assert_eq!(binding.info().expect("info").generation, 0);
        }
    }
}
