//! Groups: who may do what, what becomes of it, and what is told of it.

use serde_json::{Value, json};
use wideroom::chat::Bounds;

use crate::support::door::Door;
use crate::support::world::{Actor, Answer, World, node_texts, text};

const ADD: &str =
    "mutation($c: ID!, $u: [String!]!) { addParticipants(input: {conversationId: $c, usernames: $u}) {
    conversation { participantCount } participantEdges { cursor node { id role user { username } } } } }";
const REMOVE: &str = "mutation($c: ID!, $u: String!) { removeParticipant(input: {conversationId: $c, username: $u}) {
    removedParticipantId conversation { participantCount } } }";
const ROLE: &str =
    "mutation($c: ID!, $u: String!, $r: ParticipantRole!) { setParticipantRole(input: {conversationId: $c, username: $u, role: $r}) {
    participant { role user { username } } } }";
const RENAME: &str = "mutation($c: ID!, $n: String!) { renameConversation(input: {conversationId: $c, name: $n}) { conversation { id name } } }";
const LEAVE: &str = "mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { leftConversationId removedInboxEntryId } }";

async fn add(actor: &Actor, conversation: &str, usernames: &[&str]) -> Answer {
    actor
        .ask(ADD, json!({"c": conversation, "u": usernames}))
        .await
}

async fn remove(actor: &Actor, conversation: &str, username: &str) -> Answer {
    actor
        .ask(REMOVE, json!({"c": conversation, "u": username}))
        .await
}

async fn set_role(actor: &Actor, conversation: &str, username: &str, role: &str) -> Answer {
    actor
        .ask(ROLE, json!({"c": conversation, "u": username, "r": role}))
        .await
}

async fn rename(actor: &Actor, conversation: &str, name: &str) -> Answer {
    actor
        .ask(RENAME, json!({"c": conversation, "n": name}))
        .await
}

async fn leave(actor: &Actor, conversation: &str) -> Answer {
    actor.ask(LEAVE, json!({"c": conversation})).await
}

/// Names and roles, such as `alice OWNER`.
async fn people(actor: &Actor, conversation: &str) -> Vec<String> {
    let document = "query($c: ID!) { conversation(id: $c) { participants(first: 100) { edges { node { role user { username } } } } } }";
    let data = actor.data(document, json!({"c": conversation})).await;
    let edges = data["conversation"]["participants"]["edges"]
        .as_array()
        .unwrap()
        .clone();
    edges
        .iter()
        .map(|edge| {
            format!(
                "{} {}",
                text(&edge["node"]["user"]["username"]),
                text(&edge["node"]["role"])
            )
        })
        .collect()
}

/// Contents of the SYSTEM messages, oldest first.
async fn told(actor: &Actor, conversation: &str) -> Vec<Value> {
    let document = "query($c: ID!) { conversation(id: $c) { messages(first: 100) { edges { node { kind body metadata sender { username } } } } } }";
    let data = actor.data(document, json!({"c": conversation})).await;
    let edges = data["conversation"]["messages"]["edges"]
        .as_array()
        .unwrap()
        .clone();
    let system = edges
        .iter()
        .rev()
        .map(|edge| &edge["node"])
        .filter(|node| node["kind"] == "SYSTEM");
    system
        .map(|node| json!([node["sender"]["username"], node["metadata"]]))
        .collect()
}

/// alice OWNER, bob ADMIN, carol and dave MEMBER.
async fn group(world: &World) -> String {
    let alice = world.user("alice");
    let c = alice.group("Phoenix", &["bob", "carol", "dave"]).await;
    set_role(&alice, &c, "bob", "ADMIN").await.data();
    c
}

#[tokio::test]
async fn each_role_may_what_is_written() {
    let world = World::open().await;
    let c = group(&world).await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    for refused in [
        add(&carol, &c, &["eve"]).await,
        remove(&carol, &c, "dave").await,
        rename(&carol, &c, "Griffin").await,
        set_role(&carol, &c, "carol", "OWNER").await,
        set_role(&bob, &c, "carol", "ADMIN").await,
        set_role(&bob, &c, "bob", "OWNER").await,
        remove(&bob, &c, "alice").await,
    ] {
        assert_eq!(refused.code(), "FORBIDDEN");
    }
    assert_eq!(
        people(&carol, &c).await,
        ["alice OWNER", "bob ADMIN", "carol MEMBER", "dave MEMBER"],
        "nothing of it was done"
    );
    rename(&bob, &c, "Griffin").await.data();
    add(&bob, &c, &["eve"]).await.data();
    remove(&bob, &c, "dave").await.data();
    set_role(&alice, &c, "eve", "ADMIN").await.data();
    assert_eq!(
        remove(&bob, &c, "eve").await.code(),
        "FORBIDDEN",
        "one ADMIN does not remove another"
    );
    let carol_s = carol.send(&c, "oops").await;
    let delete = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { body } } }";
    bob.data(delete, json!({"m": carol_s.id})).await;
    remove(&alice, &c, "eve").await.data();
    remove(&alice, &c, "bob").await.data();
    assert_eq!(people(&carol, &c).await, ["alice OWNER", "carol MEMBER"]);
    leave(&carol, &c).await.data();
    assert_eq!(people(&alice, &c).await, ["alice OWNER"]);
}

#[tokio::test]
async fn to_a_stranger_there_is_no_group() {
    let world = World::open().await;
    let c = group(&world).await;
    let (mallory, dave) = (world.user("mallory"), world.user("dave"));
    leave(&dave, &c).await.data();
    for actor in [&mallory, &dave] {
        for answer in [
            add(actor, &c, &["mallory"]).await,
            remove(actor, &c, "carol").await,
            rename(actor, &c, "Mine").await,
            set_role(actor, &c, "mallory", "OWNER").await,
            leave(actor, &c).await,
            leave(actor, "nonsense").await,
        ] {
            assert_eq!(answer.code(), "NOT_FOUND");
        }
    }
    assert_eq!(
        add(&world.nobody(), &c, &["mallory"]).await.code(),
        "UNAUTHENTICATED"
    );
}

#[tokio::test]
async fn a_direct_conversation_is_no_group() {
    let world = World::open().await;
    let alice = world.user("alice");
    for c in [alice.direct("bob").await, alice.direct("alice").await] {
        for answer in [
            add(&alice, &c, &["carol"]).await,
            remove(&alice, &c, "bob").await,
            rename(&alice, &c, "Us").await,
            set_role(&alice, &c, "bob", "OWNER").await,
            leave(&alice, &c).await,
        ] {
            assert_eq!(answer.code(), "BAD_USER_INPUT");
            assert_eq!(
                answer.extensions()["inputPath"],
                json!(["input", "conversationId"])
            );
        }
    }
}

#[tokio::test]
async fn bad_inputs_are_named() {
    let world = World::open().await;
    let c = group(&world).await;
    let alice = world.user("alice");
    let many: Vec<_> = (0..51).map(|i| format!("user-{i}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    for (answer, path) in [
        (add(&alice, &c, &many).await, "usernames"),
        (add(&alice, &c, &["eve", ""]).await, "usernames"),
        (add(&alice, &c, &[]).await, "usernames"),
        (remove(&alice, &c, "").await, "username"),
        (remove(&alice, &c, "alice").await, "username"),
        (rename(&alice, &c, " ").await, "name"),
        (rename(&alice, &c, &"x".repeat(257)).await, "name"),
        (set_role(&alice, &c, "bell\u{7}", "ADMIN").await, "username"),
        (set_role(&alice, &c, "alice", "ADMIN").await, "role"),
    ] {
        assert_eq!(answer.code(), "BAD_USER_INPUT");
        assert_eq!(answer.extensions()["inputPath"], json!(["input", path]));
    }
    assert_eq!(
        set_role(&alice, &c, "eve", "ADMIN").await.code(),
        "NOT_FOUND",
        "she is not in it"
    );
    assert_eq!(told(&alice, &c).await.len(), 1, "only bob's role");
}

#[tokio::test]
async fn a_change_without_effect_publishes_nothing() {
    let world = World::open().await;
    let c = group(&world).await;
    let alice = world.user("alice");
    let count = told(&alice, &c).await.len();
    let added = add(&alice, &c, &["carol", "bob", "carol"]).await.data()["addParticipants"].clone();
    let names = node_texts(&added["participantEdges"], "/user/username");
    assert_eq!(names, ["bob", "carol"]);
    assert_eq!(
        remove(&alice, &c, "stranger").await.data()["removeParticipant"]["removedParticipantId"],
        Value::Null
    );
    rename(&alice, &c, "Phoenix").await.data();
    set_role(&alice, &c, "bob", "ADMIN").await.data();
    set_role(&alice, &c, "alice", "OWNER").await.data();
    assert_eq!(told(&alice, &c).await.len(), count);
    let first = remove(&alice, &c, "carol").await.data();
    assert!(first["removeParticipant"]["removedParticipantId"].is_string());
    assert_eq!(
        remove(&alice, &c, "carol").await.data(),
        first,
        "the same answer again"
    );
    assert_eq!(told(&alice, &c).await.len(), count + 1);
}

#[tokio::test]
async fn history_says_what_happened() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.group("Phoenix", &["bob", "carol"]).await;
    assert!(
        told(&alice, &c).await.is_empty(),
        "nothing says that it was made"
    );
    add(&alice, &c, &["eve", "dave", "bob"]).await.data();
    rename(&alice, &c, "Griffin").await.data();
    set_role(&alice, &c, "bob", "ADMIN").await.data();
    remove(&bob, &c, "carol").await.data();
    leave(&world.user("dave"), &c).await.data();
    let expected = [
        json!(["alice", {"event": "joined", "usernames": ["dave", "eve"]}]),
        json!(["alice", {"event": "renamed", "usernames": [], "name": "Griffin"}]),
        json!(["alice", {"event": "roleChanged", "usernames": ["bob"], "role": "ADMIN"}]),
        json!(["bob", {"event": "removed", "usernames": ["carol"]}]),
        json!(["dave", {"event": "left", "usernames": ["dave"]}]),
    ];
    assert_eq!(told(&alice, &c).await, expected);
    let document = "query($c: ID!) { conversation(id: $c) { name messageCount lastMessage { id kind body metadata createdAt }
        inboxEntry { unreadCount lastActivityAt readUpTo { id } } } }";
    for (actor, read_up_to) in [(&alice, Value::Null), (&bob, Value::Null)] {
        let conversation = actor.data(document, json!({"c": c})).await["conversation"].clone();
        assert_eq!(
            (&conversation["name"], &conversation["messageCount"]),
            (&json!("Griffin"), &json!(5))
        );
        let last = &conversation["lastMessage"];
        assert_eq!(
            (&last["kind"], &last["body"], &last["metadata"]["event"]),
            (&json!("SYSTEM"), &json!(""), &json!("left"))
        );
        let entry = &conversation["inboxEntry"];
        assert_eq!(
            (&entry["unreadCount"], &entry["readUpTo"]),
            (&json!(0), &read_up_to),
            "never unread, and it moves no marker"
        );
        assert_eq!(entry["lastActivityAt"], last["createdAt"]);
        let edit = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }";
        assert_eq!(
            actor.ask(edit, json!({"m": last["id"]})).await.code(),
            "FORBIDDEN",
            "it happened"
        );
    }
}

#[tokio::test]
async fn a_user_who_joins_or_rejoins_sees_the_history_and_has_nothing_unread() {
    let world = World::open().await;
    let (alice, eve) = (world.user("alice"), world.user("eve"));
    let c = alice.group("Phoenix", &["bob"]).await;
    for body in ["one", "two"] {
        alice.send(&c, body).await;
    }
    let document = "query($c: ID!) { conversation(id: $c) { messageCount messages(last: 100) { edges { node { body } } }
        inboxEntry { unreadCount firstUnreadMessage { id } } } inboxSummary { unreadConversationCount } }";
    let mut count = 2;
    for _ in 0..2 {
        add(&alice, &c, &["eve"]).await.data();
        let data = eve.data(document, json!({"c": c})).await;
        let conversation = &data["conversation"];
        assert_eq!(conversation["messageCount"], count + 1);
        assert_eq!(
            conversation["messages"]["edges"].as_array().unwrap().len(),
            count + 1
        );
        assert_eq!(
            conversation["inboxEntry"],
            json!({"unreadCount": 0, "firstUnreadMessage": null})
        );
        assert_eq!(data["inboxSummary"]["unreadConversationCount"], 0);
        let missed = alice.send(&c, "for all").await;
        assert_eq!(eve.unread(&c).await, 1);
        eve.mark_unread(&c, &missed.id).await;
        leave(&eve, &c).await.data();
        assert_eq!(
            eve.data(document, json!({"c": c})).await["conversation"],
            Value::Null
        );
        alice.send(&c, "without her").await;
        count += 4;
    }
}

#[tokio::test]
async fn a_group_is_never_without_an_owner() {
    let world = World::open().await;
    let [alice, bob, carol, dave] = ["alice", "bob", "carol", "dave"].map(|name| world.user(name));
    let c = group(&world).await;
    leave(&alice, &c).await.data();
    assert_eq!(
        people(&bob, &c).await,
        ["bob OWNER", "carol MEMBER", "dave MEMBER"],
        "the oldest ADMIN"
    );
    add(&bob, &c, &["alice"]).await.data();
    assert_eq!(
        people(&bob, &c).await,
        ["alice MEMBER", "bob OWNER", "carol MEMBER", "dave MEMBER"],
        "a role is not kept"
    );
    leave(&bob, &c).await.data();
    assert_eq!(
        people(&carol, &c).await,
        ["alice MEMBER", "carol OWNER", "dave MEMBER"],
        "the oldest participant"
    );
    set_role(&carol, &c, "dave", "OWNER").await.data();
    set_role(&dave, &c, "carol", "MEMBER").await.data();
    assert_eq!(
        set_role(&dave, &c, "dave", "MEMBER").await.code(),
        "BAD_USER_INPUT"
    );
    leave(&alice, &c).await.data();
    leave(&dave, &c).await.data();
    assert_eq!(people(&carol, &c).await, ["carol OWNER"]);
    assert_eq!(
        set_role(&carol, &c, "carol", "ADMIN").await.code(),
        "BAD_USER_INPUT",
        "alone, too"
    );
    leave(&carol, &c).await.data();
    assert_eq!(
        carol
            .data(
                "query($c: ID!) { conversation(id: $c) { id } }",
                json!({"c": c})
            )
            .await["conversation"],
        Value::Null
    );
}

async fn by_service(world: &World, field: &str, username: &str) {
    let door = Door::of(&world.chat);
    let document =
        format!("mutation($u: String!) {{ {field}(input: {{username: $u}}) {{ __typename }} }}");
    let said = door
        .ask(&door.service(), &document, &json!({"u": username}))
        .await;
    assert!(said.json().get("errors").is_none(), "{said:?}");
}

#[tokio::test]
async fn a_suspended_user_inherits_no_group() {
    let world = World::open().await;
    let [alice, bob, carol, dave] = ["alice", "bob", "carol", "dave"].map(|name| world.user(name));
    let c = group(&world).await;
    by_service(&world, "suspendUser", "bob").await;
    leave(&alice, &c).await.data();
    let left = ["bob ADMIN", "carol OWNER", "dave MEMBER"];
    assert_eq!(people(&carol, &c).await, left, "the oldest active one");
    by_service(&world, "restoreUser", "bob").await;
    assert_eq!(people(&bob, &c).await, left);
    // A suspended user inherits where nobody else is left.
    for username in ["bob", "dave"] {
        by_service(&world, "suspendUser", username).await;
    }
    assert_eq!(
        set_role(&carol, &c, "carol", "MEMBER").await.code(),
        "BAD_USER_INPUT"
    );
    leave(&carol, &c).await.data();
    by_service(&world, "restoreUser", "dave").await;
    assert_eq!(people(&dave, &c).await, ["bob OWNER", "dave MEMBER"]);
}

/// A group whose lines name no OWNER.
const WITHOUT_OWNER: &[u8] = br#"{"type":"user","username":"alice"}
{"type":"user","username":"bob"}
{"type":"user","username":"carol"}
{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440009","kind":"GROUP","name":"We","createdAt":"2026-03-14T14:30:00Z","participants":[{"username":"alice"},{"username":"bob"},{"username":"carol"}]}
"#;

#[tokio::test]
async fn an_heir_by_the_rule_alone_who_is_suspended_makes_room() {
    let world = World::with_import(WITHOUT_OWNER).await;
    let [bob, carol] = ["bob", "carol"].map(|name| world.user(name));
    let inbox = "{ inbox { edges { node { conversation { id } } } } }";
    let data = bob.data(inbox, json!({})).await;
    let c = text(&data["inbox"]["edges"][0]["node"]["conversation"]["id"]);
    let all = ["alice OWNER", "bob MEMBER", "carol MEMBER"];
    assert_eq!(people(&bob, &c).await, all, "by the rule");
    by_service(&world, "suspendUser", "alice").await;
    // The next active participant is written as OWNER.
    rename(&bob, &c, "ours").await.data();
    assert_eq!(rename(&carol, &c, "mine").await.code(), "FORBIDDEN");
    by_service(&world, "restoreUser", "alice").await;
    let all = ["alice MEMBER", "bob OWNER", "carol MEMBER"];
    assert_eq!(people(&bob, &c).await, all, "nothing changes back");
}

#[tokio::test]
async fn an_imported_group_without_an_owner_has_one() {
    let world = World::with_sample().await;
    let alice = world.user("alice");
    let inbox =
        "{ inbox(first: 100, filter: {kind: GROUP}) { edges { node { conversation { id } } } } }";
    let data = alice.data(inbox, json!({})).await;
    let c = text(&data["inbox"]["edges"][0]["node"]["conversation"]["id"]);
    let before = people(&alice, &c).await;
    let owner = before
        .iter()
        .find_map(|one| one.strip_suffix(" OWNER"))
        .expect("one of them is")
        .to_owned();
    let owner_s = world.user(&owner);
    // The role is not lost by making somebody else an ADMIN.
    let other = before
        .iter()
        .find_map(|one| one.strip_suffix(" MEMBER"))
        .unwrap()
        .to_owned();
    set_role(&owner_s, &c, &other, "ADMIN").await.data();
    let after = people(&alice, &c).await;
    assert!(
        after.contains(&format!("{owner} OWNER")) && after.contains(&format!("{other} ADMIN")),
        "{after:?}"
    );
}

#[tokio::test]
async fn groups_grow_large_within_their_bounds() {
    let world = World::with_bounds(Bounds {
        large_conversations_max: 1,
        ..Bounds::default()
    })
    .await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let names: Vec<_> = (0..40).map(|i| format!("user-{i:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let c = alice.group("small", &names[..31]).await;
    alice.send(&c, "to 32").await;
    let count = add(&alice, &c, &names[31..39]).await.data()["addParticipants"]["conversation"]["participantCount"].clone();
    assert_eq!(count, 40);
    world
        .user("user-39")
        .send(&alice.group("other", &["user-39"]).await, "x")
        .await;
    let sent = world.user("user-35").send(&c, "to 40").await;
    for name in ["alice", "user-00", "user-38"] {
        let data = world
            .user(name)
            .data(
                "{ inbox { edges { node { lastMessage { uuid } conversation { id } } } } }",
                json!({}),
            )
            .await;
        let entries = data["inbox"]["edges"].as_array().unwrap().clone();
        let entry = entries
            .iter()
            .find(|edge| edge["node"]["conversation"]["id"] == json!(c))
            .expect("it is in the inbox");
        assert_eq!(
            entry["node"]["lastMessage"]["uuid"],
            json!(sent.uuid),
            "{name}"
        );
        assert_eq!(
            world.user(name).unread(&c).await,
            if name == "user-38" {
                1
            } else {
                1 + i64::from(name != "alice")
            }
        );
    }
    let full = bob.group("full", &["user-39"]).await;
    let small = bob.group("nearly large", &names[..31]).await;
    // One of them has acted in a large conversation already, which is the most, and in this one, which would be the second.
    for conversation in [&c, &small] {
        world.user("user-05").send(conversation, "Hello").await;
    }
    for (c, who) in [(&small, ["user-39", "eve"].as_slice())] {
        let answer = add(&bob, c, who).await;
        assert_eq!(
            (answer.code().as_str(), &answer.extensions()["inputPath"]),
            ("BAD_USER_INPUT", &json!(["input", "usernames"]))
        );
    }
    add(&bob, &full, &names[..3]).await.data();
    assert_eq!(
        people(&bob, &full).await.len(),
        5,
        "a small one is no matter"
    );
}
