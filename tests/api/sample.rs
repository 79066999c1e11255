//! The sample answers what its table says.

use serde_json::{Value, json};

use crate::support::world::{Actor, World};

const INBOX: &str = "{ inbox { edges { node { lastActivityAt unreadCount unreadCountIsCapped firstUnreadMessage { uuid }
    conversation { id name messageCount } } } } }";

async fn inbox(actor: &Actor) -> Vec<Value> {
    let data = actor.data(INBOX, json!({})).await;
    data["inbox"]["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| edge["node"].clone())
        .collect()
}

/// Names, unread counts and the last digits of the first unread message, as the table has them.
fn summary(inbox: &[Value]) -> Vec<(String, i64, Option<String>)> {
    inbox
        .iter()
        .map(|entry| {
            assert_eq!(entry["unreadCountIsCapped"], false);
            let first = entry["firstUnreadMessage"]["uuid"]
                .as_str()
                .map(|uuid| format!("{}…{}", &uuid[..4], &uuid[32..]));
            (
                entry["conversation"]["name"].as_str().unwrap().to_owned(),
                entry["unreadCount"].as_i64().unwrap(),
                first,
            )
        })
        .collect()
}

fn row(name: &str, unread: i64, first: Option<&str>) -> (String, i64, Option<String>) {
    (name.to_owned(), unread, first.map(ToOwned::to_owned))
}

#[tokio::test]
async fn the_sample_answers_what_its_table_says() {
    let world = World::with_sample().await;
    let alice = inbox(&world.user("alice")).await;
    assert_eq!(
        summary(&alice),
        [
            row("Alice & Bob", 1, Some("a3e3…0006")),
            row("Project Phoenix", 3, Some("b4f4…0005"))
        ]
    );
    assert_eq!(alice[0]["lastActivityAt"], "2026-03-15T12:05:00.000000Z");
    assert_eq!(alice[1]["lastActivityAt"], "2026-03-15T11:30:00.000000Z");
    assert_eq!(alice[0]["conversation"]["messageCount"], 7);
    assert_eq!(alice[1]["conversation"]["messageCount"], 8);
    let bob = inbox(&world.user("bob")).await;
    assert_eq!(
        summary(&bob),
        [
            row("Alice & Bob", 0, None),
            row("Project Phoenix", 2, Some("b4f4…0006"))
        ]
    );
    assert_eq!(
        summary(&inbox(&world.user("carol")).await),
        [row("Project Phoenix", 0, None)]
    );
    assert_eq!(
        summary(&inbox(&world.user("dave")).await),
        [row("Project Phoenix", 1, Some("b4f4…0008"))]
    );
    assert_eq!(inbox(&world.user("mallory")).await, Vec::<Value>::new());
}

#[tokio::test]
async fn the_sample_pages_both_ways() {
    let world = World::with_sample().await;
    let alice = world.user("alice");
    let ids: Vec<_> = inbox(&alice)
        .await
        .iter()
        .map(|entry| entry["conversation"]["id"].clone())
        .collect();
    let direct = page(&alice, &ids[0], json!({"first": 5})).await;
    assert_eq!(direct.digits, ["07", "06", "05", "04", "03"]);
    assert_eq!((direct.has_previous, direct.has_next), (false, true));

    let newest = page(&alice, &ids[1], json!({"first": 5})).await;
    assert_eq!(newest.digits, ["08", "07", "06", "05", "04"]);
    assert_eq!((newest.has_previous, newest.has_next), (false, true));
    let older = page(&alice, &ids[1], json!({"first": 5, "after": newest.end})).await;
    assert_eq!(older.digits, ["03", "02", "01"]);
    assert_eq!((older.has_previous, older.has_next), (true, false));

    // And back from the oldest one.
    let back = page(&alice, &ids[1], json!({"last": 5, "before": older.end})).await;
    assert_eq!(back.digits, ["06", "05", "04", "03", "02"]);
    assert_eq!((back.has_previous, back.has_next), (true, true));
    let rest = page(&alice, &ids[1], json!({"last": 5, "before": back.start})).await;
    assert_eq!(rest.digits, ["08", "07"]);
    assert_eq!((rest.has_previous, rest.has_next), (false, true));
}

struct Page {
    digits: Vec<String>,
    has_previous: bool,
    has_next: bool,
    start: Value,
    end: Value,
}

async fn page(actor: &Actor, conversation: &Value, arguments: Value) -> Page {
    let document = "query($id: ID!, $first: Int, $after: String, $last: Int, $before: String) { conversation(id: $id) {
        messages(first: $first, after: $after, last: $last, before: $before) {
            edges { node { uuid createdAt } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } }";
    let mut variables = arguments;
    variables["id"] = conversation.clone();
    let data = actor.data(document, variables).await;
    let messages = &data["conversation"]["messages"];
    let nodes: Vec<_> = messages["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| &edge["node"])
        .collect();
    assert!(
        nodes.iter().all(|node| node["createdAt"]
            .as_str()
            .unwrap()
            .starts_with("2025-02-04T01:59")),
        "import keeps ids"
    );
    Page {
        digits: nodes
            .iter()
            .map(|node| node["uuid"].as_str().unwrap()[34..].to_owned())
            .collect(),
        has_previous: messages["pageInfo"]["hasPreviousPage"].as_bool().unwrap(),
        has_next: messages["pageInfo"]["hasNextPage"].as_bool().unwrap(),
        start: messages["pageInfo"]["startCursor"].clone(),
        end: messages["pageInfo"]["endCursor"].clone(),
    }
}

#[tokio::test]
async fn a_send_into_the_sample_becomes_its_newest_message() {
    let world = World::with_sample().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let phoenix = inbox(&alice).await[1]["conversation"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    alice.send(&phoenix, "Cursors.").await;
    let names: Vec<_> = summary(&inbox(&bob).await)
        .into_iter()
        .map(|(name, unread, _)| (name, unread))
        .collect();
    assert_eq!(
        names,
        [
            ("Project Phoenix".to_owned(), 3),
            ("Alice & Bob".to_owned(), 0)
        ]
    );
    assert_eq!(
        alice.unread(&phoenix).await,
        0,
        "what one writes oneself, and what lies before it, is read"
    );
}

#[tokio::test]
async fn the_sample_keeps_kinds_times_and_participants() {
    let world = World::with_sample().await;
    let document = "{ inbox { edges { node { conversation { name kind createdAt createdBy { username } participantCount
        participants { edges { node { role user { username displayName } } } }
        messages(last: 1) { edges { node { kind sender { username } createdAt } } } } } } } }";
    let data = world.user("alice").data(document, json!({})).await;
    let participants = |members: &[(&str, &str)]| {
        let edge = |(name, role): &(&str, &str)| json!({ "node": { "role": role, "user": { "username": name.to_lowercase(), "displayName": name } } });
        json!({ "edges": members.iter().map(edge).collect::<Vec<_>>() })
    };
    let oldest = |sender: &str, at: &str| {
        let node = json!({ "kind": "TEXT", "sender": { "username": sender }, "createdAt": at });
        json!({ "edges": [{ "node": node }] })
    };
    let expected = [
        json!({
            "name": "Alice & Bob",
            "kind": "DIRECT",
            "createdAt": "2026-03-15T09:00:00.000000Z",
            "createdBy": null,
            "participantCount": 2,
            "participants": participants(&[("Alice", "MEMBER"), ("Bob", "MEMBER")]),
            "messages": oldest("alice", "2025-02-04T01:59:16.918481Z"),
        }),
        json!({
            "name": "Project Phoenix",
            "kind": "GROUP",
            "createdAt": "2026-03-14T14:30:00.000000Z",
            "createdBy": { "username": "alice" },
            "participantCount": 4,
            "participants": participants(&[("Alice", "OWNER"), ("Bob", "MEMBER"), ("Carol", "MEMBER"), ("Dave", "MEMBER")]),
            "messages": oldest("carol", "2025-02-04T01:59:45.551596Z"),
        }),
    ];
    let edges = data["inbox"]["edges"].as_array().unwrap();
    assert_eq!(edges.len(), expected.len(), "{data}");
    for (edge, expected) in edges.iter().zip(expected) {
        assert_eq!(edge["node"]["conversation"], expected);
    }
}

/// The smallest history: two users, two messages, one a second.
#[tokio::test]
async fn the_pair_answers_what_its_readme_says() {
    let world = World::with_import(include_bytes!("pair.jsonl")).await;
    let document = "{ inbox { edges { node { unreadCount firstUnreadMessage { body } lastActivityAt lastMessage { body createdAt sender { username } }
        conversation { kind name directPeer { username } createdAt createdBy { username } messageCount
            messages(first: 3) { edges { node { body kind createdAt sender { username } } } }
            participants { edges { node { user { username } readUpTo { body } } } } } } } } }";
    for (viewer, peer, unread, first_unread) in [
        ("2249", "9111", 1, json!({ "body": "I'm fine, thanks" })),
        ("9111", "2249", 0, Value::Null),
    ] {
        let data = world.user(viewer).data(document, json!({})).await;
        let edges = data["inbox"]["edges"].as_array().unwrap();
        assert_eq!(edges.len(), 1, "{data}");
        let message = |sender: &str, body: &str, second: u8| {
            let at = format!("1970-05-23T21:21:{second}.000000Z");
            json!({ "body": body, "createdAt": at, "sender": { "username": sender } })
        };
        let history = [
            message("9111", "I'm fine, thanks", 19),
            message("2249", "Hello, how are you?", 18),
        ];
        let nodes = history.clone().map(|mut node| {
            node["kind"] = "TEXT".into();
            json!({ "node": node })
        });
        let participant = |name: &str, body: &str| json!({ "node": { "user": { "username": name }, "readUpTo": { "body": body } } });
        assert_eq!(
            edges[0]["node"],
            json!({
                "unreadCount": unread,
                "firstUnreadMessage": first_unread,
                "lastActivityAt": history[0]["createdAt"],
                "lastMessage": history[0],
                "conversation": {
                    "kind": "DIRECT",
                    "name": null,
                    "directPeer": { "username": peer },
                    "createdAt": "1970-05-23T21:21:18.000000Z",
                    "createdBy": { "username": "2249" },
                    "messageCount": 2,
                    "messages": { "edges": nodes },
                    "participants": { "edges": [participant("2249", "Hello, how are you?"), participant("9111", "I'm fine, thanks")] },
                },
            }),
            "{viewer}"
        );
    }
}
