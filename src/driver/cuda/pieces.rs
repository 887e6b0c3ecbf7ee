//! Memory of our own for tables: what is given back is kept for the next one, since the driver's own freeing waits for
//! all work on the device.

use super::context::{Context, Core};
use super::timeline::PINNED_HOST;
use crate::error::{Error, Kind, Operation, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The smallest piece.
const LEAST: u64 = 4096;

/// A piece of device memory, or of pinned host memory, in one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    context: u64,
    bytes: u64,
    /// Its address for the host, 0 where it is device memory.
    pub(super) host: u64,
    /// Its address for the device.
    pub(super) device: u64,
}

/// The pieces that nobody uses.
#[derive(Debug, Default)]
pub(super) struct Pieces(Mutex<Vec<Piece>>);

impl Pieces {
    fn list(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self, context: &Context, pinned: bool, bytes: u64) -> Option<Piece> {
        let mut list = self.list();
        let fits = |p: &Piece| p.context == context.handle && (p.host != 0) == pinned && p.bytes == bytes;
        list.iter().position(fits).map(|at| list.swap_remove(at))
    }

    /// `bytes` of device memory at least.
    pub(super) fn device(&self, core: &Core, context: &Arc<Context>, bytes: u64) -> Result<Piece> {
        let bytes = bytes.next_power_of_two().max(LEAST);
        if let Some(piece) = self.idle(context, false, bytes) {
            return Ok(piece);
        }
        let _entered = core.enter(context.handle, Operation::Copy)?;
        let mut device = 0;
        core.api.check(core.api.memory_alloc(&mut device, bytes), Operation::Copy)?;
        Ok(Piece { context: context.handle, bytes, host: 0, device })
    }

    /// `bytes` of pinned host memory at least.
    pub(super) fn pinned(&self, core: &Core, context: &Arc<Context>, bytes: u64) -> Result<Piece> {
        let bytes = bytes.next_power_of_two().max(LEAST);
        if let Some(piece) = self.idle(context, true, bytes) {
            return Ok(piece);
        }
        let _entered = core.enter(context.handle, Operation::Copy)?;
        let (mut host, mut device) = (0, 0);
        core.api.check(core.api.host_alloc(&mut host, bytes, PINNED_HOST), Operation::Copy).map_err(|e| {
            if e.kind == Kind::OutOfDeviceMemory { Error { kind: Kind::OutOfHostMemory, ..e } } else { e }
        })?;
        let status = core.api.host_device_pointer(&mut device, host, 0);
        core.api.check(status, Operation::Copy).inspect_err(|_| {
            core.log_status("free pinned memory", core.api.host_free(host));
        })?;
        Ok(Piece { context: context.handle, bytes, host, device })
    }

    /// Keeps a piece that no launch reads any more.
    pub(super) fn give_back(&self, piece: Piece) {
        self.list().push(piece);
    }

    /// Frees all.
    pub(super) fn close(&self, core: &Core) {
        for piece in std::mem::take(&mut *self.list()) {
            let Ok(_entered) = core.enter(piece.context, Operation::Destroy) else { continue };
            if piece.host == 0 {
                core.log_status("free device memory", core.api.memory_free(piece.device));
            } else {
                core.log_status("free pinned memory", core.api.host_free(piece.host));
            }
        }
    }
}
