//! The C ABI: handles, status codes, one door for every call.
//!
//! Each noun has a file of its own with its structs, its constants and its functions; `include/gvmm.h` is
//! generated from them in the order that `tests/header.rs` has them in. A function of this
//! module checks its pointers (`versioned`), looks its handles up (`handle`), calls the layers below, and
//! writes its outputs last. Raw pointers become values in `versioned` and `array` only; nothing but `entry`
//! lets a call in.
#![allow(non_camel_case_types, reason = "the names are C's")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the comments become the header: their parameters part says it"
)]

pub mod access;
pub mod allocation;
pub mod api;
mod array;
pub mod attach;
mod barrier;
pub mod binding;
pub mod block;
pub mod copy;
pub mod device;
mod drivers;
mod entry;
mod handle;
pub mod last_error;
pub mod log;
pub mod options;
pub mod peer;
pub mod permanent;
pub mod plan;
pub mod pool;
pub mod pool_capture;
pub mod pool_limits;
pub mod pool_snapshot;
pub mod pool_stats;
pub mod record;
pub mod remap;
pub mod reservation;
pub mod segment;
pub mod shims;
pub mod slot;
pub mod status;
pub mod step;
pub mod stream;
mod stripes;
pub mod testing;
mod text;
pub mod timeline;
pub mod types;
mod used;
pub mod version;
mod versioned;
