//! How long planning takes, and how good the plans are. No criterion: one call is long enough to be timed by itself.
//!
//! `cargo bench --bench plan`, or behind `--` a part of a load's name

use gvmm::rebind::profile::Profile;
use gvmm::rebind::{
    Action, Churn, Commands, Direction, MOST_WATCHED_STEPS, Moves, Rules, Situation, Slot, SlotPlan, plan,
};
use gvmm::units::{ByteSize, Granularity};
use std::time::{Duration, Instant};

/// Numbers that are the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Slots and what was seen of them.
struct Load {
    slots: Vec<Slot>,
    commands: Commands,
    churn: Churn,
    mappable: Vec<bool>,
}

/// `count` slots of 4 B to 256 MiB, of which `moving` in a hundred move as `pattern` says, `shared` slots a command.
fn load(
    count: u64,
    moving: u64,
    steps: u32,
    shared: u64,
    mut pattern: impl FnMut(&mut Random) -> u8,
) -> Load {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut slots, mut commands, mut moves) = (Vec::new(), Commands::default(), Vec::new());
    for i in 0..count {
        let bytes = 4u64 << random.below(27);
        slots.push(Slot::new(ByteSize(bytes)).direction(Direction(random.below(3) as u32)));
        // Each slot is used where it is made and where it is read.
        commands.push([(i / shared) as u32, random.below(count / shared + 1) as u32]);
        let moved = if random.below(100) < moving { pattern(&mut random) } else { 0 };
        moves.push(Moves(moved));
    }
    let mappable = vec![true; slots.len()];
    Load { slots, commands, churn: Churn::new(moves, steps), mappable }
}

fn measure(name: &str, load: &Load, profile: &Profile, patches: bool, budget: ByteSize) {
    // A part of a name, behind the `--bench` that cargo adds.
    if std::env::args().skip(1).any(|asked| asked != "--bench" && !name.contains(&asked)) {
        return;
    }
    let situation = Situation {
        slots: &load.slots,
        mappable: &load.mappable,
        commands: patches.then_some(&load.commands),
        churn: &load.churn,
        profile,
        rules: Rules::default(),
        granularity: Granularity::new(2 << 20).expect("a power of two"),
        budget,
    };
    let mut times: Vec<(Duration, SlotPlan)> = (0..25)
        .map(|_| {
            let start = Instant::now();
            let plan = plan(&situation);
            (start.elapsed(), plan)
        })
        .collect();
    times.sort_by_key(|(time, _)| *time);
    let ((least, _), (time, plan)) = (&times[0], &times[times.len() / 2]);
    let count = |action| plan.actions.iter().filter(|a| **a == action).count();
    let [bake, map, copy, patch] = [Action::BAKE, Action::MAP, Action::COPY, Action::PATCH].map(count);
    let gap = (plan.price.counted.0 - plan.bound.0) as f64 / plan.bound.0.max(1) as f64 * 100.0;
    println!(
        "| {name} | {} | {:.2} | {:.2} | {bake} | {map} | {copy} | {patch} | {:.1} | {gap:.2} |",
        load.slots.len(),
        time.as_secs_f64() * 1e3,
        least.as_secs_f64() * 1e3,
        plan.price.counted.0 as f64 / 1e6,
    );
}

fn main() {
    println!(
        "| load | slots | planning ms | least | bake | map | copy | patch | predicted µs a step | above the bound % |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let h200 = Profile::builtin("h200").expect("built in");
    let mut cheap_patches = h200.clone();
    // Patches about as dear as copies, so that sharing decides.
    cheap_patches.patch_command.host.median.0 /= 40;
    cheap_patches.patch_command.gpu.median.0 /= 40;
    let (ample, tight) = (ByteSize::gib(1 << 10), ByteSize::mib(64));
    let steps = MOST_WATCHED_STEPS - 1;
    let always = load(10_000, 50, 4, 16, |_| 0xf);
    let rhythm = load(10_000, 50, 4, 16, |random| random.below(16) as u8);
    let longest = load(10_000, 50, steps, 16, |random| random.below(256) as u8);
    for (kind, load) in
        [("half move in each step", &always), ("in rhythms of 4", &rhythm), ("8 steps, any", &longest)]
    {
        for (what, profile, patches, budget) in [
            ("no patches", &h200, false, ample),
            ("patches", &h200, true, ample),
            ("cheap patches", &cheap_patches, true, ample),
            ("no patches, 64 MiB", &h200, false, tight),
            ("patches, 64 MiB", &h200, true, tight),
            ("cheap patches, 64 MiB", &cheap_patches, true, tight),
        ] {
            measure(&format!("{kind}; {what}"), load, profile, patches, budget);
        }
    }
    for count in [1, 14, 100, 1000] {
        let load = load(count, 100, 4, 4, |_| 0xf);
        measure("all move; budget of 64 MiB", &load, &h200, true, tight);
    }
}
