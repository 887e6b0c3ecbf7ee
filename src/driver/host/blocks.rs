//! The blocks, and how much of each device's memory they take.

use super::offsets::Offsets;
use super::sys::MemFile;
use crate::driver::{NativeBlock, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use std::collections::HashMap;

/// A block: where its bytes are, and who still needs them.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) device: Ordinal,
    pub(super) size: ByteSize,
    pub(super) offset: u64,
    /// A file of its own, where the block is or was exported; else it lies in the large one.
    pub(super) file: Option<MemFile>,
    /// Whether its device pays for it; an imported block is paid for where it was made.
    charged: bool,
    released: bool,
    mappings: u32,
}

/// The last trace of a block that nobody needs any more: what must be given back to the system.
#[derive(Debug)]
#[must_use = "its memory is given back by `Memory::give_back`"]
pub(super) struct Gone {
    device: Ordinal,
    charge: ByteSize,
    /// The part of the large file, or none for a block with a file of its own.
    pub(super) part: Option<(u64, u64)>,
    /// Kept until here, so that a file is closed outside the lock.
    _file: Option<MemFile>,
}

/// All blocks and the memory of all devices.
#[derive(Debug)]
pub(super) struct Blocks {
    by_handle: HashMap<u64, Block>,
    next: u64,
    used: Vec<u64>,
    total: u64,
    offsets: Offsets,
}

impl Blocks {
    /// No blocks, on `devices` devices of `total` bytes each.
    pub(super) fn new(devices: u32, total: u64) -> Self {
        let used = vec![0; devices as usize];
        Self { by_handle: HashMap::new(), next: 1, used, total, offsets: Offsets::default() }
    }

    /// The bytes that a device has left.
    pub(super) fn free(&self, device: Ordinal) -> u64 {
        self.total.saturating_sub(self.used.get(device.0 as usize).copied().unwrap_or(self.total))
    }

    /// Books `size` bytes of a device's memory, or says that it is used up.
    pub(super) fn charge(&mut self, device: Ordinal, size: ByteSize, operation: Operation) -> Result<()> {
        if size.0 > self.free(device) {
            let hint = "the device's memory is used up: destroy blocks, drain what is retired, or raise GVMM_HOST_MEMORY";
            return Err(Error::new(Kind::OutOfDeviceMemory, operation, hint).of(size));
        }
        if let Some(used) = self.used.get_mut(device.0 as usize) {
            *used += size.0;
        }
        Ok(())
    }

    /// Books `size` bytes as free again.
    pub(super) fn refund(&mut self, device: Ordinal, size: ByteSize) {
        if let Some(used) = self.used.get_mut(device.0 as usize) {
            *used = used.saturating_sub(size.0);
        }
    }

    /// Takes a part of the large file. Gives its offset and how long the file must be.
    pub(super) fn take_part(&mut self, size: ByteSize) -> Option<(u64, u64)> {
        let offset = self.offsets.take(size.0)?;
        Some((offset, self.offsets.end()))
    }

    /// Gives back a part of the large file.
    pub(super) fn give_part(&mut self, offset: u64, size: u64) {
        self.offsets.give(offset, size);
    }

    /// Enters a block, under a handle that is never given out again.
    pub(super) fn insert(
        &mut self,
        device: Ordinal,
        size: ByteSize,
        offset: u64,
        file: Option<MemFile>,
        charged: bool,
    ) -> NativeBlock {
        let handle = self.next;
        self.next += 1;
        let block = Block { device, size, offset, file, charged, released: false, mappings: 0 };
        self.by_handle.insert(handle, block);
        NativeBlock(handle)
    }

    /// A block that was not released.
    pub(super) fn get(&self, handle: NativeBlock, operation: Operation) -> Result<&Block> {
        let block = self.by_handle.get(&handle.0).filter(|block| !block.released);
        block.ok_or_else(|| Error::new(Kind::InvalidHandle, operation, "no such block, or it was released"))
    }

    /// True where a block is mapped somewhere.
    pub(super) const fn is_mapped(block: &Block) -> bool {
        block.mappings > 0
    }

    /// Counts one mapping more.
    pub(super) fn mapped(&mut self, handle: NativeBlock) {
        if let Some(block) = self.by_handle.get_mut(&handle.0) {
            block.mappings += 1;
        }
    }

    /// Counts one mapping less.
    pub(super) fn unmapped(&mut self, handle: NativeBlock) -> Option<Gone> {
        let block = self.by_handle.get_mut(&handle.0)?;
        block.mappings = block.mappings.saturating_sub(1);
        self.bury(handle)
    }

    /// Ends a handle; the block goes with its last mapping.
    pub(super) fn release(&mut self, handle: NativeBlock) -> Result<Option<Gone>> {
        self.get(handle, Operation::Release)?;
        if let Some(block) = self.by_handle.get_mut(&handle.0) {
            block.released = true;
        }
        Ok(self.bury(handle))
    }

    /// Removes a block that is neither mapped nor held.
    fn bury(&mut self, handle: NativeBlock) -> Option<Gone> {
        if !self.by_handle.get(&handle.0).is_some_and(|block| block.released && block.mappings == 0) {
            return None;
        }
        let block = self.by_handle.remove(&handle.0)?;
        let charge = if block.charged { block.size } else { ByteSize::ZERO };
        let part = block.file.is_none().then_some((block.offset, block.size.0));
        Some(Gone { device: block.device, charge, part, _file: block.file })
    }

    /// Books what a block took as free, once the system has it back.
    pub(super) fn settle(&mut self, gone: &Gone) {
        if let Some((offset, size)) = gone.part {
            self.offsets.give(offset, size);
        }
        self.refund(gone.device, gone.charge);
    }
}
