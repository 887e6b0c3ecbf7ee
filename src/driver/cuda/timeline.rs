//! What CUDA does for timelines; `timelines.rs` keeps the books of them.

use super::api::{NO_TIMING, NOT_READY, SUCCESS};
use super::context::{Context, Core};
use crate::driver::Ordinal;
use crate::driver::delegate::clock_calls;
use crate::driver::timelines::Clock;
use crate::error::{Error, Kind, Operation, Result};
use std::sync::Arc;

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
pub(super) const PINNED_HOST: u32 = 3;
/// `CU_STREAM_WAIT_VALUE_GEQ`.
pub(super) const AT_LEAST: u32 = 0;

impl Clock for Core {
    fn has_counters(&self, device: Ordinal) -> Result<bool> {
        self.has_values(device)
    }

    fn opened(&self) -> Vec<Arc<Context>> {
        self.devices.iter().filter_map(|device| device.primary.get().cloned()).collect()
    }

    fn check_health(&self, place: &Arc<Context>) -> Result<()> {
        self.check_context(place)
    }

    fn wait_value(&self, stream: u64, address: u64, value: u64) -> Result<()> {
        self.api.check(self.api.stream_wait_value(stream, address, value, AT_LEAST), Operation::Timeline)
    }

    clock_calls!();
}
