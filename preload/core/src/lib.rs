//! What the two preloaded libraries share.
//!
//! ```text
//! program ── exported function (packages cuda and hip) ── door ──┬── off: the vendor's function
//!                                                                 ├── observe: counted and timed around it
//!                                                                 └── on: care, with books of what there is
//! ```
//!
//! `call` is the table of calls, `real` finds the vendor's functions, `life` says whether we take part at all, `books` and
//! `joins` are plain data, `care` and `access` decide, `trace` and `totals` tell. Nothing here may panic, wait for another thread
//! across a vendor's call, or outlive its use: the program must run as if we were not there.

pub mod access;
pub mod books;
pub mod call;
pub mod care;
pub mod door;
pub mod driver;
pub mod joins;
pub mod life;
pub mod lookup;
pub mod memory;
pub mod note;
pub mod real;
pub mod report;
pub mod totals;
pub mod trace;
