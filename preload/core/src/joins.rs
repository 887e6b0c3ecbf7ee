//! Which set-access calls a program makes one after the other for each fresh mapping. What it did twice in the same way is
//! done at its first call the third time, for all of them together, and the calls that follow find it done. A call is
//! never put off: whatever the program does next, seen by us or not, finds at least the access that it asked for.

use crate::memory::Grant;

/// How often a sequence must have been the same before it is relied on.
const SURE: u32 = 2;
/// How many beginnings are remembered.
const MOST: usize = 64;

/// What follows a first call.
#[derive(Debug)]
struct Sequence {
    first: Vec<Grant>,
    /// The grants of all calls, as they came.
    all: Vec<Grant>,
    seen: u32,
    /// The mapping whose calls are being watched, and what they granted so far.
    open: Option<(u64, Vec<Grant>)>,
}

impl Sequence {
    fn close(&mut self) {
        let Some((_, all)) = self.open.take() else { return };
        if all == self.all {
            self.seen = self.seen.saturating_add(1);
        } else {
            (self.all, self.seen) = (all, 1);
        }
    }
}

/// What was learned.
#[derive(Debug, Default)]
pub struct Joins(Vec<Sequence>);

impl Joins {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The first call for a fresh mapping. What else will be asked for, where that is sure.
    pub fn first(&mut self, at: u64, list: &[Grant]) -> Vec<Grant> {
        if self.0.len() >= MOST && self.0.iter().all(|known| known.first != list) {
            self.0.remove(0);
        }
        let place = match self.0.iter().position(|known| known.first == list) {
            Some(place) => place,
            None => {
                self.0.push(Sequence { first: list.to_vec(), all: Vec::new(), seen: 0, open: None });
                self.0.len() - 1
            }
        };
        let known = &mut self.0[place];
        known.close();
        known.open = Some((at, list.to_vec()));
        if known.seen < SURE {
            return Vec::new();
        }
        known
            .all
            .iter()
            .filter(|grant| list.iter().all(|line| line.location != grant.location))
            .copied()
            .collect()
    }

    /// A later call for the same mapping.
    pub fn next(&mut self, at: u64, list: &[Grant]) {
        let open = |known: &&mut Sequence| known.open.as_ref().is_some_and(|(address, _)| *address == at);
        if let Some((_, all)) = self.0.iter_mut().find(open).and_then(|known| known.open.as_mut()) {
            all.extend_from_slice(list);
        }
    }

    /// What was relied on did not work: it is forgotten.
    pub fn forget(&mut self, at: u64) {
        self.0.retain(|known| known.open.as_ref().is_none_or(|(address, _)| *address != at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Location;

    fn to(id: i32) -> Vec<Grant> {
        vec![Grant { location: Location { kind: 1, id }, flags: 3 }]
    }

    fn play(joins: &mut Joins, at: u64, ids: &[i32]) -> usize {
        let ahead = joins.first(at, &to(ids[0])).len();
        ids[1..].iter().for_each(|&id| joins.next(at, &to(id)));
        ahead
    }

    #[test]
    fn what_was_the_same_twice_is_expected() {
        let mut joins = Joins::new();
        let ahead: Vec<_> = (0..4).map(|at| play(&mut joins, at, &[0, 1, 2])).collect();
        assert_eq!(ahead, [0, 0, 2, 2]);
        assert_eq!(play(&mut joins, 9, &[1, 0]), 0, "another beginning");
    }

    #[test]
    fn what_was_not_asked_for_is_not_expected_again() {
        let mut joins = Joins::new();
        (0..3).for_each(|at| assert!(play(&mut joins, at, &[0, 1]) < 2));
        assert_eq!(play(&mut joins, 3, &[0]), 1, "still expected");
        assert_eq!(play(&mut joins, 4, &[0]), 0, "no longer");
        assert_eq!(play(&mut joins, 5, &[0]), 0);
    }

    #[test]
    fn a_failure_is_forgotten() {
        let mut joins = Joins::new();
        (0..3).for_each(|at| assert!(play(&mut joins, at, &[0, 1]) < 2));
        joins.forget(2);
        assert_eq!(play(&mut joins, 3, &[0, 1]), 0);
    }
}
