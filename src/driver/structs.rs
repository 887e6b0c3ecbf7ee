//! The structs of virtual memory, which are the same byte for byte in CUDA and HIP.

use crate::driver::AccessMode;
use crate::error::{Error, Kind, Operation, Result};

/// `CUmemLocation`, `hipMemLocation`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(in crate::driver) struct Location {
    /// 1 for a device; on HIP 2 for the host.
    pub(in crate::driver) kind: i32,
    /// The device's number.
    pub(in crate::driver) id: i32,
}

impl Location {
    pub(in crate::driver) const HOST: Self = Self { kind: ON_HOST, id: 0 };

    /// A device, by the number that the driver has for it.
    pub(in crate::driver) const fn device(id: i32) -> Self {
        Self { kind: ON_DEVICE, id }
    }
}

/// `CUmemAccessDesc`, `hipMemAccessDesc`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(in crate::driver) struct AccessDesc {
    pub(in crate::driver) location: Location,
    /// 0, 1 or 3.
    pub(in crate::driver) flags: i32,
}

/// `CUmemAllocationProp`, `hipMemAllocationProp`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(in crate::driver) struct AllocationProp {
    /// 1 for pinned.
    pub(in crate::driver) kind: i32,
    /// Handle types that it may be exported as: 0 none, 1 a file descriptor. HIP renamed it between releases.
    pub(in crate::driver) handle_types: i32,
    pub(in crate::driver) location: Location,
    /// Windows only.
    pub(in crate::driver) meta_data: u64,
    pub(in crate::driver) compression: u8,
    pub(in crate::driver) rdma: u8,
    pub(in crate::driver) usage: u16,
    pub(in crate::driver) reserved: [u8; 4],
}

impl AllocationProp {
    /// Pinned memory of a device, exportable as a file descriptor or not.
    pub(in crate::driver) fn pinned(device: i32, exportable: bool) -> Self {
        let handle_types = if exportable { POSIX_FD } else { 0 };
        Self { kind: PINNED, handle_types, location: Location::device(device), ..Self::default() }
    }
}

/// The mode that the driver says by `flags`.
pub(in crate::driver) fn access_mode(flags: u64) -> Result<AccessMode> {
    let hint = "the driver gave an access mode that is not known";
    let odd = || Error::new(Kind::DriverError, Operation::Query, hint);
    u32::try_from(flags).map(AccessMode).ok().filter(|mode| mode.is_known()).ok_or_else(odd)
}

/// A handle type: a file descriptor.
pub(in crate::driver) const POSIX_FD: i32 = 1;
/// A location: a device.
pub(in crate::driver) const ON_DEVICE: i32 = 1;
/// A location: the host.
pub(in crate::driver) const ON_HOST: i32 = 2;
/// An allocation's type: pinned.
pub(in crate::driver) const PINNED: i32 = 1;

const _: () = {
    assert!(size_of::<Location>() == 8 && size_of::<AccessDesc>() == 12);
    assert!(std::mem::offset_of!(AccessDesc, flags) == 8);
    assert!(size_of::<AllocationProp>() == 32 && align_of::<AllocationProp>() == 8);
    assert!(std::mem::offset_of!(AllocationProp, location) == 8);
    assert!(std::mem::offset_of!(AllocationProp, meta_data) == 16);
    assert!(std::mem::offset_of!(AllocationProp, compression) == 24);
    assert!(std::mem::offset_of!(AllocationProp, rdma) == 25);
};
