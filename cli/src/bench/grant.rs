//! Who gets access, and in how many calls.

use super::calls::Calls;
use super::options::Peers;
use crate::failure::{Context, Failure};
use gvmm::driver::{Access, AccessMode, Capabilities, Ordinal};
use gvmm::error::{Kind, Result};
use gvmm::units::{ByteSize, DeviceRange};

/// One way to give access: one list a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    /// How many peers get access.
    pub(super) peers: u32,
    pub(super) lists: Vec<Vec<Access>>,
}

impl Grant {
    /// All in one call.
    fn joint(device: Ordinal, peers: &[Ordinal]) -> Self {
        let list = std::iter::once(&device).chain(peers).copied().map(line).collect();
        Self { peers: peers.len() as u32, lists: vec![list] }
    }

    /// One call for each.
    fn apart(device: Ordinal, peers: &[Ordinal]) -> Self {
        let lists = std::iter::once(&device).chain(peers).map(|device| vec![line(*device)]).collect();
        Self { peers: peers.len() as u32, lists }
    }

    /// True where one call is enough for all.
    pub(super) const fn is_joint(&self) -> bool {
        self.lists.len() == 1
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        let peers = match self.peers {
            0 => return "local".into(),
            1 => "1 peer".into(),
            many => format!("{many} peers"),
        };
        if self.lists.len() > 1 { format!("{peers}, a call each") } else { format!("{peers}, one call") }
    }

    /// Gives access, and says how many µs the calls took.
    pub(super) fn give(&self, calls: &mut Calls, range: DeviceRange) -> Result<f64> {
        self.lists.iter().try_fold(0.0, |us, list| Ok(us + calls.set_access(range, list)?))
    }
}

fn line(device: Ordinal) -> Access {
    Access { device, mode: AccessMode::READ_WRITE }
}

/// Local access; that for 1, 3, 7 and all peers in one call; and that for all in one call each.
pub(super) fn grants(device: Ordinal, peers: &[Ordinal]) -> Vec<Grant> {
    let mut grants = vec![Grant::joint(device, &[])];
    let several = [1, 3, 7].into_iter().filter(|number| *number < peers.len());
    let numbers = several.chain((!peers.is_empty()).then_some(peers.len()));
    grants.extend(numbers.map(|number| Grant::joint(device, &peers[..number])));
    if !peers.is_empty() {
        grants.push(Grant::apart(device, peers));
    }
    grants
}

/// The peers that take part, and those that do not reach the device's memory.
pub(super) fn find_peers(
    calls: &mut Calls,
    asked: Peers,
) -> std::result::Result<(Vec<Ordinal>, Vec<Ordinal>), Failure> {
    let others = (0..calls.driver.device_count()).map(Ordinal).filter(|other| *other != calls.device);
    let others: Vec<Ordinal> = others.collect();
    let single = Capabilities::VIRTUAL_MEMORY.with(Capabilities::DEVICE_ACCESS);
    let can = calls.driver.device_info(calls.device).during("device")?.capabilities.has(single);
    let (mut peers, mut unreachable) = (Vec::new(), Vec::new());
    for other in others.into_iter().filter(|_| can && asked != Peers::Number(0)) {
        let list = if reaches(calls, other).during("peer")? { &mut peers } else { &mut unreachable };
        list.push(other);
    }
    if let Peers::Number(wanted) = asked {
        if peers.len() < wanted as usize {
            let found = peers.len();
            return Err(Failure::new(format!(
                "--peers {wanted}: {found} further devices can be given access to memory of device {}",
                calls.device.0
            )));
        }
        peers.truncate(wanted as usize);
    }
    Ok((peers, unreachable))
}

/// Tries it with one block.
fn reaches(calls: &mut Calls, other: Ordinal) -> Result<bool> {
    let granularity = calls.granularity(ByteSize(1))?;
    let size = granularity.size();
    let (range, _) = calls.reserve(size, granularity)?;
    let (block, _) = calls.create(size)?;
    calls.map(range, block)?;
    let given = Grant::joint(calls.device, &[other]).give(calls, range);
    calls.unmap(range)?;
    calls.release(block)?;
    calls.free(range)?;
    match given {
        Ok(_) => Ok(true),
        Err(error) if error.kind == Kind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_named_together_and_apart() {
        let names = |count: u32| {
            let peers: Vec<Ordinal> = (1..=count).map(Ordinal).collect();
            grants(Ordinal(0), &peers).iter().map(Grant::name).collect::<Vec<_>>()
        };
        assert_eq!(names(0), ["local"]);
        assert_eq!(names(1), ["local", "1 peer, one call", "1 peer, a call each"]);
        let three = ["local", "1 peer, one call", "3 peers, one call", "3 peers, a call each"];
        assert_eq!(names(3), three);
        assert_eq!(names(7).len(), 5);
        let apart = Grant::apart(Ordinal(2), &[Ordinal(0), Ordinal(1)]);
        assert_eq!(apart.lists.iter().map(|list| list[0].device.0).collect::<Vec<_>>(), [2, 0, 1]);
    }
}
