//! What it costs that copies push out of the device's cache what the command buffer uses: steps with slots that stay, beside
//! copies of more and more bytes.

use super::figures::figure;
use super::in_steps::Lab;
use super::made_up::{COPIED, Kind, MIB};
use super::profile::Missing;
use crate::failure::Failure;
use crate::service::PlanChoice;
use gvmm::rebind::profile::{Curve, Point, Profile};

/// How many slots stay, and their bytes. The commands of larger ones look at a part of their data.
const STAYING: [(usize, u64); 6] =
    [(512, 4), (512, 4 << 10), (128, 64 << 10), (128, 128 << 10), (64, 2 * MIB), (4, 256 * MIB)];

/// Those of these that tell where the cache ends.
const PROBE: (usize, u64) = STAYING[2];

/// How many slots of 1 MiB are copied to find that, and how many fill any cache.
const COPIES: [usize; 8] = [2, 4, 6, 8, 12, 16, 24, 32];
const ALL: usize = 256;

/// What is less than so many µs in all says nothing.
const LEAST: f64 = 2.0;

impl Lab<'_> {
    pub(super) fn cache(&mut self, profile: &mut Profile, missing: &mut Missing) -> Result<(), Failure> {
        if !self.has_room(2 * ALL, MIB) {
            missing.extend(["cache_bytes", "cold_slot"]);
            return Ok(());
        }
        let alone = self.beside((0, 4), ALL)?;
        let (mut points, mut whole) = (Vec::new(), 0.0);
        for staying in STAYING {
            if !self.has_room(staying.0, staying.1) {
                continue;
            }
            let more = self.beside(staying, ALL)? - alone;
            points.push(Point { bytes: staying.1, time: figure(more / staying.0 as f64, 0.0) });
            whole = if staying == PROBE { more } else { whole };
        }
        profile.cold_slot = Curve::new(points).unwrap_or_default();
        profile.cache_bytes = if whole < LEAST { 0 } else { self.cache_bytes(whole)? };
        Ok(())
    }

    /// How many bytes copies may read and write before the slots that stay cost a tenth of `whole`: little is won by more.
    fn cache_bytes(&mut self, whole: f64) -> Result<u64, Failure> {
        let mut bytes = 2 * MIB;
        for copies in COPIES {
            let more = self.beside(PROBE, copies)? - self.beside((0, 4), copies)?;
            if more > whole / 10.0 {
                break;
            }
            bytes = 2 * copies as u64 * MIB;
        }
        Ok(bytes)
    }

    /// What `copies` slots of 1 MiB add to a step in which others stay, in µs on the GPU.
    fn beside(&mut self, staying: (usize, u64), copies: usize) -> Result<f64, Failure> {
        let (small, large, bytes) = ((staying.0, 0), (copies, 0), [staying.1, MIB]);
        let step = self.run(Kind { small, large, bytes, plan: PlanChoice::CopyFrom(staying.0), ..COPIED })?;
        Ok(step.gpu.unwrap_or_default())
    }
}
