//! Steps: made up, and recorded.

use crate::null::MIB2;
use gvmm::driver::CreateOptions;
use gvmm::error::Result;
use gvmm::rebind::{Buffer, Buffers, Direction, Slot};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Allocation, Block, Device, Owner};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

/// One step's buffers.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) blocks: Vec<Arc<Block>>,
}

impl Buffers for Step {
    fn len(&self) -> usize {
        self.buffers.len()
    }
    fn get(&self, i: usize) -> Buffer {
        self.buffers[i]
    }
    fn block(&self, i: usize) -> Result<Arc<Block>> {
        Ok(Arc::clone(&self.blocks[i]))
    }
    fn block_size(&self, i: usize, device: &Device) -> Result<Option<ByteSize>> {
        Ok(self.blocks[i].size_on(device))
    }
    fn epoch(&self) -> u64 {
        0
    }
}

/// Made up: each slot with a block of its own.
pub(crate) fn step(device: &Device, slots: usize) -> Step {
    let blocks: Vec<Arc<Block>> = (0..slots)
        .map(|_| device.create_block(ByteSize(MIB2), CreateOptions::default()).expect("a block"))
        .collect();
    let buffer = |(i, block): (usize, &Arc<Block>)| Buffer {
        // Nobody knows these addresses, so they are taken to be where the blocks begin.
        address: DevicePtr((1 << 50) + i as u64 * MIB2),
        bytes: ByteSize(MIB2),
        id: block.id().0,
        has_block: true,
    };
    Step { buffers: blocks.iter().enumerate().map(buffer).collect(), blocks }
}

/// The same with every fifth slot in another block.
pub(crate) fn fifth_moved(device: &Device, first: &Step) -> Step {
    let (mut moved, other) = (first.clone(), step(device, first.buffers.len()));
    for i in (0..first.buffers.len()).step_by(5) {
        moved.buffers[i] =
            Buffer { address: DevicePtr(other.buffers[i].address.0 + (1 << 50)), ..other.buffers[i] };
        moved.blocks[i] = Arc::clone(&other.blocks[i]);
    }
    moved
}

/// A recorded run: for each slot its bytes, at most a granule, and its direction; for each step the numbers of
/// the slots' buffers.
pub(crate) struct Recorded {
    pub(crate) slots: Vec<Slot>,
    pub(crate) steps: Vec<Vec<u64>>,
}

/// Reads `llama_donate`. What is in and out with one buffer in each step is one slot.
pub(crate) fn recorded() -> Recorded {
    // In the program, so that it runs where the sources are not.
    let file: &[u8] = include_bytes!("../../tests/data/steps/llama_donate.csv.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("text");
    let mut ins: BTreeMap<(String, bool), (u64, Vec<u64>)> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        let mut parts = line.rsplitn(4, ',');
        let mut next = || parts.next().expect("step,slot,role,bytes,buffer");
        let (buffer, bytes, role) = (next(), next(), next());
        let name = next().split_once(',').expect("a slot").1.to_owned();
        let slot = ins.entry((name, role == "out")).or_default();
        slot.0 = bytes.parse().expect("bytes");
        slot.1.push(buffer.parse().expect("a buffer"));
    }
    let outs: Vec<_> = ins.keys().filter(|(_, out)| *out).cloned().collect();
    let mut directions = BTreeMap::new();
    for (name, _) in outs {
        let (input, output) = ((name.clone(), false), (name, true));
        if ins.get(&input) == ins.get(&output) {
            ins.remove(&output);
            directions.insert(input, Direction::IN_OUT);
        }
    }
    let direction = |key: &(String, bool)| {
        directions.get(key).copied().unwrap_or(if key.1 { Direction::OUT } else { Direction::IN })
    };
    let slot = |(key, (bytes, _)): (&(String, bool), &(u64, Vec<u64>))| {
        Slot::new(ByteSize((*bytes).min(MIB2))).direction(direction(key))
    };
    let slots = ins.iter().map(slot).collect();
    let count = ins.values().map(|(_, buffers)| buffers.len()).min().unwrap_or(0);
    let steps = (0..count).map(|i| ins.values().map(|(_, buffers)| buffers[i]).collect()).collect();
    Recorded { slots, steps }
}

/// The recorded steps with a block for each buffer.
pub(crate) fn with_blocks(device: &Device, recorded: &Recorded) -> Vec<Step> {
    let mut blocks: BTreeMap<u64, Arc<Block>> = BTreeMap::new();
    let mut block = |buffer: u64| {
        let fresh = || device.create_block(ByteSize(MIB2), CreateOptions::default()).expect("a block");
        Arc::clone(blocks.entry(buffer).or_insert_with(fresh))
    };
    let mut step = |numbers: &Vec<u64>| {
        let blocks: Vec<_> = numbers.iter().map(|number| block(*number)).collect();
        let buffer = |(number, block): (&u64, &Arc<Block>)| Buffer {
            address: DevicePtr((1 << 50) + number * MIB2),
            bytes: ByteSize(MIB2),
            id: block.id().0,
            has_block: true,
        };
        Step { buffers: numbers.iter().zip(&blocks).map(buffer).collect(), blocks }
    };
    recorded.steps.iter().map(&mut step).collect()
}

/// The same with memory that can be copied, which the second value keeps.
pub(crate) fn with_memory(device: &Arc<Device>, recorded: &Recorded) -> (Vec<Step>, Vec<Arc<Allocation>>) {
    let mut memory: BTreeMap<u64, Arc<Allocation>> = BTreeMap::new();
    let mut of = |number: u64| {
        let fresh = || device.allocate(ByteSize(MIB2), &[], Owner::Caller).expect("memory");
        Arc::clone(memory.entry(number).or_insert_with(fresh))
    };
    let mut step = |numbers: &Vec<u64>| {
        let memory: Vec<_> = numbers.iter().map(|number| of(*number)).collect();
        let blocks: Vec<_> = memory.iter().map(|m| Arc::clone(m.block().expect("a block"))).collect();
        let buffer = |(memory, block): (&Arc<Allocation>, &Arc<Block>)| Buffer {
            address: memory.address(),
            bytes: ByteSize(MIB2),
            id: block.id().0,
            has_block: true,
        };
        Step { buffers: memory.iter().zip(&blocks).map(buffer).collect(), blocks }
    };
    let steps = recorded.steps.iter().map(&mut step).collect();
    (steps, memory.into_values().collect())
}
