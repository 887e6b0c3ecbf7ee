//! Memory of our own for tables: what is given back is kept for the next one, since the driver's own freeing waits for
//! all work on the device.

use super::context::{Context, Core};
use crate::error::{Operation, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The smallest piece.
const LEAST: u64 = 4096;

/// A piece of device memory in one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    context: u64,
    bytes: u64,
    /// Its address.
    pub(super) device: u64,
}

/// The pieces that nobody uses.
#[derive(Debug, Default)]
pub(super) struct Pieces(Mutex<Vec<Piece>>);

impl Pieces {
    fn list(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self, context: &Context, bytes: u64) -> Option<Piece> {
        let mut list = self.list();
        let fits = |p: &Piece| p.context == context.handle && p.bytes == bytes;
        list.iter().position(fits).map(|at| list.swap_remove(at))
    }

    /// `bytes` of device memory at least.
    pub(super) fn device(&self, core: &Core, context: &Arc<Context>, bytes: u64) -> Result<Piece> {
        let bytes = bytes.next_power_of_two().max(LEAST);
        if let Some(piece) = self.idle(context, bytes) {
            return Ok(piece);
        }
        let _entered = core.enter(context.handle, Operation::Copy)?;
        let mut device = 0;
        core.api.check(core.api.memory_alloc(&mut device, bytes), Operation::Copy)?;
        Ok(Piece { context: context.handle, bytes, device })
    }

    /// Keeps a piece that no launch reads any more.
    pub(super) fn give_back(&self, piece: Piece) {
        self.list().push(piece);
    }

    /// Frees all.
    pub(super) fn close(&self, core: &Core) {
        for piece in std::mem::take(&mut *self.list()) {
            let Ok(_entered) = core.enter(piece.context, Operation::Destroy) else { continue };
            core.log_status("free device memory", core.api.memory_free(piece.device));
        }
    }
}
