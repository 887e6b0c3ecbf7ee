//! What can be counted of a step: memory asked for, and looks at blocks.
#![allow(unsafe_code, reason = "an allocator that counts")]

mod rebind_support;

use gvmm::config::HostConfig;
use gvmm::driver::host::HostDriver;
use gvmm::driver::{Ordinal, Stream};
use gvmm::error::Result;
use gvmm::rebind::{
    Action, Binding, Buffer, Buffers, Churn, Commands, Moves, Options, PlanOptions, Slot, Threshold,
    export_plan,
};
use gvmm::units::ByteSize;
use gvmm::vm::{Allocation, Block, Device, Owner};
use rebind_support::{Given, Home, begin};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all memory is the system's; counting touches none of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller vouches for the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller vouches that the memory came from here, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const SLOTS: usize = 64;
const BYTES: u64 = 256;

/// A step's buffers, and how often their blocks were looked at.
struct Watched {
    /// Keeps the memory.
    _homes: Vec<Home>,
    given: Given,
    blocks: Cell<u64>,
}

impl Watched {
    fn new(homes: Vec<Home>) -> Self {
        let given = Given::of(&homes.iter().collect::<Vec<_>>());
        Self { _homes: homes, given, blocks: Cell::new(0) }
    }
}

impl Buffers for Watched {
    fn len(&self) -> usize {
        self.given.len()
    }

    fn get(&self, i: usize) -> Buffer {
        self.given.get(i)
    }

    fn block(&self, i: usize) -> Result<Arc<Block>> {
        self.blocks.set(self.blocks.get() + 1);
        self.given.block(i)
    }

    fn epoch(&self) -> u64 {
        0
    }
}

fn device() -> (Arc<Device>, Stream) {
    let host = HostDriver::new(HostConfig { memory: 1 << 40, ..HostConfig::default() }, None);
    let device = Device::open(Arc::new(host.expect("a host driver")), Ordinal(0)).expect("a device");
    let stream = device.driver().streams().create(Ordinal(0)).expect("a stream");
    (device, stream)
}

fn home(device: &Arc<Device>) -> Home {
    let memory: Arc<Allocation> = device.allocate(ByteSize(2 << 20), &[], Owner::Caller).expect("memory");
    Home { memory, bytes: ByteSize(2 << 20) }
}

/// Two steps that differ in the first `changed` slots.
fn steps(device: &Arc<Device>, changed: usize) -> [Watched; 2] {
    let homes: Vec<Home> = (0..SLOTS + changed).map(|_| home(device)).collect();
    let of = |number: &dyn Fn(usize) -> usize| {
        Watched::new((0..SLOTS).map(|i| homes[number(i)].clone()).collect())
    };
    [of(&|i| i), of(&|i| if i < changed { SLOTS + i } else { i })]
}

/// What the last of three rounds asks for: memory and blocks in a step. In the second, blocks were asked for once.
fn counted(device: &Device, binding: &Binding, stream: Stream, steps: &[Watched; 2]) -> [u64; 2] {
    let mut last = [0; 2];
    for step in steps.iter().cycle().take(6) {
        let before = [ASKED.get(), step.blocks.get()];
        begin(binding, stream, step).expect("begin");
        binding.end().expect("end");
        let now = [ASKED.get(), step.blocks.get()];
        last = std::array::from_fn(|i| now[i] - before[i]);
        device.driver().streams().synchronize(stream).expect("it runs");
    }
    last
}

#[test]
fn more_changes_ask_for_no_more_memory() {
    let (device, stream) = device();
    let of = |changed| {
        let options = Options { threshold: Threshold(BYTES), ..Options::default() };
        let binding = Binding::new(&device, vec![Slot::new(ByteSize(BYTES)); SLOTS], options);
        let steps = steps(&device, changed);
        counted(&device, &binding.expect("a binding"), stream, &steps)
    };
    let (few, many) = (of(1), of(SLOTS));
    assert_eq!([few[1], many[1]], [0, 0], "a block that was looked at is known");
    assert_eq!(few[0], many[0], "what the driver keeps of a launch, and nothing a slot");
}

#[test]
fn listing_patches_asks_for_no_memory() {
    let (device, stream) = device();
    let slots = vec![Slot::new(ByteSize(BYTES)); SLOTS];
    let mut commands = Commands::default();
    (0..SLOTS as u32).for_each(|slot| commands.push([slot]));
    let plan = PlanOptions { commands: Some(commands), ..PlanOptions::default() };
    let binding = Binding::planned(&device, slots.clone(), Options::default(), plan).expect("a binding");
    let churn = Churn::new(vec![Moves(1); SLOTS], 1);
    binding.import_plan(&export_plan(&slots, &[Action::PATCH; SLOTS], &churn)).expect("a plan");
    let asked = counted(&device, &binding, stream, &steps(&device, SLOTS));
    assert_eq!(binding.patches().expect("patches").len(), SLOTS);
    assert_eq!(asked, [0, 0]);
}
