//! What `on` does with a call: the care of the quirk table, and joined set-access calls.

use crate::books::{Books, Mapping};
use crate::call::{Args, Call};
use crate::driver::quirks::Care;
use crate::joins::Joins;
use crate::memory;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The vendor, as this file sees it.
pub trait Vendor {
    /// Calls one of its functions.
    fn call(&mut self, call: Call, args: Args) -> i32;
    /// True where its last error of this thread waits to be asked for.
    fn error_waits(&mut self) -> bool {
        false
    }
    /// Takes that error away.
    fn take_error(&mut self) {}
    /// A short rest before another try, longer each time.
    fn rest(&mut self, tries: u32);
}

/// What both vendors answer where an argument is wrong.
const INVALID: i32 = 1;

pub(crate) struct State {
    pub(crate) books: Books,
    pub(crate) joins: Joins,
}

/// The books, and what is to be taken care of.
pub struct Careful {
    pub(crate) care: Care,
    // Never held across a call of the vendor's: its map and unmap may wait for work of another thread.
    state: Mutex<State>,
}

impl Careful {
    /// Nothing in the books yet.
    pub const fn new(care: Care) -> Self {
        Self { care, state: Mutex::new(State { books: Books::new(), joins: Joins::new() }) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a call.
    pub fn answer(&self, vendor: &mut dyn Vendor, call: Call, args: Args) -> i32 {
        match call {
            Call::Create | Call::Import | Call::Retain => self.hold(vendor, call, args),
            Call::Release => self.release(vendor, args),
            Call::Reserve => {
                let status = vendor.call(call, args);
                if let (0, Some(at)) = (status, memory::word(args[0])) {
                    self.state().books.ranges.insert(at, args[1]);
                }
                status
            }
            Call::Free => self.free(vendor, args),
            Call::Map => {
                let status = vendor.call(call, args);
                if status == 0 {
                    self.state().books.map(args[0], args[1], args[3]);
                }
                status
            }
            Call::Unmap => self.unmap(vendor, args),
            Call::SetAccess => self.set_access(vendor, args),
            Call::GetAccess => self.get_access(vendor, args),
            _ => vendor.call(call, args),
        }
    }

    fn hold(&self, vendor: &mut dyn Vendor, call: Call, args: Args) -> i32 {
        let status = vendor.call(call, args);
        if let (0, Some(handle)) = (status, memory::word(args[0])) {
            let owner = if call == Call::Create { memory::owner(args[2]) } else { None };
            self.state().books.hold(handle, owner);
        }
        status
    }

    fn release(&self, vendor: &mut dyn Vendor, args: Args) -> i32 {
        let (known, tell) = {
            let mut state = self.state();
            let known = state.books.blocks.get(&args[0]).copied();
            (known, state.books.release(args[0], self.care.has(Care::RELEASE_LATE)))
        };
        if !tell {
            return 0;
        }
        let status = vendor.call(Call::Release, args);
        if let (true, Some(known)) = (status != 0, known) {
            self.state().books.blocks.insert(args[0], known);
        }
        status
    }

    /// The range leaves the books before the vendor can give it to another thread.
    fn free(&self, vendor: &mut dyn Vendor, args: Args) -> i32 {
        let known = self.state().books.ranges.remove(&args[0]);
        if known.is_none() && self.care.has(Care::KNOWN_ONLY) {
            return INVALID;
        }
        let status = vendor.call(Call::Free, args);
        if let (true, Some(size)) = (status != 0, known) {
            self.state().books.ranges.insert(args[0], size);
        }
        status
    }

    fn unmap(&self, vendor: &mut dyn Vendor, args: Args) -> i32 {
        let (at, size) = (args[0], args[1]);
        let (cover, known) = {
            let state = self.state();
            (state.books.cover(at, size), state.books.range_of(at, size).is_some())
        };
        if !known && self.care.has(Care::KNOWN_ONLY) {
            return INVALID;
        }
        let once = self.care.has(Care::UNMAP_ONCE) && !cover.partial;
        if once && known && cover.whole.is_empty() {
            return 0;
        }
        let joint = self.care.has(Care::UNMAP_EACH) && cover.whole.len() > 1 && !cover.partial;
        let holes = once && !cover.full && !cover.whole.is_empty();
        let pieces = if joint || holes { cover.whole } else { vec![(at, size)] };
        // The first failure ends it: what is left stays mapped, and the program may call again.
        pieces
            .iter()
            .map(|&piece| self.unmap_piece(vendor, piece, args))
            .find(|&status| status != 0)
            .unwrap_or(0)
    }

    fn unmap_piece(&self, vendor: &mut dyn Vendor, (at, size): (u64, u64), args: Args) -> i32 {
        let taken: Vec<(u64, Mapping)> = {
            let mut state = self.state();
            let whole = state.books.cover(at, size).whole;
            whole.iter().filter_map(|(start, _)| Some((*start, state.books.maps.remove(start)?))).collect()
        };
        let [_, _, rest @ ..] = args;
        let [c, d, e, f] = rest;
        let status = vendor.call(Call::Unmap, [at, size, c, d, e, f]);
        if status != 0 {
            self.state().books.maps.extend(taken);
            return status;
        }
        for (_, map) in taken {
            let kept = self.state().books.unmapped(&map);
            if let Some(handle) = kept {
                // What the program gave back while it was mapped. It has been told that this worked.
                vendor.call(Call::Release, [handle, 0, 0, 0, 0, 0]);
            }
        }
        0
    }

    /// Access that was given ahead is not there for the program before it asked.
    fn get_access(&self, vendor: &mut dyn Vendor, args: Args) -> i32 {
        let status = vendor.call(Call::GetAccess, args);
        if let (0, Some(location)) = (status, memory::location(args[1]))
            && self.state().books.map_of(args[2]).is_some_and(|(_, map)| map.ahead.contains(&location))
        {
            memory::set_word(args[0], 0);
        }
        status
    }
}
