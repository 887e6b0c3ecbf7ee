//! What an allocation costs on the host, without streams that lag: pairs of one size, the same on four threads, and
//! the recordings, with counts of driver calls beside the times.

#[path = "../tests/pool_support/mod.rs"]
mod pool_support;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gvmm::driver::Stream;
use gvmm::pool::{Pool, Settings};
use gvmm::units::{ByteSize, DevicePtr};
use pool_support::{Op, Recording, World, recording};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn pair(pool: &Pool, stream: Stream, size: ByteSize) {
    let address = pool.alloc(black_box(size), stream).expect("memory");
    pool.free(black_box(address)).expect("in use");
}

fn pairs(c: &mut Criterion) {
    let world = World::new(4, ByteSize::gib(64), &[], &Settings::default());
    let mut group = c.benchmark_group("alloc and free");
    group.throughput(Throughput::Elements(1));
    for (name, size) in [("4 KiB", ByteSize::kib(4)), ("8 MiB", ByteSize::mib(8))] {
        // Something on either side, so that the block joins and is cut each time.
        let _around: Vec<DevicePtr> =
            (0..3).map(|_| world.pool.alloc(size, world.streams[0]).expect("memory")).collect();
        group.bench_function(name, |b| b.iter(|| pair(&world.pool, world.streams[0], size)));
    }
    group.bench_function("4 KiB, each of four threads with a stream of its own", |b| {
        b.iter_custom(|count| threads(&world, count));
    });
    group.finish();
    println!("driver calls: {:?}", world.pool.stats().calls);
}

/// The slowest of four threads.
fn threads(world: &World, count: u64) -> Duration {
    std::thread::scope(|scope| {
        let run = |stream: Stream| {
            let pool = &world.pool;
            scope.spawn(move || {
                let start = Instant::now();
                (0..count).for_each(|_| pair(pool, stream, ByteSize::kib(4)));
                start.elapsed()
            })
        };
        let running: Vec<_> = world.streams.iter().map(|stream| run(*stream)).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).max().unwrap_or_default()
    })
}

/// How long each operation took, less what taking the time costs.
fn each(recording: &Recording, world: &World) -> Vec<u64> {
    let mut at = vec![DevicePtr::NULL; recording.blocks];
    let mut times = Vec::with_capacity(recording.ops.len());
    let empty = (0..1000).map(|_| Instant::now().elapsed().as_nanos() as u64).min().unwrap_or(0);
    for op in &recording.ops {
        let start = Instant::now();
        match *op {
            Op::Alloc { id, bytes, stream } => {
                at[id] = world.pool.alloc(ByteSize(bytes), world.streams[stream]).expect("memory");
            }
            Op::Free { id, .. } => world.pool.free(std::mem::take(&mut at[id])).expect("in use"),
            Op::Completed { .. } => continue,
        }
        times.push((start.elapsed().as_nanos() as u64).saturating_sub(empty));
    }
    at.into_iter().filter(|at| !at.is_null()).for_each(|at| world.pool.free(at).expect("in use"));
    times.sort_unstable();
    times
}

fn recordings(c: &mut Criterion) {
    let mut group = c.benchmark_group("recordings");
    group.sample_size(10);
    for name in ["gpt2_train", "llama_lora_ckpt", "vit_multires", "two_stream"] {
        let recording = recording(name);
        let world = World::new(recording.streams, ByteSize::gib(64), &[], &Settings::default());
        let run = || recording.run_each(&world.pool, &world.streams, |_| {}).expect("memory");
        (0..3).for_each(|_| run());
        let before = world.pool.stats();
        group.throughput(Throughput::Elements(2 * before.allocations() / 3));
        group.bench_function(name, |b| b.iter(run));
        let (after, times) = (world.pool.stats(), each(&recording, &world));
        let part = |thousandths: usize| times[(times.len() - 1) * thousandths / 1000];
        println!(
            "{name}: {} allocations, {:?}; an operation: p50 {} ns, p99 {} ns, p999 {} ns",
            after.allocations() - before.allocations(),
            after.calls.minus(before.calls),
            part(500),
            part(990),
            part(999),
        );
    }
    group.finish();
}

criterion_group!(benches, pairs, recordings);
criterion_main!(benches);
