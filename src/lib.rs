//! gvmm: addresses that stay while GPU memory moves.
//!
//! ```text
//!  C program, XLA, PyTorch
//!         │
//!       capi            handles, status codes, one door for every call
//!         │
//!    ┌────┴─────┐
//!  rebind      pool     POLICY. rebind: which slots of a command buffer are baked, mapped, copied or patched
//!    └────┬─────┘                pool: a caching allocator whose segments grow, shrink and lend pages
//!        vm             MECHANISM. owns address ranges and memory: map, remap, retire, undo
//!         │
//!       driver          what a vendor must provide, as one trait; the host's own memory is one
//! ```
//!
//! An import goes down the picture, never up or sideways; `units`, `error`, `config` and `logging` may be used
//! by all.
//!
//! # Glossary
//!
//! - **granule**: the smallest unit that a driver maps.
//! - **reservation**: a range of addresses. **Block**: physical memory. **Mapping**: a block visible in a
//!   reservation. **Access**: what a device may do there.
//! - **slot**: one buffer that a command buffer uses, with an address that stays. **Binding**: the slots of one
//!   command buffer. **Window**: the place of a mapped slot in its binding's reservation. **Shadow**: memory that
//!   stands in for a slot's buffer. **Generation**: which addresses of a binding are in force.
//! - the actions for a slot: **bake** (its buffer's own address), **map** (an address of ours, remapped when the
//!   buffer moves), **copy** (a shadow), **patch** (the executor changes the address).
//! - **churn**: which slots move in which steps. **Profile**: what remaps, copies and patches cost on a device. **Plan**: an
//!   action for each slot of a binding, chosen by the **planner** from churn and profile; in `vm`, the driver calls of a
//!   remap. **Digest**: a number that equal plans share.
//! - **route**: the copies between the shadows of a layout, which stay (near), and the buffers of a step, which do not (far).
//! - **pool**: gives memory by size and stream. **Arena**: what one (pool, stream) has. **Segment**: an arena's
//!   addresses, in which **chunks** (blocks of one size) are live where they are needed. **Lend**: move a free chunk to
//!   where it is needed.
//! - **retire**: unmap once the streams that may still use a mapping have passed. **Timeline**: a value that a
//!   stream raises when it gets there. **Mark**: a point in a stream, recorded on a timeline when somebody needs it.

pub mod capi;
pub mod config;
pub mod driver;
pub mod error;
pub mod logging;
pub mod pool;
pub mod rebind;
pub mod units;
pub mod vm;
