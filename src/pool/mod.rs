//! Policy: a caching allocator whose segments grow, shrink and lend pages.
//!
//! A [`Pool`] gives memory of one device by size and stream. Each (pool, stream) has an arena with two heaps, small
//! and large blocks, each over an [`ExpandableSegment`]: one long reservation that holds chunks where they are
//! needed. Where the limit is reached, free chunks move to the stream and the address that need them; the old
//! view goes once its stream has passed, so nobody waits.
//!
//! One allocation through the files: `size_class` says how many units and which heap, `table` finds the arena, `heap`
//! takes a free block by `free_index` or holds the best `window` over free pieces and holes; `grow` has `supply` put
//! chunks into its holes (ready ones, new ones, or free ones that `reclaim` picks and `segment` retires) and does what
//! else there is to do when memory is short. A free goes from `table` and `starts` straight to the heap, or, where other
//! streams use the block, waits for their events among the arena's pending ones. `stream` says whose an arena is,
//! `plain` does all that where a device has no virtual memory, `capture` says which pools graphs use, `limits` what may be held; `report` tells. `free_index`, `heap`, `ledger`, `nodes`, `reclaim`,
//! `size_class`, `starts` and `window` are pure.

mod arena;
mod capture;
mod free_index;
mod grow;
mod heap;
mod history;
mod ledger;
mod limits;
mod nodes;
mod plain;
mod plain_books;
#[expect(clippy::module_inception, reason = "the pool as callers see it")]
mod pool;
mod reclaim;
mod report;
mod segment;
mod settings;
mod size_class;
mod snapshot;
mod starts;
mod stats;
mod stream;
mod supply;
mod table;
mod totals;
mod uses;
mod window;

pub use capture::Filter;
pub use pool::{Place, Pool, PoolId, Pressure};
pub use segment::{ChunkIndex, ExpandableSegment};
pub use settings::{OVERSUBSCRIPTION, SMALL_LIMIT, Settings};
pub use snapshot::{BlockInfo, BlockState, Event, EventKind, SegmentInfo, Snapshot};
pub use stats::{Bytes, Figure, Holder, Shortage, Stats, StreamStats};
