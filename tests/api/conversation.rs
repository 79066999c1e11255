//! Starting conversations, and who is in them.

use serde_json::json;
use wideroom::chat::Bounds;

use crate::support::world::{World, node_texts, text};

#[tokio::test]
async fn a_direct_conversation_is_one_whoever_starts_it() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let (one, other) = tokio::join!(alice.direct("bob"), bob.direct("alice"));
    assert_eq!(one, other);
    assert_eq!(alice.direct("bob").await, one);
    let document = "query($c: ID!) { conversation(id: $c) { kind name directPeer { username } participantCount createdBy { username }
        participants { edges { node { role user { username } } } } } }";
    let data = bob.data(document, json!({"c": one})).await;
    let conversation = &data["conversation"];
    assert_eq!(conversation["kind"], "DIRECT");
    assert_eq!(conversation["name"], json!(null));
    assert_eq!(conversation["directPeer"]["username"], "alice");
    assert_eq!(conversation["participantCount"], 2);
    let people = node_texts(&conversation["participants"]["edges"], "/user/username");
    assert_eq!(people, ["alice", "bob"]);
}

#[tokio::test]
async fn a_direct_conversation_that_an_import_brought_is_found() {
    let world = World::with_sample().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let id = alice.direct("bob").await;
    assert_eq!(bob.direct("alice").await, id);
    let data = alice
        .data(
            "query($c: ID!) { conversation(id: $c) { uuid } }",
            json!({"c": id}),
        )
        .await;
    assert_eq!(
        data["conversation"]["uuid"],
        "550e8400-e29b-41d4-a716-446655440001"
    );
}

#[tokio::test]
async fn a_user_may_start_a_conversation_with_themselves() {
    let world = World::open().await;
    let alice = world.user("alice");
    let id = alice.direct("alice").await;
    assert_eq!(alice.direct("alice").await, id);
    alice.send(&id, "milk").await;
    let document = "query($c: ID!) { conversation(id: $c) { directPeer { username } participantCount inboxEntry { unreadCount } } }";
    let data = alice.data(document, json!({"c": id})).await;
    let expected = json!({"directPeer": {"username": "alice"}, "participantCount": 1, "inboxEntry": {"unreadCount": 0}});
    assert_eq!(data["conversation"], expected);
}

#[tokio::test]
async fn a_group_is_made_once_per_key() {
    let world = World::open().await;
    let alice = world.user("alice");
    let document = "mutation($n: String!, $u: [String!]!, $k: String) {
        createGroupConversation(input: {name: $n, usernames: $u, idempotencyKey: $k}) {
            inboxEntryEdge { cursor node { conversation { id } } }
            conversation { id name kind participants { edges { node { role user { username } } } } } } }";
    let input = json!({"n": "Phoenix", "u": ["dave", "bob", "bob", "alice"], "k": "key-1"});
    let first = alice.data(document, input.clone()).await["createGroupConversation"].clone();
    let again = alice
        .data(
            document,
            json!({"n": "Phoenix", "u": ["bob", "dave"], "k": "key-1"}),
        )
        .await;
    assert_eq!(
        again["createGroupConversation"]["conversation"], first["conversation"],
        "the same people in another order"
    );
    let roles: Vec<_> = first["conversation"]["participants"]["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| {
            format!(
                "{} {}",
                text(&edge["node"]["user"]["username"]),
                text(&edge["node"]["role"])
            )
        })
        .collect();
    assert_eq!(roles, ["alice OWNER", "bob MEMBER", "dave MEMBER"]);
    for other in [
        json!({"n": "Griffin", "u": ["bob", "dave"], "k": "key-1"}),
        json!({"n": "Phoenix", "u": ["bob"], "k": "key-1"}),
    ] {
        assert_eq!(alice.ask(document, other).await.code(), "CONFLICT");
    }
    let bob = world.user("bob").data(document, input).await;
    assert_ne!(
        bob["createGroupConversation"]["conversation"]["id"], first["conversation"]["id"],
        "a key is its viewer's own"
    );
}

#[tokio::test]
async fn bad_groups_and_names_are_refused() {
    let world = World::open().await;
    let alice = world.user("alice");
    let document = "mutation($n: String!, $u: [String!]!, $k: String) {
        createGroupConversation(input: {name: $n, usernames: $u, idempotencyKey: $k}) { __typename } }";
    let many: Vec<_> = (0..51).map(|i| format!("user-{i}")).collect();
    for (input, path) in [
        (json!({"n": " ", "u": []}), "name"),
        (json!({"n": "x".repeat(257), "u": []}), "name"),
        (json!({"n": "bell\u{7}", "u": []}), "name"),
        (json!({"n": "ok", "u": [""]}), "usernames"),
        (json!({"n": "ok", "u": ["x".repeat(129)]}), "usernames"),
        (json!({"n": "ok", "u": many}), "usernames"),
        (json!({"n": "ok", "u": [], "k": "ключ"}), "idempotencyKey"),
    ] {
        let answer = alice.ask(document, input).await;
        assert_eq!(answer.code(), "BAD_USER_INPUT");
        assert_eq!(answer.extensions()["inputPath"], json!(["input", path]));
    }
    let direct = "mutation { startDirectConversation(input: {username: \"\"}) { __typename } }";
    assert_eq!(alice.ask(direct, json!({})).await.code(), "BAD_USER_INPUT");
}

#[tokio::test]
async fn participants_page_by_the_bytes_of_their_names() {
    let world = World::open().await;
    let zoe = world.user("zoé");
    let id = zoe
        .group("names", &["a", "ab", "b", "żółw", "B", "a b"])
        .await;
    let document = "query($c: ID!, $first: Int, $after: String, $last: Int, $before: String) { conversation(id: $c) {
        participants(first: $first, after: $after, last: $last, before: $before) {
            edges { cursor node { id user { username } } } pageInfo { hasNextPage hasPreviousPage endCursor startCursor } } } }";
    let names = |data: &serde_json::Value| -> Vec<String> {
        node_texts(
            &data["conversation"]["participants"]["edges"],
            "/user/username",
        )
    };
    let all = zoe.data(document, json!({"c": id, "first": 100})).await;
    assert_eq!(names(&all), ["B", "a", "a b", "ab", "b", "zoé", "żółw"]);
    let first = zoe.data(document, json!({"c": id, "first": 3})).await;
    assert_eq!(names(&first), ["B", "a", "a b"]);
    let after = &first["conversation"]["participants"]["pageInfo"]["endCursor"];
    let rest = zoe
        .data(document, json!({"c": id, "first": 100, "after": after}))
        .await;
    assert_eq!(names(&rest), ["ab", "b", "zoé", "żółw"]);
    assert_eq!(
        rest["conversation"]["participants"]["pageInfo"]["hasPreviousPage"],
        true
    );
    let last = zoe.data(document, json!({"c": id, "last": 2})).await;
    assert_eq!(names(&last), ["zoé", "żółw"]);
    let node = &last["conversation"]["participants"]["edges"][0]["node"];
    let data = zoe
        .data(
            "query($id: ID!) { node(id: $id) { id ... on Participant { user { username } } } }",
            json!({"id": node["id"]}),
        )
        .await;
    assert_eq!(data["node"], *node);
}

#[tokio::test]
async fn a_user_is_in_a_bounded_number_of_large_conversations() {
    let world = World::with_bounds(Bounds {
        large_conversations_max: 2,
        ..Bounds::default()
    })
    .await;
    let alice = world.user("alice");
    let crowd = |from: usize| {
        (from..from + 40)
            .map(|i| format!("user-{i}"))
            .collect::<Vec<_>>()
    };
    let document = "mutation($u: [String!]!, $k: String) {
        createGroupConversation(input: {name: \"crowd\", usernames: $u, idempotencyKey: $k}) { __typename } }";
    // The second one is sent twice: a retry does not count towards the limit.
    for from in [0, 40, 40] {
        alice
            .data(
                document,
                json!({"u": crowd(from), "k": format!("crowd {from}")}),
            )
            .await;
    }
    let answer = alice.ask(document, json!({"u": crowd(80)})).await;
    assert_eq!(answer.code(), "BAD_USER_INPUT");
    assert_eq!(
        answer.extensions()["inputPath"],
        json!(["input", "usernames"])
    );
    world
        .user("user-3")
        .data(document, json!({"u": crowd(3)[..32]}))
        .await;
    alice.group("small", &["bob"]).await;
}
