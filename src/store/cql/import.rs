//! import

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

pub(super) async fn import(_inner: &Inner, _rows: &[ImportRow]) -> Result<Vec<Imported>> {
    Err(unavailable("not written yet"))
}
