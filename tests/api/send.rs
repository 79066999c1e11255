//! Sending: what a message may say, and what a retry does.

use serde_json::{Value, json};
use wideroom::chat::Bounds;
use wideroom::model::Body;

use crate::support::world::{Actor, World, text};

const SEND: &str = "mutation($c: ID!, $b: String!, $k: String, $a: [AttachmentInput!], $m: JSON, $r: ID) {
    sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k, attachments: $a, metadata: $m, replyToId: $r}) {
        inboxEntryEdge { cursor node { lastMessage { body } unreadCount } }
        messageEdge { cursor node { id uuid kind body clientKey metadata createdAt editedAt deletedAt sender { username }
            replyTo { body } attachments { url mimeType name sizeBytes width height } conversation { id } } } } }";

/// Fields of one name are one field, wherever its fragments are; literals are read by the specification.
#[tokio::test]
async fn a_field_that_a_mutation_selects_again_is_executed_once() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let input = r#"{conversationId: $c, body: "\uD83D\uDE00 \u{1F600}"}"#;
    let document = format!(
        "mutation($c: ID!, $yes: Boolean = true) {{ sendMessage(input: {input}) {{ messageEdge {{ node {{ id }} }} }} ...A
            sendMessage(input: {input}) @include(if: $yes) {{ messageEdge {{ cursor }} }} }}
        fragment A on Mutation {{ ... {{ sendMessage(input: {input}) {{ messageEdge {{ node {{ body }} }} }} }} }}"
    );
    let data = alice.data(&document, json!({"c": c})).await;
    let edge = &data["sendMessage"]["messageEdge"];
    assert_eq!(edge["node"]["body"], "😀 😀");
    assert!(edge["cursor"].is_string() && edge["node"]["id"].is_string());
    assert_eq!(alice.message_count(&c).await, 1);
    let page = "query($c: ID!, $n: Int) { conversation(id: $c) { messages(first: $n) { edges { cursor } } } }";
    let data = alice.data(page, json!({"c": c, "n": 20.0})).await;
    assert_eq!(
        data["conversation"]["messages"]["edges"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_message_comes_back_as_it_was_sent() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let question = alice.send(&c, "Lunch?").await;
    let attachment = json!({"url": "https://example.org/soup.png", "mimeType": "image/png", "name": "soup.png",
        "sizeBytes": 12345.0, "width": 640, "height": 480});
    let metadata = json!({"mood": "hungry", "nested": [1, 2.5, null, {"a b": true}]});
    let data = alice.data(SEND, json!({"c": c, "b": "Soup.\n🍲", "k": "key 1", "a": [attachment], "m": metadata, "r": question.id})).await;
    let payload = &data["sendMessage"];
    let node = &payload["messageEdge"]["node"];
    assert_eq!(
        payload["inboxEntryEdge"]["node"],
        json!({"lastMessage": {"body": "Soup.\n🍲"}, "unreadCount": 0})
    );
    assert_eq!(node["body"], "Soup.\n🍲");
    assert_eq!(node["kind"], "TEXT");
    assert_eq!(node["clientKey"], "key 1");
    assert_eq!(node["metadata"], metadata);
    assert_eq!(node["attachments"], json!([attachment]));
    assert_eq!(node["replyTo"]["body"], "Lunch?");
    assert_eq!(node["sender"]["username"], "alice");
    assert_eq!(node["conversation"]["id"], json!(c));
    assert_eq!(
        (&node["editedAt"], &node["deletedAt"]),
        (&Value::Null, &Value::Null)
    );
    let read = world
        .user("bob")
        .data(
            "query($id: ID!) { node(id: $id) { ... on Message { id body createdAt } } }",
            json!({"id": node["id"]}),
        )
        .await;
    assert_eq!(
        read["node"],
        json!({"id": node["id"], "body": node["body"], "createdAt": node["createdAt"]})
    );
}

/// A client's metadata must not hold the key that serde_json reserves for raw JSON: at any depth, in a variable and in a literal.
#[tokio::test]
async fn metadata_never_stands_for_anything_else() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let mark = "$serde_json::private::RawValue";
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    for metadata in [
        json!({mark: "1}]},\"body\":\"forged"}),
        json!({mark: "not json"}),
        json!({"a": {mark: "\"],"}, "b": 1}),
        json!({mark: "\"},", "z": 1}),
        json!([[{"a": {mark: "{\"a\": 1}"}}]]),
        nested(65),
    ] {
        let answer = alice
            .ask(SEND, json!({"c": c, "b": "hello", "m": metadata}))
            .await;
        assert_eq!(
            (answer.code().as_str(), &answer.extensions()["inputPath"]),
            ("BAD_USER_INPUT", &json!(["input", "metadata"])),
            "{metadata}"
        );
    }
    assert_eq!(alice.message_count(&c).await, 0);
    for metadata in [nested(64), json!({"a": mark}), json!([mark])] {
        let data = alice
            .data(SEND, json!({"c": c, "b": "hello", "m": metadata}))
            .await;
        assert_eq!(
            data["sendMessage"]["messageEdge"]["node"]["metadata"],
            metadata
        );
    }
    let literal = "mutation($c: ID!, $m: JSON) { sendMessage(input: {conversationId: $c, body: \"x\", metadata: {z: [1.50, RED], a: $m}}) {
        messageEdge { node { metadata } } } }";
    let data = alice
        .data(literal, json!({"c": c, "m": {"a b": null}}))
        .await;
    assert_eq!(
        data["sendMessage"]["messageEdge"]["node"]["metadata"],
        json!({"z": [1.5, "RED"], "a": {"a b": null}})
    );
    assert_eq!(
        alice
            .ask(literal, json!({"c": c, "m": {mark: "1"}}))
            .await
            .code(),
        "BAD_USER_INPUT"
    );
}

/// A retry is one by its value: an earlier version sorted the keys of metadata, and its hashes are still there.
#[tokio::test]
async fn a_retry_may_spell_its_metadata_otherwise() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let send = "mutation($c: ID!, $m: JSON) { sendMessage(input: {conversationId: $c, body: \"x\", metadata: $m, idempotencyKey: \"k\"}) {
        messageEdge { node { id metadata } } } }";
    let first = alice
        .data(send, json!({"c": c, "m": {"z": 1, "a": 2}}))
        .await;
    let literal = send
        .replace("metadata: $m", "metadata: {z: 1, a: 2}")
        .replace(", $m: JSON", "");
    let again = alice.data(&literal, json!({"c": c})).await;
    assert_eq!(again, first);
    assert_eq!(
        alice
            .ask(send, json!({"c": c, "m": {"z": 1, "a": 3}}))
            .await
            .code(),
        "CONFLICT"
    );
}

#[tokio::test]
async fn a_retry_never_makes_a_second_message() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let input = json!({"c": c, "b": "once", "k": "key-1"});
    // At the same moment, and one after the other.
    let tries =
        futures_util::future::join_all((0..20).map(|_| alice.data(SEND, input.clone()))).await;
    let again = alice.data(SEND, input.clone()).await;
    let first = &tries[0]["sendMessage"]["messageEdge"];
    assert!(
        tries
            .iter()
            .chain([&again])
            .all(|data| data["sendMessage"]["messageEdge"] == *first)
    );
    assert_eq!(alice.message_count(&c).await, 1);
    assert_eq!(
        alice
            .ask(SEND, json!({"c": c, "b": "twice", "k": "key-1"}))
            .await
            .code(),
        "CONFLICT"
    );
    let bob = world.user("bob").data(SEND, input.clone()).await;
    assert_ne!(
        bob["sendMessage"]["messageEdge"], *first,
        "a key is its sender's own"
    );
    let other = alice.direct("carol").await;
    alice
        .data(SEND, json!({"c": other, "b": "elsewhere", "k": "key-1"}))
        .await;
    assert_eq!(alice.message_count(&c).await, 2);
}

#[tokio::test]
async fn a_retry_is_answered_though_its_sender_may_no_longer_send() {
    let world = World::open().await;
    let [alice, bob] = ["alice", "bob"].map(|name| world.user(name));
    let c = alice.group("We", &["bob"]).await;
    let direct = alice.direct("bob").await;
    let first = json!({"c": c, "b": "once", "k": "key-1"});
    let sent = bob.data(SEND, first.clone()).await["sendMessage"]["messageEdge"].clone();
    let again = async |actor: &Actor, input: &Value, sent: &Value| {
        let data = actor.data(SEND, input.clone()).await;
        assert_eq!(data["sendMessage"]["messageEdge"], *sent);
    };
    let run = async |actor: &Actor, field: &str| {
        let document = format!("mutation {{ {field} {{ __typename }} }}");
        actor.data(&document, json!({})).await;
    };
    let slow = async |seconds: u32| {
        let field = format!(
            "updateConversation(input: {{conversationId: \"{c}\", slowModeSeconds: {seconds}}})"
        );
        run(&alice, &field).await;
    };
    slow(600).await;
    again(&bob, &first, &sent).await;
    let other = json!({"c": c, "b": "twice", "k": "key-2"});
    assert_eq!(bob.ask(SEND, other.clone()).await.code(), "RATE_LIMITED");
    slow(0).await;
    run(
        &alice,
        &format!("silenceParticipant(input: {{conversationId: \"{c}\", username: \"bob\"}})"),
    )
    .await;
    again(&bob, &first, &sent).await;
    for refused in [other, json!({"c": c, "b": "keyless"})] {
        assert_eq!(bob.ask(SEND, refused).await.code(), "FORBIDDEN");
    }
    let conflict = json!({"c": c, "b": "other", "k": "key-1"});
    assert_eq!(bob.ask(SEND, conflict).await.code(), "CONFLICT");
    run(
        &bob,
        &format!("clearHistory(input: {{conversationId: \"{c}\"}})"),
    )
    .await;
    assert_eq!(
        bob.ask(SEND, first.clone()).await.code(),
        "NOT_FOUND",
        "it lies below the sender's floor"
    );
    run(
        &alice,
        &format!("removeParticipant(input: {{conversationId: \"{c}\", username: \"bob\"}})"),
    )
    .await;
    assert_eq!(bob.ask(SEND, first).await.code(), "NOT_FOUND");
    let input = json!({"c": direct, "b": "once", "k": "key-1"});
    let sent = alice.data(SEND, input.clone()).await["sendMessage"]["messageEdge"].clone();
    run(&alice, "blockUser(input: {username: \"bob\"})").await;
    again(&alice, &input, &sent).await;
    assert_eq!(alice.message_count(&direct).await, 1);
}

#[tokio::test]
async fn a_retry_is_known_after_a_restart() {
    let world = World::open().await;
    let c = world.user("alice").direct("bob").await;
    let input = json!({"c": c, "b": "once", "k": "key-1"});
    let first = world.user("alice").data(SEND, input.clone()).await;
    let world = world.restarted().await;
    assert_eq!(
        world.user("alice").data(SEND, input).await["sendMessage"]["messageEdge"],
        first["sendMessage"]["messageEdge"]
    );
    assert_eq!(world.user("bob").message_count(&c).await, 1);
}

#[tokio::test]
async fn bad_messages_are_refused_and_named() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let elsewhere = alice.send(&alice.direct("carol").await, "elsewhere").await;
    let picture = json!({"url": "https://example.org/a.png", "mimeType": "image/png"});
    for (input, path) in [
        (json!({"b": ""}), "body"),
        (json!({"b": " \u{2003}\n"}), "body"),
        (json!({"b": "\u{200b}\u{2060} \u{3164}"}), "body"),
        (json!({"b": "\u{200d}\u{fe0f}", "a": [picture]}), "body"),
        (json!({"b": "bell\u{7}"}), "body"),
        (json!({"b": "\u{0}"}), "body"),
        (json!({"b": "\u{1b}[2J"}), "body"),
        (json!({"b": "del\u{7f}"}), "body"),
        (json!({"b": "c1\u{85}\u{9b}"}), "body"),
        (json!({"b": "x".repeat(16 * 1024 + 1)}), "body"),
        (json!({"b": "x", "k": ""}), "idempotencyKey"),
        (json!({"b": "x", "k": "x".repeat(65)}), "idempotencyKey"),
        (json!({"b": "x", "m": "x".repeat(2049)}), "metadata"),
        (
            json!({"b": "x", "a": [{"url": "ftp://example.org/a", "mimeType": "image/png"}]}),
            "attachments",
        ),
        (
            json!({"b": "x", "a": [{"url": "https://example.org/a", "mimeType": "picture"}]}),
            "attachments",
        ),
        (
            json!({"b": "x", "a": [{"url": "https://example.org/a", "mimeType": "image/png", "width": -1}]}),
            "attachments",
        ),
        (
            json!({"b": "x", "a": vec![picture.clone(); 11]}),
            "attachments",
        ),
        (
            json!({"b": "x", "a": [{"url": "https://example.org/a", "mimeType": "image/png", "name": "a\u{202e}gnp.exe"}]}),
            "attachments",
        ),
    ] {
        let mut input = input;
        input["c"] = json!(c);
        let answer = alice.ask(SEND, input).await;
        assert_eq!(answer.code(), "BAD_USER_INPUT");
        assert_eq!(answer.extensions()["inputPath"], json!(["input", path]));
    }
    for reply in ["nonsense", elsewhere.id.as_str()] {
        assert_eq!(
            alice
                .ask(SEND, json!({"c": c, "b": "x", "r": reply}))
                .await
                .code(),
            "NOT_FOUND"
        );
    }
    assert_eq!(alice.message_count(&c).await, 0);
    alice
        .data(SEND, json!({"c": c, "b": "", "a": [picture]}))
        .await;
    alice
        .data(SEND, json!({"c": c, "b": "x".repeat(16 * 1024)}))
        .await;
    assert_eq!(alice.message_count(&c).await, 2);
}

#[tokio::test]
async fn a_field_error_does_not_null_its_siblings() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let document = "mutation($c: ID!) {
        good: sendMessage(input: {conversationId: $c, body: \"one\"}) { messageEdge { node { body } } }
        bad: sendMessage(input: {conversationId: $c, body: \"\"}) { messageEdge { node { body } } }
        read: markRead(input: {conversationId: $c}) { inboxEntry { lastMessage { body } } } }";
    let answer = alice.ask(document, json!({"c": c})).await;
    assert_eq!(answer.code(), "BAD_USER_INPUT");
    let data = answer.data_beside_errors();
    assert_eq!(data["good"]["messageEdge"]["node"]["body"], "one");
    assert_eq!(data["bad"], Value::Null);
    assert_eq!(data["read"]["inboxEntry"]["lastMessage"]["body"], "one");
}

#[tokio::test]
async fn many_senders_in_one_conversation_lose_nothing_and_share_one_order() {
    let world = World::open().await;
    let alice = world.user("alice");
    let names: Vec<_> = (0..16).map(|i| format!("sender-{i}")).collect();
    let c = alice
        .group(
            "busy",
            &names.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
    let senders: Vec<_> = names.iter().map(|name| world.user(name)).collect();
    let sends = senders.iter().map(|sender| async {
        let mut sent = Vec::new();
        for i in 0..10 {
            sent.push(sender.send(&c, &format!("{i}")).await.uuid);
        }
        sent
    });
    let sent = futures_util::future::join_all(sends).await;
    let (mut seen, mut after) = (Vec::new(), Value::Null);
    loop {
        let document =
            "query($c: ID!, $a: String) { conversation(id: $c) { messages(first: 37, after: $a) {
            edges { node { uuid } } pageInfo { hasNextPage endCursor } } } }";
        let data = alice.data(document, json!({"c": c, "a": after})).await;
        let messages = &data["conversation"]["messages"];
        seen.extend(
            messages["edges"]
                .as_array()
                .unwrap()
                .iter()
                .map(|edge| text(&edge["node"]["uuid"])),
        );
        if messages["pageInfo"]["hasNextPage"] == false {
            break;
        }
        after = messages["pageInfo"]["endCursor"].clone();
    }
    seen.reverse();
    for own in &sent {
        let place = |uuid: &String| {
            seen.iter()
                .position(|other| other == uuid)
                .expect("an acknowledged message is missing")
        };
        assert!(
            own.windows(2).all(|pair| place(&pair[0]) < place(&pair[1])),
            "an answer never sorts before what it answers"
        );
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 160);
}

#[tokio::test]
async fn a_page_of_the_longest_bodies_fits_into_an_answer() {
    let world = World::with_bounds(Bounds {
        body_bytes_max: Body::BYTES_MAX,
        ..Bounds::default()
    })
    .await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    // Each byte of it takes two in an answer.
    let longest = "\"".repeat(Body::BYTES_MAX);
    for _ in 0..100 {
        alice.send(&c, &longest).await;
    }
    let page = "query($c: ID!) { conversation(id: $c) { messages(first: 100) { edges { node { id body } } } } }";
    let data = alice.data(page, json!({"c": c})).await;
    let edges = data["conversation"]["messages"]["edges"].as_array();
    assert_eq!(edges.unwrap().len(), 100);
    assert!(data.to_string().len() > 200 * Body::BYTES_MAX);
    let send = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { __typename } }";
    let refused = alice.ask(send, json!({"c": c, "b": longest + "\""})).await;
    assert_eq!(refused.code(), "BAD_USER_INPUT");
}
