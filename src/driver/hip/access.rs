//! Access to mappings. HIP's set-access fails in several ways; each has its answer here, and in the end either all
//! of it holds or what was granted before.

use super::alone::alone;
use super::api::{SUCCESS, Status, number};
use super::context::Core;
use super::device::Device;
use super::holds::{Held, runs};
use crate::driver::books::Books;
use crate::driver::library::intern;
use crate::driver::quirks::Care;
use crate::driver::structs::{AccessDesc, Location};
use crate::driver::{Access, AccessMode, Ordinal, unsupported};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::DeviceRange;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a set-access is tried, and the rest between tries.
const TRIES: u32 = 4;
const REST: Duration = Duration::from_micros(100);

/// Neighbouring mappings that are granted the same in one call.
struct Group {
    range: DeviceRange,
    /// The device of all their blocks.
    owner: Ordinal,
    held: Vec<Held>,
    list: Vec<AccessDesc>,
}

impl Core {
    pub(super) fn set_access(&self, books: &Books, range: DeviceRange, access: &[Access]) -> Result<()> {
        let here = |e: Error| e.at(range.start(), range.size());
        self.check_list(access).map_err(here)?;
        books.begin_access(range)?;
        let result = self.groups(range, access).and_then(|groups| self.grant_all(&groups));
        books.end_access(range);
        result.map_err(here)
    }

    fn check_list(&self, access: &[Access]) -> Result<()> {
        for (at, line) in access.iter().enumerate() {
            self.device(line.device, Operation::SetAccess).map_err(|e| e.entry(at as u64))?;
            if !line.mode.is_known() {
                let error = Error::new(Kind::InvalidArgument, Operation::SetAccess, "not an access mode");
                return Err(error.entry(at as u64));
            }
        }
        if access.is_empty() {
            return Err(Error::new(Kind::InvalidArgument, Operation::SetAccess, "the access list is empty"));
        }
        Ok(())
    }

    /// What is to be granted, in runs without a hole (HIP takes none) of blocks of one device.
    fn groups(&self, range: DeviceRange, access: &[Access]) -> Result<Vec<Group>> {
        let (mut groups, mut rest) = (Vec::new(), self.holds.within(range).into_iter().peekable());
        while let Some(first) = rest.next() {
            let own = AccessDesc { location: Location::device(number(first.owner)), flags: 0 };
            let (owner, flags) = (first.owner, first.flags_of(&own));
            let mut held = vec![first];
            while let Some(next) = rest.next_if(|next| {
                held.last().is_some_and(|last| last.range.end() == next.range.start())
                    && (next.owner, next.flags_of(&own)) == (owner, flags)
            }) {
                held.push(next);
            }
            let list = self.list(self.device(owner, Operation::SetAccess)?, flags, access)?;
            // One run by the way it was gathered.
            if let (false, [range]) = (list.is_empty(), runs(&held).as_slice()) {
                groups.push(Group { range: *range, owner, held, list });
            }
        }
        Ok(groups)
    }

    /// The list as HIP takes it: the host, peers, and the block's own device last. A device that cannot reach the
    /// block's has no access to take away.
    fn list(&self, owner: &Device, granted: i32, access: &[Access]) -> Result<Vec<AccessDesc>> {
        let mut list = Vec::with_capacity(access.len() + 2);
        for (at, line) in access.iter().enumerate() {
            if !self.reaches(line.device, owner.ordinal) {
                if line.mode == AccessMode::NONE {
                    continue;
                }
                let (from, to) = (line.device.0, owner.ordinal.0);
                let hint = format!("device {from} cannot reach device {to}: take it off the access list");
                return Err(unsupported(Operation::SetAccess, intern(&hint)).entry(at as u64));
            }
            let flags = i32::try_from(line.mode.0).unwrap_or(0);
            list.push(AccessDesc { location: Location::device(number(line.device)), flags });
        }
        let own = Location::device(number(owner.ordinal));
        let named = list.iter().find(|line| line.location == own).copied();
        if owner.care.has(Care::LOCAL_LAST) {
            // A peer that is granted later would corrupt what the own device was granted before.
            if named.is_none() && granted != 0 && list.iter().any(|line| line.flags != 0) {
                list.push(AccessDesc { location: own, flags: granted });
            }
            list.sort_by_key(|line| line.location == own);
        }
        if let Some(named) = named.filter(|_| self.may_ask_host(owner)) {
            list.insert(0, AccessDesc { location: Location::HOST, flags: named.flags });
        }
        Ok(list)
    }

    fn may_ask_host(&self, owner: &Device) -> bool {
        owner.large_bar && owner.care.has(Care::HOST_ACCESS) && !owner.host_refused.load(Ordering::Relaxed)
    }

    pub(super) fn reaches(&self, device: Ordinal, owner: Ordinal) -> bool {
        let mut can = 0;
        device == owner
            || (self.api.can_access_peer(&mut can, number(device), number(owner)) == SUCCESS && can == 1)
    }

    fn grant_all(&self, groups: &[Group]) -> Result<()> {
        for (at, group) in groups.iter().enumerate() {
            if let Err(status) = self.grant(group) {
                groups[..=at].iter().for_each(|done| self.restore(done));
                return Err(self.refusal(group, status));
            }
        }
        Ok(())
    }

    /// One call; then, where HIP needs it, again; mapping by mapping; and with all that is mapped.
    fn grant(&self, group: &Group) -> std::result::Result<(), Status> {
        let owner = group.owner;
        let status = match self.attempt(owner, group.range, &group.list) {
            Ok(()) => return Ok(()),
            Err(status) => status,
        };
        let care = self.care_of(owner);
        if care.has(Care::ACCESS_RETRY) && group.held.len() > 1 {
            let each = group.held.iter().try_for_each(|held| self.attempt(owner, held.range, &group.list));
            if each.is_ok() {
                return Ok(());
            }
        }
        if care.has(Care::ACCESS_WHOLE) && self.attempt_whole(group) { Ok(()) } else { Err(status) }
    }

    /// A few tries; where the host was named and it does not work, a few without the host.
    fn attempt(
        &self,
        owner: Ordinal,
        range: DeviceRange,
        list: &[AccessDesc],
    ) -> std::result::Result<(), Status> {
        let status = match self.call(owner, range, list) {
            Ok(()) => return Ok(()),
            Err(status) => status,
        };
        let [AccessDesc { location: Location::HOST, .. }, others @ ..] = list else { return Err(status) };
        self.call(owner, range, others)?;
        if let Ok(device) = self.device(owner, Operation::SetAccess)
            && !device.host_refused.swap(true, Ordering::Relaxed)
        {
            log::warn!(
                "HIP refuses the host access to memory of device {}: {}",
                owner.0,
                super::NOT_FOR_HOST
            );
        }
        Ok(())
    }

    fn call(
        &self,
        owner: Ordinal,
        range: DeviceRange,
        list: &[AccessDesc],
    ) -> std::result::Result<(), Status> {
        let care = self.care_of(owner);
        let tries = if care.has(Care::ACCESS_RETRY) { TRIES } else { 1 };
        let (address, bytes, count) = (range.start().get(), range.size().get(), list.len() as u64);
        let Ok(_entered) = self.enter_device(owner, Operation::SetAccess) else { return Err(201) };
        let mut status = SUCCESS;
        for done in 1..=tries {
            status = {
                let _alone = alone(care);
                self.api.set_access(address, bytes, list.as_ptr(), count)
            };
            if status == SUCCESS {
                self.holds.update(range, |held| {
                    held.grant(list);
                    held.proven = true;
                });
                return Ok(());
            }
            if done < tries {
                std::thread::sleep(REST * done);
            }
        }
        Err(status)
    }

    /// Grants all that is mapped from the reservation's start on, where that gives nobody else anything new.
    fn attempt_whole(&self, group: &Group) -> bool {
        let owner = group.owner;
        let Some(room) = self.holds.room_of(group.range) else { return false };
        let all = self.holds.within(room.range);
        let Some(whole) = runs(&all).into_iter().find(|run| run.start() == room.range.start()) else {
            return false;
        };
        if !whole.contains_range(group.range) || whole == group.range {
            return false;
        }
        let others =
            all.iter().filter(|h| whole.contains_range(h.range) && !group.range.contains_range(h.range));
        let mut same = others.map(|held| {
            held.owner == owner
                && (!held.proven || group.list.iter().all(|line| held.flags_of(line) == line.flags))
        });
        same.all(|same| same) && self.attempt(owner, whole, &group.list).is_ok()
    }

    /// Gives back what was granted before a call that failed half way.
    fn restore(&self, group: &Group) {
        for before in &group.held {
            let now = self.holds.get(before.range);
            if now.as_ref().is_none_or(|now| now.granted == before.granted) {
                continue;
            }
            let old = |line: &AccessDesc| AccessDesc { flags: before.flags_of(line), ..*line };
            let list: Vec<_> = group.list.iter().map(old).collect();
            if let Err(status) = self.attempt(group.owner, before.range, &list) {
                self.log_status("restore access", status);
            }
        }
    }

    /// The failure of a group. Where a map may have failed silently, it has: HIP is told to forget it, and the
    /// mapping is one in our books only, until it is unmapped there.
    fn refusal(&self, group: &Group, status: Status) -> Error {
        let owner = group.owner;
        let error = self.api.error(status, Operation::SetAccess);
        if !self.care_of(owner).has(Care::MAP_UNTRUSTED) {
            return error;
        }
        let mut gone = false;
        for held in self.holds.within(group.range).iter().filter(|held| !held.proven) {
            let Ok(_entered) = self.enter_device(owner, Operation::Unmap) else { continue };
            let _alone = alone(self.care_of(owner));
            if held.ghost || self.unmap_held(held).is_ok() {
                self.holds.update(held.range, |held| held.ghost = true);
                gone = true;
            }
        }
        let hint = "HIP said that the map had worked, and it had not: unmap the range, and map it again";
        if gone { Error { kind: Kind::DriverError, hint, ..error } } else { error }
    }

    /// True where the host may have been granted access to memory of `device`; false where it was refused or never
    /// asked for.
    pub(super) fn host_reaches(&self, device: &Device) -> bool {
        device.virtual_memory && self.may_ask_host(device)
    }
}
