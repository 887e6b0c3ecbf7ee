//! A plan as bytes, so that all ranks can use the plan of one; and its digest.
//!
//! ```text
//! "GVMMPLAN"  format u32  slots u32  watched steps u32
//! { bytes u64  alignment u64  direction u32  flags u32  space u32  shadow u8  action u8  moves u8 } for each slot
//! checksum u64
//! ```
//!
//! Numbers are little-endian. The checksum is FNV-1a (64 bits) of all that is before it, and a digest the same of shapes
//! and actions alone: enough to tell plans apart and to see that bytes were lost or changed, not to keep out somebody
//! who means harm.

use super::churn::{Churn, Moves};
use super::slot::{Action, Slot, SlotFlags};
use crate::error::{Error, Kind, Operation, Result};

const MAGIC: &[u8; 8] = b"GVMMPLAN";
const FORMAT: u32 = 1;
const HEAD: usize = 20;
/// A slot's shape, its action, and when it moved.
const SHAPE: usize = 29;
const SLOT: usize = SHAPE + 2;
const TAIL: usize = 8;

/// What tells plans apart: the same for the same actions of slots of the same shapes, on every machine. Where a slot's
/// memory lies, and what was seen or measured, does not matter.
pub fn plan_digest(slots: &[Slot], actions: &[Action]) -> u64 {
    let mut bytes = Vec::with_capacity(slots.len() * (SHAPE + 1));
    for (slot, action) in slots.iter().zip(actions) {
        put_shape(&mut bytes, slot);
        bytes.push(action.0 as u8);
    }
    fnv(&bytes)
}

/// A plan as bytes for [`import_plan`], with the churn that it was made for; one action and one churn a slot.
pub fn export_plan(slots: &[Slot], actions: &[Action], churn: &Churn) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + slots.len() * SLOT + TAIL);
    bytes.extend(MAGIC);
    // A binding holds no more slots than fit.
    for number in [FORMAT, u32::try_from(slots.len()).unwrap_or(u32::MAX), churn.steps()] {
        bytes.extend(number.to_le_bytes());
    }
    for ((slot, action), moves) in slots.iter().zip(actions).zip(churn.moves()) {
        put_shape(&mut bytes, slot);
        bytes.extend([action.0 as u8, moves.0]);
    }
    bytes.extend(fnv(&bytes).to_le_bytes());
    bytes
}

/// The actions that `bytes` give `slots`, and the churn that they were chosen for.
///
/// # Errors
/// `InvalidArgument` where the bytes are no whole plan, `UnknownVersion` where their format is a newer one,
/// `PlanMismatch` where they are a plan of other slots, with the first slot that differs.
pub fn import_plan(slots: &[Slot], bytes: &[u8]) -> Result<(Vec<Action>, Churn)> {
    let (body, digest) = bytes.split_last_chunk::<TAIL>().ok_or(NO_PLAN)?;
    if !body.starts_with(MAGIC) || body.len() < HEAD {
        return Err(NO_PLAN);
    }
    if number(body, 8) != FORMAT {
        return Err(NEWER);
    }
    if fnv(body) != u64::from_le_bytes(*digest) {
        return Err(CHANGED);
    }
    let count = number(body, 12) as usize;
    if body.len() - HEAD != count.saturating_mul(SLOT) {
        return Err(NO_PLAN);
    }
    if count != slots.len() {
        return Err(OTHER_SLOTS);
    }
    let entries = body[HEAD..].chunks_exact(SLOT);
    let moves = entries.clone().map(|entry| Moves(entry[SLOT - 1])).collect();
    let entries = entries.zip(slots).enumerate();
    let actions = entries.map(|(i, (entry, slot))| action(slot, entry).map_err(|e| e.entry(i as u64)));
    Ok((actions.collect::<Result<_>>()?, Churn::new(moves, number(body, 16))))
}

/// The action of one slot's entry.
fn action(slot: &Slot, entry: &[u8]) -> Result<Action> {
    let mut shape = Vec::with_capacity(SLOT);
    put_shape(&mut shape, slot);
    if entry[..SHAPE] != shape[..] {
        return Err(OTHER_SLOTS);
    }
    let action = Action(u32::from(entry[SHAPE]));
    if may_be(slot, action) { Ok(action) } else { Err(FORBIDDEN) }
}

/// True where a plan may give a slot of this shape that action, whatever its memory and its executor.
fn may_be(slot: &Slot, action: Action) -> bool {
    let moves = !slot.flags.has(SlotFlags::REGISTERED) && !slot.brings_shadow();
    match action {
        Action::BAKE => !slot.brings_shadow(),
        Action::MAP => slot.may_map(),
        Action::COPY => slot.brings_shadow() || slot.may_copy(),
        Action::PATCH => moves,
        _ => false,
    }
}

fn put_shape(bytes: &mut Vec<u8>, slot: &Slot) {
    bytes.extend(slot.bytes.get().to_le_bytes());
    bytes.extend(slot.alignment.to_le_bytes());
    for number in [slot.direction.0, slot.flags.0, slot.space.0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.push(u8::from(slot.brings_shadow()));
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

const fn refused(kind: Kind, hint: &'static str) -> Error {
    Error::new(kind, Operation::Bind, hint)
}

const NO_PLAN: Error =
    refused(Kind::InvalidArgument, "these bytes are no whole plan: give all that export gave");
const CHANGED: Error =
    refused(Kind::InvalidArgument, "these bytes were changed on their way: send the plan again");
const FORBIDDEN: Error = refused(Kind::InvalidArgument, "the plan has an action that this slot cannot have");
const NEWER: Error =
    refused(Kind::UnknownVersion, "a newer library wrote this plan: use one version on all ranks");
const OTHER_SLOTS: Error = refused(
    Kind::PlanMismatch,
    "the plan is for other slots: give all ranks the same slots in the same order",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rebind::slot::Direction;
    use crate::units::{ByteSize, DevicePtr};

    fn slots() -> Vec<Slot> {
        let mut own = Slot::new(ByteSize(64));
        own.shadow_address = DevicePtr(1 << 20);
        let registered = Slot::new(ByteSize(9)).flags(SlotFlags::REGISTERED);
        vec![Slot::new(ByteSize(4)), Slot::new(ByteSize(1 << 40)).direction(Direction::OUT), own, registered]
    }

    const ACTIONS: [Action; 4] = [Action::PATCH, Action::MAP, Action::COPY, Action::BAKE];

    fn churn() -> Churn {
        Churn::new([1, 2, 3, 0].map(Moves).to_vec(), 2)
    }

    fn export(actions: &[Action]) -> Vec<u8> {
        export_plan(&slots(), actions, &churn())
    }

    fn kind(result: Result<(Vec<Action>, Churn)>) -> (Kind, Option<u64>) {
        let e = result.expect_err("it is not that plan");
        (e.kind, e.entry)
    }

    #[test]
    fn what_is_exported_can_be_imported() {
        assert_eq!(import_plan(&slots(), &export(&ACTIONS)), Ok((ACTIONS.to_vec(), churn())));
        let nothing = Churn::new(vec![], 0);
        assert_eq!(import_plan(&[], &export_plan(&[], &[], &nothing)), Ok((vec![], nothing)));
    }

    /// It must not change: other versions of the library compare it.
    #[test]
    fn the_digest_is_the_same_everywhere() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(plan_digest(&slots(), &ACTIONS), 0xfee7_a9bb_c5e2_becd);
    }

    #[test]
    fn another_shadow_address_is_the_same_plan_and_another_shape_is_not() {
        let mut others = slots();
        others[2].shadow_address = DevicePtr(2 << 20);
        assert_eq!(plan_digest(&others, &ACTIONS), plan_digest(&slots(), &ACTIONS));
        let bytes = export(&ACTIONS);
        let changes: [fn(&mut Slot); 6] = [
            |slot| slot.bytes = ByteSize(5),
            |slot| slot.alignment = 512,
            |slot| slot.direction = Direction::IN,
            |slot| slot.flags = SlotFlags::FOREIGN,
            |slot| slot.space.0 = 1,
            |slot| slot.shadow_address = DevicePtr(64),
        ];
        for change in changes {
            let mut others = slots();
            change(&mut others[0]);
            assert_ne!(plan_digest(&others, &ACTIONS), plan_digest(&slots(), &ACTIONS));
            assert_eq!(kind(import_plan(&others, &bytes)), (Kind::PlanMismatch, Some(0)));
        }
        assert_eq!(kind(import_plan(&slots()[1..], &bytes)), (Kind::PlanMismatch, None));
    }

    #[test]
    fn every_changed_byte_and_every_lost_one_is_seen() {
        let bytes = export(&ACTIONS);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let kind = kind(import_plan(&slots(), &changed)).0;
            let wanted = if (8..12).contains(&at) { Kind::UnknownVersion } else { Kind::InvalidArgument };
            assert_eq!(kind, wanted, "byte {at}");
            assert_eq!(self::kind(import_plan(&slots(), &bytes[..at])).0, Kind::InvalidArgument);
        }
    }

    #[test]
    fn an_action_that_a_slot_cannot_have_is_refused() {
        for (i, action) in [
            (0, Action(4)),
            (2, Action::BAKE),
            (2, Action::PATCH),
            (2, Action::MAP),
            (3, Action::COPY),
            (3, Action::PATCH),
        ] {
            let mut actions = ACTIONS;
            actions[i] = action;
            let bytes = export(&actions);
            assert_eq!(
                kind(import_plan(&slots(), &bytes)),
                (Kind::InvalidArgument, Some(i as u64)),
                "{action:?}"
            );
        }
    }
}
