//! The end in order, in the middle of everything: who is under way is answered or cut off, and what was acknowledged is there afterwards.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Message;

use super::read;
use super::stage::{GROUP_AT, Stage, name};
use crate::support::client::{Cut, Socket, soon};
use crate::support::program::Program;
use crate::support::server::Server;

const SENDERS: usize = 6;
/// Acknowledged before the signal comes.
const SENT_MIN: usize = 40;

const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { uuid } } } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_it_in_order_and_loses_nothing() {
    let stage = Arc::new(Stage::set_up(Program::new()).await);
    let server = Server::start(&stage.program, &["--rates", "off"]);
    let address = server.address();
    let conversation = stage.conversations[GROUP_AT].id.clone();
    let sent = Arc::new((AtomicUsize::new(0), Notify::new()));
    let senders: Vec<_> = (0..SENDERS)
        .map(|user| {
            tokio::spawn(send_on(
                Arc::clone(&stage),
                address,
                user,
                Arc::clone(&sent),
            ))
        })
        .collect();
    let mut listener = open(&stage, address, SENDERS).await;
    let document = "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { uuid } } } }";
    subscribe(&mut listener, "1", document, &json!({ "c": conversation })).await;
    let over_socket = tokio::spawn(send_over_socket(Arc::clone(&stage), address, SENDERS + 1));
    soon(async {
        while sent.0.load(Ordering::Relaxed) < SENT_MIN {
            sent.1.notified().await
        }
    })
    .await;

    the_folder_is_locked(&stage);

    server.signal("-TERM");
    assert_eq!(listener.closed().await.0, 1012);
    let mut acknowledged = soon(over_socket).await.unwrap();
    for sender in senders {
        acknowledged.extend(soon(sender).await.unwrap());
    }
    listener.gone().await;
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("shut down cleanly") && !log.contains("cuts off"),
        "{log}"
    );

    let server = Server::start(&stage.program, &["--rates", "off"]);
    let history = read::history(&mut stage.caller(server.address(), 0).await, &conversation).await;
    let there: HashMap<_, _> = history
        .messages
        .iter()
        .map(|read| (read.id.uuid().to_string(), read.body.clone().unwrap()))
        .collect();
    assert_eq!(there.len(), history.messages.len());
    for (id, body) in &acknowledged {
        assert_eq!(there.get(id), Some(body));
    }
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

fn the_folder_is_locked(stage: &Stage) {
    let line =
        "is in use by another wideroom (serve, import, …): stop it first, or name another folder";
    let line = format!("{} {line}", stage.program.data().display());
    stage.program.run(&["verify"]).failed(4, &line);
}

type Acknowledged = Vec<(String, String)>;

/// Sends until it is cut off; every answer that comes is a good one.
async fn send_on(
    stage: Arc<Stage>,
    address: SocketAddr,
    user: usize,
    sent: Arc<(AtomicUsize, Notify)>,
) -> Acknowledged {
    let mut acknowledged = Vec::new();
    let conversation = &stage.conversations[GROUP_AT].id;
    let mut caller = stage.caller(address, user).await;
    loop {
        let body = format!("{} says {}", name(user), acknowledged.len());
        match caller
            .data(SEND, &json!({ "c": conversation, "b": body }))
            .await
        {
            Ok(data) => acknowledged.push((uuid(&data), body)),
            Err(Cut) => return acknowledged,
        }
        sent.0.fetch_add(1, Ordering::Relaxed);
        sent.1.notify_one();
    }
}

/// The same over a socket: what it asked for before the end is answered, then it is closed with 1012.
async fn send_over_socket(stage: Arc<Stage>, address: SocketAddr, user: usize) -> Acknowledged {
    let mut socket = open(&stage, address, user).await;
    let mut bodies = HashMap::new();
    let mut acknowledged = Vec::new();
    loop {
        if bodies.len() == acknowledged.len() {
            let (id, body) = (
                bodies.len().to_string(),
                format!("{} says {}", name(user), bodies.len()),
            );
            let variables = json!({ "c": stage.conversations[GROUP_AT].id, "b": body });
            bodies.insert(id.clone(), body);
            subscribe(&mut socket, &id, SEND, &variables).await;
        }
        let heard: Value = match soon(socket.0.next()).await.unwrap().unwrap() {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            Message::Close(frame) => {
                assert_eq!(u16::from(frame.unwrap().code), 1012);
                socket.gone().await;
                return acknowledged;
            }
            other @ (Message::Binary(_)
            | Message::Ping(_)
            | Message::Pong(_)
            | Message::Frame(_)) => panic!("{other:?}"),
        };
        if heard["type"] == "next" {
            let id = heard["id"].as_str().unwrap();
            acknowledged.push((uuid(&heard["payload"]["data"]), bodies[id].clone()));
        }
    }
}

fn uuid(data: &Value) -> String {
    data["sendMessage"]["messageEdge"]["node"]["uuid"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn open(stage: &Stage, address: SocketAddr, user: usize) -> Socket {
    Socket::connect(address, &stage.program.token(&name(user))).await
}

async fn subscribe(socket: &mut Socket, id: &str, document: &str, variables: &Value) {
    socket.say(&json!({ "type": "subscribe", "id": id, "payload": { "query": document, "variables": variables } })).await;
}
