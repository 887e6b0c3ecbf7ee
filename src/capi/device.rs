//! Devices.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::block::BlockObject;
use super::drivers::{self, DeviceObject};
use super::entry::entry;
use super::handle::{self, Noun};
use super::status::gvmm_status;
use super::text::text;
use super::types::{gvmm_block, gvmm_device};
use super::versioned::{Caller, Versioned, versioned};
use crate::driver::Ordinal;
use crate::error::{Error, Kind, Operation};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::{CallCounts, Device};
use std::ffi::c_char;

/// The driver that `GVMM_DRIVER` names, else the first that this machine has.
pub const GVMM_DRIVER_AUTO: u32 = 0;
/// NVIDIA's.
pub const GVMM_DRIVER_CUDA: u32 = 1;
/// AMD's.
pub const GVMM_DRIVER_HIP: u32 = 2;
/// Intel's.
pub const GVMM_DRIVER_LEVEL_ZERO: u32 = 3;
/// The host's own memory and threads.
pub const GVMM_DRIVER_HOST: u32 = 4;

/// Bit of `gvmm_device_info.capabilities`: reserve, map, set access and unmap are there at all.
pub const GVMM_CAPABILITY_VIRTUAL_MEMORY: u64 = 1;
/// Bit: a block may be mapped at several addresses at once.
pub const GVMM_CAPABILITY_ALIASING: u64 = 2;
/// Bit: access is given to single devices; without it, to all at once.
pub const GVMM_CAPABILITY_DEVICE_ACCESS: u64 = 4;
/// Bit: access may be set on a part of a reservation; without it, only on the whole.
pub const GVMM_CAPABILITY_RANGE_ACCESS: u64 = 8;
/// Bit: one set-access may span several neighbouring mappings.
pub const GVMM_CAPABILITY_JOINED_ACCESS: u64 = 16;
/// Bit: many copies cost one launch.
pub const GVMM_CAPABILITY_JOINT_COPIES: u64 = 32;
/// Bit: blocks can be exported to and imported from other processes as file descriptors.
pub const GVMM_CAPABILITY_SHARING: u64 = 64;
/// Bit: the host can read and write device addresses.
pub const GVMM_CAPABILITY_HOST_TOUCH: u64 = 128;
/// Bit: host functions can be enqueued on a `gvmm_stream`, and such streams captured into graphs.
pub const GVMM_CAPABILITY_HOST_FUNCTIONS: u64 = 256;
/// Bit: blocks are backed by huge pages (of the host driver).
pub const GVMM_CAPABILITY_HUGE_PAGES: u64 = 512;
/// Bit: NULL names the device's default stream.
pub const GVMM_CAPABILITY_NULL_STREAM: u64 = 1024;
/// Capability: a binding's copies can be recorded into a command buffer.
pub const GVMM_CAPABILITY_ROUTES: u64 = 2048;

/// Bit: a stream may be made to wait for work that is enqueued later.
pub const GVMM_CAPABILITY_EARLY_WAITS: u64 = 4096;
/// Bit: nothing speaks against changing addresses in a command buffer that is there already; without it, a planner lists no
/// patches.
pub const GVMM_CAPABILITY_PATCHES: u64 = 8192;

/// Which device to open; all zero but `struct_size` is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_device_desc {
    /// `sizeof(gvmm_device_desc)`.
    pub struct_size: usize,
    /// `GVMM_DRIVER_...`.
    pub driver: u32,
    /// The device's number among its driver's, from 0.
    pub ordinal: u32,
}

/// What a device is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_device_info {
    /// `sizeof(gvmm_device_info)`.
    pub struct_size: usize,
    /// `GVMM_DRIVER_...`, never AUTO.
    pub driver: u32,
    /// The device's number, from 0.
    pub ordinal: u32,
    /// How many devices the driver has.
    pub device_count: u32,
    /// 0.
    pub reserved: u32,
    /// `GVMM_CAPABILITY_...` bits.
    pub capabilities: u64,
    /// The smallest unit that the device maps, in bytes: a power of two.
    pub granularity_bytes: u64,
    /// Its memory in bytes; 0 where unknown.
    pub total_bytes: u64,
    /// Bytes a second that its memory moves, reads and writes both counted; 0 where unknown.
    pub bandwidth_bytes_per_s: u64,
    /// Its name, cut to 63 bytes, with a NUL.
    pub name: [c_char; 64],
    /// The table of simulated costs that each call is made to take, or empty: then times are real.
    pub simulated_costs: [c_char; 32],
}

/// How many driver calls of each sort.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_call_counts {
    /// `sizeof(gvmm_call_counts)`.
    pub struct_size: usize,
    /// Ranges reserved.
    pub reserve: u64,
    /// Ranges freed.
    pub free: u64,
    /// Blocks created.
    pub create: u64,
    /// Blocks released.
    pub release: u64,
    /// Blocks mapped.
    pub map: u64,
    /// Mappings unmapped.
    pub unmap: u64,
    /// Set-access calls.
    pub set_access: u64,
    /// Launches of copies.
    pub copy_launches: u64,
    /// Writes of a timeline enqueued on a stream.
    pub timeline_writes: u64,
}

/// Counts the devices of a driver, opening the driver where that has not been done.
///
/// State: after success the driver is open for the life of the process; after a failure a later call tries
/// again.
/// Parameters: `driver`, `GVMM_DRIVER_...`; `out_count`, a number of devices.
/// Statuses: INVALID_ARGUMENT (no such driver number), DRIVER_NOT_FOUND, DRIVER_TOO_OLD.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_count(driver: u32, out_count: *mut u32) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Open, || {
        let out = c.out(out_count)?;
        out.write(drivers::open(driver)?.driver.device_count());
        Ok(())
    })
}

/// Opens a device. Opening one twice gives two handles of the same device: they share its memory budget,
/// and objects made through one may be used with the other.
///
/// State: after success the handle lives until `gvmm_device_close`.
/// Parameters: `desc`, which device, or NULL for device 0 of GVMM_DRIVER_AUTO; `out_device`, the handle.
/// Statuses: INVALID_ARGUMENT (no such driver number), UNKNOWN_VERSION, DRIVER_NOT_FOUND, DRIVER_TOO_OLD,
/// NO_DEVICE.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_open(
    desc: *const gvmm_device_desc,
    out_device: *mut *mut gvmm_device,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Open, || {
        let out = c.out(out_device)?;
        let desc = c.in_struct_or_default(desc)?;
        out.write(handle::insert(DeviceObject::open(desc.driver, Ordinal(desc.ordinal))?)?);
        Ok(())
    })
}

/// Closes a handle of a device.
///
/// State: before, everything made through this handle has been destroyed; after success the handle is
/// invalid. Closing the last handle of a device waits until what was retired there has been unmapped.
/// Parameters: `device`, the handle.
/// Statuses: IN_USE (something made through this handle still lives; nothing has changed).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_close(device: *mut gvmm_device) -> gvmm_status {
    entry(Operation::Destroy, || {
        let leaving = handle::leave_if::<DeviceObject>(device, |device| device.check_unused())?;
        leaving.close()?;
        leaving.gone();
        Ok(())
    })
}

/// Says what a device is.
///
/// State: changes none.
/// Parameters: `device`; `out_info`, whose `struct_size` is set.
/// Statuses: UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_query(
    device: *mut gvmm_device,
    out_info: *mut gvmm_device_info,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_struct(out_info)?;
        out.write(&info(&handle::get::<DeviceObject>(device)?.device));
        Ok(())
    })
}

/// Reads a device's memory figures.
///
/// State: changes none.
/// Parameters: `device`; `out_free_bytes` and `out_total_bytes`, in bytes, 0 where the driver cannot tell.
/// Statuses: those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_memory(
    device: *mut gvmm_device,
    out_free_bytes: *mut u64,
    out_total_bytes: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let (free, total) = (c.out(out_free_bytes)?, c.out(out_total_bytes)?);
        let memory = handle::get::<DeviceObject>(device)?.device.memory()?;
        free.write(memory.free.map_or(0, ByteSize::get));
        total.write(memory.total.get());
        Ok(())
    })
}

/// Counts the calls to the driver that this library made for a device, through whichever handle, since it
/// was opened; failed ones count.
///
/// State: changes none.
/// Parameters: `device`; `out_counts`, whose `struct_size` is set; numbers of calls.
/// Statuses: UNKNOWN_VERSION.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_counters(
    device: *mut gvmm_device,
    out_counts: *mut gvmm_call_counts,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_struct(out_counts)?;
        out.write(&handle::get::<DeviceObject>(device)?.device.counters().into());
        Ok(())
    })
}

/// Unmaps and frees what was retired and whose streams have passed. Never waits.
///
/// State: after success `out_collected` retired things are gone; those whose streams have not passed
/// remain.
/// Parameters: `device`; `out_collected`, a number of things.
/// Statuses: those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_collect(
    device: *mut gvmm_device,
    out_collected: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Retire, || {
        let out = c.out(out_collected)?;
        out.write(handle::get::<DeviceObject>(device)?.device.collect() as u64);
        Ok(())
    })
}

/// Waits until the streams of everything that was retired have passed, and unmaps and frees it.
///
/// State: after success nothing is retired any more.
/// Parameters: `device`.
/// Statuses: STREAM_CAPTURING (a stream to wait for is being captured), DEVICE_FAULT, those of the driver.
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_drain(device: *mut gvmm_device) -> gvmm_status {
    entry(Operation::Retire, || handle::get::<DeviceObject>(device)?.device.drain())
}

/// Finds the block behind an address. Never waits.
///
/// State: changes none.
/// Parameters: `device`; `address`, any; `out_block`, the block's handle (not a new one: do not destroy it
/// for this call); `out_offset_bytes`, the bytes from the block's start to `address`.
/// Statuses: NOT_MAPPED (no block with a handle lies there).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_device_find(
    device: *mut gvmm_device,
    address: u64,
    out_block: *mut *mut gvmm_block,
    out_offset_bytes: *mut u64,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let (block, offset) = (c.out(out_block)?, c.out(out_offset_bytes)?);
        let found = handle::get::<DeviceObject>(device)?.device.find(DevicePtr(address));
        let found = found.filter(|found| BlockObject::table().is_live(found.tag)).ok_or_else(|| {
            Error::new(Kind::NotMapped, Operation::Query, "no block with a handle lies there")
                .at(DevicePtr(address), ByteSize::ZERO)
        })?;
        block.write(handle::to_pointer::<BlockObject>(found.tag));
        offset.write(found.offset.get());
        Ok(())
    })
}

versioned!(gvmm_device_desc { driver, ordinal });
versioned!(gvmm_device_info {
    driver,
    ordinal,
    device_count,
    reserved,
    capabilities,
    granularity_bytes,
    total_bytes,
    bandwidth_bytes_per_s,
    name,
    simulated_costs,
});
versioned!(gvmm_call_counts {
    reserve,
    free,
    create,
    release,
    map,
    unmap,
    set_access,
    copy_launches,
    timeline_writes
});

fn info(device: &Device) -> gvmm_device_info {
    let (info, driver) = (device.info(), device.driver());
    gvmm_device_info {
        driver: driver.kind().0,
        ordinal: device.ordinal().0,
        device_count: driver.device_count(),
        capabilities: info.capabilities.0,
        granularity_bytes: info.granularity.size().get(),
        total_bytes: info.total.get(),
        bandwidth_bytes_per_s: info.bandwidth,
        name: text(&info.name),
        simulated_costs: text(info.simulated_costs.as_deref().unwrap_or_default()),
        ..Versioned::DEFAULT
    }
}

impl From<CallCounts> for gvmm_call_counts {
    fn from(counts: CallCounts) -> Self {
        Self {
            reserve: counts.reserve,
            free: counts.free,
            create: counts.create,
            release: counts.release,
            map: counts.map,
            unmap: counts.unmap,
            set_access: counts.set_access,
            copy_launches: counts.copy_launches,
            timeline_writes: counts.timeline_writes,
            ..Versioned::DEFAULT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Capabilities, DriverKind};

    #[test]
    fn bits_and_numbers_are_the_drivers() {
        assert_eq!(GVMM_DRIVER_HOST, DriverKind::HOST.0);
        for (bit, capability) in [
            (GVMM_CAPABILITY_VIRTUAL_MEMORY, Capabilities::VIRTUAL_MEMORY),
            (GVMM_CAPABILITY_ALIASING, Capabilities::ALIASING),
            (GVMM_CAPABILITY_DEVICE_ACCESS, Capabilities::DEVICE_ACCESS),
            (GVMM_CAPABILITY_RANGE_ACCESS, Capabilities::RANGE_ACCESS),
            (GVMM_CAPABILITY_JOINED_ACCESS, Capabilities::JOINED_ACCESS),
            (GVMM_CAPABILITY_JOINT_COPIES, Capabilities::JOINT_COPIES),
            (GVMM_CAPABILITY_SHARING, Capabilities::SHARING),
            (GVMM_CAPABILITY_HOST_TOUCH, Capabilities::HOST_TOUCH),
            (GVMM_CAPABILITY_HOST_FUNCTIONS, Capabilities::HOST_FUNCTIONS),
            (GVMM_CAPABILITY_HUGE_PAGES, Capabilities::HUGE_PAGES),
            (GVMM_CAPABILITY_NULL_STREAM, Capabilities::NULL_STREAM),
            (GVMM_CAPABILITY_ROUTES, Capabilities::ROUTES),
            (GVMM_CAPABILITY_EARLY_WAITS, Capabilities::EARLY_WAITS),
            (GVMM_CAPABILITY_PATCHES, Capabilities::PATCHES),
        ] {
            assert_eq!(bit, capability.0);
        }
    }
}
