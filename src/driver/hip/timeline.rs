//! What HIP does for timelines; `timelines.rs` keeps the books of them. Events by default: streams that write and
//! wait for 64-bit values have deadlocked between devices (clr #133).

use super::api::{AT_LEAST, NO_TIMING, NOT_READY, PINNED_HOST, SUCCESS};
use super::context::Core;
use crate::driver::Ordinal;
use crate::driver::delegate::clock_calls;
use crate::driver::timelines::Clock;
use crate::error::{Error, Kind, Operation, Result};

impl Clock for Core {
    /// Streams that only write, for the host to read, are not what deadlocked.
    fn has_counters(&self, device: Ordinal) -> Result<bool> {
        self.device(device, Operation::Timeline).map(|_| self.api.writes_values())
    }

    fn opened(&self) -> Vec<Ordinal> {
        self.devices.iter().filter(|d| d.kit.get().is_some()).map(|d| d.ordinal).collect()
    }

    fn check_health(&self, place: &Ordinal) -> Result<()> {
        self.check_device(*place)
    }

    fn wait_value(&self, stream: u64, address: u64, value: u64) -> Result<()> {
        let status = self.api.stream_wait_value(stream, address, value, AT_LEAST, u64::MAX);
        self.api.check(status, Operation::Timeline)
    }

    clock_calls!();
}
