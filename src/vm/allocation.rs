//! Memory with an address, made and freed as one.

use super::cleanup::Leftover;
use super::shared::Shared;
use super::{Block, Device, Owner, RemapEntry, Reservation, access};
use crate::driver::{Access, AccessMode, CreateOptions};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr};
use std::sync::Arc;

/// Memory with an address and access: a block in a reservation of its own size, or plain device memory where the
/// device has no virtual memory. Dropping it gives everything back; whoever drops it vouches that nothing uses
/// it any more.
#[derive(Debug)]
pub struct Allocation {
    shared: Arc<Shared>,
    address: DevicePtr,
    size: ByteSize,
    /// The block is given up after the reservation has unmapped it.
    parts: Option<(Arc<Reservation>, Arc<Block>)>,
}

impl Allocation {
    /// A block of `size` bytes, a multiple of its granularity, in a reservation of its own.
    pub(crate) fn mapped(
        device: &Device,
        size: ByteSize,
        access: &[Access],
        owner: Owner,
    ) -> Result<Arc<Self>> {
        let block = device.create_block(size, CreateOptions { stays: true, ..CreateOptions::default() })?;
        let reservation = device.reserve(size, None, access, owner)?;
        let entry = RemapEntry {
            reservation: Arc::clone(&reservation),
            offset: ByteSize::ZERO,
            block: Some(Arc::clone(&block)),
        };
        device.remap(&[entry], &[]).map_err(|e| Error { entry: None, ..e })?;
        let (shared, address) = (Arc::clone(device.shared()), reservation.range().start());
        Ok(Arc::new(Self { shared, address, size, parts: Some((reservation, block)) }))
    }

    /// Plain device memory, for this device only.
    pub(crate) fn plain(shared: &Arc<Shared>, size: ByteSize, access: &[Access]) -> Result<Arc<Self>> {
        if size.is_zero() {
            return Err(Error::new(Kind::InvalidSize, Operation::Allocate, "the size is 0"));
        }
        let list = access::normalize(&shared.calls, Operation::Allocate, access)?;
        if list[..] != [Access { device: shared.calls.ordinal(), mode: AccessMode::READ_WRITE }] {
            let hint = "without virtual memory, memory is for its own device, read and write";
            return Err(Error::new(Kind::Unsupported, Operation::Allocate, hint));
        }
        shared.collect();
        let address = shared.with_room(|| shared.calls.allocate(size))?;
        Ok(Arc::new(Self { shared: Arc::clone(shared), address, size, parts: None }))
    }

    /// Where it starts.
    pub const fn address(&self) -> DevicePtr {
        self.address
    }

    /// How many bytes there are: what was asked for, rounded up to granules where the memory is a block.
    pub const fn size(&self) -> ByteSize {
        self.size
    }

    /// Its block; plain device memory has none.
    pub fn block(&self) -> Option<&Arc<Block>> {
        self.parts.as_ref().map(|(_, block)| block)
    }

    /// Its reservation; plain device memory has none.
    pub fn reservation(&self) -> Option<&Arc<Reservation>> {
        self.parts.as_ref().map(|(reservation, _)| reservation)
    }
}

impl Drop for Allocation {
    /// A block and its reservation go by themselves: unmapped, released, freed.
    fn drop(&mut self) {
        if self.parts.is_none() {
            let result = self.shared.calls.deallocate(self.address);
            self.shared.or_keep(result, || Leftover::Memory(self.address));
        }
    }
}
