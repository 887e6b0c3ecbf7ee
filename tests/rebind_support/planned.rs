//! What the tests of hostile places share: bindings with the costs of an H200, and steps whose data is checked.

use super::{Given, World, begin, fill, holds, write_all};
use gvmm::rebind::profile::Profile;
use gvmm::rebind::{
    Action, Binding, Buffer, Churn, Commands, Moves, Options, PlanOptions, Slot, export_plan,
};
use gvmm::units::{ByteSize, DevicePtr};

pub const MIB: u64 = 1 << 20;

pub fn slot(bytes: u64) -> Slot {
    Slot::new(ByteSize(bytes))
}

pub fn h200() -> PlanOptions {
    PlanOptions { profile: Profile::builtin("h200"), ..PlanOptions::default() }
}

/// One command for each slot.
pub fn patching(slots: usize) -> PlanOptions {
    let mut commands = Commands::default();
    (0..slots as u32).for_each(|i| commands.push([i]));
    PlanOptions { commands: Some(commands), ..h200() }
}

pub fn planned(world: &World, slots: &[Slot], options: PlanOptions) -> Binding {
    Binding::planned(&world.device, slots.to_vec(), Options::default(), options).expect("a binding")
}

pub fn exported(slots: &[Slot], actions: &[Action]) -> Vec<u8> {
    export_plan(slots, actions, &Churn::new(vec![Moves::NEVER; slots.len()], 4))
}

/// Runs a step and looks at what came in and what went out.
pub fn run(world: &World, binding: &Binding, slots: &[Slot], given: &Given, seed: u64) {
    for (i, (slot, (buffer, _))) in slots.iter().zip(&given.buffers).enumerate() {
        if !buffer.address.is_null() {
            fill(buffer.address, slot.bytes, seed + i as u64);
        }
    }
    begin(binding, world.stream, given).expect("begin");
    world.synchronize();
    let mut at = vec![DevicePtr::NULL; slots.len()];
    binding.addresses(&mut at).expect("a layout");
    for (i, (slot, (buffer, _))) in slots.iter().zip(&given.buffers).enumerate() {
        assert!(buffer.address.is_null() || holds(at[i], slot.bytes, seed + i as u64), "slot {i} of {seed}");
    }
    write_all(world, binding, slots, seed + 1000);
    binding.end().expect("end");
    world.synchronize();
    for (i, (slot, (buffer, _))) in slots.iter().zip(&given.buffers).enumerate() {
        let arrived = buffer.address.is_null() || holds(buffer.address, slot.bytes, seed + 1000 + i as u64);
        assert!(arrived, "slot {i} of {seed}");
    }
}

/// Memory of the program's own, of which no driver knows.
pub struct Foreign(Vec<u8>);

impl Foreign {
    pub fn new(bytes: usize) -> Self {
        Self(vec![0; bytes + 256])
    }

    pub fn buffer(&self, bytes: u64) -> Buffer {
        let address = DevicePtr((self.0.as_ptr() as u64).next_multiple_of(256));
        Buffer { address, bytes: ByteSize(bytes), id: address.get(), has_block: false }
    }
}
