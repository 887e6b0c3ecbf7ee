//! A device, as read and tried when the driver is opened.

use super::api::{Api, SUCCESS, Status, UNSUPPORTED, list, list_of};
use super::budget::Budget;
use super::layout::{
    AllocationProperties, Bandwidth, DeviceProperties, ExportDesc, ExportFd, ExtensionProperties,
    ExternalProperties, MemoryProperties, PhysicalDesc, PhysicalProperties, QueueGroup, Uuid, address,
    address_mut, text,
};
use super::sysman::Modules;
use super::{READ_WRITE, UsmType};
use crate::driver::Ordinal;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, Granularity};

/// What plain memory is aligned to, the unit where there is no virtual memory.
pub(super) const PLAIN: Granularity = match Granularity::new(256) {
    Some(granularity) => granularity,
    None => unreachable!(),
};

/// `ZE_DEVICE_TYPE_GPU`.
const GPU: u32 = 1;
/// `ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE`.
const COMPUTE: u32 = 1;
/// `ZE_BANDWIDTH_UNIT_BYTES_PER_NANOSEC`.
const BYTES_PER_NS: u32 = 1;
/// `ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD` and `_DMA_BUF`.
const OPAQUE_FD: u32 = 1;
const DMA_BUF: u32 = 2;
/// The extension by which a closed list is run by an immediate one.
const APPEND: &str = "ZE_experimental_immediate_command_list_append";

/// One device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) ordinal: Ordinal,
    /// `ze_device_handle_t`.
    pub(super) handle: u64,
    /// `ze_context_handle_t` that everything of this device is made in.
    pub(super) context: u64,
    pub(super) name: String,
    pub(super) bandwidth: u64,
    /// The group of queues that our lists belong to, and how many queues it has.
    pub(super) group: u32,
    pub(super) queues: u32,
    /// The most bytes of one plain allocation, unless more is asked for.
    pub(super) largest: u64,
    /// Many copies can be one submission.
    pub(super) append_lists: bool,
    /// What its blocks are shared as, an `ze_external_memory_type_flag_t`; 0 where they cannot be.
    pub(super) share_as: u32,
    /// It has virtual memory.
    pub(super) virtual_memory: bool,
    /// What the driver says that mapped memory is.
    pub(super) usm: UsmType,
    /// The smallest page.
    pub(super) granularity: Granularity,
    pub(super) budget: Budget,
}

/// What trying virtual memory out gave.
struct Tried {
    granularity: Granularity,
    usm: UsmType,
    share_as: u32,
}

/// Reads a device, or gives none where it is no GPU.
pub(super) fn is_gpu(api: &Api, handle: u64) -> Result<Option<DeviceProperties>> {
    let mut properties = DeviceProperties::blank();
    api.check(api.device_properties(handle, &mut properties), Operation::Open)?;
    Ok((properties.kind == GPU).then_some(properties))
}

impl Device {
    pub(super) fn read(
        api: &Api,
        driver: Option<u64>,
        context: u64,
        handle: u64,
        properties: &DeviceProperties,
        ordinal: Ordinal,
    ) -> Result<Self> {
        let (total, bandwidth) = memory_of(api, handle)?;
        let (group, queues) = group_of(api, handle)?;
        let tried = try_out(api, context, handle);
        if let Err(error) = &tried {
            log::warn!("device {}: no virtual memory: {error}", ordinal.0);
        }
        let tried = tried.ok();
        Ok(Self {
            ordinal,
            handle,
            context,
            name: text(&properties.name),
            bandwidth,
            group,
            queues,
            largest: properties.largest,
            append_lists: api.has_append_lists() && driver.is_some_and(|d| has_extension(api, d, APPEND)),
            share_as: tried.as_ref().map_or(0, |t| t.share_as),
            virtual_memory: tried.is_some(),
            usm: tried.as_ref().map_or(UsmType::UNKNOWN, |t| t.usm),
            granularity: tried.map_or(PLAIN, |t| t.granularity),
            budget: Budget::new(total, modules_of(api, properties.uuid)),
        })
    }
}

impl Device {
    /// Gives up virtual memory, before anything was made with it.
    pub(super) fn plain_only(&mut self) {
        (self.virtual_memory, self.share_as, self.granularity) = (false, 0, PLAIN);
    }
}

fn modules_of(api: &Api, uuid: Uuid) -> Option<Modules> {
    let modules = Modules::find(api, uuid);
    if modules.is_none() {
        log::info!("no Sysman figure for a device: free memory is not known");
    }
    modules
}

/// All memory in bytes, and the bytes a second that it moves (0 unknown).
fn memory_of(api: &Api, handle: u64) -> Result<(ByteSize, u64)> {
    let found = list_of(MemoryProperties::blank(), |count, list| api.device_memory(handle, count, list));
    let found = found.map_err(|status| api.error(status, Operation::Open))?;
    let total = found.iter().fold(0_u64, |sum, memory| sum.saturating_add(memory.total));
    let mut bandwidth = Bandwidth::blank();
    let mut first = MemoryProperties { next: address_mut(&mut bandwidth), ..MemoryProperties::blank() };
    let known =
        api.device_memory(handle, &mut 1, &raw mut first) == SUCCESS && bandwidth.unit == BYTES_PER_NS;
    let per_ns = if known { bandwidth.read.max(bandwidth.write) } else { 0 };
    Ok((ByteSize(total), u64::from(per_ns).saturating_mul(1_000_000_000)))
}

/// The first group of queues that computes, which can copy too.
fn group_of(api: &Api, handle: u64) -> Result<(u32, u32)> {
    let groups = list_of(QueueGroup::blank(), |count, list| api.device_groups(handle, count, list));
    let groups = groups.map_err(|status| api.error(status, Operation::Open))?;
    let found = groups.iter().enumerate().find(|(_, g)| g.flags & COMPUTE != 0 && g.queues > 0);
    let none = || Error::new(Kind::Unsupported, Operation::Open, "the device has no queue that computes");
    let (at, group) = found.ok_or_else(none)?;
    Ok((u32::try_from(at).unwrap_or(0), group.queues))
}

fn has_extension(api: &Api, driver: u64, name: &str) -> bool {
    let all = list_of(ExtensionProperties::BLANK, |count, list| api.driver_extensions(driver, count, list));
    all.is_ok_and(|all| all.iter().any(|extension| text(&extension.name) == name))
}

/// The page for `bytes`: a page of 0 bytes, or one that is no power of two, is an error whatever the call says.
pub(super) fn page_size(api: &Api, context: u64, device: u64, bytes: u64) -> Result<Granularity> {
    let mut page = 0;
    let status = api.page_size(context, device, bytes, &mut page);
    let page = api.given(status, page, Operation::Query)?;
    let odd = || Error::new(Kind::DriverError, Operation::Query, "the driver's page is no power of two");
    Granularity::new(page).ok_or_else(odd)
}

/// Maps one page and takes it away again: nothing else says whether there is virtual memory, and what libraries
/// will be told about it.
fn try_out(api: &Api, context: u64, device: u64) -> Result<Tried> {
    let granularity = page_size(api, context, device, 1)?;
    let bytes = granularity.size().get();
    // Room for a page that is aligned, wherever the range begins.
    let odd = || Error::new(Kind::DriverError, Operation::Query, "the driver's page is too large");
    let room = ByteSize(bytes.checked_mul(2).ok_or_else(odd)?);
    let room = page_size(api, context, device, room.get())?.round_up(room).ok_or_else(odd)?.get();
    let mut start = 0;
    let status = api.reserve(context, 0, room, &mut start);
    let start = api.given(status, start, Operation::Reserve)?;
    let at = granularity.round_up(ByteSize(start)).ok_or_else(odd)?.get();
    let tried = try_block(api, context, device, at, bytes);
    api.log("free the first range", api.free(context, start, room));
    let (usm, share_as) = match tried {
        Ok(tried) => tried,
        // A full device has virtual memory all the same; what it says about mapped memory stays unknown.
        Err(error) if error.kind == Kind::OutOfDeviceMemory => (UsmType::UNKNOWN, 0),
        Err(error) => return Err(error),
    };
    Ok(Tried { granularity, usm, share_as })
}

fn try_block(api: &Api, context: u64, device: u64, at: u64, bytes: u64) -> Result<(UsmType, u32)> {
    let (block, share_as) = first_block(api, context, device, bytes)?;
    let mapped = api.map(context, at, bytes, block, 0, READ_WRITE);
    let mut properties = AllocationProperties::blank();
    let mut usm = UsmType::UNKNOWN;
    if mapped == SUCCESS {
        if api.allocation_properties(context, at, &mut properties, &mut 0) == SUCCESS {
            usm = UsmType(properties.kind);
        }
        api.log("unmap the first block", api.unmap(context, at, bytes));
    }
    api.log("destroy the first block", api.physical_destroy(context, block));
    api.check(mapped, Operation::Map)?;
    Ok((usm, share_as))
}

/// A block, made to be shared where the device can do that, and as what.
fn first_block(api: &Api, context: u64, device: u64, bytes: u64) -> Result<(u64, u32)> {
    let share_as = external_type(api, device);
    if share_as != 0 {
        let (status, block) = make_block(api, context, device, bytes, share_as);
        if status == SUCCESS && block != 0 {
            let shared = descriptor_of(api, context, block, share_as).is_ok();
            return Ok((block, if shared { share_as } else { 0 }));
        }
    }
    let (status, block) = make_block(api, context, device, bytes, 0);
    api.given(status, block, Operation::Create).map(|block| (block, 0))
}

/// What the device's memory is exported and imported as: DMA buffers, else opaque descriptors, else 0.
fn external_type(api: &Api, device: u64) -> u32 {
    let mut properties = ExternalProperties::blank();
    if !api.has_physical_properties() || api.external_properties(device, &mut properties) != SUCCESS {
        return 0;
    }
    let both = properties.imports & properties.exports;
    [DMA_BUF, OPAQUE_FD].into_iter().find(|kind| both & kind != 0).unwrap_or(0)
}

/// Makes a block, to be shared as `share_as` where that is not 0.
pub(super) fn make_block(api: &Api, context: u64, device: u64, bytes: u64, share_as: u32) -> (Status, u64) {
    let export = ExportDesc { flags: share_as, ..ExportDesc::blank() };
    let next = if share_as == 0 { 0 } else { address(&export) };
    let mut block = 0;
    let status = api.physical_create(
        context,
        device,
        &PhysicalDesc { next, bytes, ..PhysicalDesc::blank() },
        &mut block,
    );
    (status, block)
}

/// The descriptor of a block, which stays the driver's.
pub(super) fn descriptor_of(api: &Api, context: u64, block: u64, share_as: u32) -> Result<i32> {
    let mut export = ExportFd { flags: share_as, descriptor: -1, ..ExportFd::blank() };
    let mut properties = PhysicalProperties { next: address_mut(&mut export), ..PhysicalProperties::blank() };
    api.check(api.physical_properties(context, block, &mut properties), Operation::Share)?;
    if export.descriptor < 0 {
        return Err(Error::new(Kind::DriverError, Operation::Share, "the driver gave no descriptor"));
    }
    Ok(export.descriptor)
}

/// A block's bytes, as the driver tells them.
pub(super) fn size_of_block(api: &Api, context: u64, block: u64) -> std::result::Result<u64, Status> {
    let mut properties = PhysicalProperties::blank();
    match api.physical_properties(context, block, &mut properties) {
        SUCCESS if properties.bytes == 0 => Err(UNSUPPORTED),
        SUCCESS => Ok(properties.bytes),
        status => Err(status),
    }
}

/// Every device of a driver that is a GPU, with its properties.
pub(super) fn gpus(api: &Api, driver: u64) -> Result<Vec<(u64, DeviceProperties)>> {
    let all = list(|count, devices| api.devices(driver, count, devices));
    let mut found = Vec::new();
    for handle in all.map_err(|status| api.error(status, Operation::Open))? {
        if let Some(properties) = is_gpu(api, handle)? {
            found.push((handle, properties));
        }
    }
    Ok(found)
}
