//! What was counted, in words: a line at the end, and JSON for whoever asks.

use crate::call::{TABLE, Vendor};
use crate::note::{self, Level};
use crate::{totals, trace};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

/// Every call with its figures, as one JSON object.
pub fn json(vendor: &Vendor) -> String {
    let mut text = format!("{{\"driver\":\"{}\"", vendor.name);
    for line in TABLE.iter().take(crate::call::Call::GraphLaunch as usize) {
        let total = totals::of(line.call);
        let [calls, errors, spared, added, ns] =
            [&total.calls, &total.errors, &total.spared, &total.added, &total.ns].map(|n| n.load(Relaxed));
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            ",\"{}\":{{\"calls\":{calls},\"errors\":{errors},\"spared\":{spared},\"added\":{added},\"ns\":{ns}}}",
            line.word
        );
    }
    text.push('}');
    text
}

/// The process ends.
pub(crate) fn at_exit(vendor: &'static Vendor) {
    let mut text = String::new();
    for line in &TABLE {
        let total = totals::of(line.call);
        let calls = total.calls.load(Relaxed);
        if calls != 0 && !line.call.is_launch() {
            let us = total.ns.load(Relaxed) / 1000;
            let _ = write!(text, " {} {calls} ({us} us)", line.word);
        }
    }
    if !text.is_empty() {
        note::say(vendor, Level::Info, &format!("at exit:{text}"));
        trace::comment(&format!("totals {}", json(vendor)));
    }
}
