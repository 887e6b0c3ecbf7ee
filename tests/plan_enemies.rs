//! Bindings with a planner in hostile places: devices that cannot map or cannot be patched, memory of any allocator, absurd
//! profiles, other threads.

mod rebind_support;

use gvmm::driver::{Access, AccessMode, Ordinal};
use gvmm::rebind::profile::Profile;
use gvmm::rebind::{
    Action, Binding, Buffer, Churn, Moves, Options, PlanOptions, Slot, SlotFlags, Threshold, export_plan,
    set_shadow_budget, shadow_budget,
};
use gvmm::units::{ByteSize, DevicePtr};
use rebind_support::planned::{Foreign, MIB, exported, h200, patching, planned, run, slot};
use rebind_support::{Given, Home, World, actions, begin, holds};
use std::sync::Barrier;

#[test]
fn memory_of_any_allocator_is_baked_copied_and_patched_with_virtual_memory_and_without() {
    for world in [World::new(), World::without(&["virtual_memory"])] {
        let slots = [slot(3000), slot(3000), slot(3000), slot(2 * MIB)];
        let memory: Vec<[Foreign; 2]> =
            slots.iter().map(|slot| [0, 1].map(|_| Foreign::new(slot.bytes.get() as usize))).collect();
        let wanted = [Action::BAKE, Action::COPY, Action::PATCH, Action::BAKE];
        let binding = planned(&world, &slots, patching(4));
        binding.import_plan(&exported(&slots, &wanted)).expect("a plan of these slots");
        let given = |n: usize, moving: [bool; 4]| {
            let each = memory.iter().zip(&slots).zip(moving);
            let each = each
                .map(|((pair, slot), moves)| pair[if moves { n % 2 } else { 0 }].buffer(slot.bytes.get()));
            Given::memory(&each.collect::<Vec<_>>())
        };
        let info = || binding.info().expect("info");
        for n in 0..6 {
            run(&world, &binding, &slots, &given(n, [false, true, true, false]), 10_000 * n as u64);
            assert_eq!(binding.patches().expect("a planner").len(), usize::from(n > 0), "step {n}");
        }
        assert_eq!((actions(&binding, 4), info().record_agains), (wanted.to_vec(), 1));
        // What was to stay moves: nothing of it can be mapped.
        for n in 6..12 {
            run(&world, &binding, &slots, &given(n + 1, [true, true, true, false]), 10_000 * n as u64);
        }
        let repaired = [Action::COPY, Action::COPY, Action::PATCH, Action::BAKE];
        assert_eq!((actions(&binding, 4), info().record_agains), (repaired.to_vec(), 2));
    }
}

#[test]
fn commands_do_not_count_where_nothing_can_be_patched() {
    let world = World::without(&["patches"]);
    let homes = [world.home(2 * MIB), world.home(2 * MIB)];
    let slots = [slot(64)];
    let step = |binding: &Binding, n: usize| {
        run(&world, binding, &slots, &Given::of(&[&homes[n % 2]]), 10_000 * n as u64);
        assert_eq!(binding.patches(), Ok(vec![]));
        assert_ne!(actions(binding, 1), [Action::PATCH]);
    };
    let binding = planned(&world, &slots, patching(1));
    (0..8).for_each(|n| step(&binding, n));
    assert!(binding.explain().expect("a plan").1[0].next.is_none_or(|(action, _)| action != Action::PATCH));
    let other = planned(&world, &slots, patching(1));
    other.import_plan(&exported(&slots, &[Action::PATCH])).expect("a plan of these slots");
    (0..4).for_each(|n| step(&other, n));
}

#[test]
fn a_buffer_that_its_action_cannot_serve_is_served_otherwise() {
    let world = World::new();
    let homes = [world.home(2 * MIB), world.home(2 * MIB)];
    let slots = [Slot { alignment: 4096, ..slot(4096) }];
    let binding = planned(&world, &slots, patching(1));
    binding.import_plan(&exported(&slots, &[Action::PATCH])).expect("a plan of these slots");
    run(&world, &binding, &slots, &Given::of(&[&homes[0]]), 0);
    assert_eq!(actions(&binding, 1), [Action::PATCH]);
    // Another allocator's, and less aligned than the slot asks.
    let address = DevicePtr(homes[1].address().get() + 64);
    let odd = Buffer { address, bytes: ByteSize(4096), id: 7, has_block: false };
    run(&world, &binding, &slots, &Given::memory(&[odd]), 10_000);
    assert_eq!(actions(&binding, 1), [Action::COPY]);

    // A block whose address nobody says.
    let binding = planned(&world, &slots, h200());
    binding.import_plan(&exported(&slots, &[Action::COPY])).expect("a plan of these slots");
    run(&world, &binding, &slots, &Given::of(&[&homes[0]]), 20_000);
    assert_eq!(actions(&binding, 1), [Action::COPY]);
    let mut given = Given::of(&[&homes[1]]);
    given.buffers[0].0.address = DevicePtr::NULL;
    run(&world, &binding, &slots, &given, 30_000);
    assert_eq!(actions(&binding, 1), [Action::MAP]);
    assert!(holds(homes[1].address(), slots[0].bytes, 31_000));
}

/// `text` with every time replaced, and every other number left.
fn all_times(text: &str, us: &str) -> String {
    let curve = |value: &str| {
        let point = |point: &str| point.split_once(':').map(|(bytes, _)| format!("{bytes}: {us}"));
        value.split(',').filter_map(point).collect::<Vec<_>>().join(",")
    };
    let line = |line: &str| match line.split_once(" = ") {
        Some((key, value)) if key.ends_with("_us") && value.contains(':') => {
            format!("{key} = {}", curve(value))
        }
        Some((key, _)) if key.ends_with("_us") => format!("{key} = {us}"),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn steps_are_right_whatever_a_profile_says() {
    let text = Profile::builtin("h200").expect("built in").to_text();
    for (us, rate) in [("0", 1_000_000_u64), ("0", 1_000_000_000_000_000), ("10000000", 1_000_000)] {
        let mut profile = Profile::parse(&all_times(&text, us)).expect("within bounds");
        profile.bandwidth = rate;
        assert_eq!(profile.remap.median.to_string(), us);
        for patches in [false, true] {
            let world = World::new();
            let slots = [slot(4096), slot(64), slot(2 * MIB)];
            let homes: Vec<[Home; 2]> =
                slots.iter().map(|_| [world.home(2 * MIB), world.home(2 * MIB)]).collect();
            let options = if patches { patching(3) } else { h200() };
            let binding = planned(&world, &slots, PlanOptions { profile: Some(profile.clone()), ..options });
            for n in 0..12 {
                // The last one begins to move when the plan is there.
                let pick = |i: usize| if i == 2 && n < 7 { 0 } else { n % 2 };
                let homes: Vec<&Home> = homes.iter().enumerate().map(|(i, pair)| &pair[pick(i)]).collect();
                run(&world, &binding, &slots, &Given::of(&homes), 10_000 * n as u64);
            }
            // The first, the plan's, and those for what was to stay: where all is dearer than to record again, all is.
            assert!(binding.info().expect("info").record_agains <= 4);
            binding.explain().expect("a plan");
        }
    }
}

/// The slot that moves after all is mapped where copies are dear, and copied where remaps are.
#[test]
fn a_repair_goes_by_cost() {
    let world = World::new();
    let slots = [slot(2 * MIB)];
    let homes = [world.home(2 * MIB), world.home(2 * MIB)];
    let measured = Profile::builtin("h200").expect("built in");
    let dear_copies = Profile { bandwidth: 1_000_000, ..measured.clone() };
    for (profile, wanted) in [(measured, Action::COPY), (dear_copies, Action::MAP)] {
        let binding =
            planned(&world, &slots, PlanOptions { profile: Some(profile), ..PlanOptions::default() });
        binding.import_plan(&exported(&slots, &[Action::BAKE])).expect("a plan of these slots");
        (0..2).for_each(|n| run(&world, &binding, &slots, &Given::of(&[&homes[n]]), 10_000 * n as u64));
        assert_eq!(actions(&binding, 1), [wanted]);
        let plan = binding.info().expect("info").plan;
        assert_eq!((plan.surprises, plan.replan_advised), (1, false), "once is not often");
        let shadows = if wanted == Action::COPY { 2 * MIB } else { 0 };
        assert_eq!(binding.explain().expect("a plan").0.shadows, ByteSize(shadows), "as it is served");
    }
}

/// Advice that is followed is not given again while steps are watched for the new plan, which would never come.
#[test]
fn whoever_follows_the_advice_gets_a_new_plan() {
    let world = World::new();
    let slots = [slot(2 * MIB); 3];
    let homes: Vec<[Home; 2]> = (0..3).map(|_| [world.home(2 * MIB), world.home(2 * MIB)]).collect();
    let binding = planned(&world, &slots, h200());
    let mut replans = vec![];
    for n in 0..24 {
        let homes: Vec<&Home> = homes.iter().map(|pair| &pair[if n < 7 { 0 } else { n % 2 }]).collect();
        let report = begin(&binding, world.stream, &Given::of(&homes)).expect("begin");
        binding.end().expect("end");
        if report.replan_advised {
            binding.replan().expect("a planner");
            replans.push(n);
        }
    }
    assert_eq!(replans, [7]);
    assert!(binding.explain().expect("a plan").1.iter().all(|slot| slot.moved == 4));
}

/// Nothing of it can be mapped, the threshold copies none of it, and it moves in each watched step.
#[test]
fn what_moves_while_it_is_watched_is_recorded_again_once_at_most() {
    let slots = [slot(3000), slot(3000), slot(3000)];
    let memory: Vec<[Foreign; 2]> = slots.iter().map(|_| [0, 1].map(|_| Foreign::new(3000))).collect();
    // The second slot moves from the fourth step on.
    let given = |n: usize| {
        let pick = [n % 2, if n < 2 { 0 } else { n % 2 }, 0];
        let buffers = memory.iter().zip(pick).map(|(pair, pick)| pair[pick].buffer(3000));
        Given::memory(&buffers.collect::<Vec<_>>())
    };
    let off = Options { threshold: Threshold::OFF, ..Options::default() };
    let (copy, patch, bake) = (Action::COPY, Action::PATCH, Action::BAKE);
    for (options, room, agains, wanted) in [
        (h200(), 1 << 20, 3, [copy, copy, bake]),
        (patching(3), 1 << 20, 1, [patch; 3]),
        (h200(), 3000, 4, [copy, bake, bake]),
        (h200(), 0, 5, [bake; 3]),
    ] {
        let world = World::new();
        set_shadow_budget(&world.device, ByteSize(room));
        let binding =
            Binding::planned(&world.device, slots.to_vec(), off.clone(), options).expect("a binding");
        for n in 0..5 {
            run(&world, &binding, &slots, &given(n), 10_000 * n as u64);
            assert!(shadow_budget(&world.device).booked <= ByteSize(room));
        }
        let seen = (binding.info().expect("info").record_agains, actions(&binding, 3));
        assert_eq!(seen, (agains, wanted.to_vec()));
        (5..8).for_each(|n| run(&world, &binding, &slots, &given(n), 10_000 * n as u64));
        drop(binding);
        assert_eq!(shadow_budget(&world.device).booked, ByteSize::ZERO);
    }
}

/// Two surprises in sixteen steps are advice, however many steps between them were aborted.
#[test]
fn aborted_steps_do_not_dilute_the_advice() {
    let world = World::new();
    let (slots, homes) = ([slot(8 * MIB)], [world.home(8 * MIB), world.home(8 * MIB)]);
    let binding = planned(&world, &slots, h200());
    binding.import_plan(&exported(&slots, &[Action::MAP])).expect("a plan of these slots");
    for n in 1..=16 {
        let given = Given::of(&[&homes[usize::from((5..10).contains(&n))]]);
        begin(&binding, world.stream, &given).expect("begin");
        binding.abort().expect("abort");
        begin(&binding, world.stream, &given).expect("begin");
        binding.end().expect("end");
        assert_eq!(binding.info().expect("info").plan.replan_advised, n >= 10, "step {n}");
    }
    begin(&binding, world.stream, &Given::of(&[&homes[0]])).expect("begin");
    binding.end().expect("end");
    assert!(!binding.info().expect("info").plan.replan_advised, "not in seventeen");
}

/// Where no copies are joined, each costs a launch.
#[test]
fn many_small_slots_are_copied_only_where_copies_are_joined() {
    const COUNT: usize = 40;
    for (world, wanted) in [(World::new(), Action::COPY), (World::without(&["joint_copies"]), Action::PATCH)]
    {
        let slots = vec![slot(64); COUNT];
        let homes: [Vec<Home>; 2] = [0, 1].map(|_| (0..COUNT).map(|_| world.home(2 * MIB)).collect());
        let binding = planned(&world, &slots, patching(COUNT));
        for n in 0..7 {
            run(
                &world,
                &binding,
                &slots,
                &Given::of(&homes[n % 2].iter().collect::<Vec<_>>()),
                10_000 * n as u64,
            );
        }
        assert_eq!(actions(&binding, COUNT), [wanted; COUNT]);
    }
}

/// The access list's peers make remaps dearer.
#[test]
fn a_bindings_peers_are_reckoned_with() {
    let config = gvmm::config::HostConfig { devices: 3, memory: 1 << 40, ..Default::default() };
    let world = World::with(config);
    let slots = [slot(2 * MIB)];
    let home = world.home(2 * MIB);
    let priced = |peers: u32| {
        let line = |device| Access { device: Ordinal(device), mode: AccessMode::READ_WRITE };
        let options = Options { access: (0..=peers).map(line).collect(), ..Options::default() };
        let binding = Binding::planned(&world.device, slots.to_vec(), options, h200()).expect("a binding");
        let moved = Churn::new(vec![Moves(0b1111)], 4);
        binding.import_plan(&export_plan(&slots, &[Action::MAP], &moved)).expect("a plan of these slots");
        run(&world, &binding, &slots, &Given::of(&[&home]), 0);
        binding.explain().expect("a plan").0.step.host
    };
    assert!(priced(0) < priced(1) && priced(1) < priced(2));
}

/// Who names no profile gets the device's.
#[test]
fn a_device_that_nobody_measured_is_reckoned_with_caution() {
    let world = World::new();
    let slots = [slot(2 * MIB)];
    let home = world.home(2 * MIB);
    let priced = |profile: Option<Profile>| {
        let binding = planned(&world, &slots, PlanOptions { profile, ..PlanOptions::default() });
        let moved = Churn::new(vec![Moves(0b1111)], 4);
        binding.import_plan(&export_plan(&slots, &[Action::MAP], &moved)).expect("a plan of these slots");
        run(&world, &binding, &slots, &Given::of(&[&home]), 0);
        binding.explain().expect("a plan").0
    };
    let cautious = Profile::builtin("cautious");
    assert!(priced(None) == priced(cautious) && priced(None) != priced(Profile::builtin("h200")));
}

#[test]
fn two_bindings_on_two_threads_keep_one_budget() {
    const COUNT: usize = 16;
    let world = World::new();
    let limit = ByteSize(COUNT as u64 * 4096 * 3 / 2);
    set_shadow_budget(&world.device, limit);
    let slots = vec![slot(4096); COUNT];
    let homes: [Vec<[Home; 2]>; 2] =
        [0, 1].map(|_| (0..COUNT).map(|_| [world.home(2 * MIB), world.home(2 * MIB)]).collect());
    let bindings = [0, 1].map(|_| {
        let off = Options { threshold: Threshold::OFF, ..Options::default() };
        Binding::planned(&world.device, slots.clone(), off, h200()).expect("a binding")
    });
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for (binding, homes) in bindings.iter().zip(&homes) {
            let (world, barrier, slots) = (&world, &barrier, &slots);
            scope.spawn(move || {
                let stream = world.another_stream();
                // Once: a thread that fails must not keep the other.
                barrier.wait();
                for n in 0..12 {
                    let of: Vec<&Home> = homes.iter().map(|pair| &pair[n % 2]).collect();
                    begin(binding, stream, &Given::of(&of)).expect("begin");
                    binding.end().expect("end");
                }
                assert!(binding.plan_digest().is_ok());
                assert_eq!(actions(binding, slots.len()).len(), COUNT);
            });
        }
    });
    // While one lays out anew, what it had and what it gets are both booked.
    assert!(shadow_budget(&world.device).booked <= limit);
    let copied: u64 = bindings.iter().map(|binding| binding.info().expect("info").copied).sum();
    assert!((COUNT as u64..=COUNT as u64 * 3 / 2).contains(&copied), "{copied}");
    drop(bindings);
    assert_eq!(shadow_budget(&world.device).booked, ByteSize::ZERO);
}

/// A plan of a rank that patches comes to one that cannot, whose slot is where the plan has it already.
#[test]
fn a_plan_with_patches_is_not_taken_at_its_word_by_who_cannot_patch() {
    let world = World::new();
    let slots = [slot(3000), slot(3000)];
    let memory: Vec<[Foreign; 2]> = slots.iter().map(|_| [0, 1].map(|_| Foreign::new(3000))).collect();
    let given = |n: usize| Given::memory(&[memory[0][n % 2].buffer(3000), memory[1][0].buffer(3000)]);
    let off = Options { threshold: Threshold::OFF, ..Options::default() };
    let binding = Binding::planned(&world.device, slots.to_vec(), off, h200()).expect("a binding");
    run(&world, &binding, &slots, &given(0), 0);
    assert_eq!(actions(&binding, 2), [Action::BAKE; 2]);
    for n in 1..4 {
        binding.import_plan(&exported(&slots, &[Action::PATCH; 2])).expect("a plan of these slots");
        run(&world, &binding, &slots, &given(n), 10_000 * n as u64);
        assert_eq!((actions(&binding, 2), binding.patches()), (vec![Action::COPY; 2], Ok(vec![])));
    }
}

/// Also for a layout that is made anew when the limit has become less, or others hold more for a moment.
#[test]
fn what_is_booked_stays_booked() {
    let world = World::new();
    let slots = [slot(4096), slot(4096).flags(SlotFlags::REGISTERED)];
    let homes: Vec<Home> = (0..3).map(|_| world.home(2 * MIB)).collect();
    let binding = planned(&world, &slots, h200());
    binding.import_plan(&exported(&slots, &[Action::COPY, Action::BAKE])).expect("a plan of these slots");
    for (registered, limit) in [(1, 1 << 20), (2, 0), (1, 1)] {
        set_shadow_budget(&world.device, ByteSize(limit));
        run(
            &world,
            &binding,
            &slots,
            &Given::of(&[&homes[0], &homes[registered]]),
            10_000 * registered as u64,
        );
        assert_eq!(actions(&binding, 2), [Action::COPY, Action::BAKE]);
        assert_eq!(shadow_budget(&world.device).booked, ByteSize(4096));
    }
}
