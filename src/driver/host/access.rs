//! What each device may do in a mapping, as bits.

use super::sys::Prot;
use crate::driver::{Access, AccessMode, Ordinal};
use crate::error::{Error, Kind, Operation, Result};

/// The most devices that one driver can have: one bit each.
pub(super) const MAX_DEVICES: u32 = 64;

/// Which devices may read and which may write. Who may write may read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Rights {
    read: u64,
    write: u64,
}

impl Rights {
    /// Reading and writing for one device.
    pub(super) const fn all_for(device: Ordinal) -> Self {
        Self { read: bit(device), write: bit(device) }
    }

    /// Reading and writing for all of `devices` devices.
    pub(super) const fn everyone(devices: u32) -> Self {
        Self { read: bits(devices), write: bits(devices) }
    }

    pub(super) const fn may_read(self, device: Ordinal) -> bool {
        self.read & bit(device) != 0
    }

    pub(super) const fn may_write(self, device: Ordinal) -> bool {
        self.write & bit(device) != 0
    }

    /// How many devices other than `device` may do something.
    pub(super) const fn beyond(self, device: Ordinal) -> u32 {
        (self.read & !bit(device)).count_ones()
    }

    /// What the host may do: what any device may.
    pub(super) const fn prot(self) -> Prot {
        match self {
            Self { write: 0, read: 0 } => Prot::None,
            Self { write: 0, .. } => Prot::Read,
            _ => Prot::ReadWrite,
        }
    }
}

const fn bit(device: Ordinal) -> u64 {
    if device.0 < MAX_DEVICES { 1 << device.0 } else { 0 }
}

/// The bits of all of `devices` devices.
const fn bits(devices: u32) -> u64 {
    if devices < MAX_DEVICES { (1 << devices) - 1 } else { u64::MAX }
}

/// An access list as bits: what becomes of whose access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// The devices in the list.
    named: u64,
    /// Those whose access changes.
    changed: u64,
    given: Rights,
}

impl Change {
    /// Reads a list, of which the last line for a device counts. Where access is not `separate` for each device,
    /// the most that any line gives is given to all.
    pub(super) fn new(access: &[Access], devices: u32, separate: bool) -> Result<Self> {
        if access.is_empty() {
            return Err(refused(Kind::InvalidArgument, "the access list is empty"));
        }
        let mut change = Self { named: 0, changed: 0, given: Rights::default() };
        for (index, line) in access.iter().enumerate() {
            if line.device.0 >= devices {
                return Err(refused(Kind::NoDevice, "the access list names no device").entry(index as u64));
            }
            if !line.mode.is_known() {
                let hint = "the mode is none of 0, 1 (read) and 3 (read-write)";
                return Err(refused(Kind::InvalidArgument, hint).entry(index as u64));
            }
            change.set(bit(line.device), line.mode);
        }
        Ok(if separate { change } else { change.for_all(devices) })
    }

    fn set(&mut self, device: u64, mode: AccessMode) {
        let flag = |on: bool| if on { device } else { 0 };
        self.named |= device;
        self.changed |= device;
        self.given.read = self.given.read & !device | flag(mode != AccessMode::NONE);
        self.given.write = self.given.write & !device | flag(mode == AccessMode::READ_WRITE);
    }

    fn for_all(self, devices: u32) -> Self {
        let spread = |some: u64| if some != 0 { bits(devices) } else { 0 };
        let given = Rights { read: spread(self.given.read), write: spread(self.given.write) };
        Self { changed: bits(devices), given, ..self }
    }

    /// What a mapping's rights become.
    pub(super) const fn applied(self, rights: Rights) -> Rights {
        Rights {
            read: rights.read & !self.changed | self.given.read,
            write: rights.write & !self.changed | self.given.write,
        }
    }

    /// How many devices other than `device` the list names.
    pub(super) const fn names_beyond(self, device: Ordinal) -> u32 {
        (self.named & !bit(device)).count_ones()
    }
}

const fn refused(kind: Kind, hint: &'static str) -> Error {
    Error::new(kind, Operation::SetAccess, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn line(device: u32, mode: AccessMode) -> Access {
        Access { device: Ordinal(device), mode }
    }

    #[test]
    fn devices_that_are_not_listed_keep_what_they_have() {
        let give = |list: &[Access], to: Rights| Change::new(list, 3, true).map(|c| c.applied(to));
        let first = give(&[line(0, AccessMode::READ_WRITE)], Rights::default()).expect("a good list");
        let both = give(&[line(2, AccessMode::READ)], first).expect("a good list");
        assert!(both.may_write(Ordinal(0)) && both.may_read(Ordinal(2)));
        assert!(!both.may_write(Ordinal(2)) && !both.may_read(Ordinal(1)));
        assert_eq!(both.prot(), Prot::ReadWrite);
        let less = give(&[line(0, AccessMode::NONE)], both).expect("a good list");
        assert_eq!(less.prot(), Prot::Read);
        assert_eq!((less.beyond(Ordinal(0)), less.beyond(Ordinal(2))), (1, 0));
    }

    #[test]
    fn bad_lists_are_refused_with_the_line_to_blame() {
        let bad = |list: &[Access]| Change::new(list, 2, true).map_err(|e| (e.kind, e.entry));
        assert_eq!(bad(&[]), Err((Kind::InvalidArgument, None)));
        let good = line(0, AccessMode::READ);
        assert_eq!(bad(&[good, line(2, AccessMode::READ)]), Err((Kind::NoDevice, Some(1))));
        assert_eq!(bad(&[good, line(1, AccessMode(2))]), Err((Kind::InvalidArgument, Some(1))));
    }

    #[test]
    fn without_separate_access_one_line_is_for_all() {
        let all = Change::new(&[line(1, AccessMode::READ)], 2, false).expect("a good list");
        let rights = all.applied(Rights::default());
        assert!(rights.may_read(Ordinal(0)) && !rights.may_write(Ordinal(1)));
    }
}
