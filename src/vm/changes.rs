//! What a device is asked to change in its reservations: remap and retire.

use super::calls;
use super::entries::{self, In, PlaceEntry, RemapEntry, RetireEntry};
use super::job::Done;
use super::swap::swap;
use super::{CallCounts, Device, Mark, Reservation};
use crate::driver::Stream;
use crate::error::Result;
use crate::units::ByteSize;
use std::sync::Arc;
use std::time::Duration;

/// What a remap did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RemapReport {
    /// Its driver calls.
    pub calls: CallCounts,
    /// Entries that needed no driver call.
    pub skipped: u64,
    /// Bytes newly mapped.
    pub mapped_bytes: ByteSize,
    /// Bytes unmapped.
    pub unmapped_bytes: ByteSize,
    /// Waiting on the host for streams.
    pub waited: Duration,
    /// Time in driver calls, without that.
    pub driver_time: Duration,
}

impl Device {
    /// Makes each place hold the block that its entry names, as one transaction over all reservations named.
    ///
    /// What holds the right block with the right access is skipped (an entry with no block where nothing is
    /// mapped, too). All unmaps come before the first map; before the first unmap the host waits for the streams
    /// in `wait_for` (none: the caller vouches that nothing uses what the entries name). A retired mapping of the same
    /// block at the same place comes back into use; another one in the way is waited for. Access is set once over
    /// each contiguous changed range, or as the device's capabilities allow. Lost mappings of the reservations
    /// named are rebuilt.
    ///
    /// # Errors
    /// With the entry to blame: `InvalidArgument` (another device's reservation or block, a place named twice),
    /// `Misaligned`, `OutOfRange`, `AlreadyMapped` (two mappings would overlap), `PartialMapping`, `Unsupported`
    /// (a block would be mapped twice without aliasing). `StreamCapturing`. The driver's: then everything is as
    /// before, or, where that failed too, `RangeLost`: the entries concerned are unmapped (which a mapping that was to
    /// stay must wait for too), and the next remap rebuilds them.
    pub fn remap(&self, entries: &[RemapEntry], wait_for: &[Stream]) -> Result<RemapReport> {
        self.reported(|| entries::remap(self.shared(), &mut &*entries, wait_for))
    }

    /// The same for entries that name one reservation, which costs less. Afterwards each entry names what was mapped at
    /// its place before (also a mapping that was retired), so that the same call again takes it back.
    ///
    /// # Errors
    /// As [`Self::remap`].
    pub fn remap_in(
        &self,
        reservation: &Reservation,
        entries: &mut [PlaceEntry],
        wait_for: &[Stream],
    ) -> Result<RemapReport> {
        self.reported(|| {
            let swapped = if wait_for.is_empty() { swap(self.shared(), reservation, entries) } else { None };
            let general = || entries::remap(self.shared(), &mut In { reservation, entries }, wait_for);
            swapped.unwrap_or_else(general)
        })
    }

    fn reported(&self, remap: impl FnMut() -> Result<Done>) -> Result<RemapReport> {
        let (before, times) = (calls::thread_counts(), calls::thread_times());
        let done = self.shared().with_room(remap)?;
        let (after, now) = (calls::thread_counts(), calls::thread_times());
        self.shared().collect();
        Ok(RemapReport {
            calls: after.minus(before),
            skipped: done.skipped,
            mapped_bytes: ByteSize(done.mapped),
            unmapped_bytes: ByteSize(done.unmapped),
            waited: now.waited.saturating_sub(times.waited),
            driver_time: now.driver.saturating_sub(times.driver),
        })
    }

    /// Unmaps the mappings named once the streams in `after` have passed what is enqueued on them now (one
    /// timeline write a stream). Until then they hold their blocks and addresses; [`Self::find`] and callers no
    /// longer see them. With no stream, they are unmapped at once.
    ///
    /// # Errors
    /// With the entry to blame: `InvalidArgument`, `NotMapped`. `StreamCapturing`. Nothing has changed then.
    pub fn retire(&self, entries: &[RetireEntry], after: &[Stream]) -> Result<()> {
        self.shared().collect();
        let garbage = entries::retire(self.shared(), entries, after)?;
        drop(garbage);
        if after.is_empty() {
            self.shared().collect();
        }
        Ok(())
    }

    /// The same for all that is mapped in a reservation, once the marks have passed. They are not recorded for it:
    /// whoever wants that before a remap needs one of the blocks, or the next [`Self::drain`], records them.
    pub fn retire_all(&self, reservation: &Arc<Reservation>, marks: Vec<Arc<Mark>>) {
        let garbage = entries::retire_all(self.shared(), reservation, marks.into());
        drop(garbage);
        self.shared().collect();
    }
}
