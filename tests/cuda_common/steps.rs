//! What a binding is given for a step.

use gvmm::error::{Error, Kind, Operation, Result};
use gvmm::rebind::{Buffer, Buffers};
use gvmm::vm::Block;
use std::sync::Arc;

/// A buffer for each slot, without blocks.
pub(crate) struct Step(pub(crate) Vec<Buffer>);

impl Buffers for Step {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, i: usize) -> Buffer {
        self.0[i]
    }

    fn block(&self, _: usize) -> Result<Arc<Block>> {
        Err(Error::new(Kind::Internal, Operation::Begin, "no slot has a block"))
    }

    fn epoch(&self) -> u64 {
        0
    }
}
