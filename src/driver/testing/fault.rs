//! A driver whose n-th call fails.

use super::Call;
use super::tap::{Bytes, Tap};
use crate::driver::Driver;
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Fails chosen calls of the driver behind it; a call that is made to fail does not reach that driver.
///
/// Device information, granularity, `check_native` and the streams' own calls are passed on and not counted.
/// Without a rule, a call costs one more atomic addition.
#[derive(Debug)]
pub struct Fault {
    driver: Arc<dyn Driver>,
    calls: AtomicU64,
    /// Whether there are rules, so that a call without any takes no lock.
    armed: AtomicBool,
    rules: Mutex<Vec<Rule>>,
}

/// Lets `skip` matching calls pass, then fails `count` of them.
#[derive(Debug)]
struct Rule {
    call: Option<Call>,
    skip: u64,
    count: u64,
    error: Error,
}

impl Rule {
    /// Takes note of one call, and says whether it shall fail.
    fn hit(&mut self, call: Call) -> bool {
        if self.call.is_some_and(|wanted| wanted != call) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.count = self.count.saturating_sub(1);
        true
    }
}

impl Fault {
    /// A driver that behaves as `driver` until told otherwise.
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        let (calls, armed) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { driver, calls, armed, rules: Mutex::new(Vec::new()) }
    }

    /// From now on, the `nth` next matching call (1 is the very next; 0 too) and the `count - 1` after it fail
    /// with `error`. Without a `call`, every call matches. Rules add up: where several want a call to fail, the
    /// oldest does it, and each counts it.
    pub fn fail(&self, call: Option<Call>, nth: u64, count: u64, error: Error) {
        if count == 0 {
            return;
        }
        let mut rules = self.rules();
        rules.push(Rule { call, skip: nth.saturating_sub(1), count, error });
        self.armed.store(true, Ordering::Release);
    }

    /// Forgets all rules.
    pub fn clear(&self) {
        let mut rules = self.rules();
        rules.clear();
        self.armed.store(false, Ordering::Release);
    }

    /// How many calls were made through it so far, failed ones included.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether this call shall fail, and with what.
    fn verdict(&self, call: Call) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.armed.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut rules = self.rules();
        let mut verdict = Ok(());
        for rule in rules.iter_mut() {
            if rule.hit(call) && verdict.is_ok() {
                verdict = Err(rule.error);
            }
        }
        rules.retain(|rule| rule.count > 0);
        self.armed.store(!rules.is_empty(), Ordering::Release);
        verdict
    }
}

impl Tap for Fault {
    fn inner(&self) -> &dyn Driver {
        &*self.driver
    }

    fn around<R>(&self, call: Call, _: Bytes, run: impl FnOnce(&dyn Driver) -> Result<R>) -> Result<R> {
        self.verdict(call)?;
        run(&*self.driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::driver::{DriverKind, Ordinal, open};
    use crate::error::{Kind, Operation};
    use crate::units::{ByteSize, DevicePtr};

    fn faulty() -> Fault {
        Fault::new(open(Some(DriverKind::HOST), &Config::default()).expect("the host driver"))
    }

    fn error(kind: Kind) -> Error {
        Error::new(kind, Operation::None, "on purpose")
    }

    /// Allocates and gives back, and says how either ended.
    fn pair(fault: &Fault) -> (Option<Kind>, Option<Kind>) {
        let kind = |e: Error| e.kind;
        match fault.allocate(Ordinal(0), ByteSize(1)) {
            Ok(address) => (None, fault.deallocate(Ordinal(0), address).err().map(kind)),
            Err(error) => (Some(kind(error)), None),
        }
    }

    #[test]
    fn the_nth_matching_call_fails_and_count_of_them() {
        let fault = faulty();
        fault.fail(Some(Call::ALLOCATE), 2, 2, error(Kind::OutOfDeviceMemory));
        let seen: Vec<_> = (0..4).map(|_| pair(&fault).0.is_some()).collect();
        assert_eq!(seen, [false, true, true, false]);
        assert_eq!(fault.calls(), 6, "a call that fails counts");
    }

    #[test]
    fn any_call_matches_and_rules_add_up() {
        let fault = faulty();
        fault.fail(None, 2, 1, error(Kind::DriverError));
        assert_eq!(pair(&fault), (None, Some(Kind::DriverError)));
        fault.fail(None, 1, 1, error(Kind::OutOfHostMemory));
        fault.fail(Some(Call::ALLOCATE), 0, 2, error(Kind::DriverError));
        assert_eq!(pair(&fault).0, Some(Kind::OutOfHostMemory), "the older rule's");
        assert_eq!(pair(&fault).0, Some(Kind::DriverError));
        assert_eq!(pair(&fault), (None, None));
    }

    #[test]
    fn cleared_rules_and_rules_for_no_calls_do_nothing() {
        let fault = faulty();
        fault.fail(None, 1, 0, error(Kind::DriverError));
        assert_eq!(pair(&fault), (None, None));
        fault.fail(None, 1, u64::MAX, error(Kind::DriverError));
        assert_eq!(fault.timeline_create(Ordinal(0)).map_err(|e| e.kind), Err(Kind::DriverError));
        fault.clear();
        assert_eq!(pair(&fault), (None, None));
    }

    #[test]
    fn a_call_that_is_made_to_fail_does_not_reach_the_driver() {
        let fault = faulty();
        let address = fault.allocate(Ordinal(0), ByteSize(1)).expect("memory");
        fault.fail(Some(Call::DEALLOCATE), 1, 1, error(Kind::DriverError));
        assert!(fault.deallocate(Ordinal(0), address).is_err());
        assert_eq!(fault.deallocate(Ordinal(0), address), Ok(()), "it was still there");
        assert_eq!(
            fault.deallocate(Ordinal(0), DevicePtr(1)).map_err(|e| e.kind),
            Err(Kind::InvalidArgument)
        );
    }
}
