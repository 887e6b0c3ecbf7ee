//! A driver that counts its calls and how long they take.

use super::Call;
use super::tap::{Bytes, Tap};
use crate::driver::Driver;
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CALLS: usize = Call::COUNT as usize;

/// Counts and times the calls that pass to the driver behind it, whoever makes them.
#[derive(Debug)]
pub struct Meter {
    driver: Arc<dyn Driver>,
    counts: [AtomicU64; CALLS],
    nanoseconds: [AtomicU64; CALLS],
}

/// What a [`Meter`] has seen of one call.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Metered {
    /// How often it was made.
    pub count: u64,
    /// How long that took, all together.
    pub time: Duration,
}

impl Meter {
    /// A driver that behaves as `driver` and measures.
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { driver, counts: zeros(), nanoseconds: zeros() }
    }

    /// What it has seen of `call` so far; nothing of one that does not exist.
    pub fn of(&self, call: Call) -> Metered {
        if !call.is_known() {
            return Metered::default();
        }
        // Relaxed: each is a statistic of its own.
        let load = |all: &[AtomicU64; CALLS]| all[call.index()].load(Ordering::Relaxed);
        Metered { count: load(&self.counts), time: Duration::from_nanos(load(&self.nanoseconds)) }
    }
}

impl Tap for Meter {
    fn inner(&self) -> &dyn Driver {
        &*self.driver
    }

    fn around<R>(&self, call: Call, _: Bytes, run: impl FnOnce(&dyn Driver) -> Result<R>) -> Result<R> {
        let start = Instant::now();
        let result = run(&*self.driver);
        let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts[call.index()].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds[call.index()].fetch_add(nanoseconds, Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostConfig;
    use crate::driver::host::HostDriver;
    use crate::driver::{CreateOptions, Ordinal};
    use crate::units::ByteSize;

    #[test]
    fn calls_are_counted_failed_ones_too() {
        let host = HostDriver::new(HostConfig::default(), None).expect("a host driver");
        let meter = Meter::new(Arc::new(host));
        let block = meter.create(Ordinal(0), ByteSize::mib(2), CreateOptions::default()).expect("a block");
        assert!(meter.create(Ordinal(0), ByteSize::ZERO, CreateOptions::default()).is_err());
        meter.release(block).expect("released");
        let counts = [Call::CREATE, Call::RELEASE, Call::MAP, Call(0)].map(|call| meter.of(call).count);
        assert_eq!(counts, [2, 1, 0, 0]);
        assert!(meter.of(Call::CREATE).time > Duration::ZERO);
    }
}
