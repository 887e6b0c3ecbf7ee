//! What overlaps is found, whatever the order of the steps.

use super::*;
use proptest::prelude::*;

fn range(start: u64, bytes: u64) -> DeviceRange {
    DeviceRange::new(DevicePtr(start), ByteSize(bytes)).expect("a range")
}

fn overlap(shadows: &[(u64, u64)]) -> Overlap {
    Overlap::new(16, 16, shadows.iter().map(|&(start, bytes)| range(start, bytes)).collect())
}

fn step(o: &mut Overlap, changed: &[(u32, u64, u64)]) -> Result<(), u32> {
    step_with(o, changed, &mut [NONE; 7])
}

/// With hints by where buffers start, some of which are wrong.
fn step_with(o: &mut Overlap, changed: &[(u32, u64, u64)], hints: &mut [u32]) -> Result<(), u32> {
    o.start();
    for &(slot, start, bytes) in changed {
        let at = (start % 8) as usize;
        assert!(o.look(slot, DevicePtr(start), ByteSize(bytes), true, hints.get_mut(at)));
    }
    o.check().inspect(|()| o.accept())
}

#[test]
fn buffers_that_are_written_may_touch_and_no_more() {
    let mut o = overlap(&[]);
    assert_eq!(step(&mut o, &[(0, 100, 10), (1, 110, 10), (2, 90, 10)]), Ok(()));
    assert_eq!(step(&mut o, &[(3, 119, 1)]), Err(3));
    assert_eq!(step(&mut o, &[(3, 81, 10)]), Err(2), "the later one is named");
    assert_eq!(step(&mut o, &[(1, 100, 10), (0, 110, 10)]), Ok(()), "two swap");
    assert_eq!(step(&mut o, &[(1, 500, 10)]), Ok(()));
    assert_eq!(step(&mut o, &[(3, 100, 10)]), Ok(()), "where another was");
    assert_eq!(step(&mut o, &[(3, 100, 0), (4, 100, 10)]), Ok(()), "no bytes are in nobody's way");
}

#[test]
fn a_refused_check_leaves_no_trace() {
    let mut o = overlap(&[(1000, 100)]);
    assert_eq!(step(&mut o, &[(0, 100, 10), (1, 200, 10)]), Ok(()));
    assert_eq!(step(&mut o, &[(0, 300, 10), (1, 305, 10), (2, 1000, 1)]), Err(1));
    assert!(!{
        o.start();
        o.is_mixed()
    });
    assert_eq!(step(&mut o, &[(2, 105, 1)]), Err(2));
    assert_eq!(step(&mut o, &[(2, 305, 1)]), Ok(()));
}

#[test]
fn buffers_over_shadows_are_noticed_and_remembered() {
    let mut o = overlap(&[(2000, 10), (1000, 100)]);
    for (start, bytes, mixed) in
        [(990, 10, false), (1100, 900, false), (2010, 1, false), (2009, 1, true), (10, 10, true)]
    {
        assert_eq!(step(&mut o, &[(0, start, bytes)]), Ok(()));
        assert_eq!(o.is_mixed(), mixed, "{start}");
    }
    assert!(overlap(&[(100, 10), (109, 1)]).is_mixed(), "shadows over each other");
    let mut o = overlap(&[]);
    o.start();
    assert!(!o.look(0, DevicePtr(u64::MAX), ByteSize(2), false, None));
}

#[test]
fn no_more_is_remembered_than_has_room() {
    let mut o = Overlap::new(4, 2, Vec::new());
    for turn in 1..100 {
        assert_eq!(step(&mut o, &[(0, turn * 100, 10), (3, turn * 100 + 50, 10)]), Ok(()));
        assert_eq!(step(&mut o, &[(0, turn * 100 + 50, 10), (3, turn * 100, 10)]), Ok(()), "both are known");
        assert!(o.strangers.is_empty() && o.order.len() <= o.most && o.known.len() <= o.most);
        assert!(o.order.is_sorted() && o.order.len() == o.known.len() - o.free.len());
    }
}

#[test]
fn the_number_of_checks_may_wrap() {
    let mut o = overlap(&[]);
    assert_eq!(step(&mut o, &[(0, 100, 10), (1, 200, 10)]), Ok(()));
    o.check = u32::MAX;
    assert!(step(&mut o, &[(0, 200, 10)]).is_err());
    assert_eq!(step(&mut o, &[(1, 100, 10), (0, 200, 10)]), Ok(()));
}

proptest! {
    #[test]
    fn it_agrees_with_a_plain_search(
        steps in prop::collection::vec(prop::collection::btree_map(0u32..16, (1u64..200, 0u64..12), 0..8), 1..12),
        far in prop_oneof![3 => Just(0), 1 => Just(u64::MAX - 300)],
    ) {
        let mut o = overlap(&[]);
        let mut plain: std::collections::BTreeMap<u32, (u64, u64)> = Default::default();
        let mut hints = [NONE; 7];
        for mut changed in steps {
            changed.values_mut().filter(|(start, _)| start % 3 == 0).for_each(|(start, _)| *start += far);
            let mut after = plain.clone();
            after.extend(changed.iter());
            let meets = |(i, a): (&u32, &(u64, u64))| {
                after.iter().any(|(j, b)| i != j && a.1 > 0 && b.1 > 0 && a.0 < b.0 + b.1 && b.0 < a.0 + a.1)
            };
            let clashes: Vec<u32> = after.iter().filter(|x| meets(*x)).map(|(i, _)| *i).collect();
            let list: Vec<_> = changed.iter().map(|(i, (start, bytes))| (*i, *start, *bytes)).collect();
            match step_with(&mut o, &list, &mut hints) {
                Ok(()) => {
                    prop_assert!(clashes.is_empty());
                    plain = after;
                }
                Err(slot) => prop_assert!(clashes.contains(&slot)),
            }
        }
    }
}
