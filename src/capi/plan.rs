//! The planner of a binding.
#![allow(unsafe_code, reason = "exports symbols; says that the caller vouches for its pointers")]

use super::array::Element;
use super::binding::BindingObject;
use super::entry::entry;
use super::handle;
use super::status::gvmm_status;
use super::types::gvmm_binding;
use super::versioned::{Caller, Versioned, unknown, versioned};
use crate::error::{Error, Kind, Operation, Result};
use crate::rebind::{
    Action, Commands, CopyPath, Explanation, MOST_WATCHED_STEPS, Patch, PlanOptions, Price, Rules,
};
use std::ffi::c_void;

/// How a binding decides: as `GVMM_PLAN` says where it asks for no threshold of its own, else by threshold.
pub const GVMM_PLAN_DEFAULT: u32 = 0;
/// How a binding decides: by the slots' sizes, as the threshold says.
pub const GVMM_PLAN_THRESHOLD: u32 = 1;
/// How a binding decides: by what each action costs, once the first steps were watched.
pub const GVMM_PLAN_AUTO: u32 = 2;

/// Flag of a plan: the caller runs ahead of the device, so that its own time is hidden and the device's counts.
pub const GVMM_PLAN_HOST_HIDDEN: u32 = 1;
/// Flag of a plan: the copies are part of the caller's command buffer.
pub const GVMM_PLAN_COPIES_RECORDED: u32 = 2;

/// A command of the caller's command buffer that uses a slot, and so must be patched where the slot is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_command_use {
    /// The slot's index.
    pub slot: u32,
    /// The command's number, of the caller's choice. Slots may share a command.
    pub command: u32,
}

/// How a binding is to plan; all zero but `struct_size` is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_plan_desc {
    /// `sizeof(gvmm_plan_desc)`.
    pub struct_size: usize,
    /// `GVMM_PLAN_...`.
    pub mode: u32,
    /// How many steps are watched before the plan is made, 2 to 9; 0: 5.
    pub watched_steps: u32,
    /// `GVMM_PLAN_HOST_HIDDEN` and `GVMM_PLAN_COPIES_RECORDED` bits.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// Which commands use which slots, for a caller who can patch them; may be NULL if the count is 0. A slot without
    /// one is never patched, and none on a device without GVMM_CAPABILITY_PATCHES. HIP does not update its graphs
    /// reliably: there that bit is off, unless `GVMM_QUIRKS=-hip-graph-patch` says that they are right.
    pub uses: *const gvmm_command_use,
    /// Number of elements; 0: the caller cannot patch.
    pub use_count: usize,
    /// Distance of two elements in bytes.
    pub use_stride_bytes: usize,
}

/// An address in a command that must be changed before the command buffer is launched.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_patch {
    /// The slot's index.
    pub slot: u32,
    /// The command's number.
    pub command: u32,
    /// The slot's address from now on.
    pub address: u64,
}

/// What a binding's planner says. Times are predicted, the mean of a step, in picoseconds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_plan_info {
    /// `sizeof(gvmm_plan_info)`.
    pub struct_size: usize,
    /// The plan's digest: equal plans of slots of equal shapes have the same on every machine. 0 where there is no plan.
    pub digest: u64,
    /// Slots with GVMM_ACTION_PATCH.
    pub patched_slots: u64,
    /// Slots that moved since the plan was made although it has them stay, each time counted.
    pub surprises: u64,
    /// Host time that begin and end take.
    pub host_ps: u64,
    /// Device time that a step takes longer.
    pub gpu_ps: u64,
    /// What was made as small as could be: device time, and host time unless it is hidden.
    pub counted_ps: u64,
    /// Bytes of shadows.
    pub shadow_bytes: u64,
    /// 1 where the binding has a planner.
    pub has_planner: u32,
    /// 1 where there is a plan: the watched steps are over, or one was imported.
    pub has_plan: u32,
    /// 1 where surprises are so frequent that `gvmm_binding_replan` may pay.
    pub replan_advised: u32,
    /// 0.
    pub reserved: u32,
}

/// Why a slot is served as it is. Times are predicted, the mean of a step, in picoseconds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gvmm_explanation {
    /// `GVMM_ACTION_...`.
    pub action: u32,
    /// The next best action, or UINT32_MAX where there is no other.
    pub next_action: u32,
    /// What a step would cost less without this slot.
    pub cost_ps: u64,
    /// What a step would cost more with the next best action than without this slot.
    pub next_cost_ps: u64,
    /// In how many of the watched steps after the first the slot moved.
    pub moved_steps: u32,
    /// 0.
    pub reserved: u32,
}

/// Lists what must be patched before the command buffer of the step that was begun last is launched: each command of
/// each GVMM_ACTION_PATCH slot whose address is another one than in the step before. After an abort the same is
/// listed again; after RECORD_AGAIN nothing is, since the new addresses are recorded.
///
/// State: changes none.
/// Parameters: `binding`; `out_patches`, room for `capacity` elements, or NULL with a capacity of 0 to ask for the number
/// only; `out_count`, the number of patches (also in the report of begin).
/// Statuses: COUNT_MISMATCH (`capacity` is neither 0 nor enough), BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_patches(
    binding: *mut gvmm_binding,
    out_patches: *mut gvmm_patch,
    capacity: usize,
    out_count: *mut usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let (out, count) = (c.out_array(out_patches, capacity)?, c.out(out_count)?);
        let patches = handle::get::<BindingObject>(binding)?.binding.patches()?;
        check_room(capacity, patches.len())?;
        let patch = |Patch { slot, command, address }| gvmm_patch { slot, command, address: address.get() };
        count.write(patches.len());
        out.write(patches.into_iter().map(patch));
        Ok(())
    })
}

/// Gives the plan as bytes, for `gvmm_binding_plan_import` on the other ranks of a job. It is there once the watched steps
/// are over. What was repaired since is not in it.
///
/// State: makes the plan where the watched steps are over and it was not made yet.
/// Parameters: `binding`; `out_bytes`, room for `capacity` bytes, or NULL with a capacity of 0 to ask for the number only;
/// `out_size_bytes`, the number of bytes.
/// Statuses: WRONG_STATE (no planner, or no plan yet), COUNT_MISMATCH (`capacity` is neither 0 nor enough), BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_plan_export(
    binding: *mut gvmm_binding,
    out_bytes: *mut c_void,
    capacity: usize,
    out_size_bytes: *mut usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Bind, || {
        let (out, size) = (c.out_array(out_bytes.cast::<u8>(), capacity)?, c.out(out_size_bytes)?);
        let bytes = handle::get::<BindingObject>(binding)?.binding.export_plan()?;
        check_room(capacity, bytes.len())?;
        size.write(bytes.len());
        out.write(bytes.into_iter());
        Ok(())
    })
}

/// Uses another rank's plan from the next begin on, instead of one of the binding's own. A slot whose buffer does not allow
/// here what the plan says is served otherwise.
///
/// State: before, no step is begun. The next begin may answer RECORD_AGAIN; it answers OUT_OF_DEVICE_MEMORY where the
/// device's budget of shadows is too small for the plan, until there is room, another plan is imported, or
/// `gvmm_binding_replan` gives it up.
/// Parameters: `binding`; `bytes`, the `size_bytes` bytes that export gave.
/// Statuses: PLAN_MISMATCH (a plan of other slots; the last-error detail names the first that differs),
/// INVALID_ARGUMENT (the bytes are no whole plan, or were changed), UNKNOWN_VERSION (a newer library's), WRONG_STATE (no
/// planner, or a step is begun), BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_plan_import(
    binding: *mut gvmm_binding,
    bytes: *const c_void,
    size_bytes: usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Bind, || {
        let bytes: Vec<u8> = c.elements(bytes.cast::<u8>(), size_bytes, 1)?.iter().collect();
        handle::get::<BindingObject>(binding)?.binding.import_plan(&bytes)
    })
}

/// Checks that the plan is the one that another rank has.
///
/// State: as `gvmm_binding_plan_export`.
/// Parameters: `binding`; `digest`, the other's, from `gvmm_binding_plan_query`.
/// Statuses: PLAN_MISMATCH (another plan), WRONG_STATE (no planner, or no plan yet), BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_plan_check(binding: *mut gvmm_binding, digest: u64) -> gvmm_status {
    entry(Operation::Bind, || handle::get::<BindingObject>(binding)?.binding.check_plan(digest))
}

/// Says what the planner knows: the plan's digest, what a step costs by it as predicted, what it did not foresee.
///
/// State: makes the plan where the watched steps are over and it was not made yet.
/// Parameters: `binding`; `out_info`, whose `struct_size` is set.
/// Statuses: UNKNOWN_VERSION, BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_plan_query(
    binding: *mut gvmm_binding,
    out_info: *mut gvmm_plan_info,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_struct(out_info)?;
        let binding = handle::get::<BindingObject>(binding)?;
        out.write(&info(&binding)?);
        Ok(())
    })
}

/// Says for each slot why it is served as it is: what that costs, and what the next best would.
///
/// State: as `gvmm_binding_plan_export`.
/// Parameters: `binding`; `out_explanations`, `count` elements, one for each slot.
/// Statuses: WRONG_STATE (no planner, or no plan yet), COUNT_MISMATCH, BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_explain(
    binding: *mut gvmm_binding,
    out_explanations: *mut gvmm_explanation,
    count: usize,
) -> gvmm_status {
    // SAFETY: the caller vouches for the pointers.
    let c = unsafe { Caller::vouches() };
    entry(Operation::Query, || {
        let out = c.out_array(out_explanations, count)?;
        let (_, explanations) = handle::get::<BindingObject>(binding)?.binding.explain()?;
        if explanations.len() != count {
            return Err(mismatch("one element is needed for each slot"));
        }
        out.write(explanations.into_iter().map(explanation));
        Ok(())
    })
}

/// Watches the next steps and then makes a new plan. Until then the slots are served as they are.
///
/// State: changes no address.
/// Parameters: `binding`.
/// Statuses: WRONG_STATE (no planner), BUSY.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_replan(binding: *mut gvmm_binding) -> gvmm_status {
    entry(Operation::Bind, || handle::get::<BindingObject>(binding)?.binding.replan())
}

versioned!(gvmm_plan_desc { mode, watched_steps, flags, reserved, uses, use_count, use_stride_bytes });
versioned!(gvmm_plan_info {
    digest,
    patched_slots,
    surprises,
    host_ps,
    gpu_ps,
    counted_ps,
    shadow_bytes,
    has_planner,
    has_plan,
    replan_advised,
    reserved,
});
// SAFETY: numbers.
unsafe impl Element for gvmm_command_use {}

/// How a binding of `slots` slots is to plan; none where `GVMM_PLAN` decides, and none in it where the threshold does.
pub(super) fn options(
    c: Caller,
    desc: *const gvmm_plan_desc,
    slots: usize,
) -> Result<Option<Option<PlanOptions>>> {
    let desc = c.in_struct_or_default(desc)?;
    if desc.reserved != 0 || desc.flags & !(GVMM_PLAN_HOST_HIDDEN | GVMM_PLAN_COPIES_RECORDED) != 0 {
        return Err(unknown("a flag or a reserved field of the plan is set that this version does not know"));
    }
    if desc.watched_steps == 1 || desc.watched_steps > MOST_WATCHED_STEPS {
        return Err(Error::new(Kind::InvalidArgument, Operation::Bind, "watch 2 to 9 steps, or 0 for 5"));
    }
    let uses = c.elements(desc.uses, desc.use_count, desc.use_stride_bytes)?.try_map(|used| {
        let fits = (used.slot as usize) < slots;
        if fits {
            Ok(used)
        } else {
            Err(Error::new(Kind::OutOfRange, Operation::Bind, "a command uses a slot that is none"))
        }
    })?;
    let path =
        if desc.flags & GVMM_PLAN_COPIES_RECORDED != 0 { CopyPath::Recorded } else { CopyPath::Launched };
    let rules = Rules { host_hidden: desc.flags & GVMM_PLAN_HOST_HIDDEN != 0, copies: path, peers: 0 };
    let commands = (!uses.is_empty()).then(|| commands(uses, slots));
    let plan = PlanOptions { commands, watched_steps: desc.watched_steps, profile: None, rules };
    match desc.mode {
        GVMM_PLAN_DEFAULT => Ok(None),
        GVMM_PLAN_THRESHOLD => Ok(Some(None)),
        GVMM_PLAN_AUTO => Ok(Some(Some(plan))),
        _ => Err(Error::new(
            Kind::InvalidArgument,
            Operation::Bind,
            "a plan is default 0, threshold 1 or auto 2",
        )),
    }
}

/// The commands slot by slot.
fn commands(mut uses: Vec<gvmm_command_use>, slots: usize) -> Commands {
    uses.sort_by_key(|used| used.slot);
    let (mut commands, mut rest) = (Commands::default(), &uses[..]);
    for slot in 0..slots {
        let own = rest.partition_point(|used| used.slot as usize <= slot);
        commands.push(rest[..own].iter().map(|used| used.command));
        rest = &rest[own..];
    }
    commands
}

fn info(object: &BindingObject) -> Result<gvmm_plan_info> {
    let has_planner = object.binding.has_planner()?;
    let priced = match object.binding.explain() {
        Err(e) if e.kind != Kind::WrongState => return Err(e),
        priced => priced.ok(),
    };
    let info = object.binding.info()?;
    let Price { step, counted, shadows, .. } = priced.map(|(price, _)| price).unwrap_or_default();
    Ok(gvmm_plan_info {
        digest: info.plan.digest.unwrap_or_default(),
        patched_slots: info.patched,
        surprises: info.plan.surprises,
        host_ps: step.host.0,
        gpu_ps: step.gpu.0,
        counted_ps: counted.0,
        shadow_bytes: shadows.get(),
        has_planner: u32::from(has_planner),
        has_plan: u32::from(info.plan.digest.is_some()),
        replan_advised: u32::from(info.plan.replan_advised),
        ..Versioned::DEFAULT
    })
}

fn explanation(explanation: Explanation) -> gvmm_explanation {
    let Explanation { action, cost, next, moved } = explanation;
    let (next, next_cost) = next.map_or((Action(u32::MAX), 0), |(action, cost)| (action, cost.0));
    gvmm_explanation {
        action: action.0,
        next_action: next.0,
        cost_ps: cost.0,
        next_cost_ps: next_cost,
        moved_steps: moved,
        reserved: 0,
    }
}

/// What does not fit is not written in part; a caller with no room asks for the number.
fn check_room(capacity: usize, needed: usize) -> Result<()> {
    if capacity == 0 || capacity >= needed {
        Ok(())
    } else {
        Err(mismatch("there is less room than needed: ask with 0 first"))
    }
}

const fn mismatch(hint: &'static str) -> Error {
    Error::new(Kind::CountMismatch, Operation::Query, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_in_any_order_are_slots_commands() {
        let used = |slot, command| gvmm_command_use { slot, command };
        let commands = commands(vec![used(2, 7), used(0, 9), used(2, 3)], 4);
        let of: Vec<&[u32]> = (0..4).map(|i| commands.of(i)).collect();
        assert_eq!(of, [&[9][..], &[], &[7, 3], &[]]);
    }
}
