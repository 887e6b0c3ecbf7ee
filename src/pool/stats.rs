//! Figures of a pool.

use super::PoolId;
use crate::driver::Stream;
use crate::units::ByteSize;
use crate::vm::CallCounts;
use std::fmt;

/// A figure now, and the most it has been since the last reset.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figure {
    /// Now.
    pub current: u64,
    /// The most since the pool was made, or since [`super::Pool::reset_peaks`].
    pub peak: u64,
}

impl Figure {
    #[inline]
    pub(super) fn add(&mut self, n: u64) {
        self.current += n;
        self.peak = self.peak.max(self.current);
    }

    #[inline]
    pub(super) const fn sub(&mut self, n: u64) {
        self.current = self.current.saturating_sub(n);
    }

    pub(super) const fn reset(&mut self) {
        self.peak = self.current;
    }
}

/// Bytes in their states.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bytes {
    /// In blocks that the program holds, rounded to 512.
    pub allocated: Figure,
    /// What the program asked for in them.
    pub requested: Figure,
    /// Allocated, or freed while another stream still uses it.
    pub active: Figure,
    /// Device memory held, used or not.
    pub reserved: Figure,
}

/// What one (pool, stream) has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamStats {
    /// The pool.
    pub pool: PoolId,
    /// The stream; none once it was forgotten.
    pub stream: Option<Stream>,
    /// Bytes.
    pub bytes: Bytes,
    /// Allocations so far.
    pub allocations: u64,
    /// Frees so far.
    pub frees: u64,
    /// Chunks that moved away from it, and to it.
    pub lent: (u64, u64),
    /// Addresses reserved, in bytes.
    pub address_space: ByteSize,
}

/// What a pool has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Bytes. The peaks of what several streams hold together, `reserved` apart, may be up to 1 MiB and a 64th of each
    /// stream's share too low; all else is exact.
    pub bytes: Bytes,
    /// Bytes of chunks that lie ready and belong to no stream (part of `reserved`).
    pub spare: ByteSize,
    /// Addresses reserved, in bytes.
    pub address_space: ByteSize,
    /// The most that the pool may reserve, `u64::MAX` for all that there is.
    pub limit: ByteSize,
    /// Allocations so far, failed ones not included.
    pub allocations: u64,
    /// Frees so far.
    pub frees: u64,
    /// Chunks that were moved to where they were needed.
    pub lent_chunks: u64,
    /// Times that a stream was made to wait for another so that memory could be used again.
    pub stream_waits: u64,
    /// Times that the host waited for streams. It never waits for the whole device.
    pub host_waits: u64,
    /// Trims that were made to satisfy an allocation.
    pub forced_trims: u64,
    /// Allocations that failed for lack of memory.
    pub out_of_memory: u64,
    /// The driver calls made for allocations, frees and trims. Unmaps and releases that follow later, once streams have
    /// passed, are counted by [`crate::vm::Device::counters`] only.
    pub calls: CallCounts,
    /// Their time in nanoseconds, waits not included.
    pub driver_ns: u64,
}

/// Who holds memory, for the message of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The pool.
    pub pool: PoolId,
    /// The stream.
    pub stream: Option<Stream>,
    /// Bytes allocated.
    pub allocated: ByteSize,
    /// Bytes freed while another stream still used them.
    pub pending: ByteSize,
    /// Bytes reserved and free.
    pub free: ByteSize,
}

/// Why the last allocation failed for lack of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// Bytes asked for.
    pub asked: ByteSize,
    /// For which stream.
    pub stream: Stream,
    /// Bytes reserved then.
    pub reserved: ByteSize,
    /// The limit then.
    pub limit: ByteSize,
    /// Bytes free in all blocks, of any size.
    pub free: ByteSize,
    /// Chunks moved since the pool was made.
    pub lent_chunks: u64,
    /// Streams that were being captured, so that nothing could be lent.
    pub captures: usize,
    /// Who held what, largest first.
    pub holders: Vec<Holder>,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, reserved, free, lent_chunks, captures, .. } = self;
        write!(f, "{asked} asked, {reserved} reserved")?;
        if self.limit.get() != u64::MAX {
            write!(f, " of at most {}", self.limit)?;
        }
        write!(f, ", {free} of it free in pieces, {lent_chunks} chunks lent so far")?;
        if *captures > 0 {
            write!(f, "; nothing can be lent while {captures} streams are captured")?;
        }
        for holder in self.holders.iter().filter(|holder| !holder.allocated.is_zero()).take(3) {
            write!(f, "; {} held by ", holder.allocated)?;
            match holder.stream {
                Some(stream) => write!(f, "stream {:#x}", stream.0)?,
                None => f.write_str("a stream that is gone")?,
            }
            if holder.pool != PoolId::DEFAULT {
                write!(f, " of pool {}.{}", holder.pool.0, holder.pool.1)?;
            }
        }
        Ok(())
    }
}
