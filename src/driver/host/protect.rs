//! mapped → accessible.

use super::access::Change;
use super::costs::Costs;
use super::memory::{Memory, at, check_range};
use super::space::{Mapping, Reserved, fail};
use super::sys::{Errno, Prot};
use crate::driver::{Access, Capabilities};
use crate::error::{Kind, Operation, Result};
use crate::units::{ByteSize, DeviceRange};

impl Memory {
    /// Sets access, and says how long that takes in simulated time.
    pub(super) fn set_access(&self, range: DeviceRange, access: &[Access]) -> Result<f64> {
        self.needs_virtual_memory(Operation::SetAccess)?;
        check_range(range, Operation::SetAccess)?;
        let separate = self.has(Capabilities::DEVICE_ACCESS);
        let change = Change::new(access, self.shape.devices, separate)
            .map_err(|e| e.at(range.start(), range.size()))?;
        let mut books = self.write();
        let home = books.space.reserved(range, Operation::SetAccess)?.within(range).next().map(|m| m.home);
        let matters = self.shape.costs.as_ref().is_some_and(Costs::tells_first_and_last);
        let first = matters && !home.is_some_and(|home| books.space.is_reached(home));
        let reserved = books.space.reserved(range, Operation::SetAccess)?;
        self.check_reach(reserved, range)?;
        protect(reserved, range, change).map_err(|e| at(e, Operation::SetAccess, range))?;
        reserved.set_rights(range, |rights| change.applied(rights));
        let Some(costs) = &self.shape.costs else { return Ok(0.0) };
        let mappings = reserved.within(range);
        Ok(costs.set_access_us(mappings.map(|m| (m.range.size(), change.names_beyond(m.home))), first))
    }

    /// Checks that the capabilities allow a set-access of `range`.
    fn check_reach(&self, reserved: &Reserved, range: DeviceRange) -> Result<()> {
        let whole = range == reserved.window.range();
        if !whole && !self.has(Capabilities::RANGE_ACCESS) {
            let hint = "access is set for the whole reservation only";
            return Err(fail(Kind::Unsupported, Operation::SetAccess, hint, range));
        }
        let count = reserved.covered(range, !whole)?;
        let joined = self.has(Capabilities::JOINED_ACCESS) || !self.has(Capabilities::RANGE_ACCESS);
        if count > 1 && !joined {
            let hint = "access is set for one mapping at a time";
            return Err(fail(Kind::Unsupported, Operation::SetAccess, hint, range));
        }
        Ok(())
    }
}

/// Makes the pages of each mapping follow its new rights, run by run; all or none.
fn protect(reserved: &Reserved, range: DeviceRange, change: Change) -> std::result::Result<(), Errno> {
    let done = protect_runs(reserved, range, |m| (m.rights.prot(), change.applied(m.rights).prot()));
    if done.is_err() {
        // What was changed is set back; where that fails too, the pages allow less or more than the books say,
        // and the next set-access or unmap of them mends it.
        let _ = protect_runs(reserved, range, |m| (change.applied(m.rights).prot(), m.rights.prot()));
    }
    done
}

/// One system call for each run of neighbours that go to the same protection; those that have it are left out.
fn protect_runs(
    reserved: &Reserved,
    range: DeviceRange,
    from_to: impl Fn(&Mapping) -> (Prot, Prot),
) -> std::result::Result<(), Errno> {
    let mut run: Option<(DeviceRange, Prot)> = None;
    for mapping in reserved.within(range) {
        let (from, to) = from_to(mapping);
        if from == to {
            continue;
        }
        run = match run {
            Some((before, prot)) if prot == to && before.end() == mapping.range.start() => {
                let size = ByteSize(before.size().0 + mapping.range.size().0);
                DeviceRange::new(before.start(), size).map(|joined| (joined, to))
            }
            Some((before, prot)) => {
                reserved.window.protect(before, prot)?;
                Some((mapping.range, to))
            }
            None => Some((mapping.range, to)),
        };
    }
    run.map_or(Ok(()), |(last, prot)| reserved.window.protect(last, prot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostConfig;
    use crate::driver::host::costs::Point;
    use crate::driver::host::shape::Shape;
    use crate::driver::{AccessMode, CreateOptions, Ordinal};
    use crate::units::Granularity;

    /// Simulated µs are reckoned, not measured.
    #[test]
    fn the_first_mapping_that_a_peer_reaches_and_the_last_one_cost_more() {
        let once = |us| vec![Point { at: 0, us }];
        let (first_peer_set_access, last_peer_unmap) = (once(1000.0), once(500.0));
        let costs = Costs { first_peer_set_access, last_peer_unmap, ..Costs::default() };
        let config = HostConfig { devices: 2, ..HostConfig::default() };
        let memory = Memory::new(Shape::new(&config, Some(costs)).expect("a shape"), 0).expect("memory");
        let size = ByteSize::mib(2);
        let granule = Granularity::new(size.0).expect("a granule");
        let place = || memory.reserve(size, granule).expect("a range");
        // Two reservations: it is the device's memory that counts.
        let ranges = [place(), place()];
        for range in ranges {
            let block = memory.create(Ordinal(0), size, CreateOptions::default()).expect("a block");
            memory.map(range, block).expect("mapped");
        }
        let line = |device| Access { device: Ordinal(device), mode: AccessMode::READ_WRITE };
        let set = |i: usize, list: &[Access]| memory.set_access(ranges[i], list).expect("accessible");
        let both = [line(0), line(1)];
        let us = [set(0, &[line(0)]), set(0, &both), set(1, &both), set(1, &both)];
        assert_eq!(us.map(f64::round), [0.0, 1000.0, 0.0, 0.0]);
        let us = ranges.map(|range| memory.unmap(range).expect("unmapped"));
        assert_eq!(us.map(f64::round), [0.0, 500.0]);
    }
}
