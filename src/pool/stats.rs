//! Figures of a pool.

use super::PoolId;
use crate::driver::Stream;
use crate::error::{Error, Kind};
use crate::units::ByteSize;
use crate::vm::CallCounts;
use std::fmt;

/// A figure now, the most it has been since the last reset, and all that was ever added.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Figure {
    /// Now.
    pub current: u64,
    /// The most since the pool was made, or since [`super::Pool::reset_peaks`].
    pub peak: u64,
    /// All that was added since the pool was made; what was taken away is this less `current`.
    pub total: u64,
}

impl Figure {
    #[inline]
    pub(super) fn add(&mut self, n: u64) {
        self.total += n;
        self.rise(n);
    }

    /// The same where nobody asks for `total`.
    #[inline]
    pub(super) fn rise(&mut self, n: u64) {
        self.current += n;
        // Mostly false, and then nothing is written.
        if self.current > self.peak {
            self.peak = self.current;
        }
    }

    #[inline]
    pub(super) const fn sub(&mut self, n: u64) {
        self.current -= n;
    }

    pub(super) const fn reset(&mut self) {
        self.peak = self.current;
    }
}

/// Bytes in their states, and how many blocks and chunks they are in.
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
    /// Blocks that the program holds.
    pub blocks: Figure,
    /// The same with those that were freed while another stream still uses them.
    pub active_blocks: Figure,
    /// Chunks held.
    pub chunks: Figure,
}

impl Bytes {
    const fn each_mut(&mut self) -> [&mut Figure; 7] {
        [
            &mut self.allocated,
            &mut self.requested,
            &mut self.active,
            &mut self.reserved,
            &mut self.blocks,
            &mut self.active_blocks,
            &mut self.chunks,
        ]
    }

    /// What several streams have together. What they had at most together is not known from these: the most that
    /// one of them had stands for it.
    pub(super) fn join<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for one in all {
            let mut one = *one;
            for (to, from) in sum.each_mut().into_iter().zip(one.each_mut()) {
                to.current += from.current;
                to.total += from.total;
                to.peak = to.peak.max(from.peak);
            }
        }
        sum.each_mut().into_iter().for_each(|figure| figure.peak = figure.peak.max(figure.current));
        sum
    }
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
    /// Those in blocks of up to 1 MiB, and in larger ones.
    pub parts: [Bytes; 2],
    /// Chunks that moved away from it, and to it.
    pub lent: (u64, u64),
    /// Addresses reserved, in bytes.
    pub address_space: ByteSize,
}

/// What a pool has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Bytes. The peaks of what several streams hold together, `reserved` apart, may be up to 1 MiB (64 MiB for a stream
    /// that allocates and frees large blocks by turns) and a 64th of each stream's share too low, those of counts by the
    /// blocks in as many bytes; all else is exact.
    pub bytes: Bytes,
    /// Those in blocks of up to 1 MiB, and in larger ones. With several streams a peak is the highest of one of them, or
    /// what is now.
    pub parts: [Bytes; 2],
    /// Bytes of chunks that lie ready and belong to no stream (part of `reserved`).
    pub spare: ByteSize,
    /// Addresses reserved, in bytes.
    pub address_space: Figure,
    /// The most that the pool may reserve, `u64::MAX` for all that there is.
    pub limit: ByteSize,
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

impl Stats {
    /// Allocations so far, failed ones not included.
    pub const fn allocations(&self) -> u64 {
        self.bytes.blocks.total
    }

    /// Frees so far.
    pub const fn frees(&self) -> u64 {
        self.bytes.blocks.total - self.bytes.blocks.current
    }
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

/// Why the last allocation failed for lack of memory or addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// What the allocation failed with.
    pub error: Error,
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
    /// Addresses that the pool has reserved.
    pub addresses: ByteSize,
    /// The most that it may reserve.
    pub address_limit: ByteSize,
    /// What it reserves for each stream.
    pub addresses_of_stream: ByteSize,
    /// Streams that were being captured, so that nothing could be lent.
    pub captures: usize,
    /// Who held what, largest first.
    pub holders: Vec<Holder>,
}

/// Holders that a message names.
const NAMED: usize = 3;

impl fmt::Display for Shortage {
    /// `held 70 GiB of 71 GiB, 3 GiB free in all, 12 chunks lent; stream 0x0: 60 GiB in use, 1 GiB pending, 2 GiB free`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} asked for stream {:#x}; {} held", self.asked, self.stream.0, self.reserved)?;
        if self.limit.get() != u64::MAX {
            write!(f, " of {}", self.limit)?;
        }
        write!(f, ", {} free in all, {} chunks lent", self.free, self.lent_chunks)?;
        if self.error.kind == Kind::OutOfAddressSpace {
            let (now, most, each) = (self.addresses, self.address_limit, self.addresses_of_stream);
            write!(f, ", {now} of {most} of addresses reserved, {each} for a stream")?;
        }
        if self.captures > 0 {
            write!(f, ", nothing could be lent: {} being captured", self.captures)?;
        }
        for holder in self.holders.iter().take(NAMED) {
            match holder.stream {
                Some(stream) => write!(f, "; stream {:#x}", stream.0)?,
                None => write!(f, "; a stream that has ended")?,
            }
            if holder.pool != PoolId::DEFAULT {
                write!(f, " in private pool {}:{}", holder.pool.0, holder.pool.1)?;
            }
            write!(
                f,
                ": {} in use, {} waiting for others, {} free",
                holder.allocated, holder.pending, holder.free
            )?;
        }
        match self.holders.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, "; and {more} streams more"),
        }
    }
}
