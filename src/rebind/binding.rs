//! A binding: the slots of one command buffer, and the addresses that they keep.

use super::buffers::Buffers;
use super::engine::Engine;
use super::layout::Place;
use super::permanent;
use super::planning::PlanOptions;
use super::record::CopyWays;
use super::report::{BindingInfo, Outcome, StepReport};
use super::settings;
use super::slot::{Action, Slot, SlotFlags};
use super::threshold::{Threshold, compute_threshold};
use crate::driver::{Access, Graph, Stream};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr};
use crate::vm::{Allocation, Device};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

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
/// A stream given to [`begin`](Self::begin) must stay alive until a begin on another stream has answered (either
/// way; not failed), until the binding is destroyed, or until [`Device::forget_stream`].
#[derive(Debug)]
pub struct Binding {
    /// Held across driver calls: it is only ever tried, so nobody waits for it.
    engine: Mutex<Engine>,
}

impl Binding {
    /// A binding of `slots`; nothing is laid out before the first begin. Where `GVMM_PLAN` is `auto` and no threshold is
    /// asked for, it is [`planned`](Self::planned).
    ///
    /// # Errors
    /// The kinds for a bad slot, with its entry: `InvalidSize` (no bytes), `InvalidArgument`, `Misaligned`,
    /// `OutOfRange`, `Overlap` (shadow addresses).
    pub fn new(device: &Arc<Device>, slots: Vec<Slot>, options: Options) -> Result<Self> {
        if options.threshold == Threshold::DEFAULT && settings::plans_by_default() {
            return Self::planned(device, slots, options, PlanOptions::default());
        }
        Self::by_threshold(device, slots, options)
    }

    /// The same whatever `GVMM_PLAN` says.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn by_threshold(device: &Arc<Device>, slots: Vec<Slot>, options: Options) -> Result<Self> {
        let mut slots = slots;
        let memory = permanent::give(device, &mut slots, &options.access)?;
        Ok(Self::with(device, slots, options, memory))
    }

    /// The same for slots that were checked and have their permanent addresses, in `memory`.
    pub(super) fn with(
        device: &Arc<Device>,
        slots: Vec<Slot>,
        options: Options,
        memory: Option<Arc<Allocation>>,
    ) -> Self {
        let threshold = resolve(device, &slots, &options);
        let engine = Engine::new(Arc::clone(device), slots, options, threshold);
        Self { engine: Mutex::new(Engine { permanent: memory, ..engine }) }
    }

    /// The permanent address of a slot that has one.
    ///
    /// # Errors
    /// `Busy`, `OutOfRange` (no such slot), `WrongState` (a slot without one).
    pub fn permanent(&self, slot: usize) -> Result<DevicePtr> {
        let engine = self.enter(Operation::Query)?;
        let hint = "there is no such slot";
        let slot = engine.slots.get(slot).ok_or(Error::new(Kind::OutOfRange, Operation::Query, hint))?;
        if slot.flags.has(SlotFlags::PERMANENT) {
            return Ok(slot.shadow_address);
        }
        let hint = "the slot has no permanent address: flag it when the binding is made";
        Err(Error::new(Kind::WrongState, Operation::Query, hint))
    }

    /// Begins a step with this step's `buffers` on `stream`. `generation` is the one whose addresses the caller
    /// recorded, 0 before the first.
    ///
    /// Where the buffers can be served at that generation's addresses, the step starts: changed windows are
    /// remapped (which waits on the host for the previous step), shadows are copied in, and a begin on another
    /// stream than the last waits for that one by an event. Otherwise the binding is laid out anew for these
    /// buffers, the generation rises, and the answer is [`Outcome::RecordAgain`]; a begin with an old generation
    /// gets the same answer and changes nothing. Nothing is enqueued on `stream` then; where the last begin was on
    /// another stream, an event is recorded on that one. Without [`ALIASING`](crate::driver::Capabilities::ALIASING)
    /// the new windows stay empty until a step begins, if a block must leave another window for one.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (a step is in progress, or copies were recorded and no graph was named that has them),
    /// `CountMismatch`, `InvalidArgument` (NULL where an address is needed, a generation that was never given),
    /// `InvalidSize` (a buffer smaller than its slot), `Aliased`, `Overlap` and `OutOfRange` (a buffer that is copied
    /// overlaps one that is copied out to, or passes the end of the addresses), what [`Buffers::block`] says, `StreamCapturing` (also where the stream of the begin before
    /// is captured and its event is needed), and whatever driver calls fail with. After a failure the state
    /// is as before, and the same begin may be tried again.
    pub fn begin(
        &self,
        stream: Stream,
        buffers: &impl Buffers,
        generation: u64,
    ) -> Result<(Outcome, StepReport)> {
        self.enter(Operation::Begin)?.begin(stream, buffers, generation)
    }

    /// Ends the step: copies out what its launch wrote to shadows, and enqueues nothing where that is nothing.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (no step is in progress), and what copying fails with; the step then still is in
    /// progress, to be ended or aborted.
    pub fn end(&self) -> Result<StepReport> {
        self.enter(Operation::End)?.end()
    }

    /// Ends a step whose launch failed: nothing is copied out.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (no step is in progress).
    pub fn abort(&self) -> Result<()> {
        self.enter(Operation::End)?.abort()
    }

    /// Puts a step's copies into the command buffer itself: those `ways` that are asked for become part of the graph that
    /// `stream` is being captured into, where it stands. `generation` is the one that the graph is recorded with. From
    /// then on begin and end launch none of these copies: begin points those of the graph that
    /// [`use_graph`](Self::use_graph) named at the step's buffers, for the launches after it. Launches that are still
    /// in their stream keep theirs, so any number of steps may be in flight. A graph launched twice in a step copies
    /// twice, the same.
    ///
    /// Recording a way again replaces what was recorded of it before, and a new generation forgets all: a graph that
    /// has the earlier copies must not be launched any more, as one with addresses of an earlier generation must not.
    ///
    /// # Errors
    /// `Busy`, `Unsupported` (the device has no [`ROUTES`](crate::driver::Capabilities::ROUTES)), `InvalidArgument`
    /// (no ways), `WrongState` (a step is in progress, another generation is in force, the stream is not being
    /// captured), and the driver's. Then what was recorded before still is what counts.
    pub fn record_copies(&self, stream: Stream, generation: u64, ways: CopyWays) -> Result<()> {
        self.enter(Operation::Capture)?.record_copies(stream, generation, ways)
    }

    /// Names the graph that has the recorded copies and is launched in the steps to come (on CUDA a `CUgraphExec`, whose
    /// `CUgraph` must stay as long as this graph is named), or none: where copies were recorded, no step begins then. A
    /// new generation forgets it. One that was made or updated anew is to be named again.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (a step is in progress, or nothing is laid out yet).
    pub fn use_graph(&self, graph: Option<Graph>) -> Result<()> {
        self.enter(Operation::Capture)?.use_graph(graph)
    }

    /// Writes each slot's address, and gives the generation that they belong to.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (nothing is laid out yet), `CountMismatch`.
    pub fn addresses(&self, out: &mut [DevicePtr]) -> Result<u64> {
        let engine = self.enter(Operation::Query)?;
        write_each(&engine, out, |place| place.address)?;
        Ok(engine.generation)
    }

    /// Writes how each slot is served.
    ///
    /// # Errors
    /// `Busy`, `WrongState` (nothing is laid out yet), `CountMismatch`.
    pub fn actions(&self, out: &mut [Action]) -> Result<()> {
        write_each(&*self.enter(Operation::Query)?, out, |place| place.action)
    }

    /// What the binding is now.
    ///
    /// # Errors
    /// `Busy`.
    pub fn info(&self) -> Result<BindingInfo> {
        Ok(self.enter(Operation::Query)?.info())
    }

    /// Unmaps the windows that no step in flight uses, and says how many; the layout and its addresses stay, and
    /// the next begin maps again. Where the last step is still running, this takes up to 50 ms to see that.
    ///
    /// # Errors
    /// `Busy`, `StreamCapturing`, and what unmapping fails with.
    pub fn drop_idle(&self) -> Result<u64> {
        self.enter(Operation::Retire)?.drop_idle()
    }

    /// Ends the binding: its share of the budget is given back now, its memory once the last step has passed. Every
    /// later call is `WrongState`. Dropping a binding does the same, and can only log a failure.
    ///
    /// # Errors
    /// `Busy`, `StreamCapturing` (the last step's stream is being captured), and what recording an event fails
    /// with; the binding then is as before.
    pub fn destroy(&self) -> Result<()> {
        self.enter(Operation::Destroy)?.destroy(false)
    }

    pub(super) fn engine_mut(&mut self) -> &mut Engine {
        self.engine.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine, for one thread at a time.
    pub(super) fn enter(&self, operation: Operation) -> Result<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(engine) if engine.destroyed => Err(DESTROYED.during(operation)),
            Ok(engine) => Ok(engine),
            Err(TryLockError::WouldBlock) => Err(BUSY.during(operation)),
            Err(TryLockError::Poisoned(_)) => Err(POISONED.during(operation)),
        }
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        if let Err(e) = self.engine_mut().destroy(true) {
            log::warn!("a binding could not be destroyed cleanly: {e}");
        }
    }
}

/// The threshold that slots and options ask for; the device's budget may lower it.
fn resolve(device: &Device, slots: &[Slot], options: &Options) -> Threshold {
    let asked = match options.threshold {
        Threshold::DEFAULT => settings::default_threshold(),
        asked => asked,
    };
    if asked != Threshold::AUTO {
        return asked;
    }
    let sizes: Vec<ByteSize> = slots.iter().filter(|slot| slot.may_copy()).map(|slot| slot.bytes).collect();
    let info = device.info();
    compute_threshold(&sizes, info.bandwidth, options.free.unwrap_or_default(), info.total)
}

/// Writes one value a slot.
fn write_each<T>(engine: &Engine, out: &mut [T], value: impl Fn(&Place) -> T) -> Result<()> {
    let Some(layout) = &engine.layout else { return Err(NO_LAYOUT) };
    if out.len() != layout.places.len() {
        return Err(Error::new(Kind::CountMismatch, Operation::Query, "one element is needed for each slot"));
    }
    out.iter_mut().zip(&layout.places).for_each(|(out, place)| *out = value(place));
    Ok(())
}

const BUSY: Error = Error::new(Kind::Busy, Operation::Bind, "another thread is inside this binding");
const DESTROYED: Error = Error::new(Kind::WrongState, Operation::Bind, "the binding was destroyed");
const POISONED: Error = Error::new(Kind::Poisoned, Operation::Bind, "a defect left this binding half done");
const NO_LAYOUT: Error =
    Error::new(Kind::WrongState, Operation::Query, "nothing is laid out before the first begin");
