//! Blocks through the API: what leaves the blocker's inbox and streams, and what the blocked user cannot tell.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::world::{Actor, Sent, Stream, World, node_texts, text};

const BLOCK: &str =
    "mutation($u: String!) { blockUser(input: {username: $u}) { user { username viewerHasBlocked }
    blockedUserEdge { cursor node { username } } removedInboxEntryId } }";
const UNBLOCK: &str =
    "mutation($u: String!) { unblockUser(input: {username: $u}) { user { viewerHasBlocked }
    inboxEntryEdge { node { unreadCount conversation { id } } } } }";
const BLOCKED: &str = "query($f: Int, $a: String, $l: Int, $b: String) { blockedUsers(first: $f, after: $a, last: $l, before: $b) {
    edges { cursor node { username viewerHasBlocked } } pageInfo { hasNextPage hasPreviousPage } } }";
const INBOX: &str = "{ inbox { edges { node { id conversation { id } } } } inboxSummary { unreadConversationCount } }";
const PRESENCE: &str = "subscription($u: [String!]!) { presenceChanged(usernames: $u) { user { username } presence { isOnline lastSeenAt } } }";

async fn block(actor: &Actor, user: &str) -> Value {
    actor.data(BLOCK, json!({"u": user})).await["blockUser"].clone()
}

async fn unblock(actor: &Actor, user: &str) -> Value {
    actor.data(UNBLOCK, json!({"u": user})).await["unblockUser"].clone()
}

/// The conversations in the inbox, and the number of unread ones.
async fn inbox(actor: &Actor) -> (Vec<String>, Value) {
    let data = actor.data(INBOX, json!({})).await;
    let edges = data["inbox"]["edges"].as_array().unwrap();
    let ids = edges
        .iter()
        .map(|edge| text(&edge["node"]["conversation"]["id"]));
    (
        ids.collect(),
        data["inboxSummary"]["unreadConversationCount"].clone(),
    )
}

/// The status of a message, as its sender sees it.
async fn status(actor: &Actor, message: &Sent) -> Value {
    let document = "query($m: ID!) { node(id: $m) { ... on Message { status } } }";
    let data = actor.data(document, json!({"m": message.id})).await;
    data["node"]["status"].clone()
}

async fn presence(actor: &Actor, conversation: &str) -> Value {
    let document =
        "query($c: ID!) { conversation(id: $c) { directPeer { presence { isOnline } } } }";
    let data = actor.data(document, json!({"c": conversation})).await;
    data["conversation"]["directPeer"]["presence"].clone()
}

#[tokio::test]
async fn a_blocked_users_direct_conversation_leaves_the_inbox_and_comes_back() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = alice.direct("bob").await;
    let other = carol.direct("alice").await;
    alice.send(&c, "hello").await;
    bob.send(&c, "hi").await;
    carol.send(&other, "hi").await;
    assert_eq!(inbox(&alice).await.1, 2);
    let entry = "query($c: ID!) { conversation(id: $c) { inboxEntry { id } messages { edges { node { body } } } } }";
    let shown = alice.data(entry, json!({"c": c})).await;
    let entry_id = text(&shown["conversation"]["inboxEntry"]["id"]);

    let blocked = block(&alice, "bob").await;
    assert_eq!(
        blocked["user"],
        json!({"username": "bob", "viewerHasBlocked": true})
    );
    assert_eq!(blocked["blockedUserEdge"]["node"]["username"], "bob");
    assert_eq!(blocked["removedInboxEntryId"], entry_id.as_str());
    let again = block(&alice, "bob").await;
    assert_eq!(again, blocked, "a second block changes nothing");
    assert_eq!(inbox(&alice).await, (vec![other.clone()], json!(1)));
    let node = "query($i: ID!) { node(id: $i) { id } }";
    let gone = alice.data(node, json!({"i": entry_id})).await;
    assert_eq!(gone["node"], Value::Null);
    // The viewer still reads it by its id, to report from it.
    let read = alice.data(entry, json!({"c": c})).await;
    assert_eq!(read["conversation"]["inboxEntry"], Value::Null);
    let messages = read["conversation"]["messages"]["edges"].as_array();
    assert_eq!(messages.unwrap().len(), 2);

    bob.send(&c, "are you there?").await;
    assert_eq!(inbox(&alice).await, (vec![other.clone()], json!(1)));
    assert_eq!(inbox(&bob).await.0, std::slice::from_ref(&c));
    let unblocked = unblock(&alice, "bob").await;
    assert_eq!(unblocked["user"]["viewerHasBlocked"], false);
    let entry = &unblocked["inboxEntryEdge"]["node"];
    assert_eq!(entry["conversation"]["id"], c.as_str());
    assert_eq!(entry["unreadCount"], 0, "its marker is at the head");
    assert_eq!(inbox(&alice).await, (vec![c.clone(), other], json!(1)));
    assert_eq!(unblock(&alice, "bob").await, unblocked);
    bob.send(&c, "hello again").await;
    assert_eq!(alice.unread(&c).await, 1);
}

#[tokio::test]
async fn a_blocker_writes_nothing_in_the_direct_conversation_but_deletions_and_marks() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let own = alice.send(&c, "mine").await;
    let theirs = bob.send(&c, "yours").await;
    block(&alice, "bob").await;
    for mutation in [
        "sendMessage(input: {conversationId: $c, body: \"x\"}) { __typename }",
        "editMessage(input: {messageId: $o, body: \"x\"}) { __typename }",
        "addReaction(input: {messageId: $t, emoji: \"👍\"}) { __typename }",
        "setTyping(input: {conversationId: $c, typing: true}) { __typename }",
        "updateInboxEntry(input: {conversationId: $c, muted: true}) { __typename }",
        "startDirectConversation(input: {username: \"bob\"}) { __typename }",
        "updateConversation(input: {conversationId: $c, messageTtlSeconds: 60}) { __typename }",
    ] {
        let declared = ["c", "o", "t"].into_iter().filter(|name| {
            mutation.contains(&format!("${name},")) || mutation.contains(&format!("${name}}}"))
        });
        let declared: Vec<_> = declared.map(|name| format!("${name}: ID!")).collect();
        let head = match declared.is_empty() {
            true => String::new(),
            false => format!("({})", declared.join(", ")),
        };
        let document = format!("mutation{head} {{ {mutation} }}");
        let variables = json!({"c": c, "o": own.id, "t": theirs.id});
        assert_eq!(
            alice.ask(&document, variables).await.code(),
            "FORBIDDEN",
            "{mutation}"
        );
    }
    for (stream, field) in [
        ("messageAdded", "messageEdge { cursor }"),
        ("conversationEvents", "cursor"),
        ("typingChanged", "isTyping"),
    ] {
        let document =
            format!("subscription($c: ID!) {{ {stream}(conversationId: $c) {{ {field} }} }}");
        let mut opened = alice.subscribe(&document, json!({"c": c}));
        assert_eq!(opened.answer().await.code(), "FORBIDDEN", "{stream}");
    }
    alice.mark_read(&c, Some(&theirs.id)).await;
    let delivered =
        "mutation($c: ID!) { markDelivered(input: {conversationId: $c}) { inboxEntry { id } } }";
    alice.data(delivered, json!({"c": c})).await;
    assert_eq!(status(&bob, &theirs).await, "SENT");
    let delete = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { body } } }";
    alice.data(delete, json!({"m": own.id})).await;
    unblock(&alice, "bob").await;
    assert_eq!(
        status(&bob, &theirs).await,
        "SENT",
        "its entry comes back without its receipts"
    );
    alice.send(&c, "hello").await;
    let newer = bob.send(&c, "hello").await;
    alice.mark_read(&c, Some(&newer.id)).await;
    assert_eq!(status(&bob, &theirs).await, "READ");
}

#[tokio::test]
async fn a_block_ends_the_streams_of_the_blocker_and_no_other() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let documents = [
        "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body } } } }",
        "subscription($c: ID!) { conversationEvents(conversationId: $c) { event { __typename } } }",
        "subscription($c: ID!) { typingChanged(conversationId: $c) { isTyping } }",
    ];
    let open = |actor: &Actor| {
        documents.map(|document| {
            let mut stream = actor.subscribe(document, json!({"c": c}));
            let _ = stream.is_quiet();
            stream
        })
    };
    let (mut own, mut others) = (open(&alice), open(&bob));
    // A stream that delivers is open.
    bob.send(&c, "first").await;
    let typing =
        "mutation($c: ID!) { setTyping(input: {conversationId: $c, typing: true}) { __typename } }";
    bob.data(typing, json!({"c": c})).await;
    for streams in [&mut own, &mut others] {
        let [messages, events, typing] = streams;
        let told = messages.next().await;
        assert_eq!(told["messageAdded"]["messageEdge"]["node"]["body"], "first");
        until_message(events).await;
        assert_eq!(typing.next().await["typingChanged"]["isTyping"], true);
    }
    block(&alice, "bob").await;
    for stream in &mut own {
        assert!(stream.has_ended().await);
    }
    bob.send(&c, "hello").await;
    let [messages, events, typing] = &mut others;
    let told = messages.next().await;
    assert_eq!(told["messageAdded"]["messageEdge"]["node"]["body"], "hello");
    until_message(events).await;
    // The message ends the typing of its sender.
    assert_eq!(typing.next().await["typingChanged"]["isTyping"], false);
    assert!(typing.is_quiet());
}

/// Reads a stream of events up to a message. Only the position comes before.
async fn until_message(events: &mut Stream) {
    loop {
        let event = events.next().await["conversationEvents"]["event"].clone();
        if event["__typename"] == "MessageAddedEvent" {
            return;
        }
        assert_eq!(event, Value::Null);
    }
}

#[tokio::test]
async fn the_blockers_devices_hear_of_the_block_and_nothing_of_the_blocked_user() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    bob.send(&c, "hi").await;
    let document = "subscription($a: String) { inboxUpdated(after: $a) { cursor event { __typename
        ... on BlockChangedEvent { user { username viewerHasBlocked } }
        ... on InboxEntryRemovedEvent { conversationId }
        ... on InboxEntryChangedEvent { inboxEntryEdge { node { unreadCount conversation { id } } } } } } }";
    let mut device = alice.subscribe(document, json!({}));
    let first = device.next().await["inboxUpdated"].clone();
    let start = text(&first["cursor"]);
    block(&alice, "bob").await;
    let changed = |has_blocked: bool| json!({"__typename": "BlockChangedEvent", "user": {"username": "bob", "viewerHasBlocked": has_blocked}});
    let removed = json!({"__typename": "InboxEntryRemovedEvent", "conversationId": c});
    let next = async |device: &mut Stream| device.next().await["inboxUpdated"]["event"].clone();
    assert_eq!(next(&mut device).await, changed(true));
    assert_eq!(next(&mut device).await, removed);
    bob.send(&c, "hello?").await;
    let group = alice.group("friends", &["carol"]).await;
    let event = next(&mut device).await;
    let shown = &event["inboxEntryEdge"]["node"]["conversation"]["id"];
    assert_eq!(
        *shown,
        group.as_str(),
        "the blocked user's message is no event"
    );
    // A device that was away hears of it too.
    let mut late = alice.subscribe(document, json!({"a": start}));
    assert_eq!(next(&mut late).await, Value::Null);
    let mut events = vec![next(&mut late).await, next(&mut late).await];
    events.push(next(&mut late).await);
    assert_eq!(events[..2], [changed(true), removed]);
    assert_eq!(
        events[2]["inboxEntryEdge"]["node"]["conversation"]["id"],
        group.as_str()
    );
    assert!(late.is_quiet());
    unblock(&alice, "bob").await;
    for device in [&mut device, &mut late] {
        assert_eq!(next(device).await, changed(false));
        let event = next(device).await;
        let node = &event["inboxEntryEdge"]["node"];
        assert_eq!(*node, json!({"unreadCount": 0, "conversation": {"id": c}}));
    }
}

#[tokio::test]
async fn in_groups_messages_of_a_blocked_user_stay_and_are_never_unread() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = carol.group("friends", &["alice", "bob"]).await;
    bob.send(&c, "one").await;
    carol.send(&c, "two").await;
    bob.send(&c, "three").await;
    assert_eq!(alice.unread(&c).await, 3);
    block(&alice, "bob").await;
    assert_eq!(alice.unread(&c).await, 1);
    let page = "query($c: ID!) { conversation(id: $c) { inboxEntry { firstUnreadMessage { body } }
        messages { edges { node { body sender { viewerHasBlocked } } } } } }";
    let data = alice.data(page, json!({"c": c})).await;
    let conversation = &data["conversation"];
    assert_eq!(
        conversation["inboxEntry"]["firstUnreadMessage"]["body"],
        "two"
    );
    let edges = conversation["messages"]["edges"].as_array().unwrap();
    let folded = edges.iter().map(|edge| {
        let node = &edge["node"];
        (
            text(&node["body"]),
            node["sender"]["viewerHasBlocked"].clone(),
        )
    });
    let expected = [("three", true), ("two", false), ("one", true)];
    let expected = expected.map(|(body, folded)| (body.to_owned(), json!(folded)));
    assert_eq!(folded.collect::<Vec<_>>(), expected);
    // The blocked user sees as before what the blocker sends and reads there.
    alice.send(&c, "I am here").await;
    let sent = bob.send(&c, "four").await;
    alice.mark_read(&c, Some(&sent.id)).await;
    carol.mark_read(&c, Some(&sent.id)).await;
    assert_eq!(status(&bob, &sent).await, "READ");
    bob.send(&c, "five").await;
    assert_eq!(alice.unread(&c).await, 0);
    let unread = "{ inbox(filter: {unreadOnly: true}) { edges { node { id } } } inboxSummary { unreadConversationCount } }";
    let data = alice.data(unread, json!({})).await;
    assert_eq!(data["inbox"]["edges"], json!([]));
    assert_eq!(data["inboxSummary"]["unreadConversationCount"], 0);
    unblock(&alice, "bob").await;
    assert_eq!(
        alice.unread(&c).await,
        1,
        "what lies after the marker counts"
    );
}

#[tokio::test]
async fn an_archived_group_does_not_come_back_with_a_blocked_users_message() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = carol.group("friends", &["alice", "bob"]).await;
    block(&alice, "bob").await;
    let archive = "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, archived: true}) { inboxEntry { isArchived } } }";
    alice.data(archive, json!({"c": c})).await;
    let archived = async || {
        let entry = "query($c: ID!) { conversation(id: $c) { inboxEntry { isArchived } } }";
        let entry = alice.data(entry, json!({"c": c})).await;
        let is_archived = entry["conversation"]["inboxEntry"]["isArchived"] == json!(true);
        let listed = "{ inbox(filter: {archived: true}) { edges { node { isArchived } } } }";
        let listed = alice.data(listed, json!({})).await;
        let listed = listed["inbox"]["edges"].as_array().unwrap().len();
        assert_eq!(
            (listed, inbox(&alice).await.0.len()),
            (usize::from(is_archived), usize::from(!is_archived))
        );
        is_archived
    };
    bob.send(&c, "one").await;
    assert!(archived().await);
    carol.send(&c, "two").await;
    assert!(!archived().await);
    bob.send(&c, "three").await;
    assert!(!archived().await, "a message of carol came since");
    alice.data(archive, json!({"c": c})).await;
    bob.send(&c, "four").await;
    assert!(archived().await);
    alice.send(&c, "five").await;
    bob.send(&c, "six").await;
    assert!(!archived().await, "alice has written herself");
    alice.data(archive, json!({"c": c})).await;
    bob.send(&c, "seven").await;
    unblock(&alice, "bob").await;
    assert!(!archived().await);
}

#[tokio::test]
async fn in_groups_a_blocked_user_types_for_the_others_alone() {
    let world = World::with_bounds(wideroom::chat::Bounds {
        typing_lifetime: std::time::Duration::from_secs(3_600),
        ..wideroom::chat::Bounds::default()
    })
    .await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = carol.group("friends", &["alice", "bob"]).await;
    let typing = async |actor: &Actor, is_typing: bool| {
        let document = "mutation($c: ID!, $t: Boolean!) { setTyping(input: {conversationId: $c, typing: $t}) { __typename } }";
        actor.data(document, json!({"c": c, "t": is_typing})).await;
    };
    let document = "subscription($c: ID!) { typingChanged(conversationId: $c) { user { username } isTyping } }";
    let mut streams = [&alice, &carol].map(|actor| actor.subscribe(document, json!({"c": c})));
    assert!(streams.iter_mut().all(|stream| stream.is_quiet()));
    typing(&bob, true).await;
    let next = async |stream: &mut Stream| {
        let told = stream.next().await["typingChanged"].clone();
        (
            text(&told["user"]["username"]),
            told["isTyping"] == json!(true),
        )
    };
    let told = |name: &str, is_typing| (name.to_owned(), is_typing);
    for stream in &mut streams {
        assert_eq!(next(stream).await, told("bob", true));
    }
    block(&alice, "bob").await;
    // The end of what was shown is shown, and nothing after it.
    for is_typing in [false, true, false] {
        typing(&bob, is_typing).await;
        assert_eq!(next(&mut streams[1]).await, told("bob", is_typing));
    }
    assert_eq!(next(&mut streams[0]).await, told("bob", false));
    let mut of_bob = bob.subscribe(document, json!({"c": c}));
    assert!(of_bob.is_quiet());
    typing(&alice, true).await;
    for stream in &mut streams {
        assert_eq!(next(stream).await, told("alice", true));
    }
    typing(&carol, true).await;
    assert_eq!(
        next(&mut of_bob).await,
        told("carol", true),
        "the blocker types for the others alone too"
    );
}

#[tokio::test]
async fn a_group_of_a_blocked_user_is_hidden_from_the_blocker_alone() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let shared = carol.group("shared", &["alice", "bob"]).await;
    let admin = "mutation($c: ID!) { setParticipantRole(input: {conversationId: $c, username: \"bob\", role: ADMIN}) { __typename } }";
    carol.data(admin, json!({"c": shared})).await;
    block(&alice, "bob").await;
    let names =
        "conversation { participantCount participants { edges { node { user { username } } } } }";
    let create = format!(
        "mutation($u: [String!]!) {{ createGroupConversation(input: {{name: \"new\", usernames: $u}}) {{ conversation {{ id }} {names} }} }}"
    );
    let users = |data: &Value| node_texts(&data["participants"]["edges"], "/user/username");
    let made = bob.data(&create, json!({"u": ["alice", "dora"]})).await["createGroupConversation"]
        ["conversation"]
        .clone();
    assert_eq!(users(&made), ["alice", "bob", "dora"]);
    let add = format!(
        "mutation($c: ID!, $u: [String!]!) {{ addParticipants(input: {{conversationId: $c, usernames: $u}}) {{ participantEdges {{ node {{ user {{ username }} }} }} {names} }} }}"
    );
    let c = text(&made["id"]);
    let added = bob.data(&add, json!({"c": c, "u": ["erin"]})).await["addParticipants"].clone();
    assert_eq!(
        users(&added["conversation"]),
        ["alice", "bob", "dora", "erin"]
    );
    // Nor can the blocked user bring her into a group of others.
    let of_others = carol.group("others", &["bob"]).await;
    carol.data(admin, json!({"c": of_others})).await;
    let added = bob
        .data(&add, json!({"c": of_others, "u": ["alice"]}))
        .await["addParticipants"]
        .clone();
    assert_eq!(
        added["participantEdges"][0]["node"]["user"]["username"],
        "alice"
    );
    for group in [&c, &of_others] {
        let sent = bob.send(group, "alice, are you there?").await;
        let read = "query($c: ID!, $m: ID!) { conversation(id: $c) { id } node(id: $m) { id } }";
        let seen = alice.data(read, json!({"c": group, "m": sent.id})).await;
        assert_eq!(seen, json!({"conversation": null, "node": null}));
        let mark = "mutation($c: ID!) { markRead(input: {conversationId: $c}) { __typename } }";
        assert_eq!(
            alice.ask(mark, json!({"c": group})).await.code(),
            "NOT_FOUND"
        );
        for stream in ["messageAdded", "conversationEvents", "typingChanged"] {
            let document = format!(
                "subscription($c: ID!) {{ {stream}(conversationId: $c) {{ __typename }} }}"
            );
            let mut opened = alice.subscribe(&document, json!({"c": group}));
            assert_eq!(opened.answer().await.code(), "NOT_FOUND", "{stream}");
        }
    }
    let found = "{ searchMessages(query: \"alice\") { edges { node { id } } } }";
    let found = alice.data(found, json!({})).await;
    assert_eq!(found["searchMessages"]["edges"], json!([]));
    assert_eq!(inbox(&alice).await, (vec![shared.clone()], json!(0)));
    // Once bob has gone, the blocker does not succeed him.
    let leave =
        "mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { __typename } }";
    bob.data(leave, json!({"c": c})).await;
    let roles = "query($c: ID!) { conversation(id: $c) { participants { edges { node { role user { username } } } } } }";
    let roles = world.user("dora").data(roles, json!({"c": c})).await;
    let owner = json!({"role": "OWNER", "user": {"username": "dora"}});
    let all = roles["conversation"]["participants"]["edges"]
        .as_array()
        .unwrap();
    assert!(all.iter().any(|edge| edge["node"] == owner), "{all:?}");
    unblock(&alice, "bob").await;
    let (all, unread) = inbox(&alice).await;
    assert_eq!((all.len(), unread), (3, json!(2)));
    block(&alice, "bob").await;
    assert_eq!(inbox(&alice).await.0, std::slice::from_ref(&shared));
    // Adding the blocker to a group that they are in shows them, as it does anybody.
    let named =
        bob.data(&add, json!({"c": shared, "u": ["alice"]})).await["addParticipants"].clone();
    let edges = named["participantEdges"].as_array().unwrap();
    assert_eq!(edges[0]["node"]["user"]["username"], "alice");
    // The other way round nothing is in the way, and what she has answered stays.
    let theirs =
        alice.data(&create, json!({"u": ["bob"]})).await["createGroupConversation"]["conversation"]
            .clone();
    assert_eq!(users(&theirs), ["alice", "bob"]);
}

#[tokio::test]
async fn a_blocker_whom_the_blocked_user_removes_is_told() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = carol.group("shared", &["alice", "bob"]).await;
    let admin = "mutation($c: ID!) { setParticipantRole(input: {conversationId: $c, username: \"bob\", role: ADMIN}) { __typename } }";
    carol.data(admin, json!({"c": c})).await;
    alice.send(&c, "hi").await;
    block(&alice, "bob").await;
    let removed = "... on InboxEntryRemovedEvent { conversationId }";
    let document = format!(
        "subscription($a: String) {{ inboxUpdated(after: $a) {{ cursor event {{ __typename {removed} }} }} }}"
    );
    let mut device = alice.subscribe(&document, json!({}));
    let start = text(&device.next().await["inboxUpdated"]["cursor"]);
    let events =
        "subscription($c: ID!) { conversationEvents(conversationId: $c) { event { __typename
        ... on ParticipantRemovedEvent { user { username } } } } }";
    let mut events = alice.subscribe(events, json!({"c": c}));
    events.next().await;
    let remove = "mutation($c: ID!) { removeParticipant(input: {conversationId: $c, username: \"alice\"}) { __typename } }";
    bob.data(remove, json!({"c": c})).await;
    assert_eq!(
        events.next().await["conversationEvents"]["event"],
        json!({"__typename": "ParticipantRemovedEvent", "user": {"username": "alice"}})
    );
    let mut late = alice.subscribe(&document, json!({"a": start}));
    let removed = json!({"__typename": "InboxEntryRemovedEvent", "conversationId": c});
    for device in [&mut device, &mut late] {
        // A stream that is resumed on a cluster may repeat what lies just before its cursor.
        while device.next().await["inboxUpdated"]["event"] != removed {}
    }
}

#[tokio::test]
async fn a_direct_conversation_that_a_blocked_user_starts_is_hidden_from_the_start() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let blocked = block(&alice, "bob").await;
    assert_eq!(blocked["removedInboxEntryId"], Value::Null);
    let mut device = alice.subscribe(
        "subscription { inboxUpdated { event { __typename } } }",
        json!({}),
    );
    device.next().await;
    let c = bob.direct("alice").await;
    let sent = bob.send(&c, "hello").await;
    assert_eq!(inbox(&alice).await, (vec![], json!(0)));
    assert_eq!(status(&bob, &sent).await, "SENT");
    assert!(device.is_quiet());
    let document =
        "mutation { startDirectConversation(input: {username: \"bob\"}) { __typename } }";
    assert_eq!(alice.ask(document, json!({})).await.code(), "FORBIDDEN");
    let unblocked = unblock(&alice, "bob").await;
    let entry = &unblocked["inboxEntryEdge"]["node"];
    assert_eq!(entry["conversation"]["id"], c.as_str());
    assert_eq!(alice.direct("bob").await, c);
}

#[tokio::test]
async fn a_blocker_is_offline_for_the_blocked_user_who_has_no_presence_for_the_blocker() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    alice.send(&c, "hello").await;
    bob.send(&c, "hello").await;
    let mut online = [&alice, &bob]
        .map(|actor| actor.subscribe("subscription { inboxUpdated { cursor } }", json!({})));
    for stream in &mut online {
        stream.next().await;
    }
    let _guards = ["alice", "bob"].map(|name| {
        let user = wideroom::model::UserId::parse(name).unwrap();
        world.chat.presence.connect(&user)
    });
    let mut followed = bob.subscribe(PRESENCE, json!({"u": ["alice"]}));
    let state =
        async |stream: &mut Stream| stream.next().await["presenceChanged"]["presence"].clone();
    assert_eq!(state(&mut followed).await["isOnline"], true);
    assert_eq!(presence(&bob, &c).await, json!({"isOnline": true}));
    block(&alice, "bob").await;
    let offline = state(&mut followed).await;
    assert_eq!(offline["isOnline"], false, "offline, and not unknown");
    assert!(offline["lastSeenAt"].is_string());
    assert_eq!(presence(&bob, &c).await, json!({"isOnline": false}));
    let unknown = alice
        .data(
            "query($c: ID!) { conversation(id: $c) { directPeer { presence { isOnline } } } }",
            json!({"c": c}),
        )
        .await;
    assert_eq!(
        unknown["conversation"]["directPeer"]["presence"],
        Value::Null
    );
    unblock(&alice, "bob").await;
    assert_eq!(state(&mut followed).await["isOnline"], true);
}

#[tokio::test]
async fn blocked_users_are_listed_in_pages_the_newest_first() {
    let world = World::open().await;
    let alice = world.user("alice");
    for n in 0..5 {
        block(&alice, &format!("user{n}")).await;
    }
    unblock(&alice, "user2").await;
    let page = async |arguments: Value| {
        let data = alice.data(BLOCKED, arguments).await["blockedUsers"].clone();
        let edges = data["edges"].as_array().unwrap().clone();
        let names: Vec<_> = edges
            .iter()
            .map(|edge| text(&edge["node"]["username"]))
            .collect();
        let cursors: Vec<_> = edges.iter().map(|edge| text(&edge["cursor"])).collect();
        (names, cursors, data["pageInfo"].clone())
    };
    let (names, cursors, info) = page(json!({})).await;
    assert_eq!(names, ["user4", "user3", "user1", "user0"]);
    assert_eq!(
        info,
        json!({"hasNextPage": false, "hasPreviousPage": false})
    );
    let (names, _, info) = page(json!({"f": 2, "a": cursors[0]})).await;
    assert_eq!(names, ["user3", "user1"]);
    assert_eq!(info, json!({"hasNextPage": true, "hasPreviousPage": true}));
    let (names, _, info) = page(json!({"l": 1, "b": cursors[1]})).await;
    assert_eq!(names, ["user4"]);
    assert_eq!(info, json!({"hasNextPage": true, "hasPreviousPage": false}));
    let bob = world.user("bob");
    assert_eq!(
        bob.data(BLOCKED, json!({})).await["blockedUsers"]["edges"],
        json!([])
    );
    let foreign = bob.ask(BLOCKED, json!({"a": cursors[0]})).await;
    assert_eq!(foreign.code(), "BAD_USER_INPUT");
}

#[tokio::test]
async fn nobody_blocks_themselves_or_more_than_a_thousand() {
    let world = World::open().await;
    let alice = world.user("alice");
    for name in ["alice", "", "a\tb"] {
        for document in [BLOCK, UNBLOCK] {
            let refused = alice.ask(document, json!({"u": name})).await;
            assert_eq!(refused.code(), "BAD_USER_INPUT", "{name:?}");
            assert_eq!(
                refused.extensions()["inputPath"],
                json!(["input", "username"])
            );
        }
    }
    let user = wideroom::model::UserId::parse("alice").unwrap();
    let set = (0..999).map(|n| {
        let block = wideroom::model::Block {
            blocked: wideroom::model::UserId::parse(&format!("user{n:04}")).unwrap(),
            is_on: true,
            change: wideroom::model::ChangeId::new(
                wideroom::model::Timestamp::from_micros(1_700_000_000_000_000 + n),
                [0; 8],
            ),
        };
        let (store, user) = (&world.store, &user);
        async move { store.set_block(user, &block).await.unwrap() }
    });
    join_all(set).await;
    block(&alice, "the thousandth").await;
    let refused = alice.ask(BLOCK, json!({"u": "one more"})).await;
    assert_eq!(refused.code(), "CONFLICT");
    block(&alice, "user0000").await;
    unblock(&alice, "user0000").await;
    block(&alice, "one more").await;
}

#[tokio::test]
async fn a_subscriber_who_blocks_nobody_of_a_payload_shares_it() {
    let world = World::open().await;
    let [alice, bob, carol, dora] = ["alice", "bob", "carol", "dora"].map(|name| world.user(name));
    let c = carol.group("friends", &["alice", "bob", "dora"]).await;
    block(&alice, "bob").await;
    block(&dora, "alice").await;
    let document = "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body sender { viewerHasBlocked } } } } }";
    let mut streams =
        [&alice, &carol, &dora].map(|actor| actor.subscribe(document, json!({"c": c})));
    assert!(streams.iter_mut().all(|stream| stream.is_quiet()));
    bob.send(&c, "hello").await;
    let mut told = Vec::new();
    for stream in &mut streams {
        let (answer, is_shared) = stream.told().await;
        let node = answer.data()["messageAdded"]["messageEdge"]["node"].clone();
        told.push((node["sender"]["viewerHasBlocked"].clone(), is_shared));
    }
    // Dora blocks somebody else, so the shared payload is hers too.
    assert_eq!(
        told,
        [
            (json!(true), false),
            (json!(false), true),
            (json!(false), true)
        ]
    );
}

/// All that bob asks about alice and their conversations, without ids, cursors and times.
async fn view(bob: &Actor, direct: &str, group: &str) -> Vec<Value> {
    let questions = [
        ("query($c: ID!) { conversation(id: $c) { kind participantCount directPeer { username displayName viewerHasBlocked }
            participants { edges { node { role user { username } readUpTo { body } deliveredUpTo { body } } } }
            messages { edges { node { body status reactions { emoji count } receipts { edges { node { status user { username } } } } } } }
            inboxEntry { unreadCount isMuted } } }", direct),
        ("query($c: ID!) { conversation(id: $c) { participantCount
            messages { edges { node { body kind sender { username } } } } inboxEntry { unreadCount } } }", group),
        ("{ inbox { edges { node { unreadCount conversation { kind name } } } } blockedUsers { edges { node { username } } } }", direct),
    ];
    let mut answers = Vec::new();
    for (document, id) in questions {
        let variables = if document.contains("$c") {
            json!({"c": id})
        } else {
            json!({})
        };
        answers.push(bob.ask(document, variables).await.0);
    }
    for mutation in [
        "setTyping(input: {conversationId: $c, typing: true}) { conversation { kind } }",
        "sendMessage(input: {conversationId: $c, body: \"probe\"}) { messageEdge { node { body status } } inboxEntryEdge { node { unreadCount } } }",
        "markRead(input: {conversationId: $c}) { inboxEntry { unreadCount } }",
        "updateInboxEntry(input: {conversationId: $c, muted: true}) { inboxEntry { isMuted } }",
    ] {
        let document = format!("mutation($c: ID!) {{ {mutation} }}");
        answers.push(bob.ask(&document, json!({"c": direct})).await.0);
    }
    let start = "mutation { startDirectConversation(input: {username: \"alice\"}) { conversation { kind } } }";
    answers.push(bob.ask(start, json!({})).await.0);
    answers.extend(view_of_new_groups(bob).await);
    answers
}

/// All that bob asks about groups to which he adds alice.
async fn view_of_new_groups(bob: &Actor) -> Vec<Value> {
    let seen = "participantCount participants { edges { node { role isSilenced user { username viewerHasBlocked presence { isOnline } } readUpTo { body } deliveredUpTo { body } } } }
        messages { edges { node { body kind status sender { username } receipts { edges { node { status user { username } } } } } } }";
    let create = "mutation($u: [String!]!) { createGroupConversation(input: {name: \"new\", usernames: $u}) { conversation { id } } }";
    let mut answers = Vec::new();
    let mut groups = Vec::new();
    for usernames in [json!(["alice"]), json!(["erin"])] {
        let made = bob.data(create, json!({"u": usernames})).await;
        groups.push(text(&made["createGroupConversation"]["conversation"]["id"]));
    }
    let events =
        "subscription($c: ID!) { conversationEvents(conversationId: $c) { event { __typename } } }";
    for group in groups {
        let mut stream = bob.subscribe(events, json!({"c": group}));
        stream.next().await;
        for mutation in [
            "addParticipants(input: {conversationId: $c, usernames: [\"alice\", \"dave\"]}) { participantEdges { node { user { username } } } }",
            "sendMessage(input: {conversationId: $c, body: \"hello\", mentionedUsernames: [\"alice\"]}) { messageEdge { node { status } } }",
            "setParticipantRole(input: {conversationId: $c, username: \"alice\", role: ADMIN}) { participant { role user { username } } }",
        ] {
            let document = format!("mutation($c: ID!) {{ {mutation} }}");
            answers.push(bob.ask(&document, json!({"c": group})).await.0);
            answers.push(stream.next().await);
        }
        let document = format!("query($c: ID!) {{ conversation(id: $c) {{ {seen} }} }}");
        answers.push(bob.ask(&document, json!({"c": group})).await.0);
        let remove = "mutation($c: ID!) { removeParticipant(input: {conversationId: $c, username: \"alice\"}) { conversation { participantCount } } }";
        answers.push(bob.ask(remove, json!({"c": group})).await.0);
    }
    answers
}

#[tokio::test]
async fn the_answers_to_a_blocked_user_are_those_of_one_whose_peer_is_away() {
    let mut views = Vec::new();
    for is_blocking in [false, true] {
        let world = World::open().await;
        let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
        let direct = alice.direct("bob").await;
        let group = carol.group("friends", &["alice", "bob"]).await;
        alice.send(&direct, "hello").await;
        bob.send(&direct, "hi").await;
        alice.mark_read(&direct, None).await;
        bob.send(&group, "all").await;
        if is_blocking {
            block(&alice, "bob").await;
            // The blocker's acts show nothing.
            alice.mark_read(&direct, None).await;
            alice
                .mark_unread(&direct, &bob.send(&direct, "x").await.id)
                .await;
        } else {
            bob.send(&direct, "x").await;
        }
        views.push(view(&bob, &direct, &group).await);
    }
    assert_eq!(views[0], views[1]);
}
