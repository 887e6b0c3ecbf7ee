//! Policy: which slots of a command buffer keep their buffers' own addresses, which are mapped, which are
//! copied.
//!
//! A [`Binding`] holds the slots of one command buffer. Each step [`Binding::begin`] takes the buffers that the
//! step uses and serves them at the addresses that were recorded, or lays out anew and says
//! [`Outcome::RecordAgain`].
//!
//! The deciding parts ([`slot`](Slot), [`compute_threshold`], [`plan`]) are pure: numbers in, a plan out. The
//! engine (`binding`, `layout`, `review`, `step`) holds the state and hands plans to `vm`.

mod binding;
mod buffers;
mod plan;
mod report;
mod shadow;
mod slot;
mod threshold;

pub use binding::{Binding, Options};
pub use buffers::{Buffer, Buffers};
pub use report::{BindingInfo, Outcome, StepReport};
pub use shadow::{ShadowBudget, set_shadow_budget, shadow_budget};
pub use slot::{Action, Direction, MemorySpace, Slot, SlotFlags};
pub use threshold::{Threshold, compute_threshold};
