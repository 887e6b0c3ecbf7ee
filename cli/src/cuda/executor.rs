//! An executor whose command buffer is a captured graph of kernels. Each looks at its slots' data and writes their
//! results, at the addresses that were there when it was recorded.

use super::gpu::{Gpu, NONE, Work};
use crate::copies::Copies;
use crate::executor::{GpuTime, Measured, Run, StepCost, Tally, run_all, slots};
use crate::failure::{Context, Failure};
use crate::pattern::Seed;
use crate::pool::{Pool, StepBuffers};
use crate::stream::{CommandBuffer, CommandStream};
use crate::trace::Trace;
use gvmm::driver::Access;
use gvmm::error::Result;
use gvmm::rebind::{Binding, Options, Outcome, StepReport, Threshold};
use gvmm::units::DevicePtr;
use gvmm::vm::Device;
use std::sync::Arc;
use std::time::Instant;

/// Runs all steps of `trace` on `device`, which is NVIDIA's; otherwise as on the host.
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

/// The fields' order is the order in which they go: streams outlive bindings, and memory outlives streams.
pub(crate) struct Executor<'a> {
    trace: &'a Trace,
    binding: Binding,
    copies: Copies,
    commands: Option<CommandBuffer>,
    /// The same without copies, where `commands` has some.
    bare: Option<CommandBuffer>,
    stream: CommandStream,
    pool: Pool,
    gpu: Gpu,
    generation: u64,
    /// The last step remapped: then its time on the GPU is mostly that of the host, and begin waits for the stream.
    moving: bool,
    tally: Tally,
}

/// The number of a slot's seed: of three lists, one after the other.
#[derive(Clone, Copy)]
enum Of {
    Input = 0,
    Output = 1,
    /// What the caller's buffer holds after the step.
    After = 2,
}

impl<'a> Executor<'a> {
    pub(crate) fn new(
        device: &Arc<Device>,
        trace: &'a Trace,
        threshold: Threshold,
        access: &[Access],
    ) -> std::result::Result<Self, Failure> {
        let options = Options { threshold, free: None, access: access.to_vec() };
        let count = trace.slots.len();
        Ok(Self {
            trace,
            binding: Binding::new(device, slots(trace), options).during("binding")?,
            copies: Copies::default(),
            commands: None,
            bare: None,
            stream: CommandStream::new(device).during("stream")?,
            pool: Pool::new(device, access),
            gpu: Gpu::new(device.ordinal(), 3 * count, 2 * count).during("kernels")?,
            generation: 0,
            moving: true,
            tally: Tally::default(),
        })
    }

    /// The same, with the steps' copies made there.
    pub(crate) fn with(self, copies: Copies) -> Self {
        Self { copies, ..self }
    }

    /// The graph alone, beside `whole_us` with begin and end around it. What it writes was written before.
    fn bare(&self, whole_us: f64) -> Result<GpuTime> {
        let stream = self.stream.id();
        self.gpu.spin(stream)?;
        self.gpu.start(stream)?;
        let commands = self.bare.as_ref().or(self.commands.as_ref());
        let started = Instant::now();
        commands.map_or(Ok(()), |commands| commands.launch(&self.stream))?;
        let graph_host = started.elapsed();
        self.gpu.stop(stream)?;
        self.stream.synchronize()?;
        Ok(GpuTime { whole_us, graph_us: self.gpu.elapsed_us()?, graph_host })
    }

    fn seed(&self, of: Of, slot: usize) -> u32 {
        (of as usize * self.trace.slots.len() + slot) as u32
    }

    /// Work on slot `i` at `address`; what is wrong is counted at `counter`.
    fn work(&self, i: usize, address: DevicePtr, counter: usize) -> Work {
        let bytes = self.trace.slots[i].bytes;
        let counter = counter as u32;
        Work { address: address.get(), bytes, check: NONE, write: NONE, counter, unused: 0 }
    }

    fn fill_inputs(&self, step: usize, buffers: &StepBuffers) -> Result<()> {
        let slots = &self.trace.slots;
        let input = |i| Seed::of_input(step, buffers.first_with_buffer_of(i)).number();
        let output = |i| Seed::of_output(step, i).number();
        let after = |i: usize| if slots[i].is_out { output(i) } else { input(i) };
        let all = || 0..slots.len();
        let seeds: Vec<u64> = all().map(input).chain(all().map(output)).chain(all().map(after)).collect();
        self.gpu.prepare(&seeds)?;
        let work: Vec<Work> = all()
            .filter(|i| slots[*i].is_in)
            .map(|i| Work { write: self.seed(Of::Input, i), ..self.work(i, buffers.address(i), 0) })
            .collect();
        self.gpu.launch(self.stream.id(), &work)?;
        self.stream.synchronize()
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

    /// Captures the kernels with the binding's addresses.
    fn record(&mut self) -> Result<()> {
        let mut addresses = vec![DevicePtr::NULL; self.trace.slots.len()];
        self.generation = self.binding.addresses(&mut addresses)?;
        let work: Vec<Work> = (0..addresses.len())
            .map(|i| {
                let slot = &self.trace.slots[i];
                let check = if slot.is_in { self.seed(Of::Input, i) } else { NONE };
                let write = if slot.is_out { self.seed(Of::Output, i) } else { NONE };
                Work { check, write, ..self.work(i, addresses[i], i) }
            })
            .collect();
        let enqueue = |stream| self.gpu.launch(stream, &work);
        if self.copies == Copies::Graph {
            self.bare = Some(self.stream.capture(enqueue)?);
        }
        self.commands = Some(self.copies.capture(&self.binding, self.generation, &self.stream, enqueue)?);
        Ok(())
    }

    fn launch(&self) -> Result<()> {
        self.commands.as_ref().map_or(Ok(()), |commands| commands.launch(&self.stream))
    }

    /// After the step, the caller's own buffers hold the results, and the inputs as they were.
    fn check(&mut self, step: usize, buffers: &StepBuffers) -> Result<()> {
        let count = self.trace.slots.len();
        let work: Vec<Work> = (0..count)
            .map(|i| Work { check: self.seed(Of::After, i), ..self.work(i, buffers.address(i), count + i) })
            .collect();
        self.gpu.launch(self.stream.id(), &work)?;
        self.stream.synchronize()?;
        let wrong = self.gpu.counters()?;
        for (i, slot) in self.trace.slots.iter().enumerate() {
            self.tally.add(step, &slot.name, wrong[i] == 0, wrong[count + i] == 0);
        }
        Ok(())
    }
}

impl Run for Executor<'_> {
    fn run_step(&mut self, step: usize) -> Result<StepCost> {
        let buffers = self.pool.of_step(self.trace, step)?;
        self.fill_inputs(step, &buffers)?;
        let stream = self.stream.id();
        if !self.moving {
            self.gpu.spin(stream)?;
        }
        self.gpu.start(stream)?;
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
        self.gpu.stop(stream)?;
        self.stream.synchronize()?;
        let whole_us = self.gpu.elapsed_us()?;
        self.check(step, &buffers)?;
        self.moving = begun.remapped_slots > 0;
        let gpu = Some(self.bare(whole_us)?);
        Ok(StepCost { begun, ended, time, gpu })
    }

    fn finish(self: Box<Self>, steps: Vec<StepCost>) -> Result<Measured> {
        let info = self.binding.info()?;
        Ok(Measured { info, steps, tally: self.tally })
    }
}
