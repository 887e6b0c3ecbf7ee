//! The one door for every call from C: nothing unwinds out of it, nothing prints, nothing exits.
#![allow(unsafe_code, reason = "registers a function for the child after fork")]

use super::status::{GVMM_STATUS_RECORD_AGAIN, GVMM_STATUS_SUCCESS, gvmm_status};
use super::{last_error, used};
use crate::error::{Error, Kind, Operation, Result};
use crate::logging;
use crate::rebind::Outcome;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a call gives where it does not fail.
pub(super) trait Answer {
    /// Its status.
    fn status(&self) -> gvmm_status;
}

impl Answer for () {
    fn status(&self) -> gvmm_status {
        GVMM_STATUS_SUCCESS
    }
}

impl Answer for Outcome {
    fn status(&self) -> gvmm_status {
        match self {
            Self::Started => GVMM_STATUS_SUCCESS,
            Self::RecordAgain => GVMM_STATUS_RECORD_AGAIN,
        }
    }
}

/// Set in a child made by fork after the first call: threads and locks of the parent are not there.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Lets a call in. `body` checks, calls the layers below and writes the outputs last. A failure is recorded
/// for this thread; after a panic so is that, and the objects that the call used are poisoned.
pub(super) fn entry<A: Answer>(operation: Operation, body: impl FnOnce() -> Result<A>) -> gvmm_status {
    match run(operation, body) {
        Ok(answer) => answer.status(),
        Err(error) => last_error::record(error),
    }
}

/// The same for the calls that read the last error: a failure of theirs must not replace it.
pub(super) fn entry_quiet(operation: Operation, body: impl FnOnce() -> Result<()>) -> gvmm_status {
    match run(operation, body) {
        Ok(()) => GVMM_STATUS_SUCCESS,
        Err(error) => super::status::of(error.kind),
    }
}

fn run<A>(operation: Operation, body: impl FnOnce() -> Result<A>) -> Result<A> {
    if FORKED.load(Ordering::Relaxed) {
        let hint = "a child made by fork cannot use the library: start a new program instead";
        return Err(Error::new(Kind::Forked, operation, hint));
    }
    start();
    // Messages for the caller's function are handed over when this goes, with no lock of ours held.
    let _messages = logging::hold();
    let body = || {
        used::begin_call();
        body()
    };
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(defect(operation, panic)));
    // Handles, arrays and structs are checked by code that does not know which call it serves.
    result.map_err(|error| match error.operation {
        Operation::None => error.during(operation),
        _ => error,
    })
}

/// A panic is a defect of ours. What the call used may be half done, so it refuses from now on.
#[cold]
fn defect(operation: Operation, panic: Box<dyn Any + Send>) -> Error {
    used::poison_used();
    // Dropping a payload runs code that may panic again.
    std::mem::forget(panic);
    log::error!("{}: a defect of gvmm: {}", operation.name(), last_error::panic_text());
    Error::new(Kind::Internal, operation, "a defect of gvmm; please report it")
}

/// What is done once, before the first call goes on.
fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        // SAFETY: the function given is sound in a child: it stores to an atomic.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        quiet_panics();
        logging::start();
    });
}

unsafe extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Panics inside a call are kept for the message, and those of our threads are logged, instead of printed.
/// Others (of a Rust program that we are part of) go the way they went.
fn quiet_panics() {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let ours = std::thread::current().name().is_some_and(|name| name.starts_with("gvmm"));
        if logging::is_held() {
            last_error::keep_panic(info);
        } else if ours {
            log::error!("a defect of gvmm: {info}");
        } else {
            previous(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::status::{GVMM_ERROR_IN_USE, GVMM_ERROR_INTERNAL};

    #[test]
    fn a_panic_becomes_a_status_and_a_message() {
        let status = entry(Operation::Remap, || -> Result<()> { panic!("the sky fell") });
        assert_eq!(status, GVMM_ERROR_INTERNAL);
        let message = last_error::message_for_tests();
        assert!(message.starts_with("remap: a defect of gvmm"), "{message}");
        assert!(message.contains("the sky fell") && message.contains("entry.rs"), "{message}");
    }

    #[test]
    fn a_failure_is_recorded_and_success_leaves_it() {
        let failing = || Err::<(), _>(Error::new(Kind::InUse, Operation::Destroy, "unmap it first"));
        assert_eq!(entry(Operation::Destroy, failing), GVMM_ERROR_IN_USE);
        assert_eq!(entry(Operation::Query, || Ok(())), GVMM_STATUS_SUCCESS);
        assert_eq!(entry_quiet(Operation::Query, || Err(Error::new(Kind::Busy, Operation::Query, ""))), 111);
        assert_eq!(last_error::message_for_tests(), "destroy: unmap it first");
    }
}
