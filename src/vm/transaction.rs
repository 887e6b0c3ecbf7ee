//! The executor: makes the driver calls of a plan, and takes them back when one fails. Undo is written here and
//! nowhere else.

use super::access::{List, Shape};
use super::calls::Calls;
use super::plan::{Action, Entry, Place, Plan, Step, Why};
use crate::error::Error;
use crate::units::{ByteSize, DeviceRange};

/// What a failed transaction left, for the books; everything not named is as before.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// How many steps had been made; what they unmapped for good stays unmapped.
    pub(crate) made: usize,
    /// Unmap steps that could not be taken back, and whether the driver holds the mapping all the same.
    pub(crate) lost: Vec<(usize, bool)>,
    /// Map steps that could not be taken back.
    pub(crate) strays: Vec<usize>,
    /// Parts of places whose access could not be taken back.
    pub(crate) unsettled: Vec<(u32, DeviceRange)>,
    /// Places where the whole reservation was given its list, where no part can be: mappings that had no access
    /// have it now, and whether that goes for those that were unmapped and are back.
    pub(crate) given: Vec<(u32, bool)>,
}

impl Failure {
    fn new(error: Error, made: usize) -> Self {
        let (lost, strays, unsettled, given) = Default::default();
        Self { error, made, lost, strays, unsettled, given }
    }
}

/// Makes all calls, or takes back those made.
pub(crate) fn run(calls: &Calls, shape: Shape, places: &[Place], plan: &Plan) -> Result<(), Box<Failure>> {
    let steps = plan.steps.iter().copied();
    make(calls, steps).map_err(|(made, error)| undo(calls, shape, places, plan, made, error))
}

/// Makes the calls up to the first that fails, and says which that is.
pub(crate) fn make(calls: &Calls, steps: impl Iterator<Item = Step>) -> Result<(), (usize, Error)> {
    let mut batch = calls.batch();
    for (i, step) in steps.enumerate() {
        let result = match &step.action {
            Action::Unmap { .. } => batch.unmap(step.range),
            Action::Map { native, .. } => batch.map(step.range, *native),
            Action::Access { call, .. } => batch.set_access(step.range, call),
        };
        result.map_err(|e| (i, Error { entry: step.entry.map(Entry::blame).or(e.entry), ..e }))?;
    }
    Ok(())
}

/// Takes back the calls `made`, after which came one that failed.
pub(crate) fn undo(
    calls: &Calls,
    shape: Shape,
    places: &[Place],
    plan: &Plan,
    made: usize,
    error: Error,
) -> Box<Failure> {
    let mut undo = Undo { calls, shape, places, plan, failure: Failure::new(error, made) };
    undo.run();
    Box::new(undo.failure)
}

struct Undo<'a> {
    calls: &'a Calls,
    shape: Shape,
    places: &'a [Place],
    plan: &'a Plan,
    failure: Failure,
}

/// Access to be restored over the mappings of some steps.
struct Restore {
    range: DeviceRange,
    list: List,
    steps: Vec<usize>,
}

impl Undo<'_> {
    fn run(&mut self) {
        let mut restored = Vec::new();
        for i in (0..self.failure.made).rev() {
            let step = &self.plan.steps[i];
            match &step.action {
                Action::Access { back, .. } => {
                    let back = self.plan.backs(*back);
                    if !self.shape.ranged && back.is_empty() {
                        self.failure.given.push((step.place, false));
                    }
                    for back in back {
                        if self.calls.set_access(back.range, &back.call).is_err() {
                            self.failure.unsettled.push((step.place, back.range));
                        }
                    }
                }
                Action::Map { .. } => {
                    if self.calls.unmap(step.range).is_err() {
                        self.failure.strays.push(i);
                    }
                }
                Action::Unmap { native, why: Why::Replaced { .. }, .. } => {
                    let over = |i: &usize| self.plan.steps[*i].range.overlaps(step.range);
                    let blocked = self.failure.strays.iter().any(over);
                    if blocked || self.calls.map(step.range, *native).is_err() {
                        self.failure.lost.push((i, false));
                    } else {
                        restored.push(i);
                    }
                }
                Action::Unmap { .. } => {}
            }
        }
        restored.reverse();
        for restore in self.restores(&restored) {
            if self.calls.set_access(restore.range, &restore.list).is_err() {
                self.lose(&restore.steps);
            } else if !self.shape.ranged {
                self.failure.given.extend(restore.steps.first().map(|i| (self.plan.steps[*i].place, true)));
            }
        }
    }

    /// The calls that give back their access to mappings that are back, joined as far as the device allows.
    fn restores(&self, restored: &[usize]) -> Vec<Restore> {
        let mut all: Vec<Restore> = Vec::new();
        for &i in restored {
            let step = &self.plan.steps[i];
            let Action::Unmap { why: Why::Replaced { restore: list }, .. } = step.action else {
                continue;
            };
            if list.is_empty() {
                continue;
            }
            let whole = self.places[step.place as usize].range;
            let range = if self.shape.ranged { step.range } else { whole };
            match all.last_mut() {
                Some(last) if !self.shape.ranged && last.range == whole => last.steps.push(i),
                Some(last) if self.joins(last, range, list, whole) => {
                    let size = ByteSize(last.range.size().get() + range.size().get());
                    last.range = DeviceRange::new(last.range.start(), size).unwrap_or(last.range);
                    last.steps.push(i);
                }
                _ => all.push(Restore { range, list, steps: vec![i] }),
            }
        }
        all
    }

    /// Neighbours of one reservation with one list. (Two reservations may lie side by side.)
    fn joins(&self, last: &Restore, range: DeviceRange, list: List, whole: DeviceRange) -> bool {
        self.shape.joined
            && last.range.end() == range.start()
            && whole.contains(last.range.start())
            && last.list == list
    }

    /// Mapped without access is of no use: it is unmapped, and rebuilt later.
    fn lose(&mut self, steps: &[usize]) {
        for &i in steps {
            let still_mapped = self.calls.unmap(self.plan.steps[i].range).is_err();
            self.failure.lost.push((i, still_mapped));
        }
    }
}
