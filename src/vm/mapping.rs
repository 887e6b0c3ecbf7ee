//! The books of one reservation: what is mapped where, with which access.

use super::BlockId;
use crate::driver::Access;
use crate::units::ByteSize;

/// How a mapping stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingState {
    /// Mapped.
    Live,
    /// Unmapped as soon as its streams have passed.
    Retired,
    /// A failed call could not be undone here: nothing usable is mapped, the block is kept, and the next remap
    /// that names the reservation rebuilds it.
    Lost,
}

/// One mapping, for people and tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappingInfo {
    /// Where it starts in its reservation.
    pub offset: ByteSize,
    /// How many bytes.
    pub size: ByteSize,
    /// The block.
    pub block: BlockId,
    /// How it stands.
    pub state: MappingState,
    /// What the driver was told that devices may do here (empty after a plain map).
    pub access: Vec<Access>,
    /// True where set-access on exact mappings overrides the reservation's list.
    pub overridden: bool,
}
