//! Access lists: in one form, so that they can be compared, and the calls that lead from one to another.

use super::calls::Calls;
use crate::driver::{Access, AccessMode, Capabilities, Ordinal};
use crate::error::{Error, Kind, Operation, Result};
use std::sync::Arc;

/// What devices may do, by device, without the devices that may do nothing.
pub(crate) type List = Arc<[Access]>;

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
    pub(crate) fn change(self, from: Option<&List>, to: &List) -> Option<List> {
        let from = from.map_or(&[][..], |list| &list[..]);
        if from == &to[..] {
            return None;
        }
        let gone = |a: &&Access| !to.iter().any(|b| b.device == a.device);
        if !self.single {
            // All devices have one state: a list without devices takes it from all.
            let nothing = Access { device: self.own, mode: AccessMode::NONE };
            return Some(if to.is_empty() { Arc::new([nothing]) } else { Arc::clone(to) });
        }
        if !from.iter().any(|a| gone(&a)) {
            return Some(Arc::clone(to));
        }
        let leaving = from.iter().filter(gone).map(|a| Access { mode: AccessMode::NONE, ..*a });
        Some(leaving.chain(to.iter().copied()).collect())
    }
}

/// A caller's list in its one form. An empty one is the own device, read and write.
pub(crate) fn normalize(calls: &Calls, operation: Operation, access: &[Access]) -> Result<List> {
    let own = Access { device: calls.ordinal(), mode: AccessMode::READ_WRITE };
    if access.is_empty() || access == [own] {
        return Ok(Arc::new([own]));
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
    Ok(list.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { ranged: true, joined: true, single: true, aliasing: true, own: Ordinal(0) };

    fn list(items: &[(u32, AccessMode)]) -> List {
        items.iter().map(|&(device, mode)| Access { device: Ordinal(device), mode }).collect()
    }

    #[test]
    fn a_device_that_leaves_the_list_is_named() {
        let both = list(&[(0, AccessMode::READ_WRITE), (1, AccessMode::READ)]);
        let one = list(&[(0, AccessMode::READ_WRITE)]);
        let call = SHAPE.change(Some(&both), &one).expect("a call");
        assert_eq!(call, list(&[(1, AccessMode::NONE), (0, AccessMode::READ_WRITE)]));
        assert_eq!(SHAPE.change(Some(&one), &both).as_ref(), Some(&both));
        assert_eq!(SHAPE.change(None, &both).as_ref(), Some(&both));
    }

    #[test]
    fn equal_lists_need_no_call() {
        let one = list(&[(0, AccessMode::READ_WRITE)]);
        assert_eq!(SHAPE.change(Some(&one), &list(&[(0, AccessMode::READ_WRITE)])), None);
        assert_eq!(SHAPE.change(None, &list(&[])), None);
        let gone = SHAPE.change(Some(&one), &list(&[])).expect("a call");
        assert_eq!(gone, list(&[(0, AccessMode::NONE)]));
    }

    #[test]
    fn without_single_devices_only_the_wanted_list_is_given() {
        let shape = Shape { single: false, ..SHAPE };
        let both = list(&[(0, AccessMode::READ_WRITE), (1, AccessMode::READ)]);
        let one = list(&[(0, AccessMode::READ_WRITE)]);
        assert_eq!(shape.change(Some(&both), &one).as_ref(), Some(&one));
        assert_eq!(shape.change(Some(&one), &list(&[])), Some(list(&[(0, AccessMode::NONE)])));
    }
}
