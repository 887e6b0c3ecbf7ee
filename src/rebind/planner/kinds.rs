//! What slots cost, for all that are alike at once.

use super::Situation;
use crate::rebind::cost::Cost;
use crate::rebind::slot::Slot;
use crate::units::ByteSize;

/// What slots of one size and direction cost: worked out once, since most are like others.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) remap: Cost,
    pub(super) copy: Cost,
    pub(super) cold: Cost,
    pub(super) anew: Cost,
    pub(super) anew_copy: Cost,
}

impl Kind {
    fn new(situation: &Situation<'_>, slot: &Slot) -> Self {
        let (costs, one) = (situation.costs(), std::slice::from_ref(slot));
        let window = situation.granularity.round_up(slot.bytes).unwrap_or(ByteSize(u64::MAX));
        Self {
            remap: costs.remap(window),
            copy: costs.copy(slot),
            cold: costs.cold(one.iter()),
            anew: costs.anew(slot),
            anew_copy: costs.anew_copy(slot),
        }
    }
}

/// The kind of each slot.
pub(super) struct Kinds {
    known: Vec<Kind>,
    pub(super) of: Vec<u32>,
}

impl Kinds {
    pub(super) fn new(situation: &Situation<'_>) -> Self {
        let mut kinds = Self { known: Vec::new(), of: Vec::with_capacity(situation.slots.len()) };
        // The last kind of each hash: where two kinds share one, some are worked out again.
        let mut last = [None; 1024];
        for slot in situation.slots {
            let key = (slot.bytes, slot.direction);
            let mixed = (slot.bytes.get() << 2 ^ u64::from(key.1.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let kind = match &mut last[(mixed >> 54) as usize] {
                Some((known, kind)) if *known == key => *kind,
                other => {
                    let kind = kinds.known.len() as u32;
                    kinds.known.push(Kind::new(situation, slot));
                    *other = Some((key, kind));
                    kind
                }
            };
            kinds.of.push(kind);
        }
        kinds
    }

    pub(super) fn get(&self, i: usize) -> &Kind {
        &self.known[self.of[i] as usize]
    }

    /// The sum over these slots.
    pub(super) fn sum(&self, slots: impl Iterator<Item = usize>, part: impl Fn(&Kind) -> Cost) -> Cost {
        slots.fold(Cost::default(), |sum, i| sum.plus(part(self.get(i))))
    }
}
