//! Events of groups: in order, live and resumed, and never delivered to users who have left.

use serde_json::{Value, json};

use crate::support::world::{Actor, Answer, PATIENCE, Stream, World, text};

const EVENTS: &str =
    "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { cursor event { __typename
    ... on MessageAddedEvent { messageEdge { node { uuid body kind metadata } } }
    ... on ParticipantAddedEvent { participant { role user { username } } } ... on ParticipantRemovedEvent { user { username } }
    ... on RoleChangedEvent { participant { role user { username } } } ... on ConversationRenamedEvent { conversation { name } } } } }";
const ADDED: &str =
    "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body } } } }";
const UPDATED: &str = "subscription($after: String) { inboxUpdated(after: $after) { cursor event { __typename
    ... on InboxEntryChangedEvent { inboxEntryEdge { node { unreadCount conversation { id name } lastMessage { body kind } } } }
    ... on InboxEntryRemovedEvent { inboxEntryId conversationId } } } }";

async fn add(actor: &Actor, conversation: &str, usernames: &[&str]) {
    let document = "mutation($c: ID!, $u: [String!]!) { addParticipants(input: {conversationId: $c, usernames: $u}) { __typename } }";
    actor
        .data(document, json!({"c": conversation, "u": usernames}))
        .await;
}

async fn remove(actor: &Actor, conversation: &str, username: &str) {
    let document = "mutation($c: ID!, $u: String!) { removeParticipant(input: {conversationId: $c, username: $u}) { __typename } }";
    actor
        .data(document, json!({"c": conversation, "u": username}))
        .await;
}

async fn set_role(actor: &Actor, conversation: &str, username: &str, role: &str) {
    let document = "mutation($c: ID!, $u: String!, $r: ParticipantRole!) {
        setParticipantRole(input: {conversationId: $c, username: $u, role: $r}) { __typename } }";
    actor
        .data(
            document,
            json!({"c": conversation, "u": username, "r": role}),
        )
        .await;
}

async fn rename(actor: &Actor, conversation: &str, name: &str) {
    let document = "mutation($c: ID!, $n: String!) { renameConversation(input: {conversationId: $c, name: $n}) { __typename } }";
    actor
        .data(document, json!({"c": conversation, "n": name}))
        .await;
}

async fn leave(actor: &Actor, conversation: &str) -> Value {
    let document = "mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { leftConversationId removedInboxEntryId } }";
    actor.data(document, json!({"c": conversation})).await["leaveConversation"].clone()
}

/// Short form of an event.
fn short(event: &Value) -> String {
    let who = |user: &Value| text(&user["username"]);
    match text(&event["__typename"]).as_str() {
        "MessageAddedEvent" => match &event["messageEdge"]["node"] {
            node if node["kind"] == "SYSTEM" => {
                format!("says {}", text(&node["metadata"]["event"]))
            }
            node => format!("text {}", text(&node["body"])),
        },
        "ParticipantAddedEvent" => format!(
            "added {} {}",
            who(&event["participant"]["user"]),
            text(&event["participant"]["role"])
        ),
        "ParticipantRemovedEvent" => format!("removed {}", who(&event["user"])),
        "RoleChangedEvent" => format!(
            "role {} {}",
            who(&event["participant"]["user"]),
            text(&event["participant"]["role"])
        ),
        "ConversationRenamedEvent" => format!("renamed {}", text(&event["conversation"]["name"])),
        other => panic!("unknown: {other}"),
    }
}

/// The next so many events, without positions.
async fn events(stream: &mut Stream, count: usize) -> Vec<String> {
    let mut told = Vec::new();
    while told.len() < count {
        let payload = stream.next().await["conversationEvents"].clone();
        if !payload["event"].is_null() {
            told.push(short(&payload["event"]));
        }
    }
    told
}

#[tokio::test]
async fn changes_are_told_in_order_live_and_resumed() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("Phoenix", &["bob"]).await;
    let after = bob.events_cursor(&c).await;
    let mut live = bob.subscribe(EVENTS, json!({"c": c}));
    assert_eq!(
        live.next().await["conversationEvents"]["event"],
        Value::Null
    );
    alice.send(&c, "one").await;
    add(&alice, &c, &["dave", "carol"]).await;
    set_role(&alice, &c, "carol", "ADMIN").await;
    rename(&alice, &c, "Griffin").await;
    leave(&world.user("dave"), &c).await;
    remove(&alice, &c, "carol").await;
    add(&alice, &c, &["carol"]).await;
    leave(&alice, &c).await;
    let (told, again) = (
        events(&mut live, 17).await,
        events(
            &mut bob.subscribe(EVENTS, json!({"c": c, "after": after})),
            17,
        )
        .await,
    );
    // Each event in its place. Live it shows its own moment, resumed the present state, also of one who left.
    let expected = [
        ("text one", "text one"),
        ("added carol MEMBER", "added carol MEMBER"),
        ("added dave MEMBER", "added dave MEMBER"),
        ("says joined", "says joined"),
        ("role carol ADMIN", "role carol MEMBER"),
        ("says roleChanged", "says roleChanged"),
        ("renamed Griffin", "renamed Griffin"),
        ("says renamed", "says renamed"),
        ("removed dave", "removed dave"),
        ("says left", "says left"),
        ("removed carol", "removed carol"),
        ("says removed", "says removed"),
        ("added carol MEMBER", "added carol MEMBER"),
        ("says joined", "says joined"),
        ("removed alice", "removed alice"),
        ("role bob OWNER", "role bob OWNER"),
        ("says left", "says left"),
    ];
    let expect =
        |live: bool| expected.map(|(now, later)| if live { now } else { later }.to_owned());
    assert_eq!(again, expect(false));
    let names = |told: &[String]| {
        told.iter()
            .map(|one| one.replace("ADMIN", "_").replace("MEMBER", "_"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&told),
        names(&expect(true)),
        "read when it is looked at, so a role may be a later one"
    );
    assert!(live.is_quiet());
}

/// A removal ends the streams of the conversation: its own event first, and nothing of what follows.
#[tokio::test]
async fn a_removed_user_receives_the_removal_and_nothing_more() {
    for crowd in [0, 40] {
        let world = World::open().await;
        let (alice, bob) = (world.user("alice"), world.user("bob"));
        let others: Vec<_> = (0..crowd)
            .map(|i| format!("user-{i}"))
            .chain(["bob".to_owned()])
            .collect();
        let c = alice
            .group(
                "Phoenix",
                &others.iter().map(String::as_str).collect::<Vec<_>>(),
            )
            .await;
        let after = bob.events_cursor(&c).await;
        let (mut live, mut messages) = (
            bob.subscribe(EVENTS, json!({"c": c})),
            bob.subscribe(ADDED, json!({"c": c})),
        );
        let mut inbox = bob.subscribe(UPDATED, json!({}));
        let start = inbox.next().await["inboxUpdated"]["cursor"].clone();
        assert_eq!(
            live.next().await["conversationEvents"]["event"],
            Value::Null
        );
        assert!(messages.is_quiet());
        alice.send(&c, "to bob").await;
        assert_eq!(events(&mut live, 1).await, ["text to bob"]);
        assert_eq!(
            messages.next().await["messageAdded"]["messageEdge"]["node"]["body"],
            "to bob"
        );
        assert_eq!(
            inbox.next().await["inboxUpdated"]["event"]["__typename"],
            "InboxEntryChangedEvent"
        );
        let entry = bob
            .data(
                "query($c: ID!) { conversation(id: $c) { inboxEntry { id } } }",
                json!({"c": c}),
            )
            .await;
        let entry = entry["conversation"]["inboxEntry"]["id"].clone();

        remove(&alice, &c, "bob").await;
        alice.send(&c, "not to bob").await;
        assert_eq!(events(&mut live, 1).await, ["removed bob"]);
        assert!(live.has_ended().await && messages.has_ended().await);
        let removed = json!({"__typename": "InboxEntryRemovedEvent", "inboxEntryId": entry, "conversationId": c});
        assert_eq!(inbox.next().await["inboxUpdated"]["event"], removed);
        assert!(
            inbox.is_quiet(),
            "what is sent without them is not theirs to know"
        );
        let direct = alice.direct("bob").await;
        let news = inbox.next().await["inboxUpdated"]["event"]["inboxEntryEdge"]["node"]["conversation"]["id"].clone();
        assert_eq!(news, json!(direct), "the inbox goes on");

        for document in [EVENTS, ADDED] {
            assert_eq!(
                bob.subscribe(document, json!({"c": c, "after": after}))
                    .answer()
                    .await
                    .code(),
                "NOT_FOUND"
            );
        }
        let mut resumed = bob.subscribe(UPDATED, json!({"after": start}));
        assert_eq!(resumed.next().await["inboxUpdated"]["event"], Value::Null);
        assert_eq!(resumed.next().await["inboxUpdated"]["event"], removed);
        assert_eq!(
            resumed.next().await["inboxUpdated"]["event"]["__typename"],
            "InboxEntryChangedEvent"
        );
        assert!(resumed.is_quiet());
    }
}

#[tokio::test]
async fn a_user_who_leaves_receives_the_end_of_the_stream() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("Phoenix", &["bob"]).await;
    let mut live = bob.subscribe(EVENTS, json!({"c": c}));
    live.next().await;
    let entry = bob
        .data(
            "query($c: ID!) { conversation(id: $c) { inboxEntry { id } } }",
            json!({"c": c}),
        )
        .await;
    let left = leave(&bob, &c).await;
    assert_eq!(
        left,
        json!({"leftConversationId": c, "removedInboxEntryId": entry["conversation"]["inboxEntry"]["id"]})
    );
    assert_eq!(events(&mut live, 1).await, ["removed bob"]);
    assert!(live.has_ended().await);
}

/// A stream that lags behind its own removal reads the store, and ends there all the same.
#[tokio::test]
async fn a_lagging_stream_of_a_removed_user_receives_no_later_events() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("Phoenix", &["bob"]).await;
    let (mut live, mut messages) = (
        bob.subscribe(EVENTS, json!({"c": c})),
        bob.subscribe(ADDED, json!({"c": c})),
    );
    live.next().await;
    assert!(messages.is_quiet());
    remove(&alice, &c, "bob").await;
    for i in 0..wideroom::bus::TOPIC_NOTICES_MAX + 10 {
        alice.send(&c, &i.to_string()).await;
    }
    assert_eq!(events(&mut live, 1).await, ["removed bob"]);
    assert!(live.has_ended().await && messages.has_ended().await);
}

#[tokio::test]
async fn a_stream_resumed_over_ones_own_absence_goes_on() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("Phoenix", &["bob"]).await;
    let after = bob.events_cursor(&c).await;
    remove(&alice, &c, "bob").await;
    alice.send(&c, "meanwhile").await;
    add(&alice, &c, &["bob"]).await;
    let mut resumed = bob.subscribe(EVENTS, json!({"c": c, "after": after}));
    let expected = [
        "removed bob",
        "says removed",
        "text meanwhile",
        "added bob MEMBER",
        "says joined",
    ];
    assert_eq!(
        events(&mut resumed, 5).await,
        expected,
        "who returns sees all of it"
    );
    alice.send(&c, "and on").await;
    assert_eq!(events(&mut resumed, 1).await, ["text and on"]);
}

#[tokio::test]
async fn inboxes_follow_joins_names_and_growth() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let mut inbox = bob.subscribe(UPDATED, json!({}));
    inbox.next().await;
    let names: Vec<_> = (0..40).map(|i| format!("user-{i:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let c = alice.group("Phoenix", &names[..20]).await;
    let node = |payload: &Value| payload["inboxUpdated"]["event"]["inboxEntryEdge"]["node"].clone();
    add(&alice, &c, &["bob"]).await;
    let joined = node(&inbox.next().await);
    assert_eq!(
        (&joined["conversation"]["id"], &joined["unreadCount"]),
        (&json!(c), &json!(0))
    );
    assert_eq!(joined["lastMessage"]["kind"], "SYSTEM");
    rename(&alice, &c, "Griffin").await;
    assert_eq!(node(&inbox.next().await)["conversation"]["name"], "Griffin");
    // From here on what is sent is told to the conversation alone: the stream must listen there.
    add(&alice, &c, &names[20..]).await;
    assert_eq!(node(&inbox.next().await)["lastMessage"]["kind"], "SYSTEM");
    alice.send(&c, "to all").await;
    let sent = node(&inbox.next().await);
    assert_eq!(
        (&sent["lastMessage"]["body"], &sent["unreadCount"]),
        (&json!("to all"), &json!(1))
    );
    // One who joins a large one listens to it from then on.
    let mut late = world.user("late").subscribe(UPDATED, json!({}));
    late.next().await;
    add(&alice, &c, &["late"]).await;
    assert_eq!(node(&late.next().await)["unreadCount"], 0);
    alice.send(&c, "to late").await;
    assert_eq!(node(&late.next().await)["lastMessage"]["body"], "to late");
}

/// Sends that waited behind a removal: they are answered as a stranger's, and none of them stands in history after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_said_by_one_who_was_removed() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("Phoenix", &["bob"]).await;
    let document = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"x\"}) { __typename } }";
    let mut have_waited = false;
    let mut rounds = 0;
    // Whether a send comes into the midst of the removal is left to chance.
    while rounds < 5 || (!have_waited && rounds < 200) {
        rounds += 1;
        let sends =
            || futures_util::future::join_all((0..20).map(|_| bob.ask(document, json!({"c": c}))));
        let (first, (), then) = tokio::join!(sends(), remove(&alice, &c, "bob"), sends());
        let answers = [first, then].concat();
        // One that was kept just before the removal may be answered after it: its outcome is UNKNOWN to who is not there any more.
        let was_refused =
            |answer: &Answer| !answer.has_data() && answer.extensions()["outcome"].is_null();
        let refused = answers
            .iter()
            .filter(|answer| was_refused(answer))
            .inspect(|answer| assert_eq!(answer.code(), "NOT_FOUND"));
        let refused = refused.count();
        have_waited |= refused > 0;
        let sent = answers.len() - refused;
        let history = whole_history(&alice, &c).await;
        let removal = history
            .iter()
            .rposition(|(_, kind, _)| kind == "SYSTEM")
            .unwrap();
        assert_eq!(history.len(), removal + 1, "nothing comes after it");
        let before = history[..removal]
            .iter()
            .rev()
            .take_while(|(_, kind, _)| kind == "TEXT")
            .count();
        assert_eq!(before, sent, "what was not refused is there");
        add(&alice, &c, &["bob"]).await;
    }
    assert!(have_waited, "none was sent while the removal was under way");
}

/// Some send while others come and go: nobody who is there misses anything, and a resumed stream tells what the store holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comings_and_goings_among_sends_miss_nobody() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.group("busy", &["bob"]).await;
    let start = alice.events_cursor(&c).await;
    let comers = ["carol", "dave", "erin", "frank"];
    let sends = ["alice", "bob"].map(|name| {
        let (actor, c) = (world.user(name), &c);
        async move {
            for i in 0..60 {
                actor.send(c, &format!("{name} {i}")).await;
            }
        }
    });
    let turns = comers.map(|name| {
        let (alice, actor, c) = (world.user("alice"), world.user(name), &c);
        async move {
            for round in 0..6 {
                add(&alice, c, &[name]).await;
                if round % 2 == 0 {
                    leave(&actor, c).await
                } else {
                    Value::Null
                };
                if round % 2 == 1 {
                    let sent = actor.send(c, &format!("{name} in {round}")).await;
                    actor.mark_read(c, Some(&sent.id)).await;
                }
            }
        }
    });
    let all = async {
        tokio::join!(
            futures_util::future::join_all(sends),
            futures_util::future::join_all(turns)
        )
    };
    tokio::time::timeout(PATIENCE * 3, all).await.unwrap();
    let last = alice.send(&c, "last").await;

    let document =
        "query($c: ID!) { conversation(id: $c) { messageCount participantCount lastMessage { uuid }
        inboxEntry { unreadCount lastMessage { uuid } readUpTo { uuid } } } }";
    let history = whole_history(&alice, &c).await;
    for name in ["alice", "bob"].into_iter().chain(comers) {
        let actor = world.user(name);
        let conversation = actor.data(document, json!({"c": c})).await["conversation"].clone();
        assert_eq!(conversation["participantCount"], 6);
        assert_eq!(conversation["messageCount"], json!(history.len()));
        let entry = &conversation["inboxEntry"];
        assert_eq!(entry["lastMessage"]["uuid"], json!(last.uuid), "{name}");
        let after = history
            .iter()
            .position(|(uuid, ..)| json!(uuid) == entry["readUpTo"]["uuid"])
            .map_or(0, |place| place + 1);
        let unread = history[after..]
            .iter()
            .filter(|(_, kind, sender)| kind == "TEXT" && sender != name)
            .count();
        assert_eq!(entry["unreadCount"], json!(unread.min(99)), "{name}");
    }
    let mut resumed = alice.subscribe(EVENTS, json!({"c": c, "after": start}));
    let mut seen = Vec::new();
    while seen.len() < history.len() {
        let payload = resumed.next().await["conversationEvents"]["event"].clone();
        if payload["__typename"] == "MessageAddedEvent" {
            seen.push(text(&payload["messageEdge"]["node"]["uuid"]));
        }
    }
    assert_eq!(
        seen,
        history
            .into_iter()
            .map(|(uuid, ..)| uuid)
            .collect::<Vec<_>>()
    );
}

/// Id, kind and sender of each message, the oldest first.
async fn whole_history(actor: &Actor, conversation: &str) -> Vec<(String, String, String)> {
    let document = "query($c: ID!, $b: String) { conversation(id: $c) { messages(last: 100, before: $b) {
        edges { node { uuid kind sender { username } } } pageInfo { hasPreviousPage startCursor } } } }";
    let (mut history, mut before) = (Vec::new(), Value::Null);
    loop {
        let data = actor
            .data(document, json!({"c": conversation, "b": before}))
            .await;
        let page = &data["conversation"]["messages"];
        let nodes = page["edges"]
            .as_array()
            .unwrap()
            .iter()
            .rev()
            .map(|edge| &edge["node"]);
        history.extend(nodes.map(|node| {
            (
                text(&node["uuid"]),
                text(&node["kind"]),
                text(&node["sender"]["username"]),
            )
        }));
        if page["pageInfo"]["hasPreviousPage"] == false {
            return history;
        }
        before = page["pageInfo"]["startCursor"].clone();
    }
}
