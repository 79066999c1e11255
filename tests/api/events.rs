//! `conversationEvents`: everything that happens in a conversation, merged in order, live and resumed.

use serde_json::{Value, json};

use crate::support::world::{PATIENCE, Stream, World, text};

const EVENTS: &str =
    "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { cursor event { __typename
    ... on MessageAddedEvent { messageEdge { cursor node { uuid body deletedAt } } }
    ... on MessageEditedEvent { message { uuid body } } ... on MessageDeletedEvent { message { uuid body } }
    ... on MarkerMovedEvent { participant { user { username } readUpTo { uuid } } } } } }";
const EDIT: &str = "mutation($m: ID!, $b: String!) { editMessage(input: {messageId: $m, body: $b}) { message { uuid } } }";
const DELETE: &str =
    "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { uuid } } }";

async fn next(stream: &mut Stream) -> (String, Value) {
    let payload = stream.next().await["conversationEvents"].clone();
    (text(&payload["cursor"]), payload["event"].clone())
}

/// Short form of an event: its type and its message.
fn short(event: &Value) -> String {
    let of = |message: &Value| format!("{} {}", &text(&message["uuid"])[..8], message["body"]);
    match text(&event["__typename"]).as_str() {
        "MessageAddedEvent" => format!("added {}", of(&event["messageEdge"]["node"])),
        "MessageEditedEvent" => format!("edited {}", of(&event["message"])),
        "MessageDeletedEvent" => format!("deleted {}", of(&event["message"])),
        "MarkerMovedEvent" => format!(
            "read by {}",
            text(&event["participant"]["user"]["username"])
        ),
        other => panic!("unknown: {other}"),
    }
}

#[tokio::test]
async fn everything_is_told_as_it_happens() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let mut stream = bob.subscribe(EVENTS, json!({"c": c}));
    assert_eq!(
        next(&mut stream).await.1,
        Value::Null,
        "the first payload is the position"
    );
    let one = alice.send(&c, "one").await;
    assert_eq!(
        next(&mut stream).await.1["messageEdge"]["node"]["uuid"],
        json!(one.uuid)
    );
    alice.data(EDIT, json!({"m": one.id, "b": "eins"})).await;
    assert_eq!(
        next(&mut stream).await.1,
        json!({"__typename": "MessageEditedEvent", "message": {"uuid": one.uuid, "body": "eins"}})
    );
    bob.mark_read(&c, None).await;
    let marker = json!({"user": {"username": "bob"}, "readUpTo": {"uuid": one.uuid}});
    assert_eq!(
        next(&mut stream).await.1,
        json!({"__typename": "MarkerMovedEvent", "participant": marker})
    );
    bob.mark_unread(&c, &one.id).await;
    alice.data(DELETE, json!({"m": one.id})).await;
    assert_eq!(
        next(&mut stream).await.1,
        json!({"__typename": "MessageDeletedEvent", "message": {"uuid": one.uuid, "body": null}})
    );
    assert!(
        stream.is_quiet(),
        "a marker that goes back in an inbox is no receipt"
    );
}

#[tokio::test]
async fn a_resumed_stream_begins_with_its_cursor_and_the_present_markers() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let one = alice.send(&c, "one").await;
    bob.mark_read(&c, None).await;
    let after = alice.events_cursor(&c).await;
    let two = alice.send(&c, "two").await;
    alice.data(EDIT, json!({"m": one.id, "b": "eins"})).await;
    alice.data(EDIT, json!({"m": two.id, "b": "zwei"})).await;
    alice.data(DELETE, json!({"m": one.id})).await;
    let mut stream = alice.subscribe(EVENTS, json!({"c": c, "after": after}));
    assert_eq!(next(&mut stream).await, (after, Value::Null));
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(short(&next(&mut stream).await.1));
    }
    let (one, two) = (&one.uuid[..8], &two.uuid[..8]);
    // Each event in its place, each message as it is now.
    let expected = [
        "read by bob".to_owned(),
        format!("added {two} \"zwei\""),
        format!("edited {one} null"),
        format!("edited {two} \"zwei\""),
        format!("deleted {one} null"),
    ];
    assert_eq!(told, expected);
    assert!(stream.is_quiet());
}

/// Cut at random moments while three people send, edit and delete: what was seen is what happened, in order, nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_while_all_kinds_of_things_happen_lose_nothing() {
    let world = World::open().await;
    let names = ["alice", "bob", "carol"];
    let actors = names.map(|name| world.user(name));
    let c = actors[0].group("busy", &names[1..]).await;
    let start = actors[0].events_cursor(&c).await;
    let rounds = 60;
    let work = async {
        let each = actors.iter().map(|actor| async {
            for i in 0..rounds {
                let sent = actor.send(&c, &i.to_string()).await;
                if i % 3 == 0 {
                    actor
                        .data(EDIT, json!({"m": sent.id, "b": format!("{i}!")}))
                        .await;
                }
                if i % 5 == 0 {
                    actor.data(DELETE, json!({"m": sent.id})).await;
                }
            }
        });
        futures_util::future::join_all(each).await;
    };
    let count = names.len() * (rounds + rounds / 3 + rounds / 5);
    let read = async {
        let (mut seen, mut after, mut cut) = (Vec::new(), start.clone(), 1);
        while seen.len() < count {
            let mut stream = actors[0].subscribe(EVENTS, json!({"c": c, "after": after}));
            cut = cut * 7 % 61;
            let goal = seen.len() + cut.min(count - seen.len());
            while seen.len() < goal {
                let (cursor, event) = next(&mut stream).await;
                after = cursor;
                if !event.is_null() {
                    seen.push(kind_and_message(&event));
                }
            }
        }
        seen
    };
    let ((), seen) = tokio::time::timeout(PATIENCE * 3, async { tokio::join!(work, read) })
        .await
        .unwrap();
    let mut whole = Vec::new();
    let mut stream = actors[1].subscribe(EVENTS, json!({"c": c, "after": start}));
    while whole.len() < count {
        let (_, event) = next(&mut stream).await;
        if !event.is_null() {
            whole.push(kind_and_message(&event));
        }
    }
    assert_eq!(seen, whole);
    for added in seen.iter().filter(|(kind, _)| kind == "MessageAddedEvent") {
        assert_eq!(
            seen.iter().filter(|event| *event == added).count(),
            1,
            "nothing twice"
        );
    }
}

fn kind_and_message(event: &Value) -> (String, String) {
    let message = if event["message"].is_null() {
        &event["messageEdge"]["node"]
    } else {
        &event["message"]
    };
    (text(&event["__typename"]), text(&message["uuid"]))
}

#[tokio::test]
async fn the_inbox_follows_edits_and_deletions_live_and_resumed() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "Lunhc?").await;
    let document = "subscription($after: String) { inboxUpdated(after: $after) { cursor event {
        ... on InboxEntryChangedEvent { inboxEntryEdge { node { unreadCount lastMessage { body } } } } } } }";
    let mut stream = bob.subscribe(document, json!({}));
    let start = stream.next().await["inboxUpdated"]["cursor"].clone();
    let entry = |payload: Value| payload["inboxUpdated"]["event"]["inboxEntryEdge"]["node"].clone();
    alice.data(EDIT, json!({"m": sent.id, "b": "Lunch?"})).await;
    assert_eq!(
        entry(stream.next().await),
        json!({"unreadCount": 1, "lastMessage": {"body": "Lunch?"}})
    );
    alice.data(DELETE, json!({"m": sent.id})).await;
    let last = json!({"unreadCount": 0, "lastMessage": {"body": null}});
    assert_eq!(entry(stream.next().await), last);
    let mut resumed = bob.subscribe(document, json!({"after": start}));
    resumed.next().await;
    assert_eq!(entry(resumed.next().await), last);
}

#[tokio::test]
async fn a_cursor_of_history_is_refused() {
    let world = World::open().await;
    let (alice, mallory) = (world.user("alice"), world.user("mallory"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "x").await;
    for after in [sent.cursor.as_str(), "nonsense"] {
        let mut stream = alice.subscribe(EVENTS, json!({"c": c, "after": after}));
        assert_eq!(stream.answer().await.code(), "BAD_USER_INPUT");
    }
    let mut stream = mallory.subscribe(EVENTS, json!({"c": c}));
    assert_eq!(stream.answer().await.code(), "NOT_FOUND");
}

/// Cursors of the next payloads, as `extensions` hold them.
async fn extension_cursors(stream: &mut Stream, count: usize) -> Vec<String> {
    let mut cursors = Vec::with_capacity(count);
    for _ in 0..count {
        cursors.push(text(&stream.answer().await.0["extensions"]["cursor"]));
    }
    cursors
}

#[tokio::test]
async fn every_payload_holds_its_cursor_whatever_is_selected() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let start = alice.events_cursor(&c).await;
    let inbox = bob.data("{ inbox { updatesCursor } }", json!({})).await;
    let updates = inbox["inbox"]["updatesCursor"].clone();
    let bodies = ["one", "two", "three"];
    for body in bodies {
        alice.send(&c, body).await;
    }
    let added = "subscription($c: ID!, $after: String) { messageAdded(conversationId: $c, after: $after) { messageEdge { node { body } } } }";
    // Fields of the viewer are executed for each alone, the others for all at once.
    let alone = "subscription($c: ID!, $after: String) { messageAdded(conversationId: $c, after: $after) { messageEdge { node { body
        reactions { viewerHasReacted } } } } }";
    for document in [added, alone] {
        let mut both =
            [&alice, &bob].map(|actor| actor.subscribe(document, json!({"c": c, "after": start})));
        let cursors = extension_cursors(&mut both[0], 3).await;
        assert_eq!(extension_cursors(&mut both[1], 3).await, cursors);
        let mut resumed = bob.subscribe(document, json!({"c": c, "after": cursors[1]}));
        // On a cluster the messages of the ten seconds before the cursor may be repeated.
        let body = |next: &Value| text(&next["messageAdded"]["messageEdge"]["node"]["body"]);
        let mut next = body(&resumed.next().await);
        while ["one", "two"].contains(&next.as_str()) {
            next = body(&resumed.next().await);
        }
        assert_eq!(next, "three");
    }
    let events = "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { cursor } }";
    let mut stream = bob.subscribe(events, json!({"c": c, "after": start}));
    for _ in 0..4 {
        let payload = stream.answer().await.0;
        assert_eq!(
            payload["extensions"]["cursor"],
            payload["data"]["conversationEvents"]["cursor"]
        );
    }
    let inbox =
        "subscription($after: String) { inboxUpdated(after: $after) { event { __typename } } }";
    let mut stream = bob.subscribe(inbox, json!({"after": updates}));
    let last = extension_cursors(&mut stream, 2).await.remove(1);
    let mut resumed = bob.subscribe(inbox, json!({"after": last}));
    resumed.next().await;
    alice.send(&c, "four").await;
    let event = &resumed.next().await["inboxUpdated"]["event"];
    assert_eq!(event["__typename"], "InboxEntryChangedEvent");
    // A stream that has ended has no position to resume after.
    let mut refused = bob.subscribe(events, json!({"c": c, "after": "nonsense"}));
    assert!(refused.answer().await.0["extensions"].is_null());
}

#[tokio::test]
async fn a_replay_says_where_it_ends_to_those_who_ask() {
    const LIVE: &str = "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { isLive event { __typename } } }";
    const INBOX: &str = "subscription($after: String) { inboxUpdated(after: $after) { ... on InboxUpdatedPayload { isLive } event { __typename } } }";
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let start = alice.events_cursor(&c).await;
    let inbox = bob.data("{ inbox { updatesCursor } }", json!({})).await;
    let updates = inbox["inbox"]["updatesCursor"].clone();
    alice.send(&c, "missed").await;

    /// Payloads up to the first one of this kind, without markers.
    async fn until(stream: &mut Stream, root: &str, last: &str) -> Vec<String> {
        let mut steps = Vec::new();
        while steps.last().is_none_or(|step| step != last) {
            let payload = stream.next().await[root].clone();
            let event = payload["event"]["__typename"].as_str().unwrap_or("none");
            steps.push(format!("{event} {}", payload["isLive"]));
        }
        steps.retain(|step| !step.starts_with("MarkerMovedEvent"));
        steps
    }
    let variables = json!({"c": c, "after": start});
    let mut both = [&alice, &bob].map(|actor| actor.subscribe(LIVE, variables.clone()));
    let mut fresh = bob.subscribe(LIVE, json!({"c": c}));
    let seen = until(&mut fresh, "conversationEvents", "none true").await;
    assert_eq!(seen, ["none true"]);
    for stream in &mut both {
        let seen = until(stream, "conversationEvents", "none true").await;
        assert_eq!(seen, ["none false", "MessageAddedEvent false", "none true"]);
    }
    let mut updated = bob.subscribe(INBOX, json!({"after": updates}));
    let seen = until(&mut updated, "inboxUpdated", "none true").await;
    let replayed = ["none false", "InboxEntryChangedEvent false", "none true"];
    assert_eq!(seen, replayed);

    // A document that does not ask has no further payload.
    let mut silent = bob.subscribe(EVENTS, variables);
    while next(&mut silent).await.1["messageEdge"].is_null() {}
    alice.send(&c, "live").await;
    let [mut one, mut other] = both;
    for stream in [&mut one, &mut other, &mut fresh] {
        let seen = until(stream, "conversationEvents", "MessageAddedEvent true").await;
        assert_eq!(seen, ["MessageAddedEvent true"]);
    }
    let seen = until(&mut updated, "inboxUpdated", "InboxEntryChangedEvent true").await;
    assert_eq!(seen, ["InboxEntryChangedEvent true"]);
    let body = &next(&mut silent).await.1["messageEdge"]["node"]["body"];
    assert_eq!(*body, "live");
}

/// The fields of a query are resolved in any order: its cursor never passes a message that its page
/// lacks.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_during_a_query_is_in_its_page_or_after_its_cursor() {
    const READS: usize = 40;
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    // The reads of one user wait for each other, so the cursor is read after the first page.
    let pages: String = (0..8)
        .map(|page| format!("p{page}: messages(first: 1) {{ edges {{ node {{ body }} }} }} "))
        .collect();
    let document = format!("query($c: ID!) {{ conversation(id: $c) {{ {pages} eventsCursor }} }}");
    let number = |node: &Value| text(&node["body"]).parse::<usize>().unwrap();
    alice.send(&c, "0").await;
    for round in 0..READS {
        let [during, after] = [2 * round + 1, 2 * round + 2].map(|number| number.to_string());
        let query = bob.data(&document, json!({"c": c}));
        let (_, read) = tokio::join!(alice.send(&c, &during), query);
        alice.send(&c, &after).await;
        let read = &read["conversation"];
        let shown = number(&read["p0"]["edges"][0]["node"]);
        let mut stream = bob.subscribe(EVENTS, json!({"c": c, "after": read["eventsCursor"]}));
        let first = loop {
            let event = next(&mut stream).await.1;
            if event["__typename"] == "MessageAddedEvent" {
                break number(&event["messageEdge"]["node"]);
            }
        };
        assert!(first <= shown + 1, "{first} follows {shown}");
    }
}
