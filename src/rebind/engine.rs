//! The state of a binding, and what is done to it under its lock.

use super::binding::Options;
use super::buffers::Buffer;
use super::ids::Ids;
use super::layout::Layout;
use super::marks::Marks;
use super::plan::Area;
use super::planning::Planner;
use super::report::{BindingInfo, StepReport};
use super::shadow::Booking;
use super::slot::{Action, Slot};
use super::threshold::Threshold;
use crate::driver::Stream;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::ByteSize;
use crate::vm::{Allocation, BlockId, CallCounts, Device, PlaceEntry, calls};
use std::sync::Arc;

/// Everything that changes in a binding.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) device: Arc<Device>,
    pub(super) slots: Vec<Slot>,
    pub(super) options: Options,
    /// Where slots with a permanent address are.
    pub(super) permanent: Option<Arc<Allocation>>,
    /// As computed from the slots; the booking may lower it.
    pub(super) threshold: Threshold,
    /// What decides in the threshold's place, where the binding has one.
    pub(super) planner: Option<Planner>,
    /// The share of the device's budget, from the first layout on.
    pub(super) booking: Option<Booking>,
    /// The layout in force, from the first begin on.
    pub(super) layout: Option<Layout>,
    /// Which layout it is.
    pub(super) generation: u64,
    /// What the layout serves.
    pub(super) served: Vec<Buffer>,
    /// The caller's epoch when blocks were last asked for.
    pub(super) epoch: u64,
    /// The largest window that each slot needed so far: a slot that goes back and forth between two sizes is laid
    /// out anew once.
    pub(super) windows: Vec<Area>,
    /// True where windows do not hold what `served` says: every one is mapped anew in the next step.
    pub(super) unsure: bool,
    /// The stream of the step in progress.
    pub(super) step: Option<Stream>,
    /// What its memory waits for.
    pub(super) marks: Marks,
    pub(super) destroyed: bool,
    pub(super) tally: Tally,
    pub(super) scratch: Scratch,
}

/// What a binding has counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    total: CallCounts,
    /// The total at the first started step.
    setup: Option<CallCounts>,
    pub(super) record_agains: u64,
}

/// Kept between steps so that a step allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Slots to be looked at in this step.
    pub(super) suspects: Vec<u32>,
    /// Those of them that are copied, with the numbers of their allocations.
    pub(super) copied: Vec<(u32, u32)>,
    /// Those of them that are patched, and are somewhere else now.
    pub(super) patched: Vec<u32>,
    /// Windows that must hold another block, in order; once they do, what they held before.
    pub(super) moves: Vec<PlaceEntry>,
    /// The slots of those windows, and the blocks that they must hold.
    pub(super) moved: Vec<(u32, BlockId)>,
    pub(super) ids: Ids,
}

impl Engine {
    pub(super) fn new(device: Arc<Device>, slots: Vec<Slot>, options: Options, threshold: Threshold) -> Self {
        let count = slots.len();
        let windows = vec![Area { size: ByteSize::ZERO, alignment: device.granularity() }; count];
        Self {
            device,
            slots,
            options,
            permanent: None,
            threshold,
            planner: None,
            booking: None,
            layout: None,
            generation: 0,
            served: vec![Buffer::default(); count],
            epoch: 0,
            windows,
            unsure: false,
            step: None,
            marks: Marks::default(),
            destroyed: false,
            tally: Tally::default(),
            scratch: Scratch::default(),
        }
    }

    /// Runs `work` and counts its driver calls, those of a failure too; a report gets them and their times.
    pub(super) fn counted(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<StepReport>,
    ) -> Result<StepReport> {
        let (counts, times) = (calls::thread_counts(), calls::thread_times());
        let result = work(self);
        let made = calls::thread_counts().minus(counts);
        self.tally.total = self.tally.total.plus(made);
        let now = calls::thread_times();
        result.map(|report| StepReport {
            calls: made,
            wait_time: now.waited.saturating_sub(times.waited),
            driver_time: now.driver.saturating_sub(times.driver),
            ..report
        })
    }

    /// Notes that a step started.
    pub(super) fn note_start(&mut self) {
        self.tally.setup.get_or_insert(self.tally.total);
    }

    /// Unmaps what no step in flight uses.
    pub(super) fn drop_idle(&mut self) -> Result<u64> {
        self.marks.collect(&self.device);
        let entries = self.layout.as_ref().map(Layout::emptying).unwrap_or_default();
        if self.step.is_some() || entries.is_empty() || !self.marks.has_passed()? {
            return Ok(0);
        }
        let device = Arc::clone(&self.device);
        self.counted(|engine| {
            engine.unsure = true;
            device.remap(&entries, &[])?;
            if let Some(layout) = &mut engine.layout {
                layout.held.iter_mut().for_each(|held| *held = None);
                layout.used = false;
            }
            Ok(StepReport::default())
        })?;
        Ok(entries.len() as u64)
    }

    /// Ends the binding; with `force`, whatever recording the event says.
    pub(super) fn destroy(&mut self, force: bool) -> Result<()> {
        if self.destroyed {
            return Ok(());
        }
        if let Some(stream) = self.step {
            self.marks.over(&self.device, stream);
        }
        let in_use = self.layout.as_ref().is_some_and(Layout::is_in_use);
        if let Err(e) = self.marks.record(in_use) {
            if !force {
                return Err(e.during(Operation::Destroy));
            }
            log::warn!("a binding's memory waits for the device to be drained: {e}");
        }
        (self.destroyed, self.step, self.booking, self.planner) = (true, None, None, None);
        if let Some(layout) = self.layout.take() {
            self.marks.retire(&self.device, layout);
        }
        Ok(())
    }

    pub(super) fn info(&self) -> BindingInfo {
        let count = |action| self.layout.as_ref().map_or(0, |layout| layout.count(action));
        BindingInfo {
            generation: self.generation,
            slots: self.slots.len() as u64,
            baked: count(Action::BAKE),
            mapped: count(Action::MAP),
            copied: count(Action::COPY),
            patched: count(Action::PATCH),
            plan: self.planner.as_ref().map(Planner::info).unwrap_or_default(),
            threshold: self.booking.as_ref().map_or(self.threshold, Booking::threshold),
            shadow_bytes: self.booking.as_ref().map_or(ByteSize::ZERO, Booking::bytes),
            setup: self.tally.setup.unwrap_or(self.tally.total),
            total: self.tally.total,
            record_agains: self.tally.record_agains,
        }
    }
}

/// A failure of begin.
pub(super) const fn refused(kind: Kind, hint: &'static str) -> Error {
    Error::new(kind, Operation::Begin, hint)
}
