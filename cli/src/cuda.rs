//! `gvmm steps` on an NVIDIA GPU: the command buffer is a real graph of kernels, and so are the checks. Those of `gvmm replay`
//! are the same kernels.

mod api;
mod clock;
mod executor;
mod gpu;

pub(crate) use clock::{BatchList, Clock};
pub(crate) use executor::{Executor, run};
pub(crate) use gpu::{Gpu, NONE, Work, can_patch};
