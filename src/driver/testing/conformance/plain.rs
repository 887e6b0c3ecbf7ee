//! Plain device memory.

use super::rig::{Rig, mismatch, refused, same};
use super::{Check, Stop, Verdict};
use crate::driver::{Capabilities, CopySlice};
use crate::error::Kind;
use crate::units::{ByteSize, Granularity};

pub(super) const CHECKS: &[Check] = &[
    Check::new("plain memory is aligned to 256 bytes", aligned),
    Check::new("plain memory of no bytes is refused", nothing),
    Check::new("plain memory beyond what there is is refused", too_much),
    Check::new("plain memory is given back once, by its first address", give_back),
    Check::new("plain memory is counted", figures),
    Check::new("plain memory can be copied to and from", copies),
    Check::new("plain memory belongs to its device", of_its_device)
        .needs(Capabilities::DEVICE_ACCESS)
        .devices(2),
    Check::new("a copy does not run out of plain memory", overrun),
];

fn aligned(rig: &mut Rig) -> Verdict {
    let alignment = Granularity::new(256).ok_or_else(|| mismatch("a power of two", &256))?;
    for bytes in [1, 100, 4096, 5000, 1 << 20] {
        let address = rig.plain(ByteSize(bytes))?;
        same("aligned", true, address.is_aligned(alignment))?;
    }
    Ok(())
}

fn nothing(rig: &mut Rig) -> Verdict {
    refused(Kind::InvalidSize, "allocate", rig.driver.allocate(rig.device, ByteSize::ZERO))
}

fn too_much(rig: &mut Rig) -> Verdict {
    let total = rig.driver.memory(rig.device)?.total;
    for size in [total.checked_add(ByteSize(1)), Some(ByteSize(u64::MAX))] {
        let size = size.ok_or_else(|| mismatch("a total below 2^64", &total))?;
        refused(Kind::OutOfDeviceMemory, "allocate", rig.driver.allocate(rig.device, size))?;
    }
    Ok(())
}

fn give_back(rig: &mut Rig) -> Verdict {
    let address = rig.plain(ByteSize(8192))?;
    let inside = address.checked_add(ByteSize(256)).ok_or_else(|| mismatch("an address", &address))?;
    let refuse = |what, at| refused(Kind::InvalidArgument, what, rig.driver.deallocate(rig.device, at));
    refuse("inside", inside)?;
    refuse("nowhere", crate::units::DevicePtr(256))?;
    rig.give_back(address)?;
    refused(Kind::InvalidArgument, "twice", rig.driver.deallocate(rig.device, address))
}

fn figures(rig: &mut Rig) -> Verdict {
    let unknown = Stop::Skip("the driver does not tell how much memory is free");
    let Some(before) = rig.driver.memory(rig.device)?.free else { return Err(unknown) };
    let address = rig.plain(ByteSize::mib(4))?;
    let with = rig.driver.memory(rig.device)?.free;
    same("less is free", true, with.is_some_and(|free| free < before))?;
    rig.give_back(address)?;
    same("free bytes after it was given back", Some(before), rig.driver.memory(rig.device)?.free)
}

fn copies(rig: &mut Rig) -> Verdict {
    let (a, b, stream) = (rig.plain(ByteSize(5000))?, rig.plain(ByteSize(5000))?, rig.stream()?);
    rig.write(a, &[7; 5000])?;
    rig.copy(stream, b, a, 4999)?;
    let seen = rig.read(b, 5000)?;
    same("all bytes but the last", &[7; 4999][..], &seen[..4999])
}

fn of_its_device(rig: &mut Rig) -> Verdict {
    rig.survives_faults()?;
    let (address, other) = (rig.plain(ByteSize(4096))?, rig.other());
    let stream = rig.stream_of(other)?;
    let half = address.checked_add(ByteSize(2048)).ok_or_else(|| mismatch("an address", &address))?;
    rig.driver.copy(other, stream, &[CopySlice { dst: half, src: address, bytes: 64 }])?;
    refused(Kind::DeviceFault, "another device's copy", rig.streams().synchronize(stream))
}

fn overrun(rig: &mut Rig) -> Verdict {
    rig.survives_faults()?;
    let (a, stream) = (rig.plain(ByteSize(1 << 20))?, rig.stream()?);
    let b = rig.plain(ByteSize(4096))?;
    refused(Kind::DeviceFault, "a copy past the end", rig.copy(stream, a, b, (1 << 20) - 1))
}
