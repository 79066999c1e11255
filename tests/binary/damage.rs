//! Messages that cannot be read: they are named, and nothing else suffers.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wideroom::clock::SystemClock;
use wideroom::model::{
    Body, Content, ConversationId, Message, MessageId, MessageKind, Metadata, Timestamp, UserId,
};
use wideroom::store::embedded::{Embedded, Options};
use wideroom::store::{ImportRow, Imported, Store as _, StoreAdmin};
use wideroom::transfer::export::{Export, ExportReport};
use wideroom::transfer::partial::Partial;

use super::stage::serve;
use crate::support::cassandra::shared;
use crate::support::client::Caller;
use crate::support::program::{Ended, Program};

const GROUP: &str = "550e8400-e29b-41d4-a716-446655440001";
/// More than one read of an export.
const MESSAGES: i64 = 450;
const KEY: &str = "$serde_json::private::RawValue";

fn id(number: i64) -> MessageId {
    MessageId::new(
        Timestamp::parse("2026-01-01T00:00:00Z")
            .unwrap()
            .plus_micros(number),
        [1; 8],
    )
}

fn chats(numbers: impl Iterator<Item = i64>) -> String {
    let people = json!([{ "username": "ann" }, { "username": "ben" }]);
    let mut lines = vec![format!(
        r#"{{"type":"conversation","id":"{GROUP}","createdAt":"2026-01-01T00:00:00Z","participants":{people}}}"#
    )];
    lines.extend(numbers.map(|number| {
        format!(r#"{{"type":"message","conversationId":"{GROUP}","id":"{}","sender":"ann","body":"{number}","metadata":{{"z":1,"a":{number}}}}}"#, id(number))
    }));
    lines.join("\n")
}

/// A row as an earlier version or a fault may have left it.
fn damaged(number: i64, metadata: &str) -> ImportRow {
    let metadata: Metadata = serde_json::from_value(json!(metadata)).unwrap();
    let body = Body::parse(number.to_string(), Body::BYTES_MAX, false).unwrap();
    ImportRow::Message(Arc::new(Message::new(
        ConversationId(GROUP.parse().unwrap()),
        id(number),
        UserId::parse("ann").unwrap(),
        MessageKind::Text,
        Content {
            body,
            metadata: Some(metadata),
            ..Content::default()
        },
    )))
}

async fn open(program: &Program) -> Embedded {
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(program.data())
    };
    Embedded::open(options, Arc::new(SystemClock))
        .await
        .unwrap()
}

const DAMAGED: [i64; 3] = [7, 230, MESSAGES];

/// Three of its messages are damaged, one in each page of an export.
async fn with_damage() -> Program {
    let program = Program::new();
    let path = program.write(
        "chats.jsonl",
        &chats((1..=MESSAGES).filter(|number| !DAMAGED.contains(number))),
    );
    program.run(&["import", &path]).succeeded();
    let store = open(&program).await;
    let texts = [
        "not} json",
        &format!(r#"{{"{KEY}":"not json"}}"#),
        "1,\"body\":\"forged\"",
    ];
    let rows: Vec<_> = DAMAGED
        .iter()
        .zip(texts)
        .map(|(number, text)| damaged(*number, text))
        .collect();
    assert!(
        store
            .import(&rows)
            .await
            .unwrap()
            .iter()
            .all(|fate| *fate == Imported::Added)
    );
    store.close().await.unwrap();
    program
}

#[track_caller]
fn assert_named(ended: &Ended, numbers: &[i64]) {
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code, Some(1), "{said}");
    for number in numbers {
        let named = format!("message {}, conversation {GROUP}: ", id(*number));
        assert!(ended.stderr.contains(&named), "{named}: {said}");
    }
}

/// All but these are in it, and it is whole: another store takes it.
fn assert_holds_the_rest(file: &Path, without: &[i64]) {
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let found: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "message")
        .map(|line| line["id"].as_str().unwrap().to_owned())
        .collect();
    let expected: Vec<_> = (1..=MESSAGES)
        .filter(|number| !without.contains(number))
        .map(|number| id(number).to_string())
        .collect();
    assert_eq!(found, expected);
    assert_eq!(
        lines.last().unwrap(),
        &json!({ "type": "end", "lines": lines.len() - 1 })
    );
    assert!(
        text.contains(r#""metadata":{"z":1,"a":5}"#),
        "keys stay in their order"
    );
    let other = Program::new();
    assert!(
        other
            .run(&["import", file.to_str().unwrap()])
            .succeeded()
            .ends_with("broken lines: 0\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_metadata_ends_no_export_and_breaks_no_page() {
    let program = with_damage().await;
    let verified = program.run(&["verify"]);
    assert_named(&verified, &DAMAGED);
    assert!(
        verified.stdout.contains("3 × a damaged message"),
        "{}",
        verified.stdout
    );
    assert_named(&program.run(&["verify", "--repair"]), &DAMAGED);

    let exported = program.run(&["export", "all.jsonl"]);
    assert_named(&exported, &DAMAGED);
    assert!(
        exported
            .stderr
            .ends_with("wideroom: damaged messages left out: 3; the rest is exported\n"),
        "{}",
        exported.stderr
    );
    assert_holds_the_rest(&program.dir.path().join("all.jsonl"), &DAMAGED);
    let beside = std::fs::read_dir(program.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(
        !beside
            .into_iter()
            .any(|name| name.contains(".damaged") || name.contains(".partial"))
    );
    let piped = program.run(&["export", "-"]);
    assert_named(&piped, &DAMAGED);

    let server = serve(&program);
    let mut ann = Caller::connect(server.address(), &program.token("ann"))
        .await
        .unwrap();
    let conversation = ann
        .data(
            "{ inbox(first: 1) { edges { node { conversation { id } } } } }",
            &json!({}),
        )
        .await
        .unwrap();
    let conversation = conversation["inbox"]["edges"][0]["node"]["conversation"]["id"].clone();
    // Once as text that is written, and once as values that the library puts together.
    let fields = "id body metadata";
    for asked in [
        format!("node {{ {fields} }}"),
        format!("node {{ {fields} }} node {{ uuid }}"),
    ] {
        let page = format!(
            "query($c: ID!) {{ conversation(id: $c) {{ messages(first: 2) {{ edges {{ {asked} }} }} }} }}"
        );
        let page = ann
            .data(&page, &json!({ "c": conversation }))
            .await
            .unwrap();
        let edges = page["conversation"]["messages"]["edges"]
            .as_array()
            .unwrap();
        assert_eq!(
            (&edges[0]["node"]["body"], &edges[0]["node"]["metadata"]),
            (&json!(MESSAGES.to_string()), &Value::Null)
        );
        assert_eq!(
            edges[1]["node"]["metadata"],
            json!({ "a": MESSAGES - 1, "z": 1 })
        );
        let one =
            format!("query($id: ID!) {{ node(id: $id) {{ ... on Message {{ {fields} }} }} }}");
        let one = ann
            .data(&one, &json!({ "id": edges[0]["node"]["id"] }))
            .await
            .unwrap();
        assert_eq!(
            (&one["node"]["body"], &one["node"]["metadata"]),
            (&json!(MESSAGES.to_string()), &Value::Null)
        );
    }
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

/// An export that goes on does not meet again what the run before left out, and still knows of it.
#[tokio::test]
async fn what_was_left_out_before_an_interruption_still_counts() {
    let program = with_damage().await;
    let store: Arc<dyn StoreAdmin> = Arc::new(open(&program).await);
    let target = program.dir.path().join("all.jsonl");
    let (mut runs, mut named) = (0, Vec::new());
    let outcome = loop {
        runs += 1;
        let stop = CancellationToken::new();
        let export = Export {
            store: store.clone(),
            clock: Arc::new(SystemClock),
            stop: stop.clone(),
            user: None,
        };
        let (partial, written) = Partial::open(&target, "store").unwrap();
        let journal = partial.journal(&written).unwrap();
        let mut report = |report: ExportReport<'_>| {
            if let ExportReport::LeftOut(damaged) = report {
                named.push(damaged.message);
                stop.cancel();
            }
        };
        let outcome = export
            .run(partial.writer().unwrap(), journal, written, &mut report)
            .await
            .unwrap();
        if !outcome.is_interrupted {
            partial.finish().unwrap();
            break outcome;
        }
        // As a process that was killed leaves it: with a line of each file broken off.
        let mut broken = std::fs::OpenOptions::new()
            .append(true)
            .open(&partial.path)
            .unwrap();
        broken.write_all(br#"{"type":"mess"#).unwrap();
        assert!(!target.exists());
    };
    assert!(runs > 1, "it was interrupted");
    assert_eq!(outcome.left_out, 3);
    named.dedup();
    assert_eq!(named, DAMAGED.map(id));
    store.close().await.unwrap();
    assert_holds_the_rest(&target, &DAMAGED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_message_of_a_cluster_is_named_and_left_out() {
    let Some(node) = shared().await else { return };
    let program = Program::on_cluster(node).await;
    let path = program.write("chats.jsonl", &chats(1..=MESSAGES));
    program.run(&["import", &path]).succeeded();
    let session = node.session().await;
    let keyspace = program
        .store()
        .rsplit('/')
        .next()
        .unwrap()
        .split('?')
        .next()
        .unwrap();
    session.use_keyspace(keyspace, true).await.unwrap();
    let group = uuid::Uuid::parse_str(GROUP).unwrap();
    let rows = session
        .query_unpaged(
            "SELECT conversation_id, width, start, message_id FROM messages_by_conversation",
            (),
        )
        .await
        .unwrap();
    let rows = rows.into_rows_result().unwrap();
    let hurt = 230;
    for row in rows
        .rows::<(uuid::Uuid, i8, i64, scylla::value::CqlTimeuuid)>()
        .unwrap()
    {
        let (_, width, start, message) = row.unwrap();
        if uuid::Uuid::from(message) == id(hurt).uuid() {
            let update = "UPDATE messages_by_conversation SET content = 0x01ff WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
            session
                .query_unpaged(update, (group, width, start, message))
                .await
                .unwrap();
        }
    }
    assert_named(&program.run(&["verify"]), &[hurt]);
    assert_named(&program.run(&["verify", "--repair"]), &[hurt]);
    assert_named(&program.run(&["export", "all.jsonl"]), &[hurt]);
    assert_holds_the_rest(&program.dir.path().join("all.jsonl"), &[hurt]);
}
