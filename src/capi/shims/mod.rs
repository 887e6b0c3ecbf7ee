//! What frameworks call by exact signature: their allocators, over pools of ours.
//!
//! A framework gives no handles and asks for no statuses. `pools` keeps one pool for each device, and is what all shims
//! share; each framework has a file of its own. A call that fails leaves the last error of its thread, as every other does.

mod function;
mod pools;
mod sycl;
pub mod torch;
pub mod xpu;

use super::last_error;
use super::status::{GVMM_ERROR_FORKED, GVMM_STATUS_SUCCESS, gvmm_status};

/// Logs what a call without an answer could not do.
#[inline]
fn tell(status: gvmm_status, what: &str) {
    if status != GVMM_STATUS_SUCCESS && status != GVMM_ERROR_FORKED {
        log::warn!("{what}: {}", last_error::text());
    }
}
