//! A range of slots and the blocks behind them: what is measured for one block size and number of blocks.

use super::anchor::Anchor;
use super::calls::{Calls, Counts};
use super::grant::Grant;
use super::row::{Rounds, Row, Samples};
use gvmm::driver::{Capabilities, NativeBlock};
use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::units::{ByteSize, DeviceRange};

/// Plain device memory, which has no blocks.
pub(super) fn plain(calls: &mut Calls, rounds: Rounds<'_>) -> Result<Vec<Row>> {
    let size = calls.granularity(ByteSize(1))?.size();
    let mut samples = Samples::new(size, 1, None, false);
    let made = [Counts { allocate: 1, ..Counts::default() }, Counts { deallocate: 1, ..Counts::default() }];
    rounds.repeat(|counts| {
        let (address, allocated) = calls.allocate(size)?;
        let deallocated = calls.deallocate(address)?;
        if counts {
            samples.add("allocate", made[0], allocated);
            samples.add("deallocate", made[1], deallocated);
        }
        Ok(())
    })?;
    Ok(samples.rows())
}

/// Creates and releases all blocks, again and again.
pub(super) fn blocks(calls: &mut Calls, size: ByteSize, count: u64, rounds: Rounds<'_>) -> Result<Vec<Row>> {
    let mut samples = Samples::new(size, count, None, false);
    let (create, release) =
        (Counts { create: 1, ..Counts::default() }, Counts { release: 1, ..Counts::default() });
    let range_calls = [Counts { reserve: 1, ..Counts::default() }, Counts { free: 1, ..Counts::default() }];
    rounds.repeat(|counts| {
        let (mut cell, reserved) = Cell::reserve(calls, size, count)?;
        let created = cell.create(count)?;
        let released = cell.release()?;
        let freed = cell.free()?;
        if counts {
            samples.add("reserve", range_calls[0], reserved);
            created.into_iter().for_each(|us| samples.add("create", create, us));
            released.into_iter().for_each(|us| samples.add("release", release, us));
            samples.add("free", range_calls[1], freed);
        }
        Ok(())
    })?;
    Ok(samples.rows())
}

/// One block more than slots, so that what is remapped moves. What it has is given back when it goes.
pub(super) struct Cell<'a> {
    calls: &'a mut Calls,
    range: Option<DeviceRange>,
    size: ByteSize,
    slots: Vec<DeviceRange>,
    /// Of slot i, block i; the spare one is last.
    blocks: Vec<NativeBlock>,
    mapped: Vec<bool>,
    anchor: Option<Anchor>,
    can: Capabilities,
}

impl<'a> Cell<'a> {
    fn reserve(calls: &'a mut Calls, size: ByteSize, count: u64) -> Result<(Self, f64)> {
        let too_large =
            || Error::new(Kind::InvalidSize, Operation::Reserve, "no range is that large").of(size);
        let whole = ByteSize(size.get().checked_mul(count).ok_or_else(too_large)?);
        let can = calls.driver.device_info(calls.device)?.capabilities;
        let granularity = calls.granularity(size)?;
        let (range, us) = calls.reserve(whole, granularity)?;
        let slot = |i| range.slice(ByteSize(i * size.get()), size);
        let slots: Vec<DeviceRange> = (0..count).filter_map(slot).collect();
        let mapped = vec![false; slots.len()];
        Ok((
            Self { calls, range: Some(range), size, slots, blocks: Vec::new(), mapped, anchor: None, can },
            us,
        ))
    }

    /// With `count` blocks and a spare one.
    pub(super) fn new(calls: &'a mut Calls, size: ByteSize, count: u64) -> Result<Self> {
        let (mut cell, _) = Self::reserve(calls, size, count)?;
        cell.create(count + 1)?;
        Ok(cell)
    }

    fn create(&mut self, count: u64) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        for _ in 0..count {
            let (block, us) = self.calls.create(self.size)?;
            self.blocks.push(block);
            times.push(us);
        }
        Ok(times)
    }

    fn release(&mut self) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        while let Some(block) = self.blocks.last() {
            times.push(self.calls.release(*block)?);
            self.blocks.pop();
        }
        Ok(times)
    }

    fn free(&mut self) -> Result<f64> {
        let us = self.range.map_or(Ok(0.0), |range| self.calls.free(range))?;
        self.range = None;
        Ok(us)
    }

    fn unmap(&mut self, slot: usize) -> Result<f64> {
        let us = self.calls.unmap(self.slots[slot])?;
        self.mapped[slot] = false;
        Ok(us)
    }

    fn map(&mut self, slot: usize) -> Result<f64> {
        let us = self.calls.map(self.slots[slot], self.blocks[slot])?;
        self.mapped[slot] = true;
        Ok(us)
    }

    fn unmap_all(&mut self) -> Result<Vec<f64>> {
        (0..self.slots.len())
            .filter(|slot| self.mapped[*slot])
            .collect::<Vec<_>>()
            .into_iter()
            .map(|slot| self.unmap(slot))
            .collect()
    }

    /// Every slot gets another block than before.
    fn map_all(&mut self) -> Result<Vec<f64>> {
        self.blocks.rotate_right(1);
        (0..self.slots.len()).map(|slot| self.map(slot)).collect()
    }

    /// Access to all slots, in as few calls as the driver allows.
    fn give_all(&mut self, grant: &Grant) -> Result<f64> {
        let whole = self.range.filter(|_| {
            self.can.has(Capabilities::JOINED_ACCESS) || !self.can.has(Capabilities::RANGE_ACCESS)
        });
        let ranges = whole.map_or_else(|| self.slots.clone(), |range| vec![range]);
        ranges.into_iter().try_fold(0.0, |us, range| Ok(us + grant.give(self.calls, range)?))
    }

    /// Access to one slot; where the driver cannot, to all.
    fn give_one(&mut self, grant: &Grant, slot: usize) -> Result<f64> {
        let range =
            if self.can.has(Capabilities::RANGE_ACCESS) { Some(self.slots[slot]) } else { self.range };
        range.map_or(Ok(0.0), |range| grant.give(self.calls, range))
    }

    /// The same while the same devices have access to a block elsewhere.
    pub(super) fn measure_beside(&mut self, grant: &Grant, rounds: Rounds<'_>) -> Result<Vec<Row>> {
        Anchor::put(&mut self.anchor, self.calls, grant)?;
        let rows = self.measure(grant, rounds)?;
        Anchor::end(&mut self.anchor, self.calls)?;
        Ok(rows)
    }

    /// All that concerns one way to give access.
    pub(super) fn measure(&mut self, grant: &Grant, rounds: Rounds<'_>) -> Result<Vec<Row>> {
        let beside = self.anchor.is_some();
        let mut samples = Samples::new(self.size, self.slots.len() as u64, Some(grant.clone()), beside);
        rounds.repeat(|counts| self.remap_all(grant, counts.then_some(&mut samples)))?;
        if self.can.has(Capabilities::RANGE_ACCESS) && grant.lists.len() == 1 {
            rounds.repeat(|counts| self.access_each(grant, counts.then_some(&mut samples)))?;
        }
        rounds.repeat(|counts| self.remap_one(grant, counts.then_some(&mut samples)))?;
        self.unmap_all()?;
        Ok(samples.rows())
    }

    fn remap_all(&mut self, grant: &Grant, samples: Option<&mut Samples>) -> Result<()> {
        let before = self.calls.made;
        let unmapped = self.unmap_all()?;
        let mapped = self.map_all()?;
        let between = self.calls.made;
        let given = self.give_all(grant)?;
        let Some(samples) = samples else { return Ok(()) };
        let (unmap, map) = (Counts { unmap: 1, ..Counts::default() }, Counts { map: 1, ..Counts::default() });
        let all = unmapped.iter().chain(&mapped).sum::<f64>() + given;
        unmapped.into_iter().for_each(|us| samples.add("unmap", unmap, us));
        mapped.into_iter().for_each(|us| samples.add("map", map, us));
        samples.add("set_access", self.calls.made.since(&between), given);
        samples.add("remap_all", self.calls.made.since(&before), all);
        Ok(())
    }

    fn access_each(&mut self, grant: &Grant, mut samples: Option<&mut Samples>) -> Result<()> {
        self.unmap_all()?;
        self.map_all()?;
        for slot in 0..self.slots.len() {
            let before = self.calls.made;
            let us = self.give_one(grant, slot)?;
            if let Some(samples) = &mut samples {
                samples.add("set_access_each", self.calls.made.since(&before), us);
            }
        }
        Ok(())
    }

    fn remap_one(&mut self, grant: &Grant, samples: Option<&mut Samples>) -> Result<()> {
        let (slot, before) = (self.slots.len() / 2, self.calls.made);
        let spare = self.blocks.len() - 1;
        self.blocks.swap(slot, spare);
        let us = self.unmap(slot)? + self.map(slot)? + self.give_one(grant, slot)?;
        if let Some(samples) = samples {
            samples.add("remap_one", self.calls.made.since(&before), us);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        Anchor::end(&mut self.anchor, self.calls)?;
        self.unmap_all()?;
        self.release()?;
        self.free()?;
        Ok(())
    }
}

impl Drop for Cell<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            log::warn!("something was not given back: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::grant::grants;
    use crate::bench::quiet::Watch;
    use gvmm::config::HostConfig;
    use gvmm::driver::host::HostDriver;
    use gvmm::driver::testing::{Call, Fault, Trace};
    use gvmm::driver::{Driver, Ordinal};
    use std::sync::Arc;
    use std::time::Duration;

    fn host() -> Arc<dyn Driver> {
        Arc::new(HostDriver::new(HostConfig { devices: 3, ..HostConfig::default() }, None).expect("a host"))
    }

    fn sweep(calls: &mut Calls) -> Result<Vec<Row>> {
        let watch = Watch::new(false);
        let rounds = Rounds { most: 2, limit: Duration::from_secs(60), watch: &watch };
        let mut rows = blocks(calls, ByteSize::mib(2), 4, rounds)?;
        let grants = grants(Ordinal(0), &[Ordinal(1), Ordinal(2)]);
        let mut cell = Cell::new(calls, ByteSize::mib(2), 4)?;
        for grant in &grants {
            rows.extend(cell.measure(grant, rounds)?);
            rows.extend(cell.measure_beside(grant, rounds)?);
        }
        Ok(rows)
    }

    #[test]
    fn what_is_counted_is_what_the_driver_sees_and_nothing_is_left() {
        let trace = Arc::new(Trace::new(host()));
        let mut calls = Calls::new(trace.clone(), Ordinal(0));
        let rows = sweep(&mut calls).expect("measured");
        let (made, seen) = (calls.made, trace.counts());
        let ours =
            [made.reserve, made.free, made.create, made.release, made.map, made.unmap, made.set_access];
        let theirs = [
            Call::RESERVE,
            Call::FREE,
            Call::CREATE,
            Call::RELEASE,
            Call::MAP,
            Call::UNMAP,
            Call::SET_ACCESS,
        ];
        assert_eq!(ours, theirs.map(|call| seen.of(call)));
        assert!(made.set_access_naming_peers > 0 && made.set_access_naming_peers < made.set_access);
        assert_eq!(trace.live(), gvmm::driver::testing::Live::default());
        let samples =
            |what| rows.iter().filter(|row| row.what == what).map(|row| row.us.samples).collect::<Vec<_>>();
        assert_eq!(
            (samples("create"), samples("unmap"), samples("remap_one")),
            (vec![8], vec![8; 8], vec![2; 8])
        );
    }

    #[test]
    fn a_call_that_fails_leaves_nothing_behind() {
        for nth in (1..400).step_by(7) {
            let trace = Arc::new(Trace::new(host()));
            let fault = Arc::new(Fault::new(trace.clone()));
            fault.fail(None, nth, 1, Error::new(Kind::OutOfDeviceMemory, Operation::Create, "for the test"));
            let failed = sweep(&mut Calls::new(fault, Ordinal(0)));
            assert_eq!(failed.expect_err("it was told to fail").kind, Kind::OutOfDeviceMemory, "{nth}");
            assert_eq!(trace.live(), gvmm::driver::testing::Live::default(), "{nth}");
        }
    }
}
