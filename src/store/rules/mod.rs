//! Decisions that both engines take alike. Each stands here once.

pub(super) mod note;
