//! Settings of one webhook, as the configuration file holds them.

use std::path::PathBuf;

use crate::chat::{OutboxTypes, ReaderName};
use crate::signed_post::PostTarget;

/// Webhooks of one server.
pub const WEBHOOKS_MAX: usize = 16;

/// One `[[webhook]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Identity of its positions: another name begins with the next event.
    pub name: ReaderName,
    pub target: PostTarget,
    /// The address as it was given.
    pub url: String,
    pub allow_http: bool,
    pub secret_file: PathBuf,
    /// Events that are sent.
    pub types: OutboxTypes,
    /// Subscription on `outbox` whose answer is the payload. `None`: the default one.
    pub document: Option<String>,
}
