//! What a remap costs the GPU besides the time that it stands still: afterwards addresses are looked up and data is read
//! anew. Steps with slots that stay, with one window of eight that moves and without.

use super::figures::figure;
use super::in_steps::{Lab, MAPPED};
use super::made_up::{COPIED, Kind, MIB};
use super::profile::Missing;
use crate::failure::Failure;
use gvmm::driver::Capabilities;
use gvmm::rebind::Threshold;
use gvmm::rebind::profile::{Curve, Point, Profile};

/// How many slots stay, and their bytes. The commands of more than 64 KiB look at a part of it.
const STAYING: [(usize, u64); 6] =
    [(256, 4), (256, 4 << 10), (256, 64 << 10), (128, 128 << 10), (64, MIB), (16, 16 * MIB)];

impl Lab<'_> {
    pub(super) fn anew(&mut self, profile: &mut Profile, missing: &mut Missing) -> Result<(), Failure> {
        // They take the most: a buffer has 2 MiB at least.
        let (slots, bytes) = STAYING[0];
        if !self.device.capabilities().has(Capabilities::VIRTUAL_MEMORY) || !self.has_room(slots, 2 * MIB) {
            missing.extend(["anew_slot", "anew_in", "anew_out"]);
            return Ok(());
        }
        let alone = [self.remapped((0, bytes), true, false)?, self.remapped((0, bytes), false, false)?];
        let mut curves: [Vec<Point>; 3] = Default::default();
        for (slots, bytes) in STAYING {
            let mut more = |is_in: bool, copied: bool| {
                let more = self.remapped((slots, bytes), is_in, copied)? - alone[usize::from(!is_in)];
                Ok::<f64, Failure>(more / slots as f64)
            };
            let kept = f64::midpoint(more(true, false)?, more(false, false)?);
            let each = [kept, more(true, true)?, more(false, true)?];
            for (points, us) in curves.iter_mut().zip(each) {
                points.push(Point { bytes, time: figure(us, 0.0) });
            }
        }
        [profile.anew_slot, profile.anew_in, profile.anew_out] =
            curves.map(|points| Curve::new(points).unwrap_or_default());
        Ok(())
    }

    /// What one remap adds on the GPU to a step with so many slots that stay, in µs, the time aside that the host takes
    /// for it.
    fn remapped(&mut self, staying: (usize, u64), is_in: bool, copied: bool) -> Result<f64, Failure> {
        let threshold = if copied { Threshold(staying.1) } else { Threshold::OFF };
        let bytes = [staying.1, staying.1.max(2 * MIB) + MIB];
        let kind = |moving| Kind {
            small: (staying.0, 0),
            large: (MAPPED, moving),
            bytes,
            is_in,
            threshold,
            ..COPIED
        };
        let [rest, moved] = [0, 1].map(|moving| self.run(kind(moving)));
        let (rest, moved) = (rest?, moved?);
        let gpu = moved.gpu.unwrap_or_default() - rest.gpu.unwrap_or_default();
        Ok(gpu - (moved.host - rest.host))
    }
}
