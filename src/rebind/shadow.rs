//! To come: the arena of shadows, one a device.

use crate::units::ByteSize;
use crate::vm::Device;
use std::sync::Arc;

/// A device's budget of shadows, shared by all bindings of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShadowBudget {
    /// How many bytes bindings may book together.
    pub limit: ByteSize,
    /// How many bytes they have booked.
    pub booked: ByteSize,
}

/// The budget of `device`: `GVMM_SHADOW_BUDGET` bytes, or 1 % of the device's memory, or 64 MiB where that is
/// not known.
pub fn shadow_budget(_device: &Arc<Device>) -> ShadowBudget {
    todo!()
}

/// Sets the limit of `device`'s budget, in bytes. What is booked stays booked.
pub fn set_shadow_budget(_device: &Arc<Device>, _limit: ByteSize) {
    todo!()
}
