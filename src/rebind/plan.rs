//! From slots and this step's memory to a layout: which action serves each slot, and where. Pure: no driver, no
//! clock, no lock.
//!
//! [`choose`] decides by the threshold alone. A planner that weighs costs takes its place and gives the same
//! list of actions; [`place`] does not care who chose.

use super::slot::{Action, DEFAULT_ALIGNMENT, Slot};
use super::threshold::Threshold;
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, Granularity};

/// How many bytes a layout needs in one piece, and how they must be aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Area {
    /// Bytes; 0 where nothing is needed.
    pub(super) size: ByteSize,
    /// What the first address must be a multiple of.
    pub(super) alignment: Granularity,
}

/// Where each slot goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    /// How each slot is served.
    pub(super) actions: Vec<Action>,
    /// Where a mapped slot's window begins in the reservation, or a copied slot's shadow among the shadows; 0 for
    /// the others.
    pub(super) offsets: Vec<ByteSize>,
    /// The reservation that holds all windows.
    pub(super) windows: Area,
    /// The memory that holds all shadows.
    pub(super) shadows: Area,
}

/// Chooses by size: small slots are copied, others mapped where `mappable` says so, the rest keep their buffers'
/// addresses.
pub(super) fn choose(slots: &[Slot], mappable: &[bool], threshold: Threshold) -> Vec<Action> {
    slots.iter().zip(mappable).map(|(slot, &mappable)| choose_one(slot, mappable, threshold)).collect()
}

fn choose_one(slot: &Slot, mappable: bool, threshold: Threshold) -> Action {
    if slot.brings_shadow() || slot.may_copy() && threshold.admits(slot.bytes) {
        Action::COPY
    } else if mappable && slot.may_map() {
        Action::MAP
    } else {
        Action::BAKE
    }
}

/// Places what `actions` ask for: windows like `windows` side by side in one reservation, in the slots' order
/// so that slots that change together have neighbouring windows; shadows side by side in one piece of memory.
///
/// # Errors
/// `OutOfAddressSpace` where the sum passes 2^64 - 1.
pub(super) fn place(
    slots: &[Slot],
    actions: Vec<Action>,
    windows: &[Area],
    granularity: Granularity,
) -> Result<Plan> {
    let mut reservation = Cursor::new(granularity);
    let mut memory = Cursor::new(DEFAULT_ALIGNMENT);
    let mut offsets = Vec::with_capacity(slots.len());
    for ((slot, action), window) in slots.iter().zip(&actions).zip(windows) {
        offsets.push(match *action {
            Action::MAP => {
                let alignment = slot.wanted_alignment().max(window.alignment);
                reservation.take(window.size, alignment)?
            }
            Action::COPY if !slot.brings_shadow() => memory.take(slot.bytes, slot.wanted_alignment())?,
            _ => ByteSize::ZERO,
        });
    }
    let windows = reservation.finish(granularity)?;
    Ok(Plan { actions, offsets, windows, shadows: memory.finish(DEFAULT_ALIGNMENT)? })
}

/// Puts pieces one after the other.
struct Cursor {
    end: ByteSize,
    alignment: Granularity,
}

impl Cursor {
    const fn new(alignment: Granularity) -> Self {
        Self { end: ByteSize::ZERO, alignment }
    }

    /// The offset of a further piece.
    fn take(&mut self, size: ByteSize, alignment: Granularity) -> Result<ByteSize> {
        let offset = alignment.round_up(self.end).ok_or(TOO_LARGE)?;
        self.end = offset.checked_add(size).ok_or(TOO_LARGE)?;
        self.alignment = self.alignment.max(alignment);
        Ok(offset)
    }

    /// All pieces as one, in units of `unit`.
    fn finish(self, unit: Granularity) -> Result<Area> {
        Ok(Area { size: unit.round_up(self.end).ok_or(TOO_LARGE)?, alignment: self.alignment })
    }
}

/// The failure of a layout whose sizes pass 2^64 - 1.
const TOO_LARGE: Error =
    Error::new(Kind::OutOfAddressSpace, Operation::Begin, "the slots together pass the end of the addresses");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rebind::slot::{Direction, MemorySpace, SlotFlags};
    use crate::units::DevicePtr;
    use proptest::prelude::*;

    const GRANULE: Granularity = match Granularity::new(2 << 20) {
        Some(g) => g,
        None => unreachable!(),
    };

    /// A window of a block with the usual granule.
    const fn window(bytes: u64) -> Area {
        Area { size: ByteSize(bytes), alignment: GRANULE }
    }

    fn slot() -> impl Strategy<Value = (Slot, bool, u64)> {
        let alignment = prop_oneof![4 => Just(0), 1 => (0u32..24).prop_map(|s| 1u64 << s)];
        let bytes = prop_oneof![1u64..=300_000, Just(1 << 40)];
        (bytes, alignment, 0u32..3, 0u32..4, 0u32..2, any::<bool>(), any::<bool>(), 1u64..4).prop_map(
            |(bytes, alignment, direction, flags, space, brings, mappable, granules)| {
                let slot = Slot {
                    bytes: ByteSize(bytes),
                    direction: Direction(direction),
                    flags: SlotFlags(flags),
                    alignment,
                    space: MemorySpace(space),
                    shadow_address: DevicePtr(if brings && flags & 1 == 0 && space == 0 {
                        1 << 30
                    } else {
                        0
                    }),
                };
                (slot, mappable, granules)
            },
        )
    }

    /// What a slot's place must be: inside, aligned, after all before it.
    fn check(offset: ByteSize, size: ByteSize, alignment: Granularity, area: Area, end: &mut u64) {
        assert!(offset.0 >= *end && alignment.divides(offset), "{offset:?} overlaps or is not aligned");
        assert!(alignment <= area.alignment && alignment.divides(area.alignment.size()));
        *end = offset.0 + size.0;
        assert!(*end <= area.size.0);
    }

    proptest! {
        #[test]
        fn a_plan_serves_each_slot_by_its_rules(
            slots in prop::collection::vec(slot(), 0..40), threshold in prop_oneof![
                Just(Threshold::OFF), (2u64..400_000).prop_map(Threshold)],
        ) {
            let mappable: Vec<bool> = slots.iter().map(|s| s.1).collect();
            let windows: Vec<Area> = slots.iter().map(|s| window(s.2 << 21)).collect();
            let slots: Vec<Slot> = slots.iter().map(|s| s.0).collect();
            let plan = place(&slots, choose(&slots, &mappable, threshold), &windows, GRANULE).expect("small");
            let (mut windows_end, mut shadows_end) = (0, 0);
            for (i, slot) in slots.iter().enumerate() {
                match plan.actions[i] {
                    Action::MAP => {
                        prop_assert!(mappable[i] && !slot.must_stay() && !slot.flags.has(SlotFlags::FOREIGN));
                        prop_assert!(!slot.brings_shadow());
                        prop_assert!(!slot.may_copy() || !threshold.admits(slot.bytes));
                        let alignment = slot.wanted_alignment().max(GRANULE);
                        check(plan.offsets[i], windows[i].size, alignment, plan.windows, &mut windows_end);
                    }
                    Action::COPY if slot.brings_shadow() => prop_assert_eq!(plan.offsets[i], ByteSize::ZERO),
                    Action::COPY => {
                        prop_assert!(!slot.must_stay() && threshold.admits(slot.bytes));
                        let alignment = slot.wanted_alignment();
                        check(plan.offsets[i], slot.bytes, alignment, plan.shadows, &mut shadows_end);
                    }
                    action => {
                        prop_assert_eq!(action, Action::BAKE);
                        prop_assert!(!slot.brings_shadow());
                        prop_assert!(!slot.may_copy() || !threshold.admits(slot.bytes));
                        prop_assert!(!slot.may_map() || !mappable[i]);
                    }
                }
            }
            prop_assert!(GRANULE.divides(plan.windows.size));
            prop_assert_eq!(plan.windows.size.is_zero(), !plan.actions.contains(&Action::MAP));
        }
    }

    #[test]
    fn equal_windows_lie_side_by_side() {
        let slots = [Slot::new(ByteSize(70_000)); 3];
        let windows = [window(2 << 20), window(4 << 20), window(2 << 20)];
        let plan =
            place(&slots, choose(&slots, &[true; 3], Threshold::OFF), &windows, GRANULE).expect("small");
        assert_eq!(plan.offsets, [ByteSize(0), ByteSize::mib(2), ByteSize::mib(6)]);
        assert_eq!(plan.windows.size, ByteSize::mib(8));
        assert!(plan.shadows.size.is_zero());
    }

    #[test]
    fn a_window_begins_where_its_own_granule_does() {
        let small = Granularity::new(64 << 10).expect("a power of two");
        let windows = [Area { size: small.size(), alignment: small }, window(2 << 20)];
        let plan = place(&[Slot::new(ByteSize(9)); 2], vec![Action::MAP; 2], &windows, small).expect("small");
        assert_eq!(plan.offsets, [ByteSize(0), ByteSize::mib(2)]);
        assert_eq!(plan.windows, Area { size: ByteSize::mib(4), alignment: GRANULE });
    }

    #[test]
    fn no_slots_need_nothing() {
        let plan = place(&[], Vec::new(), &[], GRANULE).expect("nothing");
        assert!(plan.windows.size.is_zero() && plan.shadows.size.is_zero());
    }

    #[test]
    fn windows_past_the_end_are_refused() {
        let slots = [Slot::new(ByteSize(1 << 63)); 2];
        let windows = [window(1 << 63); 2];
        let e = place(&slots, vec![Action::MAP; 2], &windows, GRANULE).expect_err("too large");
        assert_eq!(e.kind, Kind::OutOfAddressSpace);
    }
}
