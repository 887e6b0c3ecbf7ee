//! Lines for people, on standard error: warnings unless `GVMM_LOG` says otherwise.
#![allow(
    unsafe_code,
    reason = "write to standard error without std's lock, which another thread may hold in a fork"
)]

use crate::call::Vendor;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// How much is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Why we stay out.
    Warn,
    /// What we do.
    Info,
}

/// What `GVMM_LOG` lets through: its last bare level, or one given to `preload`.
fn wanted(text: &str) -> Option<Level> {
    let level = |word: &str| match word {
        "off" | "error" => None,
        "info" | "debug" | "trace" => Some(Level::Info),
        _ => Some(Level::Warn),
    };
    let mut found = Some(Level::Warn);
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            None => found = level(part),
            Some(("preload", word)) => return level(word),
            Some(_) => {}
        }
    }
    found
}

/// True where lines of this level are wanted.
pub fn wants(level: Level) -> bool {
    static WANTED: OnceLock<Option<Level>> = OnceLock::new();
    let most = WANTED.get_or_init(|| wanted(&std::env::var("GVMM_LOG").unwrap_or_default()));
    most.is_some_and(|most| level <= most)
}

/// True where standard error takes a line now. A pipe that nobody reads from would stop the program, or end it.
fn takes_lines() -> bool {
    let mut error = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one record, which is ours; nothing is waited for.
    let ready = unsafe { libc::poll(&raw mut error, 1, 0) };
    ready == 1 && error.revents == libc::POLLOUT
}

/// Writes one line, in one piece.
pub fn say(vendor: &Vendor, level: Level, text: &str) {
    if wants(level) && takes_lines() {
        let line = format!("gvmm preload {}: {text}\n", vendor.name);
        // SAFETY: the buffer is as long as said; a failure is nobody's concern.
        unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    }
}

/// The same, the first time only.
pub fn once(flag: &AtomicBool, vendor: &Vendor, text: &str) {
    if !flag.swap(true, Ordering::Relaxed) {
        say(vendor, Level::Warn, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read_as_the_core_reads_it() {
        assert_eq!(wanted(""), Some(Level::Warn));
        assert_eq!(wanted("off"), None);
        assert_eq!(wanted("info"), Some(Level::Info));
        assert_eq!(wanted("vm=trace"), Some(Level::Warn));
        assert_eq!(wanted("info,preload=off"), None);
        assert_eq!(wanted("off,preload=info"), Some(Level::Info));
    }
}
