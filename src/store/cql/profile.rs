//! profile

use std::sync::Arc;

use super::Inner;
use super::error::unavailable;
use super::statement::statements;
use crate::model::*;
use crate::store::*;

statements! {
    /// The statements of this file.
    Statements {
        probe: Read "SELECT version FROM schema_migrations WHERE version = ?";
    }
}

pub(super) async fn profiles(_inner: &Inner, _users: &[UserId]) -> Result<Vec<Option<Profile>>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn change_profile(_inner: &Inner, _user: &UserId, _to: &ProfileChange) -> Result<()> {
    Err(unavailable("not written yet"))
}

pub(super) async fn note(_inner: &Inner, _name: &str) -> Result<Option<String>> {
    Err(unavailable("not written yet"))
}

pub(super) async fn set_note(_inner: &Inner, _name: &str, _value: Option<&str>) -> Result<()> {
    Err(unavailable("not written yet"))
}

pub(super) async fn mark_seen(_inner: &Inner, _user: &UserId, _at: Timestamp) -> Result<()> {
    Err(unavailable("not written yet"))
}
