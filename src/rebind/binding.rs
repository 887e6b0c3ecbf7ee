//! A binding: the slots of one command buffer, and the addresses that they keep.

use super::buffers::Buffers;
use super::report::{BindingInfo, Outcome, StepReport};
use super::slot::{Action, Slot};
use super::threshold::Threshold;
use crate::driver::{Access, Stream};
use crate::error::Result;
use crate::units::{ByteSize, DevicePtr};
use crate::vm::Device;
use std::sync::Arc;

/// How a binding is to serve its slots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Up to which size slots are copied.
    pub threshold: Threshold,
    /// A figure of free memory for the automatic threshold, in bytes, the same on all ranks; none is not known.
    pub free: Option<ByteSize>,
    /// Who may do what in windows and shadows; empty is the device itself, reading and writing.
    pub access: Vec<Access>,
}

/// The slots of one command buffer. Calls may come from any thread, one at a time: a second one meanwhile is told
/// [`Busy`](crate::error::Kind::Busy).
///
/// A stream given to [`begin`](Self::begin) must stay alive until the next begin on another stream, until the
/// binding is destroyed, or until [`Device::forget_stream`].
#[derive(Debug)]
pub struct Binding {}

impl Binding {
    /// A binding of `slots`; nothing is laid out before the first begin.
    ///
    /// # Errors
    /// The kinds for a bad slot, with its entry: `InvalidSize` (no bytes), `InvalidArgument`, `Misaligned`,
    /// `OutOfRange`, `Overlap` (shadow addresses).
    pub fn new(_device: &Arc<Device>, _slots: Vec<Slot>, _options: Options) -> Result<Self> {
        todo!()
    }

    /// Begins a step with this step's `buffers` on `stream`. `generation` is the one whose addresses the caller
    /// recorded, 0 before the first.
    ///
    /// Where the buffers can be served at that generation's addresses, the step starts: changed windows are
    /// remapped (which waits on the host for the previous step), shadows are copied in, and a begin on another
    /// stream than the last waits for that one by an event. Otherwise the binding is laid out anew for these
    /// buffers, the generation rises, and the answer is [`Outcome::RecordAgain`]; a begin with an old generation
    /// gets the same answer and changes nothing.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (a step is in progress), `CountMismatch`, `InvalidArgument` (NULL where an address is
    /// needed, a generation that was never given), `InvalidSize` (a buffer smaller than its slot), `Aliased`, what
    /// [`Buffers::block`] says, `StreamCapturing`, and whatever driver calls fail with. After a failure the state
    /// is as before, and the same begin may be tried again.
    pub fn begin(
        &self,
        _stream: Stream,
        _buffers: &impl Buffers,
        _generation: u64,
    ) -> Result<(Outcome, StepReport)> {
        todo!()
    }

    /// Ends the step: copies out what its launch wrote to shadows, and enqueues nothing where that is nothing.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (no step is in progress), and what copying fails with; the step then still is in
    /// progress, to be ended or aborted.
    pub fn end(&self) -> Result<StepReport> {
        todo!()
    }

    /// Ends a step whose launch failed: nothing is copied out.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (no step is in progress).
    pub fn abort(&self) -> Result<()> {
        todo!()
    }

    /// Writes each slot's address, and gives the generation that they belong to.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (nothing is laid out yet), `CountMismatch`.
    pub fn addresses(&self, _out: &mut [DevicePtr]) -> Result<u64> {
        todo!()
    }

    /// Writes how each slot is served.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (nothing is laid out yet), `CountMismatch`.
    pub fn actions(&self, _out: &mut [Action]) -> Result<()> {
        todo!()
    }

    /// What the binding is now.
    ///
    /// # Errors
    /// `Busy`.
    pub fn info(&self) -> Result<BindingInfo> {
        todo!()
    }

    /// Unmaps the windows that no step in flight uses, and says how many; the layout and its addresses stay, and
    /// the next begin maps again.
    ///
    /// # Errors
    /// `Busy`, `StreamCapturing`, and what unmapping fails with.
    pub fn drop_idle(&self) -> Result<u64> {
        todo!()
    }

    /// Ends the binding: its share of the budget is given back now, its memory once the last step has passed. Every
    /// later call is `WrongState`. Dropping a binding does the same, and can only log a failure.
    ///
    /// # Errors
    /// `Busy`, `StreamCapturing` (the last step's stream is being captured), and what recording an event fails
    /// with; the binding then is as before.
    pub fn destroy(&self) -> Result<()> {
        todo!()
    }
}
