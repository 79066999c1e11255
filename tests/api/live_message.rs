//! Live messages: an answer that participants see while it is written, who may write, stop and discard it, and how it ends.

use serde_json::{Value, json};

use crate::support::client::soon;
use crate::support::world::{Actor, Answer, World, text};

const FIELDS: &str = "id sender { username } replyTo { id } body status steps { key title state detail } state stopRequestedBy { username }
    message { body }";
const KEY: &str = "answer";

async fn write(actor: &Actor, mut input: Value) -> Answer {
    let document = format!(
        "mutation($i: WriteLiveMessageInput!) {{ writeLiveMessage(input: $i) {{ nextPosition liveMessage {{ {FIELDS} }} }} }}"
    );
    if input["key"].is_null() {
        input["key"] = json!(KEY);
    }
    if input["writer"].is_null() {
        input["writer"] = json!("one");
    }
    actor.ask(&document, json!({"i": input})).await
}

/// Writes at a position, and returns the live message and the next position.
async fn written(actor: &Actor, c: &str, position: usize, added: &str) -> (Value, Value) {
    let input = json!({"conversationId": c, "position": position, "text": added});
    let data = write(actor, input).await.data();
    let payload = &data["writeLiveMessage"];
    (
        payload["liveMessage"].clone(),
        payload["nextPosition"].clone(),
    )
}

async fn writing(actor: &Actor, c: &str) -> Value {
    let document =
        format!("query($c: ID!) {{ conversation(id: $c) {{ liveMessages {{ {FIELDS} }} }} }}");
    actor.data(&document, json!({"c": c})).await["conversation"]["liveMessages"].take()
}

async fn node(actor: &Actor, id: &str) -> Value {
    let document =
        format!("query($id: ID!) {{ node(id: $id) {{ ... on LiveMessage {{ {FIELDS} }} }} }}");
    actor.data(&document, json!({"id": id})).await["node"].take()
}

async fn end(actor: &Actor, mutation: &str, id: &str) -> Answer {
    let document = format!(
        "mutation($id: ID!) {{ {mutation}(input: {{liveMessageId: $id}}) {{ liveMessage {{ {FIELDS} }} }} }}"
    );
    actor.ask(&document, json!({"id": id})).await
}

async fn send(actor: &Actor, c: &str, body: &str) -> Answer {
    let document = "mutation($i: SendMessageInput!) { sendMessage(input: $i) { messageEdge { node { id } } } }";
    let input = json!({"conversationId": c, "body": body, "idempotencyKey": KEY});
    actor.ask(document, json!({"i": input})).await
}

/// The code of a refusal, and the input that it names.
fn refusal(answer: &Answer) -> (String, Value) {
    (answer.code(), answer.extensions()["inputPath"].clone())
}

/// Writes until it is FORBIDDEN: rights are read again after two seconds at most.
async fn refused_soon(actor: &Actor, input: Value) {
    let refused = async {
        loop {
            let answer = write(actor, input.clone()).await;
            if !answer.has_data() {
                return answer.code();
            }
        }
    };
    assert_eq!(soon(refused).await, "FORBIDDEN");
}

#[tokio::test]
async fn an_answer_is_seen_while_it_is_written_and_ends_as_a_message() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let question = alice.send(&c, "How many?").await;
    assert_eq!(writing(&alice, &c).await, json!([]));
    let step = json!({"key": "1", "title": "Count", "state": "RUNNING", "detail": null});
    let first = json!({"conversationId": c, "position": 0, "text": "Nän", "status": "thinking", "steps": [step],
        "replyToId": question.id});
    let data = write(&bob, first).await.data();
    assert_eq!(
        data["writeLiveMessage"]["nextPosition"], 4,
        "bytes, not characters"
    );
    let live = &data["writeLiveMessage"]["liveMessage"];
    let id = text(&live["id"]);
    let expected = json!({"id": id, "sender": {"username": "bob"}, "replyTo": {"id": question.id}, "body": "Nän",
        "status": "thinking", "steps": [step], "state": "WRITING", "stopRequestedBy": null, "message": null});
    assert_eq!(*live, expected);
    assert_eq!(writing(&alice, &c).await, json!([expected]));
    assert_eq!(node(&alice, &id).await, expected);

    // A write without an answer is repeated from its position, with more text; a status of null clears it.
    let again = json!({"conversationId": c, "position": 4, "text": "o!", "status": null});
    let data = write(&bob, again).await.data();
    assert_eq!(data["writeLiveMessage"]["nextPosition"], 6);
    let (live, next) = written(&bob, &c, 4, "o! Two.").await;
    assert_eq!((&live["body"], next), (&json!("Näno! Two."), json!(11)));
    assert_eq!(
        (&live["status"], &live["steps"]),
        (&json!(null), &json!([step]))
    );
    assert_eq!(writing(&bob, &c).await[0], live);

    send(&bob, &c, "Two, to be exact.").await.data();
    assert_eq!(writing(&alice, &c).await, json!([]));
    let sent = node(&alice, &id).await;
    assert_eq!(
        (&sent["state"], &sent["body"]),
        (&json!("SENT"), &json!("Näno! Two."))
    );
    assert_eq!(sent["message"]["body"], "Two, to be exact.");
    let late = json!({"conversationId": c, "position": 11, "text": "?"});
    assert_eq!(write(&bob, late).await.code(), "CONFLICT");
    assert_eq!(
        end(&bob, "discardLiveMessage", &id).await.code(),
        "CONFLICT"
    );
}

#[tokio::test]
async fn a_later_writer_takes_over_whole_and_the_earlier_one_is_refused() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    written(&bob, &c, 0, "from the first process").await;
    let second = |position: usize, added: &str| json!({"conversationId": c, "position": position, "text": added, "writer": "two"});
    let ahead = write(&bob, second(4, "x")).await;
    assert_eq!(
        refusal(&ahead),
        ("BAD_USER_INPUT".to_owned(), json!(["input", "position"]))
    );
    let data = write(&bob, second(0, "anew")).await.data();
    assert_eq!(data["writeLiveMessage"]["liveMessage"]["body"], "anew");
    let first = json!({"conversationId": c, "position": 22, "text": " goes on"});
    assert_eq!(write(&bob, first).await.code(), "CONFLICT");
    assert_eq!(writing(&alice, &c).await[0]["body"], "anew");
    let other = write(&bob, second(0, "another text")).await;
    assert_eq!(other.code(), "CONFLICT", "another text stands there");
}

#[tokio::test]
async fn a_stop_reaches_the_writer_with_its_next_answer() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let group = alice.group("Us", &["bob", "carol"]).await;
    let question = carol.send(&group, "Well?").await;
    let start =
        json!({"conversationId": group, "position": 0, "text": "Well", "replyToId": question.id});
    let data = write(&bob, start).await.data();
    let id = text(&data["writeLiveMessage"]["liveMessage"]["id"]);
    let dave = world.user("dave");
    assert_eq!(end(&dave, "stopLiveMessage", &id).await.code(), "NOT_FOUND");
    let data = end(&carol, "stopLiveMessage", &id).await.data();
    let live = &data["stopLiveMessage"]["liveMessage"];
    assert_eq!(
        (&live["state"], &live["stopRequestedBy"]["username"]),
        (&json!("WRITING"), &json!("carol"))
    );
    end(&alice, "stopLiveMessage", &id).await.data();
    let (live, _) = written(&bob, &group, 4, ", ").await;
    assert_eq!(
        live["stopRequestedBy"]["username"], "carol",
        "the first request stands"
    );

    // Somebody else's question.
    let other = json!({"conversationId": group, "position": 0, "text": "Hm", "key": "other", "replyToId": question.id});
    let data = write(&alice, other).await.data();
    let id = text(&data["writeLiveMessage"]["liveMessage"]["id"]);
    assert_eq!(end(&bob, "stopLiveMessage", &id).await.code(), "FORBIDDEN");
    assert_eq!(
        end(&bob, "discardLiveMessage", &id).await.code(),
        "FORBIDDEN"
    );
}

#[tokio::test]
async fn a_discarded_one_leaves_nothing_behind() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let (live, _) = written(&bob, &c, 0, "no").await;
    let id = text(&live["id"]);
    for _ in 0..2 {
        let data = end(&bob, "discardLiveMessage", &id).await.data();
        assert_eq!(
            data["discardLiveMessage"]["liveMessage"]["state"],
            "DISCARDED"
        );
    }
    assert_eq!(writing(&alice, &c).await, json!([]));
    assert_eq!(node(&alice, &id).await["state"], "DISCARDED");
    let more = json!({"conversationId": c, "position": 2, "text": "!"});
    assert_eq!(write(&bob, more).await.code(), "CONFLICT");
    let page =
        "query($c: ID!) { conversation(id: $c) { messages(first: 5) { edges { cursor } } } }";
    let data = alice.data(page, json!({"c": c})).await;
    assert_eq!(data["conversation"]["messages"]["edges"], json!([]));
}

#[tokio::test]
async fn bad_input_is_named() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    written(&bob, &c, 0, "ä").await;
    let step = |key: &str| json!({"key": key, "title": "t", "state": "DONE"});
    let long = "x".repeat(4_097);
    for (changed, path) in [
        (json!({"key": ""}), "key"),
        (json!({"key": "k".repeat(65)}), "key"),
        (json!({"writer": ""}), "writer"),
        (json!({"position": -1}), "position"),
        (json!({"position": 1}), "position"),
        (json!({"position": 3}), "position"),
        (json!({"text": long}), "text"),
        (json!({"text": "a\u{0}"}), "text"),
        (json!({"position": 16_384}), "text"),
        (json!({"status": ""}), "status"),
        (json!({"status": "s".repeat(129)}), "status"),
        (json!({"steps": vec![step("same"); 2]}), "steps"),
        (
            json!({"steps": (0..21).map(|n| step(&n.to_string())).collect::<Vec<_>>()}),
            "steps",
        ),
    ] {
        let mut input = json!({"conversationId": c, "position": 2, "text": "b"});
        for (name, value) in changed.as_object().unwrap() {
            input[name] = value.clone();
        }
        let (code, named) = refusal(&write(&bob, input).await);
        assert_eq!(code, "BAD_USER_INPUT", "{changed}");
        assert_eq!(
            (&named[0], &named[1]),
            (&json!("input"), &json!(path)),
            "{changed}"
        );
    }
    assert_eq!(writing(&alice, &c).await[0]["body"], "ä");
}

#[tokio::test]
async fn who_may_not_send_may_not_write_and_outsiders_see_nothing() {
    let world = World::open().await;
    let [alice, bob, mallory] = ["alice", "bob", "mallory"].map(|name| world.user(name));
    let c = alice.direct("bob").await;
    let start = |c: &str| json!({"conversationId": c, "position": 0, "text": "x", "key": "mine"});
    assert_eq!(write(&mallory, start(&c)).await.code(), "NOT_FOUND");
    assert_eq!(
        write(&world.nobody(), start(&c)).await.code(),
        "UNAUTHENTICATED"
    );
    let (live, _) = written(&bob, &c, 0, "secret").await;
    let id = text(&live["id"]);
    assert_eq!(node(&mallory, &id).await, json!(null));
    for mutation in ["stopLiveMessage", "discardLiveMessage"] {
        assert_eq!(end(&mallory, mutation, &id).await.code(), "NOT_FOUND");
        assert_eq!(end(&mallory, mutation, "nothing").await.code(), "NOT_FOUND");
    }

    let group = alice.group("News", &["bob"]).await;
    written(&bob, &group, 0, "I write, ").await;
    let set = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, sendRole: ADMIN}) { __typename } }";
    alice.data(set, json!({"c": group})).await;
    refused_soon(&bob, start(&group)).await;
    write(&alice, start(&group)).await.data();

    let block = "mutation($u: String!) { blockUser(input: {username: $u}) { __typename } }";
    alice.data(block, json!({"u": "bob"})).await;
    // The blocked user is not told.
    write(&bob, start(&c)).await.data();
    let seen = writing(&alice, &group).await;
    let senders: Vec<_> = seen
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["sender"]["username"])
        .collect();
    assert_eq!(
        senders,
        ["alice"],
        "live messages of blocked users are left out"
    );
}

#[tokio::test]
async fn a_user_writes_four_at_once_in_a_conversation() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    for n in 0..5 {
        let start = json!({"conversationId": c, "position": 0, "text": "x", "key": n.to_string()});
        let answer = write(&bob, start).await;
        if n < 4 {
            answer.data();
        } else {
            assert_eq!(answer.code(), "RATE_LIMITED");
            assert!(answer.extensions()["retryAfterMs"].as_u64().unwrap() > 0);
        }
    }
    assert_eq!(writing(&alice, &c).await.as_array().unwrap().len(), 4);
}
