//! Servers in one process over one counting store, with the streams of all users.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_graphql::Variables;
use futures_util::stream::{self, StreamExt as _};
use wideroom::bus::Bus;
use wideroom::chat::{Chat, Draft, DraftInput};
use wideroom::clock::SystemClock;
use wideroom::graphql::{Api, DocumentBounds, ExecutionLimits, OperationExecutor as _};
use wideroom::model::ConversationId;
use wideroom::rate::Pace;
use wideroom::store::Store;
use wideroom::store::embedded::Embedded;

use super::counting::{CountingStore, Meter, record};
use super::directory::Directory;
use super::scale::{Readers, Scale};
use super::{COMPARED_WITH, Conversations, name};
use crate::world::without_rates;

const OPEN_AT_ONCE: usize = 64;

/// Fields that an app needs to draw its list and its badge.
pub const ENTRIES: &str = "subscription { inboxUpdated { cursor event { ... on InboxEntryChangedEvent { inboxEntryEdge { cursor node {
    id unreadCount lastActivityAt lastMessage { id body sender { username } } conversation { id kind name } } } } } } }";

/// Servers over one store, with the streams of all users.
pub struct Fleet {
    pub meter: Arc<Meter>,
    pub servers: Vec<(Chat, Arc<Api>)>,
    neighbours: Range<usize>,
    pub delivered: Arc<AtomicU64>,
    pub readers: Vec<tokio::task::AbortHandle>,
}

impl Fleet {
    pub async fn open(
        servers: usize,
        store: &Arc<Embedded>,
        conversations: &Conversations,
        scale: &Scale,
    ) -> Self {
        let meter = Arc::new(Meter::default());
        let directory = Directory::new(&meter);
        for (id, people) in conversations.iter().flatten() {
            let viewer = name(people[0]);
            let found = store.participations(&viewer, &[*id]).await.unwrap().pop();
            let conversation = found.flatten().unwrap().conversation;
            record(&directory, store, &conversation).await;
        }
        let mut opened = Vec::new();
        for _ in 0..servers {
            let store: Arc<dyn Store> = Arc::new(CountingStore::new(store, &directory, &meter));
            let chat = Chat::open(
                store,
                Bus::default(),
                Arc::new(SystemClock),
                without_rates(),
            );
            let chat = chat.await.unwrap();
            let api = Arc::new(Api::new(chat.clone(), DocumentBounds::default()));
            opened.push((chat, api));
        }
        Self {
            meter,
            servers: opened,
            neighbours: scale.numbers(Readers::Neighbours),
            delivered: Arc::default(),
            readers: Vec::new(),
        }
    }

    pub fn of_user(&self, number: usize) -> &(Chat, Arc<Api>) {
        let servers = if self.neighbours.contains(&number) {
            self.servers.len().min(COMPARED_WITH)
        } else {
            self.servers.len()
        };
        &self.servers[number % servers]
    }

    /// Opens the stream of each user, and reads it from now on.
    pub async fn read(&mut self, users: usize) {
        let opened = stream::iter(0..users).map(|number| {
            let (_, api) = self.of_user(number);
            let (api, viewer) = (Arc::clone(api), name(number));
            let delivered = Arc::clone(&self.delivered);
            async move {
                let prepared = api.prepare(ENTRIES, None).unwrap();
                let limits = ExecutionLimits {
                    budget: Arc::default(),
                    pace: Pace::free(),
                };
                let viewer = Some(viewer.into());
                let mut events = api
                    .subscribe(&prepared, Variables::default(), viewer, limits)
                    .await;
                events.next().await.unwrap();
                let reader = async move {
                    while events.next().await.is_some() {
                        delivered.fetch_add(1, Ordering::Relaxed);
                    }
                };
                tokio::spawn(reader).abort_handle()
            }
        });
        self.readers = opened.buffer_unordered(OPEN_AT_ONCE).collect().await;
    }

    pub async fn send(&self, (id, people): &(ConversationId, Vec<usize>), sender: usize) {
        let number = people[sender % people.len()];
        let (chat, _) = self.of_user(number);
        let input = DraftInput {
            body: "tomorrow at noon, by train".to_owned(),
            ..DraftInput::default()
        };
        let draft = Draft::parse(input, chat.bounds()).unwrap();
        let sender = name(number);
        chat.writes.send(&sender, *id, draft).await.unwrap();
    }
}
