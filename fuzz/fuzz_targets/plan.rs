//! Another rank's plan: what is taken comes out again and is taken again as the same, the rest is refused.
#![no_main]

use gvmm::rebind::{Action, Churn, Direction, Moves, Slot, export_plan, import_plan};
use gvmm::units::ByteSize;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let slots: Vec<Slot> = (0..3).map(|n| Slot::new(ByteSize(64 << n)).direction(Direction(n))).collect();
    let check = |bytes: &[u8]| {
        let Ok((actions, churn)) = import_plan(&slots, bytes) else { return };
        let again = import_plan(&slots, &export_plan(&slots, &actions, &churn));
        assert_eq!(again.map(|(actions, _)| actions), Ok(actions));
    };
    check(bytes);
    // A checksum keeps out all that was changed, so a good plan is changed (where, and to what) and gets a new one.
    let mut plan = export_plan(&slots, &[Action::MAP; 3], &Churn::new(vec![Moves(1); 3], 4));
    plan.truncate(plan.len() - 8);
    for pair in bytes.chunks_exact(2) {
        let at = usize::from(pair[0]) % plan.len();
        plan[at] = pair[1];
    }
    plan.extend(fnv(&plan).to_le_bytes());
    check(&plan);
});

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
