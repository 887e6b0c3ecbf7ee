//! What the environment and the device say where a caller says nothing.

use super::threshold::{Threshold, UNKNOWN_MEMORY_BOUND};
use crate::config;
use crate::units::ByteSize;

/// What [`Threshold::DEFAULT`] means: `XLA_VMM_TMP_COPY_THRESHOLD`, where 0 is off and 1 automatic.
pub(super) fn default_threshold() -> Threshold {
    threshold_of(config::get().tmp_copy_threshold)
}

const fn threshold_of(variable: Option<u64>) -> Threshold {
    match variable {
        None | Some(1) => Threshold::AUTO,
        Some(0) => Threshold::OFF,
        Some(bytes) => Threshold(bytes),
    }
}

/// True where `GVMM_PLAN` is `auto`.
pub(super) fn plans_by_default() -> bool {
    config::get().plan_auto
}

/// How much bindings of a device with `total` bytes (0: unknown) may book: `GVMM_SHADOW_BUDGET`, or 1 % of it.
pub(super) fn shadow_budget(total: ByteSize) -> ByteSize {
    budget_of(config::get().shadow_budget, total)
}

const fn budget_of(variable: Option<u64>, total: ByteSize) -> ByteSize {
    match (variable, total.get()) {
        (Some(bytes), _) => ByteSize(bytes),
        (None, 0) => UNKNOWN_MEMORY_BOUND,
        (None, total) => ByteSize(total / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_three_ways() {
        assert_eq!(threshold_of(None), Threshold::AUTO);
        assert_eq!(threshold_of(Some(1)), Threshold::AUTO);
        assert_eq!(threshold_of(Some(0)), Threshold::OFF);
        assert_eq!(threshold_of(Some(4096)), Threshold(4096));
    }

    #[test]
    fn the_budget_is_one_percent_unless_told() {
        assert_eq!(budget_of(None, ByteSize::gib(100)), ByteSize::gib(1));
        assert_eq!(budget_of(None, ByteSize::ZERO), ByteSize::mib(64));
        assert_eq!(budget_of(Some(7), ByteSize::gib(100)), ByteSize(7));
    }
}
