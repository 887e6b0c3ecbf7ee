//! Permanent addresses of slots.
#![allow(unsafe_code, reason = "exports a symbol; says that the caller vouches for its pointers")]

use super::binding::BindingObject;
use super::entry::entry;
use super::handle;
use super::status::gvmm_status;
use super::types::gvmm_binding;
use super::versioned::Caller;
use crate::error::Operation;

/// Gives the permanent address of a slot with GVMM_SLOT_PERMANENT, to tell a communicator of it before the first step.
///
/// State: changes none. The address is the slot's in every generation, and is freed with the binding, once the last step
/// that used it has passed.
/// Parameters: `binding`; `slot`, the slot's index; `out_address`, its address.
/// Statuses: OUT_OF_RANGE (no such slot), WRONG_STATE (a slot without one), BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_permanent(
    binding: *mut gvmm_binding,
    slot: usize,
    out_address: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out(out_address)?;
        out.write(handle::get::<BindingObject>(binding)?.binding.permanent(slot)?.get());
        Ok(())
    })
}
