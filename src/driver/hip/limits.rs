//! File descriptors: from 7.14 on each block holds one, and HIP reports their end as out of memory.
#![allow(unsafe_code, reason = "getrlimit is C")]

use crate::driver::library::intern;

/// HIP needs a few for itself to make one more block.
const SPARE: u64 = 8;

/// The process's limit, and how many it has open; none where that cannot be told.
fn counts() -> Option<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the output is valid for the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return None;
    }
    match std::fs::read_dir("/proc/self/fd") {
        // One of them is the folder that is being read.
        Ok(entries) => Some((limit.rlim_cur, (entries.count() as u64).saturating_sub(1))),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            Some((limit.rlim_cur, limit.rlim_cur))
        }
        Err(_) => None,
    }
}

/// What to do about it, where the process has (nearly) no descriptor left.
pub(super) fn exhausted(blocks: u64) -> Option<&'static str> {
    let (limit, open) = counts()?;
    (open + SPARE >= limit).then(|| {
        intern(&format!(
            "{blocks} blocks hold a file descriptor each, and the process may have {limit}: raise the limit (ulimit \
             -n) or use larger blocks"
        ))
    })
}

/// True where nine tenths are used up.
pub(super) fn scarce() -> bool {
    counts().is_some_and(|(limit, open)| open >= limit - limit / 10)
}
