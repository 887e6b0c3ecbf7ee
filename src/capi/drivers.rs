//! The drivers, each opened once in a process, and the devices that handles share.

use super::device::GVMM_DRIVER_AUTO;
use super::handle::{Noun, Ref, Table};
use super::types::gvmm_device;
use crate::config;
use crate::driver::testing::Fault;
use crate::driver::{self, Driver, DriverKind, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use crate::vm::Device;
use once_cell::sync::OnceCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A driver that is open.
pub(super) struct Opened {
    pub(super) driver: Arc<dyn Driver>,
    /// The same driver's switch for tests.
    pub(super) fault: Arc<Fault>,
}

/// The driver of a number, opened at the first call that succeeds.
pub(super) fn open(number: u32) -> Result<&'static Opened> {
    static OPENED: [OnceCell<Opened>; 4] = [const { OnceCell::new() }; 4];
    let Some(kind) = wanted(number) else { return first(|kind| open(kind.0)) };
    let place = driver::ORDER.iter().position(|&known| known == kind).and_then(|index| OPENED.get(index));
    let place =
        place.ok_or(Error::new(Kind::InvalidArgument, Operation::Open, "no driver has this number"))?;
    place.get_or_try_init(|| {
        let fault = Arc::new(Fault::new(driver::open(Some(kind), config::get())?));
        Ok(Opened { driver: fault.clone(), fault })
    })
}

/// The kind that a number names, or none where the first found shall do.
fn wanted(number: u32) -> Option<DriverKind> {
    match number {
        GVMM_DRIVER_AUTO => config::get().driver.map(DriverKind),
        number => Some(DriverKind(number)),
    }
}

/// The first driver that this machine has.
fn first(open: impl Fn(DriverKind) -> Result<&'static Opened>) -> Result<&'static Opened> {
    let mut last = Error::new(Kind::DriverNotFound, Operation::Open, "no driver was found");
    for kind in driver::ORDER {
        match open(kind) {
            Ok(opened) => return Ok(opened),
            Err(error) => {
                driver::note_absence(kind, &error);
                last = error;
            }
        }
    }
    Err(last)
}

/// What a handle of a device stands for. Several may share the device.
pub(super) struct DeviceObject {
    pub(super) device: Arc<Device>,
    pub(super) fault: Arc<Fault>,
    /// How many living things were made through this handle; far below 0 once it is closed.
    children: AtomicI64,
}

const CLOSED: i64 = i64::MIN / 2;

static DEVICES: Table<DeviceObject> = Table::new();

impl Noun for DeviceObject {
    const TYPE: u64 = 1;
    type Handle = gvmm_device;
    fn table() -> &'static Table<Self> {
        &DEVICES
    }
}

impl DeviceObject {
    /// A handle's object for a device, which is opened where no other handle has it open.
    pub(super) fn open(driver: u32, ordinal: Ordinal) -> Result<Self> {
        type Devices = HashMap<(DriverKind, Ordinal), Weak<Device>>;
        static OPEN: Mutex<Option<Devices>> = Mutex::new(None);
        let opened = self::open(driver)?;
        let (kind, fault) = (opened.driver.kind(), opened.fault.clone());
        // Held across opening, so that two threads do not open the same device twice.
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = open.get_or_insert_default();
        let device = match devices.get(&(kind, ordinal)).and_then(Weak::upgrade) {
            Some(device) => device,
            None => Device::open(opened.driver.clone(), ordinal)?,
        };
        devices.insert((kind, ordinal), Arc::downgrade(&device));
        Ok(Self { device, fault, children: AtomicI64::new(0) })
    }

    /// Closes it to new children.
    pub(super) fn close(&self) -> Result<()> {
        match self.children.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(_) => {
                let hint = "something made through this handle still lives: destroy it first";
                Err(Error::new(Kind::InUse, Operation::Destroy, hint))
            }
        }
    }
}

/// Says that something made through a device's handle lives, for as long as it does itself.
pub(super) struct Child(Ref<DeviceObject>);

impl Ref<DeviceObject> {
    /// One more child.
    pub(super) fn adopt(&self) -> Result<Child> {
        if self.children.fetch_add(1, Ordering::AcqRel) < 0 {
            self.children.fetch_sub(1, Ordering::AcqRel);
            let hint = "another thread has just closed the device";
            return Err(Error::new(Kind::InvalidHandle, Operation::Create, hint));
        }
        Ok(Child(self.share()))
    }
}

impl Child {
    /// One more child of the same handle.
    pub(super) fn again(&self) -> Result<Self> {
        self.0.adopt()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.0.children.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::device::*;

    #[test]
    fn the_numbers_are_the_drivers() {
        let names = ["auto", "cuda", "hip", "level_zero", "host"];
        let numbers =
            [GVMM_DRIVER_AUTO, GVMM_DRIVER_CUDA, GVMM_DRIVER_HIP, GVMM_DRIVER_LEVEL_ZERO, GVMM_DRIVER_HOST];
        for (name, number) in names.into_iter().zip(numbers).skip(1) {
            assert_eq!(DriverKind(number).name(), name);
            let (config, _) = config::Config::read(|v| (v == "GVMM_DRIVER").then(|| name.to_string()));
            assert_eq!(config.driver, Some(number));
        }
    }
}
