//! Complete histories and inboxes, read page by page as a client reads them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wideroom::model::{MessageId, OrderKey};

use crate::support::client::Caller;
use crate::support::world::PATIENCE;

const AGAIN_AFTER: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) id: MessageId,
    pub(crate) sender: String,
    pub(crate) body: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) created_at: String,
    /// Everything that was answered about it.
    pub(crate) whole: Value,
}

/// A conversation as one of its participants sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct History {
    /// Oldest first.
    pub(crate) messages: Vec<Read>,
    pub(crate) message_count: i64,
    pub(crate) last_message: Option<MessageId>,
    pub(crate) participants: Value,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) conversation: String,
    pub(crate) message_count: i64,
    pub(crate) last_message: Option<MessageId>,
    pub(crate) last_activity: String,
    pub(crate) unread: i64,
    pub(crate) is_capped: bool,
    pub(crate) first_unread: Option<MessageId>,
    pub(crate) read_up_to: Option<OrderKey>,
}

pub(crate) struct Inbox {
    pub(crate) entries: Vec<Entry>,
    pub(crate) updates_cursor: String,
}

pub(crate) fn message_id(value: &Value) -> Option<MessageId> {
    value["uuid"]
        .as_str()
        .map(|text| MessageId::parse(text).unwrap())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The data of a read, which is asked again while the store is unavailable: a cluster on a loaded
/// machine misses a deadline now and then.
async fn served(caller: &mut Caller, document: &str, variables: &Value) -> Value {
    let began = Instant::now();
    loop {
        let mut reply = caller.ask(document, variables).await.unwrap();
        if reply.body.get("errors").is_none() {
            return reply.body["data"].take();
        }
        assert!(
            reply.code() == "UNAVAILABLE" && began.elapsed() < PATIENCE,
            "{} for {variables}",
            reply.body
        );
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

pub(crate) async fn history(caller: &mut Caller, conversation: &str) -> History {
    let document = "query($c: ID!, $a: String) { conversation(id: $c) { messageCount lastMessage { uuid }
        participants(first: 100) { edges { node { user { username } role readUpTo { uuid } } } }
        messages(first: 100, after: $a) { pageInfo { hasNextPage endCursor }
            edges { node { uuid body sender { username } kind clientKey createdAt deletedAt metadata replyTo { uuid } } } } } }";
    let mut messages = Vec::new();
    let mut after = Value::Null;
    loop {
        let mut data = served(caller, document, &json!({ "c": conversation, "a": after })).await;
        let mut read = data["conversation"].take();
        let page = read["messages"].take();
        messages.extend(
            page["edges"]
                .as_array()
                .unwrap()
                .iter()
                .map(|edge| message(&edge["node"])),
        );
        if page["pageInfo"]["hasNextPage"] == true {
            after = page["pageInfo"]["endCursor"].clone();
            continue;
        }
        messages.reverse();
        let message_count = read["messageCount"].as_i64().unwrap();
        return History {
            messages,
            message_count,
            last_message: message_id(&read["lastMessage"]),
            participants: read["participants"].take(),
        };
    }
}

fn message(node: &Value) -> Read {
    Read {
        id: message_id(node).unwrap(),
        sender: text(&node["sender"]["username"]),
        body: node["body"].as_str().map(str::to_owned),
        key: node["clientKey"].as_str().map(str::to_owned),
        created_at: text(&node["createdAt"]),
        whole: node.clone(),
    }
}

pub(crate) async fn inbox(caller: &mut Caller) -> Inbox {
    let document = "query($a: String) { inbox(first: 100, after: $a) { updatesCursor pageInfo { hasNextPage endCursor } edges { node {
        conversation { id messageCount } lastMessage { uuid } lastActivityAt
        unreadCount unreadCountIsCapped firstUnreadMessage { uuid } readUpTo { uuid } } } } }";
    let mut entries = Vec::new();
    let (mut after, mut updates_cursor) = (Value::Null, None);
    loop {
        let data = served(caller, document, &json!({ "a": after })).await;
        let page = &data["inbox"];
        entries.extend(
            page["edges"]
                .as_array()
                .unwrap()
                .iter()
                .map(|edge| entry(&edge["node"])),
        );
        let updates_cursor = updates_cursor.get_or_insert_with(|| text(&page["updatesCursor"]));
        if page["pageInfo"]["hasNextPage"] == true {
            after = page["pageInfo"]["endCursor"].clone();
            continue;
        }
        return Inbox {
            entries,
            updates_cursor: updates_cursor.clone(),
        };
    }
}

fn entry(node: &Value) -> Entry {
    Entry {
        conversation: text(&node["conversation"]["id"]),
        message_count: node["conversation"]["messageCount"].as_i64().unwrap(),
        last_message: message_id(&node["lastMessage"]),
        last_activity: text(&node["lastActivityAt"]),
        unread: node["unreadCount"].as_i64().unwrap(),
        is_capped: node["unreadCountIsCapped"].as_bool().unwrap(),
        first_unread: message_id(&node["firstUnreadMessage"]),
        read_up_to: message_id(&node["readUpTo"]).map(MessageId::order_key),
    }
}

impl History {
    /// Expected unread count of a user's entry and its first unread message, counted from the history.
    pub(crate) fn unread(
        &self,
        user: &str,
        read_up_to: Option<OrderKey>,
    ) -> (i64, Option<MessageId>) {
        let is_unread = |read: &&Read| {
            read_up_to.is_none_or(|marker| read.id.order_key() > marker)
                && read.sender != user
                && read.whole["kind"] == "TEXT"
                && read.whole["deletedAt"].is_null()
        };
        let count = self.messages.iter().filter(is_unread).count();
        (
            i64::try_from(count).unwrap(),
            self.messages.iter().find(is_unread).map(|read| read.id),
        )
    }

    /// The entry of a user agrees with what is in history.
    pub(crate) fn agrees(&self, user: &str, entry: &Entry, cap: i64) {
        let newest = self.messages.last();
        assert_eq!(
            (entry.message_count, entry.last_message),
            (self.message_count, newest.map(|read| read.id)),
            "{user}: {entry:?}"
        );
        let (unread, first) = self.unread(user, entry.read_up_to);
        assert_eq!(
            (entry.unread, entry.is_capped),
            (unread.min(cap), unread > cap),
            "{user}: {entry:?}"
        );
        assert_eq!(entry.first_unread, first, "{user}: {entry:?}");
    }
}
