//! Subscriptions, live and resumed: each later message, once, in order.

use std::task::Poll;

use serde_json::{Value, json};
use wideroom::model::{ConversationId, UserId};

use crate::support::world::{PATIENCE, World, text};

const ADDED: &str =
    "subscription($c: ID!, $after: String) { messageAdded(conversationId: $c, after: $after) {
    messageEdge { cursor node { uuid body sender { username displayName } } } } }";
const UPDATED: &str = "subscription($after: String) { inboxUpdated(after: $after) { cursor event {
    ... on InboxEntryChangedEvent { inboxEntryEdge { cursor node { unreadCount lastMessage { body } conversation { id } } } }
    ... on InboxEntryRemovedEvent { conversationId } } } }";

fn message(payload: &Value) -> &Value {
    &payload["messageAdded"]["messageEdge"]
}

#[tokio::test]
async fn a_message_is_told_as_it_is_sent() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let after = bob.events_cursor(&c).await;
    let mut stream = bob.subscribe(ADDED, json!({"c": c, "after": after}));
    for body in ["one", "two", "three"] {
        let sent = alice.send(&c, body).await;
        let payload = stream.next().await;
        assert_eq!(message(&payload)["node"]["body"], body);
        assert_eq!(
            message(&payload)["cursor"],
            json!(sent.cursor),
            "the same cursor as in history"
        );
    }
    assert!(stream.is_quiet());
}

#[tokio::test]
async fn a_stream_resumed_from_any_cursor_has_no_gap_and_no_repeat() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let start = bob.events_cursor(&c).await;
    let mut sent = Vec::new();
    for i in 0..250 {
        sent.push(alice.send(&c, &i.to_string()).await);
    }
    let cursors: Vec<_> = std::iter::once(start)
        .chain(sent.iter().map(|sent| sent.cursor.clone()))
        .collect();
    for missed in [0, 1, 100, 199, 249] {
        let mut stream = bob.subscribe(ADDED, json!({"c": c, "after": cursors[missed]}));
        for expected in &sent[missed..] {
            assert_eq!(
                message(&stream.next().await)["node"]["uuid"],
                json!(expected.uuid)
            );
        }
    }
}

/// Cut at random moments while many send: the union of what was seen is what the store holds, in order, nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_while_many_send_lose_nothing() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.group("busy", &["bob", "carol", "dave"]).await;
    let after = alice.events_cursor(&c).await;
    let senders = ["alice", "bob", "carol", "dave"].map(|name| world.user(name));
    let send_all = async {
        let sends = senders.iter().map(|sender| async {
            for i in 0..100 {
                sender.send(&c, &i.to_string()).await;
            }
        });
        futures_util::future::join_all(sends).await;
    };
    let read_all = async {
        let (mut seen, mut after, mut cut) = (Vec::new(), after, 1);
        while seen.len() < 400 {
            let mut stream = alice.subscribe(ADDED, json!({"c": c, "after": after}));
            // Sometimes at once, sometimes after a while.
            cut = cut * 7 % 61;
            for _ in 0..cut.min(400 - seen.len()) {
                let payload = stream.next().await;
                after = text(&message(&payload)["cursor"]);
                seen.push(text(&message(&payload)["node"]["uuid"]));
            }
        }
        seen
    };
    let ((), seen) = tokio::time::timeout(PATIENCE * 3, async { tokio::join!(send_all, read_all) })
        .await
        .unwrap();
    let (mut history, mut before) = (Vec::new(), Value::Null);
    loop {
        let document =
            "query($c: ID!, $b: String) { conversation(id: $c) { messages(last: 100, before: $b) {
            edges { node { uuid } } pageInfo { hasPreviousPage startCursor } } } }";
        let data = alice.data(document, json!({"c": c, "b": before})).await;
        let page = &data["conversation"]["messages"];
        history.extend(
            page["edges"]
                .as_array()
                .unwrap()
                .iter()
                .rev()
                .map(|edge| text(&edge["node"]["uuid"])),
        );
        if page["pageInfo"]["hasPreviousPage"] == false {
            break;
        }
        before = page["pageInfo"]["startCursor"].clone();
    }
    assert_eq!(seen, history);
}

#[tokio::test]
async fn a_reader_that_falls_behind_reads_the_store_and_misses_nothing() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let after = bob.events_cursor(&c).await;
    let mut stream = bob.subscribe(ADDED, json!({"c": c, "after": after}));
    alice.send(&c, "0").await;
    assert_eq!(message(&stream.next().await)["node"]["body"], "0");
    // More than the bus holds for one reader.
    let count = wideroom::bus::TOPIC_NOTICES_MAX + 50;
    for i in 1..=count {
        alice.send(&c, &i.to_string()).await;
    }
    for i in 1..=count {
        assert_eq!(
            message(&stream.next().await)["node"]["body"],
            json!(i.to_string())
        );
    }
    assert!(stream.is_quiet());
}

#[tokio::test]
async fn a_cursor_is_good_after_a_restart() {
    let world = World::open().await;
    let c = world.user("alice").direct("bob").await;
    let first = world.user("alice").send(&c, "before").await;
    let updates = world
        .user("bob")
        .data("{ inbox { updatesCursor } }", json!({}))
        .await["inbox"]["updatesCursor"]
        .clone();
    world.user("alice").send(&c, "while away").await;
    let world = world.restarted().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let mut stream = bob.subscribe(ADDED, json!({"c": c, "after": first.cursor}));
    assert_eq!(message(&stream.next().await)["node"]["body"], "while away");
    let mut inbox = bob.subscribe(UPDATED, json!({"after": updates}));
    assert_eq!(
        inbox.next().await["inboxUpdated"],
        json!({"cursor": updates, "event": null})
    );
    assert_eq!(
        inbox.next().await["inboxUpdated"]["event"]["inboxEntryEdge"]["node"]["lastMessage"]["body"],
        "while away"
    );
    alice.send(&c, "after").await;
    assert_eq!(message(&stream.next().await)["node"]["body"], "after");
    assert_eq!(
        inbox.next().await["inboxUpdated"]["event"]["inboxEntryEdge"]["node"]["lastMessage"]["body"],
        "after"
    );
}

#[tokio::test]
async fn an_event_shows_its_own_moment_and_not_what_was_read_before() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let mut inbox = bob.subscribe(UPDATED, json!({}));
    assert_eq!(
        inbox.next().await["inboxUpdated"]["event"],
        Value::Null,
        "the first payload is the position"
    );
    for i in 1..=3 {
        alice.send(&c, &i.to_string()).await;
        let payload = inbox.next().await;
        let node = &payload["inboxUpdated"]["event"]["inboxEntryEdge"]["node"];
        assert_eq!(node["unreadCount"], i);
        assert_eq!(node["lastMessage"]["body"], json!(i.to_string()));
    }
    bob.mark_read(&c, None).await;
    assert_eq!(
        inbox.next().await["inboxUpdated"]["event"]["inboxEntryEdge"]["node"]["unreadCount"],
        0
    );
}

#[tokio::test]
async fn the_inbox_stream_tells_of_new_conversations_large_ones_and_marks_of_other_devices() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let mut inbox = bob.subscribe(UPDATED, json!({}));
    let start = inbox.next().await["inboxUpdated"]["cursor"].clone();
    let conversation = |payload: &Value| {
        text(&payload["inboxUpdated"]["event"]["inboxEntryEdge"]["node"]["conversation"]["id"])
    };
    let direct = alice.direct("bob").await;
    assert_eq!(conversation(&inbox.next().await), direct);
    let crowd: Vec<_> = (0..40)
        .map(|i| format!("user-{i}"))
        .chain(["bob".to_owned()])
        .collect();
    let large = alice
        .group(
            "crowd",
            &crowd.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
    assert_eq!(conversation(&inbox.next().await), large);
    world.user("user-3").send(&large, "to all").await;
    let payload = inbox.next().await;
    assert_eq!(conversation(&payload), large);
    assert_eq!(
        payload["inboxUpdated"]["event"]["inboxEntryEdge"]["node"]["unreadCount"],
        1
    );
    bob.mark_read(&large, None).await;
    assert_eq!(conversation(&inbox.next().await), large);
    // All of it again for one who was away, each entry once, in its state of now.
    let mut resumed = bob.subscribe(UPDATED, json!({"after": start}));
    assert_eq!(resumed.next().await["inboxUpdated"]["event"], Value::Null);
    assert_eq!(conversation(&resumed.next().await), direct);
    let last = resumed.next().await;
    assert_eq!(conversation(&last), large);
    assert_eq!(
        last["inboxUpdated"]["event"]["inboxEntryEdge"]["node"]["unreadCount"],
        0
    );
    let mut again = bob.subscribe(UPDATED, json!({"after": last["inboxUpdated"]["cursor"]}));
    assert_eq!(again.next().await["inboxUpdated"]["event"], Value::Null);
    assert!(again.is_quiet());
}

#[tokio::test]
async fn a_cursor_of_another_list_is_refused() {
    let world = World::open().await;
    let alice = world.user("alice");
    let (c, other) = (alice.direct("bob").await, alice.direct("carol").await);
    let foreign = alice.send(&other, "x").await.cursor;
    let updates =
        alice.data("{ inbox { updatesCursor } }", json!({})).await["inbox"]["updatesCursor"]
            .clone();
    for after in [
        json!(foreign),
        json!(alice.events_cursor(&other).await),
        updates,
        json!("nonsense"),
    ] {
        let mut stream = alice.subscribe(ADDED, json!({"c": c, "after": after}));
        assert_eq!(stream.answer().await.code(), "BAD_USER_INPUT");
    }
    let mut stream = alice.subscribe(UPDATED, json!({"after": alice.events_cursor(&c).await}));
    assert_eq!(stream.answer().await.code(), "BAD_USER_INPUT");
}

#[tokio::test]
async fn an_inbox_cursor_from_before_an_import_has_expired() {
    let world = World::open().await;
    let updates = world
        .user("alice")
        .data("{ inbox { updatesCursor } }", json!({}))
        .await["inbox"]["updatesCursor"]
        .clone();
    world
        .store
        .set_note(
            wideroom::store::NOTE_IMPORTED_AT,
            Some("2100-01-01T00:00:00Z"),
        )
        .await
        .unwrap();
    let world = world.restarted().await;
    let mut stream = world
        .user("alice")
        .subscribe(UPDATED, json!({"after": updates}));
    assert_eq!(stream.answer().await.code(), "CURSOR_EXPIRED");
}

/// A phone that marks as read and is put away at once: the other devices are told all the same.
#[tokio::test]
async fn a_persisted_message_is_published_after_its_sender_has_disconnected() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let (direct, group) = (
        alice.direct("bob").await,
        alice.group("others", &["bob"]).await,
    );
    let data = bob
        .data(
            "query($c: ID!) { conversation(id: $c) { uuid } }",
            json!({"c": direct}),
        )
        .await;
    let id = ConversationId(text(&data["conversation"]["uuid"]).parse().unwrap());
    let viewer = UserId::parse("bob").unwrap();
    let mut stream = bob.subscribe(UPDATED, json!({"after": null}));
    assert_eq!(stream.next().await["inboxUpdated"]["event"], Value::Null);
    let conversation = |payload: &Value| {
        payload["inboxUpdated"]["event"]["inboxEntryEdge"]["node"]["conversation"]["id"].clone()
    };
    // After how many looks the write is under way, is the machine's to say: until somebody has left just then.
    let mut was_kept = false;
    for waits in (1..=5).cycle().take(200) {
        if was_kept {
            break;
        }
        alice.send(&direct, "hello").await;
        stream.next().await;
        let mut left = waits;
        let mut marking = Box::pin(world.chat.inbox.mark_read(&viewer, id, None));
        let gone = std::future::poll_fn(|cx| {
            left -= 1;
            let is_done = marking.as_mut().poll(cx).is_ready();
            if is_done || left == 0 {
                Poll::Ready(!is_done)
            } else {
                Poll::Pending
            }
        });
        let has_gone = gone.await;
        drop(marking);
        // Writes are kept in order, so whatever was on its way is kept now.
        alice.send(&group, "later").await;
        world.chat.finish().await;
        let is_read = bob.unread(&direct).await == 0;
        was_kept |= is_read && has_gone;
        let mut told = vec![conversation(&stream.next().await)];
        if is_read {
            told.push(conversation(&stream.next().await));
        }
        assert!(
            told.contains(&json!(group)) && told.contains(&json!(direct)) == is_read,
            "{told:?}"
        );
    }
    assert!(was_kept, "nobody left in the middle of a write");
}

#[tokio::test]
async fn a_deletion_in_a_large_conversation_is_not_missed_by_an_inbox_that_was_away() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let others: Vec<_> = (0..39).map(|i| format!("user-{i}")).collect();
    let c = alice
        .group(
            "crowd",
            &others
                .iter()
                .map(String::as_str)
                .chain(["bob"])
                .collect::<Vec<_>>(),
        )
        .await;
    let sent = alice.send(&c, "oops").await;
    let after =
        bob.data("{ inbox { updatesCursor } }", json!({})).await["inbox"]["updatesCursor"].clone();
    alice
        .data(
            "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }",
            json!({"m": sent.id}),
        )
        .await;
    let mut stream = bob.subscribe(UPDATED, json!({"after": after}));
    assert_eq!(stream.next().await["inboxUpdated"]["event"], Value::Null);
    let changed = stream.next().await;
    let entry = &changed["inboxUpdated"]["event"]["inboxEntryEdge"]["node"];
    assert_eq!(
        (&entry["unreadCount"], &entry["lastMessage"]["body"]),
        (&json!(0), &Value::Null)
    );
}
