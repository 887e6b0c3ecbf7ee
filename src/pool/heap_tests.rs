use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const CHUNK: u32 = 16;

/// Walks the books and checks what must hold; gives the units that are live.
fn check(heap: &mut Heap) -> u64 {
    let (mut at, mut live, mut free, mut last) = (0, 0, 0, None);
    for piece in heap.pieces() {
        assert_eq!(piece.start, at, "pieces lie side by side");
        assert!(piece.size > 0);
        let bare = matches!(piece.state, State::Hole | State::Cooling | State::HeldHole);
        if bare {
            assert!(piece.start.is_multiple_of(CHUNK) && piece.size.is_multiple_of(CHUNK));
        } else {
            live += u64::from(piece.size);
        }
        if piece.state == State::Free {
            free += u64::from(piece.size);
        }
        let joins = matches!(piece.state, State::Free | State::Hole);
        assert!(!joins || last != Some(piece.state), "equal neighbours are joined");
        last = Some(piece.state);
        at += piece.size;
    }
    assert_eq!(free, heap.free_units());
    live
}

#[derive(Clone, Debug)]
enum Act {
    Alloc(u32),
    Fail(u32),
    Free(prop::sample::Index),
    Take(usize),
    Cool,
    Return,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1_u32..60).prop_map(Act::Alloc),
        1 => (1_u32..60).prop_map(Act::Fail),
        4 => any::<prop::sample::Index>().prop_map(Act::Free),
        1 => (1_usize..4).prop_map(Act::Take),
        1 => Just(Act::Cool),
        1 => Just(Act::Return),
    ]
}

/// The least number of missing chunks over every possible start, slowly.
fn fewest(heap: &mut Heap, units: u32) -> Option<u32> {
    let mut state = Vec::new();
    for piece in heap.pieces() {
        state.extend(std::iter::repeat_n(piece.state, piece.size as usize));
    }
    let open = |s: &State| matches!(s, State::Free | State::Hole);
    (0..=state.len().checked_sub(units as usize)?)
        .filter(|at| state[*at..*at + units as usize].iter().all(open))
        .map(|at| {
            let holes = (at..at + units as usize).filter(|u| state[*u] == State::Hole);
            holes.map(|u| u as u32 / CHUNK).collect::<std::collections::BTreeSet<_>>().len() as u32
        })
        .min()
}

proptest! {
    #[test]
    fn random_acts_keep_the_books_whole(acts in prop::collection::vec(act(), 1..120)) {
        let mut heap = Heap::new(24, CHUNK, true);
        let mut blocks: BTreeMap<u32, u32> = BTreeMap::new();
        let mut cooling: Vec<Range<u32>> = Vec::new();
        for act in acts {
            match act {
                Act::Alloc(units) => {
                    let best = fewest(&mut heap, units);
                    let start = match heap.alloc(units, 0) {
                        Some(start) => { prop_assert_eq!(best, Some(0)); start }
                        None => match heap.hold(units) {
                            Some(held) => {
                                check(&mut heap);
                                prop_assert_eq!(Some(held.missing.len() as u32), best);
                                heap.commit(&held, 0)
                            }
                            None => { prop_assert_eq!(best, None); continue }
                        },
                    };
                    let after = blocks.range(start..).next().map_or(u32::MAX, |(s, _)| *s);
                    let before = blocks.range(..start).next_back().map_or(0, |(s, n)| s + n);
                    prop_assert!(before <= start && start + units <= after, "blocks do not overlap");
                    blocks.insert(start, units);
                }
                Act::Fail(units) => {
                    let before = heap.pieces();
                    if let Some(held) = heap.hold(units) {
                        heap.release(&held);
                        prop_assert_eq!(heap.pieces(), before);
                    }
                }
                Act::Free(pick) if !blocks.is_empty() => {
                    let (start, units) = blocks.iter().nth(pick.index(blocks.len())).map(|(s, n)| (*s, *n)).expect("one");
                    let i = heap.block_at(start).expect("in use");
                    prop_assert_eq!(heap.block_over(start + units - 1), Some(i));
                    heap.free(i);
                    prop_assert_eq!(heap.block_at(start), None);
                    blocks.remove(&start);
                }
                Act::Take(wanted) => {
                    for places in super::super::reclaim::choose(heap.whole_places(), wanted, |_| false) {
                        heap.take(places.clone());
                        cooling.push(places);
                    }
                }
                Act::Cool => cooling.drain(..).for_each(|places| heap.end_cooling(places, false)),
                Act::Return => cooling.drain(..).for_each(|places| heap.end_cooling(places, true)),
                Act::Free(_) => {}
            }
            check(&mut heap);
            for (start, units) in &blocks {
                let piece = heap.block(heap.block_at(*start).expect("in use"));
                prop_assert_eq!((piece.size, piece.state), (*units, State::Used));
            }
        }
    }
}
