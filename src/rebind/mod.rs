//! Policy: which slots of a command buffer keep their buffers' own addresses, which are mapped, copied or patched.
//!
//! A [`Binding`] holds the slots of one command buffer. Each step [`Binding::begin`] takes the buffers that the
//! step uses and serves them at the addresses that were recorded, or lays out anew and says
//! [`Outcome::RecordAgain`].
//!
//! One begin through the files: `binding` lets one thread in, `step` checks the call, `review` compares the
//! buffers with those served. Where they fit, `step` waits, remaps and copies in; where not, `relayout` asks `plan`
//! for places and `layout` for the memory behind them. `copies` are launched by begin and end, or `record`ed in the
//! caller's command buffer.
//!
//! The planner decides by cost: `churn` says which slots move, `profile` and `cost` what each action costs, `planner`
//! asks `choice` for the cheapest mixture, `planning` freezes and repairs it, and `exchange` makes bytes of it for other
//! ranks.
//!
//! The deciding parts (`slot`, `threshold`, `plan`, `ids`, `table`, `overlap`, `free_list`, and all of the planner but `planning`)
//! are pure; `engine` holds the state, `shadow` the device's arena and budget.

mod binding;
mod binding_plan;
mod buffers;
mod choice;
mod churn;
mod copies;
mod cost;
mod engine;
mod exchange;
mod free_list;
mod ids;
mod layout;
mod marks;
mod overlap;
mod permanent;
mod plan;
mod planner;
mod planning;
pub mod profile;
mod profile_file;
mod record;
mod relayout;
mod report;
mod review;
mod settings;
mod shadow;
mod slot;
mod step;
mod table;
mod threshold;

pub use binding::{Binding, Options};
pub use buffers::{Buffer, Buffers};
pub use churn::{Churn, DEFAULT_WATCHED_STEPS, MOST_WATCHED_STEPS, Moves};
pub use cost::{CopyPath, Cost, Rules};
pub use exchange::{export_plan, import_plan, plan_digest};
pub use planner::{Commands, Explanation, Price, Situation, SlotPlan, explain, plan, price};
pub use planning::{Patch, PlanInfo, PlanOptions};
pub use profile_file::profile_of;
pub use record::CopyWays;
pub use report::{BindingInfo, Outcome, StepReport};
pub use shadow::{ShadowBudget, set_shadow_budget, shadow_budget};
pub use slot::{Action, Direction, MemorySpace, Slot, SlotFlags};
pub use threshold::{Threshold, compute_threshold};
