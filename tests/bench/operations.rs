//! The operations whose cost is measured, each as a client asks for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use wideroom::graphql::{EventContent, EventResponse};
use wideroom::model::{Event, MessageId, Notice, OrderKey, Timestamp, Topic, UserId};

use crate::world::{Place, World, body, client_key, text_message};

pub const HISTORY: &str = "query($c: ID!, $after: String, $until: DateTime) { conversation(id: $c) {
    messages(first: 50, after: $after, until: $until) { edges { cursor node { id body createdAt sender { username } } }
        pageInfo { hasNextPage endCursor } } } }";
pub const INBOX: &str =
    "{ inbox(first: 20) { edges { cursor node { lastMessage { id body createdAt } unreadCount conversation { id name } } }
    pageInfo { hasNextPage endCursor } updatesCursor } }";
const UNREAD: &str = "query($c: ID!) { conversation(id: $c) { inboxEntry { unreadCount } } }";
pub const MARK_READ: &str = "mutation($c: ID!, $m: ID!) { markRead(input: { conversationId: $c, messageId: $m }) { inboxEntry { id } } }";
pub const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) {
    sendMessage(input: { conversationId: $c, body: $b, idempotencyKey: $k }) { messageEdge { cursor node { id createdAt } } } }";
const MESSAGE_ADDED: &str = "subscription($c: ID!) { messageAdded(conversationId: $c) {
    messageEdge { cursor node { id body createdAt sender { username } } } } }";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    NewestPage,
    DeepPage,
    AnyPage,
    InboxPage,
    Unread,
    UnreadCapped,
    MarkRead,
    Delivery,
    Send,
}

impl Operation {
    /// In the order in which they are measured: what writes comes last.
    pub const ALL: [Self; 9] = [
        Self::NewestPage,
        Self::DeepPage,
        Self::AnyPage,
        Self::InboxPage,
        Self::Unread,
        Self::UnreadCapped,
        Self::Delivery,
        Self::MarkRead,
        Self::Send,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::NewestPage => "history, newest page",
            Self::DeepPage => "history, deep page",
            Self::AnyPage => "history, any page",
            Self::InboxPage => "inbox, first page",
            Self::Unread => "unread, 5",
            Self::UnreadCapped => "unread, at its cap",
            Self::MarkRead => "markRead",
            Self::Delivery => "delivery",
            Self::Send => "send",
        }
    }

    pub const fn meaning(self) -> &'static str {
        match self {
            Self::NewestPage => {
                "the newest 50 messages with id, body, createdAt and sender { username }"
            }
            Self::DeepPage => {
                "the same of 50 messages after a cursor in the middle of the conversation"
            }
            Self::AnyPage => {
                "the same of 50 messages before a moment, each time another one: mostly not in the cache"
            }
            Self::InboxPage => {
                "the first 20 entries with lastMessage, unreadCount and conversation { id name }, 5 unread in each"
            }
            Self::Unread => "unreadCount of one entry with 5 unread messages",
            Self::UnreadCapped => "unreadCount of one entry in which nothing was read: 99",
            Self::MarkRead => "a marker moved to a later message, with its fsync",
            Self::Delivery => "one message from the bus through a subscription to its text",
            Self::Send => "one message with an idempotency key, alone, with its fsync",
        }
    }

    /// Whether its cost is to be the same however much is stored, or is only noted.
    pub const fn has_aim(self) -> bool {
        matches!(
            self,
            Self::NewestPage | Self::DeepPage | Self::AnyPage | Self::InboxPage | Self::Send
        )
    }

    /// How often it is done for one measurement.
    pub const fn times(self) -> usize {
        match self {
            Self::NewestPage | Self::DeepPage | Self::AnyPage | Self::InboxPage => 10,
            Self::Unread | Self::UnreadCapped | Self::Delivery => 25,
            Self::MarkRead | Self::Send => 10,
        }
    }
}

/// One who does the operations in a world.
pub struct Client<'a> {
    world: &'a World,
    pub place: &'a Place,
    conversation: String,
    middle: String,
    /// Messages for the reader's marker, ascending.
    to_read: Vec<String>,
    updates: BoxStream<'static, EventResponse>,
    serial: AtomicU64,
}

impl<'a> Client<'a> {
    pub async fn new(world: &'a World, place: &'a Place) -> Self {
        let [viewer, ..] = &place.people;
        let conversation = first_in_inbox(&mut (world, viewer)).await;
        let page = world
            .data(
                viewer,
                HISTORY,
                json!({"c": conversation, "until": place.middle().to_string()}),
            )
            .await;
        let middle = text(&page["conversation"]["messages"]["pageInfo"]["endCursor"]);
        let to_read = oldest_ids(&mut (world, viewer), &conversation).await;
        let updates = world
            .subscribe(viewer, MESSAGE_ADDED, json!({"c": conversation}))
            .await;
        Self {
            world,
            place,
            conversation,
            middle,
            to_read,
            updates,
            serial: AtomicU64::new(1),
        }
    }

    /// Does it once, and answers with how many bytes came back.
    pub async fn run(&mut self, operation: Operation) -> usize {
        self.text(operation).await.len()
    }

    /// The same, with what came back.
    pub async fn text(&mut self, operation: Operation) -> String {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let c = &self.conversation;
        let [viewer, reader, idler, _] = &self.place.people;
        let (who, document, variables) = match operation {
            Operation::NewestPage => (viewer, HISTORY, json!({"c": c})),
            Operation::DeepPage => (viewer, HISTORY, json!({"c": c, "after": self.middle})),
            Operation::AnyPage => (
                viewer,
                HISTORY,
                json!({"c": c, "until": self.any_moment(serial).to_string()}),
            ),
            Operation::InboxPage => (viewer, INBOX, json!({})),
            Operation::Unread => (viewer, UNREAD, json!({"c": c})),
            Operation::UnreadCapped => (idler, UNREAD, json!({"c": c})),
            Operation::MarkRead => {
                let message = self.to_read.pop().expect("there are more than are read");
                (reader, MARK_READ, json!({"c": c, "m": message}))
            }
            Operation::Send => (
                viewer,
                SEND,
                json!({"c": c, "b": body(serial), "k": client_key(serial)}),
            ),
            Operation::Delivery => return self.deliver(serial).await,
        };
        self.world.ask(who, document, variables).await
    }

    /// Somewhere with a whole page before it, never twice the same place in a row.
    fn any_moment(&self, serial: u64) -> Timestamp {
        let (first, last) = (self.place.span.0.micros(), self.place.span.1.micros());
        let share = (serial as f64 * 0.618_033_988_749_895).fract();
        Timestamp::from_micros(first + ((last - first) as f64 * (0.06 + 0.94 * share)) as i64)
    }

    async fn deliver(&mut self, serial: u64) -> String {
        let conversation = self.place.conversation;
        let id = MessageId::new(self.place.span.1.plus_micros(serial as i64), [0; 8]);
        let message = text_message(conversation, id, &self.place.people[1], serial);
        let notice = Notice::new(id, OrderKey::MIN, Event::MessageAdded(Arc::new(message)));
        self.world
            .bus
            .publish(&Topic::Conversation(conversation), notice);
        let told = self.updates.next().await.unwrap();
        assert!(
            !matches!(&told.content, EventContent::Own(response) if !response.errors.is_empty()),
            "{told:?}"
        );
        serde_json::to_string(&told.content).unwrap()
    }

    /// Forgets what came meanwhile, so that the next delivery is the next event.
    pub fn drain(&mut self) {
        while self.updates.next().now_or_never().flatten().is_some() {}
    }
}

/// One who asks: in this process, or over HTTP.
pub trait Ask {
    /// Executes a document and returns its answer.
    fn ask(&mut self, document: &str, variables: Value) -> impl Future<Output = Value> + Send;
}

impl Ask for (&World, &UserId) {
    async fn ask(&mut self, document: &str, variables: Value) -> Value {
        self.0.data(self.1, document, variables).await
    }
}

/// The global id of the first conversation in an inbox.
pub async fn first_in_inbox(who: &mut impl Ask) -> String {
    let document = "{ inbox(first: 1) { edges { node { conversation { id } } } } }";
    let data = who.ask(document, json!({})).await;
    text(&data["inbox"]["edges"][0]["node"]["conversation"]["id"])
}

/// The global ids of the oldest messages, the newest of them first: so many that each is marked once.
pub async fn oldest_ids(who: &mut impl Ask, conversation: &str) -> Vec<String> {
    let document = "query($c: ID!, $before: String) { conversation(id: $c) { messages(last: 100, before: $before) {
        edges { node { id } } pageInfo { startCursor } } } }";
    let mut pages: Vec<Vec<String>> = Vec::new();
    let mut before = Value::Null;
    for _ in 0..9 {
        let data = who
            .ask(document, json!({"c": conversation, "before": before}))
            .await;
        let messages = &data["conversation"]["messages"];
        pages.push(
            messages["edges"]
                .as_array()
                .unwrap()
                .iter()
                .map(|edge| text(&edge["node"]["id"]))
                .collect(),
        );
        before = messages["pageInfo"]["startCursor"].clone();
    }
    pages.into_iter().rev().flatten().collect()
}

pub fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}

/// The first page of an inbox, as [`Operation::InboxPage`] asks for it.
pub async fn inbox_page(world: &World, viewer: &UserId) -> usize {
    world.ask(viewer, INBOX, json!({})).await.len()
}
