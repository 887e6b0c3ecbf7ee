//! Mechanism: owns address ranges and memory; maps, remaps, retires and undoes.
//!
//! One request through the files: [`Device::remap`] takes a snapshot of the books of the reservations named
//! (`mapping`), a pure planner turns snapshot and entries into steps (`remap`), the executor runs the steps and
//! undoes them when one fails (`transaction`), and the books and the address table (`registry`) follow. A remap that
//! only puts blocks in the place of others of their size goes a shorter way to the executor (`swap`). What
//! must wait for streams waits by marks (`timeline`) in a queue (`retire`), and what could not be cleaned up is
//! kept and tried again (`cleanup`).
//!
//! # Locks
//!
//! From the outside in; a thread takes them in this order and never waits for a stream while holding one:
//!
//! 1. `Shared::alone` (devices without aliasing: one map or remap at a time);
//! 2. the books of reservations, ordered by the reservations' numbers, held across driver calls so that books
//!    and driver change together;
//! 3. leaves, each taken alone: the retire queue, the left-overs, the table of clocks, a clock (held across its
//!    timeline write, so that values are written in their order), the registry's writer.
//!
//! No lock is held while blocks, reservations or retired values are dropped.

mod access;
mod allocation;
mod block;
pub mod calls;
mod changes;
mod cleanup;
mod commit;
mod copy;
mod counter;
mod device;
mod entries;
mod job;
mod mapping;
mod plan;
mod quick;
mod registry;
mod remap;
mod reservation;
mod retire;
mod route;
mod shared;
mod slab;
mod swap;
mod timeline;
mod transaction;

pub use allocation::Allocation;
pub use block::{Block, BlockId};
pub use calls::CallCounts;
pub use changes::RemapReport;
pub use counter::Counter;
pub use device::Device;
pub use entries::{PlaceEntry, RemapEntry, RetireEntry};
pub use mapping::{MappingInfo, MappingState};
#[cfg(test)]
pub(crate) use quick::TAKEN;
pub(crate) use quick::{Quick, QuickGuard};
pub use registry::Found;
pub use reservation::{Owner, Reservation};
pub use route::Route;
pub use timeline::Mark;
