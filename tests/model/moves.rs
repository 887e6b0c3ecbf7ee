//! What a test may do, at random.

use gvmm::driver::{Access, AccessMode, Ordinal};
use proptest::prelude::*;

/// Granules of a reservation.
pub(crate) const ROOM: u64 = 8;

/// What a test may do. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Reserve,
    Destroy(usize),
    CreateBlock(u64),
    DropBlock(usize),
    Map(usize, u64, usize),
    Unmap(usize, u64, u64),
    Remap(Vec<(usize, u64, Option<usize>)>),
    /// Puts other blocks, mostly of the same size, in the place of mappings of one reservation.
    Swap(usize, Vec<(usize, usize)>),
    Retire(Vec<(usize, u64)>),
    SetAccess(usize, u64, u64, usize),
    Collect,
    Drain,
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let at = 0..ROOM + 1;
    let place = (any::<prop::sample::Index>(), at.clone(), prop::option::weighted(0.75, 0..100_usize));
    let place = place.prop_map(|(r, at, block)| (r.index(1000), at, block));
    prop_oneof![
        1 => Just(Op::Reserve),
        1 => (0..100_usize).prop_map(Op::Destroy),
        2 => (1..4_u64).prop_map(Op::CreateBlock),
        1 => (0..100_usize).prop_map(Op::DropBlock),
        4 => (0..100_usize, at.clone(), 0..100_usize).prop_map(|(r, at, b)| Op::Map(r, at, b)),
        2 => (0..100_usize, at.clone(), 1..5_u64).prop_map(|(r, at, n)| Op::Unmap(r, at, n)),
        10 => prop::collection::vec(place, 1..7).prop_map(Op::Remap),
        8 => (0..100_usize, prop::collection::vec((0..ROOM as usize, 0..100_usize), 1..5))
            .prop_map(|(r, picks)| Op::Swap(r, picks)),
        4 => prop::collection::vec((0..100_usize, at.clone()), 1..3).prop_map(Op::Retire),
        3 => (0..100_usize, at, prop_oneof![Just(ROOM), 1..4_u64], 0..4_usize)
            .prop_map(|(r, at, n, list)| Op::SetAccess(r, if n == ROOM { 0 } else { at }, n, list)),
        1 => Just(Op::Collect),
        1 => Just(Op::Drain),
    ]
}

pub(crate) fn lists() -> [Vec<Access>; 4] {
    let own = Access { device: Ordinal(0), mode: AccessMode::READ_WRITE };
    let peer = Access { device: Ordinal(1), mode: AccessMode::READ };
    let read = Access { device: Ordinal(0), mode: AccessMode::READ };
    [vec![own], vec![own, peer], vec![read], vec![peer]]
}
