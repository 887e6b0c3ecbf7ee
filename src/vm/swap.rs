//! The remap of most steps: each entry puts another block of the same size in a live mapping's place. One walk over
//! the books finds the mappings and plans; everything else is left to the planner.

use super::access::List;
use super::entries::{In, PlaceEntry};
use super::job::{self, Done};
use super::mapping::{Books, Mapping, State};
use super::plan::{Action, Changed, Entry, Place, Plan, Source, Step, Why};
use super::remap::push_access;
use super::shared::Shared;
use super::{Reservation, transaction};
use crate::error::Result;
use std::slice;

/// Carries the entries out, if they are of that sort; nothing has happened where not.
pub(crate) fn swap(
    shared: &Shared,
    reservation: &Reservation,
    entries: &mut [PlaceEntry],
) -> Option<Result<Done>> {
    let shape = shared.shape;
    // Else a block must leave its old place first, or access is not a mapping's own.
    if !shape.aliasing || !shape.ranged || !reservation.is_of(shared) {
        return None;
    }
    // Held across the driver calls: books and driver change together.
    let mut books = reservation.books();
    let place = Place { range: reservation.range(), list: books.list };
    let (mut found, plan, done) = plan(shared, place, &mut books, entries)?;
    match transaction::run(&shared.calls, shape, slice::from_ref(&place), &plan) {
        Ok(()) => {
            let context = reservation.context();
            for (mapping, entry) in found.iter_mut().zip(entries) {
                entry.block = entry.block.take().map(|block| mapping.exchange(context, block, place.list));
            }
            Some(Ok(done))
        }
        Err(failure) => {
            drop(found);
            let entries = &mut In { reservation, entries };
            let (error, garbage) = job::fail(shared, &[reservation], &mut [books], &plan, &failure, entries);
            drop(garbage);
            let result = Err(error);
            job::log_lost(&result);
            Some(result.map(|()| done))
        }
    }
}

/// The mappings that the entries name, in their order, and the driver calls.
fn plan<'a>(
    shared: &Shared,
    place: Place,
    books: &'a mut Books,
    entries: &[PlaceEntry],
) -> Option<(Vec<&'a mut Mapping>, Plan, Done)> {
    let found = find(shared, books, entries)?;
    let mut plan = Plan::default();
    plan.steps.reserve(3 * entries.len());
    let mut done = Done::default();
    for (i, (mapping, entry)) in found.iter().zip(entries).enumerate() {
        let (offset, native) = (entry.offset.get(), mapping.block.native());
        let range = place.range.slice(entry.offset, mapping.block.size())?;
        let why = Why::Replaced { restore: mapping.applied };
        let action = Action::Unmap { native, why, followed: true };
        plan.steps.push(Step { place: 0, offset, range, entry: Some(Entry::new(i as u32)), action });
        done.mapped += range.size().get();
    }
    done.unmapped = done.mapped;
    for (i, entry) in entries.iter().enumerate() {
        let native = entry.block.as_ref()?.native();
        let unmap = plan.steps[i];
        let source = Source::Entry(Entry::new(i as u32));
        plan.steps.push(Step { action: Action::Map { native, source, to: place.list }, ..unmap });
    }
    if let Some(call) = shared.shape.change(List::NOTHING, place.list) {
        for i in 0..entries.len() {
            let Step { offset, range, entry, .. } = plan.steps[i];
            let change = Changed { place: 0, offset, range, call, to: place.list, back: None, entry };
            push_access(shared.shape, place.range, &mut plan.steps, &mut plan.backs, change);
        }
    }
    Some((found, plan, done))
}

/// How many mappings are walked past for each that is named, before searching for each would cost less.
const WALK: usize = 16;

/// The live mappings that the entries name, if each is to hold another block of its size, and nothing else is to be
/// done in the reservation.
fn find<'a>(shared: &Shared, books: &'a mut Books, entries: &[PlaceEntry]) -> Option<Vec<&'a mut Mapping>> {
    if books.lost > 0 || !books.strays.is_empty() || u32::try_from(entries.len()).is_err() {
        return None;
    }
    let mut found = Vec::with_capacity(entries.len());
    let from = books.mappings.range_mut(entries.first()?.offset.get()..);
    let mut walk = from.take(entries.len().saturating_mul(WALK));
    for entry in entries {
        let (_, mapping) =
            walk.find(|(at, _)| **at >= entry.offset.get()).filter(|(at, _)| **at == entry.offset.get())?;
        let (block, held) = (entry.block.as_ref()?, &mapping.block);
        let alike = block.size() == held.size() && block.granularity() == held.granularity();
        let live = matches!(mapping.state, State::Live);
        if !live || !alike || block.id() == held.id() || !block.is_of(shared) {
            return None;
        }
        found.push(mapping);
    }
    Some(found)
}
