//! What a remap costs the GPU besides the time that it stands still: afterwards addresses are looked up and data is read
//! anew, and what is launched then was not there before. Steps with slots that stay, with one window of eight that moves
//! and without.

use super::figures::figure;
use super::in_steps::{Lab, MAPPED};
use super::made_up::{COPIED, Kind, MIB};
use super::profile::Missing;
use crate::failure::Failure;
use gvmm::driver::Capabilities;
use gvmm::rebind::Threshold;
use gvmm::rebind::profile::{Anew, Curve, Point, Profile};

/// How many slots stay, and their bytes. The commands of more than 64 KiB look at a part of it.
const STAYING: [(usize, u64); 6] =
    [(256, 4), (256, 4 << 10), (256, 64 << 10), (128, 128 << 10), (64, MIB), (16, 16 * MIB)];

impl Lab<'_> {
    pub(super) fn anew(&mut self, profile: &mut Profile, missing: &mut Missing) -> Result<(), Failure> {
        let (slots, bytes) = STAYING[0];
        if !self.device.capabilities().has(Capabilities::VIRTUAL_MEMORY) || !self.has_room(slots, 2 * MIB) {
            missing.extend(["anew_slot", "anew_in", "anew_out"]);
            return Ok(());
        }
        let alone = [self.remapped((0, bytes), true, false)?, self.remapped((0, bytes), false, false)?];
        let mut curves: [Vec<Point>; 3] = Default::default();
        let [mapped, copied_in, copied_out] = &mut curves;
        let mut launches = [0.0; 2];
        for (way, points) in [copied_in, copied_out].into_iter().enumerate() {
            let is_in = way == 0;
            launches[way] = (self.remapped((1, bytes), is_in, true)? - alone[way]).max(0.0);
            for (slots, bytes) in STAYING {
                let more = self.remapped((slots, bytes), is_in, true)? - alone[way] - launches[way];
                points.push(Point { bytes, time: figure(more / slots as f64, 0.0) });
            }
        }
        for (slots, bytes) in STAYING {
            let read = self.remapped((slots, bytes), true, false)? - alone[0];
            let written = self.remapped((slots, bytes), false, false)? - alone[1];
            mapped.push(Point { bytes, time: figure(f64::midpoint(read, written) / slots as f64, 0.0) });
        }
        let [slot, slice_in, slice_out] = curves.map(|points| Curve::new(points).unwrap_or_default());
        profile.anew_slot = slot;
        profile.anew_in = Anew { launch: figure(launches[0], 0.0), slice: slice_in };
        profile.anew_out = Anew { launch: figure(launches[1], 0.0), slice: slice_out };
        Ok(())
    }

    /// What one remap adds on the GPU to a step with so many slots that stay, in µs, the time aside that the host takes
    /// for it.
    fn remapped(&mut self, staying: (usize, u64), is_in: bool, copied: bool) -> Result<f64, Failure> {
        let threshold = if copied { Threshold(staying.1) } else { Threshold::OFF };
        let steps = [0, 1].map(|moving| {
            let (small, large, bytes) =
                ((staying.0, 0), (MAPPED, moving), [staying.1, staying.1.max(2 * MIB) + MIB]);
            self.run(Kind { small, large, bytes, is_in, threshold, ..COPIED })
        });
        let [rest, moved] = steps;
        let (rest, moved) = (rest?, moved?);
        let gpu = moved.gpu.unwrap_or_default() - rest.gpu.unwrap_or_default();
        Ok(gpu - (moved.host - rest.host))
    }
}
