//! A framework's pools: one a device, made at its first allocation there and kept while the process lives.
//!
//! Nothing is made for a device that is only named: a context there would cost its memory. Statics are not dropped at exit,
//! so calls that come late, from destructors and interpreters that end, find everything as it was; and what the driver then
//! refuses is an error like any other. A child made by fork is turned away at the door (`entry`).

use super::super::drivers::DeviceObject;
use super::super::stream::resolve;
use crate::config;
use crate::driver::{Access, AccessMode, DriverKind, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::pool::{Pool, Settings};
use crate::units::DevicePtr;
use crate::vm::Device;
use once_cell::sync::OnceCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The most devices of a framework.
const MOST: usize = 64;

/// All pools of one framework, by its numbers of devices.
pub(super) struct Pools {
    pools: [OnceCell<Arc<Pool>>; MOST],
    /// Fractions that were set, also for devices without a pool yet.
    fractions: Mutex<[Option<f64>; MOST]>,
    /// One more than the highest number of a device with a pool.
    end: AtomicUsize,
    warned: AtomicBool,
}

fn index(device: c_int) -> Result<usize> {
    let found = usize::try_from(device).ok().filter(|index| *index < MOST);
    found.ok_or_else(|| Error::new(Kind::NoDevice, Operation::Open, "no device has this number"))
}

impl Pools {
    pub(super) const fn new() -> Self {
        Self {
            pools: [const { OnceCell::new() }; MOST],
            fractions: Mutex::new([None; MOST]),
            end: AtomicUsize::new(0),
            warned: AtomicBool::new(false),
        }
    }

    /// The pool of a device, if it was needed before.
    pub(super) fn get(&self, device: c_int) -> Option<&Arc<Pool>> {
        self.pools[index(device).ok()?].get()
    }

    /// The same, for a number that a device can have.
    pub(super) fn known(&self, device: c_int) -> Result<Option<&Arc<Pool>>> {
        Ok(self.pools[index(device)?].get())
    }

    /// All pools that there are.
    #[inline]
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools[..self.end.load(Ordering::Acquire)].iter().filter_map(OnceCell::get)
    }

    /// The pool of a device, over what `open` gives where it is the first call for it.
    #[inline]
    pub(super) fn of(
        &self,
        device: c_int,
        open: impl FnOnce(Ordinal) -> Result<Arc<Device>>,
    ) -> Result<&Arc<Pool>> {
        let index = index(device)?;
        match self.pools[index].get() {
            Some(pool) => Ok(pool),
            None => self.make(index, open),
        }
    }

    #[cold]
    fn make(&self, index: usize, open: impl FnOnce(Ordinal) -> Result<Arc<Device>>) -> Result<&Arc<Pool>> {
        // Held across the driver calls, so that a fraction set meanwhile is not lost.
        let fractions = self.fractions.lock().unwrap_or_else(PoisonError::into_inner);
        self.pools[index].get_or_try_init(|| {
            let device = open(Ordinal(index as u32))?;
            let access = access(&device, config::get().pool.peers)?;
            let pool = Pool::new(&device, &Settings { access, ..Settings::from_environment() })?;
            if let Some(fraction) = fractions[index] {
                pool.set_fraction(fraction)?;
            }
            self.end.fetch_max(index + 1, Ordering::AcqRel);
            Ok(pool)
        })
    }

    /// The pool that has a block in use at `address`.
    pub(super) fn over(&self, address: DevicePtr) -> Option<&Arc<Pool>> {
        self.all().find(|pool| pool.find(address).is_some())
    }

    /// The same with the number of its device.
    pub(super) fn numbered_over(&self, address: DevicePtr) -> Option<(c_int, &Arc<Pool>)> {
        let numbered = (0..).zip(&self.pools[..self.end.load(Ordering::Acquire)]);
        let mut pools = numbered.filter_map(|(number, pool)| Some((number, pool.get()?)));
        pools.find(|(_, pool)| pool.find(address).is_some())
    }

    /// Sets the part of a device's memory that its pool may take; a device without a pool keeps that in mind.
    pub(super) fn set_fraction(&self, device: c_int, fraction: f64) -> Result<()> {
        let index = index(device)?;
        let mut fractions = self.fractions.lock().unwrap_or_else(PoisonError::into_inner);
        match self.pools[index].get() {
            Some(pool) => pool.set_fraction(fraction)?,
            None if fraction > 0.0 && fraction <= 1.0 => {}
            None => {
                let hint = "a fraction is above 0 and at most 1";
                return Err(Error::new(Kind::InvalidArgument, Operation::Allocate, hint));
            }
        }
        fractions[index] = Some(fraction);
        Ok(())
    }

    /// Frees a block whose last use was on `stream`. An address that is nobody's is logged, once loudly, and left alone.
    #[inline]
    pub(super) fn free(&self, address: DevicePtr, device: c_int, stream: *mut c_void) {
        let freed = self.get(device).is_some_and(|pool| match resolve(pool.device(), stream) {
            Ok(stream) => pool.free_on(address, stream).is_ok(),
            // A stream that is gone has nothing more to do.
            Err(_) => pool.free(address).is_ok(),
        });
        if !freed {
            self.free_elsewhere(address, device);
        }
    }

    /// Frees a block by its address alone.
    #[inline]
    pub(super) fn delete(&self, address: DevicePtr) {
        if !self.all().any(|pool| pool.free(address).is_ok()) {
            self.nobodys(address);
        }
    }

    #[cold]
    fn free_elsewhere(&self, address: DevicePtr, device: c_int) {
        match self.all().find(|pool| pool.free(address).is_ok()) {
            Some(pool) => {
                log::debug!(
                    "{address}: freed for device {device}, and is of device {}",
                    pool.device().ordinal().0
                );
            }
            None => self.nobodys(address),
        }
    }

    #[cold]
    fn nobodys(&self, address: DevicePtr) {
        let level =
            if self.warned.swap(true, Ordering::Relaxed) { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "{address}: freed, and no block in use starts there: nothing is done");
    }
}

/// Who may use a pool of `device`: itself, and those of the others whose bit is set. Level Zero gives access to the whole
/// context at once.
fn access(device: &Device, peers: u64) -> Result<Vec<Access>> {
    let (own, count) = (device.ordinal().0, device.driver().device_count());
    if device.driver().kind() == DriverKind::LEVEL_ZERO {
        return Ok(Vec::new());
    }
    let missing = peers != u64::MAX && (count..MOST as u32).any(|peer| peers >> peer & 1 != 0);
    if missing {
        let hint = "GVMM_POOL_PEERS names a device that is not there";
        return Err(Error::new(Kind::NoDevice, Operation::SetAccess, hint));
    }
    let is_in = |peer: &u32| *peer == own || peers.checked_shr(*peer).is_some_and(|bits| bits & 1 != 0);
    let device = |peer| Access { device: Ordinal(peer), mode: AccessMode::READ_WRITE };
    Ok((0..count).filter(is_in).map(device).collect())
}

/// The device of a driver, shared with every handle of it where PyTorch can use what those give.
pub(super) fn shared_device(driver: u32, ordinal: Ordinal) -> Result<Arc<Device>> {
    Ok(Arc::clone(&DeviceObject::for_hosts(driver, ordinal)?.device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostConfig;
    use crate::driver::host::HostDriver;
    use crate::units::ByteSize;

    fn device(ordinal: u32) -> Arc<Device> {
        let config = HostConfig { devices: 3, memory: 64 << 20, ..HostConfig::default() };
        let driver = Arc::new(HostDriver::new(config, None).expect("a host driver"));
        Device::open(driver, Ordinal(ordinal)).expect("a device")
    }

    #[test]
    fn a_pool_is_for_its_device_and_the_peers_that_are_named() {
        let of = |ordinal, peers| {
            access(&device(ordinal), peers).map(|list| list.iter().map(|a| a.device.0).collect::<Vec<_>>())
        };
        assert_eq!(of(1, 0), Ok(vec![1]));
        assert_eq!(of(1, 0b100), Ok(vec![1, 2]));
        assert_eq!(of(2, 0b001), Ok(vec![0, 2]));
        assert_eq!(of(0, u64::MAX), Ok(vec![0, 1, 2]));
        assert_eq!(of(0, 0b1010).map_err(|e| e.kind), Err(Kind::NoDevice));
    }

    #[test]
    fn a_fraction_waits_for_its_device_and_a_failed_opening_leaves_nothing() {
        let pools = Pools::new();
        pools.set_fraction(1, 0.25).expect("kept in mind");
        let refused = |fraction| pools.set_fraction(1, fraction).map_err(|e| e.kind);
        assert_eq!([0.0, 1.1, f64::NAN].map(refused), [Err(Kind::InvalidArgument); 3]);
        let broken = pools.of(1, |_| Err(Error::new(Kind::DriverNotFound, Operation::Open, "not now")));
        assert_eq!(broken.err().map(|e| e.kind), Some(Kind::DriverNotFound));
        assert!(pools.get(1).is_none() && pools.all().next().is_none());
        let pool = pools.of(1, |ordinal| Ok(device(ordinal.0))).expect("a pool");
        assert_eq!(pool.stats().limit, ByteSize::mib(16));
        assert!(Arc::ptr_eq(pool, pools.of(1, |_| unreachable!("open already")).expect("the same")));
        assert_eq!(pools.of(-1, |_| Ok(device(0))).err().map(|e| e.kind), Some(Kind::NoDevice));
    }
}
