//! `wideroom verify` on a cluster that was damaged on purpose, through its own tables.

use scylla::client::session::Session;
use serde_json::json;
use uuid::Uuid;
use wideroom::model::id::pair_key;
use wideroom::model::{MessageId, Timestamp, UserId};

use super::read;
use super::stage::serve;
use crate::support::cassandra::{Shared, shared};
use crate::support::client::Caller;
use crate::support::program::Program;

const GROUP: &str = "550e8400-e29b-41d4-a716-446655440001";
const LARGE: &str = "550e8400-e29b-41d4-a716-446655440002";
const DIRECT: &str = "550e8400-e29b-41d4-a716-446655440003";
const HOUR: i64 = 3_600 * 1_000_000;
/// Joined, as a MEMBER from the beginning.
const JOINED: &[u8] = &[0, 2];

fn id(number: i64) -> MessageId {
    MessageId::new(
        Timestamp::parse("2026-01-01T00:00:00Z")
            .unwrap()
            .plus_micros(number * HOUR),
        [1; 8],
    )
}

fn text() -> String {
    let crowd: Vec<_> = (0..34)
        .map(|n| json!({ "username": format!("crowd-{n:02}") }))
        .collect();
    let made = |id: &str, kind: &str, people: serde_json::Value| {
        let key = match id {
            GROUP => r#","appKey":"order:7""#,
            LARGE => r#","appKey":"order:8""#,
            _ => "",
        };
        format!(
            r#"{{"type":"conversation","id":"{id}","kind":"{kind}","createdAt":"2026-01-01T00:00:00Z","participants":{people}{key}}}"#
        )
    };
    let pair = json!([{ "username": "ann" }, { "username": "ben" }]);
    let mut lines = vec![
        made(GROUP, "GROUP", pair.clone()),
        made(LARGE, "GROUP", crowd.into()),
        made(DIRECT, "DIRECT", pair),
    ];
    for conversation in [GROUP, LARGE, DIRECT] {
        for number in 1..=4 {
            let fields = format!(
                r#""conversationId":"{conversation}","id":"{}","sender":"ann","body":"{number}""#,
                id(number)
            );
            lines.push(format!(r#"{{"type":"message",{fields}}}"#));
        }
    }
    lines.join("\n")
}

async fn session_of(node: &Shared, program: &Program) -> Session {
    let session = node.session().await;
    let keyspace = program.store().rsplit('/').next().unwrap();
    let keyspace = keyspace.split('?').next().unwrap();
    session.use_keyspace(keyspace, true).await.unwrap();
    session
}

/// The conversation for which an app key is claimed.
async fn claimed(session: &Session, key: &str) -> Uuid {
    let select = "SELECT conversation_id FROM conversations_by_app_key WHERE app_key = ?";
    let found = session.query_unpaged(select, (key,)).await.unwrap();
    let found = found.into_rows_result().unwrap();
    found.single_row::<(Uuid,)>().unwrap().0
}

fn verify(program: &Program, arguments: &[&str]) -> (Option<i32>, String) {
    let ended = program.run(&[&["verify"], arguments].concat());
    (ended.code, ended.stdout + &ended.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_damage_of_a_cluster_is_found_and_repaired() {
    let Some(node) = shared().await else { return };
    let program = Program::on_cluster(node).await;
    let path = program.write("chats.jsonl", &text());
    program.run(&["import", &path]).succeeded();
    let (code, said) = verify(&program, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("sound: "), "{said}");

    let session = session_of(node, &program).await;
    let group = Uuid::parse_str(GROUP).unwrap();
    let users = ["ann", "ben"].map(|name| UserId::parse(name).unwrap());
    let newest = id(9);
    let at = newest.moment().micros();
    session
        .query_unpaged(
            "DELETE FROM inbox_activity_by_user WHERE user_id = 'ben'",
            (),
        )
        .await
        .unwrap();
    session
        .query_unpaged(
            "DELETE FROM large_conversations_by_user WHERE user_id = 'crowd-07'",
            (),
        )
        .await
        .unwrap();
    session
        .query_unpaged(
            "DELETE FROM direct_by_pair WHERE pair_key = ?",
            (pair_key(&users[0], &users[1]),),
        )
        .await
        .unwrap();
    let unclaim = "DELETE FROM conversations_by_app_key WHERE app_key = 'order:7'";
    session.query_unpaged(unclaim, ()).await.unwrap();
    let message = "INSERT INTO messages_by_conversation (conversation_id, width, start, message_id, sender_id, kind, deleted_at) VALUES (?, 2, ?, ?, 'ann', 0, 1)";
    session
        .query_unpaged(
            message,
            (
                group,
                at - at % HOUR,
                scylla::value::CqlTimeuuid::from(newest.uuid()),
            ),
        )
        .await
        .unwrap();
    let participant = "INSERT INTO participants_by_conversation (conversation_id, user_id, membership) VALUES (?, 'late', ?)";
    session
        .query_unpaged(participant, (group, JOINED))
        .await
        .unwrap();
    session
        .query_unpaged("INSERT INTO inbox_by_user (user_id, conversation_id, membership) VALUES ('stranger', ?, ?)", (group, JOINED))
        .await
        .unwrap();
    let reaction = "INSERT INTO reactions_by_message (conversation_id, message_id, emoji, user_id, is_on) VALUES (?, ?, '👍', 'ben', true)";
    session
        .query_unpaged(
            reaction,
            (group, scylla::value::CqlTimeuuid::from(id(2).uuid())),
        )
        .await
        .unwrap();

    let kinds = [
        "a bucket of messages that the index does not know",
        "a roster that does not agree with its participants",
        "an inbox that lacks a conversation",
        "an inbox entry that no page of the inbox finds",
        "a direct conversation that its participants do not find",
        "a conversation that its app key does not find",
        "an inbox entry of a user who is no participant",
        "a message that does not say that it has reactions",
    ];
    let (code, said) = verify(&program, &[]);
    assert_eq!(code, Some(1), "{said}");
    for kind in kinds {
        assert!(said.contains(kind), "{kind} is not found: {said}");
    }
    assert!(
        said.contains("`wideroom verify --repair` repairs them"),
        "{said}"
    );
    let (code, said) = verify(&program, &["--repair"]);
    assert_eq!(code, Some(0), "{said}");
    // With the bucket, its message is one that the rest did not agree with.
    for kind in kinds.into_iter().chain([
        "a conversation whose head does not agree with its history",
        "an inbox entry that is behind its conversation",
    ]) {
        let line = said
            .lines()
            .find(|line| line.contains(kind))
            .unwrap_or_else(|| panic!("{kind} is not repaired: {said}"));
        assert!(line.ends_with(", repaired"), "{line}");
    }
    let (code, said) = verify(&program, &[]);
    assert!(code == Some(0) && said.starts_with("sound: "), "{said}");
    assert_eq!(claimed(&session, "order:7").await, group);

    let server = serve(&program);
    for (name, conversations) in [
        ("ann", 2),
        ("ben", 2),
        ("late", 1),
        ("crowd-07", 1),
        ("stranger", 0),
    ] {
        let mut caller = Caller::connect(server.address(), &program.token(name))
            .await
            .unwrap();
        let entries = read::inbox(&mut caller).await.entries;
        assert_eq!(entries.len(), conversations, "{name}");
        if name != "crowd-07" && conversations > 0 {
            assert!(
                entries
                    .iter()
                    .any(|entry| (entry.last_message, entry.message_count) == (Some(newest), 5)),
                "{name}: {entries:?}"
            );
        }
    }
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_key_of_another_conversation_is_told_and_left_and_one_of_none_is_no_fault() {
    let Some(node) = shared().await else { return };
    let program = Program::on_cluster(node).await;
    let path = program.write("chats.jsonl", &text());
    program.run(&["import", &path]).succeeded();
    let session = session_of(node, &program).await;
    let claim = async |key: &str, id: &str| {
        let insert =
            "INSERT INTO conversations_by_app_key (app_key, conversation_id) VALUES (?, ?)";
        let id = Uuid::parse_str(id).unwrap();
        let written = session.query_unpaged(insert, (key, id)).await;
        written.unwrap();
    };
    // A server claims the key first: the next call of the service creates the conversation.
    claim("order:9", "550e8400-e29b-41d4-a716-446655440009").await;
    let (code, said) = verify(&program, &["--repair"]);
    assert!(code == Some(0) && said.starts_with("sound: "), "{said}");
    claim("order:7", LARGE).await;
    for _ in 0..2 {
        let (code, said) = verify(&program, &["--repair"]);
        let kind = "a conversation whose app key is claimed for another one";
        assert!(code == Some(1) && said.contains(kind), "{said}");
    }
    let large = Uuid::parse_str(LARGE).unwrap();
    assert_eq!(claimed(&session, "order:7").await, large);
}
