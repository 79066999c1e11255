//! Reads of reports.

use crate::model::{Direction, OrderKey};

/// Part of the list of reports, which begins with the newest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportQuery {
    /// Only reports before this position.
    pub older_than: OrderKey,
    /// Only reports after this position.
    pub newer_than: OrderKey,
    /// Forward: the newest ones of this part first. Backward: the oldest ones first.
    pub direction: Direction,
    pub limit: usize,
}
