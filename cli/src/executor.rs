//! A small executor that runs a recording, step after step, and checks that all data is where it should be.
#![allow(unsafe_code, reason = "the command buffer touches device memory by address")]

use crate::copies::Copies;
use crate::failure::{Context, Failure};
use crate::pattern::{Memory, Seed};
use crate::pool::{Pool, StepBuffers};
use crate::stream::{CommandBuffer, CommandStream};
use crate::trace::Trace;
use gvmm::driver::{Access, HostFunction};
use gvmm::error::{Error, Result};
use gvmm::rebind::{Binding, BindingInfo, Direction, Options, Outcome, Slot, StepReport, Threshold};
use gvmm::units::{ByteSize, DevicePtr};
use gvmm::vm::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What begin and end of one step did, and how long they took.
pub(crate) struct StepCost {
    pub(crate) begun: StepReport,
    pub(crate) ended: StepReport,
    pub(crate) time: Duration,
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
    pub(crate) steps: Vec<StepCost>,
    pub(crate) tally: Tally,
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

/// Runs all steps of `trace` on `device`; `access` goes into every access list. `progress` hears each step's end.
pub(crate) fn run(
    device: &Arc<Device>,
    trace: &Trace,
    threshold: Threshold,
    access: &[Access],
    copies: Copies,
    progress: impl Fn(),
) -> std::result::Result<Measured, Failure> {
    run_all(Executor::new(device, trace, threshold, access)?.with(copies), trace, progress)
}

/// What runs a recording's steps, one after the other.
pub(crate) trait Run {
    /// Runs one step.
    fn run_step(&mut self, step: usize) -> Result<StepCost>;

    /// What was measured, with the `steps` that were run.
    fn finish(self: Box<Self>, steps: Vec<StepCost>) -> Result<Measured>;
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
    Box::new(run).finish(steps).during("binding")
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
    /// For each slot by which slot's seed its input is filled: its own, or that of the first with the same buffer.
    filler: Vec<AtomicUsize>,
    /// For each slot whether its function saw this step's data.
    saw: Vec<AtomicBool>,
}

/// The fields' order is the order in which they go: streams outlive bindings, and memory outlives streams.
pub(crate) struct Executor<'a> {
    trace: &'a Trace,
    binding: Binding,
    copies: Copies,
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
        threshold: Threshold,
        access: &[Access],
    ) -> std::result::Result<Self, Failure> {
        let options = Options { threshold, free: None, access: access.to_vec() };
        let binding = Binding::new(device, slots(trace), options).during("binding")?;
        let shared = Shared {
            step: AtomicUsize::new(0),
            filler: trace.slots.iter().map(|_| AtomicUsize::new(0)).collect(),
            saw: trace.slots.iter().map(|_| AtomicBool::new(false)).collect(),
        };
        Ok(Self {
            trace,
            binding,
            copies: Copies::default(),
            commands: None,
            stream: CommandStream::new(device).during("stream")?,
            pool: Pool::new(device, access),
            shared: Arc::new(shared),
            generation: 0,
            tally: Tally::default(),
        })
    }

    /// The same, with the steps' copies made there.
    pub(crate) fn with(self, copies: Copies) -> Self {
        Self { copies, ..self }
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
            match self.binding.begin(self.stream.id(), buffers, self.generation)? {
                (Outcome::Started, report) => return Ok(report),
                (Outcome::RecordAgain, _) => self.record()?,
            }
        }
    }

    /// Records the command buffer with the binding's addresses: a function for each slot.
    fn record(&mut self) -> Result<()> {
        let mut addresses = vec![DevicePtr::NULL; self.trace.slots.len()];
        self.generation = self.binding.addresses(&mut addresses)?;
        let functions = addresses.iter().enumerate().map(|(slot, &address)| self.function(slot, address));
        let enqueue = |_| self.stream.enqueue(functions);
        self.commands = Some(self.copies.capture(&self.binding, self.generation, &self.stream, enqueue)?);
        Ok(())
    }

    /// Looks at the slot's input and writes its output, both at the baked address.
    fn function(&self, slot: usize, address: DevicePtr) -> HostFunction {
        let (is_in, is_out) = (self.trace.slots[slot].is_in, self.trace.slots[slot].is_out);
        let shared = Arc::clone(&self.shared);
        // SAFETY: it runs between begin and end only, when the binding serves the slot at this address, and nobody
        // else touches it: the executor waits for the stream before it looks.
        let memory = unsafe { Memory::new(address, ByteSize(self.trace.slots[slot].bytes)) };
        Arc::new(move || {
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
        let started = Instant::now();
        let begun = self.begin(&buffers)?;
        let mut time = started.elapsed();
        if let Err(error) = self.launch() {
            self.binding.abort()?;
            return Err(error);
        }
        let launched = Instant::now();
        let ended = self.binding.end()?;
        time += launched.elapsed();
        self.stream.synchronize()?;
        self.check(step, &buffers);
        Ok(StepCost { begun, ended, time, gpu: None })
    }

    fn finish(self: Box<Self>, steps: Vec<StepCost>) -> Result<Measured> {
        let info = self.binding.info()?;
        Ok(Measured { info, steps, tally: self.tally })
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
            let mut executor = Executor::new(&device, &trace, threshold, &[]).expect("an executor");
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
