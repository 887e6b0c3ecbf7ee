//! Another rank's plan that was damaged on its way, comes twice, or tells nonsense.

mod rebind_support;

use gvmm::error::{Error, Kind};
use gvmm::rebind::{Action, Binding, Churn, Moves, export_plan, import_plan};
use rebind_support::planned::{MIB, exported, h200, planned, run, slot};
use rebind_support::{Given, Home, World};

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    result.expect_err("it is refused").kind
}

#[test]
fn a_plan_that_was_damaged_anywhere_changes_nothing() {
    let world = World::new();
    let slots = [slot(4096), slot(4096), slot(8192)];
    let homes: Vec<Home> = slots.iter().map(|_| world.home(2 * MIB)).collect();
    let given = Given::of(&homes.iter().collect::<Vec<_>>());
    let binding = planned(&world, &slots, h200());
    let plan = exported(&slots, &[Action::MAP, Action::COPY, Action::BAKE]);
    binding.import_plan(&plan).expect("a plan of these slots");
    run(&world, &binding, &slots, &given, 0);
    let before = (binding.info().expect("info"), binding.plan_digest());
    let refuse = |bytes: &[u8]| {
        let kind = kind(binding.import_plan(bytes));
        assert!(
            matches!(kind, Kind::InvalidArgument | Kind::UnknownVersion | Kind::PlanMismatch),
            "{kind:?}"
        );
        kind
    };
    (0..plan.len()).for_each(|end| {
        refuse(&plan[..end]);
    });
    for bit in 0..8 * plan.len() {
        let mut changed = plan.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let version = (8..12).contains(&(bit / 8));
        assert_eq!(refuse(&changed) == Kind::UnknownVersion, version, "bit {bit}");
    }
    refuse(&[&plan[..], &[0]].concat());
    assert_eq!(refuse(&exported(&slots[..2], &[Action::MAP; 2])), Kind::PlanMismatch);
    let turned = [slots[2], slots[1], slots[0]];
    assert_eq!(refuse(&exported(&turned, &[Action::MAP; 3])), Kind::PlanMismatch);
    assert_eq!((binding.info().expect("info"), binding.plan_digest()), before);
    run(&world, &binding, &slots, &given, 10_000);
    assert_eq!(binding.info().expect("info").record_agains, 1);
}

/// The same plan again says nothing new; one that says nothing sensible of what was watched is a plan all the same.
#[test]
fn a_plan_may_be_imported_twice_and_may_tell_nonsense_of_its_past() {
    let world = World::new();
    let slots = [slot(4096)];
    let homes = [world.home(2 * MIB), world.home(2 * MIB)];
    let step = |binding: &Binding, n: usize| {
        run(&world, binding, &slots, &Given::of(&[&homes[n % 2]]), 10_000 * n as u64);
    };
    let binding = planned(&world, &slots, h200());
    for _ in 0..2 {
        for moves in [0, 0xff] {
            for steps in [0, 1, u32::MAX] {
                let mut plan = export_plan(&slots, &[Action::COPY], &Churn::new(vec![Moves(moves)], 8));
                plan.truncate(plan.len() - 8);
                plan[16..20].copy_from_slice(&steps.to_le_bytes());
                plan.extend(fnv(&plan).to_le_bytes());
                assert!(import_plan(&slots, &plan).expect("whole").1.steps() <= 8);
                binding.import_plan(&plan).expect("a plan of these slots");
                (0..2).for_each(|n| step(&binding, n));
                let (price, why) = binding.explain().expect("a plan");
                assert!(price.step.gpu.0 > 0 && why[0].moved <= 8);
            }
        }
    }
    assert_eq!(binding.info().expect("info").record_agains, 1);
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
