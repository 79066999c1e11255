//! Bounds of answers on the real program: pages of large bodies, over every door, in queries, mutations and subscriptions.

use serde_json::{Value, json};

use crate::support::client::{Caller, Reply, Socket};
use crate::support::program::Program;
use crate::support::server::Server;

const ANSWER_MAX: usize = 64 * 1024;
/// A quote is two bytes of JSON: four such bodies are more than one answer may have.
const BODY_CHARS: usize = 10_700;
const MESSAGES: usize = 8;
const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { cursor } } }";

struct Scene {
    program: Program,
    server: Server,
    conversation: String,
    alice: Caller,
}

impl Scene {
    async fn set_up() -> Self {
        let program = Program::new();
        let server = Server::start(&program, &["--log", "warn", "--answer-max", "64KiB"]);
        let mut alice = Caller::connect(server.address(), &program.token("alice"))
            .await
            .unwrap();
        let document = "mutation { made: startDirectConversation(input: {username: \"bob\"}) { conversation { id } } }";
        let made = alice.data(document, &Value::Null).await.unwrap();
        let conversation = made["made"]["conversation"]["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let mut scene = Self {
            program,
            server,
            conversation,
            alice,
        };
        for _ in 0..MESSAGES {
            scene.send(&"\"".repeat(BODY_CHARS)).await;
        }
        scene
    }

    /// Answers with the cursor.
    async fn send(&mut self, body: &str) -> String {
        let data = self
            .alice
            .data(SEND, &json!({ "c": self.conversation, "b": body }))
            .await
            .unwrap();
        data["sendMessage"]["messageEdge"]["cursor"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    async fn ask(&mut self, selection: &str) -> Reply {
        let document = format!("query($c: ID!) {{ conversation(id: $c) {{ {selection} }} }}");
        self.alice
            .ask(&document, &json!({ "c": self.conversation }))
            .await
            .unwrap()
    }

    async fn socket(&self) -> Socket {
        Socket::connect(self.server.address(), &self.program.token("alice")).await
    }
}

fn assert_too_large(error: &Value) {
    assert_eq!(error["extensions"]["code"], "BAD_USER_INPUT", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains(&ANSWER_MAX.to_string()) && message.contains("smaller pages"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_large_bodies_end_at_the_bound_however_they_are_asked_for() {
    let mut scene = Scene::set_up().await;
    let fits = scene
        .ask("messages(first: 3) { edges { node { body } } }")
        .await;
    assert_eq!(fits.status, 200);
    assert_eq!(
        fits.body["data"]["conversation"]["messages"]["edges"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let aliases: String = (0..30)
        .map(|alias| format!("a{alias}: messages(first: 100) {{ edges {{ node {{ body }} }} }} "))
        .collect();
    // The library itself answers an object that is selected twice, and one that is in no list.
    let merged = "messages(first: 100) { edges { node { body } } } messages(first: 100) { edges { node { id } } }";
    let single: String = (0..4)
        .map(|alias| format!("a{alias}: lastMessage {{ body }} "))
        .collect();
    for selection in [aliases.as_str(), merged, single.as_str()] {
        let reply = scene.ask(selection).await;
        assert_eq!(reply.status, 422, "{selection}");
        assert!(reply.body.get("data").is_none());
        assert_too_large(&reply.body["errors"][0]);
    }
    let document = format!("query($c: ID!) {{ conversation(id: $c) {{ {aliases} }} }}");
    let mut socket = scene.socket().await;
    let payload = json!({ "query": document, "variables": { "c": scene.conversation } });
    socket
        .say(&json!({ "type": "subscribe", "id": "1", "payload": payload }))
        .await;
    let heard = socket.hear().await;
    assert_eq!(heard["type"], "error");
    assert_too_large(&heard["payload"][0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_sent_though_the_page_beside_it_is_too_large() {
    let mut scene = Scene::set_up().await;
    let document = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"kept\"}) { messageEdge { node {
        conversation { messages(first: 100) { edges { node { body } } } } } } } }";
    let reply = scene
        .alice
        .ask(document, &json!({ "c": scene.conversation }))
        .await
        .unwrap();
    assert!(reply.body.get("data").is_none());
    assert_too_large(&reply.body["errors"][0]);
    assert_eq!(reply.outcome(), "UNKNOWN");
    let last = scene.ask("lastMessage { body }").await;
    assert_eq!(
        last.body["data"]["conversation"]["lastMessage"]["body"],
        "kept"
    );
}

/// The cursor behind an event that was left out.
fn cursor_behind(heard: &Value) -> &str {
    assert_eq!(
        (&heard["type"], &heard["payload"]["data"]),
        (&json!("next"), &Value::Null),
        "{heard}"
    );
    assert_too_large(&heard["payload"]["errors"][0]);
    heard["payload"]["errors"][0]["extensions"]["cursor"]
        .as_str()
        .unwrap()
}

/// Subscribed twice, so that the executions may be shared, and once by what is the viewer's.
const PAGES: [(&str, &str); 4] = [
    (
        "1",
        "messageAdded(conversationId: $c, after: $a) { messageEdge { node { conversation { messages(first: 50) { edges { node { body } } } } } } }",
    ),
    (
        "2",
        "messageAdded(conversationId: $c, after: $a) { messageEdge { node { conversation { messages(first: 50) { edges { node { body } } } } } } }",
    ),
    (
        "3",
        "messageAdded(conversationId: $c, after: $a) { messageEdge { node { conversation { eventsCursor messages(first: 50) { edges { node { body } } } } } } }",
    ),
    (
        "4",
        "conversationEvents(conversationId: $c, after: $a) { cursor event { ... on MessageAddedEvent { messageEdge { node { conversation {
            messages(first: 50) { edges { node { body } } } } } } } } }",
    ),
];

async fn subscribe(scene: &Scene, socket: &mut Socket, id: &str, page: &str, after: Option<&str>) {
    let payload = json!({ "query": format!("subscription($c: ID!, $a: String) {{ {page} }}"), "variables": { "c": scene.conversation, "a": after } });
    socket
        .say(&json!({ "type": "subscribe", "id": id, "payload": payload }))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_goes_on_behind_an_event_that_is_too_large_and_resumes_there() {
    let mut scene = Scene::set_up().await;
    let events = scene.ask("eventsCursor").await.body["data"]["conversation"]["eventsCursor"]
        .as_str()
        .unwrap()
        .to_owned();
    for (id, page) in PAGES {
        let mut socket = scene.socket().await;
        subscribe(&scene, &mut socket, id, page, Some(&events)).await;
        if id == "2" {
            subscribe(&scene, &mut socket, "equal", page, Some(&events)).await;
        }
        let mut cursors = Vec::new();
        for body in ["one", "two"] {
            let sent = scene.send(body).await;
            loop {
                let heard = socket.hear().await;
                // The position alone, which begins `conversationEvents`, and events of earlier rounds.
                if heard["id"] != id || heard["payload"].get("errors").is_none() {
                    continue;
                }
                cursors.push(cursor_behind(&heard).to_owned());
                if id == "4" || cursors.last() == Some(&sent) {
                    break;
                }
            }
        }
        drop(socket);
        // A client that resumes behind the first of the two meets the second, and not the first again.
        let mut socket = scene.socket().await;
        let position = cursors.len() - 2;
        subscribe(&scene, &mut socket, id, page, Some(&cursors[position])).await;
        let heard = loop {
            let heard = socket.hear().await;
            if heard["payload"].get("errors").is_some() {
                break heard;
            }
        };
        assert_eq!(cursor_behind(&heard), cursors[position + 1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inbox_goes_on_behind_an_event_that_is_too_large() {
    let mut scene = Scene::set_up().await;
    let mut socket = scene.socket().await;
    let document = "subscription { inboxUpdated { cursor event { ... on InboxEntryChangedEvent { inboxEntryEdge { node { conversation {
        messages(first: 8) { edges { node { body } } } } } } } } } }";
    socket.subscribe("1", document).await;
    assert!(socket.hear().await["payload"]["data"]["inboxUpdated"]["cursor"].is_string());
    scene.send("one").await;
    let cursor = cursor_behind(&socket.hear().await).to_owned();
    let again = document.replace(
        "inboxUpdated {",
        &format!("inboxUpdated(after: \"{cursor}\") {{"),
    );
    socket.subscribe("2", &again).await;
    let heard = socket.hear().await;
    assert!(heard["type"] == "next", "the cursor is good: {heard}");
}
