//! Servers in virtual time, their store, and a receiver of their webhooks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use wideroom::chat::{Bounds, Chat, OutboxTypes};
use wideroom::clock::Clock;
use wideroom::graphql::{Api, DocumentBounds};
use wideroom::metrics::Metrics;
use wideroom::model::{ConversationId, Timestamp, UserId};
use wideroom::store::cluster::ClusterStore;
use wideroom::store::embedded::{Embedded, Options};
use wideroom::store::{Store, StoreAdmin as _};
use wideroom::webhook::{RetryPolicy, WebhookSettings, Webhooks};

use super::store::{StillStore, still};
use crate::delivery::directory::{BASE_MICROS, Dice, Directory};
use crate::support::program::memory_folder;
use crate::support::receiver::{Receiver, SECRET};
use crate::support::size::sized;
use crate::support::world::{Actor, chat_on, text};

/// Wall clock of all servers: virtual time, also on threads of the store.
struct VirtualClock {
    runtime: Handle,
    start: Instant,
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let _entered = self.runtime.enter();
        let passed = i64::try_from(self.start.elapsed().as_micros()).unwrap();
        Timestamp::from_micros(BASE_MICROS + passed)
    }
}

/// Store of one server, or of several.
pub(super) struct Ground {
    pub(super) clock: Arc<dyn Clock>,
    embedded: Arc<Embedded>,
    /// `None` for a store of one server.
    directory: Option<Directory>,
    start: Instant,
    folder: TempDir,
}

pub(super) struct QuietServer {
    pub(super) chat: Chat,
    pub(super) store: Arc<dyn Store>,
    pub(super) still: Arc<StillStore>,
    api: Arc<Api>,
    metrics: Metrics,
}

impl Ground {
    /// A store of one server.
    pub(super) async fn of_one() -> Self {
        Self::open(None).await
    }

    /// A store that several servers share.
    pub(super) async fn shared() -> Self {
        Self::open(Some(Directory::default())).await
    }

    async fn open(directory: Option<Directory>) -> Self {
        let (start, folder) = (Instant::now(), memory_folder());
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock {
            runtime: Handle::current(),
            start,
        });
        let options = Options {
            path: folder.path().to_owned(),
            cache_bytes: 16 << 20,
            free_bytes_min: 0,
            accept_loss: false,
        };
        let embedded = Embedded::open(options, Arc::clone(&clock)).await.unwrap();
        embedded.set_outbox(Some(clock.now())).await.unwrap();
        std::fs::write(folder.path().join("secret"), SECRET).unwrap();
        Self {
            clock,
            embedded: Arc::new(embedded),
            directory,
            start,
            folder,
        }
    }

    /// The store itself, on which nothing is disturbed.
    pub(super) fn embedded(&self) -> Arc<Embedded> {
        Arc::clone(&self.embedded)
    }

    pub(super) fn is_shared(&self) -> bool {
        self.directory.is_some()
    }

    /// Tells the directory of a cluster of the participants of a conversation, as its store would know them.
    pub(super) fn place(&self, conversation: ConversationId, participants: BTreeSet<UserId>) {
        if let Some(directory) = &self.directory {
            directory.set_conversation(conversation, participants, false);
        }
    }

    /// Messages of a conversation that are still stored.
    pub(super) async fn messages_on_disk(&self, conversation: ConversationId) -> usize {
        let all = self.embedded.all_messages(conversation, None, 1_000);
        still(all).await.unwrap().len()
    }

    pub(super) async fn server(&self) -> QuietServer {
        let link = self.directory.as_ref().map(|directory| {
            let link = directory.link(Arc::new(Dice::new(1)), self.start, None);
            Arc::new(link) as Arc<dyn ClusterStore>
        });
        let (still, store) = StillStore::before(&self.embedded, link);
        let chat = chat_on(
            Arc::clone(&store),
            Arc::clone(&self.clock),
            Bounds::default(),
        )
        .await;
        let metrics = Metrics::default();
        chat.register(&metrics);
        QuietServer {
            api: Arc::new(Api::new(chat.clone(), DocumentBounds::default())),
            chat,
            store,
            still,
            metrics,
        }
    }

    /// A webhook of added messages.
    pub(super) fn webhook(&self, receiver: &Receiver) -> WebhookSettings {
        WebhookSettings {
            types: OutboxTypes::parse(&["MESSAGE_ADDED".to_owned()]).unwrap(),
            document: Some("subscription { outbox { id conversation { id } } }".to_owned()),
            ..receiver.settings("backend", self.folder.path().join("secret"))
        }
    }
}

impl QuietServer {
    pub(super) fn user(&self, name: &str) -> Actor {
        Actor::of(&self.api, &UserId::parse(name).unwrap())
    }

    pub(super) async fn webhooks(&self, settings: WebhookSettings) -> Webhooks {
        self.webhooks_with(settings, &self.metrics).await
    }

    /// The same with metrics of their own.
    pub(super) async fn webhooks_with(
        &self,
        settings: WebhookSettings,
        metrics: &Metrics,
    ) -> Webhooks {
        let policy = RetryPolicy::default();
        Webhooks::open(&[settings], policy, &self.chat, &self.api, metrics)
            .await
            .unwrap()
    }

    /// Value of one series, named as `/metrics` prints it.
    pub(super) fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series} is not in:\n{text}"))
            .parse()
            .unwrap()
    }
}

/// The id of a conversation in the store.
pub(super) async fn stored_id(actor: &Actor, id: &str) -> ConversationId {
    let document = "query($c: ID!) { conversation(id: $c) { uuid } }";
    let data = actor.data(document, json!({"c": id})).await;
    ConversationId(text(&data["conversation"]["uuid"]).parse().unwrap())
}

/// Lets seconds pass in which nothing happens.
pub(super) async fn quiet(seconds: u64) {
    pass(Duration::from_secs(seconds)).await;
}

/// Lets time pass.
pub(super) async fn pass(time: Duration) {
    sleep(time).await;
}

/// The seconds at and just after each of these, and in the gate those just before it.
pub(super) fn around(seconds: &[u64]) -> Vec<u64> {
    let around = seconds
        .iter()
        .flat_map(|one| sized(*one, one.saturating_sub(1))..=one + 1);
    let all: BTreeSet<_> = around.collect();
    all.into_iter().collect()
}
