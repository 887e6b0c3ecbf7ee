//! `gvmm replay`: what a program asked of its allocator, asked of a pool.

mod canary;
mod options;
mod pace;
mod player;
mod plot;
mod recording;
mod report;
mod run;
mod ticks;

pub(crate) use options::Replay;

use crate::failure::{Context, Failure};
use crate::report::costs;
use crate::setup::{CostChoice, open_driver};
use crate::{MISMATCH, print, progress_bar};
use gvmm::config;
use gvmm::driver::testing::Meter;
use gvmm::driver::{Driver, DriverKind, Ordinal};
use gvmm::pool::Pool;
use gvmm::vm::Device;
use player::{Outcome, Player, Point, Task};
use recording::Recording;
use report::{Counted, Repetition, Report};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;

/// The host's device, which commits nothing before it is touched, has that much more than a program asks for.
const HOST_ROOM: u64 = 4 << 30;

/// A device, a pool, and what is measured around them.
struct World {
    pool: Arc<Pool>,
    device: Arc<Device>,
    meter: Arc<Meter>,
    /// The driver without the meter.
    driver: Arc<dyn Driver>,
}

impl World {
    /// `peak` is what the program asks for at most, all threads together.
    fn new(options: &Replay, peak: u64) -> Result<Self, Failure> {
        let mut config = config::get().clone();
        if config.host.memory == 0 {
            config.host.memory = peak.saturating_mul(2).saturating_add(HOST_ROOM);
        }
        let kind = options.driver.kind().or(config.driver.map(DriverKind));
        let driver = open_driver(kind, CostChoice::Environment, config)?;
        let meter = Arc::new(Meter::new(Arc::clone(&driver)));
        let device = Device::open(Arc::<Meter>::clone(&meter), Ordinal(0)).during("device 0")?;
        let pool = Pool::new(&device, &options.settings(peak)).during("pool")?;
        Ok(Self { pool, device, meter, driver })
    }

    fn end(self) -> Result<(), Failure> {
        drop(self.pool);
        self.device.drain().during("giving memory back")
    }
}

/// Runs it as the options say.
pub(crate) fn run(options: &Replay) -> Result<ExitCode, Failure> {
    let recording = recording::read(&options.trace)?;
    let peak = recording.peak.saturating_mul(u64::from(options.threads));
    let world = World::new(options, peak)?;
    let replayed = replay(options, &recording, &world, peak);
    let ended = world.end();
    let found = replayed?;
    ended?;
    if let Some(path) = &options.plot {
        plot::write(path, &options.trace, &found.curve)?;
    }
    if let Some(why) = &found.first_oom {
        eprintln!("gvmm: an allocation failed, the first of these: {why}");
    }
    if found.canary_errors > 0 {
        eprintln!("gvmm: {} blocks did not hold what was written to them", found.canary_errors);
    }
    print(options.json, &found.report, |report| report.table(options.canary))?;
    let all_right = found.first_oom.is_none() && found.canary_errors == 0;
    Ok(if all_right { ExitCode::SUCCESS } else { ExitCode::from(MISMATCH) })
}

/// What all repetitions found.
struct Found {
    report: Report,
    first_oom: Option<String>,
    canary_errors: u64,
    curve: Vec<Point>,
}

fn replay(options: &Replay, recording: &Recording, world: &World, peak: u64) -> Result<Found, Failure> {
    let ops = recording.ops.len() as u64 * u64::from(options.threads);
    let bar = progress_bar("operation", ops * u64::from(options.repeat), options.json);
    let player = |_| Player::new(&world.device, &*world.driver, &world.pool, recording).during("streams");
    let players: Vec<Player<'_>> = (0..options.threads).map(player).collect::<Result<_, _>>()?;
    let (mut repetitions, mut first_oom, mut canary_errors) = (Vec::new(), None, 0);
    let mut curve = Vec::new();
    for repetition in 0..options.repeat {
        world.pool.reset_peaks();
        let before = Counted::now(&world.pool, &world.meter);
        let is_last = repetition + 1 == options.repeat;
        let outcomes = repeat(options, &players, repetition, is_last, |ops| bar.inc(ops))?;
        let counted = [&before, &Counted::now(&world.pool, &world.meter)];
        repetitions.truncate(1);
        repetitions.push(Repetition::new(ops, peak, &world.pool, counted, &outcomes));
        for outcome in outcomes {
            first_oom = first_oom.or(outcome.first_oom);
            canary_errors += outcome.canary_errors;
            curve.extend(outcome.curve);
        }
    }
    bar.finish_and_clear();
    let last = repetitions.pop().ok_or_else(|| Failure::new("nothing was replayed"))?;
    let first = repetitions.pop().unwrap_or_else(|| last.clone());
    let report = Report { last, first, costs: costs(world.device.info()) };
    Ok(Found { report, first_oom, canary_errors, curve })
}

/// All threads, once.
fn repeat(
    options: &Replay,
    players: &[Player<'_>],
    repetition: u32,
    is_last: bool,
    progress: impl Fn(u64) + Sync,
) -> Result<Vec<Outcome>, Failure> {
    let (canary, lag, count) = (options.canary, options.lag, players.len());
    let curve = |thread| is_last && thread == 0 && options.plot.is_some();
    let turn = |thread| repetition as usize * count + thread;
    let task = |thread| Task { turn: turn(thread), alone: count == 1, canary, lag, curve: curve(thread) };
    let progress = &progress;
    std::thread::scope(|scope| {
        let play = |(thread, player)| {
            let task = task(thread);
            scope.spawn(move || Player::run(player, task, progress))
        };
        let threads: Vec<_> = players.iter().enumerate().map(play).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(Failure::new("a thread that replayed panicked")))
        };
        // All of them end, also where one failed.
        let outcomes: Vec<Result<Outcome, Failure>> = threads.into_iter().map(join).collect();
        outcomes.into_iter().collect()
    })
}
