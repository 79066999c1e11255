//! A page of messages without us: its rows are read from the engine, and written as the JSON that a client is answered with.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, Readable as _};
use serde::{Deserialize, Serialize};
use wideroom::model::{
    Content, ConversationId, IdempotencyKey, MessageId, MessageKind, OrderKey, Timestamp, UserId,
};

use crate::measure::{Spread, cpu_micros};

const COUNT: usize = 50;
const PAGES: usize = 50;

/// As a message lies there, behind the byte of its version.
#[derive(Deserialize)]
struct Row {
    sender: UserId,
    _kind: MessageKind,
    _deleted_at: Option<Timestamp>,
    _reply_to: Option<MessageId>,
    _client_key: Option<IdempotencyKey>,
    content: Option<Content>,
}

#[derive(Serialize)]
struct Edge {
    cursor: String,
    node: Node,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    id: String,
    body: String,
    created_at: String,
    sender: User,
}

#[derive(Serialize)]
struct User {
    username: String,
}

/// The messages of a data folder that nobody else has open.
pub struct Rows {
    database: Database,
    messages: Keyspace,
}

impl Rows {
    pub fn open(folder: &Path) -> Self {
        let database = Database::builder(folder.join("db"))
            .cache_size(64 << 20)
            .open()
            .unwrap();
        let messages = database
            .keyspace("messages", KeyspaceCreateOptions::default)
            .unwrap();
        Self { database, messages }
    }

    /// CPU time of a page of the newest messages.
    pub fn measure(&self, conversation: ConversationId, rounds: usize) -> Spread {
        let mut cost = Spread::default();
        for round in 0..=rounds {
            let before = cpu_micros();
            for _ in 0..PAGES {
                assert!(self.page(conversation).len() > COUNT * 100);
            }
            if round > 0 {
                cost.push((cpu_micros() - before) / PAGES as f64);
            }
        }
        cost
    }

    pub fn page(&self, conversation: ConversationId) -> String {
        let rows = self
            .database
            .snapshot()
            .prefix(&self.messages, conversation.0.as_bytes());
        // One more says whether there are more.
        let edges: Vec<Edge> = rows
            .take(COUNT + 1)
            .map(|row| edge(row.into_inner().unwrap()))
            .take(COUNT)
            .collect();
        serde_json::to_string(&edges).unwrap()
    }
}

fn edge((key, value): (fjall::Slice, fjall::Slice)) -> Edge {
    let (row, _): (Row, _) = postcard::take_from_bytes(&value[1..]).unwrap();
    let place: [u8; 16] = key[16..].try_into().unwrap();
    let id = MessageId::from_order_key(OrderKey(place.map(|byte| !byte))).unwrap();
    let name =
        |kind: u8, rest: &[u8]| URL_SAFE_NO_PAD.encode([&[1, kind], &key[..16], rest].concat());
    let node = Node {
        id: name(b'm', id.uuid().as_bytes()),
        body: row.content.unwrap().body.as_str().to_owned(),
        created_at: id.moment().to_string(),
        sender: User {
            username: row.sender.as_str().to_owned(),
        },
    };
    Edge {
        cursor: name(b'M', &id.order_key().0),
        node,
    }
}
