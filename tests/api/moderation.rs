//! Moderation through the API: bans, silences, and what each participant may know of them.

use serde_json::{Value, json};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::Timestamp;

use crate::support::door::Door;
use crate::support::world::{Actor, Answer, Stream, World, text};

const BAN: &str = "mutation($c: ID!, $u: String!, $t: DateTime, $r: String) {
    banParticipant(input: {conversationId: $c, username: $u, until: $t, reason: $r}) {
        removedParticipantId conversation { participantCount }
        banEdge { cursor node { id user { username } bannedBy { username } until reason } } } }";
const LIFT: &str =
    "mutation($c: ID!, $u: String!) { liftBan(input: {conversationId: $c, username: $u}) {
    liftedBanId conversation { id } } }";
const SILENCE: &str = "mutation($c: ID!, $u: String!, $t: DateTime) {
    silenceParticipant(input: {conversationId: $c, username: $u, until: $t}) { participant { id isSilenced silencedUntil } } }";
const UNSILENCE: &str = "mutation($c: ID!, $u: String!) {
    unsilenceParticipant(input: {conversationId: $c, username: $u}) { participant { isSilenced silencedUntil } } }";
const BANS: &str = "query($c: ID!, $f: Int, $a: String) { conversation(id: $c) { bans(first: $f, after: $a) {
    edges { cursor node { id user { username } reason } } pageInfo { hasNextPage hasPreviousPage } } } }";
const EVENTS: &str = "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { cursor event { __typename
    ... on MessageAddedEvent { messageEdge { node { kind body metadata } } }
    ... on ParticipantRemovedEvent { user { username } }
    ... on ParticipantUpdatedEvent { participant { isSilenced silencedUntil user { username } } } } } }";
const ADD: &str = "mutation($c: ID!, $u: [String!]!) { addParticipants(input: {conversationId: $c, usernames: $u}) {
    participantEdges { node { isSilenced user { username } } } } }";
const ROLE: &str = "mutation($c: ID!, $u: String!, $r: ParticipantRole!) {
    setParticipantRole(input: {conversationId: $c, username: $u, role: $r}) { __typename } }";

async fn ban(actor: &Actor, conversation: &str, user: &str) -> Answer {
    let variables = json!({"c": conversation, "u": user, "r": "spam"});
    actor.ask(BAN, variables).await
}

async fn silence(actor: &Actor, conversation: &str, user: &str) -> Answer {
    let variables = json!({"c": conversation, "u": user});
    actor.ask(SILENCE, variables).await
}

async fn unsilence(actor: &Actor, conversation: &str, user: &str) -> Answer {
    let variables = json!({"c": conversation, "u": user});
    actor.ask(UNSILENCE, variables).await
}

async fn lift(actor: &Actor, conversation: &str, user: &str) -> Answer {
    let variables = json!({"c": conversation, "u": user});
    actor.ask(LIFT, variables).await
}

async fn add(actor: &Actor, conversation: &str, user: &str) -> Value {
    let variables = json!({"c": conversation, "u": [user]});
    actor.data(ADD, variables).await["addParticipants"]["participantEdges"].clone()
}

async fn try_send(actor: &Actor, conversation: &str) -> Answer {
    let document = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"x\"}) { __typename } }";
    actor.ask(document, json!({"c": conversation})).await
}

/// Reads a stream of events up to this one. A stream of a cluster may repeat what came before its cursor.
async fn until(events: &mut Stream, is_wanted: impl Fn(&Value) -> bool) {
    loop {
        // The first payload is a position without an event.
        let event = events.next().await["conversationEvents"]["event"].clone();
        if !event.is_null() && is_wanted(&event) {
            return;
        }
    }
}

fn in_micros(micros: i64) -> Timestamp {
    SystemClock.now().plus_micros(micros)
}

/// Time until a ban or a silence ends by itself, in which a busy machine shows it first.
const SOON_MICROS: i64 = 5_000_000;

async fn sleep_past(moment: Timestamp) {
    let left = moment.plus_micros(100_000).micros() - SystemClock.now().micros();
    let left = std::time::Duration::from_micros(left.try_into().unwrap_or_default());
    tokio::time::sleep(left).await;
}

/// alice OWNER, bob ADMIN, carol and dave MEMBER.
async fn group(world: &World) -> String {
    let alice = world.user("alice");
    let c = alice.group("Phoenix", &["bob", "carol", "dave"]).await;
    let variables = json!({"c": c, "u": "bob", "r": "ADMIN"});
    alice.data(ROLE, variables).await;
    c
}

#[tokio::test]
async fn a_banned_user_is_removed_and_cannot_be_added() {
    let world = World::open().await;
    let c = group(&world).await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let mut events = alice.subscribe(EVENTS, json!({"c": c}));
    events.next().await;
    let cursor = alice.events_cursor(&c).await;
    let said = ban(&bob, &c, "carol").await.data()["banParticipant"].clone();
    assert_eq!(said["conversation"]["participantCount"], 3);
    let node = &said["banEdge"]["node"];
    assert_eq!(node["user"]["username"], "carol");
    assert_eq!(node["bannedBy"]["username"], "bob");
    assert_eq!(
        (&node["until"], &node["reason"]),
        (&Value::Null, &json!("spam"))
    );
    assert!(said["removedParticipantId"].is_string());
    // The others see a removal.
    let mut resumed = alice.subscribe(EVENTS, json!({"c": c, "after": cursor}));
    resumed.next().await;
    for events in [&mut events, &mut resumed] {
        let removed =
            json!({"__typename": "ParticipantRemovedEvent", "user": {"username": "carol"}});
        until(events, |event| *event == removed).await;
        let said = json!({"event": "removed", "usernames": ["carol"]});
        until(events, |event| {
            event["messageEdge"]["node"]["metadata"] == said
        })
        .await;
    }
    // To carol there is no such conversation, and nobody can bring her back.
    let gone = carol.ask(BANS, json!({"c": c})).await.data();
    assert_eq!(gone["conversation"], Value::Null);
    assert_eq!(try_send(&carol, &c).await.code(), "NOT_FOUND");
    assert_eq!(add(&alice, &c, "carol").await, json!([]));
    // The ban is an object for those who may see it.
    let ban_id = text(&node["id"]);
    let document = "query($i: ID!) { node(id: $i) { id ... on Ban { user { username } } } }";
    for (actor, is_seen) in [(&alice, true), (&bob, true), (&carol, false)] {
        let found = actor.data(document, json!({"i": ban_id})).await;
        assert_eq!(found["node"].is_object(), is_seen);
    }
    let lifted = lift(&bob, &c, "carol").await.data();
    assert_eq!(lifted["liftBan"]["liftedBanId"], ban_id.as_str());
    let again = lift(&bob, &c, "carol").await.data();
    assert_eq!(again["liftBan"]["liftedBanId"], Value::Null);
    assert_eq!(add(&alice, &c, "carol").await.as_array().unwrap().len(), 1);
    assert!(try_send(&carol, &c).await.has_data());
}

#[tokio::test]
async fn a_user_who_does_not_take_part_is_banned_without_a_word() {
    let world = World::open().await;
    let c = group(&world).await;
    let [alice, bob] = ["alice", "bob"].map(|name| world.user(name));
    let mut events = bob.subscribe(EVENTS, json!({"c": c}));
    events.next().await;
    for reason in ["one", "other"] {
        let variables = json!({"c": c, "u": "eve", "r": reason});
        let said = alice.data(BAN, variables).await["banParticipant"].clone();
        assert_eq!(said["removedParticipantId"], Value::Null);
        assert_eq!(said["banEdge"]["node"]["reason"], reason);
    }
    assert_eq!(add(&bob, &c, "eve").await, json!([]));
    // Nothing was told before this message, and no message was added for it.
    bob.send(&c, "hello").await;
    let event = events.next().await["conversationEvents"]["event"].clone();
    assert_eq!(event["messageEdge"]["node"]["body"], "hello");
    let found = alice.data(BANS, json!({"c": c})).await;
    let edges = found["conversation"]["bans"]["edges"].as_array().unwrap();
    assert_eq!(edges.len(), 1);
    assert_eq!(edges[0]["node"]["reason"], "other");
}

#[tokio::test]
async fn bans_are_listed_by_name_for_those_who_moderate() {
    let world = World::open().await;
    let c = group(&world).await;
    let [alice, bob, dave] = ["alice", "bob", "dave"].map(|name| world.user(name));
    for user in ["zoe", "eve", "mallory"] {
        ban(&alice, &c, user).await.data();
    }
    let until = in_micros(SOON_MICROS);
    let variables = json!({"c": c, "u": "soon", "t": until.to_string()});
    alice.data(BAN, variables).await;
    let page = async |actor: &Actor, variables: Value| {
        actor.data(BANS, variables).await["conversation"]["bans"].clone()
    };
    let names = |page: &Value| -> Vec<String> {
        let edges = page["edges"].as_array().unwrap();
        let name = |edge: &Value| text(&edge["node"]["user"]["username"]);
        edges.iter().map(name).collect()
    };
    let all = page(&bob, json!({"c": c})).await;
    assert_eq!(names(&all), ["eve", "mallory", "soon", "zoe"]);
    assert_eq!(page(&dave, json!({"c": c})).await, Value::Null);
    let first = page(&bob, json!({"c": c, "f": 1})).await;
    assert_eq!(names(&first), ["eve"]);
    assert_eq!(first["pageInfo"]["hasNextPage"], true);
    // One that ends by time is gone, and its user can be added.
    sleep_past(until).await;
    let after = first["edges"][0]["cursor"].clone();
    let rest = page(&bob, json!({"c": c, "a": after})).await;
    assert_eq!(names(&rest), ["mallory", "zoe"]);
    assert_eq!(rest["pageInfo"]["hasPreviousPage"], true);
    let lifted = lift(&bob, &c, "soon").await.data();
    assert_eq!(lifted["liftBan"]["liftedBanId"], Value::Null);
    assert_eq!(add(&bob, &c, "soon").await.as_array().unwrap().len(), 1);
    let direct = alice.direct("bob").await;
    assert_eq!(page(&alice, json!({"c": direct})).await, Value::Null);
}

#[tokio::test]
async fn each_role_moderates_those_below_it() {
    let world = World::open().await;
    let c = group(&world).await;
    let [alice, bob, carol, mallory] =
        ["alice", "bob", "carol", "mallory"].map(|name| world.user(name));
    for refused in [
        ban(&carol, &c, "dave").await,
        silence(&carol, &c, "dave").await,
        unsilence(&carol, &c, "dave").await,
        lift(&carol, &c, "dave").await,
        ban(&bob, &c, "alice").await,
        silence(&bob, &c, "alice").await,
    ] {
        assert_eq!(refused.code(), "FORBIDDEN");
    }
    for missing in [
        ban(&mallory, &c, "dave").await,
        silence(&mallory, &c, "dave").await,
        lift(&mallory, &c, "dave").await,
        silence(&bob, &c, "nobody").await,
    ] {
        assert_eq!(missing.code(), "NOT_FOUND");
    }
    let past = json!({"c": c, "u": "dave", "t": in_micros(-1_000_000).to_string()});
    let long = json!({"c": c, "u": "dave", "r": "x".repeat(256)});
    let direct = alice.direct("bob").await;
    for (refused, path) in [
        (ban(&bob, &c, "bob").await, "username"),
        (silence(&alice, &c, "alice").await, "username"),
        (bob.ask(BAN, past.clone()).await, "until"),
        (bob.ask(SILENCE, past).await, "until"),
        (bob.ask(BAN, long).await, "reason"),
        (silence(&alice, &direct, "bob").await, "conversationId"),
        (ban(&alice, &direct, "bob").await, "conversationId"),
    ] {
        assert_eq!(refused.code(), "BAD_USER_INPUT");
        assert_eq!(refused.extensions()["inputPath"], json!(["input", path]));
    }
    silence(&bob, &c, "carol").await.data();
    ban(&bob, &c, "carol").await.data();
    ban(&alice, &c, "bob").await.data();
}

#[tokio::test]
async fn a_silenced_participant_reads_but_does_not_write() {
    let world = World::open().await;
    let c = group(&world).await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let sent = carol.send(&c, "before").await;
    let mut events = carol.subscribe(EVENTS, json!({"c": c}));
    events.next().await;
    let cursor = carol.events_cursor(&c).await;
    let own = "query($c: ID!) { conversation(id: $c) { viewerParticipant { role isSilenced silencedUntil user { username } }
        messages { edges { node { kind } } } } }";
    let shown = carol.data(own, json!({"c": c})).await;
    let free = json!({"role": "MEMBER", "isSilenced": false, "silencedUntil": null, "user": {"username": "carol"}});
    assert_eq!(shown["conversation"]["viewerParticipant"], free);

    let said = silence(&bob, &c, "carol").await.data();
    let participant = &said["silenceParticipant"]["participant"];
    assert_eq!(participant["isSilenced"], true);
    assert_eq!(participant["silencedUntil"], Value::Null);
    silence(&bob, &c, "carol").await.data();
    let updated = json!({"__typename": "ParticipantUpdatedEvent", "participant":
        {"isSilenced": true, "silencedUntil": null, "user": {"username": "carol"}}});
    let mut resumed = carol.subscribe(EVENTS, json!({"c": c, "after": cursor}));
    resumed.next().await;
    for events in [&mut events, &mut resumed] {
        until(events, |event| *event == updated).await;
    }

    let edit =
        "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"y\"}) { __typename } }";
    let react =
        "mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { __typename } }";
    let typing =
        "mutation($c: ID!) { setTyping(input: {conversationId: $c, typing: true}) { __typename } }";
    for refused in [
        try_send(&carol, &c).await,
        carol.ask(edit, json!({"m": sent.id})).await,
        carol.ask(react, json!({"m": sent.id})).await,
        carol.ask(typing, json!({"c": c})).await,
    ] {
        assert_eq!(refused.code(), "FORBIDDEN");
        assert!(refused.0.to_string().contains("silenced"), "{refused:?}");
    }
    // A silenced ADMIN has no right of the role either.
    silence(&alice, &c, "bob").await.data();
    let rights = [
        "renameConversation(input: {conversationId: $c, name: \"n\"}) { __typename }",
        "addParticipants(input: {conversationId: $c, usernames: [\"eve\"]}) { __typename }",
        "removeParticipant(input: {conversationId: $c, username: \"dave\"}) { __typename }",
        "banParticipant(input: {conversationId: $c, username: \"eve\"}) { __typename }",
        "silenceParticipant(input: {conversationId: $c, username: \"dave\"}) { __typename }",
        "unsilenceParticipant(input: {conversationId: $c, username: \"carol\"}) { __typename }",
        "updateConversation(input: {conversationId: $c, slowModeSeconds: 9}) { __typename }",
        "deleteMessage(input: {messageId: $m}) { __typename }",
    ];
    let by_role = async |right: &str| {
        let declared = if right.contains("$m") {
            "$m: ID!"
        } else {
            "$c: ID!"
        };
        let document = format!("mutation({declared}) {{ {right} }}");
        bob.ask(&document, json!({"c": c, "m": sent.id})).await
    };
    for right in rights {
        let refused = by_role(right).await;
        assert_eq!(refused.code(), "FORBIDDEN", "{right}");
        assert!(refused.0.to_string().contains("silenced"), "{refused:?}");
    }
    unsilence(&alice, &c, "bob").await.data();
    by_role(rights[0]).await.data();
    // Marks and deletions stay, and history too. Leaving and coming back ends nothing.
    alice.send(&c, "hello").await;
    carol.mark_read(&c, None).await;
    let delete = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { __typename } }";
    carol.data(delete, json!({"m": sent.id})).await;
    let leave =
        "mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { __typename } }";
    carol.data(leave, json!({"c": c})).await;
    let added = add(&alice, &c, "carol").await;
    assert_eq!(added[0]["node"]["isSilenced"], true);
    assert_eq!(try_send(&carol, &c).await.code(), "FORBIDDEN");

    let lifted = unsilence(&bob, &c, "carol").await.data();
    let participant = &lifted["unsilenceParticipant"]["participant"];
    assert_eq!(participant["isSilenced"], false);
    assert!(try_send(&carol, &c).await.has_data());
    // An end by time needs no act.
    let until = in_micros(SOON_MICROS);
    let variables = json!({"c": c, "u": "carol", "t": until.to_string()});
    let said = bob.data(SILENCE, variables).await;
    let participant = &said["silenceParticipant"]["participant"];
    assert_eq!(participant["silencedUntil"], until.to_string());
    assert_eq!(try_send(&carol, &c).await.code(), "FORBIDDEN");
    sleep_past(until).await;
    assert!(try_send(&carol, &c).await.has_data());
    let shown = carol.data(own, json!({"c": c})).await;
    assert_eq!(shown["conversation"]["viewerParticipant"], free);
    let messages = shown["conversation"]["messages"]["edges"]
        .as_array()
        .unwrap();
    let system = messages
        .iter()
        .filter(|edge| edge["node"]["kind"] == "SYSTEM");
    assert_eq!(
        system.count(),
        4,
        "a role, a name, leaving and joining; no silence"
    );
}

#[tokio::test]
async fn participants_are_found_by_the_beginning_of_their_names() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.group("Phoenix", &["alan", "albert", "bob"]).await;
    let document = "query($c: ID!, $p: String, $f: Int) { conversation(id: $c) { participants(usernamePrefix: $p, first: $f) {
        edges { node { user { username } } } pageInfo { hasNextPage hasPreviousPage } } } }";
    let names = async |prefix: Value| {
        let data = alice.data(document, json!({"c": c, "p": prefix})).await;
        let edges = data["conversation"]["participants"]["edges"].clone();
        let name = |edge: &Value| text(&edge["node"]["user"]["username"]);
        edges
            .as_array()
            .unwrap()
            .iter()
            .map(name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(json!("al")).await, ["alan", "albert", "alice"]);
    assert_eq!(names(json!("ali")).await, ["alice"]);
    assert_eq!(names(json!("Al")).await, Vec::<String>::new());
    for all in [json!(""), Value::Null] {
        assert_eq!(names(all).await.len(), 4);
    }
    let page = alice
        .data(document, json!({"c": c, "p": "al", "f": 3}))
        .await;
    let info = &page["conversation"]["participants"]["pageInfo"];
    assert_eq!(
        info,
        &json!({"hasNextPage": false, "hasPreviousPage": false})
    );
    let long = json!({"c": c, "p": "a".repeat(129)});
    assert_eq!(alice.ask(document, long).await.code(), "BAD_USER_INPUT");
}

#[tokio::test]
async fn a_silence_holds_for_writes_that_waited_behind_it() {
    let world = World::open().await;
    let writes = [
        "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"y\"}) { __typename } }",
        "mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { __typename } }",
        "mutation($m: ID!) { pinMessage(input: {messageId: $m}) { __typename } }",
    ];
    let mut refused = 0;
    for round in 0..12 {
        let c = group(&world).await;
        let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
        let sent = carol.send(&c, "before").await;
        let cursor = alice.events_cursor(&c).await;
        let write = carol.ask(writes[round % 3], json!({"m": sent.id}));
        let (silenced, written) = tokio::join!(silence(&bob, &c, "carol"), write);
        silenced.data();
        if !written.has_data() {
            assert_eq!(written.code(), "FORBIDDEN");
            refused += 1;
            continue;
        }
        let mut events = alice.subscribe(EVENTS, json!({"c": c, "after": cursor}));
        let is_update = |event: &Value| event["__typename"] == "ParticipantUpdatedEvent";
        let is_write = |event: &Value| {
            let kinds = [
                "MessageEditedEvent",
                "ReactionsChangedEvent",
                "PinsChangedEvent",
            ];
            kinds.iter().any(|kind| event["__typename"] == *kind)
        };
        until(&mut events, |event| {
            assert!(
                !is_update(event),
                "the write came after the silence: {round}"
            );
            is_write(event)
        })
        .await;
        until(&mut events, is_update).await;
    }
    assert!(refused > 0, "no write waited behind a silence");
}

#[tokio::test]
async fn services_read_bans_and_receive_updates() {
    let world = World::open().await;
    world
        .store
        .set_outbox(Some(SystemClock.now()))
        .await
        .unwrap();
    let c = group(&world).await;
    let alice = world.user("alice");
    ban(&alice, &c, "eve").await.data();
    silence(&alice, &c, "carol").await.data();
    let door = Door::of(&world.chat);
    let seen = door
        .ask(&door.service(), BANS, &json!({"c": c}))
        .await
        .json();
    let bans = &seen["data"]["conversation"]["bans"]["edges"];
    assert_eq!(bans.as_array().unwrap().len(), 1, "{seen}");
    let own = "query($c: ID!) { conversation(id: $c) { viewerParticipant { id } } }";
    let own = door
        .ask(&door.service(), own, &json!({"c": c}))
        .await
        .json();
    assert_eq!(
        own["data"]["conversation"]["viewerParticipant"],
        Value::Null
    );
    let outbox = "subscription { outbox(types: [PARTICIPANT_UPDATED]) { event { __typename
        ... on ParticipantUpdatedEvent { participant { isSilenced user { username } } } } } }";
    let mut updates = door.subscribe(&door.service(), outbox, &json!({}));
    use futures_util::StreamExt as _;
    updates.next().await.unwrap();
    silence(&alice, &c, "dave").await.data();
    let next = tokio::time::timeout(crate::support::world::PATIENCE, updates.next());
    let payload = next.await.unwrap().unwrap();
    let event = &payload["data"]["outbox"]["event"];
    assert_eq!(event["__typename"], "ParticipantUpdatedEvent", "{payload}");
    assert_eq!(
        event["participant"],
        json!({"isSilenced": true, "user": {"username": "dave"}})
    );
}

#[tokio::test]
async fn a_slow_mode_makes_members_wait() {
    let world = World::open().await;
    let c = group(&world).await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let set = "mutation($c: ID!, $s: Int) { updateConversation(input: {conversationId: $c, slowModeSeconds: $s}) {
        conversation { slowModeSeconds } } }";
    let mut events = carol.subscribe(
        "subscription($c: ID!) { conversationEvents(conversationId: $c) { event { __typename
            ... on ConversationUpdatedEvent { conversation { slowModeSeconds } } } } }",
        json!({"c": c}),
    );
    events.next().await;
    let refused = carol.ask(set, json!({"c": c, "s": 1})).await;
    assert_eq!(refused.code(), "FORBIDDEN");
    for seconds in [-1, 21_601] {
        let refused = bob.ask(set, json!({"c": c, "s": seconds})).await;
        assert_eq!(refused.code(), "BAD_USER_INPUT");
    }
    for _ in 0..2 {
        let data = bob.data(set, json!({"c": c, "s": 6})).await;
        let shown = &data["updateConversation"]["conversation"];
        assert_eq!(shown["slowModeSeconds"], 6);
    }
    let event = events.next().await["conversationEvents"]["event"].clone();
    let updated =
        json!({"__typename": "ConversationUpdatedEvent", "conversation": {"slowModeSeconds": 6}});
    assert_eq!(event, updated);
    let keyed = "mutation($c: ID!, $k: String!) { sendMessage(input: {conversationId: $c, body: \"x\", idempotencyKey: $k}) {
        messageEdge { node { id } } } }";
    let first = carol.data(keyed, json!({"c": c, "k": "one"})).await;
    // A retry is no second send, and gets the first one's answer.
    let again = carol.data(keyed, json!({"c": c, "k": "one"})).await;
    assert_eq!(first, again);
    let early = carol.ask(keyed, json!({"c": c, "k": "two"})).await;
    assert_eq!(early.code(), "RATE_LIMITED");
    assert_eq!(early.extensions()["outcome"], "NOT_DONE");
    let wait = early.extensions()["retryAfterMs"].as_u64().unwrap();
    assert!((1..=6_001).contains(&wait), "{wait}");
    for actor in [&alice, &bob] {
        for _ in 0..2 {
            assert!(try_send(actor, &c).await.has_data());
        }
    }
    tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
    carol.data(keyed, json!({"c": c, "k": "two"})).await;
    assert_eq!(try_send(&carol, &c).await.code(), "RATE_LIMITED");
    // Null is the default, and an omitted setting stays.
    let omitted = bob.data(set, json!({"c": c})).await;
    let shown = &omitted["updateConversation"]["conversation"];
    assert_eq!(shown["slowModeSeconds"], 6);
    let data = bob.data(set, json!({"c": c, "s": null})).await;
    let shown = &data["updateConversation"]["conversation"];
    assert_eq!(shown["slowModeSeconds"], 0);
    assert!(try_send(&carol, &c).await.has_data());
    let direct = alice.direct("bob").await;
    let refused = alice.ask(set, json!({"c": direct, "s": 1})).await;
    assert_eq!(refused.code(), "BAD_USER_INPUT");
}
