//! How many mappings the process may hold, and how many of them are ours.

use crate::error::{Error, Kind, Operation, Result};

/// What Linux allows where it does not say.
const DEFAULT_LIMIT: u64 = 65_530;

/// Our share of the process's mappings. Each mapping, each hole between mappings and each plain allocation
/// counts as one. The system may join neighbours, so it holds at most as many.
#[derive(Debug)]
pub(super) struct Budget {
    used: u64,
    limit: u64,
}

impl Budget {
    /// A budget of `limit`, or, for 0, of what the system leaves now, with a tenth kept for everybody else.
    pub(super) fn new(limit: u64) -> Self {
        let limit = if limit > 0 { limit } else { (system_limit() / 10 * 9).saturating_sub(held()) };
        Self { used: 0, limit }
    }

    /// How many are ours.
    #[cfg(test)]
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Refuses what would pass the limit.
    pub(super) fn check(&self, change: i64, operation: Operation) -> Result<()> {
        if change <= 0 || self.used.saturating_add_signed(change) <= self.limit {
            return Ok(());
        }
        let hint = "no mapping is left: use larger blocks, or raise vm.max_map_count and GVMM_HOST_MAX_MAPS";
        Err(Error::new(Kind::MapLimit, operation, hint))
    }

    /// Books what has been done.
    pub(super) fn book(&mut self, change: i64) {
        self.used = self.used.saturating_add_signed(change);
    }
}

/// How many mappings a process may hold.
fn system_limit() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(DEFAULT_LIMIT)
}

/// How many this process holds.
fn held() -> u64 {
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    text.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// True where the process holds nearly as many mappings as it may. Slow; only for telling failures apart.
pub(super) fn system_is_full() -> bool {
    held().saturating_add(16) >= system_limit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_exact_and_a_refusal_changes_nothing() {
        let mut budget = Budget::new(3);
        budget.book(3);
        let kind = budget.check(1, Operation::Map).map_err(|e| e.kind);
        assert_eq!(kind, Err(Kind::MapLimit));
        assert_eq!(budget.check(0, Operation::Map), Ok(()));
        budget.book(-1);
        assert_eq!(budget.check(1, Operation::Map), Ok(()));
        assert_eq!(budget.used(), 2);
    }

    #[test]
    fn without_a_limit_the_system_s_own_is_kept() {
        let budget = Budget::new(0);
        assert!(budget.limit > 0 && budget.limit < system_limit());
        assert!(!system_is_full());
    }
}
