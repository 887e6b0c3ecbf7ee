//! The caller's own memory: a block with an address of its own for each recorded buffer.
#![allow(unsafe_code, reason = "the recorded buffers are filled and checked by address")]

use crate::pattern::Memory;
use crate::trace::Trace;
use gvmm::driver::Access;
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::rebind::{Buffer, Buffers};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::{Allocation, Block, Device, Owner};
use std::collections::HashMap;
use std::sync::Arc;

/// Makes a buffer when it is first seen, and keeps it.
pub(crate) struct Pool {
    device: Arc<Device>,
    access: Vec<Access>,
    /// By number and rounded size: the numbers are addresses, so one with several sizes was several buffers.
    buffers: HashMap<(u64, ByteSize), Arc<Allocation>>,
}

impl Pool {
    pub(crate) fn new(device: &Arc<Device>, access: &[Access]) -> Self {
        Self { device: Arc::clone(device), access: access.to_vec(), buffers: HashMap::new() }
    }

    /// The buffers of one step.
    pub(crate) fn of_step(&mut self, trace: &Trace, step: usize) -> Result<StepBuffers> {
        let mut step_buffers =
            StepBuffers { allocations: Vec::new(), buffers: Vec::new(), first: Vec::new() };
        let mut seen = HashMap::new();
        for (i, (slot, &number)) in trace.slots.iter().zip(&trace.steps[step]).enumerate() {
            let allocation = self.get(number, ByteSize(slot.bytes)).map_err(|error| error.entry(i as u64))?;
            step_buffers.first.push(*seen.entry(allocation.address()).or_insert(i));
            step_buffers.buffers.push(buffer(&allocation));
            step_buffers.allocations.push(allocation);
        }
        Ok(step_buffers)
    }

    fn get(&mut self, number: u64, bytes: ByteSize) -> Result<Arc<Allocation>> {
        let too_large =
            Error::new(Kind::InvalidSize, Operation::Allocate, "no device is that large").of(bytes);
        let size = self.device.granularity().round_up(bytes).ok_or(too_large)?;
        if let Some(allocation) = self.buffers.get(&(number, size)) {
            return Ok(Arc::clone(allocation));
        }
        let allocation = self.device.allocate(size, &self.access, Owner::Caller)?;
        self.buffers.insert((number, size), Arc::clone(&allocation));
        Ok(allocation)
    }
}

/// One buffer for each slot.
pub(crate) struct StepBuffers {
    allocations: Vec<Arc<Allocation>>,
    /// The same as a binding takes them, written beforehand as an executor would.
    buffers: Vec<Buffer>,
    /// For each slot the first that has the same buffer.
    first: Vec<usize>,
}

impl StepBuffers {
    /// Where slot `i`'s buffer is.
    pub(crate) fn address(&self, i: usize) -> DevicePtr {
        self.allocations[i].address()
    }

    /// The memory of slot `i`'s buffer.
    pub(crate) fn memory(&self, i: usize, bytes: u64) -> Memory {
        // SAFETY: the executor looks only while it holds the allocation, which the host may touch (it asked the
        // device for that), is as large as its slot, and is at rest before and after a step.
        unsafe { Memory::new(self.allocations[i].address(), ByteSize(bytes)) }
    }

    /// The first slot that has the same buffer as slot `i`.
    pub(crate) fn first_with_buffer_of(&self, i: usize) -> usize {
        self.first[i]
    }
}

fn buffer(allocation: &Allocation) -> Buffer {
    let block = allocation.block();
    // Plain memory has no block; it lives as long as the pool, so its address tells it from others.
    let id = block.map_or(allocation.address().get(), |block| block.id().0);
    Buffer { address: allocation.address(), bytes: allocation.size(), id, has_block: block.is_some() }
}

impl Buffers for StepBuffers {
    fn len(&self) -> usize {
        self.allocations.len()
    }

    fn get(&self, i: usize) -> Buffer {
        self.buffers[i]
    }

    fn block(&self, i: usize) -> Result<Arc<Block>> {
        let none = Error::new(Kind::InvalidHandle, Operation::Begin, "plain memory has no block");
        self.allocations[i].block().cloned().ok_or(none.entry(i as u64))
    }

    /// Looks at the block without taking hold of it, as a caller does who keeps its blocks anyway.
    fn block_size(&self, i: usize, device: &Device) -> Result<Option<ByteSize>> {
        match self.allocations[i].block() {
            Some(block) => Ok(block.size_on(device)),
            None => Ok(self.block(i)?.size_on(device)),
        }
    }

    /// The pool keeps every block.
    fn epoch(&self) -> u64 {
        1
    }
}
