//! Starts and ends steps on the layout in force.

use super::buffers::Buffers;
use super::engine::{Engine, Scratch, refused};
use super::layout::Layout;
use super::report::{Outcome, StepReport};
use super::review::Review;
use crate::driver::{Capabilities, Stream};
use crate::error::{Error, Kind, Operation, Result};

impl Engine {
    /// Begins a step, or lays out anew.
    pub(super) fn begin(
        &mut self,
        stream: Stream,
        buffers: &impl Buffers,
        generation: u64,
    ) -> Result<(Outcome, StepReport)> {
        self.check_begin(buffers.len(), generation)?;
        if generation != self.generation {
            let report = self.leave_for(stream)?;
            self.forget_patches();
            return Ok(self.record_again(report));
        }
        self.check_graph()?;
        let replans = self.plan_is_due();
        let review = self.scan(buffers);
        if !replans && self.scratch.suspects.is_empty() && self.needs_nothing(stream) {
            self.epoch = review.epoch;
            self.scratch.patched.clear();
            self.list_patches();
            return Ok(self.started(stream, StepReport::default()));
        }
        let mut outcome = Outcome::Started;
        let report = self.counted(|engine| {
            engine.marks.leave_others(stream)?;
            let fits = engine.examine(buffers).map(|fits| fits && !replans);
            let report = match fits {
                Ok(true) => {
                    // Only a step may enqueue the events of earlier layouts.
                    engine.marks.collect(&engine.device);
                    engine.start(stream, buffers, review)
                }
                Ok(false) => {
                    outcome = Outcome::RecordAgain;
                    engine.lay_out(buffers, review)
                }
                Err(e) => Err(e),
            };
            // Blocks are held by the windows that show them, not by what was looked at.
            engine.scratch.moves.clear();
            report
        })?;
        Ok(if outcome == Outcome::Started { self.started(stream, report) } else { self.record_again(report) })
    }

    /// The part of a begin on `stream` that remains where nothing is done there.
    fn leave_for(&mut self, stream: Stream) -> Result<StepReport> {
        if !self.marks.has_others(stream) {
            return Ok(StepReport::default());
        }
        self.counted(|engine| engine.marks.leave_others(stream).map(|()| StepReport::default()))
    }

    fn check_begin(&self, count: usize, generation: u64) -> Result<()> {
        if self.step.is_some() {
            return Err(refused(Kind::WrongState, "a step is in progress: end or abort it first"));
        }
        if count != self.slots.len() {
            return Err(refused(Kind::CountMismatch, "one buffer is needed for each slot"));
        }
        if generation > self.generation {
            return Err(refused(Kind::InvalidArgument, "this generation was never given"));
        }
        Ok(())
    }

    /// True where a step with the same buffers needs no driver call.
    fn needs_nothing(&self, stream: Stream) -> bool {
        let copies_nothing = self.layout.as_ref().is_some_and(Layout::copies_nothing);
        copies_nothing && !self.marks.is_elsewhere(stream) && !self.marks.has_retired()
    }

    fn record_again(&mut self, report: StepReport) -> (Outcome, StepReport) {
        self.tally.record_agains += 1;
        (Outcome::RecordAgain, StepReport { generation: self.generation, ..report })
    }

    fn started(&mut self, stream: Stream, report: StepReport) -> (Outcome, StepReport) {
        self.step = Some(stream);
        self.note_start();
        if let Some(layout) = &mut self.layout {
            layout.used = true;
        }
        let Some(planner) = &mut self.planner else {
            return (Outcome::Started, StepReport { generation: self.generation, ..report });
        };
        planner.begun();
        let (patched_commands, replan_advised) = (planner.patches().len() as u64, planner.advises());
        (
            Outcome::Started,
            StepReport { generation: self.generation, patched_commands, replan_advised, ..report },
        )
    }

    /// Makes the layout in force serve the buffers.
    fn start(&mut self, stream: Stream, buffers: &impl Buffers, review: Review) -> Result<StepReport> {
        let begun = self.point(buffers).and_then(|()| self.carry_out(stream));
        if begun.is_err() {
            self.point_back();
        }
        let report = begun?;
        self.serve(buffers, review);
        Ok(StepReport { changed_slots: review.changed, ..report })
    }

    /// Points the copies of suspects at their buffers, and looks at what they would write. What is baked stays where it is.
    fn point(&mut self, buffers: &impl Buffers) -> Result<()> {
        let Scratch { copied, ids, .. } = &mut self.scratch;
        let copied = copied.iter().map(|&(i, known)| (i as usize, known));
        self.layout.as_mut().map_or(Ok(()), |layout| layout.point_copies(copied, |i| buffers.get(i), ids))
    }

    /// Points them at the buffers that are served.
    fn point_back(&mut self) {
        let Some(layout) = &mut self.layout else { return };
        let copied = self.scratch.copied.iter().map(|&(i, _)| i as usize);
        copied.for_each(|i| layout.point(i, &self.served[i]));
    }

    /// Waits, remaps, copies in. Copying comes last, since it alone cannot be taken back.
    fn carry_out(&mut self, stream: Stream) -> Result<StepReport> {
        // Routes refuse it themselves, which spares a question.
        let enqueues = self.layout.as_ref().is_none_or(|layout| layout.copies_in.is_unguarded());
        if enqueues || !self.scratch.moves.is_empty() {
            self.refuse_capture(stream)?;
        }
        let waited = self.wait_before(stream, !self.scratch.moves.is_empty())?;
        let remapped_slots = self.remap()?;
        match self.copy_in(stream) {
            Ok(()) => {}
            // Asked before where anything was moved, so nothing is to be undone.
            Err(e) if e.kind == Kind::StreamCapturing && remapped_slots == 0 => return Err(CAPTURING),
            Err(e) => return Err(self.undo(stream, e)),
        }
        let (copied_slots, copied_bytes) =
            self.layout.as_ref().map_or((0, 0), |l| (l.copies_in.count, l.copies_in.bytes));
        Ok(StepReport { remapped_slots, copied_slots, copied_bytes, waited, ..StepReport::default() })
    }

    /// What is enqueued here belongs to this step; in a caller's graph it would run again with old addresses.
    fn refuse_capture(&self, stream: Stream) -> Result<()> {
        if self.device.is_capturing(stream)? { Err(CAPTURING) } else { Ok(()) }
    }

    /// Waits for the last step: on the host where its windows are remapped, else on the device where this step runs
    /// on another stream.
    fn wait_before(&mut self, stream: Stream, remaps: bool) -> Result<bool> {
        let in_use = self.layout.as_ref().is_some_and(|layout| layout.used);
        // Without aliasing, blocks may have to leave an earlier layout's windows.
        let leaves = self.marks.has_retired() && !self.device.capabilities().has(Capabilities::ALIASING);
        let waited = remaps && (in_use || leaves) && self.marks.wait()?;
        if !waited {
            self.marks.wait_on(stream)?;
        } else if leaves {
            self.marks.collect(&self.device);
        }
        Ok(waited)
    }

    /// Makes the moves and says how many windows that changed.
    fn remap(&mut self) -> Result<u64> {
        let Scratch { moves, moved, .. } = &mut self.scratch;
        let windows = moved.first().and_then(|&(i, _)| self.layout.as_ref()?.window(i as usize));
        let Some((reservation, _)) = windows else { return Ok(0) };
        match self.device.remap_in(reservation, moves, &[]) {
            Ok(report) => Ok((moved.len() as u64).saturating_sub(report.skipped)),
            Err(e) => {
                self.unsure |= e.kind == Kind::RangeLost;
                let slot = e.entry.and_then(|at| moved.get(at as usize));
                Err(Error { entry: slot.map(|(i, _)| u64::from(*i)), ..e })
            }
        }
    }

    fn copy_in(&mut self, stream: Stream) -> Result<()> {
        self.layout.as_mut().map_or(Ok(()), |layout| layout.copy_in(stream))
    }

    /// Notes that the layout serves these buffers.
    fn serve(&mut self, buffers: &impl Buffers, review: Review) {
        let Some(layout) = &mut self.layout else { return };
        if let Some(planner) = &mut self.planner {
            // Not what stayed, and had been unmapped meanwhile.
            let moves = self.scratch.moved.iter().map(|(i, _)| *i as usize);
            planner.note_moves(moves.filter(|&i| buffers.get(i).id != self.served[i].id));
        }
        for (i, block) in self.scratch.moved.drain(..) {
            layout.held[i as usize] = Some(block);
        }
        for &i in &self.scratch.suspects {
            self.served[i as usize] = buffers.get(i as usize);
        }
        layout.accept_copies();
        self.scratch.ids.accept();
        (self.epoch, self.unsure) = (review.epoch, false);
        self.list_patches();
    }

    /// Lists what the caller must patch for the step that begins.
    fn list_patches(&mut self) {
        let (Some(planner), Some(layout)) = (&mut self.planner, &mut self.layout) else { return };
        let mut patched = planner.start_patches();
        for i in self.scratch.patched.drain(..) {
            layout.places[i as usize].address = self.served[i as usize].address;
            patched.push(i);
        }
        patched.sort_unstable();
        patched.dedup();
        patched.iter().for_each(|&i| planner.patch(i, layout.places[i as usize].address));
        planner.listed(patched);
    }

    /// Maps what a failed start remapped as it was; gives the failure to report.
    fn undo(&mut self, stream: Stream, failure: Error) -> Error {
        // A driver that copies slice by slice may have enqueued some: the shadows are in use.
        self.marks.over(&self.device, stream);
        let Some(layout) = &mut self.layout else { return failure };
        layout.used = true;
        match self.remap() {
            Ok(_) => failure,
            Err(e) => {
                self.unsure = true;
                log::error!("the mappings before a failed begin could not be put back: {e}");
                Error { kind: Kind::RangeLost, ..failure }
            }
        }
    }

    /// Ends the step and copies out.
    pub(super) fn end(&mut self) -> Result<StepReport> {
        let stream = self.in_progress()?;
        let copies = self.layout.as_ref().map_or((0, 0), |l| (l.copies_out.count, l.copies_out.bytes));
        let report = StepReport { generation: self.generation, ..StepReport::default() };
        let launch = self.layout.as_ref().is_some_and(|layout| layout.copies_out.needs_launch());
        let report = if launch { self.counted(|engine| engine.copy_out(stream, report))? } else { report };
        self.over(stream);
        if let Some(planner) = &mut self.planner {
            planner.ended(&self.served);
        }
        Ok(StepReport { copied_slots: copies.0, copied_bytes: copies.1, ..report })
    }

    fn copy_out(&mut self, stream: Stream, report: StepReport) -> Result<StepReport> {
        let Some(layout) = &self.layout else { return Ok(report) };
        if layout.copies_out.is_unguarded() {
            self.refuse_capture(stream).map_err(|e| e.during(Operation::End))?;
        }
        layout.copy_out(stream).map(|()| report)
    }

    /// Ends the step without copying out.
    pub(super) fn abort(&mut self) -> Result<()> {
        let stream = self.in_progress()?;
        self.over(stream);
        if let Some(planner) = &mut self.planner {
            planner.aborted();
        }
        Ok(())
    }

    fn in_progress(&self) -> Result<Stream> {
        self.step.ok_or(Error::new(
            Kind::WrongState,
            Operation::End,
            "no step is in progress: begin one first",
        ))
    }

    fn over(&mut self, stream: Stream) {
        self.step = None;
        self.marks.over(&self.device, stream);
    }
}

const CAPTURING: Error = refused(
    Kind::StreamCapturing,
    "the stream is being captured: begin before the capture, and end after it, on the stream that launches",
);
