//! A driver that counts its calls and what lives.

use super::Call;
use super::tap::{Bytes, Tap};
use crate::driver::Driver;
use crate::error::{Kind, Result};
use crate::units::{ByteSize, DevicePtr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const CALLS: usize = Call::COUNT as usize;

/// Counts the calls that pass to the driver behind it, what they made and did not give up, and, when asked to,
/// keeps a record of each.
#[derive(Debug)]
pub struct Trace {
    driver: Arc<dyn Driver>,
    made: [AtomicU64; CALLS],
    worked: [AtomicU64; CALLS],
    recording: AtomicBool,
    records: Mutex<Vec<Record>>,
}

/// How often each call was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts([u64; CALLS]);

impl Counts {
    /// How often `call` was made; 0 for a call that does not exist.
    pub fn of(&self, call: Call) -> u64 {
        if call.is_known() { self.0[call.index()] } else { 0 }
    }

    /// How often any call was made.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What was made since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].wrapping_sub(earlier.0[i])))
    }
}

/// What was made through a [`Trace`] and not given up; below 0 where more was given up than made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Live {
    /// Blocks created or imported, and not released.
    pub blocks: i64,
    /// Ranges reserved and not freed.
    pub ranges: i64,
    /// Mappings not unmapped.
    pub mappings: i64,
    /// Plain allocations.
    pub allocations: i64,
    /// Timelines.
    pub timelines: i64,
    /// Routes.
    pub routes: i64,
}

/// One call that was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Which.
    pub call: Call,
    /// Where, or NULL.
    pub address: DevicePtr,
    /// How many bytes, or 0.
    pub size: ByteSize,
    /// How it failed, if it did.
    pub failed: Option<Kind>,
}

impl Trace {
    /// A driver that behaves as `driver` and counts.
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        let (recording, records) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        Self { driver, made: zeros(), worked: zeros(), recording, records }
    }

    /// How often each call was made, failed ones included.
    pub fn counts(&self) -> Counts {
        Counts(std::array::from_fn(|i| self.made[i].load(Ordering::Relaxed)))
    }

    /// What lives.
    pub fn live(&self) -> Live {
        let worked = |call: Call| self.worked[call.index()].load(Ordering::Relaxed) as i64;
        Live {
            blocks: worked(Call::CREATE) + worked(Call::IMPORT) - worked(Call::RELEASE),
            ranges: worked(Call::RESERVE) - worked(Call::FREE),
            mappings: worked(Call::MAP) - worked(Call::UNMAP),
            allocations: worked(Call::ALLOCATE) - worked(Call::DEALLOCATE),
            timelines: worked(Call::TIMELINE_CREATE) - worked(Call::TIMELINE_DESTROY),
            routes: worked(Call::ROUTE_CREATE) - worked(Call::ROUTE_DESTROY),
        }
    }

    /// Keeps a record of each call from now on, or stops.
    pub fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Release);
    }

    /// Takes the records kept so far, oldest first.
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, call: Call, (address, size): Bytes, failed: Option<Kind>) {
        self.made[call.index()].fetch_add(1, Ordering::Relaxed);
        if failed.is_none() {
            self.worked[call.index()].fetch_add(1, Ordering::Relaxed);
        }
        if self.recording.load(Ordering::Acquire) {
            let record = Record { call, address, size, failed };
            self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        }
    }
}

impl Tap for Trace {
    fn inner(&self) -> &dyn Driver {
        &*self.driver
    }

    fn around<R>(&self, call: Call, bytes: Bytes, run: impl FnOnce(&dyn Driver) -> Result<R>) -> Result<R> {
        let result = run(&*self.driver);
        self.note(call, bytes, result.as_ref().err().map(|e| e.kind));
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::driver::{CreateOptions, DriverKind, Ordinal, open};

    #[test]
    fn calls_are_counted_what_lives_too_and_records_only_when_asked_for() {
        let trace = Trace::new(open(Some(DriverKind::HOST), &Config::default()).expect("the host driver"));
        let (device, size) = (Ordinal(0), ByteSize::mib(2));
        let granule = trace.granularity(device, size).expect("a granule");
        let range = trace.reserve(device, size, granule).expect("a range");
        let block = trace.create(device, size, CreateOptions::default()).expect("a block");
        trace.record(true);
        let before = trace.counts();
        trace.map(range, block).expect("a mapping");
        assert!(trace.map(range, block).is_err());
        trace.record(false);
        assert_eq!(trace.live(), Live { blocks: 1, ranges: 1, mappings: 1, ..Live::default() });
        let since = trace.counts().since(&before);
        assert_eq!((since.of(Call::MAP), since.total()), (2, 2));
        assert_eq!((since.of(Call(0)), since.of(Call(25))), (0, 0));
        trace.unmap(range).expect("mapped");
        trace.release(block).expect("a block");
        trace.free(range).expect("a range");
        assert_eq!(trace.live(), Live::default());
        let first = Record { call: Call::MAP, address: range.start(), size, failed: None };
        let second = Record { failed: Some(Kind::AlreadyMapped), ..first };
        assert_eq!(trace.take(), [first, second]);
        assert_eq!(trace.take(), []);
    }

    #[test]
    fn every_call_has_a_name() {
        let names: std::collections::BTreeSet<_> = Call::all().map(Call::name).collect();
        assert_eq!(names.len(), Call::COUNT as usize);
        assert_eq!((Call(0).name(), Call(25).name()), ("unknown", "unknown"));
        assert_eq!((Call::RESERVE.name(), Call::ROUTE_POINT.name()), ("reserve", "route_point"));
    }
}
