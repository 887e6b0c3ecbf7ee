//! What each action costs for a slot, host and GPU time apart. Pure arithmetic on a profile, in whole picoseconds.

use super::profile::{Charge, Curve, JointCopy, Picos, Profile};
use super::slot::Slot;
use crate::units::ByteSize;

/// What something costs on either side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// The calling thread's time.
    pub host: Picos,
    /// The time that the stream takes longer.
    pub gpu: Picos,
}

/// How the joint copies get to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CopyPath {
    /// Each step launches them.
    #[default]
    Launched,
    /// They were recorded in the command buffer, and a step points them at its buffers.
    Recorded,
    /// Each step launches each copy by itself, since the device joins none.
    OneByOne,
}

/// What a plan depends on besides slots, churn and profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// True where host time is hidden because the executor runs ahead of the device: only GPU time counts then, as
    /// where [`Profile::host_hidden`] says so.
    pub host_hidden: bool,
    /// How the joint copies get to the device.
    pub copies: CopyPath,
    /// How many devices besides its own the binding's windows name in their access list.
    pub peers: u32,
}

/// No single cost is longer (about 19 minutes), so that sums of a slot's costs stay exact.
pub(super) const DEAREST: u64 = 1 << 50;

/// What it costs that a baked slot moves: to record the command buffer again. Not measured, since that is the
/// caller's; dearer than whatever else could serve a slot, so that only a slot with no other action pays it.
const RECORD_AGAIN: Picos = Picos::ns(100_000_000);

/// The profile under the rules of one binding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs<'a> {
    profile: &'a Profile,
    rules: Rules,
    /// How many slots the binding has.
    slots: u64,
}

impl<'a> Costs<'a> {
    /// For a binding of one slot.
    pub(super) const fn new(profile: &'a Profile, rules: Rules) -> Self {
        Self { profile, rules, slots: 1 }
    }

    /// The same for one of so many slots.
    pub(super) const fn of(self, slots: u64) -> Self {
        Self { slots, ..self }
    }

    /// A baked slot moves once.
    pub(super) const fn bake() -> Cost {
        Cost { host: RECORD_AGAIN, gpu: Picos::ZERO }
    }

    /// A mapped slot whose window has `window` bytes moves once. The step before has been waited for, so the device
    /// stands still as long as the host remaps.
    pub(super) fn remap(&self, window: ByteSize) -> Cost {
        let (p, bytes) = (self.profile, window.get());
        let unmap = self.with_peers(&p.unmap, &p.peer_unmap, &p.further_peer_unmap, bytes);
        let access = self.with_peers(&p.set_access, &p.peer_set_access, &p.further_peer_set_access, bytes);
        stands_still(unmap.plus(p.map.at(bytes)).plus(access).plus(self.among(&p.remap_slot)))
    }

    /// A time by the number of slots; of more than were measured it is that of the most.
    fn among(&self, curve: &Curve) -> Picos {
        let most = curve.points().last().map_or(0, |point| point.bytes);
        curve.at(self.slots.min(most))
    }

    /// A block of `bytes`: alone, or with one peer, and for each peer more.
    fn with_peers(&self, local: &Curve, peer: &Curve, further: &Curve, bytes: u64) -> Picos {
        match u64::from(self.rules.peers).checked_sub(1) {
            None => local.at(bytes),
            Some(more) => local.at(bytes).max(peer.at(bytes)).plus(further.at(bytes).times(more)),
        }
    }

    /// What a step costs besides in which anything is remapped: its set-access call, which names the peers, and the
    /// wait for the step before. All windows of a binding have one access list, so a remap that names a peer and
    /// any remap are one charge.
    pub(super) fn any_remap(&self) -> Cost {
        let p = self.profile;
        let calls = p.peer_set_access_call.median.times(u64::from(self.rules.peers));
        stands_still(p.remap.median.plus(p.remap_wait.median).plus(p.set_access_call.median).plus(calls))
    }

    /// A copied slot, each step: its slices and its bytes, read and written each way.
    pub(super) fn copy(&self, slot: &Slot) -> Cost {
        let mut cost = Cost::default();
        for joint in
            [slot.direction.reads().then(|| self.copy_in()), slot.direction.writes().then(|| self.copy_out())]
        {
            let Some(joint) = joint else { continue };
            let launch =
                if self.rules.copies == CopyPath::OneByOne { median(&joint.launch) } else { Cost::default() };
            cost = cost.plus(slice(joint, slot.bytes)).plus(self.moved(slot.bytes)).plus(launch);
        }
        cost
    }

    /// What it costs a step that its copies push what the command buffer uses out of the device's cache: each of these
    /// slots is then read from memory.
    pub(super) fn cold<'s>(&self, slots: impl Iterator<Item = &'s Slot>) -> Cost {
        let each = slots.map(|slot| self.profile.cold_slot.at(slot.bytes.get()));
        Cost { host: Picos::ZERO, gpu: each.fold(Picos::ZERO, Picos::plus) }
    }

    /// What it costs a step that remaps anything that the command buffer reads this slot anew, which is not copied.
    pub(super) fn anew(&self, slot: &Slot) -> Cost {
        Cost { host: Picos::ZERO, gpu: self.profile.anew_slot.at(slot.bytes.get()) }
    }

    /// The same of a slot that is copied: what its copies cost more.
    pub(super) fn anew_copy(&self, slot: &Slot) -> Cost {
        let (p, bytes) = (self.profile, slot.bytes.get());
        let ways = [(slot.direction.reads(), &p.anew_in), (slot.direction.writes(), &p.anew_out)];
        let each = ways.into_iter().filter(|(goes, _)| *goes).map(|(_, anew)| anew.at(bytes));
        Cost { host: Picos::ZERO, gpu: each.fold(Picos::ZERO, Picos::plus) }
    }

    /// How many bytes may be copied before they do; none where that is not known. A copied byte is read in one place and
    /// written in another.
    pub(super) fn warm_bytes(&self) -> Option<u64> {
        Some(self.profile.cache_bytes / 2).filter(|_| self.profile.cache_bytes > 0)
    }

    /// The launch of the joint copy in.
    pub(super) fn any_copy_in(&self) -> Cost {
        self.joint(self.copy_in())
    }

    /// The launch of the joint copy out.
    pub(super) fn any_copy_out(&self) -> Cost {
        self.joint(self.copy_out())
    }

    fn joint(&self, copy: &JointCopy) -> Cost {
        if self.rules.copies == CopyPath::OneByOne { Cost::default() } else { median(&copy.launch) }
    }

    /// A patched slot moves once, its commands aside.
    pub(super) const fn patch_slot(&self) -> Cost {
        Cost { host: self.profile.patch_slot.median, gpu: Picos::ZERO }
    }

    /// Any step of a binding with so many slots, whatever happens in it.
    pub(super) const fn any_step(&self, slots: u64) -> Cost {
        let p = self.profile;
        Cost { host: p.step.median.plus(p.slot.median.times(slots)), gpu: Picos::ZERO }
    }

    /// One command that is patched once, for any number of slots.
    pub(super) const fn patch(&self) -> Cost {
        median(&self.profile.patch_command)
    }

    /// The same for one slot.
    pub(super) const fn patch_single(&self) -> Cost {
        median(&self.profile.patch_single)
    }

    /// What a step costs besides in which anything is patched.
    pub(super) const fn any_patch(&self) -> Cost {
        median(&self.profile.patch)
    }

    /// A slot whose buffer changed, whatever its action.
    pub(super) fn changed(&self) -> Cost {
        Cost { host: self.among(&self.profile.changed_slot), gpu: Picos::ZERO }
    }

    /// What counts of `cost`, in picoseconds.
    pub(super) fn weigh(&self, cost: Cost) -> u64 {
        let hidden = self.rules.host_hidden || self.profile.host_hidden;
        let counted = if hidden { cost.gpu } else { cost.gpu.plus(cost.host) };
        counted.0.min(DEAREST)
    }

    const fn copy_in(&self) -> &'a JointCopy {
        match self.rules.copies {
            CopyPath::Launched | CopyPath::OneByOne => &self.profile.copy_in,
            CopyPath::Recorded => &self.profile.plan_in,
        }
    }

    const fn copy_out(&self) -> &'a JointCopy {
        match self.rules.copies {
            CopyPath::Launched | CopyPath::OneByOne => &self.profile.copy_out,
            CopyPath::Recorded => &self.profile.plan_out,
        }
    }

    /// `bytes` that are read and written once.
    fn moved(&self, bytes: ByteSize) -> Cost {
        const TWICE: u64 = 2_000_000_000_000;
        let (bytes, rate) = (bytes.get(), self.profile.bandwidth.max(1));
        let picos = match bytes.checked_mul(TWICE) {
            Some(product) => product / rate,
            None => {
                u64::try_from(u128::from(bytes) * u128::from(TWICE) / u128::from(rate)).unwrap_or(u64::MAX)
            }
        };
        Cost { host: Picos::ZERO, gpu: Picos(picos) }
    }
}

impl Cost {
    /// The sum of each side.
    pub const fn plus(self, other: Self) -> Self {
        Self { host: self.host.plus(other.host), gpu: self.gpu.plus(other.gpu) }
    }

    /// `count` times this.
    pub const fn times(self, count: u64) -> Self {
        Self { host: self.host.times(count), gpu: self.gpu.times(count) }
    }
}

const fn stands_still(time: Picos) -> Cost {
    Cost { host: time, gpu: time }
}

/// A slice of so many bytes, besides moving them.
fn slice(joint: &JointCopy, bytes: ByteSize) -> Cost {
    Cost { host: joint.slice_host.median, gpu: joint.slice_gpu.at(bytes.get()) }
}

const fn median(charge: &Charge) -> Cost {
    Cost { host: charge.host.median, gpu: charge.gpu.median }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rebind::profile::{Figure, Point};
    use crate::rebind::slot::Direction;

    fn h200() -> Profile {
        Profile::builtin("h200").expect("built in")
    }

    #[test]
    fn a_remap_is_unmap_map_and_access_and_the_device_waits() {
        let profile = h200();
        let costs = Costs::new(&profile, Rules::default());
        let two = ByteSize::mib(2).get();
        let calls = profile.unmap.at(two).plus(profile.map.at(two)).plus(profile.set_access.at(two));
        let time = calls.plus(profile.remap_slot.at(8));
        assert_eq!(costs.remap(ByteSize::mib(2)), Cost { host: time, gpu: time });
        assert_eq!(costs.any_remap().host, profile.remap.median.plus(profile.remap_wait.median));
    }

    #[test]
    fn every_step_looks_at_all_slots() {
        let profile = Profile { step: Figure::ns(300), slot: Figure::ns(2), ..h200() };
        let costs = Costs::new(&profile, Rules { host_hidden: true, ..Rules::default() });
        assert_eq!(costs.any_step(100), Cost { host: Picos::ns(500), gpu: Picos::ZERO });
        assert_eq!(costs.weigh(costs.any_step(100)), 0);
    }

    #[test]
    fn a_slot_takes_what_it_takes_among_so_many_and_no_more_than_was_measured() {
        let points = [(8, 10), (108, 20)].map(|(bytes, ns)| Point { bytes, time: Figure::ns(ns) });
        let curve = Curve::new(points.to_vec()).expect("two points");
        let profile = Profile { changed_slot: curve.clone(), remap_slot: curve, ..h200() };
        let of = |slots| Costs::new(&profile, Rules::default()).of(slots);
        let [few, some, many, more] = [1, 58, 108, 10_000].map(|slots| of(slots).changed().host);
        assert_eq!([few, some, many, more], [10, 15, 20, 20].map(Picos::ns));
        let remapped = |slots| of(slots).remap(ByteSize::mib(2)).host;
        assert_eq!(remapped(10_000), remapped(1).plus(Picos::ns(10)));
    }

    #[test]
    fn each_peer_takes_longer_a_block_and_a_call() {
        let mib = |mib: u64, ns| Point { bytes: mib << 20, time: Figure::ns(ns) };
        let curve = |ns| Curve::new(vec![mib(2, ns)]).expect("one point");
        let mut profile = Profile {
            unmap: curve(20),
            map: curve(1),
            set_access: curve(30),
            peer_unmap: curve(40),
            peer_set_access: curve(60),
            further_peer_unmap: curve(7),
            further_peer_set_access: curve(9),
            peer_set_access_call: Figure::ns(1000),
            remap: Figure::ns(0),
            remap_slot: Curve::default(),
            remap_wait: Figure::ns(0),
            ..h200()
        };
        let host = |profile: &Profile, peers| {
            let costs = Costs::new(profile, Rules { peers, ..Rules::default() });
            (costs.remap(ByteSize::mib(2)).host, costs.any_remap().host)
        };
        let ns = |block, call| (Picos::ns(block), Picos::ns(call));
        assert_eq!(host(&profile, 0), ns(51, 0));
        assert_eq!(host(&profile, 1), ns(101, 1000));
        assert_eq!(host(&profile, 3), ns(101 + 2 * 16, 3000));
        // What is less with a peer than without is no gain.
        profile.peer_unmap = Curve::default();
        assert_eq!(host(&profile, 1), ns(81, 1000));
    }

    #[test]
    fn a_copy_goes_where_its_slot_goes() {
        let profile = h200();
        let costs = Costs::new(&profile, Rules::default());
        // As much as the memory moves in 2 µs is read and written in 4.
        let slot = Slot::new(ByteSize(profile.bandwidth / 1_000_000));
        for (direction, ways) in [
            (Direction::IN, &[&profile.copy_in][..]),
            (Direction::OUT, &[&profile.copy_out]),
            (Direction::IN_OUT, &[&profile.copy_in, &profile.copy_out]),
        ] {
            let each = ways.iter().fold(Cost::default(), |sum, way| sum.plus(super::slice(way, slot.bytes)));
            let moved = Cost { host: Picos::ZERO, gpu: Picos::ns(2_000).times(ways.len() as u64) };
            assert_eq!(costs.copy(&slot.direction(direction)), each.plus(moved));
        }
        let alone = Costs::new(&profile, Rules { copies: CopyPath::OneByOne, ..Rules::default() });
        let launches = costs.any_copy_in().plus(costs.any_copy_out());
        assert_eq!(alone.copy(&slot), costs.copy(&slot).plus(launches));
        assert_eq!(alone.any_copy_in().plus(alone.any_copy_out()), Cost::default());
        let recorded = Costs::new(&profile, Rules { copies: CopyPath::Recorded, ..Rules::default() });
        assert!(recorded.any_copy_in().host < costs.any_copy_in().host);
        assert!(recorded.any_copy_out().host < costs.any_copy_out().host);
    }

    #[test]
    fn hidden_host_time_does_not_count_but_a_remap_still_stops_the_device() {
        let mut profile = h200();
        let rules = Rules { host_hidden: true, ..Rules::default() };
        let (shown, hidden) = (Costs::new(&profile, Rules::default()), Costs::new(&profile, rules));
        let patch = shown.patch();
        assert_eq!(shown.weigh(patch), patch.host.0 + patch.gpu.0);
        assert_eq!(hidden.weigh(patch), patch.gpu.0);
        let remap = hidden.remap(ByteSize::mib(2));
        assert_eq!(hidden.weigh(remap), remap.host.0);
        profile.host_hidden = true;
        assert_eq!(Costs::new(&profile, Rules::default()).weigh(patch), patch.gpu.0);
    }

    #[test]
    fn the_largest_numbers_stay_numbers() {
        let mut profile = h200();
        profile.bandwidth = 1;
        let costs = Costs::new(&profile, Rules { peers: u32::MAX, ..Rules::default() });
        let slot = Slot::new(ByteSize(u64::MAX));
        for cost in [costs.copy(&slot), costs.remap(ByteSize(u64::MAX)), costs.any_remap()] {
            assert!(costs.weigh(cost) <= DEAREST);
        }
    }
}
