//! A slot: one buffer that a command buffer uses, as the caller describes it.

use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, DevicePtr, DeviceRange, Granularity};

/// Which way a slot's bytes go. A number, since a newer caller may know more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Direction(pub u32);

impl Direction {
    /// Read and written; the default.
    pub const IN_OUT: Self = Self(0);
    /// Only read: never copied back.
    pub const IN: Self = Self(1);
    /// Each launch writes every byte: never copied in.
    pub const OUT: Self = Self(2);

    /// True for the three that exist.
    pub const fn is_known(self) -> bool {
        self.0 <= Self::OUT.0
    }

    /// True where a launch may read what was there before.
    pub const fn reads(self) -> bool {
        self.0 != Self::OUT.0
    }

    /// True where a launch may write.
    pub const fn writes(self) -> bool {
        self.0 != Self::IN.0
    }
}

/// What is special about a slot, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SlotFlags(pub u32);

impl SlotFlags {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Registered with a collective: only the buffer's own address will do.
    pub const REGISTERED: Self = Self(1);
    /// Memory that we cannot map.
    pub const FOREIGN: Self = Self(2);
    /// Served at an address of ours that is made with the binding and never moves: copied in and out.
    pub const PERMANENT: Self = Self(4);

    /// True where every bit of `wanted` is set.
    pub const fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// True where no bit is unknown.
    pub const fn is_known(self) -> bool {
        self.0 & !(Self::REGISTERED.0 | Self::FOREIGN.0 | Self::PERMANENT.0) == 0
    }
}

/// Whose memory a slot's commands need. A number, since a newer caller may know more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MemorySpace(pub u32);

impl MemorySpace {
    /// The device's; the default.
    pub const DEVICE: Self = Self(0);
    /// The host's: never mapped and never copied.
    pub const HOST: Self = Self(1);

    /// True for the two that exist.
    pub const fn is_known(self) -> bool {
        self.0 <= Self::HOST.0
    }
}

/// How a slot is served. A number, since a newer library may know more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Action(pub u32);

impl Action {
    /// The buffer's own address; moving means to record again.
    pub const BAKE: Self = Self(0);
    /// An address of ours, remapped when the buffer changes.
    pub const MAP: Self = Self(1);
    /// A shadow, copied in and out.
    pub const COPY: Self = Self(2);
    /// The executor changes the address (not given out yet).
    pub const PATCH: Self = Self(3);
}

/// One buffer that a command buffer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slot {
    /// How many bytes the commands touch; at least 1.
    pub bytes: ByteSize,
    /// Which way they go.
    pub direction: Direction,
    /// What is special.
    pub flags: SlotFlags,
    /// What the address must be a multiple of, in bytes: a power of two, or 0 for the default of 256.
    pub alignment: u64,
    /// Whose memory the commands need.
    pub space: MemorySpace,
    /// A fixed address of the caller's that stands in for the buffer; NULL for none.
    pub shadow_address: DevicePtr,
}

/// The alignment of a shadow whose slot asks for none, in bytes.
pub(super) const DEFAULT_ALIGNMENT: Granularity = match Granularity::new(256) {
    Some(g) => g,
    None => unreachable!(),
};

/// Up to which alignment a slot is copied whatever its size, in bytes: a page.
const FREE_ALIGNMENT: u64 = 4096;

impl Slot {
    /// A device slot of `bytes`, in and out, with nothing special.
    pub const fn new(bytes: ByteSize) -> Self {
        Self {
            bytes,
            direction: Direction::IN_OUT,
            flags: SlotFlags::NONE,
            alignment: 0,
            space: MemorySpace::DEVICE,
            shadow_address: DevicePtr::NULL,
        }
    }

    /// The same, going only `direction`.
    pub const fn direction(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }

    /// The same, with `flags`.
    pub const fn flags(mut self, flags: SlotFlags) -> Self {
        self.flags = flags;
        self
    }

    /// What a window or a shadow of this slot is aligned to, in bytes.
    pub(super) const fn wanted_alignment(&self) -> Granularity {
        match Granularity::new(self.alignment) {
            Some(g) if g.size().get() > DEFAULT_ALIGNMENT.size().get() => g,
            _ => DEFAULT_ALIGNMENT,
        }
    }

    /// True where only the buffer's own address will do, whatever its size.
    pub(super) const fn must_stay(&self) -> bool {
        self.flags.has(SlotFlags::REGISTERED) || self.space.0 == MemorySpace::HOST.0
    }

    /// True where the slot is copied to an address that the caller brought.
    pub(super) const fn brings_shadow(&self) -> bool {
        !self.shadow_address.is_null()
    }

    /// True where a shadow of ours may stand in. One that must be aligned to much more than its size takes memory
    /// that no budget counts, so there is none for it.
    pub(super) const fn may_copy(&self) -> bool {
        let alignment = self.wanted_alignment().size().get();
        self.may_move() && (alignment <= FREE_ALIGNMENT || alignment <= self.bytes.get())
    }

    /// True where a window of ours may stand in, given memory that can be mapped.
    pub(super) const fn may_map(&self) -> bool {
        self.may_move() && !self.flags.has(SlotFlags::FOREIGN)
    }

    const fn may_move(&self) -> bool {
        !self.must_stay() && !self.brings_shadow()
    }
}

/// Checks every slot; the failure names the entry.
pub(super) fn validate(slots: &[Slot]) -> Result<()> {
    if u32::try_from(slots.len()).is_err() {
        return Err(fault(Kind::OutOfRange, "a binding holds at most 2^32 - 1 slots"));
    }
    for (i, slot) in slots.iter().enumerate() {
        validate_one(slot).map_err(|e| e.entry(i as u64))?;
    }
    validate_shadows(slots)
}

fn validate_one(slot: &Slot) -> Result<()> {
    if slot.bytes.is_zero() {
        return Err(fault(Kind::InvalidSize, "a slot needs at least one byte"));
    }
    if !slot.direction.is_known() {
        return Err(fault(Kind::InvalidArgument, "direction is in-and-out 0, in 1 or out 2"));
    }
    if !slot.flags.is_known() {
        return Err(fault(Kind::InvalidArgument, "flags are registered 1, foreign 2 and permanent 4"));
    }
    if !slot.space.is_known() {
        return Err(fault(Kind::InvalidArgument, "memory space is device 0 or host 1"));
    }
    if slot.alignment != 0 && !slot.alignment.is_power_of_two() {
        return Err(fault(Kind::Misaligned, "alignment is a power of two, or 0"));
    }
    if slot.flags.has(SlotFlags::PERMANENT) && (slot.must_stay() || slot.brings_shadow()) {
        let hint = "a permanent slot is not registered or host memory, and brings no shadow address";
        return Err(fault(Kind::InvalidArgument, hint));
    }
    if slot.brings_shadow() { validate_shadow(slot) } else { Ok(()) }
}

/// Checks the address that a slot brings.
fn validate_shadow(slot: &Slot) -> Result<()> {
    if slot.must_stay() {
        return Err(fault(
            Kind::InvalidArgument,
            "a registered or host slot cannot be copied: no shadow address",
        ));
    }
    if DeviceRange::new(slot.shadow_address, slot.bytes).is_none() {
        return Err(fault(Kind::OutOfRange, "the shadow passes the end of the addresses")
            .at(slot.shadow_address, slot.bytes));
    }
    // What the caller asked for, which may be less than our own shadows have.
    if Granularity::new(slot.alignment).is_none_or(|wanted| slot.shadow_address.is_aligned(wanted)) {
        return Ok(());
    }
    Err(fault(Kind::Misaligned, "the shadow address is not aligned as its slot asks")
        .at(slot.shadow_address, slot.bytes))
}

/// Checks that the addresses that slots bring do not overlap.
fn validate_shadows(slots: &[Slot]) -> Result<()> {
    let mut ranges: Vec<(DeviceRange, u64)> = (0u64..)
        .zip(slots)
        .filter(|(_, slot)| slot.brings_shadow())
        .filter_map(|(i, slot)| Some((DeviceRange::new(slot.shadow_address, slot.bytes)?, i)))
        .collect();
    ranges.sort_unstable();
    match ranges.windows(2).find(|pair| pair[0].0.overlaps(pair[1].0)) {
        Some(pair) => Err(fault(Kind::Overlap, "two slots bring shadows that overlap")
            .at(pair[1].0.start(), pair[1].0.size())
            .entry(pair[1].1)),
        None => Ok(()),
    }
}

fn fault(kind: Kind, hint: &'static str) -> Error {
    Error::new(kind, Operation::Bind, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Slot = Slot::new(ByteSize(64));

    fn kind(slots: &[Slot]) -> (Kind, Option<u64>) {
        let e = validate(slots).expect_err("a bad slot");
        (e.kind, e.entry)
    }

    #[test]
    fn bad_slots_are_named() {
        let cases = [
            (Slot::new(ByteSize::ZERO), Kind::InvalidSize),
            (BASE.direction(Direction(3)), Kind::InvalidArgument),
            (BASE.flags(SlotFlags(8)), Kind::InvalidArgument),
            (BASE.flags(SlotFlags(5)), Kind::InvalidArgument),
            (
                Slot { shadow_address: DevicePtr(64), ..BASE.flags(SlotFlags::PERMANENT) },
                Kind::InvalidArgument,
            ),
            (Slot { space: MemorySpace(2), ..BASE }, Kind::InvalidArgument),
            (Slot { alignment: 3, ..BASE }, Kind::Misaligned),
            (Slot { alignment: 128, shadow_address: DevicePtr(64), ..BASE }, Kind::Misaligned),
            (Slot { shadow_address: DevicePtr(u64::MAX), ..BASE }, Kind::OutOfRange),
            (Slot { shadow_address: DevicePtr(64), space: MemorySpace::HOST, ..BASE }, Kind::InvalidArgument),
            (
                Slot { shadow_address: DevicePtr(64), ..BASE.flags(SlotFlags::REGISTERED) },
                Kind::InvalidArgument,
            ),
        ];
        for (slot, expected) in cases {
            assert_eq!(kind(&[BASE, slot]), (expected, Some(1)), "{slot:?}");
        }
    }

    #[test]
    fn shadows_that_overlap_are_named() {
        let at = |address| Slot { shadow_address: DevicePtr(address), ..BASE };
        assert_eq!(validate(&[at(64), BASE, at(0x1000), at(128)]), Ok(()));
        assert_eq!(kind(&[at(127), BASE, at(0x1000), at(64)]), (Kind::Overlap, Some(0)));
    }

    #[test]
    fn a_shadow_that_the_caller_brings_has_the_alignment_asked_for_and_no_more() {
        let at = |alignment, address| Slot { alignment, shadow_address: DevicePtr(address), ..BASE };
        assert_eq!(validate(&[at(64, 64), at(0, 129), at(4096, 4096)]), Ok(()));
        assert_eq!(kind(&[at(512, 512), at(4096, 8192 + 512)]), (Kind::Misaligned, Some(1)));
    }

    #[test]
    fn no_slots_are_fine() {
        assert_eq!(validate(&[]), Ok(()));
    }

    #[test]
    fn alignment_is_256_unless_more_is_asked() {
        let of = |alignment| Slot { alignment, ..BASE }.wanted_alignment().size().get();
        assert_eq!([of(0), of(1), of(256), of(512)], [256, 256, 256, 512]);
    }
}
