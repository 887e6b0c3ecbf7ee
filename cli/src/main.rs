//! The companion program of gvmm.

mod bench;
mod copies;
mod costs;
mod cuda;
mod executor;
mod failure;
mod info;
mod pattern;
mod pool;
mod replay;
mod report;
mod run;
mod selftest;
mod service;
mod setup;
mod small;
mod stream;
mod trace;
mod vmm_trace;

use clap::{Args, Parser, Subcommand, ValueEnum};
use failure::Failure;
use gvmm::driver::DriverKind;
use gvmm::rebind::Threshold;
use indicatif::{ProgressBar, ProgressStyle};
use report::Report;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

/// Looks at devices and runs recordings through gvmm.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Steps(Steps),
    Replay(replay::Replay),
    Info(InfoOptions),
    /// Measures this machine's devices.
    #[command(subcommand)]
    Bench(bench::Command),
    Selftest(SelftestOptions),
    Run(run::Run),
    VmmTrace(vmm_trace::VmmTrace),
}

/// Runs a recording of which buffers a compiled step binds, and checks all data.
///
/// Each slot gets an address that stays. Every step's data is written to the recorded buffers, a command buffer
/// that was recorded once is launched, and what it saw and wrote is checked. Reported are the binding's own driver
/// calls: those of its set-up, and means over the steps from the fifth on, with the planner from the seventh. Times come
/// from a second pass over these steps, again and again, in which nobody looks at data between two steps, as in a training
/// loop: the median of begin and end together, and of patching the command buffer. Beside them (in the JSON named
/// ..._cold) are those of the steps whose data was checked, when begin finds nothing of its own in the caches. On an
/// NVIDIA GPU the command buffer is a graph of kernels, of which up to 8 launches are under way in the timed pass, and the
/// time that begin and end add on the GPU is reported beside that of the graph alone.
///
/// Exits with 0 when all data was right, with 1 when any was not, with 2 on bad input or when a call fails.
#[derive(Args)]
#[command(after_long_help = costs::HELP)]
struct Steps {
    /// The recording, plain or gzip, lines of step,slot,role,bytes,buffer; - reads the standard input
    trace: String,

    /// Up to how many bytes a slot is copied instead of mapped: off, auto or a number [default: the variable
    /// XLA_VMM_TMP_COPY_THRESHOLD, else auto]. In the JSON, threshold_bytes is null where nothing is copied
    #[arg(long, value_name = "off|auto|BYTES", value_parser = parse_threshold)]
    threshold: Option<Threshold>,

    /// Whose device to use
    #[arg(long, value_enum, default_value_t = DriverChoice::Auto)]
    driver: DriverChoice,

    /// Makes each call of the host driver take as long as on other hardware; FILE is described below [default:
    /// the variable GVMM_HOST_COSTS, else none]
    #[arg(long, value_name = "none|h200|h200-peer|FILE")]
    costs: Option<String>,

    /// Whether many slots are copied together: off is what every slot costs by itself, on an NVIDIA GPU and on the
    /// host
    #[arg(long, value_enum, default_value_t = setup::Joint::On)]
    joint: setup::Joint,

    /// Who decides how each slot is served [default: threshold; with GVMM_PLAN=auto and no --threshold, auto]
    #[arg(long, value_enum)]
    plan: Option<service::PlanChoice>,

    /// What everything costs, as written by `gvmm bench profile --save` [default: the variable GVMM_PROFILE, else built
    /// in]
    #[arg(long, value_name = "FILE")]
    profile: Option<String>,

    /// Says for each slot how it is served, what that costs, and the next best
    #[arg(long)]
    explain: bool,

    /// Who makes the copies of a step; the JSON says which it was
    #[arg(long, value_enum, default_value_t = copies::CopiesChoice::Auto)]
    copies: copies::CopiesChoice,

    /// How many slots each kernel of an NVIDIA GPU's graph uses, which is what a patch changes; on the host it is one
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=16))]
    slots_per_command: u8,

    /// How many further devices have access to all memory; at least 1 with --costs h200-peer
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..64))]
    peers: u32,

    /// Prints one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Lists drivers and devices, and says why a driver is not there.
#[derive(Args)]
struct InfoOptions {
    /// Prints one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Checks every device of this machine: the quirks in force, what was tried when each opened, and every conformance
/// check, each device in a process of its own.
///
/// The report says what a bug report needs. Exits with 0 where nothing failed, with 1 where something did, with 2 on bad
/// input or when a call fails.
#[derive(Args)]
struct SelftestOptions {
    /// Whose devices to check [default: all]
    #[arg(long, value_enum)]
    driver: Option<DriverChoice>,

    /// Checks only the device of this number
    #[arg(long, value_name = "N")]
    device: Option<u32>,

    /// Prints one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Checks one device in this process and tells its parent
    #[arg(long, hide = true, requires = "driver", requires = "device")]
    serve: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum DriverChoice {
    /// The first that has a device; GVMM_DRIVER may name one
    Auto,
    /// NVIDIA's
    Cuda,
    /// AMD's
    Hip,
    /// Intel's
    #[value(name = "level_zero")]
    LevelZero,
    /// The host's own memory
    Host,
}

fn parse_threshold(text: &str) -> Result<Threshold, &'static str> {
    match text {
        "off" => return Ok(Threshold::OFF),
        "auto" => return Ok(Threshold::AUTO),
        _ => {}
    }
    match text.parse::<u64>() {
        Ok(bytes) if bytes > Threshold::AUTO.0 && bytes < Threshold::OFF.0 => Ok(Threshold(bytes)),
        _ => Err("expected off, auto or a number of bytes from 2 up"),
    }
}

/// Exit code for data that was wrong.
const MISMATCH: u8 = 1;
/// Exit code for bad input and for calls that fail.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    // The library's warnings, of a variable that makes no sense for one, are for people here.
    env_logger::Builder::from_env(env_logger::Env::new().filter_or("GVMM_LOG", "warn")).init();
    let result = match Cli::parse().command {
        Command::Steps(options) => steps(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Info(options) => info(&options),
        Command::Bench(command) => bench::run(&command),
        Command::Selftest(options) => selftest(&options),
        Command::Run(options) => run::run(&options),
        Command::VmmTrace(options) => vmm_trace::run(&options),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("gvmm: {failure}");
        ExitCode::from(FAILED)
    })
}

fn steps(options: &Steps) -> Result<ExitCode, Failure> {
    let trace = trace::read(&options.trace)?;
    let costs = setup::CostChoice::read(options.costs.as_deref())?;
    let peers = setup::peers(options.costs.as_deref(), options.peers);
    let device = setup::open_device(options.driver.kind(), costs, peers, options.joint)?;
    let bar = progress_bar("step", trace.steps.len() as u64, options.json);
    let serving = service::Serving {
        plan: service::Serving::choice(options.plan, options.threshold),
        threshold: options.threshold.unwrap_or(Threshold::DEFAULT),
        profile: options.profile.as_deref().map(|path| setup::profile(path, &device)).transpose()?,
        copies: options.copies.on(&device),
        per_command: options.slots_per_command.into(),
        access: setup::access_list(peers),
    };
    let measured = if device.driver().kind() == DriverKind::CUDA {
        cuda::run(&device, &trace, &serving, || bar.inc(1))?
    } else {
        executor::run(&device, &trace, &serving, || bar.inc(1))?
    };
    bar.finish_and_clear();
    if let Some(first) = &measured.tally.first_mismatch {
        eprintln!("gvmm: {} slots were wrong, the first in {first}", measured.tally.mismatches);
    }
    let mut report = Report::new(&trace, device.driver().kind().name(), device.info(), &measured);
    if options.explain {
        report = report.explaining(&trace, &measured.told.explained);
    }
    print(options.json, &report, Report::table)?;
    Ok(if report.mismatches == 0 { ExitCode::SUCCESS } else { ExitCode::from(MISMATCH) })
}

fn info(options: &InfoOptions) -> Result<ExitCode, Failure> {
    print(options.json, &info::Info::gather(), info::Info::table)?;
    Ok(ExitCode::SUCCESS)
}

fn selftest(options: &SelftestOptions) -> Result<ExitCode, Failure> {
    let kind = options.driver.and_then(DriverChoice::kind);
    if let (true, Some(kind), Some(device)) = (options.serve, kind, options.device) {
        return selftest::serve(kind, device).map(|()| ExitCode::SUCCESS);
    }
    let bar = if options.json { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    let bar = bar.with_message("checks");
    let report = selftest::SelfTest::run(kind, options.device, || bar.inc(1))?;
    bar.finish_and_clear();
    print(options.json, &report, selftest::SelfTest::table)?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::from(MISMATCH) })
}

impl DriverChoice {
    fn kind(self) -> Option<DriverKind> {
        match self {
            Self::Auto => None,
            Self::Cuda => Some(DriverKind::CUDA),
            Self::Hip => Some(DriverKind::HIP),
            Self::LevelZero => Some(DriverKind::LEVEL_ZERO),
            Self::Host => Some(DriverKind::HOST),
        }
    }
}

/// Shows itself only where the standard error is a terminal.
fn progress_bar(what: &str, count: u64, hidden: bool) -> ProgressBar {
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(count) };
    match ProgressStyle::with_template(&format!("{{wide_bar}} {what} {{pos}} of {{len}}, {{eta}} left")) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn print<T: Serialize>(json: bool, value: &T, table: impl Fn(&T) -> String) -> Result<(), Failure> {
    let text = if json {
        serde_json::to_string_pretty(value).map_err(|error| Failure::new(error.to_string()))?
    } else {
        table(value)
    };
    match writeln!(std::io::stdout(), "{text}") {
        // Whoever reads may have seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| Failure::new(format!("standard output: {error}"))),
    }
}
