//! What was measured, row by row, and how often.

use super::calls::Counts;
use super::grant::Grant;
use super::quiet::Watch;
use super::spread::Spread;
use gvmm::error::Result;
use gvmm::units::ByteSize;
use serde::Serialize;
use std::time::{Duration, Instant};

/// One thing that was measured.
#[derive(Serialize, Clone, Debug)]
pub(super) struct Row {
    /// `reserve`, `free`, `create`, `release`, `map` and `unmap` are one call; `set_access` gives access to all
    /// blocks together and `set_access_each` to one block; `remap_all` is unmap and map of all blocks and a
    /// `set_access`, `remap_one` unmap, map and access of one block among them.
    pub(super) what: &'static str,
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    /// Who has access; None where nobody has, or it does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) access: Option<String>,
    pub(super) peers: u32,
    /// True where each device was given access by a call of its own.
    pub(super) call_each: bool,
    /// True where the same devices had access to a block elsewhere all the time.
    pub(super) beside: bool,
    /// The driver calls that were timed together.
    pub(super) calls: Counts,
    pub(super) us: Spread,
}

/// Times by name, in the order in which they were first seen.
pub(super) struct Samples {
    block_bytes: u64,
    blocks: u64,
    grant: Option<Grant>,
    beside: bool,
    all: Vec<(&'static str, Counts, Vec<f64>)>,
}

impl Samples {
    pub(super) fn new(size: ByteSize, blocks: u64, grant: Option<Grant>, beside: bool) -> Self {
        Self { block_bytes: size.get(), blocks, grant, beside, all: Vec::new() }
    }

    pub(super) fn add(&mut self, what: &'static str, calls: Counts, us: f64) {
        match self.all.iter_mut().find(|(name, ..)| *name == what) {
            Some((_, counts, times)) => {
                *counts = calls;
                times.push(us);
            }
            None => self.all.push((what, calls, vec![us])),
        }
    }

    pub(super) fn rows(self) -> Vec<Row> {
        let row = |(what, calls, us): (&'static str, Counts, Vec<f64>)| {
            let grant = self.grant.as_ref();
            Some(Row {
                what,
                block_bytes: self.block_bytes,
                blocks: self.blocks,
                access: grant.map(|grant| grant.name() + if self.beside { ", beside another" } else { "" }),
                peers: grant.map_or(0, |grant| grant.peers),
                call_each: grant.is_some_and(|grant| grant.lists.len() > 1),
                beside: self.beside,
                calls,
                us: Spread::of(us)?,
            })
        };
        self.all.into_iter().filter_map(row).collect()
    }
}

/// How often something is repeated.
#[derive(Clone, Copy)]
pub(super) struct Rounds<'a> {
    pub(super) most: u32,
    pub(super) limit: Duration,
    pub(super) watch: &'a Watch,
}

/// Fewer say nothing about spread.
const LEAST_ROUNDS: u32 = 3;

impl Rounds<'_> {
    /// Repeats `round` in quiet moments, after one that is not counted; it is told whether it counts.
    pub(super) fn repeat(self, mut round: impl FnMut(bool) -> Result<()>) -> Result<()> {
        round(false)?;
        let mut spent = Duration::ZERO;
        let least = LEAST_ROUNDS.min(self.most);
        for done in 0..self.most {
            if done >= least && spent > self.limit {
                break;
            }
            self.watch.wait();
            let start = Instant::now();
            round(true)?;
            spent += start.elapsed();
        }
        Ok(())
    }
}
