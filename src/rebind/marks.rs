//! What a binding's memory waits for. All events of a binding are recorded here and nowhere else.
//!
//! A step that ends enqueues no event; its mark is recorded by whoever must wait for the step later:
//!
//! - a begin that remaps waits on the host, one that runs on another stream waits there;
//! - a begin on another stream records what refers to the last one, which the caller may then destroy;
//! - a begin that starts a step records what earlier layouts wait for (laying out anew enqueues nothing);
//! - dropping what is idle asks whether the last step has passed;
//! - destroying records everything, since the streams may go then.

use super::layout::Layout;
use crate::driver::{Capabilities, Stream};
use crate::error::Result;
use crate::vm::{Device, Mark};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The marks of one binding.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Behind the last step that was begun and is over.
    last: Option<Arc<Mark>>,
    /// What remains of earlier layouts.
    retired: Vec<Retired>,
}

/// An earlier layout whose memory waits for its last step.
#[derive(Debug)]
struct Retired {
    /// Dead once the memory is gone.
    token: Weak<()>,
    mark: Arc<Mark>,
}

impl Marks {
    /// A step on `stream` is over: makes `last` a mark behind everything there. One that nobody has recorded yet will
    /// do: recorded later, it lies behind this step too.
    pub(super) fn over(&mut self, device: &Arc<Device>, stream: Stream) {
        let fits = |mark: &Arc<Mark>| mark.stream() == stream && !mark.is_recorded();
        if !self.last.as_ref().is_some_and(fits) {
            self.last = Some(device.mark(stream));
        }
    }

    /// True where the last step ran on another stream.
    pub(super) fn is_elsewhere(&self, stream: Stream) -> bool {
        self.last.as_ref().is_some_and(|mark| mark.stream() != stream)
    }

    /// True where earlier layouts wait.
    pub(super) const fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Waits on the host for the last step.
    pub(super) fn wait(&self) -> Result<bool> {
        self.last.as_ref().map_or(Ok(false), |mark| mark.wait().map(|()| true))
    }

    /// Makes `stream` wait for the last step; on its own stream that is no work.
    pub(super) fn wait_on(&self, stream: Stream) -> Result<()> {
        let elsewhere = self.last.as_ref().filter(|mark| mark.stream() != stream);
        elsewhere.map_or(Ok(()), |mark| mark.wait_on(stream))
    }

    /// Gives up what remains of earlier layouts and has passed. Their events are recorded now, not when they were
    /// laid out anew.
    pub(super) fn collect(&mut self, device: &Device) {
        if self.retired.is_empty() {
            return;
        }
        if let Err(e) = self.record_retired() {
            log::debug!("what earlier layouts leave waits: {e}");
        }
        device.collect();
        self.retired.retain(|retired| retired.token.strong_count() > 0);
    }

    fn record_retired(&self) -> Result<()> {
        self.retired.iter().try_for_each(|retired| retired.mark.record())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Mark>> {
        self.retired.iter().map(|retired| &retired.mark).chain(&self.last)
    }

    /// Records what still refers to streams other than `stream`: once begin was called there, the caller may
    /// destroy them. Nothing is enqueued on `stream`.
    pub(super) fn leave_others(&self, stream: Stream) -> Result<()> {
        self.all().filter(|mark| mark.stream() != stream).try_for_each(|mark| mark.record())
    }

    /// True where [`leave_others`](Self::leave_others) may have something to record.
    pub(super) fn has_others(&self, stream: Stream) -> bool {
        self.all().any(|mark| mark.stream() != stream && !mark.is_recorded())
    }

    /// Lets `layout` go once the last step that used it has passed.
    pub(super) fn retire(&mut self, device: &Device, layout: Layout) {
        let mark = self.last.as_ref().filter(|_| layout.is_in_use()).map(Arc::clone);
        let token = Arc::new(());
        if let Some(mark) = &mark {
            self.retired.push(Retired { token: Arc::downgrade(&token), mark: Arc::clone(mark) });
        }
        let marks: Vec<_> = mark.into_iter().collect();
        // Its blocks must be free for another window before all of it is, and a remap looks for them there.
        if let Some(windows) =
            layout.reservation().filter(|_| !device.capabilities().has(Capabilities::ALIASING))
        {
            device.retire_all(windows, marks.clone());
        }
        device.retire_value(Box::new(layout.into_remains(token)), marks);
    }

    /// True where the last step has passed. The event is recorded by this very question, and a stream that is idle
    /// needs a moment to get there, so one that has not passed is asked again for up to 50 ms.
    pub(super) fn has_passed(&self) -> Result<bool> {
        const TRIES: u32 = 100;
        let Some(mark) = &self.last else { return Ok(true) };
        mark.record()?;
        for _ in 0..TRIES {
            if mark.passed()? {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(false)
    }

    /// Records everything: from here on the caller may destroy the streams. The last step counts where the layout in
    /// force is in use.
    pub(super) fn record(&self, in_use: bool) -> Result<()> {
        self.record_retired()?;
        self.last.as_ref().filter(|_| in_use).map_or(Ok(()), |mark| mark.record())
    }
}
