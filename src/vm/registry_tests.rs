//! The table of addresses, alone and with readers beside a writer.

use super::*;
use std::sync::atomic::AtomicBool;

const MIB2: u64 = 2 << 20;

fn registry() -> Registry {
    Registry::new(Granularity::new(MIB2).expect("a power of two"))
}

fn range(granule: u64, granules: u64) -> DeviceRange {
    DeviceRange::new(DevicePtr(granule * MIB2), ByteSize(granules * MIB2)).expect("a range")
}

#[test]
fn finds_every_granule_of_a_mapping_and_none_beside_it() {
    let r = registry();
    let cell = r.cell(BlockId(7));
    r.set_tag(cell, 99);
    let mapped = range(1000, 3);
    let entry = r.insert(mapped, cell);
    for offset in [0, 1, MIB2, 3 * MIB2 - 1] {
        let found = r.find(DevicePtr(mapped.start().get() + offset)).expect("mapped");
        assert_eq!((found.block, found.tag, found.offset), (BlockId(7), 99, ByteSize(offset)));
        assert_eq!((found.start, found.size), (mapped.start(), mapped.size()));
    }
    assert_eq!(r.find(DevicePtr(mapped.start().get() - 1)), None);
    assert_eq!(r.find(mapped.end()), None);
    r.remove(mapped, entry);
    assert_eq!(r.find(mapped.start()), None);
}

#[test]
fn large_mappings_sit_in_inner_slots_and_make_room_again() {
    let r = registry();
    let cell = r.cell(BlockId(1));
    let large = range(512 * 3 - 5, 512 * 4 + 10);
    let entry = r.insert(large, cell);
    for granule in [512 * 3 - 5, 512 * 3, 512 * 5 + 17, 512 * 7 + 4] {
        assert!(r.find(DevicePtr(granule * MIB2)).is_some(), "granule {granule}");
    }
    assert!(r.find(DevicePtr((512 * 7 + 5) * MIB2)).is_none());
    r.remove(large, entry);
    // Small ones where the large one was, then the large one again, now over nodes that exist.
    let small = range(512 * 4, 1);
    let entry = r.insert(small, cell);
    assert!(r.find(DevicePtr((512 * 4 + 1) * MIB2)).is_none());
    r.remove(small, entry);
    let entry = r.insert(large, cell);
    for granule in 512 * 3 - 5..512 * 7 + 5 {
        assert!(r.find(DevicePtr(granule * MIB2)).is_some(), "granule {granule}");
    }
    r.remove(large, entry);
    for granule in 512 * 3 - 5..512 * 7 + 5 {
        assert!(r.find(DevicePtr(granule * MIB2)).is_none(), "granule {granule}");
    }
}

#[test]
fn the_ends_of_the_address_space_work() {
    let r = Registry::new(Granularity::new(4096).expect("a power of two"));
    let cell = r.cell(BlockId(1));
    let last = DeviceRange::new(DevicePtr(u64::MAX - 8191), ByteSize(4096)).expect("a range");
    r.insert(last, cell);
    assert!(r.find(last.start()).is_some());
    assert!(r.find(DevicePtr(u64::MAX)).is_none());
    assert!(r.find(DevicePtr::NULL).is_none());
}

/// What a reader meets that is held up between its two halves; threads alone meet that too rarely.
#[test]
fn a_reader_held_up_while_a_mapping_is_replaced_reads_again() {
    let r = registry();
    let (old, new) = (r.cell(BlockId(1)), r.cell(BlockId(2)));
    let index = r.insert(range(8, 1), old);
    let (entry, at) = (r.entries.get(index).expect("made"), range(8, 1).start());
    let look = entry.look();
    r.replace(index, new);
    assert_eq!(r.find(at).map(|found| found.block), Some(BlockId(2)));
    // The old block goes, and its cell to one that is mapped nowhere.
    r.free_cell(old);
    assert_eq!(r.cell(BlockId(3)), old);
    assert_eq!(r.resolve(entry, look, at), None);
    // The same for a mapping that goes.
    let look = entry.look();
    r.remove(range(8, 1), index);
    assert_eq!(r.resolve(entry, look, at), None);
}

#[test]
fn readers_never_see_a_mix_of_two_mappings() {
    // One place, two blocks that take turns there with different sizes, and a third that uses the freed entries.
    let r = registry();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for granule in [8, 9, 16] {
                        let Some(found) = r.find(DevicePtr(granule * MIB2 + 5)) else { continue };
                        // The tag of a block is ten times its id and its size as many granules.
                        let granules = found.size.get() / MIB2;
                        assert_eq!(found.tag, found.block.0 * 10);
                        assert_eq!(granules, found.block.0 % 3 + 1, "{found:?}");
                    }
                }
            });
        }
        for turn in 0..20_000_u64 {
            let id = turn + 1;
            let cell = r.cell(BlockId(id));
            r.set_tag(cell, id * 10);
            let mapped = range(if turn % 5 == 4 { 16 } else { 8 }, id % 3 + 1);
            let entry = r.insert(mapped, cell);
            // Another block of that size takes its place.
            let next = r.cell(BlockId(id + 3_000_000));
            r.set_tag(next, (id + 3_000_000) * 10);
            r.replace(entry, next);
            r.free_cell(cell);
            // And its cell goes to a block of another size, mapped nowhere.
            let elsewhere = r.cell(BlockId(id + 1));
            r.set_tag(elsewhere, (id + 1) * 10);
            r.free_cell(elsewhere);
            r.remove(mapped, entry);
            r.free_cell(next);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
