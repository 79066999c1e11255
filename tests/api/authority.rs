//! A service under its own name: it governs every conversation as an OWNER does, and acts in those where it takes part.

use serde_json::{Value, json};

use crate::support::door::{Badge, Door, SERVICE};
use crate::support::world::{World, text};

const RENAME: &str = "mutation($c: ID!) { renameConversation(input: {conversationId: $c, name: \"Moved\"}) { conversation { name } } }";
const ADD: &str = "mutation($c: ID!, $u: String!) { addParticipants(input: {conversationId: $c, usernames: [$u]}) {
    participantEdges { node { role user { username } } } conversation { participantCount } } }";
const REMOVE: &str = "mutation($c: ID!, $u: String!) { removeParticipant(input: {conversationId: $c, username: $u}) {
    removedParticipantId conversation { participantCount } } }";
const ROLE: &str = "mutation($c: ID!, $u: String!, $r: ParticipantRole!) {
    setParticipantRole(input: {conversationId: $c, username: $u, role: $r}) { participant { role } } }";
const BAN: &str =
    "mutation($c: ID!, $u: String!) { banParticipant(input: {conversationId: $c, username: $u}) {
    removedParticipantId banEdge { node { bannedBy { username } } } } }";
const LIFT: &str = "mutation($c: ID!, $u: String!) { liftBan(input: {conversationId: $c, username: $u}) { liftedBanId } }";
const SILENCE: &str = "mutation($c: ID!, $u: String!) { silenceParticipant(input: {conversationId: $c, username: $u}) { participant { isSilenced } } }";
const UNSILENCE: &str = "mutation($c: ID!, $u: String!) { unsilenceParticipant(input: {conversationId: $c, username: $u}) { participant { isSilenced } } }";
const SLOW: &str = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, slowModeSeconds: 30}) { conversation { slowModeSeconds } } }";
const PIN: &str = "mutation($m: ID!) { pinMessage(input: {messageId: $m}) { message { isPinned } pinnedMessageEdge { cursor } } }";
const UNPIN: &str =
    "mutation($m: ID!) { unpinMessage(input: {messageId: $m}) { message { isPinned } } }";
const DELETE: &str =
    "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { deletedAt } } }";
const LEAVE: &str =
    "mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { leftConversationId } }";
const ROLES: &str = "query($c: ID!) { conversation(id: $c) { participants { edges { node { role user { username } } } } } }";

/// Acts of participants, in a conversation and on one of its messages.
const ACTS: [&str; 12] = [
    "mutation($c: ID!, $m: ID!) { sendMessage(input: {conversationId: $c, body: \"x\"}) { __typename } again: addReaction(input: {messageId: $m, emoji: \"👍\"}) { __typename } }",
    "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"x\"}) { __typename } }",
    "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"y\"}) { __typename } }",
    "mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { __typename } }",
    "mutation($m: ID!) { removeReaction(input: {messageId: $m, emoji: \"👍\"}) { __typename } }",
    "mutation($c: ID!) { setTyping(input: {conversationId: $c, typing: true}) { __typename } }",
    "mutation($c: ID!) { markRead(input: {conversationId: $c}) { __typename } }",
    "mutation($c: ID!, $m: ID!) { markUnread(input: {conversationId: $c, messageId: $m}) { __typename } }",
    "mutation($c: ID!) { markDelivered(input: {conversationId: $c}) { __typename } }",
    "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, muted: true}) { __typename } }",
    LEAVE,
    "mutation($c: ID!, $m: ID!) { updateInboxEntry(input: {conversationId: $c, pinned: true}) { __typename } again: editMessage(input: {messageId: $m, body: \"y\"}) { __typename } }",
];
const STREAMS: [&str; 3] = [
    "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { cursor } } }",
    "subscription($c: ID!) { conversationEvents(conversationId: $c) { cursor } }",
    "subscription($c: ID!) { typingChanged(conversationId: $c) { isTyping } }",
];

async fn data(door: &Door, badge: &Badge, document: &str, variables: Value) -> Value {
    let said = door.ask(badge, document, &variables).await;
    assert!(
        said.json().get("errors").is_none(),
        "{document}: {}",
        said.text
    );
    said.json()["data"].take()
}

/// `name: ROLE` of each participant.
async fn roles(door: &Door, conversation: &str) -> Vec<String> {
    let data = data(door, &door.service(), ROLES, json!({"c": conversation})).await;
    let edges = &data["conversation"]["participants"]["edges"];
    let role = |edge: &Value| {
        let node = &edge["node"];
        format!(
            "{} {}",
            text(&node["user"]["username"]),
            text(&node["role"])
        )
    };
    edges.as_array().unwrap().iter().map(role).collect()
}

/// A conversation that the service takes no part in, of few or of many users.
struct Group {
    world: World,
    door: Door,
    id: String,
    message: String,
}

impl Group {
    async fn of(others: &[&str]) -> Self {
        let world = World::open().await;
        let door = Door::of(&world.chat);
        let alice = world.user("alice");
        let id = alice.group("Phoenix", others).await;
        let message = alice.send(&id, "hello").await.id;
        Self {
            world,
            door,
            id,
            message,
        }
    }

    async fn change(&self, document: &str, user: &str) -> Value {
        let variables = json!({"c": self.id, "u": user, "m": self.message});
        let data = data(&self.door, &self.door.service(), document, variables).await;
        data.as_object().unwrap().values().next().unwrap().clone()
    }
}

#[tokio::test]
async fn a_service_governs_a_conversation_without_taking_part() {
    let many: Vec<_> = (0..40).map(|number| format!("user-{number:02}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    for others in [
        &["bob", "carol"][..],
        &[&["bob", "carol"][..], &many].concat(),
    ] {
        let group = Group::of(others).await;
        let count = others.len() + 1;
        let changed = group.change(RENAME, "").await;
        assert_eq!(changed["conversation"]["name"], "Moved");
        let added = group.change(ADD, "dave").await;
        assert_eq!(added["conversation"]["participantCount"], count + 1);
        assert_eq!(added["participantEdges"][0]["node"]["role"], "MEMBER");
        let removed = group.change(REMOVE, "dave").await;
        assert!(removed["removedParticipantId"].is_string());
        assert_eq!(removed["conversation"]["participantCount"], count);
        let banned = group.change(BAN, "carol").await;
        assert!(banned["removedParticipantId"].is_string());
        let by = &banned["banEdge"]["node"]["bannedBy"]["username"];
        assert_eq!(by, SERVICE);
        assert!(group.change(LIFT, "carol").await["liftedBanId"].is_string());
        // An OWNER's own rights end here.
        let silenced = group.change(SILENCE, "alice").await;
        assert_eq!(silenced["participant"]["isSilenced"], true);
        let unsilenced = group.change(UNSILENCE, "alice").await;
        assert_eq!(unsilenced["participant"]["isSilenced"], false);
        let slow = group.change(SLOW, "").await;
        assert_eq!(slow["conversation"]["slowModeSeconds"], 30);
        let pinned = group.change(PIN, "").await;
        assert_eq!(pinned["message"]["isPinned"], true);
        let unpinned = group.change(UNPIN, "").await;
        assert_eq!(unpinned["message"]["isPinned"], false);
        let deleted = group.change(DELETE, "").await;
        assert!(deleted["message"]["deletedAt"].is_string());
        // It has become no participant, and has no inbox entry.
        assert!(
            !roles(&group.door, &group.id)
                .await
                .iter()
                .any(|role| role.starts_with(SERVICE))
        );
        let inbox = "{ inbox { edges { cursor } } }";
        let seen = data(&group.door, &group.door.service(), inbox, json!({})).await;
        assert_eq!(seen["inbox"]["edges"], json!([]));
        let alice = group.world.user("alice");
        let shown = "query($c: ID!) { conversation(id: $c) { messages(first: 1) { edges { node { kind sender { username } } } } } }";
        let shown = alice.data(shown, json!({"c": group.id})).await;
        assert!(shown["conversation"]["messages"]["edges"][0].is_object());
    }
}

#[tokio::test]
async fn a_service_in_the_name_of_a_user_has_the_rights_of_the_user() {
    let group = Group::of(&["bob"]).await;
    for name in ["bob", "mallory"] {
        let acting = group.door.service().acting_as(name);
        let code = if name == "bob" {
            "FORBIDDEN"
        } else {
            "NOT_FOUND"
        };
        for document in [RENAME, ADD, REMOVE, BAN, SILENCE, SLOW, DELETE] {
            let variables = json!({"c": group.id, "u": "alice", "m": group.message});
            let said = group.door.ask(&acting, document, &variables).await;
            assert_eq!(said.code(), code, "{name}: {document}: {}", said.text);
        }
    }
}

#[tokio::test]
async fn a_service_acts_only_where_it_takes_part() {
    let group = Group::of(&["bob"]).await;
    let alice = group.world.user("alice");
    let direct = alice.direct("bob").await;
    let in_direct = alice.send(&direct, "hello").await.id;
    let service = group.door.service();
    for (conversation, message) in [(&group.id, &group.message), (&direct, &in_direct)] {
        let variables = json!({"c": conversation, "m": message});
        for document in ACTS {
            let said = group.door.ask(&service, document, &variables).await;
            assert_eq!(said.code(), "FORBIDDEN", "{document}: {}", said.text);
        }
        for document in STREAMS {
            let mut stream = group.door.subscribe(&service, document, &variables);
            let first = futures_util::StreamExt::next(&mut stream).await.unwrap();
            let code = &first["errors"][0]["extensions"]["code"];
            assert_eq!(code, "FORBIDDEN", "{document}: {first}");
        }
    }
    // A conversation that does not exist is none for a service either.
    let nowhere = group
        .world
        .user("zoe")
        .direct("zoe")
        .await
        .replace(char::is_alphanumeric, "A");
    let said = group
        .door
        .ask(&service, ACTS[1], &json!({"c": nowhere}))
        .await;
    assert_eq!(said.code(), "NOT_FOUND", "{}", said.text);
    let said = group
        .door
        .ask(&service, RENAME, &json!({"c": nowhere}))
        .await;
    assert_eq!(said.code(), "NOT_FOUND", "{}", said.text);
    // A bot is a participant.
    group.change(ADD, SERVICE).await;
    let variables = json!({"c": group.id, "m": group.message});
    for (number, document) in ACTS.iter().enumerate() {
        let said = group.door.ask(&service, document, &variables).await;
        let is_edit = document.contains("editMessage");
        let code = if is_edit { "FORBIDDEN" } else { "" };
        assert_eq!(said.code(), code, "{number}: {}", said.text);
        if *document == LEAVE {
            group.change(ADD, SERVICE).await;
        }
    }
    for document in &STREAMS[1..2] {
        let mut stream = group.door.subscribe(&service, document, &variables);
        let first = futures_util::StreamExt::next(&mut stream).await.unwrap();
        assert!(first.get("errors").is_none(), "{first}");
    }
}

#[tokio::test]
async fn a_group_keeps_an_owner_whatever_a_service_removes() {
    let group = Group::of(&["bob", "carol"]).await;
    let service = group.door.service();
    let role = |user: &str, role: &str| json!({"c": group.id, "u": user, "r": role});
    let said = group
        .door
        .ask(&service, ROLE, &role("alice", "MEMBER"))
        .await;
    assert_eq!(
        said.code(),
        "BAD_USER_INPUT",
        "the last owner: {}",
        said.text
    );
    data(&group.door, &service, ROLE, role("carol", "ADMIN")).await;
    group.change(REMOVE, "alice").await;
    assert_eq!(
        roles(&group.door, &group.id).await,
        ["bob MEMBER", "carol OWNER"]
    );
    // As a member, it still governs as an OWNER does, and keeps its role.
    group.change(ADD, SERVICE).await;
    data(&group.door, &service, ROLE, role("bob", "OWNER")).await;
    data(&group.door, &service, ROLE, role("carol", "MEMBER")).await;
    let expected = [&format!("{SERVICE} MEMBER"), "bob OWNER", "carol MEMBER"];
    assert_eq!(roles(&group.door, &group.id).await, expected);
    group.change(BAN, "bob").await;
    let after = roles(&group.door, &group.id).await;
    assert_eq!(after.len(), 2);
    assert_eq!(
        after.iter().filter(|role| role.ends_with("OWNER")).count(),
        1,
        "{after:?}"
    );
    let direct = group.world.user("alice").direct("bob").await;
    let said = group
        .door
        .ask(&service, RENAME, &json!({"c": direct}))
        .await;
    assert_eq!(said.code(), "BAD_USER_INPUT", "{}", said.text);
}
