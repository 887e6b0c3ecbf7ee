//! A device and everything that is asked of it.

use super::access;
use super::calls::Calls;
use super::cleanup::{Leftover, log_failure};
use super::copy;
use super::shared::Shared;
use super::{Allocation, Block, CallCounts, Found, Mark, Owner, Reservation};
use crate::driver::{
    Access, Capabilities, CopySlice, CreateOptions, DeviceInfo, Driver, MemoryInfo, NativeBlock, Ordinal,
    Stream,
};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, Granularity};
use std::any::{Any, TypeId};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// One device. Everything may be called from any thread.
///
/// Blocks and reservations do not keep it open: hold it for as long as anything is retired. Dropping it waits for
/// what is retired (best effort, logged); blocks and reservations that outlive it still clean up after themselves.
pub struct Device {
    shared: Arc<Shared>,
    extensions: Mutex<Vec<(TypeId, Arc<dyn Any + Send + Sync>)>>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("ordinal", &self.ordinal()).field("info", self.info()).finish()
    }
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// `NoDevice`, and the driver's.
    pub fn open(driver: Arc<dyn Driver>, ordinal: Ordinal) -> Result<Arc<Self>> {
        if ordinal.0 >= driver.device_count() {
            let hint = "the driver has fewer devices: gvmm_device_count says how many";
            return Err(Error::new(Kind::NoDevice, Operation::Open, hint));
        }
        let info = driver.device_info(ordinal)?;
        let shared = Shared::new(Calls::new(driver, ordinal, info.capabilities), info);
        let device = Arc::new(Self { shared, extensions: Mutex::default() });
        // It was made just now, so the cell is empty.
        let _ = device.shared.device.set(Arc::downgrade(&device));
        Ok(device)
    }

    /// Its driver. Calls made there directly are not counted.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        self.shared.calls.driver()
    }

    /// Its number.
    pub fn ordinal(&self) -> Ordinal {
        self.shared.calls.ordinal()
    }

    /// One of a kind in the process, and never 0.
    pub fn number(&self) -> u64 {
        self.shared.number
    }

    /// What it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    /// The smallest unit that it maps.
    pub fn granularity(&self) -> Granularity {
        self.info().granularity
    }

    /// What it can do.
    pub fn capabilities(&self) -> Capabilities {
        self.info().capabilities
    }

    /// Its memory now.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory(&self) -> Result<MemoryInfo> {
        self.driver().memory(self.ordinal())
    }

    /// The driver calls made for it since it was opened, by all threads.
    pub fn counters(&self) -> CallCounts {
        self.shared.calls.totals()
    }

    /// Makes a block. When memory is used up, what is retired is waited for, and it is tried once more.
    ///
    /// # Errors
    /// `InvalidSize` for 0 or what is no multiple of the granularity, `Unsupported` without virtual memory (or
    /// sharing, for an exportable one), and the driver's.
    pub fn create_block(&self, size: ByteSize, options: CreateOptions) -> Result<Arc<Block>> {
        let granularity = self.check_size(Operation::Create, size)?;
        if options.exportable {
            let hint = "this device cannot share blocks";
            self.shared.require(Capabilities::SHARING, Operation::Create, hint)?;
        }
        self.shared.collect();
        let native = self.shared.with_room(|| self.shared.calls.create(size, options))?;
        Ok(Block::new(&self.shared, native, size, granularity, true))
    }

    /// Takes a block that somebody else made; with `owned`, dropping it releases it.
    ///
    /// # Errors
    /// `InvalidArgument` for handle 0 and, with `owned`, for a handle of the host driver that would be released
    /// twice; `InvalidSize`, `Unsupported`, and the driver's check.
    pub fn adopt_block(&self, native: NativeBlock, size: ByteSize, owned: bool) -> Result<Arc<Block>> {
        if native.0 == 0 {
            return Err(Error::new(Kind::InvalidArgument, Operation::Create, "the native handle is 0"));
        }
        let granularity = self.check_size(Operation::Create, size)?;
        self.shared.calls.check_native(native, size)?;
        if owned && !self.shared.calls.own(native) {
            let hint = "the library owns this native handle already: adopt it as borrowed";
            return Err(Error::new(Kind::InvalidArgument, Operation::Create, hint).of(size));
        }
        Ok(Block::new(&self.shared, native, size, granularity, owned))
    }

    /// Imports a block that another process exported.
    ///
    /// # Errors
    /// `InvalidSize`, `Unsupported`, and the driver's.
    pub fn import_block(&self, fd: BorrowedFd<'_>, size: ByteSize) -> Result<Arc<Block>> {
        let granularity = self.check_size(Operation::Share, size)?;
        self.shared.require(Capabilities::SHARING, Operation::Share, "this device cannot share blocks")?;
        self.shared.collect();
        let native = self.shared.with_room(|| self.shared.calls.import(fd, size))?;
        Ok(Block::new(&self.shared, native, size, granularity, true))
    }

    /// Reserves addresses; an alignment below the granularity counts as the granularity. The access list is what
    /// mappings get by remap (an empty one: this device, read and write).
    ///
    /// # Errors
    /// `InvalidSize`, `InvalidArgument` and `NoDevice` for the list, `Unsupported` without virtual memory, and the
    /// driver's, after what is retired was waited for and it was tried once more.
    pub fn reserve(
        &self,
        size: ByteSize,
        alignment: Option<Granularity>,
        access: &[Access],
        owner: Owner,
    ) -> Result<Arc<Reservation>> {
        let granularity = self.check_size(Operation::Reserve, size)?;
        let list = access::normalize(&self.shared.calls, Operation::Reserve, access)?;
        let alignment = alignment.map_or(granularity, |alignment| alignment.max(granularity));
        self.shared.collect();
        let range = self.shared.with_room(|| self.shared.calls.reserve(size, alignment))?;
        Ok(Reservation::new(&self.shared, range, list, owner))
    }

    /// Memory with an address and access, rounded up to granules; plain device memory without virtual memory.
    ///
    /// # Errors
    /// `InvalidSize` for 0 or too much, `Unsupported` for a list with other devices where there is no virtual
    /// memory, and those of [`Self::create_block`] and [`Self::reserve`].
    pub fn allocate(&self, size: ByteSize, access: &[Access], owner: Owner) -> Result<Arc<Allocation>> {
        if !self.capabilities().has(Capabilities::VIRTUAL_MEMORY) {
            return Allocation::plain(&self.shared, size, access);
        }
        if size.is_zero() {
            return Err(Error::new(Kind::InvalidSize, Operation::Allocate, "the size is 0"));
        }
        Allocation::mapped(self, self.round_up(size)?, access, owner)
    }

    /// `size` rounded up to what a block or a range of that size must be a multiple of; on Level Zero that unit
    /// grows with the size.
    ///
    /// # Errors
    /// `InvalidSize` where it passes 2^64 - 1, and the driver's.
    pub fn round_up(&self, size: ByteSize) -> Result<ByteSize> {
        let granularity = self.shared.calls.granularity(size)?;
        granularity
            .round_up(size)
            .ok_or(Error::new(Kind::InvalidSize, Operation::Allocate, "the size is too large").of(size))
    }

    /// Drops `value` once all marks have passed: at once where they have. Marks are not recorded for it: whoever
    /// wants that before the next [`Self::drain`] records them. The value is dropped by any later call of this
    /// layer, on any thread, with none of its locks held: its `Drop` must not take a lock that its owner holds
    /// while calling here.
    pub fn retire_value(&self, value: Box<dyn Send>, marks: Vec<Arc<Mark>>) {
        self.shared.queue.push_value(&self.shared, marks.into(), value);
        self.shared.collect();
    }

    /// Unmaps and drops what was retired and has passed, tries failed clean-up again, and says how many things
    /// went. Never blocks.
    pub fn collect(&self) -> usize {
        self.shared.collect()
    }

    /// Records all marks that retired things wait for, waits, and collects.
    ///
    /// # Errors
    /// The first failure; everything else was collected all the same.
    pub fn drain(&self) -> Result<()> {
        self.shared.drain()
    }

    /// What a copy of these slices is refused for, if it is.
    ///
    /// # Errors
    /// Those of [`Self::shadow_copy`] without the driver's.
    pub fn check_slices(slices: &[CopySlice]) -> Result<()> {
        copy::check(slices).map(|_| ())
    }

    /// [`Self::shadow_copy`] without its checks, for callers inside the library that know more than it can see: the
    /// caller vouches that no address is NULL, that no range wraps and that no destination overlaps another
    /// slice. Where that is not so, which bytes arrive is undefined.
    ///
    /// # Errors
    /// The driver's.
    pub fn copy_vouched(&self, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        self.shared.calls.copy(stream, slices)
    }

    /// Copies slices on a stream of this device and says how many launches that took. No slice (of more than 0
    /// bytes) is no driver call.
    ///
    /// # Errors
    /// With the slice to blame as the entry: `InvalidArgument` for NULL, `OutOfRange` for a range that wraps,
    /// `Overlap` where a destination overlaps another slice. And the driver's.
    pub fn shadow_copy(&self, stream: Stream, slices: &[CopySlice]) -> Result<u32> {
        if !copy::check(slices)? {
            return Ok(0);
        }
        self.shared.calls.copy(stream, slices)
    }

    /// What is mapped at an address; takes no lock.
    pub fn find(&self, address: DevicePtr) -> Option<Found> {
        self.shared.registry.find(address)
    }

    /// True where `stream` is being captured.
    ///
    /// # Errors
    /// `InvalidStream`, and the driver's.
    pub fn is_capturing(&self, stream: Stream) -> Result<bool> {
        self.shared.calls.is_capturing(stream)
    }

    /// A mark behind everything that is enqueued on `stream` now; nothing is enqueued for it.
    pub fn mark(&self, stream: Stream) -> Arc<Mark> {
        self.shared.clocks.mark(stream)
    }

    /// Records the stream's marks that somebody holds, and forgets the stream: call it before the stream is
    /// destroyed. Marks of a stream that has failed, and so cannot record, have passed: its work will never run.
    ///
    /// # Errors
    /// As [`Mark::record`] for a stream that has not failed; it is then still known. If it is destroyed all the same,
    /// its marks have passed once the driver knows it no more.
    pub fn forget_stream(&self, stream: Stream) -> Result<()> {
        self.shared.clocks.forget(stream)
    }

    /// The one `T` of this device, made on first use; it goes with the device.
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut extensions = self.extensions.lock().unwrap_or_else(PoisonError::into_inner);
        let id = TypeId::of::<T>();
        let known = extensions.iter().find(|(known, _)| *known == id).map(|(_, value)| Arc::clone(value));
        if let Some(value) = known.and_then(|value| value.downcast::<T>().ok()) {
            return value;
        }
        let value = Arc::new(T::default());
        extensions.push((id, Arc::<T>::clone(&value)));
        value
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Checks a size and gives what it must be, and is, a multiple of.
    fn check_size(&self, operation: Operation, size: ByteSize) -> Result<Granularity> {
        self.shared.require(Capabilities::VIRTUAL_MEMORY, operation, "this device has no virtual memory")?;
        if size.is_zero() {
            return Err(Error::new(Kind::InvalidSize, operation, "the size is 0"));
        }
        let granularity = self.shared.calls.granularity(size)?;
        if !granularity.divides(size) {
            let hint = "the size is no multiple of the granularity";
            return Err(Error::new(Kind::InvalidSize, operation, hint).of(size));
        }
        Ok(granularity)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let extensions = std::mem::take(self.extensions.get_mut().unwrap_or_else(PoisonError::into_inner));
        drop(extensions);
        // Values that go may retire more.
        let mut result = self.shared.drain();
        for _ in 0..8 {
            if result.is_err() || self.shared.queue.len() == 0 {
                break;
            }
            result = self.shared.drain();
        }
        log_failure("closing a device: draining what is retired", result);
        if let Err(e) = result
            && self.shared.queue.len() > 0
        {
            if matches!(e.kind, Kind::InvalidStream | Kind::DeviceLost | Kind::DeviceFault) {
                // Nothing runs there any more.
                let garbage = self.shared.queue.force(&self.shared);
                self.shared.bury(garbage);
            } else {
                // A stream that cannot be waited for may still use them.
                log::error!("closing a device: {} retired things stay mapped", self.shared.queue.len());
            }
        }
        for timeline in self.shared.clocks.close() {
            self.shared.keep(Leftover::Timeline(timeline));
        }
        self.shared.collect();
    }
}
