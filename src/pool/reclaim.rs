//! Which free chunks are lent: the cheapest first. Pure.

use std::ops::Range;

/// Picks at most `wanted` places out of free runs of whole places, and leaves out those that `pinned` names.
///
/// A short run goes first and whole: nothing that could still serve a long request is cut. Of the last one that is
/// needed, the end goes, since requests take the front.
pub(super) fn choose(
    mut runs: Vec<Range<u32>>,
    wanted: usize,
    pinned: impl Fn(u32) -> bool,
) -> Vec<Range<u32>> {
    runs.sort_unstable_by_key(|run| (run.end - run.start, std::cmp::Reverse(run.start)));
    let (mut picked, mut left) = (Vec::new(), wanted);
    for run in runs {
        let mut end = run.end;
        while left > 0 && end > run.start {
            // From the end: what is pinned is passed over.
            let top = (run.start..end).rev().find(|place| !pinned(*place));
            let Some(top) = top else { break };
            let free = (run.start..=top).rev().take(left).take_while(|place| !pinned(*place)).count();
            let from = top + 1 - free as u32;
            picked.push(from..top + 1);
            (left, end) = (left - free, from);
        }
        if left == 0 {
            break;
        }
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_runs_go_first_and_of_the_last_its_end() {
        assert_eq!(choose(vec![10..20, 0..2, 4..5], 4, |_| false), [4..5, 0..2, 19..20]);
        assert_eq!(choose(vec![10..20, 0..1], 4, |place| place == 18), [0..1, 19..20, 16..18]);
        assert_eq!(choose(vec![0..2, 4..6], 9, |_| true), []);
    }

    proptest! {
        #[test]
        fn picks_are_free_not_pinned_disjoint_and_as_many_as_can_be(
            lengths in prop::collection::vec(1_u32..6, 0..12),
            wanted in 0_usize..30,
            odd in 2_u32..7,
        ) {
            let mut at = 0;
            let runs: Vec<_> = lengths.iter().map(|n| { at += n + 1; at - n..at }).collect();
            let pinned = |place: u32| place.is_multiple_of(odd);
            let free: Vec<u32> = runs.iter().cloned().flatten().filter(|p| !pinned(*p)).collect();
            let mut picked: Vec<u32> = choose(runs, wanted, pinned).into_iter().flatten().collect();
            picked.sort_unstable();
            prop_assert_eq!(picked.len(), wanted.min(free.len()));
            prop_assert!(picked.windows(2).all(|w| w[0] < w[1]));
            prop_assert!(picked.iter().all(|p| free.contains(p)));
        }
    }
}
