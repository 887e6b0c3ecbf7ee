//! What CUDA does for timelines; `timelines.rs` keeps the books of them.

use super::api::{NO_TIMING, NOT_READY, SUCCESS};
use super::context::{Context, Core};
use crate::driver::Ordinal;
use crate::driver::timelines::Clock;
use crate::error::{Error, Kind, Operation, Result};
use std::sync::Arc;

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
pub(super) const PINNED_HOST: u32 = 3;
/// `CU_STREAM_WAIT_VALUE_GEQ`.
pub(super) const AT_LEAST: u32 = 0;

impl Clock for Core {
    fn has_values(&self, device: Ordinal) -> Result<bool> {
        self.device(device, Operation::Timeline).map(|found| found.stream_values)
    }

    fn opened(&self) -> Vec<Arc<Context>> {
        self.devices.iter().filter_map(|device| device.primary.get().cloned()).collect()
    }

    fn check_health(&self, place: &Arc<Context>) -> Result<()> {
        self.check_context(place)
    }

    fn pinned(&self, bytes: u64) -> Result<(u64, u64)> {
        let (mut host, mut address) = (0, 0);
        let status = self.api.host_alloc(&mut host, bytes, PINNED_HOST);
        self.api.check(status, Operation::Timeline).map_err(|e| match e.kind {
            Kind::OutOfDeviceMemory => Error { kind: Kind::OutOfHostMemory, ..e },
            _ => e,
        })?;
        let status = self.api.host_device_pointer(&mut address, host, 0);
        self.api.check(status, Operation::Timeline).inspect_err(|_| {
            self.log_status("free pinned memory", self.api.host_free(host));
        })?;
        Ok((host, address))
    }

    fn pinned_free(&self, host: u64) -> Result<()> {
        self.api.check(self.api.host_free(host), Operation::Destroy)
    }

    fn write_value(&self, stream: u64, address: u64, value: u64) -> Result<()> {
        self.api.check(self.api.stream_write_value(stream, address, value, 0), Operation::Timeline)
    }

    fn wait_value(&self, stream: u64, address: u64, value: u64) -> Result<()> {
        self.api.check(self.api.stream_wait_value(stream, address, value, AT_LEAST), Operation::Timeline)
    }

    fn event(&self, stream: u64) -> Result<u64> {
        let mut event = 0;
        self.api.check(self.api.event_create(&mut event, NO_TIMING), Operation::Timeline)?;
        self.api.check(self.api.event_record(event, stream), Operation::Timeline).inspect_err(|_| {
            self.event_destroy(event);
        })?;
        Ok(event)
    }

    fn event_passed(&self, event: u64) -> Result<bool> {
        match self.api.event_query(event) {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            status => Err(self.api.error(status, Operation::Timeline)),
        }
    }

    fn event_wait(&self, stream: u64, event: u64) -> Result<()> {
        self.api.check(self.api.stream_wait_event(stream, event, 0), Operation::Timeline)
    }

    fn event_destroy(&self, event: u64) {
        self.log_status("destroy an event", self.api.event_destroy(event));
    }
}
