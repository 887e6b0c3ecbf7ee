//! Random steps of random bindings against a plain model: what a step must see and what must be where after it.

mod rebind_support;

use gvmm::driver::Stream;
use gvmm::error::{Error, Kind, Operation};
use gvmm::rebind::{
    Binding, Direction, Outcome, Slot, SlotFlags, Threshold, set_shadow_budget, shadow_budget,
};
use gvmm::units::{ByteSize, DevicePtr};
use proptest::prelude::*;
use proptest::sample::Index;
use rebind_support::{Given, Home, World, addresses, fill, holds};

const MIB2: u64 = 2 << 20;
const HOMES: usize = 10;
const INJECTED: Error = Error::new(Kind::DriverError, Operation::None, "injected");

/// What is done with a binding.
#[derive(Clone, Debug)]
enum Deed {
    /// A step; the order decides which homes its slots get.
    Step {
        order: Vec<Index>,
        second_stream: bool,
        abort: bool,
        fail: Option<u64>,
    },
    DropIdle,
}

fn deed() -> impl Strategy<Value = Deed> {
    let order = prop::collection::vec(any::<Index>(), HOMES);
    let fail = prop_oneof![2 => Just(None), 1 => (1u64..12).prop_map(Some)];
    let step = (order, any::<bool>(), prop::bool::weighted(0.1), fail)
        .prop_map(|(order, second_stream, abort, fail)| Deed::Step { order, second_stream, abort, fail });
    prop_oneof![8 => step, 1 => Just(Deed::DropIdle)]
}

fn slot() -> impl Strategy<Value = Slot> {
    let bytes = prop_oneof![1u64..200, Just(4096u64), Just(100_000), Just(MIB2)];
    let flags = prop_oneof![6 => Just(0u32), 1 => Just(1), 1 => Just(2)];
    (bytes, 0u32..3, flags).prop_map(|(bytes, direction, flags)| {
        Slot::new(ByteSize(bytes)).direction(Direction(direction)).flags(SlotFlags(flags))
    })
}

struct Model<'a> {
    world: &'a World,
    binding: &'a Binding,
    slots: &'a [Slot],
    homes: &'a [Home],
    streams: [Stream; 2],
    seed: u64,
}

impl Model<'_> {
    /// Distinct homes for the slots, now and then changed.
    fn given(&self, order: &[Index]) -> Given {
        let mut homes: Vec<&Home> = self.homes.iter().collect();
        for (i, index) in order.iter().enumerate().take(4) {
            homes.swap(i, index.index(HOMES));
        }
        Given::of(&homes[..self.slots.len()])
    }

    fn step(&mut self, order: &[Index], stream: Stream, abort: bool, fail: Option<u64>) {
        let given = self.given(order);
        self.seed += 100;
        for (i, slot) in self.slots.iter().enumerate() {
            fill(given.buffers[i].0.address, slot.bytes, self.seed + i as u64);
        }
        if let Some(nth) = fail {
            self.world.fault.fail(None, nth, 1, INJECTED);
        }
        self.begin(&given, stream);
        self.world.synchronize_stream(stream);
        let at = addresses(self.binding, self.slots.len());
        self.launch(&at);
        self.finish(abort);
        self.world.fault.clear();
        self.world.synchronize_stream(stream);
        self.check(&given, &at, abort);
    }

    /// Begins, recording again and trying again as often as needed.
    fn begin(&self, given: &Given, stream: Stream) {
        for _ in 0..6 {
            let generation = self.binding.info().expect("info").generation;
            match self.binding.begin(stream, given, generation) {
                Ok((Outcome::Started, _)) => return,
                Ok((Outcome::RecordAgain, report)) => assert_eq!(report.generation, generation + 1),
                Err(e) => {
                    assert_eq!(e.kind, Kind::DriverError);
                    assert_eq!(self.binding.info().expect("info").generation, generation);
                }
            }
        }
        panic!("no step starts");
    }

    fn launch(&self, at: &[DevicePtr]) {
        for (i, slot) in self.slots.iter().enumerate() {
            if slot.direction.reads() {
                assert!(holds(at[i], slot.bytes, self.seed + i as u64), "slot {i} sees its data");
            }
            if slot.direction.writes() {
                fill(at[i], slot.bytes, self.seed + 50 + i as u64);
            }
        }
    }

    fn finish(&self, abort: bool) {
        if abort {
            return self.binding.abort().expect("abort");
        }
        if self.binding.end().is_err() {
            self.binding.end().expect("the same call works when tried again");
        }
    }

    fn check(&self, given: &Given, at: &[DevicePtr], abort: bool) {
        for (i, slot) in self.slots.iter().enumerate() {
            let address = given.buffers[i].0.address;
            let arrived = holds(address, slot.bytes, self.seed + 50 + i as u64);
            if !abort {
                assert_eq!(arrived, slot.direction.writes(), "slot {i} arrives");
            }
            assert!(arrived || holds(address, slot.bytes, self.seed + i as u64), "slot {i} is untouched");
            assert!(!slot.flags.has(SlotFlags::REGISTERED) || at[i] == address, "slot {i} stays");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn random_steps_see_and_leave_the_right_data(
        slots in prop::collection::vec(slot(), 0..8),
        threshold in prop_oneof![Just(Threshold::OFF), Just(Threshold(4096)), Just(Threshold::AUTO)],
        budget in prop_oneof![Just(1u64 << 30), Just(5000)],
        caps in prop_oneof![
            4 => Just(&[][..]), 1 => Just(&["aliasing"][..]), 1 => Just(&["virtual_memory"][..]),
            1 => Just(&["joined_access", "joint_copies"][..])],
        deeds in prop::collection::vec(deed(), 1..10),
    ) {
        let world = World::without(caps);
        set_shadow_budget(&world.device, ByteSize(budget));
        let homes: Vec<Home> = (0..HOMES as u64).map(|i| world.home(MIB2 * (1 + i % 2))).collect();
        let before = world.trace.live();
        let binding = world.binding(slots.clone(), threshold);
        let streams = [world.stream, world.another_stream()];
        let mut model =
            Model { world: &world, binding: &binding, slots: &slots, homes: &homes, streams, seed: 1000 };
        for deed in deeds {
            match deed {
                Deed::Step { order, second_stream, abort, fail } => {
                    model.step(&order, model.streams[usize::from(second_stream)], abort, fail);
                }
                Deed::DropIdle => drop(binding.drop_idle().expect("idle")),
            }
            prop_assert!(binding.info().expect("info").shadow_bytes <= ByteSize(budget));
        }
        drop(binding);
        world.device.drain().expect("drained");
        prop_assert_eq!(shadow_budget(&world.device).booked, ByteSize::ZERO);
        let after = world.trace.live();
        prop_assert_eq!((after.blocks, after.mappings), (before.blocks, before.mappings));
        prop_assert_eq!((after.ranges, after.allocations), (before.ranges, before.allocations));
    }
}
