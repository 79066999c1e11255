//! The inbox: its order, its pages and its summary.

use serde_json::{Value, json};
use wideroom::chat::Bounds;

use crate::support::world::{Actor, World, node_texts};

const INBOX: &str = "query($first: Int, $after: String, $last: Int, $before: String, $filter: InboxFilter) {
    inbox(first: $first, after: $after, last: $last, before: $before, filter: $filter) {
        edges { cursor node { conversation { id } } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } updatesCursor } }";

pub(super) async fn inbox(actor: &Actor, arguments: Value) -> Value {
    actor.data(INBOX, arguments).await["inbox"].clone()
}

pub(super) fn conversations(inbox: &Value) -> Vec<String> {
    node_texts(&inbox["edges"], "/conversation/id")
}

#[tokio::test]
async fn the_last_active_conversation_comes_first_exactly_once() {
    let world = World::open().await;
    let alice = world.user("alice");
    let mut ids = Vec::new();
    for i in 0..7 {
        ids.push(alice.direct(&format!("friend-{i}")).await);
    }
    for round in [3, 0, 6, 3, 1] {
        world
            .user(&format!("friend-{round}"))
            .send(&ids[round], "hello")
            .await;
        let last = ids[round].clone();
        assert_eq!(conversations(&inbox(&alice, json!({})).await)[0], last);
    }
    let expected: Vec<_> = [1, 3, 6, 0, 5, 4, 2]
        .iter()
        .map(|i| ids[*i].clone())
        .collect();
    let all = inbox(&alice, json!({"first": 100})).await;
    assert_eq!(conversations(&all), expected);
    // The same list in pages, both ways.
    let (mut forward, mut after) = (Vec::new(), Value::Null);
    loop {
        let page = inbox(&alice, json!({"first": 3, "after": after})).await;
        assert_eq!(page["pageInfo"]["hasPreviousPage"], !forward.is_empty());
        forward.extend(conversations(&page));
        if page["pageInfo"]["hasNextPage"] == false {
            break;
        }
        after = page["pageInfo"]["endCursor"].clone();
    }
    assert_eq!(forward, expected);
    let (mut backward, mut before) = (Vec::new(), Value::Null);
    loop {
        let page = inbox(&alice, json!({"last": 3, "before": before})).await;
        assert_eq!(page["pageInfo"]["hasNextPage"], !backward.is_empty());
        backward.splice(0..0, conversations(&page));
        if page["pageInfo"]["hasPreviousPage"] == false {
            break;
        }
        before = page["pageInfo"]["startCursor"].clone();
    }
    assert_eq!(backward, expected);
}

#[tokio::test]
async fn an_entry_of_a_page_is_the_entry_by_itself() {
    let world = World::open().await;
    let alice = world.user("alice");
    let (one, _empty) = (alice.direct("bob").await, alice.direct("carol").await);
    world.user("bob").send(&one, "hello").await;
    world.user("bob").send(&one, "are you there?").await;
    for fields in [
        "__typename lastActivityAt unreadCount unreadCountIsCapped isMuted isPinned isArchived lastMessage { body sender { username } }",
        "conversation { __typename uuid kind name createdAt } ... on Node { id } a: unreadCount b: unreadCount",
        "conversation { id participantCount } lastMessage { body sender { displayName } status } firstUnreadMessage { body } readUpTo { id }",
        "conversation { id } conversation { uuid } lastMessage { body } lastMessage { id }",
        "...Entry unreadCount",
    ] {
        let used = if fields.contains("...Entry") {
            "fragment Entry on InboxEntry { lastMessage { body } unreadCount conversation { directPeer { username } } }"
        } else {
            ""
        };
        let list = format!("{{ inbox {{ edges {{ node {{ key: id {fields} }} }} }} }} {used}");
        let data = alice.data(&list, json!({})).await;
        let edges = data["inbox"]["edges"].as_array().unwrap();
        assert_eq!(edges.len(), 2);
        for edge in edges {
            let node = format!(
                "query($e: ID!) {{ node(id: $e) {{ ... on InboxEntry {{ key: id {fields} }} }} }} {used}"
            );
            let other = alice.data(&node, json!({"e": edge["node"]["key"]})).await;
            assert_eq!(
                edge["node"].to_string(),
                other["node"].to_string(),
                "{fields}"
            );
        }
    }
}

#[tokio::test]
async fn large_conversations_stand_where_their_activity_is() {
    let world = World::open().await;
    let alice = world.user("alice");
    let crowd: Vec<_> = (0..40).map(|i| format!("user-{i}")).collect();
    let large = alice
        .group(
            "crowd",
            &crowd.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
    let small = alice.direct("bob").await;
    let member = world.user("user-7");
    assert_eq!(
        conversations(&inbox(&alice, json!({})).await),
        [small.clone(), large.clone()]
    );
    member.send(&large, "to all").await;
    assert_eq!(
        conversations(&inbox(&alice, json!({})).await),
        [large.clone(), small.clone()]
    );
    assert_eq!(
        conversations(&inbox(&world.user("user-39"), json!({})).await),
        std::slice::from_ref(&large)
    );
    assert_eq!(
        (alice.unread(&large).await, member.unread(&large).await),
        (1, 0)
    );
    alice.send(&small, "to bob").await;
    let first = inbox(&alice, json!({"first": 1})).await;
    assert_eq!(conversations(&first), [small]);
    let rest = inbox(
        &alice,
        json!({"first": 1, "after": first["pageInfo"]["endCursor"]}),
    )
    .await;
    assert_eq!(conversations(&rest), [large]);
    assert_eq!(
        (
            &rest["pageInfo"]["hasPreviousPage"],
            &rest["pageInfo"]["hasNextPage"]
        ),
        (&json!(true), &json!(false))
    );
}

#[tokio::test]
async fn filters_page_honestly() {
    let world = World::open().await;
    let alice = world.user("alice");
    let (mut groups, mut unread) = (Vec::new(), Vec::new());
    for i in 0..9 {
        let name = format!("friend-{i}");
        let id = if i % 3 == 0 {
            alice.group(&name, &[&name]).await
        } else {
            alice.direct(&name).await
        };
        if i % 3 == 0 {
            groups.insert(0, id.clone());
        }
        if i % 2 == 0 {
            world.user(&name).send(&id, "ping").await;
            unread.insert(0, id);
        }
    }
    assert_eq!(
        conversations(&inbox(&alice, json!({"filter": {"kind": "GROUP"}})).await),
        groups
    );
    let all_unread = inbox(&alice, json!({"filter": {"unreadOnly": true}})).await;
    assert_eq!(conversations(&all_unread), unread);
    let first = inbox(&alice, json!({"filter": {"unreadOnly": true}, "first": 2})).await;
    assert_eq!(conversations(&first), unread[..2]);
    assert_eq!(first["pageInfo"]["hasNextPage"], true);
    let after = json!({"filter": {"unreadOnly": true}, "first": 3, "after": first["pageInfo"]["endCursor"]});
    let rest = inbox(&alice, after).await;
    assert_eq!(conversations(&rest), unread[2..]);
    assert_eq!(
        (
            &rest["pageInfo"]["hasPreviousPage"],
            &rest["pageInfo"]["hasNextPage"]
        ),
        (&json!(true), &json!(false))
    );
    // Before the first of them lies only what the filter hides, and behind the last one too.
    let top = inbox(&alice, json!({"filter": {"kind": "DIRECT"}, "last": 1, "before": first["pageInfo"]["startCursor"]})).await;
    assert_eq!(conversations(&top).len(), 0);
    assert_eq!(top["pageInfo"]["hasPreviousPage"], false);
    for nothing in [json!({"archived": true}), json!({"pinned": true})] {
        assert_eq!(
            conversations(&inbox(&alice, json!({"filter": nothing})).await).len(),
            0
        );
    }
}

#[tokio::test]
async fn the_summary_counts_conversations_with_something_unread() {
    let world = World::open().await;
    let alice = world.user("alice");
    let summary = async || {
        alice
            .data(
                "{ inboxSummary { unreadConversationCount isCapped } }",
                json!({}),
            )
            .await["inboxSummary"]
            .clone()
    };
    assert_eq!(
        summary().await,
        json!({"unreadConversationCount": 0, "isCapped": false})
    );
    for i in 0..5 {
        let name = format!("friend-{i}");
        let id = alice.direct(&name).await;
        for _ in 0..=i {
            world.user(&name).send(&id, "ping").await;
        }
        if i == 2 {
            alice.mark_read(&id, None).await;
        }
    }
    assert_eq!(
        summary().await,
        json!({"unreadConversationCount": 4, "isCapped": false})
    );
}

#[tokio::test]
async fn a_cursor_of_another_user_or_list_is_refused() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let id = alice.direct("bob").await;
    let message = alice.send(&id, "hello").await;
    let own = inbox(&alice, json!({})).await;
    for cursor in [
        json!(message.cursor),
        own["updatesCursor"].clone(),
        json!("nonsense"),
        json!(""),
    ] {
        assert_eq!(
            alice.ask(INBOX, json!({"after": cursor})).await.code(),
            "BAD_USER_INPUT"
        );
    }
    assert_eq!(
        bob.ask(INBOX, json!({"after": own["edges"][0]["cursor"]}))
            .await
            .code(),
        "BAD_USER_INPUT"
    );
    assert_eq!(
        alice
            .ask(INBOX, json!({"first": 1, "last": 1}))
            .await
            .code(),
        "BAD_USER_INPUT"
    );
}

const SUMMARY: &str = "unreadConversationCount unreadMessageCount isCapped";

#[tokio::test]
async fn the_summary_counts_the_unread_messages_of_unmuted_conversations() {
    let world = World::with_bounds(Bounds {
        unread_cap: 3,
        ..Bounds::default()
    })
    .await;
    let (alice, bob, carol) = (world.user("alice"), world.user("bob"), world.user("carol"));
    let summary = async || {
        let document = format!("{{ inboxSummary {{ {SUMMARY} }} }}");
        alice.data(&document, json!({})).await["inboxSummary"].clone()
    };
    let expected = |conversations: i32, messages: i32, is_capped: bool| json!({"unreadConversationCount": conversations, "unreadMessageCount": messages, "isCapped": is_capped});
    let (one, other) = (bob.direct("alice").await, carol.direct("alice").await);
    let group = bob.group("friends", &["alice"]).await;
    for body in ["1", "2"] {
        bob.send(&one, body).await;
        carol.send(&other, body).await;
    }
    bob.send(&group, "3").await;
    assert_eq!(summary().await, expected(3, 5, false));
    alice
        .data(
            "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, muted: true}) { __typename } }",
            json!({"c": other}),
        )
        .await;
    assert_eq!(summary().await, expected(2, 3, false));
    for body in ["3", "4", "5"] {
        bob.send(&one, body).await;
    }
    assert_eq!(summary().await, expected(2, 4, true));
    alice
        .data(
            "mutation { blockUser(input: {username: \"bob\"}) { user { id } } }",
            json!({}),
        )
        .await;
    assert_eq!(summary().await, expected(0, 0, false));
}

#[tokio::test]
async fn an_update_carries_the_summary_after_its_event() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let start = bob.data("{ inbox { updatesCursor } }", json!({})).await;
    let after = start["inbox"]["updatesCursor"].clone();
    alice.send(&c, "1").await;
    let document = format!(
        "subscription($after: String) {{ inboxUpdated(after: $after) {{ summary {{ {SUMMARY} }} event {{ __typename }} }} }}"
    );
    // Replayed, and on another device at once.
    let mut devices = [(); 2].map(|()| bob.subscribe(&document, json!({"after": after})));
    for (number, body) in [(1, None), (2, Some("2")), (3, Some("3"))] {
        if let Some(body) = body {
            alice.send(&c, body).await;
        }
        for device in &mut devices {
            let payload = loop {
                let payload = device.next().await["inboxUpdated"].clone();
                if payload["event"] != Value::Null {
                    break payload;
                }
            };
            assert_eq!(
                payload["summary"],
                json!({"unreadConversationCount": 1, "unreadMessageCount": number, "isCapped": false})
            );
        }
    }
}
