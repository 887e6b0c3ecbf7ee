//! Counts and times of calls, for whoever asks.

use crate::call::{CALLS, Call};
use std::sync::atomic::{AtomicU64, Ordering};

/// Of one call.
#[derive(Debug, Default)]
pub struct Total {
    /// How often the program called.
    pub calls: AtomicU64,
    /// How often it was answered with an error.
    pub errors: AtomicU64,
    /// How often it was answered without the vendor.
    pub spared: AtomicU64,
    /// How often the vendor was called beyond that: again, mapping by mapping.
    pub added: AtomicU64,
    /// Nanoseconds until the answer.
    pub ns: AtomicU64,
}

impl Total {
    const fn new() -> Self {
        Self {
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            spared: AtomicU64::new(0),
            added: AtomicU64::new(0),
            ns: AtomicU64::new(0),
        }
    }
}

static TOTALS: [Total; CALLS] = [const { Total::new() }; CALLS];

/// The figures of one call.
pub fn of(call: Call) -> &'static Total {
    &TOTALS[call as usize]
}

/// One call was answered; `vendor_calls` is how often the vendor was called for it.
pub fn add(call: Call, status: i32, vendor_calls: u64, ns: u64) {
    let total = of(call);
    total.calls.fetch_add(1, Ordering::Relaxed);
    total.ns.fetch_add(ns, Ordering::Relaxed);
    if status != 0 {
        total.errors.fetch_add(1, Ordering::Relaxed);
    }
    match vendor_calls {
        0 => total.spared.fetch_add(1, Ordering::Relaxed),
        more => total.added.fetch_add(more - 1, Ordering::Relaxed),
    };
}
