//! A small executor that runs a recording, step after step, and checks that all data is where it should be.
#![allow(unsafe_code, reason = "the command buffer touches device memory by address")]

use crate::copies::Copies;
use crate::failure::{Context, Failure};
use crate::pattern::{Memory, Seed};
use crate::pool::{Pool, StepBuffers};
use crate::service::{Service, Serving, Told};
use crate::stream::{CommandBuffer, CommandStream};
use crate::trace::Trace;
use gvmm::driver::HostFunction;
use gvmm::error::{Error, Result};
use gvmm::rebind::{BindingInfo, Commands, Direction, Outcome, Slot, StepReport};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::Device;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What begin and end of one step did, and how long they took.
pub(crate) struct StepCost {
    pub(crate) begun: StepReport,
    pub(crate) ended: StepReport,
    /// With what lies between: patching the command buffer, and how much longer its launch takes after that or a remap.
    pub(crate) time: Duration,
    /// Commands that were patched.
    pub(crate) patched: u64,
    /// None on the host driver.
    pub(crate) gpu: Option<GpuTime>,
}

/// What a step took on a GPU, beside its command buffer alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuTime {
    /// Of begin, command buffer and end, on the GPU.
    pub(crate) whole_us: f64,
    /// Of the command buffer alone, on the GPU.
    pub(crate) graph_us: f64,
    /// Of the command buffer's launch, on the host.
    pub(crate) graph_host: Duration,
}

/// What all steps of a recording cost, and whether they were right.
pub(crate) struct Measured {
    pub(crate) info: BindingInfo,
    /// The steps whose data was checked: between two of them all data is written and read.
    pub(crate) steps: Vec<StepCost>,
    /// The steps of the timed pass.
    pub(crate) timed: Vec<StepCost>,
    pub(crate) tally: Tally,
    pub(crate) told: Told,
    pub(crate) copies: Copies,
    /// The first step that counts, from 0.
    pub(crate) first_counted: usize,
}

/// How many slots' data was right.
#[derive(Default)]
pub(crate) struct Tally {
    /// Slots whose data was right, summed over the steps.
    pub(crate) verified_slots: u64,
    /// Slots whose data was not, summed over the steps.
    pub(crate) mismatches: u64,
    /// Where the first of them was.
    pub(crate) first_mismatch: Option<String>,
}

impl Tally {
    /// Notes whether a slot's data was seen at its address, and whether the caller's buffer `holds` it afterwards.
    pub(crate) fn add(&mut self, step: usize, slot: &str, saw: bool, holds: bool) {
        if saw && holds {
            self.verified_slots += 1;
            return;
        }
        let what = if saw { "the caller's buffer does not hold it" } else { "not its data at the address" };
        self.first_mismatch.get_or_insert_with(|| format!("step {step}, slot {slot}: {what}"));
        self.mismatches += 1;
    }
}

/// Runs all steps of `trace` on `device`. `progress` hears each step's end.
pub(crate) fn run(
    device: &Arc<Device>,
    trace: &Trace,
    serving: &Serving,
    progress: impl Fn(),
) -> std::result::Result<Measured, Failure> {
    run_all(Executor::new(device, trace, serving)?, trace, progress)
}

/// What runs a recording's steps, one after the other.
pub(crate) trait Run {
    /// The first step that counts, from 0.
    fn first_counted(&self) -> usize;

    /// Runs one step and checks its data.
    fn run_step(&mut self, step: usize) -> Result<StepCost>;

    /// Makes ready for the timed pass: what is told of the binding is told as it is now.
    fn start_timing(&mut self) -> Result<()>;

    /// How many steps a timed burst may have.
    fn burst(&self) -> usize;

    /// Runs steps of the recording as a training loop does: one after the other, and nobody looks at the data.
    fn run_burst(&mut self, steps: &[usize]) -> Result<Vec<StepCost>>;

    /// What was measured, with the `steps` that were run and those that were `timed`.
    fn finish(self: Box<Self>, steps: Vec<StepCost>, timed: Vec<StepCost>) -> Result<Measured>;
}

/// Runs all steps of `trace`.
pub(crate) fn run_all(
    mut run: impl Run,
    trace: &Trace,
    progress: impl Fn(),
) -> std::result::Result<Measured, Failure> {
    let mut steps = Vec::new();
    for step in 0..trace.steps.len() {
        steps.push(run.run_step(step).map_err(|error| in_step(trace, step, error))?);
        progress();
    }
    let all = 0..trace.steps.len();
    let counted = all.start.max(run.first_counted())..all.end;
    let counted = if counted.is_empty() { all } else { counted };
    run.start_timing().during("timed pass")?;
    let (mut timed, start) = (Vec::new(), Instant::now());
    while timed.len() < MOST_TIMED && (timed.is_empty() || start.elapsed() < TIMED_LIMIT) {
        timed.append(&mut time(&mut run, trace, counted.clone())?);
    }
    Box::new(run).finish(steps, timed).during("binding")
}

/// How many steps a timed pass has, and after which time it begins no further round.
const MOST_TIMED: usize = 200;
const TIMED_LIMIT: Duration = Duration::from_millis(300);

/// Runs `steps` of a timed pass.
pub(crate) fn time(
    run: &mut dyn Run,
    trace: &Trace,
    steps: Range<usize>,
) -> std::result::Result<Vec<StepCost>, Failure> {
    let (steps, mut timed) = (steps.collect::<Vec<usize>>(), Vec::new());
    for burst in steps.chunks(run.burst().max(1)) {
        timed.append(&mut run.run_burst(burst).map_err(|error| in_step(trace, burst[0], error))?);
    }
    Ok(timed)
}

/// Names the step, and the slot where one is to blame.
pub(crate) fn in_step(trace: &Trace, step: usize, mut error: Error) -> Failure {
    let slot = error.entry.and_then(|entry| trace.slots.get(usize::try_from(entry).ok()?));
    let place = match slot {
        Some(slot) => format!("step {step}, slot {}", slot.name),
        None => format!("step {step}"),
    };
    error.entry = error.entry.filter(|_| slot.is_none());
    Failure::of_call(&place, &error)
}

/// What the functions of the command buffer and the executor share.
struct Shared {
    step: AtomicUsize,
    /// Functions look at no data: the timed pass runs.
    timing: AtomicBool,
    /// For each slot the address that its function uses. What is recorded reads it here, so that it can be patched.
    addresses: Vec<AtomicU64>,
    /// For each slot by which slot's seed its input is filled: its own, or that of the first with the same buffer.
    filler: Vec<AtomicUsize>,
    /// For each slot whether its function saw this step's data.
    saw: Vec<AtomicBool>,
}

/// The fields' order is the order in which they go: streams outlive bindings, and memory outlives streams.
pub(crate) struct Executor<'a> {
    trace: &'a Trace,
    service: Service,
    commands: Option<CommandBuffer>,
    stream: CommandStream,
    pool: Pool,
    shared: Arc<Shared>,
    generation: u64,
    tally: Tally,
}

impl<'a> Executor<'a> {
    pub(crate) fn new(
        device: &Arc<Device>,
        trace: &'a Trace,
        serving: &Serving,
    ) -> std::result::Result<Self, Failure> {
        // A function is a command, and each has one slot.
        let mut commands = Commands::default();
        (0..trace.slots.len() as u32).for_each(|slot| commands.push([slot]));
        let shared = Shared {
            step: AtomicUsize::new(0),
            timing: AtomicBool::new(false),
            addresses: trace.slots.iter().map(|_| AtomicU64::new(0)).collect(),
            filler: trace.slots.iter().map(|_| AtomicUsize::new(0)).collect(),
            saw: trace.slots.iter().map(|_| AtomicBool::new(false)).collect(),
        };
        Ok(Self {
            trace,
            service: Service::new(device, trace, serving, Some(commands))?,
            commands: None,
            stream: CommandStream::new(device).during("stream")?,
            pool: Pool::new(device, &serving.access),
            shared: Arc::new(shared),
            generation: 0,
            tally: Tally::default(),
        })
    }

    fn fill_inputs(&self, step: usize, buffers: &StepBuffers) {
        self.shared.step.store(step, Ordering::Release);
        for (i, slot) in self.trace.slots.iter().enumerate().filter(|(_, slot)| slot.is_in) {
            let filler = buffers.first_with_buffer_of(i);
            self.shared.filler[i].store(filler, Ordering::Release);
            buffers.memory(i, slot.bytes).write(Seed::of_input(step, filler));
        }
    }

    /// Begins until the step starts, and records whenever the binding asks for that.
    fn begin(&mut self, buffers: &StepBuffers) -> Result<StepReport> {
        loop {
            match self.service.binding.begin(self.stream.id(), buffers, self.generation)? {
                (Outcome::Started, report) => return Ok(report),
                (Outcome::RecordAgain, _) => self.record()?,
            }
        }
    }

    /// Records the command buffer with the binding's addresses: a function for each slot.
    fn record(&mut self) -> Result<()> {
        let mut addresses = vec![DevicePtr::NULL; self.trace.slots.len()];
        self.generation = self.service.binding.addresses(&mut addresses)?;
        for (place, address) in self.shared.addresses.iter().zip(&addresses) {
            place.store(address.get(), Ordering::Release);
        }
        let functions = (0..addresses.len()).map(|slot| self.function(slot));
        let enqueue = |_| self.stream.enqueue(functions);
        let (binding, copies) = (&self.service.binding, self.service.serving().copies);
        self.commands = Some(copies.capture(binding, self.generation, &self.stream, enqueue)?);
        Ok(())
    }

    /// Changes addresses in the command buffer, which nothing launches at the moment; says of how many commands.
    fn patch(&self) -> Result<u64> {
        let patches = self.service.binding.patches()?;
        for patch in &patches {
            self.shared.addresses[patch.command as usize].store(patch.address.get(), Ordering::Release);
        }
        self.service.simulate_patches(patches.len() as u64);
        Ok(patches.len() as u64)
    }

    /// Looks at the slot's input and writes its output, both at the recorded address.
    fn function(&self, slot: usize) -> HostFunction {
        let (is_in, is_out) = (self.trace.slots[slot].is_in, self.trace.slots[slot].is_out);
        let (shared, bytes) = (Arc::clone(&self.shared), ByteSize(self.trace.slots[slot].bytes));
        Arc::new(move || {
            if shared.timing.load(Ordering::Acquire) {
                return;
            }
            let address = DevicePtr(shared.addresses[slot].load(Ordering::Acquire));
            // SAFETY: it runs between begin and end only, when the binding serves the slot at this address, and nobody
            // else touches it: the executor waits for the stream before it looks.
            let memory = unsafe { Memory::new(address, bytes) };
            let step = shared.step.load(Ordering::Acquire);
            let input = Seed::of_input(step, shared.filler[slot].load(Ordering::Acquire));
            shared.saw[slot].store(!is_in || memory.matches(input), Ordering::Release);
            if is_out {
                memory.write(Seed::of_output(step, slot));
            }
        })
    }

    fn launch(&self) -> Result<()> {
        self.commands.as_ref().map_or(Ok(()), |commands| commands.launch(&self.stream))
    }

    /// Begin, the command buffer and end, until the stream has passed.
    fn time_step(&mut self, buffers: &StepBuffers) -> Result<StepCost> {
        let started = Instant::now();
        let begun = self.begin(buffers)?;
        let patched = if begun.patched_commands > 0 { self.patch()? } else { 0 };
        let mut time = started.elapsed();
        if let Err(error) = self.launch() {
            self.service.binding.abort()?;
            return Err(error);
        }
        let launched = Instant::now();
        let ended = self.service.binding.end()?;
        time += launched.elapsed();
        // Functions read their addresses when they run, so that a step must not be patched before.
        self.stream.synchronize()?;
        Ok(StepCost { begun, ended, time, patched, gpu: None })
    }

    /// After the step, the caller's own buffers hold the results, and the inputs as they were.
    fn check(&mut self, step: usize, buffers: &StepBuffers) {
        for (i, slot) in self.trace.slots.iter().enumerate() {
            let filler = self.shared.filler[i].load(Ordering::Acquire);
            let seed = if slot.is_out { Seed::of_output(step, i) } else { Seed::of_input(step, filler) };
            let saw = self.shared.saw[i].load(Ordering::Acquire);
            self.tally.add(step, &slot.name, saw, buffers.memory(i, slot.bytes).matches(seed));
        }
    }
}

impl Run for Executor<'_> {
    fn run_step(&mut self, step: usize) -> Result<StepCost> {
        let buffers = self.pool.of_step(self.trace, step)?;
        self.fill_inputs(step, &buffers);
        let cost = self.time_step(&buffers)?;
        self.check(step, &buffers);
        self.service.follow(&cost.begun)?;
        Ok(cost)
    }

    fn start_timing(&mut self) -> Result<()> {
        self.shared.timing.store(true, Ordering::Release);
        self.service.start_timing()
    }

    fn burst(&self) -> usize {
        self.trace.steps.len()
    }

    fn run_burst(&mut self, steps: &[usize]) -> Result<Vec<StepCost>> {
        let buffers = steps.iter().map(|&step| self.pool.of_step(self.trace, step));
        let buffers = buffers.collect::<Result<Vec<StepBuffers>>>()?;
        buffers.iter().map(|buffers| self.time_step(buffers)).collect()
    }

    fn first_counted(&self) -> usize {
        self.service.serving().first_counted()
    }

    fn finish(mut self: Box<Self>, steps: Vec<StepCost>, timed: Vec<StepCost>) -> Result<Measured> {
        let tally = std::mem::take(&mut self.tally);
        self.service.finish(steps, timed, tally)
    }
}

/// The recording's slots as a binding takes them.
pub(crate) fn slots(trace: &Trace) -> Vec<Slot> {
    let direction = |slot: &crate::trace::Slot| match (slot.is_in, slot.is_out) {
        (true, true) => Direction::IN_OUT,
        (_, false) => Direction::IN,
        (false, true) => Direction::OUT,
    };
    trace.slots.iter().map(|slot| Slot::new(ByteSize(slot.bytes)).direction(direction(slot))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{CostChoice, Joint, open_device};
    use gvmm::driver::DriverKind;
    use gvmm::rebind::Threshold;

    fn slot(name: &str, is_in: bool, is_out: bool) -> crate::trace::Slot {
        crate::trace::Slot { name: name.into(), bytes: 100_000, is_in, is_out }
    }

    #[test]
    fn wrong_data_in_the_callers_buffers_is_found() {
        let slots = vec![slot("in", true, false), slot("out", false, true), slot("both", true, true)];
        let trace = Trace { name: "t".into(), slots, steps: vec![vec![1, 2, 3], vec![2, 1, 3]] };
        let device =
            open_device(Some(DriverKind::HOST), CostChoice::None, 0, Joint::On).expect("the host driver");
        for threshold in [Threshold::OFF, Threshold(1 << 20)] {
            let serving = Serving::by_threshold(threshold, &[]);
            let mut executor = Executor::new(&device, &trace, &serving).expect("an executor");
            for step in 0..2 {
                executor.run_step(step).expect("a step");
            }
            assert_eq!((executor.tally.verified_slots, executor.tally.mismatches), (6, 0));
            let buffers = executor.pool.of_step(&trace, 1).expect("the buffers of step 1");
            buffers.memory(1, 100_000).write(Seed::of_output(0, 1));
            executor.check(1, &buffers);
            assert_eq!((executor.tally.verified_slots, executor.tally.mismatches), (8, 1));
            executor.shared.saw[2].store(false, Ordering::Release);
            executor.check(1, &buffers);
            assert_eq!((executor.tally.verified_slots, executor.tally.mismatches), (9, 3));
            let first = "step 1, slot out: the caller's buffer does not hold it";
            assert_eq!(executor.tally.first_mismatch.as_deref(), Some(first));
        }
    }
}
