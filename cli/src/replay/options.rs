//! The options of `gvmm replay`.

use crate::DriverChoice;
use crate::bench::parse_size;
use clap::Args;
use gvmm::pool::Settings;
use gvmm::units::ByteSize;

/// Replays a recording of what a program asked of its allocator, on a pool and on real streams.
///
/// A free that is completed later only is of a block that another stream still uses until then. What the program keeps at
/// the end is freed, and all streams are waited for, between repetitions. Counts of driver calls and their time (waits not included)
/// are of everything that happens in a repetition. Times of an operation are those of the call to the pool alone, each by itself; what reading the
/// clock costs is measured and taken off. Where nothing is done between the calls (no --lag, --canary or --plot, no blocks that
/// streams share), three of four groups of 64 calls are timed as a whole instead, with the reading of the recording: the mean is of
/// all calls, the percentiles are of those timed each by itself.
///
/// Exits with 0 when every allocation was satisfied and all data was right, with 1 when not, with 2 on bad input or when
/// another call fails.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Replay {
    /// The recording, plain or gzip, lines of a,ID,BYTES,STREAM (allocate), f,ID (free) and c,ID (the free is complete);
    /// - reads the standard input
    pub(super) trace: String,

    /// The most that the pool may reserve: a ratio of the peak requested (below 1000), or bytes, or with K, M or G behind
    /// (of 1024) [default: all that there is]
    #[arg(long, value_name = "RATIO|BYTES", value_parser = parse_budget)]
    pub(super) budget: Option<Budget>,

    /// Bytes of a chunk, or with K, M or G behind; of those for small requests where it is less than they have
    /// [default: as the driver needs, 2M small and 16M large or more]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub(super) chunk: Option<ByteSize>,

    /// Whose device to use. The host's has twice the memory that the program asks for, unless GVMM_HOST_MEMORY says another
    /// figure, and commits only what is touched
    #[arg(long, value_enum, default_value_t = DriverChoice::Auto)]
    pub(super) driver: DriverChoice,

    /// Writes the first and the last 64 bytes of each block and a word in every 64 KiB (up to 64 KiB, all of it) in
    /// stream order, and checks them before its free, in stream order too
    #[arg(long)]
    pub(super) canary: bool,

    /// Keeps the streams at least that many operations behind the host, unless the host waits for one; with --canary on an
    /// NVIDIA GPU 2000 at most
    #[arg(long, value_name = "STEPS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..1_000_000))]
    pub(super) lag: u32,

    /// How often the recording is replayed on the same pool
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..100_000))]
    pub(super) repeat: u32,

    /// How many threads replay it at once, each on streams of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) threads: u32,

    /// Prints one JSON object instead of a table
    #[arg(long)]
    pub(super) json: bool,

    /// Draws the bytes requested, allocated and reserved over the last repetition
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<String>,
}

const HELP: &str = "\
In the JSON, all figures are of the last repetition, and `first` has the same of the first. peak_requested_bytes is the \
recording's peak, times the threads. oom counts allocations that failed for lack of memory; the program goes on without them. \
device_syncs counts how often the host waited for a stream (no call waits for the whole device). With several threads, ns_per_op is of all \
their operations together. canary_errors counts blocks, and is 0 without --canary.";

/// The most that a pool may reserve.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Budget {
    /// Of the peak requested.
    Ratio(f64),
    Bytes(u64),
}

/// From here on a number is bytes.
const FIRST_BYTES: f64 = 1000.0;

fn parse_budget(text: &str) -> Result<Budget, &'static str> {
    const BAD: &str =
        "expected a ratio such as 1.02, or bytes from 1000 up, or a number with K, M or G behind";
    match text.parse::<f64>() {
        Ok(ratio) if ratio > 0.0 && ratio < FIRST_BYTES => Ok(Budget::Ratio(ratio)),
        _ => parse_size(text).map(|size| Budget::Bytes(size.get())).map_err(|_| BAD),
    }
}

impl Replay {
    /// Of the pool, for a program that asks for `peak` bytes at most.
    pub(super) fn settings(&self, peak: u64) -> Settings {
        let default = Settings::default();
        let limit = self.budget.map(|budget| match budget {
            Budget::Ratio(ratio) => ByteSize((peak as f64 * ratio) as u64),
            Budget::Bytes(bytes) => ByteSize(bytes),
        });
        let Some(chunk) = self.chunk else { return Settings { limit, ..default } };
        Settings { limit, large_chunk: chunk, small_chunk: chunk.min(ByteSize::mib(2)), ..default }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_ratio_or_bytes() {
        let read = |text: &str| parse_budget(text).ok();
        assert_eq!(["1.02", "2", "999.5"].map(read), [1.02, 2.0, 999.5].map(|r| Some(Budget::Ratio(r))));
        let bytes = [1000, 4096, 3 << 20, 1 << 30].map(|n| Some(Budget::Bytes(n)));
        assert_eq!(["1000", "4096", "3M", "1G"].map(read), bytes);
        assert_eq!(["0", "-1", "1.5G", "NaN", "inf", "x", ""].map(read), [None; 7]);
    }
}
