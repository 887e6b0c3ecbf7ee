//! An executor whose command buffer is a captured graph of kernels. Each looks at its slots' data and writes their
//! results, at the addresses that were there when it was recorded.

use super::gpu::{Gpu, NONE, SLOTS, Work};
use crate::copies::Copies;
use crate::executor::{GpuTime, Measured, Run, StepCost, Tally, run_all};
use crate::failure::{Context, Failure};
use crate::pattern::Seed;
use crate::pool::{Pool, StepBuffers};
use crate::service::{Service, Serving};
use crate::stream::{CommandBuffer, CommandStream};
use crate::trace::Trace;
use gvmm::error::Result;
use gvmm::rebind::{Action, Commands, Outcome, StepReport};
use gvmm::units::DevicePtr;
use gvmm::vm::Device;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs all steps of `trace` on `device`, which is NVIDIA's; otherwise as on the host.
pub(crate) fn run(
    device: &Arc<Device>,
    trace: &Trace,
    serving: &Serving,
    progress: impl Fn(),
) -> std::result::Result<Measured, Failure> {
    run_all(Executor::new(device, trace, serving)?, trace, progress)
}

/// A graph of kernels, and the nodes that can be patched: one for each command, or none.
struct Recorded {
    commands: CommandBuffer,
    nodes: Vec<u64>,
}

/// The fields' order is the order in which they go: streams outlive bindings, and memory outlives streams.
pub(crate) struct Executor<'a> {
    trace: &'a Trace,
    service: Service,
    commands: Option<Recorded>,
    /// The same without copies, where `commands` has some.
    bare: Option<Recorded>,
    /// What the kernels do, so many slots each: command `n` is that of the slots from so many times `n` on.
    work: Vec<Work>,
    per_command: usize,
    stream: CommandStream,
    pool: Pool,
    gpu: Gpu,
    generation: u64,
    /// Which slots are mapped; none before the first layout.
    mapped: Option<Vec<bool>>,
    /// The step that ran last.
    last: Option<usize>,
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
        serving: &Serving,
    ) -> std::result::Result<Self, Failure> {
        let count = trace.slots.len();
        let gpu = Gpu::new(device.ordinal(), 3 * count, 2 * count).during("kernels")?;
        let mut commands = Commands::default();
        let per_command = serving.per_command.clamp(1, SLOTS);
        (0..count).for_each(|slot| commands.push([(slot / per_command) as u32]));
        Ok(Self {
            trace,
            service: Service::new(device, trace, serving, Some(commands).filter(|_| gpu.can_patch()))?,
            commands: None,
            bare: None,
            work: Vec::new(),
            per_command,
            stream: CommandStream::new(device).during("stream")?,
            pool: Pool::new(device, &serving.access),
            gpu,
            generation: 0,
            mapped: None,
            last: None,
            tally: Tally::default(),
        })
    }

    /// Runs the graph as it is, before the step's data is there: by the time that the step is timed its addresses are as
    /// warm as when the graph alone is timed after it, whatever ran between.
    ///
    /// Each graph that is timed: one that did not run for long takes 0.15 µs a kernel longer. Its copies write what the
    /// step writes anew.
    fn warm_up(&self) -> Result<()> {
        let mut graphs = self.commands.iter().chain(&self.bare);
        graphs.try_for_each(|recorded| recorded.commands.launch(&self.stream))?;
        self.stream.synchronize()
    }

    /// True where one of these steps remaps: a begin that does so waits for the stream, which must not be kept busy then.
    fn will_remap(&mut self, steps: &[usize]) -> bool {
        let Some(mapped) = &self.mapped else { return true };
        let buffers = |step: usize| &self.trace.steps[step];
        let differ = |a: usize, b: usize| {
            let pairs = buffers(a).iter().zip(buffers(b)).zip(mapped);
            pairs.into_iter().any(|((a, b), mapped)| *mapped && a != b)
        };
        let all: Vec<usize> = self.last.into_iter().chain(steps.iter().copied()).collect();
        self.last = all.last().copied();
        all.windows(2).any(|pair| differ(pair[0], pair[1]))
    }

    /// The graph alone, beside `whole_us` with begin and end around it. What it writes was written before.
    fn bare(&self, whole_us: f64) -> Result<GpuTime> {
        let stream = self.stream.id();
        self.gpu.spin(stream)?;
        self.gpu.start(stream)?;
        let recorded = self.bare.as_ref().or(self.commands.as_ref());
        let started = Instant::now();
        recorded.map_or(Ok(()), |recorded| recorded.commands.launch(&self.stream))?;
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
            match self.service.binding.begin(self.stream.id(), buffers, self.generation)? {
                (Outcome::Started, report) => return Ok(report),
                (Outcome::RecordAgain, _) => self.record()?,
            }
        }
    }

    /// Captures the kernels with the binding's addresses.
    fn record(&mut self) -> Result<()> {
        let mut addresses = vec![DevicePtr::NULL; self.trace.slots.len()];
        self.generation = self.service.binding.addresses(&mut addresses)?;
        self.work = (0..addresses.len())
            .map(|i| {
                let slot = &self.trace.slots[i];
                let check = if slot.is_in { self.seed(Of::Input, i) } else { NONE };
                let write = if slot.is_out { self.seed(Of::Output, i) } else { NONE };
                Work { check, write, ..self.work(i, addresses[i], i) }
            })
            .collect();
        let mut actions = vec![Action::BAKE; addresses.len()];
        self.service.binding.actions(&mut actions)?;
        self.mapped = Some(actions.iter().map(|action| *action == Action::MAP).collect());
        let copies = self.service.serving().copies;
        self.bare = if copies == Copies::Graph { Some(self.capture(Copies::Around)?) } else { None };
        self.commands = Some(self.capture(copies)?);
        Ok(())
    }

    fn capture(&self, copies: Copies) -> Result<Recorded> {
        let mut nodes = Vec::new();
        let enqueue = |stream| {
            nodes = self.gpu.record(stream, &self.work, self.per_command)?;
            Ok(())
        };
        let commands = copies.capture(&self.service.binding, self.generation, &self.stream, enqueue)?;
        Ok(Recorded { commands, nodes })
    }

    /// Gives the graph's nodes this step's addresses, and the commands that changed.
    fn patch(&mut self) -> Result<Vec<usize>> {
        let patches = self.service.binding.patches()?;
        for patch in &patches {
            self.work[patch.slot as usize].address = patch.address.get();
        }
        let mut changed: Vec<usize> = patches.iter().map(|patch| patch.command as usize).collect();
        changed.sort_unstable();
        changed.dedup();
        self.patch_in(self.commands.as_ref(), &changed)?;
        Ok(changed)
    }

    fn patch_in(&self, recorded: Option<&Recorded>, changed: &[usize]) -> Result<()> {
        let Some(Recorded { commands, nodes }) = recorded else { return Ok(()) };
        let parts = |n| nodes.get(n).zip(self.work.chunks(self.per_command).nth(n));
        let mut parts = changed.iter().filter_map(|&n| parts(n));
        parts.try_for_each(|(node, work)| self.gpu.patch(commands.graph().0, *node, work))
    }

    fn launch(&self) -> Result<()> {
        self.commands.as_ref().map_or(Ok(()), |recorded| recorded.commands.launch(&self.stream))
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

/// How many kernels may wait in the stream.
const MOST_QUEUED: usize = 512;
/// How many steps a training loop runs ahead here.
const MOST_AHEAD: usize = 8;

impl Executor<'_> {
    /// One step of a timed burst, with how long the launch of its graph took.
    fn time_step(&mut self, buffers: &StepBuffers) -> Result<(StepCost, Duration)> {
        let started = Instant::now();
        let begun = self.begin(buffers)?;
        let patched = if begun.patched_commands > 0 { self.patch()?.len() as u64 } else { 0 };
        let mut time = started.elapsed();
        let launching = Instant::now();
        if let Err(error) = self.launch() {
            self.service.binding.abort()?;
            return Err(error);
        }
        let launched = Instant::now();
        let ended = self.service.binding.end()?;
        time += launched.elapsed();
        // While the host waits for the step before a remap, the GPU does the caller's work.
        time = time.saturating_sub(begun.wait_time);
        Ok((StepCost { begun, ended, time, patched, gpu: None }, launched - launching))
    }

    /// Runs `work` that often between two events, on a stream that is busy until all is enqueued unless it `remaps`, and
    /// says how many µs each took on the GPU.
    fn time_on_gpu(
        &mut self,
        count: usize,
        remaps: bool,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<f64> {
        let stream = self.stream.id();
        if !remaps {
            self.gpu.spin(stream)?;
        }
        self.gpu.start(stream)?;
        work(self)?;
        self.gpu.stop(stream)?;
        self.stream.synchronize()?;
        Ok(self.gpu.elapsed_us()? / count.max(1) as f64)
    }
}

impl Run for Executor<'_> {
    fn first_counted(&self) -> usize {
        self.service.serving().first_counted()
    }

    /// All data is the same from here on, so that no kernel finds any that is wrong.
    fn start_timing(&mut self) -> Result<()> {
        let count = self.trace.slots.len();
        self.gpu.prepare(&vec![Seed::of_input(0, 0).number(); 3 * count])?;
        for step in 0..self.trace.steps.len() {
            let buffers = self.pool.of_step(self.trace, step)?;
            let fill = |i| Work { write: self.seed(Of::Input, i), ..self.work(i, buffers.address(i), 0) };
            let work: Vec<Work> = (0..count).map(fill).collect();
            self.gpu.launch(self.stream.id(), &work)?;
            self.stream.synchronize()?;
        }
        self.service.start_timing()
    }

    fn burst(&self) -> usize {
        let kernels = self.trace.slots.len() / self.per_command + 3;
        (MOST_QUEUED / kernels).clamp(1, MOST_AHEAD)
    }

    fn run_burst(&mut self, steps: &[usize]) -> Result<Vec<StepCost>> {
        let buffers = steps.iter().map(|&step| self.pool.of_step(self.trace, step));
        let buffers = buffers.collect::<Result<Vec<StepBuffers>>>()?;
        let mut timed = Vec::with_capacity(steps.len());
        let remaps = self.will_remap(steps);
        let whole_us = self.time_on_gpu(steps.len(), remaps, |run| {
            buffers.iter().try_for_each(|buffers| run.time_step(buffers).map(|step| timed.push(step)))
        })?;
        let mut graph_host = Duration::ZERO;
        // Alone it would find its data where its last run left it, not where a step's copies did.
        if let Some(bare) = self.bare.as_ref().or(self.commands.as_ref()) {
            bare.commands.launch(&self.stream)?;
            self.stream.synchronize()?;
        }
        let graph_us = self.time_on_gpu(steps.len(), false, |run| {
            let recorded = run.bare.as_ref().or(run.commands.as_ref());
            let started = Instant::now();
            let launch = |_| recorded.map_or(Ok(()), |recorded| recorded.commands.launch(&run.stream));
            let launched = steps.iter().try_for_each(launch);
            graph_host = started.elapsed() / steps.len().max(1) as u32;
            launched
        })?;
        let gpu = GpuTime { whole_us, graph_us, graph_host };
        let with_gpu = |(step, launch): (StepCost, Duration)| {
            // A graph with new parameters, or after a remap, takes longer to launch.
            let slower = step.begun.remapped_slots > 0 || step.patched > 0;
            let more = if slower { launch.saturating_sub(graph_host) } else { Duration::ZERO };
            StepCost { time: step.time + more, gpu: Some(gpu), ..step }
        };
        Ok(timed.into_iter().map(with_gpu).collect())
    }

    fn run_step(&mut self, step: usize) -> Result<StepCost> {
        let buffers = self.pool.of_step(self.trace, step)?;
        self.warm_up()?;
        self.fill_inputs(step, &buffers)?;
        let stream = self.stream.id();
        if !self.will_remap(&[step]) {
            self.gpu.spin(stream)?;
        }
        self.gpu.start(stream)?;
        let started = Instant::now();
        let begun = self.begin(&buffers)?;
        let patched = if begun.patched_commands > 0 { self.patch()? } else { Vec::new() };
        let mut time = started.elapsed();
        let launching = Instant::now();
        if let Err(error) = self.launch() {
            self.service.binding.abort()?;
            return Err(error);
        }
        let launched = Instant::now();
        let ended = self.service.binding.end()?;
        time += launched.elapsed();
        self.gpu.stop(stream)?;
        self.stream.synchronize()?;
        let whole_us = self.gpu.elapsed_us()?;
        self.check(step, &buffers)?;
        self.patch_in(self.bare.as_ref(), &patched)?;
        let gpu = self.bare(whole_us)?;
        if begun.remapped_slots > 0 || !patched.is_empty() {
            // A graph with new parameters, or after a remap, takes longer to launch.
            time += (launched - launching).saturating_sub(gpu.graph_host);
        }
        self.service.follow(&begun)?;
        Ok(StepCost { begun, ended, time, patched: patched.len() as u64, gpu: Some(gpu) })
    }

    fn finish(mut self: Box<Self>, steps: Vec<StepCost>, timed: Vec<StepCost>) -> Result<Measured> {
        let tally = std::mem::take(&mut self.tally);
        self.service.finish(steps, timed, tally)
    }
}
