//! The log.
#![allow(unsafe_code, reason = "exports symbols; calls the caller's function")]

use super::entry::entry;
use super::status::gvmm_status;
use crate::error::{Error, Kind, Operation};
use crate::logging::{self, Callback};
use log::LevelFilter;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// Log level: nothing.
pub const GVMM_LOG_LEVEL_OFF: u32 = 0;
/// Log level: something failed that no status tells.
pub const GVMM_LOG_LEVEL_ERROR: u32 = 1;
/// Log level: something is not as it should be; the call went on.
pub const GVMM_LOG_LEVEL_WARN: u32 = 2;
/// Log level: what was found and chosen.
pub const GVMM_LOG_LEVEL_INFO: u32 = 3;
/// Log level: what is done.
pub const GVMM_LOG_LEVEL_DEBUG: u32 = 4;
/// Log level: every step of it.
pub const GVMM_LOG_LEVEL_TRACE: u32 = 5;

/// A function that takes log messages. The strings live during the call only.
pub type gvmm_log_callback = Option<
    unsafe extern "C" fn(level: u32, target: *const c_char, message: *const c_char, user_data: *mut c_void),
>;

/// Sends log messages to a function of the caller's. Without one, they go to standard error where
/// `GVMM_LOG` is set, else nowhere.
///
/// State: after success new messages go to `callback`. A message that another thread is just handing over
/// may still reach the function before: keep its `user_data`. Messages of a call are handed over as it
/// returns, with no lock of ours held, so the function may call this library.
/// Parameters: `callback`, or NULL for none; it may be called from several threads at once and must not
/// unwind; `user_data`, handed to it, may be NULL; `max_level`, `GVMM_LOG_LEVEL_...`, the most detailed
/// level wanted.
/// Statuses: INVALID_ARGUMENT (`max_level`), IN_USE (the program is written in Rust and has a logger of its
/// own).
/// Threads: thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_log_set_callback(
    callback: gvmm_log_callback,
    user_data: *mut c_void,
    max_level: u32,
) -> gvmm_status {
    entry(Operation::None, || {
        let level = usize::try_from(max_level).ok().and_then(|level| LEVELS.get(level).copied());
        let hint = "max_level is none of GVMM_LOG_LEVEL_...";
        let level = level.ok_or(Error::new(Kind::InvalidArgument, Operation::None, hint))?;
        let sink = callback.map(|callback| Sink { callback, user_data });
        logging::set_callback(sink.map(Sink::into_callback), level)
    })
}

const LEVELS: [LevelFilter; 6] = [
    LevelFilter::Off,
    LevelFilter::Error,
    LevelFilter::Warn,
    LevelFilter::Info,
    LevelFilter::Debug,
    LevelFilter::Trace,
];

/// A caller's function and what it is called with.
struct Sink {
    callback: unsafe extern "C" fn(u32, *const c_char, *const c_char, *mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the header says that the function may be called from any thread with this data.
unsafe impl Send for Sink {}
// SAFETY: and from several at once.
unsafe impl Sync for Sink {}

impl Sink {
    fn into_callback(self) -> Callback {
        Arc::new(move |level, target, message| self.call(level as u32, target, message))
    }

    fn call(&self, level: u32, target: &CStr, message: &CStr) {
        // SAFETY: the caller vouches for the function with this data; the strings live during the call.
        unsafe { (self.callback)(level, target.as_ptr(), message.as_ptr(), self.user_data) };
    }
}
