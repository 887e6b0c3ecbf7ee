//! What a pool is made with.

use crate::config::{self, PoolConfig};
use crate::driver::{Access, DriverKind};
use crate::error::{Error, Kind, Operation, Result};
use crate::units::{ByteSize, Granularity};
use crate::vm::Device;

/// How much more address space than memory each segment reserves, as a fraction: holes that lent chunks leave
/// behind take addresses, and no memory.
pub const OVERSUBSCRIPTION: (u64, u64) = (9, 8);

/// The largest request that goes to the small blocks.
pub const SMALL_LIMIT: ByteSize = ByteSize::mib(1);

/// What a pool is made with. Every field has a default ([`Settings::default`]); 0 means "choose by the driver".
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Bytes of a chunk for requests up to [`SMALL_LIMIT`]; 0: 2 MiB, or 4 MiB with a limit.
    pub small_chunk: ByteSize,
    /// Bytes of a chunk for larger requests; 0: 16 MiB, or 4 MiB with a limit, when any chunk shall serve any
    /// request; 64 MiB on HIP, where a handle costs a file descriptor.
    pub large_chunk: ByteSize,
    /// The most that the pool may hold of the device's memory, in bytes; none: all that there is.
    pub limit: Option<ByteSize>,
    /// Bytes of addresses that all segments together may take.
    pub address_limit: ByteSize,
    /// Bytes of one segment's addresses; 0: [`OVERSUBSCRIPTION`] times the device's memory.
    pub segment: ByteSize,
    /// Who may use the memory (an empty list: the pool's device, read and write).
    pub access: Vec<Access>,
    /// How many events to keep for snapshots, for each stream; 0: none.
    pub history: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            small_chunk: ByteSize::ZERO,
            large_chunk: ByteSize::ZERO,
            limit: None,
            address_limit: ByteSize::gib(64 << 10),
            segment: ByteSize::ZERO,
            access: Vec::new(),
            history: 0,
        }
    }
}

impl Settings {
    /// The defaults with what the environment says (`GVMM_POOL_CHUNK`, `GVMM_POOL_SMALL_CHUNK`, `GVMM_POOL_LIMIT`,
    /// `GVMM_POOL_HISTORY`).
    pub fn from_environment() -> Self {
        let PoolConfig { chunk, small_chunk, limit, history, .. } = config::get().pool;
        Self {
            large_chunk: ByteSize(chunk.unwrap_or_default()),
            small_chunk: ByteSize(small_chunk.unwrap_or_default()),
            limit: limit.map(ByteSize),
            history,
            ..Self::default()
        }
    }
}

/// Settings without anything left to choose.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    /// Of small and of large blocks.
    pub(super) chunk: [ByteSize; 2],
    /// Of small and of large blocks; whole chunks.
    pub(super) segment: [ByteSize; 2],
    pub(super) limit: u64,
    pub(super) address_limit: u64,
    pub(super) access: Vec<Access>,
    pub(super) history: usize,
}

/// Addresses of a segment where the device's memory is unknown.
const UNKNOWN_MEMORY: ByteSize = ByteSize::gib(64);
/// Places in a segment are counted in 512 bytes by 32 bits.
const LARGEST_SEGMENT: ByteSize = ByteSize::gib(2047);

impl Settings {
    /// Checks the settings and fills in what the device says.
    pub(super) fn choose(&self, device: &Device) -> Result<Chosen> {
        let hip = device.driver().kind() == DriverKind::HIP;
        let granule = device.granularity();
        let (small, large) = match (hip, self.limit.is_some()) {
            (true, _) => (2, 64),
            (false, true) => (4, 4),
            (false, false) => (2, 16),
        };
        let small = chunk(self.small_chunk, ByteSize::mib(small), granule)?;
        let large = chunk(self.large_chunk, ByteSize::mib(large), granule)?;
        let whole = |chunk: ByteSize| self.segment_size(device).and_then(|size| whole_chunks(size, chunk));
        Ok(Chosen {
            chunk: [small, large],
            segment: [whole(small)?, whole(large)?],
            limit: self.limit.map_or(u64::MAX, ByteSize::get),
            address_limit: self.address_limit.get(),
            access: self.access.clone(),
            history: self.history as usize,
        })
    }

    /// Bytes of a segment for large blocks, and of its chunks, on a device.
    ///
    /// # Errors
    /// `InvalidSize` for settings that do not fit the device.
    pub fn large_sizes(&self, device: &Device) -> Result<(ByteSize, ByteSize)> {
        let chosen = self.choose(device)?;
        Ok((chosen.segment[1], chosen.chunk[1]))
    }

    fn segment_size(&self, device: &Device) -> Result<ByteSize> {
        if !self.segment.is_zero() {
            return Ok(self.segment);
        }
        let total = if device.info().total.is_zero() { UNKNOWN_MEMORY } else { device.info().total };
        let (times, over) = OVERSUBSCRIPTION;
        let size = total.get().checked_mul(times).map(|bytes| ByteSize(bytes / over));
        size.ok_or_else(|| refused("the device's memory is too large for a segment: set the segment's size"))
    }
}

const fn refused(hint: &'static str) -> Error {
    Error::new(Kind::InvalidSize, Operation::Open, hint)
}

fn chunk(asked: ByteSize, default: ByteSize, granule: Granularity) -> Result<ByteSize> {
    if asked.is_zero() {
        return granule.round_up(default).ok_or_else(|| refused("the device's granule is too large"));
    }
    if !granule.divides(asked) || asked < SMALL_LIMIT {
        let hint = "a chunk is a multiple of the device's granule, and of 1 MiB at least";
        return Err(refused(hint).of(asked));
    }
    Ok(asked)
}

/// `size` as whole chunks, as far as one segment goes.
fn whole_chunks(size: ByteSize, chunk: ByteSize) -> Result<ByteSize> {
    let chunks = size.get().min(LARGEST_SEGMENT.get()).div_ceil(chunk.get()).max(1);
    let bytes = chunks.checked_mul(chunk.get()).filter(|bytes| *bytes <= LARGEST_SEGMENT.get());
    bytes.map(ByteSize).ok_or_else(|| refused("a chunk is larger than a segment can be").of(chunk))
}
