//! What `on` does with a set-access: joined with those that are expected, in the order that the driver needs, and as often and in
//! such pieces as it is known to need.

use crate::books::Cover;
use crate::call::{Args, Call};
use crate::care::{Careful, State, Vendor};
use crate::driver::quirks::Care;
use crate::memory::{self, Grant};

/// How often a set-access is tried.
const TRIES: u32 = 4;

/// A set-access, as the program made it and as the vendor gets it.
struct Request {
    at: u64,
    size: u64,
    cover: Cover,
}

impl Careful {
    pub(crate) fn set_access(&self, vendor: &mut dyn Vendor, args: Args) -> i32 {
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
        } else {
            // A sequence with a call that fails is not to be relied on.
            self.state().joins.forget(at);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Location;

    /// Refuses lists of more than so many; counts.
    struct Strict {
        most: u64,
        lists: Vec<u64>,
    }

    impl Vendor for Strict {
        fn call(&mut self, call: Call, args: Args) -> i32 {
            if call == Call::Retain {
                memory::set_word(args[0], 7);
            }
            if call != Call::SetAccess {
                return 0;
            }
            self.lists.push(args[3]);
            if args[3] > self.most { 801 } else { 0 }
        }

        fn rest(&mut self, _: u32) {}
    }

    fn play(most: u64, refuse_peer: bool) -> Vec<u64> {
        let careful = Careful::new(Care(0));
        let mut vendor = Strict { most, lists: Vec::new() };
        for at in (0..6_u64).map(|i| i * 4096) {
            careful.answer(&mut vendor, Call::Map, [at, 4096, 0, 7, 0, 0]);
            for id in 0..3 {
                let one = [Grant { location: Location { kind: 1, id }, flags: 3 }];
                if refuse_peer && id == 2 {
                    vendor.most = 0;
                }
                careful.answer(&mut vendor, Call::SetAccess, [at, 4096, one.as_ptr() as u64, 1, 0, 0]);
                vendor.most = most;
            }
        }
        vendor.lists
    }

    #[test]
    fn calls_are_joined_from_the_third_mapping_on() {
        assert_eq!(play(9, false), [1, 1, 1, 1, 1, 1, 3, 3, 3, 3]);
    }

    #[test]
    fn a_joint_call_that_fails_is_made_as_asked_and_learned_anew() {
        assert_eq!(play(1, false), [1, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1][..20]);
    }

    #[test]
    fn a_sequence_with_a_failure_is_never_relied_on() {
        assert!(play(9, true).iter().all(|&count| count == 1));
    }
}
