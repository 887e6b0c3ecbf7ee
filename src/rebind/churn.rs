//! Which slots' buffers change, seen in the first steps of a binding. Pure: it is told what each step used.

use super::buffers::Buffer;

/// How many steps are watched unless told otherwise: the recordings have rhythms of up to 4 steps, which 5 steps
/// show whole.
pub const DEFAULT_WATCHED_STEPS: u32 = 5;

/// How many steps may be watched: two whole rhythms, and the step before.
pub const MOST_WATCHED_STEPS: u32 = 9;

/// In which of the watched steps slots moved: bit `t` is the step after step `t`. The sets of slots that move
/// together are what decides about charges that many share, so these are kept, not only how many they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moves(pub u8);

impl Moves {
    /// Never seen to move.
    pub const NEVER: Self = Self(0);

    /// Those of one slot or the other.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// In how many steps.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// True where every step of these is one of `others`.
    pub const fn within(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }
}

/// What was seen of each slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Churn {
    steps: u32,
    moves: Vec<Moves>,
}

impl Churn {
    /// What is known from `moves` in `steps` steps after the first, at most 8.
    pub fn new(moves: Vec<Moves>, steps: u32) -> Self {
        let steps = steps.min(MOST_WATCHED_STEPS - 1);
        let seen = Moves(u8::MAX.checked_shr(8 - steps).unwrap_or(0));
        Self { steps, moves: moves.into_iter().map(|m| Moves(m.0 & seen.0)).collect() }
    }

    /// How many times a slot could have moved: one less than the steps that were watched.
    pub const fn steps(&self) -> u32 {
        self.steps
    }

    /// When each slot moved.
    pub fn moves(&self) -> &[Moves] {
        &self.moves
    }

    /// In how many of [`steps`](Self::steps) steps any of `slots` moved: how often they pay what they share.
    pub fn any(&self, slots: impl IntoIterator<Item = usize>) -> u32 {
        slots.into_iter().fold(Moves::NEVER, |all, i| all.or(self.moves[i])).count()
    }

    /// The least rhythm, up to 4 steps, in which everything that was seen repeats; none where nothing did.
    pub fn rhythm(&self) -> Option<u32> {
        let repeats = |moves: &Moves, every: u32| {
            let later = moves.0 >> every;
            let seen = u8::MAX.checked_shr(8 - (self.steps - every)).unwrap_or(0);
            (later ^ moves.0) & seen == 0
        };
        (1..=4)
            .filter(|&every| every < self.steps)
            .find(|&every| self.moves.iter().all(|m| repeats(m, every)))
    }
}

/// Watches the first steps of a binding.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    wanted: u32,
    seen: u32,
    last: Vec<Buffer>,
    moves: Vec<Moves>,
}

impl Watch {
    /// Watches `slots` slots for `steps` steps, at least 2 and at most [`MOST_WATCHED_STEPS`].
    pub(super) fn new(slots: usize, steps: u32) -> Self {
        let wanted = steps.clamp(2, MOST_WATCHED_STEPS);
        Self { wanted, seen: 0, last: vec![Buffer::default(); slots], moves: vec![Moves::NEVER; slots] }
    }

    /// Notes what a step used that has ended; one that did not begin, or was aborted, is not to be noted.
    pub(super) fn note(&mut self, buffer: impl Fn(usize) -> Buffer) {
        if self.is_over() {
            return;
        }
        for (i, last) in self.last.iter_mut().enumerate() {
            let now = buffer(i);
            // Without an id nobody knows: it is as if it had moved.
            let moved = now.id == 0 || now.id != last.id || now.address != last.address;
            if moved && self.seen > 0 {
                self.moves[i].0 |= 1 << (self.seen - 1);
            }
            *last = now;
        }
        self.seen += 1;
    }

    /// True once enough was seen.
    pub(super) const fn is_over(&self) -> bool {
        self.seen >= self.wanted
    }

    /// What was seen so far.
    pub(super) fn churn(&self) -> Churn {
        Churn::new(self.moves.clone(), self.seen.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{ByteSize, DevicePtr};

    /// A watch of steps that use these ids, one list a step.
    fn watch(wanted: u32, steps: &[&[u64]]) -> Watch {
        let mut watch = Watch::new(steps[0].len(), wanted);
        for ids in steps {
            watch.note(|i| Buffer {
                address: DevicePtr(ids[i] << 8),
                bytes: ByteSize(8),
                id: ids[i],
                has_block: true,
            });
        }
        watch
    }

    #[test]
    fn the_first_step_moves_nothing_and_each_later_one_is_a_bit() {
        let watch = watch(5, &[&[1, 9, 4], &[2, 9, 4], &[1, 9, 4], &[2, 9, 5], &[1, 9, 5]]);
        assert!(watch.is_over());
        let churn = watch.churn();
        assert_eq!((churn.moves(), churn.steps()), (&[Moves(0b1111), Moves(0), Moves(0b100)][..], 4));
        assert_eq!(churn.any([0, 2]), 4);
        assert_eq!(churn.any([1, 2]), 1);
        assert_eq!(churn.any([]), 0);
    }

    #[test]
    fn no_more_is_seen_than_was_asked_for() {
        let watch = watch(2, &[&[1], &[1], &[2]]);
        assert_eq!((watch.churn().moves(), watch.churn().steps()), (&[Moves(0)][..], 1));
        assert!(Watch::new(1, 0).churn() == Churn::new(vec![Moves(0)], 0));
        assert!(!Watch::new(1, 0).is_over());
    }

    #[test]
    fn an_unknown_allocation_always_moves_and_so_does_another_place_in_one() {
        assert_eq!(watch(3, &[&[0], &[0], &[0]]).churn().moves(), [Moves(0b11)]);
        let mut watch = Watch::new(1, 3);
        for address in [256, 256, 512] {
            watch.note(|_| Buffer { address: DevicePtr(address), id: 7, ..Buffer::default() });
        }
        assert_eq!(watch.churn().moves(), [Moves(0b10)]);
    }

    #[test]
    fn a_rhythm_is_the_least_that_all_slots_keep() {
        let rhythm =
            |moves: &[u8], steps| Churn::new(moves.iter().map(|&m| Moves(m)).collect(), steps).rhythm();
        assert_eq!(rhythm(&[0, 0b1111], 4), Some(1));
        assert_eq!(rhythm(&[0b0101_0101, 0b1111_1111], 8), Some(2));
        assert_eq!(rhythm(&[0b0101_0101, 0b0100_1001], 8), None);
        assert_eq!(rhythm(&[0b0001_0001], 8), Some(4));
        assert_eq!(rhythm(&[0b1], 1), None);
        assert_eq!(rhythm(&[], 0), None);
    }

    #[test]
    fn what_was_not_watched_is_not_believed() {
        assert_eq!(Churn::new(vec![Moves(0xff)], 2).moves(), [Moves(0b11)]);
        assert_eq!(Churn::new(vec![Moves(0xff)], 99).steps(), 8);
    }
}
