//! What the tests make fail: remaps, changes of access, retirements.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use crate::common::World;
use gvmm::driver::{Access, AccessMode, Ordinal};
use gvmm::error::Result;
use gvmm::units::ByteSize;
use gvmm::vm::{Owner, PlaceEntry, RemapEntry, RetireEntry};

const RW: Access = Access { device: Ordinal(0), mode: AccessMode::READ_WRITE };
const PEER: Access = Access { device: Ordinal(1), mode: AccessMode::READ };

/// What is made to fail, and from where.
pub struct Scenario {
    pub name: &'static str,
    /// Brings a new world (blocks 0..=9 of one granule, 10 and 11 of two; reservations 0 and 1 of 16 granules)
    /// to the state before.
    pub setup: fn(&World) -> Result<()>,
    /// What is made to fail; called again, it must lead to the same end.
    pub act: fn(&World) -> Result<()>,
    /// The driver must be able to set a part of a reservation.
    pub ranged: bool,
    /// A failure may leave the state after, since what failed is only the tidying up.
    pub or_after: bool,
    /// The caller says that nothing uses what the call names, or which streams to wait for: what is lost is unmapped.
    pub vouched: bool,
}

/// Device 0 with all access, and a peer; on one device, the peer's mode for device 0 instead.
fn with_peer(world: &World, peer: Access) -> Vec<Access> {
    if world.driver.device_count() > 1 { vec![RW, peer] } else { vec![Access { mode: peer.mode, ..RW }] }
}

pub fn remap(world: &World, places: &[(usize, u64, Option<usize>)]) -> Result<()> {
    let entries: Vec<RemapEntry> = places.iter().map(|&(r, at, block)| world.entry(r, at, block)).collect();
    world.device.remap(&entries, &[world.stream]).map(|_| ())
}

fn swap(world: &World, places: &[(u64, usize)]) -> Result<()> {
    let entry = |&(at, block): &(u64, usize)| PlaceEntry {
        offset: world.granules(at),
        block: Some(world.block(block)),
    };
    let mut entries: Vec<PlaceEntry> = places.iter().map(entry).collect();
    world.device.remap_in(&world.reservation(0), &mut entries, &[]).map(|_| ())
}

fn retire(world: &World, places: &[(usize, u64)]) -> Result<()> {
    let entry = |&(r, at): &(usize, u64)| RetireEntry {
        reservation: world.reservation(r),
        offset: world.granules(at),
    };
    world.device.retire(&places.iter().map(entry).collect::<Vec<_>>(), &[world.stream])
}

fn fill(world: &World) -> Result<()> {
    remap(
        world,
        &[
            (0, 0, Some(0)),
            (0, 1, Some(1)),
            (0, 2, Some(2)),
            (0, 4, Some(3)),
            (1, 0, Some(10)),
            (1, 2, Some(4)),
            (1, 3, Some(5)),
        ],
    )
}

fn fill_and_retire(world: &World) -> Result<()> {
    fill(world)?;
    retire(world, &[(0, 1), (0, 2), (1, 0)])
}

fn fill_and_override(world: &World) -> Result<()> {
    fill(world)?;
    world.reservation(0).set_access(world.granules(1), world.granules(1), &with_peer(world, PEER))
}

/// All of them.
pub const SCENARIOS: [Scenario; 16] = [
    Scenario {
        name: "reserve, map, set access",
        setup: fill,
        act: |world| {
            let reservation =
                world.device.reserve(world.granules(4), None, &with_peer(world, PEER), Owner::Caller)?;
            reservation.map(world.granules(1), &world.block(8))?;
            reservation.set_access(ByteSize::ZERO, world.granules(4), &[RW])?;
            world.keep(reservation);
            Ok(())
        },
        ranged: false,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "remap eight entries of two reservations",
        setup: fill,
        act: |world| {
            remap(
                world,
                &[
                    (1, 3, Some(6)),
                    (0, 0, Some(0)),
                    (0, 1, Some(7)),
                    (0, 2, Some(8)),
                    (0, 3, Some(9)),
                    (0, 4, None),
                    (1, 0, Some(11)),
                    (1, 2, None),
                ],
            )
        },
        ranged: false,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "swap two blocks",
        setup: fill,
        act: |world| remap(world, &[(0, 0, Some(4)), (1, 2, Some(0))]),
        ranged: false,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "other blocks in the same places",
        setup: fill,
        act: |world| swap(world, &[(0, 6), (1, 7), (4, 8)]),
        ranged: false,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "other blocks in places that are overridden",
        setup: fill_and_override,
        act: |world| swap(world, &[(0, 2), (1, 6), (2, 0)]),
        ranged: true,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "growth",
        setup: fill,
        act: |world| remap(world, &[(0, 5, Some(6)), (0, 6, Some(11)), (0, 8, Some(7))]),
        ranged: false,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "allocate",
        setup: fill,
        act: |world| {
            let allocation = world.device.allocate(ByteSize(5), &[], Owner::Library)?;
            world.keep(allocation);
            Ok(())
        },
        ranged: false,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "retire and drain",
        setup: fill,
        act: |world| {
            if world.is_live(0, 1) {
                retire(world, &[(0, 1), (0, 2), (1, 0)])?;
            }
            world.device.drain()
        },
        ranged: false,
        or_after: true,
        vouched: true,
    },
    Scenario {
        name: "remap over what is retired",
        setup: fill_and_retire,
        act: |world| remap(world, &[(0, 1, Some(7)), (0, 2, Some(2)), (1, 0, Some(8)), (1, 1, Some(1))]),
        ranged: false,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "set access on exact mappings",
        setup: fill_and_override,
        act: |world| {
            let peer_writes = Access { mode: AccessMode::READ_WRITE, ..PEER };
            world.reservation(0).set_access(ByteSize::ZERO, world.granules(3), &with_peer(world, peer_writes))
        },
        ranged: true,
        or_after: false,
        vouched: false,
    },
    Scenario {
        name: "set access on the whole over an override",
        setup: fill_and_override,
        act: |world| world.reservation(0).set_access(ByteSize::ZERO, world.granules(16), &[RW]),
        ranged: true,
        or_after: false,
        vouched: false,
    },
    Scenario {
        name: "remap what is overridden",
        setup: fill_and_override,
        act: |world| remap(world, &[(0, 0, Some(6)), (0, 1, Some(7)), (0, 2, None), (0, 4, Some(2))]),
        ranged: true,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "remap what stays and was not accessible",
        setup: |world| {
            fill(world)?;
            let reservation = world.reservation(0);
            reservation.map(world.granules(6), &world.block(6))?;
            reservation.map(world.granules(8), &world.block(7))?;
            reservation.map(world.granules(9), &world.block(8))
        },
        act: |world| {
            remap(
                world,
                &[(0, 6, Some(6)), (0, 8, Some(7)), (0, 9, Some(8)), (0, 11, Some(9)), (1, 4, Some(11))],
            )
        },
        ranged: true,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "remap what stays, given something, and what goes",
        setup: |world| {
            fill(world)?;
            world.reservation(0).map(world.granules(6), &world.block(6))
        },
        act: |world| remap(world, &[(0, 0, Some(7)), (0, 6, Some(6)), (1, 4, Some(8))]),
        ranged: true,
        or_after: false,
        vouched: true,
    },
    Scenario {
        name: "set access on the whole",
        setup: fill,
        act: |world| {
            world.reservation(0).set_access(ByteSize::ZERO, world.granules(16), &with_peer(world, PEER))
        },
        ranged: false,
        or_after: false,
        vouched: false,
    },
    Scenario {
        name: "unmap three at once",
        setup: fill,
        act: |world| {
            if world.is_there(0, 0) {
                world.reservation(0).unmap(ByteSize::ZERO, world.granules(3))?;
            }
            Ok(())
        },
        ranged: false,
        or_after: false,
        vouched: true,
    },
];
