//! Made-up loads: how many slots, how large, how often they move, and which way their bytes go.

use crate::trace::{Slot, Trace};
use gvmm::units::ByteSize;

/// Steps of a load: those that are watched, and so many that count that each rhythm begins where it ends.
const STEPS: usize = 30;

/// Slots that are alike.
#[derive(Clone, Copy, Debug)]
struct Group {
    slots: usize,
    bytes: u64,
    way: Way,
    /// They have another buffer every so many steps; 0 is never.
    every: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    In,
    Out,
    Both,
}

use Way::{Both, In, Out};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const fn group(slots: usize, bytes: u64, way: Way, every: usize) -> Group {
    Group { slots, bytes, way, every }
}

/// Those of one kind, and mixtures of large slots that stay or rarely move with many small ones that move.
const NAMED: [(&str, &[Group]); 12] = [
    ("one-4B", &[group(1, 4, Both, 1)]),
    ("one-256M", &[group(1, 256 * MIB, In, 1)]),
    ("eight-256M", &[group(8, 256 * MIB, Both, 1)]),
    ("hundred-2M", &[group(100, 2 * MIB, Both, 1)]),
    ("hundred-64K-half", &[group(50, 64 * KIB, Both, 1), group(50, 64 * KIB, Both, 0)]),
    ("thousand-4B", &[group(1000, 4, In, 1)]),
    ("thousand-4K", &[group(500, 4 * KIB, In, 1), group(500, 4 * KIB, Out, 1)]),
    ("thousand-still", &[group(900, 4 * KIB, Both, 0), group(100, 16 * MIB, In, 0)]),
    (
        "mixed-weights",
        &[
            group(64, 32 * MIB, Both, 0),
            group(500, 4 * KIB, Both, 0),
            group(200, 4 * KIB, In, 1),
            group(100, 4 * KIB, Out, 1),
        ],
    ),
    ("mixed-rare", &[group(16, 128 * MIB, In, 4), group(200, KIB, Both, 1), group(300, 64 * KIB, Both, 0)]),
    (
        "mixed-large",
        &[
            group(2, 256 * MIB, Both, 4),
            group(300, 256, Both, 1),
            group(500, 64 * KIB, In, 0),
            group(100, 16 * MIB, Both, 0),
        ],
    ),
    (
        "mixed-rhythms",
        &[
            group(100, 16 * KIB, Both, 1),
            group(100, 16 * KIB, Both, 2),
            group(100, 16 * KIB, Both, 4),
            group(20, 64 * MIB, Both, 0),
        ],
    ),
];

/// Slots of any size and direction: how many, and how many of a hundred move.
const RANDOM: [(usize, u64); 8] =
    [(1, 100), (10, 0), (10, 100), (30, 50), (100, 25), (100, 100), (300, 5), (1000, 50)];

/// A load that has a name.
#[derive(Clone, Debug)]
pub(super) struct Load {
    name: String,
    slots: Vec<Group>,
}

/// All loads.
fn all() -> Vec<Load> {
    let named = NAMED.iter().map(|(name, groups)| Load { name: (*name).into(), slots: groups.to_vec() });
    named.chain(RANDOM.iter().map(|&(slots, churn)| random(slots, churn))).collect()
}

/// Sizes from 4 B to 256 MiB, as many between 4 and 8 B as between 128 and 256 MiB; in all directions.
fn random(slots: usize, churn: u64) -> Load {
    let mut state = (slots as u64) << 32 | churn;
    let mut below = |end: u64| {
        // The steps of splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    };
    let mut one = || {
        let floor = 4 << below(26);
        let bytes = floor + below(floor + 1) / 4 * 4;
        let way = [In, Out, Both][below(3) as usize];
        let every = if below(100) < churn { [1, 1, 2, 4][below(4) as usize] } else { 0 };
        group(1, bytes, way, every)
    };
    Load { name: format!("random-{slots}-{churn}"), slots: (0..slots).map(|_| one()).collect() }
}

/// A load's name, or `all`.
pub(super) fn parse(text: &str) -> Result<String, String> {
    let names: Vec<String> = all().into_iter().map(|load| load.name).collect();
    if text == "all" || names.iter().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    Err(format!("expected all or names of: {}", names.join(", ")))
}

/// Those that were asked for, each once.
pub(super) fn chosen(names: &[String]) -> impl Iterator<Item = Load> + use<> {
    let names = names.to_vec();
    all().into_iter().filter(move |load| names.iter().any(|name| *name == load.name || name == "all"))
}

impl Load {
    /// True for large slots that stay or rarely move beside many small ones.
    pub(super) fn is_mixed(&self) -> bool {
        self.name.starts_with("mixed-")
    }

    /// As a recording, with at most so many bytes: the largest slots go first, the last one becomes smaller.
    pub(super) fn trace(&self, most: ByteSize) -> Trace {
        let mut slots: Vec<Group> =
            self.slots.iter().flat_map(|group| std::iter::repeat_n(*group, group.slots)).collect();
        let bytes = |slots: &[Group]| slots.iter().map(|slot| slot.bytes).sum::<u64>();
        while bytes(&slots) > most.get() {
            let Some(largest) = (0..slots.len()).max_by_key(|&i| slots[i].bytes) else { break };
            if slots.len() > 1 {
                slots.remove(largest);
            } else {
                slots[0].bytes = most.get().max(1);
            }
        }
        let slot = |(i, group): (usize, &Group)| Slot {
            name: i.to_string(),
            bytes: group.bytes,
            is_in: group.way != Out,
            is_out: group.way != In,
        };
        let buffer = |step: usize, (i, group): (usize, &Group)| {
            (2 * i + step.checked_div(group.every).unwrap_or(0) % 2) as u64
        };
        Trace {
            name: self.name.clone(),
            slots: slots.iter().enumerate().map(slot).collect(),
            steps: (0..STEPS)
                .map(|step| slots.iter().enumerate().map(|each| buffer(step, each)).collect())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::slots;
    use crate::service::churn;
    use gvmm::rebind::profile::{Picos, Profile};
    use gvmm::rebind::{Action, Commands, CopyPath, Price, Rules, Situation, compute_threshold, plan, price};
    use gvmm::units::Granularity;

    #[test]
    fn every_load_has_a_name_of_its_own_and_slots_of_the_sizes_that_are_wanted() {
        let loads = all();
        for (i, load) in loads.iter().enumerate() {
            assert_eq!(parse(&load.name).as_deref(), Ok(load.name.as_str()));
            assert!(loads[..i].iter().all(|other| other.name != load.name), "{}", load.name);
            let trace = load.trace(ByteSize(u64::MAX));
            assert!((1..=1000).contains(&trace.slots.len()) && trace.steps.len() == STEPS);
            assert!(trace.slots.iter().all(|slot| (4..=256 * MIB).contains(&slot.bytes)), "{}", load.name);
        }
        assert_eq!(chosen(&["all".into()]).count(), loads.len());
        assert!(parse("none").is_err_and(|text| text.contains("mixed-rare")));
    }

    #[test]
    fn slots_move_as_often_as_they_should() {
        let load = Load {
            name: "l".into(),
            slots: vec![group(2, 8, In, 0), group(1, 8, Out, 1), group(1, 8, Both, 4)],
        };
        let trace = load.trace(ByteSize(32));
        let moved = |i: usize| trace.steps.windows(2).filter(|pair| pair[0][i] != pair[1][i]).count();
        assert_eq!([0, 1, 2, 3].map(moved), [0, 0, STEPS - 1, (STEPS - 1) / 4]);
        assert_eq!(load.trace(ByteSize(24)).slots.len(), 3);
        assert_eq!(load.trace(ByteSize(5)).slots.iter().map(|slot| slot.bytes).collect::<Vec<_>>(), [5]);
    }

    /// What a load of full size is said to cost on an H200: by the plan, and by each pure strategy within the budget.
    /// Each as what is made small, and as what is printed.
    fn priced(load: &Load, per_command: u32, rules: Rules) -> ([Picos; 2], Vec<[Picos; 2]>) {
        let trace = load.trace(ByteSize(u64::MAX));
        let (slots, churn) = (slots(&trace), churn(&trace));
        let profile = Profile::builtin("h200").expect("built in");
        let mut commands = Commands::default();
        (0..slots.len() as u32).for_each(|slot| commands.push([slot / per_command]));
        let (budget, total) = (ByteSize(1_500_000_000), ByteSize(150_000_000_000));
        let situation = Situation {
            slots: &slots,
            mappable: &vec![true; slots.len()],
            commands: Some(&commands),
            churn: &churn,
            profile: &profile,
            rules,
            granularity: Granularity::new(2 << 20).expect("a power of two"),
            budget,
        };
        let sizes: Vec<ByteSize> = slots.iter().map(|slot| slot.bytes).collect();
        let threshold = compute_threshold(&sizes, profile.bandwidth, ByteSize::ZERO, total);
        let by_size = |bytes| if threshold.admits(bytes) { Action::COPY } else { Action::MAP };
        let pure = [
            vec![Action::MAP; slots.len()],
            vec![Action::COPY; slots.len()],
            vec![Action::PATCH; slots.len()],
            sizes.into_iter().map(by_size).collect(),
        ];
        let priced = pure.iter().map(|actions| price(&situation, actions));
        let both = |price: Price| [price.counted, price.step.host.plus(price.step.gpu)];
        let pure = priced.filter(|price| price.shadows <= budget).map(both).collect();
        (both(plan(&situation).price), pure)
    }

    #[test]
    fn no_load_has_a_plan_that_is_said_to_be_dearer_than_a_pure_strategy() {
        // Where 16 slots share a command, to patch is best by far, and there is nothing to mix.
        for (per_command, peers, copies, mixtures) in
            [(1, 0, CopyPath::Launched, 3), (16, 1, CopyPath::Launched, 0), (2, 0, CopyPath::Recorded, 3)]
        {
            let mut better = 0;
            for load in all() {
                let rules = Rules { peers, copies, host_hidden: false };
                let (plan, pure) = priced(&load, per_command, rules);
                let best =
                    |of: usize| pure.iter().map(|price| price[of]).min().expect("mapping takes no shadow");
                for (of, plan) in plan.into_iter().enumerate() {
                    let best = best(of);
                    assert!(plan <= best, "{}: {plan} µs, and {best} by a pure strategy", load.name);
                }
                better += usize::from(plan[0].0 * 5 < best(0).0 * 4);
            }
            assert!(better >= mixtures, "a mixture pays where loads are mixed: {better}");
        }
    }

    #[test]
    fn a_made_up_load_is_the_same_each_time() {
        let bytes = |load: Load| load.slots.iter().map(|slot| slot.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(random(30, 50)), bytes(random(30, 50)));
        let still = random(10, 0);
        assert!(still.slots.iter().all(|slot| slot.every == 0));
        assert!(random(100, 100).slots.iter().all(|slot| slot.every > 0));
    }
}
