//! What routes are: copies that are made again and again between ends that stay and ends that do not.

use crate::driver::CopySlice;
use crate::units::DevicePtr;

/// Copies that are made again and again: each has a near end and bytes that stay, and a far end that is given each
/// time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RouteId(pub u64);

/// A route's copies inside a graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RecordId(pub u64);

/// Where recorded copies are to go: slices as [`Driver::route_point`](super::Driver::route_point) takes them.
pub type Point<'a> = (RecordId, &'a [CopySlice]);

/// Which way a route's copies go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// From the far ends to the near ones.
    In,
    /// From the near ends to the far ones.
    Out,
}

/// What stays of one slice of a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RouteSlice {
    /// The end that stays.
    pub near: DevicePtr,
    /// How many bytes; not 0.
    pub bytes: u64,
}

impl RouteSlice {
    /// The end of `slice` that moves; NULL where nothing is copied.
    pub(crate) const fn far(way: Way, slice: &CopySlice) -> DevicePtr {
        match way {
            _ if slice.bytes == 0 => DevicePtr::NULL,
            Way::In => slice.src,
            Way::Out => slice.dst,
        }
    }
}
