//! What a binding tells of itself: plain data.

use super::planning::PlanInfo;
use super::threshold::Threshold;
use crate::units::ByteSize;
use crate::vm::CallCounts;
use std::time::Duration;

/// What became of a step that was to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It began: launch the command buffer, then call end.
    Started,
    /// It did not begin, and nothing was enqueued: ask for the addresses, record the command buffer with them, and
    /// begin again with the new generation.
    RecordAgain,
}

/// What one begin or one end did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StepReport {
    /// The generation in force after the call.
    pub generation: u64,
    /// Slots whose buffer differs from the one that was served before.
    pub changed_slots: u64,
    /// Slots that were mapped anew.
    pub remapped_slots: u64,
    /// Slots that were copied, this way.
    pub copied_slots: u64,
    /// Bytes that were copied, this way.
    pub copied_bytes: u64,
    /// Commands that the caller must patch before it launches (see [`Binding::patches`](crate::rebind::Binding::patches)).
    pub patched_commands: u64,
    /// True where planning again may pay: slots move that the plan has stay, and that is frequent.
    pub replan_advised: bool,
    /// Driver calls made.
    pub calls: CallCounts,
    /// True where the host waited for the previous step.
    pub waited: bool,
    /// How long it waited.
    pub wait_time: Duration,
    /// How long remapping and copying spent in driver calls.
    pub driver_time: Duration,
}

/// What a binding is at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindingInfo {
    /// The generation in force; 0 before the first layout.
    pub generation: u64,
    /// Number of slots.
    pub slots: u64,
    /// Slots at their buffers' own addresses.
    pub baked: u64,
    /// Slots that are mapped.
    pub mapped: u64,
    /// Slots that are copied, those with an address of their own included.
    pub copied: u64,
    /// Slots that the caller patches.
    pub patched: u64,
    /// What the planner says, where the binding has one.
    pub plan: PlanInfo,
    /// The threshold in force: as asked for until the first layout, then bounded by the device's budget.
    pub threshold: Threshold,
    /// Shadow bytes requested from the device's budget.
    pub shadow_bytes: ByteSize,
    /// Driver calls up to and including the begin of the first step that started.
    pub setup: CallCounts,
    /// All driver calls.
    pub total: CallCounts,
    /// How often begin said to record again.
    pub record_agains: u64,
}
