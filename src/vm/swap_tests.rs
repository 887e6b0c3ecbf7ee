//! What is swapped, and what is left to the planner.

use super::*;
use crate::config::HostConfig;
use crate::driver::host::HostDriver;
use crate::driver::{CreateOptions, Driver, Ordinal};
use crate::vm::{Block, Device, Owner};
use std::sync::Arc;

struct Rig {
    device: Arc<Device>,
    reservation: Arc<Reservation>,
    blocks: Vec<Arc<Block>>,
}

impl Rig {
    /// Sixty-four mappings side by side of one granule each.
    fn new(off: &[&str]) -> Self {
        let caps_off = off.iter().map(|name| (*name).to_owned()).collect();
        let config = HostConfig { caps_off, ..HostConfig::default() };
        let driver: Arc<dyn Driver> = Arc::new(HostDriver::new(config, None).expect("a host driver"));
        let device = Device::open(driver, Ordinal(0)).expect("a device");
        let size = ByteSize(device.granularity().size().get() * 64);
        let reservation = device.reserve(size, None, &[], Owner::Library).expect("a range");
        let mut rig = Self { device, reservation, blocks: Vec::new() };
        rig.blocks = (0..64).map(|_| rig.block(1)).collect();
        let mut entries: Vec<_> = (0..64).map(|i| rig.entry(i, &rig.blocks[i as usize])).collect();
        rig.device.remap_in(&rig.reservation, &mut entries, &[]).expect("mapped");
        rig
    }

    fn size(&self, granules: u64) -> ByteSize {
        ByteSize(self.device.granularity().size().get() * granules)
    }

    fn block(&self, granules: u64) -> Arc<Block> {
        self.device.create_block(self.size(granules), CreateOptions::default()).expect("a block")
    }

    fn entry(&self, at: u64, block: &Arc<Block>) -> PlaceEntry {
        PlaceEntry { offset: self.size(at), block: Some(Arc::clone(block)) }
    }

    fn swap(&self, entries: &mut [PlaceEntry]) -> Option<Done> {
        let before = self.reservation.mappings();
        let done = swap(self.device.shared(), &self.reservation, entries).map(|done| done.expect("swapped"));
        assert_eq!(done.is_none(), self.reservation.mappings() == before, "all or nothing");
        done
    }
}

#[test]
fn blocks_of_the_same_size_are_swapped_and_come_back() {
    let rig = Rig::new(&[]);
    let new = rig.block(1);
    let mut entries = [rig.entry(3, &new), rig.entry(7, &rig.blocks[3])];
    let done = rig.swap(&mut entries).expect("of that sort");
    let bytes = rig.size(2).get();
    assert_eq!((done.skipped, done.mapped, done.unmapped), (0, bytes, bytes));
    let ids =
        |entries: &[PlaceEntry]| entries.iter().map(|e| e.block.as_ref().map(|b| b.id())).collect::<Vec<_>>();
    assert_eq!(ids(&entries), [Some(rig.blocks[3].id()), Some(rig.blocks[7].id())]);
    let found = rig.device.find(rig.reservation.range().start().checked_add(rig.size(3)).expect("inside"));
    assert_eq!(found.map(|found| found.block), Some(new.id()));
    assert!(rig.swap(&mut entries).is_some(), "and back");
    assert_eq!(ids(&entries), [Some(new.id()), Some(rig.blocks[3].id())]);
}

#[test]
fn everything_else_is_left_to_the_planner() {
    let rig = Rig::new(&[]);
    let (new, large) = (rig.block(1), rig.block(2));
    let cases = [
        ("no entries", vec![]),
        ("out of order", vec![rig.entry(3, &new), rig.entry(2, &large)]),
        ("named twice", vec![rig.entry(3, &new), rig.entry(3, &rig.blocks[0])]),
        ("unmapped", vec![PlaceEntry { offset: rig.size(3), block: None }]),
        ("the same block", vec![rig.entry(3, &rig.blocks[3])]),
        ("another size", vec![rig.entry(3, &large)]),
        ("outside", vec![rig.entry(64, &new)]),
        ("far apart", vec![rig.entry(0, &new), rig.entry(63, &new)]),
        ("another device's", vec![rig.entry(3, &Rig::new(&[]).blocks[0])]),
    ];
    for (what, mut entries) in cases {
        assert!(rig.swap(&mut entries).is_none(), "{what}");
    }
    let hole = crate::vm::RetireEntry { reservation: Arc::clone(&rig.reservation), offset: rig.size(5) };
    rig.device.retire(&[hole], &[]).expect("retired");
    assert!(rig.swap(&mut [rig.entry(5, &new)]).is_none(), "nothing is there");
    for off in ["aliasing", "range_access"] {
        let rig = Rig::new(&[off]);
        assert!(rig.swap(&mut [rig.entry(3, &rig.block(1))]).is_none(), "without {off}");
    }
}
