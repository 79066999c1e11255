//! Decisions that both engines take alike. Each stands here once, and the engines only store it.

pub(super) mod ban;
pub(super) mod expiry;
pub(super) mod finding;
pub(super) mod former_runs;
pub(super) mod import;
pub(super) mod job;
pub(super) mod live;
pub(super) mod note;
pub(super) mod outbox;
pub(super) mod pair;
pub(super) mod pin_list;
pub(super) mod position_counts;
pub(super) mod report;
pub(super) mod succession;
pub(super) mod verification;
