//! What a device, its blocks and its reservations share.

use super::calls::Calls;

/// The state that outlives the device where blocks or reservations do.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) calls: Calls,
}
