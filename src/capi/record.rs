//! Copies inside the caller's command buffer.
#![allow(unsafe_code, reason = "exports symbols")]

use super::binding::BindingObject;
use super::entry::entry;
use super::handle;
use super::status::gvmm_status;
use super::stream;
use super::types::gvmm_binding;
use crate::error::Operation;
use crate::rebind::CopyWays;
use std::ffi::c_void;

/// Copies of a step, as bits: those to the shadows, before the commands.
pub const GVMM_COPIES_IN: u32 = 1;
/// Copies of a step, as bits: those back from the shadows, after the commands.
pub const GVMM_COPIES_OUT: u32 = 2;

/// Puts copies of a step into the command buffer: they become part of the graph that the stream is being
/// captured into, at this place in it. So record GVMM_COPIES_IN first, the commands, and GVMM_COPIES_OUT last
/// (or one of them; begin and end go on launching what is not recorded).
///
/// Once the graph is named by `gvmm_binding_use_graph`, begin points its copies at the step's buffers, for the
/// launches between that begin and the next, and neither begin nor end launches them. A launch that has not run
/// yet keeps its buffers, so any number of steps may be in flight. A graph launched twice in a step copies the same
/// twice. Outside of a step it must not be launched: its copies are those of the step before.
///
/// State: before, a begin has answered RECORD_AGAIN (the binding has addresses), and no step is begun. What is
/// recorded again replaces what was: a graph with the former copies must not be launched any more. After a
/// RECORD_AGAIN nothing is recorded and no graph is named: the graph with the old copies must not be launched any
/// more, like every command buffer with old addresses; record both into the new one. After a failure what was
/// recorded before counts, and what the capture holds of this call copies nothing.
/// Parameters: `binding`; `stream`, a `gvmm_stream` or the vendor's own, which is being captured; `generation`,
/// the one whose addresses the graph has; `ways`, GVMM_COPIES_IN, GVMM_COPIES_OUT or both.
/// Statuses: INVALID_ARGUMENT (`ways`), WRONG_STATE (the stream is not being captured, another generation is in
/// force, a step is begun), UNSUPPORTED (no GVMM_CAPABILITY_ROUTES, or the stream is of a context of the
/// program's own), INVALID_STREAM, BUSY, those of the driver.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_record_copies(
    binding: *mut gvmm_binding,
    stream: *mut c_void,
    generation: u64,
    ways: u32,
) -> gvmm_status {
    entry(Operation::Capture, || {
        let binding = handle::get::<BindingObject>(binding)?;
        let stream = stream::resolve(&binding.device, stream)?;
        binding.binding.record_copies(stream, generation, CopyWays(ways))
    })
}

/// Names the graph that has a binding's recorded copies and is launched in the steps to come.
///
/// State: before, no step is begun. Until another is named, a new generation is in force or the binding is
/// destroyed, the graph must live: the `gvmm_graph`, or on CUDA the `CUgraphExec` and the `CUgraph` that it was
/// made of. One that was updated or instantiated anew must be named again, also under the same handle. With copies
/// recorded and no graph named, begin is refused.
/// Parameters: `binding`; `graph`, a `gvmm_graph` or on CUDA a `CUgraphExec`, made of the capture that the copies
/// were recorded in; NULL: none.
/// Statuses: WRONG_STATE (a step is begun, or nothing is laid out yet), INVALID_HANDLE (a `gvmm_graph` that is
/// stale or of another device, or on the host anything else), BUSY. That the graph lacks the copies shows at the
/// next begin, as INVALID_ARGUMENT.
/// Threads: externally synchronized; a second thread in the same binding gets BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gvmm_binding_use_graph(
    binding: *mut gvmm_binding,
    graph: *mut c_void,
) -> gvmm_status {
    entry(Operation::Capture, || {
        let binding = handle::get::<BindingObject>(binding)?;
        let graph = stream::resolve_graph(&binding.device, graph)?;
        binding.binding.use_graph(graph)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_the_ways() {
        assert_eq!(CopyWays(GVMM_COPIES_IN), CopyWays::IN);
        assert_eq!(CopyWays(GVMM_COPIES_OUT), CopyWays::OUT);
        assert_eq!(CopyWays(GVMM_COPIES_IN | GVMM_COPIES_OUT), CopyWays::BOTH);
    }
}
