//! Access.
#![allow(unsafe_code, reason = "says that a struct is plain data")]

use super::array::{Element, Elements};
use crate::driver::{Access, AccessMode, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::vm::Device;

/// Access mode: nothing.
pub const GVMM_ACCESS_NONE: u32 = 0;
/// Access mode: reading.
pub const GVMM_ACCESS_READ: u32 = 1;
/// Access mode: reading and writing.
pub const GVMM_ACCESS_READ_WRITE: u32 = 3;

/// One line of an access list: what one device may do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_access {
    /// The device's number.
    pub device: u32,
    /// `GVMM_ACCESS_...`.
    pub mode: u32,
}
// SAFETY: two numbers.
unsafe impl Element for gvmm_access {}

/// An access list; the layer below checks it.
pub(super) fn access_list(access: Elements<gvmm_access>) -> Vec<Access> {
    access.iter().map(|a| Access { device: Ordinal(a.device), mode: AccessMode(a.mode) }).collect()
}

/// Fails for an access list that no driver could apply.
pub(super) fn check_access(device: &Device, access: &[Access]) -> Result<()> {
    let count = device.driver().device_count();
    for (i, access) in access.iter().enumerate() {
        let (kind, hint) = match access {
            a if !a.mode.is_known() => (Kind::InvalidArgument, "the mode is none of GVMM_ACCESS_..."),
            a if a.device.0 >= count => (Kind::NoDevice, "an access list names a device that is not there"),
            _ => continue,
        };
        return Err(Error::new(kind, Operation::SetAccess, hint).entry(i as u64));
    }
    Ok(())
}
