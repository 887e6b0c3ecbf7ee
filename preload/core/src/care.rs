//! What `on` does with a call: the care of the quirk table, and joined set-access calls.

use crate::books::{Books, Cover, Mapping};
use crate::call::{Args, Call};
use crate::driver::quirks::Care;
use crate::joins::Joins;
use crate::memory::{self, Grant};
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
/// How often a set-access is tried.
const TRIES: u32 = 4;

struct State {
    books: Books,
    joins: Joins,
}

/// The books, and what is to be taken care of.
pub struct Careful {
    care: Care,
    // Never held across a call of the vendor's: its map and unmap may wait for work of another thread.
    state: Mutex<State>,
}

/// A set-access, as the program made it and as the vendor gets it.
struct Request {
    at: u64,
    size: u64,
    cover: Cover,
}

impl Careful {
    /// Nothing in the books yet.
    pub const fn new(care: Care) -> Self {
        Self { care, state: Mutex::new(State { books: Books::new(), joins: Joins::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
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

    fn set_access(&self, vendor: &mut dyn Vendor, args: Args) -> i32 {
        let Some(list) = memory::grants(args[2], args[3]) else { return vendor.call(Call::SetAccess, args) };
        let (at, size) = (args[0], args[1]);
        let Some((ahead, cover)) = self.begin_access(at, size, &list) else { return 0 };
        let request = Request { at, size, cover };
        if !ahead.is_empty() {
            let joint = [list.as_slice(), ahead.as_slice()].concat();
            if self.grant(vendor, &request, &joint, None) == 0 {
                self.granted(&request, &list, &ahead);
                return 0;
            }
            self.state().joins.forget(at);
        }
        let status = self.grant(vendor, &request, &list, Some(args));
        if status == 0 {
            self.granted(&request, &list, &[]);
        }
        status
    }

    /// What else to grant at once, and what is mapped there. None where all of it was granted ahead.
    fn begin_access(&self, at: u64, size: u64, list: &[Grant]) -> Option<(Vec<Grant>, Cover)> {
        let mut state = self.state();
        let State { books, joins } = &mut *state;
        let cover = books.cover(at, size);
        let Some(map) = books.maps.get_mut(&at).filter(|map| map.size == size) else {
            return Some((Vec::new(), cover));
        };
        if map.granted.is_empty() {
            return Some((joins.first(at, list), cover));
        }
        joins.next(at, list);
        if map.claims(list) {
            map.asked(list);
            return None;
        }
        Some((Vec::new(), cover))
    }

    fn granted(&self, request: &Request, list: &[Grant], ahead: &[Grant]) {
        let mut state = self.state();
        for (start, _) in &request.cover.whole {
            let Some(map) = state.books.maps.get_mut(start) else { continue };
            map.grant(list);
            map.asked(list);
            map.grant(ahead);
            map.ahead.extend(ahead.iter().map(|grant| grant.location));
        }
    }

    /// One call; where that fails, as often and in such pieces as the vendor is known to need. `args` are the
    /// program's own, where the list is.
    fn grant(&self, vendor: &mut dyn Vendor, request: &Request, list: &[Grant], args: Option<Args>) -> i32 {
        let (at, size) = (request.at, request.size);
        let ordered = self.ordered(request, list);
        if let (Some(args), true, false) = (args, ordered == list, self.care.has(Care::ACCESS_RETRY)) {
            return vendor.call(Call::SetAccess, args);
        }
        let waited = vendor.error_waits();
        let status = self.attempt(vendor, at, size, &ordered);
        let worked = status == 0
            || self.grant_each(vendor, request, &ordered)
            || self.grant_whole(vendor, request, &ordered);
        if worked && !waited && vendor.error_waits() {
            // An error of a try that was made good is not for the program.
            vendor.take_error();
        }
        if worked { 0 } else { status }
    }

    fn attempt(&self, vendor: &mut dyn Vendor, at: u64, size: u64, list: &[Grant]) -> i32 {
        let tries = if self.care.has(Care::ACCESS_RETRY) { TRIES } else { 1 };
        let args = [at, size, list.as_ptr() as u64, list.len() as u64, 0, 0];
        let mut status = vendor.call(Call::SetAccess, args);
        for done in 1..tries {
            if status == 0 {
                break;
            }
            vendor.rest(done);
            status = vendor.call(Call::SetAccess, args);
        }
        status
    }

    fn grant_each(&self, vendor: &mut dyn Vendor, request: &Request, list: &[Grant]) -> bool {
        let cover = &request.cover;
        self.care.has(Care::ACCESS_RETRY)
            && cover.full
            && cover.whole.len() > 1
            && cover.whole.iter().all(|&(at, size)| self.attempt(vendor, at, size, list) == 0)
    }

    /// Grants all that is mapped from the start of the reserved range on, where that gives nobody anything new.
    fn grant_whole(&self, vendor: &mut dyn Vendor, request: &Request, list: &[Grant]) -> bool {
        if !self.care.has(Care::ACCESS_WHOLE) || !request.cover.full {
            return false;
        }
        let found = self.whole_run(request, list);
        found.is_some_and(|(at, size)| self.attempt(vendor, at, size, list) == 0)
    }

    fn whole_run(&self, request: &Request, list: &[Grant]) -> Option<(u64, u64)> {
        let state = self.state();
        let (start, _) = state.books.range_of(request.at, request.size)?;
        let end = state.books.run_end(start);
        if start == request.at || end < request.at.checked_add(request.size)? {
            return None;
        }
        let ours = |at: &u64| request.cover.whole.iter().any(|(start, _)| start == at);
        let mut others = state.books.maps.range(start..end).filter(|(at, _)| !ours(at));
        let same = others.all(|(_, map)| list.iter().all(|line| map.flags_of(line.location) == line.flags));
        same.then_some((start, end - start))
    }

    /// Peers first and the blocks' own device last, named again where a peer alone is: a peer that is granted later
    /// would spoil what the own device was granted before.
    fn ordered(&self, request: &Request, list: &[Grant]) -> Vec<Grant> {
        let mut ordered = list.to_vec();
        if !self.care.has(Care::LOCAL_LAST) {
            return ordered;
        }
        let state = self.state();
        let mut maps = request.cover.whole.iter().filter_map(|(at, _)| state.books.maps.get(at));
        let Some((first, owner)) = maps.next().and_then(|map| Some((map, map.owner?))) else {
            return ordered;
        };
        let flags = first.flags_of(owner);
        if !maps.all(|map| map.owner == Some(owner) && map.flags_of(owner) == flags) {
            return ordered;
        }
        let named = list.iter().any(|line| line.location == owner);
        if !named && flags != 0 && list.iter().any(|line| line.flags != 0) {
            ordered.push(Grant { location: owner, flags });
        }
        ordered.sort_by_key(|line| line.location == owner);
        ordered
    }
}
