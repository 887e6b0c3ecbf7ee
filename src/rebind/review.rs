//! Looks at a step's buffers: what changed, and can the layout in force serve them?

use super::buffers::{Buffer, Buffers};
use super::engine::{Engine, refused};
use super::ids::Ids;
use super::layout::Layout;
use super::relayout::check_address;
use super::slot::{Action, Slot};
use crate::driver::Capabilities;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use crate::vm::{Block, Device, PlaceEntry};
use std::sync::Arc;

/// What a step's buffers are to the layout in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Review {
    /// Slots whose buffers differ from those served.
    pub(super) changed: u64,
    /// The caller's epoch.
    pub(super) epoch: u64,
}

impl Engine {
    /// Compares the buffers with those served and lists the slots that need a look. Most steps end here, so this
    /// touches two arrays and nothing else.
    pub(super) fn scan(&mut self, buffers: &impl Buffers) -> Review {
        let epoch = buffers.epoch();
        let all = self.layout.is_none() || self.unsure;
        let handles = epoch != self.epoch;
        let each = all | handles;
        let mut changed = 0;
        let suspects = &mut self.scratch.suspects;
        suspects.clear();
        for (i, served) in self.served.iter().enumerate() {
            let buffer = buffers.get(i);
            let same = is_same(&buffer, served) & (buffer.id != 0);
            // One jump a slot: most are not taken.
            if same & !each {
                continue;
            }
            if same && !(all | (handles & buffer.has_block)) {
                continue;
            }
            changed += u64::from(!same);
            suspects.push(i as u32);
        }
        Review { changed, epoch }
    }

    /// Checks the suspects, and says whether the layout in force can serve them; `moves` then are the windows that
    /// must hold another block.
    pub(super) fn examine(&mut self, buffers: &impl Buffers) -> Result<bool> {
        self.scratch.moves.clear();
        self.scratch.moved.clear();
        self.scratch.copied.clear();
        self.scratch.patched.clear();
        let Self { device, slots, layout, scratch, unsure, .. } = self;
        let mut fits = layout.is_some();
        scratch.ids.start(slots.len(), buffers.deaths());
        for &suspect in &scratch.suspects {
            let (i, buffer) = (suspect as usize, buffers.get(suspect as usize));
            let known = scratch.ids.look(suspect, &buffer);
            let ids = &mut scratch.ids;
            let Some(layout) = layout.as_ref().filter(|_| fits) else {
                check_buffer(device, slots[i].bytes, buffers, i, &buffer, ids, known)?;
                continue;
            };
            let place = &layout.places[i];
            match place.action {
                Action::MAP => {
                    let slot = &slots[i];
                    let block = checked(device, slot, buffers, i, &buffer)?;
                    match block.filter(|b| fits_window(device, layout, slot, i, &buffer, b)) {
                        Some(block) if *unsure || !holds(layout, i, &block) => {
                            let Some((_, offset)) = layout.window(i) else { continue };
                            scratch.moved.push((suspect, block.id()));
                            scratch.moves.push(PlaceEntry { offset, block: Some(block) });
                        }
                        Some(_) => {}
                        None => fits = false,
                    }
                }
                Action::COPY => {
                    check_buffer(device, place.bytes, buffers, i, &buffer, ids, known)?;
                    fits = !buffer.address.is_null();
                    scratch.copied.push((suspect, known));
                }
                Action::PATCH => {
                    check_buffer(device, place.bytes, buffers, i, &buffer, ids, known)?;
                    fits = check_address(&slots[i], Action::PATCH, &buffer, i).is_ok();
                    if buffer.address != place.address {
                        scratch.patched.push(suspect);
                    }
                }
                _ => {
                    check_buffer(device, place.bytes, buffers, i, &buffer, ids, known)?;
                    fits = buffer.address == place.address;
                }
            }
        }
        Ok(fits & self.check_sharing(buffers)?)
    }

    /// Checks that no written allocation is shared, and says whether the layout in force can serve what is.
    fn check_sharing(&mut self, buffers: &impl Buffers) -> Result<bool> {
        let Self { device, slots, layout, scratch, .. } = self;
        let aliases = device.capabilities().has(Capabilities::ALIASING);
        let mut fits = true;
        let mapped = |i: usize| layout.as_ref().is_some_and(|l| l.places[i].action == Action::MAP);
        let twin = |twin: usize| fits &= aliases || !mapped(twin);
        scratch.ids.check(slots, |i| buffers.get(i), twin)?;
        Ok(fits)
    }
}

/// Equality without a jump for each field.
fn is_same(a: &Buffer, b: &Buffer) -> bool {
    let (address, bytes) = (a.address.get() ^ b.address.get(), a.bytes.get() ^ b.bytes.get());
    address | bytes | (a.id ^ b.id) | u64::from(a.has_block ^ b.has_block) == 0
}

/// Checks one buffer against its slot, where its block need not be known.
#[inline]
fn check_buffer(
    device: &Device,
    wanted: ByteSize,
    buffers: &impl Buffers,
    i: usize,
    buffer: &Buffer,
    ids: &mut Ids,
    known: u32,
) -> Result<()> {
    let size = if buffer.has_block { ids.block_size(known) } else { Some(buffer.bytes) };
    match size {
        Some(size) if size.min(buffer.bytes) >= wanted => Ok(()),
        _ => check_unknown(device, wanted, buffers, i, buffer, ids, known),
    }
}

/// The same for a block that was not looked at, or a failure.
#[cold]
fn check_unknown(
    device: &Device,
    wanted: ByteSize,
    buffers: &impl Buffers,
    i: usize,
    buffer: &Buffer,
    ids: &mut Ids,
    known: u32,
) -> Result<()> {
    check_size(wanted, buffer, buffer.bytes, i)?;
    if !buffer.has_block {
        return Ok(());
    }
    let size = buffers.block_size(i, device).map_err(|e| e.during(Operation::Begin).entry(i as u64))?;
    let Some(size) = size else { return Err(OTHER_DEVICE.entry(i as u64)) };
    ids.note_block_size(known, size);
    check_size(wanted, buffer, size, i)
}

/// Checks one buffer against its slot, and gives its block where it has one.
pub(super) fn checked(
    device: &Device,
    slot: &Slot,
    buffers: &impl Buffers,
    i: usize,
    buffer: &Buffer,
) -> Result<Option<Arc<Block>>> {
    check_size(slot.bytes, buffer, buffer.bytes, i)?;
    if !buffer.has_block {
        return Ok(None);
    }
    let block = buffers.block(i).map_err(|e| e.during(Operation::Begin).entry(i as u64))?;
    let size = block.size_on(device).ok_or(OTHER_DEVICE.entry(i as u64))?;
    check_size(slot.bytes, buffer, size, i).map(|()| Some(block))
}

#[inline]
fn check_size(wanted: ByteSize, buffer: &Buffer, size: ByteSize, i: usize) -> Result<()> {
    if size < wanted { Err(TOO_SMALL.at(buffer.address, size).entry(i as u64)) } else { Ok(()) }
}

/// True where a window of ours may show `block` in place of `buffer`: the device maps, and the buffer is the whole
/// block. An address that nobody knows is taken to be where its block begins.
pub(super) fn is_mappable(device: &Device, slot: &Slot, buffer: &Buffer, block: &Block) -> bool {
    let has = |capability| device.capabilities().has(capability);
    if !slot.may_map() || !has(Capabilities::VIRTUAL_MEMORY) {
        return false;
    }
    if buffer.address.is_null() {
        return has(Capabilities::ALIASING) || block.caller_mappings() == 0;
    }
    let begins_there = |found: crate::vm::Found| found.block == block.id() && found.offset.is_zero();
    has(Capabilities::ALIASING) && device.find(buffer.address).is_none_or(begins_there)
}

/// The failure of a slot that needs its buffer's address and has none.
pub(super) fn needs_address(buffer: &Buffer, i: usize) -> Result<()> {
    if buffer.address.is_null() { Err(NO_ADDRESS.entry(i as u64)) } else { Ok(()) }
}

fn fits_window(
    device: &Device,
    layout: &Layout,
    slot: &Slot,
    i: usize,
    buffer: &Buffer,
    block: &Block,
) -> bool {
    block.size() <= layout.window_size(i) && is_mappable(device, slot, buffer, block)
}

fn holds(layout: &Layout, i: usize, block: &Block) -> bool {
    layout.held[i] == Some(block.id())
}

const TOO_SMALL: Error = refused(Kind::InvalidSize, "the buffer is smaller than its slot");
const OTHER_DEVICE: Error = refused(Kind::InvalidArgument, "the block is another device's");
const NO_ADDRESS: Error =
    refused(Kind::InvalidArgument, "a slot that is baked or copied needs its buffer's address");
