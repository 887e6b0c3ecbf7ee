//! The driver's calls, each timed and counted.

use gvmm::driver::{Access, CreateOptions, Driver, NativeBlock, Ordinal};
use gvmm::error::Result;
use gvmm::units::{ByteSize, DevicePtr, DeviceRange, Granularity};
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// How often each call was made.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) reserve: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) free: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) create: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) release: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) map: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) unmap: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) set_access: u64,
    /// Of those, how many name a device beside the blocks' own.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) set_access_naming_peers: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) allocate: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) deallocate: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Counts {
    /// What was made since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            reserve: self.reserve - earlier.reserve,
            free: self.free - earlier.free,
            create: self.create - earlier.create,
            release: self.release - earlier.release,
            map: self.map - earlier.map,
            unmap: self.unmap - earlier.unmap,
            set_access: self.set_access - earlier.set_access,
            set_access_naming_peers: self.set_access_naming_peers - earlier.set_access_naming_peers,
            allocate: self.allocate - earlier.allocate,
            deallocate: self.deallocate - earlier.deallocate,
        }
    }
}

/// One device's driver. Each method makes one call, and says how many µs it took.
pub(super) struct Calls {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) device: Ordinal,
    pub(super) made: Counts,
}

fn timed<T>(call: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let result = call();
    let us = start.elapsed().as_secs_f64() * 1e6;
    Ok((result?, us))
}

impl Calls {
    pub(super) fn new(driver: Arc<dyn Driver>, device: Ordinal) -> Self {
        Self { driver, device, made: Counts::default() }
    }

    pub(super) fn granularity(&self, size: ByteSize) -> Result<Granularity> {
        self.driver.granularity(self.device, size)
    }

    pub(super) fn reserve(&mut self, size: ByteSize, granularity: Granularity) -> Result<(DeviceRange, f64)> {
        self.made.reserve += 1;
        timed(|| self.driver.reserve(self.device, size, granularity))
    }

    pub(super) fn free(&mut self, range: DeviceRange) -> Result<f64> {
        self.made.free += 1;
        Ok(timed(|| self.driver.free(range))?.1)
    }

    pub(super) fn create(&mut self, size: ByteSize) -> Result<(NativeBlock, f64)> {
        self.made.create += 1;
        timed(|| self.driver.create(self.device, size, CreateOptions::default()))
    }

    pub(super) fn release(&mut self, block: NativeBlock) -> Result<f64> {
        self.made.release += 1;
        Ok(timed(|| self.driver.release(block))?.1)
    }

    pub(super) fn map(&mut self, range: DeviceRange, block: NativeBlock) -> Result<f64> {
        self.made.map += 1;
        Ok(timed(|| self.driver.map(range, block))?.1)
    }

    pub(super) fn unmap(&mut self, range: DeviceRange) -> Result<f64> {
        self.made.unmap += 1;
        Ok(timed(|| self.driver.unmap(range))?.1)
    }

    pub(super) fn allocate(&mut self, size: ByteSize) -> Result<(DevicePtr, f64)> {
        self.made.allocate += 1;
        timed(|| self.driver.allocate(self.device, size))
    }

    pub(super) fn deallocate(&mut self, address: DevicePtr) -> Result<f64> {
        self.made.deallocate += 1;
        Ok(timed(|| self.driver.deallocate(self.device, address))?.1)
    }

    pub(super) fn set_access(&mut self, range: DeviceRange, access: &[Access]) -> Result<f64> {
        self.made.set_access += 1;
        self.made.set_access_naming_peers += u64::from(access.iter().any(|line| line.device != self.device));
        Ok(timed(|| self.driver.set_access(range, access))?.1)
    }
}
