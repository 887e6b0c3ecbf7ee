//! Touching memory of this process that may not be there, without dying of it.
#![allow(unsafe_code, reason = "reading and writing addresses that a driver gave")]

use crate::units::DevicePtr;

/// Fills `into` from `from`; false where the host cannot read all of it.
pub(super) fn read(from: DevicePtr, into: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = iovec(from, into.len());
    // SAFETY: `into` is ours to write, and the system checks the other side.
    let moved = unsafe { libc::process_vm_readv(own_id(), &local, 1, &remote, 1, 0) };
    usize::try_from(moved) == Ok(into.len())
}

/// Writes `bytes` to `to`; false where the host cannot write all of it.
pub(super) fn write(to: DevicePtr, bytes: &[u8]) -> bool {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = iovec(to, bytes.len());
    // SAFETY: `bytes` is only read, and the system checks the other side, which is memory that a driver gave to
    // the check that asks for this.
    let moved = unsafe { libc::process_vm_writev(own_id(), &local, 1, &remote, 1, 0) };
    usize::try_from(moved) == Ok(bytes.len())
}

fn own_id() -> libc::pid_t {
    libc::pid_t::try_from(std::process::id()).unwrap_or(0)
}

fn iovec(at: DevicePtr, length: usize) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at.0 as usize), iov_len: length }
}
