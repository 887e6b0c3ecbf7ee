//! A device, as read when the driver is opened.

use super::api::{Api, Attribute, SUCCESS};
use super::context::Context;
use crate::driver::quirks::{self, Care, Subject};
use crate::driver::structs::AllocationProp;
use crate::driver::{DriverKind, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, Granularity};
use once_cell::sync::OnceCell;
use std::sync::Arc;

/// What `cuMemAlloc` aligns to, the unit where there is no virtual memory.
pub(super) const PLAIN: Granularity = match Granularity::new(256) {
    Some(granularity) => granularity,
    None => unreachable!(),
};

/// One device, as read when the driver was opened.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) ordinal: Ordinal,
    /// `CUdevice`.
    pub(super) handle: i32,
    pub(super) name: String,
    pub(super) total: ByteSize,
    /// `sm_90`.
    pub(super) arch: String,
    pub(super) care: Care,
    /// It has virtual memory.
    pub(super) virtual_memory: bool,
    /// Its blocks can be exported as file descriptors.
    pub(super) sharing: bool,
    /// Blocks may be made reachable for other devices on the bus.
    pub(super) rdma: bool,
    /// Streams write and wait for 64-bit values.
    pub(super) stream_values: bool,
    pub(super) granularity: Granularity,
    /// Its primary context with what we keep there, once needed: a context takes time and memory.
    pub(super) primary: OnceCell<Arc<Context>>,
}

impl Device {
    pub(super) fn read(api: &Api, version: u32, index: i32, forced: &[(&str, bool)]) -> Result<Self> {
        let (mut handle, mut total) = (0, 0);
        api.check(api.device_get(&mut handle, index), Operation::Open)?;
        api.check(api.device_total(&mut total, handle), Operation::Open)?;
        let has = |attribute| value_of(api, handle, attribute) == 1;
        let [major, minor] =
            [Attribute::COMPUTE_MAJOR, Attribute::COMPUTE_MINOR].map(|a| value_of(api, handle, a));
        let arch = format!("sm_{major}{minor}");
        let care = quirks::care(&Subject { kind: DriverKind::CUDA, version, arch: &arch }, forced);
        let virtual_memory = has(Attribute::VIRTUAL_MEMORY);
        Ok(Self {
            ordinal: Ordinal(u32::try_from(index).unwrap_or(0)),
            handle,
            name: name_of(api, handle)?,
            total: ByteSize(total),
            arch,
            care,
            virtual_memory,
            sharing: has(Attribute::POSIX_FD),
            rdma: has(Attribute::RDMA_WITH_VIRTUAL_MEMORY),
            stream_values: has(Attribute::STREAM_VALUES_64)
                && api.has_stream_values()
                && !care.has(Care::EVENT_TIMELINE),
            granularity: if virtual_memory { granularity_of(api, handle)? } else { PLAIN },
            primary: OnceCell::new(),
        })
    }

    /// How a block of it is to be made.
    pub(super) fn properties(&self, exportable: bool, rdma: bool) -> AllocationProp {
        AllocationProp { rdma: u8::from(rdma), ..AllocationProp::pinned(self.handle, exportable) }
    }

    /// Bytes a second that memory moves, by its clock (two transfers a cycle) and the width of its bus; 0 unknown.
    pub(super) fn bandwidth(&self, api: &Api) -> u64 {
        let read = |attribute| u64::try_from(value_of(api, self.handle, attribute)).unwrap_or(0);
        let (clock_khz, bits) = (read(Attribute::MEMORY_CLOCK_KHZ), read(Attribute::MEMORY_BUS_BITS));
        clock_khz.saturating_mul(2_000).saturating_mul(bits / 8)
    }
}

/// An attribute, or 0 where the driver does not know it.
fn value_of(api: &Api, handle: i32, attribute: i32) -> i32 {
    let mut value = 0;
    if api.device_attribute(&mut value, attribute, handle) == SUCCESS { value } else { 0 }
}

/// The smallest unit that the device maps.
fn granularity_of(api: &Api, handle: i32) -> Result<Granularity> {
    let mut bytes = 0;
    let status = api.granularity(&mut bytes, &AllocationProp::pinned(handle, false), 0);
    api.check(status, Operation::Open)?;
    let odd =
        || Error::new(Kind::DriverError, Operation::Open, "the driver's granularity is no power of two");
    Granularity::new(bytes).ok_or_else(odd)
}

fn name_of(api: &Api, handle: i32) -> Result<String> {
    let mut name = [0_u8; 128];
    api.check(api.device_name(name.as_mut_ptr(), 127, handle), Operation::Open)?;
    let length = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..length]).into_owned())
}
