//! Allocations: a block, a range, a mapping and access in one.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::block::{BlockObject, Holder};
use super::drivers::{Child, DeviceObject};
use super::entry::entry;
use super::handle::{self, Noun, Ref, Table};
use super::peer::Peers;
use super::status::gvmm_status;
use super::types::{gvmm_allocation, gvmm_block, gvmm_device};
use super::versioned::{Caller, Versioned, versioned};
use crate::error::{Operation, Result};
use crate::units::ByteSize;
use crate::vm::{Allocation, Device, Owner};
use std::sync::Arc;

/// What an allocation is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_allocation_info {
    /// `sizeof(gvmm_allocation_info)`.
    pub struct_size: usize,
    /// Its address.
    pub address: u64,
    /// Its size in bytes, as asked for.
    pub size_bytes: u64,
    /// Its block, which ends with the allocation; NULL for plain device memory.
    pub block: *mut gvmm_block,
}

/// Creates a block, reserves, maps and gives the device access, or undoes all of it.
///
/// State: after success the memory is accessible until `gvmm_allocation_destroy`.
/// Parameters: `device`; `size_bytes`, above 0, rounded up to the granularity; `out_allocation`, the
/// handle; `out_address`, the memory's address.
/// Statuses: INVALID_SIZE, OUT_OF_DEVICE_MEMORY, OUT_OF_ADDRESS_SPACE, MAP_LIMIT.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_allocation_create(
    device: *mut gvmm_device,
    size_bytes: u64,
    out_allocation: *mut *mut gvmm_allocation,
    out_address: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Allocate, || {
        let (out, address) = (c.out(out_allocation)?, c.out(out_address)?);
        let device = handle::get::<DeviceObject>(device)?;
        let child = device.adopt()?;
        let allocation = device.device.allocate(ByteSize(size_bytes), &[], Owner::Library)?;
        if allocation.reservation().is_some() {
            Peers::of(&device.device).join(&allocation)?;
        }
        let start = allocation.address();
        out.write(AllocationObject::insert(&device, allocation, child)?);
        address.write(start.get());
        Ok(())
    })
}

/// Says what an allocation is.
///
/// State: changes none.
/// Parameters: `allocation`; `out_info`, whose `struct_size` is set. Its `block` is not a new handle.
/// Statuses: UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_allocation_query(
    allocation: *mut gvmm_allocation,
    out_info: *mut gvmm_allocation_info,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_struct(out_info)?;
        let allocation = handle::get::<AllocationObject>(allocation)?;
        out.write(&gvmm_allocation_info {
            address: allocation.allocation.address().get(),
            size_bytes: allocation.allocation.size().get(),
            block: handle::to_pointer::<BlockObject>(allocation.block),
            ..Versioned::DEFAULT
        });
        Ok(())
    })
}

/// Gives an allocation's memory and address back, at once: nothing running may use them.
///
/// State: after success the handle is invalid, and its block's handle too; memory that a binding has mapped
/// stays until that mapping goes.
/// Parameters: `allocation`.
/// Statuses: IN_USE (the caller has mapped its block elsewhere; nothing has changed).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_allocation_destroy(allocation: *mut gvmm_allocation) -> gvmm_status {
    entry(Operation::Destroy, || {
        let leaving = handle::leave_if::<AllocationObject>(allocation, |a| a.check_unused())?;
        if leaving.block != 0 {
            let block = handle::to_pointer::<BlockObject>(leaving.block);
            handle::leave_if::<BlockObject>(block, |block| block.check_unused())?.gone();
        }
        leaving.gone();
        Ok(())
    })
}

versioned!(gvmm_allocation_info { address, size_bytes, block });

/// What a handle of an allocation stands for.
pub(super) struct AllocationObject {
    pub(super) allocation: Arc<Allocation>,
    /// The key of its block, or 0.
    block: u64,
    child: Child,
}

static ALLOCATIONS: Table<AllocationObject> = Table::new();

impl Noun for AllocationObject {
    const TYPE: u64 = 4;
    type Handle = gvmm_allocation;
    fn table() -> &'static Table<Self> {
        &ALLOCATIONS
    }
}

impl AllocationObject {
    /// The device that it is of.
    pub(super) fn device(&self) -> &Arc<Device> {
        self.child.device()
    }

    /// Fails where the caller has its block mapped elsewhere.
    fn check_unused(&self) -> Result<()> {
        match handle::look_up::<BlockObject>(handle::to_pointer::<BlockObject>(self.block)) {
            Ok(block) => block.check_unused(),
            // Plain memory has no block; a half-done one does not keep its allocation.
            Err(_) => Ok(()),
        }
    }

    /// A handle of an allocation, and one of its block where it has one.
    fn insert(
        device: &Ref<DeviceObject>,
        allocation: Arc<Allocation>,
        child: Child,
    ) -> Result<*mut gvmm_allocation> {
        let block = match allocation.block() {
            Some(block) => {
                handle::key(BlockObject::insert(Arc::clone(block), device.adopt()?, Holder::Allocation)?)
            }
            None => 0,
        };
        let object = Self { allocation, block, child };
        handle::insert(object).inspect_err(|_| {
            if let Ok(leaving) = handle::leave::<BlockObject>(handle::to_pointer::<BlockObject>(block)) {
                leaving.gone();
            }
        })
    }
}
