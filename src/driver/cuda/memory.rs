//! Ranges, blocks and mappings. CUDA lets some breaches of the rules pass (unmapping what is not mapped) and refuses
//! set-access over a hole in some places and not in others, so we keep books of our own and are as strict as the trait says.
//!
//! No lock is held across a driver call: a mapping is booked as busy before its call and settled after it.

use super::api::{SUCCESS, Status};
use super::context::Core;
use super::device::Device;
use crate::driver::books::{Block, Books, Claim};
use crate::driver::library::intern;
use crate::driver::quirks::Care;
use crate::driver::structs::{AccessDesc, Location};
use crate::driver::{Access, AccessMode, CreateOptions, MemoryInfo, NativeBlock, Ordinal, unsupported};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};

/// More than the device has is out of memory, also where the driver calls it an invalid value (1).
fn beyond(status: Status, size: ByteSize, device: &Device) -> Status {
    const OUT_OF_MEMORY: Status = 2;
    if status == 1 && size > device.total { OUT_OF_MEMORY } else { status }
}

impl Core {
    fn virtual_memory(&self, device: Ordinal, operation: Operation) -> Result<&Device> {
        let device = self.device(device, operation)?;
        if device.virtual_memory {
            return Ok(device);
        }
        Err(unsupported(operation, "this device has no virtual memory: use allocations"))
    }

    pub(super) fn granularity(&self, device: Ordinal) -> Result<Granularity> {
        self.device(device, Operation::Query).map(|d| d.granularity)
    }

    pub(super) fn memory(&self, device: Ordinal) -> Result<MemoryInfo> {
        let _entered = self.enter_primary(device, Operation::Query)?;
        let (mut free, mut total) = (0, 0);
        self.api.check(self.api.memory_info(&mut free, &mut total), Operation::Query)?;
        Ok(MemoryInfo { free: Some(ByteSize(free)), total: ByteSize(total) })
    }

    fn whole_granules(&self, device: Ordinal, size: ByteSize, operation: Operation) -> Result<Granularity> {
        let granularity = self.granularity(device)?;
        if size.is_zero() || !granularity.divides(size) {
            return Err(
                Error::new(Kind::InvalidSize, operation, "not a multiple of the granularity").of(size)
            );
        }
        Ok(granularity)
    }

    pub(super) fn reserve(
        &self,
        books: &Books,
        device: Ordinal,
        size: ByteSize,
        alignment: Granularity,
    ) -> Result<DeviceRange> {
        self.virtual_memory(device, Operation::Reserve)?;
        let granularity = self.whole_granules(device, size, Operation::Reserve)?;
        if alignment < granularity {
            return Err(Error::new(Kind::Misaligned, Operation::Reserve, "alignment below the granularity"));
        }
        let _entered = self.enter_primary(device, Operation::Reserve)?;
        let mut address = 0;
        let status = self.api.address_reserve(&mut address, size.get(), alignment.size().get(), 0, 0);
        self.api.check(status, Operation::Reserve).map_err(|e| e.of(size))?;
        let Some(range) = DeviceRange::new(DevicePtr(address), size) else {
            return Err(Error::new(
                Kind::DriverError,
                Operation::Reserve,
                "the driver gave a range that wraps",
            ));
        };
        books.reserved(range, device);
        Ok(range)
    }

    pub(super) fn free(&self, books: &Books, range: DeviceRange) -> Result<()> {
        // Out of the books before the call: the driver may give the same range to another thread at once.
        let device = books.take_range(range)?;
        let entered = self.enter_primary(device, Operation::Free);
        let freed = entered.and_then(|_entered| {
            let status = self.api.address_free(range.start().get(), range.size().get());
            self.api.check(status, Operation::Free)
        });
        freed.map_err(|e| {
            books.reserved(range, device);
            e.at(range.start(), range.size())
        })
    }

    pub(super) fn create(
        &self,
        books: &Books,
        device: Ordinal,
        size: ByteSize,
        options: CreateOptions,
    ) -> Result<NativeBlock> {
        let found = self.virtual_memory(device, Operation::Create)?;
        self.whole_granules(device, size, Operation::Create)?;
        if options.exportable && !found.sharing {
            return Err(unsupported(Operation::Create, "this device's blocks cannot be exported").of(size));
        }
        let _entered = self.enter_primary(device, Operation::Create)?;
        let make = |handle: &mut u64, rdma| {
            self.api.create(handle, size.get(), &found.properties(options.exportable, rdma), 0)
        };
        let mut handle = 0;
        let rdma = found.rdma && (options.stays || !found.care.has(Care::NO_RDMA));
        let mut status = make(&mut handle, rdma);
        // Some systems (containers, passthrough) say that they can and then cannot.
        if rdma && matches!(status, 1 | 800 | 801) {
            status = make(&mut handle, false);
        }
        let status = beyond(status, size, found);
        self.api.check(status, Operation::Create).map_err(|e| e.of(size))?;
        books.add_block(handle, Block { size, device, references: 1, exportable: options.exportable });
        Ok(NativeBlock(handle))
    }

    pub(super) fn release(&self, books: &Books, block: NativeBlock) -> Result<()> {
        let entry = books.take_block(block)?;
        let entered = self.enter_primary(entry.device, Operation::Release);
        let released =
            entered.and_then(|_entered| self.api.check(self.api.release(block.0), Operation::Release));
        released.map_err(|e| {
            books.add_block(block.0, Block { references: 1, ..entry });
            e.of(entry.size)
        })
    }

    pub(super) fn map(&self, books: &Books, range: DeviceRange, block: NativeBlock) -> Result<()> {
        let device = books.begin_map(range, block)?;
        let entered = self.enter_primary(device, Operation::Map);
        let mapped = entered.and_then(|_entered| {
            let status = self.api.map(range.start().get(), range.size().get(), 0, block.0, 0);
            self.api.check(status, Operation::Map)
        });
        books.end_map(range, mapped.is_ok());
        mapped.map_err(|e| e.at(range.start(), range.size()))
    }

    pub(super) fn unmap(&self, books: &Books, range: DeviceRange) -> Result<()> {
        let device = books.begin_unmap(range)?;
        let entered = self.enter_primary(device, Operation::Unmap);
        let unmapped = entered.and_then(|_entered| {
            let status = self.api.unmap(range.start().get(), range.size().get());
            self.api.check(status, Operation::Unmap)
        });
        books.end_unmap(range, unmapped.is_ok());
        unmapped.map_err(|e| e.at(range.start(), range.size()))
    }

    /// One call for the whole list over each run of neighbours: the driver takes as long for one as for one a device,
    /// and less can fail halfway.
    pub(super) fn set_access(&self, books: &Books, range: DeviceRange, access: &[Access]) -> Result<()> {
        let here = |e: Error| e.at(range.start(), range.size());
        for (at, line) in access.iter().enumerate() {
            self.device(line.device, Operation::SetAccess).map_err(|e| here(e).entry(at as u64))?;
            if !line.mode.is_known() {
                let error = Error::new(Kind::InvalidArgument, Operation::SetAccess, "not an access mode");
                return Err(here(error).entry(at as u64));
            }
        }
        if access.is_empty() {
            return Err(here(Error::new(
                Kind::InvalidArgument,
                Operation::SetAccess,
                "the access list is empty",
            )));
        }
        let claim = books.begin_access(range)?;
        let result = self.descriptors(&claim.devices, access).and_then(|list| {
            let Some(first) = claim.devices.first().filter(|_| !list.is_empty()) else { return Ok(()) };
            let _entered = self.enter_primary(*first, Operation::SetAccess)?;
            self.set_runs(&claim, &list)
        });
        books.end_access(range);
        result.map_err(here)
    }

    /// One call for each run of neighbours: over holes the driver sometimes refuses (where the first address is not
    /// mapped) and sometimes not. Where a later run fails, the earlier ones get back what they had.
    fn set_runs(&self, claim: &Claim, list: &[AccessDesc]) -> Result<()> {
        let before = if claim.runs.len() > 1 { self.access_of(&claim.mappings, list) } else { Vec::new() };
        for run in &claim.runs {
            let status = self.set_run(*run, list);
            if status == SUCCESS {
                continue;
            }
            for (mapping, had) in before.iter().filter(|(mapping, _)| mapping.start() < run.start()) {
                self.log_status("give access back", self.set_run(*mapping, had));
            }
            return Err(self.api.error(status, Operation::SetAccess));
        }
        Ok(())
    }

    fn set_run(&self, run: DeviceRange, list: &[AccessDesc]) -> Status {
        self.api.set_access(run.start().get(), run.size().get(), list.as_ptr(), list.len() as u64)
    }

    /// What the devices of `list` may do in each mapping now.
    fn access_of(
        &self,
        mappings: &[DeviceRange],
        list: &[AccessDesc],
    ) -> Vec<(DeviceRange, Vec<AccessDesc>)> {
        let now = |mapping: &DeviceRange| {
            let line = |line: &AccessDesc| {
                let mut flags = 0;
                let status = self.api.access_get(&mut flags, &line.location, mapping.start().get());
                let known = i32::try_from(flags).ok().filter(|_| status == SUCCESS)?;
                Some(AccessDesc { flags: known, ..*line })
            };
            (*mapping, list.iter().filter_map(line).collect())
        };
        mappings.iter().map(now).collect()
    }

    /// The list as the driver takes it. A device that cannot reach a block's device has no access to take away.
    fn descriptors(&self, owners: &[Ordinal], access: &[Access]) -> Result<Vec<AccessDesc>> {
        let mut list = Vec::with_capacity(access.len());
        for (at, line) in access.iter().enumerate() {
            let unreachable = owners.iter().find(|owner| !self.reaches(line.device, **owner));
            match unreachable {
                Some(_) if line.mode == AccessMode::NONE => continue,
                Some(owner) => {
                    let (from, to) = (line.device.0, owner.0);
                    let hint = format!("device {from} cannot reach device {to}: take it off the access list");
                    return Err(unsupported(Operation::SetAccess, intern(&hint)).entry(at as u64));
                }
                None => {}
            }
            let location = Location::device(self.device(line.device, Operation::SetAccess)?.handle);
            let flags = i32::try_from(line.mode.0).unwrap_or(0);
            list.push(AccessDesc { location, flags });
        }
        Ok(list)
    }

    pub(super) fn reaches(&self, device: Ordinal, owner: Ordinal) -> bool {
        let handle = |d| self.device(d, Operation::SetAccess).map(|d| d.handle);
        let (Ok(from), Ok(to)) = (handle(device), handle(owner)) else { return false };
        let mut can = 0;
        device == owner || (self.api.can_access_peer(&mut can, from, to) == SUCCESS && can == 1)
    }

    pub(super) fn allocate(&self, books: &Books, device: Ordinal, size: ByteSize) -> Result<DevicePtr> {
        let found = self.device(device, Operation::Allocate)?;
        if size.is_zero() {
            return Err(Error::new(Kind::InvalidSize, Operation::Allocate, "0 bytes"));
        }
        let _entered = self.enter_primary(device, Operation::Allocate)?;
        let mut address = 0;
        let status = beyond(self.api.memory_alloc(&mut address, size.get()), size, found);
        self.api.check(status, Operation::Allocate).map_err(|e| e.of(size))?;
        books.add_allocation(DevicePtr(address), device);
        Ok(DevicePtr(address))
    }

    pub(super) fn deallocate(&self, books: &Books, device: Ordinal, address: DevicePtr) -> Result<()> {
        self.device(device, Operation::Deallocate)?;
        books.take_allocation(address, device)?;
        let entered = self.enter_primary(device, Operation::Deallocate);
        let freed = entered
            .and_then(|_entered| self.api.check(self.api.memory_free(address.get()), Operation::Deallocate));
        freed.map_err(|e| {
            books.add_allocation(address, device);
            e.at(address, ByteSize::ZERO)
        })
    }
}
