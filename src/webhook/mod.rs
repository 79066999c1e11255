//! Webhooks: the events of the outbox, sent to the receivers that the configuration names, as Standard Webhooks 1.0.0.
//!
//! Each event is delivered at least once, and in order within its conversation. A webhook is a named reader of the outbox: the
//! store holds its position in each of the 16 shards. The servers that share a store also share the shards, by leases
//! (`coordinator`). The holder of a shard reads its rows into a bounded queue (`queue`) and delivers the events of four
//! conversations at once (`shard`). A delivery executes the document and sends its answer (`delivery`).
//!
//! No conversation holds up another one. The queue holds a few events of each, passes over the rest, and reads them again later,
//! from a position of its own. A conversation whose last try took long waits for the one lane of slow ones.
//!
//! - 2xx: delivered. 408, 409, 425, 429, 5xx, redirects and silence: the same event again, after 1 s to 5 min. Nothing passes it
//!   in its conversation. `Retry-After` pauses the whole webhook.
//!   An event that fails for an hour while the receiver takes other conversations' is a dead letter, too. So are the next ones of its
//!   conversation after three tries within a minute, until one is delivered.
//! - 410: the webhook is off until the server starts again.
//! - Another 4xx: three tries within a minute, then a dead letter, which the operator lists and redelivers (`dead_letters`).

mod coordinator;
mod dead_letters;
mod delivery;
mod metrics;
mod queue;
mod retry;
mod settings;
mod shard;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::coordinator::Coordinator;
use self::delivery::Deliverer;
use self::metrics::WebhookMetrics;
pub use self::retry::RetryPolicy;
pub use self::settings::{WEBHOOKS_MAX, WebhookSettings};
use crate::chat::{self, Chat, ReaderName};
use crate::graphql::{Api, OutboxDocument};
use crate::metrics::Metrics;
use crate::signed_post::{PostClient, SecretFile};

/// Longest wait for running deliveries when the server ends.
const FINISH_MAX: Duration = Duration::from_secs(10);

/// Reason for a webhook that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The document, the secret or the address is not usable.
    #[error("webhook {name}: {reason}")]
    Unusable { name: ReaderName, reason: String },
    #[error(
        "webhooks need the outbox of the deployment, which is off: switch it on with `wideroom outbox on`"
    )]
    OutboxOff,
    #[error("the positions of the webhooks are not available: {0}")]
    Store(chat::Error),
}

/// Checks the files and the document of a webhook. It sends nothing.
pub async fn check(settings: &WebhookSettings) -> Result<(), WebhookError> {
    parts(settings).await.map(drop)
}

/// The client and the document of a webhook.
async fn parts(settings: &WebhookSettings) -> Result<(PostClient, OutboxDocument), WebhookError> {
    let unusable = |reason: String| WebhookError::Unusable {
        name: settings.name.clone(),
        reason,
    };
    let document = OutboxDocument::parse(settings.document.as_deref())
        .map_err(|reason| unusable(format!("the document is refused: {reason}")))?;
    // Both read small files, once.
    let secrets = SecretFile::open(&settings.secret_file);
    let secrets = secrets.map_err(|error| unusable(error.to_string()))?;
    let client = PostClient::new(settings.target.clone(), secrets);
    let client = client.map_err(|error| unusable(error.to_string()))?;
    Ok((client, document))
}

/// The running webhooks of a server.
pub struct Webhooks {
    hooks: Vec<Arc<Deliverer>>,
    stop: CancellationToken,
    tasks: parking_lot::Mutex<Vec<JoinHandle<()>>>,
}

impl Webhooks {
    /// Opens all webhooks and begins to deliver. A webhook without a position begins with the next event.
    pub async fn open(
        all: &[WebhookSettings],
        policy: RetryPolicy,
        chat: &Chat,
        api: &Arc<Api>,
        metrics: &Metrics,
    ) -> Result<Self, WebhookError> {
        let stop = CancellationToken::new();
        if all.is_empty() {
            return Ok(Self {
                hooks: Vec::new(),
                stop,
                tasks: parking_lot::Mutex::default(),
            });
        }
        if !chat.outbox.is_on().await.map_err(WebhookError::Store)? {
            return Err(WebhookError::OutboxOff);
        }
        let shared_metrics = WebhookMetrics::new();
        let mut hooks = Vec::new();
        for settings in all {
            let (client, document) = parts(settings).await?;
            chat.outbox
                .begin_reader(&settings.name)
                .await
                .map_err(WebhookError::Store)?;
            hooks.push(Arc::new(Deliverer {
                name: settings.name.clone(),
                types: settings.types.clone(),
                client,
                document,
                policy,
                chat: chat.clone(),
                api: Arc::clone(api),
                metrics: shared_metrics.of(&settings.name),
                paused_until: parking_lot::Mutex::default(),
                taken_at: parking_lot::Mutex::default(),
                is_gone: CancellationToken::new(),
            }));
        }
        // An open that failed before may be repeated.
        shared_metrics.register(metrics);
        let start = |hook: &Arc<Deliverer>| {
            tracing::info!(webhook = %hook.name, address = %hook.client.target(), "the server delivers events to a webhook");
            tokio::spawn(Coordinator::new(Arc::clone(hook), stop.child_token()).run())
        };
        let tasks = parking_lot::Mutex::new(hooks.iter().map(start).collect());
        Ok(Self { hooks, stop, tasks })
    }

    fn hook(&self, name: &str) -> Option<&Arc<Deliverer>> {
        self.hooks.iter().find(|hook| hook.name.as_str() == name)
    }

    /// Ends the deliveries and releases the shards. Running tries have a few seconds.
    pub async fn finish(&self) {
        self.stop.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            let abort = task.abort_handle();
            if timeout(FINISH_MAX, task).await.is_err() {
                abort.abort();
            }
        }
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
