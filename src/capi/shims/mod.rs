//! What frameworks call by exact signature: their allocators, over pools of ours.
//!
//! A framework gives no handles and asks for no statuses. `pools` keeps one pool for each device, and is what all shims
//! share; each framework has a file of its own. A call that fails leaves the last error of its thread, as every other does.

mod function;
mod pools;
pub mod torch;
