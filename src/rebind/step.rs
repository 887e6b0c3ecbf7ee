//! Starts and ends steps on the layout in force.

use super::buffers::Buffers;
use super::engine::{Engine, refused};
use super::report::{Outcome, StepReport};
use super::review::Review;
use crate::driver::Stream;
use crate::error::{Error, Kind, Operation, Result};
use crate::vm::RemapEntry;
use std::mem;

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
            return Ok(self.record_again(StepReport::default()));
        }
        let review = self.scan(buffers);
        if self.scratch.suspects.is_empty() && self.needs_nothing(stream) {
            self.epoch = review.epoch;
            return Ok(self.started(stream, StepReport::default()));
        }
        let mut outcome = Outcome::Started;
        let report = self.counted(|engine| {
            engine.collect();
            if engine.examine(buffers, review)? {
                return engine.start(stream, buffers, review);
            }
            outcome = Outcome::RecordAgain;
            engine.lay_out(buffers, review)
        })?;
        Ok(if outcome == Outcome::Started { self.started(stream, report) } else { self.record_again(report) })
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
        let copies = self.layout.as_ref().is_none_or(|layout| layout.copies_in.count != 0);
        !copies && !self.changes_stream(stream) && self.retired.is_empty()
    }

    fn changes_stream(&self, stream: Stream) -> bool {
        self.last.as_ref().is_some_and(|mark| mark.stream() != stream)
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
        (Outcome::Started, StepReport { generation: self.generation, ..report })
    }

    /// Makes the layout in force serve the buffers: waits, remaps, copies in. Copying comes last, since it alone
    /// cannot be taken back.
    fn start(&mut self, stream: Stream, buffers: &impl Buffers, review: Review) -> Result<StepReport> {
        let entries = self.move_entries();
        let waited = self.wait_before(stream, !entries.is_empty())?;
        let remapped = self.remap(&entries)?;
        if let Err(e) = self.copy_in(stream, buffers) {
            return Err(self.undo(stream, e));
        }
        self.serve(buffers, review);
        let layout = self.layout.as_ref();
        Ok(StepReport {
            changed_slots: review.changed,
            remapped_slots: remapped,
            copied_slots: layout.map_or(0, |l| l.copies_in.count),
            copied_bytes: layout.map_or(0, |l| l.copies_in.bytes),
            waited,
            ..StepReport::default()
        })
    }

    /// What makes the windows hold this step's blocks.
    fn move_entries(&self) -> Vec<RemapEntry> {
        let Some(layout) = &self.layout else { return Vec::new() };
        let moves = self.scratch.moves.iter();
        moves.filter_map(|(i, block)| layout.entry(*i as usize, Some(block.clone()))).collect()
    }

    /// Waits for the last step: on the host where its windows are remapped, else on the device where this step runs
    /// on another stream.
    fn wait_before(&self, stream: Stream, remaps: bool) -> Result<bool> {
        let waited = match &self.layout {
            Some(layout) if remaps => self.wait_for_last(layout)?,
            _ => false,
        };
        if let Some(mark) = self.last.as_ref().filter(|_| !waited && self.changes_stream(stream)) {
            mark.wait_on(stream)?;
        }
        Ok(waited)
    }

    /// Remaps and says how many windows that changed.
    fn remap(&mut self, entries: &[RemapEntry]) -> Result<u64> {
        if entries.is_empty() {
            return Ok(0);
        }
        match self.device.remap(entries, &[]) {
            Ok(report) => Ok((entries.len() as u64).saturating_sub(report.skipped)),
            Err(e) => {
                self.unsure |= e.kind == Kind::RangeLost;
                let moved = e.entry.and_then(|at| self.scratch.moves.get(at as usize));
                Err(Error { entry: moved.map(|(i, _)| u64::from(*i)), ..e })
            }
        }
    }

    /// Points the copies at this step's buffers and enqueues those that go in.
    fn copy_in(&mut self, stream: Stream, buffers: &impl Buffers) -> Result<()> {
        let Self { layout: Some(layout), slots, scratch, device, .. } = self else { return Ok(()) };
        for &i in &scratch.suspects {
            layout.point(i as usize, &slots[i as usize], &buffers.get(i as usize));
        }
        if layout.copies_in.count == 0 {
            return Ok(());
        }
        let copied = device.shadow_copy(stream, &layout.copies_in.slices);
        copied.map(|_| ()).map_err(|e| layout.blame(e, |place| place.copy_in))
    }

    /// Notes that the layout serves these buffers.
    fn serve(&mut self, buffers: &impl Buffers, review: Review) {
        let Some(layout) = &mut self.layout else { return };
        for (i, block) in self.scratch.moves.drain(..) {
            layout.held[i as usize] = Some(block);
        }
        for &i in &self.scratch.suspects {
            self.served[i as usize] = buffers.get(i as usize);
        }
        (self.epoch, self.unsure) = (review.epoch, false);
    }

    /// Puts back what a failed start changed; gives the failure to report.
    fn undo(&mut self, stream: Stream, failure: Error) -> Error {
        let moves = mem::take(&mut self.scratch.moves);
        // A driver that copies slice by slice may have enqueued some: the shadows are in use.
        self.mark(stream);
        let Some(layout) = &mut self.layout else { return failure };
        layout.used = true;
        for &i in &self.scratch.suspects {
            layout.point(i as usize, &self.slots[i as usize], &self.served[i as usize]);
        }
        let back = |(i, _): &(u32, _)| layout.entry(*i as usize, layout.held[*i as usize].clone());
        let entries: Vec<RemapEntry> = moves.iter().filter_map(back).collect();
        match self.remap(&entries) {
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
        let report =
            if copies.0 == 0 { report } else { self.counted(|engine| engine.copy_out(stream, report))? };
        self.over(stream);
        Ok(StepReport { copied_slots: copies.0, copied_bytes: copies.1, ..report })
    }

    fn copy_out(&mut self, stream: Stream, report: StepReport) -> Result<StepReport> {
        let Some(layout) = &self.layout else { return Ok(report) };
        let copied = self.device.shadow_copy(stream, &layout.copies_out.slices);
        copied.map(|_| report).map_err(|e| layout.blame(e, |place| place.copy_out))
    }

    /// Ends the step without copying out.
    pub(super) fn abort(&mut self) -> Result<()> {
        let stream = self.in_progress()?;
        self.over(stream);
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
        self.mark(stream);
    }
}
