//! Messages of a WebSocket in any order, damaged and not.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::cursor::damaged;
use super::document::Schema;
use super::server::{Target, assert_sound};
use super::tape::{Tape, play};
use crate::support::client::{Socket, soon, try_socket};

/// Under what a socket may say at once.
const FRAMES_MAX: usize = 16;
/// Why a socket may be closed: what the protocol says, and ours. Not 1011, which is for those who do not know why.
const CLOSES: [u16; 9] = [1002, 1007, 1009, 4400, 4401, 4403, 4408, 4409, 4429];

fn frames(tape: &mut Tape, schema: &Schema, target: &Target) -> Vec<Message> {
    let init = json!({ "type": "connection_init", "payload": { "Authorization": format!("Bearer {}", target.token) } });
    let mut frames = if tape.once_in(5) {
        Vec::new()
    } else {
        vec![Message::text(init.to_string())]
    };
    for _ in 0..=tape.number(FRAMES_MAX) {
        let id = tape.one_of(&["1", "2", "é"]);
        let message = match tape.number(9) {
            0 => json!({ "type": "connection_init", "payload": {} }),
            1 => json!({ "type": "ping", "payload": { "a": 1 } }),
            2 => json!({ "type": "complete", "id": id }),
            3 => {
                let query = "subscription($a: ID!, $b: String) { messageAdded(conversationId: $a, after: $b) { messageEdge { cursor } } }";
                let variables =
                    json!({ "a": damaged(tape, &target.named), "b": damaged(tape, &target.named) });
                json!({ "type": "subscribe", "id": id, "payload": { "query": query, "variables": variables } })
            }
            4 => {
                json!({ "type": "subscribe", "id": id, "payload": { "documentId": "x", "query": "" } })
            }
            kind => {
                let root = tape.one_of(&["Subscription", "Query", "Subscription"]);
                let query = schema.operation(tape, root, &target.named);
                let query = if kind == 5 {
                    tape.damage(&query)
                } else {
                    query
                };
                json!({ "type": "subscribe", "id": id, "payload": { "query": query } })
            }
        };
        frames.push(match tape.number(16) {
            0 | 1 => Message::text(tape.damage(&message.to_string())),
            2 => Message::binary(message.to_string().into_bytes()),
            3 => Message::Ping(vec![7; tape.number(125)].into()),
            4 => Message::Pong(Vec::new().into()),
            _ => Message::text(message.to_string()),
        });
    }
    frames
}

/// Says it all, and reads on until it is closed, or answered the last ping.
async fn converse(target: &Target, frames: Vec<Message>) {
    let mut socket = Socket(
        try_socket(target.address, Some("graphql-transport-ws"))
            .await
            .unwrap(),
    );
    let last = json!({ "type": "ping", "payload": { "last": true } }).to_string();
    for frame in frames.into_iter().chain([Message::text(last)]) {
        // It may be closed meanwhile.
        if soon(socket.0.send(frame)).await.is_err() {
            break;
        }
    }
    loop {
        match soon(socket.0.next()).await {
            Some(Ok(Message::Text(text))) => {
                let message: Value = serde_json::from_str(&text).unwrap();
                match message["type"].as_str().unwrap() {
                    "next" => assert_sound(&message["payload"]),
                    "error" => assert_sound(&json!({ "errors": message["payload"] })),
                    "pong" if message["payload"]["last"] == true => break,
                    "connection_ack" | "complete" | "pong" => {}
                    other => panic!("{other}"),
                }
            }
            Some(Ok(Message::Close(frame))) => {
                let code = frame.map_or(0, |frame| frame.code.into());
                assert!(CLOSES.contains(&code), "{code}");
                break;
            }
            Some(Ok(_)) => {}
            // The other side is gone, after it said why or was not read any more.
            Some(Err(_)) | None => break,
        }
    }
}

#[test]
fn any_messages_are_answered_or_the_socket_is_closed_with_its_code() {
    let (schema, target) = (Schema::served(), Target::start());
    play(
        |tape| frames(tape, &schema, &target),
        |frames| target.wait(converse(&target, frames)),
    );
    target.ends_well();
}
