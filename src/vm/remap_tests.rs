//! The planner against small pictures of books and entries. One granule is one byte here.

use super::super::plan::{Place, StrayAt};
use super::*;
use crate::driver::{Access, AccessMode, NativeBlock, Ordinal};
use crate::units::DevicePtr;

const SHAPE: Shape = Shape { ranged: true, joined: true, single: true, aliasing: true, own: Ordinal(0) };
const START: u64 = 0x1000;

fn own() -> List {
    List::of(&[Access { device: Ordinal(0), mode: AccessMode::READ_WRITE }])
}

fn both() -> List {
    let peer = Access { device: Ordinal(1), mode: AccessMode::READ };
    List::of(&[Access { device: Ordinal(0), mode: AccessMode::READ_WRITE }, peer])
}

fn place(number: u64) -> Place {
    let range = DeviceRange::new(DevicePtr(START * (number + 1)), ByteSize(0x100)).expect("a range");
    Place { range, list: own() }
}

fn block(id: u64, size: u64) -> WantBlock {
    WantBlock { id: BlockId(id), native: NativeBlock(id + 100), size, places: 0 }
}

fn mapped(id: u64, size: u64) -> WantBlock {
    WantBlock { places: 1, ..block(id, size) }
}

fn want(offset: u64, block: Option<WantBlock>) -> Want {
    Want { place: 0, offset, block, entry: Entry::new(offset as u32) }
}

fn held(offset: u64, block: WantBlock, state: HeldState) -> Held {
    let applied = if state == HeldState::Lost { List::NOTHING } else { own() };
    Held { place: 0, offset, block: WantBlock { places: 1, ..block }, state, applied, custom: None }
}

fn live(offset: u64, block: WantBlock) -> Held {
    held(offset, block, HeldState::Live)
}

fn run_in(shape: Shape, mode: Mode, wants: &[Want], held: &[Held]) -> Result<Plan> {
    plan(&Snapshot { mode, shape, places: &[place(0), place(1)], wants, held, strays: &[] })
}

fn run(wants: &[Want], held: &[Held]) -> Result<Plan> {
    run_in(SHAPE, Mode::Remap, wants, held)
}

/// The steps as words: `-offset`, `+offset:block` (known by its handle), `=offset..end`.
fn words(plan: &Plan) -> Vec<String> {
    let word = |step: &Step| {
        let (place, offset, size) = (step.place, step.offset, step.range.size().get());
        assert_eq!(step.range.start().get(), START * u64::from(place + 1) + offset);
        match &step.action {
            Action::Unmap { .. } => format!("-{offset}"),
            Action::Map { native, .. } => format!("+{offset}:{}", native.0 - 100),
            Action::Access { .. } => format!("={offset}..{}", offset + size),
        }
    };
    plan.steps.iter().map(word).collect()
}

fn kind(result: Result<Plan>) -> (Kind, Option<u64>) {
    let error = result.expect_err("a failure");
    (error.kind, error.entry)
}

#[test]
fn all_unmaps_come_first_and_access_is_joined() {
    let wants = [want(0, Some(block(3, 4))), want(4, Some(block(4, 4))), want(12, Some(block(5, 4)))];
    let plan = run(&wants, &[live(0, block(1, 4)), live(4, block(2, 4))]).expect("a plan");
    assert_eq!(words(&plan), ["-0", "-4", "+0:3", "+4:4", "+12:5", "=0..8", "=12..16"]);
    assert!(plan.waits);
}

#[test]
fn what_holds_the_same_block_is_skipped_and_another_block_of_that_address_is_not() {
    let plan = run(&[want(0, Some(block(1, 4)))], &[live(0, block(1, 4))]).expect("a plan");
    assert_eq!((words(&plan).len(), plan.skipped, plan.waits), (0, 1, false));
    // The same native handle, another allocation: the trap of comparing anything but ids.
    let other = WantBlock { id: BlockId(2), ..block(1, 4) };
    let plan = run(&[want(0, Some(other))], &[live(0, block(1, 4))]).expect("a plan");
    assert_eq!(words(&plan), ["-0", "+0:1", "=0..4"]);
}

#[test]
fn nothing_to_unmap_is_nothing_to_wait_for() {
    let plan = run(&[want(8, Some(block(1, 4))), want(20, None)], &[]).expect("a plan");
    assert_eq!(words(&plan), ["+8:1", "=8..12"]);
    assert_eq!((plan.waits, plan.skipped), (false, 1));
}

#[test]
fn a_mapping_without_access_gets_it_and_an_undo_takes_it_back() {
    let bare = Held { applied: List::NOTHING, ..live(0, block(1, 4)) };
    let plan = run(&[want(0, Some(block(1, 4)))], &[bare]).expect("a plan");
    assert_eq!(words(&plan), ["=0..4"]);
    let Action::Access { back, .. } = &plan.steps[0].action else { panic!("{plan:?}") };
    assert_eq!(plan.backs(*back)[0].call[..], [Access { device: Ordinal(0), mode: AccessMode::NONE }]);
}

#[test]
fn an_override_stays_with_its_mapping_and_goes_with_its_unmapping() {
    let custom = Held { applied: both(), custom: Some(both()), ..live(0, block(1, 4)) };
    let plan = run(&[want(0, Some(block(1, 4)))], std::slice::from_ref(&custom)).expect("a plan");
    assert_eq!(plan.skipped, 1);
    let plan = run(&[want(0, Some(block(2, 4)))], &[custom]).expect("a plan");
    let Some(Step { action: Action::Access { call, .. }, .. }) = plan.steps.last() else {
        panic!("{plan:?}")
    };
    assert_eq!(*call, own());
    let Action::Unmap { why: Why::Replaced { restore }, .. } = &plan.steps[0].action else {
        panic!("{plan:?}")
    };
    assert_eq!(*restore, both());
}

#[test]
fn the_final_state_must_not_overlap() {
    let wants = [want(0, Some(block(1, 8))), want(4, Some(block(2, 4)))];
    assert_eq!(kind(run(&wants, &[])), (Kind::AlreadyMapped, Some(4)));
    // A larger block over a neighbour that stays, and over one that goes in the same call.
    let neighbour = live(4, block(9, 4));
    let grown = want(0, Some(block(1, 8)));
    assert_eq!(kind(run(&[grown], std::slice::from_ref(&neighbour))), (Kind::AlreadyMapped, Some(0)));
    let plan = run(&[grown, want(4, None)], &[neighbour]).expect("a plan");
    assert_eq!(words(&plan), ["-4", "+0:1", "=0..8"]);
    // Into the middle of a mapping that starts before.
    let before = live(0, block(9, 8));
    assert_eq!(
        kind(run(&[want(4, Some(block(1, 4)))], std::slice::from_ref(&before))),
        (Kind::AlreadyMapped, Some(4))
    );
    assert_eq!(kind(run(&[want(4, None)], &[before])), (Kind::PartialMapping, Some(4)));
}

#[test]
fn a_retired_mapping_comes_back_or_makes_room() {
    let retired = held(0, block(1, 4), HeldState::Retired);
    let plan = run(&[want(0, Some(block(1, 4)))], std::slice::from_ref(&retired)).expect("a plan");
    assert_eq!((words(&plan).len(), &plan.revived[..], plan.skipped), (0, &[(0, 0)][..], 1));
    let plan = run(&[want(0, Some(block(2, 4)))], std::slice::from_ref(&retired)).expect("a plan");
    assert_eq!(words(&plan), ["-0", "+0:2", "=0..4"]);
    assert!(!plan.waits, "it has its own marks");
    // Covered from before or from inside.
    let retired = held(4, block(1, 4), HeldState::Retired);
    let plan = run(&[want(0, Some(block(2, 6)))], std::slice::from_ref(&retired)).expect("a plan");
    assert_eq!(words(&plan), ["-4", "+0:2", "=0..6"]);
    let plan = run(&[want(6, Some(block(2, 6)))], std::slice::from_ref(&retired)).expect("a plan");
    assert_eq!(words(&plan), ["-4", "+6:2", "=6..12"]);
    // Named without a block, and covered from before.
    let plan =
        run(&[want(2, Some(block(2, 6))), want(4, None)], std::slice::from_ref(&retired)).expect("a plan");
    assert_eq!(words(&plan), ["-4", "+2:2", "=2..8"]);
    // Not named with a block: it goes by itself.
    let plan = run(&[want(4, None)], &[retired]).expect("a plan");
    assert_eq!((words(&plan).len(), plan.skipped), (0, 1));
}

#[test]
fn a_retired_mapping_with_another_access_comes_back_and_is_set() {
    let retired = Held { applied: both(), ..held(0, block(1, 4), HeldState::Retired) };
    let plan = run(&[want(0, Some(block(1, 4)))], std::slice::from_ref(&retired)).expect("a plan");
    assert_eq!((words(&plan), plan.revived.len()), (vec!["=0..4".to_owned()], 1));
    // A plain map sets nothing, so it takes only what already is as the list says.
    let plan = run_in(SHAPE, Mode::Map, &[want(0, Some(block(1, 4)))], &[retired]).expect("a plan");
    assert_eq!(words(&plan), ["-0", "+0:1"]);
}

#[test]
fn what_is_lost_is_rebuilt_given_up_or_replaced() {
    let lost = Held { custom: Some(both()), ..held(0, block(1, 4), HeldState::Lost) };
    let other = want(8, Some(block(2, 4)));
    let plan = run(&[other], std::slice::from_ref(&lost)).expect("a plan");
    assert_eq!(words(&plan), ["+0:1", "+8:2", "=0..4", "=8..12"]);
    let Action::Access { call, .. } = &plan.steps[2].action else { panic!("{plan:?}") };
    assert_eq!(*call, both(), "the override is rebuilt too");
    let plan = run(&[want(0, None)], std::slice::from_ref(&lost)).expect("a plan");
    assert_eq!((words(&plan).len(), plan.forgotten.len()), (0, 1));
    let plan = run(&[want(0, Some(block(2, 4)))], std::slice::from_ref(&lost)).expect("a plan");
    assert_eq!((words(&plan), plan.forgotten.len()), (vec!["+0:2".to_owned(), "=0..4".to_owned()], 1));
    let over = want(2, Some(block(2, 4)));
    assert_eq!(kind(run(&[over], &[lost])), (Kind::AlreadyMapped, Some(2)));
}

#[test]
fn strays_go_first() {
    let stray = StrayAt { place: 0, offset: 0, block: mapped(7, 4), idle: true };
    let wants = [want(0, Some(block(1, 4)))];
    let places = [place(0)];
    let mode = Mode::Remap;
    let mut snapshot =
        Snapshot { mode, shape: SHAPE, places: &places, wants: &wants, held: &[], strays: &[stray] };
    let plan_idle = plan(&snapshot).expect("a plan");
    assert_eq!(
        (words(&plan_idle), plan_idle.waits),
        (vec!["-0".into(), "+0:1".into(), "=0..4".into()], false)
    );
    let busy = [StrayAt { idle: false, ..stray }];
    snapshot.strays = &busy;
    assert!(plan(&snapshot).expect("a plan").waits);
}

#[test]
fn without_aliasing_a_block_leaves_its_old_place_first() {
    let shape = Shape { aliasing: false, ..SHAPE };
    let go = |wants: &[Want], held: &[Held]| run_in(shape, Mode::Remap, wants, held);
    let (a, b) = (mapped(1, 4), mapped(2, 4));
    let books = [live(0, a), live(4, b)];
    let swap = [want(0, Some(b)), want(4, Some(a))];
    assert_eq!(words(&go(&swap, &books).expect("a plan")), ["-0", "-4", "+0:2", "+4:1", "=0..8"]);
    assert_eq!(kind(go(&[want(8, Some(a))], &books)), (Kind::Unsupported, Some(8)));
    assert!(go(&[want(0, None), want(8, Some(a))], &books).is_ok());
    let twice = [want(8, Some(block(5, 4))), want(12, Some(block(5, 4)))];
    assert_eq!(kind(go(&twice, &[])), (Kind::Unsupported, Some(12)));
    assert!(run(&twice, &[]).is_ok(), "with aliasing it may");
}

#[test]
fn access_follows_the_capabilities() {
    let wants = [want(0, Some(block(1, 4))), want(4, Some(block(2, 4))), want(12, Some(block(3, 4)))];
    let single = run_in(Shape { joined: false, ..SHAPE }, Mode::Remap, &wants, &[]).expect("a plan");
    assert_eq!(words(&single)[3..], ["=0..4", "=4..8", "=12..16"]);
    let whole = run_in(Shape { ranged: false, ..SHAPE }, Mode::Remap, &wants, &[]).expect("a plan");
    assert_eq!(words(&whole)[3..], ["=0..256"]);
}

#[test]
fn neighbours_with_different_calls_are_set_apart() {
    let wider = Held { applied: both(), ..live(4, block(2, 4)) };
    let wants = [want(0, Some(block(1, 4))), want(4, Some(block(2, 4))), want(8, Some(block(3, 4)))];
    let plan = run(&wants, &[wider]).expect("a plan");
    assert_eq!(words(&plan)[2..], ["=0..4", "=4..8", "=8..12"]);
}

#[test]
fn several_reservations_are_planned_in_order() {
    let second = |w: Want| Want { place: 1, entry: Entry::new(w.entry.index() as u32 + 1000), ..w };
    let wants = [want(0, Some(block(1, 4))), second(want(0, Some(block(2, 4)))), second(want(4, None))];
    let books = [live(0, block(8, 4)), Held { place: 1, ..live(4, block(9, 4)) }];
    let plan = run(&wants, &books).expect("a plan");
    assert_eq!(words(&plan), ["-0", "-4", "+0:1", "+0:2", "=0..4", "=0..4"]);
    assert_eq!(plan.steps.iter().map(|s| s.place).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
}

#[test]
fn a_plain_map_wants_its_place_empty() {
    let go = |wants: &[Want], held: &[Held]| run_in(SHAPE, Mode::Map, wants, held);
    assert_eq!(words(&go(&[want(0, Some(block(1, 4)))], &[]).expect("a plan")), ["+0:1"]);
    for state in [HeldState::Live, HeldState::Lost] {
        let there = held(0, block(2, 4), state);
        assert_eq!(kind(go(&[want(0, Some(block(1, 4)))], &[there])).0, Kind::AlreadyMapped);
    }
    let same = live(0, block(1, 4));
    assert_eq!(kind(go(&[want(0, Some(block(1, 4)))], &[same])).0, Kind::AlreadyMapped);
    let lost = held(0, block(1, 4), HeldState::Lost);
    assert_eq!(words(&go(&[want(0, Some(block(1, 4)))], &[lost]).expect("a plan")), ["+0:1"]);
}
