//! The kernels of `step.cu` with their memory, and a clock on the GPU.
#![allow(unsafe_code, reason = "reads the driver's list of nodes")]

use super::api::{Api, KernelNode};
use gvmm::driver::{Ordinal, Stream};
use gvmm::error::{Error, Kind, Operation, Result};
use std::ffi::{CStr, c_void};

/// For CUDA 11.0 and sm_50 or later.
const TEXT: &CStr = match CStr::from_bytes_with_nul(concat!(include_str!("step.ptx"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("a PTX text has no zero byte inside"),
};

/// As in `step.cu`: slots of a launch, and threads of a block.
pub(super) const SLOTS: usize = 16;
const THREADS: u32 = 256;

/// How long the stream is kept busy so that what is timed is enqueued by the time it runs.
const SPIN_NS: u64 = 1_000_000;

/// No seed.
pub(crate) const NONE: u32 = u32::MAX;

/// What a kernel does with one slot's memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Work {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Which seed its data must be of, or [`NONE`].
    pub(crate) check: u32,
    /// Which seed's data is written then, or [`NONE`].
    pub(crate) write: u32,
    /// Where words that are wrong are counted.
    pub(crate) counter: u32,
    pub(crate) unused: u32,
}

const IDLE: Work = Work { address: 0, bytes: 0, check: NONE, write: NONE, counter: 0, unused: 0 };

/// True where the driver has what changes the nodes of graphs.
pub(crate) fn can_patch() -> Result<bool> {
    Ok(Api::open()?.can_patch())
}

/// One device's kernels, seeds, counters and events. Its primary context is current on this thread while it lives.
pub(crate) struct Gpu {
    api: Api,
    device: i32,
    module: u64,
    step: u64,
    spin: u64,
    seeds: u64,
    counters: u64,
    count: usize,
    events: [u64; 2],
}

impl Gpu {
    /// With `seeds` seeds and `counters` counters.
    pub(crate) fn new(device: Ordinal, seeds: usize, counters: usize) -> Result<Self> {
        let (api, device, mut context) = (Api::open()?, device.0.cast_signed(), 0);
        api.primary_retain(&mut context, device)?;
        api.context_push(context)?;
        let mut gpu = Self {
            api,
            device,
            module: 0,
            step: 0,
            spin: 0,
            seeds: 0,
            counters: 0,
            count: counters.max(1),
            events: [0; 2],
        };
        gpu.api.module_load(&mut gpu.module, TEXT.as_ptr())?;
        gpu.api.module_function(&mut gpu.step, gpu.module, c"gvmm_step".as_ptr())?;
        gpu.api.module_function(&mut gpu.spin, gpu.module, c"gvmm_spin".as_ptr())?;
        gpu.api.memory_alloc(&mut gpu.seeds, 8 * seeds.max(2) as u64)?;
        gpu.api.memory_alloc(&mut gpu.counters, 4 * counters.max(1) as u64)?;
        for event in &mut gpu.events {
            gpu.api.event_create(event, 0)?;
        }
        gpu.prove()?;
        Ok(gpu)
    }

    /// Proves that the kernels find wrong data, every word of it, and right data right.
    fn prove(&self) -> Result<()> {
        const BYTES: u64 = 200_003;
        /// 8 at the beginning, 3 in the middle, 9 at the end.
        const WORDS: u32 = 20;
        let mut address = 0;
        self.api.memory_alloc(&mut address, BYTES)?;
        let proven = self.prove_at(Work { address, bytes: BYTES, ..IDLE }, WORDS);
        self.api.memory_free(address)?;
        proven
    }

    fn prove_at(&self, work: Work, words: u32) -> Result<()> {
        let default_stream = Stream(0);
        let mut seen = [0; 2];
        for (seed, seen) in seen.iter_mut().enumerate() {
            self.prepare(&[1, 2])?;
            self.launch(default_stream, &[Work { write: 0, ..work }])?;
            self.launch(default_stream, &[Work { check: seed as u32, ..work }])?;
            self.api.stream_synchronize(default_stream.0)?;
            *seen = self.counters()?.first().copied().unwrap_or_default();
        }
        if seen == [0, words] {
            return Ok(());
        }
        Err(Error::new(Kind::Internal, Operation::Launch, "the kernels do not tell right data from wrong"))
    }

    /// Puts the seeds there, and all counters to 0.
    pub(crate) fn prepare(&self, seeds: &[u64]) -> Result<()> {
        let zeros = vec![0_u32; self.count];
        self.api.copy_in(self.seeds, seeds.as_ptr().cast(), 8 * seeds.len() as u64)?;
        self.api.copy_in(self.counters, zeros.as_ptr().cast(), 4 * zeros.len() as u64)?;
        // From pageable memory a copy may return before its last bytes are there.
        self.api.stream_synchronize(0)
    }

    /// What the counters say.
    pub(crate) fn counters(&self) -> Result<Vec<u32>> {
        let mut counters = vec![0_u32; self.count];
        self.api.copy_out(counters.as_mut_ptr().cast(), self.counters, 4 * counters.len() as u64)?;
        Ok(counters)
    }

    /// Enqueues, or captures, the work on all slots.
    pub(crate) fn launch(&self, stream: Stream, work: &[Work]) -> Result<()> {
        for part in work.chunks(SLOTS) {
            let blocks = part.len() as u32;
            self.with_parameters(part, |step, parameters| {
                self.kernel(step, blocks, THREADS, stream, parameters)
            })?;
        }
        Ok(())
    }

    /// Gives the kernel for work on up to 16 slots, with its parameters, to `call`.
    fn with_parameters<T>(&self, work: &[Work], call: impl FnOnce(u64, &[*const c_void]) -> T) -> T {
        let mut table = [IDLE; SLOTS];
        table.iter_mut().zip(work).for_each(|(place, work)| *place = *work);
        let parameters: [*const c_void; 3] =
            [table.as_ptr().cast(), (&raw const self.seeds).cast(), (&raw const self.counters).cast()];
        call(self.step, &parameters)
    }

    /// Captures the work on all slots, and gives the nodes, one for so many slots; none where nodes cannot be patched.
    pub(super) fn record(&self, stream: Stream, work: &[Work], per_node: usize) -> Result<Vec<u64>> {
        let mut nodes = Vec::new();
        for part in work.chunks(per_node) {
            self.launch(stream, part)?;
            if self.can_patch() {
                nodes.push(self.newest_node(stream)?);
            }
        }
        Ok(nodes)
    }

    /// True where the driver has what changes the nodes of graphs.
    pub(super) fn can_patch(&self) -> bool {
        self.api.can_patch()
    }

    /// Gives a kernel node of an executable graph other work, on as many slots as before, at most 16.
    pub(super) fn patch(&self, exec: u64, node: u64, work: &[Work]) -> Result<()> {
        self.with_parameters(work, |function, parameters| {
            let (block, none) = ([THREADS, 1, 1], std::ptr::null());
            let grid = [work.len() as u32, 1, 1];
            let parameters = parameters.as_ptr();
            let node_of = KernelNode { function, grid, block, shared: 0, parameters, extra: none };
            self.api.patch_kernel(exec, node, &raw const node_of)
        })
    }

    /// The node of what was captured last.
    pub(super) fn newest_node(&self, stream: Stream) -> Result<u64> {
        let (mut status, mut id, mut graph, mut nodes, mut count) = (0, 0, 0, std::ptr::null::<u64>(), 0);
        self.api.capture_info(stream.0, &mut status, &mut id, &mut graph, &mut nodes, &mut count)?;
        if nodes.is_null() || count != 1 {
            return Err(Error::new(Kind::Internal, Operation::Capture, "not one node is the newest"));
        }
        // SAFETY: the driver's list has `count` nodes, which is one, until the next call about this stream.
        Ok(unsafe { nodes.read() })
    }

    /// Keeps the stream busy for a while.
    pub(super) fn spin(&self, stream: Stream) -> Result<()> {
        let nanoseconds = SPIN_NS;
        self.kernel(self.spin, 1, 1, stream, &[(&raw const nanoseconds).cast()])
    }

    fn kernel(
        &self,
        function: u64,
        grid: u32,
        block: u32,
        stream: Stream,
        parameters: &[*const c_void],
    ) -> Result<()> {
        let (parameters, none) = (parameters.as_ptr(), std::ptr::null());
        self.api.launch_kernel(function, grid, 1, 1, block, 1, 1, 0, stream.0, parameters, none)
    }

    /// Starts the clock when the stream gets there.
    pub(super) fn start(&self, stream: Stream) -> Result<()> {
        self.api.event_record(self.events[0], stream.0)
    }

    /// Stops the clock when the stream gets there.
    pub(super) fn stop(&self, stream: Stream) -> Result<()> {
        self.api.event_record(self.events[1], stream.0)
    }

    /// µs from start to stop, after the stream was waited for.
    pub(super) fn elapsed_us(&self) -> Result<f64> {
        let mut milliseconds = 0.0;
        self.api.event_elapsed(&mut milliseconds, self.events[0], self.events[1])?;
        Ok(f64::from(milliseconds) * 1e3)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let api = &self.api;
        let mut ended = Vec::new();
        ended.extend(self.events.iter().filter(|e| **e != 0).map(|event| api.event_destroy(*event)));
        for memory in [self.seeds, self.counters].into_iter().filter(|at| *at != 0) {
            ended.push(api.memory_free(memory));
        }
        if self.module != 0 {
            ended.push(api.module_unload(self.module));
        }
        ended.push(api.context_pop(&mut 0));
        ended.push(api.primary_release(self.device));
        for error in ended.into_iter().filter_map(std::result::Result::err) {
            log::warn!("something on the GPU was not given back: {error}");
        }
    }
}
