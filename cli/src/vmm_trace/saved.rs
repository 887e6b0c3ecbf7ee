//! What a binding would not have had to do: it makes blocks and ranges once and keeps them.

use super::line::Line;
use serde::Serialize;
use std::collections::HashMap;

/// The call that undoes another, whose size is given again when it comes back.
const UNDONE: [(&str, &str); 3] = [("create", "release"), ("reserve", "free"), ("map", "unmap")];

/// Calls that repeat what had been there: each undoing of a size that was later made again, and the making; and the
/// set-access calls of mappings made again.
#[derive(Debug, Default, Serialize)]
pub(super) struct Saved {
    /// How many.
    calls: u64,
    /// How long they took, in microseconds.
    us: f64,
    /// Set-access calls beyond the first of a mapping, which name it exactly: one call can name all devices.
    joinable_set_access: u64,
    /// How long those took, in microseconds; part of them may be in `us` too.
    joinable_us: f64,
    #[serde(skip)]
    books: Books,
}

#[derive(Debug, Default)]
struct Books {
    /// By the place of the pair and the size: the nanoseconds of each undoing that waits to be made again.
    undone: HashMap<(usize, u64), Vec<u64>>,
    /// Sizes of blocks by handle.
    blocks: HashMap<u64, u64>,
    /// Mappings by address: size, made again, set-access calls so far.
    maps: HashMap<u64, (u64, bool, u64)>,
}

impl Saved {
    pub(super) fn add(&mut self, line: &Line<'_>) {
        if line.status != 0 {
            return;
        }
        for (at, (make, undo)) in UNDONE.into_iter().enumerate() {
            if line.call == make {
                let again = self.made(at, line);
                self.remember(line, again);
            } else if line.call == undo {
                let bytes =
                    if undo == "release" { self.books.blocks.remove(&line.handle) } else { Some(line.bytes) };
                if let Some(bytes) = bytes {
                    self.books.undone.entry((at, bytes)).or_default().push(line.took_ns);
                }
                if undo == "unmap" {
                    self.books.maps.remove(&line.address);
                }
            }
        }
        if line.call == "set_access" {
            self.access(line);
        }
    }

    fn count(&mut self, ns: u64) {
        self.calls += 1;
        self.us += ns as f64 / 1e3;
    }

    /// True where something of that size had been undone.
    fn made(&mut self, at: usize, line: &Line<'_>) -> bool {
        let Some(undone) = self.books.undone.get_mut(&(at, line.bytes)).and_then(Vec::pop) else {
            return false;
        };
        self.count(undone);
        self.count(line.took_ns);
        true
    }

    fn remember(&mut self, line: &Line<'_>, again: bool) {
        match line.call {
            "create" => drop(self.books.blocks.insert(line.handle, line.bytes)),
            "map" => drop(self.books.maps.insert(line.address, (line.bytes, again, 0))),
            _ => {}
        }
    }

    fn access(&mut self, line: &Line<'_>) {
        let Some((bytes, again, calls)) = self.books.maps.get_mut(&line.address) else { return };
        if *bytes != line.bytes {
            return;
        }
        *calls += 1;
        let (again, later) = (*again, *calls > 1);
        if again {
            self.count(line.took_ns);
        }
        if later {
            self.joinable_set_access += 1;
            self.joinable_us += line.took_ns as f64 / 1e3;
        }
    }

    pub(super) fn text(&self) -> String {
        format!(
            "a binding, which keeps blocks and ranges, would have spared at most {} calls ({:.0} µs); {} set-access calls \
             ({:.0} µs) name a mapping that an earlier one named",
            self.calls, self.us, self.joinable_set_access, self.joinable_us
        )
    }
}
