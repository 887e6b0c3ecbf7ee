//! The one door for every call from C: nothing unwinds out of it, nothing prints, nothing exits.
#![allow(unsafe_code, reason = "registers a function for the child after fork")]

use super::status::{GVMM_STATUS_RECORD_AGAIN, GVMM_STATUS_SUCCESS, gvmm_status};
use super::{barrier, last_error, used};
use crate::error::{Error, Kind, Operation, Result};
use crate::logging::{self, Thread};
use crate::rebind::Outcome;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

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

/// Lets a call in. `body` checks, calls the layers below and writes the outputs last. A failure is recorded
/// for this thread; after a panic so is that, and the objects that the call used are poisoned.
pub(super) fn entry<A: Answer>(operation: Operation, body: impl FnOnce() -> Result<A>) -> gvmm_status {
    let body = || match body() {
        Ok(answer) => answer.status(),
        Err(error) => failed(operation, error),
    };
    enter(operation, noting(body), used::poison_used, last_error::record)
}

/// The same for calls that are made most, which use objects by [`super::handle::visit`] only: it is told the thread, and
/// poisons them itself.
#[inline]
pub(super) fn entry_short(operation: Operation, body: impl FnOnce(&Thread) -> Result<()>) -> gvmm_status {
    let body = |thread: &Thread| match body(thread) {
        Ok(()) => GVMM_STATUS_SUCCESS,
        Err(error) => failed(operation, error),
    };
    enter(operation, body, || (), last_error::record)
}

/// The same for the calls that read the last error: a failure of theirs must not replace it.
pub(super) fn entry_quiet(operation: Operation, body: impl FnOnce() -> Result<()>) -> gvmm_status {
    let quiet = |error: Error| super::status::of(error.kind);
    let body = noting(|| body().map_or_else(quiet, |()| GVMM_STATUS_SUCCESS));
    // A child made by fork may read why its calls are refused: the error is this thread's own.
    if STATE.load(Ordering::Acquire) == FORKED {
        return inside(operation, body, used::poison_used, quiet);
    }
    enter(operation, body, used::poison_used, quiet)
}

/// Notes what the call uses from here on.
fn noting(body: impl FnOnce() -> gvmm_status) -> impl FnOnce(&Thread) -> gvmm_status {
    |_| {
        used::begin_call();
        body()
    }
}

/// Records a failure. Handles, arrays and structs are checked by code that does not know which call it serves.
#[cold]
fn failed(operation: Operation, error: Error) -> gvmm_status {
    last_error::record(match error.operation {
        Operation::None => error.during(operation),
        _ => error,
    })
}

/// The door itself. What is carried through it is a status: nothing is built or moved where nothing fails.
#[inline]
fn enter(
    operation: Operation,
    body: impl FnOnce(&Thread) -> gvmm_status,
    poison: impl FnOnce(),
    fail: impl Fn(Error) -> gvmm_status,
) -> gvmm_status {
    if STATE.load(Ordering::Acquire) != STARTED
        && let Err(error) = start(operation)
    {
        return fail(error);
    }
    inside(operation, body, poison, fail)
}

/// Behind the door.
#[inline]
fn inside(
    operation: Operation,
    body: impl FnOnce(&Thread) -> gvmm_status,
    poison: impl FnOnce(),
    fail: impl Fn(Error) -> gvmm_status,
) -> gvmm_status {
    // Messages for the caller's function are handed over when this ends, with no lock of ours held.
    logging::in_call(|thread| {
        catch_unwind(AssertUnwindSafe(|| body(thread))).unwrap_or_else(|panic| {
            poison();
            fail(defect(operation, panic))
        })
    })
}

/// A panic is a defect of ours. What the call used may be half done, so it refuses from now on.
#[cold]
fn defect(operation: Operation, panic: Box<dyn Any + Send>) -> Error {
    // Dropping a payload runs code that may panic again.
    std::mem::forget(panic);
    log::error!("{}: a defect of gvmm: {}", operation.name(), last_error::panic_text());
    Error::new(Kind::Internal, operation, "a defect of gvmm; please report it")
}

/// No call has been made yet; calls go on; this is a child made by fork, where threads and locks of the parent are not.
static STATE: AtomicU8 = AtomicU8::new(NEW);
const NEW: u8 = 0;
const STARTED: u8 = 1;
const FORKED: u8 = 2;

/// What is done once, before the first call goes on.
#[cold]
fn start(operation: Operation) -> Result<()> {
    static START: Once = Once::new();
    if STATE.load(Ordering::Acquire) != FORKED {
        START.call_once(|| {
            // SAFETY: the function given is sound in a child: it stores to an atomic.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            barrier::start();
            quiet_panics();
            logging::start();
        });
        let _ = STATE.compare_exchange(NEW, STARTED, Ordering::AcqRel, Ordering::Acquire);
    }
    if STATE.load(Ordering::Acquire) == FORKED {
        let hint = "a child made by fork cannot use the library: start a new program instead";
        return Err(Error::new(Kind::Forked, operation, hint));
    }
    Ok(())
}

unsafe extern "C" fn in_child() {
    STATE.store(FORKED, Ordering::Release);
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
