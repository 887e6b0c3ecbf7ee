//! The options of the benchmarks.

use crate::DriverChoice;
use clap::Args;
use gvmm::units::ByteSize;

/// Measures what a device's virtual memory and copies cost, call by call.
///
/// Blocks are created, mapped, made accessible, unmapped and released, by block size and number of blocks; all of
/// them are remapped, and one among them; with access for the device alone, for one peer, for several in one call,
/// and in one call for each; by themselves, and beside a block elsewhere to which the same devices have access. Shown
/// are medians with quartiles, and the driver calls beside the times. What the device's free memory does not allow is
/// skipped and said. Each block has memory of its own. On a real device each repetition waits a little for a quiet
/// moment, and the thread goes to a core that nobody disturbs if there is one.
///
/// What --json prints and --save writes can be given to `gvmm steps --costs`, so that the host driver takes as long.
#[derive(Args)]
pub(crate) struct Vmm {
    /// Whose device to measure
    #[arg(long, value_enum, default_value_t = DriverChoice::Auto)]
    pub(crate) driver: DriverChoice,

    /// Which of its devices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) device: u32,

    /// How many further devices get access: a number, or all that reach the memory. The host driver is given as
    /// many; `all` is what GVMM_HOST_DEVICES says there
    #[arg(long, value_name = "N|all", default_value = "all", value_parser = parse_peers)]
    pub(crate) peers: Peers,

    /// Sizes of a block: bytes, or with K, M or G behind (of 1024)
    #[arg(long, value_name = "SIZES", default_value = "2M,64M,256M,1G", value_delimiter = ',', value_parser = parse_size)]
    pub(crate) sizes: Vec<ByteSize>,

    /// Numbers of blocks
    #[arg(long, value_name = "COUNTS", default_value = "1,16,64,256", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) counts: Vec<u64>,

    /// How often each is repeated; less often where that takes longer than 0.3 s, but at least three times
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,

    /// Makes each call of the host driver take as long as on other hardware; see `gvmm steps --help`
    #[arg(long, value_name = "none|h200|h200-peer|FILE")]
    pub(crate) costs: Option<String>,

    /// Prints one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,

    /// Writes the JSON object into a file too
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<String>,
}

/// Runs recordings and made-up loads by every strategy in turn, and compares what a step costs.
///
/// The pure strategies: all slots remapped; all copied together, as far as GVMM_SHADOW_BUDGET allows; all patched; XLA's
/// automatic rule. Beside them XLA's rule with its copies slot by slot, and the planner, its copies launched and in the
/// command buffer. Each step is run by all before the next, in one process, and all data is checked; then the steps are
/// run once more for their times, strategies in turn, with nobody looking at data, so that what drifts hits all alike. Counts
/// are means and times medians over the steps from the seventh on; beside them are the times of the steps that were
/// checked. Ratios are to the best pure strategy, and once more with XLA's rule slot by slot among these in the place of that
/// with joint copies; predicted is what the profile says of the actions in force. On a real device the thread goes to a core
/// that nobody disturbs if there is one.
///
/// Exits as `gvmm steps` does.
#[derive(Args)]
pub(crate) struct StepsOptions {
    /// The recordings, as for `gvmm steps`
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<String>,

    /// Made-up loads by name, or all; a name that is none gives the list
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = super::loads::parse)]
    pub(crate) loads: Vec<String>,

    /// How many bytes a made-up load has at most: larger ones have fewer of their largest slots
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = parse_size)]
    pub(crate) most: ByteSize,

    /// What everything costs, for planning and predictions, as for `gvmm steps`
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<String>,

    /// Whose device to use
    #[arg(long, value_enum, default_value_t = DriverChoice::Auto)]
    pub(crate) driver: DriverChoice,

    /// How many slots each kernel uses, as for `gvmm steps`; XLA's own graph of llama_donate has about two
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) slots_per_command: u8,

    /// How often the timed pass goes through each recording
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    /// Makes each call of the host driver take as long as on other hardware; see `gvmm steps --help`
    #[arg(long, value_name = "none|h200|h200-peer|FILE")]
    pub(crate) costs: Option<String>,

    /// How many further devices have access to all memory; at least 1 with --costs h200-peer
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..64))]
    pub(crate) peers: u32,

    /// Prints one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,

    /// Writes the JSON object into a file too
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<String>,
}

/// Measures what gvmm decides by, and prints it as the file that GVMM_PROFILE names.
///
/// Times of driver calls by block size and number of blocks, with access for peers; joint copies; what a step with a
/// remap costs beside them; and on an NVIDIA GPU copies in a graph, patched nodes of a graph, and what the GPU reads anew
/// after copies and remaps. What cannot be measured on a device is the built-in profile's, and the file says so. Quiet
/// moments and cores are looked for as by the other benchmarks.
#[derive(Args)]
pub(crate) struct ProfileOptions {
    /// Whose device to measure
    #[arg(long, value_enum, default_value_t = DriverChoice::Auto)]
    pub(crate) driver: DriverChoice,

    /// Which of its devices; what steps cost is measured on the first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) device: u32,

    /// How many further devices get access; see `gvmm bench vmm --help`
    #[arg(long, value_name = "N|all", default_value = "all", value_parser = parse_peers)]
    pub(crate) peers: Peers,

    /// How often each is repeated, as for `gvmm bench vmm`
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,

    /// Makes each call of the host driver take as long as on other hardware; see `gvmm steps --help`
    #[arg(long, value_name = "none|h200|h200-peer|FILE")]
    pub(crate) costs: Option<String>,

    /// Writes the profile into a file too
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<String>,
}

/// How many peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peers {
    /// All that reach the device's memory.
    All,
    /// So many, or it is a failure.
    Number(u32),
}

fn parse_peers(text: &str) -> Result<Peers, &'static str> {
    if text == "all" {
        return Ok(Peers::All);
    }
    match text.parse() {
        Ok(number @ 0..=63) => Ok(Peers::Number(number)),
        _ => Err("expected all or a number of devices from 0 to 63"),
    }
}

/// Bytes, or with K, M or G behind.
pub(crate) fn parse_size(text: &str) -> Result<ByteSize, &'static str> {
    const BAD: &str = "expected bytes from 1 up, or a number with K, M or G behind";
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| BAD)?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes > 0);
    bytes.map(ByteSize).ok_or(BAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_peers_are_read() {
        assert_eq!(
            ["2M", "1G", "4096", "3K"].map(parse_size),
            [2 << 20, 1 << 30, 4096, 3072].map(|n| Ok(ByteSize(n)))
        );
        for bad in ["", "M", "0", "-1", "2T", "99999999999G", "1.5M"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!((parse_peers("all"), parse_peers("7")), (Ok(Peers::All), Ok(Peers::Number(7))));
        assert!(parse_peers("64").is_err() && parse_peers("").is_err());
    }
}
