//! Two servers of the real program over one store, which tell each other over a real NATS.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::cassandra::shared;
use crate::support::client::{Caller, Socket, soon};
use crate::support::nats::Nats;
use crate::support::program::Program;
use crate::support::server::Server;

/// Interval of repetitions, because a signal without a subscriber is lost.
const SAY_AGAIN: Duration = Duration::from_millis(200);

/// Sends on one server, each once the one before was heard on the other.
async fn converse(
    sender: &mut Caller,
    listener: &mut Socket,
    conversation: &str,
    count: usize,
) -> Duration {
    let send = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"hello\"}) { messageEdge { node { uuid } } } }";
    let began = Instant::now();
    for _ in 0..count {
        let sent = sender
            .data(send, &json!({"c": conversation}))
            .await
            .unwrap();
        let uuid = &sent["sendMessage"]["messageEdge"]["node"]["uuid"];
        // A recent message may be delivered twice.
        while listener.told("messages").await["messageAdded"]["messageEdge"]["node"]["uuid"]
            != *uuid
        {}
    }
    began.elapsed()
}

/// Says that she types until he hears it.
async fn type_until_heard(sender: &mut Caller, listener: &mut Socket, conversation: &str) {
    let sign =
        "mutation($c: ID!) { setTyping(input: {conversationId: $c, typing: true}) { __typename } }";
    let told = loop {
        sender
            .data(sign, &json!({"c": conversation}))
            .await
            .unwrap();
        if let Ok(told) = tokio::time::timeout(SAY_AGAIN, listener.told("typing")).await {
            break told;
        }
    };
    assert_eq!(
        told["typingChanged"],
        json!({"user": {"username": "alice"}, "isTyping": true})
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: two servers, and NATS that goes and comes"]
async fn two_servers_tell_each_other_and_lose_nothing_without_nats() {
    let Some(mut nats) = Nats::start() else {
        return;
    };
    let Some(shared) = shared().await else { return };
    let program = Program::on_cluster(shared).await;
    let options = ["--rates", "off", "--nats", &nats.url()];
    // NATS is away at the start. A server needs none to begin.
    nats.kill();
    let (one, admin) = Server::start_with_admin(&program, &options);
    admin.wait_for("/readyz", 200);
    one.logs("the bus has no connection to NATS yet");
    nats.start_again();
    let other = Server::start(&program, &[&options[..], &["--log", "warn"]].concat());
    let is_down = |value: f64| {
        let line = format!("wideroom_nats_down {value}");
        admin.wait_until("/metrics", |text| text.lines().any(|other| other == line));
    };
    is_down(0.0);
    let mut alice = Caller::connect(one.address(), &program.token("alice"))
        .await
        .unwrap();
    let start =
        "mutation { startDirectConversation(input: {username: \"bob\"}) { conversation { id } } }";
    let made = alice.data(start, &Value::Null).await.unwrap();
    let c = made["startDirectConversation"]["conversation"]["id"]
        .as_str()
        .unwrap();

    // Without an act of hers he would hear nothing of her.
    let said = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"Hello\"}) { __typename } }";
    alice.data(said, &json!({"c": c})).await.unwrap();

    let mut bob = Socket::connect(other.address(), &program.token("bob")).await;
    bob.subscribe(
        "presence",
        "subscription { presenceChanged(usernames: [\"alice\"]) { presence { isOnline } } }",
    )
    .await;
    assert_eq!(
        bob.told("presence").await["presenceChanged"]["presence"]["isOnline"],
        false
    );
    let screen = Socket::connect(one.address(), &program.token("alice")).await;
    let online = async {
        while bob.told("presence").await["presenceChanged"]["presence"]["isOnline"] != true {}
    };
    soon(online).await;

    let typing = format!(
        "subscription {{ typingChanged(conversationId: \"{c}\") {{ user {{ username }} isTyping }} }}"
    );
    bob.subscribe("typing", &typing).await;
    soon(type_until_heard(&mut alice, &mut bob, c)).await;

    let cursor = alice
        .data(
            "query($c: ID!) { conversation(id: $c) { eventsCursor } }",
            &json!({"c": c}),
        )
        .await
        .unwrap();
    let cursor = &cursor["conversation"]["eventsCursor"];
    let messages = format!(
        "subscription {{ messageAdded(conversationId: \"{c}\", after: {cursor}) {{ messageEdge {{ node {{ uuid }} }} }} }}"
    );
    bob.subscribe("messages", &messages).await;
    let with = converse(&mut alice, &mut bob, c, 10).await;
    nats.kill();
    is_down(1.0);
    let without = converse(&mut alice, &mut bob, c, 3).await;
    nats.start_again();
    is_down(0.0);
    let again = converse(&mut alice, &mut bob, c, 3).await;
    println!(
        "heard on the other server: ten with NATS in {with:?}, three without in {without:?}, three while it comes back in {again:?}"
    );
    // Polling every five seconds, ten messages would take most of a minute.
    assert!(with < Duration::from_secs(15), "{with:?}");

    drop((screen, bob));
    for server in [one, other] {
        server.signal("-TERM");
        let (code, _, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    }
}
