//! Recorded training runs on the host driver: every slot keeps one address, every step sees its own data there,
//! every result arrives, and the driver calls are exactly those that were promised.

mod rebind_support;

use gvmm::rebind::{Binding, BindingInfo, Outcome, Slot, StepReport, Threshold};
use gvmm::units::DevicePtr;
use rebind_support::recording::{Homes, Recording};
use rebind_support::{Given, World, addresses, fill, holds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first step of which the counts are promised: the fifth.
const SETTLED: usize = 4;

/// What one replay saw.
struct Replay {
    info: BindingInfo,
    /// Of begin and end of each step.
    reports: Vec<(StepReport, StepReport)>,
    record_agains: Vec<usize>,
}

/// A seed for what is in a slot before a step (`after` 0) or after it (1).
fn seed(step: usize, slot: usize, after: u64) -> u64 {
    1 + 2 * (step as u64 * 1_000_000 + slot as u64) + after
}

/// What stands in for the command buffer: looks at each slot at its recorded address, and writes.
fn commands(world: &World, slots: &[Slot], baked: &[DevicePtr], step: usize, seen: &Arc<AtomicU64>) {
    let (slots, baked, seen) = (slots.to_vec(), baked.to_vec(), Arc::clone(seen));
    world.enqueue(world.stream, move || {
        for (i, slot) in slots.iter().enumerate() {
            if slot.direction.reads() && holds(baked[i], slot.bytes, seed(step, i, 0)) {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            if slot.direction.writes() {
                fill(baked[i], slot.bytes, seed(step, i, 1));
            }
        }
    });
}

fn replay(recording: &Recording, threshold: Threshold) -> Replay {
    let world = World::new();
    let mut homes = Homes::new(&world);
    let slots = &recording.slots;
    let binding = world.binding(slots.clone(), threshold);
    let (mut reports, mut record_agains, mut baked) = (Vec::new(), Vec::new(), Vec::new());
    for (step, uses) in recording.steps.iter().enumerate() {
        let given = homes.step(uses);
        prepare(slots, &given, step);
        let begun = begin(&binding, &world, &given, step, &mut baked, &mut record_agains);
        let seen = Arc::new(AtomicU64::new(0));
        commands(&world, slots, &baked, step, &seen);
        reports.push((begun, binding.end().expect("end")));
        world.synchronize();
        let inputs = slots.iter().filter(|slot| slot.direction.reads()).count() as u64;
        assert_eq!(seen.load(Ordering::Relaxed), inputs, "inputs seen in step {step}");
        check(slots, &given, step);
    }
    Replay { info: binding.info().expect("info"), reports, record_agains }
}

/// Puts this step's data where the caller has it.
fn prepare(slots: &[Slot], given: &Given, step: usize) {
    for (i, slot) in slots.iter().enumerate() {
        fill(given.buffers[i].0.address, slot.bytes, seed(step, i, 0));
    }
}

/// Looks at the caller's buffers: results arrived, inputs are as they were.
fn check(slots: &[Slot], given: &Given, step: usize) {
    for (i, slot) in slots.iter().enumerate() {
        let after = u64::from(slot.direction.writes());
        let address = given.buffers[i].0.address;
        assert!(holds(address, slot.bytes, seed(step, i, after)), "slot {i} after step {step}");
    }
}

fn begin(
    binding: &Binding,
    world: &World,
    given: &Given,
    step: usize,
    baked: &mut Vec<DevicePtr>,
    record_agains: &mut Vec<usize>,
) -> StepReport {
    let generation = binding.info().expect("info").generation;
    let (outcome, report) = binding.begin(world.stream, given, generation).expect("begin");
    if outcome == Outcome::Started {
        assert_eq!(addresses(binding, given.buffers.len()), *baked, "addresses stay");
        return report;
    }
    record_agains.push(step);
    *baked = addresses(binding, given.buffers.len());
    let (outcome, report) = binding.begin(world.stream, given, report.generation).expect("begin");
    assert_eq!(outcome, Outcome::Started);
    report
}

/// Groups of changed mapped slots that lie side by side in the reservation.
fn contiguous_ranges(recording: &Recording, step: usize) -> u64 {
    let changed: Vec<bool> =
        recording.steps[step].iter().zip(&recording.steps[step - 1]).map(|(a, b)| a != b).collect();
    let starts = |i: usize| changed[i] && (i == 0 || !changed[i - 1]);
    (0..changed.len()).filter(|&i| starts(i)).count() as u64
}

fn settled(replay: &Replay) -> impl Iterator<Item = (usize, &(StepReport, StepReport))> {
    replay.reports.iter().enumerate().skip(SETTLED)
}

#[test]
fn llama_donate_at_64_kib_only_copies() {
    let recording = Recording::load("llama_donate");
    assert_eq!(recording.slots.len(), 590);
    for threshold in [Threshold(65_536), Threshold::AUTO] {
        let replay = replay(&recording, threshold);
        assert_eq!((replay.info.copied, replay.info.mapped, replay.info.baked), (296, 294, 0));
        assert_eq!(replay.info.threshold, Threshold(65_536));
        assert_eq!(replay.record_agains, [0], "recorded once");
        for (step, (begin, end)) in settled(&replay) {
            assert_eq!(begin.changed_slots, recording.moved(step));
            assert_eq!((begin.copied_slots, end.copied_slots), (197, 199));
            for (report, waited) in [(begin, begin.waited), (end, end.waited)] {
                let calls = report.calls;
                assert_eq!((calls.map, calls.unmap, calls.set_access), (0, 0, 0), "step {step}");
                assert_eq!((calls.copy_launches, calls.timeline_writes), (1, 0), "step {step}");
                assert!(!waited);
            }
        }
    }
}

#[test]
fn llama_donate_moves_196_slots_a_step() {
    let recording = Recording::load("llama_donate");
    for step in SETTLED..recording.steps.len() {
        assert_eq!(recording.moved(step), 196, "step {step}");
    }
}

#[test]
fn llama_donate_at_4_kib_remaps_the_batch() {
    let recording = Recording::load("llama_donate");
    let replay = replay(&recording, Threshold(4096));
    assert_eq!((replay.info.copied, replay.info.mapped), (295, 295));
    for (step, (begin, _)) in settled(&replay) {
        let calls = begin.calls;
        assert_eq!((calls.map, calls.unmap, calls.set_access), (1, 1, 1), "step {step}");
        assert_eq!((begin.remapped_slots, begin.waited), (1, true));
    }
}

#[test]
fn llama_donate_off_remaps_what_changed() {
    let recording = Recording::load("llama_donate");
    let replay = replay(&recording, Threshold::OFF);
    assert_eq!((replay.info.copied, replay.info.mapped), (0, 590));
    for (step, (begin, end)) in settled(&replay) {
        let (calls, moved) = (begin.calls, recording.moved(step));
        assert_eq!((calls.map, calls.unmap, begin.remapped_slots), (moved, moved, moved), "step {step}");
        assert!(calls.set_access <= contiguous_ranges(&recording, step), "step {step}");
        assert_eq!((calls.copy_launches, end.calls), (0, Default::default()));
    }
}

#[test]
fn the_other_recordings_arrive_at_every_threshold() {
    for (name, slots) in [("llama_donate_all", 510), ("llama_nodonate", 504)] {
        let recording = Recording::load(name);
        assert_eq!(recording.slots.len(), slots);
        for threshold in [Threshold::OFF, Threshold(65_536)] {
            let replay = replay(&recording, threshold);
            assert_eq!(replay.record_agains, [0], "{name}");
            for (step, (begin, _)) in settled(&replay) {
                assert_eq!(begin.changed_slots, recording.moved(step));
                let remapped = begin.remapped_slots;
                assert_eq!((begin.calls.map, begin.calls.unmap), (remapped, remapped), "{name} step {step}");
            }
        }
    }
}
