//! Access lists: in one form, so that they can be compared, and the calls that lead from one to another.

use super::calls::Calls;
use crate::driver::{Access, AccessMode, Capabilities, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

/// What devices may do, by device, without the devices that may do nothing; also the list of a call. Each
/// distinct list exists once and for ever (there are few), so that it is one word, copied and compared as such.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List(&'static &'static [Access]);

impl List {
    /// Nobody may do anything.
    pub(crate) const NOTHING: Self = Self(&(&[] as &[Access]));

    /// The list of these lines, in this order.
    pub(crate) fn of(lines: &[Access]) -> Self {
        static KNOWN: Mutex<Vec<List>> = Mutex::new(Vec::new());
        if lines.is_empty() {
            return Self::NOTHING;
        }
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = known.iter().find(|list| ***list == *lines) {
            return *list;
        }
        let lines: &'static [Access] = Box::leak(lines.into());
        let list = Self(Box::leak(Box::new(lines)));
        known.push(list);
        list
    }

    /// What is held where a call from one list to the other may have been made or not: equal to no caller's list, so
    /// that the next change names every device of either.
    pub(crate) fn unknown(self, other: Self) -> Self {
        let more = other.iter().filter(|a| !self.iter().any(|b| b.device == a.device));
        let lines = self.iter().chain(more).map(|a| Access { mode: AccessMode::NONE, ..*a });
        Self::of(&lines.collect::<Vec<_>>())
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0) || (self.0.is_empty() && other.0.is_empty())
    }
}

impl Eq for List {}

impl Deref for List {
    type Target = [Access];

    fn deref(&self) -> &[Access] {
        self.0
    }
}

/// What the capabilities say about set-access and aliasing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// A part of a reservation may be set.
    pub(crate) ranged: bool,
    /// One call may span several mappings.
    pub(crate) joined: bool,
    /// Single devices may be set.
    pub(crate) single: bool,
    /// A block may be mapped more than once.
    pub(crate) aliasing: bool,
    /// The device's own number.
    pub(crate) own: Ordinal,
}

impl Shape {
    pub(crate) fn of(calls: &Calls) -> Self {
        Self {
            ranged: calls.has(Capabilities::RANGE_ACCESS),
            joined: calls.has(Capabilities::JOINED_ACCESS),
            single: calls.has(Capabilities::DEVICE_ACCESS),
            aliasing: calls.has(Capabilities::ALIASING),
            own: calls.ordinal(),
        }
    }

    /// The list to give to the driver where it holds `from` and shall hold `to`; none where nothing is to be done.
    /// A device that leaves the list must be named, since the driver keeps what it is not told.
    pub(crate) fn change(self, from: List, to: List) -> Option<List> {
        if from == to {
            return None;
        }
        let gone = |a: &&Access| !to.iter().any(|b| b.device == a.device);
        if !self.single {
            // All devices have one state: a list without devices takes it from all.
            let nothing = Access { device: self.own, mode: AccessMode::NONE };
            return Some(if to.is_empty() { List::of(&[nothing]) } else { to });
        }
        if !from.iter().any(|a| gone(&a)) {
            return Some(to);
        }
        let leaving = from.iter().filter(gone).map(|a| Access { mode: AccessMode::NONE, ..*a });
        Some(List::of(&leaving.chain(to.iter().copied()).collect::<Vec<_>>()))
    }
}

/// A caller's list in its one form. An empty one is the own device, read and write.
pub(crate) fn normalize(calls: &Calls, operation: Operation, access: &[Access]) -> Result<List> {
    let own = Access { device: calls.ordinal(), mode: AccessMode::READ_WRITE };
    if access.is_empty() || access == [own] {
        return Ok(List::of(&[own]));
    }
    let devices = calls.driver().device_count();
    for (i, a) in access.iter().enumerate() {
        if !a.mode.is_known() {
            return Err(Error::new(Kind::InvalidArgument, operation, "an access mode that does not exist")
                .entry(i as u64));
        }
        if a.device.0 >= devices {
            return Err(Error::new(
                Kind::NoDevice,
                operation,
                "an access list names a device that does not exist",
            )
            .entry(i as u64));
        }
        if access[..i].iter().any(|b| b.device == a.device) {
            return Err(Error::new(Kind::InvalidArgument, operation, "an access list names a device twice")
                .entry(i as u64));
        }
    }
    let mut list: Vec<Access> = access.iter().copied().filter(|a| a.mode != AccessMode::NONE).collect();
    list.sort_unstable_by_key(|a| a.device);
    Ok(List::of(&list))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { ranged: true, joined: true, single: true, aliasing: true, own: Ordinal(0) };

    fn list(items: &[(u32, AccessMode)]) -> List {
        let line = |&(device, mode): &(u32, AccessMode)| Access { device: Ordinal(device), mode };
        List::of(&items.iter().map(line).collect::<Vec<_>>())
    }

    #[test]
    fn a_device_that_leaves_the_list_is_named() {
        let both = list(&[(0, AccessMode::READ_WRITE), (1, AccessMode::READ)]);
        let one = list(&[(0, AccessMode::READ_WRITE)]);
        let call = list(&[(1, AccessMode::NONE), (0, AccessMode::READ_WRITE)]);
        assert_eq!(SHAPE.change(both, one), Some(call));
        assert_eq!(SHAPE.change(one, both), Some(both));
        assert_eq!(SHAPE.change(List::NOTHING, both), Some(both));
    }

    #[test]
    fn equal_lists_need_no_call() {
        let one = list(&[(0, AccessMode::READ_WRITE)]);
        assert_eq!(SHAPE.change(one, list(&[(0, AccessMode::READ_WRITE)])), None);
        assert_eq!(SHAPE.change(List::NOTHING, list(&[])), None);
        assert_eq!(SHAPE.change(one, List::NOTHING), Some(list(&[(0, AccessMode::NONE)])));
    }

    #[test]
    fn without_single_devices_only_the_wanted_list_is_given() {
        let shape = Shape { single: false, ..SHAPE };
        let both = list(&[(0, AccessMode::READ_WRITE), (1, AccessMode::READ)]);
        let one = list(&[(0, AccessMode::READ_WRITE)]);
        assert_eq!(shape.change(both, one), Some(one));
        assert_eq!(shape.change(one, List::NOTHING), Some(list(&[(0, AccessMode::NONE)])));
    }
}
