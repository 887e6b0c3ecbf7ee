//! Handles.

// Their values are keys (see `handle`); the types exist in C only.

/// A device of one driver. A handle: a key that is looked up, never dereferenced.
pub struct gvmm_device(());

/// A stream of ours, for callers who have none. It is passed as the `void *stream` of any function.
pub struct gvmm_stream(());

/// What a capture kept: work that runs at each launch.
pub struct gvmm_graph(());

/// Physical memory of a device, without an address. A mapping gives it one.
pub struct gvmm_block(());

/// A range of device addresses that stays until it is destroyed.
pub struct gvmm_reservation(());

/// Memory with an address: a block in a reservation of its own, or plain device memory where there is no
/// virtual memory.
pub struct gvmm_allocation(());

/// A long range of addresses that grows and shrinks by chunks.
pub struct gvmm_segment(());

/// A caching allocator of one device.
pub struct gvmm_pool(());

/// The slots of one command buffer, each with an address that stays.
pub struct gvmm_binding(());

/// A number in host memory that streams write, for the caller to look at.
pub struct gvmm_timeline(());
