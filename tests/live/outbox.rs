//! The outbox through every door: a WebSocket, Server-Sent Events and parts of a multipart answer.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wideroom::chat::{Draft, DraftInput, OutboxFilter, OutboxTypes};
use wideroom::model::{UserId, Viewer};

use super::chat_server::ChatServer;
use super::streams::{EVENTS, PARTS};
use crate::support::client::{Socket, soon, try_socket};

fn document(after: &str) -> String {
    format!("subscription {{ outbox(after: {after}, types: [MESSAGE_ADDED]) {{ cursor id }} }}")
}

/// Answer that is read as it comes, chunks and all.
struct Streamed {
    stream: TcpStream,
    text: String,
}

impl Streamed {
    async fn open(server: &ChatServer, accept: &str, after: &str) -> Self {
        let body = json!({ "query": document(after) }).to_string();
        let head = format!(
            "POST /graphql HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\naccept: {accept}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            server.outbox_token(),
            body.len()
        );
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        Self {
            stream,
            text: String::new(),
        }
    }

    /// The next payload of `outbox`.
    async fn next(&mut self) -> Value {
        const BEGIN: &str = "{\"outbox\":";
        loop {
            if let Some((_, rest)) = self.text.split_once(BEGIN)
                && let Some((payload, rest)) = rest.split_once("}}")
            {
                let payload = serde_json::from_str(&format!("{payload}}}")).unwrap();
                self.text = rest.to_owned();
                return payload;
            }
            let mut bytes = [0; 4_096];
            let count = soon(self.stream.read(&mut bytes)).await.unwrap();
            assert!(count > 0, "it ended as {:?}", self.text);
            self.text
                .push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    }
}

#[tokio::test]
async fn the_outbox_comes_through_every_door_and_resumes_there() {
    let server = ChatServer::with_outbox().await;
    let alice = server.user("alice");
    let direct = alice.direct("bob").await;
    let service = server.outbox_token();
    for door in ["socket", EVENTS, PARTS] {
        let mut after = "null".to_owned();
        for number in 0..3 {
            let mut cursor = String::new();
            let mut ids = Vec::new();
            let mut take = |payload: Value| {
                cursor = payload["cursor"].as_str().unwrap().to_owned();
                ids.extend(payload["id"].as_str().map(str::to_owned));
            };
            let mut sent = Vec::new();
            if door == "socket" {
                let mut socket = Socket::connect(server.address, &service).await;
                socket.subscribe("1", &document(&after)).await;
                take(socket.told("1").await["outbox"].take());
                sent.push(alice.send(&direct, "one").await.uuid);
                take(socket.told("1").await["outbox"].take());
            } else {
                let mut streamed = Streamed::open(&server, door, &after).await;
                take(streamed.next().await);
                sent.push(alice.send(&direct, "one").await.uuid);
                take(streamed.next().await);
            }
            assert_eq!(ids, sent, "{door} {number}");
            // Missed by the reader, who comes back for it.
            let missed = alice.send(&direct, "missed").await.uuid;
            after = format!("\"{cursor}\"");
            let mut streamed = Streamed::open(&server, EVENTS, &after).await;
            streamed.next().await;
            let next = streamed.next().await;
            assert_eq!(next["id"], missed);
            after = format!("\"{}\"", next["cursor"].as_str().unwrap());
        }
    }
}

/// Document of a webhook that names none.
const FULL: &str = include_str!("../../src/graphql/outbox_document.graphql");

#[tokio::test]
async fn the_document_of_a_webhook_is_taken_from_a_service_that_subscribes() {
    let server = ChatServer::with_outbox().await;
    let alice = server.user("alice");
    let direct = alice.direct("bob").await;
    let service = server.outbox_token();
    let mut socket = Socket::connect(server.address, &service).await;
    socket.subscribe("1", FULL).await;
    socket.told("1").await;
    let sent = alice.send(&direct, "hello").await;
    let event = socket.told("1").await;
    assert_eq!(event["outbox"]["id"], *sent.uuid);
    assert_eq!(
        event["outbox"]["event"]["messageEdge"]["node"]["body"],
        "hello"
    );
}

/// A socket on which the service acts as a user is that user.
#[tokio::test]
async fn a_socket_of_a_user_is_forbidden_whoever_opened_it() {
    let server = ChatServer::with_outbox().await;
    let mut user = server.socket("alice").await;
    let mut acting = Socket(
        try_socket(server.address, Some("graphql-transport-ws"))
            .await
            .unwrap(),
    );
    let payload = json!({
        "Authorization": format!("Bearer {}", server.service_token("backend", 0)),
        "as": "alice",
    });
    acting
        .say(&json!({ "type": "connection_init", "payload": payload }))
        .await;
    assert_eq!(acting.hear().await, json!({ "type": "connection_ack" }));
    for socket in [&mut user, &mut acting] {
        socket.subscribe("1", &document("null")).await;
        let heard = socket.hear().await;
        let errors = match heard["type"].as_str() {
            Some("error") => &heard["payload"],
            Some("next") => &heard["payload"]["errors"],
            _ => panic!("{heard}"),
        };
        assert_eq!(errors[0]["extensions"]["code"], "FORBIDDEN", "{heard}");
    }
}

/// Bounds of a user's sockets and rates do not slow a service that reads all events.
#[tokio::test]
async fn a_service_reads_more_events_than_its_rate_of_requests() {
    const EVENTS_READ: usize = 600;
    let server = ChatServer::with_outbox().await;
    let alice = server.user("alice");
    let direct = alice.direct("bob").await;
    let mut socket = Socket::connect(server.address, &server.outbox_token()).await;
    socket.subscribe("1", &document("null")).await;
    socket.told("1").await;
    // No more at once than the queue of a conversation holds.
    for _ in 0..EVENTS_READ / 100 {
        let sends = (0..100).map(|_| alice.send(&direct, "one of many"));
        futures_util::future::join_all(sends).await;
    }
    for _ in 0..EVENTS_READ {
        let payload = socket.told("1").await;
        assert!(payload["outbox"]["id"].is_string());
    }
}

/// A server holds the newest 4,096 events of a shard in memory. A reader that was away for longer has
/// its place in front of them.
#[tokio::test]
async fn a_reader_that_was_away_for_many_events_receives_each_of_them() {
    const SENDS: usize = 6_000;
    /// No more at once than the queue of a conversation holds.
    const AT_ONCE: usize = 100;
    let server = ChatServer::with_outbox().await;
    let chat = &server.chat;
    let user = |name: &str| UserId::parse(name).unwrap();
    let service = Viewer::service(user("backend"));
    let types = OutboxTypes::parse(&["MESSAGE_ADDED".to_owned()]).unwrap();
    let filter = || OutboxFilter::parse(types.clone(), None, None).unwrap();
    let mut reader = chat.outbox.updates(&service, None, filter()).await.unwrap();
    let cursor = reader.next().await.unwrap().position;
    drop(reader);
    let alice = user("alice");
    let direct = chat.writes.start_direct(&alice, "bob").await;
    let direct = direct.unwrap().id;
    let mut sent = BTreeSet::new();
    for _ in 0..SENDS / AT_ONCE {
        let sends = (0..AT_ONCE).map(|_| {
            let input = DraftInput {
                body: "one of many".to_owned(),
                ..DraftInput::default()
            };
            let draft = Draft::parse(input, chat.bounds()).unwrap();
            chat.writes.send(&alice, direct, draft)
        });
        let messages = futures_util::future::try_join_all(sends).await.unwrap();
        sent.extend(messages.iter().map(|message| message.id));
    }
    for times in 0..2 {
        let reader = chat.outbox.updates(&service, Some(cursor), filter());
        let mut reader = reader.await.unwrap();
        let mut read = BTreeSet::new();
        while read.len() < sent.len() {
            let update = soon(reader.next()).await.unwrap();
            if let Some(event) = update.event {
                assert!(read.insert(event.item.event.message), "{times}: twice");
            }
        }
        assert!(read == sent, "{times}");
    }
}
